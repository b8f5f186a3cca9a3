/* activation.cu - gelu, silu, relu, soft_cap, silu_mul and their gradients, element by
 * element; swiglu is silu_mul of the halves of a row. */
#include "fast_math.cuh"
#include "rows.cuh"

/* ---- gelu ---- kind 0: x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3);
 * kind 1: x * Phi(x) */

static __device__ float normal_cdf(float x) { return 0.5f * erfcf(-0.70710678f * x); }

static __device__ float gelu_slope(float x, int kind) {
  if (kind) return normal_cdf(x) + x * 0.3989422804f * expf(-0.5f * x * x);
  float s = sigmoid(1.595769122f * (x + 0.044715f * x * x * x));
  return s + x * s * (1.0f - s) * 1.595769122f * (1.0f + 3 * 0.044715f * x * x);
}

struct Gelu {
  int kind;
  __device__ void operator()(const float *in, float *out) const {
    float x = in[0];
    out[0] =
        x * (kind ? normal_cdf(x) : sigmoid(1.595769122f * (x + 0.044715f * x * x * x)));
  }
};
struct GeluDx {
  int kind;
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[1] * gelu_slope(in[0], kind);
  }
};

/* ---- silu, relu, soft_cap ---- */

static __device__ __forceinline__ float silu_slope(float x, float s) {
  return s * (1.0f + x * (1.0f - s));
}

static __device__ __forceinline__ float clamped(float x, float most) {
  float low = x < -most ? -most : x;
  return low > most ? most : low;
}

ELEMENTS(silu, 1, 0, in[0] * sigmoid(in[0]))
ELEMENTS(silu_dx, 2, 0, in[1] * silu_slope(in[0], sigmoid(in[0])))
/* Propagates NaN, so that it is found where it arose. */
ELEMENTS(relu, 1, 0, in[0] < 0 ? 0 : in[0])
ELEMENTS(relu_dx, 2, 0, in[0] > 0 ? in[1] : 0)
ELEMENTS(clamp, 1, a->attr->limit, clamped(in[0], k))
ELEMENTS(clamp_dx, 2, a->attr->limit, fabsf(in[0]) <= k ? in[1] : 0)
ELEMENTS(soft_cap, 1, a->attr->soft_cap, tanhf(in[0] / k) * k)
/* Of the result. */
ELEMENTS(soft_cap_dx, 2, a->attr->soft_cap, in[1] * (1.0f - (in[0] / k) * (in[0] / k)))

template <typename T> struct SiluMul {
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[0] * sigmoid_for<T>(in[0]) * in[1];
  }
};
template <typename T> struct SiluMulDx {
  __device__ void operator()(const float *in, float *out) const {
    float s = sigmoid_for<T>(in[0]);
    out[0] = in[2] * in[1] * silu_slope(in[0], s);
    out[1] = in[2] * in[0] * s;
  }
};

void cuda_gelu(Device *d, const KernelArgs *a) { map<1, 1>(d, a, Gelu{a->attr->kind}); }
void cuda_gelu_dx(Device *d, const KernelArgs *a) {
  map<2, 1>(d, a, GeluDx{a->attr->kind});
}
void cuda_silu_mul(Device *d, const KernelArgs *a) {
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    map_on<T, T, 2, 1>(d, a, SiluMul<T>{});
  });
}
void cuda_silu_mul_dx(Device *d, const KernelArgs *a) {
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    map_on<T, T, 3, 2>(d, a, SiluMulDx<T>{});
  });
}

/* ---- swiglu ---- each operand has its own distance between rows */

template <typename T, int N> struct Rows {
  T *p[N];
  int64_t by[N]; /* distance between rows in elements */
};

/* Grid: blocks of W elements per thread along a row; rows. */
template <typename T, int W, int IN, int OUT, typename F>
__global__ void __launch_bounds__(BLOCK)
    map_rows(Rows<const T, IN> in, Rows<T, OUT> out, int64_t rows, int width, F f) {
  int i = ((int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x) * W;
  if (i >= width) return;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    Pack<T, W> a[IN], b[OUT];
    float x[IN], y[OUT];
    for (int k = 0; k < IN; k++) a[k] = *(const Pack<T, W> *)(in.p[k] + r * in.by[k] + i);
    for (int j = 0; j < W; j++) {
      for (int k = 0; k < IN; k++) x[k] = load(a[k].v[j]);
      f(x, y);
      for (int k = 0; k < OUT; k++) b[k].v[j] = rounded<T>(y[k]);
    }
    for (int k = 0; k < OUT; k++) *(Pack<T, W> *)(out.p[k] + r * out.by[k] + i) = b[k];
  }
}

template <typename T, int W, int IN, int OUT, typename F>
static void launch_rows(Device *d, const Rows<const T, IN> &in, const Rows<T, OUT> &out,
                        int64_t rows, int width, F f) {
  constexpr int ROWS_MAX = 65535; /* of a grid dimension */
  int threads = (width + W - 1) / W, warps = (threads + WARP - 1) / WARP;
  int block = threads < BLOCK ? warps * WARP : BLOCK;
  Dim3 grid((unsigned)((threads + block - 1) / block),
            (unsigned)(rows < ROWS_MAX ? rows : ROWS_MAX));
  LAUNCH((map_rows<T, W, IN, OUT, F>), grid, (unsigned)block, cuda_stream(d), in, out,
         rows, width, f);
}

/* Vectors of sixteen bytes if all rows are aligned to that. */
template <typename T, int IN, int OUT, typename F>
static void by_rows(Device *d, const Rows<const T, IN> &in, const Rows<T, OUT> &out,
                    int64_t rows, int64_t width, F f) {
  constexpr int W = 16 / sizeof(T);
  bool wide = width % W == 0;
  for (int k = 0; k < IN; k++) wide = wide && aligned(in.p[k]);
  for (int k = 0; k < OUT; k++) wide = wide && aligned(out.p[k]);
  if (rows < 1 || width < 1) return;
  if (wide)
    launch_rows<T, W>(d, in, out, rows, (int)width, f);
  else
    launch_rows<T, 1>(d, in, out, rows, (int)width, f);
}

void cuda_swiglu(Device *d, const KernelArgs *a) {
  int64_t c = cuda_last(&a->out[0]), rows = cuda_rows(&a->out[0]);
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *u = data<const T>(&a->in[0]);
    by_rows(d, Rows<const T, 2>{{u + c, u}, {2 * c, 2 * c}},
            Rows<T, 1>{{data<T>(&a->out[0])}, {c}}, rows, c, SiluMul<T>{});
  });
}

void cuda_swiglu_dx(Device *d, const KernelArgs *a) {
  int64_t c = cuda_last(&a->in[1]), rows = cuda_rows(&a->in[1]);
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *u = data<const T>(&a->in[0]);
    T *du = data<T>(&a->out[0]);
    by_rows(d, Rows<const T, 3>{{u + c, u, data<const T>(&a->in[1])}, {2 * c, 2 * c, c}},
            Rows<T, 2>{{du + c, du}, {2 * c, 2 * c}}, rows, c, SiluMulDx<T>{});
  });
}

/* ---- gate: a number for each row, or for each head of it ---- */

__device__ inline float opened(int kind, float s) {
  return kind ? fmaxf(s, 0) + log1pf(expf(-fabsf(s))) : sigmoid(s);
}

__device__ inline float opened_slope(int kind, float s) {
  float y = sigmoid(s);
  return kind ? y : y * (1.0f - y);
}

template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    gate_rows(const T *x, const T *s, T *y, int64_t rows, int64_t width, int kind) {
  constexpr int N = EACH_OF<T>;
  int64_t c = column_of(N);
  if (c >= width) return;
  for_rows(0, rows, [&](int64_t r) {
    Pack<T, N> v;
    float by = opened(kind, load(s[r]));
    get<WIDE>(v, x + r * width, c, width);
    UNROLL
    for (int j = 0; j < N; j++) v.v[j] = rounded<T>(load(v.v[j]) * by);
    put<WIDE>(y + r * width, c, width, v);
  });
}

void cuda_gate(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_count(&a->in[1]), width = cuda_count(&a->in[0]) / rows;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    RowGrid g = row_grid(packs_of(width, EACH_OF<T>), rows);
    by_bool(wide_rows<T>(width, a->in[0].p, a->out[0].p), [&](auto wide) {
      LAUNCH((gate_rows<decltype(wide)::is, T>), g.blocks, g.threads, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[1]), data<T>(&a->out[0]),
             rows, width, a->attr->kind);
    });
  });
}

/* A warp for each row. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    gate_ds_rows(const T *x, const T *s, const T *dy, T *ds, int64_t rows, int n,
                 int kind) {
  typedef Group<WIDE, WARP, 0> G;
  constexpr int N = EACH_OF<T>;
  int64_t r = G::row();
  if (r >= rows) return;
  RowOf<T, G> u(x + r * n, n), v(dy + r * n, n);
  float sum = 0, slope = opened_slope(kind, load(s[r]));
  u.each([&](int k, int c, int) {
    Pack<T, N> p = u.at(k, c), q = v.at(k, c);
    UNROLL
    for (int j = 0; j < N; j++) sum += load(p.v[j]) * load(q.v[j]);
  });
  sum = G::sum(sum);
  if (G::place() == 0) ds[r] = rounded<T>(sum * slope);
}

void cuda_gate_ds(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_count(&a->in[1]), n = cuda_count(&a->in[0]) / rows;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide_rows<T>(n, a->in[0].p, a->in[2].p), [&](auto wide) {
      LAUNCH((gate_ds_rows<decltype(wide)::is, T>),
             (unsigned)packs_of(rows, BLOCK / WARP), BLOCK, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[1]), data<const T>(&a->in[2]),
             data<T>(&a->out[0]), rows, (int)n, a->attr->kind);
    });
  });
}
