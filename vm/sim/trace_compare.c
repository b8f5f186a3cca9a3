/* trace_compare.c - reads the events of kernels of a trace, by rank and instruction; see
 * trace_compare.h. */
#include "trace_compare.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "vm/io/file.h"
#include "vm/io/json_text.h"

/* Durations of one instruction on the ranks of a pp rank. */
typedef struct Seen {
  VEC(double) took;
} Seen;

typedef struct Compare {
  const Compiled *c;
  const CostSource *source;
  const char *path;
  Arena *a;
  Seen **seen;         /* [pp][pc] */
  int64_t first, last; /* steps of the trace */
  VEC(ComparedOp) op;
} Compare;

/* ---- events ---- */

static weft_status other_plan(const Compare *k, weft_error *e) {
  return err_set(e, WEFT_EFILE,
                 "%s: is no trace of this plan on this mesh: its programs are none of "
                 "these; give the --set and -D of the run",
                 k->path);
}

/* Programs of other lengths of sequences have the same instructions. */
static weft_status check_programs(const Compare *k, const json_t *root, weft_error *e) {
  const json_t *other = json_object_get(root, "otherData");
  const char *programs = json_string_value(json_object_get(other, "programs"));
  char mine[24];
  if (!programs)
    return err_set(e, WEFT_EFILE,
                   "%s: is no trace that this weft run has written: it does not say of "
                   "which programs it is",
                   k->path);
  snprintf(mine, sizeof mine, "%016llx", (unsigned long long)program_key(k->c));
  return strcmp(programs, mine) == 0 ? WEFT_OK : other_plan(k, e);
}

static int64_t argument(const json_t *event, const char *name) {
  const json_t *v = json_object_get(json_object_get(event, "args"), name);
  return json_is_integer(v) ? json_integer_value(v) : -1;
}

static bool is_kernel(const json_t *event) {
  const char *cat = json_string_value(json_object_get(event, "cat"));
  return cat && strcmp(cat, "kernel") == 0;
}

/* The instruction of an event, and its pp rank; NULL: there is none. */
static const Instr *instr_of(const Compare *k, const json_t *event, int *pp) {
  json_int_t rank = json_integer_value(json_object_get(event, "pid"));
  int64_t pc = argument(event, "instruction");
  const char *name = json_string_value(json_object_get(event, "name"));
  char wanted[80];
  if (rank < 0 || rank >= k->c->mesh.world) return NULL;
  *pp = mesh_coord(&k->c->mesh, (int)rank, AXIS_PP);
  const Program *p = &k->c->prog[*pp];
  if (pc < 0 || pc >= p->ncode || p->code[pc].code != I_KERNEL) return NULL;
  TextBuf t = textbuf(wanted, sizeof wanted);
  textbuf_printf(&t, "op %s ", op_info[p->code[pc].op].name);
  return name && strncmp(name, wanted, t.n) == 0 ? &p->code[pc] : NULL;
}

/* Steps are counted in an int of those that ask. */
static weft_status find_steps(Compare *k, const json_t *events, weft_error *e) {
  size_t i;
  const json_t *event;
  k->first = INT64_MAX, k->last = -1;
  json_array_foreach((json_t *)events, i, event) {
    if (!is_kernel(event)) continue;
    int64_t step = argument(event, "step");
    if (step < 0)
      return err_set(e, WEFT_EFILE, "%s: is no trace of weft run: a kernel is of no step",
                     k->path);
    k->first = MIN(k->first, step);
    k->last = MAX(k->last, step);
  }
  if (k->last < 0)
    return err_set(e, WEFT_EFILE, "%s: is no trace of weft run: it has no kernels",
                   k->path);
  if (k->last - k->first >= INT_MAX)
    return err_set(e, WEFT_EFILE,
                   "%s: is no trace of weft run: it goes from step %" PRId64
                   " to %" PRId64,
                   k->path, k->first, k->last);
  if (k->first < k->last) k->first++;
  return WEFT_OK;
}

static weft_status read_events(Compare *k, const json_t *root, weft_error *e) {
  const json_t *events = json_object_get(root, "traceEvents");
  size_t i;
  const json_t *event;
  weft_status st = find_steps(k, events, e);
  if (st == WEFT_OK) st = check_programs(k, root, e);
  if (st != WEFT_OK) return st;
  json_array_foreach((json_t *)events, i, event) {
    int pp = 0;
    if (!is_kernel(event) || argument(event, "step") < k->first) continue;
    const Instr *in = instr_of(k, event, &pp);
    double us = json_number_value(json_object_get(event, "dur"));
    if (!in || !(us >= 0 && isfinite(us))) return other_plan(k, e);
    *VEC_PUSH(k->a, k->seen[pp][in - k->c->prog[pp].code].took) = us / 1e6;
  }
  return WEFT_OK;
}

/* ---- ops ---- */

static ComparedOp *op_of(Compare *k, int op, DType t) {
  for (int i = 0; i < k->op.n; i++)
    if (k->op.at[i].op == op && k->op.at[i].dtype == t) return &k->op.at[i];
  ComparedOp *new = VEC_PUSH(k->a, k->op);
  *new = (ComparedOp){.op = op, .dtype = t};
  return new;
}

static void add_instr(Compare *k, int pp, const Instr *in, const EvenList *even) {
  const Program *p = &k->c->prog[pp];
  Seen *s = &k->seen[pp][in - p->code];
  int64_t steps = k->last - k->first + 1;
  if (in->code != I_KERNEL || !s->took.n) return;
  KernelWork w = kernel_work(p, in, even);
  Cost c = cost_of_kernel(k->source, p, in, &w, instr_uses_host(p, in));
  qsort(s->took.at, (size_t)s->took.n, sizeof *s->took.at, order_numbers);
  double each = s->took.at[s->took.n / 2], n = (double)s->took.n / (double)steps;
  ComparedOp *op = op_of(k, in->op, kernel_dtype(p, in));
  op->count += llround(n);
  op->measured += each * n;
  op->predicted += c.seconds * n;
  op->from = MAX(op->from, c.from);
}

static int by_difference(const void *x, const void *y) {
  const ComparedOp *a = x, *b = y;
  double p = fabs(a->measured - a->predicted), q = fabs(b->measured - b->predicted);
  return p < q ? 1 : p > q ? -1 : 0;
}

static void sum_ops(Compare *k, Compared *out) {
  for (int pp = 0; pp < k->c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &k->c->prog[pp];
    EvenList even;
    even_rows(p, k->a, &even);
    for (uint32_t i = 0; i < p->ncode; i++) add_instr(k, pp, &p->code[i], &even);
  }
  if (k->op.n) qsort(k->op.at, (size_t)k->op.n, sizeof *k->op.at, by_difference);
  *out = (Compared){.op = k->op.at, .n = k->op.n, .steps = (int)(k->last - k->first + 1)};
  for (int i = 0; i < k->op.n; i++) {
    out->measured += k->op.at[i].measured;
    out->predicted += k->op.at[i].predicted;
  }
}

static weft_status read_json(const char *path, json_t **out, weft_error *e) {
  char *s;
  size_t n;
  TRY(file_read(NULL, path, FILE_OWN_MAX, &s, &n, e));
  *out = json_text(path, "is no trace of weft run: it ", s, n, e);
  mem_free(NULL, s, n + 1);
  return *out ? WEFT_OK : WEFT_EFILE;
}

weft_status trace_compare(const Compiled *c, const CostSource *s, const char *path,
                          Arena *a, Compared *out, weft_error *e) {
  Compare k = {.c = c, .source = s, .path = path, .a = a};
  int npp = c->mesh.size[AXIS_PP];
  json_t *root;
  TRY(read_json(path, &root, e));
  k.seen = NEW_N(a, Seen *, npp);
  for (int pp = 0; pp < npp; pp++) k.seen[pp] = NEW_N(a, Seen, c->prog[pp].ncode);
  weft_status st = read_events(&k, root, e);
  json_decref(root);
  if (st == WEFT_OK) sum_ops(&k, out);
  return st;
}
