"""Makes the oracle data of fp8: casts of f32 to both types, the products of a linear and of its
gradients, and twelve steps of PyTorch's AdamW on the model of fp8.lua, eight microbatches a step.

Scales are those of torchao's Float8Linear (amax_to_scale, EPS of 1e-12): tensorwise, output
gradients in e5m2; rowwise, all in e4m3 with powers of two; and blocks of 32 in mxfp8 (e8m0, RCEIL).
Casts are PyTorch's own, after a clamp (saturated); products are of their values, in f32.

    f32     all else in f32
    bf16    every other op rounds its result, and the gradients of its operands, to bf16

By hand, with torch and safetensors installed: python tests/oracle/fp8.py
"""
import pathlib

import torch
from safetensors.torch import save_file

STEPS, LR, DECAY, CLIP, BETAS, EPS = 12, 1e-3, 0.1, 0.5, (0.9, 0.95), 1e-8
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
RECIPES = {"tensorwise": (E5M2, False), "rowwise": (E4M3, True), "mxfp8": (E4M3, True)}


def saturated(x, dtype):
    most = torch.finfo(dtype).max
    return x.clamp(-most, most).to(dtype).float()


def scaled(x, amax, dtype, powers):
    scale = (torch.finfo(dtype).max / amax.double().clamp(min=1e-12)).float()
    if powers:
        scale = torch.exp2(torch.floor(torch.log2(scale.double()))).float()
    return saturated(x * scale, dtype) * (1 / scale)


def blocks(x, dtype):
    """Of 32 elements along the last dimension."""
    b = x.reshape(*x.shape[:-1], -1, 32)
    amax = b.abs().amax(-1, keepdim=True)
    scale = torch.exp2(torch.ceil(torch.log2((amax / torch.finfo(dtype).max).double()))).float()
    return (saturated(b / scale, dtype) * scale).reshape(x.shape)


def quantized(x, dtype, recipe):
    """x(rows, K) for a product that sums over K."""
    if recipe == "mxfp8":
        return blocks(x, dtype)
    amax = x.abs().amax() if recipe == "tensorwise" else x.abs().amax(-1, keepdim=True)
    return scaled(x, amax, dtype, RECIPES[recipe][1])


def product(a, b, types, recipe):
    """a(M, K) b(N, K)^T"""
    return quantized(a, types[0], recipe) @ quantized(b, types[1], recipe).T


class Linear(torch.autograd.Function):
    """y = x w^T of x(rows, I) and w(O, I), whose gradient is f32; a microbatch's scales are its own."""

    @staticmethod
    def forward(ctx, x, w, recipe, act):
        ctx.recipe, ctx.act = recipe, act
        ctx.save_for_backward(x, w)
        return product(x.float(), w.to(act).float(), (E4M3, E4M3), recipe).to(act)

    @staticmethod
    def backward(ctx, dy):
        x, w = (t.float() for t in ctx.saved_tensors)
        w, dy, g = w.to(ctx.act).float(), dy.float(), RECIPES[ctx.recipe][0]
        dx = product(dy, w.T, (g, E4M3), ctx.recipe).to(ctx.act)
        return dx, product(dy.T, x.T, (g, E4M3), ctx.recipe), None, None


def logits_of(p, tokens, recipe, act):
    """The gradients of parameters are f32; those of all else are rounded as it is."""
    def of(name):
        return p[name] + (p[name].to(act).float() - p[name]).detach()

    def norm(x, name):
        x = x.float()
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * of(name)).to(act)

    x = torch.nn.functional.embedding(tokens, of("embed.weight")).to(act)
    for i in range(2):
        w = [p[f"layers.{i}.{k}.weight"] for k in ("gate", "up", "down")]
        h = norm(x, f"layers.{i}.norm.weight")
        gate, up = (Linear.apply(h, v, recipe, act) for v in w[:2])
        z = (torch.nn.functional.silu(gate.float()) * up.float()).to(act)
        x = (x.float() + Linear.apply(z, w[2].T, recipe, act).float()).to(act)
    return (norm(x, "norm.weight").float() @ of("lm_head.weight").T).to(act).float()


def steps_of(weights, data, recipe, act):
    p = {k: torch.nn.Parameter(v.clone()) for k, v in weights.items()}
    optimizer = torch.optim.AdamW(
        [{"params": [v for v in p.values() if v.dim() > 1], "weight_decay": DECAY},
         {"params": [v for v in p.values() if v.dim() == 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, foreach=False)
    out = []
    for tokens, labels in zip(data["tokens"], data["labels"]):
        optimizer.zero_grad()
        total = 0.0
        for t, l in zip(tokens, labels):
            loss = torch.nn.functional.cross_entropy(
                logits_of(p, t.long(), recipe, act), l.long(), reduction="sum") / labels.numel()
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP).item()
        out.append((total, norm))
        optimizer.step()
    return torch.tensor(out)


def weights():
    shapes = {"embed.weight": (48, 32), "norm.weight": (32,), "lm_head.weight": (48, 32)}
    for i in range(2):
        shapes |= {f"layers.{i}.norm.weight": (32,)}
        shapes |= {f"layers.{i}.{k}.weight": (64, 32) for k in ("gate", "up", "down")}
    return {k: 1 + 0.1 * torch.randn(s) if len(s) == 1 else 0.2 * torch.randn(s) for k, s in shapes.items()}


def casts():
    """Values of all sizes, those between two codes, and beyond the largest."""
    x = torch.randn(3000) * torch.exp2(torch.randint(-20, 18, (3000,)).float())
    out = [x, torch.tensor([0.0, -0.0, 1e-30, 448, 449, 464, 465, 57344, 61440, 1e30, -1e30])]
    for dtype in (E4M3, E5M2):
        v = torch.arange(0, 127, dtype=torch.uint8).view(dtype).float()
        v = v[v.isfinite()]
        out += [v, -v, (v[1:] + v[:-1]) / 2, -(v[1:] + v[:-1]) / 2]
    x = torch.cat(out)
    codes = {}
    for name, dtype in (("e4m3", E4M3), ("e5m2", E5M2)):
        most = torch.finfo(dtype).max
        codes[f"code.{name}"] = x.clamp(-most, most).to(dtype).view(torch.uint8)
        codes[f"value.{name}"] = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype).float()
    return {"cast": x} | codes


def products():
    """x(64, 96), w(32, 96), dy(64, 32), and what a linear and its gradients make of them."""
    x, w, dy = torch.randn(64, 96), torch.randn(32, 96), 1e-3 * torch.randn(64, 32)
    x[3] *= 50
    out = {"x": x, "w": w, "dy": dy}
    for recipe in RECIPES:
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = Linear.apply(a, b, recipe, torch.float32)
        y.backward(dy)
        out |= {f"y.{recipe}": y.detach(), f"dx.{recipe}": a.grad, f"dw.{recipe}": b.grad}
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(8)
    w = weights()
    data = {k: torch.randint(0, 48, (STEPS, 8, 32), dtype=torch.int32) for k in ("tokens", "labels")}
    out = data | casts() | products()
    for recipe in RECIPES:
        for name, act in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            s = steps_of(w, data, recipe, act)
            out[f"loss.{recipe}.{name}"], out[f"norm.{recipe}.{name}"] = s[:, 0].contiguous(), s[:, 1].contiguous()
            print(f"{recipe} {name}: loss {s[0, 0]:.6f} to {s[-1, 0]:.6f}")
    folder = pathlib.Path(__file__).resolve().parent / "fp8"
    folder.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "expected.safetensors")
    save_file({k: v.contiguous() for k, v in w.items()}, folder / "model.safetensors")
