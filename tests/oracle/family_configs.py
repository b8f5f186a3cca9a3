"""How families.py draws the config of a family: small sizes, and every switch of the family."""
import transformers as tf


def yarn(theta, factor, original, **keys):
    return {"rope_type": "yarn", "rope_theta": theta, "factor": factor, "mscale": 1.0,
            "mscale_all_dim": 0.7, "original_max_position_embeddings": original, **keys}


def rope(r, kinds=("default", "llama3", "yarn")):
    theta, kind = r.choice([500.0, 10000.0, 1e6]), r.choice(kinds)
    if kind == "yarn":
        return yarn(theta, r.choice([2.0, 8.0]), r.choice([16, 64]), truncate=r.random() < 0.5,
                    beta_fast=r.choice([2.0, 32.0]))
    p = {"rope_type": kind, "rope_theta": theta}
    if kind == "llama3":
        p.update(factor=r.choice([2.0, 8.0]), low_freq_factor=1.0,
                 high_freq_factor=r.choice([2.0, 4.0]),
                 original_max_position_embeddings=r.choice([16, 64]))
    if kind in ("linear", "dynamic"):
        p["factor"] = r.choice([2.0, 4.0])
    return p


def decoder(r, **changes):
    """Keys that all decoders have; heads of an own size are drawn apart."""
    kv, d = r.choice([1, 2]), r.choice([4, 8])
    heads = kv * 2 if kv == 1 else kv * r.choice([1, 2])
    keys = dict(vocab_size=r.choice([37, 48]), hidden_size=heads * d,
                intermediate_size=r.choice([24, 40]), num_hidden_layers=r.choice([2, 3]),
                num_attention_heads=heads, num_key_value_heads=kv,
                max_position_embeddings=r.choice([16, 64]), pad_token_id=None, bos_token_id=None,
                eos_token_id=None, rms_norm_eps=r.choice([1e-5, 1e-6]),
                tie_word_embeddings=r.random() < 0.5, rope_parameters=rope(r))
    keys.update(changes)
    return keys


def coin(r):
    return r.random() < 0.5


def window(r):
    """Of sequences of 16 tokens: none, one token, some, all of them."""
    return r.choice([None, 1, 3, 7, 15, 16, 40])


def late_windows(r, layers):
    """Qwen's: switched on or not, by type or from a layer on."""
    keys = dict(use_sliding_window=r.random() < 0.8, sliding_window=window(r) or 2,
                max_window_layers=r.choice([0, 1, layers]))
    if keys["use_sliding_window"] and coin(r):
        keys["layer_types"] = [r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    return keys


def llama(r):
    d = {"head_dim": r.choice([4, 12])} if coin(r) else {}
    return tf.LlamaConfig(**decoder(
        r, attention_bias=coin(r), mlp_bias=coin(r),
        rope_parameters=rope(r, ("default", "llama3", "yarn", "linear")), **d))


def qwen2(r):
    keys = decoder(r)
    return tf.Qwen2Config(**keys, **late_windows(r, keys["num_hidden_layers"]))


def qwen3(r):
    keys = decoder(r, head_dim=r.choice([8, 16]), attention_bias=coin(r))
    return tf.Qwen3Config(**keys, **late_windows(r, keys["num_hidden_layers"]))


def mistral(r):
    return tf.MistralConfig(**decoder(r, head_dim=r.choice([4, 12]), sliding_window=window(r)))


def granite(r):
    return tf.GraniteConfig(**decoder(
        r, attention_bias=coin(r), mlp_bias=coin(r), embedding_multiplier=r.choice([1.0, 12.0]),
        logits_scaling=r.choice([1.0, 8.0, 3.0]), residual_multiplier=r.choice([1.0, 0.22]),
        attention_multiplier=r.choice([1.0, 0.015625])))


def smollm3(r):
    keys = decoder(r, attention_bias=coin(r), mlp_bias=coin(r), num_hidden_layers=r.choice([2, 4]))
    if coin(r):
        keys["no_rope_layers"] = [int(coin(r)) for _ in range(keys["num_hidden_layers"])]
    else:
        keys["no_rope_layer_interval"] = r.choice([1, 2, 4])
    keys.update(use_sliding_window=coin(r), sliding_window=window(r))
    return tf.SmolLM3Config(**keys)


def olmo2(r):
    return tf.Olmo2Config(**decoder(r, attention_bias=coin(r)))


def some_types(r, keys):
    """Layers of two types, said or as the class has them."""
    if coin(r):
        keys["layer_types"] = [r.choice(["full_attention", "sliding_attention"])
                               for _ in range(keys["num_hidden_layers"])]
    return keys


def olmo3(r):
    keys = decoder(r, attention_bias=coin(r), num_hidden_layers=r.choice([2, 4, 5]),
                   sliding_window=window(r) or 2)
    keys["rope_parameters"] = {"full_attention": rope(r), "sliding_attention": rope(r)}
    for p in keys["rope_parameters"].values():
        p.pop("truncate", None)  # Transformers does not read it there
    return tf.Olmo3Config(**some_types(r, keys))


def ministral(r):
    return tf.MinistralConfig(**some_types(r, decoder(
        r, head_dim=r.choice([4, 12]), sliding_window=window(r) or 5)))


def gemma(r):
    keys = decoder(r, head_dim=r.choice([4, 12]), attention_bias=coin(r))
    return tf.GemmaConfig(**keys)


def later_gemma(r, **more):
    return some_types(r, decoder(
        r, head_dim=r.choice([4, 12]), attention_bias=coin(r), sliding_window=window(r) or 5,
        num_hidden_layers=r.choice([2, 3, 6]), query_pre_attn_scalar=r.choice([8, 144]),
        final_logit_softcapping=r.choice([None, 1.0, 30.0]), **more))


def gemma2(r):
    return tf.Gemma2Config(**later_gemma(r, attn_logit_softcapping=r.choice([None, 0.5, 50.0])))


def gemma3_text(r):
    keys = later_gemma(r)
    keys["rope_parameters"] = {kind: rope(r, ("default", "linear", "llama3", "yarn"))
                               for kind in ("full_attention", "sliding_attention")}
    for p in keys["rope_parameters"].values():
        p.pop("truncate", None)  # Transformers does not read it there
    if "layer_types" not in keys:
        keys["sliding_window_pattern"] = r.choice([2, 3, 6])
    return tf.Gemma3TextConfig(**keys)


def nemotron(r):
    keys = decoder(r, head_dim=r.choice([4, 12]), attention_bias=coin(r), mlp_bias=coin(r),
                   norm_eps=r.choice([1e-5, 1e-6]))
    del keys["rms_norm_eps"]
    return tf.NemotronConfig(**partial(r, keys))


def arcee(r):
    d = {"head_dim": r.choice([4, 12])} if coin(r) else {}
    return tf.ArceeConfig(**decoder(
        r, attention_bias=coin(r), mlp_bias=coin(r), hidden_act="relu2", **d))


def apertus(r):
    return tf.ApertusConfig(**decoder(
        r, attention_bias=coin(r), hidden_act="xielu"))


def seed_oss(r):
    return tf.SeedOssConfig(**decoder(
        r, head_dim=r.choice([4, 12]), attention_bias=coin(r), attention_out_bias=coin(r),
        mlp_bias=coin(r), attention_dropout=0.0, residual_dropout=0.0))


def ernie4_5(r):
    return tf.Ernie4_5Config(**decoder(r, head_dim=r.choice([4, 12]), use_bias=coin(r)))


def partial(r, keys):
    keys["rope_parameters"]["partial_rotary_factor"] = r.choice([0.5, 1.0])
    return keys


def glm(r):
    return tf.GlmConfig(**partial(r, decoder(r, head_dim=r.choice([4, 12]), attention_bias=coin(r))))


def glm4(r):
    return tf.Glm4Config(**partial(r, decoder(r, head_dim=r.choice([4, 12]), attention_bias=coin(r))))


def phi3(r):
    keys = decoder(r, sliding_window=window(r), resid_pdrop=0.0, embd_pdrop=0.0,
                   rope_parameters=rope(r, ("default",)))
    return tf.Phi3Config(**keys)


def phi3_long(r):
    """With longrope: sequences are of 16 tokens, so that either of the two lists may be taken."""
    keys = decoder(r, sliding_window=window(r), resid_pdrop=0.0, embd_pdrop=0.0,
                   rope_parameters=rope(r, ("default",)),
                   original_max_position_embeddings=r.choice([8, 16, 32]))
    d, part = r.choice([12, 20]), r.choice([0.5, 1.0])
    keys["hidden_size"], pairs = keys["num_attention_heads"] * d, int(d * part) // 2
    keys["rope_parameters"] |= {
        "rope_type": "longrope", "partial_rotary_factor": part,
        "short_factor": [r.uniform(1, 2) for _ in range(pairs)],
        "long_factor": [r.uniform(1, 40) for _ in range(pairs)]}
    if coin(r):
        keys["rope_parameters"]["attention_factor"] = r.choice([0.8, 1.2])
    return tf.Phi3Config(**keys)


def phi(r):
    keys = decoder(r, hidden_act="gelu_new", layer_norm_eps=r.choice([1e-5, 1e-6]),
                   resid_pdrop=0.0, embd_pdrop=0.0)
    del keys["rms_norm_eps"]
    return tf.PhiConfig(**partial(r, keys))


def starcoder2(r):
    keys = decoder(r, sliding_window=window(r), norm_epsilon=r.choice([1e-5, 1e-6]),
                   use_bias=coin(r))
    del keys["rms_norm_eps"]
    return tf.Starcoder2Config(**keys)


def cohere2(r):
    keys = decoder(r, sliding_window=window(r) or 5, logit_scale=r.choice([1.0, 0.0625]),
                   layer_norm_eps=r.choice([1e-5, 1e-6]), attention_bias=coin(r),
                   num_hidden_layers=r.choice([2, 4, 5]))
    del keys["rms_norm_eps"]
    keys = some_types(r, keys)
    if "layer_types" not in keys:
        keys["sliding_window_pattern"] = r.choice([2, 4])
    return tf.Cohere2Config(**keys)


def ministral3(r):
    """Lengths that sequences of 16 tokens are longer than, and others."""
    p = yarn(r.choice([500.0, 1e6]), r.choice([2.0, 16.0]), r.choice([3, 8, 64]),
             llama_4_scaling_beta=r.choice([0.1, 0.7]))
    p["mscale_all_dim"] = r.choice([1.0, 0.7])
    return tf.Ministral3Config(**decoder(r, head_dim=r.choice([4, 12]), sliding_window=window(r),
                                         rope_parameters=p))


# ---- with experts ----


def experts(r, **keys):
    return dict(moe_intermediate_size=r.choice([8, 12]), num_experts_per_tok=2, **keys)


def mixtral(r):
    return tf.MixtralConfig(**decoder(r, num_local_experts=r.choice([4, 6]), num_experts_per_tok=2,
                                      head_dim=r.choice([4, 8]),
                                      sliding_window=window(r)))


def mimo_v2_flash(r):
    """Heads of 12 of which 4 turn, also where a table does not say so, or all; without shared experts."""
    keys = decoder(r, **deepseek_experts(r), head_dim=12, v_head_dim=r.choice([4, 8]),
                   attention_bias=coin(r), attention_value_scale=r.choice([1.0, 0.707]),
                   sliding_window=window(r) or 5)
    for key in ("n_shared_experts", "first_k_dense_replace"):
        keys.pop(key, None)
    layers = keys["num_hidden_layers"]
    keys["num_attention_heads"] = 2 * keys["num_key_value_heads"]  # those with a window have twice
    keys["rope_parameters"] = {kind: {
        "rope_type": "default", "rope_theta": r.choice([500.0, 1e6]),
        "partial_rotary_factor": r.choice([0.334, 1.0])} for kind in ("full_attention", "sliding_attention")}
    for table in keys["rope_parameters"].values():
        if coin(r):
            del table["partial_rotary_factor"]
    if coin(r):
        keys["partial_rotary_factor"] = r.choice([0.334, 1.0])
    keys["layer_types"] = [r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    keys["mlp_layer_types"] = [r.choice(["dense", "sparse"]) for _ in range(layers - 1)] + ["sparse"]
    return tf.MiMoV2FlashConfig(**keys)


def two_ropes(r, kinds):
    """A rope for each type of layers, of which half of a head of 8 may turn; yarn rounds, whatever it says."""
    ropes = {kind: {**rope(r, kinds), "partial_rotary_factor": r.choice([0.5, 1.0])}
             for kind in ("full_attention", "sliding_attention")}
    for one in ropes.values():
        one.pop("truncate", None)
    return ropes


def laguna(r):
    keys = decoder(r, **experts(r), num_experts=r.choice([4, 8]), head_dim=8, sliding_window=window(r) or 5,
                   shared_expert_intermediate_size=r.choice([8, 20]), attention_bias=coin(r),
                   gating=r.choice([True, "per-head", "per-element"]),
                   moe_routed_scaling_factor=r.choice([1.0, 2.5]),
                   moe_router_logit_softcapping=r.choice([0.0, 0.0, 2.0]))
    layers, kv = keys["num_hidden_layers"], keys["num_key_value_heads"]
    keys["rope_parameters"] = two_ropes(r, ("default", "yarn"))
    keys["layer_types"] = [r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    if coin(r):
        keys["num_attention_heads_per_layer"] = [2 * kv * r.choice([1, 2]) for _ in range(layers)]
        keys["num_attention_heads"] = 2 * kv
    some_dense(r, keys)
    return tf.LagunaConfig(**keys)


def step3p5(r):
    """Files of Transformers have images, too: see step.py."""
    keys = decoder(r, **experts(r), n_routed_experts=r.choice([4, 8]), head_dim=8, sliding_window=window(r) or 5,
                   share_expert_dim=r.choice([8, 20]), attention_bias=False, mlp_bias=coin(r),
                   moe_router_scaling_factor=r.choice([1.0, 3.0]), tie_word_embeddings=False,
                   query_pre_attn_scalar=r.choice([None, 5.0]), pad_token_id=1)
    layers, kv = keys["num_hidden_layers"], keys["num_key_value_heads"]
    keys["rope_parameters"] = two_ropes(r, ("default", "llama3"))
    keys["layer_types"] = [r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    keys["num_attention_heads"], keys["num_sliding_attention_heads"] = 2 * kv, 2 * kv * r.choice([1, 2])
    for key in ("swiglu_limits", "swiglu_limits_shared"):
        if coin(r):
            keys[key] = [r.choice([0.0, 0.3, 1.0]) for _ in range(layers)]
    keys["mlp_layer_types"] = [r.choice(["dense", "sparse"]) for _ in range(layers - 1)] + ["sparse"]
    return tf.Step3p7TextConfig(**keys)


def gpt_oss(r):
    keys = decoder(r, head_dim=r.choice([4, 12]), num_local_experts=r.choice([4, 6]),
                   num_experts_per_tok=r.choice([2, 3]), sliding_window=window(r) or 5,
                   attention_bias=coin(r), swiglu_limit=r.choice([0.5, 7.0]),
                   rope_parameters=rope(r, ("default", "yarn", "yarn")))
    return tf.GptOssConfig(**some_types(r, keys))


def qwen3_moe(r):
    return tf.Qwen3MoeConfig(**decoder(
        r, **experts(r), num_experts=r.choice([4, 8]), head_dim=8, norm_topk_prob=coin(r),
        mlp_only_layers=r.choice([[], [0]]), decoder_sparse_step=r.choice([1, 2]),
        attention_bias=coin(r), use_sliding_window=coin(r), sliding_window=window(r)))


def qwen2_moe(r):
    keys = decoder(r, **experts(r), num_experts=r.choice([4, 8]), norm_topk_prob=coin(r),
                   shared_expert_intermediate_size=r.choice([8, 20]), qkv_bias=coin(r),
                   mlp_only_layers=r.choice([[], [0]]), decoder_sparse_step=r.choice([1, 2]))
    keys.update(use_sliding_window=coin(r), sliding_window=window(r) or 3,
                max_window_layers=r.choice([0, 1, keys["num_hidden_layers"]]))
    return tf.Qwen2MoeConfig(**keys)


def some_dense(r, keys):
    """Layers with an MLP: the first one, or those that are said, but the last."""
    if coin(r):
        keys["mlp_layer_types"] = [r.choice(["dense", "sparse"]) for _ in range(keys["num_hidden_layers"])]
        keys["mlp_layer_types"][-1] = "sparse"
    return keys


def hy_v3(r):
    return tf.HYV3Config(**some_dense(r, decoder(
        r, **experts(r), num_experts=r.choice([4, 8]), num_shared_experts=r.choice([1, 2]),
        head_dim=8, attention_bias=coin(r), mlp_bias=coin(r),
        router_scaling_factor=r.choice([1.0, 2.826]))))


def deepseek_experts(r):
    groups = r.choice([1, 2])
    return experts(r, first_k_dense_replace=r.choice([0, 1]), n_routed_experts=8, n_group=groups,
                   topk_group=1, n_shared_experts=r.choice([1, 2]), norm_topk_prob=coin(r),
                   routed_scaling_factor=r.choice([1.0, 2.5]))


def deepseek_v3(r):
    keys = decoder(r, **deepseek_experts(r), q_lora_rank=r.choice([None, 12]),
                   kv_lora_rank=r.choice([8, 10]), qk_nope_head_dim=r.choice([3, 8]),
                   qk_rope_head_dim=4, v_head_dim=r.choice([4, 7]), rope_interleave=coin(r),
                   attention_bias=coin(r))
    keys["num_key_value_heads"] = keys["num_attention_heads"]
    return tf.DeepseekV3Config(**keys)


def glm4_moe_lite(r):
    keys = decoder(r, **deepseek_experts(r), q_lora_rank=r.choice([None, 12]), kv_lora_rank=10,
                   qk_nope_head_dim=r.choice([3, 8]), qk_rope_head_dim=4,
                   v_head_dim=r.choice([4, 7]), rope_interleave=coin(r), attention_bias=coin(r))
    del keys["first_k_dense_replace"]
    keys["num_key_value_heads"] = keys["num_attention_heads"]
    return tf.Glm4MoeLiteConfig(**some_dense(r, keys))


def of_deepseek(r, **changes):
    """Files of others that are DeepSeek-V3 to Transformers."""
    keys = decoder(r, **experts(r), q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=8,
                   qk_rope_head_dim=4, v_head_dim=8, first_k_dense_replace=1, n_routed_experts=8,
                   n_group=1, topk_group=1, norm_topk_prob=True, rms_norm_eps=1e-5)
    keys.update(changes, num_key_value_heads=keys["num_attention_heads"])
    return tf.DeepseekV3Config(**keys)


def moonlight(r):
    return of_deepseek(r, n_shared_experts=2, num_experts_per_tok=r.choice([3, 6]),
                       routed_scaling_factor=2.446,
                       rope_parameters={"rope_type": "default", "rope_theta": 50000.0})


def kimi_k2(r):
    """Its beta_fast is its beta_slow: no pair is in between."""
    p = yarn(50000.0, 32.0, 16, beta_fast=1.0, beta_slow=1.0)
    p["mscale_all_dim"] = 1.0
    return of_deepseek(r, q_lora_rank=12, n_shared_experts=1, routed_scaling_factor=2.827,
                       rope_parameters=p)


def minimax_m2(r):
    return tf.MiniMaxM2Config(**partial(r, decoder(
        r, head_dim=8, num_local_experts=8, num_experts_per_tok=r.choice([2, 3]))))


def glm4_moe(r):
    return tf.Glm4MoeConfig(**partial(r, decoder(
        r, **deepseek_experts(r), head_dim=8, attention_bias=coin(r), use_qk_norm=coin(r))))


def gpt2(r):
    heads, d = r.choice([2, 4]), r.choice([4, 8])
    return tf.GPT2Config(
        vocab_size=r.choice([37, 48]), n_embd=heads * d, n_layer=r.choice([2, 3]), n_head=heads,
        n_inner=r.choice([None, 24]), n_positions=r.choice([16, 40]), attn_pdrop=0.0,
        embd_pdrop=0.0, resid_pdrop=0.0, layer_norm_epsilon=r.choice([1e-5, 1e-6]),
        activation_function=r.choice(["gelu_new", "gelu"]), tie_word_embeddings=coin(r),
        bos_token_id=None, eos_token_id=None)


def nemotron_h(r):
    """Layers of all kinds, in any order; with tp = 2 there are two groups of heads, or more."""
    kv, d, groups = r.choice([1, 2]), r.choice([4, 8]), r.choice([1, 2, 2, 4])
    kinds = ["linear_attention", "moe", "full_attention", "mlp"]
    layers = ["linear_attention"] + [r.choice(kinds + kinds[:1]) for _ in range(r.choice([1, 2, 3]))]
    r.shuffle(layers)
    return tf.NemotronHConfig(
        vocab_size=r.choice([37, 48]), hidden_size=r.choice([16, 24]), layers_block_type=layers,
        num_attention_heads=kv * 2, num_key_value_heads=kv, head_dim=d,
        intermediate_size=r.choice([24, 40]), mlp_bias=coin(r), ssm_state_size=r.choice([3, 8, 16]),
        mamba_num_heads=groups * r.choice([1, 2, 3]), mamba_head_dim=r.choice([4, 5, 8]),
        n_groups=groups, conv_kernel=r.choice([2, 3, 4]), use_conv_bias=coin(r), use_bias=coin(r),
        chunk_size=r.choice([4, 16]), time_step_min=r.choice([0.001, 0.4]),
        n_routed_experts=8, num_experts_per_tok=r.choice([2, 3]), n_group=r.choice([1, 2]),
        moe_intermediate_size=r.choice([8, 12]), moe_shared_expert_intermediate_size=r.choice([8, 24]),
        moe_latent_size=r.choice([None, 12]), norm_topk_prob=coin(r),
        routed_scaling_factor=r.choice([1.0, 2.5]), layer_norm_epsilon=r.choice([1e-5, 1e-6]),
        pad_token_id=None, bos_token_id=None, eos_token_id=None)


def falcon_h1(r):
    groups, size = r.choice([1, 2, 2]), r.choice([4, 8])
    heads = groups * r.choice([1, 2, 3])
    some = lambda n: [r.choice([1.0, 0.5, 1.25]) for _ in range(n)]
    return tf.FalconH1Config(**decoder(
        r, attention_bias=coin(r), mlp_bias=coin(r), projectors_bias=coin(r), mamba_d_ssm=heads * size,
        mamba_n_heads=heads, mamba_d_head=r.choice(["auto", size]), mamba_n_groups=groups,
        mamba_d_state=r.choice([3, 8]), mamba_d_conv=r.choice([2, 4]), mamba_chunk_size=r.choice([4, 16]),
        mamba_conv_bias=coin(r), mamba_proj_bias=coin(r), mamba_norm_before_gate=coin(r),
        mamba_rms_norm=coin(r), time_step_limit=r.choice([(0.0, float("inf")), (0.6, 0.8)]),
        lm_head_multiplier=r.choice([1.0, 0.04]), embedding_multiplier=r.choice([1.0, 5.7]),
        mlp_multipliers=r.choice([None, some(2)]), key_multiplier=r.choice([1.0, 0.4]),
        attention_out_multiplier=r.choice([1.0, 0.9]), attention_in_multiplier=r.choice([1.0, 0.7]),
        ssm_multipliers=r.choice([None, some(5)]), ssm_in_multiplier=r.choice([1.0, 1.25]),
        ssm_out_multiplier=r.choice([1.0, 0.24])))


# By model_type, or by the name of files that have another's.
FAMILIES = {f.__name__: f for f in (
    llama, apertus, arcee, qwen2, qwen3, mistral, ministral, granite, smollm3, olmo2, olmo3, seed_oss, ernie4_5,
    nemotron, glm, glm4, phi, phi3, phi3_long, gemma, gemma2, gemma3_text, gpt2, cohere2, ministral3, starcoder2,
    mixtral, gpt_oss, mimo_v2_flash, qwen2_moe, qwen3_moe, deepseek_v3, moonlight, kimi_k2,
    glm4_moe, glm4_moe_lite, minimax_m2, hy_v3, laguna, step3p5, nemotron_h,
    falcon_h1)}
