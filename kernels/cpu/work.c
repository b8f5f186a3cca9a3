/* work.c - how much scratch the CPU kernels need. Compiled once and for any CPU: the bytes
 * are those of the widest vectors, so that a plan has the same size everywhere. */
#include "attention.h"

/* dq of all heads as f32, with rows of whole vectors, and one sum for each query; see
 * attention_dx.c. */
static uint64_t attention_dx(const KernelArgs *a) {
  Heads s = heads_of(a, a->nin);
  uint64_t rows = (uint64_t)(s.b * s.h * s.tiles * TILE);
  uint64_t wide = (uint64_t)(s.d + LANES_MAX - 1) / LANES_MAX * LANES_MAX;
  return rows * (wide + 1) * sizeof(float);
}

uint64_t cpu_work(int op, const KernelArgs *a) {
  return op == OP_attention_dx ? attention_dx(a) : 0;
}
