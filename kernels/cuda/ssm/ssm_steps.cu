/* ssm_steps.cu - the steps of heads with a state, and how much of it a step leaves: d,
 * and a = -exp(A) d; their gradients. A step at a limit has none. */
#include "kernels/cuda/columns.cuh"

struct Limits {
  float least, most; /* most 0: there is none */
};
struct Step {
  float d, slope;
};

static __device__ __forceinline__ Step step_of(float z, const Limits &l) {
  float d = z > 20.0f ? z : log1pf(expf(z));
  if (d < l.least) return Step{l.least, 0.0f};
  if (l.most != 0.0f && d > l.most) return Step{l.most, 0.0f};
  return Step{d, sigmoid(z)};
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    steps_of(const T *s, const T *b, const T *A, float *d, float *a, int64_t n, int heads,
             Limits l) {
  EACH_ELEMENT(i, n) {
    int h = (int)(i % heads);
    Step x = step_of(load(s[i]) + load(b[h]), l);
    d[i] = x.d;
    a[i] = -expf(load(A[h])) * x.d;
  }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    steps_dx(const T *s, const T *b, const T *A, const float *dd, const float *da, T *ds,
             int64_t n, int heads, Limits l) {
  EACH_ELEMENT(i, n) {
    int h = (int)(i % heads);
    Step x = step_of(load(s[i]) + load(b[h]), l);
    ds[i] = rounded<T>((dd[i] - expf(load(A[h])) * da[i]) * x.slope);
  }
}

/* db, dA. */
template <typename T> struct StepsTerm {
  const T *s, *b, *A;
  const float *dd, *da;
  Limits l;
  template <bool WIDE, int N>
  __device__ void add(int64_t r, int64_t c, int64_t width, float (&to)[2][N]) const {
    UNROLL
    for (int j = 0; j < N; j++) {
      if (c + j >= width) continue;
      int64_t i = r * width + c + j;
      Step x = step_of(load(s[i]) + load(b[c + j]), l);
      float left = -expf(load(A[c + j])) * da[i];
      to[0][j] += (dd[i] + left) * x.slope;
      to[1][j] += left * x.d;
    }
  }
};

static Limits limits_of(const KernelArgs *a) {
  return Limits{a->attr->eps, a->attr->limit};
}

void cuda_ssm_steps(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((steps_of<T>), blocks_for(n), BLOCK, cuda_stream(d), data<const T>(&a->in[0]),
           data<const T>(&a->in[1]), data<const T>(&a->in[2]), data<float>(&a->out[0]),
           data<float>(&a->out[1]), n, (int)cuda_last(&a->in[0]), limits_of(a));
  });
}

void cuda_ssm_steps_dx(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((steps_dx<T>), blocks_for(n), BLOCK, cuda_stream(d), data<const T>(&a->in[0]),
           data<const T>(&a->in[1]), data<const T>(&a->in[2]),
           data<const float>(&a->in[3]), data<const float>(&a->in[4]),
           data<T>(&a->out[0]), n, (int)cuda_last(&a->in[0]), limits_of(a));
  });
}

void cuda_ssm_steps_dw(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<T, 2>(d, a, cuda_rows(&a->in[0]), cuda_last(&a->in[0]), false,
                      StepsTerm<T>{data<const T>(&a->in[0]), data<const T>(&a->in[1]),
                                   data<const T>(&a->in[2]), data<const float>(&a->in[3]),
                                   data<const float>(&a->in[4]), limits_of(a)});
  });
}
