/* check_cudnn.c - attention through cuDNN, without a GPU: that the graph which cuDNN is
 * given is attention, by evaluating it; which shapes it is given; and that cuDNN makes
 * plans of it, for GPUs that are not here, which need no more scratch than was counted.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/levels.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "tests/reference/attention_graph_eval.h"
#include "tests/reference/kernel_sets.h"
#include "tests/harness/process.h"

/* ---- what the graph computes ---- */

/* Groups of 1, 2, 3, 4 and 8 heads, one token, values of another size. */
static const KernelCase cases[] = {
    {OP_attention,
     "x 1,1,4 x 1,1,4 x 1,1,4",
     "x 1,1,4 f 1,1,1",
     {.head_dim = 4, .scale = .5f},
     0},
    {OP_attention,
     "x 2,7,15 x 2,7,15 x 2,7,15",
     "x 2,7,15 f 2,7,3",
     {.head_dim = 5, .scale = .4f},
     0},
    {OP_attention,
     "x 2,70,80 x 2,70,40 x 2,70,40",
     "x 2,70,80 f 2,70,4",
     {.head_dim = 20, .scale = .22f},
     0},
    {OP_attention,
     "x 3,20,48 x 3,20,16 x 3,20,16",
     "x 3,20,48 f 3,20,6",
     {.head_dim = 8, .scale = 2},
     0},
    {OP_attention,
     "x 1,33,128 x 1,33,32 x 1,33,32",
     "x 1,33,128 f 1,33,8",
     {.head_dim = 16, .scale = .25f},
     0},
    {OP_attention,
     "x 2,17,64 x 2,17,8 x 2,17,8",
     "x 2,17,64 f 2,17,8",
     {.head_dim = 8, .scale = -1},
     0},
    {OP_attention,
     "x 1,31,80 x 1,31,40 x 1,31,24",
     "x 1,31,48 f 1,31,4",
     {.head_dim = 20, .value_dim = 12, .scale = .22f},
     0},
    {OP_attention,
     "x 2,33,16 x 2,33,8 x 2,33,8",
     "x 2,33,16 f 2,33,2",
     {.head_dim = 8, .scale = .4f, .window = 7},
     0},
    {OP_attention,
     "x 2,40,16 x 2,40,8 x 2,40,8 s 2,40",
     "x 2,40,16 f 2,40,2",
     {.head_dim = 8, .scale = .4f},
     0},
    {OP_attention,
     "x 2,40,16 x 2,40,8 x 2,40,8 s 2,40",
     "x 2,40,16 f 2,40,2",
     {.head_dim = 8, .scale = .4f, .window = 5},
     0},
};

/* The n-th problem: of each case attention, then its gradients. */
static void make(Problem *p, int n, uint64_t seed) {
  const KernelCase *c = &cases[n / 2];
  if (n % 2 == 0) {
    problem_make(p, c, DT_F32, seed);
    return;
  }
  for (int i = 0; i < grad_cases; i++)
    if (grad_case[i].op == OP_attention_dx) {
      problem_grad(p, NULL, &grad_case[i], c, DT_F32, seed);
      return;
    }
  ck_abort_msg("no case of attention_dx");
}

static int64_t numbers(const Value *x) {
  RefTensor t = {.ndim = x->ndim};
  memcpy(t.dim, x->dim, sizeof t.dim);
  return ref_count(&t);
}

static KernelArgs args_of(const Problem *p) {
  KernelArgs a = {.attr = &p->attr, .nin = p->nin, .nout = p->nout, .index = p->index};
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  return a;
}

/* The graph of a problem with one block. */
static AttentionGraph graph_of(const Problem *p) {
  AttentionGraph g;
  AttentionBlock b[BLOCKS_MOST];
  KernelArgs a = args_of(p);
  ck_assert_int_eq(attention_blocks(p->op, &a, p->index, b), 1);
  attention_graph(p->op, &a, &b[0], &g);
  return g;
}

static void evaluate(const Problem *p, int wrong) {
  KernelArgs a = args_of(p);
  RefArgs r = problem_ref(p, false);
  AttentionGraph g;
  AttentionBlock b[BLOCKS_MOST];
  int n = attention_blocks(p->op, &a, p->index, b);
  for (int i = 0; i < n; i++) {
    attention_graph(p->op, &a, &b[i], &g);
    graph_evaluate(&g, &r, wrong);
  }
}

static double largest(const Value *x) {
  double most = 0;
  for (int64_t i = 0; i < numbers(x); i++) most = fmax(most, fabs(x->v[i]));
  return most;
}

/* The table in f64 against the CPU kernels in f32. */
START_TEST(the_graph_is_attention) {
  Problem p;
  double *want[3], *bound[3];
  char what[64];
  make(&p, _i, 11);
  evaluate(&p, GRAPH_RIGHT);
  for (int k = 0; k < p.nout; k++) {
    int64_t n = numbers(&p.out[k]);
    double within = 8e-6 * largest(&p.out[k]) + 2e-7;
    want[k] = p.out[k].v;
    bound[k] = malloc((size_t)n * sizeof(double));
    for (int64_t i = 0; i < n; i++) bound[k][i] = within;
  }
  snprintf(what, sizeof what, "case %d of %s", _i / 2, op_title(p.op));
  kernel_within(&kernels_cpu, &p, want, bound, what);
  for (int k = 0; k < p.nout; k++) free(bound[k]);
  problem_free(&p);
}
END_TEST

/* And against the reference, as far as f64 goes. */
START_TEST(the_graph_is_the_formula) {
  Problem p, q;
  make(&p, _i, 12), make(&q, _i, 12);
  evaluate(&p, GRAPH_RIGHT);
  RefArgs r = problem_ref(&q, false);
  ref_ops[q.op](&r);
  for (int k = 0; k < p.nout; k++)
    for (int64_t i = 0; i < numbers(&p.out[k]); i++)
      if (!(fabs(p.out[k].v[i] - q.out[k].v[i]) <= 1e-6 * largest(&q.out[k]) + 1e-12))
        ck_abort_msg("result %d [%ld] is %.17g, not %.17g", k, (long)i, p.out[k].v[i],
                     q.out[k].v[i]);
  problem_free(&p), problem_free(&q);
}
END_TEST

static bool same_results(const Problem *p, const Problem *q) {
  for (int k = 0; k < p->nout; k++)
    for (int64_t i = 0; i < numbers(&p->out[k]); i++)
      if (!(fabs(p->out[k].v[i] - q->out[k].v[i]) <= 1e-4 * largest(&q->out[k])))
        return false;
  return true;
}

/* No op of the tables could give something else unseen, but for the maximum, which
 * cancels: it only keeps numbers small. */
START_TEST(every_op_of_the_graph_matters) {
  Problem p, q;
  make(&p, _i, 13), make(&q, _i, 13);
  AttentionGraph g = graph_of(&p);
  evaluate(&q, GRAPH_RIGHT);
  evaluate(&p, GRAPH_RIGHT);
  ck_assert(same_results(&p, &q));
  for (int i = 0; i < g.nnode; i++) {
    const char *name = g.tensor[g.node[i].y].name;
    evaluate(&p, i);
    ck_assert_msg(same_results(&p, &q) == (g.node[i].kind == AG_MOST),
                  "op %d, which gives %s", i, name);
  }
  problem_free(&p), problem_free(&q);
}
END_TEST

/* Scores up to some thousands, whose exponentials are no numbers. */
START_TEST(large_scores_stay_finite) {
  Problem p;
  make(&p, 4 + _i, 14);
  for (int64_t i = 0; i < numbers(&p.in[0]); i++) p.in[0].v[i] *= 1e4;
  if (_i) { /* lse and o are those of these queries */
    Problem f;
    make(&f, 4, 14);
    for (int64_t i = 0; i < numbers(&p.in[0]); i++) f.in[0].v[i] = p.in[0].v[i];
    evaluate(&f, GRAPH_RIGHT);
    for (int k = 0; k < 2; k++)
      memcpy(p.in[3 + k].v, f.out[k].v, (size_t)numbers(&f.out[k]) * sizeof(double));
    problem_free(&f);
  }
  evaluate(&p, GRAPH_RIGHT);
  for (int k = 0; k < p.nout; k++)
    ck_assert_msg(isfinite(largest(&p.out[k])), "result %d", k);
  problem_free(&p);
}
END_TEST

/* What the gradients read in f32 lies as if nobody looked at its strides: some engines do
 * not. */
START_TEST(lse_is_read_by_heads) {
  Problem p;
  int found = 0;
  make(&p, 4 + 1, 15);
  AttentionGraph g = graph_of(&p);
  for (int i = 0; i < g.ntensor; i++) {
    const AgTensor *t = &g.tensor[i];
    bool read = t->where == AG_IN || t->where == AG_BY_HEADS;
    if (!read || t->type != AG_F32) continue;
    for (int64_t k = 3, n = 1; k >= 0; n *= t->dim[k--])
      ck_assert_msg(t->stride[k] == n, "%s, dimension %d", t->name, (int)k);
    found++;
  }
  ck_assert_int_eq(found, 1);
  problem_free(&p);
}
END_TEST

/* ---- which attention it is given ---- */

typedef struct Asked {
  int op, nin, head, value, pieces, slots;
  DType type;
  int64_t keys, heads;
  const char *why; /* part of it; NULL: cuDNN computes it */
} Asked;

START_TEST(what_cudnn_is_given) {
  static const Asked asked[] = {
      {OP_attention, 3, 64, 0, 0, 0, DT_BF16, 16, 2, NULL},
      {OP_attention, 3, 128, 128, 1, 0, DT_BF16, 16, 1, NULL},
      {OP_attention_dx, 6, 64, 0, 0, 0, DT_BF16, 16, 4, NULL},
      {OP_attention, 3, 8, 0, 0, 0, DT_BF16, 16, 4, NULL},
      {OP_attention, 3, 64, 0, 0, 0, DT_F32, 16, 2, "bf16"},
      {OP_attention, 4, 64, 0, 0, 0, DT_BF16, 16, 2, NULL},
      {OP_attention_dx, 7, 64, 0, 0, 0, DT_BF16, 16, 2, NULL},
      {OP_attention, 3, 64, 0, 2, 0, DT_BF16, 32, 2, NULL},
      {OP_attention_dx, 6, 64, 0, 2, 0, DT_BF16, 32, 2, NULL},
      {OP_attention, 4, 64, 0, 2, 0, DT_BF16, 32, 2, "packed documents of which cp cuts"},
      {OP_attention_part, 4, 64, 0, 2, 0, DT_BF16, 16, 2,
       "packed documents of which cp cuts"},
      {OP_attention, 3, 64, 0, 0, 4, DT_BF16, 16, 2, "documents that cp cuts"},
      {OP_attention, 3, 64, 0, 0, 0, DT_BF16, 32, 2, "numbers of queries and keys"},
      {OP_attention, 3, 64, 0, 0, 0, DT_BF16, 16, 3,
       "not a multiple of the key-value heads"},
      {OP_attention, 3, 60, 0, 0, 0, DT_BF16, 16, 2, "multiple of 8"},
      {OP_attention_dx, 6, 136, 0, 0, 0, DT_BF16, 16, 2, "at most 128"},
      {OP_attention, 3, 128, 64, 0, 0, DT_BF16, 16, 2, "heads of v"},
      {OP_attention_part, 3, 64, 0, 2, 0, DT_BF16, 16, 2, NULL},
      {OP_attention_part_dx, 6, 64, 0, 2, 0, DT_BF16, 16, 2, NULL},
      {OP_attention_part, 3, 64, 0, 2, 0, DT_BF16, 32, 2, "numbers of queries and keys"},
      {OP_attention_step, 4, 64, 0, 0, 0, DT_BF16, 16, 2, "single tokens"},
  };
  for (int i = 0; i < LEN(asked); i++) {
    const Asked *x = &asked[i];
    OpAttr attr = {
        .head_dim = x->head, .value_dim = x->value, .n = x->pieces, .parts = x->slots};
    KernelArgs a = {.attr = &attr, .nin = x->nin};
    a.in[3].dtype = a.in[6].dtype = DT_I32; /* doc_starts, if it is given */
    for (int k = 0; k < 3; k++)
      a.in[k] = a.out[k] =
          (KTensor){.dtype = x->type,
                    .ndim = 3,
                    .dim = {2, k ? x->keys : 16, x->head * (k ? x->heads : 4)}};
    const char *why = cudnn_refuses(x->op, &a);
    ck_assert_msg(x->why ? why && strstr(why, x->why) : !why, "row %d: %s", i,
                  why ? why : "taken");
  }
}
END_TEST

/* It would draw other masks than weft's kernels, and other ones on other meshes. */
START_TEST(dropout_is_not_its) {
  OpAttr attr = {.head_dim = 64, .rate = 0.1};
  KernelArgs a = {.attr = &attr, .nin = 4};
  for (int k = 0; k < 3; k++)
    a.in[k] = a.out[k] = (KTensor){.dtype = DT_BF16, .ndim = 3, .dim = {2, 16, 256}};
  const char *why = cudnn_refuses(OP_attention, &a);
  ck_assert_msg(why && strstr(why, "masks"), "%s", why ? why : "taken");
  a.nin = 7;
  why = cudnn_refuses(OP_attention_dx, &a);
  ck_assert_msg(why && strstr(why, "masks"), "%s", why ? why : "taken");
}
END_TEST

START_TEST(caps_and_windows_of_parts_are_not_its) {
  static const struct {
    OpAttr attr;
    const char *why;
  } asked[] = {{{.head_dim = 64, .window = 8, .n = 2}, "no sliding window over a part"},
               {{.head_dim = 64, .soft_cap = 50}, "no cap of scores"}};
  for (int i = 0; i < LEN(asked); i++)
    for (int back = 0; back < 2; back++) {
      KernelArgs a = {.attr = &asked[i].attr, .nin = back ? 6 : 3};
      for (int k = 0; k < 3; k++)
        a.in[k] = a.out[k] = (KTensor){.dtype = DT_BF16, .ndim = 3, .dim = {2, 16, 256}};
      const char *why = cudnn_refuses(back ? OP_attention_dx : OP_attention, &a);
      ck_assert_msg(why && strstr(why, asked[i].why), "%s", why ? why : "taken");
    }
}
END_TEST

/* ---- what cuDNN makes of it ---- */

#ifdef WEFT_CUDNN_PLANS

/* forward and backward, B T H K D, and which rows see which */
static const char *const usual[] = {"1 512 8 8 64 whole",
                                    "2 4096 32 8 64 whole",
                                    "4 1024 8 1 64 whole",
                                    "2 4096 32 8 128 whole",
                                    "3 513 16 4 128 whole",
                                    "1 100 8 8 80 whole",
                                    "2 2048 32 8 128 gathered",
                                    "1 514 8 8 64 gathered",
                                    "2 2048 32 8 128 step",
                                    "3 70 4 1 64 step",
                                    "2 4096 32 8 128 window",
                                    "2 4096 32 8 128 documents",
                                    NULL};
static const char *const few[] = {"2 4096 32 8 128 whole",  "1 100 8 1 64 whole",
                                  "2 2048 32 8 128 step",   "2 2048 32 8 128 gathered",
                                  "2 4096 32 8 128 window", NULL};

/* What the program prints about each shape, forward and backward of it in turns. */
static const char *plans_of(const char *gpu, const char *const *shape) {
  Text t = {0};
  for (int i = 0; shape[i]; i++)
    text_printf(&t, "forward %s\nbackward %s\n", shape[i], shape[i]);
  scratch_put("shapes", t.s, t.n);
  text_free(&t);
  Outcome o = process_run(300,
                          "env LD_LIBRARY_PATH=" WEFT_BINARY_DIR
                          "/driver:$LD_LIBRARY_PATH " WEFT_CUDNN_PLANS " " WEFT_SOURCE_DIR
                          "/tests/standin/gpus/%s.json < shapes",
                          gpu);
  ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
  return o.out;
}

/* A plan for each, within the formula. Of the forward pass all of it may be unused; of
 * the backward pass Ampere's engine uses it to the last 128 bytes, newer ones half of it.
 */
static void check_plans(const char *gpu, const char *const *shape, int64_t part) {
  const char *at = plans_of(gpu, shape);
  for (int i = 0; shape[i / 2]; i++) {
    long long wants = -1, room = -1;
    ck_assert_msg(sscanf(at, "plan %lld %lld", &wants, &room) == 2, "%s: %s: %s", gpu,
                  shape[i / 2], at);
    ck_assert_msg(wants >= 0 && wants <= room, "%s: %s: %lld of %lld", gpu, shape[i / 2],
                  wants, room);
    if (i % 2 && strstr(shape[i / 2], "whole"))
      ck_assert_msg(wants * part > (room - 256) * 9 / 10, "%s: %s: only %lld of %lld",
                    gpu, shape[i / 2], wants, room);
    at = strchr(at, '\n');
    ck_assert(at);
    at++;
  }
}

START_TEST(plans_for_hopper) { check_plans("h100", usual, 2); }
END_TEST
START_TEST(plans_for_ampere) { check_plans("a100", few, 1); }
END_TEST
START_TEST(plans_for_blackwell) { check_plans("b200", few, 2); }
END_TEST

/* A file of that name that is no library, and a library that is not cuDNN. */
START_TEST(what_is_said_without_cudnn) {
  static const char to[] = "env LD_LIBRARY_PATH=. " WEFT_CUDNN_PLANS " none.json";
  scratch_put("libcudnn.so.9", "no library", 10);
  Outcome o = process_run(20, "%s", to);
  ck_assert_int_eq(o.code, 3);
  ck_assert_msg(strstr(o.out, "attention_backend: cuDNN 9 cannot be opened (") &&
                    strstr(o.out, "(attention_backend = \"native\")"),
                "%s", o.out);
  o = process_run(20,
                  "sh -c 'cp " WEFT_BINARY_DIR "/driver/libcuda.so.1 libcudnn.so.9; "
                  "exec %s'",
                  to);
  ck_assert_int_eq(o.code, 3);
  ck_assert_msg(strstr(o.out, "libcudnn.so.9 has no cudnnGetVersion") != NULL, "%s",
                o.out);
}
END_TEST

/* Head sizes that weft does not ask for. */
START_TEST(what_cudnn_has_no_plan_for) {
  static const char *const shape[] = {"2 512 8 2 60 whole", "2 512 8 3 64 whole", NULL};
  const char *at = plans_of("h100", shape);
  for (int i = 0; i < 4; i++) {
    ck_assert_msg(strncmp(at, "none ", 5) == 0, "%d: %s", i, at);
    at = strchr(at, '\n') + 1;
  }
  static const char *const wide[] = {"1 512 8 2 136 whole", NULL};
  at = strchr(plans_of("b200", wide), '\n') + 1;
  ck_assert_msg(strncmp(at, "none ", 5) == 0, "%s", at);
}
END_TEST

static void plans(Suite *s) {
  TCase *t = tcase_create("plans");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 320);
  tcase_add_test(t, what_is_said_without_cudnn);
  tcase_add_test(t, plans_for_hopper);
  tcase_add_test(t, plans_for_ampere);
  tcase_add_test(t, plans_for_blackwell);
  tcase_add_test(t, what_cudnn_has_no_plan_for);
  suite_add_tcase(s, t);
}

#else

START_TEST(needs_cudnn) {
  printf("skipped: cuDNN makes plans where its headers are when weft is configured\n");
}
END_TEST

static void plans(Suite *s) {
  TCase *t = tcase_create("plans");
  tcase_add_test(t, needs_cudnn);
  suite_add_tcase(s, t);
}

#endif

Suite *cudnn_suite(void) {
  Suite *s = suite_create("cudnn");
  TCase *t = tcase_create("graph");
  tcase_set_timeout(t, 240); /* each op of a graph is left out once */
  tcase_add_loop_test(t, the_graph_is_attention, 0, 2 * LEN(cases));
  tcase_add_loop_test(t, the_graph_is_the_formula, 0, 2 * LEN(cases));
  tcase_add_loop_test(t, every_op_of_the_graph_matters, 4, 6);
  tcase_add_loop_test(t, every_op_of_the_graph_matters, 14, 2 * LEN(cases));
  tcase_add_loop_test(t, large_scores_stay_finite, 0, 2);
  tcase_add_test(t, lse_is_read_by_heads);
  tcase_add_test(t, what_cudnn_is_given);
  tcase_add_test(t, dropout_is_not_its);
  tcase_add_test(t, caps_and_windows_of_parts_are_not_its);
  suite_add_tcase(s, t);
  plans(s);
  return s;
}
