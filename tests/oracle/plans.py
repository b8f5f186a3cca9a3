"""Random plans of `./dev fuzz` on their meshes, twelve steps, against plain PyTorch.

    tests/oracle/plans.py N [SEED [FIRST]]     as ./dev oracle does, in the root of the sources

A plan gets betas (0.9, 0.999), averages in f32 and tokens from a file, every second one with a
mask of labels that count; documents are whole in rows where the plan has them so. weft writes its initial
weights (a step with a learning rate of 0) and, after twelve steps, losses and weights.
PyTorch takes the initial weights and the same twelve batches, whole, in f64: the models of
plan_models.py, autograd, clip_grad_norm_, AdamW, SGD or the Lion of optimizers.py. What
spec.lua reads of the plan, and the config.json of the weights, is all it knows of weft.

Compared are the loss of every step, relative, within 2e-6, and for every parameter tensor
|weft - PyTorch| (a norm), which may be 2e-6 |all that the steps changed| and half a unit of f32
for each time that the tensor was stored, 12 * 2^-24 |tensor|. What is beyond that is measured
by what it is worth: by how far PyTorch itself in f32 is from the same numbers, from these
weights and from three that differ by half a unit, with the same experts chosen. Within four
times the worst of them the plan counts as `rounding` (a gradient that is 0 but for rounding
makes AdamW step all the same: biases of keys). What is left may be a `tie`: with a choice of
an expert made the other way, where two were no farther apart than these runs have their
scores, it is as above. Or it is `chaos`: PyTorch in f32 whose routers choose by themselves is
as far (a router of one expert, whose gradient is nothing but rounding). Else it failed.

Of gradients in bf16, and of parameters without f32 master weights, PyTorch rounds where weft
stores them: gradients of a rank of dp when a microbatch is added, parameters when they are
stepped. Ranks of cp and tp round parts of these; so the other runs of which the worst counts,
three times as many, round by chance, as sums in another order might have it, and one does not
round these; where ops compute in bf16, PyTorch's do there.
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)
from optimizers import Lion
from muon import Muon
from plan_models import Batch, Choices, model_loss
from token_files import write_index, write_mask

STEPS, BETAS, TOLERANCE, ROUNDING = 12, (0.9, 0.999), 2e-6, 4.0
SHAKEN, BY_CHANCE = 4, 12  # runs that are compared: of f32, and where 16 bits are rounded
UNROUNDED = -1  # of gradients and parameters in 16 bits
TRIES = 4  # of ties, for one that explains a difference
HALF_UNIT = 2.0 ** -24
HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"


class Refused(Exception):
    pass


# ---- weft ----


def say(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def without_copies(weights):
    """Layers that predict further tokens have the embedding and the head once more."""
    table = weights.get("model.embed_tokens.weight")
    of = {"embed_tokens.weight": table, "shared_head.head.weight": weights.get("lm_head.weight", table)}
    for name in list(weights):
        copied = re.fullmatch(r"model\.layers\.\d+\.(.*)", name)
        if copied and copied[1] in of:
            assert torch.equal(weights.pop(name), of[copied[1]]), name
    return weights


def weft(folder, *options):
    """The records of the steps, and the weights after them."""
    log, out = folder / "log", folder / "weights"
    done = subprocess.run(
        [BUILD / "weft", "run", folder / "plan.lua", "--quiet", "--threads", "1", "--log", log,
         "--export", out, *options], capture_output=True, text=True)
    if done.returncode == 1 and re.search("error: |no label tokens", done.stderr):
        raise Refused(done.stderr)
    if done.returncode != 0:
        raise RuntimeError(f"weft ends with {done.returncode}\n{done.stdout}{done.stderr}")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    config = out / "config.json"
    config = json.loads(config.read_text()) if config.exists() else {}
    if (out / "model.safetensors").exists():
        weights = without_copies(load_file(out / "model.safetensors"))
    else:  # an adapter alone
        weights = {n.removeprefix("base_model.model."): w
                   for n, w in load_file(out / "adapter_model.safetensors").items()}
    log.unlink()
    for file in out.iterdir():
        file.unlink()
    return [r for r in records if "loss" in r], weights, config


def write_plan(folder, seed, number):
    """What the plan says, as spec.lua reads it."""
    text = say(BUILD / "weft-tests", "--plan", str(seed), str(number))
    text = re.sub(r"weft\.synthetic \{.*?\}", 'weft.tokens { "tokens.bin", shuffle = false }', text)
    for loss in ("loss", "learning.loss"):  # others of the plan's own are preference.py's
        text = text.replace(f"loss = {loss},", f"loss = {loss} and {loss}.z_loss and {loss} or nil,")
    (folder / "plan.lua").write_text(text)
    return json.loads(say("lua5.4", HERE / "spec.lua", folder / "plan.lua"))


def draw_mask(steps, draw):
    """Which tokens (steps, rows, seq) are learnt: in half of all rows the same share, in the
    others none, few, most or all, so that ranks and microbatches differ as much as they can."""
    def rand(*shape):
        return torch.rand(*shape, generator=draw)
    few = torch.tensor([0.0, 0.05, 0.9, 1.0])
    share = few[(4 * rand(*steps[:2])).long()]
    share = torch.where(rand(*steps[:2]) < 0.5, 0.3, share)
    learnt = rand(*steps) < share[:, :, None]
    learnt[:, -1, 1] |= ~learnt.flatten(1).any(1)
    return learnt


def numbers_of(shape):
    """The numbers of the tokens of all steps."""
    return (torch.arange(math.prod(shape)) % 2**32).view(shape)


def windows(ids, learnt, shape, eot, seed):
    """Samples of all steps: windows of the ids, their labels the next ones."""
    labels = torch.where(learnt, ids, -100)[1:].view(shape)
    tokens = ids[:-1].view(shape)
    begins = torch.zeros(*shape[:2], shape[2] + 1, dtype=torch.bool)
    if eot is not None:
        begins[:, :, 1:] = tokens == eot
    parts = (tokens, labels, begins, numbers_of(shape))
    return [Batch(*step, seed) for step in zip(*parts)]


def rows_of(ids, learnt, lengths, shape, seed, packed):
    """The same, of whole documents in rows: one that does not fit, or is to be alone, begins the
    next row. What is left of a row is the token that ends documents, or 0, each a document by
    itself, which routers see."""
    steps, rows, seq = shape
    alone = packed.get("alone")
    tokens = torch.full((steps * rows, seq), packed.get("eot") or 0, dtype=torch.long)
    labels, begins = torch.full_like(tokens, -100), torch.ones(steps * rows, seq + 1).bool()
    row, room, at = -1, 0, 0
    for length in lengths:
        n = min(length, seq)
        if n > room or alone:
            row, room = row + 1, seq
        if row == len(tokens):
            break
        here = slice(seq - room, seq - room + n)
        tokens[row, here] = ids[at: at + n]
        labels[row, here][:-1] = torch.where(learnt, ids, -100)[at + 1: at + n]
        begins[row, here][1:] = False
        room, at = room - n, at + length
    assert row + 1 >= len(tokens)
    parts = (tokens, labels, begins, numbers_of(shape))
    parts = [x.view(steps, rows, -1) for x in parts]
    return [Batch(*(x[i] for x in parts), seed) for i in range(steps)]


def write_tokens(folder, plan, vocabulary, number):
    """The batches of all steps, and the files that they are read from; those of odd plans have
    masks."""
    rows, seq = plan["batch"]["global"], plan["batch"]["seq"]
    packed, shape = plan["packed"] or {}, (STEPS, rows, seq)
    draw = torch.Generator().manual_seed(number)
    times = 2 if packed.get("size") else 1  # rows may be half empty
    ids = torch.randint(0, vocabulary, (times * STEPS * rows * seq + 1,), generator=draw)
    learnt = torch.ones_like(ids, dtype=torch.bool)
    path = folder / "tokens.bin"
    path.write_bytes(ids.to(torch.int16).numpy().tobytes())
    if number % 2:
        learnt[1:] = draw_mask((times * STEPS, rows, seq), draw).flatten()
        write_mask(path, learnt.tolist())
    if not packed.get("size"):
        return windows(ids, learnt, shape, packed.get("eot"), plan["seed"])
    lengths = []
    while (left := len(ids) - sum(lengths)) > 0:
        lengths.append(min(left, 1 + int(torch.randint(seq + seq // 4, (1,), generator=draw))))
    write_index(path, lengths)
    return rows_of(ids, learnt, lengths, shape, plan["seed"], packed)


# ---- PyTorch ----


def rate_at(lr, step):
    if not isinstance(lr, dict):
        return lr
    top, low, warmup = lr["max"], lr.get("min", 0), lr.get("warmup", 0)
    if step < warmup:
        return top * (step + 1) / warmup
    if lr["kind"] == "constant":
        return top
    if step >= lr["steps"]:
        return low
    part = (step - warmup) / (lr["steps"] - warmup)
    left = 1 - part if lr["kind"] == "linear" else 0.5 * (1 + math.cos(math.pi * part))
    return low + (top - low) * left


def named_by(pattern, name):
    """Whether a pattern is a parameter or a module that has it; `*` is a layer's number."""
    form = re.escape(pattern).replace(r"\*", r"\d+")
    return re.match(rf"(model\.|transformer\.)?{form}(\.|$)", name) is not None


def groups_of(plan, weights):
    """Each parameter that learns with the factor of its learning rate and its decay: that of
    the optimizer is for what has more than one dimension, unless it is for all."""
    out = []
    for name, p in weights.items():
        if any(named_by(f, name) for f in plan["freeze"]) or name.endswith("correction_bias"):
            continue
        if plan["adapter"] and ".lora_" not in name:
            continue
        own = [g for g in plan["groups"] if any(named_by(f, name) for f in g["patterns"])]
        o = plan["optimizer"]
        decay = o["weight_decay"] if p.dim() > 1 or o.get("decay_vectors") else 0.0
        own = {"lr": 1.0, "weight_decay": decay} | (own[0] if own else {})
        out.append({"params": [p.requires_grad_()], "factor": own["lr"],
                    "name": name, "weight_decay": own["weight_decay"]})
    return out


class Both:
    """Muon for matrices of layers, AdamW for the rest."""

    def __init__(self, o, groups):
        def is_matrix(group):
            name, p = group["name"], group["params"][0]
            in_layer = re.search(r"(^|\.)(layers|h)\.\d+\.", name)
            return in_layer and p.dim() > 1 and not name.endswith("_bias")
        whole = [{**g, "split": 2 if g["name"].endswith("experts.gate_up_proj") else 1}
                 for g in groups if is_matrix(g)]
        rest = [g for g in groups if not is_matrix(g)]
        said = {k: o[k] for k in ("momentum", "nesterov", "ns_steps", "ns_coefficients") if k in o}
        self.of = []
        if whole:
            self.of.append(Muon(whole, lr=0.0, adjust_lr_fn=o["adjust_lr"], **said))
        if rest:
            self.of.append(torch.optim.AdamW(rest, lr=0.0, betas=BETAS, foreach=False,
                                             eps=o["eps"] or torch.finfo(torch.float32).tiny))
        self.param_groups = [g for x in self.of for g in x.param_groups]

    def step(self):
        for x in self.of:
            x.step()


class Adafactor(torch.optim.Optimizer):
    """As torch.optim.Adafactor: a matrix is one of `split` in each expert of a parameter."""

    def __init__(self, o, groups):
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})
        self.o = o

    def of_matrix(self, p, g, group, state, factored):
        o, t, lr = self.o, state["t"], group["lr"]
        least, least_rms = o["eps"]
        new = t ** o["beta2_decay"]
        rate = min(lr, t ** -0.5) if o["relative_step"] else lr
        if o["scale_parameter"]:
            rate *= max(least_rms, p.square().mean().sqrt().item())
        v = state.setdefault("v", [torch.zeros_like(x) for x in self.means(g, factored)])
        for old, mean in zip(v, self.means(g, factored)):
            old.lerp_(mean, new)
        w = torch.outer(v[0], v[1]) / v[0].mean().clamp(min=least) if factored else v[0]
        u = g * w.clamp(min=least * least).rsqrt()
        p.mul_(1 - lr * group["weight_decay"])
        p.sub_(rate / max(1.0, u.square().mean().sqrt().item() / o["d"]) * u)

    @staticmethod
    def means(g, factored):
        return [g.square().mean(1), g.square().mean(0)] if factored else [g.square()]

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            p = group["params"][0]
            if p.grad is None:
                continue
            experts = p.dim() > 2
            parts = 2 if group["name"].endswith("experts.gate_up_proj") else 1
            state = self.state[p]
            state["t"] = state.get("t", 0) + 1
            factored = p.dim() > 1 and not (p.dim() == 2 and group["name"].endswith("_bias"))
            ps, gs = (list(x) if experts else [x] for x in (p, p.grad))
            for i, (x, g) in enumerate(zip(ps, gs)):
                for k, (y, h) in enumerate(zip(x.chunk(parts), g.chunk(parts))):
                    own = state.setdefault((i, k), {})
                    own["t"] = state["t"]
                    self.of_matrix(y, h, group, own, factored)


def optimizer_of(o, groups, dtype):
    """An element whose gradients were all 0 does not move, without eps too: 0 / tiny."""
    if o["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=o["momentum"], foreach=False,
                               dampening=o.get("dampening") or 0.0,
                               nesterov=bool(o.get("nesterov")))
    if o["kind"] == "lion":
        return Lion(groups, lr=0.0, betas=BETAS)
    if o["kind"] == "muon":
        return Both(o, groups)
    if o["kind"] == "adafactor":
        return Adafactor(o, groups)
    return torch.optim.AdamW(groups, lr=0.0, betas=BETAS,
                             eps=o["eps"] or torch.finfo(dtype).tiny, foreach=False)


def move_biases(plan, weights, load, step):
    """A bias that is frozen stays, and so do all beside an adapter, and after the steps that move them."""
    moe = plan["moe"] or {}
    rate = moe.get("bias_update_rate")
    if step >= (moe.get("bias_update_steps") or math.inf):
        return
    for layer, counts in load.items():
        name = layer + ".gate.e_score_correction_bias"
        if not rate or plan["adapter"] or name not in weights:
            continue
        if not any(named_by(f, name) for f in plan["freeze"]):
            weights[name] += rate * torch.sign(counts.mean() - counts)


class Formats:
    """What a plan keeps in 16 bits, and how it is rounded: to nearest, or by `chance`, or not at
    all."""

    def __init__(self, plan, chance=None):
        said = plan["precision"] or {}
        self.ops, self.grad, self.master = (
            said.get(k, "f32") == "bf16" for k in ("param_dtype", "grad_dtype", "master_dtype"))
        self.parts = self.grad  # microbatches one by one, rounded or not
        if chance == UNROUNDED:
            self.grad = self.master = False
        self.draw = torch.Generator().manual_seed(chance) if chance else None

    def rounded(self, x):
        if not self.draw:
            return x.to(torch.bfloat16).to(x.dtype)
        bits = x.float().view(torch.int32)
        bits = bits + torch.randint(0, 1 << 16, x.shape, generator=self.draw, dtype=torch.int32)
        return (bits & -0x10000).view(torch.float32).to(x.dtype)


def in_bf16(name, p):
    """What ops of a plan in bf16 read; biases that choose experts are in f32."""
    return p if name.endswith("correction_bias") else p.to(torch.bfloat16)


def microbatches(plan, batch):
    """The batch in parts, the plan of one, and how many ranks of dp take turns with them: losses
    of routers are of all ranks, so there one stands for all."""
    losses = (plan["moe"] or {}).keys() & {"aux_loss_coef", "z_loss_coef"}
    ranks, dp = (1 if losses else plan["mesh"]["dp"]), plan["mesh"]["dp"]
    rows = plan["batch"]["micro"] * dp // ranks
    one = {**plan, "mesh": {**plan["mesh"], "dp": dp // ranks}, "before": {}}
    return batch.cut(rows), {**one, "batch": {**plan["batch"], "global": rows}}, ranks


def learnt_of(batch):
    """How many labels count."""
    return (batch.labels != -100).sum().item()


def add_gradients(plan, config, w, trained, batch, choices, formats, native):
    """Leaves gradients in .grad; the loss, and how often experts were chosen. `native`: ops
    compute in bf16, of copies of the weights in it."""
    parts, one, ranks = microbatches(plan, batch) if formats.parts else ([batch], plan, 1)
    sums = [[torch.zeros_like(p) for p in trained] for _ in range(ranks)]
    loss, load = 0.0, {}
    for number, part in enumerate(parts):
        for p in trained:
            p.grad = None
        read = {n: in_bf16(n, p) for n, p in w.items()} if native else w
        here, counts = model_loss(one, config, read, part, choices)
        share = learnt_of(part) / learnt_of(batch)
        if share:  # the mean over no labels is none
            (here * share).backward()
            loss += here.item() * share
        for name, n in counts.items():
            load[name] = load.get(name, 0) + n
        of_rank = sums[number % ranks]
        for i, p in enumerate(trained):
            x = of_rank[i] if p.grad is None else of_rank[i] + p.grad
            of_rank[i] = formats.rounded(x) if formats.grad else x
    for p, *x in zip(trained, *sums):
        p.grad = sum(x)
    return loss, load


def pytorch(plan, config, initial, batches, dtype, choices, chance=None):
    """The losses of the steps and the weights after them, in f64; `choices` of routers are
    taken from there, and kept there. In f32 the ops of a plan in bf16 compute in that."""
    formats = Formats(plan, chance)
    native = formats.ops and dtype == torch.float32
    w = {n: p.to(dtype, copy=True) for n, p in initial.items()}
    groups = groups_of(plan, w)
    trained = [p for g in groups for p in g["params"]]
    o = plan["optimizer"]
    optimizer, losses = optimizer_of(o, groups, dtype), []
    for step, batch in enumerate(batches):
        loss, load = add_gradients(plan, config, w, trained, batch, choices, formats, native)
        torch.nn.utils.clip_grad_norm_(trained, o["clip"] or math.inf)
        losses.append(loss)
        for group in optimizer.param_groups:
            group["lr"] = group["factor"] * rate_at(o["lr"], step)
        optimizer.step()
        with torch.no_grad():
            for p in trained if formats.master else []:
                p.copy_(formats.rounded(p))
            move_biases(plan, w, load, step)
    return {"loss": losses, "choices": choices,
            "weights": {n: p.detach().double() for n, p in w.items()}}


def shaken(initial, number):
    """Other weights, no farther than half a unit of f32 before they are rounded; number 0: the
    same."""
    draw = torch.Generator().manual_seed(number)
    by = HALF_UNIT * min(number, 1)
    return {n: p.double() * (1 + by * (2 * torch.rand(p.shape, generator=draw,
                                                      dtype=torch.float64) - 1))
            for n, p in initial.items()}


# ---- comparison ----


def distances(got, want, initial):
    """Each divided by what it may be, so that 1 is the limit; the key says of what."""
    out = {}
    for step, (a, b) in enumerate(zip(got["loss"], want["loss"])):
        out[f"loss of step {step}"] = abs(a - b) / (TOLERANCE * abs(b))
    for name, b in want["weights"].items():
        apart = (got["weights"][name].double() - b).norm().item()
        moved = (b - initial[name].double()).norm().item()
        may = TOLERANCE * moved + STEPS * HALF_UNIT * b.norm().item()
        out[name] = apart / may if apart else 0.0
    return {k: d if math.isfinite(d) else math.inf for k, d in out.items()}


def pooled(apart):
    """What rounding does is a matter of chance, and of the kind of a tensor: that of other
    layers counts, too; and of adapters that of all, which begin at the same values: where a
    gradient is 0 but for rounding, AdamW's first step of an element of a B goes either way, and
    of so many B's it is one that it happens to. For the loss of a step, that of the steps before
    it."""
    most, so_far = {}, 0.0
    kind = {k: re.sub(r"\d+", "*", re.sub(r".*(?=\.lora_)", "", k))
            for k in apart if not k.startswith("loss of")}
    for name, k in kind.items():
        most[k] = max(most.get(k, 0.0), apart[name])
    out = {name: most[k] for name, k in kind.items()}
    for k in apart:
        if k not in kind:
            out[k] = so_far = max(so_far, apart[k])
    return out


class Judge:
    """Of a plan that is beyond the limits, what that is worth."""

    def __init__(self, plan, config, initial, batches, got):
        self.of, self.initial, self.got = (plan, config), initial, got
        self.batches = batches
        self.formats = Formats(plan)
        self.rounds = self.formats.grad or self.formats.master

    def run(self, dtype, choices, number=0):
        """Number 0 rounds to nearest, from the weights themselves."""
        start = self.initial if self.formats.master else shaken(self.initial, max(number, 0))
        return pytorch(*self.of, start, self.batches, dtype, choices, self.rounds and number)

    def beyond(self, want, chosen):
        """By how much more than rounding weft is from `want`, first of all where that is more
        than 1: the ratio, what it is, how far it is, how far PyTorch in f32 is there, whose
        routers choose as they did in `want` (`chosen`), or by themselves."""
        far = distances(self.got, want, self.initial)
        runs = [*range(BY_CHANCE), UNROUNDED] if self.rounds else range(SHAKEN)
        self.others = [self.run(torch.float32, Choices(chosen), k) for k in runs]
        others = [pooled(distances(o, want, self.initial)) for o in self.others]
        apart = {k: max(o[k] for o in others) for k in far}
        ratio = {k: d / max(1.0, ROUNDING * apart[k]) for k, d in far.items()}
        where = max(far, key=lambda k: (ratio[k] > 1, far[k]))
        return ratio[where], (f"{where} is {far[where]:.3g} times the limit, PyTorch's own "
                              f"rounding {apart[where]:.3g} times")

    def first_apart(self, want):
        """The first step whose loss is beyond the limit."""
        return next((i for i, (a, b) in enumerate(zip(self.got["loss"], want["loss"]))
                     if abs(a - b) > TOLERANCE * abs(b)), STEPS)

    def ties(self, want, until):
        """The choices up to a step whose gap is within the rounding of scores, as the runs
        of `beyond` have it: the nearest first."""
        made, out = want["choices"], []
        a_step = max(1, len(made.made) // STEPS)
        for call, (gap, token) in enumerate(made.gaps[: (until + 1) * a_step]):
            apart = max((o["choices"].scores[call] - made.scores[call]).abs().max().item()
                        for o in self.others)
            if gap <= ROUNDING * apart:
                out.append((gap / apart, call, token))
        return sorted(out)[:TRIES]

    def other_choice(self, want):
        """The same steps with one such choice made the other way, so that losses agree for
        longer; None if there is none."""
        until = self.first_apart(want)
        for _, *choice in self.ties(want, until):
            other = self.run(torch.float64,
                             Choices(other=want["choices"].other ^ {tuple(choice)}))
            if self.first_apart(other) > until:
                return other
        return None

    def verdict(self, want):
        ratio, text = self.beyond(want, want["choices"].made)
        if ratio <= 1:
            return "rounding", text
        tied = want
        while tied := self.other_choice(tied):
            ratio, with_ties = self.beyond(tied, tied["choices"].made)
            if ratio <= 1:
                return "tie", f"{len(tied['choices'].other)} made the other way: {with_ties}"
        ratio, by_itself = self.beyond(want, None)
        return ("chaos", by_itself) if ratio <= 1 else ("FAILED", text)


def overrides(plan):
    o, moe = plan["optimizer"], plan["moe"] or {}
    betas = [] if o["kind"] == "sgd" else ["--set", "optimizer.betas={%g,%g}" % BETAS]
    run = betas + ["--set", "optimizer.state_dtype=f32",
                   "--set", "optimizer.stochastic_rounding=false"]
    still = ["--set", "moe.bias_update_rate=0"] if moe.get("bias_update_rate") else []
    return run, run + still + ["--set", "optimizer.lr=0"]


def one(seed, number):
    """The verdict on a plan, what is said of it, and how far its losses and tensors are."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = write_plan(folder, seed, number)
        if (plan["adapter"] or {}).get("target_parameters"):
            raise Refused  # adapters of experts are those of adapters.py
        if plan["optimizer"]["kind"] in ("adam", "adamw_8bit"):
            raise Refused  # compared by suites oracle and adamw_8bit
        (folder / "tokens.bin").write_bytes(bytes(2 << 20))
        write_index(folder / "tokens.bin", [2] * (1 << 19))
        run, still = overrides(plan)
        base, config = {}, None
        if plan["adapter"]:
            _, base, config = weft(folder, "--steps", "1", *still, "--set", "adapter=false")
        _, initial, own = weft(folder, "--steps", "1", *still)
        if Formats(plan).ops:  # what is frozen has no values beside those that ops read
            base = {n: in_bf16(n, p).to(p.dtype) for n, p in base.items()}
        initial, config = base | initial, config or own
        vocabulary = max(w.shape[0] for n, w in initial.items()
                         if n.endswith(("embed_tokens.weight", "wte.weight", "embed.weight")))
        (folder / "tokens.idx").unlink()
        batches = write_tokens(folder, plan, vocabulary, number)
        for batch in batches:
            batch.noise_alpha = plan["noise_alpha"]
        records, weights, _ = weft(folder, "--steps", str(STEPS), *run)
    weights = base | weights
    got = {"loss": [r["loss"] for r in records], "weights": weights}
    assert len(got["loss"]) == STEPS and weights.keys() == initial.keys(), plan["name"]
    want = pytorch(plan, config, initial, batches, torch.float64, Choices())
    far = distances(got, want, initial)
    loss = max(d for k, d in far.items() if k.startswith("loss of")) * TOLERANCE
    tensor = max(d for k, d in far.items() if not k.startswith("loss of"))
    if max(far.values()) <= 1:
        return "equal", "", loss, tensor
    return *Judge(plan, config, initial, batches, got).verdict(want), loss, tensor


def main(count, seed=1, number=0):
    torch.set_num_threads(1)
    tally = dict.fromkeys(("equal", "rounding", "tie", "chaos", "refused", "FAILED"), 0)
    worst = {"equal": [0, 0], "rounding": [0, 0], "tie": [0, 0], "chaos": [0, 0]}
    while sum(tally.values()) - tally["refused"] < count:
        try:
            verdict, text, loss, tensor = one(seed, number)
        except Refused:
            tally["refused"] += 1
            number += 1
            continue
        tally[verdict] += 1
        if verdict in worst:
            worst[verdict] = [max(a, b) for a, b in zip(worst[verdict], (loss, tensor))]
        if text:
            print(f"plan {number} of seed {seed}: {verdict}: {text}; losses within {loss:.1e}",
                  flush=True)
        number += 1
    for verdict, (loss, tensor) in worst.items():
        if tally[verdict]:
            print(f"{verdict}: losses within {loss:.1e}, tensors within {tensor:.3g} limits")
    print(f"{number} plans:", ", ".join(f"{n} {v}" for v, n in tally.items()))
    return 1 if tally["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
