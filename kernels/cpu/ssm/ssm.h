/* ssm.h - sizes of a scan over a state space, and the scratch of its kernels. */
#ifndef WEFT_CPU_SSM_H
#define WEFT_CPU_SSM_H

#include "kernels/cpu/kernel.h"

/* H heads of P elements in G groups, states (P,N); chunks of tokens. */
typedef struct Scan {
  int64_t b, t, h, p, g, n, chunks;
} Scan;

INLINE Scan scan_of(const KernelArgs *a) {
  Scan s = {.b = a->in[0].dim[0], .t = a->in[0].dim[1], .h = a->in[1].dim[2]};
  s.p = a->in[0].dim[2] / s.h;
  s.n = a->attr->head_dim;
  s.g = a->in[3].dim[2] / s.n;
  s.chunks = (s.t + SSM_CHUNK - 1) / SSM_CHUNK;
  return s;
}

/* Floats of a chunk of one head: u, x, dy and du; B, C and their gradients. */
INLINE int64_t scan_chunk_floats(const Scan *s) { return SSM_CHUNK * 4 * (s->p + s->n); }
/* Of a head: forward its state; backward that at the beginning of each chunk and the
 * gradient of one, and of its group dB and dC of all tokens. */
INLINE int64_t scan_floats(const Scan *s, bool back) {
  int64_t state = s->p * s->n;
  if (!back) return state + scan_chunk_floats(s);
  return (s->chunks + 1) * state + scan_chunk_floats(s) + 2 * s->t * s->n;
}

#endif
