/* nccl_shares.h - how many CTAs of a GPU each communicator of NCCL gets, if the plan does
 * not say: for the backend, which creates them, and for what memory their buffers will
 * take. */
#ifndef WEFT_NCCL_SHARES_H
#define WEFT_NCCL_SHARES_H

#include "vm/base/base.h"

/* A kernel of NCCL keeps its thread blocks while it waits for peers, so the blocks of all
 * communicators have to fit at once, beside the compute kernels that they wait for: half
 * of the SMs for groups and a quarter for pairs. All ranks have the same groups, so all
 * choose the same numbers. */
enum { NCCL_GROUP_CTAS = 16, NCCL_PAIR_CTAS = 2 };

/* What sends and receives take of a communicator that has `ctas`: NCCL spreads them over
 * a power of two of channels, and rounds up to it, whatever the most is that it was given
 * (ncclTopoComputeP2pChannels). */
static inline int nccl_exchange_ctas(int ctas) {
  int n = 1;
  while (n < ctas) n *= 2;
  return n;
}

/* The largest power of two up to `most` in an equal share, so that exchanges fit, too. */
static inline int nccl_share(int64_t sms, int n, int most) {
  int ctas = most;
  while (ctas > 1 && (int64_t)ctas * n > sms) ctas /= 2;
  return ctas;
}

/* Of each of `groups` communicators of collectives. */
static inline int nccl_group_ctas(int64_t sms, int groups) {
  return nccl_share(sms / 2, groups, NCCL_GROUP_CTAS);
}

/* Of each of `pairs` communicators of two ranks, one for each direction. */
static inline int nccl_pair_ctas(int64_t sms, int pairs) {
  return nccl_share(sms / 4, pairs, NCCL_PAIR_CTAS);
}

#endif
