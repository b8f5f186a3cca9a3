"""A model with more tokens than its folder against Transformers, on meshes: twelve steps of AdamW.

    tests/oracle/grown.py    with a Python that has torch and transformers

Transformers makes small models with random weights, with a head of their own or a tied one, and
grows them by resize_token_embeddings, which draws new rows closely around the mean of the others;
here they are set to the mean, as weft has them. PyTorch trains in f64 on all ids, weft on each mesh
with new_tokens = "mean". Compared are the losses of all steps (relative, 1e-5), the weights after
the last one (1e-5 of a tensor's norm, or four times what PyTorch in f32 is apart at worst, with rows
in four orders) and the config that weft writes.
"""
import json
import pathlib
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)

from trained import ROUNDING, ROWS, SEQ, STEPS, TOLERANCE, VOCABULARY, apart, losses_of, meshes

NEW, TURNS = 3, (0, 1, 3, 6)
PLAN = """local weft = require "weft"
return weft.plan {
  model = weft.hf { "base", vocab_size = %d, new_tokens = "mean" },
  mesh = { %s }, strategy = { %s }, schedule = "%s",
  batch = { global = %d, micro = 2, seq = %d },
  optimizer = weft.adamw { lr = 1e-3, betas = { 0.9, 0.999 }, weight_decay = 0.1, clip = 1 },
  data = weft.tokens { "tokens.bin", shuffle = false },
  train = { steps = %d, seed = 5 },
}
"""
MESHES = meshes("one rank", "tp 2", "pp 2", "cp 2", "fsdp2", "tp 2, pp 2, fsdp2")


def grown(folder):
    """The base with new rows, and how far Transformers' own are from the mean at most."""
    model = AutoModelForCausalLM.from_pretrained(folder / "base")
    model.resize_token_embeddings(VOCABULARY + NEW)
    far = 0
    with torch.no_grad():
        for part in (model.get_input_embeddings(), model.get_output_embeddings()):
            mean = part.weight[:VOCABULARY].double().mean(0).float()
            drawn = part.weight[VOCABULARY:].clone()
            if (drawn != mean).any():  # a tied one is set already
                far = max(far, (drawn - mean).abs().max().item())
            part.weight[VOCABULARY:] = mean
    return model, far


def with_torch(folder, ids, dtype, turn=0):
    model, _ = grown(folder)
    model = model.to(dtype)
    weights = list(model.parameters())
    groups = [{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in weights]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999))
    losses = []
    for step in range(STEPS):
        at = step * ROWS * SEQ
        tokens, labels = (ids[at + k:at + k + ROWS * SEQ].view(ROWS, SEQ).roll(turn, 0)
                          for k in (0, 1))
        optimizer.zero_grad()
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, {n: p.detach() for n, p in model.named_parameters()}


def main():
    torch.set_num_threads(1)
    failed = 0
    for tied in (False, True):
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            LlamaForCausalLM(LlamaConfig(
                vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tied,
                initializer_range=0.08)).save_pretrained(folder / "base")
            far = grown(folder)[1]
            assert 0 < far < 1e-4, far
            ids = torch.randint(0, VOCABULARY + NEW, (STEPS * ROWS * SEQ + 1,))
            (folder / "tokens.bin").write_bytes(ids.to(torch.int16).numpy().tobytes())
            want = with_torch(folder, ids, torch.float64)
            rounded = [with_torch(folder, ids, torch.float32, t)[1] for t in TURNS]
            most = max(apart(p, want[1][n]) for run in rounded for n, p in run.items())
            for number, (what, mesh) in enumerate(MESHES.items()):
                (folder / "plan.lua").write_text(
                    PLAN % (VOCABULARY + NEW, *mesh, ROWS, SEQ, STEPS))
                losses = losses_of(folder, f"mesh{number}")
                got = load_file(folder / f"mesh{number}" / "model.safetensors")
                config = json.loads((folder / f"mesh{number}" / "config.json").read_text())
                assert config["vocab_size"] == VOCABULARY + NEW, config
                assert got.keys() == want[1].keys(), sorted(got.keys() ^ want[1].keys())
                far = max(abs(a - b) / abs(b) for a, b in zip(losses, want[0], strict=True))
                weights = max(apart(got[n], want[1][n]) for n in got)
                ok = far <= TOLERANCE and weights <= max(TOLERANCE, ROUNDING * most)
                failed += not ok
                print(f"{'tied' if tied else 'own head'}, {what}: loss {far:.1e}, "
                      f"weights {weights:.1e}",
                      "" if ok else f"FAILED (torch in f32: {most:.1e})", flush=True)
    print("all equal" if not failed else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
