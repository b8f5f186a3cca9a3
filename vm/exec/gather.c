/* gather.c - parameters of a run as wholes: initial values, loading, gathering pieces
 * into their logical shape and spreading them again. With MPI pieces travel to and from
 * rank 0 as raw bytes. */
#include "run_int.h"
#include "weights.h"

/* ---- initial values ---- */

/* Gradient and moments of one parameter become zero. */
static void reset_state(Worker *w, const ProgParam *p) {
  memset(w->piece, 0, (size_t)p->count * sizeof *w->piece);
  rank_write(w->r, STATE_GRAD, p, w->piece);
  rank_write(w->r, STATE_M, p, w->piece);
  rank_write(w->r, STATE_V, p, w->piece);
}

static Piece own_piece(const Worker *w, int param) {
  const Compiled *c = w->run->c;
  int tp = mesh_coord(&c->mesh, w->rank, AXIS_TP);
  return piece_make(&c->param[param], c->mesh.size[AXIS_TP], tp);
}

static weft_status job_init(Worker *w, void *arg, weft_error *e) {
  const Run *r = w->run;
  for (int i = 0; i < r->c->nparam; i++) {
    const ProgParam *p = rank_param(w->r, i);
    if (!p) continue;
    Piece piece = own_piece(w, i);
    piece_init(&piece, &r->c->param[i], r->plan->seed, r->threads, w->piece);
    rank_write(w->r, STATE_PARAM, p, w->piece);
    reset_state(w, p);
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

/* Of the ranks that hold equal pieces, the one that is read: on the owning pp rank, first
 * of dp and cp, and first of tp if that does not cut. */
static bool gives(const Compiled *c, int param, int rank) {
  const Program *p = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)];
  if (mesh_index(&c->mesh, AXES_DP_CP, rank) != 0) return false;
  if (c->param[param].cut < 0 && mesh_coord(&c->mesh, rank, AXIS_TP) != 0) return false;
  for (int i = 0; i < p->nparam; i++)
    if (p->param[i].param == param) return p->param[i].owner;
  return false;
}

/* Rank 0's part of a gather over processes: takes the pieces in the order of ranks. */
static void collect(Worker *w, const Move *m) {
  const Run *r = w->run;
  const Compiled *c = r->c;
  for (int q = 0; q < c->mesh.world; q++) {
    if (!gives(c, m->param, q)) continue;
    Piece piece = piece_make(&c->param[m->param], c->mesh.size[AXIS_TP],
                             mesh_coord(&c->mesh, q, AXIS_TP));
    size_t bytes = (size_t)piece_count(&piece) * sizeof *w->piece;
    if (q != w->rank) r->mpi->recv(r->mpi_world, w->piece, bytes, q);
    piece_paste(&piece, w->piece, m->global);
  }
}

/* In one process the pieces do not overlap, so all workers paste at once. */
static weft_status job_get(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  const Run *r = w->run;
  bool mine = gives(r->c, m->param, w->rank);
  Piece piece = own_piece(w, m->param);
  if (mine) rank_read(w->r, m->kind, rank_param(w->r, m->param), w->piece);
  if (!r->mpi) {
    if (mine) piece_paste(&piece, w->piece, m->global);
  } else if (w->rank == 0) {
    collect(w, m);
  } else if (mine) {
    r->mpi->send(r->mpi_world, w->piece, (size_t)piece_count(&piece) * sizeof *w->piece,
                 0);
  }
  return WEFT_OK;
}

weft_status run_get(Run *r, StateKind k, int param, float *out, weft_error *e) {
  Move m = {.kind = k, .param = param, .global = out};
  return run_all(r, job_get, &m, false, e);
}

static weft_status job_apart(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  const ProgParam *p = rank_param(w->r, m->param);
  w->apart = 0;
  if (!p) return WEFT_OK;
  Piece piece = own_piece(w, m->param);
  rank_read(w->r, m->kind, p, w->piece);
  w->apart = piece_distance(&piece, w->piece, m->global);
  return WEFT_OK;
}

weft_status run_apart(Run *r, StateKind k, int param, float *global, double *out,
                      weft_error *e) {
  Move m = {.kind = k, .param = param, .global = global};
  TRY(run_all(r, job_apart, &m, false, e));
  *out = 0;
  for (int i = 0; i < r->nworker; i++) *out = MAX(*out, r->worker[i].apart);
  return WEFT_OK;
}

static void put(Worker *w, const Move *m) {
  const ProgParam *p = rank_param(w->r, m->param);
  if (!p) return;
  Piece piece = own_piece(w, m->param);
  piece_cut(&piece, m->global, w->piece);
  rank_write(w->r, m->kind, p, w->piece);
}

static weft_status job_set(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  const Run *r = w->run;
  size_t bytes = (size_t)param_count(&r->c->param[m->param]) * sizeof(float);
  if (r->mpi) r->mpi->bcast(r->mpi_world, m->global, bytes, 0);
  put(w, m);
  return device_sync(&w->dev, e);
}

weft_status run_set(Run *r, StateKind k, int param, const float *in, weft_error *e) {
  size_t bytes = (size_t)param_count(&r->c->param[param]) * sizeof(float);
  float *copy = mem_new(&r->alloc, bytes);
  if (!copy) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (r->rank == 0) memcpy(copy, in, bytes);
  Move m = {.kind = k, .param = param, .global = copy};
  weft_status st = run_all(r, job_set, &m, false, e);
  mem_free(&r->alloc, copy, bytes);
  return st;
}

/* ---- loading ---- */

static weft_status job_load_param(Worker *w, void *arg, weft_error *e) {
  const Move *m = arg;
  put(w, m);
  const ProgParam *p = rank_param(w->r, m->param);
  if (p) reset_state(w, p);
  return device_sync(&w->dev, e);
}

/* Every process reads the file itself. */
weft_status run_load(Run *r, const SafeTensors *s, weft_error *e) {
  TRY(weights_fit(r->c, s, e));
  TRY(weights_check_tied(r->c, s, e));
  weft_status st = WEFT_OK;
  int64_t most = 0;
  for (int i = 0; i < r->c->nparam; i++) most = MAX(most, param_count(&r->c->param[i]));
  float *global = mem_new(&r->alloc, (size_t)most * sizeof *global);
  if (!global) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < r->c->nparam && st == WEFT_OK; i++) {
    st = st_read_f32(weights_of(s, &r->c->param[i]), global, e);
    if (st != WEFT_OK) break;
    Move m = {.kind = STATE_PARAM, .param = i, .global = global};
    st = run_all(r, job_load_param, &m, false, e);
  }
  mem_free(&r->alloc, global, (size_t)most * sizeof *global);
  return st;
}
