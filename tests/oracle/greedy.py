"""Makes greedy.txt, for check_decode: what Hugging Face's generate() gives after a prompt,
with the models of generate.py.

By hand, with torch and transformers installed: python tests/oracle/greedy.py
"""
import pathlib

import torch
import transformers as tf
from generate import MODELS
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent
PROMPT, MORE = 5, 11

with open(HERE / "greedy.txt", "w") as out:
    for name in sorted(MODELS):
        tokens = load_file(HERE / name / "expected.safetensors")["tokens"]
        model = tf.AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32)
        ids = model.generate(tokens[:1, :PROMPT].long(), max_new_tokens=MORE,
                             min_new_tokens=MORE, do_sample=False, eos_token_id=None,
                             pad_token_id=0)
        print(name, ",".join(map(str, ids[0].tolist())), file=out)
