/* shared_links.c - the machine in the order of time, for transfers that share links:
 * each moves at a speed that changes whenever another one on its links begins or ends,
 * and kernels are slower beside some of them. Where ranks are threads that share cores,
 * all of it is slower while there are more of them than cores.
 *
 * Speeds are max-min fair: all grow alike until a link is full; those on it keep what
 * they have, the others go on. Collectives of closed bodies are not among them: the
 * machine runs such a body as one step only while nothing else of its rank is on their
 * links. */
#include "machine.h"

#include <math.h>

/* What a transfer may fill: both directions of the links of each rank, and the spine. */
enum { OUT, IN, WAYS };
static int port(int pp, int link, int way) {
  return (pp * LINK_KINDS + link) * WAYS + way;
}
static int spine(const Machine *m) { return m->npp * LINK_KINDS * WAYS; }

static const Start *head(const Channel *c) { return &c->ring[c->done & c->mask]; }

enum { DEMANDS_OF_A_RANK = LINK_KINDS * WAYS };

/* Writes down what the head of a channel takes; returns how many ports. */
static int demands(Machine *m, Channel *c) {
  const LinkLoad *l = &head(c)->load;
  int n = 0;
  if (!c->demand) c->demand = NEW_N(m->a, Demand, c->nmember * DEMANDS_OF_A_RANK + 1);
  for (int i = 0; i < c->nmember; i++)
    for (int k = 0; k < LINK_KINDS; k++)
      for (int way = OUT; way < WAYS; way++) {
        bool takes = c->comm >= 0 || (i == 0) == (way == OUT);
        if (l->link[k] > 0 && takes)
          c->demand[n++] = (Demand){port(c->member[i], k, way), l->link[k]};
      }
  if (l->spine > 0) c->demand[n++] = (Demand){spine(m), l->spine * c->nmember};
  return n;
}

/* ---- speeds ---- */

static const Demand *demand_of(const Machine *m, const Moving *v) {
  return m->channel.at[v->channel].demand;
}

/* Of the ports, only those that a transfer takes: most are idle. */
static void fill_begin(Machine *m) {
  int most = spine(m) + 1;
  if (!m->room) m->room = NEW_N(m->a, double, most);
  if (!m->want) m->want = NEW_N(m->a, double, most);
  if (!m->taken) m->taken = NEW_N(m->a, int, most);
  for (int i = 0; i < m->ntaken; i++) m->want[m->taken[i]] = 0;
  m->ntaken = 0;
  for (int i = 0; i < m->moving.n; i++) {
    Moving *v = &m->moving.at[i];
    const Demand *d = demand_of(m, v);
    for (int k = 0; k < v->ndemand; k++) {
      int at = d[k].port;
      if (m->want[at] == 0) {
        m->room[at] = at == spine(m) ? m->npp : 1;
        m->taken[m->ntaken++] = at;
      }
      m->want[at] += d[k].share;
    }
    v->fixed = false;
  }
}

/* How much further the transfers that grow can all grow. */
static double growth(const Machine *m) {
  double least = INFINITY;
  for (int i = 0; i < m->ntaken; i++) {
    int at = m->taken[i];
    if (m->want[at] > 1e-12) least = MIN(least, m->room[at] / m->want[at]);
  }
  return least;
}

static void fix(Machine *m, Moving *v, double speed) {
  const Demand *d = demand_of(m, v);
  for (int k = 0; k < v->ndemand; k++) m->want[d[k].port] -= d[k].share;
  v->fixed = true, v->speed = speed;
}

static bool on_full_port(const Machine *m, const Moving *v) {
  const Demand *d = demand_of(m, v);
  for (int k = 0; k < v->ndemand; k++)
    if (m->room[d[k].port] < 1e-9) return true;
  return false;
}

static void find_speeds(Machine *m) {
  double grown = 0;
  fill_begin(m);
  for (int left = m->moving.n; left > 0;) {
    double by = MIN(growth(m), 1 - grown);
    grown += by;
    for (int i = 0; i < m->ntaken; i++) m->room[m->taken[i]] -= by * m->want[m->taken[i]];
    for (int i = 0; i < m->moving.n; i++) {
      Moving *v = &m->moving.at[i];
      if (v->fixed || !(grown >= 1 - 1e-12 || on_full_port(m, v))) continue;
      fix(m, v, grown);
      left--;
    }
  }
}

/* ---- cores ---- */

static bool works(const Machine *m, int pp, int64_t now) {
  const WalkRank *w = &m->walk.rank[pp];
  return w->now > now && !w->ended && w->need == WALK_NOTHING;
}

/* How many times the cores would be needed; `starts`: this rank begins to work. */
static double crowd(const Machine *m, int starts, int64_t now) {
  double want = 0;
  if (!(m->costs->cores > 0)) return 1;
  for (int pp = 0; pp < m->npp; pp++) want += pp == starts || works(m, pp, now);
  for (int i = 0; i < m->moving.n; i++) {
    const Channel *c = &m->channel.at[m->moving.at[i].channel];
    want += c->comm >= 0 ? c->nmember : 1;
  }
  return MAX(want * m->costs->rank_cores / m->costs->cores, 1);
}

/* ---- what a change of speeds changes ---- */

static void move_to(Moving *v, int64_t now) {
  v->left = MAX(v->left - (double)(now - v->since) * v->speed, 0);
  v->since = now;
}

static void slow_kernels(Machine *m, int64_t now) {
  if (!m->beside) m->beside = NEW_N(m->a, double, m->npp);
  for (int pp = 0; pp < m->npp; pp++) m->beside[pp] = 0;
  for (int i = 0; i < m->moving.n; i++) {
    const Channel *c = &m->channel.at[m->moving.at[i].channel];
    double by = head(c)->load.beside;
    for (int k = 0; k < c->nmember; k++)
      m->beside[c->member[k]] = MAX(m->beside[c->member[k]], by);
  }
  for (int pp = 0; pp < m->npp; pp++) {
    RankState *r = &m->rank[pp];
    WalkRank *w = &m->walk.rank[pp];
    double beside = m->beside[pp];
    if (beside == r->beside) continue;
    double factor = (1 + r->kernels * beside) / (1 + r->kernels * r->beside);
    int64_t more =
        works(m, pp, now) ? (int64_t)((double)(w->now - now) * (factor - 1)) : 0;
    w->now += more, r->busy_ticks += more;
    r->beside = beside;
  }
}

/* Work that is under way takes longer, or less long, from now on. */
static void set_crowd(Machine *m, double to, int64_t now) {
  for (int pp = 0; pp < m->npp && to != m->crowd; pp++) {
    WalkRank *w = &m->walk.rank[pp];
    if (!works(m, pp, now)) continue;
    int64_t more = llround((double)(w->now - now) * (to / m->crowd - 1));
    w->now += more;
    m->rank[pp].shared_ticks += more;
  }
  m->crowd = to;
}

static void change_with(Machine *m, int starts, int64_t now) {
  for (int i = 0; i < m->moving.n; i++) move_to(&m->moving.at[i], now);
  find_speeds(m);
  set_crowd(m, crowd(m, starts, now), now);
  for (int i = 0; i < m->moving.n; i++) {
    Moving *v = &m->moving.at[i];
    v->speed /= m->crowd;
    v->end = now + (int64_t)ceil(v->left / v->speed - 1e-6);
  }
  slow_kernels(m, now);
}

static void change(Machine *m, int64_t now) { change_with(m, -1, now); }

void rates_cores(Machine *m, int pp, int64_t now) {
  if (machine_shares(m) && crowd(m, pp, now) != m->crowd) change_with(m, pp, now);
}

void rates_begin(Machine *m, int channel) {
  Channel *c = &m->channel.at[channel];
  int64_t now = head(c)->ready;
  if (c->end.n) now = MAX(now, c->end.at[c->end.n - 1]);
  for (int i = 0; i < c->nmember && m->in_order && c->comm >= 0; i++)
    now = MAX(now, m->rank[c->member[i]].free);
  c->moving = true;
  *VEC_PUSH(m->a, c->begin) = now;
  *VEC_PUSH(m->a, m->moving) = (Moving){.channel = channel,
                                        .ndemand = demands(m, c),
                                        .left = (double)head(c)->cost,
                                        .speed = 1,
                                        .since = now,
                                        .end = now + head(c)->cost};
  change(m, now);
  for (int i = 0; i < m->moving.n; i++) m->horizon = MIN(m->horizon, m->moving.at[i].end);
}

/* ---- the order of time ---- */

static int first_to_end(const Machine *m) {
  int best = -1;
  for (int i = 0; i < m->moving.n; i++)
    if (best < 0 || m->moving.at[i].end < m->moving.at[best].end) best = i;
  return best;
}

static void finish(Machine *m, int i) {
  Moving v = m->moving.at[i];
  Channel *c = &m->channel.at[v.channel];
  const LinkLoad *l = &head(c)->load;
  for (int k = 0; k < c->nmember; k++) {
    RankState *r = &m->rank[c->member[k]];
    WalkRank *w = &m->walk.rank[c->member[k]];
    for (int j = 0; j < LINK_KINDS; j++) r->on_link[j] -= l->link[j] > 0;
    if (w->need == v.channel) w->woken = v.end;
    if (m->in_order && c->comm >= 0) r->free = v.end;
  }
  m->moving.at[i] = m->moving.at[--m->moving.n];
  c->moving = false;
  *VEC_PUSH(m->a, c->end) = v.end;
  machine_done(m, v.channel);
  change(m, v.end);
  machine_advance(m, v.channel);
}

/* The next rank that has to run before its clock passes that of the others. */
static int64_t horizon(const Machine *m) {
  int64_t least = INT64_MAX;
  const Walk *w = &m->walk;
  for (int i = 0; i < w->nready; i++) {
    const WalkRank *r = &w->rank[w->ready[(w->first + i) % w->n]];
    least = MIN(least, MAX(r->now, r->woken));
  }
  return least;
}

weft_status rates_run(Machine *m) {
  for (;;) {
    int first = first_to_end(m);
    int64_t end = first < 0 ? INT64_MAX : m->moving.at[first].end;
    int pp = walk_earliest(&m->walk, end == INT64_MAX ? end : end - 1);
    if (pp >= 0) {
      m->horizon = MIN(end, horizon(m));
      TRY(machine_run_rank(m, pp));
    } else if (first >= 0) {
      finish(m, first);
    } else {
      return WEFT_OK;
    }
  }
}
