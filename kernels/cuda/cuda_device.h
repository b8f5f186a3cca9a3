/* cuda_device.h - shared by the files of the CUDA device (cuda_module.c, cuda_graph.c).
 */
#ifndef WEFT_CUDA_MODULE_H
#define WEFT_CUDA_MODULE_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "kernels/cuda/gemm/cublaslt_int.h"

enum { BESIDE = 4, EVENTS = 1024, KEPT = 4 };

typedef struct CudaDevice {
  CudaContext c; /* shared with the kernels; first member */
  int gpu;       /* its number among those that the process sees */
  cudaStream_t compute, beside[BESIDE];
  cudaEvent_t event[EVENTS];
  GemmChoices choices;
  int at_beside, at_event, nevent;
  cudaError_t first; /* first error of a call without a status */
  /* Held during a capture, and for each launch of a graph: guards everything below. */
  pthread_mutex_t keeping;
  cudaGraphExec_t kept[KEPT];
  bool gave_up;
} CudaDevice;

/* ---- cuda_module.c ---- */
/* Records the first error for the next sync. */
void cuda_note(Device *d, cudaError_t r);
weft_status cuda_failed(const Device *d, cudaError_t r, const char *what, weft_error *e);

/* ---- cuda_launch.c ---- */
cudaError_t cuda_launch_open(CudaDevice *c, const weft_alloc *a);
void cuda_launch_close(CudaDevice *c, const weft_alloc *a);

/* ---- cuda_graph.c ---- */
void cuda_graph_open(CudaDevice *c);
void cuda_graph_close(CudaDevice *c);
extern const DeviceCapture cuda_keeper;

#endif
