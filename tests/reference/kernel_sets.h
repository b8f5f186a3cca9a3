/* kernel_sets.h - the kernels that run here: the CPU's and, in a build with them, those
 * of CUDA on the emulator. */
#ifndef WEFT_TESTS_KERNEL_SETS_H
#define WEFT_TESTS_KERNEL_SETS_H

#include "kernel_run.h"

extern const KernelSet kernels_cpu;
#ifdef WEFT_EMULATED_CUDA
extern const KernelSet kernels_cuda;
/* Attention forward by wgmma, of the problems that it has. */
extern const KernelSet kernels_hopper;
bool kernels_hopper_have(const Problem *p);
enum { KERNEL_SETS = 2 };
#else
enum { KERNEL_SETS = 1 };
#endif
extern const KernelSet *const kernel_sets[KERNEL_SETS];

#endif
