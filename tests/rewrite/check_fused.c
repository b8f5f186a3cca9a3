/* check_fused.c - ops that become one: which do, which must not, and that a step gives
 * the same bits with and without. */
#include <check.h>
#include <stdio.h>

#include "bindings/api/job.h"
#include "tests/harness/plan_bits.h"
#include "vm/rewrite/rewrite_passes.h"

static Arena *arena;
static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

/* ---- small graphs ---- one unit, all tensors alike */

static Graph *g;
static Tid value(TensorKind kind) {
  return graph_tensor(g, kind, DT_F32, (Dim[]){{.size = 2}, {.size = 4}}, 2);
}

/* An op of `nin` operands that makes one tensor, or two. */
static Tid op_of(int code, Phase ph, int unit, int nin, const Tid *in, int nout) {
  Oid id = graph_add(g, code, nin, nout, unit, ph);
  for (int k = 0; k < nin; k++) g->op.at[id].in[k] = in[k];
  for (int k = 0; k < nout; k++) {
    Tid t = value(T_VALUE);
    g->t.at[t].producer = id, g->t.at[t].unit = unit;
    g->op.at[id].out[k] = t;
  }
  return g->op.at[id].out[0];
}
#define OP_OF(code, ph, nout, ...)                                                       \
  op_of(OP_##code, PH_##ph, 0, LEN(((Tid[]){__VA_ARGS__})), (Tid[]){__VA_ARGS__}, nout)

static Tid x, y, w;
static void begin(void) {
  g = graph_new(arena, 1, 2);
  graph_open_unit(g, "a", -1, NULL), graph_close_unit(g);
  graph_open_unit(g, "b", -1, NULL), graph_close_unit(g);
  x = value(T_INPUT), y = value(T_INPUT), w = value(T_PARAM);
}

/* The ops after the pass, as one text. */
static const char *fused(void) {
  static char text[256];
  weft_error e = {0};
  int n = 0;
  fuse_ops(g);
  ck_assert_msg(graph_check(g, &e) == WEFT_OK, "%s", e.text);
  text[0] = 0;
  for (int i = 0; i < g->op.n; i++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s ",
                  op_info[g->op.at[i].code].name);
  return text;
}

START_TEST(a_sum_and_its_norm) {
  begin();
  Tid z = OP_OF(add, F, 1, x, y), n = OP_OF(rmsnorm, F, 2, z, w);
  OP_OF(mul, F, 1, z, n);
  ck_assert_str_eq(fused(), "add_rmsnorm mul ");
  const Op *op = &g->op.at[0];
  ck_assert(op->in[0] == x && op->in[1] == y && op->in[2] == w);
  ck_assert(op->out[0] == z && op->out[1] == n);

  begin(); /* a weight that is not there yet */
  z = OP_OF(add, F, 1, x, y);
  OP_OF(rmsnorm, F, 2, z, OP_OF(scale, F, 1, w));
  ck_assert_str_eq(fused(), "add scale rmsnorm ");

  begin(); /* the norm of something else */
  OP_OF(add, F, 1, x, y);
  OP_OF(rmsnorm, F, 2, x, w);
  ck_assert_str_eq(fused(), "add rmsnorm ");

  begin(); /* in another unit, or another body */
  z = OP_OF(add, F, 1, x, y);
  op_of(OP_rmsnorm, PH_F, 1, 2, (Tid[]){z, w}, 2);
  op_of(OP_rmsnorm, PH_I, 0, 2, (Tid[]){z, w}, 2);
  ck_assert_str_eq(fused(), "add rmsnorm rmsnorm ");

  begin(); /* of two norms one */
  z = OP_OF(add, F, 1, x, y);
  OP_OF(rmsnorm, F, 2, z, w), OP_OF(rmsnorm, F, 2, z, w);
  ck_assert_str_eq(fused(), "add_rmsnorm rmsnorm ");
}
END_TEST

START_TEST(gradients_of_a_norm) {
  begin();
  Tid s = value(T_INPUT), dy = value(T_INPUT);
  Tid dx = OP_OF(rmsnorm_dx, I, 1, x, w, s, dy);
  Tid sum = OP_OF(acc, I, 1, y, dx);
  OP_OF(scale, I, 1, sum);
  Tid dw = OP_OF(rmsnorm_dw, W, 1, x, s, dy);
  ck_assert_str_eq(fused(), "rmsnorm_back scale ");
  const Op *op = &g->op.at[0];
  ck_assert(op->nin == 5 && op->in[3] == dy && op->in[4] == y && op->phase == PH_I);
  ck_assert(op->out[0] == dw && op->out[1] == sum);

  begin(); /* something else takes dx, too */
  dx = OP_OF(rmsnorm_dx, I, 1, x, w, y, y);
  OP_OF(acc, I, 1, y, dx), OP_OF(scale, I, 1, dx);
  OP_OF(rmsnorm_dw, W, 1, x, y, y);
  ck_assert_str_eq(fused(), "rmsnorm_back acc scale ");
  ck_assert_int_eq(g->op.at[0].nin, 4);

  begin(); /* a sum of three has an order */
  dx = OP_OF(rmsnorm_dx, I, 1, x, w, y, y);
  OP_OF(acc, I, 1, y, x, dx);
  OP_OF(rmsnorm_dw, W, 1, x, y, y);
  ck_assert_str_eq(fused(), "rmsnorm_back acc ");

  begin(); /* twice the same */
  dx = OP_OF(rmsnorm_dx, I, 1, x, w, y, y);
  OP_OF(acc, I, 1, dx, dx);
  OP_OF(rmsnorm_dw, W, 1, x, y, y);
  ck_assert_str_eq(fused(), "rmsnorm_back acc ");

  begin(); /* no gradient of the weight; one of other operands; one that is read */
  OP_OF(rmsnorm_dx, I, 1, x, w, y, y);
  ck_assert_str_eq(fused(), "rmsnorm_dx ");
  begin();
  OP_OF(rmsnorm_dx, I, 1, x, w, y, y), OP_OF(rmsnorm_dw, W, 1, x, y, x);
  ck_assert_str_eq(fused(), "rmsnorm_dx rmsnorm_dw ");
  begin();
  OP_OF(rmsnorm_dx, I, 1, x, w, y, y);
  OP_OF(scale, W, 1, OP_OF(rmsnorm_dw, W, 1, x, y, y));
  ck_assert_str_eq(fused(), "rmsnorm_dx rmsnorm_dw scale ");
}
END_TEST

START_TEST(sums_of_cross_entropy) {
  begin();
  Tid l = OP_OF(linear, F, 1, x, w), m = OP_OF(ce_max, F, 1, l);
  Tid s = OP_OF(ce_sum, F, 1, l, y, m);
  OP_OF(ce_loss, F, 1, s, y);
  ck_assert_str_eq(fused(), "linear ce_stats ce_loss ");
  ck_assert(g->op.at[1].out[0] == m && g->op.at[1].out[1] == s);

  begin(); /* columns on several ranks */
  l = OP_OF(linear, F, 1, x, w), m = OP_OF(ce_max, F, 1, l);
  Tid all = OP_OF(all_reduce, F, 1, m);
  s = OP_OF(ce_sum, F, 1, l, y, all);
  OP_OF(all_reduce, F, 1, s);
  ck_assert_str_eq(fused(), "linear ce_stats all_reduce ce_shift all_reduce ");
  const Op *op = &g->op.at[3];
  ck_assert(op->in[0] == g->op.at[1].out[1] && op->in[1] == m && op->in[2] == all);
  ck_assert(op->in[3] == y && op->out[0] == s && op->attr.n == 4);

  begin(); /* sums of other columns */
  l = OP_OF(linear, F, 1, x, w), m = OP_OF(ce_max, F, 1, l);
  OP_OF(ce_sum, F, 1, x, y, m);
  ck_assert_str_eq(fused(), "linear ce_max ce_sum ");
}
END_TEST

START_TEST(ropes_of_queries_and_keys) {
  begin();
  Tid q = OP_OF(linear, F, 1, x, w), k = OP_OF(linear, F, 1, y, w);
  Tid a = OP_OF(rope, F, 1, q, x), b = OP_OF(rope, F, 1, k, x);
  OP_OF(mul, F, 1, a, b);
  ck_assert_str_eq(fused(), "linear linear rope_pair mul ");
  const Op *op = &g->op.at[2];
  ck_assert(op->in[0] == q && op->in[1] == k && op->in[2] == x);
  ck_assert(op->out[0] == a && op->out[1] == b);

  begin(); /* keys that are made after the ropes of queries */
  a = OP_OF(rope, F, 1, w, x), k = OP_OF(linear, F, 1, y, w);
  b = OP_OF(rope, F, 1, k, x), OP_OF(mul, F, 1, a, b);
  ck_assert_str_eq(fused(), "linear rope_pair mul ");
  op = &g->op.at[1];
  ck_assert(op->in[0] == w && op->in[1] == k && op->out[0] == a && op->out[1] == b);
  begin(); /* but not where those are read before */
  a = OP_OF(rope, F, 1, w, x), k = OP_OF(linear, F, 1, a, w);
  b = OP_OF(rope, F, 1, k, x), OP_OF(mul, F, 1, a, b);
  ck_assert_str_eq(fused(), "rope linear rope mul ");

  begin(); /* of other positions; of other angles; of what the first one makes */
  a = OP_OF(rope, F, 1, w, x), OP_OF(rope, F, 1, x, y);
  ck_assert_str_eq(fused(), "rope rope ");
  begin();
  a = OP_OF(rope, F, 1, w, x), OP_OF(rope, F, 1, y, x);
  g->op.at[1].attr.inverse = 1;
  ck_assert_str_eq(fused(), "rope rope ");
  begin();
  a = OP_OF(rope, F, 1, w, x), OP_OF(rope, F, 1, a, x);
  ck_assert_str_eq(fused(), "rope rope ");
}
END_TEST

/* ---- plans ---- */

/* Weights that cannot be one matrix (fused_projections.c): products stay as they are. */
#define APART                                                                            \
  "model.hidden_size=72", "model.num_attention_heads=4", "model.num_key_value_heads=2",  \
      "model.intermediate_size=100"
/* Without tp no sum has another order. */
START_TEST(the_same_bits_without_tp) {
  static const char *const schedule[] = {"schedule=1f1b", "schedule=zbv",
                                         "schedule=gpipe"};
  static const char *const how[] = {"recompute=none", "recompute=full",
                                    "recompute=cheap"};
  static const char *const strategy[] = {"strategy={\"zero\",stage=1}", "strategy=fsdp2",
                                         "strategy={\"zero\",stage=2}"};
  PlanBits with, without;
  const char *set[] = {schedule[_i],    how[_i], strategy[_i],     "mesh.tp=1",
                       "train.steps=2", APART,   "fused_ops=false"};
  plan_bits(arena, WEFT_SOURCE_DIR "/plans/quickstart.lua", set, 9, &with);
  plan_bits(arena, WEFT_SOURCE_DIR "/plans/quickstart.lua", set, 10, &without);
  ck_assert(memcmp(with.loss, without.loss, sizeof with.loss) == 0);
  ck_assert(memcmp(with.norm, without.norm, sizeof with.norm) == 0);
  ck_assert(with.n == without.n &&
            memcmp(with.param, without.param, sizeof(float) * (size_t)with.n) == 0);
}
END_TEST

/* With tp the sums of cross entropy are of each rank's columns first. */
START_TEST(near_with_tp) {
  PlanBits with, without;
  for (int tp = 1; tp <= 4; tp *= 4) {
    const char *set[] = {arena_printf(arena, "mesh.tp=%d", tp), "mesh.pp=1", "mesh.dp=1",
                         "fused_ops=false"};
    plan_bits(arena, WEFT_SOURCE_DIR "/plans/quickstart.lua", set, 3, &with);
    plan_bits(arena, WEFT_SOURCE_DIR "/plans/quickstart.lua", set, 4, &without);
    for (int k = 0; k < 2; k++) {
      ck_assert_double_eq_tol(with.loss[k], without.loss[k], 1e-6 * without.loss[k]);
      ck_assert_double_eq_tol(with.norm[k], without.norm[k], 1e-5 * without.norm[k]);
    }
  }
}
END_TEST

/* How often an op stands in the bodies of rank 0. */
static int ops_in(const char *path, const char *const *set, int n, int code) {
  Job j;
  int found = 0;
  ck_assert_int_eq(job_open(&j, arena, &(LangOptions){.set = set, .nset = n}, path),
                   WEFT_OK);
  const Program *p = &j.compiled->prog[0];
  for (uint32_t i = 0; i < p->ncode; i++)
    found += p->code[i].code == I_KERNEL && p->code[i].op == code;
  job_free(&j);
  return found;
}

START_TEST(bodies_have_them) {
  const char *set[] = {"mesh.pp=1", "mesh.dp=1", "strategy.overlap_tp=false", APART,
                       "fused_ops=false"};
  static const struct {
    int code, with, without;
  } rows[] = {{OP_add_rmsnorm, 1, 0}, {OP_rmsnorm_back, 3, 0}, {OP_rmsnorm_dx, 0, 3},
              {OP_rmsnorm_dw, 0, 3},  {OP_ce_stats, 1, 0},     {OP_ce_shift, 1, 0},
              {OP_ce_max, 0, 1},      {OP_ce_sum, 0, 1},       {OP_rope_pair, 2, 0},
              {OP_rope, 0, 4}};
  for (int i = 0; i < LEN(rows); i++) {
    const char *path = WEFT_SOURCE_DIR "/plans/quickstart.lua";
    ck_assert_int_eq(ops_in(path, set, 7, rows[i].code), rows[i].with);
    ck_assert_int_eq(ops_in(path, set, 8, rows[i].code), rows[i].without);
  }
}
END_TEST

/* Less waits for W where gradients of norms are made in I: I and W are one body still. */
START_TEST(i_and_w_are_one) {
  static const char *const plan[] = {"llama3_70b", "qwen3_8b", "llama3_405b_16k"};
  const char *path = arena_printf(arena, "%s/plans/%s.lua", WEFT_SOURCE_DIR, plan[_i]);
  Job j;
  int both = 0;
  ck_assert_int_eq(job_open(&j, arena, &(LangOptions){0}, path), WEFT_OK);
  const Program *p = &j.compiled->prog[1];
  for (int b = 0; b < p->nbody; b++)
    both += p->body[b].phase == PH_B && strcmp(p->body[b].name, "layer:B") == 0;
  ck_assert_int_eq(both, 1);
  job_free(&j);
}
END_TEST

Suite *fused_suite(void);
Suite *fused_suite(void) {
  Suite *s = suite_create("fused");
  TCase *tc = tcase_create("fused");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, a_sum_and_its_norm);
  tcase_add_test(tc, gradients_of_a_norm);
  tcase_add_test(tc, ropes_of_queries_and_keys);
  tcase_add_test(tc, sums_of_cross_entropy);
  tcase_add_loop_test(tc, the_same_bits_without_tp, 0, 3);
  tcase_add_test(tc, near_with_tp);
  tcase_add_test(tc, bodies_have_them);
  tcase_add_loop_test(tc, i_and_w_are_one, 0, 3);
  suite_add_tcase(s, tc);
  return s;
}
