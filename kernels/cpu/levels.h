/* levels.h - which instructions the CPU has, and the kernels that suit them.
 *
 * The kernels are compiled once per set of instructions; what is not a kernel is for any
 * CPU, so that a binary which was built here runs elsewhere. The environment variable
 * WEFT_CPU holds the level down, for oneDNN as well, so that one machine can test what
 * others run. */
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

/* What is compiled per set of instructions. */
typedef struct CpuSet {
  const char *name;
  const Kernel *kernel; /* indexed by OpCode; run == NULL where there is none */
  void (*gemm_plain)(const struct GemmShape *s, int threads, const void *a, const void *b,
                     void *c, bool accumulate);
  /* bf16 products through the library's f32 ones; scratch of gemm_work bytes */
  void (*gemm_blocks)(const struct GemmShape *s, const struct GemmApi *api, int threads,
                      void *work, const void *a, const void *b, void *c, bool accumulate);
} CpuSet;

CpuLevel cpu_best(void); /* of this machine */
/* The one in use: the best, or WEFT_CPU. WEFT_EUSAGE if that names none or one that this
 * machine has not; then *out is the best. */
weft_status cpu_level(CpuLevel *out, weft_error *e);
const char *cpu_level_name(CpuLevel l);
bool cpu_level_bf16(CpuLevel l); /* has units for products of bf16 */
const CpuSet *cpu_set_of(CpuLevel l);
const CpuSet *cpu_set_here(void); /* of the level in use */

/* gemm_blocks.c */
void gemm_blocks(const struct GemmShape *s, const struct GemmApi *api, int threads,
                 void *work, const void *a, const void *b, void *c, bool accumulate);

#endif
