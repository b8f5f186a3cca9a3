/* check_verify.c - verify() must be able to fail: each fault is planted into the compiled
 * programs of a toy and must be noticed, with the name of a tensor that shows it. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/one_rank_pair.h"
#include "vm/session/verify_int.h"

static Pair pair;

static void teardown(void) { pair_free(&pair); }

static void compile_pair(ToyOptions o) {
  o.layers = 2;
  pair_compile(&pair, &o);
}

/* ---- planting ---- */

typedef struct Sought {
  int code, op;     /* op: of a KERNEL or CollKind of a COLL; -1 any */
  const char *name; /* what it is for; NULL any */
} Sought;

static bool found(const Program *p, const Instr *in, const Sought *s) {
  if (in->code != s->code) return false;
  if (s->op >= 0 && s->op != (in->code == I_COLL ? in->coll : in->op)) return false;
  return !s->name || strcmp(p->what[in->what], s->name) == 0;
}

/* Calls `fault` on every instruction that is sought, in all programs of `c`. */
static void plant_into(Compiled *c, Sought s, void (*fault)(Program *p, Instr *in)) {
  int n = 0;
  for (int i = 0; i < c->mesh.size[AXIS_PP]; i++)
    for (uint32_t k = 0; k < c->prog[i].ncode; k++)
      if (found(&c->prog[i], &c->prog[i].code[k], &s))
        fault(&c->prog[i], &c->prog[i].code[k]), n++;
  ck_assert_msg(n > 0, "the program has nothing to spoil");
}

static void plant(Sought s, void (*fault)(Program *p, Instr *in)) {
  plant_into(pair.many.compiled, s, fault);
}

/* A collective of no elements moves nothing; a sum over no rows is 0. */
static void drop(Program *p, Instr *in) {
  for (int k = 0; k < 2; k++) p->operand[in->operand + (uint32_t)k].dim[0] = 0;
}

static void take_max(Program *p, Instr *in) { in->red = RED_MAX; }

static void forget_index(Program *p, Instr *in) { p->attr[in->attr].cut = 0; }

static void wrong_scale(Program *p, Instr *in) { p->attr[in->attr].scale *= 1.001f; }

static void no_eps(Program *p, Instr *in) { p->attr[in->attr].eps = 0; }

static void no_decay(Program *p, Instr *in) { p->attr[in->attr].weight_decay = 0; }

static void slow_moments(Program *p, Instr *in) { p->attr[in->attr].beta2 = 0.9; }

static void no_clip(Program *p, Instr *in) { p->attr[in->attr].clip = 0; }

/* The gradients of the last step stay in. */
static void never_fresh(Program *p, Instr *in) { p->call[in->call].fresh = 0; }

static void expect(const char *text, int steps) {
  pair_verify(&pair, steps, 1e-5);
  ck_assert_msg(!pair.report.ok, "the fault was not noticed");
  ck_assert_msg(strstr(pair.report.first_bad, text) != NULL, "\"%s\" is not in: %s", text,
                pair.report.first_bad);
}

static ToyOptions mesh(int tp, int pp, int dp) {
  ToyOptions o = toy_default();
  o.tp = tp, o.pp = pp, o.dp = dp;
  return o;
}

/* ---- what must pass ---- */

START_TEST(a_sound_program_passes) {
  ToyOptions o = mesh(2, 2, 2);
  o.bias = o.tied = true;
  o.microbatches = 3;
  compile_pair(o);
  pair_verify(&pair, 3, 1e-5);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
  ck_assert_int_eq(pair.report.steps, 3);
  ck_assert(pair.report.grad > 0 && pair.report.grad < 1e-5);
  ck_assert(pair.report.worst[0] && !pair.report.first_bad[0]);
}
END_TEST

/* Of 16 bits, with master weights, against one rank in f32. */
START_TEST(half_types_pass) {
  ToyOptions o = mesh(2, 2, 2), one;
  o.dtype = _i % 2 ? DT_F16 : DT_BF16;
  o.layers = 2, o.sp = true, o.post_validation = _i / 2;
  compile_pair(o);
  one = pair_alone(&o);
  one.dtype = DT_F32;
  toy_free(&pair.one);
  ck_assert_int_eq(toy_compile(&pair.one, &one, NULL), WEFT_OK);
  pair_verify(&pair, 3, _i % 2 ? 5e-3 : 4e-2);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
  ck_assert_double_gt(pair.report.grad, 1e-5);
}
END_TEST

/* Moments of 16 bits, rounded by chance, on replicas and in shards. */
START_TEST(half_moments_pass) {
  ToyOptions o = mesh(2, 1, 2), one;
  o.layers = 2, o.state = DT_BF16, o.stochastic = true, o.strategy.stage = _i;
  o.tied = true;
  compile_pair(o);
  one = pair_alone(&o);
  one.state = DT_F32, one.strategy.stage = 0;
  toy_free(&pair.one);
  ck_assert_int_eq(toy_compile(&pair.one, &one, NULL), WEFT_OK);
  pair_verify(&pair, 3, 2e-2);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
  ck_assert_double_gt(pair.report.grad, 1e-4);
}
END_TEST

/* What a step takes is computed again from gradients and states, for each in its way;
 * a rate of its own explains nothing. */
START_TEST(every_optimizer_passes) {
  ToyOptions o = mesh(2, 1, 2);
  o.optimizer = _i, o.microbatches = 2, o.clip = 0.5;
  compile_pair(o);
  pair.many.plan.opt.lr.max = pair.one.plan.opt.lr.max = 0.1;
  pair_verify(&pair, 3, 1e-5);
  ck_assert_msg(pair.report.ok, "%s: %s", optimizer_info[_i].name, pair.report.first_bad);
  pair.many.plan.opt.lr.max *= 1.01;
  pair_verify(&pair, 1, 1e-5);
  ck_assert_msg(!pair.report.ok, "%s", optimizer_info[_i].name);
  ck_assert_msg(strstr(pair.report.first_bad, "learning rate differs") != NULL, "%s",
                pair.report.first_bad);
}
END_TEST

/* Without eps, what has no gradient would be 0 / 0: rows that only make a vocabulary
 * divisible by tp, and those of tokens that never came. */
START_TEST(rows_without_gradients_stay) {
  const Sought step = {I_KERNEL, OP_adamw, NULL};
  ToyOptions o = mesh(4, 1, 1 + _i);
  o.vocab = 49, o.strategy.stage = _i;
  compile_pair(o);
  plant(step, no_eps);
  plant_into(pair.one.compiled, step, no_eps);
  pair.many.plan.opt.eps = 0;
  pair_verify(&pair, 3, 1e-5);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
}
END_TEST

/* Rounding is no fault, but no tolerance is no comparison either. */
START_TEST(rounding_is_seen) {
  compile_pair(mesh(2, 1, 1));
  pair_verify(&pair, 1, 1e-12);
  ck_assert(!pair.report.ok);
}
END_TEST

/* ---- what must fail ---- */

/* One fault each, in a program for this mesh. `grad` above 0: the loss is right all the
 * same, and gradients differ by more than that. */
static const struct {
  int tp, pp, dp;
  bool tied;
  double grad;
  Sought at;
  void (*fault)(Program *p, Instr *in);
  const char *says;
} faults[] = {
    /* gradients that are not reduced, and tied ones that are not added */
    {1, 1, 2, 0, 0.01, {I_COLL, COLL_ALL_REDUCE, "gradients"}, drop, "step 0: gradient"},
    {1,
     2,
     1,
     1,
     0,
     {I_COLL, COLL_ALL_REDUCE, "model.embed_tokens.weight"},
     drop,
     "step 0: gradient"},
    /* label tokens that are not counted together */
    {1,
     1,
     2,
     0,
     0,
     {I_COLL, COLL_ALL_REDUCE, "label tokens"},
     drop,
     "step 0: number of label tokens differs"},
    /* partial sums that are not added */
    {2, 1, 1, 0, 0, {I_COLL, COLL_ALL_REDUCE, NULL}, take_max, "step 0: loss differs"},
    /* a vocabulary that starts at zero everywhere */
    {2, 1, 1, 0, 0, {I_KERNEL, OP_embedding, NULL}, forget_index, "step 0: loss differs"},
    /* a scale that is slightly off, forward and backward */
    {1, 2, 1, 0, 0, {I_KERNEL, OP_attention, NULL}, wrong_scale, "step 0: "},
    {2,
     1,
     1,
     0,
     1e-5,
     {I_KERNEL, OP_attention_dx, NULL},
     wrong_scale,
     "step 0: gradient"},
    /* a weight that does not decay, moments and a norm that are not what they were */
    {2, 1, 1, 0, 0, {I_KERNEL, OP_adamw, NULL}, no_decay, "step 0: parameter of "},
    {2,
     1,
     1,
     0,
     0,
     {I_KERNEL, OP_adamw, NULL},
     slow_moments,
     "step 0: second moment of "},
    {2, 1, 1, 0, 0, {I_KERNEL, OP_clip_coef, NULL}, no_clip, "step 0: first moment of "},
};

START_TEST(a_fault_is_noticed) {
  ToyOptions o = mesh(faults[_i].tp, faults[_i].pp, faults[_i].dp);
  o.tied = faults[_i].tied;
  compile_pair(o);
  plant(faults[_i].at, faults[_i].fault);
  expect(faults[_i].says, 1);
  if (faults[_i].grad > 0)
    ck_assert(pair.report.loss < 1e-5 && pair.report.grad > faults[_i].grad);
}
END_TEST

/* The norm is a layer of its own: there is nothing that its gradient could be small to.
 */
START_TEST(a_gradient_where_there_should_be_none) {
  compile_pair(mesh(2, 1, 1));
  plant_into(pair.one.compiled, (Sought){I_KERNEL, OP_rmsnorm_dw, "model.norm"}, drop);
  expect("step 0: gradient of model.norm.weight differs by inf", 1);
}
END_TEST

static void turn_back(Program *p, Instr *in) { p->attr[in->attr].scale *= -1; }

/* The iteration multiplies differences of averages, which are those of bf16 here, by 3.4
 * in each of its steps: a matrix that goes the wrong way must be seen all the same. */
START_TEST(a_matrix_that_goes_the_wrong_way) {
  const double tolerance = _i % 2 ? 4e-2 : 1e-5;
  ToyOptions o = mesh(2, 1, 2), one;
  o.layers = 2, o.optimizer = OPTIMIZER_MUON, o.ns_steps = _i / 2 ? 8 : 5;
  if (_i % 2) o.dtype = DT_BF16, o.state = DT_BF16;
  compile_pair(o);
  one = pair_alone(&o);
  one.dtype = one.state = DT_F32;
  toy_free(&pair.one);
  ck_assert_int_eq(toy_compile(&pair.one, &one, NULL), WEFT_OK);
  pair.many.plan.opt.lr.max = pair.one.plan.opt.lr.max =
      0.1; /* beside a parameter's norm */
  pair_verify(&pair, 3, tolerance);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
  plant((Sought){I_KERNEL, OP_matrix_put, NULL}, turn_back);
  pair_verify(&pair, 1, tolerance);
  ck_assert_msg(!pair.report.ok, "the fault was not noticed");
  ck_assert_msg(strstr(pair.report.first_bad, "parameter of ") != NULL, "%s",
                pair.report.first_bad);
}
END_TEST

/* Ops read bf16 copies of master weights of which each rank steps a part. */
START_TEST(a_copy_that_is_not_gathered) {
  ToyOptions o = mesh(1, 1, 2);
  o.dtype = DT_BF16, o.strategy.stage = 1;
  compile_pair(o);
  pair_verify(&pair, 1, 2e-2);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
  plant((Sought){I_COLL, COLL_ALL_GATHER, "parameters"}, drop);
  pair_verify(&pair, 1, 2e-2);
  ck_assert(!pair.report.ok);
  ck_assert_msg(strstr(pair.report.first_bad, "step 0: a replica of ") != NULL, "%s",
                pair.report.first_bad);
}
END_TEST

START_TEST(gradients_of_the_last_step) {
  compile_pair(mesh(1, 2, 1));
  plant((Sought){I_CALL, -1, NULL}, never_fresh);
  /* What is in the memory of the gradients before the first step is nan in all tests. */
  weft_error err = {.rank = -1};
  weft_status st = verify(&pair.many.plan, pair.many.compiled, &pair.one.plan,
                          pair.one.compiled, 2, 1e-5, NULL, &pair.report, &err);
  ck_assert_int_eq(st, WEFT_ERUN);
  ck_assert_msg(strstr(err.text, "step 0: the gradient norm is nan"), "%s", err.text);
}
END_TEST

START_TEST(another_initial_value) {
  compile_pair(mesh(2, 1, 1));
  CompiledParam *p = &pair.many.compiled->param[1];
  p->init = p->init == INIT_ONES ? INIT_ZEROS : INIT_ONES;
  expect("step 0: initial value of ", 1);
}
END_TEST

START_TEST(another_learning_rate) {
  compile_pair(mesh(2, 1, 1));
  pair.many.plan.opt.lr.max *= 1.01;
  expect("step 0: learning rate differs by 0.01", 1);
}
END_TEST

/* ---- what is compared ---- */

enum { ROWS = 8, SEQ = 64, IDS = ROWS * SEQ, STEPS = 40, VOCAB = 50, SEPARATOR = 7 };

/* The step's tokens and labels of rows of 64 tokens. */
static void data_of(const Plan *plan, int64_t step, int rows, int32_t *tokens,
                    int32_t *labels) {
  const Compiled c = {.seq = SEQ};
  Verify v = {.plan = plan, .c = &c, .ids = rows * SEQ, .vocab = VOCAB};
  v.tokens = tokens, v.labels = labels;
  make_tokens(&v, step);
}

static int counted(const int32_t *labels) {
  int n = 0;
  for (int i = 0; i < SEQ; i++) n += labels[i] >= 0;
  return n;
}

/* Labels are the next tokens or none; rows have all of them, most, some, a few or none,
 * so that ranks divide by other numbers than their own; every step has some. */
START_TEST(rows_have_different_shares) {
  Plan plan = {.seed = 5};
  int32_t tokens[IDS], labels[IDS], again[IDS];
  int share[5] = {0}, seen[VOCAB] = {0};
  for (int step = 0; step < STEPS; step++) {
    data_of(&plan, step, ROWS, tokens, labels);
    for (int i = 0; i < IDS; i++) {
      ck_assert(tokens[i] >= 0 && tokens[i] < VOCAB);
      seen[tokens[i]]++;
      bool next = labels[i] == (i % SEQ < SEQ - 1 ? tokens[i + 1] : labels[i]);
      ck_assert(labels[i] == LABEL_IGNORED ||
                (next && labels[i] >= 0 && labels[i] < VOCAB));
    }
    ck_assert_int_gt(counted(labels), SEQ / 2);
    for (int r = 1; r < ROWS; r++) {
      int n = counted(labels + r * SEQ);
      share[n == 0 ? 0 : n == SEQ ? 4 : n < SEQ / 4 ? 1 : n < 3 * SEQ / 4 ? 2 : 3]++;
    }
    data_of(&plan, step, ROWS, again, labels);
    ck_assert_mem_eq(again, tokens, sizeof tokens);
    data_of(&plan, step + 1, ROWS, again, labels);
    ck_assert_mem_ne(again, tokens, sizeof tokens);
    data_of(&plan, step, 1, again, labels);
    ck_assert_int_gt(counted(labels), SEQ / 2); /* of the only row, too */
  }
  /* Of 280 rows an eighth each, but twice that below a quarter and thrice above three. */
  static const int least[] = {18, 36, 18, 54, 18}, most[] = {60, 110, 60, 150, 60};
  for (int i = 0; i < 5; i++)
    ck_assert_msg(share[i] >= least[i] && share[i] <= most[i], "%d of share %d", share[i],
                  i);
  for (int i = 0; i < VOCAB; i++) ck_assert_int_gt(seen[i], IDS * STEPS / VOCAB / 2);
  data_of(&plan, 0, ROWS, tokens, labels);
  plan.seed = 6;
  data_of(&plan, 0, ROWS, again, labels);
  ck_assert_mem_ne(again, tokens, sizeof tokens);
}
END_TEST

/* One token in sixteen ends a document: it is the separator, or where documents are
 * packed whole its label says so. */
START_TEST(documents_end) {
  Plan plan = {.seed = 5};
  int32_t tokens[IDS], labels[IDS];
  int separators = 0, ends = 0, alone = 0, all = IDS * STEPS;
  plan.packed = (Packed){.on = true, .separated = true, .separator = SEPARATOR};
  for (int step = 0; step < STEPS; step++) {
    data_of(&plan, step, ROWS, tokens, labels);
    for (int i = 0; i < IDS; i++) {
      separators += tokens[i] == SEPARATOR;
      ck_assert_int_ne(labels[i], LABEL_DOCUMENT_END);
    }
  }
  plan.packed.separated = false, plan.packed.size = SEQ;
  for (int step = 0; step < STEPS; step++) {
    data_of(&plan, step, ROWS, tokens, labels);
    for (int i = 0; i < IDS; i++)
      ends += labels[i] == LABEL_DOCUMENT_END, alone += tokens[i] == SEPARATOR;
  }
  double each = all / 16.0, random = all / (double)VOCAB;
  ck_assert_double_eq_tol(ends, each, each / 5);
  ck_assert_double_eq_tol(alone, random, random / 4);
  ck_assert_double_eq_tol(separators, each + random, (each + random) / 5);
}
END_TEST

START_TEST(another_model_is_refused) {
  weft_error err = {.rank = -1};
  compile_pair(mesh(2, 1, 1));
  pair.one.compiled->microbatches++;
  weft_status st = verify(&pair.many.plan, pair.many.compiled, &pair.one.plan,
                          pair.one.compiled, 1, 1e-5, NULL, &pair.report, &err);
  ck_assert_int_eq(st, WEFT_EINTERNAL);
}
END_TEST

Suite *verify_suite(void) {
  const TTest *const tests[] = {
      a_sound_program_passes,
      rounding_is_seen,
      a_gradient_where_there_should_be_none,
      a_copy_that_is_not_gathered,
      gradients_of_the_last_step,
      another_initial_value,
      another_learning_rate,
      another_model_is_refused,
      rows_have_different_shares,
      documents_end,
  };
  Suite *s = suite_create("verify");
  TCase *c = tcase_create("verify");
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_set_timeout(c, 60);
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  tcase_add_loop_test(c, a_fault_is_noticed, 0, LEN(faults));
  tcase_add_loop_test(c, a_matrix_that_goes_the_wrong_way, 0, 4);
  tcase_add_loop_test(c, every_optimizer_passes, 0, OPTIMIZER_N);
  tcase_add_loop_test(c, half_types_pass, 0, 4);
  tcase_add_loop_test(c, half_moments_pass, 0, 4);
  tcase_add_loop_test(c, rows_without_gradients_stay, 0, 2);
  suite_add_tcase(s, c);
  return s;
}
