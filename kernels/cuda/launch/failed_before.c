/* failed_before.c - see failed_before.h. */
#include "failed_before.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* A stream that is captured may not be asked; the call that says whether it is returns
 * such errors, too. */
int cuda_error_of_what_ran(const CudaContext *c) {
  enum cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
  cudaStream_t stream = (cudaStream_t)c->stream;
  cudaError_t r = cudaStreamIsCapturing(stream, &is);
  if (r == cudaSuccess && is == cudaStreamCaptureStatusNone) r = cudaStreamQuery(stream);
  return r == cudaErrorNotReady ? 0 : (int)r;
}

static bool launches_wait(void) {
  const char *set = getenv("CUDA_LAUNCH_BLOCKING");
  return set && atoi(set) != 0;
}

bool cuda_failed_before(CudaContext *c) {
  cudaError_t r = launches_wait() ? cudaSuccess : (cudaError_t)cuda_error_of_what_ran(c);
  if (r == cudaSuccess) return false;
  if (!c->refused[0])
    snprintf(c->refused, sizeof c->refused,
             "a kernel or copy before it failed: %.100s (%.60s); " CUDA_NAME_THE_OP,
             cudaGetErrorString(r), cudaGetErrorName(r));
  return true;
}
