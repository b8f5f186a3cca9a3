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

LinkKind link_kind(const Mesh *m, const Cluster *k, AxisSet axes) {
  if (!reaches_over(m, axes, domain_here(m, k))) return LINK_NVLINK;
  return reaches_over(m, axes, joined(m, k)) ? LINK_NETWORK : LINK_HOST;
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

/* The members of a group in a machine: how many there are, and how far apart. */
static int64_t members_here(const Mesh *m, const Cluster *k, AxisSet axes,
                            int64_t *extent) {
  int64_t here = 1;
  *extent = 1;
  for (Axis a = 0; a < AXIS_ALL_END; a++) {
    if (!(axes & AXIS_BIT(a))) continue;
    int64_t stride = mesh_stride(m, a),
            n = MIN((int64_t)m->size[a], MAX(joined(m, k) / stride, 1));
    here *= n;
    *extent += stride * (n - 1);
  }
  int64_t near = joined(m, k);
  bool parted = here > 1 && extent_of(m, axes) <= near && reaches_over(m, axes, near);
  return parted ? least_here(m, axes, near) : here;
}

Link link_of(const Mesh *m, const Cluster *k, AxisSet axes) {
  int64_t extent, here = members_here(m, k, axes, &extent);
  return of_kind(k, link_kind(m, k, axes), mesh_size(m, axes), here,
                 kind_within(k, domain_here(m, k), extent));
}

Link link_near(const Cluster *k, int n) {
  int64_t domain = cluster_domain(k), here = MAX(MAX(k->gpus, domain), 1);
  return of_kind(k, kind_within(k, domain, n), n, here, kind_within(k, domain, here));
}

Link link_pair(const Mesh *m, const Cluster *k, int from, int to) {
  return of_kind(k, link_kind_pair(m, k, from, to), 2, 1, LINK_NVLINK);
}

static unsigned used_by(const Mesh *m, const Cluster *k, AxisSet axes) {
  int64_t extent, here = members_here(m, k, axes, &extent);
  LinkKind kind = link_kind(m, k, axes);
  unsigned inside = kind == LINK_NETWORK && here > 1
                        ? 1u << kind_within(k, domain_here(m, k), extent)
                        : 0;
  return inside | 1u << kind;
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
