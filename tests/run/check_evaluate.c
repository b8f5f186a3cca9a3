/* check_evaluate.c - the loss on other data between steps: that of the same parameters on
 * any mesh, and training goes on as if there had been none. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "tests/ranks/mpirun.h"
#include "tests/harness/process.h"
#include "tests/harness/run_bits.h"
#include "vm/base/rng.h"
#include "vm/run/run_int.h"
#include "vm/session/session.h"

enum { SAMPLES = 13 }; /* a batch of 8 and one that is not full */

/* So many samples of a toy's tokens in a file. */
static Data *some_samples(const Toy *t, int samples) {
  static uint16_t id[1 << 10];
  int64_t n = samples * t->plan.batch.seq + 1;
  ck_assert_int_le(n, LEN(id));
  Rng rng = rng_make(5, "samples");
  for (int64_t i = 0; i < n; i++)
    id[i] = (uint16_t)(rng_u32(&rng, (uint64_t)i) % (uint32_t)t->compiled->vocab);
  const char *file = scratch_put("val.bin", id, (size_t)n * sizeof *id);
  DataSpec spec = {
      .kind = DATA_TOKENS, .files = &file, .nfiles = 1, .dir = "/", .width = 2};
  Data *d;
  OK(data_open(NULL, &spec, t->plan.batch.seq, t->compiled->vocab, 0, &d, &trace_err));
  ck_assert_int_eq(data_windows(d), samples);
  return d;
}

static Data *samples_of(const Toy *t) { return some_samples(t, SAMPLES); }

static ToyOptions evaluating(ToyOptions o) {
  o.eval_every = 1;
  o.microbatches = 8 / (o.micro * o.dp * MAX(o.rounds, 1));
  return o;
}

/* The losses after each of STEPS steps; `x` keeps what training leaves. */
static void evaluations(const ToyOptions *o, double loss[STEPS], Toy *t, Trace *x) {
  Run *r;
  open_toy(t, o, 1, &r);
  Data *d = samples_of(t);
  for (int k = 0; k < STEPS; k++) {
    StepResult res;
    trace_step(r, t, k, &res);
    OK(run_evaluate(r, d, 16, &res, &trace_err));
    ck_assert_int_eq(res.eval_tokens, SAMPLES * o->seq);
    x->loss[k] = res.loss, x->norm[k] = res.grad_norm;
    loss[k] = res.eval_loss;
  }
  read_state(r, t, x);
  run_close(r);
  data_close(d);
}

/* ---- the loss ---- */

/* On one rank, by the loss that a step has before it changes anything. */
START_TEST(the_loss_of_the_samples) {
  ToyOptions o = evaluating(toy_default());
  Toy t;
  Run *r;
  StepResult res = {.step = 0}, step;
  open_toy(&t, &o, 1, &r);
  Data *d = samples_of(&t);
  OK(run_evaluate(r, d, 1, &res, &trace_err));
  ck_assert_int_eq(res.eval_tokens, 8 * o.seq);
  double first = res.eval_loss;
  OK(run_evaluate(r, d, 16, &res, &trace_err));
  ck_assert_int_eq(res.eval_tokens, SAMPLES * o.seq);
  OK(run_step(r, d, 0, &step, &trace_err));
  ck_assert_double_eq_tol(step.loss, first, 1e-6 * first);
  ck_assert_double_gt(fabs(res.eval_loss - first), 1e-4);
  run_close(r);
  data_close(d);
  toy_free(&t);
}
END_TEST

typedef struct Shape {
  int tp, pp, dp, replicate, rounds;
  bool sp, offload;
  int stage;
  Reshard reshard;

} Shape;

static const Shape shape[] = {
    {.tp = 2, .pp = 1, .dp = 1},
    {.tp = 2, .pp = 2, .dp = 1, .sp = true},
    {.tp = 2, .pp = 2, .dp = 2, .sp = true, .stage = 1},
    {.tp = 1, .pp = 4, .dp = 2, .stage = 2},
    {.tp = 1, .pp = 1, .dp = 4, .stage = 3, .reshard = RESHARD_YES},
    {.tp = 2, .pp = 1, .dp = 4, .replicate = 2, .stage = 3, .reshard = RESHARD_NO},
    {.tp = 1, .pp = 2, .dp = 4, .stage = 3, .reshard = RESHARD_YES, .rounds = 2},
    {.tp = 1, .pp = 2, .dp = 2, .stage = 3, .offload = true},
};

static ToyOptions toy_of(const Shape *s, int i) {
  ToyOptions o = toy_default();
  o.tp = s->tp, o.pp = s->pp, o.dp = s->dp, o.replicate = s->replicate, o.sp = s->sp;
  o.rounds = s->rounds, o.tied = i % 2, o.overlap = i % 3 == 0;
  o.strategy = (Strategy){.stage = s->stage,
                          .reshard = s->reshard,
                          .prefetch = {1, 2},
                          .defer_grad_sync = i % 2,
                          .offload_state = s->offload,
                          .overlap_param_gather = i % 2};
  return evaluating(o);
}

START_TEST(the_same_on_every_mesh) {
  ToyOptions o = toy_of(&shape[_i], _i), one = evaluating(toy_default());
  double many[STEPS], alone[STEPS];
  Toy a, b;
  Trace x, y;
  one.tied = o.tied;
  evaluations(&o, many, &a, &x);
  evaluations(&one, alone, &b, &y);
  for (int k = 0; k < STEPS; k++)
    ck_assert_msg(fabs(many[k] - alone[k]) <= 1e-6 * alone[k], "step %d: %.9g, not %.9g",
                  k, many[k], alone[k]);
  toy_free(&a);
  toy_free(&b);
}
END_TEST

/* An evaluation ends as a step does if experts have no room for all rows. */
START_TEST(room_for_rows) {
  ToyOptions o = toy_default();
  Toy t;
  Run *r;
  StepResult res = {0};
  o.dp = 4, o.ep = 4, o.experts = 8, o.topk = 2, o.bound = 1;
  o.dispatcher = _i ? MOE_ALLTOALL : MOE_ALLGATHER;
  o = evaluating(o);
  open_toy(&t, &o, 1, &r);
  Data *d = samples_of(&t);
  err_clear(&trace_err);
  ck_assert_int_eq(run_evaluate(r, d, 16, &res, &trace_err), WEFT_ERUN);
  ck_assert_msg(strstr(trace_err.text, ": layers.") &&
                    strstr(trace_err.text, "moe.max_tokens_factor = 1 allows; "),
                "%s", trace_err.text);
  err_clear(&trace_err);
  run_close(r);
  data_close(d);
  toy_free(&t);
}
END_TEST

/* ---- a batch that is not full ---- */

/* The loss of so many samples before any step. */
static double loss_of(const ToyOptions *o, int samples) {
  Toy t;
  Run *r;
  StepResult res = {0};
  open_toy(&t, o, 1, &r);
  Data *d = some_samples(&t, samples);
  OK(run_evaluate(r, d, samples, &res, &trace_err));
  ck_assert_int_eq(res.eval_tokens, samples * o->seq);
  run_close(r);
  data_close(d);
  toy_free(&t);
  return res.eval_loss;
}

static ToyOptions routed(int dp, int ep) {
  ToyOptions o = toy_default();
  o.layers = 2, o.experts = 8, o.topk = 1, o.seq = 64;
  o.dp = dp, o.ep = ep;
  return o;
}

/* The rows that are missing choose experts as text does: a token over and over would
 * want one expert, which has no room for all of a rank. */
START_TEST(smaller_batches_have_room) {
  ToyOptions o = routed(4, 4), one = evaluating(routed(1, 1));
  o.pp = _i / 2 + 1, o.bound = 3.25f;
  o.dispatcher = _i % 2 ? MOE_ALLTOALL : MOE_ALLGATHER;
  o = evaluating(o);
  one.microbatches = 1;
  double alone = loss_of(&one, SAMPLES);
  ck_assert_double_eq_tol(loss_of(&o, SAMPLES), alone, 1e-6 * alone);
}
END_TEST

/* Losses of routers are of the tokens that there are, too. */
START_TEST(smaller_batches_are_balanced_alike) {
  ToyOptions o = routed(1, 1);
  o.aux = 0.5f, o.micro = 4, o.microbatches = 1;
  o.eval_every = 1;
  ToyOptions one = o;
  one.micro = 1;
  double alone = loss_of(&one, 1);
  ck_assert_double_eq_tol(loss_of(&o, 1), alone, 1e-6 * alone);
}
END_TEST

static void is_copy(const Run *r, const Data *d, int64_t sample, int64_t row, bool real) {
  int64_t T = r->c->seq, ends = 0;
  int32_t *tokens = mem_new(NULL, (size_t)(2 * T) * sizeof *tokens), *labels = tokens + T;
  OK(data_sample(d, sample, tokens, labels, &trace_err));
  for (int64_t i = 0; i < T; i++) {
    bool end = labels[i] == LABEL_DOCUMENT_END;
    int32_t label = real || end ? labels[i] : LABEL_IGNORED;
    ck_assert_int_eq(r->tokens[row * T + i], tokens[i]);
    ck_assert_int_eq(r->labels[row * T + i], label);
    ends += end;
  }
  ck_assert_int_gt(ends, 0);
  mem_free(NULL, tokens, (size_t)(2 * T) * sizeof *tokens);
}

/* They are samples of the batch again, with the same documents, whose labels do not
 * count. */
START_TEST(missing_rows_are_samples) {
  enum { DOCUMENTS = 53, LONG = 3 };
  static uint16_t id[DOCUMENTS * LONG];
  ToyOptions o = toy_default();
  Toy t;
  Run *r;
  StepResult res = {0};
  o.packed = true;
  o = evaluating(o);
  open_toy(&t, &o, 1, &r);
  t.plan.packed.size = o.seq, t.plan.packed.separated = true;
  for (int i = 0; i < LEN(id); i++)
    id[i] = (uint16_t)((i + 1) % LONG ? 4 + i % 40 : t.plan.packed.separator);
  const char *file = scratch_put("val.bin", id, sizeof id);
  DataSpec spec = {.kind = DATA_TOKENS,
                   .files = &file,
                   .nfiles = 1,
                   .dir = "/",
                   .width = 2,
                   .packed = t.plan.packed};
  Data *d;
  OK(data_open(NULL, &spec, o.seq, t.compiled->vocab, 0, &d, &trace_err));
  int64_t n = data_windows(d), rows = run_rows(r), rest = n % rows;
  ck_assert_int_gt(n, rows);
  ck_assert_int_gt(rest, 1);
  ck_assert_int_lt(2 * rest, rows);
  OK(run_evaluate(r, d, n, &res, &trace_err));
  for (int64_t i = 0; i < rows; i++) is_copy(r, d, n - rest + i % rest, i, i < rest);
  run_close(r);
  data_close(d);
  toy_free(&t);
}
END_TEST

/* ---- training beside it ---- */

START_TEST(training_keeps_every_bit) {
  ToyOptions o = toy_of(&shape[_i], _i), none = o;
  double loss[STEPS];
  Toy a, b;
  Trace x, y;
  o.post_validation = none.post_validation = _i % 2 && !shape[_i].offload;
  none.eval_every = 0;
  evaluations(&o, loss, &a, &x);
  trace(&b, &none, 1, &y);
  same_bits(&x, &y);
  toy_free(&a);
  toy_free(&b);
}
END_TEST

/* Nothing that lies in a region is written, gradients too. */
START_TEST(regions_stay_as_they_are) {
  ToyOptions o = toy_of(&shape[_i], _i);
  Toy t;
  Run *r;
  StepResult res;
  open_toy(&t, &o, 1, &r);
  Data *d = samples_of(&t);
  trace_step(r, &t, 0, &res);
  char *was[16] = {NULL};
  for (int pass = 0; pass < 2; pass++) {
    for (int w = 0; w < r->nworker; w++) {
      const Program *p = &t.compiled->prog[mesh_coord(&t.mesh, w, AXIS_PP)];
      char *arena = rank_arena(r->worker[w].r), *at;
      if (!was[w]) was[w] = arena_copy(t.arena, arena, p->arena_bytes);
      for (int i = 0; i < p->regions.nregion; i++) {
        const Region *g = &p->regions.region[i];
        if (on_host(g->off) || g->kind == REGION_GATHERED) continue;
        at = was[w] + g->off;
        ck_assert_msg(memcmp(at, arena + g->off, region_bytes(g)) == 0,
                      "rank %d, %s has changed", w, region_class[g->kind]);
      }
    }
    if (pass == 0) OK(run_evaluate(r, d, 16, &res, &trace_err));
  }
  run_close(r);
  data_close(d);
  toy_free(&t);
}
END_TEST

/* The arena is the larger of both programs', and classes add up to it. */
START_TEST(bytes_of_an_evaluation) {
  for (int i = 0; i < LEN(shape); i++) {
    ToyOptions o = toy_of(&shape[i], i), none = o;
    Toy a, b;
    none.eval_every = 0;
    ck_assert_int_eq(toy_compile(&a, &o, NULL), WEFT_OK);
    ck_assert_int_eq(toy_compile(&b, &none, NULL), WEFT_OK);
    for (int pp = 0; pp < o.pp; pp++) {
      const Program *p = &a.compiled->prog[pp], *e = &a.compiled->eval->prog[pp];
      uint64_t sum = 0;
      for (int k = 0; k < p->nmem; k++) sum += p->mem[k].bytes;
      ck_assert_uint_eq(sum, p->arena_bytes);
      ck_assert_uint_eq(e->arena_bytes, p->arena_bytes);
      ck_assert_uint_ge(p->arena_bytes, b.compiled->prog[pp].arena_bytes);
      ck_assert_int_gt(e->nbody, 0);
      for (int k = 0; k < e->nbody; k++) ck_assert_int_eq(e->body[k].phase, PH_F);
    }
    ck_assert_int_eq(a.compiled->eval->proof.communicators,
                     a.compiled->proof.communicators);
    toy_free(&a);
    toy_free(&b);
  }
}
END_TEST

/* ---- the program ---- */

#define RUN                                                                              \
  "$weft run " WEFT_SOURCE_DIR "/plans/quickstart.lua --threads 1 --steps 5 "            \
  "--set train.eval_every=2 --set train.eval_batches=2 --set data.val_fraction=0.05 "

static int evals_in(const char *log, double loss[8]) {
  char *text = arena_str(scratch_arena, scratch_log(scratch_path(log)));
  int n = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *j = json_loads(line, 0, NULL), *x = json_object_get(j, "eval_loss");
    int step = (int)json_integer_value(json_object_get(j, "step"));
    ck_assert_msg((x != NULL) == (step == 1 || step == 3 || step == 4), "%s", line);
    if (x) loss[n++] = json_number_value(x);
    json_decref(j);
  }
  return n;
}

/* Told of in line, log and event file; the same once more, bit by bit. */
START_TEST(as_a_user_sees_it) {
  Outcome o = process_run(60, RUN "--log a --tensorboard tb");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(strstr(o.out, "\nstep      1/5  evaluation loss   4.99") &&
                    strstr(o.out, "\nstep      4/5  evaluation loss"),
                "%s", o.out);
  double a[8], b[8];
  ck_assert_int_eq(evals_in("a", a), 3);
  o = process_run(60, RUN "--log b --quiet --json");
  json_t *j = json_loads(o.out, 0, NULL);
  ck_assert_int_eq(evals_in("b", b), 3);
  ck_assert(memcmp(a, b, 3 * sizeof *a) == 0);
  json_t *last = json_object_get(json_object_get(j, "result"), "eval_loss");
  ck_assert_double_eq(json_number_value(last), a[2]);
  json_decref(j);
}
END_TEST

START_TEST(under_mpirun) {
  if (!mpirun_present()) return;
  Outcome o = process_run(60, RUN "--log a --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(120, MPIRUN " " RUN "--log b --quiet", 8);
  ck_assert_msg(o.code == 0, "%s", o.err);
  double a[8], b[8];
  ck_assert_int_eq(evals_in("a", a), 3);
  ck_assert_int_eq(evals_in("b", b), 3);
  for (int i = 0; i < 3; i++) ck_assert_double_eq_tol(a[i], b[i], 1e-6 * a[i]);
}
END_TEST

START_TEST(needs_data_for_it) {
  Outcome o = process_run(30, "$weft check " WEFT_SOURCE_DIR
                              "/plans/quickstart.lua --set train.eval_every=2");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, "train.eval_every: there is no validation data"), "%s",
                o.err);
}
END_TEST

/* ---- told before the first step ---- */

#define TOLD                                                                             \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"                 \
  "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"          \
  "  vocab_size = 128 }, batch = { global = 4, micro = 2, seq = 8 },\n"                  \
  "  train = { steps = 2, eval_every = 2 },\n"

#define PAIR(val)                                                                        \
  TOLD "loss = 'dpo', packed = { eot = 10, size = 8, alone = true },\n"                  \
       "data = weft.text { 'pairs.txt', val = " val " } }\n"
#define SEQUENCES "loss = { 'cross_entropy', per = 'sequences' },\n"

static const struct {
  const char *plan, *says; /* NULL: the run takes its steps */
} told[] = {
    {TOLD SEQUENCES "data = weft.text { 'train.txt',\nval_fraction = 0.05 } }\n",
     "plan.lua:8: error: plan.data.val_fraction: the validation data have 2 sequences, a "
     "step 4: "},
    {TOLD "data = weft.text { 'train.txt', val_fraction = 0.05 } }\n", NULL},
    {PAIR("weft.text { 'two.txt' }"), "plan.lua:7: error: plan.data.val: the validation "
                                      "data have 2 sequences, a step 4: "},
    {PAIR("weft.text { 'pairs.txt' }"), NULL},
    {TOLD SEQUENCES "data = weft.text { 'train.txt', val = weft.text {\n"
                    "  files = { 'few.txt', 'train.txt' }, weights = { 1, 1 } } } }\n",
     "plan.data.val: the validation data have 2 sequences before a stream of the blend "
     "begins anew, a step 4: "},
    {TOLD "packed = { eot = 10, size = 8 },\n"
          "data = weft.text { 'train.txt', val = weft.text { 'empty.txt' } } }\n",
     "plan.lua:7: error: plan.data.val: an evaluation has no label tokens: every label "
     "of "
     "its 5 sequences is ignored (-100)"},
};

static void put_told(void) {
  Text t = {0};
  for (int i = 0; i < 60; i++) text_printf(&t, "line%03d\n", i);
  scratch_put("train.txt", t.s, t.n);
  scratch_put("pairs.txt", t.s, 8 * 6);
  scratch_put("two.txt", t.s, 8 * 2);
  scratch_put("few.txt", t.s, 8 + 1);
  memset(t.s, '\n', 8 * 5); /* documents of one token, which has no other to predict */
  scratch_put("empty.txt", t.s, 8 * 5);
  text_free(&t);
}

/* What an evaluation cannot be made of would end the run after its first steps, which
 * would be lost. */
START_TEST(told_before_the_first_step) {
  put_told();
  scratch_put("plan.lua", told[_i].plan, strlen(told[_i].plan));
  Outcome o = process_run(60, "$weft check plan.lua");
  bool right = told[_i].says ? o.code == 1 && strstr(o.err, told[_i].says) : o.code == 0;
  ck_assert_msg(right, "%d: %s%s", o.code, o.out, o.err);
  o = process_run(60, "$weft run plan.lua --threads 1");
  right = told[_i].says ? o.code == 1 && strstr(o.err, told[_i].says) && !*o.out
                        : o.code == 0 && strstr(o.out, "evaluation loss");
  ck_assert_msg(right, "%d: %s%s", o.code, o.out, o.err);
  o = process_run(60, "$weft check plan.lua --set train.eval_every=0");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}
END_TEST

/* Weights that f16 does not have: the loss is none, and a script must see that. */
START_TEST(a_loss_that_is_none_is_an_error) {
  static const char plan[] = WEFT_SOURCE_DIR "/plans/quickstart.lua --threads 1";
  static const char args[] = "--weights out --batches 1 --set precision.param_dtype=f16";
  Outcome o = process_run(60,
                          "$weft run %s --steps 1 --export out --quiet "
                          "--set model.initializer_range=9e4",
                          plan);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft eval %s %s", plan, args);
  ck_assert_msg(o.code == 1 && strstr(o.out, "loss ") &&
                    strstr(o.err, "the loss is not finite"),
                "%d: %s%s", o.code, o.out, o.err);
  o = process_run(60, "$weft eval %s %s --json", plan, args);
  ck_assert_msg(o.code == 1 && strstr(o.out, "the loss is not finite"), "%d: %s%s",
                o.code, o.out, o.err);
}
END_TEST

Suite *evaluate_suite(void) {
  Suite *s = suite_create("evaluate");
  TCase *tc = tcase_create("evaluate");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_set_timeout(tc, 240);
  tcase_add_test(tc, the_loss_of_the_samples);
  tcase_add_loop_test(tc, the_same_on_every_mesh, 0, LEN(shape));
  tcase_add_loop_test(tc, training_keeps_every_bit, 0, LEN(shape));
  tcase_add_loop_test(tc, regions_stay_as_they_are, 0, LEN(shape));
  tcase_add_loop_test(tc, room_for_rows, 0, 2);
  tcase_add_loop_test(tc, smaller_batches_have_room, 0, 4);
  tcase_add_test(tc, smaller_batches_are_balanced_alike);
  tcase_add_test(tc, missing_rows_are_samples);
  tcase_add_test(tc, bytes_of_an_evaluation);
  tcase_add_test(tc, as_a_user_sees_it);
  tcase_add_test(tc, under_mpirun);
  tcase_add_test(tc, needs_data_for_it);
  tcase_add_loop_test(tc, told_before_the_first_step, 0, LEN(told));
  tcase_add_test(tc, a_loss_that_is_none_is_an_error);
  suite_add_tcase(s, tc);
  return s;
}
