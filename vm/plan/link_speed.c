/* link_speed.c - bandwidth of groups from the data sheets of the plan's cluster; nothing
 * is fitted. See link_speed.h. */
#include "link_speed.h"

static Link network(const Cluster *k, int n, double here) {
  return (Link){MIN(k->nvlink_bandwidth, k->network_bandwidth * here), k->network_latency,
                n};
}

static Link inside(const Cluster *k, int n) {
  return (Link){k->nvlink_bandwidth, k->nvlink_latency, n};
}

Link link_of(const Mesh *m, const Cluster *k, AxisSet axes) {
  int64_t extent = 1, here = 1;
  int n = mesh_size(m, axes);
  for (Axis a = 0; a < AXIS_ALL_END; a++) {
    if (!(axes & AXIS_BIT(a))) continue;
    int stride = mesh_stride(m, a);
    extent += (int64_t)stride * (m->size[a] - 1);
    here *= MIN((int64_t)m->size[a], MAX(k->gpus / stride, 1));
  }
  return extent <= k->gpus ? inside(k, n) : network(k, n, (double)here);
}

Link link_near(const Cluster *k, int n) {
  return n <= k->gpus ? inside(k, n) : network(k, n, (double)MAX(k->gpus, 1));
}

double link_ring(const Link *l, double bytes, double count, bool both) {
  if (l->n < 2 || count == 0) return 0;
  double steps = (both ? 2.0 : 1.0) * (l->n - 1);
  return steps * (bytes / l->n / l->bandwidth + count * l->latency);
}

double link_shift(const Link *l, double bytes, double count) {
  return l->n < 2 ? 0 : bytes / l->bandwidth + count * l->latency;
}
