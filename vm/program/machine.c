/* machine.c - runs the programs of all pp ranks on the abstract machine (machine.h). A
 * call of a closed body is one step; any other call is run instruction by instruction.
 * Transfers are machine_channels.c. */
#include "machine.h"

/* ---- instructions ---- */

static int64_t cost_of(const Machine *m, int pp, const Instr *in) {
  return m->costs ? m->costs->cost(m->costs->ud, pp, in) : 0;
}

/* The compute queue works: of `ticks` so many are kernels. */
static void queue_computes(Machine *m, int pp, int64_t kernels, int64_t ticks) {
  RankState *r = &m->rank[pp];
  int64_t slower = (int64_t)((double)kernels * r->beside);
  if (ticks > 0) rates_cores(m, pp, m->walk.rank[pp].now);
  int64_t shared = (int64_t)((double)(ticks + slower) * (m->crowd - 1));
  r->busy_ticks += kernels + slower;
  r->shared_ticks += shared;
  m->walk.rank[pp].now += ticks + slower + shared;
  r->kernels = ticks > 0 ? (double)kernels / (double)ticks : 0;
}

/* What the start takes of links. */
static LinkLoad load_of(Machine *m, int pp, const Instr *in) {
  LinkLoad l = {0};
  if (!machine_shares(m)) return l;
  m->costs->load(m->costs->ud, pp, in, &l);
  for (int k = 0; k < LINK_KINDS; k++) m->rank[pp].on_link[k] += l.link[k] > 0;
  return l;
}

static void count_flow(Machine *m, int pp, const Instr *in) {
  const Program *p = m->rank[pp].p;
  const Operand *o = &p->operand[in->operand];
  bool coll = instr_is[in->code] & INSTR_COLL;
  int kind = coll ? in->coll : in->code == I_SEND ? COLL_SEND : COLL_RECV;
  Flow *f = &m->flow[flow_index(m->c, pp, coll ? in->comm : -1, (CollKind)kind)];
  f->count++;
  f->bytes += coll ? coll_bytes(in, o) : operand_bytes(o);
}

static weft_status start(Machine *m, int pp, const Instr *in, Site at) {
  RankState *r = &m->rank[pp];
  Pending *h = &r->handle[in->handle];
  if (h->channel >= 0) return report_reuse(m, pp, at, h);
  int ch = channel_of(m, pp, in);
  Channel *c = &m->channel.at[ch];
  uint32_t k = c->started[member_index(c, pp)]++;
  bool coll = c->comm >= 0;
  const Operand *o = &r->p->operand[in->operand];
  Start s = {.count = operand_count(o),
             .site = at,
             .rank = pp,
             .dtype = o->dtype,
             .ready = m->walk.rank[pp].now,
             .cost = cost_of(m, pp, in),
             .coll = coll ? in->coll : 0,
             .by = coll ? in->by : 0,
             .red = coll ? in->red : 0,
             .load = load_of(m, pp, in)};
  TRY(channel_enter(m, c, k, &s));
  *h = (Pending){ch, k, at};
  r->nflight++;
  if (coll && ++r->in_flight[in->comm] > r->p->comm[in->comm].in_flight)
    return report_limit(m, pp, at);
  TRY(bytes_occupy(m, pp, in, at));
  count_flow(m, pp, in);
  if (m->in_order && coll) *VEC_PUSH(m->a, r->stream) = ch;
  machine_advance(m, ch);
  return WEFT_OK;
}

static void block(Machine *m, int pp, int channel, uint32_t seq) {
  m->rank[pp].block_seq = seq;
  walk_block(&m->walk, pp, channel);
  rates_cores(m, -1, m->walk.rank[pp].now);
}

static void tell_wait(const Machine *m, int pp, const Pending *h, int64_t from) {
  const Channel *c = &m->channel.at[h->channel];
  if (!m->costs->waited) return;
  m->costs->waited(m->costs->ud, pp,
                   &(RankWait){.what = &m->rank[pp].p->code[h->site.pc],
                               .came = from,
                               .began = c->begin.at[h->seq],
                               .ended = c->end.at[h->seq],
                               .times = 1});
}

/* True in *blocked if the transfer has not run. */
static weft_status wait(Machine *m, int pp, const Instr *in, Site at, bool *blocked) {
  RankState *r = &m->rank[pp];
  Pending *h = &r->handle[in->handle];
  if (h->channel < 0) return report_idle(m, pp, at);
  const Channel *c = &m->channel.at[h->channel];
  *blocked = c->done <= h->seq;
  if (*blocked) {
    block(m, pp, h->channel, h->seq);
    return WEFT_OK;
  }
  WalkRank *w = &m->walk.rank[pp];
  if (m->costs) {
    tell_wait(m, pp, h, w->now);
    w->now = MAX(w->now, c->end.at[h->seq]);
  }
  bytes_release(r, in->handle);
  if (c->comm >= 0) r->in_flight[c->comm]--;
  h->channel = -1;
  r->nflight--;
  return WEFT_OK;
}

/* With costs a closed body takes what it takes alone only if nothing else is under way on
 * its communicators. */
static bool undisturbed(const Machine *m, int pp, const BodySum *s) {
  const RankState *r = &m->rank[pp];
  int64_t now = m->walk.rank[pp].now;
  if (m->in_order && s->comm.n && r->free > now) return false;
  if (machine_shares(m)) {
    if (m->in_order && s->collectives && r->head < r->stream.n) return false;
    for (int k = 0; k < LINK_KINDS; k++)
      if (s->link[k] && r->on_link[k]) return false;
    return true;
  }
  for (int i = 0; i < s->comm.n; i++) {
    int ch = m->coll_channel[pp * r->p->ncomm + s->comm.at[i].comm];
    const Channel *c = &m->channel.at[ch];
    if (c->end.n && c->end.at[c->end.n - 1] > now) return false;
  }
  return true;
}

/* On the stricter backend the collectives of a body come after all that the rank has
 * started, so the call waits for the last of them. */
static bool behind_the_stream(Machine *m, int pp, const BodySum *s) {
  const RankState *r = &m->rank[pp];
  if (!m->in_order || !s->collectives || r->head == r->stream.n) return false;
  int tail = r->stream.at[r->stream.n - 1];
  const Channel *c = &m->channel.at[tail];
  block(m, pp, tail, c->started[member_index(c, pp)] - 1);
  return true;
}

/* Runs a closed body at once, or enters it; false if the rank has to wait. */
static bool call(Machine *m, int pp, const Instr *in) {
  RankState *r = &m->rank[pp];
  const Call *k = &r->p->call[in->call];
  const Body *b = &r->p->body[k->body];
  BodySum *s = &r->body[k->body];
  bool one_step = machine_shares(m) ? s->closed : bytes_clean(r, k, s);
  if (one_step && !machine_shares(m) && behind_the_stream(m, pp, s)) return false;
  int64_t cost = cost_of(m, pp, in);
  queue_computes(m, pp, cost, cost);
  m->proof.instructions++;
  if (!one_step || (m->costs && !undisturbed(m, pp, s))) {
    r->at.pc = b->first, r->end = b->first + b->n;
    return true;
  }
  s->runs++;
  queue_computes(m, pp, s->busy, s->ticks);
  m->proof.instructions += b->n;
  m->proof.collectives += s->collectives;
  r->at.main = ++r->at.pc;
  return true;
}

/* Stands still for as long as what it has started takes alone, where that is so. */
static void hold(Machine *m, int pp, const Instr *in) {
  if (!m->costs || !m->costs->stands || !m->costs->stands(m->costs->ud, pp, in)) return;
  int64_t from = m->walk.rank[pp].now, cost = cost_of(m, pp, in);
  queue_computes(m, pp, 0, cost);
  RankWait w = {
      .what = in, .came = from, .began = from, .ended = from + cost, .times = 1};
  if (m->costs->waited) m->costs->waited(m->costs->ud, pp, &w);
}

/* One instruction that is no call. */
static weft_status execute(Machine *m, int pp, const Instr *in, bool *blocked) {
  RankState *r = &m->rank[pp];
  int64_t cost = 0;
  switch ((InstrCode)in->code) {
  case I_KERNEL:
    TRY(bytes_touch(m, pp, in, r->at));
    cost = cost_of(m, pp, in);
    break;
  case I_FREE:
    TRY(bytes_free(m, pp, in, r->at));
    cost = cost_of(m, pp, in);
    break;
  case I_SEND:
  case I_COLL:
    TRY(start(m, pp, in, r->at));
    hold(m, pp, in);
    return WEFT_OK;
  case I_RECV:
  case I_GATHER:
  case I_SCATTER: return start(m, pp, in, r->at);
  case I_WAIT: return wait(m, pp, in, r->at, blocked);
  case I_CALL:
  case I_N: break;
  }
  queue_computes(m, pp, cost, cost);
  return WEFT_OK;
}

/* Past the end of the body that was expanded. */
static void leave(RankState *r) {
  r->at.main = r->at.pc = r->at.main + 1;
  r->end = r->p->nmain;
}

/* Tells of the last instruction of main: not at once, as it takes longer if a transfer
 * begins meanwhile. */
static void tell(Machine *m, int pp) {
  RankState *r = &m->rank[pp];
  if (r->ran && m->costs && m->costs->ran)
    m->costs->ran(m->costs->ud, pp, r->ran, r->ran_from, m->walk.rank[pp].now);
  r->ran = NULL;
}

static void ran(RankState *r, const Instr *in, int64_t from) {
  r->ran = in, r->ran_from = from;
}

weft_status machine_run_rank(Machine *m, int pp) {
  RankState *r = &m->rank[pp];
  WalkRank *w = &m->walk.rank[pp];
  for (;;) {
    if (w->now > m->horizon) {
      walk_again(&m->walk, pp);
      return WEFT_OK;
    }
    tell(m, pp);
    if (r->at.pc == r->end) {
      if (r->at.pc == r->at.main) break;
      ran(r, &r->p->code[r->at.main], r->called);
      leave(r);
      continue;
    }
    const Instr *in = &r->p->code[r->at.pc];
    int64_t from = w->now;
    bool blocked = false, main = r->at.pc == r->at.main;
    if (in->code == I_CALL) {
      r->called = from;
      if (!call(m, pp, in)) return WEFT_OK;
      if (r->at.pc == r->at.main) ran(r, in, from);
      continue;
    }
    TRY(execute(m, pp, in, &blocked));
    if (blocked) return WEFT_OK;
    if (main) ran(r, in, from);
    m->proof.instructions++;
    r->at.pc++;
    if (main) r->at.main++;
  }
  for (int i = 0; i < r->p->nhandle && r->nflight; i++)
    if (r->handle[i].channel >= 0) return report_unwaited(m, pp, &r->handle[i]);
  TRY(bytes_end(m, pp));
  w->ended = true;
  rates_cores(m, -1, w->now);
  return WEFT_OK;
}

/* ---- the walk ---- */

static void rank_begin(Machine *m, int pp) {
  RankState *r = &m->rank[pp];
  const Program *p = &m->c->prog[pp];
  *r = (RankState){.p = p, .end = p->nmain};
  r->handle = NEW_N(m->a, Pending, p->nhandle);
  for (int j = 0; j < p->nhandle; j++) r->handle[j].channel = -1;
  r->in_flight = NEW_N(m->a, int, p->ncomm);
  for (uint32_t i = 0; i < p->nbind; i++) r->gathers |= p->bind[i].copy != BIND_STORED;
  r->body = NEW_N(m->a, BodySum, p->nbody);
  for (int j = 0; j < p->nbody; j++) body_summary(m, pp, &p->body[j], &r->body[j]);
}

void machine_begin(Machine *m, const Compiled *c, const RunCosts *costs, bool in_order,
                   Arena *a, weft_error *e) {
  int npp = c->mesh.size[AXIS_PP];
  *m = (Machine){.c = c,
                 .a = a,
                 .e = e,
                 .costs = costs,
                 .in_order = in_order,
                 .npp = npp,
                 .horizon = INT64_MAX,
                 .crowd = 1};
  channels_begin(m);
  m->flow = NEW_N(a, Flow, flow_room(c));
  m->rank = NEW_N(a, RankState, npp);
  for (int i = 0; i < npp; i++) rank_begin(m, i);
  walk_begin(&m->walk, a, npp);
}

weft_status machine_run(Machine *m) {
  if (machine_shares(m)) return rates_run(m);
  for (int pp; (pp = walk_next(&m->walk)) >= 0;) TRY(machine_run_rank(m, pp));
  return WEFT_OK;
}

bool machine_spans(const Compiled *c) {
  for (int i = 0; i < c->prog->ncomm; i++)
    if (comm_spans_pp(&c->mesh, &c->prog->comm[i])) return true;
  return false;
}
