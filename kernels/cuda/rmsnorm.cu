/* rmsnorm.cu - RMSNorm over groups of G elements of a row, also of a sum (add_rmsnorm),
 * and its gradients. A group is in the registers of a half warp, a warp or a block
 * (rows.cuh). */
#include "columns.cuh"

/* Weights are w + plus, of one group or `sets` of them, one after the other. With b,
 * normalizes z = x + b. Operands may be results: a thread reads only elements that it
 * writes. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    rmsnorm_groups(const T *x, const T *b, T *z, const T *w, T *y, float *rstd, int64_t n,
                   int g, float eps, float plus, int sets) {
  constexpr int N = EACH_OF<T>;
  int64_t r = G::row();
  bool is = r < n; /* all threads of a warp go on: they sum together */
  if (!is) r = n - 1;
  RowOf<T, G> row(x + r * g, g);
  if (b) {
    RowOf<T, G> other(b + r * g, g);
    row.each([&](int k, int c, int) {
      Pack<T, N> sum = row.at(k, c), more = other.at(k, c);
      UNROLL
      for (int j = 0; j < N; j++) sum.v[j] = rounded<T>(load(sum.v[j]) + load(more.v[j]));
      if (is) put<G::WIDE>(z + r * g, c, g, sum);
      row.set(k, sum);
    });
    if (is) row.p = z + r * g;
  }
  float sum = 0;
  row.each([&](int k, int c, int) {
    Pack<T, N> v = row.at(k, c);
    UNROLL
    for (int j = 0; j < N; j++) sum += load(v.v[j]) * load(v.v[j]);
  });
  float s = 1.0f / sqrtf(G::sum(sum) / (float)g + eps);
  if (!is) return;
  if (sets > 1) w += (int)((uint32_t)r % (uint32_t)sets) * g;
  row.keep_words();
  if (G::place() == 0) rstd[r] = s;
  row.each([&](int k, int c, int) {
    Pack<T, N> v = row.at(k, c), by;
    get<G::WIDE>(by, w, c, g);
    UNROLL
    for (int j = 0; j < N; j++)
      v.v[j] = rounded<T>(load(v.v[j]) * s * (load(by.v[j]) + plus));
    put<G::WIDE>(y + r * g, c, g, v);
  });
}

/* Operands of the gradients; d is added to dx if present. */
template <typename T> struct NormGrad {
  const T *x, *w;
  const float *rstd;
  const T *dy, *d;
  T *dx;
  int64_t n;
  int g;
  float plus; /* weights are w + plus */
  int sets;   /* of one group or so many */
};

/* dx = rstd * (dy*w - xhat * mean(dy*w*xhat)), xhat = x * rstd, of group r, if that is
 * one; f(k, j, dy * xhat) for each element. */
template <typename T, typename G, typename F>
__device__ __forceinline__ void group_dx(const NormGrad<T> &a, int64_t r, F f) {
  constexpr int N = EACH_OF<T>;
  bool is = r < a.n;
  int64_t at = (is ? r : a.n - 1) * a.g;
  constexpr bool EARLY = G::PACKS <= 4; /* d is in registers, too, where there is room */
  RowOf<T, G> x(a.x + at, a.g), dy(a.dy + at, a.g);
  RowOf<T, G> more((EARLY && a.d ? a.d : a.x) + at, a.g);
  float s = a.rstd[is ? r : a.n - 1], dot = 0;
  const T *of = a.w;
  if (a.sets > 1) of += (int)((uint32_t)(is ? r : a.n - 1) % (uint32_t)a.sets) * a.g;
  x.each([&](int k, int c, int) {
    Pack<T, N> u = x.at(k, c), v = dy.at(k, c), w;
    get<G::WIDE>(w, of, c, a.g);
    UNROLL
    for (int j = 0; j < N; j++)
      dot += load(v.v[j]) * (load(w.v[j]) + a.plus) * load(u.v[j]);
  });
  float by = G::sum(dot) * s * s * s / (float)a.g;
  if (!is) return;
  x.keep_words(), dy.keep_words();
  x.each([&](int k, int c, int) {
    Pack<T, N> u = x.at(k, c), v = dy.at(k, c), w, d = {}, to;
    get<G::WIDE>(w, of, c, a.g);
    if (a.d && EARLY) d = more.at(k, c);
    if (a.d && !EARLY) get<G::WIDE>(d, a.d + at, c, a.g);
    UNROLL
    for (int j = 0; j < N; j++) {
      float y = load(v.v[j]) * (load(w.v[j]) + a.plus) * s - load(u.v[j]) * by;
      to.v[j] = rounded<T>(a.d ? y + load(d.v[j]) : y);
      f(k, j, load(v.v[j]) * load(u.v[j]) * s);
    }
    put<G::WIDE>(a.dx + at, c, a.g, to);
  });
}

template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK) rmsnorm_dx_groups(NormGrad<T> a) {
  group_dx<T, G>(a, G::row(), [](int, int, float) {});
}

/* dx, and while x and dy are at hand, a partial dw of `each` groups, in registers. Groups
 * of threads with equal columns are added in order at the end. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    rmsnorm_back_groups(NormGrad<T> a, float *part, int64_t each) {
  constexpr int N = EACH_OF<T>;
  int64_t n = a.n, r0 = blockIdx.x * each, r1 = r0 + each < n ? r0 + each : n;
  int mine = threadIdx.x / G::THREADS;
  float dw[G::PACKS][N] = {};
  SHARED_ROOM(room);
  float *all = (float *)room;
  a.n = r1;
  for (int64_t r = r0; r < r1; r += G::SIDE)
    group_dx<T, G>(a, r + mine, [&](int k, int j, float x) { dw[k][j] += x; });
  part += blockIdx.x * (int64_t)a.g;
  for (int i = 0; i < G::SIDE; i++) {
    UNROLL
    for (int k = 0; k < G::PACKS; k++) {
      int c = (k * G::THREADS + G::place()) * N;
      if (i != mine || c >= a.g) continue;
      float *to = i + 1 < G::SIDE ? all : part;
      UNROLL
      for (int j = 0; j < N; j++) to[c + j] = dw[k][j] + (i ? all[c + j] : 0);
    }
    if (i + 1 < G::SIDE) __syncthreads();
  }
}

/* Elements of a group of weights w. */
static int64_t group_size(const KernelArgs *a, const KTensor *w) {
  return a->attr->head_dim ? a->attr->head_dim : cuda_last(w);
}

template <typename T>
static void norm(Device *d, const KernelArgs *a, const T *b, T *z, const KTensor *w,
                 const KTensor *y, const KTensor *rstd) {
  int64_t g = group_size(a, w), n = cuda_count(&a->in[0]) / g;
  bool wide = wide_rows<T>(g, a->in[0].p, b, z, w->p, y->p);
  by_group<T>(g, n, wide, [&](auto group, unsigned blocks) {
    LAUNCH((rmsnorm_groups<T, decltype(group)>), blocks, BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), b, z, data<const T>(w), data<T>(y),
           data<float>(rstd), n, (int)g, a->attr->eps, attr_weight_plus(a->attr),
           (int)(cuda_last(w) / g));
  });
}

void cuda_rmsnorm(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    norm<T>(d, a, nullptr, nullptr, &a->in[1], &a->out[0], &a->out[1]);
  });
}

void cuda_add_rmsnorm(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    norm<T>(d, a, data<const T>(&a->in[1]), data<T>(&a->out[0]), &a->in[2], &a->out[1],
            &a->out[2]);
  });
}

/* Operands are x, w, rstd, dy [, d]; dx is the last result. */
template <typename T> static NormGrad<T> grad_of(const KernelArgs *a) {
  int64_t g = group_size(a, &a->in[1]);
  return NormGrad<T>{data<const T>(&a->in[0]),
                     data<const T>(&a->in[1]),
                     data<const float>(&a->in[2]),
                     data<const T>(&a->in[3]),
                     a->nin > 4 ? data<const T>(&a->in[4]) : nullptr,
                     data<T>(&a->out[a->nout - 1]),
                     cuda_count(&a->in[0]) / g,
                     (int)g,
                     attr_weight_plus(a->attr),
                     (int)(cuda_last(&a->in[1]) / g)};
}

template <typename T> static bool wide_grad(const NormGrad<T> &x) {
  return wide_rows<T>(x.g, x.x, x.w, x.dy, x.d, x.dx);
}

template <typename T> static void launch_dx(Device *d, const NormGrad<T> &x) {
  by_group<T>(x.g, x.n, wide_grad(x), [&](auto group, unsigned blocks) {
    LAUNCH((rmsnorm_dx_groups<T, decltype(group)>), blocks, BLOCK, cuda_stream(d), x);
  });
}

void cuda_rmsnorm_dx(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) { launch_dx(d, grad_of<TYPE_OF(p)>(a)); });
}

template <typename T> struct RmsTerm {
  const T *x, *dy;
  const float *rstd;
  template <bool WIDE, int N>
  __device__ void add(int64_t r, int64_t c, int64_t width, float (&to)[1][N]) const {
    Pack<T, N> u, v;
    get<WIDE>(u, x + r * width, c, width);
    get<WIDE>(v, dy + r * width, c, width);
    float s = rstd[r];
    UNROLL
    for (int j = 0; j < N; j++) to[0][j] += load(v.v[j]) * load(u.v[j]) * s;
  }
};

/* Of rows of groups that have weights each. */
template <typename T> struct SetsTerm {
  const T *x, *dy;
  const float *rstd;
  int g, sets;
  template <bool WIDE, int N>
  __device__ void add(int64_t r, int64_t c, int64_t width, float (&to)[1][N]) const {
    Pack<T, N> u, v;
    get<WIDE>(u, x + r * width, c, width);
    get<WIDE>(v, dy + r * width, c, width);
    UNROLL
    for (int j = 0; j < N; j++)
      if (c + j < width)
        to[0][j] += load(v.v[j]) * load(u.v[j]) * rstd[r * sets + (int)(c + j) / g];
  }
};

static void launch_dw(Device *d, const KernelArgs *a, const KTensor *x,
                      const KTensor *rstd, const KTensor *dy) {
  int64_t g = cuda_last(&a->out[0]), of = group_size(a, &a->out[0]);
  by_type(x->dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    if (of < g)
      return sum_columns<T, 1>(d, a, cuda_count(x) / g, g, wide_rows<T>(g, x->p, dy->p),
                               SetsTerm<T>{data<const T>(x), data<const T>(dy),
                                           data<const float>(rstd), (int)of,
                                           (int)(g / of)});
    sum_columns<T, 1>(
        d, a, cuda_count(x) / g, g, wide_rows<T>(g, x->p, dy->p),
        RmsTerm<T>{data<const T>(x), data<const T>(dy), data<const float>(rstd)});
  });
}

void cuda_rmsnorm_dw(Device *d, const KernelArgs *a) {
  launch_dw(d, a, &a->in[0], &a->in[1], &a->in[2]);
}

/* In one pass where a group and its sums are in registers. */
template <typename T> static void launch_back(Device *d, const KernelArgs *a) {
  NormGrad<T> x = grad_of<T>(a);
  int64_t parts = cuda_parts(x.n), each = cuda_part_rows(x.n);
  float *part = (float *)a->work;
  by_group<T>(x.g, x.n, wide_grad(x), [&](auto group, unsigned) {
    typedef decltype(group) G;
    if constexpr (G::PACKS > 0 && G::PACKS * G::THREADS <= 4 * BLOCK) {
      unsigned room = G::SIDE > 1 ? (unsigned)(x.g * sizeof(float)) : 0;
      LAUNCH_ROOM((rmsnorm_back_groups<T, G>), (unsigned)parts, BLOCK, room,
                  cuda_stream(d), x, part, each);
      add_parts<1>(d, a, parts, x.g);
    } else {
      launch_dw(d, a, &a->in[0], &a->in[2], &a->in[3]); /* first: dx may be dy */
      launch_dx(d, x);
    }
  });
}

void cuda_rmsnorm_back(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) { launch_back<TYPE_OF(p)>(d, a); });
}
