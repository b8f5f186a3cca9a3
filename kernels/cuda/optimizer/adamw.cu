/* adamw.cu - one step of AdamW; see kernels/cpu/optimizer/adamw.c for the formula. */
#include "step_kernels.cuh"

template <bool COUPLED> struct AdamW {
  enum { STATES = 2 };
  struct Rates {
    float by, root, keep;
  };
  double beta1, beta2, decay, factor;
  float eps;

  explicit AdamW(const OpAttr *a)
      : beta1(a->beta1), beta2(a->beta2), decay(a->weight_decay), factor(attr_lr(a, 1)),
        eps(a->eps) {}
  __device__ Rates rates(const double *scal) const {
    Rates r;
    r.by = (float)(factor * scal[SC_LR] / scal[SC_BC1]);
    r.root = (float)(1.0 / sqrt(scal[SC_BC2]));
    r.keep = (float)(1.0 - factor * scal[SC_LR] * decay);
    return r;
  }
  __device__ float step(const Rates &r, float p, float x, float *state) const {
    if (COUPLED) x += (float)decay * p;
    float m = state[0] = average(state[0], x, beta1);
    float v = state[1] = average(state[1], x * x, beta2);
    return (COUPLED ? p : p * r.keep) -
           (m == 0 ? 0 : r.by * m / (sqrtf(v) * r.root + eps));
  }
};
OPTIMIZER_KERNELS(adamw, AdamW<false>)
OPTIMIZER_KERNELS(adam, AdamW<true>)
