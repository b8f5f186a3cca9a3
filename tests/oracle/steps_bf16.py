"""Makes the oracle data of gradients, parameters and averages in bf16: the model of uses.lua,
twelve steps of PyTorch's AdamW on the tokens of steps_uses, eight microbatches a step.

    mixed   f32 parameters; ops read copies in bf16, in whose .grad microbatches add up
    pure    bf16 parameters, whose .grad and averages are bf16: the fused AdamW, which computes
            a step in f32 and rounds what it stores

Gradients are clipped by their norm in f32, as the step takes them (`grad_scale`).

By hand, with torch and safetensors installed: python tests/oracle/steps_bf16.py
"""
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

STEPS, LR, DECAY, CLIP, BETAS, EPS = 12, 1e-3, 0.1, 0.5, (0.9, 0.95), 1e-8
HERE = pathlib.Path(__file__).resolve().parent


def op(f, *x):
    """One op: f32 inside, its result rounded to bf16, and so the gradients of operands."""
    return f(*[t.float() for t in x]).bfloat16()


def norm(x, n):
    return op(lambda x, n: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * n, x, n)


def logits_of(p, tokens):
    e, w, n = (p[k] for k in ("embed.weight", "w.weight", "n.weight"))
    x = torch.nn.functional.embedding(tokens, e)
    h = op(lambda x, w: x @ w.T, norm(x, n), w)
    h = op(lambda x, w: x @ w, op(torch.nn.functional.silu, h), w)
    x = op(torch.add, op(torch.add, x, h), n)
    v = op(torch.add, w, op(lambda x: 0.5 * x, op(lambda a, b: a @ b.T, w, w)))
    x = op(torch.add, x, op(lambda x, v: x @ v.T, norm(x, n), v))
    return op(lambda x, e: x @ e.T, norm(x, n), e)


def add_gradients(p, tokens, labels):
    """Of a step, microbatch by microbatch; the loss of the step."""
    count, loss = (labels != -100).sum(), 0.0
    for t, l in zip(tokens.split(1), labels.split(1)):
        here = torch.nn.functional.cross_entropy(
            logits_of(p, t.long()).float().flatten(0, 1), l.long().flatten(), reduction="sum")
        (here / count).backward()
        loss += (here / count).item()
    return loss


def optimizer_of(p, **options):
    return torch.optim.AdamW(
        [{"params": [v for v in p.values() if v.dim() > 1], "weight_decay": DECAY},
         {"params": [v for v in p.values() if v.dim() == 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, **options)


def norm_of(gradients):
    return torch.stack([g.double().pow(2).sum() for g in gradients]).sum().sqrt().item()


def mixed(weights, data):
    p = {k: torch.nn.Parameter(v.clone()) for k, v in weights.items()}
    optimizer, out = optimizer_of(p, foreach=False), []
    for tokens, labels in zip(data["tokens"], data["labels"]):
        read = {k: v.detach().bfloat16().requires_grad_() for k, v in p.items()}
        loss = add_gradients(read, tokens, labels)
        out.append((loss, norm_of([r.grad for r in read.values()])))
        for k, v in p.items():
            v.grad = read[k].grad.float() * min(1.0, CLIP / (out[-1][1] + 1e-6))
        optimizer.step()
    return out


def pure(weights, data):
    p = {k: torch.nn.Parameter(v.bfloat16()) for k, v in weights.items()}
    optimizer, out = optimizer_of(p, fused=True), []
    for tokens, labels in zip(data["tokens"], data["labels"]):
        optimizer.zero_grad()
        loss = add_gradients(p, tokens, labels)
        out.append((loss, norm_of([v.grad for v in p.values()])))
        optimizer.grad_scale = torch.tensor(1 / min(1.0, CLIP / (out[-1][1] + 1e-6)))
        optimizer.found_inf = torch.tensor(0.0)
        optimizer.step()
    assert all(s["exp_avg"].dtype == torch.bfloat16 for s in optimizer.state.values())
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    weights = load_file(HERE / "steps_uses/model.safetensors")
    data = load_file(HERE / "steps_uses/expected.safetensors")
    out = {"tokens": data["tokens"], "labels": data["labels"]}
    for name, run in (("mixed", mixed), ("pure", pure)):
        steps = torch.tensor(run(weights, data))
        out[f"loss.{name}"], out[f"norm.{name}"] = steps[:, 0].contiguous(), steps[:, 1].contiguous()
        print(f"{name}: loss {steps[0, 0]:.6f} to {steps[-1, 0]:.6f}")
    folder = HERE / "steps_bf16"
    folder.mkdir(exist_ok=True)
    shutil.copy(HERE / "steps_uses/model.safetensors", folder)
    save_file(out, folder / "expected.safetensors")
