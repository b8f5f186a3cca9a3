/* param_gather.c - whole parameters of a run: initial values, gathering pieces into their
 * logical shape, scattering them again. Pieces pass through a block of each worker, part
 * by part; those of other processes travel to and from rank 0 as raw bytes. */
#include "param_gather.h"

#include <math.h>

#include "param_fill.h"
#include "quantized.h"

/* ---- parts ---- */

/* The first part of a piece at or after element `at` of it: as much as a block holds. */
static Piece part_at(const Worker *w, const Piece *p, int64_t at) {
  return piece_part(p, at, MIN(p->count - at, w->run->block_max));
}

/* ---- initial values ---- */

static weft_status initial_of(const void *ud, int param, int64_t from, int64_t n,
                              float *to, weft_error *e) {
  const Run *r = ud;
  param_init(&r->c->param[param], r->plan->seed, from, n, to);
  return WEFT_OK;
}

static weft_status initial(const Lane *l, void *ud, StateKind k, int param,
                           const Piece *part, PartOut *out, weft_error *e) {
  const Compiled *c = l->run->c;
  if (c->param[param].quant) return quantized_init(ud, param, part, out->local, e);
  if (magnitudes(&c->param[param]))
    return magnitudes_init(c, param, part, quantized_values, ud, out->local, e);
  piece_init(part, &l->run->c->param[param], l->run->plan->seed, out->local);
  return WEFT_OK;
}

weft_status run_init(Run *r, weft_error *e) {
  Quantized q;
  TRY(quantized_begin(r, initial_of, r, &q, e));
  Filling f = {
      .kind = {STATE_PARAM}, .nkind = 1, .n = r->c->nparam, .values = initial, .ud = &q};
  weft_status st = run_pieces(r, &f, true, e);
  quantized_end(r, &q);
  return st;
}

/* ---- one parameter ---- */

typedef struct Move {
  StateKind kind;
  int param;
  float *global;
} Move;

static bool gives(const Compiled *c, int param, const Piece *p, int rank) {
  return piece_gives(&c->mesh, &c->param[param], p->region, rank);
}

/* Rank 0's part of a gather: takes the pieces of other processes in the order of ranks.
 */
static weft_status collect(Worker *w, const Move *m, weft_error *e) {
  Run *r = w->run;
  for (int q = 0; q < r->c->mesh.world; q++) {
    Piece p[2], part;
    if (world_has(&r->world, q)) continue;
    if (!state_pieces(r->c, q, m->kind, m->param, p) || !gives(r->c, m->param, p, q))
      continue;
    for (int64_t at = 0; at < p->count; at += part.count) {
      part = part_at(w, p, at);
      TRY(world_recv(&r->world, w->block, (size_t)part.count * sizeof *w->block, q, e));
      piece_paste(&part, w->block, m->global);
    }
  }
  return WEFT_OK;
}

/* Gradients as they are without the loss scale. */
static void read_part(Worker *w, StateKind k, const Piece *part) {
  double scale = k == STATE_GRAD ? w->run->scaled : 1;
  rank_read(w->r, part, w->block);
  for (int64_t i = 0; scale != 1 && i < part->count; i++)
    w->block[i] = (float)(w->block[i] / scale);
}

/* The pieces do not overlap, so all workers of rank 0's process paste at once. */
static weft_status job_get(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  Run *r = w->run;
  Piece p[2], part;
  bool home = world_has(&r->world, 0);
  bool mine = state_pieces(r->c, w->rank, m->kind, m->param, p) &&
              gives(r->c, m->param, p, w->rank);
  for (int64_t at = 0; mine && at < p->count; at += part.count) {
    part = part_at(w, p, at);
    read_part(w, m->kind, &part);
    if (home)
      piece_paste(&part, w->block, m->global);
    else
      TRY(world_send(&r->world, w->block, (size_t)part.count * sizeof *w->block, 0, e));
  }
  return w->rank == 0 ? collect(w, m, e) : WEFT_OK;
}

bool run_keeps(const Compiled *c, StateKind k, int param) {
  const CompiledParam *p = &c->param[param];
  if (k == STATE_PARAM) return true;
  return !p->frozen && k < state_opt(optimizer_states(c->optimizer, p->matrix));
}

weft_status run_get(Run *r, StateKind k, int param, float *out, weft_error *e) {
  Move m = {.kind = k, .param = param, .global = out};
  int64_t n = kept_count(r->c, k, param);
  TRY(run_holds(r, k, e));
  if (!run_keeps(r->c, k, param) && world_has(&r->world, 0))
    memset(out, 0, (size_t)n * sizeof *out);
  return run_each(r, job_get, &m, n, e);
}

/* The distance of a piece from its place in the whole. */
static double apart(Worker *w, const Move *m, const Piece *p) {
  double sum = 0;
  Piece part;
  for (int64_t at = 0; at < p->count; at += part.count) {
    part = part_at(w, p, at);
    read_part(w, m->kind, &part);
    double d = piece_distance(&part, (DType)p->region->dtype, w->block, m->global);
    sum += d * d;
  }
  return sqrt(sum);
}

static weft_status job_apart(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  Piece p[2];
  int n = state_pieces(w->run->c, w->rank, m->kind, m->param, p);
  w->apart = 0;
  for (int k = 0; k < n; k++) w->apart = MAX(w->apart, apart(w, m, &p[k]));
  return WEFT_OK;
}

weft_status run_apart(Run *r, StateKind k, int param, float *global, double *out,
                      weft_error *e) {
  Move m = {.kind = k, .param = param, .global = global};
  TRY(run_each(r, job_apart, &m, kept_count(r->c, k, param), e));
  *out = 0;
  for (int i = 0; i < r->nworker; i++) *out = MAX(*out, r->worker[i].apart);
  return WEFT_OK;
}

static weft_status cut_out(const Lane *l, void *ud, StateKind k, int param,
                           const Piece *part, PartOut *out, weft_error *e) {
  const Move *m = ud;
  piece_cut(part, m->global, out->local);
  return WEFT_OK;
}

static weft_status job_share(Worker *w, void *arg, weft_error *e) {
  Move *m = arg;
  Run *r = w->run;
  size_t bytes = (size_t)kept_count(r->c, m->kind, m->param) * sizeof(float);
  return world_bcast(&r->world, m->global, bytes, 0, e);
}

/* Processes but that of rank 0 receive the values, so they need room. */
weft_status run_set(Run *r, StateKind k, int param, const float *in, weft_error *e) {
  int64_t n = kept_count(r->c, k, param);
  size_t bytes = (size_t)n * sizeof(float);
  bool home = world_has(&r->world, 0);
  float *room = home ? NULL : mem_new(&r->alloc, bytes);
  if (!home && !room) return err_set(e, WEFT_ENOMEM, "out of memory");
  Move m = {.kind = k, .param = param, .global = home ? (float *)in : room};
  Filling f = {
      .kind = {k}, .nkind = 1, .first = param, .n = 1, .values = cut_out, .ud = &m};
  weft_status st = run_each(r, job_share, &m, n, e);
  if (st == WEFT_OK) st = run_pieces(r, &f, false, e);
  mem_free(&r->alloc, room, bytes);
  return st;
}
