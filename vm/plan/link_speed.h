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

/* GPUs that NVLink joins. */
int64_t cluster_domain(const Cluster *k);
/* The link that joins `extent` ranks with consecutive numbers. */
typedef enum { LINK_NVLINK, LINK_HOST, LINK_NETWORK, LINK_KINDS } LinkKind;
LinkKind link_kind(const Cluster *k, int64_t extent);
/* From the first to the last rank of a group over `axes`. */
int64_t link_extent(const Mesh *m, AxisSet axes);
/* A group inside a domain of NVLink uses that, inside a machine else the host, any other
 * the network cards of its members there. */
Link link_of(const Mesh *m, const Cluster *k, AxisSet axes);
/* Of `n` ranks that are as near to each other as can be. */
Link link_near(const Cluster *k, int n);
/* Between two ranks so far apart: one card of each. */
Link link_pair(const Cluster *k, int64_t extent);
/* `both` ways: an all_reduce. */
double link_ring(const Link *l, double bytes, double count, bool both);
/* All bytes from each member to the next one. */
double link_shift(const Link *l, double bytes, double count);

#endif
