/* prove.c - prove(): runs the programs of all pp ranks together on an abstract machine
 * and shows that they end. A rank has one compute queue and one FIFO per channel; a
 * start enqueues and never blocks, a transfer runs when it heads the queue on all
 * members, a WAIT blocks the compute queue. From start to WAIT nothing else may write
 * what the transfer reads nor touch what it writes. Every order in which ranks take
 * turns gives the same result, because a rank only ever waits for counts that grow. */
#include "prove_int.h"

#include "check.h"

/* ---- channels ---- */

static int channel_new(Machine *m, int comm, int nmember, const int *member) {
  *VEC_PUSH(m->a, m->channel) =
      (Channel){.comm = comm, .nmember = nmember, .member = member,
                .started = NEW_N(m->a, uint32_t, nmember)};
  return m->channel.n - 1;
}

/* A communicator inside a pp rank is a channel of its own on each of them. */
static void make_coll_channels(Machine *m) {
  const Program *p = m->c->prog;
  int *all = NEW_N(m->a, int, m->npp);
  m->coll_channel = NEW_N(m->a, int32_t, m->npp * p->ncomm);
  for (int i = 0; i < m->npp; i++) all[i] = i;
  for (int j = 0; j < p->ncomm; j++) {
    const CommDesc *d = &p->comm[j];
    bool spans = comm_spans_pp(&m->c->mesh, d);
    int shared = !spans     ? -1
                 : d->npp   ? channel_new(m, j, d->npp, d->pp)
                            : channel_new(m, j, m->npp, all);
    for (int i = 0; i < m->npp; i++)
      m->coll_channel[i * p->ncomm + j] = spans ? shared : channel_new(m, j, 1, &all[i]);
  }
}

static int channel_of(Machine *m, int pp, const Instr *in) {
  if (instr_is[in->code] & INSTR_COLL)
    return m->coll_channel[pp * m->c->prog->ncomm + in->comm];
  int from = in->code == I_SEND ? pp : in->peer, to = in->code == I_SEND ? in->peer : pp;
  int32_t *pair = &m->pair_channel[from * m->npp + to];
  if (*pair < 0) {
    int *member = NEW_N(m->a, int, 2);
    member[0] = from, member[1] = to;
    *pair = channel_new(m, -1, 2, member);
  }
  return *pair;
}

/* The first member to start writes down what the others have to match. */
static weft_status enter(Machine *m, Channel *c, uint32_t k, const Start *s) {
  if (k < c->top) {
    const Start *first = &c->ring[k & c->mask];
    bool same = first->count == s->count && first->dtype == s->dtype &&
                first->coll == s->coll && first->red == s->red;
    return same ? WEFT_OK : report_mismatch(m, c, first, s);
  }
  uint32_t size = c->ring ? c->mask + 1 : 0;
  if (c->top - c->done == size) {
    uint32_t bigger = MAX(size * 2, 4);
    Start *ring = NEW_N(m->a, Start, bigger);
    for (uint32_t i = c->done; i < c->top; i++)
      ring[i & (bigger - 1)] = c->ring[i & c->mask];
    c->ring = ring, c->mask = bigger - 1;
  }
  c->ring[c->top++ & c->mask] = *s;
  return WEFT_OK;
}

static void wake(Machine *m, int pp) {
  RankState *r = &m->rank[pp];
  r->block = -1;
  if (r->queued || r->ended) return;
  r->queued = true;
  m->ready[(m->first + m->nready++) % m->npp] = pp;
}

static bool may_run(const Machine *m, int ch) {
  const Channel *c = &m->channel.at[ch];
  for (int i = 0; i < c->nmember; i++) {
    if (c->started[i] <= c->done) return false;
    if (!m->strict || c->comm < 0) continue;
    const RankState *r = &m->rank[c->member[i]];
    if (r->stream.at[r->head] != ch) return false;
  }
  return true;
}

static void run_transfer(Machine *m, int ch) {
  Channel *c = &m->channel.at[ch];
  c->done++;
  for (int i = 0; i < c->nmember; i++) {
    RankState *r = &m->rank[c->member[i]];
    if (m->strict && c->comm >= 0 && ++r->head < r->stream.n)
      *VEC_PUSH(m->a, m->advance) = r->stream.at[r->head];
    if (r->block == ch && c->done > (uint32_t)r->block_seq) wake(m, c->member[i]);
  }
  if (c->comm >= 0)
    m->proof.collectives++;
  else
    m->proof.transfers++;
}

static void advance(Machine *m, int ch) {
  *VEC_PUSH(m->a, m->advance) = ch;
  while (m->advance.n) {
    int next = m->advance.at[--m->advance.n];
    while (may_run(m, next)) run_transfer(m, next);
  }
}

/* ---- bytes in flight ---- */

static const Busy *collision(const RankState *r, uint64_t lo, uint64_t hi, bool write) {
  for (int i = 0; i < r->busy.n; i++) {
    const Busy *b = &r->busy.at[i];
    if ((b->lo < hi) & (lo < b->hi) & (b->write | write)) return b;
  }
  return NULL;
}

static void range_of(const RankState *r, const Call *call, const Operand *o, uint64_t *lo,
                     uint64_t *hi) {
  *lo = slot_base(r->p, call, o->slot) + o->off;
  *hi = *lo + operand_bytes(o);
}

static weft_status touch(Machine *m, int pp, const Instr *in, Site at) {
  RankState *r = &m->rank[pp];
  if (r->busy.n == 0) return WEFT_OK;
  const Call *call = site_call(r->p, at);
  for (int i = 0; i < in->nin + in->nout; i++) {
    uint64_t lo, hi;
    range_of(r, call, &r->p->operand[in->operand + (uint32_t)i], &lo, &hi);
    const Busy *b = lo < hi ? collision(r, lo, hi, i >= in->nin) : NULL;
    if (b) return report_overlap(m, pp, at, i, lo, hi, b);
  }
  return WEFT_OK;
}

/* From now on the ranges of a transfer are in flight. Only an all_reduce may have its
 * input and its result in the same place. */
static weft_status occupy(Machine *m, int pp, const Instr *in, Site at) {
  RankState *r = &m->rank[pp];
  const Call *call = site_call(r->p, at);
  uint64_t lo[2], hi[2];
  int n = in->nin + in->nout;
  TRY(touch(m, pp, in, at));
  for (int i = 0; i < n; i++) {
    range_of(r, call, &r->p->operand[in->operand + (uint32_t)i], &lo[i], &hi[i]);
    if (lo[i] < hi[i])
      *VEC_PUSH(m->a, r->busy) = (Busy){lo[i], hi[i], in->handle, i >= in->nin};
  }
  if (n == 1 || lo[0] >= hi[1] || lo[1] >= hi[0]) return WEFT_OK;
  bool same = lo[0] == lo[1] && hi[0] == hi[1];
  return same && in->coll == COLL_ALL_REDUCE ? WEFT_OK : report_inplace(m, pp, at);
}

/* ---- instructions ---- */

static weft_status start(Machine *m, int pp, const Instr *in, Site at) {
  RankState *r = &m->rank[pp];
  Pending *h = &r->handle[in->handle];
  if (h->channel >= 0) return report_reuse(m, pp, at, h);
  int ch = channel_of(m, pp, in);
  Channel *c = &m->channel.at[ch];
  uint32_t k = c->started[member_index(c, pp)]++;
  bool coll = instr_is[in->code] & INSTR_COLL, scatter = coll && in->coll == COLL_REDUCE_SCATTER;
  const Operand *o = &r->p->operand[in->operand + (scatter ? 1 : 0)];
  Start s = {.count = operand_count(o), .site = at, .rank = pp, .dtype = o->dtype,
             .coll = coll ? in->coll : 0,
             .red = coll && in->coll != COLL_ALL_GATHER ? in->red : 0};
  TRY(enter(m, c, k, &s));
  *h = (Pending){ch, k, at};
  r->nflight++;
  if (coll && ++r->in_flight[in->comm] > r->p->comm[in->comm].in_flight)
    return report_limit(m, pp, at);
  if (m->strict && coll)
    *VEC_PUSH(m->a, r->stream) = ch;
  else if (!m->strict)
    TRY(occupy(m, pp, in, at));
  advance(m, ch);
  return WEFT_OK;
}

static void release(RankState *r, int32_t handle, int comm) {
  int n = 0;
  for (int i = 0; i < r->busy.n; i++)
    if (r->busy.at[i].handle != handle) r->busy.at[n++] = r->busy.at[i];
  r->busy.n = n;
  if (comm >= 0) r->in_flight[comm]--;
  r->handle[handle].channel = -1;
  r->nflight--;
}

/* True in *blocked if the transfer has not run. */
static weft_status wait(Machine *m, int pp, const Instr *in, Site at, bool *blocked) {
  RankState *r = &m->rank[pp];
  const Pending *h = &r->handle[in->handle];
  if (h->channel < 0) return report_idle(m, pp, at);
  const Channel *c = &m->channel.at[h->channel];
  *blocked = c->done <= h->seq;
  if (*blocked)
    r->block = h->channel, r->block_seq = (int32_t)h->seq;
  else
    release(r, in->handle, c->comm);
  return WEFT_OK;
}

/* Whether a call can be one step: nothing that it uses is in use. A call that is not
 * clean is run instruction by instruction, which is exact and names the place. */
static bool clean(const RankState *r, const Call *call, const BodySum *s) {
  if (!s->closed) return false;
  for (int i = 0; i < s->apart.n; i++) {
    const Access *a = &s->apart.at[i].a, *b = &s->apart.at[i].b;
    uint64_t x = slot_base(r->p, call, a->slot), y = slot_base(r->p, call, b->slot);
    if (x + a->lo < y + b->hi && y + b->lo < x + a->hi) return false;
  }
  for (int i = 0; i < s->comm.n; i++) {
    int j = s->comm.at[i].comm;
    if (r->in_flight[j] + s->comm.at[i].in_flight > r->p->comm[j].in_flight) return false;
  }
  if (r->nflight == 0) return true;
  for (int i = 0; i < s->handle.n; i++)
    if (r->handle[s->handle.at[i]].channel >= 0) return false;
  for (int i = 0; i < s->access.n; i++) {
    const Access *a = &s->access.at[i];
    uint64_t x = slot_base(r->p, call, a->slot);
    if (collision(r, x + a->lo, x + a->hi, a->write)) return false;
  }
  return true;
}

/* Runs a closed body at once, or enters it. On the stricter machine its collectives come
 * after all that the rank has started, so the call waits for the last of them. */
static bool call(Machine *m, RankState *r) {
  const Call *k = &r->p->call[r->p->code[r->at.pc].call];
  const Body *b = &r->p->body[k->body];
  const BodySum *s = &r->body[k->body];
  if (m->strict && s->closed) {
    if (s->collectives && r->head < r->stream.n) {
      int tail = r->stream.at[r->stream.n - 1];
      const Channel *c = &m->channel.at[tail];
      r->block = tail;
      r->block_seq = (int32_t)c->started[member_index(c, r->p->pp)] - 1;
      return false;
    }
  } else if (!clean(r, k, s)) {
    r->at.pc = b->first, r->end = b->first + b->n;
    return true;
  }
  m->proof.instructions += b->n;
  m->proof.collectives += s->collectives;
  r->at.main = ++r->at.pc;
  return true;
}

/* Runs a rank until it blocks or ends. */
static weft_status run_rank(Machine *m, int pp) {
  RankState *r = &m->rank[pp];
  for (;;) {
    if (r->at.pc == r->end) {
      if (r->at.pc == r->at.main) break;
      r->at.main = r->at.pc = r->at.main + 1;
      r->end = r->p->nmain;
      continue;
    }
    const Instr *in = &r->p->code[r->at.pc];
    bool blocked = false;
    switch ((InstrCode)in->code) {
    case I_CALL:
      if (!call(m, r)) return WEFT_OK;
      m->proof.instructions++;
      continue;
    case I_KERNEL: case I_FREE: if (!m->strict) TRY(touch(m, pp, in, r->at)); break;
    case I_COLL: case I_SEND: case I_RECV: case I_GATHER: case I_SCATTER:
      TRY(start(m, pp, in, r->at));
      break;
    case I_WAIT: TRY(wait(m, pp, in, r->at, &blocked)); break;
    case I_N: break;
    }
    if (blocked) return WEFT_OK;
    m->proof.instructions++;
    if (r->at.pc == r->at.main) r->at.main++;
    r->at.pc++;
  }
  for (int i = 0; i < r->p->nhandle && r->nflight; i++)
    if (r->handle[i].channel >= 0) return report_unwaited(m, pp, &r->handle[i]);
  r->ended = true;
  return WEFT_OK;
}

/* ---- the machine ---- */

static void machine_init(Machine *m) {
  int npp = m->npp;
  make_coll_channels(m);
  m->pair_channel = NEW_N(m->a, int32_t, (size_t)npp * (size_t)npp);
  memset(m->pair_channel, -1, sizeof(int32_t) * (size_t)npp * (size_t)npp);
  m->ready = NEW_N(m->a, int, npp);
  for (int i = 0; i < npp; i++) {
    RankState *r = &m->rank[i];
    const Program *p = r->p;
    *r = (RankState){.p = p, .body = r->body, .end = p->nmain};
    r->handle = NEW_N(m->a, Pending, p->nhandle);
    for (int j = 0; j < p->nhandle; j++) r->handle[j].channel = -1;
    r->in_flight = NEW_N(m->a, int, p->ncomm);
    wake(m, i);
  }
}

static weft_status machine_run(Machine *m) {
  while (m->nready) {
    int pp = m->ready[m->first];
    m->first = (m->first + 1) % m->npp;
    m->nready--;
    m->rank[pp].queued = false;
    TRY(run_rank(m, pp));
  }
  for (int i = 0; i < m->npp; i++)
    if (!m->rank[i].ended) return report_blocked(m);
  return WEFT_OK;
}

static bool any_spans(const Compiled *c) {
  for (int i = 0; i < c->prog->ncomm; i++)
    if (comm_spans_pp(&c->mesh, &c->prog->comm[i])) return true;
  return false;
}

static weft_status prove_in(const Compiled *c, Arena *a, Proof *p, weft_error *e) {
  Machine m = {.c = c, .a = a, .e = e, .npp = c->mesh.size[AXIS_PP]};
  m.rank = NEW_N(a, RankState, m.npp);
  for (int i = 0; i < m.npp; i++) {
    RankState *r = &m.rank[i];
    r->p = &c->prog[i];
    r->body = NEW_N(a, BodySum, r->p->nbody);
    for (int j = 0; j < r->p->nbody; j++)
      body_summary(c, r->p, &r->p->body[j], a, &r->body[j]);
  }
  Machine strict = m;
  machine_init(&m);
  TRY(machine_run(&m));
  m.proof.communicators = c->prog->ncomm;
  /* Without a communicator that spans pp ranks every collective runs when it starts, in
   * any order, so the stricter machine is the same one. */
  if (any_spans(c)) {
    strict.strict = true;
    machine_init(&strict);
    TRY(machine_run(&strict));
  }
  if (p) *p = m.proof;
  return WEFT_OK;
}

weft_status prove(const Compiled *c, Proof *p, weft_error *e) {
  TRY(program_check(c, e));
  Arena *a = arena_new(arena_allocator(c->arena));
  if (!a) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (setjmp(*arena_guard(a))) {
    arena_free(a);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  weft_status st = prove_in(c, a, p, e);
  arena_free(a);
  return st;
}
