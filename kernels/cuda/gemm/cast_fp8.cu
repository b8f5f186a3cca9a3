/* cast_fp8.cu - operands of products as codes of e4m3 or e5m2, rounded as vm/base/fp8.h
 * has it, to the bit, with the dimension of the sum last: rows as they are, or turned by
 * way of shared memory. See fp8_product.h. */
#include "kernels/cuda/rows.cuh"
#include "linear_fp8.cuh"

enum { CODES = 16, SIDE = 64 }; /* codes that a thread stores at once; side of a tile */

/* ---- scales ---- */

struct Fp8Scales {
  const float *amax;
  float *scale, *back;
  int n;
  float most;
};

/* As fp8_scale of fp8.h; grid: scales, operands. */
__global__ void __launch_bounds__(BLOCK)
    find_scales(Fp8Scales a, Fp8Scales b, bool powers) {
  const double least = 1e-12;
  bool second = blockIdx.y > 0;
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= (second ? b.n : a.n)) return;
  double m = (second ? b.amax : a.amax)[i];
  float f = (float)((double)(second ? b.most : a.most) / (m > least ? m : least));
  if (powers) f = fp8_float(fp8_bits(f) & 0x7f800000u);
  (second ? b.scale : a.scale)[i] = f;
  (second ? b.back : a.back)[i] = 1.0f / f;
}

/* ---- codes ---- */

/* What becomes of an element. */
struct Fp8Rule {
  uint8_t *codes;
  uint8_t *exponents; /* of blocks */
  const float *scale;
  int64_t rows, columns, pitch, each, width;
  bool one, e5m2; /* one scale for all rows of a column */

  __device__ __forceinline__ float at(int64_t r, int64_t c) const {
    if (r >= rows || c >= columns) return 0;
    return scale[(one ? 0 : r / each * width) + (width > 1 ? c : 0)];
  }
};

/* Nearest, ties to even, of a value that is cut to the type's largest. */
static __device__ __forceinline__ uint32_t code_of(float x, bool e5m2) {
  const uint32_t shift = e5m2 ? 21 : 20, bias = e5m2 ? 112u << 2 : 120u << 3;
  const float most = fp8_most(e5m2), least = e5m2 ? 0x1p-14f : 0x1p-6f;
  const float steps = e5m2 ? 0x1p7f : 0x1p14f;
  uint32_t u = fp8_bits(x), sign = u >> 24 & 0x80, size = u & 0x7fffffffu;
  float cut = fp8_float(size);
  cut = cut > most ? most : cut;
  uint32_t v = fp8_bits(cut);
  uint32_t normal = ((v + ((1u << (shift - 1)) - 1) + (v >> shift & 1)) >> shift) - bias;
  uint32_t small = fp8_bits(__fadd_rn(cut, steps)) - fp8_bits(steps);
  uint32_t code = cut < least ? small : normal;
  return sign | (size > 0x7f800000u ? 0x7f : code);
}

static __device__ __forceinline__ Pack<uint32_t, 4>
codes_of(const float v[CODES], const float s[CODES], bool e5m2) {
  Pack<uint32_t, 4> out;
  UNROLL
  for (int i = 0; i < 4; i++) {
    uint32_t word = 0;
    UNROLL
    for (int j = 0; j < 4; j++)
      word |= code_of(__fmul_rn(v[4 * i + j], s[4 * i + j]), e5m2) << 8 * j;
    out.v[i] = word;
  }
  return out;
}

/* The factor of a block with this largest magnitude, and the exponent that scales it
 * back, as mx_scale of fp8.h. */
static __device__ __forceinline__ float block_scale(float amax, bool e5m2,
                                                    uint8_t *exponent) {
  uint32_t u = fp8_bits(amax / fp8_most(e5m2));
  uint32_t e = (u >> 23) + ((u & 0x7fffff) != 0);
  *exponent = u >= 0x7f800000u ? 0xff : (uint8_t)e;
  return u >= 0x7f800000u ? fp8_float(0x7fc00000u) : fp8_float((254 - e) << 23);
}

/* Fp8Codes of the elements v at (outer, k) of the copy, of element (r, c) on, `down` or
 * along. Neighbouring lanes have the halves of a block. */
template <bool MX>
static __device__ __forceinline__ void store_codes(const Fp8Rule &o, const float v[CODES],
                                                   int64_t outer, int64_t k, bool is,
                                                   int64_t r, int64_t c, bool down) {
  float s[CODES];
  uint8_t exponent = 0;
  if (MX) {
    float most = 0;
    UNROLL
    for (int j = 0; j < CODES; j++) {
      float x = fabsf(v[j]);
      most = x > most ? x : most;
    }
    float other = __shfl_xor_sync(0xffffffffu, most, 1);
    float f = block_scale(other > most ? other : most, o.e5m2, &exponent);
    UNROLL
    for (int j = 0; j < CODES; j++) s[j] = f;
  } else {
    float f = o.at(r, c);
    UNROLL
    for (int j = 0; j < CODES; j++) s[j] = down && !o.one ? o.at(r + j, c) : f;
  }
  if (!is) return;
  *(Pack<uint32_t, 4> *)(o.codes + outer * o.pitch + k) = codes_of(v, s, o.e5m2);
  if (MX && k % FP8_BLOCK == 0)
    o.exponents[fp8_place(outer, k / FP8_BLOCK, o.pitch)] = exponent;
}

/* A warp has a row. */
template <bool WIDE, bool MX, typename T>
__global__ void __launch_bounds__(BLOCK) cast_rows(const T *x, Fp8Rule o) {
  constexpr int N = EACH_OF<T>;
  int64_t r = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
  if (r >= o.rows) return;
  x += r * o.columns;
  for (int64_t c0 = 0; c0 < o.pitch; c0 += WARP * CODES) {
    int64_t c = c0 + threadIdx.x % WARP * CODES;
    float v[CODES] = {};
    UNROLL
    for (int i = 0; i < CODES / N; i++) {
      Pack<T, N> p = {};
      if (!WIDE || c < o.columns) get<WIDE>(p, x, c + i * N, o.columns);
      UNROLL
      for (int j = 0; j < N; j++) v[i * N + j] = load(p.v[j]);
    }
    store_codes<MX>(o, v, r, c, c < o.pitch, r, 0, false);
  }
}

/* A tile of rows by columns, which become the rows of the copy. */
template <bool WIDE, bool MX, typename T>
__global__ void __launch_bounds__(BLOCK) cast_down(const T *x, Fp8Rule o) {
  constexpr int N = EACH_OF<T>;
  __shared__ T tile[SIDE][SIDE + 4 / sizeof(T)];
  int64_t r0 = (int64_t)blockIdx.x * SIDE, c0 = (int64_t)blockIdx.y * SIDE;
  for (int i = threadIdx.x; i < SIDE * SIDE / N; i += BLOCK) {
    int row = i / (SIDE / N), column = i % (SIDE / N) * N;
    Pack<T, N> p = {};
    if (r0 + row < o.rows && (!WIDE || c0 + column < o.columns))
      get<WIDE>(p, x + (r0 + row) * o.columns, c0 + column, o.columns);
    UNROLL
    for (int j = 0; j < N; j++) tile[row][column + j] = p.v[j];
  }
  __syncthreads();
  int column = threadIdx.x / (SIDE / CODES), run = threadIdx.x % (SIDE / CODES) * CODES;
  int64_t c = c0 + column, k = r0 + run;
  float v[CODES];
  UNROLL
  for (int j = 0; j < CODES; j++) v[j] = load(tile[run + j][column]);
  store_codes<MX>(o, v, c, k, c < o.columns && k < o.pitch, k, c, true);
}

static Fp8Rule rule_of(const Fp8Operand *o, bool mx, char *work) {
  Fp8Rule r = {(uint8_t *)work + o->codes,
               mx ? (uint8_t *)work + o->back : NULL,
               mx ? NULL : (const float *)(work + o->scale),
               o->rows,
               o->columns,
               o->pitch,
               o->each,
               o->width,
               o->groups == 1 && (mx || o->each == o->rows),
               o->e5m2};
  return r;
}

void cuda_cast_scales(Device *d, const Fp8Product *p, const KernelArgs *a) {
  char *work = (char *)a->work;
  Fp8Scales s[2];
  int n = 0;
  for (int i = 0; i < 2; i++) {
    const Fp8Operand *o = &p->of[i];
    s[i] = {data<const float>(&a->in[2 + o->in]), (float *)(work + o->scale),
            (float *)(work + o->back), (int)o->scales, fp8_most(o->e5m2)};
    n = s[i].n > n ? s[i].n : n;
  }
  LAUNCH(find_scales, Dim3((unsigned)(n + BLOCK - 1) / BLOCK, 2), BLOCK, cuda_stream(d),
         s[0], s[1], p->powers);
}

void cuda_cast_codes(Device *d, const Fp8Product *p, const Fp8Operand *o,
                     const KernelArgs *a) {
  bool mx = o->scales == 0;
  Fp8Rule r = rule_of(o, mx, (char *)a->work);
  auto tiles = [](int64_t n) { return (unsigned)((n + SIDE - 1) / SIDE); };
  Dim3 rows((unsigned)((o->rows + BLOCK / WARP - 1) / (BLOCK / WARP)));
  by_type(a->in[o->in].dtype, [&](auto *t) {
    typedef TYPE_OF(t) T;
    const T *x = data<const T>(&a->in[o->in]);
    int each = o->down ? EACH_OF<T> : CODES;
    by_bool(aligned(x) && o->columns % each == 0, [&](auto wide) {
      by_bool(mx, [&](auto blocks) {
        constexpr bool WIDE = decltype(wide)::is, MX = decltype(blocks)::is;
        if (o->down)
          LAUNCH((cast_down<WIDE, MX, T>), Dim3(tiles(o->pitch), tiles(o->columns)),
                 BLOCK, cuda_stream(d), x, r);
        else
          LAUNCH((cast_rows<WIDE, MX, T>), rows, BLOCK, cuda_stream(d), x, r);
      });
    });
  });
}
