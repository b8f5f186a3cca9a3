"""Adapters of random models of Transformers, by family, between weft and PEFT, both ways.

    tests/oracle/family_adapters.py N [SEED [FAMILY...]]

weft begins an adapter of all linears, and of experts where there are some, on a random mesh and
writes it; PEFT has to find each of its tensors, and no more. PEFT then gives each a random value
and writes the folder; weft has to begin at it with PEFT's loss (relative, 5e-6), write the same
tensors again, bit by bit, and merge it into a model of which Transformers has that loss, too.
"""
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import torch
    import transformers as tf
    from peft import PeftModel
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)
import families
from families import BUILD, CLASSES, FAMILIES, TOLERANCE, Unequal, apart, loss_of, weft

ADAPTED = """  adapter = {{ "lora", rank = {rank}, alpha = 6, {rslora} {targets} }},
  checkpoint = {{ dir = "ckpt" }},
"""
# Of these PEFT takes gate_proj, up_proj and down_proj for weights of experts (weft warns of it).
ATTENTION = {
    "qwen3_moe": '"q_proj", "o_proj"', "glm4_moe": '"k_proj", "o_proj"', "deepseek_v3": '"kv_b_proj", "o_proj"',
    "moonlight": '"kv_b_proj", "o_proj"', "kimi_k2": '"kv_b_proj", "o_proj"',
    "glm4_moe_lite": '"kv_b_proj", "o_proj"'}


def experts_of(model):
    """The last words of the names of experts' weights."""
    return sorted({n.split(".")[-1] for n, p in model.named_parameters() if p.dim() == 3 and ".experts." in n})


def targets_of(model, kind, r):
    experts = experts_of(model)
    text = f"targets = {{ {ATTENTION[kind]} }}" if kind in ATTENTION else 'targets = "all-linear"'
    if experts and r.random() < 0.7:
        text += ", target_parameters = { " + ", ".join(f'"experts.{n}"' for n in experts) + " }"
    return text


def write_plan(folder, r, config, targets):
    mesh = families.write_plan(folder, r, config)
    plan = folder / "plan.lua"
    text = ADAPTED.format(rank=r.choice([1, 2, 4]), rslora=r.choice(["", "rslora = true,"]), targets=targets)
    head, end = plan.read_text().rsplit("}\n", 1)
    plan.write_text(head + text + "}\n" + end)
    return mesh


def base_of(folder, of):
    return of.from_pretrained(folder, attn_implementation="eager", experts_implementation="eager",
                              dtype=torch.float32)


def by_peft(base, folder):
    """The model with the adapter, if PEFT finds all of it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(base, folder, is_trainable=True)
    for x in told:
        if re.search(r"missing|unexpected|not found", str(x.message), re.I) and "config file" not in str(x.message):
            raise Unequal(f"PEFT says of weft's folder: {x.message}")
    return model


def in_memory(tensors):
    """PEFT 0.21 cannot read Laguna's shared experts by the names that it writes: weft writes others."""
    return {n.replace(".shared_expert.", ".shared_experts."): x for n, x in tensors.items()}


def one(kind, seed):
    r = random.Random(f"adapter {kind} {seed}")
    torch.manual_seed(seed)
    config, of = FAMILIES[kind](r), tf.AutoModelForCausalLM
    model = of.from_config(config, attn_implementation="eager").float()
    families.randomise(model, r)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "model")
        batch = families.write_tokens(folder, config.vocab_size, seed)[0]
        targets = targets_of(model, kind, r)
        mesh = write_plan(folder, r, config, targets)
        still = ("--steps", "1", "--set", "optimizer.lr=0")
        try:
            _, first = weft(folder, "first", *still)
            subprocess.run(["rm", "-r", folder / "ckpt"], check=True)
            peft = by_peft(base_of(folder / "model", of), first)
            for n, p in peft.named_parameters():
                if "lora_" in n:
                    torch.nn.init.normal_(p, 0.0, 0.3)
            peft.save_pretrained(folder / "peft")
            with torch.no_grad():
                want = loss_of(peft.eval(), batch).item()
            got, again = weft(folder, "again", *still, "--set", 'adapter.from="peft"')
            a, b = (in_memory(load_file(f / "adapter_model.safetensors")) for f in (again, folder / "peft"))
            if a.keys() != b.keys():
                raise Unequal(f"tensors of one alone: {sorted(a.keys() ^ b.keys())[:6]}")
            other = [n for n in a if not torch.equal(a[n].float(), b[n].float())]
            if other:
                raise Unequal(f"other bits: {other[:6]}")
            done = subprocess.run([BUILD / "weft", "ckpt", "merge", "plan.lua", "ckpt", "merged"], cwd=folder,
                                  capture_output=True, text=True)
            if done.returncode != 0:
                raise Unequal(f"merge ends with {done.returncode}\n{done.stderr}")
            with torch.no_grad():
                merged = loss_of(base_of(folder / "merged", of).eval(), batch).item()
            far = apart([got[0], merged], [want, want])
            if not max(far) <= TOLERANCE:
                raise Unequal("losses differ: " + " ".join(f"{x:.1e}" for x in far))
        except Unequal as e:
            print(f"{kind} {seed}: {targets}, {mesh}: {e}", flush=True)
            return None
    return max(far)


def main(count, seed=1, *kinds):
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.logging.disable_progress_bar()
    failed = 0
    for kind in kinds or [k for k in FAMILIES if k not in CLASSES]:  # PEFT knows Transformers' classes
        told = [x for x in (one(kind, seed + i) for i in range(count)) if x is not None]
        failed += count - len(told)
        print(f"{kind}: {len(told)} of {count} equal, within {max(told, default=0):.1e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3]), *sys.argv[3:]))
