/* kernel_figures.h - what ptxas says that a kernel needs, and what a GPU has. */
#ifndef WEFT_STANDIN_KERNEL_FIGURES_H
#define WEFT_STANDIN_KERNEL_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

/* Of one kernel on one architecture. */
typedef struct KernelFigures {
  size_t fixed; /* bytes of shared memory of its own variables */
  int registers;
} KernelFigures;

#ifdef __cplusplus
extern "C" {
#endif
/* Shared memory that a block may ask for on a GPU of this capability (80). */
size_t shared_most(int capability);
/* By its address in this process; false: nothing is known of it. */
bool kernel_figures(const void *kernel, int capability, KernelFigures *f);
/* The name of a kernel of which this was asked and nothing is known, if there is one. */
bool kernel_without_figures(char *name, size_t n);
#ifdef __cplusplus
}
#endif

#endif
