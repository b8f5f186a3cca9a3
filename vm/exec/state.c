/* state.c - parameters between their logical shape and the pieces that ranks hold.
 *
 * A Piece says which elements of a parameter one tp rank has; rank_read and rank_write
 * move a whole piece between an arena and the host as f32. */
#include "interp_int.h"

#include "vm/base/bf16.h"
#include "vm/base/rng.h"

#include <math.h>

/* ---- pieces ---- */

int64_t param_count(const CompiledParam *p) {
  int64_t n = 1;
  for (int i = 0; i < p->ndim; i++) n *= p->dim[i];
  return n;
}

Piece piece_make(const CompiledParam *p, int tp_size, int tp) {
  if (p->cut < 0) {
    int64_t n = param_count(p);
    return (Piece){.outer = 1, .parts = 1, .size = n, .inner = 1, .slice = n, .valid = n};
  }
  Piece c = {.outer = 1, .parts = MAX(p->parts, 1), .inner = 1};
  for (int i = 0; i < p->cut; i++) c.outer *= p->dim[i];
  for (int i = p->cut + 1; i < p->ndim; i++) c.inner *= p->dim[i];
  c.size = p->dim[p->cut] / c.parts;
  c.slice = (c.size + tp_size - 1) / tp_size;
  c.first = tp * c.slice;
  c.valid = MAX(MIN(c.slice, c.size - c.first), 0);
  return c;
}

int64_t piece_count(const Piece *p) { return p->outer * p->parts * p->slice * p->inner; }

/* A piece is a row of spans, one for each (outer, part): where span i begins here and
 * in the whole parameter, both contiguous for valid * inner elements. */
static int64_t span_count(const Piece *p) { return p->outer * p->parts; }
static int64_t span_local(const Piece *p, int64_t i) { return i * p->slice * p->inner; }
static int64_t span_global(const Piece *p, int64_t i) {
  return (i * p->size + p->first) * p->inner;
}

static void clear_padding(const Piece *p, int64_t span, float *local) {
  float *at = local + span_local(p, span) + p->valid * p->inner;
  for (int64_t i = 0; i < (p->slice - p->valid) * p->inner; i++) at[i] = 0;
}

void piece_cut(const Piece *p, const float *global, float *local) {
  size_t bytes = (size_t)(p->valid * p->inner) * sizeof *local;
  for (int64_t i = 0; i < span_count(p); i++) {
    if (bytes) memcpy(local + span_local(p, i), global + span_global(p, i), bytes);
    clear_padding(p, i, local);
  }
}

void piece_paste(const Piece *p, const float *local, float *global) {
  size_t bytes = (size_t)(p->valid * p->inner) * sizeof *local;
  for (int64_t i = 0; bytes && i < span_count(p); i++)
    memcpy(global + span_global(p, i), local + span_local(p, i), bytes);
}

double piece_distance(const Piece *p, const float *local, const float *global) {
  double sum = 0;
  for (int64_t i = 0; i < span_count(p); i++)
    for (int64_t k = 0; k < p->valid * p->inner; k++) {
      double d = (double)local[span_local(p, i) + k] - global[span_global(p, i) + k];
      sum += d * d;
    }
  return sqrt(sum);
}

static void init_values(const CompiledParam *cp, const Rng *rng, uint64_t from, int64_t n,
                        float *to) {
  if (cp->init == INIT_NORMAL) {
    rng_normals(rng, from, (uint64_t)n, cp->std, to);
    return;
  }
  for (int64_t k = 0; k < n; k++) to[k] = cp->init == INIT_ONES ? 1.0f : 0.0f;
}

void piece_init(const Piece *p, const CompiledParam *cp, uint64_t seed, int threads,
                float *local) {
  enum { BLOCK = 1 << 16 };
  Rng rng = rng_make(seed, cp->name);
  int64_t n = p->valid * p->inner;
  for (int64_t i = 0; i < span_count(p); i++) {
    float *to = local + span_local(p, i);
    uint64_t from = (uint64_t)span_global(p, i);
#pragma omp parallel for num_threads(threads) if (threads > 1 && n > BLOCK)
    for (int64_t k = 0; k < n; k += BLOCK)
      init_values(cp, &rng, from + (uint64_t)k, MIN(n - k, BLOCK), to + k);
    clear_padding(p, i, local);
  }
}

/* ---- arenas ---- */

const ProgParam *rank_param(const Rank *r, int param) {
  for (int i = 0; i < r->p->nparam; i++)
    if (r->p->param[i].param == param) return &r->p->param[i];
  return NULL;
}

static char *state_at(const Rank *r, StateKind k, const ProgParam *p) {
  const uint64_t off[STATE_N] = {[STATE_PARAM] = p->master,
                                 [STATE_GRAD] = p->grad,
                                 [STATE_M] = p->m,
                                 [STATE_V] = p->v};
  return r->arena + off[k];
}

static void write_bf16(Rank *r, const ProgParam *p, const float *local) {
  bf16 block[4096];
  char *to = r->arena + p->work;
  for (int64_t at = 0; at < p->count; at += LEN(block)) {
    int64_t n = MIN((int64_t)LEN(block), p->count - at);
    for (int64_t i = 0; i < n; i++) block[i] = bf16_from_f32(local[at + i]);
    device_upload(r->dev, to + at * 2, block, (size_t)n * 2);
  }
}

void rank_read(Rank *r, StateKind k, const ProgParam *p, float *local) {
  device_download(r->dev, local, state_at(r, k, p), (size_t)p->count * sizeof *local);
}

void rank_write(Rank *r, StateKind k, const ProgParam *p, const float *local) {
  device_upload(r->dev, state_at(r, k, p), local, (size_t)p->count * sizeof *local);
  if (k == STATE_PARAM && p->work != p->master) {
    assert(r->c->dtype == DT_BF16);
    write_bf16(r, p, local);
  }
}
