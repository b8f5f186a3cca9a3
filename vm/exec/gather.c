/* gather.c - parameters of a run as wholes: initial values, gathering pieces into their
 * logical shape and spreading them again. Pieces pass through a block of each worker,
 * part by part; those of other processes travel to and from rank 0 as raw bytes. What
 * fills pieces does so on the threads of their rank. */
#include "run_int.h"

#include <math.h>
#include <omp.h>

/* ---- parts ---- */

/* The first part of a piece at or after element `at` of it: as much as a block holds. */
static Piece part_at(const Worker *w, const Piece *p, int64_t at) {
  return piece_part(p, at, MIN(p->count - at, w->run->block_max));
}

static bool same_elements(const Piece *a, const Piece *b) {
  return a->count == b->count && a->from == b->from;
}

/* ---- filling ---- */

/* A lane fills so many elements of a piece in a row: far more than what a reader of files
 * reads at once, and little beside a model. */
enum { STRETCH = 1 << 20, LANE_LEAST = 1 << 12, LANE_MOST = 1 << 16 };

static int lanes_each(const Run *r) {
  int64_t most = MAX(r->block_max / LANE_LEAST, 1);
  return r->c->device->host ? (int)MIN(r->threads, most) : 1;
}

int run_lanes(const Run *r) {
  return r->nworker * lanes_each(r);
}

/* The stretches of a rank's pieces are counted; a lane takes the next one that none has.
 */
typedef struct Fill {
  const Filling *f;
  bool clear;
  _Atomic bool failed;
} Fill;

static weft_status fill_part(const Lane *l, const Filling *f, Rank *to, StateKind k,
                             int param, const Piece *part, const Piece *twin,
                             weft_error *e) {
  float *there = rank_floats(to, part);
  PartOut out = {.local = there ? there : l->block, .home = there != NULL};
  if (twin) out.copy = rank_halves(to, twin);
  if (out.copy) out.copy_type = (DType)twin->region->dtype;
  TRY(f->values(l, f->ud, k, param, part, &out, e));
  if (!there) rank_write(to, part, out.local);
  if (twin && !out.copied) rank_write(to, twin, out.local);
  return WEFT_OK;
}

/* Where a lane is in the row of a rank's stretches: `next` is the one that it has to
 * fill.
 */
typedef struct Walk {
  Worker *to;
  int64_t at, next;
} Walk;

/* `twin` may be NULL and has the same elements. */
static weft_status fill_piece(const Lane *l, const Filling *f, Walk *w, StateKind k,
                              int param, const Piece *p, const Piece *twin,
                              weft_error *e) {
  for (int64_t from = 0; from < p->count; from += STRETCH, w->at++) {
    int64_t end = MIN(from + STRETCH, p->count), n;
    if (w->at != w->next) continue;
    for (int64_t i = from; i < end; i += n) {
      n = MIN(end - i, l->most);
      Piece part = piece_part(p, i, n), copy;
      if (twin) copy = piece_part(twin, i, n);
      TRY(fill_part(l, f, w->to->r, k, param, &part, twin ? &copy : NULL, e));
    }
    w->next = atomic_fetch_add(&w->to->taken, 1);
  }
  return WEFT_OK;
}

/* Fills of a rank what this lane gets. */
static weft_status fill_some(const Lane *l, Fill *fill, int worker, weft_error *e) {
  const Filling *f = fill->f;
  Walk w = {.to = &l->run->worker[worker]};
  w.next = atomic_fetch_add(&w.to->taken, 1);
  for (int i = 0; i < f->n * f->nkind && !fill->failed; i++) {
    StateKind k = f->kind[i % f->nkind];
    int param = f->first + i / f->nkind;
    Piece p[2];
    int n = state_pieces(l->run->c, w.to->rank, k, param, p);
    bool twins = n == 2 && same_elements(&p[0], &p[1]);
    if (n) TRY(fill_piece(l, f, &w, k, param, p, twins ? p + 1 : NULL, e));
    if (n == 2 && !twins) TRY(fill_piece(l, f, &w, k, param, p + 1, NULL, e));
  }
  return WEFT_OK;
}

/* Its own rank first. */
static weft_status fill_lane(const Lane *l, Fill *fill, int worker, weft_error *e) {
  int ranks = l->run->c->device->host ? l->run->nworker : 1;
  weft_status st = WEFT_OK;
  for (int i = 0; i < ranks && st == WEFT_OK; i++) {
    int to = (worker + i) % l->run->nworker;
    st = fill_some(l, fill, to, e);
    if (st != WEFT_OK && e->rank < 0) e->rank = l->run->worker[to].rank;
  }
  return st;
}

static weft_status job_pieces(Worker *w, void *arg, weft_error *e) {
  Fill *fill = arg;
  Run *r = w->run;
  int lanes = lanes_each(r), worker = (int)(w - r->worker);
  int64_t share = r->block_max / lanes;
  weft_status st = WEFT_OK;
#pragma omp parallel num_threads(lanes) if (lanes > 1)
  {
    int i = omp_get_thread_num();
    Lane l = {r, worker * lanes + i, w->block + i * share, MIN(share, LANE_MOST)};
    weft_error why = {.rank = -1};
    if (fill_lane(&l, fill, worker, &why) != WEFT_OK &&
        !atomic_exchange(&fill->failed, true)) {
      if (e) *e = why;
      st = why.code;
    }
  }
  TRY(st);
  return device_sync(&w->dev, e);
}

static weft_status job_begin(Worker *w, void *arg, weft_error *e) {
  const Fill *fill = arg;
  if (fill->clear) rank_clear(w->r, w->block, w->run->block_max);
  rank_touched(w->r);
  w->taken = 0;
  return WEFT_OK;
}

weft_status run_pieces(Run *r, const Filling *f, bool clear, weft_error *e) {
  Fill fill = {.f = f, .clear = clear};
  TRY(run_all(r, job_begin, &fill, false, e));
  return run_all(r, job_pieces, &fill, false, e);
}

/* ---- initial values ---- */

static weft_status initial(const Lane *l, void *ud, StateKind k, int param,
                           const Piece *part, PartOut *out, weft_error *e) {
  piece_init(part, &l->run->c->param[param], l->run->plan->seed, out->local);
  return WEFT_OK;
}

weft_status run_init(Run *r, weft_error *e) {
  return run_pieces(r, &(Filling){{STATE_PARAM}, 1, 0, r->c->nparam, initial, NULL}, true,
                    e);
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
static void collect(Worker *w, const Move *m) {
  Run *r = w->run;
  for (int q = 0; q < r->c->mesh.world; q++) {
    Piece p[2], part;
    if (world_has(&r->world, q)) continue;
    if (!state_pieces(r->c, q, m->kind, m->param, p) || !gives(r->c, m->param, p, q))
      continue;
    for (int64_t at = 0; at < p->count; at += part.count) {
      part = part_at(w, p, at);
      world_recv(&r->world, w->block, (size_t)part.count * sizeof *w->block, q);
      piece_paste(&part, w->block, m->global);
    }
  }
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
      world_send(&r->world, w->block, (size_t)part.count * sizeof *w->block, 0);
  }
  if (w->rank == 0) collect(w, m);
  return WEFT_OK;
}

weft_status run_get(Run *r, StateKind k, int param, float *out, weft_error *e) {
  Move m = {.kind = k, .param = param, .global = out};
  return run_all(r, job_get, &m, false, e);
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
  for (int k = 0; k < n; k++)
    w->apart = MAX(w->apart, apart(w, m, &p[k]));
  return WEFT_OK;
}

weft_status run_apart(Run *r, StateKind k, int param, float *global, double *out,
                      weft_error *e) {
  Move m = {.kind = k, .param = param, .global = global};
  TRY(run_all(r, job_apart, &m, false, e));
  *out = 0;
  for (int i = 0; i < r->nworker; i++)
    *out = MAX(*out, r->worker[i].apart);
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
  size_t bytes = (size_t)param_count(&r->c->param[m->param]) * sizeof(float);
  world_bcast(&r->world, m->global, bytes, 0);
  return WEFT_OK;
}

/* Processes but that of rank 0 receive the values, so they need room. */
weft_status run_set(Run *r, StateKind k, int param, const float *in, weft_error *e) {
  size_t bytes = (size_t)param_count(&r->c->param[param]) * sizeof(float);
  bool home = world_has(&r->world, 0);
  float *room = home ? NULL : mem_new(&r->alloc, bytes);
  if (!home && !room) return err_set(e, WEFT_ENOMEM, "out of memory");
  Move m = {.kind = k, .param = param, .global = home ? (float *)in : room};
  Filling f = {{k}, 1, param, 1, cut_out, &m};
  weft_status st = run_all(r, job_share, &m, false, e);
  if (st == WEFT_OK) st = run_pieces(r, &f, false, e);
  mem_free(&r->alloc, room, bytes);
  return st;
}
