/* unshard.c - places GATHER, FREE and SCATTER around the calls of a rank; see unshard.h.
 *
 * First the residencies of each bucket's parameters are planned (residencies.c); a second
 * pass over the calls then places everything. Where a call without parameters follows (W
 * of a split backward), the gather overlaps with that call and starts once the copy
 * before it is freed, which saves the memory of one copy. */
#include "unshard_int.h"

/* Whether no later body of the same microbatch writes its gradients. */
static bool writes_last(const BucketUse *x, Phase ph) {
  unsigned both = 1u << PH_B;
  return (x->writes & (ph == PH_B ? both : ~both)) >> ph == 1;
}

/* ---- placing ---- */

static Event *put(Unshard *u, EventKind kind, int at, int32_t bucket, int32_t buffer) {
  Event *e = &u->unwanted;
  if (!u->t->brief) {
    Placed *p = VEC_PUSH(u->a, u->placed);
    p->at = at;
    e = &p->e;
  }
  *e = (Event){.kind = (uint8_t)kind,
               .buffer = buffer,
               .unsharded = bucket,
               .handle = -1,
               .bucket = -1,
               .peer = -1,
               .action = u->now->action,
               .line = u->now->line};
  return e;
}

static int handle(Unshard *u) {
  return u->free_handle.n ? u->free_handle.at[--u->free_handle.n] : u->t->handles++;
}

static void wait(Unshard *u, int at, int32_t bucket, int handle) {
  put(u, EV_WAIT, at, bucket, -1)->handle = handle;
  *VEC_PUSH(u->a, u->free_handle) = handle;
}

/* A new buffer, live from just before event `at`. */
static int32_t begin(Unshard *u, int what, int32_t bucket, int at) {
  Area area = u->h->at[bucket].area;
  *VEC_PUSH(u->a, u->t->buffer[area]) = (Interval){.start = at,
                                                   .end = at,
                                                   .size = u->h->at[bucket].bytes[what],
                                                   .what = UNSHARDED_N * bucket + what};
  u->begun = at;
  return u->t->buffer[area].n - 1;
}

/* Ends the buffer's life just before event `at`. A buffer that begins there later may
 * take its place, one that has begun there already may not. */
static void end(Unshard *u, int32_t bucket, int32_t buffer, int at) {
  u->t->buffer[u->h->at[bucket].area].at[buffer].end = u->begun == at ? at : at - 1;
}

/* Counts what a GATHER from stored shards or a SCATTER moves. */
static void count_moved(Unshard *u, int32_t bucket, uint64_t bytes) {
  u->t->moved += bytes;
  if (u->h->at[bucket].experts) u->t->moved_experts += bytes;
}

/* ---- parameters ---- */

static void gather(Unshard *u, int32_t bucket, int at) {
  BucketState *b = &u->block[bucket];
  b->copy = begin(u, FULL_PARAM, bucket, at);
  b->handle = handle(u);
  Event *e = put(u, EV_GATHER, at, bucket, b->copy);
  e->handle = b->handle, e->kept = b->part >= 0;
  uint64_t bytes = u->h->at[bucket].bytes[FULL_PARAM];
  if (e->kept) {
    u->t->moved_kept += bytes;
  } else {
    count_moved(u, bucket, bytes);
    u->t->copies += bytes;
  }
}

static void wait_for_copy(Unshard *u, int32_t bucket, int at) {
  BucketState *b = &u->block[bucket];
  if (b->handle >= 0) wait(u, at, bucket, b->handle);
  b->handle = -1;
}

static void free_copy(Unshard *u, int32_t bucket, int at) {
  BucketState *b = &u->block[bucket];
  wait_for_copy(u, bucket, at);
  put(u, EV_FREE, at, bucket, b->copy);
  end(u, bucket, b->copy, at);
  b->copy = -1;
  if (b->part < 0 || b->residency < b->final) return;
  end(u, bucket, b->part, at);
  b->part = -1;
}

/* After the first forward of a step the group's shard is kept until the bucket's last
 * residency: all gathers between are within the group. Its buffer begins with the call,
 * so that what begins after the call may take the place of the freed copy. */
static void keep_part(Unshard *u, int32_t bucket, int call) {
  BucketState *b = &u->block[bucket];
  if (!u->h->at[bucket].bytes[GROUP_SHARD] || b->part >= 0 || b->residency == b->final)
    return;
  b->part = begin(u, GROUP_SHARD, bucket, call);
  put(u, EV_KEEP, call + 1, bucket, b->part);
}

static bool gathers(const Unshard *u, const Step *s) {
  int n;
  const BucketUse *x = unshard_uses(u, s, &n);
  bool any = false;
  for (int i = 0; i < n; i++) any |= unshard_reads(u, s, &x[i]);
  return any;
}

/* Starts the residencies planned to start with calls up to `from`, as far as calls up to
 * `use` need them. */
static void gather_ahead(Unshard *u, int64_t from, int64_t use, int at) {
  for (; u->next < u->residency.n; u->next++) {
    const Residency *x = &u->residency.at[u->next];
    if (x->from > from || x->use > use) return;
    u->block[x->bucket].residency = u->next;
    gather(u, x->bucket, at);
  }
}

/* Whether the next step is a call that reads no gathered parameters. */
static bool next_needs_no_copy(const Unshard *u, const Step *s) {
  bool last = s + 1 == u->t->step.at + u->t->step.n;
  return !last && s[1].kind == STEP_CALL && !gathers(u, &s[1]);
}

/* Starts the gathers that are due before this call and waits for those that it needs. */
static void prepare(Unshard *u, const Step *s) {
  int n;
  const BucketUse *x = unshard_uses(u, s, &n);
  if (!gathers(u, s)) {
    gather_ahead(u, u->calls - 1, INT64_MAX, s->at);
    return;
  }
  gather_ahead(u, u->calls, next_needs_no_copy(u, s) ? u->calls : INT64_MAX, s->at);
  for (int i = 0; i < n; i++)
    if (unshard_reads(u, s, &x[i])) wait_for_copy(u, x[i].bucket, s->at);
  u->calls++;
}

/* Residencies of a bucket do not overlap: the one that ends is the last that began. */
static void free_after(Unshard *u, const Step *s, int step) {
  int n;
  const BucketUse *x = unshard_uses(u, s, &n);
  for (int i = 0; i < n; i++) {
    const BucketState *b = &u->block[x[i].bucket];
    if (!unshard_reads(u, s, &x[i]) || b->by_schedule ||
        u->residency.at[b->residency].last != step)
      continue;
    if (s->phase == PH_F) keep_part(u, x[i].bucket, s->at);
    free_copy(u, x[i].bucket, s->at + 1);
  }
}

/* The schedule's UNSHARD or RESHARD of a chunk. */
static void follow_schedule(Unshard *u, const Step *s) {
  uint64_t bit = 1ull << s->of;
  for (int k = 0; k < u->h->n; k++) {
    const UnshardedBucket *x = &u->h->at[k];
    BucketState *b = &u->block[k];
    uint64_t open = s->kind == STEP_UNSHARD ? b->open | bit : b->open & ~bit;
    if (!b->by_schedule || !(x->chunks & bit) || !x->bytes[FULL_PARAM]) continue;
    if (open && !b->open) gather(u, k, s->at);
    if (b->open && !open) free_copy(u, k, s->at);
    b->open = open;
  }
}

/* ---- gradients ---- */

static void scatter(Unshard *u, int32_t bucket, int at, int step) {
  BucketState *b = &u->block[bucket];
  bool cast = u->h->at[bucket].bytes[REDUCE_BUFFER] > 0;
  Scattering x = {.bucket = bucket,
                  .buffer = cast ? begin(u, REDUCE_BUFFER, bucket, at) : b->sum,
                  .handle = handle(u),
                  .step = step,
                  .first = !b->begun};
  Event *e = put(u, EV_SCATTER, at, bucket, x.buffer);
  e->handle = x.handle, e->first = x.first;
  if (cast) end(u, bucket, b->sum, at);
  count_moved(u, bucket, u->h->at[bucket].bytes[cast ? REDUCE_BUFFER : FULL_GRAD]);
  *VEC_PUSH(u->a, u->scattering) = x;
  b->sum = -1, b->begun = true;
}

/* Waits for SCATTERs that were started in steps before `step`. */
static void wait_for_scatters(Unshard *u, int step, int at) {
  for (; u->done < u->scattering.n && u->scattering.at[u->done].step < step; u->done++) {
    const Scattering *x = &u->scattering.at[u->done];
    wait(u, at, x->bucket, x->handle);
    if (!x->first || u->h->at[x->bucket].bytes[REDUCE_BUFFER])
      put(u, EV_ADD, at, x->bucket, x->buffer)->first = x->first;
    end(u, x->bucket, x->buffer, at);
  }
}

/* Gives the gradients that this call writes first a new buffer. (A SCATTER overlaps with
 * the call after its own, unless that is a forward, whose buffers may take its place.) */
static void begin_gradients(Unshard *u, const Step *s, int step) {
  int n;
  const BucketUse *x = unshard_uses(u, s, &n);
  for (int i = 0; i < n; i++) {
    BucketState *b = &u->block[x[i].bucket];
    if (!unshard_writes(u, s, &x[i]) || b->sum >= 0) continue;
    b->sum = begin(u, FULL_GRAD, x[i].bucket, s->at);
    put(u, EV_TAKE, s->at, x[i].bucket, b->sum);
  }
}

static void reduce_after(Unshard *u, const Step *s, int step) {
  int n;
  const BucketUse *x = unshard_uses(u, s, &n);
  for (int i = 0; i < n; i++) {
    const BucketState *b = &u->block[x[i].bucket];
    bool each =
        !u->how->defer_grad_sync && !b->at_reduce && writes_last(&x[i], (Phase)s->phase);
    bool last = b->written == step && b->reduces == 0;
    if (unshard_writes(u, s, &x[i]) && (each || last))
      scatter(u, x[i].bucket, s->at + 1, step);
  }
  if (!u->how->overlap_grad_reduce) wait_for_scatters(u, step + 1, s->at + 1);
}

static void reduce_chunk(Unshard *u, const Step *s, int step) {
  for (int k = 0; k < u->h->n; k++) {
    BucketState *b = &u->block[k];
    if (!(u->h->at[k].chunks >> s->of & 1)) continue;
    if (--b->reduces == 0 && b->written < step && b->sum >= 0) scatter(u, k, s->at, step);
  }
  if (!u->how->overlap_grad_reduce) wait_for_scatters(u, step + 1, s->at);
}

/* ---- the pass over the calls ---- */

static void place(Unshard *u, int step) {
  const Step *s = u->now = &u->t->step.at[step];
  switch ((StepKind)s->kind) {
  case STEP_CALL:
    wait_for_scatters(u, s->phase == PH_F ? step : step - 1, s->at);
    prepare(u, s);
    begin_gradients(u, s, step);
    free_after(u, s, step);
    reduce_after(u, s, step);
    break;
  case STEP_UNSHARD:
  case STEP_RESHARD: follow_schedule(u, s); break;
  case STEP_REDUCE_GRAD: reduce_chunk(u, s, step); break;
  }
}

/* After the last action: waits for all SCATTERs and frees all copies. */
static void finish(Unshard *u) {
  static const Step none = {0};
  int at = u->t->positions;
  u->now = &none;
  wait_for_scatters(u, u->t->step.n, at);
  for (int k = 0; k < u->h->n; k++)
    if (u->block[k].copy >= 0) free_copy(u, k, at);
}

/* Merges what was placed into the list of events. */
static void merge(Unshard *u) {
  MainList *t = u->t;
  int n = t->ev.n + u->placed.n, k = 0;
  Event *all = arena_raw(u->a, sizeof *all * (size_t)n), *to = all;
  for (int i = 0; i <= t->ev.n; i++) {
    for (; k < u->placed.n && u->placed.at[k].at <= i; k++) *to++ = u->placed.at[k].e;
    if (i < t->ev.n) *to++ = t->ev.at[i];
  }
  t->ev.at = all;
  t->ev.n = t->ev.cap = n;
}

void unshard(const Strategy *how, bool pipelined, const UnshardedList *buckets,
             Arena *scratch, MainList *t) {
  if (buckets->n == 0) return;
  Unshard u = {.how = how,
               .h = buckets,
               .t = t,
               .a = scratch,
               .pipelined = pipelined,
               .begun = -1};
  u.block = (void *)arena_alloc(scratch, sizeof *u.block * (size_t)buckets->n);
  residencies(&u);
  for (int i = 0; i < t->step.n; i++) place(&u, i);
  finish(&u);
  if (!t->brief) merge(&u);
}
