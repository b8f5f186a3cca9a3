/* rope.cu - rotary position embedding, halves of each head as one complex number each. An
 * angle is found in f64, so that it is exact to f32 at any position; a thread finds it
 * once for all heads of its token. */
#include "kernel.cuh"

struct RopeScale {
  float factor, low, high;
  int original;
};

/* Frequencies as in Llama 3: long wavelengths are slowed down by the factor, those in
 * between are blended. */
static __device__ double scaled_frequency(double f, RopeScale s) {
  if (s.factor == 0) return f;
  double wave = 6.283185307179586 / f, length = s.original;
  if (wave < length / s.high) return f;
  if (wave > length / s.low) return f / s.factor;
  double k = (length / wave - s.low) / ((double)s.high - s.low);
  return (1 - k) * f / s.factor + k * f;
}

/* Grid: halves of a head, tokens. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    rope_tokens(const T *x, const int32_t *pos, T *y, int64_t tokens, int64_t width, int d,
                float theta, float sign, RopeScale scale) {
  int half = d / 2;
  int64_t n = tokens * half, step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < n; k += step) {
    int64_t r = k / half;
    int i = (int)(k % half);
    double f = scaled_frequency(pow((double)theta, -2.0 * i / d), scale);
    double sine, cosine;
    sincos(pos[r] * f, &sine, &cosine);
    float c = (float)cosine, s = (float)sine * sign;
    for (int64_t h = r * width + i; h < (r + 1) * width; h += d) {
      float u = load(x[h]), v = load(x[h + half]);
      y[h] = rounded<T>(u * c - v * s);
      y[h + half] = rounded<T>(v * c + u * s);
    }
  }
}

void cuda_rope(Device *d, const KernelArgs *a) {
  const OpAttr *at = a->attr;
  int64_t tokens = cuda_rows(&a->in[0]);
  RopeScale scale = {at->rope_factor, at->rope_low, at->rope_high, at->rope_original};
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((rope_tokens<T>), blocks_for(tokens * (at->head_dim / 2)), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]), data<T>(&a->out[0]),
           tokens, cuda_last(&a->in[0]), at->head_dim, at->theta,
           at->inverse ? -1.0f : 1.0f, scale);
  });
}
