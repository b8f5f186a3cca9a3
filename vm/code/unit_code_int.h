/* unit_code_int.h - shared by unit_code.c (bodies), unit_emit.c (instructions) and
 * unit_buffers.c (where tensors live). */
#ifndef WEFT_UNIT_CODE_INT_H
#define WEFT_UNIT_CODE_INT_H

#include "unit_code.h"

/* Where a sharded tensor is stored while a body runs. */
typedef enum {
  ST_NONE,
  ST_PARAM,
  ST_GRAD,
  ST_INPUT,
  ST_SEED,
  ST_SCALARS,
  ST_EDGE,
  ST_SUMS,
  ST_FI,
  ST_FW,
  ST_IW,
  ST_TEMP
} StorageKind;
typedef struct Storage {
  uint8_t kind; /* StorageKind */
  bool joined;  /* a weight of a fused projection: the offset is that of the first of them
                 */
  int32_t index; /* parameter or edge number within the unit, InputKind */
  uint64_t off;  /* within the frame or among the temporaries */
} Storage;

typedef struct Uses {
  int count;
  uint8_t phases; /* a bit for each Phase with a reader in the tensor's own unit */
  bool edge;
  bool forward; /* overwrites a tensor of the forward */
  Tid alias;    /* tensor that overwrites this one and shares its storage, or -1 */
} Uses;

struct Coder {
  Arena *a, *scratch; /* for all units; for the current unit */
  const Graph *logical;
  Graph *g;         /* the sharded graph */
  int *ops, *first; /* op numbers by unit: ops[first[u] .. first[u + 1] - 1] */
  Joined **joined;  /* see Sharded */
  VEC(AxisSet) comm;
  const DeviceKind *device;
  const Plan *plan;
  /* the first op that the plan's library cannot compute, and the reason */
  const char *refused;
  const char *no_fp8;  /* the first linear that its device does not multiply in fp8 */
  const Strategy *how; /* overlap_tp, async_tp */
  const BodyClock *clock;
  bool merges; /* I and W are never split by the schedule, so units may have a body B */
  VEC(Uses) use;
  int unit;
  RawUnit *code;
  VEC(Storage) store; /* of each tensor, for the current unit */
  VEC(int) temp;      /* of each tensor: its interval in the current body, + 1 */
  VEC(CodeInstr) out; /* the current body */
  Phase phase;        /* its phase */
  uint64_t most;      /* its workspace */
  struct Pending {
    Tid result;
    int at; /* its instruction in `out` */
  } pending[64];
  int npending;
};

/* ---- unit_buffers.c ---- */
/* Finds the readers of every tensor of the graph. */
void coder_uses(Coder *c);
/* The number of an edge within the current unit. */
int coder_edge(Coder *c, Tid t);
/* Whether a tensor outlives a run of a decoding program: the key-value cache, and the
 * logits, which the host reads. */
bool coder_stays(const Coder *c, Tid t);
/* The storage of a tensor in the current unit; decided when it is first used. */
Storage coder_place(Coder *c, Tid t);
/* Adds a temporary with the type of `t` and these dimensions. */
Tid coder_temp(Coder *c, const Tensor *t, const Dim *dim, int ndim);
/* The tensor whose storage this one shares, or itself. */
Tid coder_root(const Coder *c, Tid t);
/* Assigns offsets to the temporaries of the body, by their lifetimes; returns their
 * bytes. */
uint64_t coder_offsets(Coder *c);
/* Fills the operands of a finished body; they depend on how many parameters and edges the
 * whole unit has. */
void coder_slots(Coder *c, Phase ph);

/* ---- unit_emit.c ---- */
/* Adds a WAIT for the collective that makes `t`, if it is in flight. */
void coder_settle(Coder *c, Tid t, const Op *op);
void coder_collective(Coder *c, const Op *op);
void coder_kernel(Coder *c, const Op *op);
/* Adds the scratch operand of a kernel: a temporary that lives for this instruction. */
void coder_work(Coder *c, CodeInstr *x);
/* Arithmetic of an op, of experts that of the rows that there are if all get the same;
 * and that of the rows that buffers have room for beside them. */
double coder_flops(const Graph *g, const Op *op);
double coder_room(const Graph *g, const Op *op);
/* The part of coder_flops that repeats what the forward has done, or that other ranks of
 * tp, cp and etp do as well. */
double coder_repeated(const Coder *c, const Op *op);
/* How many ranks of tp, cp and etp compute the same. */
double coder_copies(const Coder *c, const Op *op);

/* ---- attention_backend.c ---- */
/* Chooses the backend of an op whose operands are set. */
void coder_backend(Coder *c, const Op *op, CodeInstr *x);
/* Reports ops that the plan's libraries cannot compute; false if there are none. */
bool coder_refuses(const Coder *c, Diags *d);

#endif
