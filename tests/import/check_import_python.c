/* check_import_python.c - weft import of what Python files say in literals: torchtitan's
 * registries and tables of flavors, and the plans of Transformers' classes. Nothing is
 * run. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/import_files.h"

static const char registry[] =
    "\"\"\"What it is.\"\"\"\n"
    "import os\n"
    "os.system('touch was_run')\n"
    "\n"
    "def qwen3_small() -> Trainer.Config:\n"
    "    \"\"\"One.\"\"\"\n"
    "    model_spec = model_registry(\"0.6B\")\n"
    "    return Trainer.Config(\n"
    "        model_spec=model_spec,\n"
    "        training=TrainingConfig(\n"
    "            num_tokens_per_microbatch_per_dp_rank=8 * 1024, # a comment\n"
    "            max_context_length=1_024, steps=10,\n"
    "        ),\n"
    "        dataloader=Loader.Config(dataset=DATASETS[\"c4\"], shuffle=not True),\n"
    "        optimizer=default_adamw(lr=-3e-4 * -1),\n"
    "        parallelism=ParallelismConfig(tensor_parallel_degree=2),\n"
    "        activation_checkpoint=FullAC.Config(),\n"
    "    )\n"
    "\n"
    "def qwen3_large(debug: bool = False):\n"
    "    config = qwen3_small()\n"
    "    config.training.steps = 7\n"
    "    config.parallelism = ParallelismConfig(pipeline_parallel_degree=2, "
    "num_pp_microbatches=2)\n"
    "    if debug:\n"
    "        config.training.steps = 1\n"
    "    config.model_spec = model_registry(\n"
    "        '1.7B', converters=[X.Config(f\"a{1}\", b'2', r'\\d' '+')])\n"
    "    change(config)\n"
    "    return config\n";

START_TEST(a_registry_is_read_and_not_run) {
  import_put("registry.py", registry);
  import_file("registry.py", "qwen3_small");
  import_plan_has("hidden_size = 1024,");
  import_plan_has("seq = 1024,  -- registry.py:12");
  import_plan_has("micro = 8,  -- registry.py:11");
  import_plan_has("max = 0.0003,");
  import_plan_has("tp = 2,");
  const char *report = import_file("registry.py", "qwen3_large");
  import_plan_has("hidden_size = 2048,");
  import_plan_has("steps = 7,  -- registry.py:22");
  import_plan_has("pp = 2,");
  import_plan_lacks("tp = 2,"); /* parallelism is made anew */
  import_has(report, "registry.py:24: code.line 24 = if debug:");
  import_has(report, "registry.py:25: code.line 25 = config.training.steps = 1");
  import_has(report, "registry.py:28: code.line 28 = change(config)");
  import_has(report, "model_spec.converters = ");
  ck_assert_int_ne(access(scratch_path("was_run"), F_OK), 0);
  import_fails(2, "registry.py", "", "name one behind the file: qwen3_small qwen3_large");
}
END_TEST

START_TEST(flavors_come_from_a_table) {
  import_put("a.toml", "[model]\nname = \"llama3\"\nflavor = \"mine\"\n");
  import_put(
      "flavors.py",
      "args = {\n  \"mine\": TransformerModelArgs(dim=256, n_layers=6, n_heads=16,\n"
      "    vocab_size=2048, ffn_dim_multiplier=1.3, multiple_of=64, rope_theta=500000),\n"
      "  \"other\": TransformerModelArgs(dim=size(), n_layers=6, n_heads=16),\n"
      "  \"new\": TransformerModelArgs(dim=256, n_layers=6, n_heads=16, gates=2),\n"
      "  \"zero\": TransformerModelArgs(dim=0, n_layers=6, n_heads=16),\n"
      "  \"image\": FluxModelArgs(dim=256),\n}\n");
  import_fails(1, "a.toml", "", "; one of your own is --model FILE.py:mine\n");
  import_file("a.toml", "--model ./flavors.py:mine");
  import_plan_has(
      "intermediate_size = 896,"); /* 8 * 256 / 3 * 1.3 = 886, in steps of 64 */
  import_plan_has("num_key_value_heads = 16,");
  import_fails(1, "a.toml", "--model ./flavors.py:none",
               "has no \"none\" with arguments");
  import_fails(1, "a.toml", "--model ./flavors.py:other", "needs the number dim");
  import_fails(1, "a.toml", "--model ./flavors.py:new", "does not know: gates");
  import_fails(1, "a.toml", "--model ./flavors.py:zero", "dim must be above 0");
  import_fails(1, "a.toml", "--model ./flavors.py:image",
               "FluxModelArgs are the arguments of");
}
END_TEST

#define SOFTMAX "num_experts=8, num_shared_experts=0, score_func=\"softmax\""
#define AFTER   ", score_before_experts=False"

/* Objects among the arguments: what weft cannot compute, or does not know, is an error.
 */
static const struct {
  const char *arguments, *says;
} objects[] = {
    {"Qwen3ModelArgs(moe_enabled=True, moe_args=MoEArgs(" SOFTMAX "))",
     "Qwen3ModelArgs: moe_args: score_before_experts is True, as by default"},
    {"Qwen3ModelArgs(moe_enabled=True, moe_args=MoEArgs(" SOFTMAX
     ", score_before_experts=True))",
     "score_before_experts is True, as by default"},
    {"DeepSeekV3ModelArgs(moe_args=MoEArgs(num_experts=8))",
     "score_before_experts is True, as by default"},
    {"DeepSeekV3ModelArgs()", "score_before_experts is True, as by default"},
    {"GptOssModelArgs(moe_args=MoEArgs(" SOFTMAX ", route_norm=True))",
     "score_before_experts is True, as by default"},
    {"Qwen3ModelArgs(moe_args=MoEArgs(nonsense=3))",
     "MoEArgs has an argument that weft does not know: nonsense"},
    {"Qwen3ModelArgs(moe_args=make(3))", "moe_args: expected MoEArgs(...), got make"},
    {"Qwen3ModelArgs(moe_args=MoEArgs(top_k=K))",
     "moe_args.top_k: expected a whole number from 1, got K"},
    {"Qwen3ModelArgs(moe_enabled=True, moe_args=MoEArgs(" SOFTMAX AFTER
     ", route_scale=2.0))",
     "neither groups nor a scale"},
    {"Qwen3ModelArgs(moe_enabled=True, moe_args=MoEArgs(" SOFTMAX AFTER
     ", _debug_force_load_balance=True))",
     "experts are chosen by their routers in weft"},
    {"DeepSeekV3ModelArgs(moe_args=MoEArgs(gate_bias=True" AFTER "))",
     "routers without biases"},
    {"DeepSeekV3ModelArgs(moe_args=MoEArgs(num_expert_groups=4" AFTER "))",
     "num_expert_groups and num_limited_groups go together"},
    {"GptOssModelArgs(moe_args=MoEArgs(" SOFTMAX AFTER "))", "a softmax of those chosen"},
    {"TransformerModelArgs(dim=64, n_layers=2, n_heads=2, "
     "rope_scaling_args=RoPEScalingArgs(factor=3))",
     "RoPEScalingArgs has an argument that weft does not know: factor"},
    {"Qwen3ModelArgs(vocab_size=VOCAB)", "Qwen3ModelArgs: vocab_size is no number"},
};

static void put_flavor(const char *arguments) {
  import_put("a.toml", "[model]\nname = \"qwen3\"\nflavor = \"mine\"\n");
  import_put("flavors.py",
             arena_printf(scratch_arena, "args = {\n  \"mine\": %s,\n}\n", arguments));
}

START_TEST(objects_among_arguments_are_checked) {
  put_flavor(objects[_i].arguments);
  import_fails(1, "a.toml", "--model ./flavors.py:mine", objects[_i].says);
}
END_TEST

START_TEST(experts_come_from_a_table) {
  put_flavor("Qwen3ModelArgs(moe_enabled=True, moe_args=MoEArgs(" SOFTMAX AFTER
             ", top_k=2, load_balance_coeff=None))");
  import_file("a.toml", "--model ./flavors.py:mine");
  import_plan_has("num_experts = 8,");
  import_plan_has("num_experts_per_tok = 2,");
  import_plan_has("norm_topk_prob = false,");
  put_flavor("DeepSeekV3ModelArgs(norm_eps=1e-6, moe_args=MoEArgs(num_expert_groups=4, "
             "num_limited_groups=2" AFTER "))");
  import_file("a.toml", "--model ./flavors.py:mine");
  import_plan_has("n_routed_experts = 8,");
  import_plan_has("topk_group = 2,");
  put_flavor("Qwen3ModelArgs(attn_mask_type=\"block_causal\")");
  import_has(import_file("a.toml", "--model ./flavors.py:mine"),
             "each document attends to itself there (attn_mask_type)");
}
END_TEST

/* As Transformers writes them, and as its classes print. */
static const char plans_py[] =
    "class Qwen3MoeConfig(PreTrainedConfig):\n"
    "    model_type = \"qwen3_moe\"\n"
    "    base_model_tp_plan = {\n"
    "        \"layers.*.self_attn.q_proj\": \"colwise\",\n"
    "        \"layers.*.self_attn.k_proj\": \"colwise\",\n"
    "        \"layers.*.self_attn.v_proj\": \"colwise\",\n"
    "        \"layers.*.self_attn.q_norm\": \"replicated_with_grad_allreduce\",\n"
    "        \"layers.*.self_attn.k_norm\": \"replicated_with_grad_allreduce\",\n"
    "        \"layers.*.self_attn.o_proj\": \"rowwise\",\n"
    "        \"layers.*.mlp.experts.gate_up_proj\": \"packed_colwise\",\n"
    "        \"layers.*.mlp.experts.down_proj\": \"rowwise\",\n"
    "        \"layers.*.mlp.experts\": \"moe_tp_experts\",\n"
    "        \"layers.*.mlp.gate_proj\": \"colwise\",\n"
    "        \"layers.*.mlp.up_proj\": \"colwise\",\n"
    "        \"layers.*.mlp.down_proj\": \"rowwise\",\n"
    "    }\n"
    "    base_model_ep_plan = {\n"
    "        \"layers.*.mlp.experts.gate_up_proj\": \"grouped_gemm\",\n"
    "        \"layers.*.mlp.experts\": \"ep_dispatch_experts\",\n"
    "    }\n"
    "    base_model_pp_plan = {\"norm\": ([\"hidden_states\"], [\"hidden_states\"])}\n"
    "    def validate(self):\n"
    "        base_model_tp_plan = {}\n";

START_TEST(plans_of_transformers_are_taken_verbatim) {
  import_put("a.py", plans_py);
  const char *report = import_file("a.py", "--model qwen3-30b-a3b ep_size=2 --world 8");
  import_plan_has("[\"layers.*.self_attn.o_proj\"] = \"rowwise\",  -- a.py:9");
  import_plan_has("[\"layers.*.mlp.experts\"] = \"moe_tp_experts\",");
  import_plan_has("ep = 2,");
  import_plan_has("etp = 1,");
  import_has(report, "a.py:19: Qwen3MoeConfig.base_model_ep_plan.layers.*.mlp.experts = "
                     "ep_dispatch_experts -> mesh.ep");
  import_has(report, "base_model_pp_plan.norm");
  import_put("a.json",
             "{\"base_model_tp_plan\": {\"layers.*.mlp.gate_proj\": \"colwise\",\n"
             " \"layers.*.mlp.up_proj\": \"colwise\", \"layers.*.mlp.down_proj\": "
             "\"rowwise\",\n \"lm_head\": \"colwise_gather_output\"}}");
  import_file("a.json", "--model llama3-8b tp_size=4");
  import_plan_has("lm_head = \"colwise_gather_output\",  -- a.json:3");
  import_plan_has("tp = 4,");
  import_put("config.json", "{\"model_type\": \"mimo_v2_flash\"}");
  import_put("a.json", "{\"base_model_tp_plan\": {\n"
                       "\"layers.*.self_attn.sinks\": \"colwise\",\n"
                       "\"layers.*.self_attn\": \"local_params\"}}");
  import_file("a.json", "--model .");
  import_plan_has("[\"layers.*.self_attn\"] = \"local_params\",");
  import_put("a.json", "{\"base_model_tp_plan\": {\"layers.*.mlp\": \"all_reduce\"}}");
  import_fails(1, "a.json", "--model llama3-8b",
               "a.json:1: error: tp_plan has no style all_reduce");
  import_fails(1, "a.json", "", "the settings name no model");
}
END_TEST

/* In a plan, too; what the library has for other sizes of an architecture may match
 * nothing. */
START_TEST(plans_of_transformers_stand_in_a_plan) {
  const char *plan =
      "local weft = require \"weft\"\n"
      "return weft.plan { model = weft.model \"qwen3-30b-a3b\",\n"
      "  mesh = { world = 8, tp = 2, ep = 2 }, batch = { global = 8, seq = 64 },\n"
      "  tp_plan = { [\"layers.*.mlp.experts\"] = \"ep_dispatch_experts\",\n"
      "    [\"layers.*.mlp.gate_proj\"] = \"%s\" } }\n";
  char text[1000];
  snprintf(text, sizeof text, plan, "colwise");
  import_put("p.lua", text);
  ck_assert_int_eq(process_run(IMPORT_SECONDS, "$weft check -q p.lua").code, 0);
  snprintf(text, sizeof text, plan, "rowwise");
  import_put("p.lua", text);
  Outcome o = process_run(IMPORT_SECONDS, "$weft check -q p.lua");
  ck_assert_int_eq(o.code, 1);
  import_has(o.err, "the pattern matches no parameter");
}
END_TEST

/* As Python orders them: powers first, from right to left, and a sign before them last.
 */
START_TEST(powers_bind_tighter_than_products) {
  static const struct {
    const char *value, *means;
  } all[] = {
      {"2 * 10 ** 2", "200"},    {"12 // 2 ** 2", "3"},    {"2 ** 3 ** 2", "512"},
      {"-2 ** 2 + 9", "5"},      {"4 * 2 ** -1", "2.0"},   {"(2 * 3) ** 2", "36"},
      {"2 ** 2 * 3 ** 2", "36"}, {"2 ** 0.5 ** 0", "2.0"}, {"-2 ** -1 * -8", "4.0"},
  };
  for (int i = 0; i < LEN(all); i++) {
    import_put("qwen3.py", arena_printf(scratch_arena,
                                        "def f():\n    return C(model_spec=m(\"0.6B\"),\n"
                                        "        training=TrainingConfig(steps=%s))\n",
                                        all[i].value));
    Outcome o = process_run(IMPORT_SECONDS, "$weft import qwen3.py -o a.lua");
    const char *want =
        arena_printf(scratch_arena, "training.steps = %s -> ", all[i].means);
    ck_assert_msg(strstr(o.out, want) || strstr(o.err, want), "%s: no \"%s\" in:\n%s%s",
                  all[i].value, want, o.out, o.err);
    process_run(IMPORT_SECONDS, "rm -f a.lua");
  }
  import_put("qwen3.py", "def f():\n    return C(model_spec=m(\"0.6B\"),\n"
                         "        optimizer=default_adamw(lr=5 * 2 ** -4))\n");
  import_file("qwen3.py", "");
  import_plan_has("max = 0.3125,");
}
END_TEST

static void python_fails(const char *text, const char *says) {
  import_put("a.py", text);
  import_fails(2, "a.py", "", says);
}

START_TEST(bad_python_is_told_by_its_line) {
  python_fails("a = 1\nb = \"open\nc = 2\n",
               "a.py:2: a text is not closed: \" is missing");
  python_fails("a = '''open\nc = 2\n", "a.py:1: a text is not closed: ''' is missing");
  python_fails("\na = f(1,\n(2)\n",
               "a.py:2: what is opened here is not closed: \")\" is missing");
  python_fails("a = {'b': 1]\n", "a.py:1: \"]\" closes nothing");
  python_fails("a = {'b': 1,\n 'b': 2}\n",
               "a.py:2: \"b\" is given twice, here and in line 1");
  python_fails("a = f(b=1,\n b=2)\n", "a.py:2: the argument b is given twice");
  python_fails("a = f(b=)\n", "a.py:1: a value is missing");
  python_fails("a = $\n", "a.py:1: \"$\" is no Python");
  python_fails("", "is none of the settings that weft import knows");
  python_fails("def f():\n", "is none of the settings that weft import knows");
}
END_TEST

START_TEST(bombs_are_refused) {
  enum { N = 100000 };
  char *text = malloc(2 * N + 100);
  ck_assert_ptr_nonnull(text);
  strcpy(text, "a = ");
  memset(text + 4, '[', N), memset(text + 4 + N, ']', N), text[2 * N + 4] = 0;
  python_fails(text, "a.py:1: is nested more than 64 deep");
  size_t n = (size_t)sprintf(text, "def f():\n    a0 = [1, 1, 1, 1, 1, 1, 1, 1]\n");
  for (int i = 1; i < 30; i++)
    n += (size_t)sprintf(text + n, "    a%d = [a%d, a%d, a%d, a%d]\n", i, i - 1, i - 1,
                         i - 1, i - 1);
  sprintf(text + n, "    return C(training=TrainingConfig(a=a29))\n");
  python_fails(text, "has more than 100000 values, names counted");
  n = (size_t)sprintf(text, "def f():\n    return C(model_spec=m('8B'), a=2");
  for (int i = 0; i < 5000; i++) n += (size_t)sprintf(text + n, " ** 9");
  sprintf(text + n, ")\n");
  import_put("qwen3.py", text);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import qwen3.py");
  ck_assert_int_lt(o.code, 3);
  free(text);
}
END_TEST

Suite *import_python_suite(void) {
  Suite *s = suite_create("import_python");
  TCase *t = tcase_create("python");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, a_registry_is_read_and_not_run);
  tcase_add_test(t, powers_bind_tighter_than_products);
  tcase_add_test(t, flavors_come_from_a_table);
  tcase_add_loop_test(t, objects_among_arguments_are_checked, 0, LEN(objects));
  tcase_add_test(t, experts_come_from_a_table);
  tcase_add_test(t, plans_of_transformers_are_taken_verbatim);
  tcase_add_test(t, plans_of_transformers_stand_in_a_plan);
  tcase_add_test(t, bad_python_is_told_by_its_line);
  tcase_add_test(t, bombs_are_refused);
  suite_add_tcase(s, t);
  return s;
}
