/* attention_sinks.cu - the gradient of the sinks of attention: a sink takes its
 * probability, exp(sink - lse), from the other keys, and has no value of its own. A block
 * per head. */
#include "kernels/cuda/kernel.cuh"

enum { SINKS, O, LSE, DO }; /* operands */

template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    sink_gradients(const T *sinks, const T *o, const float *lse, const T *dy, G *ds,
                   int64_t rows, int64_t heads, int64_t first, int64_t e, bool add) {
  int64_t all = blockIdx.x, h = all - first;
  float sum = 0, sink = load(sinks[all]);
  for (int64_t r = threadIdx.x; r < rows && h >= 0 && h < heads; r += BLOCK) {
    int64_t row = r * heads + h;
    float dot = 0;
    for (int64_t i = 0; i < e; i++) dot += load(o[row * e + i]) * load(dy[row * e + i]);
    sum -= expf(sink - lse[row]) * dot;
  }
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) ds[all] = rounded<G>(add ? load(ds[all]) + sum : sum);
}

void cuda_attention_sinks_dw(Device *d, const KernelArgs *a) {
  int64_t heads = cuda_last(&a->in[LSE]), rows = cuda_rows(&a->in[LSE]);
  int64_t e = cuda_last(&a->in[O]) / heads, first = a->heads_index * heads;
  by_type(a->in[SINKS].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_type(a->out[0].dtype, [&](auto *g) {
      typedef TYPE_OF(g) G;
      LAUNCH((sink_gradients<T, G>), (unsigned)cuda_last(&a->in[SINKS]), BLOCK,
             cuda_stream(d), data<const T>(&a->in[SINKS]), data<const T>(&a->in[O]),
             data<const float>(&a->in[LSE]), data<const T>(&a->in[DO]),
             data<G>(&a->out[0]), rows, heads, first, e, a->accumulate);
    });
  });
}
