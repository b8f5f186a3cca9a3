/* rope.cu - rotary position embedding: pairs of elements of each head, or of a part of
 * it, as complex numbers. A block has some tokens: it makes a table of their angles,
 * whose turns are reduced in f64, exact to f32 at any position, and then rotates all
 * heads by it, sixteen bytes a thread. */
#include "kernels/cuda/rows.cuh"

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

/* What a block does for a token: vectors of rotated pairs, and of elements that are
 * copied, in each operand. */
struct Share {
  int heads, rest; /* 0 heads: not there */
};
struct Work {
  Share a, b;
  int same;                        /* vectors of the operand that is copied */
  int all;                         /* of all of these */
  Divider per_token, turns, rests; /* of `all`; of a head: vectors that rotate, others */
};

struct Angle {
  float cosine, sine;
};

/* The table: of TOKENS tokens from `first` on, behind the pairs' turns a position. */
enum { TOKENS = 16 };
static __device__ void make_table(Angle *table, double *turns, const int32_t *pos,
                                  int64_t first, int n, Pairs p, float theta, float by,
                                  float sign, const RopeScale &scale) {
  const double around = 6.283185307179586;
  for (int i = threadIdx.x; i < p.count; i += BLOCK)
    turns[i] =
        scaled_frequency(pow((double)theta, -(double)i / p.count), i, scale) / around;
  __syncthreads();
  int lane = threadIdx.x % WARP;
  for (int t = threadIdx.x / WARP; t < n; t += BLOCK / WARP) {
    int at = pos[first + t];
    float longer = by;
    if (scale.length_scale != 0)
      longer *= 1.0f + scale.length_scale * logf((float)(1 + at / scale.length));
    for (int i = lane; i < p.count; i += WARP) {
      double turn = at * turns[i];
      double angle = (turn - rint(turn)) * around;
      float rough = (float)angle, left = (float)(angle - rough), s = sinf(rough),
            c = cosf(rough);
      table[t * p.count + i] =
          Angle{(c - left * s) * longer, (s + left * c) * longer * sign};
    }
  }
  __syncthreads();
}

/* How elements lie in vectors: NEAR pairs are neighbours, others half a head apart. */
template <typename T, bool IS_WIDE, bool IS_NEAR> struct RopePack {
  static constexpr bool WIDE = IS_WIDE, NEAR = IS_NEAR;
  static constexpr int N = WIDE ? EACH_OF<T> : NEAR ? 2 : 1;
  static constexpr int PAIRS = NEAR ? N / 2 : N;
  static constexpr int COPIED =
      WIDE ? N : 1; /* elements of a vector that does not rotate */
};

template <typename T>
__device__ __forceinline__ void turn_pair(T &x, T &y, const Angle &a) {
  float u = load(x), v = load(y);
  x = rounded<T>(u * a.cosine - v * a.sine);
  y = rounded<T>(v * a.cosine + u * a.sine);
}

/* Rotates the pairs from i on of the head that begins at x. */
template <typename R, typename T>
__device__ __forceinline__ void turn_pack(const T *x, T *y, const Angle *table, int i,
                                          const Pairs &p) {
  constexpr int N = R::N;
  Pack<T, N> u, v;
  int at = p.first + i * p.step;
  UNROLL
  for (int j = 0; j < N; j++) u.v[j] = v.v[j] = T{};
  get<R::WIDE>(u, x, at, at + N);
  if constexpr (R::NEAR) {
    UNROLL
    for (int j = 0; j < R::PAIRS; j++)
      turn_pair(u.v[2 * j], u.v[2 * j + 1], table[i + j]);
  } else {
    get<R::WIDE>(v, x, at + p.other, at + p.other + N);
    UNROLL
    for (int j = 0; j < N; j++) turn_pair(u.v[j], v.v[j], table[i + j]);
    put<R::WIDE>(y, at + p.other, at + p.other + N, v);
  }
  put<R::WIDE>(y, at, at + N, u);
}

/* Vector i of those of an operand: of heads that rotate, then of what is beside it. */
template <typename R, typename T>
__device__ __forceinline__ void do_vector(const Turned<T> &a, const Share &s, int64_t r,
                                          int i, const Angle *table, const Pairs &p,
                                          const Work &w) {
  constexpr int N = R::COPIED;
  const T *x = a.x + r * a.x_by;
  T *y = a.y + r * a.y_by;
  int turning = s.heads * (int)w.turns.by;
  if (i < turning) {
    int head = (int)divided((uint32_t)i, w.turns), at = i - head * (int)w.turns.by;
    turn_pack<R>(x + head * p.head_dim, y + head * p.head_dim, table, at * R::PAIRS, p);
    return;
  }
  i -= turning;
  int head = (int)divided((uint32_t)i, w.rests), c = (i - head * (int)w.rests.by) * N;
  if (c >= p.first) c += p.keep - p.first;
  Pack<T, N> v;
  get<R::WIDE>(v, x + head * p.head_dim, c, c + N);
  put<R::WIDE>(y + head * p.head_dim, c, c + N, v);
}

/* A block has TOKENS tokens. One or two operands rotate alike; `same` is copied. */
template <typename R, typename T>
__global__ void __launch_bounds__(BLOCK)
    rope_tokens(Turned<T> a, Turned<T> b, Turned<T> same, const int32_t *pos,
                int64_t tokens, Pairs p, Work w, float theta, float by, float sign,
                RopeScale scale) {
  SHARED_ROOM(room);
  double *turns = (double *)room;
  Angle *table = (Angle *)(turns + p.count);
  int64_t first = (int64_t)blockIdx.x * TOKENS;
  int n = tokens - first < TOKENS ? (int)(tokens - first) : (int)TOKENS;
  make_table(table, turns, pos, first, n, p, theta, by, sign, scale);
  int of_a = w.a.heads * (int)(w.turns.by + w.a.rest);
  int of_b = w.b.heads * (int)(w.turns.by + w.b.rest);
  for (int k = threadIdx.x; k < n * w.all; k += BLOCK) {
    int t = (int)divided((uint32_t)k, w.per_token), i = k - t * w.all;
    const Angle *of = table + t * p.count;
    if (i < of_a) {
      do_vector<R>(a, w.a, first + t, i, of, p, w);
    } else if (i < of_a + of_b) {
      do_vector<R>(b, w.b, first + t, i - of_a, of, p, w);
    } else {
      int64_t c = (int64_t)(i - of_a - of_b) * R::COPIED, r = first + t;
      Pack<T, R::COPIED> v;
      get<R::WIDE>(v, same.x + r * same.x_by, c, same.width);
      put<R::WIDE>(same.y + r * same.y_by, c, same.width, v);
    }
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

template <typename T> static bool wide_part(const Turned<T> &a) {
  return !a.x || (wide_rows<T>(a.x_by, a.x, a.y) && wide_rows<T>(a.y_by) &&
                  wide_rows<T>(a.width));
}

/* The vectors of a token, if they have `pairs` pairs, or n elements that are copied. */
template <typename T>
static Work work_of(const Turned<T> &a, const Turned<T> &b, const Turned<T> &same,
                    const Pairs &p, int n, int pairs) {
  int turns = p.count / pairs, rest = (p.head_dim - (p.keep - p.first)) / n;
  Work w;
  w.a = Share{(int)(a.width / p.head_dim), rest};
  w.b = Share{b.x ? (int)(b.width / p.head_dim) : 0, rest};
  w.same = same.x ? (int)packs_of(same.width, n) : 0;
  w.all = (w.a.heads + w.b.heads) * (turns + rest) + w.same;
  w.per_token = divider(w.all), w.turns = divider(turns);
  w.rests = divider(rest > 0 ? rest : 1);
  return w;
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
  int turning = pairs.keep - pairs.first;
  bool near = pairs.step == 2;
  bool wide = wide_rows<T>(near ? turning : pairs.count) && wide_rows<T>(pairs.first) &&
              wide_rows<T>(pairs.head_dim) && wide_part(first) && wide_part(second) &&
              wide_part(same);
  unsigned room =
      (unsigned)(pairs.count * (sizeof(double) + (size_t)TOKENS * sizeof(Angle)));
  by_bool(wide, [&](auto is_wide) {
    by_bool(near, [&](auto is_near) {
      typedef RopePack<T, decltype(is_wide)::is, decltype(is_near)::is> R;
      LAUNCH_ROOM((rope_tokens<R, T>), (unsigned)packs_of(tokens, TOKENS), BLOCK, room,
                  cuda_stream(d), first, second, same, data<const int32_t>(pos), tokens,
                  pairs, work_of(first, second, same, pairs, R::COPIED, R::PAIRS),
                  at->theta, by, at->inverse ? -1.0f : 1.0f, scale);
    });
  });
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
