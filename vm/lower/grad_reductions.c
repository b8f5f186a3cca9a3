/* grad_reductions.c - places gradient reductions in a rank's main list: with overlap, a
 * bucket is reduced once its last gradient is complete, or at the schedule's REDUCE_GRAD;
 * all others after the last action. */
#include "main_list_int.h"

/* Starts the reduction of bucket k if it is complete and is to overlap, or the schedule
 * asks for it here; what is left is reduced after the last action. */
static void reduce(Walk *w, int k) {
  const struct Due *h = &w->bucket[k];
  bool wanted = (h->explicit || w->in->overlap) && !w->l->bucket.at[k].scattered;
  if (h->units > 0 || h->actions > 0 || !wanted || w->t->reduce_handle[k] >= 0) return;
  w->t->reduce_handle[k] = walk_handle(w);
  Event *e = walk_event(w, EV_REDUCE);
  e->bucket = k, e->handle = w->t->reduce_handle[k];
}

/* The bucket of the unit's parameter i, -1 if its gradient is not reduced. */
static int bucket_of(const Walk *w, const CompiledUnit *x, int i) {
  return w->of_bucket[w->l->of[x->param[i]]];
}

/* After the last W of a unit: starts the reductions of buckets that this completes. */
void reductions_finished(Walk *w, int u) {
  const CompiledUnit *x = &w->u->at[u];
  if (--w->w_left[w->local[u]] > 0 || w->l->bucket.n == 0) return;
  int n = x->code->nparam, lo = w->l->bucket.n, hi = -1;
  for (int i = 0; i < n; i++) {
    int k = bucket_of(w, x, i);
    if (k < 0) continue;
    w->bucket[k].units--;
    w->bucket[k].touched = true;
    lo = MIN(lo, k), hi = MAX(hi, k);
  }
  for (int k = lo; k <= hi; k++) {
    if (w->bucket[k].touched) reduce(w, k);
    w->bucket[k].touched = false;
  }
}

/* Warns that the schedule reduces a tied weight before all chunks that use it have
 * written their gradient: it is reduced after the last of them instead. */
static void warn_late(Walk *w, const Bucket *bk, int chunk) {
  if (w->in->late) return;
  w->in->late = true;
  int param = w->l->regions.param[bk->first].param;
  Diag *x = diag_warn(w->in->d, "schedule", "schedule",
                      "rank %d, step %d: REDUCE_GRAD of chunk %d leaves out %s, which "
                      "other chunks of the rank use, too: its gradient is reduced after "
                      "their last W",
                      w->rank, w->action - 1, chunk, w->u->param[param].name);
  if (w->line > 0 && w->s->file) x->file = w->s->file, x->line = w->line;
}

void reductions_of_chunk(Walk *w, int chunk) {
  for (int k = 0; k < w->l->bucket.n; k++) {
    const Bucket *bk = &w->l->bucket.at[k];
    if (!(bk->chunks >> chunk & 1)) continue;
    w->bucket[k].actions--;
    if (w->bucket[k].units > 0) warn_late(w, bk, chunk);
    reduce(w, k);
  }
}

static void count_buckets(Walk *w, int stage) {
  for (int u = w->st->first[stage]; u < w->st->first[stage + 1]; u++) {
    w->w_left[w->local[u]] = w->tr->microbatches;
    const CompiledUnit *x = &w->u->at[u];
    for (int i = 0; i < x->code->nparam && w->l->bucket.n; i++) {
      int k = bucket_of(w, x, i);
      if (k >= 0) w->bucket[k].units++;
    }
  }
}

static void count_reductions(Walk *w) {
  for (int i = 0; i < w->s->n[w->rank]; i++) {
    const Action *a = &w->s->list[w->rank][i];
    for (int k = 0; k < w->l->bucket.n && a->kind == ACT_REDUCE_GRAD; k++)
      if (w->l->bucket.at[k].chunks >> a->chunk & 1)
        w->bucket[k].actions++, w->bucket[k].explicit = true;
  }
}

void reductions_begin(Walk *w, int units) {
  int n = w->l->bucket.n;
  w->w_left = NEW_N(w->a, int, units);
  w->bucket = (void *)arena_alloc(w->a, sizeof *w->bucket * (size_t)(n + 1));
  w->t->reduce_handle = NEW_N(w->a, int, n + 1);
  w->of_bucket = NEW_N(w->a, int, w->l->regions.nparam);
  for (int i = 0; i < w->l->regions.nparam; i++) w->of_bucket[i] = -1;
  for (int k = 0; k < n; k++) {
    w->t->reduce_handle[k] = -1;
    for (int i = 0; i < w->l->bucket.at[k].n; i++)
      w->of_bucket[w->l->bucket.at[k].first + i] = k;
  }
  for (int c = 0; c < w->st->chunks; c++) count_buckets(w, stage_at(w->st, w->rank, c));
  count_reductions(w);
}
