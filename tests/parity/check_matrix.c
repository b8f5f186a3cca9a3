/* check_matrix.c - every strategy on every small mesh with everything that runs again and
 * every depth of gathering ahead, against one run of one rank: all have the same global
 * batch, so one reference serves. What cuts nothing on a mesh is left out. */
#include <check.h>
#include <math.h>

#include "tests/harness/run_bits.h"
#include "vm/weights/param_gather.h"

enum { BATCH = 4, TAKEN = 2 /* steps */ };

/* tp, pp, dp, dp_replicate */
static const int matrix_mesh[][4] = {
    {1, 1, 1, 1}, {1, 1, 2, 1}, {1, 1, 4, 1}, {1, 1, 4, 2}, {1, 2, 1, 1}, {1, 2, 2, 1},
    {1, 2, 4, 1}, {1, 2, 4, 2}, {2, 1, 1, 1}, {2, 1, 2, 1}, {2, 1, 4, 1}, {2, 1, 4, 2},
    {2, 2, 1, 1}, {2, 2, 2, 1}, {2, 2, 4, 1}, {2, 2, 4, 2}, {1, 1, 2, 2}, {2, 2, 2, 2},
};

/* What is cut and what stays; the last: a group keeps a part. */
static const struct {
  int stage;
  Reshard reshard;
  int group;
} matrix_cut[] = {{0, RESHARD_BY_PP, 0}, {1, RESHARD_BY_PP, 0}, {2, RESHARD_BY_PP, 0},
                  {3, RESHARD_YES, 0},   {3, RESHARD_NO, 0},    {3, RESHARD_YES, 2}};

static const Recompute matrix_again[] = {{0}, {.full = true}, {.selective = true}};
enum { DEPTHS = 3 };

/* ---- what a run comes to ---- */

typedef struct Outcome {
  double loss[TAKEN], norm[TAKEN];
  float *grad[TAKEN]; /* of all parameters */
} Outcome;

static ToyOptions matrix_toy(DType t) {
  ToyOptions o = toy_default();
  o.layers = 2, o.vocab = 51, o.seq = 4, o.microbatches = 2, o.micro = BATCH;
  o.dtype = t;
  return o;
}

static void gradients(Run *r, Toy *t, float *to) {
  for (int i = 0; i < t->compiled->nparam; i++) {
    OK(run_get(r, STATE_GRAD, i, to, &trace_err));
    to += param_count(&t->compiled->param[i]);
  }
}

static void outcome(Toy *t, const ToyOptions *o, Outcome *x) {
  Run *r;
  open_toy(t, o, 1, &r);
  for (int k = 0; k < TAKEN; k++) {
    StepResult res;
    trace_step(r, t, k, &res);
    x->loss[k] = res.loss, x->norm[k] = res.grad_norm;
    x->grad[k] = NEW_N(t->arena, float, t->compiled->params_total);
    gradients(r, t, x->grad[k]);
  }
  run_close(r);
}

/* Norm-wise, tensor by tensor. */
static void is_near(const char *what, const Toy *t, const Outcome *x, const Outcome *one,
                    int k, double tolerance) {
  ck_assert_msg(fabs(x->loss[k] / one->loss[k] - 1) <= tolerance,
                "%s: loss %.9g, not %.9g", what, x->loss[k], one->loss[k]);
  ck_assert_msg(fabs(x->norm[k] / one->norm[k] - 1) <= tolerance,
                "%s: norm %.9g, not %.9g", what, x->norm[k], one->norm[k]);
  const float *a = x->grad[k], *b = one->grad[k];
  for (int i = 0; i < t->compiled->nparam; i++) {
    double apart = 0, size = 0;
    for (int64_t n = param_count(&t->compiled->param[i]); n > 0; n--, a++, b++)
      apart += (double)(*a - *b) * (*a - *b), size += (double)*b * *b;
    ck_assert_msg(sqrt(apart) <= tolerance * sqrt(size),
                  "%s: gradient of %s apart by %.2g", what, t->compiled->param[i].name,
                  sqrt(apart / size));
  }
}

/* ---- all of them ---- */

/* Whether a choice is another one on this mesh than one that is tried anyway. */
static bool is_distinct(const int *mesh, int cut, int depth) {
  int ways = mesh[2] / mesh[3], stage = matrix_cut[cut].stage;
  if (matrix_cut[cut].group && ways <= matrix_cut[cut].group) return false;
  if (stage > 0 && ways == 1) return stage == 3 && depth == 0 && !matrix_cut[cut].group;
  return stage == 3 || depth == 0;
}

/* In bf16 a step makes of rounding what it makes of gradients, so that only the first one
 * is compared. */
static void try_all(const int *mesh, DType type, double tolerance) {
  ToyOptions alone = matrix_toy(type);
  Outcome one;
  Toy reference;
  outcome(&reference, &alone, &one);
  for (int cut = 0; cut < LEN(matrix_cut); cut++)
    for (int k = 0; k < LEN(matrix_again) * DEPTHS; k++) {
      int depth = k % DEPTHS, again = k / DEPTHS;
      if (!is_distinct(mesh, cut, depth)) continue;
      ToyOptions o = matrix_toy(type);
      Toy t;
      Outcome x;
      o.tp = mesh[0], o.pp = mesh[1], o.dp = mesh[2], o.replicate = mesh[3];
      o.micro = BATCH / o.dp, o.sp = o.tp > 1 && again != 1;
      o.overlap = k % 2, o.recompute = matrix_again[again];
      o.strategy = (Strategy){.stage = matrix_cut[cut].stage,
                              .reshard = matrix_cut[cut].reshard,
                              .reshard_to = matrix_cut[cut].group,
                              .prefetch = {depth, depth},
                              .defer_grad_sync = (cut + k) % 2,
                              .overlap_param_gather = again > 0};
      outcome(&t, &o, &x);
      const char *what =
          arena_printf(t.arena,
                       "tp %d pp %d dp %d copies %d stage %d reshard %d to %d, "
                       "again %d, depth %d",
                       o.tp, o.pp, o.dp, o.replicate, o.strategy.stage,
                       (int)o.strategy.reshard, o.strategy.reshard_to, again, depth);
      for (int step = 0; step < (type == DT_F32 ? TAKEN : 1); step++)
        is_near(what, &t, &x, &one, step, tolerance);
      toy_free(&t);
    }
  toy_free(&reference);
}

START_TEST(all_in_f32) { try_all(matrix_mesh[_i], DT_F32, 1e-5); }
END_TEST

START_TEST(all_in_bf16) { try_all(matrix_mesh[_i], DT_BF16, 2e-2); }
END_TEST

Suite *matrix_suite(void);
Suite *matrix_suite(void) {
  Suite *s = suite_create("matrix");
  TCase *c = tcase_create("matrix");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, all_in_f32, 0, LEN(matrix_mesh));
  tcase_add_loop_test(c, all_in_bf16, 0, LEN(matrix_mesh));
  suite_add_tcase(s, c);
  return s;
}
