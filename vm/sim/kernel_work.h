/* kernel_work.h - what a kernel of a program does, as its time depends on it: its class,
 * its sizes, its arithmetic and the bytes that it moves. */
#ifndef WEFT_KERNEL_WORK_H
#define WEFT_KERNEL_WORK_H

#include "vm/program/expert_rows.h"

typedef enum {
#define WORK(ID, name, doc) WORK_##ID,
#include "work_class.def"
  WORK_N
} WorkClass;
extern const char *const work_name[WORK_N];

typedef struct KernelWork {
  WorkClass kind;
  DType dtype;
  bool fp8; /* a product of operands that it rounds to fp8 before */
  /* Products: rows of the result, its columns, what is summed over. Attention: queries,
   * keys, heads of all sequences, size of a head. */
  double m, n, k, heads;
  double flops, bytes; /* causal attention: of the half that counts */
  double added;        /* bytes of a sum in memory that it adds to: these are read, too */
  double cell;         /* bytes that are read and written for a number of the result */
  double between;      /* bytes that pass through memory between its products, and */
  double launches;     /* what it launches beside one kernel */
} KernelWork;

/* Bytes of a collective: of exchanges of experts those of rows that are there. */
double move_bytes(const Instr *in, const Operand *o, const EvenList *even);

KernelWork kernel_work(const Program *p, const Instr *in, const EvenList *even);

#endif
