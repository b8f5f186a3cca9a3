/* unit_code.h - the code of one unit, before equal units share code. */
#ifndef WEFT_UNIT_CODE_H
#define WEFT_UNIT_CODE_H

#include "body_time.h"
#include "vm/shard/shard.h"

typedef struct RawUnit {
  VEC(int) param;   /* parameters that the unit reads, in order of first use */
  VEC(Tid) edge;    /* sharded tensors that cross between it and other units */
  VEC(bool) joined; /* see UnitCode, also for the next four */
  uint8_t *edge_use, *grad_use, *param_use;
  int16_t *grad_bit;
  VEC(int32_t) read[3];
  UnitBody body[BODIES];
  uint64_t frame[3], sums, temp, input_mask;
  int handles;
} RawUnit;

typedef struct Coder Coder;
/* For all units of a sharded graph; tables about the whole graph are in in->arena. */
Coder *coder_new(const CompileInput *in, const Sharded *sh, const BodyClock *clock);
/* Writes the code of unit `u`, in `scratch`; false if it is too large (reported). */
bool code_unit(Coder *c, int u, Arena *scratch, RawUnit *out, Diags *d);
/* After code_unit of the unit that makes the logits of a decode_graph: their offset in
 * its frame F..I. */
uint64_t coder_result(Coder *c);
/* The axes of the collectives written so far. */
int coder_comms(const Coder *c, const AxisSet **axes);

#endif
