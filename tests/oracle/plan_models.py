"""The models of random plans in plain PyTorch, forward alone: what derives them is autograd.

A model of the library is written here a second time, from its config.json and the names of
its weights; a model function is the list of its ops (spec.lua), each written here.
"""
import re

import numpy as np
import torch
import torch.nn.functional as F


class Batch:
    """Tokens and labels (rows, seq) of a step, with what follows of documents."""

    def __init__(self, tokens, labels, begins, numbers, seed, noise_alpha=0):
        """`begins` (rows, seq + 1): whether each token, and the one behind the row, is the first
        one of a document; `numbers`: which one it is since the first step; `seed`: of masks and
        of noise on embeddings, of which there is as much as `noise_alpha` says."""
        self.begins, self.numbers, self.seed = begins, numbers.flatten().numpy(), seed
        self.noise_alpha = noise_alpha
        rows, seq = tokens.shape
        self.tokens, self.labels = tokens, labels
        at = torch.arange(seq).expand(rows, seq)
        starts = torch.where(begins[:, :seq], at, 0).cummax(1).values
        self.positions = at - starts
        causal = at[:, :, None] >= at[:, None, :]
        self.sees = causal & (at[:, None, :] >= starts[:, :, None])

    def ahead(self, k):
        """Tokens and labels k places further on: those of another document, and what is behind
        the row, are token 0 and label -100; a label of another document never counts."""
        rows, seq = self.tokens.shape
        same = torch.ones(rows, seq, dtype=torch.bool)
        for i in range(1, k + 1):  # not begun by the token i places on
            same &= ~F.pad(self.begins[:, i: seq], (0, i), value=True)
        tokens = F.pad(self.tokens[:, k:], (0, k))
        labels = torch.where(self.begins[:, 1:], -100, self.labels)
        labels = F.pad(labels[:, k:], (0, k), value=-100)
        return torch.where(same, tokens, 0), torch.where(same, labels, -100)

    def cut(self, rows):
        """Batches of so many rows, in their order."""
        numbers = torch.from_numpy(self.numbers).view(self.tokens.shape)
        parts = (x.split(rows) for x in (self.tokens, self.labels, self.begins, numbers))
        return [Batch(*part, self.seed, self.noise_alpha) for part in zip(*parts)]


def philox(counter, key):
    """Philox4x32-10: four words (..., 4) of each counter (..., 4) of numbers below 2^32."""
    c0, c1, c2, c3 = (c.astype(np.uint64) for c in counter)
    k0, k1 = (np.uint64(k) for k in key)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = p1 >> half ^ c1 ^ k0, p1 & low, p0 >> half ^ c3 ^ k1, p0 & low
        k0, k1 = k0 + np.uint64(0x9E3779B9) & low, k1 + np.uint64(0xBB67AE85) & low
    return np.stack([c0, c1, c2, c3], -1)


def factors(tokens, columns, rate, places, unit, key):
    """(tokens, places, columns): what weft multiplies by, 0 or 1 / (1 - rate)."""
    groups = np.arange((columns + 3) // 4)
    counter = np.broadcast_arrays(tokens[:, None, None], groups, places[:, None], unit)
    words = philox(counter, (key % 2**32, key >> 32))
    words = words.reshape(len(tokens), len(places), -1)[:, :, :columns]
    return torch.from_numpy(words >= np.uint64(int(rate * 2**32))) / (1 - rate)


def dropout(x, b, rate, unit, site):
    """Of x (rows, seq, features), with weft's masks: by number of the token and column."""
    kept = factors(b.numbers, x.shape[-1], rate, np.array([site]), unit, b.seed)
    return x * kept.view(x.shape).to(x.dtype)


NOISE_SITE = 8192


def noisy(x, b):
    """Embeddings (rows, seq, features) with noise by weft's words, as NEFTune has it."""
    if not b.noise_alpha:
        return x
    rows, seq, features = x.shape
    groups = np.arange((features + 3) // 4)
    counter = np.broadcast_arrays(b.numbers[:, None], groups, NOISE_SITE, 0)
    words = philox(counter, (b.seed % 2**32, b.seed >> 32)).reshape(rows, seq, -1)[..., :features]
    unit = torch.from_numpy(words.astype(np.float64) / 2**31 - 1)
    return x + (b.noise_alpha / (seq * features) ** 0.5 * unit).to(x.dtype)


def attention_dropout(b, heads, rate, unit, site=0):
    """Factors (rows, heads, queries, keys) of the softmax, or None."""
    if not rate:
        return None
    rows, seq = b.tokens.shape
    kept = factors(b.numbers, seq, rate, site * 65536 + np.arange(heads), unit, b.seed + 2**63)
    return kept.view(rows, seq, heads, seq).transpose(1, 2)


def turn(x, positions, theta, interleaved=False):
    """RoPE of x (rows, seq, heads, d)."""
    d = x.shape[-1]
    speed = theta ** (-torch.arange(0, d, 2).to(x.dtype) / d)
    angle = positions.to(x.dtype)[:, :, None, None] * speed
    cos, sin = angle.cos(), angle.sin()
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, sees, scale=None, kept=None, window=None, cap=None, sinks=None):
    """Of q (rows, seq, heads, d) and k, v of a divisor of its heads; (rows, seq, all). A query
    sees the last `window` tokens, scores x become cap * tanh(x / cap); `sinks` are scores, of
    each head, of a key without a value."""
    times = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(times, 2), v.repeat_interleave(times, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (scale or q.shape[-1] ** -0.5)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    if window:
        at = torch.arange(q.shape[1])
        sees = sees & (at[:, None] - at < window)
    scores = scores.masked_fill(~sees[:, None], float("-inf"))
    if sinks is not None:
        one = sinks[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, one], -1)
    p = scores.softmax(-1)[..., :k.shape[1]]
    p = p if kept is None else p * kept.to(p.dtype)
    return torch.einsum("bhqk,bkhd->bqhd", p, v).flatten(2)


def rmsnorm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def clamped_swiglu(g, u, a):
    g, u = g.clamp(max=a["limit"]), u.clamp(-a["limit"], a["limit"])
    return g * torch.sigmoid(a["scale"] * g) * (u + 1)


def cross_entropy(logits, labels, z=0.0, per=None):
    """The mean over labels that count; of PaLM's z-loss, too, z * log^2 Z. `per`: labels by whose
    number it is divided instead."""
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    counts = (labels != -100).flatten()
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    if z:
        losses = losses + z * logits.flatten(0, 1).logsumexp(-1).pow(2) * counts
    return losses.sum() / (counts if per is None else per != -100).sum()


# ---- linears ----


class Linears:
    """The linears of a model, with what adapters add, as PEFT defines it. `in_out`: GPT-2's
    weights are (in, out)."""

    def __init__(self, adapter, weights, batch, in_out=False):
        self.w, self.b, self.in_out, self.adapter = weights, batch, in_out, adapter
        self.rate, self.number = adapter and adapter.get("dropout"), {}
        self.post = bool(adapter) and adapter.get("dropout_position") == "post"

    def scale(self, name):
        """Of a module whose rank or alpha may be another one than that of all."""
        rank = self.w[name + ".lora_A.weight"].shape[0]
        alpha = self.adapter.get("alpha") or self.adapter["rank"]
        for pattern, own in (self.adapter.get("alpha_pattern") or {}).items():
            if re.search(r"(^|\.)" + re.escape(pattern).replace(r"\*", r"\d+") + "$", name):
                alpha = own
        return alpha / (rank ** 0.5 if self.adapter.get("rslora") else rank)

    def dropped(self, x, site, name):
        """With weft's masks: the linears of a layer are counted in the order of the model."""
        return dropout(x, self.b, self.rate, int(name.split(".")[2]) + 1, 4096 + site) if self.rate else x

    def adapted(self, x, y, w, site, name):
        if not self.post:
            x = self.dropped(x, site, name)
        low = F.linear(x, self.w[name + ".lora_A.weight"])
        high = F.linear(low, self.w[name + ".lora_B.weight"])
        scale = self.scale(name)
        high = scale * (self.dropped(high, site, name) if self.post else high)
        magnitude = self.w.get(name + ".lora_magnitude_vector")
        if magnitude is None:
            return y + high
        with torch.no_grad():
            more = self.w[name + ".lora_B.weight"] @ self.w[name + ".lora_A.weight"]
            norm = (w + scale * more).norm(dim=1)
        by = magnitude / norm
        return y + (by - 1) * F.linear(x, w) + by * high

    def __call__(self, x, name):
        w = self.w[name + ".weight"]
        w = w.T if self.in_out else w
        layer, y = name.split(".")[2], F.linear(x, w)
        site = self.number[layer] = self.number.get(layer, -1) + 1
        if name + ".lora_A.weight" in self.w:
            y = self.adapted(x, y, w, site, name)
        bias = self.w.get(name + ".bias")
        return y if bias is None else y + bias


# ---- the decoders of the library ----


class Choices:
    """What routers chose, call by call, and by which scores: of a run that chooses itself, or
    of one that is to choose as `made` says. `gaps`: per call the least distance of the last
    choice of a token to the next one, and the token; (call, token) in `other` has that one."""

    def __init__(self, made=None, other=()):
        self.replay, self.other = made, set(other)
        self.made, self.scores, self.gaps = [], [], []

    def take(self, by, k):
        call, rows = len(self.made), by.flatten(0, -2).double()
        top = rows.topk(min(k + 1, by.shape[-1]), -1)
        gap = top.values[:, k - 1] - top.values[:, -1]
        chosen = top.indices[:, :k].clone()
        for number, row in self.other:
            if number == call:
                chosen[row, k - 1], gap[row] = top.indices[row, -1], float("inf")
        self.gaps.append((gap.min().item(), gap.argmin().item()))
        self.scores.append(rows)
        self.made.append(self.replay[call] if self.replay else chosen.view(*by.shape[:-1], k))
        return self.made[-1]


def sinkhorn(logits, groups):
    """Megatron's, of the tokens of each group by themselves: rows and columns of exp(logits) with equal
    sums; each row has the sum 1 here, as one of scores."""
    out = []
    for cost in logits.detach().reshape(groups, -1, logits.shape[-1]).exp():
        rows, columns = (cost.new_ones(n) for n in cost.shape)
        moved = 1.0
        while moved > 1e-4:
            rows = 1 / len(rows) / ((columns * cost).sum(1) + 1e-8)
            new = 1 / len(columns) / ((rows[:, None] * cost).sum(0) + 1e-8)
            moved, columns = (new - columns).abs().mean().item(), new
        out.append(columns * cost * rows[:, None] * len(rows))
    return torch.stack(out).view_as(logits)


class Decoder:
    """Llama, Qwen2, Qwen3, their models with experts, and DeepSeek-V3."""

    def __init__(self, config, linear, batch, plan, microbatches, choices):
        moe = plan["moe"] or {}
        self.c, self.w, self.b = config, linear.w, batch
        self.mtp, self.z = plan["mtp"] or {}, plan["z_loss"]
        self.moe, self.groups, self.choices = moe, microbatches, choices
        self.linear = linear
        self.theta = config["rope_parameters"]["rope_theta"]
        self.extra, self.load = 0, {}
        self.before = plan.get("before", {})  # what routers chose in the microbatches before these

    def norm(self, x, name, eps=None):
        return rmsnorm(x, self.w[name + ".weight"], eps or self.c["rms_norm_eps"])

    def turn(self, x):
        return turn(x, self.b.positions, self.theta, self.c.get("rope_interleave", False))

    def kept(self, q, name):
        """Of the attention of a layer, which is unit number i + 1 of the model."""
        layer = int(name.split(".")[2])
        unit = layer + 1 + (layer >= self.c["num_hidden_layers"])  # the last norm is one
        return attention_dropout(self.b, q.shape[2], self.c.get("attention_dropout"), unit)

    def attention(self, x, name):
        d = self.c.get("head_dim") or self.c["hidden_size"] // self.c["num_attention_heads"]
        q, k, v = (self.linear(x, f"{name}.{p}_proj").unflatten(-1, (-1, d)) for p in "qkv")
        if name + ".q_norm.weight" in self.w:
            q, k = self.norm(q, name + ".q_norm"), self.norm(k, name + ".k_norm")
        kept = self.kept(q, name)
        o = attend(self.turn(q), self.turn(k), v, self.b.sees, kept=kept)
        return self.linear(o, name + ".o_proj")

    def latent_attention(self, x, name):
        c, eps = self.c, 1e-6
        heads, nope, rope = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        if name + ".q_proj.weight" in self.w:
            q = self.linear(x, name + ".q_proj")
        else:
            q = self.norm(self.linear(x, name + ".q_a_proj"), name + ".q_a_layernorm", eps)
            q = self.linear(q, name + ".q_b_proj")
        q = q.unflatten(-1, (heads, nope + rope))
        q = torch.cat([q[..., :nope], self.turn(q[..., nope:])], -1)
        both = self.linear(x, name + ".kv_a_proj_with_mqa")
        kv, k_rope = both[..., :-rope], self.turn(both[..., None, -rope:])
        kv = self.linear(self.norm(kv, name + ".kv_a_layernorm", eps), name + ".kv_b_proj")
        kv = kv.unflatten(-1, (heads, -1))
        k = torch.cat([kv[..., :nope], k_rope.expand(-1, -1, heads, -1)], -1)
        o = attend(q, k, kv[..., nope:], self.b.sees, kept=self.kept(q, name))
        return self.linear(o, name + ".o_proj")

    def mlp(self, x, name):
        gate = F.silu(self.linear(x, name + ".gate_proj"))
        return self.linear(gate * self.linear(x, name + ".up_proj"), name + ".down_proj")

    def choose(self, logits, scores, bias):
        """Which experts (…, experts) each token has, as numbers 0 and 1."""
        by = scores.detach() + (0 if bias is None else bias)
        if self.moe.get("sinkhorn_sequences"):
            by = sinkhorn(logits, len(self.b.labels) // self.moe["sinkhorn_sequences"])
        n, kept, adds = self.c.get("n_group", 1), self.c.get("topk_group", 1), 2
        if self.moe.get("num_groups"):
            n, kept = self.moe["num_groups"], self.moe["group_topk"]
            adds = self.c["num_experts_per_tok"] // kept
            if adds > 1 and bias is None and self.normed():  # as Megatron: the softmax comes later
                by = logits.detach()
        if kept < n:
            groups = by.unflatten(-1, (n, -1))
            best = groups.topk(adds, -1).values.sum(-1).topk(kept, -1).indices
            out = torch.ones(groups.shape[:-1], dtype=torch.bool).scatter(-1, best, False)
            by = groups.masked_fill(out[..., None], float("-inf")).flatten(-2)
        chosen = self.choices.take(by, self.c["num_experts_per_tok"])
        return torch.zeros_like(scores).scatter(-1, chosen, 1.0)

    def normed(self):
        return self.c["model_type"] == "mixtral" or self.c["norm_topk_prob"]

    def counted(self, scores, chosen, bias):
        """What the loss counts: the choice by scores alone, as Megatron and DeepSeek-V3's report have it."""
        n, kept = self.c.get("n_group", 1), self.c.get("topk_group", 1)
        limited = self.moe.get("num_groups") or kept < n
        if not self.moe.get("aux_loss_coef") or bias is None and not limited:
            return chosen
        best = self.choices.take(scores.detach(), self.c["num_experts_per_tok"])
        return torch.zeros_like(scores).scatter(-1, best, 1.0)

    def experts(self, x, name):
        c, bias = self.c, self.w.get(name + ".gate.e_score_correction_bias")
        logits = F.linear(x, self.w[name + ".gate.weight"])
        scores = logits.softmax(-1) if bias is None else logits.sigmoid()
        chosen = self.choose(logits, scores, bias)
        weights = scores * chosen
        if self.normed():
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights * c.get("routed_scaling_factor", 1.0)
        self.load[name] = chosen.sum((0, 1))
        self.add_losses(name, logits, scores, self.counted(scores, chosen, bias))
        gate_up, down = (self.w[f"{name}.experts.{p}_proj"] for p in ("gate_up", "down"))
        gate, up = torch.einsum("btc,efc->btef", x, gate_up).chunk(2, -1)
        y = torch.einsum("btef,ecf->btec", F.silu(gate) * up, down)
        return (y * weights[..., None]).sum(2)

    def add_losses(self, name, logits, scores, chosen):
        """Of each microbatch by itself, or of each so many sequences of it; each counts as its label
        tokens do."""
        aux, z = self.moe.get("aux_loss_coef") or 0, self.moe.get("z_loss_coef") or 0
        n, together = scores.shape[-1], self.moe.get("aux_loss_sequences")
        groups = len(self.b.labels) // together if together else self.groups
        p = (scores / scores.sum(-1, keepdim=True)).view(groups, -1, n).mean(1)
        f = chosen.view(groups, -1, n).mean(1) / self.c["num_experts_per_tok"]
        if self.moe.get("aux_loss_batch") == "global":
            f = self.mean_so_far(name, f)
        z_means = logits.logsumexp(-1).pow(2).view(self.groups, -1).mean(1)
        self.extra = self.extra + (aux * n * (f * p).sum(-1) * self.share(groups)).sum()
        self.extra = self.extra + (z * z_means * self.share(self.groups)).sum()

    def mean_so_far(self, name, f):
        """Megatron's global_aux_loss: of each microbatch the mean of f of those of the step up to it."""
        sums, number = self.before.get(name, (0, 0))
        sums = sums + f.cumsum(0)
        self.before[name] = sums[-1], number + len(f)
        return sums / torch.arange(number + 1, number + 1 + len(f))[:, None]

    def share(self, groups):
        """Of the label tokens, that of each of so many parts of the batch."""
        counts = (self.b.labels != -100).view(groups, -1).sum(1)
        return counts / counts.sum()

    def layer(self, x, name):
        attention = self.latent_attention if "kv_lora_rank" in self.c else self.attention
        x = x + attention(self.norm(x, name + ".input_layernorm"), name + ".self_attn")
        h = self.norm(x, name + ".post_attention_layernorm")
        if name + ".mlp.gate.weight" not in self.w:
            return x + self.mlp(h, name + ".mlp")
        x = x + self.experts(h, name + ".mlp")
        if name + ".mlp.shared_experts.up_proj.weight" in self.w:
            x = x + self.mlp(h, name + ".mlp.shared_experts")
        return x

    def further(self, h, head):
        """DeepSeek-V3's multi-token prediction (arXiv:2412.19437, equations 21 to 25) from the
        states of the model: module k has of token i the state before it and the embedding of
        token i + k, and predicts token i + k + 1. Each loss is divided by all labels (the T of
        equation 24); their mean counts lambda times."""
        c, modules, total = self.c, self.mtp.get("num_layers") or 0, 0
        for k in range(1, modules + 1):
            name = f"model.layers.{c['num_hidden_layers'] + k - 1}"
            tokens, labels = self.b.ahead(k)
            e = F.embedding(tokens, self.w["model.embed_tokens.weight"])
            both = [self.norm(e, name + ".enorm"), self.norm(h, name + ".hnorm")]
            h = self.layer(self.linear(torch.cat(both, -1), name + ".eh_proj"), name)
            h = self.norm(h, name + ".shared_head.norm")
            total = total + cross_entropy(F.linear(h, head), labels, per=self.b.labels)
        return self.mtp["loss_scaling_factor"] / modules * total if modules else 0

    def loss(self):
        c, w = self.c, self.w
        x = noisy(F.embedding(self.b.tokens, w["model.embed_tokens.weight"]), self.b)
        for i in range(c["num_hidden_layers"]):
            x = self.layer(x, f"model.layers.{i}")
        head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
        h = self.norm(x, "model.norm")
        more = self.further(h, head)
        return cross_entropy(F.linear(h, head), self.b.labels, self.z) + more + self.extra


def gpt2_loss(c, linear, b, z):
    w = linear.w

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"],
                            c["layer_norm_epsilon"])

    def drop(x, key, unit, site):
        return dropout(x, b, c[key], unit, site) if c.get(key) else x

    wte = w["transformer.wte.weight"]
    x = noisy(F.embedding(b.tokens, wte), b) + F.embedding(b.positions, w["transformer.wpe.weight"])
    x = drop(x, "embd_pdrop", 0, 0)
    for i in range(c["n_layer"]):
        name = f"transformer.h.{i}"
        q, k, v = (y.unflatten(-1, (c["n_head"], -1))
                   for y in linear(norm(x, name + ".ln_1"), name + ".attn.c_attn").chunk(3, -1))
        kept = attention_dropout(b, c["n_head"], c.get("attn_pdrop"), i + 1)
        y = linear(attend(q, k, v, b.sees, kept=kept), name + ".attn.c_proj")
        x = x + drop(y, "resid_pdrop", i + 1, 0)
        h = F.gelu(linear(norm(x, name + ".ln_2"), name + ".mlp.c_fc"), approximate="tanh")
        x = x + drop(linear(h, name + ".mlp.c_proj"), "resid_pdrop", i + 1, 1)
    return cross_entropy(norm(x, "transformer.ln_f") @ wte.T, b.labels, z)


# ---- model functions ----


def heads_of(a, x):
    return x.unflatten(-1, (-1, a["head_dim"]))


OPS = {
    "embedding": lambda b, a, ids, w: F.embedding(ids, w),
    "linear": lambda b, a, x, w: x @ (w if a.get("layout") == 1 else w.T),
    "add_bias": lambda b, a, x, v: x + v,
    "add": lambda b, a, x, y: x + y,
    "mul": lambda b, a, x, y: x * y,
    "scale": lambda b, a, x: x * a["scale"],
    "silu": lambda b, a, x: F.silu(x),
    "gelu": lambda b, a, x: F.gelu(x, approximate="tanh"),
    "relu": lambda b, a, x: F.relu(x),
    "silu_mul": lambda b, a, g, u: F.silu(g) * u,
    "clamped_swiglu": lambda b, a, x: clamped_swiglu(x[..., ::2], x[..., 1::2], a),
    "soft_cap": lambda b, a, x: a["soft_cap"] * torch.tanh(x / a["soft_cap"]),
    "rmsnorm": lambda b, a, x, w: rmsnorm(x, w + a.get("zero_centered", 0), a["eps"]),
    "layernorm": lambda b, a, x, w, v: F.layer_norm(
        x, x.shape[-1:], w + a.get("zero_centered", 0), v, a["eps"]),
    "center": lambda b, a, x: x - x.mean(-1, keepdim=True),
    "clamp": lambda b, a, x: x.clamp(-a["limit"], a["limit"]),
    "gate": lambda b, a, x, s: (x.unflatten(-1, (s.shape[-1], -1)) * (
        F.softplus(s) if a.get("kind") == 1 else torch.sigmoid(s)).unsqueeze(-1)).flatten(-2),
    "split": lambda b, a, x: x.chunk(a["n"], -1),
    "tokens": lambda b, a: b.tokens,
    "labels": lambda b, a: b.labels,
    "positions": lambda b, a: b.positions,
    "doc_starts": lambda b, a: b.sees,
    "dropout": lambda b, a, x: dropout(x, b, a["rate"], a["unit"], a["site"]),
    "rope": lambda b, a, x, at: turn(heads_of(a, x), at, a["theta"]).flatten(2),
    "attention": lambda b, a, q, k, v, sees, sinks=None: attend(
        heads_of(a, q), heads_of(a, k), heads_of(a, v), sees, kept=attention_dropout(
            b, q.shape[-1] // a["head_dim"], a.get("rate"), a["unit"], a["site"]),
        window=a.get("window"), cap=a.get("soft_cap"), sinks=sinks),
    "cross_entropy": lambda b, a, x, labels: cross_entropy(x, labels),
}


def ops_loss(ops, weights, batch):
    value = {}
    for op in ops:
        attr = op["attr"] or {}
        if op["op"] == "param":
            out = weights[attr["name"]]
        else:
            out = OPS[op["op"]](batch, attr, *(value[i] for i in op["in"]))
        for number, x in zip(op["out"], out if op["op"] == "split" else [out]):
            value[number] = x
    return out


def model_loss(plan, config, weights, batch, choices):
    """The loss, and how often each expert of each layer was chosen, by the layer's name."""
    linear = Linears(plan["adapter"], weights, batch, plan["model"] == "gpt2")
    if plan["model"] == "function":
        return ops_loss(plan["ops"], weights, batch), {}
    if plan["model"] == "gpt2":
        return gpt2_loss(config, linear, batch, plan["z_loss"]), {}
    one = plan["batch"]["micro"] * plan["mesh"]["dp"]
    decoder = Decoder(config, linear, batch, plan, plan["batch"]["global"] // one, choices)
    return decoder.loss(), decoder.load
