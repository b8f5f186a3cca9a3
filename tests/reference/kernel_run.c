/* kernel_run.c - runs the kernels of a device on the problems of kernel_cases.h and
 * compares them with the reference in f64. */
#include "kernel_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- typed buffers with a guard margin ---- */

enum { MARGIN = 64, MARK = 0xa5 };

void *kernel_typed(const Value *x) {
  KTensor t = kernel_tensor(x);
  size_t bytes = kernel_bytes(&t);
  unsigned char *p = aligned_alloc(64, (bytes + 2 * MARGIN) / 64 * 64);
  memset(p + bytes, MARK, MARGIN);
  kernel_put(x, p);
  return p;
}

/* Scratch filled with NaN, with a guard margin behind it. */
void *kernel_guarded(uint64_t bytes) {
  unsigned char *p = aligned_alloc(64, (bytes + 2 * MARGIN) / 64 * 64);
  memset(p, 0xff, bytes);
  memset(p + bytes, MARK, MARGIN);
  return p;
}

void kernel_check_guard(const void *at, uint64_t bytes) {
  const unsigned char *p = at;
  for (int i = 0; i < MARGIN; i++)
    ck_assert_msg(p[bytes + (uint64_t)i] == MARK, "written after the end");
}

KernelArgs kernel_run(const KernelSet *set, const Problem *p, int threads,
                      bool accumulate) {
  const Kernel *k = set->kernel(p->op);
  KernelArgs a = {.attr = &p->attr,
                  .nin = p->nin,
                  .nout = p->nout,
                  .accumulate = accumulate,
                  .index = p->index,
                  .heads_index = KERNEL_HEADS,
                  .shard = p->index,
                  .unit = KERNEL_UNIT};
  Device dev = set->device;
  weft_error e = {0};
  dev.threads = threads;
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = kernel_tensor(&p->out[i]);
  uint64_t state = set->state ? set->state(p->op, &a) : 0;
  a.state = memset(kernel_guarded(state), 0, state);
  if (k->prepare) ck_assert_msg(k->prepare(&dev, &a, &e) == WEFT_OK, "%s", e.text);
  for (int i = 0; i < p->nin; i++) a.in[i].p = kernel_typed(&p->in[i]);
  for (int i = 0; i < p->nout; i++)
    a.out[i].p = p->out[i].alias < 0 ? kernel_typed(&p->out[i]) : a.in[p->out[i].alias].p;
  uint64_t work = set->work(p->op, &a);
  a.work = kernel_guarded(work);
  k->run(&dev, &a);
  kernel_check_guard(a.work, work);
  free(a.work);
  if (k->release) k->release(&dev, &a);
  kernel_check_guard(a.state, state);
  free(a.state);
  return a;
}

void kernel_free(const Problem *p, KernelArgs *a) {
  for (int i = 0; i < p->nin; i++) free(a->in[i].p);
  for (int i = 0; i < p->nout; i++)
    if (p->out[i].alias < 0) free(a->out[i].p);
}

/* ---- comparison ---- */

static void check_margins(const KernelArgs *a, const char *what) {
  for (int i = 0; i < a->nout; i++) {
    const KTensor *t = &a->out[i];
    const unsigned char *m = (const unsigned char *)t->p + kernel_bytes(t);
    for (int j = 0; j < MARGIN; j++)
      if (m[j] != MARK) ck_abort_msg("%s: result %d is written past its end", what, i);
  }
}

void kernel_result_agrees(const KTensor *t, DType type, const double *want,
                          double nothing, const char *what, int i) {
  KernelDifference d = kernel_difference(t, type, want, nothing, false);
  if (d.odd >= 0)
    ck_abort_msg("%s: result %d [%ld] is %g, not %g", what, i, (long)d.odd,
                 kernel_element(t->p, t->dtype, d.odd), want[d.odd]);
  ck_assert_msg(d.norm <= d.limit, "%s: result %d differs by %.3g norm-wise", what, i,
                d.norm);
  ck_assert_msg(d.ok, "%s: result %d differs by %.3g of the largest element", what, i,
                d.element);
}

static void check_roundings(const KernelSet *set, const Problem *p, const KernelArgs *got,
                            const KernelArgs *like, const char *what) {
  for (int i = 0; i < p->nout; i++) {
    if (p->out[i].type != DT_BF16 || (set->coarse && set->coarse(p, i))) continue;
    double most = kernel_roundings(&got->out[i], &like->out[i]);
    ck_assert_msg(most <= 1, "%s: result %d differs from %s by %.3g roundings", what, i,
                  set->like->name, most);
  }
}

static void same_bits(const KernelArgs *a, const KernelArgs *b, const char *what) {
  for (int i = 0; i < a->nout; i++) {
    size_t n = kernel_bytes(&a->out[i]);
    ck_assert_msg(memcmp(a->out[i].p, b->out[i].p, n) == 0,
                  "%s: result %d is not the same bits twice", what, i);
  }
}

void kernel_agrees(const KernelSet *set, Problem *p, bool accumulate, const char *type) {
  KernelArgs got[4], like;
  char what[128];
  int runs = 2 * set->threads;
  double nothing = kernel_nothing(p);
  for (int i = 0; i < runs; i++) got[i] = kernel_run(set, p, 1 + i / 2, accumulate);
  if (set->like) like = kernel_run(set->like, p, 1, accumulate);
  RefArgs ref = problem_ref(p, accumulate); /* first: results may overwrite operands */
  ref_ops[p->op](&ref);
  for (int i = 0; i < runs; i++) {
    snprintf(what, sizeof what, "%s: %s %s, %d thread(s)%s", set->name, op_title(p->op),
             type, 1 + i / 2, accumulate ? ", accumulating" : "");
    check_margins(&got[i], what);
    for (int k = 0; k < p->nout; k++) {
      bool coarse = set->coarse && set->coarse(p, k);
      kernel_result_agrees(&got[i].out[k], coarse ? p->in[0].type : p->out[k].type,
                           ref.out[k].v, nothing, what, k);
    }
    if (i % 2) same_bits(&got[i], &got[i - 1], what);
    if (set->like) check_roundings(set, p, &got[i], &like, what);
  }
  for (int i = 0; i < runs; i++) kernel_free(p, &got[i]);
  if (set->like) kernel_free(p, &like);
}

/* ---- results over operands ---- */

static bool same_shape(const Value *a, const Value *b) {
  return a->type == b->type && a->ndim == b->ndim &&
         memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->ndim) == 0;
}

/* Puts all results in place that may be, at once. */
static void hold_in_place(const KernelSet *set, const Problem *p, bool *tried) {
  Problem q = *p;
  int n = 0;
  for (int k = 0; k < op_places; k++) {
    const OpPlace *r = &op_place[k];
    if (!op_place_is(r, p->op, &p->attr) || !place_is_free(r) || r->other >= p->nin)
      continue;
    if (!same_shape(&q.out[r->result], &q.in[r->other])) continue;
    if (q.out[r->result].alias >= 0) continue; /* in place in the case itself */
    q.out[r->result].alias = r->other;
    tried[k] = true, n++;
  }
  if (!n) return;
  KernelArgs apart = kernel_run(set, p, 1, false), over = kernel_run(set, &q, 1, false);
  char what[128];
  snprintf(what, sizeof what, "%s: %s in place", set->name, op_title(p->op));
  same_bits(&apart, &over, what);
  kernel_free(p, &apart);
  kernel_free(&q, &over);
}

static bool has_places(int op) {
  for (int k = 0; k < op_places; k++)
    if (op_place[k].op == op && place_is_free(&op_place[k])) return true;
  return false;
}

void kernel_places_hold(const KernelSet *set, const DType *types, int ntype) {
  bool *tried = calloc((size_t)op_places, sizeof *tried);
  for (int i = 0; i < kernel_cases; i++)
    for (int t = 0; t < ntype; t++) {
      const KernelCase *c = &kernel_case[i];
      Problem p;
      if (has_places(c->op)) {
        problem_make(&p, c, types[t], problem_seed(c));
        hold_in_place(set, &p, tried);
        problem_free(&p);
      }
      for (int g = 0; g < grad_cases; g++) {
        if (!grad_case_is_of(&grad_case[g], c) || !has_places(grad_case[g].op)) continue;
        problem_grad(&p, NULL, &grad_case[g], c, types[t], problem_seed(c));
        hold_in_place(set, &p, tried);
        problem_free(&p);
      }
    }
  for (int k = 0; k < op_places; k++) {
    bool kernel = op_place[k].op != OP_all_reduce; /* a collective, no kernel */
    ck_assert_msg(tried[k] || !kernel || !place_is_free(&op_place[k]),
                  "no case of %s has result %d over %d", op_title(op_place[k].op),
                  op_place[k].result, op_place[k].other);
  }
  free(tried);
}

void kernel_within(const KernelSet *set, const Problem *p, double *const *want,
                   double *const *bound, const char *what) {
  KernelArgs got = kernel_run(set, p, 1, false);
  for (int i = 0; i < p->nout; i++) {
    const KTensor *t = &got.out[i];
    for (int64_t j = 0; bound[i] && j < kernel_count(t); j++) {
      double x = kernel_element(t->p, t->dtype, j);
      if (!(fabs(x - want[i][j]) <= bound[i][j]))
        ck_abort_msg("%s: result %d [%ld] is %.9g, not %.9g within %.3g", what, i,
                     (long)j, x, want[i][j], bound[i][j]);
    }
  }
  kernel_free(p, &got);
}
