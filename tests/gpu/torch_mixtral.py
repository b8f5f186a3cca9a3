"""torch_mixtral.py - Mixtral in plain PyTorch: the decoder of torch_llama.py with experts in
every layer, of which each token has the best few, by a softmax over these. No token is dropped
and no loss balances the experts. Logits of routers and weights of experts are f32.

Rows are sorted by expert, and one grouped product is all experts of a layer: nothing of that
waits for the GPU. Where PyTorch has none, experts are multiplied one by one, of as many rows as
the host is told."""
import torch
import torch.nn.functional as F
from torch import nn
from torch_llama import Decoder, Layer


def grouped_mm(device):
    """PyTorch's product of rows by the weights of their experts, or None. Its gradients work
    from 2.8 on, on the CPU it is there from 2.9 on; on GPUs that are neither of 9.x nor of 10.x
    it is a loop, too, for which the host waits."""
    version = tuple(int(x) for x in torch.__version__.split(".")[:2])
    if device.type == "cuda":
        has = version >= (2, 8) and torch.cuda.get_device_capability(device)[0] in (9, 10)
    else:
        has = version >= (2, 9)
    return getattr(F, "grouped_mm", getattr(torch, "_grouped_mm", None)) if has else None


class Permute(torch.autograd.Function):
    """x[order]. The gradient of an index adds up, by atomics or after a sort; that of a
    permutation is one, too."""
    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.save_for_backward(inverse)
        return x[order]

    @staticmethod
    def backward(ctx, dy):
        inverse, = ctx.saved_tensors
        return dy[inverse], None, None


class Experts(nn.Module):
    """SwiGLU experts. Hugging Face's w1, which gates, lies above w3 in one product."""
    def __init__(self, c):
        super().__init__()
        n, h, f = c["num_local_experts"], c["hidden_size"], c["intermediate_size"]
        self.w13 = nn.Parameter(torch.empty(n, 2 * f, h))
        self.w2 = nn.Parameter(torch.empty(n, h, f))
        self.grouped = None

    def product(self, rows, w, ends):
        if self.grouped:
            return self.grouped(rows, w.to(rows.dtype).transpose(1, 2), offs=ends)
        sizes = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
        return torch.cat([F.linear(r, one) for r, one in zip(rows.split(sizes), w)])

    def forward(self, rows, ends):
        gate, up = self.product(rows, self.w13, ends).chunk(2, -1)
        return self.product(F.silu(gate) * up, self.w2, ends)

    def files(self):
        """Names below this module's, and tensors, expert by expert."""
        for e, (w13, w2) in enumerate(zip(self.w13, self.w2)):
            w1, w3 = w13.chunk(2)
            for name, w in ("w1", w1), ("w2", w2), ("w3", w3):
                yield f"{e}.{name}.weight", w


class SparseMoe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.k = c["num_local_experts"], c["num_experts_per_tok"]
        self.gate = nn.Linear(c["hidden_size"], self.n, bias=False)
        self.experts = Experts(c)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        with torch.autocast(x.device.type, enabled=False):
            logits = F.linear(tokens.float(), self.gate.weight)
        best, ids = logits.topk(self.k, -1)
        weights = best.softmax(-1)

        experts, order = ids.flatten().sort(stable=True)
        at = torch.arange(len(order), device=x.device)
        inverse = torch.empty_like(order).scatter(0, order, at)
        ends = torch.searchsorted(experts, at[:self.n], right=True, out_int32=True)
        choices = tokens.unsqueeze(1).expand(-1, self.k, -1).reshape(len(order), -1)
        y = self.experts(Permute.apply(choices, order, inverse), ends)
        y = Permute.apply(y, inverse, order).view(len(tokens), self.k, -1)
        return (y.float() * weights.unsqueeze(-1)).sum(1).to(x.dtype).view(x.shape)


class SparseLayer(Layer):
    def __init__(self, c):
        super().__init__(c)
        self.block_sparse_moe = SparseMoe(c)

    def feed_forward(self, x):
        return self.block_sparse_moe(x)


class Mixtral(Decoder):
    def __init__(self, c, seq, dtype):
        super().__init__(c, seq, dtype, SparseLayer)

    def multiply_by(self, grouped):
        """A grouped product for all experts, or None: one by one."""
        for layer in self.model.layers:
            layer.block_sparse_moe.experts.grouped = grouped

    def tensors(self):
        experts = [(name, m) for name, m in self.named_modules() if isinstance(m, Experts)]
        inside = tuple(name + "." for name, _ in experts)
        return [x for x in super().tensors() if not x[0].startswith(inside)] + [
            (f"{name}.{file}", w) for name, m in experts for file, w in m.files()]
