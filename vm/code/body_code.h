/* body_code.h - the instructions of a body before offsets in an arena are assigned. */
#ifndef WEFT_BODY_CODE_H
#define WEFT_BODY_CODE_H

#include "vm/program/program.h"

/* Slots of a body: the arena; the unit's parameters and gradients; then, bound by each
 * call, frames, inputs and edges, and what the unit adds up over a step, if anything. */
enum { DYN_FI, DYN_FW, DYN_IW, DYN_INPUT, DYN_EDGE = DYN_INPUT + IN_SEED };
/* Slots of storage that has one place for the whole rank; lower() replaces them by the
 * arena's slot and an offset. */
enum { SLOT_TEMP = 0xffff, SLOT_SEED = 0xfffe, SLOT_SCALARS = 0xfffd };

/* An instruction of a body, operands still symbolic. */
typedef struct CodeInstr {
  Instr i; /* operand, attr and what are filled by lower(); for a collective, comm is an
              index into Units.comm */
  OpAttr attr;
  Operand operand[KERNEL_OPERANDS];
  Tid t[KERNEL_OPERANDS]; /* of a WAIT: the operands of its collective, which must
                             stay alive until then, or -1 */
  const char *name;       /* module, without the unit's own prefix */
  double flops, room;     /* see UnitBody */
  int pieces;             /* number of parts a product was cut into; 0: not cut */
} CodeInstr;

/* Makes a WAIT hold the operands of its collective, so that they stay alive until then:
 * the result, too, which arrives even if nothing reads it. */
static inline void code_keep(CodeInstr *wait, const CodeInstr *started) {
  for (int k = 0; k < COLL_OPERANDS; k++)
    wait->t[k] = k < instr_operands(&started->i) ? started->t[k] : -1;
}

/* A body is kept once: units whose bodies are equal share it. */
typedef struct UnitBody {
  CodeInstr *at;            /* NULL if instructions are not wanted */
  int n, nparam, nedge;     /* slots depend on those of the unit, */
  bool sums;                /* and on whether it adds up something over a step */
  double flops, recomputed; /* recomputed: the part of the flops that recomputation adds,
                               or that ranks repeat of each other */
  double room; /* flops of the rows of experts that buffers have room for beside those
                  that there are if experts are balanced, which `flops` are of */
} UnitBody;

#endif
