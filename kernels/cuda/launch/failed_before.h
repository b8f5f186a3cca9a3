/* failed_before.h - whose error it is that a launch hears of: calls return those of what
 * was launched before them. For launches of kernels and of libraries. */
#ifndef WEFT_CUDA_FAILED_BEFORE_H
#define WEFT_CUDA_FAILED_BEFORE_H

#include "kernels/cuda/cuda.h"

/* How to learn which op failed while it ran. */
#define CUDA_NAME_THE_OP                                                                 \
  "CUDA_LAUNCH_BLOCKING=1 in the environment and cuda_graph = false name the op"

/* Whether a launch was refused because something that was launched before it failed:
 * every call says so from then on, and the op is innocent. CudaContext.refused then says
 * that. Not where launches end when their kernels do (CUDA_LAUNCH_BLOCKING): the error is
 * then the op's own. */
bool cuda_failed_before(CudaContext *c);
/* The error of something that has run, a cudaError_t, or 0. */
int cuda_error_of_what_ran(const CudaContext *c);

#endif
