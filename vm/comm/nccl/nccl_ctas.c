/* nccl_ctas.c - how many CTAs of the GPU each communicator gets. */
#include "nccl_int.h"

/* A kernel of NCCL keeps its thread blocks while it waits for peers, so the blocks of all
 * communicators have to fit at once, beside the compute kernels that they wait for. */
enum { GROUP_CTAS = 16, PAIR_CTAS = 2 };

/* Half of the SMs for groups and a quarter for pairs. All ranks have the same groups, so
 * all choose the same numbers. */
weft_status nccl_share_ctas(const NcclEndpoint *p, const CommNeeds *needs, NcclCtas *out,
                            weft_error *e) {
  int all = 0, groups = 0, pairs = 2 * p->npeer, gpu = 0;
  CUDA(p, cudaGetDevice(&gpu));
  CUDA(p, cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, gpu));
  for (int i = 0; i < needs->ngroup; i++) groups += needs->group[i].n > 1;
  out->group = p->w->group_ctas;
  out->pair = p->w->pair_ctas;
  if (!out->group) out->group = MAX(1, MIN(GROUP_CTAS, all / 2 / MAX(groups, 1)));
  if (!out->pair) out->pair = MAX(1, MIN(PAIR_CTAS, all / 4 / MAX(pairs, 1)));
  int sum = groups * out->group + pairs * out->pair;
  if (sum <= all) return WEFT_OK;
  return err_set(
      e, WEFT_EUSAGE,
      "rank %d: %d communicators of %d CTAs and %d send and receive directions of %d "
      "need %d CTAs, more than the %d multiprocessors of the GPU, so they could "
      "deadlock: set nccl.group_ctas and nccl.pair_ctas lower",
      p->rank, groups, out->group, pairs, out->pair, sum, all);
}
