/* step_kernels.cuh - what the steps of optimizers share; operands and results are those
 * of kernels/cpu/optimizer/step_kernels.h, and bits of chance are the same. An optimizer
 * is a rule: a type with a number of states, made of attributes, whose rates() reads the
 * scalars and whose step() gives p of p and of a clipped gradient, and changes the
 * states. The scalars are read on the device: the host never waits for them. A rule is an
 * argument of the launch, whose bytes are fingerprinted (queue.h): all of its members
 * are set by the host, and what the scalars give is in Rates. */
#ifndef WEFT_CUDA_STEP_KERNELS_CUH
#define WEFT_CUDA_STEP_KERNELS_CUH

#include "kernels/cuda/rows.cuh"
#include "vm/program/program.h"

static __device__ uint32_t bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static inline __device__ uint32_t chance(float g, float m, uint32_t step, uint32_t seed) {
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

static inline __device__ float average(float old, float x, double beta) {
  float keep = (float)beta, add = (float)(1 - beta);
  return add < 0.5f ? old + add * (x - old) : x + keep * (old - x);
}

/* P: type of the parameters, S: of the states. The type of gradients is the same for all
 * threads, so that a branch on it costs next to nothing. */
template <typename P, typename S, int N> struct Stepped {
  const P *p;
  const void *g;
  const S *state[N + !N]; /* there are no arrays of no elements */
  P *p_out;
  S *state_out[N + !N];
  P *kept; /* what p was, or NULL */
  S *state_kept[N + !N];
  bool half, by_chance; /* of gradients: bf16; of what is not f32 */
  uint32_t seed;
};

/* Rounded to the type, by chance if that has 16 bits. */
template <typename T> static __device__ T rounded_by(float x, bool chance, uint32_t r) {
  return rounded<T>(chance && sizeof(T) == 2 ? by_chance(x, r) : x);
}

/* STEP_EACH elements a thread at a time. WIDE: all of them are whole vectors. */
enum { STEP_EACH = 4 };
template <bool WIDE, typename Rule, typename T, typename P, typename S>
__global__ void __launch_bounds__(BLOCK)
    step_elements(const Rule rule, Stepped<P, S, Rule::STATES> a, T *copy,
                  const double *scal, int64_t n) {
  constexpr int N = Rule::STATES, W = STEP_EACH;
  bool hold = scal[SC_HOLD] != 0, copies = (const void *)copy != (const void *)a.p_out;
  if (hold && !a.kept) return;
  const typename Rule::Rates rates = rule.rates(scal);
  float clip = (float)scal[SC_CLIP];
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
  int64_t by = (int64_t)gridDim.x * BLOCK * W;
  for (int64_t i = column_of(W); i < n; i += by) {
    Pack<P, W> p;
    Pack<S, W> s[N + !N];
    Pack<float, W> g;
    Pack<T, W> to;
    get<WIDE>(p, a.p, i, n);
    if (a.half) {
      Pack<bfloat, W> half;
      get<WIDE>(half, (const bfloat *)a.g, i, n);
      UNROLL
      for (int j = 0; j < W; j++) g.v[j] = load(half.v[j]);
    } else {
      get<WIDE>(g, (const float *)a.g, i, n);
    }
    UNROLL
    for (int k = 0; k < N; k++) get<WIDE>(s[k], a.state[k], i, n);
    if (a.kept) {
      put<WIDE>(a.kept, i, n, p);
      UNROLL
      for (int k = 0; k < N; k++) put<WIDE>(a.state_kept[k], i, n, s[k]);
    }
    if (hold) continue;
    UNROLL
    for (int j = 0; j < W; j++) {
      float was = load(p.v[j]), x = g.v[j] * clip, state[N + !N];
      UNROLL
      for (int k = 0; k < N; k++) state[k] = load(s[k].v[j]);
      float now = rule.step(rates, was, x, state);
      uint32_t r = N && a.by_chance ? chance(x, state[0], number, a.seed) : 0;
      UNROLL
      for (int k = 0; k < N; k++)
        s[k].v[j] = rounded_by<S>(state[k], a.by_chance, r >> 16 * k);
      r = a.by_chance ? chance(g.v[j], was, number, a.seed) : 0;
      p.v[j] = rounded_by<P>(now, a.by_chance, r);
      to.v[j] = rounded<T>(sizeof(P) == 2 ? load(p.v[j]) : now);
    }
    UNROLL
    for (int k = 0; k < N; k++) put<WIDE>(a.state_out[k], i, n, s[k]);
    put<WIDE>(a.p_out, i, n, p);
    if (copies) put<WIDE>(copy, i, n, to);
  }
}

template <typename Rule, typename P, typename S>
static void step_of(Device *d, const KernelArgs *k, bool keeps) {
  constexpr int N = Rule::STATES;
  int64_t n = cuda_count(&k->in[0]);
  uint64_t seed = k->attr->seed;
  Stepped<P, S, N> a;
  a.p = data<const P>(&k->in[0]), a.g = data<const void>(&k->in[1]);
  a.p_out = data<P>(&k->out[0]);
  a.half = k->in[1].dtype == DT_BF16;
  a.by_chance = k->attr->kind != 0;
  a.seed = (uint32_t)(seed ^ seed >> 32) * 0xc2b2ae35u;
  for (int i = 0; i < N; i++) {
    a.state[i] = data<const S>(&k->in[2 + i]);
    a.state_out[i] = data<S>(&k->out[1 + i]);
  }
  a.kept = keeps ? data<P>(&k->out[2 + N]) : NULL;
  for (int i = 0; i < N; i++)
    a.state_kept[i] = keeps ? data<S>(&k->out[3 + N + i]) : NULL;
  bool wide = wide_rows<float>(n, a.p, a.g, a.p_out, a.kept, k->out[1 + N].p);
  for (int i = 0; i < N; i++)
    wide = wide && wide_rows<float>(n, a.state[i], a.state_out[i], a.state_kept[i]);
  by_type(k->out[1 + N].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide, [&](auto known) {
      LAUNCH((step_elements<decltype(known)::is, Rule, T, P, S>),
             blocks_for(n, BLOCK * STEP_EACH), BLOCK, cuda_stream(d), Rule(k->attr), a,
             data<T>(&k->out[1 + N]), data<const double>(&k->in[2 + N]), n);
    });
  });
}

template <typename Rule> static void step(Device *d, const KernelArgs *k, bool keeps) {
  by_type(k->in[0].dtype, [&](auto *p) {
    by_type(k->in[2].dtype,
            [&](auto *s) { step_of<Rule, TYPE_OF(p), TYPE_OF(s)>(d, k, keeps); });
  });
}

/* The kernels of NAME and NAME_try. */
#define OPTIMIZER_KERNELS(name, Rule)                                                    \
  void cuda_##name(Device *d, const KernelArgs *a) { step<Rule>(d, a, false); }          \
  void cuda_##name##_try(Device *d, const KernelArgs *a) { step<Rule>(d, a, true); }

/* The kernel of NAME, which has no states. */
#define OPTIMIZER_KERNEL_STATELESS(name, Rule)                                           \
  void cuda_##name(Device *d, const KernelArgs *a) {                                     \
    by_type(a->in[0].dtype,                                                              \
            [&](auto *p) { step_of<Rule, TYPE_OF(p), TYPE_OF(p)>(d, a, false); });       \
  }

#endif
