/* residencies.c - plans from when to when the parameters of each bucket are unsharded,
 * before unshard.c places anything.
 *
 * Calls that need the bucket again soon share one unsharded copy, and so do all calls of
 * a step where copies are kept (reshard_after_forward = false). A GATHER starts some
 * calls ahead of the first use (prefetch), never before the GATHER of an earlier
 * residency: all ranks gather in the order of use. Where the schedule has UNSHARD for all
 * chunks that use a bucket, the residencies are those of the schedule. */
#include "unshard_int.h"

/* Plans the copy for one use. Prefetch does not cross the turn from forward to backward
 * or back: at the turn memory is needed for gradients, and a bucket that is read on both
 * sides of it is still unsharded. */
static void plan_use(Unshard *u, int step, const Step *s, int32_t bucket, int64_t call) {
  BucketState *b = &u->block[bucket];
  int64_t from = MAX(call - u->how->prefetch[u->backward], u->turn);
  int64_t next = b->used + 1;
  bool soon = call == next || (from <= next && next > u->turn);
  bool stays = b->residency >= 0 && (b->keep || soon);
  b->used = call;
  if (!stays) {
    if (u->residency.n) from = MAX(from, u->residency.at[u->residency.n - 1].from);
    *VEC_PUSH(u->a, u->residency) =
        (Residency){.bucket = bucket, .from = from, .use = call};
    b->residency = u->residency.n - 1;
  }
  u->residency.at[b->residency].last = step;
}

static void plan_call(Unshard *u, int step, const Step *s, int64_t *calls) {
  int n;
  const BucketUse *x = unshard_uses(u, s, &n);
  bool any = false;
  for (int i = 0; i < n; i++) {
    if (unshard_writes(u, s, &x[i])) u->block[x[i].bucket].written = step;
    if (!unshard_reads(u, s, &x[i])) continue;
    if ((s->phase != PH_F) != u->backward) {
      u->backward = !u->backward;
      u->turn = *calls;
    }
    any = true;
    if (!u->block[x[i].bucket].by_schedule) plan_use(u, step, s, x[i].bucket, *calls);
  }
  *calls += any;
}

/* A bucket is gathered where the schedule says so, if the schedule does for all chunks
 * that use it. */
static void read_schedule(Unshard *u) {
  uint64_t unsharded = 0;
  for (int i = 0; i < u->t->step.n; i++) {
    const Step *s = &u->t->step.at[i];
    if (s->kind == STEP_UNSHARD) unsharded |= 1ull << s->of;
    for (int k = 0; k < u->h->n && s->kind == STEP_REDUCE_GRAD; k++)
      if (u->h->at[k].chunks >> s->of & 1)
        u->block[k].reduces++, u->block[k].at_reduce = true;
  }
  for (int k = 0; k < u->h->n; k++)
    u->block[k].by_schedule = (u->h->at[k].chunks & ~unsharded) == 0;
}

static bool keeps(const Unshard *u, const UnshardedBucket *x) {
  const Strategy *s = u->how;
  if (x->experts && s->reshard_experts) return *s->reshard_experts == '0';
  return s->reshard == RESHARD_NO || (s->reshard == RESHARD_BY_PP && u->pipelined);
}

void residencies(Unshard *u) {
  int64_t calls = 0;
  for (int k = 0; k < u->h->n; k++)
    u->block[k] = (BucketState){.keep = keeps(u, &u->h->at[k]),
                                .residency = -1,
                                .used = -1,
                                .written = -1,
                                .copy = -1,
                                .handle = -1,
                                .sum = -1,
                                .part = -1};
  read_schedule(u);
  for (int i = 0; i < u->t->step.n; i++)
    if (u->t->step.at[i].kind == STEP_CALL) plan_call(u, i, &u->t->step.at[i], &calls);
  for (int k = 0; k < u->h->n; k++) u->block[k].final = u->block[k].residency;
}
