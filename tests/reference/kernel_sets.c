/* kernel_sets.c - see kernel_sets.h. */
#include "kernel_sets.h"

#include "kernels/cpu/levels.h"
#include "kernels/cuda/cuda.h"

static const Kernel *of_cpu(int op) { return &cpu_set_here()->kernel[op]; }

const KernelSet kernels_cpu = {.name = "cpu",
                               .coarse = kernel_coarse,
                               .kernel = of_cpu,
                               .work = cpu_work,
                               .state = cpu_state,
                               .device = {.vt = &device_cpu},
                               .threads = 2};

#ifdef WEFT_EMULATED_CUDA
static const Kernel *of_cuda(int op) { return &cuda_kernels[op]; }

const KernelSet kernels_cuda = {.name = "cuda",
                                .like = &kernels_cpu,
                                .coarse = kernel_cuda_coarse,
                                .kernel = of_cuda,
                                .work = cuda_work,
                                .state = cuda_state,
                                .threads = 1};

const KernelSet *const kernel_sets[KERNEL_SETS] = {&kernels_cpu, &kernels_cuda};
#else
const KernelSet *const kernel_sets[KERNEL_SETS] = {&kernels_cpu};
#endif
