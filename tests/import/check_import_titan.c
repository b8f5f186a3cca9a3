/* check_import_titan.c - weft import of torchtitan's settings: TOML files, registries
 * with several configurations, and what TOML forbids. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/import_files.h"

static const char settings[] = "# a comment\n"
                               "[job]\n"
                               "description = \"a \\u0041 \\\"run\\\"\"\n"
                               "[model]\n"
                               "name = 'llama3'\n"
                               "flavor = \"8B\"\n"
                               "converters = [\n"
                               "  \"float8\", # one\n"
                               "]\n"
                               "[optimizer]\n"
                               "lr = 3e-4\n"
                               "weight_decay = 0.0\n"
                               "[lr_scheduler]\n"
                               "warmup_steps = 20\n"
                               "decay_ratio = 0.1\n"
                               "min_lr_factor = 0.1\n"
                               "decay_type = \"cosine\"\n"
                               "[training]\n"
                               "local_batch_size = 4\n"
                               "global_batch_size = 64\n"
                               "seq_len = 8_192\n"
                               "steps = 1_000\n"
                               "[parallelism]\n"
                               "data_parallel_replicate_degree = 2\n"
                               "data_parallel_shard_degree = 2\n"
                               "tensor_parallel_degree = 2\n"
                               "pipeline_parallel_degree = 2\n"
                               "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                               "[activation_checkpoint]\n"
                               "mode = \"selective\"\n"
                               "selective_ac_option = \"2\"\n"
                               "[quantize.linear.float8]\n"
                               "filter_fqns = [\"output\"]\n"
                               "[checkpoint]\n"
                               "enable = true\n"
                               "interval = 50\n"
                               "[somewhere]\n"
                               "made_up = 1979-05-27T07:32:00Z\n";

START_TEST(settings_become_a_plan) {
  import_put("a.toml", settings);
  const char *report = import_file("a.toml", "");
  import_plan_has("dp = 4,  -- a.toml:25: parallelism.data_parallel_shard_degree");
  import_plan_has("dp_replicate = 2,  -- a.toml:24");
  import_plan_has("tp = 2,  -- a.toml:26");
  import_plan_has("\"fsdp2\",");
  import_plan_has("sequence_parallel = true,  -- torchtitan's default");
  import_plan_has("schedule = \"interleaved_1f1b\",  -- a.toml:28");
  import_plan_has("first_stage_less_layers = 1,  -- torchtitan's default");
  import_plan_has("virtual = 2,");
  import_plan_has("micro = 1,");
  import_plan_has("rounds = 4,");
  import_plan_has("global = 64,");
  import_plan_has("seq = 8192,  -- a.toml:21");
  import_plan_has("intermediate_size = 14336,");
  import_plan_has("recompute = { \"layers.1\", \"layers.3\", ");
  import_plan_has("lr = weft.wsd {");
  import_plan_has("decay = 100,  -- a.toml:15: lr_scheduler.decay_ratio");
  import_plan_has("decay_style = \"cosine\",");
  import_plan_has("min = 3e-05,");
  import_plan_has("dir = \"checkpoint\",");
  import_plan_has("every = 50,");
  import_plan_has("async = false,");
  import_plan_has("\"fp8\",  -- a.toml:7: model.converters");
  import_plan_has("recipe = \"tensorwise\",  -- torchtitan's default");
  import_plan_has("exclude = { \"lm_head\" },  -- a.toml:33");
  import_has(report,
             "a.toml:38: somewhere.made_up = 1979-05-27T07:32:00Z: weft import does not "
             "know this setting");
}
END_TEST

/* Each value of the file is in a list, once. */
START_TEST(nothing_is_dropped) {
  int said = 0;
  import_put("a.toml", settings);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.toml --json");
  ck_assert_int_eq(o.code, 0);
  for (const char *p = o.out; (p = strstr(p, "\"place\": \"a.toml:")); p++) said++;
  ck_assert_int_eq(said, 25);
}
END_TEST

START_TEST(names_of_older_versions_are_known) {
  import_put("a.toml",
             "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"
             "[training]\nbatch_size = 2\nseq_len = 128\ndata_parallel_degree = 2\n"
             "tensor_parallel_degree = 2\nwarmup_steps = 3\nsteps = 10\n"
             "[experimental]\npipeline_parallel_degree = 1\n"
             "[activation_checkpoint]\nmode = \"none\"\n");
  const char *report = import_file("a.toml", "");
  import_plan_has("tp = 2,  -- a.toml:8: training.tensor_parallel_degree");
  import_plan_has("dp = 2,  -- a.toml:7: training.data_parallel_degree");
  import_plan_has("micro = 2,  -- a.toml:5");
  import_plan_has("warmup = 3,");
  import_plan_has("weight_decay = 0.1,  -- torchtitan's default");
  import_plan_has("decay_vectors = true,");
  import_has(report, "a.toml:5: training.batch_size = 2 -> batch.micro");
}
END_TEST

START_TEST(llama_2_of_older_versions_is_known) {
  import_put("a.toml", "[model]\nname = \"llama2\"\nflavor = \"70B\"\n");
  import_file("a.toml", "");
  import_plan_has("vocab_size = 32000,");
  import_plan_has("intermediate_size = 28672,");
  import_plan_lacks("rope_scaling");
}
END_TEST

START_TEST(gpt_oss_is_known) {
  import_put("a.toml", "[model]\nname = \"gpt_oss\"\nflavor = \"20b\"\n");
  const char *report = import_file("a.toml", "");
  import_plan_has("num_hidden_layers = 24,");
  import_plan_has("num_local_experts = 32,");
  import_has(report, "model.flavor = 20b: its routers are balanced by a bias");
}
END_TEST

/* DeepSeek-V3 scales positions of sequences that are longer than those before scaling: up
 * to 0.2, whose settings are TOML; registries of later versions do at all lengths. */
START_TEST(positions_are_scaled_by_length) {
  import_put("a.toml", "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n");
  const char *report = import_file("a.toml", "training.seq_len=4096");
  import_plan_lacks("rope_scaling =");
  import_has(report,
             "model.rope_scaling: positions are not scaled: versions of torchtitan");
  import_has(report, "more than 4096 tokens (original_seq_len), and these have 4096");
  import_has(report, "model: norms of latents have an epsilon of 1e-6");
  report = import_file("a.toml", "training.seq_len=8192");
  import_plan_has("rope_scaling = { beta_fast = 32.0, beta_slow = 1.0, factor = 40.0,");
  import_lacks(report, "model.rope_scaling");
  import_put("flavors.py",
             "args = {\"mine\": DeepSeekV3ModelArgs(original_seq_len=1024, "
             "norm_eps=1e-6, moe_args=MoEArgs(score_before_experts=False))}\n");
  import_lacks(import_file("a.toml", "--model ./flavors.py:mine"), "norms of latents");
  import_plan_has("original_max_position_embeddings = 1024");
  import_file("a.toml", "--model ./flavors.py:mine training.seq_len=1024");
  import_plan_lacks("rope_scaling =");
  import_put("deepseek_v3_registry.json",
             "{\"one\": {\"model_spec.class\": \"model_registry\", \"model_spec.0\": "
             "\"16B\", \"training.max_context_length\": 4096}}");
  report = import_file("deepseek_v3_registry.json", "one");
  import_plan_has("rope_scaling = {");
  import_has(report, "positions are scaled, as from torchtitan 0.3 on");
}
END_TEST

/* Without shards there is no FSDP, and torchtitan computes in the type of the weights. */
START_TEST(without_shards_there_is_no_fsdp) {
  import_put("a.toml", "[model]\nname = \"qwen3\"\nflavor = \"0.6B\"\n[parallelism]\n"
                       "data_parallel_shard_degree = 1\ntensor_parallel_degree = 4\n");
  import_file("a.toml", "");
  import_plan_has("\"zero\",");
  import_plan_has("stage = 0,");
  import_plan_has("param_dtype = \"f32\",");
  import_put("a.toml",
             "[model]\nname = \"qwen3\"\nflavor = \"0.6B\"\n[parallelism]\n"
             "data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 4\n");
  import_has(import_file("a.toml", ""),
             "data_parallel_replicate_degree = 4 -> mesh.dp: all");
  import_plan_has("\"ddp\",");
  import_plan_has("dp = 4,");
  import_plan_has("param_dtype = \"bf16\",");
  import_fails(
      1, "a.toml", "--world 6",
      "--world 6: 6 ranks are no multiple of the degrees 4 of tp, pp, cp and copies");
}
END_TEST

START_TEST(what_weft_lacks_is_refused_by_its_setting) {
  import_put("a.toml", "[model]\nname = \"flux\"\nflavor = \"flux-dev\"\n");
  import_fails(1, "a.toml", "", "a.toml:2: error: flux is a diffusion model of images");
  import_put("a.toml", "[model]\nname = \"llama3\"\nflavor = \"9B\"\n");
  import_fails(1, "a.toml", "",
               "a.toml:3: error: 9B is no flavor of llama3 that weft knows: 1B,");
  import_put("a.toml",
             "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
             "pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"Dfs\"\n");
  import_fails(1, "a.toml", "", "a.toml:6: error: the schedule Dfs is none of PyTorch's");
  import_put("a.toml", "[model]\nflavor = \"8B\"\nname = \"llama3\"\n[training]\n"
                       "seq_len = \"long\"\n");
  import_fails(1, "a.toml", "",
               "a.toml:5: error: training.seq_len = long: expected an integer");
}
END_TEST

START_TEST(cuts_of_a_pipeline_are_taken) {
  const char *head =
      "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[parallelism]\n"
      "pipeline_parallel_degree = 2\ndata_parallel_shard_degree = 2\n";
  char text[2000];
  snprintf(
      text, sizeof text,
      "%smodule_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\"], "
      "[\"layers.1\", \"layers.2\", \"layers.3\", \"layers.4\", \"layers.5\", \"norm\", "
      "\"output\"]]\n",
      head);
  import_put("a.toml", text);
  import_file("a.toml", "");
  import_plan_has("modules = { { \"embed_tokens\", \"layers.0\" }, { \"layers.1\", ");
  import_plan_has("\"norm\", \"lm_head\" } },");
  snprintf(text, sizeof text,
           "%spipeline_parallel_layers_per_stage = 2\n"
           "pipeline_parallel_schedule = "
           "\"ZBVZeroBubble\"\npipeline_parallel_last_stage_less_layers = 0\n"
           "pipeline_parallel_microbatch_size = 2\n",
           head);
  import_put("a.toml", text);
  import_file("a.toml", "");
  import_plan_has("first_stage_less_layers = 1,  -- torchtitan's default");
  import_plan_has("last_stage_less_layers = 0,");
  import_plan_has("layers_per_stage = 2,");
  import_plan_has("schedule = \"zbv\"");
  snprintf(text, sizeof text, "%smodule_fqns_per_model_part = [[\"tok_embeddings\"]]\n",
           head);
  import_put("a.toml", text);
  import_fails(1, "a.toml", "",
               "a.toml:7: error: 1 parts cannot be shared by 2 pipeline ranks");
}
END_TEST

/* Numbers of public models that are easily taken for those of their neighbours. */
START_TEST(public_models_have_their_own_numbers) {
  const char *file = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";
  import_put("a.toml", file);
  import_file("a.toml", "--model HuggingFaceTB/SmolLM2-1.7B");
  import_plan_has("rope_theta = 130000.0,");
  import_plan_has("max_position_embeddings = 8192,");
  import_file("a.toml", "--model mistralai/Mistral-7B-Instruct-v0.2");
  import_plan_has("vocab_size = 32000,");
  import_file("a.toml", "--model mistralai/Mistral-7B-v0.3");
  import_plan_has("vocab_size = 32768,");
  import_file("a.toml", "--model mistralai/Mixtral-8x22B-Instruct-v0.1");
  import_plan_has("num_hidden_layers = 56,");
  import_file("a.toml", "--model Qwen/Qwen2.5-32B");
  import_plan_has("rms_norm_eps = 1e-05,");
  import_file("a.toml", "--model Qwen/Qwen2.5-7B");
  import_plan_has("rms_norm_eps = 1e-06,");
  import_file("a.toml", "--model ByteDance-Seed/Seed-Coder-8B-Base");
  import_plan_has("rms_norm_eps = 1e-06,");
  import_file("a.toml", "--model Qwen/Qwen3-30B-A3B-Thinking-2507");
  import_plan_has("rope_theta = 10000000.0,");
  import_file("a.toml", "--model deepseek-ai/DeepSeek-R1-Distill-Qwen-7B");
  import_plan_has("rope_theta = 10000.0,");
  import_fails(1, "a.toml", "--model me/Distill-Qwen-7B",
               "is no preset and no public name that weft knows");
}
END_TEST

/* ---- registries ---- */

static const char registry[] =
    "{\"base_one\": {\"model_spec.class\": \"model_registry\", \"model_spec.0\": "
    "\"0.6B\",\n"
    " \"training.class\": \"TrainingConfig\", \"training.max_context_length\": 4096,\n"
    " \"training.num_tokens_per_microbatch_per_dp_rank\": 8192,\n"
    " \"optimizer.class\": \"default_adamw\", \"optimizer.lr\": 0.0003,\n"
    " \"parallelism.class\": \"ParallelismConfig\", "
    "\"parallelism.tensor_parallel_degree\": 2,\n"
    " \"activation_checkpoint.class\": \"FullAC\"},\n"
    "\"qwen3_more\": {\"base\": \"base_one\", \"parallelism.class\": "
    "\"ParallelismConfig\",\n"
    " \"parallelism.context_parallel_degree\": 2, \"training.class\": \"replace\",\n"
    " \"training.steps\": 7},\n"
    "\"qwen3_round\": {\"base\": \"qwen3_other\"}, \"qwen3_other\": {\"base\": "
    "\"qwen3_round\"},\n"
    "\"qwen3_lost\": {\"base\": \"elsewhere\", \"model_spec.0\": \"8B\"}}\n";

START_TEST(a_registry_has_several_configurations) {
  import_put("qwen3_registry.json", registry);
  import_file("qwen3_registry.json", "qwen3_more");
  import_plan_has("cp = 2,");
  import_plan_lacks("tp = 2"); /* parallelism is made anew */
  import_plan_has(
      "seq = 4096,  -- qwen3_registry.json:2"); /* training is a copy with changes */
  import_plan_has("micro = 2,");
  import_plan_has("steps = 7,");
  import_plan_has("recompute = \"full\"");
  const char *report = import_file("qwen3_registry.json", "qwen3_lost");
  import_has(report,
             "base = elsewhere: the configuration that this one begins with is not in");
  import_fails(2, "qwen3_registry.json", "",
               "name one behind the file: base_one qwen3_more");
  import_fails(2, "qwen3_registry.json", "qwen4", "qwen4 is none of its configurations");
  import_fails(2, "qwen3_registry.json", "qwen3_round", "begins with itself");
}
END_TEST

/* A head in pieces, of which there are 8 unless the settings say otherwise. */
START_TEST(losses_in_pieces_are_loss_chunks) {
  import_put("qwen3_registry.json", registry);
  import_file("qwen3_registry.json", "base_one loss.class=ChunkedLossWrapper");
  import_plan_has("loss_chunks = 8,");
  import_file("qwen3_registry.json",
              "base_one loss.class=ChunkedLossWrapper loss.num_chunks=4");
  import_plan_has("loss_chunks = 4,");
  const char *report = import_file(
      "qwen3_registry.json", "base_one loss.class=ChunkedLossWrapper loss.num_chunks=3");
  import_plan_lacks("loss_chunks = ");
  import_has(report, "loss_chunks needs equal pieces");
  report = import_file("qwen3_registry.json", "base_one loss.class=ChunkedLossWrapper "
                                              "loss.loss_fn.class=GRPOLoss");
  import_plan_lacks("loss_chunks = ");
  import_has(report, "another loss");
}
END_TEST

/* ---- TOML ---- */

static void toml_fails(const char *text, const char *says) {
  import_put("a.toml", text);
  import_fails(2, "a.toml", "", says);
}

START_TEST(bad_toml_is_told_by_its_line) {
  toml_fails("a = 1\nb = \"open\nc = 2\n",
             "a.toml:2: a text is not closed: \" is missing");
  toml_fails("a = 1\nb = '''open\nc = 2\n",
             "a.toml:2: a text of several lines is not closed");
  toml_fails("a = 1\na = 2\n", "a.toml:2: \"a\" is given twice, here and in line 1");
  toml_fails("[a]\nb = 1\n[a]\nc = 1\n",
             "a.toml:3: \"a\" is given twice, here and in line 1");
  toml_fails("[a]\nb.c = 1\n[a.b]\nd = 1\n", "a.toml:3: \"b\" is given twice");
  toml_fails("a = {b = 1}\na.c = 2\n", "a.toml:2: \"a\" is given twice");
  toml_fails("a = {b = {}}\n[a.b]\nc = 2\n", "a.toml:2: \"a\" is given twice");
  toml_fails("a = [1]\n[[a]]\nc = 2\n", "a.toml:2: \"a\" is given twice");
  toml_fails("a = 1\n[a.b]\n", "a.toml:2: \"a\" is given twice");
  toml_fails("a = [1, 2\n", "a list has the end of the file");
  toml_fails("a = {b = 1\n}\n", "a.toml:1: a table in one line has the end of the line");
  toml_fails("a = yes\n", "a.toml:1: yes is no value: texts stand in quotation marks");
  toml_fails("a = 012\n", "012 is no value");
  toml_fails("a = 1__0\n", "1__0 is no value");
  toml_fails("a = 99999999999999999999\n", "99999999999999999999 does not fit 64 bits");
  toml_fails("a = \"\\q\"\n", "\"\\q\" is no escape of TOML");
  toml_fails("a = \"\\ud800\"\n", "a.toml:1: \\u takes 4 hexadecimal digits");
  toml_fails("a = \"\1\"\n", "is no text: it has a byte of value 1");
  toml_fails("\n\n= 1\n", "a.toml:3: expected a key, found \"=\"");
  toml_fails("a\n", "a.toml:1: expected \"=\" behind a key, found the end of the line");
  toml_fails("a = 1 b = 2\n", "a.toml:1: expected the end of the line, found \"b\"");
  toml_fails("a = 1\n# \xff\n", "a.toml:2: is no UTF-8");
  toml_fails("[a\nb = 1\n", "a.toml:1: a header has the end of the line");
  toml_fails("a.b = 1\n\"a.b\" = 2\n",
             "a.toml:2: \"a.b\" is given twice, here and in line 1");
  toml_fails("", "is none of the settings that weft import knows");
}
END_TEST

START_TEST(all_forms_of_toml_are_read) {
  import_put(
      "a.toml",
      "model.name = \"qwen3\"\r\nmodel . flavor = \"\"\"\\\n   0.6\\\n   B\"\"\"\r\n"
      "[training]\nseq_len = 0x1_00\nlocal_batch_size = 0b10\nsteps = 0o17\n"
      "max_norm = 5e-1\n[[more]]\na = [[1, 2], [\"x\", {b = inf}],]\n[[more]]\n"
      "a = -1_0.5e+1_0\nb = 07:32:00\nc = nan\nd = ''''it''''\n");
  const char *report = import_file("a.toml", "");
  import_plan_has("seq = 256,");
  import_plan_has("micro = 2,");
  import_plan_has("steps = 15,");
  import_plan_has("clip = 0.5,");
  import_has(report, "more = { { a = { { 1, 2 }, { \"x\", { b = math.huge } } } }");
}
END_TEST

/* Files that would take long or much: an error, soon. */
START_TEST(bombs_are_refused) {
  enum { N = 100000 };
  char *text = malloc(8 * N);
  ck_assert_ptr_nonnull(text);
  strcpy(text, "a = ");
  memset(text + 4, '[', N), text[N + 4] = 0;
  toml_fails(text, "a.toml:1: is nested more than 64 deep");
  size_t n = 0;
  for (int i = 0; i < 1000; i++) n += (size_t)sprintf(text + n, "a%d.", i);
  strcpy(text + n, "b = 1\n");
  toml_fails(text, "a.toml:1: is nested more than 64 deep");
  n = (size_t)sprintf(text, "a = [");
  for (int i = 0; i < N; i++) n += (size_t)sprintf(text + n, "1,");
  strcpy(text + n, "]\n");
  toml_fails(text, "a.toml:1: has more than 100000 values");
  free(text);
  char *large = malloc((5 << 20) + 1);
  ck_assert_ptr_nonnull(large);
  memset(large, '\n', 5 << 20), large[5 << 20] = 0;
  toml_fails(large, "settings have at most 4194304");
  free(large);
}
END_TEST

/* Adam adds the decay to the gradient; without one it is AdamW. */
START_TEST(adam_is_adam) {
  static const char text[] = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\n"
                             "local_batch_size = 1\nseq_len = 4096\nsteps = 10\n"
                             "[optimizer]\nname = \"Adam\"\nlr = 3e-4\n";
  import_put("a.toml", text);
  import_file("a.toml", "");
  import_plan_has("optimizer = weft.adam {");
  import_plan_has("weight_decay = 0.1,  -- torchtitan's default");
  import_put("a.toml", arena_printf(scratch_arena, "%sweight_decay = 0.0\n", text));
  import_file("a.toml", "");
  import_plan_has("optimizer = weft.adamw {");
}
END_TEST

/* Names of linears are torchtitan's, and parts of them; without one float8 leaves none
 * out, mx the head. */
static const struct LeftOut {
  const char *converter, *family, *names, *plan, *report;
} left_out[] = {
    {"float8", "llama3\"\nflavor = \"8B", NULL,
     "exclude = {},  -- torchtitan's default: no linear is left out",
     "in those before it is not"},
    {"float8", "llama3\"\nflavor = \"8B", "[]", "exclude = {},  -- a.toml:11",
     "-> precision.exclude"},
    {"mx", "llama3\"\nflavor = \"8B", NULL, NULL, ""},
    {"float8", "llama3\"\nflavor = \"8B", "['attention.wk', 'attention.wv', 'output']",
     "exclude = { \"self_attn.k_proj\", \"self_attn.v_proj\", \"lm_head\" },",
     "-> precision.exclude"},
    {"float8", "llama3\"\nflavor = \"8B", "['layers.31.feed_forward']",
     "exclude = { \"layers.31.mlp.gate_proj\", \"layers.31.mlp.down_proj\", "
     "\"layers.31.mlp.up_proj\" },",
     "-> precision.exclude"},
    {"float8", "llama3\"\nflavor = \"8B", "['output', 'auto_filter_small_kn']",
     "exclude = { \"lm_head\" },",
     "auto_filter_small_kn leaves out linears that are too"},
    {"float8", "qwen3\"\nflavor = \"30B-A3B", "['wo', 'router.gate']",
     "exclude = { \"self_attn.o_proj\" },", "-> precision.exclude"},
    {"float8", "qwen3\"\nflavor = \"30B-A3B", "['wo', 'gates']",
     "exclude = { \"self_attn.o_proj\" },",
     "gates: no linear that would be in fp8 here has it in its name"},
    {"float8", "qwen3\"\nflavor = \"30B-A3B", "['wo']",
     "exclude = { \"self_attn.o_proj\" },", "products of routers are in f32 here"},
    {"mx", "gpt_oss\"\nflavor = \"20b", NULL, NULL,
     "products of routers are in f32 here"},
    {"float8", "deepseek_v3\"\nflavor = \"671B", "['wkv_a', 'w2']",
     "exclude = { \"self_attn.kv_a_proj_with_mqa\", \"mlp.down_proj\", "
     "\"mlp.shared_experts.down_proj\" },",
     "-> precision.exclude"},
};

START_TEST(linears_that_stay_have_torchtitans_names) {
  const struct LeftOut *row = &left_out[_i];
  import_put("a.toml", arena_printf(scratch_arena,
                                    "[model]\nname = \"%s\"\nconverters = [\"%s\"]\n"
                                    "[training]\nlocal_batch_size = 1\nseq_len = 4096\n"
                                    "[parallelism]\ndata_parallel_shard_degree = 8\n"
                                    "[quantize.linear.%s]\n%s%s\n",
                                    row->family, row->converter, row->converter,
                                    row->names ? "filter_fqns = " : "",
                                    row->names ? row->names : ""));
  const char *report = import_file("a.toml", "");
  import_has(report, row->report);
  ck_assert_msg(!row->names || !strstr(row->names, "router.gate") ||
                    !strstr(report, "products of routers"),
                "%s", report);
  if (row->plan)
    import_plan_has(row->plan);
  else
    import_plan_lacks("exclude");
}
END_TEST

Suite *import_titan_suite(void) {
  Suite *s = suite_create("import_titan");
  TCase *t = tcase_create("torchtitan");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, adam_is_adam);
  tcase_add_loop_test(t, linears_that_stay_have_torchtitans_names, 0, LEN(left_out));
  tcase_add_test(t, settings_become_a_plan);
  tcase_add_test(t, nothing_is_dropped);
  tcase_add_test(t, names_of_older_versions_are_known);
  tcase_add_test(t, llama_2_of_older_versions_is_known);
  tcase_add_test(t, gpt_oss_is_known);
  tcase_add_test(t, positions_are_scaled_by_length);
  tcase_add_test(t, without_shards_there_is_no_fsdp);
  tcase_add_test(t, what_weft_lacks_is_refused_by_its_setting);
  tcase_add_test(t, cuts_of_a_pipeline_are_taken);
  tcase_add_test(t, public_models_have_their_own_numbers);
  tcase_add_test(t, a_registry_has_several_configurations);
  tcase_add_test(t, losses_in_pieces_are_loss_chunks);
  tcase_add_test(t, bad_toml_is_told_by_its_line);
  tcase_add_test(t, all_forms_of_toml_are_read);
  tcase_add_test(t, bombs_are_refused);
  suite_add_tcase(s, t);
  return s;
}
