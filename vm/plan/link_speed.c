/* link_speed.c - bandwidth of groups from the data sheets of the plan's cluster; nothing
 * is fitted. See link_speed.h. */
#include "link_speed.h"

int64_t cluster_domain(const Cluster *k) { return k->domain ? k->domain : k->gpus; }

/* Over cards of the network: `here` members of each machine, or of each domain of NVLink,
 * use one each. */
static Link network(const Cluster *k, int n, double here) {
  double card = k->network_bandwidth;
  if (k->spine > 0) card = MIN(card, k->spine);
  double both = here > 1 ? MIN(k->nvlink_bandwidth, card * here) : card;
  return (Link){both, k->network_latency, n};
}

static Link inside(const Cluster *k, int n) {
  return (Link){k->nvlink_bandwidth, k->nvlink_latency, n};
}

/* Through the host of a machine whose GPUs NVLink does not join. */
static Link over_host(const Cluster *k, int n) {
  return (Link){k->host_bandwidth, k->nvlink_latency, n};
}

LinkKind link_kind(const Cluster *k, int64_t extent) {
  if (extent <= cluster_domain(k)) return LINK_NVLINK;
  return extent <= k->gpus ? LINK_HOST : LINK_NETWORK;
}

static Link link_over(const Cluster *k, int n, int64_t extent, double here) {
  switch (link_kind(k, extent)) {
  case LINK_NVLINK: return inside(k, n);
  case LINK_HOST: return over_host(k, n);
  default: return network(k, n, here);
  }
}

int64_t link_extent(const Mesh *m, AxisSet axes) {
  int64_t extent = 1;
  for (Axis a = 0; a < AXIS_ALL_END; a++)
    if (axes & AXIS_BIT(a)) extent += (int64_t)mesh_stride(m, a) * (m->size[a] - 1);
  return extent;
}

Link link_of(const Mesh *m, const Cluster *k, AxisSet axes) {
  int64_t here = 1, near = MAX(k->gpus, cluster_domain(k));
  for (Axis a = 0; a < AXIS_ALL_END; a++)
    if (axes & AXIS_BIT(a))
      here *= MIN((int64_t)m->size[a], MAX(near / mesh_stride(m, a), 1));
  return link_over(k, mesh_size(m, axes), link_extent(m, axes), (double)here);
}

Link link_near(const Cluster *k, int n) {
  return link_over(k, n, n, (double)MAX(MAX(k->gpus, cluster_domain(k)), 1));
}

Link link_pair(const Cluster *k, int64_t extent) { return link_over(k, 2, extent, 1); }

double link_ring(const Link *l, double bytes, double count, bool both) {
  if (l->n < 2 || count == 0) return 0;
  double steps = (both ? 2.0 : 1.0) * (l->n - 1);
  return steps * (bytes / l->n / l->bandwidth + count * l->latency);
}

double link_shift(const Link *l, double bytes, double count) {
  return l->n < 2 ? 0 : bytes / l->bandwidth + count * l->latency;
}
