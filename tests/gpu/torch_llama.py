"""torch_llama.py - a dense Llama in plain PyTorch, as its users write it, and the decoder that
torch_mixtral.py has in common with it: the other side of race.py. Parameters have the names of
Hugging Face. Residuals, products and logits are in the type that it is given; norms, rotations
and the loss are computed in f32."""
import ctypes
import json

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.heads = c["hidden_size"], c["num_attention_heads"]
        self.kv, self.d = c["num_key_value_heads"], h // self.heads
        self.q_proj = nn.Linear(h, h, bias=False)
        self.k_proj = nn.Linear(h, self.kv * self.d, bias=False)
        self.v_proj = nn.Linear(h, self.kv * self.d, bias=False)
        self.o_proj = nn.Linear(h, h, bias=False)

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.heads, self.d).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.kv, self.d).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.kv, self.d).transpose(1, 2)
        o = F.scaled_dot_product_attention(turn(q, cos, sin), turn(k, cos, sin), v,
                                           is_causal=True, enable_gqa=True)
        return self.o_proj(o.transpose(1, 2).reshape(B, T, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, f = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(h, f, bias=False)
        self.up_proj = nn.Linear(h, f, bias=False)
        self.down_proj = nn.Linear(f, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention, then what feed_forward of a subclass makes of each token."""
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.feed_forward(self.post_attention_layernorm(x))


class DenseLayer(Layer):
    def __init__(self, c):
        super().__init__(c)
        self.mlp = Mlp(c)

    def feed_forward(self, x):
        return self.mlp(x)


class Model(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])


class Decoder(nn.Module):
    """Layers of one class, between an embedding and a head of its own."""
    def __init__(self, c, seq, dtype, layer):
        super().__init__()
        self.model = Model(c, layer)
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        self.dtype = dtype
        d = c["hidden_size"] // c["num_attention_heads"]
        angle = torch.outer(torch.arange(seq).float(),
                            c["rope_theta"] ** (-torch.arange(0, d, 2).float() / d))
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, labels):
        x = self.model.embed_tokens(tokens).to(self.dtype)
        for layer in self.model.layers:
            x = layer(x, self.cos, self.sin)
        return self.loss(x, labels)

    def loss(self, x, labels):
        logits = self.lm_head(self.model.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.view(-1))

    def compile_layers(self):
        """All layers are one graph, which is compiled once."""
        for layer in self.model.layers:
            layer.compile()
        self.loss = torch.compile(self.loss)

    def tensors(self):
        """Names and tensors of a file of Hugging Face."""
        return list(self.named_parameters())


class Llama(Decoder):
    def __init__(self, c, seq, dtype):
        super().__init__(c, seq, dtype, DenseLayer)


@torch.no_grad()
def draw(model, std, dtype):
    """Random weights that are exact in `dtype`, so that both sides begin with the same."""
    for p in model.parameters():
        if p.dim() > 1:
            p.normal_(0, std)
            p.copy_(p.to(dtype).float())


@torch.no_grad()
def save(model, path, dtype):
    """A safetensors file; needs neither numpy nor the library."""
    names = {torch.float32: "F32", torch.bfloat16: "BF16"}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    tensors = model.tensors()
    for name, p in tensors:
        size = p.numel() * dtype.itemsize
        header[name] = {"dtype": names[dtype], "shape": list(p.shape),
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, p in tensors:
            t = p.detach().to(dtype).cpu().contiguous()
            f.write((ctypes.c_char * (t.numel() * dtype.itemsize)).from_address(t.data_ptr()))
