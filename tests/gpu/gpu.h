/* gpu.h - weft-gpu, what tests/gpu.sh asks of a GPU that the program weft does not say:
 * whether each kernel is right, and how fast it is. It opens the device `cuda` as weft
 * does, so beside the module for tests it has the stand-in. */
#ifndef WEFT_TESTS_GPU_H
#define WEFT_TESTS_GPU_H

#include "vm/device/device.h"

/* Each is a verb: arguments after it; the exit code. */
int gpu_kernels(int argc, char **argv);
int gpu_table(int argc, char **argv);

/* Says what is wrong with `name`; the exit code. */
int gpu_fails(const char *name, weft_status st, const weft_error *e);
double gpu_seconds(void);

/* ---- limits.c: what the GPU can do at most ---- */
typedef struct Limits {
  double flops, bytes;  /* a second: a product of bf16; a copy, read and written */
  int64_t cube, copied; /* of what sizes */
} Limits;
/* A copy of `bytes` that can be launched again and again, so that what the caches hold is
 * not what comes next. */
typedef struct Flush {
  const Kernel *kernel;
  KernelArgs args;
  void *memory;
  size_t bytes;
  double alone; /* seconds of one, when limits_measure has measured it */
} Flush;
weft_status flush_open(Flush *f, Device *d, size_t bytes, weft_error *e);
void flush_close(Flush *f, Device *d);
weft_status limits_measure(Device *d, Flush *f, int64_t cube, double seconds, Limits *out,
                           weft_error *e);
/* Seconds of one launch, of as many as take about `seconds`; with `f` (or NULL) after a
 * flush each, whose own time is taken off. */
weft_status time_launch(Device *d, const Kernel *k, const KernelArgs *a, const Flush *f,
                        double seconds, double *out, weft_error *e);

#endif
