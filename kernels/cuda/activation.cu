/* activation.cu - gelu, silu, relu, silu_mul and their gradients, element by element. */
#include "kernel.cuh"

static __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* ---- gelu ---- kind 0: x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3);
 * kind 1: x * Phi(x) */

static __device__ float normal_cdf(float x) { return 0.5f * erfcf(-0.70710678f * x); }

static __device__ float gelu_slope(float x, int kind) {
  if (kind) return normal_cdf(x) + x * 0.3989422804f * expf(-0.5f * x * x);
  float s = sigmoid(1.595769122f * (x + 0.044715f * x * x * x));
  return s + x * s * (1.0f - s) * 1.595769122f * (1.0f + 3 * 0.044715f * x * x);
}

struct Gelu {
  int kind;
  __device__ void operator()(const float *in, float *out) const {
    float x = in[0];
    out[0] = x * (kind ? normal_cdf(x)
                       : sigmoid(1.595769122f * (x + 0.044715f * x * x * x)));
  }
};
struct GeluDx {
  int kind;
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[1] * gelu_slope(in[0], kind);
  }
};

/* ---- silu, relu ---- */

static __device__ __forceinline__ float silu_slope(float x, float s) {
  return s * (1.0f + x * (1.0f - s));
}

struct Silu {
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[0] * sigmoid(in[0]);
  }
};
struct SiluDx {
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[1] * silu_slope(in[0], sigmoid(in[0]));
  }
};
/* A NaN passes through, so that it is found where it arose. */
struct Relu {
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[0] < 0 ? 0 : in[0];
  }
};
struct ReluDx {
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[0] > 0 ? in[1] : 0;
  }
};
struct SiluMul {
  __device__ void operator()(const float *in, float *out) const {
    out[0] = in[0] * sigmoid(in[0]) * in[1];
  }
};
struct SiluMulDx {
  __device__ void operator()(const float *in, float *out) const {
    float s = sigmoid(in[0]);
    out[0] = in[2] * in[1] * silu_slope(in[0], s);
    out[1] = in[2] * in[0] * s;
  }
};

void cuda_gelu(Device *d, const KernelArgs *a) { map<1, 1>(d, a, Gelu{a->attr->kind}); }
void cuda_gelu_dx(Device *d, const KernelArgs *a) {
  map<2, 1>(d, a, GeluDx{a->attr->kind});
}
void cuda_silu(Device *d, const KernelArgs *a) { map<1, 1>(d, a, Silu{}); }
void cuda_silu_dx(Device *d, const KernelArgs *a) { map<2, 1>(d, a, SiluDx{}); }
void cuda_relu(Device *d, const KernelArgs *a) { map<1, 1>(d, a, Relu{}); }
void cuda_relu_dx(Device *d, const KernelArgs *a) { map<2, 1>(d, a, ReluDx{}); }
void cuda_silu_mul(Device *d, const KernelArgs *a) { map<2, 1>(d, a, SiluMul{}); }
void cuda_silu_mul_dx(Device *d, const KernelArgs *a) { map<3, 2>(d, a, SiluMulDx{}); }
