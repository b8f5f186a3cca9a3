/* nccl_ctas.c - how many CTAs of the GPU each communicator gets, and whether its queues
 * have connections to the GPU of their own. */
#include "nccl_int.h"

#include <stdlib.h>

#include "vm/comm/nccl_shares.h"

static int group_count(const CommNeeds *needs) {
  int n = 0;
  for (int i = 0; i < needs->ngroup; i++) n += needs->group[i].n > 1;
  return n;
}

static int pair_count(const NcclEndpoint *p) {
  int n = 0;
  for (int i = 0; i < p->npeer; i++) n += p->peer[i] != p->rank;
  return 2 * n;
}

bool nccl_copies_alone(const NcclEndpoint *p, const CommNeeds *needs) {
  return group_count(needs) < needs->ngroup || pair_count(p) < 2 * p->npeer;
}

/* Queues that share a connection run one after the other: a kernel that waits for a peer
 * keeps back what is behind it, and that the peer may wait for (CUDA C++ Programming
 * Guide, CUDA_DEVICE_MAX_CONNECTIONS). A rank has a queue for computation, one for each
 * group and direction, and one for copies to itself. */
weft_status nccl_check_queues(const NcclEndpoint *p, const CommNeeds *needs,
                              bool *crowded, weft_error *e) {
  enum { UNSET = 8, MOST = 32, OF_NCCL = 2 /* of each communicator, see docs/gpu.md */ };
  const char *text = getenv(CUDA_CONNECTIONS);
  int has = text ? MIN(atoi(text), MOST) : UNSET;
  int comms = group_count(needs) + pair_count(p);
  int queues = 1 + nccl_copies_alone(p, needs) + comms;
  *crowded = queues + OF_NCCL * comms > has;
  if (queues <= has) return WEFT_OK;
  return err_set(
      e, WEFT_EUSAGE,
      "rank %d: its step has %d queues on the GPU, of computation, %d groups and "
      "%d directions%s, but " CUDA_CONNECTIONS " is %d%s: queues that share a "
      "connection may wait for each other for ever; %s",
      p->rank, queues, group_count(needs), pair_count(p),
      nccl_copies_alone(p, needs) ? ", and of copies to itself" : "", has,
      text ? "" : " if it is not set",
      queues <= MOST ? "leave it unset, weft sets 32"
                     : "32 is the most: choose a mesh with fewer groups");
}

/* Whether pieces are exchanged on it, by sends and receives. */
static bool exchanges(const CommGroup *g) {
  return g->uses & (1u << COLL_ALL_TO_ALL | 1u << COLL_ALL_TO_ALL_V | 1u << COLL_SHIFT);
}

/* Thread blocks that may wait for peers at once, with `c` of each communicator. */
static int all_ctas(const NcclEndpoint *p, const CommNeeds *needs, NcclCtas c) {
  int sum = pair_count(p) * nccl_exchange_ctas(c.pair);
  for (int i = 0; i < needs->ngroup; i++)
    if (needs->group[i].n > 1)
      sum += exchanges(&needs->group[i]) ? nccl_exchange_ctas(c.group) : c.group;
  return sum;
}

weft_status nccl_share_ctas(const NcclEndpoint *p, const CommNeeds *needs, NcclCtas *out,
                            weft_error *e) {
  int all = 0, groups = group_count(needs), pairs = pair_count(p), gpu = 0;
  CUDA(p, cudaGetDevice(&gpu));
  CUDA(p, cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, gpu));
  out->group = p->w->group_ctas;
  out->pair = p->w->pair_ctas;
  if (!out->group) out->group = nccl_group_ctas(all, groups);
  if (!out->pair) out->pair = nccl_pair_ctas(all, pairs);
  int sum = all_ctas(p, needs, *out);
  if (sum <= all) return WEFT_OK;
  return err_set(
      e, WEFT_EUSAGE,
      "rank %d: %d communicators of %d CTAs and %d send and receive directions of %d "
      "need %d CTAs (sends and receives take a power of two), more than the %d "
      "multiprocessors of the GPU, so they could deadlock: set nccl.group_ctas and "
      "nccl.pair_ctas lower",
      p->rank, groups, out->group, pairs, out->pair, sum, all);
}
