/* check_report.c - weft report as a user sees it: the verdict and by how much, the same
 * bytes as weft check, layouts that do fit when they are taken, exit codes. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/process.h"

enum { SECONDS = 60 };

#define LLAMA_8B                                                                         \
  "local weft = require \"weft\"\n"                                                      \
  "return weft.plan {\n"                                                                 \
  "  model = weft.model \"llama3-8b\",\n"                                                \
  "  mesh = { world = 8 },\n"                                                            \
  "  strategy = { \"zero\" },\n"                                                         \
  "  precision = \"bf16\",\n"                                                            \
  "  batch = { global = 64, micro = 2, seq = 4096 },\n"                                  \
  "  optimizer = weft.adamw { lr = 1e-4 },\n"                                            \
  "  data = weft.synthetic {},\n"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static void has(const char *text, const char *what) {
  ck_assert_msg(strstr(text, what), "no \"%s\" in:\n%s", what, text);
}

static Outcome report(int code, const char *arguments) {
  Outcome o = process_run(SECONDS, "$weft report %s", arguments);
  ck_assert_msg(o.code == code, "weft report %s: %d: %s%s", arguments, o.code, o.out,
                o.err);
  return o;
}

static json_t *report_json(int code, const char *arguments) {
  Outcome o = report(code, arena_printf(scratch_arena, "%s --json", arguments));
  json_error_t e;
  json_t *v = json_loads(o.out, 0, &e);
  ck_assert_msg(v, "%s: %s", e.text, o.out);
  return v;
}

static int64_t whole(const json_t *v, const char *group, const char *key) {
  const json_t *n = json_object_get(json_object_get(v, group), key);
  ck_assert_msg(json_is_integer(n), "no %s.%s", group, key);
  return json_integer_value(n);
}

/* What weft check says of the plan. */
static int64_t checked_bytes(const char *arguments) {
  Outcome o = process_run(SECONDS, "$weft check --json %s", arguments);
  json_t *v = json_loads(o.out, 0, NULL);
  ck_assert_msg(v, "%s%s", o.out, o.err);
  int64_t n = whole(v, "result", "memory_bytes");
  json_decref(v);
  return n;
}

/* A layout that no ranks can have is told, and what comes near to it. */
START_TEST(an_illegal_layout_has_neighbours) {
  put("a.lua", LLAMA_8B "}\n");
  Outcome o = report(1, "a.lua --gpu h200 mesh.tp=3");
  has(o.out, "a.lua: is no plan that can run\n");
  has(o.out, "tp * pp * cp = 3 does not divide world = 8");
  has(o.out, "nearest layouts of 8 ranks that fit:\n  mesh.tp 3 -> 4 ");
  report(0, "a.lua --gpu h200 mesh.tp=4");
  json_t *v = report_json(1, "a.lua --gpu h200 mesh.tp=3");
  ck_assert_int_eq((int)json_array_size(json_object_get(v, "nearest")), 3);
  json_decref(v);
  o = report(1, "a.lua mesh.tp=4 batch.global=9 batch.micro=1");
  has(o.out, "9 is not a multiple of");
  has(o.out, "that fit:\n  mesh.");
  o = report(1, "a.lua train.stesp=3");
  ck_assert(!strstr(o.out, "nearest"));
}
END_TEST

/* Without a GPU bodies are ordered as for an H100. */
START_TEST(naming_the_usual_gpu_changes_no_byte) {
  put("a.lua", LLAMA_8B "}\n");
  ck_assert_int_eq(checked_bytes("a.lua --set mesh.tp=4 --set strategy=fsdp2"),
                   checked_bytes("a.lua --set mesh.tp=4 --set strategy=fsdp2 "
                                 "--set cluster=h100-sxm"));
}
END_TEST

START_TEST(a_plan_that_fits) {
  put("a.lua", LLAMA_8B "}\n");
  Outcome o = report(0, "a.lua --gpu h200 mesh.tp=2 --set strategy.stage=1");
  has(o.out, "a.lua: fits, ");
  has(o.out, "GiB to spare");
  has(o.out, "h200 less 2 GiB\n");
  has(o.out, "proof    no deadlock: ");
  ck_assert(!strstr(o.out, "nearest"));
  json_t *v = report_json(0, "a.lua --gpu h200 mesh.tp=2 --set strategy.stage=1");
  ck_assert_int_eq(whole(v, "memory", "worst_bytes"),
                   checked_bytes("a.lua --set cluster=h200 --set mesh.tp=2 "
                                 "--set strategy.stage=1"));
  ck_assert_int_eq(whole(v, "memory", "free_bytes") + whole(v, "memory", "worst_bytes"),
                   whole(v, "gpu", "room_bytes"));
  ck_assert_str_eq(json_string_value(json_object_get(v, "verdict")), "fits");
  json_decref(v);
  Outcome quiet = report(0, "a.lua --gpu h200 mesh.tp=2 --quiet");
  ck_assert_str_eq(quiet.out, "");
}
END_TEST

/* The arena has its room, but CUDA and NCCL take more than is left. */
START_TEST(a_plan_that_is_tight) {
  char plan[1000];
  put("a.lua", LLAMA_8B "}\n");
  double arena = (double)checked_bytes("a.lua --set cluster=h200 --set mesh.tp=2");
  snprintf(plan, sizeof plan,
           "%s  mesh = { tp = 2 }, cluster = weft.cluster { 'h200', nodes = 1, "
           "gpu = { memory_gib = %.4f } } }\n",
           LLAMA_8B, arena / (1 << 30) + 2.001);
  put("a.lua", plan);
  json_t *v = report_json(0, "a.lua");
  ck_assert_str_eq(json_string_value(json_object_get(v, "verdict")), "tight");
  json_decref(v);
  Outcome o = report(0, "a.lua");
  has(o.out, "but with what CUDA and NCCL take besides it is ");
}
END_TEST

/* Each layout that is offered, taken, fits, and has the bytes that were told. */
static void offers_fit(const char *arguments) {
  json_t *v = report_json(1, arguments), *nearest = json_object_get(v, "nearest");
  ck_assert_int_gt(json_array_size(nearest), 0);
  for (size_t i = 0; i < json_array_size(nearest); i++) {
    const json_t *one = json_array_get(nearest, i);
    const json_t *changes = json_object_get(one, "changes");
    Text set = {0};
    text_printf(&set, "%s --set cluster=h100-sxm", arguments);
    for (size_t k = 0; k < json_array_size(changes); k++) {
      const json_t *c = json_array_get(changes, k), *to = json_object_get(c, "to");
      const char *path = json_string_value(json_object_get(c, "path"));
      if (json_is_string(to))
        text_printf(&set, " --set '%s=%s'", path, json_string_value(to));
      else
        text_printf(&set, " --set %s=%lld", path, (long long)json_integer_value(to));
    }
    ck_assert_int_eq(checked_bytes(set.s),
                     json_integer_value(json_object_get(one, "peak_bytes")));
    report(0, set.s);
    text_free(&set);
  }
  json_decref(v);
}

START_TEST(a_plan_that_does_not_fit) {
  put("a.lua", LLAMA_8B "}\n");
  Outcome o = report(1, "a.lua");
  has(o.out, "a.lua: does not fit: ");
  has(o.out, "h100-sxm less 2 GiB; assumed, --gpu NAME says another");
  has(o.out, "optimizer state 59.8 GiB");
  has(o.out, "nearest layouts of 8 ranks that fit:");
  json_t *v = report_json(1, "a.lua"), *nearest = json_object_get(v, "nearest");
  size_t most = 0;
  for (size_t i = 0; i < json_array_size(nearest); i++) {
    const json_t *changes = json_object_get(json_array_get(nearest, i), "changes");
    most = MAX(most, json_array_size(changes));
    ck_assert_int_eq(json_array_size(changes), most);
  }
  json_decref(v);
  offers_fit("a.lua");
}
END_TEST

/* A dp that is written follows the other sizes, and is told. */
START_TEST(a_plan_that_says_its_dp) {
  put("a.lua", LLAMA_8B "  mesh = { world = 8, dp = 8 },\n}\n");
  Outcome o = report(1, "a.lua");
  has(o.out, "mesh.tp 1 -> 4, mesh.dp 8 -> 2 ");
  offers_fit("a.lua");
  o = report(1, "a.lua --set mesh.tp=4");
  has(o.out, "leave dp out or make it 2");
  has(o.out, "nearest layouts of 8 ranks that fit:\n  mesh.dp 8 -> 2 ");
  offers_fit("a.lua --set mesh.tp=4");
  put("b.lua", LLAMA_8B "  mesh = { dp = 1 },\n}\n");
  o = report(1, "b.lua");
  has(o.out, "no near layout of 1 rank fits; of 2 these do:");
  has(o.out, "mesh.world 1 -> 2");
  offers_fit("b.lua");
}
END_TEST

START_TEST(more_ranks_where_no_layout_fits) {
  put("a.yaml", "step_scheduler:\n  global_batch_size: 64\n"
                "model:\n  pretrained_model_name_or_path: meta-llama/Llama-3.1-70B\n"
                "dataset:\n  seq_length: 4096\n");
  Outcome o = report(1, "a.yaml --world 8");
  has(o.out, "no near layout of 8 ranks fits; of 32 these do:");
}
END_TEST

/* Of 405B no size of the mesh alone makes enough room. */
#define LLAMA_405B(cluster)                                                              \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model 'llama3-405b', mesh = { world = 512 },\n"       \
  "  batch = { global = 1024, micro = 1, seq = 4096 }, precision = 'bf16',\n"            \
  "  cluster = " cluster " }\n"

START_TEST(the_stage_is_varied) {
  put("a.lua", LLAMA_405B("'h100-sxm'"));
  Outcome o = report(1, "a.lua");
  has(o.out, "nearest layouts of 512 ranks that fit:\n  recompute none -> full, "
             "strategy zero -> { \"zero\", stage = 3 } ");
  offers_fit("a.lua");
  put("b.lua", LLAMA_8B "}\n");
  o = report(1, "b.lua");
  has(o.out, "fit:\n  strategy.stage 0 -> 3 ");
  offers_fit("b.lua");
}
END_TEST

/* Other machines are told; nothing is said not to fit because there are too few. */
START_TEST(machines_follow) {
  put("a.lua", LLAMA_405B("weft.cluster { nodes = 8, gpu = 'h100-sxm' }"));
  Outcome o = report(1, "a.lua --world 64");
  has(o.out, "no near layout of 64 ranks fits; of 512 these do:");
  has(o.out, "mesh.world 64 -> 512, cluster.nodes 8 -> 64 ");
  o = report(1, "a.lua");
  has(o.out, "512 ranks are stated, but there are 64");
  has(o.out, "nearest layouts of 512 ranks that fit:\n");
  has(o.out, ", cluster.nodes 8 -> 64 ");
  o = report(1, "a.lua --set 'cluster={ \"h100-sxm\" }'"); /* as many as the mesh needs */
  has(o.out, "nearest layouts of 512 ranks that fit:\n");
  ck_assert_ptr_null(strstr(o.out, "cluster.nodes"));
}
END_TEST

/* It has no field of its own that makes room, and no sizes but dp. */
START_TEST(ddp_is_given_up) {
  static const char *const same[] = {"'ddp'", "{ 'DDP', bucket_cap_mb = 50 }"};
  put("a.lua", LLAMA_8B "}\n");
  for (int i = 0; i < LEN(same); i++) {
    Outcome o =
        report(1, arena_printf(scratch_arena, "a.lua batch.micro=1 --set \"strategy=%s\"",
                               same[i]));
    has(o.out, "that fit:\n  strategy ddp -> { \"zero\", stage = 1 } ");
    has(o.out, "\n  strategy ddp -> fsdp2 ");
  }
  offers_fit("a.lua --set strategy=ddp");
}
END_TEST

START_TEST(names_in_any_spelling) {
  static const char *const same[] = {"'ZeRO'", "'zero0'", "{ 'zero', stage = 0 }"};
  put("a.lua", LLAMA_8B "}\n");
  for (int i = 0; i < LEN(same); i++) {
    Outcome o =
        report(1, arena_printf(scratch_arena, "a.lua --set \"strategy=%s\"", same[i]));
    has(o.out, "fit:\n  strategy.stage 0 -> 3 ");
  }
  Outcome o = report(1, "a.lua --set strategy=fsdp2 --set mesh.tp=3"); /* no whole plan */
  has(o.out, "that fit:\n");
  ck_assert_ptr_null(strstr(o.out, "strategy"));
}
END_TEST

/* The report tells near layouts, and does not claim that no layout fits. */
START_TEST(no_near_layout) {
  static const char says[] =
      "none of the near layouts fits, of these ranks and of up to 64 times as many";
  put("a.lua", LLAMA_405B("{ 'h100-sxm', gpu = { memory_gib = 3 } }"));
  Outcome o = report(1, "a.lua --set mesh.world=8");
  has(o.out, arena_printf(scratch_arena, "%s; weft best searches all", says));
  o = report(1, "a.lua --set mesh.world=8 --set mesh.tp=3");
  has(o.out, arena_printf(scratch_arena, "%s\n", says));
}
END_TEST

/* What the plan already has is no field to vary. */
START_TEST(layers_that_are_computed_again) {
  static const char *const plans[] = {LLAMA_8B "  recompute = 'full',\n}\n",
                                      LLAMA_8B "  activation_checkpointing = true,\n}\n"};
  for (int i = 0; i < LEN(plans); i++) {
    put("a.lua", plans[i]);
    Outcome o = report(1, "a.lua");
    has(o.out, "nearest layouts of 8 ranks that fit:\n");
    ck_assert(!strstr(o.out, "recompute"));
  }
}
END_TEST

static const char recipe[] = "step_scheduler:\n"
                             "  global_batch_size: 64\n"
                             "  local_batch_size: 4\n"
                             "model:\n"
                             "  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n"
                             "distributed:\n"
                             "  strategy: fsdp2\n"
                             "  tp_size: 2\n"
                             "dataset:\n"
                             "  seq_length: 1024\n"
                             "peft:\n"
                             "  dim: 8\n"
                             "  alpha: 8\n"
                             "quantization:\n"
                             "  load_in_4bit: true\n"
                             "  bnb_4bit_quant_type: fp4\n";

START_TEST(settings_of_another_system) {
  put("a.yaml", recipe);
  Outcome o = report(0, "a.yaml --world 16");
  has(o.out, "a.yaml (NeMo AutoModel): fits, ");
  has(o.out, "mesh     dp=8 tp=2, 16 ranks");
  has(o.out, "not expressible, ");
  has(o.out, "frozen parameters ");
  has(o.out, "a.yaml:15: quantization.load_in_4bit = true and 1 more: weights are");
  /* The same bytes as the plan that weft import makes. */
  json_t *v = report_json(0, "a.yaml --world 16");
  process_run(SECONDS, "$weft import a.yaml --world 16 --gpu h100-sxm -o b.lua");
  ck_assert_int_eq(whole(v, "memory", "worst_bytes"), checked_bytes("b.lua"));
  json_decref(v);
  o = report(1, "a.yaml --world 16 distributed.tp_size=3");
  has(o.out, "a.yaml (NeMo AutoModel): is no plan that can run");
  has(o.out, "the command line: distributed.tp_size: error: plan.mesh");
  o = report(
      1, "a.yaml model.pretrained_model_name_or_path=Qwen/Qwen3-Next-80B-A3B-Instruct");
  has(o.out, "a.yaml (NeMo AutoModel): cannot be imported");
  has(o.out, "Qwen3-Next");
}
END_TEST

START_TEST(what_is_wrong_has_its_exit_code) {
  put("a.lua", LLAMA_8B "  batchh = 1,\n}\n");
  Outcome o = report(1, "a.lua");
  has(o.out, "a.lua: is no plan that can run");
  has(o.out, "a.lua:10: error: plan.batchh: ");
  put("b.lua", LLAMA_8B "}\n");
  o = report(2, "none.lua");
  has(o.err, "none.lua");
  o = report(2, "b.lua --model llama3-8b");
  has(o.err, "--model is for settings that name none");
  o = report(2, "b.lua -D tp=2");
  has(o.err, "-D tp=2: b.lua has no variable 'tp'");
  put("c.yaml", recipe);
  o = report(2, "c.yaml --world 8 -D tp=2");
  has(o.err, "c.yaml is no plan: -D tp=2 is for variables of a plan");
  o = report(2, "b.lua --gpu h1000");
  has(o.err, "weft: --gpu: there is no GPU \"h1000\" (known: a100-40gb, ");
  o = report(2, "c.yaml --gpu h200x");
  has(o.err, "weft: --gpu: there is no GPU \"h200x\" (did you mean \"h200\"?)");
  put("d.lua", LLAMA_8B "  cluster = weft.cluster { gpu = \"h200\" },\n}\n");
  o = report(1, "d.lua --gpu '{ \"H100\", memory_gib = 40 }'");
  has(o.out, " of 38 GiB on the worst rank");
  put("c.json", "{\"made_up\": 1}");
  o = report(2, "c.json");
  has(o.err, "is none of the settings that weft import knows");
}
END_TEST

Suite *report_suite(void) {
  Suite *s = suite_create("report");
  TCase *c = tcase_create("report");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, a_plan_that_fits);
  tcase_add_test(c, an_illegal_layout_has_neighbours);
  tcase_add_test(c, naming_the_usual_gpu_changes_no_byte);
  tcase_add_test(c, a_plan_that_is_tight);
  tcase_add_test(c, a_plan_that_does_not_fit);
  tcase_add_test(c, a_plan_that_says_its_dp);
  tcase_add_test(c, more_ranks_where_no_layout_fits);
  tcase_add_test(c, the_stage_is_varied);
  tcase_add_test(c, machines_follow);
  tcase_add_test(c, ddp_is_given_up);
  tcase_add_test(c, names_in_any_spelling);
  tcase_add_test(c, no_near_layout);
  tcase_add_test(c, layers_that_are_computed_again);
  tcase_add_test(c, settings_of_another_system);
  tcase_add_test(c, what_is_wrong_has_its_exit_code);
  suite_add_tcase(s, c);
  return s;
}
