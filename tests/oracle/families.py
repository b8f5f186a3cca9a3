"""Random models of Transformers, by family, on random meshes of weft: twelve steps of AdamW.

    tests/oracle/families.py N [SEED [FAMILY...]]     as ./dev families does

A family is a row of FAMILIES: how its config is drawn. Transformers makes the model with random
weights and writes it as a folder; weft trains that folder (`weft.hf`) on a random mesh and
writes weights. Transformers trains the same twelve batches in f32. Compared are

    what weft writes before it has trained: every tensor of Transformers' file, bit by bit
    the names of what it writes of a config alone: Transformers reads all of them
    what Transformers makes of the config.json that weft writes of keys in the plan: its loss
    the loss of every step, relative, within 5e-6
    what Transformers makes of weft's trained folder: its loss on a batch, within 5e-6

Losses that are farther apart are measured by what that is worth: by how far Transformers is from
itself where its weights are half a unit of f32 away, eight times. Within four times the worst of
these a model counts as `rounding`: caps and windows of a few tokens make some that double any
difference in each step.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers as tf
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)
from family_configs import FAMILIES
from step import Step
import written_config

CLASSES = {"step3p5": Step}  # of the others Transformers' own

STEPS, ROWS, SEQ, TOLERANCE = 12, 4, 16, 5e-6
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-6, 0.1, 0.5
BUILD = pathlib.Path(__file__).resolve().parent.parent.parent / "build"
PLAN = """local weft = require "weft"
return weft.plan {{
  model = weft.hf {{ "model"{weights} }},
  mesh = {{ tp = {tp}, pp = {pp}, cp = {cp}, dp = {dp}{ep} }},
  strategy = {{ "{strategy}"{sp} }},
  batch = {{ global = {rows}, micro = 1, seq = {seq} }},
  optimizer = weft.adamw {{ lr = {lr}, betas = {{ 0.9, 0.95 }}, eps = {eps}, weight_decay = {decay},
                           clip = {clip} }},
  data = weft.tokens {{ "tokens.bin", shuffle = false }},
}}
"""


class Unequal(Exception):
    pass


# ---- Transformers ----


def randomise(model, r):
    """So that no parameter, norms and biases too, has the value that it begins with."""
    spread = r.choice([0.05, 0.15])
    for name, p in list(model.named_parameters()) + list(model.named_buffers()):
        same_in_all = ("inv_freq", "embed_scale", "mup_vector", ".act_fn.beta", ".act_fn.eps")
        if name.endswith(same_in_all) or not p.is_floating_point():
            continue
        centre = p.detach().mean().item() if p.dim() <= 1 and p.numel() else 0.0
        torch.nn.init.normal_(p, centre, 0.1 if p.dim() <= 1 else spread)


def loss_of(model, window):
    logits = model(input_ids=window[:, :-1], use_cache=False).logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


def train(model, batches):
    """The losses before each step."""
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in weights if p.dim() > 1], "weight_decay": DECAY},
         {"params": [p for p in weights if p.dim() <= 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses = []
    for window in batches:
        optimizer.zero_grad()
        loss = loss_of(model, window)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        losses.append(loss.item())
        optimizer.step()
    return losses


# ---- weft ----


def weft(folder, name, *options, plan="plan.lua"):
    """The losses of a run, and the folder that it writes."""
    log, out = folder / "log", folder / name
    done = subprocess.run(
        [BUILD / "weft", "run", folder / plan, "--quiet", "--threads", "1", "--log", log,
         "--export", out, *options], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unequal(f"weft ends with {done.returncode}\n{done.stdout}{done.stderr}")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    return [x["loss"] for x in records if "loss" in x], out


def write_plan(folder, r, config):
    """Two of them: one with the folder's weights, and one that draws its own."""
    experts = next((getattr(config, k) for k in ("num_local_experts", "num_experts", "n_routed_experts")
                    if getattr(config, k, None)), 0)
    if "moe" not in getattr(config, "layers_block_type", ["moe"]):
        experts = 0
    # Heads with a state are cut between groups, and their sequences are not cut.
    groups = getattr(config, "n_groups", getattr(config, "mamba_n_groups", None))
    tp = r.choice([1, 2]) if config.num_attention_heads % 2 == 0 and not (groups or 2) % 2 else 1
    layers = config.num_hidden_layers
    mesh = dict(tp=tp, pp=r.choice([1, 2]) if layers >= 2 else 1, cp=1 if groups else r.choice([1, 1, 2]),
                dp=r.choice([1, 2]))
    ep = f", ep = {mesh['dp']}" if experts and mesh["dp"] > 1 and experts % mesh["dp"] == 0 and \
        r.random() < 0.6 else ""
    strategy = r.choice(["zero", "fsdp2"])
    sp = ", sequence_parallel = true" if tp > 1 and r.random() < 0.5 else ""
    for name, weights in (("plan", ""), ("drawn", ", weights = false")):
        (folder / f"{name}.lua").write_text(PLAN.format(
            **mesh, ep=ep, strategy=strategy, sp=sp, weights=weights, rows=ROWS, seq=SEQ, lr=LR,
            eps=EPS, decay=DECAY, clip=CLIP))
    return mesh, ep


# ---- one model ----


def write_tokens(folder, vocabulary, seed):
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, (STEPS * ROWS * SEQ + 1,), generator=draw)
    (folder / "tokens.bin").write_bytes(ids.to(torch.int16).numpy().tobytes())
    rows = ids.unfold(0, SEQ + 1, SEQ)
    return list(rows.view(STEPS, ROWS, SEQ + 1))


def same_file(model, out):
    """Whether weft has written what Transformers had."""
    want = load_file(model / "model.safetensors")
    got = load_file(out / "model.safetensors")
    for name in want.keys() | got.keys():
        if name not in got or name not in want:
            raise Unequal(f"{name} is not in {'weft' if name not in got else 'Transformers'}'s file")
        if not torch.equal(want[name].float(), got[name].float()):
            raise Unequal(f"{name} has other bits")


def whole_folder(of, out):
    """Whether Transformers finds all that it wants in a folder that weft has made up."""
    _, told = of.from_pretrained(out, output_loading_info=True)
    wrong = {k: v for k, v in told.items() if v and k.endswith("_keys")}
    if wrong:
        raise Unequal(f"Transformers does not load what weft has drawn: {wrong}")


def apart(losses, want):
    return [abs(a - b) / abs(b) for a, b in zip(losses, want)]


def own_rounding(of, folder, batches, want):
    """The largest distance of Transformers from itself, with other roundings of its weights."""
    worst = 0
    for k in range(8):
        draw = torch.Generator().manual_seed(k)
        model = of.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).train()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + (2 * torch.randint(0, 2, p.shape, generator=draw) - 1) * 2.0**-24)
        losses = train(model, batches)
        with torch.no_grad():
            losses.append(loss_of(model, batches[0]).item())
        worst = max(worst, *apart(losses, want))
    return worst


def one(kind, seed):
    r = random.Random(f"{kind} {seed}")
    torch.manual_seed(seed)
    config = FAMILIES[kind](r)
    of = CLASSES.get(kind, tf.AutoModelForCausalLM)
    model = of.from_config(config, attn_implementation="eager").float().train()
    randomise(model, r)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "model")
        batches = write_tokens(folder, config.vocab_size, seed)
        mesh = write_plan(folder, r, config)
        at = json.dumps({"mesh": mesh, "config": json.loads(config.to_json_string())})
        try:
            _, out = weft(folder, "same", "--steps", "1", "--set", "optimizer.lr=0")
            same_file(folder / "model", out)
            whole_folder(of, weft(folder, "drawn", "--steps", "1", plan="drawn.lua")[1])
            written_config.write(BUILD / "weft", folder, kind, config, ROWS, SEQ)
            losses, out = weft(folder, "written", "--steps", "1", plan="written.lua")
            wrong = written_config.differs(of, losses, out, loss_of, batches[0], TOLERANCE)
            if wrong:
                raise Unequal(wrong)
            losses, out = weft(folder, "trained", "--steps", str(STEPS))
            trained = of.from_pretrained(
                out, attn_implementation="eager", dtype=torch.float32).train()
            want = train(model, batches)
            with torch.no_grad():
                after = [loss_of(trained, batches[0]).item(), loss_of(model, batches[0]).item()]
            far = apart(losses + after[:1], want + after[1:])
            if len(losses) != STEPS:
                raise Unequal(f"{len(losses)} losses")
            if not max(far) <= TOLERANCE:
                own = own_rounding(of, folder / "model", batches, want + after[1:])
                if not max(far) <= 4 * own:
                    raise Unequal("losses differ: " + " ".join(f"{x:.1e}" for x in far)
                                  + f"; Transformers from itself by {own:.1e}")
                print(f"{kind} {seed}: rounding: {max(far):.1e}, Transformers' own {own:.1e}", flush=True)
                return own, True
        except Unequal as e:
            print(f"{kind} {seed}: {e}\n  {at}", flush=True)
            return None
    return max(far), False


def main(count, seed=1, *kinds):
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.logging.disable_progress_bar()
    failed = 0
    for kind in kinds or FAMILIES:
        told = [x for x in (one(kind, seed + i) for i in range(count)) if x is not None]
        equal = [far for far, rounding in told if not rounding]
        failed += count - len(told)
        print(f"{kind}: {len(equal)} of {count} equal, within {max(equal, default=0):.1e}, "
              f"{len(told) - len(equal)} rounding", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3]), *sys.argv[3:]))
