/* param_fill.c - fills the parameters that the ranks of this process hold, in ranges, by
 * all threads: each takes the next range that no other has. */
#include "param_fill.h"

#include <omp.h>

#include "vm/base/dynamic8.h"
#include "vm/base/nontemporal.h"

/* What is filled by itself goes rank by rank, so many elements of a piece in a row: far
 * more than what a reader of files reads at once, and little beside a model. What is
 * brought goes in stretches of whole parameters: one is in a core's second cache while
 * all ranks take from it what they have. */
enum {
  STRETCH = 1 << 20,
  PART_LEAST = 1 << 12,
  PART_MOST = 1 << 16,
  WHOLE_MOST = COVER_STRETCH
};

static int lanes_each(const Run *r) {
  int64_t most = MAX(r->block_max / PART_LEAST, 1);
  return r->c->device->host ? (int)MIN(r->threads, most) : 1;
}

int run_lanes(const Run *r) { return r->nworker * lanes_each(r); }

typedef struct Fill {
  const Filling *f;
  bool clear;
  _Atomic bool failed;
} Fill;

/* Workers whose ranks are filled together. Their stretches are counted by the first one.
 */
typedef struct Crew {
  int first, n;
} Crew;

/* ---- one part ---- */

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

/* `twin`: the second region that takes the same elements, or NULL. */
static weft_status fill_piece(const Lane *l, const Filling *f, Rank *to, StateKind k,
                              int param, const Piece *p, const Piece *twin,
                              weft_error *e) {
  for (int64_t i = 0, n; i < p->count; i += n) {
    n = MIN(p->count - i, l->most);
    Piece part = piece_part(p, i, n), copy;
    if (twin) copy = piece_part(twin, i, n);
    TRY(fill_part(l, f, to, k, param, &part, twin ? &copy : NULL, e));
  }
  return WEFT_OK;
}

/* ---- one stretch ---- */

/* Of parameters that are brought, elements [from, to); else of each piece of a rank. */
typedef struct Section {
  StateKind k;
  int param;
  int64_t from, to;
} Section;

/* What a rank has of it: 0 to 2 pieces, which may be empty. */
static int pieces_of(const Lane *l, const Filling *f, const Section *s, int rank,
                     Piece out[2]) {
  int n = state_pieces(l->run->c, rank, s->k, s->param, out);
  for (int i = 0; i < n; i++) {
    int64_t from = MIN(s->from, out[i].count), to = MIN(s->to, out[i].count);
    out[i] = f->bring ? piece_within(&out[i], s->from, s->to)
                      : piece_part(&out[i], from, to - from);
  }
  return n;
}

static weft_status bring(Lane *l, const Filling *f, Crew crew, const Section *s,
                         weft_error *e) {
  RangeSet c = {.n = 0};
  Piece p[2];
  l->from = s->from;
  for (int i = crew.first; i < crew.first + crew.n; i++)
    for (int k = pieces_of(l, f, s, l->run->worker[i].rank, p); k-- > 0;)
      ranges_add(&c, &p[k]);
  return c.n ? f->bring(l, f->ud, s->param, &c, e) : WEFT_OK;
}

static weft_status fill_rank(const Lane *l, const Filling *f, Worker *to,
                             const Section *s, weft_error *e) {
  Piece p[2];
  int n = pieces_of(l, f, s, to->rank, p);
  bool twins = n == 2 && p[0].count == p[1].count && p[0].from == p[1].from;
  weft_status st = WEFT_OK;
  for (int i = 0; i < (twins ? 1 : n) && st == WEFT_OK; i++)
    st = fill_piece(l, f, to->r, s->k, s->param, &p[i], twins ? &p[1] : NULL, e);
  if (st != WEFT_OK && e->rank < 0) e->rank = to->rank;
  return st;
}

static weft_status fill_stretch(Lane *l, const Filling *f, Crew crew, const Section *s,
                                weft_error *e) {
  if (f->bring) TRY(bring(l, f, crew, s, e));
  for (int i = crew.first; i < crew.first + crew.n; i++)
    TRY(fill_rank(l, f, &l->run->worker[i], s, e));
  return WEFT_OK;
}

/* ---- all of them ---- */

/* Elements that are cut into stretches. */
static int64_t length(const Lane *l, const Filling *f, Crew crew, StateKind k,
                      int param) {
  Piece p[2];
  if (f->bring) return kept_count(l->run->c, k, param);
  int n = state_pieces(l->run->c, l->run->worker[crew.first].rank, k, param, p);
  return n == 2 ? MAX(p[0].count, p[1].count) : n ? p[0].count : 0;
}

/* Fills what this lane gets: stretch number `next` of the row of all. */
static weft_status fill_some(Lane *l, Fill *fill, Crew crew, weft_error *e) {
  const Filling *f = fill->f;
  _Atomic int64_t *taken = &l->run->worker[crew.first].taken;
  int64_t at = 0, next = atomic_fetch_add(taken, 1);
  for (int i = 0; i < f->n * f->nkind && !fill->failed; i++) {
    int k = f->first + i / f->nkind, param = f->order ? f->order[k] : k;
    Section s = {.k = f->kind[i % f->nkind], .param = param};
    int64_t n = length(l, f, crew, s.k, param), most = f->bring ? l->most : STRETCH;
    for (; s.from < n; s.from = s.to, at++) {
      s.to = MIN(s.from + most, n);
      if (at != next) continue;
      TRY(fill_stretch(l, f, crew, &s, e));
      next = atomic_fetch_add(taken, 1);
    }
  }
  return WEFT_OK;
}

/* A device that only its rank's thread may write to is filled by it alone; else all lanes
 * go from rank to rank, from their own on, or along what they share. */
static weft_status fill_lane(Lane *l, Fill *fill, int worker, weft_error *e) {
  int all = l->run->nworker;
  bool host = l->run->c->device->host;
  if (host && fill->f->bring) return fill_some(l, fill, (Crew){0, all}, e);
  for (int i = 0; i < (host ? all : 1); i++)
    TRY(fill_some(l, fill, (Crew){(worker + i) % all, 1}, e));
  return WEFT_OK;
}

static weft_status job_pieces(Worker *w, void *arg, weft_error *e) {
  Fill *fill = arg;
  Run *r = w->run;
  int lanes = lanes_each(r), worker = (int)(w - r->worker);
  int64_t share = r->block_max / lanes;
  if (lanes > 1) share -= share % DYNAMIC8_BLOCK; /* what is written begins at a block */
  weft_status st = WEFT_OK;
#pragma omp parallel num_threads(lanes) if (lanes > 1)
  {
    int i = omp_get_thread_num();
    Lane l = {r, worker * lanes + i, w->block + i * share,
              MIN(share, fill->f->bring ? WHOLE_MOST : PART_MOST), 0};
    weft_error why = NO_ERROR;
    if (fill_lane(&l, fill, worker, &why) != WEFT_OK &&
        !atomic_exchange(&fill->failed, true)) {
      if (e) *e = why;
      st = why.code;
    }
    nt_done();
  }
  TRY(st);
  return device_sync(&w->dev, e);
}

static weft_status job_begin(Worker *w, void *arg, weft_error *e) {
  const Fill *fill = arg;
  if (fill->clear) rank_clear(w->r, w->block, w->run->block_max);
  w->taken = 0;
  return WEFT_OK;
}

/* Whole arenas are cleared by their own threads. */
weft_status run_pieces(Run *r, const Filling *f, bool clear, weft_error *e) {
  Fill fill = {.f = f, .clear = clear};
  int64_t n = clear || f->bring ? INT64_MAX : 0;
  for (int i = 0; i < f->n && n < INT64_MAX; i++)
    n += f->nkind *
         param_count(&r->c->param[f->order ? f->order[f->first + i] : f->first + i]);
  TRY(run_each(r, job_begin, &fill, n, e));
  return run_each(r, job_pieces, &fill, n, e);
}
