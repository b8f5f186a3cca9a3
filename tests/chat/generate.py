"""generate.py - random conversations, and the ids and masks that Transformers gives them with the
chat templates of TRL's wheel (Mistral: mistral-common), for check_chat.c.

  python3 generate.py [FOLDER [SETS [SEED]]]

needs `pip install transformers jinja2 trl mistral-common`; TRL's templates are read as files, so it
need not be importable. With another folder and more sets it compares more:
WEFT_CHAT_CASES=FOLDER build/weft-tests chat
"""
import base64
import datetime
import hashlib
import importlib.util
import json
import os
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
import transformers.utils.chat_template_utils as chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))
TRL = os.path.join(os.path.dirname(importlib.util.find_spec("trl").origin), "chat_templates")
DATE = "2025-08-05"


class Clock(datetime.datetime):
    """The date that gpt-oss's template writes is that of the option."""
    @classmethod
    def now(cls, tz=None):
        return cls.strptime(DATE, "%Y-%m-%d")


chat_template_utils.datetime = Clock

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = {
    "plain": ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
              "<|python_tag|>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
              "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>",
              "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
              "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
              "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>",
              "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"],
    "tekken": ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]",
               "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]",
               "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"],
    "nfc": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>",
            "<think>", "</think>"],
}
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
          "{% if message['role'] == 'assistant' %}{% generation %}"
          "{{ message['content'] + '<|im_end|>\\n' }}{% endgeneration %}"
          "{% else %}{{ message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# The chat_template of SmolLM2-Instruct.
SMOLLM2 = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
           "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
           "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
           "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SMOLLM2_TRAINING = SMOLLM2.replace(
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
    "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' + '\n'}}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' + '\n'}}{% endif %}")


def trl(name):
    return open(os.path.join(TRL, name + ".jinja"), encoding="utf-8").read()


# The chat_template of DeepSeek-V3, which is that of the distilled models without reasoning and with
# all system messages. (TRL's deepseekv3 is that of DeepSeek-R1.) Where it was read the lines in its
# strings end with "\n" or with an end of line, which is the same to Jinja.
DEEPSEEK_V3 = (
    trl("deepseek_r1_distill")
    .replace("system_prompt='')", "system_prompt='', is_first_sp=true)")
    .replace("{% set ns.system_prompt = message['content'] %}",
             "{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}"
             "{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + "
             "'\\n\\n' + message['content'] %}{%- endif %}")
    .replace("{% set content = message['content'] %}{% if '</think>' in content %}{% set content = "
             "content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content",
             "{{'<｜Assistant｜>' + message['content']")
    .replace("<｜Assistant｜><think>\\n'}}", "<｜Assistant｜>'}}"))


# template, tokenizer, bos, Jinja, the variant with masks, features, weft's options, Jinja's.
KINDS = [
    ("chatml", "nfc", None, CHATML, CHATML, "system", {}, {}),
    ("llama3", "plain", "<|begin_of_text|>", trl("llama3"), trl("llama3_training"), "system", {}, {}),
    ("llama3.1", "plain", "<|begin_of_text|>", trl("llama3_1"), None, "system tools single", {}, {}),
    ("llama3.1", "plain", "<|begin_of_text|>", trl("llama3_2"), None, "system tools single",
     {"date": "1 May 2025", "tools_in_user_message": False},
     {"date_string": "1 May 2025", "tools_in_user_message": False}),
    ("qwen2.5", "nfc", None, trl("qwen2_5"), trl("qwen2_5_training"), "system tools", {}, {}),
    ("qwen3", "nfc", None, trl("qwen3"), None, "system tools reasoning", {}, {}),
    ("qwen3", "nfc", None, trl("qwen3_training"), trl("qwen3_training"), "system tools reasoning",
     {"keep_reasoning": True}, {}),
    ("qwen3", "nfc", None, trl("qwen3_instruct_2507"), trl("qwen3_instruct_2507_training"),
     "system tools reasoning", {"reasoning": False}, {}),
    ("gemma", "plain", "<bos>", trl("gemma"), trl("gemma_training"), "", {}, {}),
    ("gemma3", "plain", "<bos>", trl("gemma3"), trl("gemma3_training"), "system parts", {}, {}),
    ("deepseek", "plain", "<｜begin▁of▁sentence｜>", trl("deepseekv3"), None,
     "system none tools hidden text_arguments think", {}, {}),
    ("deepseek", "plain", "<｜begin▁of▁sentence｜>", trl("deepseekv3_training"),
     trl("deepseekv3_training"), "system none tools hidden think", {}, {}),
    ("deepseek-r1-distill", "plain", "<｜begin▁of▁sentence｜>", trl("deepseek_r1_distill"), None,
     "system none tools hidden text_arguments think no_content", {}, {}),
    ("deepseek-r1-distill", "plain", "<｜begin▁of▁sentence｜>",
     trl("deepseek_r1_distill_training"), trl("deepseek_r1_distill_training"),
     "system none tools hidden text_arguments think no_content", {"keep_reasoning": True}, {}),
    ("gpt-oss", "plain", None, trl("gptoss"), trl("gptoss_training"),
     "system developer tools single reasoning exclusive", {"date": DATE}, {}),
    ("gpt-oss", "plain", None, trl("gptoss"), trl("gptoss_training"),
     "tools single reasoning exclusive",
     {"date": DATE, "reasoning_effort": "high", "model_identity": "You are a parrot."},
     {"reasoning_effort": "high", "model_identity": "You are a parrot."}),
    ("smollm2", "nfc", None, SMOLLM2, SMOLLM2_TRAINING, "system developer", {}, {}),
]

# Drawn after all others, so that these stay as they are.
LATER = [
    ("deepseek-v3", "plain", "<｜begin▁of▁sentence｜>", DEEPSEEK_V3, None,
     "system none tools hidden text_arguments think no_content", {}, {}),
]

WORDS = ("the of and to in is that it was with be by not he I'm don't tokens training parallel "
         "tensor 2024 1,000 3.14 for(i=0;i<n;i++) return x; \n\n if foo == bar:\n Straße naïve "
         "résumé 東京 Москва 😀 {\"a\": 1} <b>&amp;</b> 'quoted' \"twice\" \\n \t").split(" ")
SPACES = ["", "", "", " ", "\n", "\n\n", "\u3000", "\u00a0 ", "\u2003", "\x1c", "\t\r\n"]
COMBINING = ["e\u0301", "a\u0308b", "\u212b", "\u0301x", "\u1100\u1161\u11a8", "n\u0303o"]


def build(kind):
    t = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if kind == "nfc":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    rng = random.Random(7)
    corpus = [" ".join(rng.choices(WORDS, k=3000)), trl("qwen3"), trl("gptoss")[-4000:]]
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False, special_tokens=SPECIAL[kind]))
    return t


def text(rng, special):
    parts = [rng.choice(SPACES)]
    for _ in range(rng.randint(1, 8)):
        parts.append(rng.choice(["", " "]) + rng.choice(WORDS))
        if rng.random() < 0.08:
            parts.append(rng.choice(special))
        if rng.random() < 0.1:
            parts.append(rng.choice(COMBINING))
    return "".join(parts) + "w" + rng.choice(SPACES)


def value(rng, depth=0):
    kind = rng.randint(0, 9 if depth < 2 else 6)
    if kind > 7:
        return {rng.choice("abcxyz") + str(i): value(rng, depth + 1) for i in range(rng.randint(0, 3))}
    if kind == 7:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return [rng.randint(-5, 10**12), rng.choice([0.1, -2.5e-7, 1e16, 1e22, 123456.789, 5e-324, 100.0, -0.0]),
            rng.choice(WORDS), None, True, False, "é\u0007\u007f\u2028/" + rng.choice(WORDS)][kind]


def schema(rng, depth=0):
    kind = rng.choice(["string", "number", "integer", "boolean", "array", "object", "list", "oneOf",
                       "enum", "none"] if depth < 2 else ["string", "integer", "enum"])
    s = {"type": kind}
    if kind == "array":
        if rng.random() < 0.8:
            s["items"] = schema(rng, depth + 1)
    elif kind == "object":
        if rng.random() < 0.7:
            s["properties"] = {f"p{i}": schema(rng, depth + 1) for i in range(rng.randint(0, 3))}
            s["required"] = [f"p{i}" for i in range(2) if rng.random() < 0.5]
    elif kind == "list":
        s = {"type": rng.choice([["string"], ["string", "null"], ["object", "array", "null"]])}
    elif kind == "oneOf":
        s = {"oneOf": [schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    elif kind == "enum":
        s = {"type": "string", "enum": rng.sample(["red", "green", "blue", "7"], rng.randint(1, 3))}
    elif kind == "none":
        s = {}
    if rng.random() < 0.5:
        s["description"] = rng.choice(WORDS).strip() + " of it"
    if rng.random() < 0.2:
        s["nullable"] = True
    if rng.random() < 0.3:
        s["default"] = "red" if kind in ("enum", "oneOf") else value(rng, 2)
    return s


def tool(rng, i):
    f = {"name": f"tool_{i}", "description": rng.choice(WORDS).strip() + " does it."}
    if rng.random() < 0.9:
        f["parameters"] = {"type": "object",
                           "properties": {f"p{k}": schema(rng) for k in range(rng.randint(0, 3))}}
        if rng.random() < 0.6:
            f["parameters"]["required"] = ["p0"]
    return {"type": "function", "function": f}


def call(rng, i, has):
    arguments = {f"p{k}": value(rng) for k in range(rng.randint(0, 3))}
    if "text_arguments" in has:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"type": "function", "id": f"call{i:05d}", "function": {
        "name": f"tool_{rng.randint(0, 2)}", "arguments": arguments}}


def steps(rng, has, special):
    """Calls of tools with their results, before an answer."""
    out = []
    for _ in range(rng.choice([0, 0, 1, 2]) if "tools" in has else 0):
        n = 1 if "single" in has else rng.randint(1, 3)
        m = {"role": "assistant", "content": rng.choice([None, "", text(rng, special)])}
        if "no_content" in has or "calls_alone" in has:
            m["content"] = None
        if "single" in has and "exclusive" not in has:
            m["content"] = ""
        m["tool_calls"] = [call(rng, i, has) for i in range(n)]
        if "reasoning" in has and rng.random() < 0.5 and not ("exclusive" in has and m["content"]):
            m["reasoning_content"] = text(rng, special)
        if "exclusive" in has and m["content"] is None and "calls_alone" not in has:
            m["content"] = ""
        out.append(m)
        for k in range(n):
            out.append({"role": "tool", "tool_call_id": f"call{k:05d}", "content": text(rng, special)})
    return out


def conversation(rng, has, special):
    out = []
    if "system" in has and rng.random() < 0.5:
        role = "developer" if "developer" in has and rng.random() < 0.5 else "system"
        out.append({"role": role, "content": text(rng, special)})
    for _ in range(rng.randint(1, 4)):
        out.append({"role": "user", "content": text(rng, special)})
        out += steps(rng, has, special)
        m = {"role": "assistant", "content": text(rng, special)}
        if "reasoning" in has and rng.random() < 0.5:
            m[rng.choice(["reasoning_content", "thinking", "reasoning"])] = text(rng, special)
        elif ("reasoning" in has or "think" in has) and "exclusive" not in has and rng.random() < 0.4:
            m["content"] = "<think>\n" + text(rng, special) + "\n</think>\n\n" + m["content"]
        if "parts" in has and rng.random() < 0.3:
            m["content"] = [{"type": "text", "text": text(rng, special)} for _ in range(2)]
        out.append(m)
    if rng.random() < 0.1 and "calls_alone" not in has:
        out.append({"role": "user", "content": text(rng, special)})
    return out


def rows(rng, features, special, n):
    has = features.split()
    out = []
    for _ in range(n):
        row = {"messages": conversation(rng, has, special)}
        if "tools" in has and "hidden" not in has and rng.random() < 0.6:
            row["tools"] = [tool(rng, i) for i in range(rng.randint(1, 3))]
        out.append(row)
    return out


# ---- Mistral ----

def byte_letters():
    """GPT-2's alphabet: the byte of each letter."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {chr(b): b for b in keep} | {chr(256 + i): b for i, b in enumerate(rest)}


def mistral(t):
    """mistral-common's tokenizer of the third format with the tokens of t, and the id in t of each
    of its ids."""
    from mistral_common.protocol.instruct.normalize import InstructRequestNormalizer
    from mistral_common.protocol.instruct.validator import MistralRequestValidatorV3, ValidationMode
    from mistral_common.tokens.tokenizers.base import TokenizerVersion
    from mistral_common.tokens.tokenizers.instruct import InstructTokenizerV3
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    special, letters = SPECIAL["tekken"], byte_letters()
    token = {bytes(letters[c] for c in s): i for s, i in t.get_vocab().items() if s not in special}
    order = sorted(token, key=lambda b: (len(b) > 1, b[0] if len(b) == 1 else token[b]))
    vocab = [{"rank": i, "token_bytes": base64.b64encode(b).decode(), "token_str": None}
             for i, b in enumerate(order)]
    specials = [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(special)]
    tekken = Tekkenizer(vocab, specials, LLAMA3, len(vocab) + len(special), len(special),
                        TokenizerVersion.v3)
    ids = [t.token_to_id(s) for s in special] + [token[b] for b in order]
    return MistralTokenizer(
        InstructTokenizerV3(tekken), MistralRequestValidatorV3(mode=ValidationMode.finetuning),
        InstructRequestNormalizer.normalizer()), ids


def wanted_mistral(both, t, row):
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    messages = [{k: v for k, v in m.items() if v is not None} for m in row["messages"]]
    for m in messages:
        for c in m.get("tool_calls", []):
            c["function"]["arguments"] = json.dumps(c["function"]["arguments"])
    tokenizer, ids = both
    out = tokenizer.encode_chat_completion(ChatCompletionRequest.from_openai(
        messages=messages, tools=row.get("tools")))
    got = [ids[i] for i in out.tokens]
    return {"ids": got, "text": t.decode(got, skip_special_tokens=False)}


def main_mistral(rng, t, f, sets):
    both = mistral(t)
    for _ in range(sets):
        some = rows(rng, "system tools exclusive calls_alone", ["and"], 4)
        case = {"template": "mistral", "tokenizer": "tekken", "bos": "<s>", "options": {},
                "rows": some, "want": [wanted_mistral(both, t, r) for r in some]}
        f.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")


def keep_none(tokenizer, row, template, options):
    """DeepSeek's templates ask whether content is None, which apply_chat_template takes away."""
    texts, ranges = chat_template_utils.render_jinja_template(
        [row["messages"]], chat_template=template, return_assistant_tokens_mask=True,
        **tokenizer.special_tokens_map, **options)
    out = tokenizer(texts[0], add_special_tokens=False)
    mask = [0] * len(out["input_ids"])
    for begin, end in ranges[0]:
        for i in range(out.char_to_token(begin), out.char_to_token(end - 1) + 1):
            mask[i] = 1
    return {"ids": out["input_ids"], "text": texts[0], "mask": mask}


def wanted_none(tokenizer, row, jinja, masked, options):
    want = keep_none(tokenizer, row, jinja, options)
    variant = keep_none(tokenizer, row, masked, options) if masked else None
    del want["mask"]
    if variant and variant["text"] == want["text"]:
        want["mask"] = variant["mask"]
    return want


def wanted(tokenizer, row, jinja, masked, options):
    def apply(template, **more):
        return tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"),
                                             chat_template=template, return_dict=True, **options, **more)
    ids = apply(jinja)["input_ids"]
    want = {"ids": ids, "text": tokenizer.apply_chat_template(
        row["messages"], tools=row.get("tools"), chat_template=jinja, tokenize=False, **options)}
    if masked:
        both = apply(masked, return_assistant_tokens_mask=True)
        if both["input_ids"] == ids:
            want["mask"] = both["assistant_masks"]
    return want


def main_kinds(rng, kinds, names, f, sets):
    for name, kind, bos, jinja, masked, features, plain, plain_own in kinds:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=names[kind], bos_token=bos)
        for _ in range(sets):
            options, own = plain, plain_own
            some = rows(rng, features, SPECIAL[kind], 4)
            if rng.random() < 0.25:
                own = own | {"add_generation_prompt": True}
                options = options | {"generation_prompt": True}
            case = {"template": name, "tokenizer": kind, "bos": bos, "options": options,
                    "rows": some,
                    "want": [(wanted_none if "none" in features.split() else wanted)(
                        tokenizer, r, jinja, masked, own) for r in some]}
            f.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")


def main(folder=HERE, sets=3, seed=1):
    sets, rng = int(sets), random.Random(int(seed))
    names = {}
    for kind in SPECIAL:
        t = build(kind)
        t.save(os.path.join(folder, kind + ".json"), pretty=False)
        names[kind] = t
    with open(os.path.join(folder, "chat.cases"), "w", encoding="utf-8") as f:
        main_kinds(rng, KINDS, names, f, sets)
        main_mistral(rng, names["tekken"], f, sets)
        main_kinds(rng, LATER, names, f, sets)
    # The hashes of stdlib/chat/known.lua, and the options with which a template has that text.
    with open(os.path.join(folder, "hashes"), "w", encoding="utf-8") as f:
        for file, name in HASHES:
            f.write(f"{hashlib.sha256(trl(file).strip().encode()).hexdigest()} {name}\n")
        for jinja, name in [(SMOLLM2, "smollm2"), (DEEPSEEK_V3, "deepseek-v3"),
                            (DEEPSEEK_V3.replace("\\n", "\n"), "deepseek-v3")]:
            f.write(f"{hashlib.sha256(jinja.strip().encode()).hexdigest()} {name}\n")


HASHES = [(f, n) for f, n in [
    ("llama3", "llama3"), ("llama3_training", "llama3"), ("llama3_1", "llama3.1"),
    ("llama3_2", "llama3.1"), ("qwen2_5", "qwen2.5"), ("qwen2_5_training", "qwen2.5"),
    ("qwen3", "qwen3"), ("qwen3_training", "qwen3 keep_reasoning"),
    ("qwen3_instruct_2507", "qwen3 reasoning"),
    ("qwen3_instruct_2507_training", "qwen3 reasoning"), ("gemma", "gemma"),
    ("gemma_training", "gemma"), ("gemma3", "gemma3"), ("gemma3_training", "gemma3"),
    ("deepseekv3", "deepseek"), ("deepseekv3_training", "deepseek"),
    ("deepseek_r1_distill", "deepseek-r1-distill"),
    ("deepseek_r1_distill_training", "deepseek-r1-distill keep_reasoning"),
    ("gptoss", "gpt-oss"), ("gptoss_training", "gpt-oss")]]

if __name__ == "__main__":
    main(*sys.argv[1:])
