/* weights_load.c - parameters of a run from files. The ranks of a process read what they
 * hold and nothing else: the bytes of a range that any of them holds are read once into
 * the lane's window and converted into each rank's place.
 *
 * Ranges follow the order of the files, because the kernel reads ahead. */
#include "weights_load.h"

#include "adapter_files.h"
#include "param_fill.h"
#include "quantized.h"
#include "weights_match.h"

#include <stdlib.h>

#include "vm/base/nontemporal.h"
#include "vm/io/safetensors/st_type.h"

enum { WIDEST = sizeof(double), PAGE = 4096 };

typedef struct FileTensor {
  const SafeTensor *t;
  const StType *type;
} FileTensor;

/* A parameter's elements, `each` of them in each of its tensors, from `first` of it on.
 */
typedef struct FileParam {
  const FileTensor *tensor; /* NULL: no file has it (weights_initial, weights_follow) */
  int64_t first, each;
  bool alike; /* the tensors are of one type */
} FileParam;

typedef struct Load {
  const Compiled *c;
  uint64_t seed; /* of initial values */
  FileParam *param;
  FileTensor *tensor; /* of all parameters */
  int *order;         /* of parameters, along the files */
  char *windows;      /* of all lanes */
  size_t window;      /* of one: its block in elements of any type */
} Load;

static size_t window_bytes(const Compiled *c) { return (size_t)rank_block(c) * WIDEST; }

static size_t params_bytes(const Compiled *c) {
  return (size_t)MAX(c->nparam, 1) * (sizeof(FileParam) + sizeof(int));
}

static size_t tensors_bytes(const Compiled *c) {
  return weights_fit_bytes(c) / sizeof(SafeTensor *) * sizeof(FileTensor);
}

uint64_t weights_bytes(const Compiled *c) {
  uint64_t windows = window_bytes(c) * (uint64_t)c->mesh.world;
  return MAX(weights_fit_bytes(c), params_bytes(c) + tensors_bytes(c) + windows);
}

/* ---- where elements are ---- */

/* Elements from one of a parameter on, as many as there are of them in a tensor. */
typedef struct Found {
  const FileTensor *in;
  int64_t n;
  int64_t at; /* in the tensor */
  char *window;
} Found;

/* In a window each tensor begins where its elements would if they were the widest; or a
 * little later, where its place in a page is that in the file. A copy to a place just
 * behind that of its source takes three times as long: processors compare the low bits of
 * addresses first, and take each load for one of what was just stored. */
static Found find(const Load *l, const Lane *lane, int param, int64_t element) {
  const FileParam *p = &l->param[param];
  int64_t i = element / p->each, begin = i * p->each, end = begin + p->each;
  const FileTensor *in = &p->tensor[i];
  int64_t size = in->type->size, here = MAX(begin, lane->from);
  int64_t slack = (MIN(end, lane->from + lane->most) - here) * (WIDEST - size);
  int64_t first = p->first + here - begin;
  uint64_t at = in->t->at + (uint64_t)(first * size);
  char *window = l->windows + (size_t)lane->number * l->window;
  window += (here - lane->from) * WIDEST;
  if (slack >= PAGE) window += (at - (uintptr_t)window) % PAGE;
  uint64_t behind = (uint64_t)((element - here) * size);
  return (Found){.in = in,
                 .n = end - element,
                 .at = first + element - here,
                 .window = window + behind};
}

static weft_status bring(const Lane *lane, void *ud, int param, const RangeSet *c,
                         weft_error *e) {
  for (int i = 0; i < c->n; i++)
    for (int64_t at = c->run[i].from, n; at < c->run[i].to; at += n) {
      Found f = find(ud, lane, param, at);
      n = MIN(f.n, c->run[i].to - at);
      TRY(st_read_raw(f.in->t, f.at, n, f.window, e));
    }
  return WEFT_OK;
}

/* ---- into ranks ---- */

static void convert(const Found *f, int64_t n, float *local, const PartOut *out) {
  if (out->home && f->in->type->dtype == DT_BF16)
    nt_widen(local, f->window, (size_t)n);
  else
    f->in->type->to_f32((const unsigned char *)f->window, (size_t)n, local);
  if (out->copied)
    nt_copy(out->copy + (local - out->local), f->window, (size_t)n * sizeof *out->copy);
}

static void put_span(const Load *l, const Lane *lane, int param, Span s,
                     const PartOut *out) {
  float *local = out->local + s.local;
  for (int64_t n; s.n > 0; s.n -= n, s.global += n, local += n) {
    Found f = find(l, lane, param, s.global);
    n = MIN(s.n, f.n);
    convert(&f, n, local, out);
  }
  memset(local, 0, (size_t)s.padding * sizeof *local);
  if (!out->copied) return;
  memset(out->copy + (local - out->local), 0, (size_t)s.padding * sizeof *out->copy);
}

static weft_status put_part(const Lane *lane, void *ud, StateKind kind, int param,
                            const Piece *part, PartOut *out, weft_error *e) {
  const Load *l = ud;
  const FileParam *p = &l->param[param];
  out->copied = out->copy && p->alike && p->tensor->type->dtype == out->copy_type;
  SpanRun r;
  for (int64_t i = 0, spans = piece_spans(part); i < spans; i += r.count) {
    r = piece_run(part, i);
    for (int64_t k = 0; k < r.count; k++) {
      put_span(l, lane, param, r.first, out);
      r.first.local += r.local;
      r.first.global += r.global;
    }
  }
  return WEFT_OK;
}

/* ---- all of them ---- */

/* Finds the tensors of a parameter; returns how many there are. */
static int list_tensors(const Load *l, const SafeTensors *s, int param, FileTensor *to) {
  WeightSource from = weights_source(l->c, s, param);
  FileParam *p = &l->param[param];
  *p = (FileParam){.tensor = to,
                   .first = from.first,
                   .each = param_weights(&l->c->param[param]) / from.pieces,
                   .alike = true};
  for (int i = 0; i < from.pieces; i++) {
    to[i].t = from.pieces > 1 ? weights_piece(l->c, s, param, i, NULL) : from.t;
    to[i].type = st_type(to[i].t->type);
    p->alike &= to[i].type == to->type;
  }
  return from.pieces;
}

static int by_place(const void *x, const void *y, void *ud) {
  const FileParam *param = ud, *a = &param[*(const int *)x], *b = &param[*(const int *)y];
  const SafeTensor *s = a->tensor->t, *t = b->tensor->t;
  int file = strcmp(s->file, t->file);
  if (file) return file;
  if (s != t) return s->at < t->at ? -1 : 1;
  return (a->first > b->first) - (a->first < b->first);
}

/* Whether a parameter is not filled by what files have, but by what follows from it: what
 * no file has, what is stored in 4 bits, and what files have in another order. */
static bool follows(const Load *l, const SafeTensors *s, int i) {
  const CompiledParam *p = &l->c->param[i];
  return p->quant || adapter_turned(p) || weights_initial(l->c, s, i);
}

/* Those that files have, along the files, then those that follow; returns how many there
 * are of the first. */
static int list_params(Load *l, const SafeTensors *s) {
  int n = 0, tensors = 0, all = l->c->nparam;
  for (int i = 0; i < all; i++) {
    if (weights_follow(&l->c->param[i]) || weights_initial(l->c, s, i)) continue;
    tensors += list_tensors(l, s, i, l->tensor + tensors);
    if (!follows(l, s, i)) l->order[n++] = i;
  }
  qsort_r(l->order, (size_t)n, sizeof *l->order, by_place, l->param);
  for (int i = 0, k = n; i < all; i++)
    if (follows(l, s, i)) l->order[k++] = i;
  return n;
}

/* Elements of a weight, of files or initial ones. */
static weft_status read_values(const void *ud, int param, int64_t from, int64_t n,
                               float *to, weft_error *e) {
  enum { ROOM = 4096 };
  const Load *l = ud;
  const FileParam *p = &l->param[param];
  _Alignas(WIDEST) unsigned char raw[ROOM * WIDEST];
  if (!p->tensor) {
    param_init(&l->c->param[param], l->seed, from, n, to);
    return WEFT_OK;
  }
  for (int64_t at = from, end = from + n, some; at < end; at += some) {
    const FileTensor *in = &p->tensor[at / p->each];
    int64_t here = p->first + at % p->each;
    some = MIN(MIN(end - at, p->each - at % p->each), (int64_t)ROOM);
    TRY(st_read_raw(in->t, here, some, raw, e));
    in->type->to_f32(raw, (size_t)some, to + (at - from));
  }
  return WEFT_OK;
}

/* Fills a span of B of experts from rows [row, row + n) of the file's matrix, in which a
 * column is that of an expert: `each` rows. */
static void put_turned_span(Span s, int64_t experts, int64_t each, int64_t row, int64_t n,
                            const float *rows, float *local) {
  for (int64_t k = 0, run; k < s.n; k += run) {
    int64_t expert = (s.global + k) / each, first = (s.global + k) % each;
    run = MIN(s.n - k, each - first);
    int64_t end = MIN(first + run, row + n);
    for (int64_t i = MAX(first, row); i < end; i++)
      local[s.local + k + i - first] = rows[(i - row) * experts + expert];
  }
  memset(local + s.local + s.n, 0, (size_t)s.padding * sizeof *local);
}

static weft_status put_turned(const Load *l, int param, const Piece *part, float *local,
                              weft_error *e) {
  enum { ROOM = 16 * EXPERTS_MAX };
  const CompiledParam *p = &l->c->param[param];
  int64_t experts = p->dim[0], each = p->dim[1] * p->dim[2];
  float rows[ROOM];
  for (int64_t row = 0, n; row < each; row += n) {
    n = MIN(each - row, ROOM / experts);
    TRY(read_values(l, param, row * experts, n * experts, rows, e));
    for (int64_t i = 0, spans = piece_spans(part); i < spans; i++)
      put_turned_span(piece_span(part, i), experts, each, row, n, rows, local);
  }
  return WEFT_OK;
}

/* What no file has begins with its initial values; weights become codes. */
static weft_status put_initial(const Lane *lane, void *ud, StateKind k, int param,
                               const Piece *part, PartOut *out, weft_error *e) {
  const Compiled *c = lane->run->c;
  const Load *l = ((const Quantized *)ud)->ud;
  if (adapter_turned(&c->param[param]) && l->param[param].tensor)
    return put_turned(l, param, part, out->local, e);
  if (c->param[param].quant) return quantized_init(ud, param, part, out->local, e);
  if (magnitudes(&c->param[param]))
    return magnitudes_init(c, param, part, quantized_values, ud, out->local, e);
  piece_init(part, &lane->run->c->param[param], lane->run->plan->seed, out->local);
  return WEFT_OK;
}

static weft_status load_all(Run *r, Load *l, const SafeTensors *s, weft_error *e) {
  Quantized q;
  int n = list_params(l, s);
  Filling f = {.kind = {STATE_PARAM},
               .nkind = 1,
               .n = n,
               .order = l->order,
               .bring = bring,
               .values = put_part,
               .ud = l};
  Filling rest = {.kind = {STATE_PARAM},
                  .nkind = 1,
                  .first = n,
                  .n = r->c->nparam - n,
                  .order = l->order,
                  .values = put_initial,
                  .ud = &q};
  TRY(run_pieces(r, &f, true, e));
  if (!rest.n) return WEFT_OK;
  TRY(quantized_begin(r, read_values, l, &q, e));
  weft_status st = run_pieces(r, &rest, false, e);
  quantized_end(r, &q);
  return st;
}

/* Every process reads the files itself. */
weft_status run_load(Run *r, const SafeTensors *s, weft_error *e) {
  const Compiled *c = r->c;
  TRY(weights_fit(c, s, &r->alloc, e));
  TRY(weights_check_tied(c, s, e));
  size_t params = params_bytes(c), tensors = tensors_bytes(c);
  size_t windows = window_bytes(c) * (size_t)r->nworker;
  Load l = {.c = c,
            .seed = r->plan->seed,
            .window = windows / (size_t)run_lanes(r) / WIDEST * WIDEST};
  l.param = mem_new(&r->alloc, params);
  l.tensor = mem_new(&r->alloc, tensors);
  l.windows = mem_new(&r->alloc, windows);
  weft_status st = WEFT_ENOMEM;
  if (l.param && l.tensor && l.windows) {
    l.order = (int *)(l.param + c->nparam);
    st = load_all(r, &l, s, e);
  } else {
    err_set(e, st, "out of memory");
  }
  mem_free(&r->alloc, l.windows, windows);
  mem_free(&r->alloc, l.tensor, tensors);
  mem_free(&r->alloc, l.param, params);
  return st;
}
