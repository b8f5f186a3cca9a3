"""Conversations as users write them against Transformers' apply_chat_template, token by token.

    tests/oracle/chats.py [N [SEED]]    with a Python that has transformers, jinja2 and trl

Draws N conversations: messages in any order, empty and odd texts, contents that are lists, calls and
results of tools, reasoning, any characters of Unicode, the options of templates. `weft tokenize
--chat` makes ids and masks of each with a template, Transformers with the Jinja template of TRL's
wheel that it stands for. Ids are to be equal, and masks where the variant for training gives the
same ids; where Jinja raises, weft is to end with an error. What weft refuses alone is counted by
its message: it is what docs/finetune.md says of conversations that cannot be used.
"""
import collections
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "chat"))
try:
    import generate
    import jinja2
    from transformers import PreTrainedTokenizerFast
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)

GROUP = 24
WEFT = HERE.parent.parent / "build" / "weft"
# What Python or Jinja raise where a template meets what it was not written for.
RAISED = (jinja2.TemplateError, TypeError, ValueError, AttributeError, KeyError, IndexError)
# Those that weft compares in its suite, with prompts, with a system message as an option, and with
# calls that some data has without a table around them.
KINDS = [k[:5] + (k[5] + " bare_calls" * k[0].startswith("qwen"),) + k[6:] for k in generate.KINDS]
KINDS += [k[:6] + ({**k[6], "generation_prompt": True}, {**k[7], "add_generation_prompt": True})
          for k in KINDS]
KINDS += [k[:6] + ({**k[6], "enable_thinking": False}, {**k[7], "enable_thinking": False})
          for k in KINDS if k[0] == "qwen3" and "generation_prompt" in k[6]]
BLOCKS = ((0x20, 0x7e), (0xa0, 0x2af), (0x300, 0x36f), (0x370, 0x5ff), (0x900, 0x97f),
          (0x1100, 0x11ff), (0x2000, 0x206f), (0x3040, 0x30ff), (0x4e00, 0x4fff), (0xac00, 0xad00),
          (0xfb00, 0xfb4f), (0x1f300, 0x1f64f), (0x1d400, 0x1d4ff), (0xe0001, 0xe007f), (1, 0x1f))


def characters(draw):
    low, high = draw.choice(BLOCKS)
    return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 6)))


def text(draw, special):
    out = generate.text(draw, special)
    for _ in range(draw.choice([0, 0, 1, 3])):
        at = draw.randint(0, len(out))
        out = out[:at] + characters(draw) + out[at:]
    if draw.random() < 0.03:
        return draw.choice(["", " "])
    return draw.choice([out, out, out.strip(), "\n\n" + out + "\n"])


def arguments(draw, has):
    out = {draw.choice(["city", "n", "näme", "a b", "x\"y"]) + str(i): generate.value(draw)
           for i in range(draw.randint(0, 3))}
    # as text, or not, where a template takes one of them alone
    text_share = 1 if "text_arguments" in has else 0 if "hidden" in has else 0.1
    if draw.random() < text_share:
        return json.dumps(out, ensure_ascii=draw.random() < 0.5)
    return out


def call(draw, i, has):
    f = {"name": draw.choice(["look", "näher", "a.b"]), "arguments": arguments(draw, has)}
    if "bare_calls" in has and draw.random() < 0.2:
        return {"id": f"c{i}", **f}
    return {"type": "function", "id": f"call{i:05d}", "function": f}


def message(draw, role, has, special):
    m = {"role": role, "content": text(draw, special)}
    if draw.random() < 0.02:
        m["content"] = None
    if "parts" in has and draw.random() < 0.2:
        m["content"] = [{"type": "text", "text": text(draw, special)} for _ in range(draw.randint(1, 3))]
    if role == "assistant":
        if "tools" in has and draw.random() < 0.25:
            m["tool_calls"] = [call(draw, i, has) for i in range(draw.choice([1, 1, 2]))]
            if draw.random() < 0.5:
                m["content"] = draw.choice([None, ""])
        if "reasoning" in has and draw.random() < 0.4:
            m[draw.choice(["reasoning_content", "thinking", "reasoning"])] = text(draw, special)
        elif ("reasoning" in has or "think" in has) and draw.random() < 0.3:
            m["content"] = draw.choice(["<think>", "<think>\n", ""]) + text(draw, special) + \
                draw.choice(["</think>", "\n</think>\n\n"]) + text(draw, special)
    if role == "tool":
        m["tool_call_id"] = "call00000"
    if draw.random() < 0.1:
        m["name"] = draw.choice(["Ada", None])
    return m


def conversation(draw, has, special):
    """By turns, as most data has them, or any roles."""
    roles = ["user", "assistant"]
    if draw.random() < 0.3:
        more = ["system"] + ["tool"] * ("tools" in has) + ["developer"] * ("developer" in has)
        return [message(draw, draw.choice(roles + more), has, special)
                for _ in range(draw.randint(1, 6))]
    out = [message(draw, "system", has, special)] if draw.random() < 0.4 else []
    for _ in range(draw.randint(1, 4)):
        out.append(message(draw, "user", has, special))
        out.append(message(draw, "assistant", has, special))
        while out[-1].get("tool_calls"):
            out += [message(draw, "tool", has, special) for _ in out[-1]["tool_calls"]]
            out.append(message(draw, "assistant", has, special))
    return out


def tools(draw):
    out = [generate.tool(draw, i) for i in range(draw.randint(0, 3))]
    for t in out:
        if draw.random() < 0.2:
            t["function"]["description"] = characters(draw)
    return out


# ---- weft ----


def write(folder, rows):
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")


def weft(folder, kind, *more):
    name, options = kind[0], {"any_order": True, **kind[6]}
    told = [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in options.items()]
    return subprocess.run(
        [WEFT, "tokenize", "--chat", "rows.jsonl", "--tokenizer", "tokenizer", "-o", "o.bin",
         "--template", name, *(x for o in told for x in ("--option", o)), *more],
        cwd=folder, capture_output=True, text=True)


def documents(folder):
    """Ids and bits of each conversation."""
    index, raw, mask = ((folder / f"o.{e}").read_bytes() for e in ("idx", "bin", "mask"))
    tokens, = struct.unpack_from("<Q", mask, 16)
    count, = struct.unpack_from("<Q", index, 18)
    width, at, out = len(raw) // tokens, 0, []
    for n in struct.unpack_from(f"<{count}i", index, 34):
        ids = [int.from_bytes(raw[width * i:width * (i + 1)], "little") for i in range(at, at + n)]
        out.append((ids, [mask[64 + i // 8] >> i % 8 & 1 for i in range(at, at + n)]))
        at += n
    return out


def accepted(folder, kind, rows, counts):
    """The rows that weft takes, and what it makes of them. Conversations of which nothing is learnt
    are left out without an error, and so begin with one that is learnt."""
    rows = list(rows)
    while rows:
        write(folder, [r for r, _ in rows])
        done = weft(folder, kind)
        if done.returncode == 0:
            out = documents(folder)
            if len(out) == len(rows):
                return list(zip(rows, out))
            rows, some = [], rows
            for row in some:  # one by one: which are left out?
                write(folder, [row[0]])
                if weft(folder, kind).returncode == 0:
                    rows.append(row)
                else:
                    counts[f"{kind[0]} leaves out: nothing is learnt"] += 1
            continue
        at = re.search(r"rows\.jsonl:(\d+): error: (.*)", done.stderr)
        if not at and "there is no conversation" in done.stderr:
            counts[f"{kind[0]} leaves out: nothing is learnt"] += len(rows)
            return []
        if not at:
            raise RuntimeError(f"weft ends with {done.returncode}: {done.stderr}")
        counts[f"{kind[0]} refuses: " + re.sub(r"\d+", "N", at[2])] += 1
        del rows[int(at[1]) - 1]
    return []


# ---- both ----


def fault(kind, row, what, *more):
    print(f"{kind[0]} {kind[6]}: {what}", json.dumps(row, ensure_ascii=False), *more, sep="\n")
    return 1


def compare(kind, tokenizer, taken):
    faults = 0
    for (row, want), (ids, bits) in taken:
        if ids != want["ids"]:
            faults += fault(kind, row, "other ids", f"weft: {tokenizer.decode(ids)!r}",
                            f"want: {want['text']!r}")
        elif want.get("mask", bits) != bits:
            faults += fault(kind, row, "another mask", bits, want["mask"])
    return faults


def refused(folder, kind, rows):
    """How many weft takes of the rows that Jinja does not."""
    write(folder, [r for r, _ in rows])
    done = weft(folder, kind, "--drop-bad")
    if done.returncode and "there is no conversation" in done.stderr:
        return 0
    faults = 0
    for row, why in rows:
        write(folder, [row])
        if weft(folder, kind).returncode == 0:
            faults += fault(kind, row, f"weft takes what Transformers does not: {why}")
    return faults


def group(draw, folder, kind, tokenizer, render, n, counts):
    """Compares n conversations of a template."""
    has, special = kind[5].split(), generate.SPECIAL[kind[1]]
    fine, not_fine = [], []
    for _ in range(n):
        row = {"messages": conversation(draw, has, special)}
        if "tools" in has and "hidden" not in has and draw.random() < 0.5:
            row["tools"] = tools(draw)
        try:
            fine.append((row, render(row)))
        except RAISED as why:
            not_fine.append((row, f"{type(why).__name__}: {why}"))
    faults = refused(folder, kind, not_fine) if not_fine else 0
    taken = accepted(folder, kind, fine, counts)
    counts["refused by both"] += len(not_fine)
    counts["equal ids"] += len(taken)
    counts["equal masks"] += sum("mask" in want for (_, want), _ in taken)
    return faults + compare(kind, tokenizer, taken)


def renderer(kind, tokenizer):
    _, _, _, jinja, masked, features, _, own = kind
    how = generate.wanted_none if "none" in features.split() else generate.wanted
    return lambda row: how(tokenizer, row, jinja, masked, own)


def put_tokenizer(folder, built, bos):
    (folder / "tokenizer").mkdir(parents=True)
    built.save(str(folder / "tokenizer" / "tokenizer.json"))
    (folder / "tokenizer" / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": bos}, ensure_ascii=False), encoding="utf-8")


def main():
    n, seed = (int(x) for x in (sys.argv[1:] + ["400", "1"][len(sys.argv) - 1:])[:2])
    draw, counts, faults, done = random.Random(seed), collections.Counter(), 0, 0
    built = {k: generate.build(k) for k in generate.SPECIAL}
    with tempfile.TemporaryDirectory() as base:
        while done < n:
            kind = draw.choice(KINDS)
            folder = pathlib.Path(base) / str(done)
            put_tokenizer(folder, built[kind[1]], kind[2])
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=built[kind[1]], bos_token=kind[2])
            faults += group(draw, folder, kind, tokenizer, renderer(kind, tokenizer), GROUP, counts)
            done += GROUP
    for what, count in sorted(counts.items(), key=lambda x: -x[1]):
        print(f"{count:6} {what}")
    print(f"{done} conversations, {faults} differ")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
