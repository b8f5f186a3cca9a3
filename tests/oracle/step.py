"""Step-3.5-Flash as Transformers computes it: there its text model is part of one with images, whose files
have other names. This is the text model with a head, and the names of the published files."""
import json
import re
import types

import torch
from safetensors.torch import load_file, save_file

NAMES = (("mlp.shared_experts.", "share_expert."), ("mlp.gate.weight", "moe.gate.weight"),
         ("mlp.gate.e_score_correction_bias", "moe.router_bias"),
         ("mlp.experts.down_proj", "moe.down_proj.weight"))
BOTH = "mlp.experts.gate_up_proj"


class Step(torch.nn.Module):
    def __init__(self, config):
        from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel
        super().__init__()
        config._attn_implementation = "eager"
        config.allow_global_per_layer_attribute_access = True  # heads, of layers without windows
        self.config = config
        self.model = Step3p7TextModel(config)
        self.model.embed_tokens.padding_idx = None  # whose row gets no gradient there; the config needs one
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @classmethod
    def from_config(cls, config, **_):
        return cls(config)

    def forward(self, input_ids, use_cache=False):
        hidden = self.model(input_ids=input_ids, use_cache=use_cache).last_hidden_state
        return types.SimpleNamespace(logits=self.lm_head(hidden))

    def save_pretrained(self, folder):
        folder.mkdir()
        (folder / "config.json").write_text(self.config.to_json_string(use_diff=False))
        out = {}
        for name, tensor in self.state_dict().items():
            for theirs, published in NAMES:
                name = name.replace(theirs, published)
            if name.endswith(BOTH):
                for part, half in zip(("gate_proj", "up_proj"), tensor.chunk(2, 1)):
                    out[name.replace(BOTH, f"moe.{part}.weight")] = half.contiguous()
            else:
                out[name] = tensor.contiguous()
        save_file(out, folder / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def from_pretrained(cls, folder, output_loading_info=False, **_):
        from transformers import Step3p7TextConfig
        keys = json.loads((folder / "config.json").read_text())
        model = cls(Step3p7TextConfig(**{k: v for k, v in keys.items() if k not in ("model_type", "architectures")}))
        found, state = load_file(folder / "model.safetensors"), {}
        for name, tensor in found.items():
            for theirs, published in NAMES:
                name = name.replace(published, theirs)
            at = re.sub(r"moe\.(gate|up)_proj\.weight$", BOTH, name)
            if at == name:
                state[name] = tensor
            elif ".gate_proj." in name:
                state[at] = torch.cat([tensor, found[name.replace(".gate_proj.", ".up_proj.")]], 1)
        told = model.load_state_dict(state, strict=False)
        model.float()
        info = {"missing_keys": told.missing_keys, "unexpected_keys": told.unexpected_keys}
        return (model, info) if output_loading_info else model
