/* link_speed.h - bandwidth of collectives and transfers of a group on the plan's cluster.
 */
#ifndef WEFT_LINK_H
#define WEFT_LINK_H

#include "plan.h"

/* Rings: all_reduce moves 2 (n-1)/n of the bytes in 2 (n-1) steps, all_gather and
 * reduce_scatter half of both; between more ranks than a tree has levels small messages
 * take that. In an exchange each member sends its own bytes, and in a shift some member
 * sends to another machine, through the card of that member alone. */
typedef struct Link {
  double bandwidth, latency; /* of a ring through all members */
  int n;                     /* members */
  double own;                /* what one member has for itself */
  double next;               /* ... of that, to one other member */
  int here; /* members that an exchange reaches without this link, with itself */
} Link;

/* GPUs that NVLink joins. */
int64_t cluster_domain(const Cluster *k);
/* The slowest link that any group over `axes` needs: those that begin in the middle of a
 * machine may reach into the next one. */
typedef enum { LINK_NVLINK, LINK_HOST, LINK_NETWORK, LINK_KINDS } LinkKind;
LinkKind link_kind(const Mesh *m, const Cluster *k, AxisSet axes);
/* The same between ranks of two pipeline ranks. */
LinkKind link_kind_pair(const Mesh *m, const Cluster *k, int from, int to);
/* A group inside a domain of NVLink uses that, inside a machine else the host, any other
 * the network cards of its members there. */
Link link_of(const Mesh *m, const Cluster *k, AxisSet axes);
/* Of `n` ranks that are as near to each other as can be. */
Link link_near(const Cluster *k, int n);
/* Between two pipeline ranks: one card of each. */
Link link_pair(const Mesh *m, const Cluster *k, int from, int to);
/* The links, as bits by kind, whose figures the groups and pairs of a mesh need: rings
 * over the network have to come through their machines, too. */
unsigned links_used(const Mesh *m, const Cluster *k);

/* Steps of a collective that follow each other, one way. */
double link_steps(int n);
/* `both` ways: an all_reduce. */
double link_ring(const Link *l, double bytes, double count, bool both);
/* All bytes from each member to the next one. */
double link_shift(const Link *l, double bytes, double count);
/* A piece from each member to each other one: of a member's bytes those that take the
 * link. */
double link_exchanged(const Link *l, double bytes);
double link_exchange(const Link *l, double bytes, double count);

#endif
