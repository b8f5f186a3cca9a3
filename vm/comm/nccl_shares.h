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

/* Of each of `groups` communicators of collectives; rounded up as exchanges are, all of
 * them leave the pairs their quarter. */
static inline int nccl_group_ctas(int64_t sms, int groups) {
  int n = (int)MAX(1, MIN(NCCL_GROUP_CTAS, sms / 2 / MAX(groups, 1)));
  while (n > 1 && (int64_t)groups * nccl_exchange_ctas(n) > sms - sms / 4) n--;
  return n;
}

/* Of each of `pairs` communicators of two ranks, one for each direction. */
static inline int nccl_pair_ctas(int64_t sms, int pairs) {
  return (int)MAX(1, MIN(NCCL_PAIR_CTAS, sms / 4 / MAX(pairs, 1)));
}

#endif
