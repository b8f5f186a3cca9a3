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
  KernelArgs args;      /* operands without addresses */
} TimedKernel;

/* As the last rank of its group sees it, which has the most to do where that differs. */
TimedKernel timed_instr(const Compiled *c, const Program *p, const Instr *in,
                        const EvenList *even);

/* ---- routed_rows.c ---- */
const Routed *routed_of(int op);
/* The operand or result that has rows of experts. */
const KTensor *routed_buffer(const TimedKernel *t);
/* All experts get the same rows. */
void routed_fill(const TimedKernel *t, int32_t *to);

/* Bytes of all operands in one block; addresses in such a block; what it holds. */
size_t operands_bytes(const TimedKernel *t);
void operands_place(const TimedKernel *t, KernelArgs *a, char *block);
void operands_fill(const TimedKernel *t, char *block);

#endif
