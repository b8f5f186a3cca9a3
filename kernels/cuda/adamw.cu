/* adamw.cu - one optimizer step with decoupled weight decay, in one pass; see
 * kernels/cpu/adamw.c for the formula. adamw_try keeps what it overwrites and adamw_undo
 * puts it back. The scalars are read on the device: the host never waits for them. */
#include "kernel.cuh"
#include "vm/program/program.h"

template <typename S> struct AdamW {
  const float *p, *g;
  const S *m, *v;
  float *p_out;
  S *m_out, *v_out;
  float *kept[3]; /* of p, m, v; or NULL */
  double beta1, beta2, decay;
  float eps;
  bool by_chance;
  uint32_t seed;
};

/* As kernels/cpu/adamw.c has it, to the bit. */
static __device__ uint32_t bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static __device__ uint32_t chance(float g, float m, uint32_t step, uint32_t seed) {
  uint32_t x = bits(m) + bits(g) * 0x9e3779b9u + (step * 0x85ebca6bu ^ seed);
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

/* Rounded up or down by 16 bits of chance: what is left has the bits of a bf16. */
static __device__ float by_chance(float x, uint32_t r) {
  uint32_t u = bits(x), up = (u + (r & 0xffff)) & 0xffff0000u;
  if ((u & 0x7f800000) != 0x7f800000) memcpy(&x, &up, sizeof x);
  return x;
}

static __device__ float average(float old, float x, double beta) {
  float keep = (float)beta, add = (float)(1 - beta);
  return add < 0.5f ? old + add * (x - old) : x + keep * (old - x);
}

template <typename T, typename S>
__global__ void __launch_bounds__(BLOCK)
    adamw_elements(AdamW<S> a, T *copy, const double *scal, int64_t n) {
  bool hold = scal[SC_HOLD] != 0, copies = (const void *)copy != (const void *)a.p_out;
  if (hold && !a.kept[0]) return;
  float clip = (float)scal[SC_CLIP], step = (float)(scal[SC_LR] / scal[SC_BC1]);
  float root = (float)(1.0 / sqrt(scal[SC_BC2]));
  float keep = (float)(1.0 - scal[SC_LR] * a.decay);
  int64_t by = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += by) {
    float p = a.p[i], m = load(a.m[i]), v = load(a.v[i]), x = a.g[i] * clip;
    if (a.kept[0]) a.kept[0][i] = p, a.kept[1][i] = m, a.kept[2][i] = v;
    if (hold) continue;
    m = average(m, x, a.beta1);
    v = average(v, x * x, a.beta2);
    p = p * keep - (m == 0 ? 0 : step * m / (sqrtf(v) * root + a.eps));
    uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
    uint32_t r = a.by_chance ? chance(x, m, number, a.seed) : 0;
    a.m_out[i] = rounded<S>(a.by_chance ? by_chance(m, r) : m);
    a.v_out[i] = rounded<S>(a.by_chance ? by_chance(v, r >> 16) : v);
    a.p_out[i] = p;
    if (copies) copy[i] = rounded<T>(p);
  }
}

template <typename S> static void step_of(Device *d, const KernelArgs *k, bool keeps) {
  int64_t n = cuda_count(&k->in[0]);
  bool chance = k->attr->kind != 0 && k->in[2].dtype == DT_BF16;
  uint64_t seed = k->attr->seed;
  AdamW<S> a = {data<const float>(&k->in[0]),
                data<const float>(&k->in[1]),
                data<const S>(&k->in[2]),
                data<const S>(&k->in[3]),
                data<float>(&k->out[0]),
                data<S>(&k->out[1]),
                data<S>(&k->out[2]),
                {NULL, NULL, NULL},
                k->attr->beta1,
                k->attr->beta2,
                k->attr->weight_decay,
                k->attr->eps,
                chance,
                (uint32_t)(seed ^ seed >> 32) * 0xc2b2ae35u};
  for (int i = 0; i < 3 && keeps; i++) a.kept[i] = data<float>(&k->out[4 + i]);
  by_type(k->out[3].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((adamw_elements<T, S>), blocks_for(n), BLOCK, cuda_stream(d), a,
           data<T>(&k->out[3]), data<const double>(&k->in[4]), n);
  });
}

static void step(Device *d, const KernelArgs *k, bool keeps) {
  by_type(k->in[2].dtype, [&](auto *p) {
    typedef TYPE_OF(p) S;
    step_of<S>(d, k, keeps);
  });
}

void cuda_adamw(Device *d, const KernelArgs *a) { step(d, a, false); }
void cuda_adamw_try(Device *d, const KernelArgs *a) { step(d, a, true); }

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    undo_elements(Pointers<const float, 3> from, Pointers<float, 3> to, T *copy,
                  const double *scal, int64_t n) {
  if (scal[SC_UNDO] == 0) return;
  bool copies = (const void *)copy != (const void *)to.p[0];
  int64_t by = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += by) {
    for (int k = 0; k < 3; k++) to.p[k][i] = from.p[k][i];
    if (copies) copy[i] = rounded<T>(from.p[0][i]);
  }
}

void cuda_adamw_undo(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  Pointers<const float, 3> from;
  Pointers<float, 3> to;
  for (int k = 0; k < 3; k++)
    from.p[k] = data<const float>(&a->in[k]), to.p[k] = data<float>(&a->out[k]);
  by_type(a->out[3].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((undo_elements<T>), blocks_for(n), BLOCK, cuda_stream(d), from, to,
           data<T>(&a->out[3]), data<const double>(&a->in[3]), n);
  });
}
