/* step_cost.h - what an instruction costs on the clock, and how that is known: measured
 * rows where there is a table and it has an answer, else the data sheet. */
#ifndef WEFT_STEP_COST_H
#define WEFT_STEP_COST_H

#include "cost_table.h"

typedef struct CostSource {
  const Cluster *cluster;
  SheetRates rates;
  const CostTable *table; /* NULL: data sheets alone */
} CostSource;

/* Whether it works on memory of the host. */
bool instr_uses_host(const Program *p, const Instr *in);
/* `host`: it works on memory of the host. */
Cost cost_of_kernel(const CostSource *s, const Program *p, const Instr *in,
                    const KernelWork *w, bool host);
/* The part of the time in which its link is full is for data sheets alone: a measured
 * transfer of ranks that share cores fills these. */
typedef struct MoveCost {
  double seconds, full;
  CostFrom from;
} MoveCost;
MoveCost cost_of_move(const CostSource *s, const MoveWork *w, DType dtype);

/* The figures of a machine that a table was measured on, for `ranks` of it. */
void table_cluster(const CostTable *t, int ranks, Cluster *out);

#endif
