/* body_code.h - the instructions of a body before they have places in an arena. */
#ifndef WEFT_BODY_CODE_H
#define WEFT_BODY_CODE_H

#include "vm/program/program.h"

/* Slots of a body: the arena, the unit's parameters and gradients, then per call. */
enum { DYN_FI, DYN_FW, DYN_IW, DYN_INPUT, DYN_EDGE = DYN_INPUT + IN_SEED };
/* Slots of storage that has one absolute place per rank; lower() makes them slot 0. */
enum { SLOT_TEMP = 0xffff, SLOT_SEED = 0xfffe, SLOT_SCALARS = 0xfffd };

/* An instruction of a body, operands still symbolic. */
typedef struct CodeInstr {
  Instr i; /* operand, attr and what are filled by lower; of a collective,
              comm is an index into Units.comm */
  OpAttr attr;
  Operand operand[KERNEL_OPERANDS];
  Tid t[KERNEL_OPERANDS]; /* of a WAIT: what it reads as long as it is under way, or -1 */
  const char *name;       /* module, without the unit's own prefix */
  double flops;
  int pieces; /* of a product: into so many it was cut; 0: it was not */
} CodeInstr;

/* A WAIT keeps the inputs of the collective that it waits for alive until then. */
static inline void code_keep(CodeInstr *wait, const CodeInstr *started) {
  for (int k = 0; k < COLL_OPERANDS - 1; k++)
    wait->t[k] = k < started->i.nin ? started->t[k] : -1;
}

/* Bodies are kept once: equal ones of several units are the same UnitBody. */
typedef struct UnitBody {
  CodeInstr *at;            /* NULL if code was not asked for */
  int n, nparam, nedge;     /* slots depend on those of the unit */
  double flops, recomputed; /* recomputed: the part that recomputation adds */
} UnitBody;

#endif
