/* expert_rows.h - rows that experts have in buffers with room for more, and the bytes
 * that kernels move of them. */
#ifndef WEFT_EXPERT_ROWS_H
#define WEFT_EXPERT_ROWS_H

#include "program.h"

/* How many rows the experts of a program get if all get the same, for each number of rows
 * that buffers have. */
typedef struct EvenRows {
  int64_t rows;
  double even; /* the share of them that has something in it */
} EvenRows;
typedef VEC(EvenRows) EvenList;
/* Follows the kernels of a body in their order. `choices`, 0 at its beginning: those of
 * all tokens that fall to the experts of this rank. */
void even_note(const Instr *in, const Operand *o, const OpAttr *attr, double *choices,
               Arena *a, EvenList *out);
void even_rows(const Program *p, Arena *a, EvenList *out);
/* The share of so many rows that have something in them; 1 where none are of experts. */
double even_of(const EvenList *even, int64_t rows);

/* Bytes that a kernel reads and writes once: of experts rows that are there, of tables
 * those that are looked up. */
double kernel_traffic(const Instr *in, const Operand *o, const EvenList *even);

#endif
