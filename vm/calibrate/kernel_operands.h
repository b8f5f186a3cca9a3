/* kernel_operands.h - a kernel without a program: its arguments, and what lies in them.
 */
#ifndef WEFT_KERNEL_OPERANDS_H
#define WEFT_KERNEL_OPERANDS_H

#include "vm/program/program.h"

typedef struct TimedKernel {
  int op;
  KernelArgs args; /* operands without addresses */
} TimedKernel;

/* As the last rank of its group sees it, which has the most to do where that differs. */
TimedKernel timed_instr(const Compiled *c, const Program *p, const Instr *in);
/* False: its integers say how many rows there are, or which; no numbers that are made up
 * take the time of a step. */
bool operands_known(const Program *p, const Instr *in);

/* Bytes of all operands in one block; addresses in such a block; what it holds. */
size_t operands_bytes(const TimedKernel *t);
void operands_place(const TimedKernel *t, KernelArgs *a, char *block);
void operands_fill(const TimedKernel *t, char *block);

#endif
