/* linear_fp8.cu - linear_fp8 and its gradients: casts, then the product, through cuBLASLt
 * or, where a kernel runs without it, by plain tiles with f32 sums in one order. */
#include "linear_fp8.cuh"
#include "multiply.cuh"

/* An operand of multiply_tile: codes with strides of rows and columns, one of which is
 * 1, that of the sum. */
struct Fp8Codes {
  const uint8_t *p;
  int64_t row, col;
  const float *back;
  const uint8_t *exponents; /* of blocks; NULL: `back` has the scales */
  int64_t pitch, each, width;
  bool e5m2, down;

  __device__ float value(uint32_t code) const {
    const int fraction = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
    uint32_t size = code & 0x7f;
    float x = fp8_float((size << (23 - fraction)) + ((uint32_t)(127 - bias) << 23));
    if (size >> fraction == 0) x = (float)size * (e5m2 ? 0x1p-16f : 0x1p-9f);
    if (e5m2 ? size >= 0x7c : size == 0x7f) x = fp8_float(0x7fc00000u);
    return code & 0x80 ? -x : x;
  }
  __device__ float factor(int64_t outer, int64_t k) const {
    if (!exponents) {
      int64_t r = down ? k : outer, c = down ? outer : k;
      return back[r / each * width + (width > 1 ? c : 0)];
    }
    uint32_t e = exponents[fp8_place(outer, k / FP8_BLOCK, pitch)];
    if (e == 0xff) return fp8_float(0x7fc00000u);
    return e ? fp8_float(e << 23) : 0x1p-127f;
  }
  __device__ float at(int64_t y, int64_t x) const {
    int64_t outer = col == 1 ? y : x, k = col == 1 ? x : y;
    return value(p[y * row + x * col]) * factor(outer, k);
  }
};

static Fp8Codes codes_of(const Fp8Operand *o, const char *work, bool first) {
  bool mx = o->scales == 0;
  Fp8Codes c = {(const uint8_t *)work + o->codes,
                first ? o->pitch : 1,
                first ? 1 : o->pitch,
                mx ? NULL : (const float *)(work + o->back),
                mx ? (const uint8_t *)work + o->back : NULL,
                o->pitch,
                o->each,
                o->width,
                o->e5m2,
                o->down};
  return c;
}

template <typename TO>
__global__ void __launch_bounds__(BLOCK)
    multiply_codes(Fp8Codes a, Fp8Codes b, TO *c, int64_t m, int64_t n, int64_t k,
                   bool add) {
  multiply_tile(a, b, c, m, n, k, (int64_t)blockIdx.y * TILE_M,
                (int64_t)blockIdx.x * TILE_N, add);
}

static void product(Device *d, int op, const KernelArgs *a) {
  Fp8Product p = cuda_fp8_product(op, a);
  if (p.of[0].scales) cuda_cast_scales(d, &p, a);
  for (int i = 0; i < 2; i++) cuda_cast_codes(d, &p, &p.of[i], a);
  if (cuda_multiply_fp8_lt(d, &p, a)) return;
  int64_t m = p.of[0].outer, n = p.of[1].outer;
  Dim3 grid((unsigned)((n + TILE_N - 1) / TILE_N), (unsigned)((m + TILE_M - 1) / TILE_M));
  const char *work = (const char *)a->work;
  by_type(a->out[0].dtype, [&](auto *t) {
    typedef TYPE_OF(t) TO;
    LAUNCH((multiply_codes<TO>), grid, BLOCK, cuda_stream(d),
           codes_of(&p.of[0], work, true), codes_of(&p.of[1], work, false),
           data<TO>(&a->out[0]), m, n, p.of[0].k, a->accumulate);
  });
}

void cuda_linear_fp8(Device *d, const KernelArgs *a) { product(d, OP_linear_fp8, a); }
void cuda_linear_fp8_dx(Device *d, const KernelArgs *a) {
  product(d, OP_linear_fp8_dx, a);
}
void cuda_linear_fp8_dw(Device *d, const KernelArgs *a) {
  product(d, OP_linear_fp8_dw, a);
}
