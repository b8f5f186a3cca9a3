"""What the oracles of runs have in common: weft as a program, the meshes, and what may be apart."""
import json
import pathlib
import subprocess

STEPS, TOLERANCE, ROUNDING, ROWS, SEQ, VOCABULARY = 12, 1e-5, 4, 8, 16, 96
WEFT = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "weft"
MESHES = {
    "one rank": ("dp = 1", '"zero"', "1f1b"),
    "tp 2": ("tp = 2, dp = 1", '"zero", sequence_parallel = true', "1f1b"),
    "pp 2": ("pp = 2, dp = 1", '"zero"', "zero_bubble"),
    "cp 2": ("cp = 2, dp = 1", '"zero"', "1f1b"),
    "dp 2": ("dp = 2", '"zero"', "1f1b"),
    "fsdp2": ("dp = 2", '"fsdp2"', "1f1b"),
    "tp 2, pp 2, fsdp2": ("tp = 2, pp = 2, dp = 2", '"fsdp2"', "1f1b"),
    "ep 2": ("dp = 2, ep = 2", '"zero"', "1f1b"),
    "ep 2, etp 2": ("dp = 2, tp = 2, ep = 2, etp = 2", '"zero"', "1f1b"),
    "ep 2, pp 2, fsdp2": ("pp = 2, dp = 4, ep = 2", '"fsdp2"', "1f1b"),
}


def meshes(*names):
    return {n: MESHES[n] for n in names}


def weft(folder, *arguments):
    done = subprocess.run([WEFT, *arguments], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise RuntimeError(f"weft ends with {done.returncode}\n{done.stdout}{done.stderr}")


def losses_of(folder, name, *options):
    """The losses of a run of plan.lua whose weights, or adapter, are then in the folder `name`."""
    log = folder / f"{name}.log"
    weft(folder, "run", "plan.lua", "--quiet", "--log", log, "--export", name, *options)
    return [r["loss"] for r in map(json.loads, log.read_text().splitlines()) if "loss" in r]


def forget(folder):
    """Leaves out the checkpoints of a run, so that the next one begins anew."""
    subprocess.run(["rm", "-r", folder / "ckpt"], check=True)


def apart(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12)).item()
