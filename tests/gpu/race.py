"""race.py - weft against PyTorch with torch.compile on one GPU, in turns, 2 x 4096 tokens a
step: the Llama of llama_1b (1.11 billion parameters), then the Mixtral of mixtral_1b (1.83
billion, of which a token meets 0.62).

    python3 tests/gpu/race.py --weft build/weft --out FOLDER [--model NAME]

Both have f32 master weights and f32 moments, compute in bf16, clip the gradients' norm and
wait for the loss of each step. PyTorch has autocast to bf16, scaled_dot_product_attention,
torch.compile in its default mode and the fused AdamW, and for experts its grouped product. Both
begin with the same weights, exact in bf16, and see the same tokens in each step: losses of the
first steps are compared, so that it is known to be the same model. The first steps of a turn are
not timed: they compile, or capture. Medians of the other ones, and of the turns, are compared.
The last line of each model has its figures in JSON.

If FOLDER has what `weft-gpu table PLAN` printed, in table.txt for Llama's plan and table-moe.txt
for Mixtral's, shares of the measured product are told, of either, and what a step takes beyond
its kernels. Flops are those that weft counts of the plan: of experts those that tokens choose.

--device cpu --tiny races models of a few thousand parameters in f32 without torch.compile:
their figures mean nothing, but losses must agree to 1e-5.
"""
import argparse
import array
import contextlib
import gc
import json
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
NOT_TIMED = 4
# Weights are large, so that what each layer adds shows in the loss.
TINY = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=64, initializer_range=0.2)
# The part of tests/gpu.sh that has the table of its plan, and the share of the measured product
# that weft is to reach.
MODELS = {"llama_1b": ("table", 0.60), "mixtral_1b": ("table-moe", 0.45)}


class Failed(Exception):
    """A race that has no figures."""


def arguments():
    p = argparse.ArgumentParser(description="weft against PyTorch on one GPU")
    p.add_argument("--weft", required=True)
    p.add_argument("--out", required=True, type=pathlib.Path)
    p.add_argument("--model", action="append", choices=list(MODELS), help="all without")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--weft-device", help="that of weft, if it is another one")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--seconds", type=float, default=1e9,
                   help="no turn begins that would not end within so many, of which the "
                   "models have equal shares")
    p.add_argument("--backend", choices=["flash", "cudnn", "math"],
                   help="PyTorch's attention; its own choice without")
    p.add_argument("--experts", choices=["grouped", "loop"],
                   help="PyTorch's products of experts; grouped on a GPU that has them")
    p.add_argument("--compile", default="layers", choices=["layers", "model"],
                   help="what PyTorch compiles: each layer and the loss, as layers are one "
                   "graph, or the whole model, which takes longer")
    p.add_argument("--set", action="append", default=[], metavar="PATH=VALUE",
                   help="a field of weft's plan")
    return p.parse_args()


class Race:
    def __init__(self, a, name):
        self.a, self.name, self.plan = a, name, str(HERE / (name + ".lua"))
        self.part, self.bar = MODELS[name]
        self.config = json.loads((HERE / name / "config.json").read_text())
        self.batch, self.seq, self.precision, self.tolerance = 2, 4096, "bf16", 5e-3
        if a.tiny:
            self.config.update(TINY)
            self.seq, self.precision, self.tolerance = 16, "f32", 1e-5
        self.tokens = self.batch * self.seq

    def prepare(self, folder):
        """Weights as a folder of Hugging Face, tokens as raw ids: one step's, again and
        again."""
        import torch
        from torch_llama import Llama, draw, save
        from torch_mixtral import Mixtral
        self.torch = torch
        self.dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        torch.manual_seed(1)
        side = {"llama": Llama, "mixtral": Mixtral}[self.config["model_type"]]
        with torch.device(self.a.device):
            self.model = side(self.config, self.seq, self.dtype)
        if side is Mixtral:
            self.choose_experts()
        draw(self.model, self.config["initializer_range"], self.dtype)
        weights = folder / "weights"
        weights.mkdir()
        save(self.model, weights / "model.safetensors", self.dtype)
        (weights / "config.json").write_text(json.dumps(self.config))
        r = random.Random(1)
        ids = array.array("H", (r.randrange(self.config["vocab_size"])
                                for _ in range(self.tokens + 1)))
        (folder / "tokens.bin").write_bytes(ids.tobytes())
        t = torch.tensor(ids.tolist(), device=self.a.device)
        self.data = t[:-1].view(self.batch, self.seq), t[1:].view(self.batch, self.seq)
        self.folder = folder
        self.ready_torch()

    # ---- PyTorch ----

    def choose_experts(self):
        from torch_mixtral import grouped_mm
        how = self.a.experts or ("grouped" if self.a.device == "cuda" else "loop")
        grouped = grouped_mm(self.torch.device(self.a.device)) if how == "grouped" else None
        if self.a.experts == "grouped" and not grouped:
            raise Failed(f"torch {self.torch.__version__} has no grouped product here")
        self.model.multiply_by(grouped)
        print("experts of PyTorch: " + (grouped.__name__ if grouped else "one by one"))

    def ready_torch(self):
        torch, cuda = self.torch, self.a.device == "cuda"
        many = [p for p in self.model.parameters() if p.dim() > 1]
        one = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": many, "weight_decay": 0.1}, {"params": one, "weight_decay": 0.0}],
            lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=cuda)
        self.forward = self.model
        if cuda and self.a.compile == "model":
            self.forward = torch.compile(self.model)
        elif cuda:
            self.model.compile_layers()
        self.attention = contextlib.nullcontext
        if self.a.backend:
            from torch.nn.attention import SDPBackend, sdpa_kernel
            one = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
                   "math": SDPBackend.MATH}[self.a.backend]
            self.attention = lambda: sdpa_kernel([one])

    def torch_step(self):
        torch = self.torch
        with torch.autocast(self.a.device, torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.forward(*self.data)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def torch_turn(self):
        losses, ms = [], []
        with self.attention():
            for _ in range(self.a.steps):
                begin = time.monotonic()
                losses.append(self.torch_step())
                ms.append(1e3 * (time.monotonic() - begin))
        if self.a.device == "cuda":
            self.torch.cuda.empty_cache()  # for weft's turn
        return losses, ms

    # ---- weft ----

    def weft_args(self):
        return ["--device", self.a.weft_device or self.a.device, "--data", str(self.folder),
                "-D", "weights=weights", "-D", "tokens=tokens.bin",
                "-D", "precision=" + self.precision, "--set", f"batch.seq={self.seq}"] + [
                    x for field in self.a.set for x in ("--set", field)]

    def weft_turn(self, number):
        log = self.folder / f"weft-{number}.log"
        said = self.a.out / f"race-{self.name}-{number}.txt"
        with open(said, "w") as f:
            code = subprocess.run(
                [self.a.weft, "run", self.plan, "--steps", str(self.a.steps),
                 "--log", str(log)] + self.weft_args(), stdout=f, stderr=f).returncode
        if code:
            raise Failed(f"weft ended with code {code}:\n{said.read_text()[-2000:]}")
        lines = [json.loads(x) for x in log.read_text().splitlines()]
        shutil.copy(log, said.with_suffix(".log"))
        steps = [x for x in lines if "step_ms" in x]
        return [x["loss"] for x in steps], [x["step_ms"] for x in steps]

    def shown(self, topic):
        out = subprocess.run([self.a.weft, "show", self.plan, topic, "--json"]
                             + self.weft_args(), capture_output=True, text=True)
        if out.returncode:
            raise Failed(out.stderr)
        return json.loads(out.stdout)["result"][topic]

    def predicted(self):
        """GiB of the arena, as `weft check` says."""
        return sum(x["bytes"] for x in self.shown("memory")[0]["classes"]) / 2**30

    def gflop(self):
        """Of a step: products and causal attention, of experts the rows that tokens choose."""
        return sum(x["flops"] for x in self.shown("stages")) / 1e9


class Smi(threading.Thread):
    """The most memory of the GPU that is used while a block runs, beyond what was before."""
    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.most, self.first = threading.Event(), 0, self.used()

    @staticmethod
    def used():
        try:
            out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used",
                                  "--format=csv,noheader,nounits"],
                                 capture_output=True, text=True)
            return int(out.stdout.split()[0]) / 1024
        except (OSError, ValueError, IndexError):
            return None

    def run(self):
        while self.first is not None and not self.over.wait(0.2):
            self.most = max(self.most, self.used() or 0)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.gib = None if self.first is None else max(self.most - self.first, 0)


def timed(ms):
    return statistics.median(ms[min(NOT_TIMED, len(ms) - 1):])


def table(folder, part):
    """Tflop/s of the product, which any part's table says, and ms of the plan's kernels, cold
    and warm, which `part` has; None for what no file says."""
    texts = {}
    for one, _ in MODELS.values():
        path = folder / (one + ".txt")
        texts[one] = path.read_text() if path.exists() else ""
    cube = re.search(r"in bf16: ([0-9.]+) Tflop/s", texts[part] + "".join(texts.values()))
    last = re.search(r"kernels of a step: \d+ launches, ([0-9.]+) ms, again ([0-9.]+) ms",
                     texts[part])
    return float(cube[1]) if cube else None, (float(last[1]), float(last[2])) if last else None


def shares(race, w, t):
    """Says and returns which share of the measured product both have, of w and t ms."""
    gflop, (cube, kernels) = race.gflop(), table(race.a.out, race.part)
    figures = {}
    for name, key, ms in ("weft", "weft_share", w), ("PyTorch", "torch_share", t):
        share = round(gflop / ms / cube, 4) if cube else None
        figures[key] = share
        print(f"{name}: {gflop / ms:.1f} Tflop/s, "
              + (f"{100 * share:.1f} % of the measured product" if cube else
                 "no table has measured a product")
              + f" ({gflop:.5g} Gflop a step, causal; weft is to reach {100 * race.bar:.0f} %)")
    if kernels:
        cold, warm = kernels
        print(f"weft: a step takes {w:.2f} ms, its kernels {warm:.2f} (caches full) to "
              f"{cold:.2f} ms (empty), one by one")
    return {**figures, "bar": race.bar}


def report(race, weft, torch_ms, memory):
    a, say = race.a, lambda *x: print(*x, flush=True)
    w, t = statistics.median(weft), statistics.median(torch_ms)
    figures = {"model": race.name, "weft_ms": round(w, 3), "torch_ms": round(t, 3),
               "ratio": round(t / w, 4)}
    say(f"weft:    {w:.2f} ms a step, {1e3 * race.tokens / w:.0f} tokens/s (median of turns)")
    say(f"PyTorch: {t:.2f} ms a step, {1e3 * race.tokens / t:.0f} tokens/s")
    say(f"ratio:   weft has {t / w:.3f} of PyTorch's tokens/s")
    figures |= shares(race, w, t)
    predicted, measured, allocated = memory
    more = ("nvidia-smi says nothing" if measured is None else
            f"nvidia-smi saw {measured:.2f} GiB more while it ran (libraries, too)")
    say(f"memory of weft: {predicted:.2f} GiB predicted; {more}")
    if allocated:
        say(f"memory of PyTorch: {allocated:.2f} GiB at most")
    say(json.dumps(figures))


def compare(race, ours, theirs):
    """The first step has the same weights; later ones have what both made of them."""
    worst = 0.0
    for i in range(min(3, len(ours), len(theirs))):
        off = abs(ours[i] - theirs[i]) / abs(theirs[i])
        print(f"loss of step {i}: weft {ours[i]:.7f}, PyTorch {theirs[i]:.7f}, off {off:.1e}")
        worst = max(worst, off)
    if not worst <= race.tolerance:
        raise Failed(f"losses differ by {worst:.1e}, more than {race.tolerance:.0e}: not the "
                     "same model")


def run(race, began, share):
    """Turns until `share` seconds have gone; two if the whole time allows them."""
    a, weft, torch_ms, measured, longest = race.a, [], [], 0.0, 0.0
    for turn in range(a.turns):
        at = time.monotonic()
        if turn and at - began + longest > (share if turn > 1 else a.seconds):
            print(f"{turn} turns of {a.turns}: no time for more")
            break
        with Smi() as smi:
            ours, ms = race.weft_turn(turn)
        measured = None if smi.gib is None else max(measured, smi.gib)
        weft.append(timed(ms))
        theirs, ms = race.torch_turn()
        torch_ms.append(timed(ms))
        print(f"turn {turn}: weft {weft[-1]:.2f} ms, PyTorch {torch_ms[-1]:.2f} ms a step",
              flush=True)
        if turn == 0:
            print(f"the first step of PyTorch took {ms[0] / 1e3:.1f} s", flush=True)
            compare(race, ours, theirs)
        compiled = ms[0] / 1e3 if turn == 0 else 0.0
        longest = max(longest, time.monotonic() - at - compiled)
    allocated = race.torch.cuda.max_memory_allocated() / 2**30 if a.device == "cuda" else None
    report(race, weft, torch_ms, (race.predicted(), measured, allocated))


def one(a, name, began, share):
    """Races one model; returns whether both sides ran and are the same one."""
    print(f"== {name}", flush=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            race = Race(a, name)
            race.prepare(pathlib.Path(folder))
            run(race, began, share)
        return True
    except Failed as e:
        print(f"{name}: {e}", file=sys.stderr, flush=True)
    except Exception:  # of PyTorch's side: the other model is raced all the same
        traceback.print_exc()
    return False


def main():
    a, began = arguments(), time.monotonic()
    try:
        import torch
    except ImportError:
        print("skipped: this Python has no torch")
        return
    if a.device == "cuda" and not torch.cuda.is_available():
        print(f"skipped: torch {torch.__version__} sees no GPU")
        return
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}")
    a.out.mkdir(parents=True, exist_ok=True)
    names, failed = a.model or list(MODELS), []
    for i, name in enumerate(names):
        if not one(a, name, began, a.seconds * (i + 1) / len(names)):
            failed.append(name)
        torch._dynamo.reset()  # it holds compiled layers
        gc.collect()
        if a.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
