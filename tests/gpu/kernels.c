/* kernels.c - weft-gpu kernels: every kernel of the device `cuda` on the cases of
 * tests/reference/kernel_cases, by the interface that a run uses. A line for each op and
 * type says how far the worst result is from the reference in f64, what it may be, and
 * how far the CPU's kernel is.
 *
 * What a launch touches is one image, with a margin after each operand, result and
 * scratch: uploaded, and brought back as a whole. So what a kernel writes where it may
 * not is seen. Twice as it is, which must give the same bits; then once more with results
 * that hold nan (-1 where they are integers), which must not be read, and where results
 * may lie over operands with these in the same place. With --cudnn those problems that
 * the device leaves to cuDNN where a plan asks for it, by cuDNN. */
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/reference/kernel_values.h"
#include "vm/graph/op_fp8.h"
#include "vm/graph/rules.h"

enum { MARGIN = 64, MARK = 0xa5, PLACES = KERNEL_MAX_IN + KERNEL_MAX_OUT + 1 };

typedef struct Side {
  const DeviceKind *kind;
  Device dev;
  bool open;
  unsigned char *memory; /* of the device, `room` bytes */
  size_t room;
} Side;

/* Where everything lies: operands, results (those of an alias are its operand), scratch;
 * and which of these places each result has. */
typedef struct Layout {
  size_t at[PLACES], n[PLACES], bytes;
  int work, places, result[KERNEL_MAX_OUT];
} Layout;

typedef struct Worst {
  int problems;
  double norm, element, limit, cpu;
} Worst;

typedef struct Bench {
  Side cuda, cpu;
  bool brief;       /* the first and the last case of each op only */
  const char *only; /* an op, or NULL */
  bool cudnn;       /* what the library beside the kernels computes, by it */
  bool absent;      /* it is not there */
  bool failed[OP_N];
  bool tried[OP_N];
  /* Recipes of fp8 that the GPU does not have; without one, what its cuDNN does wrong. */
  bool lacks[FP8_MX + 1];
  Worst worst;
} Bench;

/* ---- images ---- */

static size_t up(size_t n) {
  return (n + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
}

static void place(Layout *l, size_t bytes) {
  l->at[l->places] = l->bytes, l->n[l->places++] = bytes;
  l->bytes = up(l->bytes + bytes + MARGIN);
}

static KernelArgs shapes(const Problem *p, bool accumulate) {
  KernelArgs a = {.attr = &p->attr,
                  .nin = p->nin,
                  .nout = p->nout,
                  .accumulate = accumulate,
                  .index = p->index,
                  .shard = p->index,
                  .heads_index = KERNEL_HEADS,
                  .unit = KERNEL_UNIT};
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = kernel_tensor(&p->out[i]);
  return a;
}

/* The operand that result k may lie over in a program (in_place.def), or -1. */
static int over(const Problem *p, const KernelArgs *a, int k) {
  for (const OpPlace *o = op_place; o < op_place + op_places; o++)
    if (op_place_is(o, p->op, &p->attr) && place_is_free(o) && o->result == k &&
        kernel_bytes(&a->in[o->other]) == kernel_bytes(&a->out[k]))
      return o->other;
  return -1;
}

/* `in_place`: with results over operands, where they may lie there. */
static Layout lay_out(const DeviceKind *kind, const Problem *p, const KernelArgs *a,
                      bool in_place) {
  Layout l = {0};
  for (int i = 0; i < p->nin; i++) place(&l, kernel_bytes(&a->in[i]));
  for (int i = 0; i < p->nout; i++) {
    int at = p->out[i].alias;
    if (at < 0 && in_place) at = over(p, a, i);
    l.result[i] = at < 0 ? l.places : at;
    place(&l, at < 0 ? kernel_bytes(&a->out[i]) : 0);
  }
  l.work = l.places;
  place(&l, kind->work(p->op, a));
  return l;
}

static unsigned char *image(const Layout *l, const Problem *p) {
  unsigned char *m = malloc(l->bytes);
  if (!m) return NULL;
  memset(m, MARK, l->bytes);
  for (int i = 0; i < p->nin; i++) kernel_put(&p->in[i], m + l->at[i]);
  for (int i = 0; i < p->nout; i++)
    if (l->result[i] == p->nin + i) kernel_put(&p->out[i], m + l->at[p->nin + i]);
  memset(m + l->at[l->work], 0xff, l->n[l->work]);
  return m;
}

static weft_status has_room(Side *s, size_t bytes, weft_error *e) {
  void *p = NULL;
  if (bytes <= s->room) return WEFT_OK;
  device_free(&s->dev, s->memory, s->room);
  s->memory = NULL, s->room = 0;
  TRY(device_alloc(&s->dev, 2 * bytes, &p, e));
  s->memory = p, s->room = 2 * bytes;
  return WEFT_OK;
}

/* ---- one launch ---- */

static weft_status launch(Side *s, const Problem *p, KernelArgs *a, const Layout *l,
                          unsigned char *m, weft_error *e) {
  const Kernel *k = device_kernel(&s->dev, p->op, a);
  if (!k || !k->run)
    return err_set(e, WEFT_ERUN, "device %s has no kernel", s->kind->name);
  if (k->prepare) TRY(k->prepare(&s->dev, a, e));
  if (s->dev.fallback) { /* a run would go on; here it shows */
    err_set(e, WEFT_ERUN, "%s", s->dev.fallback);
    s->dev.fallback = NULL;
    return WEFT_ERUN;
  }
  for (int i = 0; i < p->nin; i++) a->in[i].p = s->memory + l->at[i];
  for (int i = 0; i < p->nout; i++) a->out[i].p = s->memory + l->at[l->result[i]];
  a->work = s->memory + l->at[l->work];
  device_upload(&s->dev, s->memory, m, l->bytes);
  device_launch(&s->dev, k, a);
  device_download(&s->dev, m, s->memory, l->bytes);
  weft_status st = device_sync(&s->dev, e);
  if (k->release) k->release(&s->dev, a);
  return st;
}

/* The image becomes what the launch leaves. */
static weft_status run(Side *s, const Problem *p, bool accumulate, bool in_place,
                       unsigned char *m, weft_error *e) {
  enum { ALIGN = 64 };
  KernelArgs a = shapes(p, accumulate);
  Layout l = lay_out(s->kind, p, &a, in_place);
  size_t state = s->kind->state(p->op, &a);
  TRY(has_room(s, l.bytes, e));
  a.state = aligned_alloc(ALIGN, (state + ALIGN) / ALIGN * ALIGN);
  if (!a.state) return err_set(e, WEFT_ENOMEM, "out of memory");
  memset(a.state, 0, state);
  weft_status st = launch(s, p, &a, &l, m, e);
  free(a.state);
  return st;
}

/* What was not to be written: operands that no result is, and margins. */
static bool untouched(const Problem *p, const Layout *l, const unsigned char *was,
                      const unsigned char *is, weft_error *e) {
  for (int i = 0; i < l->places; i++) {
    bool result = i >= p->nin;
    for (int k = 0; k < p->nout; k++) result |= l->result[k] == i;
    if (!result && memcmp(was + l->at[i], is + l->at[i], l->n[i]) != 0)
      return err_set(e, WEFT_ERUN, "operand %d is changed", i), false;
    size_t end = l->at[i] + l->n[i];
    size_t next = i + 1 < l->places ? l->at[i + 1] : l->bytes;
    if (memcmp(was + end, is + end, next - end) != 0)
      return err_set(e, WEFT_ERUN, "written past the end of number %d", i), false;
  }
  return true;
}

/* ---- comparison ---- */

static bool compare(Bench *b, const Problem *p, const RefArgs *ref, const KernelArgs *a,
                    const Layout *l, const unsigned char *m, bool poisoned,
                    weft_error *e) {
  for (int i = 0; i < p->nout; i++) {
    KTensor t = a->out[i];
    t.p = (void *)(m + l->at[l->result[i]]);
    DType type = kernel_cuda_coarse(p, i) ? p->in[0].type : p->out[i].type;
    KernelDifference d = kernel_compare(&t, kernel_gpu_limit(p, type), ref->out[i].v,
                                        kernel_nothing(p), poisoned);
    Worst *w = &b->worst;
    if (d.norm / d.limit >= w->norm / w->limit || !w->limit)
      w->norm = d.norm, w->limit = d.limit;
    w->element = fmax(w->element, d.element / (4 * d.limit));
    if (d.odd >= 0)
      return err_set(e, WEFT_ERUN, "result %d [%lld] is %g, not %g", i, (long long)d.odd,
                     kernel_element(t.p, t.dtype, d.odd), ref->out[i].v[d.odd]),
             false;
    if (!d.ok)
      return err_set(e, WEFT_ERUN,
                     "result %d differs by %.2e (one element %.2e), limit %.0e", i,
                     d.norm, d.element, d.limit),
             false;
  }
  return true;
}

static bool same_bits(const Problem *p, const Layout *l, const unsigned char *a,
                      const unsigned char *b, weft_error *e) {
  for (int i = 0; i < p->nout; i++) {
    int k = l->result[i];
    if (memcmp(a + l->at[k], b + l->at[k], l->n[k]) != 0)
      return err_set(e, WEFT_ERUN, "result %d is not the same bits twice", i), false;
  }
  return true;
}

/* How far the CPU's kernel is: no test of it, which is that of suite `kernels`. */
static void of_cpu(Bench *b, const Problem *p, const RefArgs *ref,
                   const unsigned char *m) {
  KernelArgs a = shapes(p, ref->accumulate);
  Layout l = lay_out(b->cpu.kind, p, &a, false);
  for (int i = 0; i < p->nout; i++) {
    KTensor t = a.out[i];
    t.p = (void *)(m + l.at[l.result[i]]);
    KernelDifference d =
        kernel_difference(&t, p->out[i].type, ref->out[i].v, kernel_nothing(p), true);
    b->worst.cpu = fmax(b->worst.cpu, d.norm);
  }
}

/* ---- problems ---- */

typedef struct Source {
  const KernelCase *c;
  const GradCase *g; /* NULL: the forward op itself */
  DType type;
  uint64_t seed;
  bool cudnn;
} Source;

static Problem problem(const Source *s) {
  Problem p;
  if (s->g)
    problem_grad(&p, NULL, s->g, s->c, s->type, s->seed);
  else
    problem_make(&p, s->c, s->type, s->seed);
  if (s->cudnn) p.attr.backend = BACKEND_CUDNN;
  return p;
}

static void poison(Problem *p) {
  for (int i = 0; i < p->nout; i++) {
    KTensor t = kernel_tensor(&p->out[i]);
    bool whole = p->out[i].type == DT_I32;
    for (int64_t k = 0, n = kernel_count(&t); k < n && p->out[i].alias < 0; k++)
      p->out[i].v[k] = whole ? -1 : NAN;
  }
}

/* cuDNN adds up dq as its blocks come. */
static bool any_order(const Source *s, int op) {
  return s->cudnn && (op == OP_attention_dx || op == OP_attention_part_dx);
}

/* Results of the reference take the place of those of the problem, so it is made anew. */
static bool as_it_is(Bench *b, const Source *s, bool accumulate, weft_error *e) {
  Problem p = problem(s);
  KernelArgs a = shapes(&p, accumulate);
  Layout l = lay_out(b->cuda.kind, &p, &a, false),
         home = lay_out(b->cpu.kind, &p, &a, false);
  unsigned char *was = image(&l, &p), *m = image(&l, &p), *again = image(&l, &p),
                *cpu = image(&home, &p);
  bool ok = was && m && again && cpu;
  if (!ok) err_set(e, WEFT_ENOMEM, "out of memory");
  ok = ok && run(&b->cuda, &p, accumulate, false, m, e) == WEFT_OK &&
       run(&b->cuda, &p, accumulate, false, again, e) == WEFT_OK &&
       run(&b->cpu, &p, accumulate, false, cpu, e) == WEFT_OK;
  RefArgs ref = problem_ref(&p, accumulate);
  if (ok) ref_ops[p.op](&ref);
  ok = ok && untouched(&p, &l, was, m, e) && compare(b, &p, &ref, &a, &l, m, false, e) &&
       (any_order(s, p.op) || same_bits(&p, &l, m, again, e));
  if (ok) of_cpu(b, &p, &ref, cpu);
  free(was), free(m), free(again), free(cpu);
  problem_free(&p);
  return ok;
}

static bool has_places(const Problem *p, const KernelArgs *a) {
  for (int i = 0; i < p->nout; i++)
    if (over(p, a, i) >= 0) return true;
  return false;
}

/* With results that hold nan, or, `in_place`, over operands, as far as they may be. */
static bool once_more(Bench *b, const Source *s, bool in_place, weft_error *e) {
  Problem p = problem(s);
  if (!in_place) poison(&p);
  KernelArgs a = shapes(&p, false);
  Layout l = lay_out(b->cuda.kind, &p, &a, in_place);
  bool ok = in_place && !has_places(&p, &a);
  unsigned char *m = ok ? NULL : image(&l, &p);
  if (!ok && m && run(&b->cuda, &p, false, in_place, m, e) == WEFT_OK) {
    RefArgs ref = problem_ref(&p, false);
    ref_ops[p.op](&ref);
    ok = compare(b, &p, &ref, &a, &l, m, !in_place, e);
  }
  free(m);
  problem_free(&p);
  return ok;
}

/* Whether the library computes this problem. */
static bool by_library(const Bench *b, const Source *s) {
  Problem p = problem(s);
  KernelArgs a = shapes(&p, false);
  bool pairs =
      op_info[p.op].cost == cost_attention || op_info[p.op].cost == cost_attention_dx;
  bool yes = pairs && b->cuda.kind->refuses && !b->cuda.kind->refuses(p.op, &a);
  problem_free(&p);
  return yes;
}

static void try(Bench *b, int op, const Source *s, bool adds) {
  if (b->absent || (s->cudnn && !by_library(b, s))) return;
  for (int accumulate = 0; accumulate <= adds; accumulate++) {
    weft_error e = {.rank = -1};
    bool ok = as_it_is(b, s, accumulate, &e) &&
              (accumulate || (once_more(b, s, false, &e) && once_more(b, s, true, &e)));
    if (!ok && e.code == WEFT_EPLAN && (is_linear_fp8(op) || s->cudnn)) {
      if (!b->lacks[s->c->attr.fp8]) printf("not here: %s\n", e.text);
      b->lacks[s->c->attr.fp8] = true;
      continue;
    }
    b->worst.problems++;
    if (ok) continue;
    if (s->cudnn && e.code == WEFT_EUSAGE) {
      printf("skipped: %s\n", e.text);
      b->absent = true;
      return;
    }
    b->failed[op] = true;
    printf("FAILED %s %s%s, case \"%s\" of %s: %s\n", op_title(op), dtype_name(s->type),
           accumulate ? ", adding" : "", s->c->in, op_title(s->c->op), e.text);
  }
}

/* ---- ops ---- */

static bool chosen(const Bench *b, int i, int first, int last) {
  return !b->brief || i == first || i == last;
}

static void forward_cases(Bench *b, int op, DType type) {
  int first = -1, last = -1;
  for (int i = 0; i < kernel_cases; i++)
    if (kernel_case[i].op == op) first = first < 0 ? i : first, last = i;
  for (int i = MAX(first, 0); i <= last; i++) {
    Source s = {.c = &kernel_case[i],
                .type = type,
                .seed = problem_seed(&kernel_case[i]),
                .cudnn = b->cudnn};
    if (kernel_case[i].op == op && chosen(b, i, first, last)) try(b, op, &s, op_adds(op));
  }
}

static void backward_cases(Bench *b, const GradCase *g, DType type) {
  int first = -1, last = -1;
  for (int i = 0; i < kernel_cases; i++)
    if (grad_case_is_of(g, &kernel_case[i])) first = first < 0 ? i : first, last = i;
  for (int i = MAX(first, 0); i <= last; i++) {
    Source s = {.c = &kernel_case[i],
                .g = g,
                .type = type,
                .seed = problem_seed(&kernel_case[i]),
                .cudnn = b->cudnn};
    if (!grad_case_is_of(g, &kernel_case[i]) || !chosen(b, i, first, last)) continue;
    Problem p = problem(&s);
    bool adds = p.adds;
    problem_free(&p);
    try(b, g->op, &s, adds);
  }
}

static void one_op(Bench *b, int op) {
  static const DType types[] = {DT_F32, DT_BF16};
  KernelArgs none = {0};
  const Kernel *k = device_kernel(&b->cuda.dev, op, &none);
  if (!k || !k->run) return;
  for (int t = 0; t < LEN(types); t++) {
    b->worst = (Worst){0};
    forward_cases(b, op, types[t]);
    for (int i = 0; i < grad_cases; i++)
      if (grad_case[i].op == op) backward_cases(b, &grad_case[i], types[t]);
    const Worst *w = &b->worst;
    if (!w->problems || b->absent) continue;
    b->tried[op] = true;
    printf("%-22s %-5s %8d  %9.2e of %.0e  %5.1f %%  %9.2e\n", op_title(op),
           dtype_name(types[t]), w->problems, w->norm, w->limit, 100 * w->element,
           w->cpu);
    fflush(stdout);
  }
}

/* Kernels without a case, ops without a kernel. */
static int not_covered(Bench *b) {
  int n = 0;
  for (int op = 0; op < OP_N && !b->only && !b->cudnn; op++) {
    KernelArgs none = {0};
    const Kernel *k = device_kernel(&b->cuda.dev, op, &none);
    if (k && k->run && !b->tried[op] && !(is_linear_fp8(op) && b->lacks[FP8_MX]))
      printf("FAILED %s: it has a kernel, but no case\n", op_title(op)), n++;
  }
  return n;
}

static int all(Bench *b) {
  int good = 0, bad = 0;
  printf("%-22s %-5s %8s  %18s  %7s  %9s\n", "op", "type", "problems", "norm-wise error",
         "element", "the CPU's");
  for (int op = 0; op < OP_N; op++) {
    KernelArgs none = {0};
    const Kernel *k = device_kernel(&b->cuda.dev, op, &none);
    if (!k || !k->run || (b->only && strcmp(b->only, op_title(op)) != 0)) continue;
    one_op(b, op);
    good += b->tried[op] && !b->failed[op], bad += b->failed[op];
  }
  bad += not_covered(b);
  printf("%d ops are right, %d are wrong\n", good, bad);
  return bad || (!good && !b->absent) ? 1 : 0;
}

static weft_status open_side(Side *s, const char *name, weft_error *e) {
  s->kind = device_kind(name, e);
  const DeviceVtable *vt = s->kind ? s->kind->load(e) : NULL;
  if (!vt) return WEFT_EUSAGE;
  TRY(device_open(&s->dev, vt, NULL, 0, 0, 1, e));
  s->open = true;
  return WEFT_OK;
}

static void close_side(Side *s) {
  if (!s->open) return;
  device_free(&s->dev, s->memory, s->room);
  device_close(&s->dev);
}

int gpu_kernels(int argc, char **argv) {
  Bench b = {0};
  weft_error e = {.rank = -1};
  for (int i = 0; i < argc; i++) {
    if (strcmp(argv[i], "--brief") == 0)
      b.brief = true;
    else if (strcmp(argv[i], "--cudnn") == 0)
      b.cudnn = true;
    else if (strcmp(argv[i], "--op") == 0 && i + 1 < argc)
      b.only = argv[++i];
    else
      return gpu_fails(argv[i], err_set(&e, WEFT_EUSAGE, "no such option of kernels"),
                       &e);
  }
  weft_status st = open_side(&b.cuda, "cuda", &e);
  if (st == WEFT_OK) st = open_side(&b.cpu, "cpu", &e);
  int code = st == WEFT_OK ? all(&b) : gpu_fails("kernels", st, &e);
  close_side(&b.cuda);
  close_side(&b.cpu);
  return code;
}
