"""Prints for each of the exported folders, a line each, the loss that transformers computes
for the tokens of check_export_hf.c, and the largest distance of a logit of the first row from
FOLDER.logits, which has those of weft.

    WEFT_TRANSFORMERS=PYTHON build/weft-tests export_hf
"""
import sys

import torch
import transformers as tf
from safetensors.torch import load_file

tf.logging.set_verbosity_error()
torch.set_num_threads(1)
for folder in sys.argv[1:]:
    model, info = tf.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
    wrong = [x for key in ("missing_keys", "unexpected_keys", "mismatched_keys")
             for x in info[key]]
    assert not wrong, wrong
    i = torch.arange(8 * 16)
    tokens, labels = (i * 5 % 64).view(8, 16), i * 3 % 64
    with torch.no_grad():
        logits = model.eval()(input_ids=tokens, use_cache=False).logits.double()
    loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels)
    here = load_file(folder + ".logits")["logits"].double()
    assert here.shape == logits[0].shape, (here.shape, logits.shape)
    print(repr(loss.item()), (here - logits[0]).abs().max().item())
