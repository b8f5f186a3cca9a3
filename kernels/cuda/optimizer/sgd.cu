/* sgd.cu - one step of SGD with momentum; see kernels/cpu/optimizer/sgd.c for the
 * formula. */
#include "step_kernels.cuh"

struct Sgd {
  enum { STATES = 1 };
  struct Rates {
    float lr, keep, add;
  };
  double momentum, dampening, factor;
  float decay;
  bool ahead;

  explicit Sgd(const OpAttr *a)
      : momentum(a->momentum), dampening(a->dampening), factor(attr_lr(a, 1)),
        decay((float)a->weight_decay), ahead(a->nesterov != 0) {}
  __device__ Rates rates(const double *scal) const {
    bool whole = momentum == 0 || scal[SC_STEP] == 1;
    Rates r;
    r.lr = (float)(factor * scal[SC_LR]);
    r.keep = (float)momentum;
    r.add = whole ? 1 : (float)(1 - dampening);
    return r;
  }
  __device__ float step(const Rates &r, float p, float x, float *state) const {
    x += decay * p;
    float m = state[0] = r.keep * state[0] + r.add * x;
    return p - r.lr * (ahead ? x + r.keep * m : m);
  }
};
OPTIMIZER_KERNELS(sgd, Sgd)

struct SgdPlain {
  enum { STATES = 0 };
  struct Rates {
    float lr;
  };
  double factor;
  float decay;

  explicit SgdPlain(const OpAttr *a)
      : factor(attr_lr(a, 1)), decay((float)a->weight_decay) {}
  __device__ Rates rates(const double *scal) const {
    Rates r;
    r.lr = (float)(factor * scal[SC_LR]);
    return r;
  }
  __device__ float step(const Rates &r, float p, float x, float *) const {
    return p - r.lr * (x + decay * p);
  }
};
OPTIMIZER_KERNEL_STATELESS(sgd_plain, SgdPlain)
