/* lion.cu - one step of Lion; see kernels/cpu/optimizer/lion.c for the formula. */
#include "step_kernels.cuh"

struct Lion {
  enum { STATES = 1 };
  struct Rates {
    float lr, keep;
  };
  double beta1, beta2, decay, factor;

  explicit Lion(const OpAttr *a)
      : beta1(a->beta1), beta2(a->beta2), decay(a->weight_decay), factor(attr_lr(a, 1)) {}
  __device__ Rates rates(const double *scal) const {
    Rates r;
    r.lr = (float)(factor * scal[SC_LR]);
    r.keep = (float)(1.0 - factor * scal[SC_LR] * decay);
    return r;
  }
  __device__ float step(const Rates &r, float p, float x, float *state) const {
    float to = average(state[0], x, beta1);
    state[0] = average(state[0], x, beta2);
    return p * r.keep - (to > 0 ? r.lr : to < 0 ? -r.lr : to);
  }
};
OPTIMIZER_KERNELS(lion, Lion)
