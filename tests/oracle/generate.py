"""Makes the oracle data of check_oracle: tiny models of Hugging Face transformers with
random weights, and what they compute in f32 on the CPU with eager attention.

By hand, with torch, transformers and safetensors installed:
    python tests/oracle/generate.py [MODEL...]  (or all; writes next to this file)

For each model a folder as `weft.hf` takes it, with config.json, model.safetensors, and
  expected.safetensors  tokens, labels (i32, (8, 16); -100 is ignored), loss (mean over
                        the labels), logits of the first sequence, grad.<parameter>.
"""
import json
import pathlib
import sys

import torch
import transformers as tf
from safetensors.torch import save_file

BATCH, SEQ, VOCAB = 8, 16, 96
SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4,
             num_key_value_heads=2, num_hidden_layers=2, max_position_embeddings=64,
             attn_implementation="eager", attention_dropout=0.0)
# With heads of 16 and these numbers some frequencies are kept, some divided and two lie
# in the band between.
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


# Two pairs of eight lie in the band; cosines are multiplied by 1.02, the softmax scale of
# DeepSeek by 1.23.
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0,
        "beta_slow": 0.5, "mscale": 1.0, "mscale_all_dim": 0.8,
        "original_max_position_embeddings": 32}


def llama(**changes):
    return tf.LlamaForCausalLM(tf.LlamaConfig(**{**SIZES, "rms_norm_eps": 1e-5, **changes}))


def qwen2():
    return tf.Qwen2ForCausalLM(tf.Qwen2Config(**SIZES, tie_word_embeddings=True))


def qwen3(**changes):
    return tf.Qwen3ForCausalLM(tf.Qwen3Config(**{**SIZES, "head_dim": 16, **changes}))


# Fewer key-value heads than ranks of tp.
FEW = dict(num_attention_heads=8, intermediate_size=64)


def deepseek_v3(**changes):
    """All layers dense: heads of 12 + 8 for q and k, of 10 for v."""
    sizes = {**SIZES, "num_key_value_heads": 4, "first_k_dense_replace": 2,
             "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
             "qk_rope_head_dim": 8, "v_head_dim": 10}
    return tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(**{**sizes, **changes}))


def mixtral():
    return tf.MixtralForCausalLM(tf.MixtralConfig(
        **SIZES, num_local_experts=6, num_experts_per_tok=2, experts_implementation="eager"))


def qwen3_moe(**changes):
    """Experts in layers 0 and 3."""
    sizes = {**SIZES, "head_dim": 16, "num_hidden_layers": 4, "num_experts": 8,
             "num_experts_per_tok": 3, "moe_intermediate_size": 20, "mlp_only_layers": [1, 2],
             "norm_topk_prob": True, "experts_implementation": "eager"}
    return tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(**{**sizes, **changes}))


def deepseek_v3_moe():
    return deepseek_v3(
        num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=12,
        num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=20,
        n_shared_experts=2, routed_scaling_factor=1.7, experts_implementation="eager")


def gpt2():
    return tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=32, attn_pdrop=0.0,
        embd_pdrop=0.0, resid_pdrop=0.0, attn_implementation="eager"))


MODELS = {
    "llama": lambda: llama(num_hidden_layers=4),
    "llama_tied": lambda: llama(tie_word_embeddings=True),
    "llama3_rope": lambda: llama(head_dim=16, max_position_embeddings=128,
                                 rope_parameters=LLAMA3),
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gpt2": gpt2,
    "llama_yarn": lambda: llama(head_dim=16, max_position_embeddings=128,
                                rope_parameters={**YARN, "attention_factor": 1.1,
                                                 "truncate": False}),
    "deepseek_v3": lambda: deepseek_v3(max_position_embeddings=128, rope_parameters=YARN),
    "deepseek_v3_no_lora": lambda: deepseek_v3(q_lora_rank=None, rope_interleave=False,
                                               attention_bias=True, num_hidden_layers=4,
                                               first_k_dense_replace=4,
                                               tie_word_embeddings=True),
    "mixtral": mixtral,
    "qwen3_moe": qwen3_moe,
    "qwen3_moe_step": lambda: qwen3_moe(decoder_sparse_step=2, mlp_only_layers=[],
                                        norm_topk_prob=False),
    "deepseek_v3_moe": deepseek_v3_moe,
    "llama_one_kv": lambda: llama(**FEW, num_key_value_heads=1),
    "qwen3_two_kv": lambda: qwen3(**FEW, head_dim=8),
}


def randomise(model):
    """Every parameter random, norms and biases too, so that each one matters."""
    for name, p in model.named_parameters():
        centre = 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0
        torch.nn.init.normal_(p, centre, 0.1 if p.dim() == 1 else 0.15)


# Their files are as Transformers saves them, with each expert apart; those of the others
# have the names of the parameters.
AS_SAVED = ("mixtral", "deepseek_v3_moe")


def nearest(scores, k):
    """How far the last of the k best of each row is from the next one."""
    best = scores.sort(-1, descending=True)[0]
    return (best[:, k - 1] - best[:, k]).min().item()


def gap_of(gate, scores):
    """How near to another choice the nearest choice is; that of groups counts, too."""
    groups = getattr(gate, "num_group", 1)
    if groups == 1 or gate.topk_group == groups:
        return nearest(scores, gate.top_k)
    each = scores.view(scores.shape[0], groups, -1)
    sums = each.topk(2, dim=-1)[0].sum(-1)
    out = torch.ones_like(sums).scatter(1, sums.topk(gate.topk_group)[1], 0).bool()
    inside = each.masked_fill(out.unsqueeze(-1), -1e9).reshape(scores.shape)
    return min(nearest(sums, gate.topk_group), nearest(inside, gate.top_k))


def watch_routers(model):
    """How often each expert was chosen, by the name of the bias that chooses; fails where
    rounding may choose another one."""
    load = {}

    def hook(name, gate):
        def look(_, __, out):
            logits, _, chosen = out
            bias = getattr(gate, "e_score_correction_bias", None)
            scores = logits.softmax(-1) if bias is None else logits.sigmoid() + bias
            gap = gap_of(gate, scores)
            assert gap > 1e-6, f"a choice between equals: {gap}"
            if bias is not None:
                load[name + ".e_score_correction_bias"] = torch.bincount(
                    chosen.reshape(-1), minlength=scores.shape[-1]).float()
        return look

    for name, module in model.named_modules():
        if name.endswith(".mlp.gate"):
            module.register_forward_hook(hook(name, module))
    return load


def save_weights(folder, model, weights):
    if folder.name in AS_SAVED:
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        return
    save_file({n: p.detach().contiguous() for n, p in weights.items()},
              folder / "model.safetensors", metadata={"format": "pt"})


def one(folder, make):
    torch.manual_seed(7)
    model = make().float().train()
    randomise(model)
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(b, 0, 0.1)
    load = watch_routers(model)
    tokens = torch.randint(0, VOCAB, (BATCH, SEQ))
    labels = torch.randint(0, VOCAB, (BATCH, SEQ))
    labels[torch.rand(BATCH, SEQ) < 0.2] = -100
    labels[3] = -100                       # a sequence without any label
    logits = model(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))
    loss.backward()

    folder.mkdir(exist_ok=True)
    weights = dict(model.named_parameters())   # tied weights once
    out = {"tokens": tokens.int(), "labels": labels.int(), "loss": loss.detach()[None],
           "logits": logits[0].detach().contiguous()}
    for name, p in weights.items():
        out["grad." + name] = p.grad.contiguous()
    out.update({"grad." + name: n for name, n in load.items()})
    save_weights(folder, model, weights)
    save_file(out, folder / "expected.safetensors")
    model.config.architectures = [type(model).__name__]
    text = json.dumps(json.loads(model.config.to_json_string(use_diff=False)), indent=1,
                      sort_keys=True)
    (folder / "config.json").write_text(text + "\n")
    print(f"{folder.name}: loss {loss.item():.6f}, "
          f"{sum(p.numel() for p in weights.values())} parameters")


def main():
    here = pathlib.Path(__file__).resolve().parent
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        one(here / name, MODELS[name])


if __name__ == "__main__":
    main()
