/* kernel_sets.c - see kernel_sets.h. */
#include "kernel_sets.h"

#include <stdlib.h>

#include "kernels/cpu/levels.h"
#include "kernels/cuda/attention/attention_hopper.h"

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

static void run_hopper(Device *d, const KernelArgs *a) {
  if (!cuda_attention_hopper(d, a)) abort(); /* not asked for others */
}
static const Kernel hopper = {.run = run_hopper};
static const Kernel *of_hopper(int op) { return &hopper; }

const KernelSet kernels_hopper = {.name = "wgmma",
                                  .like = &kernels_cpu,
                                  .coarse = kernel_cuda_coarse,
                                  .kernel = of_hopper,
                                  .work = cuda_work,
                                  .threads = 1};

bool kernels_hopper_have(const Problem *p) {
  KernelArgs a = {.attr = &p->attr, .nin = p->nin};
  if (p->op != OP_attention && p->op != OP_attention_part) return false;
  a.in[0] = kernel_tensor(&p->in[0]);
  return cuda_attention_hopper_has(&a);
}

const KernelSet *const kernel_sets[KERNEL_SETS] = {&kernels_cpu, &kernels_cuda};
#else
const KernelSet *const kernel_sets[KERNEL_SETS] = {&kernels_cpu};
#endif
