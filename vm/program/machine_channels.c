/* machine_channels.c - channels of the abstract machine (machine.h): what the members of
 * each start is matched in order, and runs once all of them have started it. */
#include "machine.h"

static int channel_new(Machine *m, int comm, int nmember, const int *member) {
  *VEC_PUSH(m->a, m->channel) = (Channel){.comm = comm,
                                          .nmember = nmember,
                                          .member = member,
                                          .started = NEW_N(m->a, uint32_t, nmember)};
  return m->channel.n - 1;
}

/* A communicator inside a pp rank is a channel of its own on each of them. */
void channels_begin(Machine *m) {
  const Program *p = m->c->prog;
  int *all = NEW_N(m->a, int, m->npp);
  m->coll_channel = NEW_N(m->a, int32_t, m->npp * p->ncomm);
  for (int i = 0; i < m->npp; i++) all[i] = i;
  for (int j = 0; j < p->ncomm; j++) {
    const CommDesc *d = &p->comm[j];
    bool spans = comm_spans_pp(&m->c->mesh, d);
    int shared = !spans   ? -1
                 : d->npp ? channel_new(m, j, d->npp, d->pp)
                          : channel_new(m, j, m->npp, all);
    for (int i = 0; i < m->npp; i++)
      m->coll_channel[i * p->ncomm + j] = spans ? shared : channel_new(m, j, 1, &all[i]);
  }
  size_t pairs = (size_t)m->npp * (size_t)m->npp;
  m->pair_channel = NEW_N(m->a, int32_t, pairs);
  memset(m->pair_channel, -1, sizeof(int32_t) * pairs);
}

int channel_of(Machine *m, int pp, const Instr *in) {
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

weft_status channel_enter(Machine *m, Channel *c, uint32_t k, const Start *s) {
  if (k < c->top) {
    Start *first = &c->ring[k & c->mask];
    bool same = first->count == s->count && first->dtype == s->dtype &&
                first->coll == s->coll && first->red == s->red && first->by == s->by;
    first->ready = MAX(first->ready, s->ready);
    first->cost = MAX(first->cost, s->cost);
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

/* ---- transfers ---- */

static bool may_run(const Machine *m, int ch) {
  const Channel *c = &m->channel.at[ch];
  if (c->moving) return false;
  for (int i = 0; i < c->nmember; i++) {
    if (c->started[i] <= c->done) return false;
    if (!m->in_order || c->comm < 0) continue;
    const RankState *r = &m->rank[c->member[i]];
    if (r->stream.at[r->head] != ch) return false;
  }
  return true;
}

/* It begins when all members have started it and what is before it in its queues has
 * ended. */
static void time_transfer(Machine *m, Channel *c) {
  const Start *s = &c->ring[c->done & c->mask];
  bool stream = m->in_order && c->comm >= 0;
  int64_t end = c->end.n ? MAX(s->ready, c->end.at[c->end.n - 1]) : s->ready;
  for (int i = 0; i < c->nmember && stream; i++)
    end = MAX(end, m->rank[c->member[i]].free);
  *VEC_PUSH(m->a, c->begin) = end;
  end += s->cost;
  for (int i = 0; i < c->nmember && stream; i++) m->rank[c->member[i]].free = end;
  *VEC_PUSH(m->a, c->end) = end;
}

void machine_done(Machine *m, int ch) {
  Channel *c = &m->channel.at[ch];
  c->done++;
  for (int i = 0; i < c->nmember; i++) {
    RankState *r = &m->rank[c->member[i]];
    if (m->in_order && c->comm >= 0 && ++r->head < r->stream.n)
      *VEC_PUSH(m->a, m->advance) = r->stream.at[r->head];
    if (c->done > r->block_seq) walk_wake(&m->walk, c->member[i], ch);
  }
  if (c->comm >= 0)
    m->proof.collectives++;
  else
    m->proof.transfers++;
}

static void run_transfer(Machine *m, int ch) {
  if (machine_shares(m)) {
    rates_begin(m, ch);
    return;
  }
  if (m->costs) time_transfer(m, &m->channel.at[ch]);
  machine_done(m, ch);
}

void machine_advance(Machine *m, int ch) {
  *VEC_PUSH(m->a, m->advance) = ch;
  while (m->advance.n) {
    int next = m->advance.at[--m->advance.n];
    while (may_run(m, next)) run_transfer(m, next);
  }
}
