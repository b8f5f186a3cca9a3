/* rope.cu - rotary position embedding: pairs of elements of each head, or of a part of
 * it, as complex numbers. Angles are computed in f64, exact to f32 at any position, once
 * per thread for all heads of its token. */
#include "kernels/cuda/kernel.cuh"

struct RopeScale {
  float factor, low, high;
  int original, yarn;
  float length_scale; /* what turns becomes longer with each `length` positions */
  int length;
  float factors[ROPE_FACTORS]; /* of pairs; the first one 0: none */
};

/* Which pairs rotate: pair i is the elements first + i*step and `other` behind it. */
struct Pairs {
  int count, head_dim, first, step, other;
  int keep; /* elements before `first` and from here on are copied */
};

/* Frequencies as in Llama 3: long wavelengths are slowed down by the factor, those in
 * between are blended. */
static __device__ double scaled_frequency(double f, int pair, const RopeScale &s) {
  if (s.factors[0] != 0) f /= s.factors[pair];
  if (s.factor == 0) return f;
  if (s.yarn) { /* pairs past `high` are slowed down, those from `low` on blended */
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

/* Source and destination of the rotated heads, with their row distances; y may be x. */
template <typename T> struct Turned {
  const T *x;
  T *y;
  int64_t x_by, y_by, width;
};

/* Rotates pair i of all heads of row r, and copies a share of the other elements. */
template <typename T>
__device__ __forceinline__ void turn_row(Turned<T> a, int64_t r, int i, Pairs p, float c,
                                         float s) {
  const T *x = a.x + r * a.x_by;
  T *y = a.y + r * a.y_by;
  for (int64_t h = p.first + i * p.step; h < a.width; h += p.head_dim) {
    float u = load(x[h]), v = load(x[h + p.other]);
    y[h] = rounded<T>(u * c - v * s);
    y[h + p.other] = rounded<T>(v * c + u * s);
  }
  for (int64_t h = 0; h < a.width; h += p.head_dim) {
    for (int j = i; j < p.first; j += p.count) y[h + j] = x[h + j];
    for (int j = p.keep + i; j < p.head_dim; j += p.count) y[h + j] = x[h + j];
  }
}

/* Pair i's share of copying a row that does not rotate. */
template <typename T>
__device__ __forceinline__ void copy_row(Turned<T> a, int64_t r, int i, Pairs p) {
  for (int64_t j = i; j < a.width; j += p.count)
    a.y[r * a.y_by + j] = a.x[r * a.x_by + j];
}

/* Grid: pairs of a head, tokens. One or two operands rotate alike; `same` is copied. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    rope_tokens(Turned<T> a, Turned<T> b, Turned<T> same, const int32_t *pos,
                int64_t tokens, Pairs p, float theta, float by, float sign,
                RopeScale scale) {
  int64_t n = tokens * p.count, step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < n; k += step) {
    int64_t r = k / p.count;
    int i = (int)(k % p.count);
    double f = pow((double)theta, -(double)i / p.count);
    double sine, cosine;
    sincos(pos[r] * scaled_frequency(f, i, scale), &sine, &cosine);
    float longer = by;
    if (scale.length_scale != 0)
      longer *= 1.0f + scale.length_scale * logf((float)(1 + pos[r] / scale.length));
    float c = (float)cosine * longer, s = (float)sine * longer * sign;
    turn_row(a, r, i, p, c, s);
    if (b.x) turn_row(b, r, i, p, c, s);
    if (same.x) copy_row(same, r, i, p);
  }
}

static Pairs pairs_of(const OpAttr *a) {
  int turning = attr_rotary_dim(a), half = turning / 2, first = a->rotary_from;
  bool near = a->interleaved != 0;
  return Pairs{half, a->head_dim, first, near ? 2 : 1, near ? 1 : half, first + turning};
}

/* Columns of x from `from` on and of y from `to` on: as many as the narrower one has. */
template <typename T>
static Turned<T> part_of(const KTensor *x, int64_t from, const KTensor *y, int64_t to) {
  int64_t n = cuda_last(x), m = cuda_last(y);
  return Turned<T>{data<const T>(x) + from, data<T>(y) + to, n, m, n < m ? n : m};
}

/* Rotates one or two operands; the second, and the one that is copied, are optional. */
template <typename T>
static void rope(Device *d, const KernelArgs *a, const KTensor *pos, Turned<T> first,
                 Turned<T> second, Turned<T> same) {
  const OpAttr *at = a->attr;
  int64_t tokens = cuda_count(pos);
  Pairs pairs = pairs_of(at);
  RopeScale scale = {at->rope_factor, at->rope_low,     at->rope_high, at->rope_original,
                     at->yarn,        at->length_scale, at->length,    {0}};
  for (int i = 0; i < ROPE_FACTORS; i++) scale.factors[i] = at->rope_factors[i];
  float by = at->rope_scale != 0 ? at->rope_scale : 1.0f;
  LAUNCH((rope_tokens<T>), blocks_for(tokens * pairs.count), BLOCK, cuda_stream(d), first,
         second, same, data<const int32_t>(pos), tokens, pairs, at->theta, by,
         at->inverse ? -1.0f : 1.0f, scale);
}

void cuda_rope(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    rope<T>(d, a, &a->in[1], part_of<T>(&a->in[0], 0, &a->out[0], 0), Turned<T>{},
            Turned<T>{});
  });
}

void cuda_rope_pair(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    rope<T>(d, a, &a->in[2], part_of<T>(&a->in[0], 0, &a->out[0], 0),
            part_of<T>(&a->in[1], 0, &a->out[1], 0), Turned<T>{});
  });
}

void cuda_rope_qkv(Device *d, const KernelArgs *a) {
  const KTensor *x = &a->in[0], *q = &a->out[0], *k = &a->out[1], *v = &a->out[2];
  int64_t at_k = cuda_last(v), at_q = at_k + cuda_last(k);
  by_type(x->dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    rope<T>(d, a, &a->in[1], part_of<T>(x, at_q, q, 0), part_of<T>(x, at_k, k, 0),
            part_of<T>(x, 0, v, 0));
  });
}

void cuda_rope_qkv_dx(Device *d, const KernelArgs *a) {
  const KTensor *dq = &a->in[0], *dk = &a->in[1], *dv = &a->in[2], *dx = &a->out[0];
  int64_t at_k = cuda_last(dv), at_q = at_k + cuda_last(dk);
  by_type(dx->dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    rope<T>(d, a, &a->in[3], part_of<T>(dq, 0, dx, at_q), part_of<T>(dk, 0, dx, at_k),
            part_of<T>(dv, 0, dx, 0));
  });
}
