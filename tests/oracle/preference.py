"""Losses of a plan's own against PyTorch and TRL, on meshes: twelve steps of AdamW.

    tests/oracle/preference.py [NAME...]     with a Python that has torch, transformers and trl

Transformers makes small models with random weights. PyTorch trains in f64 with TRL's definitions:
DPO as DPOTrainer has it ("sigmoid", with label smoothing), against a frozen copy or with the
adapter of PEFT switched off, or, in weft, against losses that were computed ahead on the same mesh; distillation by GKDTrainer.generalized_jsd_loss; cross entropy that
is divided by sequences. weft does the same on each mesh. Compared are the losses of all steps
(relative, 1e-5) and the weights after the last one (1e-5 of a tensor's norm, or four times what
PyTorch in f32 is apart at worst, with pairs in four orders: AdamW steps along gradients that are
little more than rounding, too).
"""
import ast
import importlib.util
import pathlib
import sys
import tempfile

try:
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)

from trained import (ROUNDING, ROWS, SEQ, STEPS, TOLERANCE, VOCABULARY, apart, forget, losses_of,
                     meshes, weft)

END = 0
TURNS = (0, 2, 4, 6)  # of PyTorch in f32: pairs in other orders; the worst counts
F = torch.nn.functional

PLAN = """local weft = require "weft"
return weft.plan {
  model = weft.hf "base", mesh = { %s }, strategy = { %s }, schedule = "%s",
  loss = %s, %s
  batch = { global = %d, micro = 2, seq = %d },
  packed = { eot = %d, size = %d, alone = true },
  optimizer = weft.adamw { lr = 1e-3, betas = { 0.9, 0.999 }, weight_decay = 0.1, clip = 1 },
  data = weft.tokens { "tokens.bin", shuffle = false },
  train = { steps = %d, seed = 5 }, checkpoint = { dir = "ckpt" },
}
"""
MESHES = meshes("one rank", "tp 2", "pp 2", "cp 2", "dp 2", "fsdp2", "tp 2, pp 2, fsdp2")


def llama(layers=2, hidden=64):
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=96, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
        initializer_range=0.08))


def of_trl():
    """GKDTrainer.generalized_jsd_loss from TRL's source: the trainer wants more packages."""
    trl = importlib.util.find_spec("trl")
    if not trl:
        print(f"skipped: {sys.executable} has no trl (PYTHON=... chooses another one)")
        sys.exit(0)
    file = pathlib.Path(trl.submodule_search_locations[0]) / "experimental/gkd/gkd_trainer.py"
    found = [f for f in ast.walk(ast.parse(file.read_text()))
             if isinstance(f, ast.FunctionDef) and f.name == "generalized_jsd_loss"]
    found[0].decorator_list = []
    names = {"torch": torch, "F": F}
    exec(compile(ast.Module(found, []), str(file), "exec"), names)
    return names["generalized_jsd_loss"]


# ---- losses, of logits, labels and the logits of the other model ----

def token_losses(logits, labels):
    flat = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none",
                           ignore_index=-100)
    return flat.view(labels.shape)


def dpo(beta, smooth):
    def loss(logits, labels, other):
        logps, ref = -token_losses(logits, labels).sum(1), -token_losses(other, labels).sum(1)
        ratio = logps - ref
        delta = ratio[0::2] - ratio[1::2]
        per = (-F.logsigmoid(beta * delta) * (1 - smooth) - F.logsigmoid(-beta * delta) * smooth)
        return per.mean()
    return loss


def distill(alpha, beta, temperature):
    jsd = of_trl()

    def loss(logits, labels, other):
        apart = jsd(logits, other, labels, beta=beta, temperature=temperature)
        plain = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return (1 - alpha) * plain + alpha * apart
    return loss


def by_sequences(logits, labels, other):
    return (token_losses(logits, labels).sum(1) / (labels != -100).sum(1)).mean()


OWN = """{ function(g, x, o)
    local losses = g:token_losses(x.logits, x.labels)
    local labels = g:row_sums(g:label_mask(x.labels))
    return g:sum_all(g:divide(g:row_sums(losses), labels))
  end, per = "sequences" }"""
LORA = 'adapter = { "lora", rank = 4, alpha = 8 },'
CASES = {
    "sequences": ('{ "cross_entropy", per = "sequences" }', "", by_sequences, None),
    "own": (OWN, "", by_sequences, None),
    "dpo": ('{ "dpo", beta = 0.5 }', "", dpo(0.5, 0), "copy"),
    "smooth": ('{ "dpo", label_smoothing = 0.1 }', "", dpo(0.1, 0.1), "copy"),
    "base": ('{ "dpo", beta = 0.5 }', LORA, dpo(0.5, 0), "base"),
    "ahead": ('{ "dpo", beta = 0.5, reference_file = "reference" }', "", dpo(0.5, 0), "copy"),
    "adapter ahead": ('{ "dpo", beta = 0.5, reference_file = "reference" }', LORA, dpo(0.5, 0),
                      "base"),
    "forward": ('{ "distill", teacher = "teacher", temperature = 2 }', "",
                distill(0.5, 0, 2), "teacher"),
    "reverse": ('{ "distill", teacher = "teacher", alpha = 1, beta = 1 }', "",
                distill(1, 1, 1), "teacher"),
    "jsd": ('{ "distill", teacher = "teacher", alpha = 0.7, beta = 0.3, temperature = 0.8 }', "",
            distill(0.7, 0.3, 0.8), "teacher"),
}


# ---- runs ----

def trained(folder, name, case, mesh, *options):
    """The losses of a run, and what it has written."""
    (folder / "plan.lua").write_text(
        PLAN % (*mesh, CASES[case][0], CASES[case][1], ROWS, SEQ, END, SEQ, STEPS))
    if "reference_file" in CASES[case][0]:
        weft(folder, "eval", "plan.lua", "--reference")
    losses = losses_of(folder, name, *options)
    forget(folder)
    file = "adapter_model" if CASES[case][1] else "model"
    return losses, load_file(folder / name / f"{file}.safetensors")


def with_torch(folder, case, batches, dtype, turn=0):
    _, adapter, loss_of, second = CASES[case]
    base = AutoModelForCausalLM.from_pretrained(folder / "base").to(dtype)
    model = base
    if adapter:
        model = PeftModel.from_pretrained(base, folder / "first", is_trainable=True).to(dtype)
    other = None
    if second in ("copy", "base", "teacher"):
        of = "teacher" if second == "teacher" else "base"
        other = AutoModelForCausalLM.from_pretrained(folder / of).to(dtype).eval()
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in weights]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999))
    losses = []
    for batch in batches:
        tokens, labels = (x.roll(turn, 0) for x in batch)
        optimizer.zero_grad()
        with torch.no_grad():
            ref = None
            if second == "base":
                with model.disable_adapter():
                    ref = model(input_ids=tokens, use_cache=False).logits
            elif other is not None:
                ref = other(input_ids=tokens, use_cache=False).logits
        loss = loss_of(model(input_ids=tokens, use_cache=False).logits, labels, ref)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        losses.append(loss.item())
    named = {n.replace(".default", ""): p.detach()
             for n, p in model.named_parameters() if p.requires_grad}
    return losses, named


def documents():
    """A row for each document, which ends in END; the rest of the row is padding."""
    ids, batches = [], []
    for _ in range(STEPS):
        tokens = torch.zeros(ROWS, SEQ, dtype=torch.long)
        labels = torch.full((ROWS, SEQ), -100)
        for row in range(ROWS):
            n = int(torch.randint(4, SEQ + 1, ()))
            words = torch.cat([torch.randint(1, VOCABULARY, (n - 1,)), torch.tensor([END])])
            tokens[row, :n], labels[row, :n - 1] = words, words[1:]
            ids.append(words)
        batches.append((tokens, labels))
    return torch.cat(ids), batches


def main():
    torch.set_num_threads(1)
    failed = 0
    for case in sys.argv[1:] or CASES:
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            llama().save_pretrained(folder / "base")
            llama(3, 32).save_pretrained(folder / "teacher")
            ids, batches = documents()
            (folder / "tokens.bin").write_bytes(ids.to(torch.int16).numpy().tobytes())
            if CASES[case][1]:
                trained(folder, "first", case, MESHES["one rank"], "--steps", "1", "--set",
                        "optimizer.lr=0")
            want = with_torch(folder, case, batches, torch.float64)
            rounded = [with_torch(folder, case, batches, torch.float32, t)[1] for t in TURNS]
            most = max(apart(p, want[1][n]) for run in rounded for n, p in run.items())
            for number, (what, mesh) in enumerate(MESHES.items()):
                losses, got = trained(folder, f"mesh{number}", case, mesh)
                assert got.keys() == want[1].keys(), sorted(got.keys() ^ want[1].keys())
                far = max(abs(a - b) / abs(b) for a, b in zip(losses, want[0], strict=True))
                weights = max(apart(got[n], want[1][n]) for n in got)
                ok = far <= TOLERANCE and weights <= max(TOLERANCE, ROUNDING * most)
                failed += not ok
                print(f"{case}, {what}: loss {far:.1e}, weights {weights:.1e}",
                      "" if ok else f"FAILED (torch in f32: {most:.1e})", flush=True)
    print("all equal" if not failed else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
