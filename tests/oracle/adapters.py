"""LoRA of weft against PEFT, on meshes: twelve steps, the folder of the adapter, the merged model.

    tests/oracle/adapters.py [--eps EPS] [NUMBER OF A CASE...]
                                         with a Python that has torch, transformers, peft

Transformers makes a small model with random weights. weft begins an adapter on it and exports
it; PEFT loads that folder, trains it in f64 with AdamW on the same batches, and weft trains it
on each mesh. Compared are the losses (relative, 1e-5), the adapters after the last step (1e-5 of
a tensor's norm, or four times what PEFT in f32 is apart at worst, with rows in four orders: AdamW
steps along gradients that are little more than rounding, too; `--eps 1e-3`, of both, shows that
nothing else is in it: there all must be within 1e-5), PEFT's logits with weft's folder,
and those of the model that `weft ckpt merge` wrote (1e-5 of the largest), and PEFT's loss with a
folder that PEFT wrote with that of weft, which writes the same adapter again. Where an adapter
drops, PEFT drops by weft's masks.
"""
import pathlib
import re
import sys
import tempfile

try:
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import (AutoModelForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM,
                              FalconH1Config, FalconH1ForCausalLM, GPT2Config, GPT2LMHeadModel,
                              HYV3Config, HYV3ForCausalLM, LagunaConfig, LagunaForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM,
                              NemotronHConfig, NemotronHForCausalLM, Phi3Config, Phi3ForCausalLM,
                              Qwen3MoeConfig, Qwen3MoeForCausalLM)
except ImportError as missing:
    print(f"skipped: {sys.executable} has no {missing.name} (PYTHON=... chooses another one)")
    sys.exit(0)

from plan_models import dropout
from trained import (ROUNDING, ROWS, SEQ, STEPS, TOLERANCE, VOCABULARY, apart, forget, losses_of,
                     meshes, weft)

TURNS = (0, 1, 3, 6)  # of PEFT in f32: the worst counts
EPS = 1e-8  # AdamW's

PLAN = """local weft = require "weft"
return weft.plan {
  model = weft.hf "base", mesh = { %s }, strategy = { %s }, schedule = "%s",
  adapter = { "lora", rank = 4, alpha = 8, %s },
  batch = { global = %d, micro = 1, seq = %d },
  optimizer = weft.adamw { lr = 1e-2, betas = { 0.9, 0.999 }, eps = %g, weight_decay = 0.1, clip = 1 },
  data = weft.tokens { "tokens.bin", shuffle = false },
  train = { steps = %d, seed = 5 }, checkpoint = { dir = "ckpt" },
}
"""
MANY = meshes("one rank", "tp 2", "pp 2", "cp 2", "fsdp2", "tp 2, pp 2, fsdp2")
FEW = meshes("one rank", "pp 2", "fsdp2")
EXPERTS = meshes("one rank", "ep 2", "tp 2", "pp 2", "fsdp2", "ep 2, etp 2", "ep 2, pp 2, fsdp2")


def llama():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False))


def tied():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True))


def phi3():
    """Of which files have q, k and v, and gate and up, as one linear each."""
    return Phi3ForCausalLM(Phi3Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=None))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4,
                                      n_positions=SEQ, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def llama_blocks():
    """With rows of two blocks of NF4, one for each rank of tp 2; scales in several groups."""
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False))


MOE = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=48, num_hidden_layers=2,
           num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
           num_experts_per_tok=2, experts_implementation="eager")


def mixtral():
    return MixtralForCausalLM(MixtralConfig(**MOE, num_local_experts=4))


def qwen3_moe():
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **MOE, num_experts=4, moe_intermediate_size=24, head_dim=16, norm_topk_prob=True))


def deepseek_v3():
    return DeepseekV3ForCausalLM(DeepseekV3Config(
        **{**MOE, "num_key_value_heads": 4}, n_routed_experts=8, n_group=2, topk_group=1,
        first_k_dense_replace=1, moe_intermediate_size=24, n_shared_experts=1, q_lora_rank=None,
        kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16))


def falcon_h1():
    """Attention beside Mamba, whose out_proj PEFT does not adapt."""
    return FalconH1ForCausalLM(FalconH1Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, mamba_d_ssm=32,
        mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=8, mamba_chunk_size=16))


def nemotron_h():
    return NemotronHForCausalLM(NemotronHConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_attention_heads=4,
        layers_block_type=["linear_attention", "full_attention", "mlp"], num_key_value_heads=2, head_dim=8,
        tie_word_embeddings=False, ssm_state_size=8, mamba_num_heads=4, mamba_head_dim=8, n_groups=2,
        conv_kernel=4, chunk_size=16))


def hy_v3():
    """Files call its shared experts and its router otherwise than Transformers in memory."""
    return HYV3ForCausalLM(HYV3Config(
        **MOE, num_experts=4, num_shared_experts=1, moe_intermediate_size=24, head_dim=16,
        mlp_layer_types=["dense", "sparse"]))


def laguna():
    return LagunaForCausalLM(LagunaConfig(
        **MOE, num_experts=4, moe_intermediate_size=24, shared_expert_intermediate_size=24, head_dim=16,
        layer_types=["full_attention"] * 2, mlp_layer_types=["dense", "sparse"]))


BOTH = 'target_parameters = { "experts.gate_up_proj", "experts.down_proj" }'
PATTERNS = 'rank_pattern = { ["layers.*.mlp.up_proj"] = 6, q_proj = 2 }, ' \
           'alpha_pattern = { ["layers.1.self_attn.q_proj"] = 12, down_proj = 3 }'
SAVED = 'targets = { "q_proj", "down_proj" }, ' \
        'modules_to_save = { "lm_head", "embed_tokens", "layers.1.input_layernorm" }'
CASES = [(llama, 'targets = "all-linear"', MANY),
         (llama, 'rslora = true, targets = { "q_proj", "layers.*.mlp.down_proj" }', MANY),
         (gpt2, 'targets = { "c_attn", "attn.c_proj", "c_fc" }', FEW),
         (llama, 'dora = true', MANY),
         (llama, 'dropout = 0.2, targets = { "k_proj", "o_proj", "up_proj" }', MANY),
         (llama, 'dora = true, rslora = true, dropout = 0.2', MANY),
         (llama_blocks, 'base = "nf4"', MANY), (llama_blocks, 'base = "nf4", dora = true', FEW),
         (gpt2, 'dora = true', FEW), (gpt2, 'dropout = 0.1', FEW),
         (mixtral, BOTH, EXPERTS), (qwen3_moe, 'targets = { "q_proj", "o_proj" }, ' + BOTH, EXPERTS),
         (deepseek_v3, 'rslora = true, ' + BOTH, EXPERTS),
         (mixtral, 'target_parameters = { "layers.1.mlp.experts.down_proj" }', FEW),
         (phi3, 'targets = "all-linear"', MANY),
         (phi3, 'dora = true, targets = { "qkv_proj", "gate_up_proj" }, rank_pattern = { qkv_proj = 2 }',
          MANY),
         (tied, 'targets = { "lm_head", "q_proj" }', MANY),
         (llama, 'targets = { "lm_head", "down_proj" }', FEW),
         (llama, PATTERNS, MANY), (llama, SAVED, MANY), (mixtral, BOTH + ', rank_pattern = { '
          'gate_up_proj = 6 }, modules_to_save = { "mlp.gate", "norm" }', EXPERTS),
         (falcon_h1, 'targets = "all-linear"', FEW), (nemotron_h, 'targets = "all-linear"', FEW),
         (hy_v3, 'targets = { "up_proj", "q_proj" }, modules_to_save = { "router.gate" }', FEW),
         (laguna, 'targets = { "down_proj", "shared_expert.up_proj" }, rank_pattern = '
          '{ ["shared_expert.down_proj"] = 2 }', FEW)]


def plan_of(mesh, targets):
    return PLAN % (*mesh, targets, ROWS, SEQ, EPS, STEPS)


def adapter_of(folder):
    """Tensors by their names in memory; PEFT 0.21 cannot read Laguna's shared experts by these, so
    weft writes those of files."""
    tensors = load_file(folder / "adapter_model.safetensors")
    return {n.replace(".shared_expert.", ".shared_experts."): x for n, x in tensors.items()}


def loss_of(model, tokens, labels):
    logits = model(input_ids=tokens, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Masks:
    seed, numbers = 5, None  # of the tokens of a step


class MaskedDropout(torch.nn.Module):
    def __init__(self, masks, rate, unit, site):
        super().__init__()
        self.to, self.place = masks, (rate, unit, site)

    def forward(self, x):
        return dropout(x, self.to, *self.place)


def drop_by_masks(model):
    """Dropout of adapters by weft's masks: linears of a layer in their order."""
    masks, number = Masks(), {}
    for name, module in model.train().named_modules():
        layer = re.search(r"\.(?:layers|h)\.(\d+)\.", name)
        if not layer or not hasattr(module, "weight") or re.search(r"lora|base_layer|norm|ln_", name):
            continue
        layer = int(layer[1])
        site = number[layer] = number.get(layer, -1) + 1
        for key, drop in getattr(module, "lora_dropout", {}).items():
            if isinstance(drop, torch.nn.Dropout):
                module.lora_dropout[key] = MaskedDropout(masks, drop.p, layer + 1, 4096 + site)
    return masks


LEVELS = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0])


def dynamic_map():
    """Middles of 2^i equal parts of [0.1, 1], times 10^(i - 6), both signs; 0 and 1."""
    values = [torch.zeros(1), torch.ones(1)]
    for i in range(7):
        ends = torch.linspace(0.1, 1, 2 ** i + 1)
        values += [s * 10 ** (i - 6) * (ends[:-1] + ends[1:]) / 2 for s in (1, -1)]
    return torch.cat(values).sort()[0]


def nearest(x, levels):
    return torch.bucketize(x, (levels[:-1] + levels[1:]) / 2)


def nf4(weight):
    """A weight as its NF4 with quantised scales gives it back (QLoRA, arXiv:2305.14314): what
    bitsandbytes computes on GPUs, in f32."""
    blocks = weight.detach().float().reshape(-1, 64)
    scale = blocks.abs().amax(1)
    codes = nearest(blocks * (1 / scale)[:, None], LEVELS)
    offset, levels = scale.double().mean().float(), dynamic_map()
    less = torch.nn.functional.pad(scale - offset, (0, -len(scale) % 256)).view(-1, 256)
    if len(scale) % 256:
        less.view(-1)[len(scale):] = 0
    group = less.abs().amax(1, keepdim=True)
    again = (levels[nearest(less * (1 / group), levels)] * group).flatten()[:len(scale)] + offset
    return (LEVELS[codes] * again[:, None]).view(weight.shape)


def loaded(folder):
    """Experts one by one: products of groups are not in f64."""
    return AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager")


def base_of(folder, targets):
    """The model that adapters are of; linears of layers as they are stored."""
    model = loaded(folder / "base")
    for name, module in model.named_modules():
        if "nf4" in targets and ".layers." in name and isinstance(module, torch.nn.Linear):
            module.weight.data = nf4(module.weight)
    return model


def with_peft(folder, batches, dtype, targets, turn=0):
    """The losses of the steps, and the adapter after them. `turn`: rows are summed in another
    order."""
    base = base_of(folder, targets).to(dtype)
    model = PeftModel.from_pretrained(base, folder / "first", is_trainable=True).to(dtype)
    masks = drop_by_masks(model)
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in weights]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=EPS)
    losses = []
    for step, (tokens, labels) in enumerate(batches):
        numbers = step * tokens.numel() + torch.arange(tokens.numel()).view(tokens.shape)
        masks.numbers = numbers.roll(turn, 0).flatten().numpy()
        optimizer.zero_grad()
        loss = loss_of(model, tokens.roll(turn, 0), labels.roll(turn, 0))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.save_pretrained(folder / "peft")
    named = {re.sub(r"\.modules_to_save|\.default", "", n).replace("vector.weight", "vector"): p.detach()
             for n, p in model.named_parameters() if p.requires_grad}
    return losses, named


def from_peft(folder, batches, mesh, targets):
    """How far a step of weft that begins at the folder that PEFT wrote is from PEFT's loss, and
    the adapter that weft writes without having learnt from that of the folder (0)."""
    base = base_of(folder, targets).double()
    readable = base.config.model_type != "laguna"  # by PEFT, which wrote it
    model = PeftModel.from_pretrained(base, folder / "peft").double().eval()
    with torch.no_grad():
        want = loss_of(model, *batches[0]).item()
    (folder / "plan.lua").write_text(plan_of(mesh, targets))
    still = ("--steps", "1", "--set", "optimizer.lr=0", "--set", "adapter.dropout=0")
    got = losses_of(folder, "again", *still, "--set", 'adapter.from="peft"')[0]
    a, b = adapter_of(folder / "again"), adapter_of(folder / "peft")
    b = {n: x for n, x in b.items() if not n.endswith(".base_layer.weight")}  # PEFT's copies
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())
    forget(folder)
    return {"loss": abs(got - want) / want if readable else 0.0,
            "adapter": float(any((a[n].float() != b[n].float()).any() for n in a))}


def one(folder, number, mesh, batches, want, targets):
    text = plan_of(mesh, targets)
    (folder / "plan.lua").write_text(text)
    name = f"mesh{number}"
    losses = losses_of(folder, name)
    base = base_of(folder, targets).double()
    merges = not base.config.tie_word_embeddings or "lm_head" not in targets
    if merges:
        weft(folder, "ckpt", "merge", "plan.lua", "ckpt", name + "-merged")
    got = adapter_of(folder / name)
    assert got.keys() == want[1].keys(), sorted(got.keys() ^ want[1].keys())
    far = {"loss": max(abs(a - b) / abs(b) for a, b in zip(losses, want[0], strict=True)),
           "adapter": max(apart(got[n], want[1][n]) for n in got)}
    peft = PeftModel.from_pretrained(base, folder / name).double()
    if not merges:
        forget(folder)
        return far
    merged = loaded(folder / (name + "-merged")).double()
    with torch.no_grad():
        tokens = batches[0][0]
        a, b = (m(input_ids=tokens, use_cache=False).logits for m in (peft, merged))
    far["merged logits"] = ((a - b).abs().max() / a.abs().max()).item()
    forget(folder)
    return far


def main():
    global EPS
    torch.set_num_threads(1)
    failed, asked = 0, sys.argv[1:]
    exact = asked[:1] == ["--eps"]
    if exact:
        EPS, asked = float(asked[1]), asked[2:]
    for build, targets, where in [CASES[int(i)] for i in asked] or CASES:
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            build().save_pretrained(folder / "base")
            ids = torch.randint(0, VOCABULARY, (STEPS * ROWS * SEQ + 1,))
            (folder / "tokens.bin").write_bytes(ids.to(torch.int16).numpy().tobytes())
            shape = (STEPS, ROWS, SEQ)
            batches = list(zip(ids[:-1].view(shape), ids[1:].view(shape)))
            (folder / "plan.lua").write_text(
                plan_of(where["one rank"], targets))
            losses_of(folder, "first", "--steps", "1", "--set", "optimizer.lr=0")
            forget(folder)
            want = with_peft(folder, batches, torch.float64, targets)
            rounded = [with_peft(folder, batches, torch.float32, targets, turn)[1] for turn in TURNS]
            most = max(apart(p, want[1][n]) for one_run in rounded for n, p in one_run.items())
            may = {"adapter": TOLERANCE if exact else max(TOLERANCE, ROUNDING * most)}
            print(f"{build.__name__}, {targets}: PEFT in f32 is {most:.1e} apart at worst", flush=True)
            far = from_peft(folder, batches, where.get("tp 2", where["fsdp2"]), targets)
            failed += max(far.values()) > TOLERANCE
            print(f"{build.__name__}, {targets}, from PEFT's folder:", far, flush=True)
            for number, (what, mesh) in enumerate(where.items()):
                far = one(folder, number, mesh, batches, want, targets)
                ok = all(d <= may.get(k, TOLERANCE) for k, d in far.items())
                failed += not ok
                print(f"{build.__name__}, {targets}, {what}:",
                      ", ".join(f"{k} {d:.1e}" for k, d in far.items()),
                      "" if ok else "FAILED", flush=True)
    print("all equal" if not failed else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
