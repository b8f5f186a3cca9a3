/* lion.cu - one step of Lion; see kernels/cpu/optimizer/lion.c for the formula. */
#include "step_kernels.cuh"

struct Lion {
  enum { STATES = 1 };
  double beta1, beta2, decay;
  float lr, keep;

  explicit Lion(const OpAttr *a)
      : beta1(a->beta1), beta2(a->beta2), decay(a->weight_decay) {}
  __device__ void begin(const double *scal) {
    lr = (float)scal[SC_LR];
    keep = (float)(1.0 - scal[SC_LR] * decay);
  }
  __device__ float step(float p, float x, float *state) const {
    float to = average(state[0], x, beta1);
    state[0] = average(state[0], x, beta2);
    return p * keep - (to > 0 ? lr : to < 0 ? -lr : 0);
  }
};
OPTIMIZER_KERNELS(lion, Lion)
