/* unshard.c - places GATHER, FREE and SCATTER around the calls of a rank; see unshard.h.
 *
 * First the residencies of each bucket's parameters are planned: calls that need it again
 * soon share a copy, and so do all of a step where copies are kept (reshard_after_forward
 * = false). A GATHER starts some calls ahead of the first use (prefetch), never before
 * that of an earlier residency: all ranks gather in the order of use. Where a call
 * without parameters follows (the W of a backward), the gather overlaps with it and
 * starts once the copy before it was freed, which saves the memory of one copy. One sweep
 * over the calls then places everything. Where the schedule says UNSHARD for all chunks
 * that use a bucket, its residencies are those of the schedule. */
#include "unshard.h"

typedef struct Stay {
  int32_t held;
  int64_t from; /* number of the gathering call with which its GATHER starts, */
  int64_t use;  /* and of the first that reads it */
  int32_t last; /* the last step that does */
} Stay;

typedef struct BlockState {
  bool said;       /* the schedule says when it is gathered */
  bool keep;       /* copies stay until the last call of the step that reads them */
  int32_t stay;    /* the last one that was planned, then that was begun; -1 */
  int64_t used;    /* number of the last gathering call that reads it */
  int32_t written; /* step of the last call that writes its gradients */
  int32_t reduces; /* REDUCE_GRADs still to come */
  bool at_reduce;  /* the schedule has one */
  uint64_t open;   /* chunks that the schedule has unsharded, a bit each */
  int32_t copy;    /* its buffer, -1: it is not there */
  int32_t handle;  /* of the GATHER that nothing waited for yet, -1 */
  int32_t sum;     /* buffer of whole gradients, -1 */
  int32_t final;   /* the last of its stays */
  int32_t part;    /* buffer of what stays between its stays, -1 */
  bool begun;      /* something was reduced in this step */
} BlockState;

/* A SCATTER that nothing waited for yet. */
typedef struct Flying {
  int32_t held, buffer, handle, step;
  bool first;
} Flying;

typedef struct Placed {
  int32_t at; /* before this event */
  Event e;
} Placed;

typedef struct Unshard {
  const Strategy *how;
  const UnshardedList *h;
  MainList *t;
  Arena *a;
  bool pipelined;
  BlockState *block;
  VEC(Stay) stay; /* in the order of their starts */
  int64_t turn;   /* the gathering call at which forward or backward began, */
  bool backward;  /* and which it is */
  int next;       /* of stay: the next to be gathered */
  int64_t calls;  /* that gather, so far */
  VEC(Flying) flying;
  int done; /* of flying: those that were waited for */
  VEC(int) free_handle;
  VEC(Placed) placed;
  Event unwanted;
  int32_t begun; /* position of the last buffer */
  const Step *now;
} Unshard;

static const BucketUse *uses_of(const Unshard *u, const Step *s, int *n) {
  *n = u->h->first[s->of + 1] - u->h->first[s->of];
  return &u->h->use[u->h->first[s->of]];
}

/* The call reads parameters of the block that are gathered. */
static bool reads(const Unshard *u, const Step *s, const BucketUse *x) {
  return x->reads >> s->phase & 1 && u->h->at[x->held].bytes[FULL_PARAM];
}

static bool writes(const Unshard *u, const Step *s, const BucketUse *x) {
  return x->writes >> s->phase & 1 && u->h->at[x->held].bytes[FULL_GRAD];
}

/* No body that comes after this one writes them. */
static bool writes_last(const BucketUse *x, Phase ph) {
  unsigned both = 1u << PH_B;
  return (x->writes & (ph == PH_B ? both : ~both)) >> ph == 1;
}

/* ---- the plan of stays ---- */

/* Gathers for a forward start in it, and those for a backward too: at the turn the memory
 * is wanted for gradients, and what is read on both sides of it is there. */
static void plan_use(Unshard *u, int step, const Step *s, int32_t held, int64_t call) {
  BlockState *b = &u->block[held];
  int64_t from = MAX(call - u->how->prefetch[u->backward], u->turn);
  int64_t next = b->used + 1;
  bool soon = call == next || (from <= next && next > u->turn);
  bool stays = b->stay >= 0 && (b->keep || soon);
  b->used = call;
  if (!stays) {
    if (u->stay.n) from = MAX(from, u->stay.at[u->stay.n - 1].from);
    *VEC_PUSH(u->a, u->stay) = (Stay){.held = held, .from = from, .use = call};
    b->stay = u->stay.n - 1;
  }
  u->stay.at[b->stay].last = step;
}

static void plan_call(Unshard *u, int step, const Step *s, int64_t *calls) {
  int n;
  const BucketUse *x = uses_of(u, s, &n);
  bool any = false;
  for (int i = 0; i < n; i++) {
    if (writes(u, s, &x[i])) u->block[x[i].held].written = step;
    if (!reads(u, s, &x[i])) continue;
    if ((s->phase != PH_F) != u->backward) {
      u->backward = !u->backward;
      u->turn = *calls;
    }
    any = true;
    if (!u->block[x[i].held].said) plan_use(u, step, s, x[i].held, *calls);
  }
  *calls += any;
}

/* A block is gathered where the schedule says so if it does for all that use it. */
static void look_at_schedule(Unshard *u) {
  uint64_t unsharded = 0;
  for (int i = 0; i < u->t->step.n; i++) {
    const Step *s = &u->t->step.at[i];
    if (s->kind == STEP_UNSHARD) unsharded |= 1ull << s->of;
    for (int k = 0; k < u->h->n && s->kind == STEP_REDUCE_GRAD; k++)
      if (u->h->at[k].chunks >> s->of & 1)
        u->block[k].reduces++, u->block[k].at_reduce = true;
  }
  for (int k = 0; k < u->h->n; k++)
    u->block[k].said = (u->h->at[k].chunks & ~unsharded) == 0;
}

static bool keeps(const Unshard *u, const UnshardedBucket *x) {
  const Strategy *s = u->how;
  if (x->experts && s->reshard_experts) return *s->reshard_experts == '0';
  return s->reshard == RESHARD_NO || (s->reshard == RESHARD_BY_PP && u->pipelined);
}

static void plan(Unshard *u) {
  int64_t calls = 0;
  for (int k = 0; k < u->h->n; k++)
    u->block[k] = (BlockState){.keep = keeps(u, &u->h->at[k]),
                               .stay = -1,
                               .used = -1,
                               .written = -1,
                               .copy = -1,
                               .handle = -1,
                               .sum = -1,
                               .part = -1};
  look_at_schedule(u);
  for (int i = 0; i < u->t->step.n; i++)
    if (u->t->step.at[i].kind == STEP_CALL) plan_call(u, i, &u->t->step.at[i], &calls);
  for (int k = 0; k < u->h->n; k++) u->block[k].final = u->block[k].stay;
}

/* ---- placing ---- */

static Event *put(Unshard *u, EventKind kind, int at, int32_t held, int32_t buffer) {
  Event *e = &u->unwanted;
  if (!u->t->brief) {
    Placed *p = VEC_PUSH(u->a, u->placed);
    p->at = at;
    e = &p->e;
  }
  *e = (Event){.kind = (uint8_t)kind,
               .buffer = buffer,
               .held = held,
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

static void wait(Unshard *u, int at, int32_t held, int handle) {
  put(u, EV_WAIT, at, held, -1)->handle = handle;
  *VEC_PUSH(u->a, u->free_handle) = handle;
}

/* From before event `at` on. */
static int32_t begin(Unshard *u, int what, int32_t held, int at) {
  Area area = u->h->at[held].area;
  *VEC_PUSH(u->a, u->t->buffer[area]) = (Interval){.start = at,
                                                   .end = at,
                                                   .size = u->h->at[held].bytes[what],
                                                   .what = UNSHARDED_N * held + what};
  u->begun = at;
  return u->t->buffer[area].n - 1;
}

/* Until before event `at`. What begins there afterwards may have the same place, but not
 * what has begun there already. */
static void end(Unshard *u, int32_t held, int32_t buffer, int at) {
  u->t->buffer[u->h->at[held].area].at[buffer].end = u->begun == at ? at : at - 1;
}

/* ---- parameters ---- */

static void gather(Unshard *u, int32_t held, int at) {
  BlockState *b = &u->block[held];
  b->copy = begin(u, FULL_PARAM, held, at);
  b->handle = handle(u);
  Event *e = put(u, EV_GATHER, at, held, b->copy);
  e->handle = b->handle, e->kept = b->part >= 0;
  uint64_t bytes = u->h->at[held].bytes[FULL_PARAM];
  *(e->kept ? &u->t->moved_kept : &u->t->moved) += bytes;
  if (!e->kept) u->t->copies += bytes;
}

static void settle_copy(Unshard *u, int32_t held, int at) {
  BlockState *b = &u->block[held];
  if (b->handle >= 0) wait(u, at, held, b->handle);
  b->handle = -1;
}

static void give_up(Unshard *u, int32_t held, int at) {
  BlockState *b = &u->block[held];
  settle_copy(u, held, at);
  put(u, EV_FREE, at, held, b->copy);
  end(u, held, b->copy, at);
  b->copy = -1;
  if (b->part < 0 || b->stay < b->final) return;
  end(u, held, b->part, at);
  b->part = -1;
}

/* After the first forward of a step what a group shares stays until the last time that
 * the copy is needed: all gathers between are among its ranks. It has its place from the
 * call on, so that what comes next may lie where the copy was. */
static void keep_part(Unshard *u, int32_t held, int call) {
  BlockState *b = &u->block[held];
  if (!u->h->at[held].bytes[GROUP_SHARD] || b->part >= 0 || b->stay == b->final) return;
  b->part = begin(u, GROUP_SHARD, held, call);
  put(u, EV_KEEP, call + 1, held, b->part);
}

static bool gathers(const Unshard *u, const Step *s) {
  int n;
  const BucketUse *x = uses_of(u, s, &n);
  bool any = false;
  for (int i = 0; i < n; i++) any |= reads(u, s, &x[i]);
  return any;
}

/* The stays that begin with gathering calls up to `from`, as far as those up to `use`
 * need them. */
static void gather_ahead(Unshard *u, int64_t from, int64_t use, int at) {
  for (; u->next < u->stay.n; u->next++) {
    const Stay *x = &u->stay.at[u->next];
    if (x->from > from || x->use > use) return;
    u->block[x->held].stay = u->next;
    gather(u, x->held, at);
  }
}

/* After this call comes one that needs no parameters. */
static bool rests_after(const Unshard *u, const Step *s) {
  bool last = s + 1 == u->t->step.at + u->t->step.n;
  return !last && s[1].kind == STEP_CALL && !gathers(u, &s[1]);
}

/* The gathers that start before this call, and those that it needs. */
static void prepare(Unshard *u, const Step *s) {
  int n;
  const BucketUse *x = uses_of(u, s, &n);
  if (!gathers(u, s)) {
    gather_ahead(u, u->calls - 1, INT64_MAX, s->at);
    return;
  }
  gather_ahead(u, u->calls, rests_after(u, s) ? u->calls : INT64_MAX, s->at);
  for (int i = 0; i < n; i++)
    if (reads(u, s, &x[i])) settle_copy(u, x[i].held, s->at);
  u->calls++;
}

/* Stays of a block do not overlap: the last one that began is the one that ends. */
static void free_after(Unshard *u, const Step *s, int step) {
  int n;
  const BucketUse *x = uses_of(u, s, &n);
  for (int i = 0; i < n; i++) {
    const BlockState *b = &u->block[x[i].held];
    if (!reads(u, s, &x[i]) || b->said || u->stay.at[b->stay].last != step) continue;
    if (s->phase == PH_F) keep_part(u, x[i].held, s->at);
    give_up(u, x[i].held, s->at + 1);
  }
}

/* The UNSHARD or RESHARD of a chunk. */
static void as_said(Unshard *u, const Step *s) {
  uint64_t bit = 1ull << s->of;
  for (int k = 0; k < u->h->n; k++) {
    const UnshardedBucket *x = &u->h->at[k];
    BlockState *b = &u->block[k];
    uint64_t open = s->kind == STEP_UNSHARD ? b->open | bit : b->open & ~bit;
    if (!b->said || !(x->chunks & bit) || !x->bytes[FULL_PARAM]) continue;
    if (open && !b->open) gather(u, k, s->at);
    if (b->open && !open) give_up(u, k, s->at);
    b->open = open;
  }
}

/* ---- gradients ---- */

static void scatter(Unshard *u, int32_t held, int at, int step) {
  BlockState *b = &u->block[held];
  bool wire = u->h->at[held].bytes[REDUCE_BUFFER] > 0;
  Flying x = {.held = held,
              .buffer = wire ? begin(u, REDUCE_BUFFER, held, at) : b->sum,
              .handle = handle(u),
              .step = step,
              .first = !b->begun};
  Event *e = put(u, EV_SCATTER, at, held, x.buffer);
  e->handle = x.handle, e->first = x.first;
  if (wire) end(u, held, b->sum, at);
  u->t->moved += u->h->at[held].bytes[wire ? REDUCE_BUFFER : FULL_GRAD];
  *VEC_PUSH(u->a, u->flying) = x;
  b->sum = -1, b->begun = true;
}

/* Waits for what was started in steps before `step`. */
static void settle_sums(Unshard *u, int step, int at) {
  for (; u->done < u->flying.n && u->flying.at[u->done].step < step; u->done++) {
    const Flying *x = &u->flying.at[u->done];
    wait(u, at, x->held, x->handle);
    if (!x->first || u->h->at[x->held].bytes[REDUCE_BUFFER])
      put(u, EV_ADD, at, x->held, x->buffer)->first = x->first;
    end(u, x->held, x->buffer, at);
  }
}

/* A SCATTER overlaps the call after its own, unless that is a forward: what comes then
 * may lie in its place. */
static void take_sums(Unshard *u, const Step *s, int step) {
  int n;
  const BucketUse *x = uses_of(u, s, &n);
  for (int i = 0; i < n; i++) {
    BlockState *b = &u->block[x[i].held];
    if (!writes(u, s, &x[i]) || b->sum >= 0) continue;
    b->sum = begin(u, FULL_GRAD, x[i].held, s->at);
    put(u, EV_TAKE, s->at, x[i].held, b->sum);
  }
}

static void reduce_after(Unshard *u, const Step *s, int step) {
  int n;
  const BucketUse *x = uses_of(u, s, &n);
  for (int i = 0; i < n; i++) {
    const BlockState *b = &u->block[x[i].held];
    bool each =
        !u->how->defer_grad_sync && !b->at_reduce && writes_last(&x[i], (Phase)s->phase);
    bool last = b->written == step && b->reduces == 0;
    if (writes(u, s, &x[i]) && (each || last)) scatter(u, x[i].held, s->at + 1, step);
  }
  if (!u->how->overlap_grad_reduce) settle_sums(u, step + 1, s->at + 1);
}

static void reduce_chunk(Unshard *u, const Step *s, int step) {
  for (int k = 0; k < u->h->n; k++) {
    BlockState *b = &u->block[k];
    if (!(u->h->at[k].chunks >> s->of & 1)) continue;
    if (--b->reduces == 0 && b->written < step && b->sum >= 0) scatter(u, k, s->at, step);
  }
  if (!u->how->overlap_grad_reduce) settle_sums(u, step + 1, s->at);
}

/* ---- the sweep ---- */

static void place(Unshard *u, int step) {
  const Step *s = u->now = &u->t->step.at[step];
  switch ((StepKind)s->kind) {
  case STEP_CALL:
    settle_sums(u, s->phase == PH_F ? step : step - 1, s->at);
    prepare(u, s);
    take_sums(u, s, step);
    free_after(u, s, step);
    reduce_after(u, s, step);
    break;
  case STEP_UNSHARD:
  case STEP_RESHARD: as_said(u, s); break;
  case STEP_REDUCE_GRAD: reduce_chunk(u, s, step); break;
  }
}

/* What is left when the last action is done. */
static void finish(Unshard *u) {
  static const Step none = {0};
  int at = u->t->positions;
  u->now = &none;
  settle_sums(u, u->t->step.n, at);
  for (int k = 0; k < u->h->n; k++)
    if (u->block[k].copy >= 0) give_up(u, k, at);
}

/* Puts what was placed between the events. */
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

void unshard(const Strategy *how, bool pipelined, const UnshardedList *held,
             Arena *scratch, MainList *t) {
  if (held->n == 0) return;
  Unshard u = {
      .how = how, .h = held, .t = t, .a = scratch, .pipelined = pipelined, .begun = -1};
  u.block = (void *)arena_alloc(scratch, sizeof *u.block * (size_t)held->n);
  plan(&u);
  for (int i = 0; i < t->step.n; i++) place(&u, i);
  finish(&u);
  if (!t->brief) merge(&u);
}
