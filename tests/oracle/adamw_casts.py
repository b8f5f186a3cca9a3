"""Which of PyTorch's AdamWs rounds as weft's does where parameters, gradients and averages are
bf16: the fused one computes a step in f32 and rounds what it stores, once; the loop over tensors
(foreach=False) and the one over lists of them (foreach=True) round after each of their ops.

weft's step is that of f32 rounded once, to the bit (tests/kernels/check_step_precision.c). This
compares PyTorch's three with that and with a run in f32, and fails if the fused one is not the one
that is the same. By hand, with torch installed: python tests/oracle/adamw_casts.py
"""
import torch

STEPS, N, LR, BETAS, EPS, DECAY = 20, 4096, 1e-2, (0.9, 0.95), 1e-8, 0.1
KINDS = {"single": dict(foreach=False, fused=False), "foreach": dict(foreach=True),
         "fused": dict(fused=True)}


def values():
    draw = torch.Generator().manual_seed(1)
    first = (torch.randn(N, generator=draw) * 0.1).bfloat16()
    return first, [(torch.randn(N, generator=draw) * 0.01).bfloat16() for _ in range(STEPS)]


def by_pytorch(kind, dtype):
    first, gradients = values()
    p = torch.nn.Parameter(first.to(dtype))
    optimizer = torch.optim.AdamW([p], lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, **KINDS[kind])
    for g in gradients:
        p.grad = g.to(dtype)
        optimizer.step()
    state = optimizer.state[p]
    return [t.detach().float() for t in (p, state["exp_avg"], state["exp_avg_sq"])]


def rounded_once():
    """weft's formula: see kernels/cpu/optimizer/adamw.c."""
    p, gradients = values()
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    for k, g in enumerate(gradients, 1):
        g, m, v = g.float(), m.float(), v.float()
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g * g
        c1, c2 = 1 - BETAS[0] ** k, 1 - BETAS[1] ** k
        p = p.float() * (1 - LR * DECAY) - LR / c1 * m / (v.sqrt() / c2 ** 0.5 + EPS)
        p, m, v = p.bfloat16(), m.bfloat16(), v.bfloat16()
    return [t.float() for t in (p, m, v)]


if __name__ == "__main__":
    exact, ours = by_pytorch("single", torch.float32), rounded_once()
    for kind in KINDS:
        here = by_pytorch(kind, torch.bfloat16)
        other = [(a != b).float().mean().item() for a, b in zip(here, ours)]
        off = [(a - b).abs().mean().item() for a, b in zip(here, exact)]
        print(f"{kind:8} other bits than rounded once: p {other[0]:.1%}, m {other[1]:.1%}, v "
              f"{other[2]:.1%}; p is {off[0]:.1e} from f32")
        assert (max(other) < 0.05) == (kind == "fused"), kind
