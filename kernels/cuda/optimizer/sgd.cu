/* sgd.cu - one step of SGD with momentum; see kernels/cpu/optimizer/sgd.c for the
 * formula. */
#include "step_kernels.cuh"

struct Sgd {
  enum { STATES = 1 };
  double momentum, dampening;
  float decay, lr, keep, add;
  bool ahead;

  explicit Sgd(const OpAttr *a)
      : momentum(a->momentum), dampening(a->dampening), decay((float)a->weight_decay),
        ahead(a->nesterov != 0) {}
  __device__ void begin(const double *scal) {
    bool whole = momentum == 0 || scal[SC_STEP] == 1;
    lr = (float)scal[SC_LR];
    keep = (float)momentum;
    add = whole ? 1 : (float)(1 - dampening);
  }
  __device__ float step(float p, float x, float *state) const {
    x += decay * p;
    float m = state[0] = keep * state[0] + add * x;
    return p - lr * (ahead ? x + keep * m : m);
  }
};
OPTIMIZER_KERNELS(sgd, Sgd)
