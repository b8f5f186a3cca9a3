/* attention_step.cu - attention of one query over the KV cache of all positions up to its
 * own, to which its own row is appended. One block per query head; the block of a kv
 * head's first query head writes the new row, and all read it from the operands. */
#include "attention_shape.cuh"

enum { KEYS = 128, HEAD_MOST = 256, SINKS = 4 };

/* Grid: heads, batch. Scores of KEYS keys at a time; every thread sums all of them, which
 * avoids a block reduction. */
template <typename T>
__global__ void __launch_bounds__(KEYS)
    attend_step(Heads s, const T *q, const T *k, const T *v, const int32_t *positions,
                const T *sinks, T *o, T *kept_k, T *kept_v, int64_t rows) {
  __shared__ float p[KEYS], query[HEAD_MOST];
  int64_t h = blockIdx.x, b = blockIdx.y, kv = h * s.k / s.h, pos = positions[b];
  bool writes = h == (kv * s.h + s.k - 1) / s.k;
  int64_t wide_k = s.k * s.d, wide_v = s.k * s.dv;
  k += (b * s.k + kv) * s.d, v += (b * s.k + kv) * s.dv;
  kept_k += b * rows * wide_k + kv * s.d, kept_v += b * rows * wide_v + kv * s.dv;
  for (int c = threadIdx.x; c < s.d; c += KEYS) {
    query[c] = load(q[(b * s.h + h) * s.d + c]) * s.scale;
    if (writes) kept_k[pos * wide_k + c] = k[c];
  }
  for (int c = threadIdx.x; c < s.dv && writes; c += KEYS)
    kept_v[pos * wide_v + c] = v[c];
  float most = -INFINITY, sum = 0, out[HEAD_MOST / KEYS] = {0};
  if (sinks) most = load(sinks[s.first_head + h]), sum = 1;
  int64_t from = s.window && pos >= s.window ? pos + 1 - s.window : 0;
  for (int64_t r0 = from; r0 <= pos; r0 += KEYS) {
    int64_t r = r0 + threadIdx.x;
    float x = -INFINITY, top = most;
    __syncthreads();
    if (r <= pos) {
      const T *key = r == pos ? k : kept_k + r * wide_k;
      x = 0;
      for (int c = 0; c < s.d; c++) x += query[c] * load(key[c]);
      if (s.cap > 0) x = capped(x, s.cap);
    }
    p[threadIdx.x] = x;
    __syncthreads();
    for (int j = 0; j < KEYS; j++) top = p[j] > top ? p[j] : top;
    float fade = expf(most - top);
    sum *= fade, most = top;
    for (int i = 0; i < HEAD_MOST / KEYS; i++) out[i] *= fade;
    for (int j = 0; j < KEYS && r0 + j <= pos; j++) {
      const T *value = r0 + j == pos ? v : kept_v + (r0 + j) * wide_v;
      float w = expf(p[j] - top);
      sum += w;
      for (int i = 0; i < HEAD_MOST / KEYS; i++) {
        int c = i * KEYS + threadIdx.x;
        if (c < s.dv) out[i] += w * load(value[c]);
      }
    }
  }
  for (int i = 0; i < HEAD_MOST / KEYS; i++) {
    int c = i * KEYS + threadIdx.x;
    if (c < s.dv) o[(b * s.h + h) * s.dv + c] = rounded<T>(out[i] / sum);
  }
}

void cuda_attention_step(Device *d, const KernelArgs *a) {
  const KTensor *q = &a->in[0], *k = &a->in[1];
  int dim = a->attr->head_dim, value_dim = attr_value_dim(a->attr);
  int64_t rows = a->out[1].dim[1];
  Heads s = {q->dim[0],
             1,
             rows,
             q->dim[2] / dim,
             k->dim[2] / dim,
             dim,
             value_dim,
             a->attr->scale,
             a->attr->soft_cap,
             a->attr->window,
             NULL,
             rows,
             0,
             seq_whole(1),
             seq_whole(rows),
             NULL,
             Dropout{},
             (uint32_t)(a->heads_index * (q->dim[2] / dim))};
  const KTensor *sinks = kernel_sinks(a, SINKS);
  Dim3 grid((unsigned)s.h, (unsigned)s.b);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((attend_step<T>), grid, KEYS, cuda_stream(d), s, data<const T>(&a->in[0]),
           data<const T>(&a->in[1]), data<const T>(&a->in[2]),
           data<const int32_t>(&a->in[3]), sinks ? data<const T>(sinks) : NULL,
           data<T>(&a->out[0]), data<T>(&a->out[1]), data<T>(&a->out[2]), rows);
  });
}
