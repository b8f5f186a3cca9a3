/* cost_table.h - measured times of kernels and transfers of one device of one machine.
 *
 * A row that was measured is exact. Between rows of one op and type a kernel takes as
 * many times its roofline as those of nearby sizes do, near in the logarithms of what
 * its time depends on. Collectives of one kind, type and group size take what lies on
 * the line between the two nearest sizes. What is far from every row has no answer. */
#ifndef WEFT_COST_TABLE_H
#define WEFT_COST_TABLE_H

#include "sheet_cost.h"

typedef enum { COST_MEASURED, COST_INTERPOLATED, COST_SHEET, COST_FROM_N } CostFrom;
extern const char *const cost_from_name[COST_FROM_N];

typedef struct KernelRow {
  uint16_t op;       /* OpCode */
  const char *shape; /* kernel_shape(), in an arena */
  KernelWork work;
  double seconds;
} KernelRow;

typedef struct MoveRow {
  CollKind kind; /* not COLL_RECV: a transfer is one of its sender */
  DType dtype;
  int ranks;
  double bytes, seconds;
} MoveRow;

typedef struct CostTable {
  const char *device, *way;    /* a row of device_table.c; "avx512, oneDNN 3.6" */
  const char *machine;         /* "AMD EPYC, 2 cores" */
  const char *comm;            /* what moved data between ranks: "local", "tcp" */
  const char *version, *date;  /* of weft; "2026-11-23" */
  int threads;                 /* of each rank */
  int cores;                   /* that ranks share; 0: each has a device of its own */
  int ranks;                   /* that measured at once; 0: unknown */
  double f32, bf16, bandwidth; /* what large products and copies of one rank reach */
  VEC(KernelRow) kernel;
  VEC(MoveRow) move;
} CostTable;

/* What identifies a kernel to a table, beside its op: operands, and the attributes on
 * which its time depends. */
enum { KERNEL_SHAPE = 1024 };
void kernel_shape(const Program *p, const Instr *in, char out[KERNEL_SHAPE]);
/* The type for which it is computed: that of its first operand that is no integer. */
DType kernel_dtype(const Program *p, const Instr *in);

/* The row that was measured, or NULL. */
const KernelRow *table_kernel(const CostTable *t, int op, const char *shape);
const MoveRow *table_move(const CostTable *t, CollKind kind, DType dtype, int ranks,
                          double bytes);

typedef struct Cost {
  double seconds;
  CostFrom from;
} Cost;
/* COST_SHEET if the table has no answer; `seconds` is 0 then. `k` is for rooflines. */
Cost table_kernel_cost(const CostTable *t, const Cluster *k, int op, const char *shape,
                       const KernelWork *w);
Cost table_move_cost(const CostTable *t, CollKind kind, DType dtype, int ranks,
                     double bytes);

#endif
