"""Makes oracle data of the other optimizers: twelve steps on the model, the weights, the
tokens and the labels of steps_uses, by torch.optim.SGD, and by Lion as its paper has it
(Chen et al. 2023, algorithm 2), in f32 on the CPU, gradients clipped, decay on matrices only;
by AdamW with the decay on vectors, too, and by Muon on `w` with AdamW on the rest: as
torch.optim.Muon computes it, but in f32, of which it is a fiftieth away at most (asserted);
by torch.optim.Adafactor, and by that of Transformers with the settings of its Trainer.

By hand, with torch, transformers and safetensors installed:
    python tests/oracle/optimizers.py

steps_optimizers has the weights and expected.safetensors: tokens, labels, and of each plan
of uses.lua (-D model=NAME) loss.NAME and norm.NAME.
"""
import pathlib

import torch
from muon import Muon
from safetensors.torch import load_file, save_file

STEPS, CLIP = 12, 0.5
HERE = pathlib.Path(__file__).resolve().parent


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = (b1 * m + (1 - b1) * p.grad).sign()
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                m.copy_(b2 * m + (1 - b2) * p.grad)


def sgd(decay, **options):
    def make(groups):
        groups[0]["weight_decay"] = decay
        return torch.optim.SGD(groups, foreach=False, **options)
    return make


def lion(decay, **options):
    def make(groups):
        groups[0]["weight_decay"] = decay
        return Lion(groups, **options)
    return make


def adamw_of_all(decay, **options):
    def make(groups):
        for group in groups:
            group["weight_decay"] = decay
        return torch.optim.AdamW(groups, foreach=False, **options)
    return make


def muon(decay, whole=False, adamw=None, **options):
    """`whole`: torch.optim.Muon itself, whose products are of bf16."""
    def make(groups):
        (e, w), n = groups[0]["params"], groups[1]["params"][0]
        one = torch.optim.Muon if whole else Muon
        return [one([w], weight_decay=decay, **options),
                torch.optim.AdamW([{"params": [e], "weight_decay": decay},
                                   {"params": [n], "weight_decay": 0.0}], foreach=False,
                                  **{"lr": options["lr"], "betas": (0.9, 0.95), **(adamw or {})})]
    return make


def adam(decay, **options):
    def make(groups):
        groups[0]["weight_decay"] = decay
        return torch.optim.Adam(groups, foreach=False, **options)
    return make


def adafactor(decay, **options):
    def make(groups):
        groups[0]["weight_decay"] = decay
        return torch.optim.Adafactor(groups, foreach=False, **options)
    return make


def adafactor_of_trainer(decay, **options):
    def make(groups):
        from transformers.optimization import Adafactor
        groups[0]["weight_decay"] = decay
        return Adafactor(groups, scale_parameter=False, relative_step=False, **options)
    return make


MUON = {"lr": 1e-2}
MUON_RMS = {"lr": 5e-3, "momentum": 0.8, "nesterov": False, "ns_steps": 3,
            "ns_coefficients": (2.0, -1.5, 0.5), "adjust_lr_fn": "match_rms_adamw"}

# With the coefficients of dion's Muon, and a rate of its own for what is no matrix.
MUON_ROWS = {"lr": 5e-3, "nesterov": False, "adjust_lr_fn": "spectral_unclamped", "ns_coefficients": (
    (4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012))}

OPTIMIZERS = {
    "sgd": sgd(0.0, lr=0.1),
    "sgd_momentum": sgd(0.01, lr=0.05, momentum=0.9),
    "sgd_dampening": sgd(0.1, lr=0.1, momentum=0.8, dampening=0.4),
    "sgd_nesterov": sgd(0.02, lr=0.05, momentum=0.9, nesterov=True),
    "adam": adam(0.1, lr=1e-2, betas=(0.9, 0.99)),
    "lion": lion(0.1, lr=1e-3, betas=(0.9, 0.99)),
    "lion_betas": lion(0.0, lr=3e-3, betas=(0.95, 0.98)),
    "adamw_vectors": adamw_of_all(2.0, lr=1e-2, betas=(0.9, 0.95)),
    "muon": muon(0.1, **MUON),
    "muon_rms": muon(0.02, **MUON_RMS),
    "muon_rows": muon(0.0, adamw={"lr": 1e-3}, **MUON_ROWS),
    "adafactor": adafactor(0.0, lr=0.3),
    "adafactor_options": adafactor(0.1, lr=0.2, beta2_decay=-0.6, eps=(1e-4, 0.1), d=1.5),
    "adafactor_trainer": adafactor_of_trainer(0.02, lr=0.01),
    "adafactor_clipped": adafactor_of_trainer(0.0, lr=0.02, clip_threshold=0.25),
}
WHOLE = {"muon": muon(0.1, whole=True, **MUON), "muon_rms": muon(0.02, whole=True, **MUON_RMS)}


def train(weights, data, make):
    e, w, n = (torch.nn.Parameter(weights[k].clone())
               for k in ("embed.weight", "w.weight", "n.weight"))

    def norm(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * n

    def logits(tokens):
        x = torch.nn.functional.embedding(tokens, e)
        x = x + torch.nn.functional.silu(norm(x) @ w.T) @ w
        x = x + n
        x = x + norm(x) @ (w + 0.5 * w @ w.T).T
        return norm(x) @ e.T

    made = make([{"params": [e, w]}, {"params": [n], "weight_decay": 0.0}])
    optimizers = made if isinstance(made, list) else [made]
    losses, norms = [], []
    for step in range(STEPS):
        e.grad = w.grad = n.grad = None
        loss = torch.nn.functional.cross_entropy(
            logits(data["tokens"][step].long()).view(-1, e.shape[0]),
            data["labels"][step].long().view(-1))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_([e, w, n], CLIP).item())
        losses.append(loss.item())
        for optimizer in optimizers:
            optimizer.step()
    return torch.tensor(losses), torch.tensor(norms)


if __name__ == "__main__":
    torch.set_num_threads(1)
    weights = load_file(HERE / "steps_uses/model.safetensors")
    data = load_file(HERE / "steps_uses/expected.safetensors")
    out = {"tokens": data["tokens"], "labels": data["labels"]}
    for name, make in OPTIMIZERS.items():
        out[f"loss.{name}"], out[f"norm.{name}"] = train(weights, data, make)
        if name in WHOLE:
            loss, _ = train(weights, data, WHOLE[name])
            apart = ((loss - out[f"loss.{name}"]) / loss).abs().max()
            assert apart < 2e-2, f"{name} is {apart:.2g} from torch.optim.Muon"
        print(f"{name}: loss {out[f'loss.{name}'][0]:.6f} to {out[f'loss.{name}'][-1]:.6f}")
    folder = HERE / "steps_optimizers"
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(out, folder / "expected.safetensors")
