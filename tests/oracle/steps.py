"""Makes oracle data of whole optimizer steps: models of Hugging Face transformers, twelve
steps of PyTorch's AdamW (decay on matrices only, gradients clipped) in f32 on the CPU.

By hand, with torch, transformers and safetensors installed:
    python tests/oracle/steps.py                 the committed sample, next to this file
    python tests/oracle/steps.py experts         of it those of Qwen3-MoE and DeepSeek-V3
    python tests/oracle/steps.py router          of it a router's loss of each sequence
    python tests/oracle/steps.py FAMILY...       of it those of families of family_configs.py
    python tests/oracle/steps.py DIR N [seed]    N random models in DIR, for
    build/weft-tests --oracle DIR                which runs them

Each folder is as `weft.hf` takes it, and has expected.safetensors: tokens, labels (i32,
(steps, 8, 16); -100 is ignored), loss and norm (f32, (steps)).
"""
import json
import pathlib
import random
import shutil
import sys

import torch
import transformers as tf
from family_configs import FAMILIES
from generate import watch_routers
from safetensors.torch import save_file

STEPS, BATCH, SEQ = 12, 8, 16
LR, DECAY, CLIP, BETAS, EPS = 1e-3, 0.1, 0.5, (0.9, 0.95), 1e-8
HERE = pathlib.Path(__file__).resolve().parent


def randomise(model, spread):
    for name, p in model.named_parameters():
        centre = 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0
        torch.nn.init.normal_(p, centre, 0.1 if p.dim() == 1 else spread)


def no_more(tokens, labels):
    return 0.0


def train(parameters, logits_of, vocab, more=no_more):
    """`more` of tokens and labels is added to the loss, after logits_of."""
    decayed = [p for p in parameters if p.dim() > 1]
    rest = [p for p in parameters if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, foreach=False)
    tokens = torch.randint(0, vocab, (STEPS, BATCH, SEQ))
    labels = torch.randint(0, vocab, (STEPS, BATCH, SEQ))
    labels[torch.rand(labels.shape) < 0.2] = -100
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            logits_of(tokens[step]).view(-1, vocab), labels[step].view(-1))
        loss = loss + more(tokens[step], labels[step])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    return {"tokens": tokens.int(), "labels": labels.int(), "loss": torch.tensor(losses),
            "norm": torch.tensor(norms)}


def write(folder, weights, named, logits_of, vocab, more=no_more):
    folder.mkdir(exist_ok=True)
    save_file({n: p.detach().clone().contiguous() for n, p in weights.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    out = train(list(named), logits_of, vocab, more)
    save_file(out, folder / "expected.safetensors")
    print(f"{folder.name}: loss {out['loss'][0]:.6f} to {out['loss'][-1]:.6f}")


def write_config(folder, model):
    model.config.architectures = [type(model).__name__]
    text = json.loads(model.config.to_json_string(use_diff=False))
    (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")


def hub(folder, model, spread=0.15, more=no_more):
    model = model.float().train()
    randomise(model, spread)
    weights = dict(model.named_parameters())
    named = list(weights.values())
    for name, bias in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(bias, 0, 0.1)
            weights[name] = bias
    watch_routers(model)
    write(folder, weights, named,
          lambda t: model(input_ids=t, use_cache=False).logits, model.config.vocab_size, more)
    write_config(folder, model)


def uses(folder):
    """The model of uses.lua: one weight twice in a unit and again in the next, one
    embedding as table and as head, one parameter as norm and as bias."""
    hidden, vocab = 16, 37
    e = torch.nn.Parameter(torch.randn(vocab, hidden) * 0.3)
    w = torch.nn.Parameter(torch.randn(hidden, hidden) * 0.2)
    n = torch.nn.Parameter(1 + torch.randn(hidden) * 0.1)

    def norm(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * n

    def logits(tokens):
        x = torch.nn.functional.embedding(tokens, e)
        x = x + torch.nn.functional.silu(norm(x) @ w.T) @ w
        x = x + n
        x = x + norm(x) @ (w + 0.5 * w @ w.T).T
        return norm(x) @ e.T

    weights = {"embed.weight": e, "w.weight": w, "n.weight": n}
    write(folder, weights, weights.values(), logits, vocab)


def sample():
    torch.manual_seed(11)
    sizes = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                 pad_token_id=None, attn_implementation="eager")
    hub(HERE / "steps_qwen2",
        tf.Qwen2ForCausalLM(tf.Qwen2Config(**sizes, tie_word_embeddings=True)))
    hub(HERE / "steps_gpt2", tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=16, attn_pdrop=0.0,
        embd_pdrop=0.0, resid_pdrop=0.0, attn_implementation="eager")))
    uses(HERE / "steps_uses")
    sizes.update(num_key_value_heads=4, first_k_dense_replace=2, q_lora_rank=12,
                 kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5)
    hub(HERE / "steps_deepseek_v3", tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(
        **sizes, rope_parameters=yarn(10000.0, 4.0, 8))))
    hub(HERE / "steps_mixtral", tf.MixtralForCausalLM(tf.MixtralConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        pad_token_id=None, attn_implementation="eager", num_local_experts=6,
        num_experts_per_tok=2, experts_implementation="eager")))
    experts()
    router()


def experts():
    """The second layer has experts; in both what chooses them is trained."""
    torch.manual_seed(17)
    sizes = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                 num_attention_heads=4, max_position_embeddings=32, pad_token_id=None,
                 num_experts_per_tok=2, moe_intermediate_size=8,
                 attn_implementation="eager", experts_implementation="eager")
    hub(HERE / "steps_qwen3_moe", tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(
        **sizes, num_key_value_heads=2, head_dim=4, num_experts=8, mlp_only_layers=[0],
        norm_topk_prob=True)))
    hub(HERE / "steps_deepseek_v3_moe", tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(
        **sizes, num_key_value_heads=4, first_k_dense_replace=1, q_lora_rank=12,
        kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5,
        n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=1,
        routed_scaling_factor=1.5)))


def router():
    """Megatron's seq_aux_loss, of router.lua: of each layer and sequence the coefficient times E
    times the sum over experts of their part of the choices and their mean score; sequences count
    as their labels do."""
    torch.manual_seed(29)
    coefficient, k, experts_of = 0.05, 2, 8
    model = tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=32,
        pad_token_id=None, num_experts_per_tok=k, moe_intermediate_size=8, num_experts=experts_of,
        norm_topk_prob=True, attn_implementation="eager", experts_implementation="eager"))
    read = {}
    for layer in model.model.layers:
        gate = layer.mlp.gate
        gate.register_forward_pre_hook(lambda m, args: read.__setitem__(m, args[0]))

    def more(tokens, labels):
        counts = (labels != -100).sum(1)
        total = 0.0
        for gate, hidden in read.items():
            scores = torch.nn.functional.linear(hidden.view(BATCH, SEQ, -1), gate.weight).softmax(-1)
            chosen = torch.zeros_like(scores).scatter(-1, scores.topk(k).indices, 1.0)
            balance = (chosen.mean(1) / k * scores.mean(1)).sum(-1)
            total = total + (coefficient * experts_of * balance * counts / counts.sum()).sum()
        return total

    hub(HERE / "steps_router", model, more=more)


# What the committed sample is to have of what is drawn for a family.
SWITCHED = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "granite": {"embedding_multiplier": 12.0, "attention_multiplier": 0.25,
                "residual_multiplier": 0.22, "logits_scaling": 3.0},
    "smollm3": {"no_rope_layers": [0, 1]},
    "ernie4_5": {"use_bias": True},
    "glm4_moe": {"use_qk_norm": True},
    "glm4": {"attention_bias": True},
}


def family(kind):
    torch.manual_seed(23)
    config = FAMILIES[kind](random.Random(kind))
    for key, value in SWITCHED.get(kind, {}).items():
        setattr(config, key, value)
    hub(HERE / f"steps_{kind}",
        tf.AutoModelForCausalLM.from_config(config, attn_implementation="eager"))


def yarn(theta, factor, original, **keys):
    return {"rope_type": "yarn", "rope_theta": theta, "factor": factor, "mscale": 1.0,
            "mscale_all_dim": 0.7, "original_max_position_embeddings": original, **keys}


def rope(r, head_dim):
    theta = r.choice([500.0, 10000.0, 1e6])
    kind = r.random()
    if kind < 0.25:
        return yarn(theta, r.choice([2.0, 8.0]), r.choice([16, 64]),
                    truncate=r.random() < 0.5, beta_fast=r.choice([2.0, 32.0]))
    if kind < 0.6:
        return {"rope_type": "default", "rope_theta": theta}
    return {"rope_type": "llama3", "rope_theta": theta, "factor": r.choice([2.0, 8.0]),
            "low_freq_factor": 1.0, "high_freq_factor": r.choice([2.0, 4.0]),
            "original_max_position_embeddings": r.choice([16, 64])}


def random_model(r):
    kv = r.choice([2, 4])
    heads, head_dim = kv * r.choice([1, 2]), r.choice([4, 8])
    vocab, layers = r.choice([37, 48, 64]), r.choice([2, 3, 4])
    kind = r.choice(["llama", "qwen2", "qwen3", "gpt2", "deepseek_v3"])
    if kind == "gpt2":
        return tf.GPT2LMHeadModel(tf.GPT2Config(
            vocab_size=vocab, n_embd=heads * head_dim, n_layer=layers, n_head=heads,
            n_inner=r.choice([None, 24]), n_positions=r.choice([16, 40]), attn_pdrop=0.0,
            embd_pdrop=0.0, resid_pdrop=0.0, layer_norm_epsilon=r.choice([1e-5, 1e-6]),
            activation_function=r.choice(["gelu_new", "gelu"]),
            tie_word_embeddings=r.random() < 0.5, attn_implementation="eager"))
    keys = dict(vocab_size=vocab, hidden_size=heads * head_dim,
                intermediate_size=r.choice([24, 40]), num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=r.choice([kv, heads, None]),
                max_position_embeddings=r.choice([16, 64]), pad_token_id=None,
                rms_norm_eps=r.choice([1e-5, 1e-6]), tie_word_embeddings=r.random() < 0.5,
                rope_parameters=rope(r, head_dim), attn_implementation="eager")
    if kind == "deepseek_v3":
        keys.update(num_key_value_heads=heads, first_k_dense_replace=layers,
                    q_lora_rank=r.choice([None, 12]), kv_lora_rank=r.choice([8, 10]),
                    qk_nope_head_dim=r.choice([3, 8]), qk_rope_head_dim=head_dim,
                    v_head_dim=r.choice([4, 7]), rope_interleave=r.random() < 0.7,
                    attention_bias=r.random() < 0.3)
        return tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(**keys))
    if kind == "llama":
        if r.random() < 0.3:
            keys["head_dim"] = 2 * head_dim
        return tf.LlamaForCausalLM(tf.LlamaConfig(**keys))
    if kind == "qwen2":
        return tf.Qwen2ForCausalLM(tf.Qwen2Config(**keys))
    return tf.Qwen3ForCausalLM(tf.Qwen3Config(**keys, head_dim=r.choice([8, 16])))


def some(folder, count, seed):
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "steps.lua", folder / "steps.lua")
    r = random.Random(seed)
    torch.manual_seed(seed)
    for i in range(count):
        hub(folder / f"model_{i:03d}", random_model(r), r.choice([0.05, 0.15]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["experts"]:
        experts()
    elif sys.argv[1:] == ["router"]:
        router()
    elif set(sys.argv[1:]) & set(FAMILIES):
        for kind in sys.argv[1:]:
            family(kind)
    elif len(sys.argv) > 2:
        some(pathlib.Path(sys.argv[1]), int(sys.argv[2]),
             int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    else:
        sample()
