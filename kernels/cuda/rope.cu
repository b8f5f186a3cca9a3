/* rope.cu - rotary position embedding: pairs of elements of each head, or of a part of it,
 * as one complex number each. An angle is found in f64, so that it is exact to f32 at any
 * position; a thread finds it once for all heads of its token. */
#include "kernel.cuh"

struct RopeScale {
  float factor, low, high;
  int original, yarn;
};

/* Which pairs turn, and the place of the elements of pair i: first + i*step, and `other`
 * elements behind it. */
struct Pairs {
  int count, head_dim, first, step, other;
  int keep; /* what lies before the first and from here on stays as it is */
};

/* Frequencies as in Llama 3: long wavelengths are slowed down by the factor, those in
 * between are blended. */
static __device__ double scaled_frequency(double f, int pair, RopeScale s) {
  if (s.factor == 0) return f;
  if (s.yarn) { /* pairs past high are slowed down, those from low on blended */
    double k = (pair - s.low) / ((double)s.high - s.low);
    k = k < 0 ? 0 : k > 1 ? 1 : k;
    return k * f / s.factor + (1 - k) * f;
  }
  double wave = 6.283185307179586 / f, length = s.original;
  if (wave < length / s.high) return f;
  if (wave > length / s.low) return f / s.factor;
  double k = (length / wave - s.low) / ((double)s.high - s.low);
  return (1 - k) * f / s.factor + k * f;
}

/* Rows of heads that turn, and where to; y may be x. */
template <typename T> struct Turned {
  const T *x;
  T *y;
  int64_t width;
};

/* Pair i of all heads of row r, and its share of what does not turn. */
template <typename T>
__device__ __forceinline__ void turn_row(Turned<T> a, int64_t r, int i, Pairs p, float c,
                                         float s) {
  int64_t end = (r + 1) * a.width;
  for (int64_t h = r * a.width + p.first + i * p.step; h < end; h += p.head_dim) {
    float u = load(a.x[h]), v = load(a.x[h + p.other]);
    a.y[h] = rounded<T>(u * c - v * s);
    a.y[h + p.other] = rounded<T>(v * c + u * s);
  }
  for (int64_t h = r * a.width; h < end; h += p.head_dim) {
    for (int j = i; j < p.first; j += p.count) a.y[h + j] = a.x[h + j];
    for (int j = p.keep + i; j < p.head_dim; j += p.count) a.y[h + j] = a.x[h + j];
  }
}

/* Grid: pairs of a head, tokens. The heads of one or of two operands have the same angles. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    rope_tokens(Turned<T> a, Turned<T> b, const int32_t *pos, int64_t tokens, Pairs p,
                float theta, float by, float sign, RopeScale scale) {
  int64_t n = tokens * p.count, step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < n; k += step) {
    int64_t r = k / p.count;
    int i = (int)(k % p.count);
    double f = pow((double)theta, -(double)i / p.count);
    double sine, cosine;
    sincos(pos[r] * scaled_frequency(f, i, scale), &sine, &cosine);
    float c = (float)cosine * by, s = (float)sine * by * sign;
    turn_row(a, r, i, p, c, s);
    if (b.x) turn_row(b, r, i, p, c, s);
  }
}

static Pairs pairs_of(const OpAttr *a) {
  int turning = attr_rotary_dim(a), half = turning / 2, first = a->rotary_from;
  bool near = a->interleaved != 0;
  return Pairs{half, a->head_dim, first, near ? 2 : 1, near ? 1 : half, first + turning};
}

/* The first `n` operands; positions follow. */
static void rope(Device *d, const KernelArgs *a, int n) {
  const OpAttr *at = a->attr;
  int64_t tokens = cuda_rows(&a->in[0]);
  Pairs pairs = pairs_of(at);
  RopeScale scale = {at->rope_factor, at->rope_low, at->rope_high, at->rope_original,
                     at->yarn};
  float by = at->rope_scale != 0 ? at->rope_scale : 1.0f;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Turned<T> x[2] = {};
    for (int k = 0; k < n; k++)
      x[k] = Turned<T>{data<const T>(&a->in[k]), data<T>(&a->out[k]), cuda_last(&a->in[k])};
    LAUNCH((rope_tokens<T>), blocks_for(tokens * pairs.count), BLOCK, cuda_stream(d), x[0],
           x[1], data<const int32_t>(&a->in[n]), tokens, pairs, at->theta, by,
           at->inverse ? -1.0f : 1.0f, scale);
  });
}

void cuda_rope(Device *d, const KernelArgs *a) { rope(d, a, 1); }
void cuda_rope_pair(Device *d, const KernelArgs *a) { rope(d, a, 2); }
