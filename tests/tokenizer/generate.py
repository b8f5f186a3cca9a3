"""generate.py - writes tokenizers of the kinds that models use, trained on a little text, and
texts with the ids that the library `tokenizers` gives them, for check_tokenizer.c.

  python3 generate.py [FOLDER [TEXTS [SEED]]]

needs `pip install tokenizers`. With another folder and more texts it compares more:
WEFT_TOKENIZER_CASES=FOLDER build/weft-tests tokenizer
"""
import json
import os
import random
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers,
                        processors, decoders, trainers)

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = sys.argv[1] if len(sys.argv) > 1 else HERE
TEXTS = int(sys.argv[2]) if len(sys.argv) > 2 else 60
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
BYTES = pre_tokenizers.ByteLevel


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


KINDS = {
    "gpt2": dict(cut=BYTES(add_prefix_space=False)),
    "llama3": dict(cut=pre_tokenizers.Sequence(
        [split(LLAMA3), BYTES(add_prefix_space=False, use_regex=False)]),
        ignore_merges=True, bos=True),
    "qwen2": dict(cut=pre_tokenizers.Sequence(
        [split(QWEN2), BYTES(add_prefix_space=False, use_regex=False)]),
        normalizer=normalizers.NFC()),
    "smollm": dict(cut=pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), BYTES(add_prefix_space=False)])),
    "prefix": dict(cut=pre_tokenizers.Sequence(
        [split(r"\s+", "removed"), split(r"[a-z]+|[^a-z]+", "removed", True), BYTES()])),
}

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", " \t\n\r\u00a0\u2003\u3000", "0123456789", "'stremvld",
    ".,;:!?-_()[]{}<>/\\|@#$%^&*+=~`\"", "ÄÖÜäöüßéèêñç", "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "漢字仮名交じり文中文简体字", "العربية", "हिन्दी में", "a\u0301e\u0308o\u0302n\u0303\u1100\u1161\u11a8",
    "😀👩‍👩‍👧‍👦🇩🇪✈️", "٠١٢٣½Ⅻ²", "\u0000\u0001\u007f\u200b\ufeff\u2028\ufb01\u212b",
]
WORDS = ("the of and to in is that for it as was with be by on not he I'm don't we've they'll "
         "token tokens tokenizer training parallel pipeline tensor gradient 2024 1,000 3.14 "
         "for(i=0;i<n;i++) return x; \n\n    if foo == bar:\n <|endoftext|> <|im_start|> "
         "DON'T WE'LL Straße naïve résumé über 東京 Москва").split(" ")
CORPUS = [" ".join(random.Random(7).choices(WORDS, k=4000)),
          open(os.path.join(HERE, "..", "..", "docs", "schedules.md")).read()[:8000]]


def text(rng):
    parts = []
    for _ in range(rng.randint(0, 14)):
        if rng.random() < 0.5:
            parts.append(rng.choice(["", " ", " ", "  "]) + rng.choice(WORDS))
        elif rng.random() < 0.9:
            a = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(a) for _ in range(rng.randint(1, 6))))
        else:
            parts.append(rng.choice("a \n7") * rng.randint(20, 90))
    return "".join(parts)


def build(kind, cut, normalizer=None, ignore_merges=False, bos=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = cut
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=450, initial_alphabet=BYTES.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>", "<|im_start|>"]))
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>s"), "3.1"])
    if bos:
        t.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    return t


def main():
    rng = random.Random(SEED)
    for kind, options in KINDS.items():
        t = build(kind, **options)
        t.save(os.path.join(FOLDER, kind + ".json"), pretty=False)
        cases = []
        for i in range(TEXTS):
            s = text(rng) if i else ""
            s = s.replace("\u0000", "")
            if i % 10 == 3:
                s += "<tool>s <tool>"
            ids = t.encode(s).ids
            cases.append([s, ids, t.encode(s, add_special_tokens=False).ids])
        with open(os.path.join(FOLDER, kind + ".cases"), "w") as f:
            f.write("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]\n")


main()
