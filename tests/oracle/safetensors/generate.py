"""Writes the files of this folder with the safetensors library, for byte-level tests.

    python3 generate.py          (safetensors 0.8.0, torch 2.15)
"""
import pathlib

import torch
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent


def ramp(dtype, *shape):
    n = 1
    for d in shape:
        n *= d
    return (torch.arange(n) - n // 2).reshape(shape).to(dtype)


mixed = {
    "model.w": ramp(torch.float32, 2, 3),
    "model.b": ramp(torch.bfloat16, 5),
    "a.half": ramp(torch.float16, 1, 3),
    "double": ramp(torch.float64, 2),
    "step": torch.tensor(7, dtype=torch.int32),
    "none": torch.zeros(0, 4),
    'quoted "name"\\': ramp(torch.float32, 1),
}
save_file(mixed, here / "mixed.safetensors", metadata={"format": "pt"})
save_file(mixed, here / "plain.safetensors")
save_file({}, here / "empty.safetensors")
