/* kernel_operands.h - a kernel without a program: its arguments, and what lies in them.
 */
#ifndef WEFT_KERNEL_OPERANDS_H
#define WEFT_KERNEL_OPERANDS_H

#include "vm/sim/kernel_work.h"

/* The operand of a kernel of experts whose integers say which rows there are; see
 * routed_rows.c. */
typedef struct Routed {
  uint16_t op; /* OpCode */
  uint8_t operand, what;
} Routed;

typedef struct TimedKernel {
  int op;
  const Routed *routed; /* NULL: no kernel of experts, or its time is the same */
  double filled;        /* of the rows of its buffer */
  uint32_t passed;      /* operands, then results, a bit each: see Places */
  KernelArgs args;      /* operands without addresses */
} TimedKernel;

/* Where operands lie. In a step a kernel finds in the cache what the one before it has
 * written, and not weights, gradients and states, as there are those of other layers
 * between: numbers that bodies of programs pass on are in places that all kernels share,
 * those that they read in one for each type, which nobody writes. */
enum { PASSED_TYPES = 3 };
typedef struct Places {
  char *own, *read[PASSED_TYPES], *written;
} Places;
/* Bytes of the shared places. */
typedef struct PassedBytes {
  size_t read[PASSED_TYPES], written;
} PassedBytes;

/* As the last rank of its group sees it, which has the most to do where that differs. */
TimedKernel timed_instr(const Compiled *c, const Program *p, const Instr *in,
                        const EvenList *even);

/* ---- routed_rows.c ---- */
const Routed *routed_of(int op);
/* The operand or result that has rows of experts. */
const KTensor *routed_buffer(const TimedKernel *t);
/* All experts get the same rows. */
void routed_fill(const TimedKernel *t, int32_t *to);

/* Bytes of its own operands in one block; addresses; what its own block holds. */
size_t operands_bytes(const TimedKernel *t);
void operands_place(const TimedKernel *t, KernelArgs *a, const Places *to);
void operands_fill(const TimedKernel *t, char *own);
/* Of shared places: room for this kernel, too; what the one of a type holds. */
void passed_bytes(const TimedKernel *t, PassedBytes *most);
void passed_fill(int type, char *to, size_t bytes);
/* Small numbers, in a type that has them; else zeros. */
void numbers_fill(DType t, void *to, size_t bytes);
/* What a step begins with; to[n]. */
void scalars_fill(double *to, size_t n);
/* Ids below `rows`, over all of them. */
void ids_fill(int32_t *to, size_t n, int64_t rows);

#endif
