/* attention_trial.c - what another kernel of attention computes beside weft's own for all
 * GPUs, mma.sync in attention.cu and attention_dx.cu, on operands of one plan's shapes,
 * when a program is loaded. cuDNN is a library of the machine, whose versions have had
 * wrong gradients for some lengths and GPUs; the graph that it is given equals weft's
 * attention (attention_graph.h), what its kernels make of it nobody has seen before.
 * Weft's kernel for 9.0 is of instructions that no other one here uses.
 *
 * Operands are arbitrary numbers, o and lse mostly those of weft's kernel. Both sides
 * round probabilities and dS to bf16 before they are multiplied, so a row of a result,
 * the elements of a head of a token, is within some 2^-8 of its length; a tile or a row
 * that is wrong is not.
 */
#include "attention_trial.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>

#include "kernels/cuda/cudnn/attention_blocks.h"
#include "vm/graph/sequence.h"

enum { Q, K, V, O, LSE, OPERANDS = 7, RESULTS = 3, BLOCK = 256 };
/* Numbers that operands repeat: a prime, so that no row begins alike. */
enum { PERIOD = 65521 };

typedef struct Trial {
  Device *d;
  const CudaContext *c;
  const Contender *other;
  int op;
  bool back, own; /* o and lse, operands of gradients, are those of weft's kernel */
  KernelArgs forward, native, others; /* `forward` makes them */
  OpAttr attr;                        /* without a library */
  char *at;                           /* all of it, on the device */
  bool differs;
  uint16_t *numbers;
} Trial;

static const char *const result_name[2][RESULTS] = {{"o", "lse"}, {"dq", "dk", "dv"}};

/* ---- memory ---- */

static size_t bytes_of(const KTensor *t) {
  size_t n = (size_t)cuda_count(t) * (size_t)dtype_size(t->dtype);
  return (n + BLOCK - 1) / BLOCK * BLOCK;
}

static void *part(const Trial *t, size_t *at, size_t bytes) {
  void *p = t->at ? t->at + *at : NULL;
  *at += (bytes + BLOCK - 1) / BLOCK * BLOCK;
  return p;
}

/* Gives all tensors their places behind Trial.at, and returns the bytes of all. What
 * weft's own kernel gives lies in the other's scratch, if that is large enough. */
static size_t place(Trial *t) {
  KernelArgs *mine = &t->native, *lib = &t->others;
  size_t all = 0, own;
  for (int i = 0; i < lib->nin; i++) {
    lib->in[i].p = part(t, &all, bytes_of(&lib->in[i]));
    mine->in[i].p = lib->in[i].p;
  }
  for (int i = 0; i < lib->nout; i++)
    lib->out[i].p = part(t, &all, bytes_of(&lib->out[i]));
  size_t begin = all;
  lib->work = part(t, &all, t->other->scratch);
  own = begin;
  for (int i = 0; i < mine->nout; i++)
    mine->out[i].p = part(t, &own, bytes_of(&mine->out[i]));
  mine->work = part(t, &own, cuda_work(t->op, mine));
  for (int i = 0; t->own && i <= V; i++) t->forward.in[i].p = lib->in[i].p;
  if (t->own) t->forward.out[0].p = lib->in[O].p, t->forward.out[1].p = lib->in[LSE].p;
  return MAX(all, own);
}

static weft_status begin(Trial *t, Device *d, const Contender *other, int op,
                         const KernelArgs *a) {
  *t = (Trial){.d = d, .c = d->ctx, .other = other, .op = op, .attr = *a->attr};
  t->back = attention_is_back(op);
  t->own = t->back && !attention_goes_on(op, a);
  t->attr.backend = BACKEND_NATIVE;
  t->native = t->others = *a;
  t->native.attr = &t->attr;
  t->native.state = NULL;
  t->forward = (KernelArgs){.attr = &t->attr, .nin = V + 1, .nout = 2, .index = a->index};
  for (int i = 0; i <= V; i++) t->forward.in[i] = a->in[i];
  if (t->own) t->forward.out[0] = a->in[O], t->forward.out[1] = a->in[LSE];
  t->numbers = mem_new(d->alloc, PERIOD * sizeof *t->numbers);
  return t->numbers ? WEFT_OK : WEFT_ENOMEM;
}

/* ---- operands ---- */

/* Between -1.7 and 1.7, of variance 1: their upper halves are bf16. */
static void make_numbers(uint16_t *to) {
  uint32_t x = 1;
  for (int i = 0; i < PERIOD; i++) {
    x = x * 1664525u + 1013904223u;
    float f = ((float)(x >> 8) / (float)(1 << 23) - 1) * sqrtf(3);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    to[i] = (uint16_t)(bits >> 16);
  }
}

static double value(const void *p, DType type, int64_t i) {
  if (type == DT_F32) return ((const float *)p)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static cudaError_t copy_in(const Trial *t, void *to, const void *from, size_t bytes) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, t->c->stream);
}

/* An f32 is two of the numbers, the upper half of which is one. */
static cudaError_t fill(const Trial *t, const KTensor *x, int64_t from) {
  int64_t n = cuda_count(x) * dtype_size(x->dtype) / (int64_t)sizeof *t->numbers;
  cudaError_t r = cudaSuccess;
  for (int64_t i = 0; i < n && !r;) {
    int64_t first = (from + i) % PERIOD, some = MIN(PERIOD - first, n - i);
    r = copy_in(t, (uint16_t *)x->p + i, t->numbers + first,
                (size_t)some * sizeof *t->numbers);
    i += some;
  }
  return r;
}

/* lse of so many keys whose scores are these numbers: what a ring's step adds weighs as
 * much as what is there. */
static cudaError_t fill_lse(const Trial *t, const KTensor *x, int64_t from) {
  enum { SOME = 4096 };
  float lse[SOME], by = logf((float)t->others.in[K].dim[1]);
  int64_t n = cuda_count(x);
  cudaError_t r = cudaSuccess;
  for (int64_t i = 0; i < SOME; i++)
    lse[i] = by + (float)value(t->numbers, DT_BF16, (from + i) % PERIOD);
  for (int64_t i = 0; i < n && !r; i += SOME)
    r = copy_in(t, (float *)x->p + i, lse, (size_t)MIN(SOME, n - i) * sizeof *lse);
  return r;
}

/* Documents of 1 to 600 tokens: within tiles, and over several. `slots`: rows are in the
 * order of so many, see sequence.h. */
static void put_starts(int32_t *starts, int64_t tokens, int slots) {
  enum { LONGEST = 600 };
  int64_t each = tokens / slots;
  for (int64_t at = 0, length; at < tokens; at += length) {
    length = MIN(1 + at * 7 % LONGEST, tokens - at);
    for (int c = 0; c < slots; c++) {
      int64_t to = seq_place(at + length, slots, c);
      for (int64_t i = seq_place(at, slots, c); i < to; i++)
        starts[c * each + i] = (int32_t)at;
    }
  }
}

static cudaError_t fill_starts(const Trial *t, const KTensor *x) {
  int64_t tokens = x->dim[1];
  cudaError_t r = cudaSuccess;
  size_t bytes = (size_t)tokens * sizeof(int32_t);
  int32_t *starts = mem_new(t->d->alloc, bytes);
  if (!starts) return cudaErrorMemoryAllocation;
  put_starts(starts, tokens, MAX(t->attr.parts, 1));
  for (int64_t b = 0; b < x->dim[0] && !r; b++)
    r = copy_in(t, (int32_t *)x->p + b * tokens, starts, bytes);
  mem_free(t->d->alloc, starts, bytes);
  return r;
}

/* Whether o and lse are operands. */
static bool has_lse(const Trial *t) {
  return t->back || attention_goes_on(t->op, &t->others);
}

/* All but o and lse that weft's kernel makes. Those of later steps of a ring are of more
 * keys than the step's, and any numbers: what gradients are linear in is then as uneven
 * as the scores are. */
static cudaError_t fill_operands(const Trial *t) {
  cudaError_t r = cudaSuccess;
  for (int i = 0; i < t->others.nin && !r; i++) {
    const KTensor *x = &t->others.in[i];
    if (t->own && (i == O || i == LSE)) continue;
    int64_t from = i * (PERIOD / OPERANDS);
    r = x->dtype == DT_I32       ? fill_starts(t, x)
        : i == LSE && has_lse(t) ? fill_lse(t, x, from)
                                 : fill(t, x, from);
  }
  return r;
}

/* Results begin as NaNs: what is not written is not a number. */
static cudaError_t spoil(const Trial *t, const KernelArgs *a) {
  cudaError_t r = cudaSuccess;
  for (int i = 0; i < a->nout && !r; i++)
    r = cudaMemsetAsync(a->out[i].p, 0xff, bytes_of(&a->out[i]), t->c->stream);
  return r;
}

static cudaError_t run(Trial *t) {
  cudaError_t r = fill_operands(t);
  if (t->own && !r) cuda_attention(t->d, &t->forward);
  /* Twice: what it has to set to zero itself is not zero then, as in a step. */
  for (int k = 0; k < 2 && !r; k++) {
    r = spoil(t, &t->others);
    if (!r) r = cudaMemsetAsync(t->others.work, 0xff, t->other->scratch, t->c->stream);
    if (!r) (void)t->other->run(t->d, &t->others);
  }
  if (!r) r = spoil(t, &t->native); /* in the other's scratch: behind it */
  if (r) return r;
  if (t->back)
    cuda_attention_dx(t->d, &t->native);
  else
    cuda_attention(t->d, &t->native);
  return cudaStreamSynchronize(t->c->stream);
}

/* ---- comparing ---- */

/* Rows of a result of both sides, a piece of them at a time: of long sequences there may
 * be gigabytes. */
typedef struct Rows {
  DType type;
  bool lse; /* numbers: rows of one */
  int64_t width, n, piece;
  const void *others, *native;
  char *here[2]; /* a piece of each */
} Rows;

enum { PIECE_BYTES = 16 << 20 };

/* Fetches the piece that begins at this row; the number of its rows. */
static int64_t fetch(const Trial *t, const Rows *r, int64_t first) {
  int64_t n = MIN(r->piece, r->n - first);
  size_t row = (size_t)(r->width * dtype_size(r->type));
  const void *from[] = {r->others, r->native};
  for (int k = 0; k < 2; k++)
    t->d->vt->download(t->d, r->here[k], (const char *)from[k] + (size_t)first * row,
                       (size_t)n * row);
  return n;
}

/* Squares of the length of weft's row, and of the distance of the other's from it. */
static void measure(const Rows *r, int64_t row, float *length, float *apart) {
  double own = 0, off = 0;
  for (int64_t i = row * r->width; i < (row + 1) * r->width; i++) {
    double x = value(r->here[1], r->type, i), d = value(r->here[0], r->type, i) - x;
    own += x * x, off += d * d;
  }
  *length = (float)own, *apart = (float)off;
}

/* The row that is farthest from weft's own, in tolerances; -1: all are within theirs. Few
 * queries see the last keys, so their rows of dk and dv are short: a row is compared with
 * its own length. The second tolerance is for rows that are zero but for rounding, as dq
 * of the first token. lse is f32 on both sides, gradients and sums of a ring's steps
 * may be. */
static int64_t worst_row(const Trial *t, const Rows *r, float *length, float *apart) {
  const double of_row = r->lse ? 0x1p-13 : 0x1p-6;
  const double of_most = r->lse ? 0x1p-13 : 0x1p-19;
  int64_t worst = -1, n;
  double most = 0, by = 1;
  for (int64_t first = 0; first < r->n; first += n) {
    n = fetch(t, r, first);
    for (int64_t i = 0; i < n; i++) {
      measure(r, i, &length[first + i], &apart[first + i]);
      most = MAX(most, (double)length[first + i]);
    }
  }
  for (int64_t i = 0; i < r->n; i++) {
    if (!isfinite(length[i])) return i; /* and no tolerance for the others */
    if (apart[i] == 0) continue; /* also where all is zero: a step that nobody sees */
    double is = sqrt(apart[i]) / (of_row * sqrt(length[i]) + of_most * sqrt(most));
    if (is <= by) continue;
    if (!(is > by)) return i; /* not a number */
    worst = i, by = is;
  }
  return worst;
}

static weft_status compare_one(Trial *t, int k, char *room, weft_error *e) {
  const KTensor *x = &t->others.out[k];
  bool lse = !t->back && k == 1, of_keys = t->back && k < 2; /* dq and dk */
  Rows r = {.type = x->dtype,
            .lse = lse,
            .width = lse       ? 1
                     : of_keys ? t->attr.head_dim
                               : attr_value_dim(&t->attr),
            .others = x->p,
            .native = t->native.out[k].p,
            .here = {room, room + PIECE_BYTES}};
  int64_t heads = cuda_last(x) / r.width, tokens = x->dim[1];
  r.n = cuda_count(x) / r.width;
  r.piece = PIECE_BYTES / (r.width * dtype_size(r.type));
  size_t bytes = (size_t)r.n * 2 * sizeof(float);
  float *rows = mem_new(t->d->alloc, bytes);
  if (!rows) return err_set(e, WEFT_ENOMEM, "out of memory");
  int64_t row = worst_row(t, &r, rows, rows + r.n);
  mem_free(t->d->alloc, rows, bytes);
  TRY(t->d->vt->sync(t->d, e)); /* of a copy that failed */
  if (row < 0) return WEFT_OK;
  t->differs = true;
  return err_set(e, WEFT_ERUN,
                 "%s computes another %s than %s, on the same numbers of these shapes "
                 "(sequence %lld, token %lld, head %lld)%s",
                 t->other->name, result_name[t->back][k], t->other->than,
                 (long long)(row / heads / tokens), (long long)(row / heads % tokens),
                 (long long)(row % heads), t->other->advice);
}

static weft_status compare(Trial *t, weft_error *e) {
  weft_status st = WEFT_OK;
  char *room = mem_new(t->d->alloc, 2 * PIECE_BYTES);
  if (!room) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int k = 0; k < t->others.nout && st == WEFT_OK; k++)
    st = compare_one(t, k, room, e);
  mem_free(t->d->alloc, room, 2 * PIECE_BYTES);
  return st;
}

static weft_status try_out(Trial *t, weft_error *e) {
  CudaContext *c = t->d->ctx;
  uint64_t print = c->print;
  make_numbers(t->numbers);
  cudaError_t r = run(t);
  c->print = print;
  if (c->refused[0]) return err_set(e, WEFT_ERUN, "%s", c->refused);
  if (r)
    return err_set(e, WEFT_ERUN, "%s cannot be compared with %s: %s (%s)", t->other->name,
                   t->other->than, cudaGetErrorString(r), cudaGetErrorName(r));
  return compare(t, e);
}

static weft_status try_all(Device *d, const Contender *other, int op, const KernelArgs *a,
                           bool *differs, weft_error *e) {
  Trial t;
  void *p = NULL;
  *differs = false;
  if (begin(&t, d, other, op, a) != WEFT_OK)
    return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = WEFT_OK;
  cudaError_t r = cudaMalloc(&p, place(&t));
  if (r == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError(); /* clears the error */
    st = err_set(e, WEFT_ENOMEM, "there is no memory on the GPU to compare %s with %s",
                 other->name, other->than);
  } else if (r) {
    st = err_set(e, WEFT_ERUN, "cudaMalloc: %s", cudaGetErrorString(r));
  } else {
    t.at = p;
    (void)place(&t);
    st = try_out(&t, e);
    *differs = t.differs;
    (void)cudaFree(p);
  }
  mem_free(d->alloc, t.numbers, PERIOD * sizeof *t.numbers);
  return st;
}

/* ---- what was tried ---- */

void attention_forget(Device *d, Tried *t) {
  mem_free(d->alloc, t->at, (size_t)t->room * sizeof *t->at);
  *t = (Tried){0};
}

uint64_t attention_hash(uint64_t h, const KernelArgs *a) {
  for (int i = 0; i < a->nin + a->nout; i++) {
    const KTensor *t = i < a->nin ? &a->in[i] : &a->out[i - a->nin];
    int64_t is[] = {t->dtype, t->ndim};
    h = hash_bytes(h, is, sizeof is);
    h = hash_bytes(h, t->dim, (size_t)t->ndim * sizeof *t->dim);
  }
  return h;
}

uint64_t attention_hash_blocks(uint64_t h, int op, const KernelArgs *a) {
  AttentionBlock b[BLOCKS_MOST];
  int n = attention_blocks(op, a, a->index, b);
  for (int i = 0; i < n; i++) {
    int64_t is[] = {b[i].query, b[i].queries, b[i].key, b[i].keys, b[i].causal};
    h = hash_bytes(h, is, sizeof is);
  }
  return h;
}

/* Without memory for that it is compared again. */
static void remember(Device *d, Tried *t, uint64_t hash, bool differs) {
  if (t->n == t->room) {
    Tried more = {.n = t->n, .room = t->room ? 2 * t->room : 16, .any = t->any};
    more.at = mem_new(d->alloc, (size_t)more.room * sizeof *more.at);
    if (!more.at) return;
    if (t->n) memcpy(more.at, t->at, (size_t)t->n * sizeof *t->at);
    attention_forget(d, t);
    *t = more;
  }
  t->at[t->n].hash = hash;
  t->at[t->n++].differs = differs;
  t->any |= differs;
}

static weft_status differed(const Contender *other, weft_error *e) {
  return err_set(e, WEFT_ERUN, "%s computed something else than %s before", other->name,
                 other->than);
}

weft_status attention_trial(Device *d, const Contender *other, Tried *tried,
                            uint64_t hash, int op, const KernelArgs *a, bool *differs,
                            weft_error *e) {
  *differs = false;
  for (int i = 0; i < tried->n; i++) {
    if (tried->at[i].hash != hash) continue;
    *differs = tried->at[i].differs;
    return *differs ? differed(other, e) : WEFT_OK;
  }
  weft_error why = NO_ERROR;
  weft_status st = try_all(d, other, op, a, differs, &why);
  if (st == WEFT_ENOMEM && tried->n && !attention_is_back(op)) {
    *differs = tried->any;
    return *differs ? differed(other, e) : WEFT_OK;
  }
  if (st == WEFT_OK || *differs) remember(d, tried, hash, *differs);
  return st == WEFT_OK ? st : err_set(e, st, "%s", why.text);
}
