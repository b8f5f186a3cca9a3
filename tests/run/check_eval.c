/* check_eval.c - weft eval: the loss that a run has measured, from its checkpoint, its
 * export and its adapter, on other ranks; and what is in the way of it. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/process.h"
#include "tests/harness/run_log.h"
#include "tests/harness/scratch.h"
#include "tests/ranks/mpirun.h"

enum { STEPS = 2 };

#define PLAN_OF(MODEL, DIR)                                                              \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { " MODEL ", hidden_size = 16,\n"               \
  "    num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 16,\n"        \
  "    vocab_size = 256, initializer_range = 0.1 },\n"                                   \
  "  batch = { global = 8, micro = 1, seq = 16 },\n"                                     \
  "  optimizer = weft.adamw { lr = 1e-2 }, data = weft.text { 'a.txt', 'b.txt',\n"       \
  "    val_fraction = 0.25 },\n"                                                         \
  "  train = { steps = 2, eval_every = 2, eval_batches = 1000 },\n"                      \
  "  checkpoint = { dir = '" DIR "' } }\n"
#define PLAN PLAN_OF("'llama'", "ck")
#define MOE  PLAN_OF("'mixtral', num_key_value_heads = 4, num_local_experts = 4", "moe")

static double loss; /* of the run, after its steps */
static int64_t tokens;

static void put_text(const char *name, int n) {
  Text t = {0};
  for (int i = 0; i < n; i++)
    text_printf(&t, "line %d of %s: %d times\n", i, name, i * i % 97);
  scratch_put(name, t.s, t.n);
  text_free(&t);
}

/* Trains, and keeps what the evaluation at the end has said. */
static void train(const char *log, const char *more) {
  json_t *step[STEPS];
  ck_assert_int_eq(run_logged("plan.lua", log, more, step, STEPS), STEPS);
  loss = json_real_value(json_object_get(step[1], "eval_loss"));
  tokens = json_integer_value(json_object_get(step[1], "eval_tokens"));
  for (int k = 0; k < STEPS; k++) json_decref(step[k]);
  ck_assert(loss > 0);
  ck_assert_int_gt(tokens, 0);
}

static void setup(void) {
  scratch_setup();
  put_text("a.txt", 100);
  put_text("b.txt", 30);
  scratch_put("plan.lua", PLAN, strlen(PLAN));
}

static json_t *result(const Outcome *o) {
  ck_assert_msg(o->code == 0, "%d: %s%s", o->code, o->out, o->err);
  json_t *j = json_loads(o->out, 0, NULL), *r = json_incref(json_object_get(j, "result"));
  json_decref(j);
  ck_assert_ptr_nonnull(r);
  return r;
}

#define EVAL "$weft eval plan.lua --json --threads 1 "

static void same_loss(const char *more) {
  Outcome o = process_run(120, EVAL "%s", more);
  json_t *r = result(&o);
  ck_assert_double_eq_tol(json_real_value(json_object_get(r, "loss")), loss, 2e-6 * loss);
  ck_assert_double_eq_tol(json_real_value(json_object_get(r, "perplexity")), exp(loss),
                          1e-5 * exp(loss));
  ck_assert_int_eq(json_integer_value(json_object_get(r, "tokens")), tokens);
  json_decref(r);
}

/* From a checkpoint and from an export, on meshes that neither is from. */
static const char *const ways[] = {
    "--ckpt ck",
    "--weights out",
    "--ckpt ck --set mesh={tp=2,pp=2}",
    "--ckpt ck --set mesh={dp=4} --set strategy=fsdp2",
    "--weights out --set mesh={cp=2,pp=2} --set schedule=zero_bubble",
    "--ckpt ck --set optimizer.post_validation=true --set mesh={dp=2}",
    "--ckpt ck --set mesh={dp=2} --procs 2",
    "--ckpt ck --set train.eval_every=0 --set 'freeze={\"embed_tokens\"}'",
};

START_TEST(what_the_run_has_measured) {
  train("log", "--export out");
  for (int i = 0; i < LEN(ways); i++) same_loss(ways[i]);
}
END_TEST

START_TEST(of_an_adapter) {
  train("log", "--export out");
  double base = loss;
  train("adapter.log",
        "--set 'adapter={\"lora\",rank=2}' --set checkpoint.dir=ad --set train.seed=2");
  ck_assert(fabs(loss - base) > 1e-3 * base);
  same_loss("--set 'adapter={\"lora\",rank=2}' --ckpt ad --set mesh={tp=2,dp=2}");
}
END_TEST

START_TEST(under_mpirun) {
  if (!mpirun_present()) return;
  train("log", "");
  Outcome o = process_run(120, MPIRUN " " EVAL "--ckpt ck --set mesh={tp=2}", 2);
  json_t *r = result(&o);
  ck_assert_double_eq_tol(json_real_value(json_object_get(r, "loss")), loss, 2e-6 * loss);
  json_decref(r);
}
END_TEST

/* Fewer batches; and all data of a plan that has none for validation. */
START_TEST(of_which_data) {
  train("log", "");
  Outcome o = process_run(60, EVAL "--ckpt ck --batches 2");
  json_t *r = result(&o);
  ck_assert_int_eq(json_integer_value(json_object_get(r, "batches")), 2);
  ck_assert_int_eq(json_integer_value(json_object_get(r, "tokens")), 2 * 8 * 16);
  json_decref(r);
  o = process_run(60,
                  EVAL "--ckpt ck --set data.val_fraction=0 --set train.eval_every=0");
  r = result(&o);
  ck_assert_int_gt(json_integer_value(json_object_get(r, "tokens")), 3 * tokens);
  json_decref(r);
  /* Sequences alone count in whole steps: what is beyond is told, and no batch of it. */
  o = process_run(60, EVAL "--ckpt ck --set batch.global=7 --set "
                           "'loss={\"cross_entropy\", per = \"sequences\"}'");
  r = result(&o);
  long long whole = tokens / 16 / 7, rest = tokens / 16 % 7;
  ck_assert_int_gt(rest, 0);
  ck_assert_int_eq(json_integer_value(json_object_get(r, "batches")), whole);
  ck_assert_int_eq(json_integer_value(json_object_get(r, "tokens")), whole * 7 * 16);
  const char *told = arena_printf(scratch_arena, "%lld of %lld sequences are left out",
                                  rest, (long long)tokens / 16);
  ck_assert_msg(strstr(o.err, told) != NULL, "%s", o.err);
  /* Which of a folder's checkpoints it was. */
  const char *of = json_string_value(json_object_get(r, "checkpoint"));
  ck_assert_msg(of && strncmp(of, "ck/step-000", 11) == 0, "%s", of ? of : "none");
  json_decref(r);
  o = process_run(60, "$weft eval plan.lua --ckpt ck");
  ck_assert_msg(o.code == 0 && strncmp(o.out, "loss ", 5) == 0 &&
                    strstr(o.out, "  perplexity ") &&
                    strstr(o.out, " for validation; ck/step-"),
                "%s%s", o.out, o.err);
}
END_TEST

static double member(const char *plan, const char *more, const char *name) {
  Outcome o = process_run(60, "$weft eval %s --json --threads 1 %s", plan, more);
  json_t *r = result(&o);
  double x = json_real_value(json_object_get(r, name));
  json_decref(r);
  return x;
}

/* What routers and the z-loss add to the loss is in no perplexity. */
START_TEST(perplexity_is_of_cross_entropy) {
  train("log", "");
  const char *z = "--ckpt ck --set 'loss={\"cross_entropy\",z_loss=0.1}'";
  ck_assert_double_gt(member("plan.lua", z, "loss"), loss + 1);
  ck_assert_double_eq_tol(member("plan.lua", z, "cross_entropy"), loss, 2e-6 * loss);
  ck_assert_double_eq_tol(member("plan.lua", z, "perplexity"), exp(loss),
                          1e-5 * exp(loss));
  scratch_put("moe.lua", MOE, strlen(MOE));
  ck_assert_int_eq(process_run(60, "$weft run moe.lua --threads 1").code, 0);
  double alone = member("moe.lua", "--ckpt moe", "loss");
  const char *more = "--ckpt moe --set moe.aux_loss_coef=0.5 --set mesh={dp=2,pp=2}";
  ck_assert_double_gt(member("moe.lua", more, "loss"), alone + 1);
  ck_assert_double_eq_tol(member("moe.lua", more, "perplexity"), exp(alone),
                          1e-5 * exp(alone));
  Outcome o = process_run(60, "$weft eval moe.lua %s", more);
  ck_assert_msg(strstr(o.out, "  cross entropy ") != NULL, "%s%s", o.out, o.err);
}
END_TEST

/* All of another file is measured, whatever says when training evaluates. */
START_TEST(of_another_file) {
  train("log", "");
  put_text("c.txt", 20);
  static const char more[] =
      "--ckpt ck --set 'data=weft.text \"c.txt\"' --set train.early_stopping.patience=2 "
      "--set checkpoint.keep_best=true";
  Outcome o = process_run(120, EVAL "%s", more);
  json_t *r = result(&o);
  const char *data = json_string_value(json_object_get(r, "data"));
  ck_assert_msg(strncmp(data, "1 file, ", 8) == 0 && !strchr(data, '%'), "%s", data);
  ck_assert_int_gt(json_integer_value(json_object_get(r, "tokens")), 380);
  json_decref(r);
  o = process_run(120, "$weft run plan.lua %s", strchr(more + 2, '-'));
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, "there is no validation data"), "%s", o.err);
}
END_TEST

/* Of a blend of more streams than losses are told apart of, all count. */
START_TEST(many_streams) {
  enum { STREAMS = SOURCES_MOST + 6 };
  Text t = {0};
  train("log", "");
  for (int i = 0; i < STREAMS; i++)
    put_text(arena_printf(scratch_arena, "s%d.txt", i), 4 + i % 7);
  text_add(&t,
           "--ckpt ck --set train.eval_every=0 --batches 30 --set 'data=weft.text { ");
  for (int k = 0; k < 2; k++) {
    text_add(&t, k ? "}, weights = {" : "files = {");
    for (int i = 0; i < STREAMS; i++)
      k ? text_printf(&t, "%d,", i + 1) : text_printf(&t, "\"s%d.txt\",", i);
  }
  text_add(&t, "} }'");
  double mean = member("plan.lua", t.s, "loss");
  ck_assert_double_gt(mean, 0);
  ck_assert_double_eq_tol(member("plan.lua", t.s, "cross_entropy"), mean, 2e-6 * mean);
  Outcome o = process_run(60, "$weft eval plan.lua %s", t.s);
  ck_assert_msg(o.code == 0 && !strchr(strchr(o.out, '\n') + 1, '\n'), "%s%s", o.out,
                o.err);
  text_free(&t);
}
END_TEST

/* Losses of sources are one sum, wherever the rows of each cross entropy are. */
START_TEST(two_cross_entropies) {
  ck_assert_int_eq(
      process_run(10, "cp " WEFT_SOURCE_DIR "/tests/run/two_losses.lua two.lua").code, 0);
  Outcome o = process_run(60, "$weft run two.lua --threads 1 --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  double alone = member("two.lua", "--ckpt two --set mesh.tp=1", "cross_entropy");
  ck_assert_double_gt(alone, 0);
  for (int order = 1; order <= 2; order++)
    ck_assert_double_eq_tol(
        member("two.lua", arena_printf(scratch_arena, "--ckpt two -D order=%d", order),
               "cross_entropy"),
        alone, 2e-6 * alone);
}
END_TEST

/* Data without an end have as many batches as --batches says; of others tokens that fill
 * no sequence are told. */
START_TEST(data_without_an_end_and_the_end_of_data) {
  train("log", "");
  static const struct {
    const char *more;
    int64_t batches;
  } endless[] = {{"--batches 20", 20}, {"--set train.eval_batches=3", 3}};
  for (int i = 0; i < LEN(endless); i++) {
    Outcome o = process_run(60, EVAL "--ckpt ck --set 'data=weft.synthetic {}' %s",
                            endless[i].more);
    json_t *r = result(&o);
    int64_t n = endless[i].batches;
    ck_assert_int_eq(json_integer_value(json_object_get(r, "batches")), n);
    ck_assert_int_eq(json_integer_value(json_object_get(r, "tokens")), n * 8 * 16);
    json_decref(r);
  }
  static const char *const bytes[] = {"0123456789", "01234"};
  for (int i = 0; i < 2; i++) {
    Text t = {0};
    for (int k = 0; k < 30; k++) text_add(&t, "0123456789abcdef");
    text_add(&t, bytes[i]);
    text_add(&t, bytes[i]);
    scratch_put("c.txt", t.s, t.n);
    Outcome o = process_run(60, EVAL "--ckpt ck --set 'data=weft.text \"c.txt\"'");
    json_t *r = result(&o);
    ck_assert_int_eq(json_integer_value(json_object_get(r, "tokens")),
                     ((int64_t)t.n - 1) / 16 * 16);
    const char *told = arena_printf(scratch_arena, "%d of %d tokens are left out",
                                    (int)t.n % 16, (int)t.n);
    ck_assert_msg(!strstr(o.err, told) == ((int)t.n % 16 <= (int)t.n / 100), "%s", o.err);
    json_decref(r);
    text_free(&t);
  }
}
END_TEST

/* A model whose loss is made of other ops tells no cross entropy. */
START_TEST(no_perplexity_of_other_losses) {
  static const char own[] =
      "local weft = require 'weft'\n"
      "local function model(g, c)\n"
      "  local size = { { 'vocab', 256 }, { 'hidden', 16 } }\n"
      "  return g:unit('all', function()\n"
      "    local x = g:embedding(g:tokens(), g:param('w.weight', size))\n"
      "    x = g:linear(x, g:param('h.weight', size))\n"
      "    return g:sum_all(g:token_losses(x, g:labels()))\n  end)\n"
      "end\n"
      "return weft.plan { model = weft.model { model, vocab_size = 256 }, tp_plan = {},\n"
      "  batch = { global = 8, seq = 16 }, data = weft.text 'a.txt',\n"
      "  train = { steps = 1 }, checkpoint = { dir = 'own' } }\n";
  scratch_put("own.lua", own, sizeof own - 1);
  Outcome o = process_run(60, "$weft run own.lua --threads 1 --quiet");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = process_run(60, "$weft eval own.lua --ckpt own");
  ck_assert_msg(o.code == 0 && !strstr(o.out, "perplexity") && !strstr(o.out, "entropy"),
                "%s%s", o.out, o.err);
}
END_TEST

/* Nothing learns: parameters are all the state there is. */
START_TEST(only_parameters_are_kept) {
  Job j;
  Arena *a = arena_new(NULL);
  ck_assert_int_eq(job_load(&j, a, &(LangOptions){0}, scratch_path("plan.lua")), WEFT_OK);
  j.evaluates = true;
  ck_assert_int_eq(job_mesh(&j, 0), WEFT_OK);
  ck_assert_msg(job_compile(&j) == WEFT_OK, "%s", j.e.text);
  const Regions *s = &j.compiled->prog[0].regions;
  for (int i = 0; i < s->nregion; i++)
    ck_assert_msg(s->region[i].kind == REGION_WORK || s->region[i].whole == 0,
                  "region of kind %d", s->region[i].kind);
  ck_assert_ptr_nonnull(j.compiled->eval);
  job_free(&j);
  arena_free(a);
}
END_TEST

/* It is of no step of a run: errors name none. */
START_TEST(errors_name_no_step) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'mixtral', hidden_size = 16,\n"
      "    num_hidden_layers = 1, num_attention_heads = 4, num_key_value_heads = 4,\n"
      "    intermediate_size = 16, vocab_size = 256, num_local_experts = 4 },\n"
      "  mesh = { dp = 4, ep = 4 }, moe = { max_tokens_factor = 1 },\n"
      "  batch = { global = 4, seq = 16 }, data = weft.text { 'a.txt' },\n"
      "  train = { steps = 1 }, checkpoint = { dir = 'moe' } }\n";
  scratch_put("moe.lua", plan, sizeof plan - 1);
  Outcome o = process_run(60, "$weft run moe.lua --threads 1 --steps 1 "
                              "--set moe.max_tokens_factor=4");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = process_run(60, "$weft eval moe.lua --ckpt moe --threads 1");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, "weft: the evaluation: rank ") && !strstr(o.err, "step"),
                "%s", o.err);
}
END_TEST

START_TEST(bad_input) {
  static const struct {
    const char *args, *says;
  } rows[] = {
      {"", "the plan names no weights: give --ckpt DIR or --weights DIR"},
      {"--ckpt a --weights b", "give --ckpt or --weights, not both"},
      {"--ckpt nowhere", "nowhere: error: there is no checkpoint"},
      {"--weights nowhere", "nowhere"},
      {"--ckpt ck --set model.hidden_size=32", "is of another model"},
      {"--ckpt ck --batches 0", "--batches"},
      {"--weights out --set data.val_fraction=0 --set train.eval_every=0 --set loss=dpo "
       "--set batch.micro=2 --set 'packed={size=64,alone=true,eot=10}' --set "
       "batch.seq=64",
       "a copy of what it began as, which a folder of weights does not have: give "
       "--ckpt"},
  };
  train("log", "");
  for (int i = 0; i < LEN(rows); i++) {
    Outcome o = process_run(60, "$weft eval plan.lua %s", rows[i].args);
    ck_assert_int_ne(o.code, 0);
    ck_assert_msg(strstr(o.err, rows[i].says) != NULL, "%s: %s", rows[i].args, o.err);
    ck_assert_str_eq(o.out, "");
  }
}
END_TEST

Suite *eval_suite(void) {
  Suite *s = suite_create("eval");
  TCase *tc = tcase_create("eval");
  tcase_add_checked_fixture(tc, setup, scratch_teardown);
  tcase_set_timeout(tc, 240);
  tcase_add_test(tc, what_the_run_has_measured);
  tcase_add_test(tc, of_an_adapter);
  tcase_add_test(tc, under_mpirun);
  tcase_add_test(tc, of_which_data);
  tcase_add_test(tc, perplexity_is_of_cross_entropy);
  tcase_add_test(tc, many_streams);
  tcase_add_test(tc, two_cross_entropies);
  tcase_add_test(tc, data_without_an_end_and_the_end_of_data);
  tcase_add_test(tc, of_another_file);
  tcase_add_test(tc, no_perplexity_of_other_losses);
  tcase_add_test(tc, only_parameters_are_kept);
  tcase_add_test(tc, errors_name_no_step);
  tcase_add_test(tc, bad_input);
  suite_add_tcase(s, tc);
  return s;
}
