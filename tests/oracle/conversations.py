"""Fine-tuning on random conversations against PyTorch: twelve steps of AdamW, all losses.

    tests/oracle/conversations.py [SETS [SEED [FIRST]]]    with a Python that has torch and transformers

A set is some random conversations, a template, how rows are packed, what is learnt and a mesh. weft
makes its token files with masks of them (which ids and bits those are, Transformers says in the suite
chat) and trains a small model on them. PyTorch trains in f64 on each conversation by itself, in the
steps in which weft's rows have it: so a row of several is as these alone. Compared are the losses of
all steps (relative, 2e-6) and how many labels each step has.
"""
import json
import pathlib
import random
import struct
import sys
import tempfile

try:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)

from trained import STEPS, meshes, weft

TOLERANCE, ROWS = 2e-6, 8
HERE = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = ("chatml", "llama3", "qwen2.5", "gemma3", "llama3.1", "qwen3")
WORDS = "and after all it is one the same but for a few of those who said no or so".split()
MESHES = meshes("one rank", "tp 2", "pp 2", "cp 2", "fsdp2", "tp 2, pp 2, fsdp2")
PLAN = """local weft = require "weft"
return weft.plan {
  model = weft.hf "base", mesh = { %s }, strategy = { %s }, schedule = "%s",
  batch = { global = %d, micro = 2, seq = %d }, packed = { size = %d, alone = %s },
  optimizer = weft.adamw { lr = 1e-3, betas = { 0.9, 0.999 }, weight_decay = 0.1, clip = 1 },
  data = weft.chat { "talks.jsonl", template = "%s", train_on = "%s", tokenizer = "tokenizer",
                     shuffle = false },
  train = { steps = %d, seed = 5 },
}
"""


def conversation(draw):
    def text():
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 9)))
    turns = [{"role": "system", "content": text()}] if draw.random() < 0.3 else []
    for _ in range(draw.randint(1, 3)):
        turns += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
        if draw.random() < 0.2:
            turns[-1]["train"] = False
    if not any(t.get("train", True) for t in turns[-1:]):
        turns[-1].pop("train")
    return {"messages": turns}


def documents(folder):
    """Ids and bits of each conversation, of Megatron's index and weft's mask."""
    cache = next((folder / ".weft").iterdir())
    index, ids, mask = ((next(cache.glob(f"*.{e}"))).read_bytes() for e in ("idx", "bin", "mask"))
    code, count = struct.unpack_from("<BQ", index, 17)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    width = {8: 2, 4: 4}[code]
    at, out = 0, []
    for n in lengths:
        words = [int.from_bytes(ids[width * i:width * i + width], "little")
                 for i in range(at, at + n)]
        out.append((words, [mask[64 + i // 8] >> i % 8 & 1 for i in range(at, at + n)]))
        at += n
    return out


def rows_of(docs, seq, alone):
    rows, room = [], 0
    for doc in docs:
        if not rows or alone or len(doc[0]) > room:
            rows.append([])
            room = seq
        rows[-1].append(doc)
        room -= len(doc[0])
    return rows


def with_torch(folder, rows):
    model = AutoModelForCausalLM.from_pretrained(folder / "base").double()
    weights = list(model.parameters())
    groups = [{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in weights]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999))
    losses, counts = [], []
    for step in range(STEPS):
        docs = [d for k in range(ROWS) for d in rows[(step * ROWS + k) % len(rows)]]
        optimizer.zero_grad()
        count = sum(sum(bits[1:]) for _, bits in docs)
        total = 0
        for ids, bits in docs:
            labels = torch.tensor([i if b else -100 for i, b in zip(ids[1:], bits[1:])])
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
            total = total + torch.nn.functional.cross_entropy(logits, labels, reduction="sum",
                                                              ignore_index=-100) / count
        total.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        losses.append(total.item())
        counts.append(count)
    return losses, counts


def main():
    torch.set_num_threads(1)
    sets, seed, first = (int(x) for x in (sys.argv[1:] + ["60", "1", "0"][len(sys.argv) - 1:]))
    failed, worst = 0, 0
    for number in range(first, first + sets):
        draw = random.Random(1000 * seed + number)
        torch.manual_seed(number)
        template, alone = draw.choice(TEMPLATES), draw.random() < 0.3
        learnt, seq = draw.choice(("assistant", "assistant", "last", "all")), 448
        what, mesh = draw.choice(list(MESHES.items()))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tokenizer").mkdir()
            (folder / "tokenizer" / "tokenizer.json").write_text(
                (HERE / "chat" / "nfc.json").read_text())
            talks = [conversation(draw) for _ in range(draw.randint(6, 40))]
            if learnt == "all":  # which a message that is not learnt contradicts
                for turn in (t for talk in talks for t in talk["messages"]):
                    turn.pop("train", None)
            (folder / "talks.jsonl").write_text("".join(json.dumps(t) + "\n" for t in talks))
            LlamaForCausalLM(LlamaConfig(
                vocab_size=600, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                initializer_range=0.08)).save_pretrained(folder / "base")
            (folder / "plan.lua").write_text(
                PLAN % (*mesh, ROWS, seq, seq, "true" if alone else "false", template, learnt,
                        STEPS))
            weft(folder, "run", "plan.lua", "--quiet", "--log", folder / "log")
            steps = [json.loads(x) for x in (folder / "log").read_text().splitlines()]
            steps = [s for s in steps if "loss" in s]
            losses, counts = with_torch(folder, rows_of(documents(folder), seq, alone))
            far = max(abs(s["loss"] - b) / b for s, b in zip(steps, losses, strict=True))
            ok = far <= TOLERANCE and [s["tokens"] for s in steps] == counts
            failed += not ok
            worst = max(worst, far)
            if not ok:
                print(f"set {number}: {template}, {learnt}, {'alone' if alone else 'packed'}, "
                      f"{what}: loss {far:.1e} FAILED", flush=True)
    print(f"{sets} sets, losses {worst:.1e} at most:", "all equal" if not failed else
          f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
