/* snapshot.c - see snapshot.h. */
#include "snapshot.h"

#include "param_fill.h"

/* ---- copies ---- */

static weft_status job_copy(Worker *w, void *arg, weft_error *e) {
  SavedList l = saved_list(w->run->c, w->rank);
  for (Saved s; saved_next(&l, &s);) rank_read_saved(w->r, &s.piece, w->copy + s.at);
  return WEFT_OK;
}

weft_status run_snapshot(Run *r, weft_error *e) {
  assert(r->saves);
  TRY(run_holds(r, STATE_PARAM, e));
  return run_all(r, job_copy, NULL, false, e);
}

int run_local(const Run *r) { return r->nworker; }

const char *run_snapshot_at(const Run *r, int local) { return r->worker[local].copy; }

const Compiled *run_compiled(const Run *r) { return r->c; }

/* ---- filling ---- */

typedef struct Source {
  PieceSource source;
  void *ud;
} Source;

static weft_status from_source(const Lane *l, void *ud, StateKind k, int param,
                               const Piece *part, PartOut *out, weft_error *e) {
  const Source *s = ud;
  memset(out->local, 0, (size_t)part->count * sizeof *out->local);
  return s->source(s->ud, l->number, k, param, part, out->local, e);
}

int run_readers(const Run *r) { return run_lanes(r); }

weft_status run_fill(Run *r, PieceSource source, void *ud, weft_error *e) {
  Source s = {.source = source, .ud = ud};
  Filling f = {
      .nkind = kept_kinds(r->c), .n = r->c->nparam, .values = from_source, .ud = &s};
  for (int k = 0; k < f.nkind; k++) f.kind[k] = kept_kind(k);
  return run_pieces(r, &f, true, e);
}

/* ---- what else a run knows ---- */

Scaler run_scaler(const Run *r) { return r->scaler; }

/* The scale of another number format is of no use; the steps that were skipped count in
 * every one. */
void run_set_scaler(Run *r, const Scaler *s) {
  r->scaler.skipped = s->skipped;
  if (!r->scaler.on || !s->on) return;
  r->scaler.scale = s->scale;
  r->scaler.good = s->good;
  r->scaler.patience = s->patience;
}

void run_reset_scaler(Run *r) { r->scaler = scaler_make(r->plan); }

/* ---- between processes ---- */

typedef struct Combined {
  void *mine;
  char *other;
  size_t n;
  Fold fold;
} Combined;

/* Up a tree of ranks: in each round the odd ones of those that are left tell the one
 * before. */
static weft_status job_combine(Worker *w, void *arg, weft_error *e) {
  Combined *c = arg;
  World *world = &w->run->world;
  for (int step = 1; step < world->size; step *= 2) {
    if (w->rank & step) {
      TRY(world_send(world, c->mine, c->n, w->rank - step, e));
      break;
    }
    if (w->rank + step >= world->size) continue;
    TRY(world_recv(world, c->other, c->n, w->rank + step, e));
    c->fold(c->mine, c->other, c->n);
  }
  return world_bcast(world, c->mine, c->n, 0, e);
}

bool run_is_alone(const Run *r) { return !r->kind->processes; }

weft_status run_combine(Run *r, void *mine, size_t n, Fold fold, weft_error *e) {
  char few[256];
  Combined c = {.mine = mine, .other = few, .n = n, .fold = fold};
  if (run_is_alone(r) || r->world.size < 2) return WEFT_OK;
  if (n > sizeof few && !(c.other = mem_new(&r->alloc, n)))
    return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = run_all(r, job_combine, &c, false, e); /* others may wait for a disk */
  if (c.other != few) mem_free(&r->alloc, c.other, n);
  return st;
}

static void fold_first(void *mine, const void *other, size_t n) {}

weft_status run_from_first(Run *r, void *it, size_t n, weft_error *e) {
  return run_combine(r, it, n, fold_first, e);
}

static void fold_errors(void *mine, const void *other, size_t n) {
  weft_error *a = mine;
  const weft_error *b = other;
  if (a->code == WEFT_OK) *a = *b;
}

weft_status run_agree(Run *r, weft_status st, weft_error *e) {
  weft_error ours = NO_ERROR, lost = NO_ERROR;
  if (run_is_alone(r)) return st;
  if (st != WEFT_OK && e) ours = *e;
  if (st != WEFT_OK) ours.code = st;
  if (st != WEFT_OK && ours.rank < 0) ours.rank = run_rank(r);
  if (run_combine(r, &ours, sizeof ours, fold_errors, &lost) != WEFT_OK &&
      ours.code == WEFT_OK)
    ours = lost;
  if (e && ours.code != WEFT_OK) *e = ours;
  return ours.code;
}
