/* run_export.c - writes the parameters of a run to files: each rank reads its pieces
 * block by block and writes them to their place in shared files. Of ranks that hold
 * copies one writes. Nothing is gathered. */
#include "run_export.h"

#include "shared_folder.h"
#include "snapshot.h"
#include "vm/io/file.h"
#include "vm/run/run_int.h"

#include <stdlib.h>

typedef struct Export {
  WeightsOut *out;
} Export;

static weft_status write_part(Worker *w, const WeightsOut *out, int param,
                              const Piece *part, weft_error *e) {
  rank_read(w->r, part, w->block);
  for (int64_t i = 0, spans = piece_spans(part); i < spans; i++) {
    Span s = piece_span(part, i);
    if (s.n) TRY(weights_out_put(out, param, s.global, s.n, w->block + s.local, e));
  }
  return WEFT_OK;
}

static weft_status job_export(Worker *w, void *arg, weft_error *e) {
  const Export *x = arg;
  const Run *r = w->run;
  for (int i = 0; i < r->c->nparam; i++) {
    Piece p[2], part;
    if (!weights_out_has(x->out, &r->c->param[i])) continue;
    if (!state_pieces(r->c, w->rank, STATE_PARAM, i, p) ||
        !piece_gives(&r->c->mesh, &r->c->param[i], p->region, w->rank))
      continue;
    for (int64_t at = 0; at < p->count; at += part.count) {
      part = piece_part(p, at, MIN(p->count - at, r->block_max));
      TRY(write_part(w, x->out, i, &part, e));
    }
  }
  return WEFT_OK;
}

/* ---- of all processes ---- */

/* The first process makes the files, the others find them by the names that it tells. */
static weft_status open_all(Run *r, const WeightsOutOptions *o, Export *x,
                            weft_error *e) {
  bool first = world_has(&r->world, 0);
  weft_status st = first ? weights_out_open(&r->alloc, r->c, o, &x->out, e) : WEFT_OK;
  TRY(run_agree(r, st, e));
  if (run_is_alone(r)) return WEFT_OK;
  size_t bytes = weights_out_names_bytes(r->c, o);
  char *names = mem_new(&r->alloc, bytes);
  st = run_agree(r, names ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory"), e);
  if (st == WEFT_OK) {
    if (first) weights_out_names(x->out, names, bytes);
    st = run_from_first(r, names, bytes, e);
    if (st == WEFT_OK && !first)
      st = weights_out_join(&r->alloc, r->c, o, names, &x->out, e);
    st = run_agree(r, st, e);
  }
  mem_free(&r->alloc, names, bytes);
  return st;
}

/* Those that joined finish first. */
static weft_status finish_all(Run *r, Export *x, weft_error *e) {
  for (int turn = 0; turn < 2; turn++) {
    WeightsOut *out = world_has(&r->world, 0) == (turn == 1) ? x->out : NULL;
    if (out) x->out = NULL;
    TRY(run_agree(r, out ? weights_out_finish(out, e) : WEFT_OK, e));
  }
  return WEFT_OK;
}

weft_status run_export_shares(Run *r, const char *dir, weft_error *e) {
  Dir in = DIR_CLOSED;
  char *name = NULL;
  bool shared;
  if (run_is_alone(r)) return WEFT_OK;
  weft_status st = run_agree(r, folder_above(dir, &in, &name, e), e);
  if (st == WEFT_OK) st = run_shares_folder(r, &in, name, dir, &shared, e);
  dir_close(&in);
  free(name);
  return st;
}

weft_status run_export(Run *r, const WeightsOutOptions *o, weft_error *e) {
  Export x = {0};
  weft_error why = NO_ERROR;
  TRY(run_holds(r, STATE_PARAM, e));
  weft_status st = open_all(r, o, &x, &why);
  if (st == WEFT_OK) st = run_agree(r, run_all(r, job_export, &x, false, &why), &why);
  if (st == WEFT_OK) st = finish_all(r, &x, &why);
  weights_out_drop(x.out);
  if (st != WEFT_OK && e && e->code == WEFT_OK) *e = why;
  return st;
}
