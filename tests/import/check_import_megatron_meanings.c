/* check_import_megatron_meanings.c - what arguments of Megatron mean in a plan. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/import_files.h"
#include "tests/harness/megatron_suite.h"

static const struct Meaning {
  const char *args, *plan;
} meanings[] = {
    {"qk-layernorm=true normalization=RMSNorm position-embedding-type=rope swiglu=true "
     "disable-bias-linear=true",
     "\"qwen3\","},
    {"add-qkv-bias=true normalization=RMSNorm position-embedding-type=rope swiglu=true "
     "disable-bias-linear=true",
     "\"qwen2\","},
    {"normalization=RMSNorm position-embedding-type=rope swiglu=true num-experts=8 "
     "disable-bias-linear=true",
     "\"mixtral\","},
    {"normalization=RMSNorm position-embedding-type=rope swiglu=true num-experts=8 "
     "disable-bias-linear=true qk-layernorm=true moe-layer-freq=[0]*1+[1]*11 "
     "moe-router-pre-softmax=true",
     "mlp_only_layers = { 0 },"},
    {"position-embedding-type=rope normalization=RMSNorm swiglu=true "
     "disable-bias-linear=true rotary-seq-len-interpolation-factor=4",
     "rope_scaling = { factor = 4, rope_type = \"linear\" },"},
    {"position-embedding-type=rope rotary-seq-len-interpolation-factor=4",
     "yarn = 1, rope_factor = 4, rope_low = -1,"},
    {"padded-vocab-size=50304 vocab-size=50000", "vocab_size = 50304,"},
    {"no-bias-gelu-fusion=true", "activation_function = \"gelu\","},
    {"disable-bias-linear=true num-experts=4 moe-aux-loss-coeff=0.01",
     "aux_loss_coef = 0.01,"},
    {"disable-bias-linear=true num-experts=4 moe-aux-loss-coeff=0.01 "
     "moe-router-load-balancing-type=seq_aux_loss",
     "loss = loss_of(g:unflatten(logits), g:unflatten(ids), g:labels(), "
     "plan.aux_sequences, plan.aux, 0)"},
    {"disable-bias-linear=true num-experts=4 moe-aux-loss-coeff=0.01 "
     "moe-router-load-balancing-type=global_aux_loss",
     "aux_loss_batch = \"global\","},
    /* The loss counts what scores choose, whatever else routers choose by. */
    {"disable-bias-linear=true num-experts=4 moe-aux-loss-coeff=0.01 "
     "moe-router-score-function=sigmoid moe-router-enable-expert-bias=true",
     "local _, by_scores = g:route(logits, nil, { topk = c.topk, score = 1 })"},
    /* Where the softmax comes after the choice, groups are compared by logits. */
    {"disable-bias-linear=true num-experts=8 moe-router-topk=4 moe-router-num-groups=4 "
     "moe-router-group-topk=2",
     "g:route(logits, logits, {"},
    {"disable-bias-linear=true num-experts=8 moe-router-topk=4 moe-router-num-groups=4 "
     "moe-router-group-topk=2 moe-router-pre-softmax=true",
     "g:route(logits, nil, {"},
    {"disable-bias-linear=true num-experts=4 moe-expert-capacity-factor=-1",
     "experts = 4,"},
    {"disable-bias-linear=true num-experts=4 moe-router-load-balancing-type=sinkhorn",
     "g:sinkhorn(by_sequence, { n = plan.sinkhorn })"},
    {"disable-bias-linear=true num-experts=4 moe-router-load-balancing-type=sinkhorn",
     "sinkhorn_sequences = 4"},
    {"disable-bias-linear=true num-experts=4 moe-router-load-balancing-type=sinkhorn "
     "moe-router-topk=1",
     "topk = c.topk, score = 1, norm_topk = 0,"},
    {"normalization=RMSNorm position-embedding-type=rope swiglu=true num-experts=8 "
     "disable-bias-linear=true qk-layernorm=true "
     "moe-router-load-balancing-type=sinkhorn",
     "norm_topk_prob = false,"},
    {"squared-relu=true", "square(g:relu(h))"},
    {"position-embedding-type=none", "q = linear(x"},
    {"kv-channels=128", "head_dim = 128,"},
    {"use-distributed-optimizer=true num-distributed-optimizer-instances=2",
     "dp_replicate = 2,"},
    {"use-megatron-fsdp=true data-parallel-sharding-strategy=optim_grads_params",
     "stage = 3,"},
    {"use-torch-fsdp2=true pipeline-model-parallel-size=1", "\"fsdp2\","},
    {"use-tp-pp-dp-mapping=true",
     "order = { \"dp_replicate\", \"dp_shard\", \"pp\", \"cp\", \"tp\" },"},
    {"context-parallel-size=2", "comm = \"ring\",  -- Megatron's default: p2p"},
    {"context-parallel-size=2 cp-comm-type=a2a", "comm = \"a2a\","},
    {"recompute-activations=true", "recompute = \"selective\","},
    {"checkpoint-activations=true", "recompute = \"full\","}, /* of older versions */
    {"activations-checkpoint-method=uniform", "recompute = \"full\","},
    {"train-iters=null train-tokens=3276800", "steps = 100,"},
    {"lr-warmup-tokens=65536", "warmup = 2,"},
    {"recompute-granularity=full recompute-method=uniform recompute-num-layers=1",
     "recompute = \"full\","},
    {"recompute-granularity=full recompute-method=block recompute-num-layers=1",
     "recompute = { \"layers.0\", \"layers.3\", \"layers.6\", \"layers.9\" },"},
    {"recompute-granularity=selective \"recompute-modules=core_attn mlp\"",
     "recompute = { \"selective\", \"h.*.mlp\" },"},
    {"overlap-grad-reduce=true", "overlap_grad_reduce = true,"},
    {"optimizer=sgd", "optimizer = weft.sgd {"},
    {"optimizer=lion lion-beta2=0.99", "betas = { 0.95, 0.99 },  -- "},
    {"optimizer=lion", "optimizer = weft.lion {"},
    {"optimizer=muon", "optimizer = weft.muon {"},
    {"optimizer=dist_muon muon-momentum=0.8", "momentum = 0.8,"},
    {"optimizer=muon muon-use-nesterov=true", "nesterov = true,"},
    {"optimizer=muon muon-scale-mode=shape_scaling", "adjust_lr = \"original\","},
    {"optimizer=muon muon-extra-scale-factor=0.2", "adjust_lr = \"match_rms_adamw\","},
    {"optimizer=muon muon-num-ns-steps=6", "ns_steps = 6,"},
    {"normalization=RMSNorm position-embedding-type=rope swiglu=true num-experts=8 "
     "disable-bias-linear=true kv-channels=128",
     "head_dim = 128,"},
    {"bf16=true grad-reduce-in-bf16=true", "grad_dtype = \"bf16\","},
    {"ENV_VARS.NCCL_P2P_DISABLE=1", "p2p_disable = true,"},
    {"ENV_VARS.NCCL_SOCKET_IFNAME=^lo", "socket_ifname = \"^lo\","},
    {"lr-decay-style=constant", "lr = weft.constant {"},
    {"lr-decay-style=inverse-square-root lr-warmup-iters=4", "lr = weft.inverse_sqrt {"},
    {"lr-decay-style=WSD lr-wsd-decay-iters=3", "decay = 3,"},
    {"lr-decay-style=WSD lr-wsd-decay-samples=640",
     "decay_style = \"exponential\",  -- the default there"},
    {"lr-decay-style=WSD lr-wsd-decay-iters=3 lr-wsd-decay-style=minus_sqrt",
     "decay_style = \"minus_sqrt\","},
    {"lr-warmup-fraction=0.25 train-iters=null", "warmup_ratio = 0.25,"},
    {"use-distributed-optimizer=true optimizer-cpu-offload=true",
     "offload_optimizer = \"cpu\","},
    {"use-precision-aware-optimizer=true exp-avg-dtype=bf16 exp-avg-sq-dtype=bf16",
     "state_dtype = \"bf16\","},
    {"seed=7", "seed = 7,"},
    {"check_weight_hash_across_dp_replicas_interval=20", "check_replicas_every = 20,"},
    {"distributed-timeout-minutes=10", "timeout = 600,"},
    {"save=ckpt/run async-save=true save-interval=7", "dir = \"ckpt/run\","},
    /* --window-size counts the tokens beside each one. */
    {"'window-size=127,0' position-embedding-type=rope normalization=RMSNorm swiglu=true "
     "disable-bias-linear=true",
     "\"mistral\","},
    {"'window-size=127,0' position-embedding-type=rope normalization=RMSNorm swiglu=true "
     "disable-bias-linear=true",
     "sliding_window = 128,"},
    {"'window-size=127,0' add-qkv-bias=true position-embedding-type=rope "
     "normalization=RMSNorm swiglu=true disable-bias-linear=true",
     "use_sliding_window = true,"},
    {"'window-size=127,0' window-attn-skip-freq=12 position-embedding-type=rope "
     "normalization=RMSNorm swiglu=true disable-bias-linear=true",
     "\"sliding_attention\", \"full_attention\" },"},
    {"'window-size=-1,0' position-embedding-type=rope normalization=RMSNorm swiglu=true "
     "disable-bias-linear=true",
     "\"llama\","},
    {"window-attn-skip-freq=2 position-embedding-type=rope normalization=RMSNorm "
     "swiglu=true disable-bias-linear=true",
     "\"llama\","},
    {"'window-size=127,0' num-experts=8", "{ head_dim = d, window = c.window })"},
    {"'window-size=127,0' 'window-attn-skip-freq=([0]*2+[1]*10)'",
     "window = not (i < 2) and c.window or nil"},
    {"'window-size=127,0' window-attn-skip-freq=4",
     "window = not ({ [3] = true, [7] = true, [11] = true })[i]"},
};

START_TEST(arguments_mean_what_megatron_says) {
  import_put("a.yaml", MEGATRON_SUITE);
  import_file("a.yaml", meanings[_i].args);
  import_plan_has(meanings[_i].plan);
}
END_TEST

/* Settings without the one that switches them on have no effect in Megatron. */
static const struct Switch {
  const char *setting, *with;
} switches[] = {
    {"fp8-recipe=blockwise", "fp8-format=e4m3"},
    {"lr-wsd-decay-style=linear", "lr-decay-style=WSD lr-wsd-decay-iters=3"},
    {"muon-fp32-matmul-prec=low", "optimizer=muon"},
    {"mtp-use-repeated-layer=true", "mtp-num-layers=1"},
    {"optimizer-offload-fraction=0.5", "optimizer-cpu-offload=true"},
    {"fim-rate=0.5", "fim-data=true"},
};

START_TEST(settings_count_with_their_switch_alone) {
  const struct Switch *w = &switches[_i];
  import_put("a.yaml", MEGATRON_SUITE);
  char both[200];
  snprintf(both, sizeof both, "%s %s", w->setting, w->with);
  const char *report = import_file("a.yaml", w->setting);
  import_has(report, " alone, which is not given");
  report = import_file("a.yaml", both);
  import_lacks(report, " alone, which is not given");
}
END_TEST

START_TEST(products_are_in_fp8) {
  import_put("a.yaml", MEGATRON_SUITE);
  (void)import_file("a.yaml", "bf16=true fp8-format=hybrid fp8-recipe=tensorwise");
  import_plan_has("\"fp8\",");
  import_plan_has("recipe = \"tensorwise\",");
  import_plan_has("fp8_format = \"hybrid\",");
  (void)import_file("a.yaml", "bf16=true fp8-format=e4m3 fp8-recipe=mxfp8");
  import_plan_has("recipe = \"mxfp8\",");
  import_plan_has("fp8_format = \"e4m3\",");
  /* scales of the past are not in weft */
  const char *report = import_file("a.yaml", "bf16=true fp8-format=hybrid");
  import_has(report, "fp8-format = hybrid: products are computed in the type of "
                     "precision, or in fp8 by the recipes tensorwise and mxfp8");
}
END_TEST

START_TEST(latent_attention_is_deepseek) {
  import_put(
      "a.yaml",
      "MODEL_ARGS:\n" MEGATRON_ARGS
      "  --multi-latent-attention: true\n  --normalization: RMSNorm\n  --swiglu: true\n"
      "  --disable-bias-linear: true\n  --position-embedding-type: rope\n"
      "  --qk-layernorm: true\n  --untie-embeddings-and-output-weights: true\n"
      "  --kv-lora-rank: 64\n  --q-lora-rank: 96\n  --qk-head-dim: 32\n"
      "  --qk-pos-emb-head-dim: 16\n  --v-head-dim: 32\n  --rotary-scaling-factor: 40\n"
      "  --mscale: 1.0\n  --mscale-all-dim: 1.0\n  --num-experts: 8\n"
      "  --moe-layer-freq: ([0]*3+[1]*9)\n  --moe-ffn-hidden-size: 128\n"
      "  --moe-shared-expert-intermediate-size: 256\n  --moe-router-topk: 2\n"
      "  --moe-router-score-function: sigmoid\n  --moe-router-enable-expert-bias: true\n"
      "  --moe-router-topk-scaling-factor: 2.5\n  --expert-model-parallel-size: 4\n"
      "  --mtp-num-layers: 1\n");
  const char *report = import_file("a.yaml", "");
  import_plan_has("\"deepseek_v3\",");
  import_plan_has("first_k_dense_replace = 3,");
  import_plan_has("n_shared_experts = 2,");
  import_plan_has("q_lora_rank = 96,");
  import_plan_has("factor = 40");
  import_plan_has("ep = 4,");
  import_plan_has("bias_update_rate = 0.001,  -- Megatron's default");
  import_plan_has("num_layers = 1,");
  import_plan_has("loss_scaling_factor = 0.1");
  import_lacks(report, "multi-token");
  import_plan_has("mscale = 1.0, mscale_all_dim = 1.0");
  /* Without a scale of all elements, Megatron's default, the softmax is as it is. */
  import_file("a.yaml", "mscale-all-dim=0.0");
  import_plan_lacks(", mscale");
  import_plan_lacks("attention_factor =");
  import_file("a.yaml", "mscale-all-dim=0.0 mscale=0.7");
  import_plan_lacks(", mscale");
  import_plan_has("attention_factor = 1.2582215617879755,");
  import_fails(1, "a.yaml", "moe-router-score-function=softmax",
               "weft's deepseek_v3 chooses experts by sigmoids");
}
END_TEST

/* The function of a plan is the model: the same loss on any mesh. */
START_TEST(the_function_of_a_plan_trains) {
  import_put(
      "a.yaml",
      "MODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: 32\n  --num-attention-heads: 4\n"
      "  --micro-batch-size: 1\n  --global-batch-size: 4\n  --seq-length: 16\n"
      "  --max-position-embeddings: 16\n  --lr: 0.001\n  --train-iters: 2\n"
      "  --vocab-size: 64\n  --make-vocab-size-divisible-by: 1\n  --swiglu: true\n"
      "  --position-embedding-type: rope\n  --rotary-percent: 0.5\n"
      "  --disable-bias-linear: true\n  --group-query-attention: true\n"
      "  --num-query-groups: 2\n  --num-experts: 4\n  --moe-aux-loss-coeff: 0.01\n"
      "  --moe-shared-expert-intermediate-size: 16\n  --ffn-hidden-size: 64\n"
      "  --moe-layer-freq: \"[0,1]\"\n  --window-size: 4,0\n"
      "  --window-attn-skip-freq: 2\n  --tensor-model-parallel-size: 2\n"
      "  --sequence-parallel: true\n  --expert-model-parallel-size: 2\n"
      "  --expert-tensor-parallel-size: 1\n");
  import_file("a.yaml", "--world 4");
  import_plan_has("if i < 1 then return");
  import_plan_has("window = not ({ [1] = true })[i] and c.window or nil");
  Outcome o = process_run(IMPORT_SECONDS, "$weft verify a.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  import_has(import_file("a.yaml", "--world 4 moe-router-load-balancing-type=sinkhorn"),
             "whole sequences are balanced here");
  o = process_run(IMPORT_SECONDS, "$weft verify a.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  import_file("a.yaml", "--world 4 moe-router-load-balancing-type=global_aux_loss");
  import_plan_has("aux_loss_batch = \"global\",");
  o = process_run(IMPORT_SECONDS, "$weft verify a.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  import_file("a.yaml", "--world 4 moe-router-num-groups=2 moe-router-group-topk=1");
  import_plan_has("local _, by_scores = g:route(logits, nil, {");
  import_plan_has("g:route(logits, logits, {");
  o = process_run(IMPORT_SECONDS, "$weft verify a.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}
END_TEST

/* Arguments fuse gelu with its bias into the tanh approximation, YAML files do not, and
 * Megatron-Bridge where it is told to. */
static const struct Activation {
  const char *text, *plan, *report;
} activations[] = {
#define YAML(more)                                                                       \
  "language_model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4,\n"           \
  "  max_position_embeddings: 64, add_bias_linear: true, " more "}\n"                    \
  "model_parallel: {tensor_model_parallel_size: 1, bf16: true}\n"                        \
  "micro_batch_size: 1\nglobal_batch_size: 8\nseq_length: 64\nlr: 1e-4\n"                \
  "vocab_size: 100\n"
#define BRIDGE(more)                                                                     \
  "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 100,\n"   \
  "  seq_length: 64" more "}\n"                                                          \
  "train: {train_iters: 10, global_batch_size: 8, micro_batch_size: 1}\n"                \
  "optimizer: {lr: 0.001}\n"
    {YAML("activation_func: gelu"), "activation_function = \"gelu\",", ""},
    {YAML("activation_func: gelu, bias_activation_fusion: true, bias_gelu_fusion: false"),
     "activation_function = \"gelu\",",
     "gelu is exact: with biases a YAML file does not fuse it"},
    {YAML("activation_func: squaredrelu"), "square(g:relu(h))", ""},
    {BRIDGE(""), "activation_function = \"gelu\",", ""},
    {BRIDGE(", bias_activation_fusion: true"), "activation_function = \"gelu_new\",",
     "model.bias_activation_fusion = true -> model"},
    {BRIDGE(", activation_func: silu, gated_linear_unit: true, "
            "bias_activation_fusion: true"),
     "g:silu_mul(gate, up)", "fused_ops"},
};

START_TEST(gelu_is_exact_where_megatron_has_it_so) {
  import_put("a.yaml", activations[_i].text);
  import_has(import_file("a.yaml", ""), activations[_i].report);
  import_plan_has(activations[_i].plan);
}
END_TEST

Suite *import_megatron_meanings_suite(void) {
  Suite *s = suite_create("import_megatron_meanings");
  TCase *c = tcase_create("import_megatron_meanings");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, arguments_mean_what_megatron_says, 0, LEN(meanings));
  tcase_add_loop_test(c, settings_count_with_their_switch_alone, 0, LEN(switches));
  tcase_add_test(c, latent_attention_is_deepseek);
  tcase_add_test(c, products_are_in_fp8);
  tcase_add_test(c, the_function_of_a_plan_trains);
  tcase_add_loop_test(c, gelu_is_exact_where_megatron_has_it_so, 0, LEN(activations));
  suite_add_tcase(s, c);
  return s;
}
