"""A model whose config is written in the plan, through a folder that weft makes, in Transformers.

Keys of Transformers' config become those of weft.model (write), weft draws weights and writes a
config.json of its own, and Transformers' loss of that folder on the first batch is weft's (differs).
"""
import json
import subprocess

import torch

ARCHITECTURES = {"kimi_k2": "deepseek_v3", "moonlight": "deepseek_v3", "phi3_long": "phi3"}
# Of the files of any model, not of one; and what weft.model takes from the name.
BOOKKEEPING = {"architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "use_cache",
               "return_dict", "output_hidden_states", "output_attentions", "id2label", "label2id", "problem_type",
               "is_encoder_decoder", "chunk_size_feed_forward", "bos_token_id", "eos_token_id", "pad_token_id",
               "model_type"}
PLAN = """local weft = require "weft"
return weft.plan {{
  model = weft.model {{ "{kind}", {keys} }},
  batch = {{ global = {rows}, micro = 1, seq = {seq} }}, optimizer = weft.sgd {{ lr = 0 }},
  data = weft.tokens {{ "tokens.bin", shuffle = false }},
}}
"""


def lua(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "math.huge" if value == float("inf") else repr(value)
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(map(lua, value)) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(k)}] = {lua(v)}" for k, v in value.items() if v is not None) + "}"
    return json.dumps(value)


def unknown(program, plan):
    """The keys of the plan's model that weft does not have."""
    done = subprocess.run([program, "check", plan, "--json"], capture_output=True, text=True)
    told = json.loads(done.stdout)["diagnostics"]
    wrong = [d for d in told if d["severity"] == "error"]
    return [d["path"].split(".")[1].split("[")[0] for d in wrong if d["path"].startswith("model.")]


def write(program, folder, kind, config, rows, seq):
    keys = {k: v for k, v in config.to_dict().items() if v is not None and k not in BOOKKEEPING}
    plan = folder / "written.lua"
    while True:
        text = ", ".join(f"[{json.dumps(k)}] = {lua(v)}" for k, v in keys.items())
        plan.write_text(PLAN.format(kind=ARCHITECTURES.get(kind, kind), keys=text, rows=rows, seq=seq))
        gone = [k for k in unknown(program, plan) if k in keys]
        if not gone:
            return
        for key in gone:
            keys.pop(key, None)


def ends(model):
    """Ids of the vocabulary that end a text, of which the plan has said none."""
    ids = model.config.eos_token_id
    ids = ids if isinstance(ids, list) else [ids]
    return [i for i in ids if i is not None and i < model.config.vocab_size]


def differs(of, losses, out, loss_of, window, tolerance):
    """What is wrong, or None."""
    told = json.loads((out / "config.json").read_text())
    model, missing = of.from_pretrained(out, attn_implementation="eager", dtype=torch.float32,
                                        output_loading_info=True)
    with torch.no_grad():
        want = loss_of(model.train(), window).item()
    far = abs(losses[0] - want) / abs(want)
    wrong = {k: v for k, v in missing.items() if v and k.endswith("_keys")}
    if ends(model):
        return f"a config that is written: texts end at {ends(model)}; {json.dumps(told)}"
    if wrong or not far <= tolerance:
        return f"a config that is written: {losses[0]} and {want}; {wrong}; {json.dumps(told)}"
    return None
