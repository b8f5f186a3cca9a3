/* gather.c - parameters of a run as wholes: initial values, loading, gathering pieces
 * into their logical shape and spreading them again. Pieces of other processes travel to
 * and from rank 0 as raw bytes. */
#include "run_int.h"
#include "weights.h"

/* ---- initial values ---- */

static bool same_elements(const Piece *a, const Piece *b) {
  return a->at == b->at && a->count == b->count && a->from == b->from;
}

static weft_status job_init(Worker *w, void *arg, weft_error *e) {
  const Run *r = w->run;
  rank_clear(w->r, w->piece, r->piece_max);
  for (int i = 0; i < r->c->nparam; i++) {
    Piece p[2];
    int n = state_pieces(r->c, w->rank, STATE_PARAM, i, p);
    for (int k = 0; k < n; k++) {
      if (k == 0 || !same_elements(&p[k], &p[0]))
        piece_init(&p[k], &r->c->param[i], r->plan->seed, r->threads, w->piece);
      rank_write(w->r, &p[k], w->piece);
    }
  }
  return device_sync(&w->dev, e);
}

weft_status run_init(Run *r, weft_error *e) {
  return run_all(r, job_init, NULL, false, e);
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
    Piece p[2];
    if (world_has(&r->world, q)) continue;
    if (!state_pieces(r->c, q, m->kind, m->param, p) || !gives(r->c, m->param, p, q))
      continue;
    world_recv(&r->world, w->piece, (size_t)p->count * sizeof *w->piece, q);
    piece_paste(p, w->piece, m->global);
  }
}

/* Gradients as they are without the loss scale. */
static void read_piece(Worker *w, StateKind k, const Piece *p) {
  double scale = k == STATE_GRAD ? w->run->scaled : 1;
  rank_read(w->r, p, w->piece);
  for (int64_t i = 0; scale != 1 && i < p->count; i++)
    w->piece[i] = (float)(w->piece[i] / scale);
}

/* The pieces do not overlap, so all workers of rank 0's process paste at once. */
static weft_status job_get(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  Run *r = w->run;
  Piece p[2];
  bool home = world_has(&r->world, 0);
  bool mine = state_pieces(r->c, w->rank, m->kind, m->param, p) &&
              gives(r->c, m->param, p, w->rank);
  if (mine) read_piece(w, m->kind, p);
  if (mine && home)
    piece_paste(p, w->piece, m->global);
  else if (mine)
    world_send(&r->world, w->piece, (size_t)p->count * sizeof *w->piece, 0);
  if (w->rank == 0) collect(w, m);
  return WEFT_OK;
}

weft_status run_get(Run *r, StateKind k, int param, float *out, weft_error *e) {
  Move m = {.kind = k, .param = param, .global = out};
  return run_all(r, job_get, &m, false, e);
}

static weft_status job_apart(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  Piece p[2];
  int n = state_pieces(w->run->c, w->rank, m->kind, m->param, p);
  w->apart = 0;
  for (int k = 0; k < n; k++) {
    read_piece(w, m->kind, &p[k]);
    double apart = piece_distance(&p[k], (DType)p[k].region->dtype, w->piece, m->global);
    w->apart = MAX(w->apart, apart);
  }
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

static void put(Worker *w, const Move *m) {
  Piece p[2];
  int n = state_pieces(w->run->c, w->rank, m->kind, m->param, p);
  for (int k = 0; k < n; k++) {
    piece_cut(&p[k], m->global, w->piece);
    rank_write(w->r, &p[k], w->piece);
  }
}

static weft_status job_set(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  Run *r = w->run;
  size_t bytes = (size_t)param_count(&r->c->param[m->param]) * sizeof(float);
  world_bcast(&r->world, m->global, bytes, 0);
  put(w, m);
  return device_sync(&w->dev, e);
}

/* Processes but that of rank 0 receive the values, so they need room. */
weft_status run_set(Run *r, StateKind k, int param, const float *in, weft_error *e) {
  size_t bytes = (size_t)param_count(&r->c->param[param]) * sizeof(float);
  bool home = world_has(&r->world, 0);
  float *room = home ? NULL : mem_new(&r->alloc, bytes);
  if (!home && !room) return err_set(e, WEFT_ENOMEM, "out of memory");
  Move m = {.kind = k, .param = param, .global = home ? (float *)in : room};
  weft_status st = run_all(r, job_set, &m, false, e);
  mem_free(&r->alloc, room, bytes);
  return st;
}

/* ---- loading ---- */

static weft_status job_clear(Worker *w, void *arg, weft_error *e) {
  rank_clear(w->r, w->piece, w->run->piece_max);
  return WEFT_OK;
}

static weft_status job_load_param(Worker *w, void *arg, weft_error *e) {
  put(w, arg);
  return device_sync(&w->dev, e);
}

/* Every process reads the file itself. */
weft_status run_load(Run *r, const SafeTensors *s, weft_error *e) {
  TRY(weights_fit(r->c, s, &r->alloc, e));
  TRY(weights_check_tied(r->c, s, e));
  weft_status st = WEFT_OK;
  int64_t most = weights_largest(r->c);
  float *global = mem_new(&r->alloc, (size_t)most * sizeof *global);
  if (!global) return err_set(e, WEFT_ENOMEM, "out of memory");
  st = run_all(r, job_clear, NULL, false, e);
  for (int i = 0; i < r->c->nparam && st == WEFT_OK; i++) {
    st = st_read_f32(weights_of(s, &r->c->param[i]), global, e);
    if (st != WEFT_OK) break;
    Move m = {.kind = STATE_PARAM, .param = i, .global = global};
    st = run_all(r, job_load_param, &m, false, e);
  }
  mem_free(&r->alloc, global, (size_t)most * sizeof *global);
  return st;
}
