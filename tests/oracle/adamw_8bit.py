"""Makes the oracle data of weft.adamw_8bit: twelve steps of bitsandbytes' AdamW8bit on the CPU,
on a parameter of 5000 elements, whose averages are blocks of 8 bits, the last one of which is
not full, and on one of 300, whose averages are in f32.

Parameters and gradients are made of whole numbers by value_of, as tests/parity/
check_adamw_8bit.c makes them. Roots are rounded correctly: those of PyTorch on the CPU come
from a library whose last bit depends on the machine, and nothing else of a step does.

By hand, with torch, bitsandbytes and safetensors installed: python tests/oracle/adamw_8bit.py
"""
import pathlib

import bitsandbytes as bnb
import numpy
import torch
from safetensors.torch import save_file

STEPS, CLIP = 12, 0.37
HERE = pathlib.Path(__file__).resolve().parent


def value_of(n, step):
    """f32 of both signs and of sizes from 2^-38 to 1/2; one of 16 gradients is 0.
    No parameter is: weft leaves one that is 0 and has no gradient, as padding has none."""
    i = torch.arange(n, dtype=torch.int64)
    h = ((i + 1) * 2654435761 + step * 40503) % 2**32
    h = (h ^ h >> 15) * 2246822519 % 2**32
    x = ((h >> 8) - 2**23).double() * 2.0**-24
    x = x * torch.pow(2.0, -(h % 16).double())
    if step > 0:
        x = x * (h // 16 % 16 != 0)
    return x.float()


def train(n):
    p = torch.nn.Parameter(value_of(n, 0))
    optimizer = bnb.optim.AdamW8bit([p], lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = 1e-2 / step
        p.grad = value_of(n, step) * CLIP
        optimizer.step()
    return p.detach(), optimizer.state[p]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.Tensor.sqrt = lambda x: torch.tensor(numpy.sqrt(x.numpy()))
    wide, state = train(5000)
    few, small = train(300)
    assert state["state1"].dtype == torch.uint8 and small["state1"].dtype == torch.float32
    out = {"p": wide, "few.p": few, "few.m": small["state1"], "few.v": small["state2"]}
    for k, name in ((1, "m"), (2, "v")):
        out[f"{name}.code"], out[f"{name}.largest"] = state[f"state{k}"], state[f"absmax{k}"]
    folder = HERE / "adamw_8bit"
    folder.mkdir(exist_ok=True)
    save_file(out, folder / "expected.safetensors")
    print(", ".join(f"{k} {tuple(v.shape)}" for k, v in out.items()))
