/* link_speed.c - bandwidth of groups from the data sheets of the plan's cluster; nothing
 * is fitted. See link_speed.h. */
#include "link_speed.h"

#include <math.h>

int64_t cluster_domain(const Cluster *k) { return k->domain ? k->domain : k->gpus; }

/* The ranks of a job in a domain of NVLink: as many whole machines as share it out
 * evenly. Of a rack of 72 a job of 256 takes 64, which schedulers call a segment. */
static int64_t domain_here(const Mesh *m, const Cluster *k) {
  int64_t all = cluster_domain(k), machine = MAX(k->gpus, 1);
  if (m->world <= all) return all;
  for (int64_t n = all / machine * machine; n >= machine; n -= machine)
    if (m->world % n == 0) return n;
  return all;
}

/* Ranks that need no network to reach each other. */
static int64_t joined(const Mesh *m, const Cluster *k) {
  return MAX(k->gpus, domain_here(m, k));
}

/* ---- where groups lie ---- */

/* The link that joins `extent` ranks with consecutive numbers that begin a machine. */
static LinkKind kind_within(const Cluster *k, int64_t domain, int64_t extent) {
  if (extent <= domain) return LINK_NVLINK;
  return extent <= k->gpus ? LINK_HOST : LINK_NETWORK;
}

/* How the groups over some axes lie in the machines. */
typedef struct Spread {
  LinkKind kind;   /* the slowest link that any of them needs, */
  LinkKind inside; /* and that between its members of one machine */
  int64_t here;    /* members of a machine */
} Spread;

/* From the first to the last rank of a group. */
static int64_t extent_of(const Mesh *m, AxisSet axes) {
  int64_t extent = 1;
  for (Axis a = 0; a < AXIS_ALL_END; a++)
    if (axes & AXIS_BIT(a)) extent += (int64_t)mesh_stride(m, a) * (m->size[a] - 1);
  return extent;
}

static bool begins_group(const Mesh *m, AxisSet axes, int rank) {
  for (Axis a = 0; a < AXIS_ALL_END; a++)
    if (axes & AXIS_BIT(a) && mesh_coord(m, rank, a) != 0) return false;
  return true;
}

/* Whether some group has ranks of two blocks of so many. Groups lie side by side in
 * blocks of their outermost axis; where these fill the others evenly none does. */
static bool reaches_over(const Mesh *m, AxisSet axes, int64_t ranks) {
  int64_t extent = extent_of(m, axes), block = 1;
  if (extent > ranks) return true;
  for (Axis a = 0; a < AXIS_ALL_END; a++)
    if (axes & AXIS_BIT(a)) block = MAX(block, (int64_t)mesh_stride(m, a) * m->size[a]);
  if (ranks % block == 0) return false;
  for (int r = 0; r < m->world; r++)
    if (r / ranks != (r + extent - 1) / ranks && begins_group(m, axes, r)) return true;
  return false;
}

static bool pair_reaches_over(const Mesh *m, int from, int to, int64_t ranks) {
  int first = MIN(from, to), stride = mesh_stride(m, AXIS_PP);
  int64_t far = (int64_t)(MAX(from, to) - first) * stride;
  if (far >= ranks) return true;
  if (ranks % ((int64_t)stride * m->size[AXIS_PP]) == 0) return false;
  for (int r = 0; r < m->world; r++)
    if (r / ranks != (r + far) / ranks && mesh_coord(m, r, AXIS_PP) == first) return true;
  return false;
}

/* Whether the rank is in the group that begins with `first`. */
static bool in_group(const Mesh *m, AxisSet axes, int first, int rank) {
  AxisSet rest = axes_rest(axes);
  for (Axis a = 0; a < AXIS_ALL_END; a++)
    if (rest & AXIS_BIT(a) && mesh_coord(m, rank, a) != mesh_coord(m, first, a))
      return false;
  return true;
}

/* Of groups that reach over two machines although one has room for them: the least
 * members on either side. */
static int64_t least_here(const Mesh *m, AxisSet axes, int64_t ranks) {
  int64_t extent = extent_of(m, axes);
  int n = mesh_size(m, axes), least = n;
  for (int r = 0; r < m->world; r++) {
    int64_t end = (r / ranks + 1) * ranks;
    int before = 0;
    if (r + extent <= end || !begins_group(m, axes, r)) continue;
    for (int q = r; q < end; q++) before += in_group(m, axes, r, q);
    least = MIN(least, MIN(before, n - before));
  }
  return least;
}

/* Of groups whose members are equally far apart on each axis. */
static Spread spread_evenly(const Mesh *m, const Cluster *k, AxisSet axes) {
  int64_t here = 1, extent = 1, near = joined(m, k), domain = domain_here(m, k);
  for (Axis a = 0; a < AXIS_ALL_END; a++) {
    if (!(axes & AXIS_BIT(a))) continue;
    int64_t stride = mesh_stride(m, a),
            n = MIN((int64_t)m->size[a], MAX(near / stride, 1));
    here *= n;
    extent += stride * (n - 1);
  }
  bool network = reaches_over(m, axes, near);
  if (here > 1 && extent_of(m, axes) <= near && network) here = least_here(m, axes, near);
  LinkKind kind = !reaches_over(m, axes, domain) ? LINK_NVLINK
                  : network                      ? LINK_NETWORK
                                                 : LINK_HOST;
  return (Spread){kind, kind_within(k, domain, extent), here};
}

/* Neighbours on an axis of the expert mesh, which is flat inside a pp coordinate, are
 * not equally far apart where the ranks of a pp coordinate are not consecutive. */
static bool scattered(const Mesh *m, AxisSet axes) {
  return axes_expert(axes) && m->size[AXIS_PP] > 1 && m->order[0] != AXIS_PP;
}

/* The rank at a place inside a pp coordinate: blocks of pp's stride, one of each pp
 * coordinate after the other. */
static int64_t rank_in_row(const Mesh *m, int64_t pp, int64_t place) {
  int64_t block = m->stride[AXIS_PP];
  return (place / block * m->size[AXIS_PP] + pp) * block + place % block;
}

static int64_t place_stride(const Mesh *m, Axis a) {
  int64_t stride = 1;
  for (Axis b = a + 1; b < AXIS_END; b++) stride *= m->size[b];
  return stride;
}

static bool begins_in_row(const Mesh *m, AxisSet axes, int64_t place) {
  for (Axis a = AXIS_N; a < AXIS_END; a++)
    if (axes & AXIS_BIT(a) && place / place_stride(m, a) % m->size[a] != 0) return false;
  return true;
}

/* Of the group that begins at `first`, inside a pp coordinate: the place of member i. */
static int64_t place_of(const Mesh *m, AxisSet axes, int64_t first, int64_t i) {
  for (Axis a = AXIS_END - 1; a >= AXIS_N; a--)
    if (axes & AXIS_BIT(a)) first += i % m->size[a] * place_stride(m, a), i /= m->size[a];
  return first;
}

/* Looks at the ranks of one group, or of those of it at one pp coordinate, of which
 * `start` is the first; they ascend. */
static void count_members(const Mesh *m, const Cluster *k, AxisSet axes, int64_t pp,
                          int64_t first, int64_t start, Spread *s) {
  int64_t domain = domain_here(m, k), near = joined(m, k), here = 0;
  int64_t n = mesh_size(m, axes & ~AXIS_BIT(AXIS_PP));
  for (int64_t i = 0, last = -1; i < n; i++) {
    int64_t rank = rank_in_row(m, pp, place_of(m, axes, first, i));
    bool another = i > 0 && rank / near != last / near;
    if (another) s->here = MIN(s->here, here);
    if (i > 0 && !another && rank / domain != last / domain) s->inside = LINK_HOST;
    LinkKind kind = rank / domain == start / domain ? LINK_NVLINK
                    : rank / near == start / near   ? LINK_HOST
                                                    : LINK_NETWORK;
    s->kind = MAX(s->kind, kind);
    here = another ? 1 : here + 1;
    last = rank;
  }
  s->here = MIN(s->here, here);
}

/* Of groups that are not: `here` is the least that any has in a machine. */
static Spread spread_counted(const Mesh *m, const Cluster *k, AxisSet axes) {
  Spread s = {LINK_NVLINK, LINK_NVLINK, mesh_size(m, axes)};
  int64_t pps = m->size[AXIS_PP], row = m->world / pps;
  for (int64_t place = 0; place < row; place++)
    for (int64_t pp = 0; pp < pps && begins_in_row(m, axes, place); pp++) {
      int64_t from = axes & AXIS_BIT(AXIS_PP) ? 0 : pp;
      count_members(m, k, axes, pp, place, rank_in_row(m, from, place), &s);
    }
  return s;
}

static Spread spread_of(const Mesh *m, const Cluster *k, AxisSet axes) {
  return scattered(m, axes) ? spread_counted(m, k, axes) : spread_evenly(m, k, axes);
}

LinkKind link_kind(const Mesh *m, const Cluster *k, AxisSet axes) {
  return spread_of(m, k, axes).kind;
}

LinkKind link_kind_pair(const Mesh *m, const Cluster *k, int from, int to) {
  if (!pair_reaches_over(m, from, to, domain_here(m, k))) return LINK_NVLINK;
  return pair_reaches_over(m, from, to, joined(m, k)) ? LINK_NETWORK : LINK_HOST;
}

/* ---- links ---- */

/* NVLink of a member of a group: where each pair of GPUs has links of its own, so many as
 * there are others. */
static double nvlink(const Cluster *k, int64_t n) {
  double all = k->nvlink_bandwidth, peers = k->peer_bandwidth * (double)MAX(n - 1, 1);
  return k->peer_bandwidth > 0 ? MIN(all, peers) : all;
}

/* Over cards of the network: `here` members of each machine, or of each domain of NVLink,
 * use one each, and pass `inside` on the way from one to the next. */
static Link network(const Cluster *k, int n, int64_t here, LinkKind inside) {
  double card = k->network_bandwidth;
  if (k->spine > 0) card = MIN(card, k->spine);
  double near = inside == LINK_HOST ? k->host_bandwidth : nvlink(k, here);
  double all = here > 1 ? MIN(near, card * (double)here) : card;
  return (Link){all, k->network_latency, n, card, card, (int)MIN(here, n)};
}

/* Through the host of a machine where NVLink does not join its GPUs. */
static Link of_kind(const Cluster *k, LinkKind kind, int n, int64_t here,
                    LinkKind inside) {
  if (kind == LINK_NETWORK) return network(k, n, here, inside);
  if (kind == LINK_HOST)
    return (Link){k->host_bandwidth, k->nvlink_latency, n,
                  k->host_bandwidth, k->host_bandwidth, 1};
  double all = nvlink(k, n);
  return (Link){all, k->nvlink_latency, n, all, nvlink(k, 2), 1};
}

Link link_of(const Mesh *m, const Cluster *k, AxisSet axes) {
  Spread s = spread_of(m, k, axes);
  return of_kind(k, s.kind, mesh_size(m, axes), s.here, s.inside);
}

Link link_near(const Cluster *k, int n) {
  int64_t domain = cluster_domain(k), here = MAX(MAX(k->gpus, domain), 1);
  return of_kind(k, kind_within(k, domain, n), n, here, kind_within(k, domain, here));
}

Link link_pair(const Mesh *m, const Cluster *k, int from, int to) {
  return of_kind(k, link_kind_pair(m, k, from, to), 2, 1, LINK_NVLINK);
}

static unsigned used_by(const Mesh *m, const Cluster *k, AxisSet axes) {
  Spread s = spread_of(m, k, axes);
  unsigned inside = s.kind == LINK_NETWORK && s.here > 1 ? 1u << s.inside : 0;
  return inside | 1u << s.kind;
}

unsigned links_used(const Mesh *m, const Cluster *k) {
  unsigned used = 0;
  AxisSet all = 0;
  for (Axis a = 0; a < AXIS_ALL_END; a++)
    if (m->size[a] > 1) used |= used_by(m, k, AXIS_BIT(a));
  for (Axis a = 0; a < AXIS_N; a++) all |= m->size[a] > 1 ? AXIS_BIT(a) : 0;
  if (all) used |= used_by(m, k, all);
  for (int pp = 0; pp + 1 < m->size[AXIS_PP]; pp++)
    used |= 1u << link_kind_pair(m, k, pp, pp + 1);
  return used;
}

/* ---- times ---- */

double link_steps(int n) { return MIN(n - 1, 2 * ceil(log2(n))); }

double link_ring(const Link *l, double bytes, double count, bool both) {
  if (l->n < 2 || count == 0) return 0;
  double moved = bytes * (l->n - 1) / l->n / l->bandwidth;
  return (both ? 2.0 : 1.0) * (moved + count * link_steps(l->n) * l->latency);
}

double link_shift(const Link *l, double bytes, double count) {
  return l->n < 2 ? 0 : bytes / l->next + count * l->latency;
}

double link_exchanged(const Link *l, double bytes) {
  return bytes * (l->n - MIN(l->here, l->n)) / l->n;
}

double link_exchange(const Link *l, double bytes, double count) {
  if (l->n < 2 || count == 0) return 0;
  return link_exchanged(l, bytes) / l->own + count * link_steps(l->n) * l->latency;
}
