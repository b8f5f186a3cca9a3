/* regroup.c - rows of experts between the ranks of ep: how many of them go to, or come
 * from, each rank p for each expert e (n[p][e]), and their order. */
#include "kernels/cpu/kernel.h"

void cpu_expert_sizes(Device *dev, const KernelArgs *a) {
  const int32_t *ends = a->in[0].p;
  int32_t *n = a->out[0].p;
  for (int64_t i = 0; i < count_of(&a->out[0]); i++) n[i] = ends[i + 1] - ends[i];
}

void cpu_expert_ends(Device *dev, const KernelArgs *a) {
  int64_t ranks = a->in[0].dim[0], experts = a->in[0].dim[1];
  const int32_t *n = a->in[0].p;
  int32_t *ends = a->out[0].p;
  ends[0] = 0;
  for (int64_t e = 0; e < experts; e++) {
    ends[e + 1] = ends[e];
    for (int64_t p = 0; p < ranks; p++) ends[e + 1] += n[p * experts + e];
  }
}

/* Where the rows of a block (rank, expert) begin: in the layout with a place per rank,
 * and in the compact one. */
static void block_at(const KernelArgs *a, int64_t block, int64_t *place, int64_t *row) {
  const KTensor *x = a->attr->inverse ? &a->out[0] : &a->in[0];
  const int32_t *n = a->in[1].p;
  int64_t experts = a->in[1].dim[1], p = block / experts, e = block % experts;
  *place = p * x->dim[1], *row = 0;
  for (int64_t i = 0; i < count_of(&a->in[1]); i++) {
    int64_t q = i / experts, f = i % experts;
    bool before = a->attr->kind ? f < e || (f == e && q < p) : i < block;
    if (before) *row += n[i];
    if (q == p && f < e) *place += n[i];
  }
}

static void regroup_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  size_t bytes = (size_t)last_dim(&a->out[0]) * (size_t)dtype_size(a->out[0].dtype);
  for (int64_t i = lo; i < hi; i++) {
    int64_t place, row;
    block_at(a, i, &place, &row);
    int64_t from = a->attr->inverse ? row : place, to = a->attr->inverse ? place : row;
    memcpy((char *)a->out[0].p + (size_t)to * bytes,
           (const char *)a->in[0].p + (size_t)from * bytes,
           (size_t)((const int32_t *)a->in[1].p)[i] * bytes);
  }
}

void cpu_regroup(Device *dev, const KernelArgs *a) {
  const KTensor *y = &a->out[0];
  memset(y->p, 0, (size_t)count_of(y) * (size_t)dtype_size(y->dtype));
  each_part(dev, a, count_of(&a->in[1]), 1, regroup_part);
}
