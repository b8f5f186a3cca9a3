"""Muon as torch.optim.Muon defines it, but for the Newton-Schulz iteration in the type of
the parameters, not in bf16; of parameters with three dimensions every matrix by itself."""
import math

import torch

ADJUST = {
    "original": lambda a, b: math.sqrt(max(1.0, a / b)),
    "match_rms_adamw": lambda a, b: 0.2 * math.sqrt(max(a, b)),
    "spectral_unclamped": lambda a, b: math.sqrt(a / b),
}


def orthogonal(x, coefficients, steps, eps):
    rows = coefficients if hasattr(coefficients[0], "__len__") else [coefficients] * steps
    tall = x.shape[0] > x.shape[1]
    y = x.T if tall else x
    y = y / y.norm().clamp(min=eps)
    for a, b, c in rows:
        g = y @ y.T
        y = a * y + (b * g + c * (g @ g)) @ y
    return y.T if tall else y


class Muon(torch.optim.Optimizer):
    """A group may say `split`: each of its matrices is so many, one above the other."""

    def __init__(self, groups, lr, weight_decay=0.1, momentum=0.95, nesterov=True,
                 ns_coefficients=(3.4445, -4.7750, 2.0315), ns_steps=5, eps=1e-7,
                 adjust_lr_fn="original"):
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "split": 1,
                                  "momentum": momentum, "nesterov": nesterov,
                                  "ns": (ns_coefficients, ns_steps, eps),
                                  "adjust": ADJUST[adjust_lr_fn]})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            mu = group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - mu)
                u = p.grad.lerp(m, mu) if group["nesterov"] else m
                p.mul_(1 - group["lr"] * group["weight_decay"])
                cols = p.shape[-1]
                rows = p.shape[-2] // group["split"]
                for x, to in zip(u.reshape(-1, rows, cols), p.view(-1, rows, cols)):
                    to.sub_(group["lr"] * group["adjust"](rows, cols)
                            * orthogonal(x, *group["ns"]))
