/* check_lang.c - the plan language: exact reports of wrong plans, the values of right
 * ones, values from the command line. */
#include <check.h>
#include <glob.h>

#include "bindings/schedule/schedule_facts.h"
#include "bindings/lang/report.h"
#include "tests/harness/lang_fixture.h"
#include "vm/pipeline/schedule.h"
#include "vm/base/json.h"
#include "vm/io/io.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

static const Plan *load(const char *text) { return lang_test_good(&t, text); }

static void expect_report(const char *text, const char *report) {
  lang_test_bad(&t, text, report);
}

/* ---- wrong plans ---- */

/* What a plan's trailing "--> " lines expect. */
static const char *expected_report(const char *path) {
  char *s;
  size_t n;
  Text want = {0};
  ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &s, &n, &t.e), WEFT_OK);
  for (char *line = strtok(s, "\n"); line; line = strtok(NULL, "\n"))
    if (strncmp(line, "--> ", 4) == 0) text_printf(&want, "%s\n", line + 4);
  const char *copy = arena_str(t.arena, want.s ? want.s : "");
  mem_free(NULL, s, n + 1);
  text_free(&want);
  return copy;
}

/* Loads, and if that is fine calls the schedule: some of the plans have a wrong one. */
static weft_status load_all(const char *path) {
  Mesh m;
  Schedule s;
  TRY(lang_test_path(&t, path));
  const Plan *p = lang_plan(t.lp);
  ck_assert(mesh_resolve(&p->mesh, 0, &m, &t.d));
  TRY(lang_schedule(t.lp, &m, plan_microbatches(p, &m), &s, &t.d, &t.e));
  if (schedule_check(&s, &t.d)) return WEFT_OK;
  lang_locate(t.lp, &t.d);
  return WEFT_EPLAN;
}

/* What the command line prints: diagnostics, or the one error that is none. */
static const char *report_of(weft_status st, const char *dir) {
  if (st == WEFT_EPLAN) return lang_test_report(&t, dir);
  const char *file =
      t.e.file + (strncmp(t.e.file, dir, strlen(dir)) ? 0 : strlen(dir) + 1);
  if (!t.e.line) return arena_printf(t.arena, "%s: error: %s\n", file, t.e.text);
  return arena_printf(t.arena, "%s:%d: error: %s\n", file, t.e.line, t.e.text);
}

START_TEST(bad_plans) {
  glob_t g;
  ck_assert_int_eq(glob(WEFT_SOURCE_DIR "/tests/plans/bad_*.lua", 0, NULL, &g), 0);
  ck_assert_int_ge(g.gl_pathc, 14);
  for (size_t i = 0; i < g.gl_pathc; i++) {
    const char *want = expected_report(g.gl_pathv[i]);
    ck_assert_msg(*want, "%s has no expected report", g.gl_pathv[i]);
    weft_status st = load_all(g.gl_pathv[i]);
    ck_assert(st == WEFT_EPLAN || st == WEFT_ELIMIT);
    ck_assert_str_eq(report_of(st, WEFT_SOURCE_DIR "/tests/plans"), want);
  }
  globfree(&g);
}
END_TEST

START_TEST(example_plans) {
  glob_t g;
  ck_assert_int_eq(glob(WEFT_SOURCE_DIR "/plans/*.lua", 0, NULL, &g), 0);
  ck_assert_int_ge(g.gl_pathc, 1);
  for (size_t i = 0; i < g.gl_pathc; i++) {
    if (strstr(g.gl_pathv[i], "/plans/sweep_")) continue; /* a script */
    ck_assert_msg(load_all(g.gl_pathv[i]) == WEFT_OK, "%s: %s%s", g.gl_pathv[i],
                  lang_test_report(&t, ""), t.e.text);
  }
  globfree(&g);
}
END_TEST

START_TEST(missing_file) {
  ck_assert_int_eq(lang_test_path(&t, "/nowhere/plan.lua"), WEFT_EFILE);
  ck_assert_str_eq(t.e.file, "/nowhere/plan.lua");
}
END_TEST

START_TEST(one_line_plan) {
  expect_report(HEAD "return weft.plan { mesh = { tpp = 2 }, model = 1, batch = 7 }",
                "plan.lua:2: error: plan.batch: expected a table { global, micro, seq, "
                "rounds }, got number 7\n"
                "plan.lua:2: error: plan.mesh.tpp: unknown field (did you mean \"tp\"?)\n"
                "plan.lua:2: error: plan.model: expected weft.model, weft.hf or a "
                "function, got number 1\n3 errors\n");
}
END_TEST

START_TEST(fields_in_the_wrong_place) {
  expect_report(HEAD "return weft.plan { model = weft.model 'llama-tiny', tp = 2,\n"
                     "batch = { global = 1, seq = 4 } }",
                "plan.lua:2: error: plan.tp: unknown field (did you mean \"mesh.tp\"?)\n"
                "1 error\n");
}
END_TEST

START_TEST(betas_are_below_1) {
  expect_report(HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"
                     "batch = { global = 1, seq = 4 },\n"
                     "optimizer = weft.adamw { betas = { 0, 1.0 } } }",
                "plan.lua:4: error: plan.optimizer.betas[2]: expected a number from 0 to "
                "below 1, got number 1.0\n1 error\n");
}
END_TEST

/* Nesterov's step is one along a momentum, and has no dampening, as in torch.optim.SGD.
 */
START_TEST(nesterov_wants_momentum_alone) {
  static const struct {
    const char *fields, *report; /* NULL: a plan */
  } all[] = {
      {"nesterov = true", "looks ahead along the momentum: give one"},
      {"nesterov = true, momentum = 0", "looks ahead along the momentum: give one"},
      {"nesterov = true, momentum = 0.9, dampening = 0.1",
       "has no dampening: leave it out"},
      {"nesterov = true, momentum = 0.9, dampening = 0", NULL},
      {"nesterov = false, dampening = 0.1", NULL},
  };
  for (int i = 0; i < LEN(all); i++) {
    const char *text =
        arena_printf(scratch_arena,
                     HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"
                          "batch = { global = 1, seq = 4 }, data = weft.synthetic {},\n"
                          "optimizer = weft.sgd { lr = 0.1, %s } }",
                     all[i].fields);
    if (all[i].report)
      expect_report(text, arena_printf(scratch_arena,
                                       "plan.lua:4: error: plan.optimizer.nesterov: %s\n"
                                       "1 error\n",
                                       all[i].report));
    else
      lang_test_good(&t, text);
  }
}
END_TEST

/* A rule of a module that is several here is a rule of each: what others say stays
 * theirs. */
START_TEST(styles_of_packed_modules) {
  expect_report(
      HEAD "return weft.plan { model = weft.model 'phi3',\n"
           "batch = { global = 2, seq = 4 }, mesh = { tp = 2 },\n"
           "strategy = { 'zero', sequence_parallel = false },\n"
           "tp_plan = { ['layers.*.mlp.gate_up_proj'] = 'colwise',\n"
           "['layers.*.self_attn.o_proj'] = 'rowwise_reduce_scatter' } }",
      "plan.lua:6: error: plan.tp_plan[\"layers.*.self_attn.o_proj\"]: scatters by "
      "sequence without sequence_parallel (set strategy.sequence_parallel = "
      "true)\n1 error\n");
}
END_TEST

/* Averages are f32: one that keeps all but 1e-8 of itself never changes. */
START_TEST(betas_are_below_1_in_f32) {
  expect_report(HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"
                     "batch = { global = 1, seq = 4 }, optimizer = weft.adamw {\n"
                     "betas = { 0.99999999, 0.99999997 } } }",
                "plan.lua:4: error: plan.optimizer.betas[1]: 0.99999999 is 1 in "
                "f32, in which averages are computed (at most 0.99999997)\n1 error\n");
}
END_TEST

START_TEST(plain_table) {
  expect_report("return {\n  batch = { global = 1, seq = 4 },\n  model = 'llama',\n}",
                "plan.lua:3: error: plan.model: expected weft.model, weft.hf or a "
                "function, got string \"llama\" (write weft.model \"llama\")\n1 error\n");
}
END_TEST

START_TEST(weights_are_wanted_or_not) {
  lang_test_file("config.json", "{ \"model_type\": \"llama\" }");
  expect_report(
      HEAD "return weft.plan { model = weft.hf { '.', weights = 'no' },\n"
           "  batch = { global = 1, seq = 4 } }",
      "plan.lua:2: error: plan.model.weights: expected true or false, got string "
      "\"no\"\n1 error\n");
}
END_TEST

START_TEST(error_in_coroutine) {
  expect_report(HEAD
                "local f = coroutine.wrap(function()\n  error('no')\nend)\nf()\n" GOOD,
                "plan.lua:3: error: no\n1 error\n");
}
END_TEST

START_TEST(error_values) {
  expect_report(HEAD "error({})\n" GOOD,
                "plan.lua:2: error: the error is a table, not a string\n1 error\n");
  expect_report(HEAD "local function f() error('up', 2) end\nf()\n" GOOD,
                "plan.lua:3: error: up\n1 error\n");
}
END_TEST

START_TEST(shebang) {
  load("#!/usr/bin/env weft\n" HEAD GOOD);
  expect_report(
      "#!weft\n" HEAD "local x = y\n",
      "plan.lua:3: error: unknown global 'y' (a local, or \"y\" if it is a name)\n1 "
      "error\n");
}
END_TEST

START_TEST(bytecode) {
  expect_report("\033Lua rest", "plan.lua:1: error: attempt to load a binary chunk (mode "
                                "is 't')\n1 error\n");
}
END_TEST

START_TEST(json_report) {
  ck_assert_int_eq(lang_test_text(&t, HEAD "return weft.plan {\n  mesh = { tpp = 1 } }"),
                   WEFT_EPLAN);
  Text out = {0};
  Json j = {.out = &out};
  report_json_begin(&t.d, "check", &j);
  json_none(&j, "result");
  report_json_end(&t.d, &j);
  const char *want = arena_printf(
      t.arena,
      "{\"command\":\"check\",\"diagnostics\":["
      "{\"code\":\"required\",\"path\":\"model\",\"range\":{\"filename\":\"%s/plan.lua\","
      "\"start\":{\"column\":1,\"line\":2}},\"severity\":\"error\",\"suggestions\":[],"
      "\"summary\":\"this field is required (the network: weft.model, weft.hf or a "
      "function f(g, config))\"},"
      "{\"code\":\"required\",\"path\":\"batch\",\"range\":{\"filename\":\"%s/plan.lua\","
      "\"start\":{\"column\":1,\"line\":2}},\"severity\":\"error\",\"suggestions\":[],"
      "\"summary\":\"this field is required (sizes of a step)\"},"
      "{\"code\":\"unknown-field\",\"path\":\"mesh.tpp\",\"range\":{\"filename\":"
      "\"%s/plan.lua\",\"start\":{\"column\":1,\"line\":3}},\"severity\":\"error\","
      "\"suggestions\":[\"tp\"],\"summary\":\"unknown field\"}],"
      "\"error_count\":3,\"format_version\":\"1.0\",\"result\":null,\"valid\":false,"
      "\"warning_count\":0}",
      scratch_dir, scratch_dir, scratch_dir);
  ck_assert_str_eq(out.s, want);
  text_free(&out);
}
END_TEST

/* ---- values ---- */

START_TEST(all_fields) {
  const Plan *p = load(
      HEAD
      "return weft.plan {\n"
      "  name = 'n', version = 1, model = weft.model 'llama-tiny',\n"
      "  mesh = { world = 16, tp = 64 / 32, pp = 2, order = { 'pp', 'dp_replicate',\n"
      "           'dp_shard', 'cp', 'tp' } },\n"
      "  strategy = { 'Zero', sequence_parallel = true, overlap_grad_reduce = false,\n"
      "               bucket_bytes = 2^20 },\n"
      "  tp_plan = { lm_head = 'colwise_rep', ['*.q_norm'] = 'replicate' },\n"
      "  pp_plan = { layers = { 1, 3 } }, schedule = 'GPipe',\n"
      "  mp_policy = { param_dtype = 'bfloat16', reduce_dtype = 'f32' },\n"
      "  packed = { eot = 7 }, recompute = false,\n"
      "  batch = { global = 32, micro = 2, seq = 64 },\n"
      "  optimizer = weft.adamw { lr = weft.linear { max = 1, min = 0.5, warmup = 4,\n"
      "    steps = 9 }, betas = { 0.5, 0.75 }, eps = 1e-3, weight_decay = 0, clip = 0 "
      "},\n"
      "  data = weft.text { 'a', 'b*', shuffle = false },\n"
      "  train = { steps = 7, seed = 3, log_every = 2 } }");
  ck_assert_str_eq(p->name, "n");
  ck_assert_int_eq(p->mesh.tp, 2);
  ck_assert_str_eq(p->mesh.order[4], "tp");
  ck_assert(p->strategy.sequence_parallel && !p->strategy.overlap_grad_reduce);
  ck_assert_int_eq(p->strategy.bucket_bytes, 1 << 20);
  ck_assert_int_eq(p->ntp, 2);
  ck_assert_str_eq(p->tp[1].pattern, "lm_head");
  ck_assert_int_eq(p->tp[1].style, STYLE_COLWISE_GATHER);
  ck_assert(!p->tp[1].from_default);
  ck_assert_int_eq(p->pp.nlayers, 2);
  ck_assert_int_eq(p->pp.layers[1], 3);
  ck_assert_str_eq(p->schedule, "gpipe");
  ck_assert_int_eq(p->dtype, DT_BF16);
  ck_assert(p->packed.on && p->packed.separator == 7 && !p->packed.first);
  ck_assert_int_eq(p->batch.global, 32);
  ck_assert_int_eq(p->opt.lr.kind, LR_LINEAR);
  ck_assert(p->opt.lr.max == 1 && p->opt.lr.min == 0.5 && p->opt.lr.steps == 9);
  ck_assert(p->opt.beta1 == 0.5 && p->opt.beta2 == 0.75 && p->opt.eps == 1e-3);
  ck_assert(p->opt.weight_decay == 0 && p->opt.clip == 0);
  ck_assert_int_eq(p->data.kind, DATA_TEXT);
  ck_assert_int_eq(p->data.nfiles, 2);
  ck_assert_str_eq(p->data.files[1], "b*");
  ck_assert_str_eq(p->data.dir, scratch_dir);
  ck_assert(!p->data.shuffle);
  ck_assert(p->steps == 7 && p->seed == 3 && p->log_every == 2);
}
END_TEST

START_TEST(data_for_validation) {
  const Plan *p = load(
      HEAD
      "return weft.plan { model = weft.model 'llama-tiny',\n"
      "  batch = { global = 8, seq = 16 }, data = weft.text { 'a', shuffle = false,\n"
      "    val = weft.tokens { 'b', 'c', dtype = 'u32' } } }");
  ck_assert(p->data.kind == DATA_TEXT && p->data.nfiles == 1 && !p->data.shuffle);
  ck_assert(p->data.val->kind == DATA_TOKENS && p->data.val->nfiles == 2);
  ck_assert_str_eq(p->data.val->files[1], "c");
  ck_assert_int_eq(p->data.val->width, 4);
  ck_assert_int_eq(p->data.width, 0);
  p = load(HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"
                "  batch = { global = 8, seq = 16 }, data = weft.tokens { 'a', "
                "val_fraction = 0.005 } }");
  ck_assert(p->data.val_fraction == 0.005 && !p->data.val);
}
END_TEST

START_TEST(defaults) {
  const Plan *p = load(HEAD GOOD);
  ck_assert_str_eq(p->name, "plan");
  ck_assert_str_eq(p->schedule, "1f1b");
  ck_assert_int_eq(p->dtype, DT_F32);
  ck_assert_int_eq(p->strategy.kind, STRATEGY_ZERO);
  ck_assert(p->strategy.overlap_grad_reduce && !p->strategy.sequence_parallel);
  ck_assert_int_eq(p->strategy.bucket_bytes, 25 << 20);
  ck_assert_int_eq(p->batch.micro, 1);
  ck_assert_int_eq(p->batch.rounds, 1);
  ck_assert_int_eq(p->opt.lr.kind, LR_CONSTANT);
  ck_assert(p->opt.lr.max == 3e-4 && p->opt.clip == 1 && p->opt.weight_decay == 0.1);
  ck_assert_int_eq(p->data.kind, DATA_SYNTHETIC);
  ck_assert(p->steps == 100 && p->seed == 0 && p->log_every == 10);
  /* The architecture's own tensor plan, whose patterns need not match. */
  ck_assert_int_gt(p->ntp, 5);
  ck_assert(p->tp[0].from_default);
  ck_assert_str_eq(lang_architecture(t.lp), "llama");
}
END_TEST

START_TEST(extended_tp_plan) {
  const Plan *p = load(
      HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"
           "  batch = { global = 8, seq = 16 },\n"
           "  tp_plan = weft.extend(weft.tp_plan 'llama', { lm_head = 'replicate' }) }");
  int own = 0;
  for (int i = 0; i < p->ntp; i++) {
    if (p->tp[i].from_default) continue;
    own++;
    ck_assert_str_eq(p->tp[i].pattern, "lm_head");
    ck_assert_int_eq(p->tp[i].style, STYLE_REPLICATE);
  }
  ck_assert_int_eq(own, 1);
}
END_TEST

START_TEST(set_and_define) {
  static const char *const set[] = {"mesh.tp=2",
                                    "train.steps=5",
                                    "optimizer.lr.max=0.5",
                                    "tp_plan[\"lm_head\"]=replicate",
                                    "schedule=gpipe",
                                    "model.num_hidden_layers=2",
                                    "batch.global=2*8",
                                    "mesh.order=nil"};
  static const char *const define[] = {"n=16", "kind=bf16", "on", "list={1, 2}"};
  t.o.set = set;
  t.o.nset = LEN(set);
  t.o.define = define;
  t.o.ndefine = LEN(define);
  const Plan *p = load(
      HEAD "local v = weft.vars\n"
           "assert(v.n == 16 and v.kind == 'bf16' and v.on == true and v.list[2] == 2)\n"
           "return weft.plan { model = weft.model 'llama-tiny', precision = v.kind,\n"
           "  mesh = { order = { 'tp' } },\n"
           "  optimizer = weft.adamw { lr = weft.cosine { max = 1 } },\n"
           "  tp_plan = weft.tp_plan 'llama', batch = { global = 8, seq = v.n } }");
  ck_assert_int_eq(p->mesh.tp, 2);
  ck_assert_int_eq(p->steps, 5);
  ck_assert(p->opt.lr.max == 0.5 && p->opt.lr.kind == LR_COSINE && p->opt.lr.steps == 5);
  ck_assert_str_eq(p->schedule, "gpipe");
  ck_assert_int_eq(p->batch.global, 16);
  ck_assert_int_eq(p->batch.seq, 16);
  ck_assert_ptr_null(p->mesh.order[0]);
  int64_t layers;
  ck_assert(lang_config_int(t.lp, "num_hidden_layers", &layers) && layers == 2);
}
END_TEST

/* An option of a field whose value is a name alone. */
START_TEST(options_of_names) {
  static const char *const set[] = {"strategy.stage=1", "plan.precision.grad_dtype=bf16",
                                    "cluster.nodes=2", "schedule.x=1"};
  t.o.set = set, t.o.nset = LEN(set) - 1;
  const char *text =
      HEAD "return weft.plan { model = weft.model 'llama-tiny', strategy = 'zero',\n"
           "  precision = 'bf16', cluster = 'h100-sxm', schedule = '1f1b',\n"
           "  batch = { global = 16, seq = 16 } }";
  const Plan *p = load(text);
  ck_assert(p->strategy.kind == STRATEGY_ZERO && p->strategy.stage == 1);
  ck_assert(p->dtype == DT_BF16 && p->grad == DT_BF16);
  ck_assert(p->cluster.nodes == 2 && str_eq(p->cluster.gpu, "h100-sxm"));
  t.o.nset = LEN(set);
  ck_assert_int_eq(lang_test_text(&t, text), WEFT_EPLAN);
  ck_assert_msg(strstr(lang_test_report(&t, scratch_dir),
                       "schedule.x: this schedule has no options"),
                "%s", lang_test_report(&t, scratch_dir));
}
END_TEST

/* Of the text behind =: a literal, a call of weft, else a string. */
START_TEST(values_of_set) {
  static const char *const set[] = {
      "optimizer=weft.lion { lr = weft.linear { max = 2 } }", "name=weft.x",
      "data=weft.text { 'a', 'b' }", "data.files=c"};
  t.o.set = set, t.o.nset = LEN(set);
  ck_assert_msg(lang_test_text(&t, HEAD GOOD) == WEFT_OK, "%s", t.e.text);
  const Plan *p = lang_plan(t.lp);
  ck_assert_str_eq(p->name, "weft.x");
  ck_assert_int_eq(p->opt.kind, OPTIMIZER_LION);
  ck_assert_double_eq(p->opt.lr.max, 2);
  ck_assert_int_eq(p->data.nfiles, 1); /* in the place of a and b */
  ck_assert_str_eq(p->data.files[0], "c");
}
END_TEST

/* A table stays one whatever letters are in it, and however many. */
START_TEST(values_with_functions_and_long_ones) {
  Text many = {0};
  text_add(&many, "data.files={");
  for (int i = 0; i < 600; i++) text_printf(&many, " 'file-%d.txt',", i);
  text_add(&many, "}");
  const char *set[] = {"data=weft.text { 'functions.txt' }", many.s};
  t.o.set = set, t.o.nset = 1;
  ck_assert_msg(lang_test_text(&t, HEAD GOOD) == WEFT_OK, "%s", t.e.text);
  ck_assert_str_eq(lang_plan(t.lp)->data.files[0], "functions.txt");
  t.o.nset = 2;
  ck_assert_msg(lang_test_text(&t, HEAD GOOD) == WEFT_OK, "%s", t.e.text);
  ck_assert_int_eq(lang_plan(t.lp)->data.nfiles, 600);
  text_free(&many);
  static const char *const names[] = {
      "data.files={ \"function\" }", "data.files={ 'a\\'function', --[=[ ]] ' ]=] 'b' }",
      "data.files={ [==[function]]]==] }", "data.files={ 'x', -- function\n }"};
  for (int i = 0; i < LEN(names); i++) {
    set[1] = names[i];
    ck_assert_msg(lang_test_text(&t, HEAD GOOD) == WEFT_OK, "%s: %s", names[i],
                  lang_test_report(&t, scratch_dir));
  }
  /* What has one is not evaluated. */
  set[0] = "data=weft.text { (function() while true do end end)() }", t.o.nset = 1;
  ck_assert_int_eq(lang_test_text(&t, HEAD GOOD), WEFT_EUSAGE);
  ck_assert_msg(strstr(t.e.text, "a function is of the file of the plan"), "%s",
                t.e.text);
  set[0] = "train={ steps = (function() while true do end end)() }";
  ck_assert_int_eq(lang_test_text(&t, HEAD GOOD), WEFT_EPLAN);
  ck_assert_msg(strstr(lang_test_report(&t, scratch_dir), "got string"), "%s", t.e.text);
}
END_TEST

START_TEST(wrong_set) {
  static const char *const wrong[] = {"mesh.tp", "=3", "mesh..tp=2", "mesh[x=1",
                                      "name.x=1"};
  for (int i = 0; i < LEN(wrong); i++) {
    t.o.set = &wrong[i];
    t.o.nset = 1;
    weft_status st = lang_test_text(&t, HEAD "return weft.plan { name = 'a' }");
    ck_assert_msg(st == WEFT_EUSAGE, "%s: %d", wrong[i], st);
    ck_assert(strstr(t.e.text, wrong[i]));
  }
  static const char *const set[] = {"mesh.tp=3", "batch.global=x"};
  t.o.set = set;
  t.o.nset = 2;
  expect_report(HEAD GOOD,
                "--set batch.global=x: error: plan.batch.global: expected a positive "
                "integer, got string \"x\"\n"
                "--set mesh.tp=3: error: plan.mesh.tp: 3 does not divide "
                "model.num_attention_heads = 8 (tp may be 1, 2, 4 or 8)\n2 errors\n");
}
END_TEST

Suite *lang_suite(void) {
  const struct {
    const char *name;
    const TTest *tests[24];
  } group[] = {
      {"reports",
       {bad_plans, example_plans, missing_file, one_line_plan, plain_table,
        fields_in_the_wrong_place, betas_are_below_1, betas_are_below_1_in_f32,
        styles_of_packed_modules, nesterov_wants_momentum_alone,
        weights_are_wanted_or_not, error_in_coroutine, error_values, shebang, bytecode,
        json_report}},
      {"values",
       {all_fields, data_for_validation, defaults, extended_tp_plan, set_and_define,
        values_of_set, options_of_names, values_with_functions_and_long_ones, wrong_set}},
  };
  Suite *s = suite_create("lang");
  for (int i = 0; i < LEN(group); i++) {
    TCase *c = tcase_create(group[i].name);
    tcase_set_timeout(c, 30); /* some plans are stopped by a limit only */
    tcase_add_checked_fixture(c, setup, teardown);
    for (int k = 0; group[i].tests[k]; k++) tcase_add_test(c, group[i].tests[k]);
    suite_add_tcase(s, c);
  }
  return s;
}
