/* adamw_8bit.cu - one step of AdamW whose averages are blocks of codes of 8 bits; see
 * kernels/cpu/optimizer/adamw_8bit.c, whose bits these are: no product is fused with a
 * sum unless it says so. A block of threads steps a block of codes. */
#include "kernels/cuda/kernel.cuh"
#include "vm/base/dynamic8.h"
#include "vm/program/program.h"

static __device__ const float unsigned_values[] = {
#define VALUE(x) x,
#include "vm/base/dynamic8.def"
};
static __device__ const float positive_values[] = {
#define SCALE(x) x,
#include "vm/base/nf4.def"
};

static __device__ float value_of(int code, bool is_signed) {
  if (!is_signed) return unsigned_values[code];
  if (code == 127) return 0;
  return code < 127 ? -positive_values[126 - code] : positive_values[code - 128];
}

static __device__ float middle_of(int code, bool is_signed) {
  return __fmul_rn(0.5f,
                   __fadd_rn(value_of(code, is_signed), value_of(code + 1, is_signed)));
}

static __device__ unsigned char code_of(float x, bool is_signed) {
  const float last = 65535;
  float at = __fmul_rn(__fadd_rn(fminf(fmaxf(x, -1.0f), 1.0f), 1.0f), 0.5f);
  at = __fadd_rn(__fmul_rn(at, last), 0.5f);
  float point = __fadd_rn(__fmul_rn(2.0f, (float)(int)at) / last, -1.0f);
  int k = 0;
  for (int half = DYNAMIC8_CODES / 2; half; half /= 2)
    if (middle_of(k + half - 1, is_signed) < point) k += half;
  return (unsigned char)k;
}

/* A state: blocks, or f32. */
struct State {
  const void *from;
  void *to, *kept;
};

struct Step {
  double beta1, beta2, decay, factor, eps;
  State state[2];
  bool in_bits;
};

static __device__ float state_at(const Step &s, int k, int64_t i) {
  if (!s.in_bits) return ((const float *)s.state[k].from)[i];
  const Dynamic8 *b = (const Dynamic8 *)s.state[k].from + i / DYNAMIC8_BLOCK;
  return __fmul_rn(value_of(b->code[i % DYNAMIC8_BLOCK], k == 0), b->largest);
}

/* By all threads of a block, those past the end, too, with 0. */
static __device__ void store_state(const Step &s, int k, int64_t i, bool has, float x) {
  if (!s.in_bits) {
    if (has) ((float *)s.state[k].to)[i] = x;
    return;
  }
  Dynamic8 *b = (Dynamic8 *)s.state[k].to + i / DYNAMIC8_BLOCK;
  float largest = block_sum<BLOCK>(isnan(x) ? INFINITY : fabsf(x), true);
  unsigned char code = largest == 0 ? 0 : code_of(__fmul_rn(x, 1.0f / largest), k == 0);
  b->code[i % DYNAMIC8_BLOCK] = code;
  if (i % DYNAMIC8_BLOCK == 0) b->largest = largest;
}

static __device__ void keep_state(const Step &s, int k, int64_t i, bool has) {
  if (!s.state[k].kept) return;
  if (!s.in_bits) {
    if (has) ((float *)s.state[k].kept)[i] = ((const float *)s.state[k].from)[i];
    return;
  }
  int64_t block = i / DYNAMIC8_BLOCK, in = i % DYNAMIC8_BLOCK;
  Dynamic8 *to = (Dynamic8 *)s.state[k].kept + block;
  const Dynamic8 *from = (const Dynamic8 *)s.state[k].from + block;
  to->code[in] = from->code[in];
  if (in == 0) to->largest = from->largest;
}

/* p of p, a clipped gradient and the new averages. */
static __device__ float stepped(const Step &s, const double *scal, float p, float x,
                                float m, float v) {
  double lr = s.factor * scal[SC_LR], root = sqrt(scal[SC_BC2]);
  float keep = __fmul_rn(p, (float)(1.0 - lr * s.decay));
  if (!s.in_bits) {
    float by = (float)(-lr * root / scal[SC_BC1]), eps = (float)(s.eps * root);
    return fmaf(m / __fadd_rn(sqrtf(v), eps), by, keep);
  }
  if (p == 0 && x == 0) return 0;
  float down = __fadd_rn(sqrtf(v) / (float)root, (float)s.eps);
  return __fadd_rn(keep, __fmul_rn((float)(-lr / scal[SC_BC1]), m) / down);
}

static_assert(BLOCK == DYNAMIC8_BLOCK, "a thread has an element of a block");

template <typename P, typename T>
__global__ void __launch_bounds__(BLOCK)
    step_in_8bit(const Step s, const P *p, const void *g, bool half, P *p_out, P *kept,
                 T *copy, const double *scal, int64_t n) {
  bool hold = scal[SC_HOLD] != 0, copies = (const void *)copy != (const void *)p_out;
  if (hold && !kept) return;
  float clip = (float)scal[SC_CLIP];
  for (int64_t at = (int64_t)blockIdx.x * BLOCK; at < n;
       at += (int64_t)gridDim.x * BLOCK) {
    int64_t i = at + threadIdx.x;
    bool has = i < n;
    for (int k = 0; k < 2; k++) keep_state(s, k, i, has);
    if (kept && has) kept[i] = p[i];
    if (hold) continue;
    float was = has ? load(p[i]) : 0, x = 0, m = 0, v = 0;
    if (has) {
      float gi = half ? load(((const bfloat *)g)[i]) : ((const float *)g)[i];
      x = __fmul_rn(gi, clip);
      m = fmaf(x, (float)(1.0 - s.beta1), __fmul_rn(state_at(s, 0, i), (float)s.beta1));
      v = fmaf(__fmul_rn(x, (float)(1.0 - s.beta2)), x,
               __fmul_rn(state_at(s, 1, i), (float)s.beta2));
      float to = stepped(s, scal, was, x, m, v);
      p_out[i] = rounded<P>(to);
      if (copies) copy[i] = rounded<T>(sizeof(P) == 2 ? load(p_out[i]) : to);
    }
    __syncthreads(); /* all have read the block's largest magnitude */
    store_state(s, 0, i, has, m);
    store_state(s, 1, i, has, v);
  }
}

static void step(Device *d, const KernelArgs *k, bool keeps) {
  int64_t n = cuda_count(&k->in[0]);
  Step s = {};
  s.beta1 = k->attr->beta1, s.beta2 = k->attr->beta2;
  s.decay = k->attr->weight_decay, s.factor = attr_lr(k->attr, 1);
  s.eps = k->attr->epsilon;
  s.in_bits = k->in[2].dtype == DT_Q8;
  for (int i = 0; i < 2; i++) {
    s.state[i].from = k->in[2 + i].p, s.state[i].to = k->out[1 + i].p;
    s.state[i].kept = keeps ? k->out[5 + i].p : NULL;
  }
  by_type(k->in[0].dtype, [&](auto *p) {
    by_type(k->out[3].dtype, [&](auto *c) {
      typedef TYPE_OF(p) P;
      typedef TYPE_OF(c) T;
      P *kept = keeps ? data<P>(&k->out[4]) : NULL;
      LAUNCH((step_in_8bit<P, T>), blocks_for(n), BLOCK, cuda_stream(d), s,
             data<const P>(&k->in[0]), data<const void>(&k->in[1]),
             k->in[1].dtype == DT_BF16, data<P>(&k->out[0]), kept, data<T>(&k->out[3]),
             data<const double>(&k->in[4]), n);
    });
  });
}

void cuda_adamw_8bit(Device *d, const KernelArgs *a) { step(d, a, false); }
void cuda_adamw_8bit_try(Device *d, const KernelArgs *a) { step(d, a, true); }
