/* units.h - the bodies of each unit, with storage for every tensor; operands are symbolic. */
#ifndef WEFT_UNITS_H
#define WEFT_UNITS_H

#include "shard.h"
#include "vm/program/program.h"

/* Slots of a body: the arena, the unit's parameters and gradients, then per call. */
enum { DYN_FI, DYN_FW, DYN_IW, DYN_INPUT, DYN_EDGE = DYN_INPUT + IN_SEED };

/* Where a sharded tensor lives while a body runs. */
typedef enum { ST_NONE, ST_PARAM, ST_GRAD, ST_INPUT, ST_SEED, ST_SCALARS, ST_EDGE, ST_FI,
               ST_FW, ST_IW, ST_TEMP } StorageKind;
typedef struct Storage {
  uint8_t kind;          /* StorageKind */
  int32_t index;         /* parameter or edge number within the unit, InputKind */
  uint64_t off;          /* within the frame or the temporaries */
} Storage;
/* Slots of storage that has one absolute place per rank; lower() makes them slot 0. */
enum { SLOT_TEMP = 0xffff, SLOT_SEED = 0xfffe, SLOT_SCALARS = 0xfffd };

typedef struct CodeInstr {
  Instr i;               /* operand, attr and what are filled by lower */
  OpAttr attr;
  Operand operand[KERNEL_OPERANDS];
  Tid t[KERNEL_OPERANDS];
  const char *name;      /* module, without the unit's own prefix */
  double flops;
} CodeInstr;

typedef struct UnitCode {
  int *param, nparam;    /* parameters that the unit reads, in order of first use */
  Tid *edge; int nedge;  /* sharded tensors that it shares with other units */
  uint64_t edge_used[3]; /* those that each body touches, a bit each */
  uint64_t frame[3];     /* bytes of FI, FW, IW */
  uint64_t temp;         /* bytes of temporaries, worst body */
  struct {
    CodeInstr *at;
    int n;
    double flops;
  } body[3];             /* F, I, W */
  uint64_t input_mask;   /* inputs it reads: 1 << InputKind */
  int handles;           /* in-body handles */
} UnitCode;

struct Build;
/* No tensor has more than 2^ELEMENTS_LOG2 elements. */
enum { ELEMENTS_LOG2 = 48 };
/* compile.c: the passes before the pipeline, from the logical graph to bodies. They depend
 * neither on the schedule nor on mesh.pp. */
weft_status compile_units(struct Build *b, Diags *d, weft_error *e);
/* False: a unit is too large (reported). */
bool unit_code(struct Build *b, Diags *d);

#endif
