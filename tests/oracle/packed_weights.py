"""Makes the oracle data of weights that files have as codes with scales: mxfp4 as gpt-oss has
experts, F8_E4M3 in blocks of 128 x 128 as DeepSeek-V3 has linears, and the bf16 values that
Transformers reads. A matrix whose last blocks are not full, which its function refuses, has
the same formula.

By hand, with torch, transformers and safetensors installed: python tests/oracle/packed_weights.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

FOLDER = pathlib.Path(__file__).resolve().parent / "packed_weights"


def by_hand(codes, scales):
    wide = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return codes.float() * wide[:codes.shape[0], :codes.shape[1]]


if __name__ == "__main__":
    torch.manual_seed(7)
    blocks = torch.randint(0, 256, (2, 10, 3, 16), dtype=torch.uint8)
    scales = torch.randint(97, 150, (2, 10, 3), dtype=torch.uint8)
    stored = {"experts.gate_up_proj_blocks": blocks, "experts.gate_up_proj_scales": scales}
    values = {"experts.gate_up_proj": convert_moe_packed_tensors(blocks, scales)}
    for name, rows, cols, kind in (("whole", 256, 128, torch.float32),
                                   ("brain", 128, 128, torch.bfloat16),
                                   ("partial", 130, 260, torch.float32)):
        codes = torch.randn(rows, cols).mul(20 ** torch.randn(rows, cols)).to(torch.float8_e4m3fn)
        by = torch.rand(-(-rows // 128), -(-cols // 128)).add(1e-3).mul(1e-2).to(kind)
        stored[f"{name}.weight"], stored[f"{name}.weight_scale_inv"] = codes, by
        if name == "partial":
            read = by_hand(codes, by)
        else:
            read = Fp8Dequantize(None)._dequantize_one(codes, by, torch.bfloat16)
        values[f"{name}.weight"] = read.bfloat16()
        assert torch.isfinite(values[f"{name}.weight"]).all()
        assert torch.equal(values[f"{name}.weight"], by_hand(codes, by.float()).bfloat16())
    stored["plain.weight"] = values["plain.weight"] = torch.randn(3, 5).bfloat16()
    FOLDER.mkdir(exist_ok=True)
    save_file(stored, FOLDER / "model.safetensors", metadata={"format": "pt"})
    save_file({k: v.contiguous() for k, v in values.items()}, FOLDER / "values.safetensors")
