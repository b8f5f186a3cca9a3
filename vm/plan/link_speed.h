/* link_speed.h - bandwidth of collectives and transfers of a group on the plan's cluster.
 */
#ifndef WEFT_LINK_H
#define WEFT_LINK_H

#include "plan.h"

/* Rings: all_reduce moves 2 (n-1)/n of the bytes in 2 (n-1) steps, all_gather and
 * reduce_scatter half of both. */
typedef struct Link {
  double bandwidth, latency;
  int n; /* members */
} Link;

/* A group inside a machine uses NVLink, any other the network cards of its members there.
 */
Link link_of(const Mesh *m, const Cluster *k, AxisSet axes);
/* Of `n` ranks that are as near to each other as can be. */
Link link_near(const Cluster *k, int n);
/* `both` ways: an all_reduce. */
double link_ring(const Link *l, double bytes, double count, bool both);
/* All bytes from each member to the next one. */
double link_shift(const Link *l, double bytes, double count);

#endif
