/* attention_hopper.h - attention forward by the tensor cores of compute capability 9.0
 * (attention_hopper.cu), and who takes it. A build without code for 9.0 has
 * attention_hopper_none.c instead. */
#ifndef WEFT_CUDA_ATTENTION_HOPPER_H
#define WEFT_CUDA_ATTENTION_HOPPER_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of Kernel state of a forward op, behind that of cuDNN where that may be taken. */
enum { HOPPER_STATE = 64 };

/* Launches attention or attention_part; false if there is no such kernel for it. */
bool cuda_attention_hopper(Device *d, const KernelArgs *a);
/* Whether there is one. */
bool cuda_attention_hopper_has(const KernelArgs *a);

/* ---- attention_hopper_choice.c ---- */
/* When a program is loaded: compares the kernel with mma.sync on a GPU that has it. What
 * differs, or finds no memory for that, is left to mma.sync, and Device.fallback says so.
 * An attention that ranks of tp repeat always is, since not all may have what one has. */
weft_status hopper_prepare(Device *d, int op, KernelArgs *a, weft_error *e);
/* What that came to. */
bool hopper_takes(const KernelArgs *a);
void hopper_close(Device *d);

#ifdef __cplusplus
}
#endif

#endif
