"""Makes the oracle data of f16 training: the model of uses.lua, twelve steps of PyTorch's
AdamW under its GradScaler, which begins with a scale that overflows and grows again soon.
Parameters and their gradients are f32, activations and their gradients f16.

By hand, with torch and safetensors installed: python tests/oracle/steps_f16.py
"""
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

STEPS, LR, DECAY, CLIP, BETAS, EPS = 12, 1e-3, 0.1, 0.5, (0.9, 0.95), 1e-8
INIT, INTERVAL = 2.0**21, 3
HERE = pathlib.Path(__file__).resolve().parent
largest = 0.0


def watch(gradient):
    """The largest gradient of any activation: what decides about an overflow."""
    global largest
    largest = max(largest, gradient.float().abs().max().item())


def op(f, *x):
    """One op: f32 inside, its result rounded to f16, and so the gradients of operands."""
    y = f(*[t.float() for t in x]).half()
    if y.requires_grad:
        y.register_hook(watch)
    return y


def rounded(p):
    """What ops read of a weight; its gradient stays f32."""
    return p + (p.half().float() - p).detach()


def norm(x, n):
    return op(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * n, x)


def logits_of(p, tokens):
    e, w, n = (rounded(p[k]) for k in ("embed.weight", "w.weight", "n.weight"))
    x = torch.nn.functional.embedding(tokens, e).half()
    h = op(lambda x: x @ w.T, norm(x, n))
    h = op(lambda x: x @ w, op(torch.nn.functional.silu, h))
    x = op(torch.add, x, h)
    x = op(lambda x: x + n, x)
    v = rounded(w + 0.5 * rounded(w @ w.T))
    h = op(lambda x: x @ v.T, norm(x, n))
    x = op(torch.add, x, h)
    return op(lambda x: x @ e.T, norm(x, n))


def main():
    global largest
    given = load_file(HERE / "steps_uses" / "expected.safetensors")
    p = {k: torch.nn.Parameter(v) for k, v in
         load_file(HERE / "steps_uses" / "model.safetensors").items()}
    optimizer = torch.optim.AdamW(
        [{"params": [v for v in p.values() if v.dim() > 1], "weight_decay": DECAY},
         {"params": [v for v in p.values() if v.dim() == 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, foreach=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=INIT, growth_interval=INTERVAL)
    losses, scales, skips = [], [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        largest, scale = 0.0, scaler.get_scale()
        logits = logits_of(p, given["tokens"][step].long())
        loss = torch.nn.functional.cross_entropy(
            logits.float().view(-1, logits.shape[-1]), given["labels"][step].long().view(-1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scale)
        skips.append(float(scaler.get_scale() < scale))
        print(f"{step}: loss {loss.item():.6f} scale 2^{torch.tensor(scale).log2():.0f} "
              f"largest {largest:.3g} skipped {skips[-1]:.0f}")
    folder = HERE / "steps_f16"
    folder.mkdir(exist_ok=True)
    for name in ("model.safetensors", "config.json"):
        if (HERE / "steps_uses" / name).exists():
            shutil.copy(HERE / "steps_uses" / name, folder / name)
    save_file({"tokens": given["tokens"], "labels": given["labels"],
               "loss": torch.tensor(losses), "scale": torch.tensor(scales),
               "skipped": torch.tensor(skips)}, folder / "expected.safetensors")


main()
