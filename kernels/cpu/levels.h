/* levels.h - detects the CPU's instruction set and selects the kernels for it.
 *
 * Kernels are compiled once per instruction set; all other code is for any CPU, so a
 * binary runs on other machines. The environment variable WEFT_CPU limits the level, for
 * oneDNN as well, so that one machine can test what others run. A program that is built
 * for one machine alone (WEFT_KERNELS=native) has one set: the others are NULL. */
#ifndef WEFT_LEVELS_H
#define WEFT_LEVELS_H

#include "vm/device/device.h"

struct GemmShape;
struct GemmApi;

typedef enum CpuLevel {
#define LEVEL(name, has, set, bf16, onednn) CPU_##name,
#include "levels.def"
  CPU_LEVELS
} CpuLevel;

/* Compiled once per instruction set. */
typedef struct CpuSet {
  const char *name;
  const Kernel *kernel; /* indexed by OpCode; run == NULL where there is none */
  void (*gemm_plain)(const struct GemmShape *s, int threads, const void *a, const void *b,
                     void *c, bool accumulate);
  /* bf16 products through the library's f32 ones; scratch of gemm_work bytes */
  void (*gemm_blocks)(const struct GemmShape *s, const struct GemmApi *api, int threads,
                      void *work, const void *a, const void *b, void *c, bool accumulate);
} CpuSet;

CpuLevel cpu_best(void); /* of this machine, with kernels if there are any for it */
/* The level in use: the best, or WEFT_CPU. WEFT_EUSAGE if that is unknown or not
 * supported by this machine, or there are no kernels for it; then *out is the best. */
weft_status cpu_level(CpuLevel *out, weft_error *e);
const char *cpu_level_name(CpuLevel l);
bool cpu_level_bf16(CpuLevel l);      /* has bf16 product instructions */
const CpuSet *cpu_set_of(CpuLevel l); /* NULL: it is not linked */
const CpuSet *cpu_set_here(void);     /* of the level in use */

/* gemm_blocks.c */
void gemm_blocks(const struct GemmShape *s, const struct GemmApi *api, int threads,
                 void *work, const void *a, const void *b, void *c, bool accumulate);

#endif
