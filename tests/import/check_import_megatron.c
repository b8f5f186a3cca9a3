/* check_import_megatron.c - weft import of Megatron's settings as a user sees it: scripts
 * are read and never run, arguments become plans that pass check, each setting is in one
 * of the lists, and what a script does not say is told with its line. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/import_files.h"

/* ---- scripts ---- */

static const char llama[] =
    "#!/bin/bash\n"
    "#SBATCH --nodes=2\n"
    "export CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_IB_SL=1\n"
    "touch pwned $(touch pwned) `touch pwned`   # nothing of this runs\n"
    "TP=${TP:-2}; PP=\"2\"\n"
    "if [ \"$TP\" -gt 1 ]; then\n"
    "  MORE=\"--sequence-parallel\"\n"
    "else\n"
    "  MORE=\"--made-up-in-a-branch\"\n"
    "fi\n"
    "MODEL_ARGS=(\n"
    "    --num-layers 8  # layers\n"
    "    --hidden-size 512 --num-attention-heads 8\n"
    "    --group-query-attention --num-query-groups 4\n"
    "    --seq-length 1024 --max-position-embeddings 1024\n"
    "    --swiglu --normalization RMSNorm --position-embedding-type rope\n"
    "    --disable-bias-linear --untie-embeddings-and-output-weights\n"
    "    --attention-dropout 0.0 --hidden-dropout 0.0\n"
    ")\n"
    "OPTIMIZER=\"--lr 3.0e-4 --min-lr 3.0e-5 \\\n"
    "  --lr-decay-style cosine --lr-warmup-fraction .01 \\\n"
    "  --weight-decay 0.1\"\n"
    "MODEL_ARGS+=(--vocab-size 32000)\n"
    "torchrun --nproc_per_node $((4*2)) --nnodes 2 pretrain_gpt.py \\\n"
    "  ${MODEL_ARGS[@]} $OPTIMIZER ${MORE} \\\n"
    "  --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \\\n"
    "  --num-layers-per-virtual-pipeline-stage 2 --use-distributed-optimizer \\\n"
    "  --micro-batch-size 1 --global-batch-size=64 --train-iters 1000 --bf16 \\\n"
    "  --save $1 --made-up 7 $EXTRA \"$@\" 2>&1 | tee log.txt\n";

START_TEST(a_script_becomes_a_plan) {
  import_put("a.sh", llama);
  const char *report = import_file("a.sh", "");
  import_plan_has("\"llama\",  -- a.sh:12: --num-layers");
  import_plan_has("num_key_value_heads = 4,");
  import_plan_has(
      "intermediate_size = 1344,");       /* 512 * 8 / 3, down to a multiple of 64 */
  import_plan_has("vocab_size = 32000,"); /* a multiple of 256 */
  import_plan_has("tie_word_embeddings = false,");
  import_plan_has("tp = 2,  -- a.sh:26: --tensor-model-parallel-size");
  import_plan_has("world = 16,  -- a.sh:24: launcher --nproc_per_node");
  import_plan_has("virtual = 2,  -- a.sh:27");
  import_plan_has("\"interleaved_1f1b\",");
  import_plan_has("group = 2,  -- Megatron's default: pp");
  import_plan_has("stage = 1,  -- a.sh:27: --use-distributed-optimizer");
  import_plan_has("overlap_grad_reduce = false,");
  import_plan_has("sequence_parallel = true,  -- a.sh:7: --sequence-parallel");
  import_plan_has("lr = weft.cosine {");
  import_plan_has("min = 3e-05,  -- a.sh:20: --min-lr");
  import_plan_has("warmup = 10,  -- a.sh:21: --lr-warmup-fraction");
  import_plan_has("weight_decay = 0.1,  -- a.sh:22: --weight-decay");
  import_plan_has("betas = { 0.9, 0.999 },  -- Megatron's default");
  import_plan_has("ib_sl = 1,  -- a.sh:3: export NCCL_IB_SL");
  import_has(report, "a.sh:29: --made-up = 7: weft import does not know this setting");
  import_has(report, "a.sh:29: ${EXTRA} = null: it has no value in the file");
  import_lacks(report, "made-up-in-a-branch");
  ck_assert_msg(!strstr(scratch_list(), "pwned"), "it ran");
  ck_assert_msg(!strstr(scratch_list(), "log.txt"), "it ran");
}
END_TEST

START_TEST(words_behind_the_script_count) {
  import_put("a.sh", llama);
  const char *report =
      import_file("a.sh", "TP=4 global-batch-size=32 --set train-iters=50");
  import_plan_has("tp = 4,  -- a.sh:26");
  import_plan_has("global = 32,  -- the command line: global-batch-size");
  import_plan_has("steps = 50,  -- the command line: train-iters");
  import_has(report, "the command line gives it again, which counts:\n");
  import_has(report, "    a.sh:28: --train-iters = 1000\n");
  import_file("a.sh", "TP=1");
  import_plan_has("pp = 2,");
  import_file("a.sh", "TP=1 PP=1"); /* which the script sets without a test */
  import_plan_lacks("pp = 2,");
  import_file("a.sh", "TP=1");
  import_plan_lacks("sequence_parallel");
  import_file("a.sh",
              "--model llama3.2-1b --world 8 num-layers-per-virtual-pipeline-stage=4");
  import_plan_has("model = weft.model \"llama3.2-1b\",  -- --model llama3.2-1b");
}
END_TEST

/* Every argument and exported variable is in a list, once. */
START_TEST(nothing_is_dropped) {
  int said = 0;
  import_put("a.sh", llama);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.sh --json");
  ck_assert_int_eq(o.code, 0);
  for (const char *p = o.out; (p = strstr(p, "\"place\": \"a.sh:")); p++) said++;
  /* 1 of Slurm, 2 exported, 2 of torchrun, the program, 15 of the model, 5 of OPTIMIZER,
   * 1 of MORE, and 10 and 2 words of the command */
  ck_assert_int_eq(said, 1 + 2 + 2 + 1 + 15 + 5 + 1 + 10 + 2);
}
END_TEST

/* What a shell makes of its words, as bash does. */
static const struct Words {
  const char *script, *says;
} words[] = {
    {"A=1; B=\"x y\"; C=($A \"$B\" z)\nG \"${C[@]}\"\n", "a.sh:2: --x = 1 x y z"},
    {"X=${X:-3}; Y=${X:+yes}\nG $Y$((X*2+1))\n", "a.sh:2: --x = yes7"},
    {"A=\"1 \\\n --y 2\n--x 3\"\nG $A\n", "a.sh:3: --x = 3"},
    {"A='$B'\\'\\\"\nG \"$A\"\"c\"d\n", "a.sh:2: --x = $B'\"cd"},
    {"f() { A+=(--x $1 2); }\nA=(--y)\nf\nG 1 ${A[@]}\n", "a.sh:1: --x = 2"},
    {"f() { A+=(--x $1 $2); }\nA=(--y)\nf 7 \"8\"\nG 1 ${A[@]}\n", "a.sh:1: --x = 7 8"},
    {"f() { shift; G 1 \"$@\"; }\nf no --x 7\n", "a.sh:2: --x = 7"},
    {"set -- --x 3\nG 1 $@\n", "a.sh:1: --x = 3"},
    {"G ${1:-8} --x ${2:-9}\n", "a.sh:1: --x = 9"},
    /* What scripts out there do. */
    {"A=\"G 7\"\necho $A\neval $A\n", "a.sh:1: --x = 7"},
    {"A=(G 7)\necho \"${A[*]}\"\n\"${A[@]}\" | tee log\n", "a.sh:1: --x = 7"},
    {"A=7\ncat <<EOF > job.sh\nsrun G \\\n  $A\nEOF\nsbatch job.sh\n", "a.sh:3: --x = 7"},
    {"A=7\nsbatch <<'EOF'\nA=8\nG $A\nEOF\n", "a.sh:4: --x = 8"},
    {"cat <<EOF > ds.json\n{ \"a\": (((\nEOF\nG 7\n", "a.sh:4: --x = 7"},
    {"read -r -d '' A <<'EOF'\n--y 1\n--x 3\nEOF\nG 1 $A\n", "a.sh:3: --x = 3"},
    {"A=\"\"\nfor a in 1 2 3; do A=\"$A $a\"; done\nG $A\n", "a.sh:3: --x = 1 2 3"},
    {"for a in 1 2 3; do G $a; done\n", "a.sh:1: --x = 1"},
    {"declare -A L=([small]=4 [big]=8)\nS=big\nG ${L[small]}${L[$S]}\n",
     "a.sh:3: --x = 48"},
    {"A=7; if (( A > 7 )); then A=1; fi; ((A+=2)); let B=A*2\nG $A$B\n",
     "a.sh:2: --x = 918"},
    {"G $((2 ** 3 << 2))\n", "a.sh:1: --x = 32"},
    {"A=/a/b.tar.gz; B=BF16\nG ${A##*/},${A%%.*},${A%.gz},${B,,},${B/F/x}\n",
     "a.sh:2: --x = b.tar.gz,/a/b,/a/b.tar,bf16,Bx16"},
    {"G 7 \\\n  `# a comment` \\\n  --y 1\n", "a.sh:1: --x = 7"},
    {"G 7 $(echo --y)\n", "a.sh:1: --x = 7"},
    {"A=\"\r\n--y 2 \\\r\n 3\"\r\nG 1 $A\r\n", "a.sh:2: --y = 2 3"},
    {"[ 1 -gt 2 ] && A=3 || A=4\n! [ $A = 3 ] && A=5$A\nG $A\n", "a.sh:3: --x = 54"},
    {"case big in s*|t) A=1;; b*) A=2;; *) A=3;; esac\nG $A\n", "a.sh:2: --x = 2"},
    {"if [ -n \"\" ]; then A=1; elif [[ a == a ]]; then A=2; else A=3; fi\nG $A\n",
     "a.sh:2: --x = 2"},
    {"A=(1 2 3); export B=${A[1]} C\nG $B${A[0]}\n", "a.sh:2: --x = 21"},
    {"cat <<EOF > x\n\"--x 7\nEOF\nG 8\n", "a.sh:4: --x = 8"},
    {"A=5\nbash -c \"G $A --y\"\n", "a.sh:2: --x = 5"},
    {"G 1 2>err >out # --x 3\n", "a.sh:1: --x = 1"},
    {"G 1\\\n2 \\", "a.sh:1: --x = 12"},
};

START_TEST(words_are_those_of_the_shell) {
  Text t = {0};
  for (const char *p = words[_i].script; *p; p++) {
    if (*p == 'G')
      text_add(&t, "python a.py --micro-batch-size 1 --x");
    else
      text_printf(&t, "%c", *p);
  }
  import_put("a.sh", t.s);
  text_free(&t);
  import_has(import_file("a.sh", "--model llama3.2-1b"), words[_i].says);
}
END_TEST

/* ---- other forms ---- */

START_TEST(lists_of_arguments_become_plans) {
  import_put("a.txt",
             "# a model with learned positions\n--num-layers 12\n--hidden-size=768\n"
             "--num-attention-heads 12 --micro-batch-size 4\n--global-batch-size 32\n"
             "--seq-length 1024 --max-position-embeddings 1024\n--lr 1e-4\n--fp16\n"
             "--lr 2e-4\n");
  const char *report = import_file("a.txt", "");
  import_plan_has("\"gpt2\",  -- a.txt:2: --num-layers");
  import_plan_has("activation_function = \"gelu_new\",");
  import_plan_has("vocab_size = 50304,"); /* 50257, padded to a multiple of 128 */
  import_plan_has("tie_word_embeddings = true,");
  import_plan_has("max = 0.0002,  -- a.txt:9: --lr");
  import_plan_has("init_scale = 4294967296,");
  import_plan_has("hysteresis = 2,");
  import_has(report, "a.txt:7: --lr = 0.0001: a.txt:9 gives it again, which counts");
  import_has(report, "no dropout; Megatron's default is 0.1");
}
END_TEST

#define DROPS "--hidden-dropout 0.1 --attention-dropout 0.2 "
#define DECODER                                                                          \
  "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 "        \
  "--global-batch-size 4 --seq-length 64 --max-position-embeddings 64 --lr 1e-4 --bf16 "
#define LLAMA_LIKE                                                                       \
  "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear "        \
  "--swiglu "

/* Dropout of GPT-2 is its architecture's; where hidden states drop in another one, the
 * plan's model is a function. */
START_TEST(dropout_is_of_the_model) {
  import_put("a.txt", DECODER DROPS);
  import_file("a.txt", "");
  import_plan_has("embd_pdrop = 0.1,");
  import_plan_has("resid_pdrop = 0.1,");
  import_plan_has("attn_pdrop = 0.2,");
  import_put("b.txt", DECODER LLAMA_LIKE "--attention-dropout 0.2 --hidden-dropout 0");
  import_file("b.txt", "");
  import_plan_has("\"llama\",");
  import_plan_has("attention_dropout = 0.2,");
  import_put("c.txt", DECODER LLAMA_LIKE DROPS);
  import_file("c.txt", "");
  import_plan_has(
      "local function drop(x) return g:dropout(x, { rate = c.hidden_dropout }) end");
  import_plan_has("x = g:add(x, drop(attention(norm(x, ");
  import_plan_has("hidden_dropout = 0.1,");
  import_plan_has("rate = c.attention_dropout })");
}
END_TEST

#define SUITE_ARGS                                                                       \
  "  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n"               \
  "  --micro-batch-size: 4\n  --global-batch-size: 32\n  --seq-length: 1024\n"           \
  "  --max-position-embeddings: 1024\n  --lr: 0.00015\n  --train-iters: 50\n"

static const char suite[] =
    "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n  NCCL_ALGO: Ring\n"
    "MODEL_ARGS:\n" SUITE_ARGS "  --weight-decay: 1e-2\n  --deterministic-mode: true\n"
    "  --pipeline-model-parallel-size: 4\n  --vocab-file: ${DATA_PATH}/vocab.json\n"
    "  --bf16: true\n  --swiglu: false\n"
    "TEST_TYPE: regular\n";

START_TEST(test_suites_become_plans) {
  import_put("a.yaml", suite);
  const char *report = import_file("a.yaml", "");
  import_plan_has("\"gpt2\",  -- a.yaml:5: MODEL_ARGS.--num-layers");
  import_plan_has("pp = 4,");
  import_plan_has("schedule = \"1f1b\",");
  import_plan_has("deterministic = true,");
  import_plan_has("algo = \"ring\",  -- a.yaml:3: ENV_VARS.NCCL_ALGO");
  import_plan_has("weight_decay = 0.01,");
  import_has(report, "MODEL_ARGS.--swiglu = false -> model");
  /* Stages of their own sizes. */
  import_file("a.yaml",
              "decoder-first-pipeline-num-layers=2 decoder-last-pipeline-num-layers=4");
  import_plan_has("layers = { 2, 3, 3, 4 },");
  import_file("a.yaml", "account-for-embedding-in-pipeline-split=true "
                        "account-for-loss-in-pipeline-split=true num-layers=14 "
                        "num-layers-per-virtual-pipeline-stage=2");
  import_plan_has("layers = { 1, 2, 2, 2, 2, 2, 2, 1 },");
  import_file("a.yaml", "\"pipeline-model-parallel-layout=Et*2|(t*2|)*4t*2L\" "
                        "pipeline-model-parallel-size=2");
  import_plan_has("layout = \"Et*2|(t*2|)*4t*2L\",");
  import_plan_has("virtual = 3,");
  import_fails(1, "a.yaml", "pipeline-model-parallel-layout=Et*12Lx",
               "\"x\" means nothing");
  import_fails(1, "a.yaml", "num-layers-per-virtual-pipeline-stage=5",
               "stages of 5 layers cannot be made of 12 layers on 4 pipeline ranks");
}
END_TEST

START_TEST(yaml_configs_and_recipes_become_plans) {
  import_put("a.yaml",
             "language_model:\n  num_layers: 24\n  hidden_size: 1024\n"
             "  num_attention_heads: 16\n  add_bias_linear: False\n"
             "  activation_func: swiglu\n  normalization: LayerNorm\n"
             "  ffn_hidden_size: null\nmodel_parallel:\n"
             "  tensor_model_parallel_size: 2\n  sequence_parallel: True\n"
             "  bf16: True\nmicro_batch_size: 2\nglobal_batch_size: 128\n"
             "position_embedding_type: rope\nrotary_percent: 0.5\nseq_length: 512\n"
             "train_samples: 12800\nlr: 6.0e-5\n");
  const char *report = import_file("a.yaml", "");
  import_plan_has(
      "local function model(g, c)"); /* none of weft's own has LayerNorm and rope */
  import_plan_has("rotary_dim = 32");
  import_plan_has("[\"layers.*.mlp.gate\"] = \"colwise\",");
  import_plan_has("steps = 100,  -- a.yaml:18: train_samples");
  import_has(report,
             "language_model.ffn_hidden_size = null: null is as if it were not given");
  import_put("b.sh",
             "torchrun --nproc_per_node=8 run_recipe.py --recipe "
             "llama32_1b_pretrain_config \\\n"
             "  model.seq_length=4096 train.global_batch_size=16 \\\n"
             "  model.tensor_model_parallel_size=2 dataset.seq_length=4096 \\\n"
             "  optimizer.lr=1e-4 logger.wandb_project=x model.sequence_parallel=True\n");
  report = import_file("b.sh", "");
  import_plan_has("weft.model \"llama3.2-1b\",  -- b.sh:1: --recipe");
  import_plan_has("world = 8,");
  import_plan_has("sequence_parallel = true,");
  import_has(report,
             "what llama32_1b_pretrain_config sets itself is Python, which is not read");
  import_fails(1, "b.sh", "recipe=gemma3_vl_4b_sft_config",
               "is a recipe of a model of images");
}
END_TEST

/* ---- what arguments mean ---- */

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
  import_put("a.yaml", suite);
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
  import_put("a.yaml", suite);
  char both[200];
  snprintf(both, sizeof both, "%s %s", w->setting, w->with);
  const char *report = import_file("a.yaml", w->setting);
  import_has(report, " alone, which is not given");
  report = import_file("a.yaml", both);
  import_lacks(report, " alone, which is not given");
}
END_TEST

START_TEST(products_are_in_fp8) {
  import_put("a.yaml", suite);
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
      "MODEL_ARGS:\n" SUITE_ARGS
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

/* ---- what is refused ---- */

static const struct Refused {
  const char *args, *says;
} refused[] = {
    {"hybrid-layer-pattern=M-M*", "layers of Mamba are not in weft"},
    {"encoder-num-layers=12", "an encoder and a decoder"},
    {"tokenizer-type=BertWordPieceCase", "an encoder and a decoder"},
    {"vision-model-type=clip", "images are not in weft"},
    {"experimental-attention-variant=dsa", "is an attention that weft does not have"},
    {"quick-geglu=true", "is an activation function that weft does not have"},
    {"normalization=BatchNorm", "BatchNorm: expected LayerNorm or RMSNorm"},
    {"position-embedding-type=alibi", "alibi: weft has learned_absolute, rope and none"},
    {"tensor-model-parallel-size=two", "tensor-model-parallel-size = two: expected an"},
    {"num-layers=-3", "expected an integer, at least 1"},
    {"num-attention-heads=7", "7 heads do not divide hidden-size = 512"},
    {"num-experts=4 moe-layer-freq=[0]*99", "expected a number, or a list such as"},
    {"global-batch-size=30 --world 8", "30 sequences are no multiple of microbatches"},
    {"seq-length=4096", "4096 tokens are more than max-position-embeddings = 1024"},
    {"recompute-granularity=some", "some: expected full or selective"},
    {"lr=fast", "lr = fast: expected a number, at least 0"},
    {"window-size=all", "all: expected two numbers, such as 127,0"},
    {"'window-size=3,0' 'window-attn-skip-freq=[1]*3'",
     "with one number for each of 12 layers"},
    {"chunk-attention-size=64",
     "attention within chunks is not in weft; --window-size is"},
    {"qk-layernorm=true", "weft's LayerNorm is over all of a token"},
    {"tensor-model-parallel-size='${TP}'",
     "${TP} has no value in the file: give one by --set tensor-model-parallel-size="},
};

START_TEST(other_models_and_wrong_values_are_refused) {
  import_put("a.yaml", suite);
  import_fails(1, "a.yaml", refused[_i].args, refused[_i].says);
}
END_TEST

#define ARGS " --num-layers 2 --hidden-size 64 --micro-batch-size 1 "

static const struct Hostile {
  int code;
  const char *name, *text, *says;
} hostile[] = {
    {2, "h.sh", "A=\"--num-layers 2\nB=1\n", "h.sh:1: a \" is not closed"},
    {2, "h.sh", "A=1\nB='x\n", "h.sh:2: a ' is not closed"},
    {2, "h.sh", "A=(--num-layers 2\n", "h.sh:1: a ( is not closed"},
    {2, "h.sh", "A=${B\n", "h.sh:1: a ${ is not closed"},
    {2, "h.sh", "if true; then\nA=1\n", "h.sh:1: what begins here has no end"},
    {2, "h.sh", "A=1\nfi )\n", "h.sh:2: ) is not where a command can begin"},
    {2, "h.sh", "cat <<EOF\nx\n", "<<EOF has no end"},
    {2, "h.sh",
     "\x7f"
     "ELF\x02\x01",
     "h.sh:1: is no text: it has a byte of value 127"},
    {2, "h.sh", "echo \x01\n", "is no text: it has a byte of value 1"},
    {2, "h.sh", "", "h.sh: has no command with arguments of Megatron"},
    {2, "h.sh", "echo hello\n", "h.sh: has no command with arguments of Megatron"},
    {2, "h.sh", "python a.py" ARGS "\npython b.py" ARGS "\n",
     "h.sh:2: a second command that trains begins (the first one is in line 1)"},
    {2, "h.yaml", "zero_optimization: {stage: 1}\nMODEL_ARGS: {--lr: 1}\n",
     "h.yaml: has settings of DeepSpeed and of Megatron"},
    /* A cycle: what a variable stands for when it is set is nothing yet. */
    {1, "h.sh", "A=$B\nB=$A\npython a.py --num-attention-heads $A" ARGS "\n",
     "h.sh:3: error: ${B} has no value in the file: give one by B=VALUE behind the "
     "file or --set num-attention"},
    {1, "h.sh", "python a.py" ARGS "--num-attention-heads $(nproc)\n",
     "h.sh:1: error: $(nproc) has no value in the file"},
    {1, "h.yaml", "MODEL: gpt_16b\nTP: 1\nMETRICS: [a]\n",
     "do not say --num-layers: give it by --set num-layers=N, or a model by --model"},
};

START_TEST(hostile_files_are_refused) {
  const struct Hostile *h = &hostile[_i];
  import_put(h->name, h->text);
  import_fails(h->code, h->name, "", h->says);
}
END_TEST

/* Variables that stand for 2^40 bytes, brackets and calls without end, and large files.
 */
START_TEST(bombs_are_refused) {
  Text t = {0};
  text_add(&t, "A0=xxxxxxxxxxxxxxxx\n");
  for (int i = 1; i < 40; i++) text_printf(&t, "A%d=\"$A%d$A%d\"\n", i, i - 1, i - 1);
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "its variables stand for more than 1048576 bytes");
  for (int i = 0; i < 100; i++) text_add(&t, "A=${A:-");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "is nested too deeply");
  for (int i = 0; i < 100; i++) text_add(&t, "if true; then\n");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "is nested too deeply");
  import_put("h.sh", "f() { f; }\nf\n");
  import_fails(2, "h.sh", "", "functions call each other too deeply");
  for (int i = 0; i < 1 << 13; i++)
    text_add(&t, "# a comment of 38 bytes, with its end\n");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "h.sh: has 311296 bytes; a script has at most 262144");
  for (int i = 0; i < 1 << 16; i++)
    text_add(&t, "# 64 bytes of a comment that say nothing, but there are many of.\n");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "settings have at most 4194304");
}
END_TEST

/* Files that a script sources are read beside it. */
/* What a script asks Slurm for is in its environment. */
START_TEST(slurm_says_what_it_was_asked_for) {
  import_put("a.sh",
             "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
             "#SBATCH --ntasks-per-node=4\n"
             "GLOBAL=$(( SLURM_NNODES * 8 ))\n"
             "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --lr 1e-3 \\\n"
             "  --num-attention-heads 4 --micro-batch-size 1 --seq-length 32 \\\n"
             "  --max-position-embeddings 32 --global-batch-size $GLOBAL \\\n"
             "  --tensor-model-parallel-size $SLURM_GPUS_PER_NODE\n");
  import_file("a.sh", "");
  import_plan_has("tp = 4,");
  import_plan_has("global = 16,");
  import_file("a.sh", "SLURM_GPUS_PER_NODE=2");
  import_plan_has("tp = 2,");
}
END_TEST

START_TEST(sourced_files_are_read) {
  import_put("a.sh",
             "source conf/args.sh\n. \"$(dirname \"$0\")/more.sh\"\nsource lost.sh\n"
             "python a.py $ARGS --hidden-size $H --seq-length 64\n");
  import_put("args.sh",
             "# a comment\nH=64\nARGS=\"--num-layers 4 --micro-batch-size 1\"\n");
  import_put("more.sh", "ARGS=\"$ARGS --num-attention-heads 4\"\nsource more.sh\n");
  const char *report = import_file("a.sh", "");
  import_plan_has("num_hidden_layers = 4,");
  import_plan_has("num_attention_heads = 4,");
  import_has(report, "a.sh:3: lost.sh is not beside the script");
}
END_TEST

/* What a script takes from its command line. */
START_TEST(arguments_of_a_script_are_given_behind_it) {
  import_put("a.sh", "tp=${tp}\nif [ $# -lt 1 ]; then exit 1; fi\n"
                     "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $1 \\\n"
                     "  --hidden-size ${2:-64} --num-attention-heads ${3} \\\n"
                     "  --tensor-model-parallel-size $tp --seq-length 64 \\\n"
                     "  --max-position-embeddings 64 --micro-batch-size 1 --mock-data\n");
  import_fails(1, "a.sh", "",
               "a.sh:3: error: $1 has no value in the file: give one by 1=VALUE behind "
               "the file or --set num-layers=VALUE");
  import_fails(1, "a.sh", "1=4",
               "a.sh:4: error: $3 has no value in the file: give one by 3=VALUE");
  import_fails(1, "a.sh", "1=4 3=4",
               "a.sh:5: error: ${tp} has no value in the file: give one by '$tp=VALUE' "
               "behind the file or --set tensor-model-parallel-size=VALUE");
  import_file("a.sh", "1=4 3=4 '$tp=2'");
  import_plan_has("num_hidden_layers = 4,");
  import_plan_has("hidden_size = 64,");
  import_plan_has("tp = 2,");
  import_file("a.sh", "1=4 2=128 3=4 '$tp=2'");
  import_plan_has("hidden_size = 128,");
  import_fails(2, "a.sh", "1=4 3=4 '$tp=2' '$tpp=4'",
               "a.sh: has no variable tpp (did you mean tp?)");
  import_fails(1, "a.sh", "1=4 3=4 '$tp=2' tensor-model-parallel-sz=4",
               "(did you mean \"tensor_model_parallel_size\"?)");
}
END_TEST

/* Megatron reads the file in the place of all arguments. */
START_TEST(the_file_of_yaml_cfg_is_followed) {
  import_put("a.sh", "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 99 \\\n"
                     "  --made-up 1 --yaml-cfg configs/small.yaml\n");
  import_fails(1, "a.sh", "", "the settings are in that file: import it");
  import_put("small.yaml",
             "language_model:\n  num_layers: 4\n  hidden_size: 64\n"
             "  num_attention_heads: 4\nmicro_batch_size: 1\nseq_length: 64\n"
             "max_position_embeddings: 64\nmodel_parallel:\n"
             "  tensor_model_parallel_size: 2\n");
  const char *report = import_file("a.sh", "");
  import_plan_has("num_hidden_layers = 4,");
  import_plan_has("tp = 2,  -- small.yaml:9: model_parallel.tensor_model_parallel_size");
  import_plan_has("world = 4,");
  import_has(report, "a.sh:1: --num-layers = 99");
  import_has(report, "small.yaml, of --yaml-cfg, takes the place of all arguments");
  import_lacks(report, "does not know this setting");
  import_file("a.sh", "num-layers=6");
  import_plan_has("num_hidden_layers = 6,");
}
END_TEST

START_TEST(what_cannot_be_decided_is_said) {
  import_put("a.sh", "if [ -f /etc/passwd ]; then X=--made-up; fi\n"
                     "for i in 1 2; do N=$i; done\n"
                     "while read x; do Y=--made-up; done\n"
                     "[[ \"$FP8\" == 1 ]] && Z=--made-up\n"
                     "case $KIND in\n  big) L=99;;\n  *) L=2;;\nesac\n"
                     "run() {\n  python pretrain_gpt.py --num-layers $L $X $Y $Z \\\n"
                     "    --hidden-size 64 --num-attention-heads 4 --seq-length 64 \\\n"
                     "    --max-position-embeddings 64 --micro-batch-size $N\n}\nrun\n");
  const char *report = import_file("a.sh", "");
  import_plan_has("num_hidden_layers = 2,");
  import_plan_has("micro = 2,  -- a.sh:12");
  import_has(report, "a.sh:1: whether the test in this line holds is not in the file");
  import_has(report, "a.sh:3: this loop is not read");
  import_has(report, "a.sh:4: the file does not set FP8: here it is tested as empty");
  import_has(report, "a.sh:5: the file does not set KIND");
  import_file("a.sh", "KIND=big L=3 --set num-layers=4");
  import_plan_has("num_hidden_layers = 4,");
}
END_TEST

Suite *import_megatron_suite(void) {
  Suite *s = suite_create("import_megatron");
  TCase *c = tcase_create("import_megatron");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, a_script_becomes_a_plan);
  tcase_add_test(c, words_behind_the_script_count);
  tcase_add_test(c, nothing_is_dropped);
  tcase_add_loop_test(c, words_are_those_of_the_shell, 0, LEN(words));
  tcase_add_test(c, lists_of_arguments_become_plans);
  tcase_add_test(c, dropout_is_of_the_model);
  tcase_add_test(c, test_suites_become_plans);
  tcase_add_test(c, yaml_configs_and_recipes_become_plans);
  tcase_add_loop_test(c, arguments_mean_what_megatron_says, 0, LEN(meanings));
  tcase_add_loop_test(c, settings_count_with_their_switch_alone, 0, LEN(switches));
  tcase_add_test(c, latent_attention_is_deepseek);
  tcase_add_test(c, products_are_in_fp8);
  tcase_add_test(c, the_function_of_a_plan_trains);
  tcase_add_loop_test(c, gelu_is_exact_where_megatron_has_it_so, 0, LEN(activations));
  tcase_add_loop_test(c, other_models_and_wrong_values_are_refused, 0, LEN(refused));
  tcase_add_loop_test(c, hostile_files_are_refused, 0, LEN(hostile));
  tcase_add_test(c, bombs_are_refused);
  tcase_add_test(c, sourced_files_are_read);
  tcase_add_test(c, slurm_says_what_it_was_asked_for);
  tcase_add_test(c, arguments_of_a_script_are_given_behind_it);
  tcase_add_test(c, the_file_of_yaml_cfg_is_followed);
  tcase_add_test(c, what_cannot_be_decided_is_said);
  suite_add_tcase(s, c);
  return s;
}
