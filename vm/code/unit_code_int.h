/* unit_code_int.h - shared by unit_code.c (bodies), unit_emit.c (instructions) and
 * unit_buffers.c (where tensors live). */
#ifndef WEFT_UNIT_CODE_INT_H
#define WEFT_UNIT_CODE_INT_H

#include "unit_code.h"

/* Where a sharded tensor lives while a body runs. */
typedef enum {
  ST_NONE,
  ST_PARAM,
  ST_GRAD,
  ST_INPUT,
  ST_SEED,
  ST_SCALARS,
  ST_EDGE,
  ST_FI,
  ST_FW,
  ST_IW,
  ST_TEMP
} StorageKind;
typedef struct Storage {
  uint8_t kind;  /* StorageKind */
  bool joined;   /* with it those that it is one matrix with; it lies first */
  int32_t index; /* parameter or edge number within the unit, InputKind */
  uint64_t off;  /* within the frame or the temporaries */
} Storage;

typedef struct Uses {
  int count;
  uint8_t phases; /* bit per Phase, of readers in the tensor's own unit */
  bool edge;
  bool forward; /* is made in the place of a tensor of the forward */
  Tid alias;    /* shares the storage of this tensor, which is made in its place */
} Uses;

struct Coder {
  Arena *a, *scratch; /* of all units, of the unit at hand */
  const Graph *logical;
  Graph *g;         /* sharded */
  int *ops, *first; /* ops by unit: ops[first[u] .. first[u + 1] - 1] */
  Joined **joined;  /* see Sharded */
  VEC(AxisSet) comm;
  const DeviceKind *device;
  const Plan *plan;
  const char
      *refused; /* the first op that the plan wants of a library in vain, and why */
  const Strategy *how; /* whether bodies are ordered, collectives in chunks */
  const BodyClock *clock;
  bool merges; /* no W runs apart, so that units may have a body B */
  VEC(Uses) use;
  int unit;
  RawUnit *code;
  VEC(Storage) store; /* of each tensor, for the unit at hand */
  VEC(int) temp;      /* of each tensor: its interval in the body at hand, + 1 */
  VEC(CodeInstr) out; /* the body at hand, */
  Phase phase;        /* and which it is */
  uint64_t most;      /* its workspace */
  struct Pending {
    Tid result;
    int at; /* its instruction */
  } pending[64];
  int npending;
};

/* ---- unit_buffers.c ---- */
/* Who reads what, of the whole graph. */
void coder_uses(Coder *c);
/* The number of an edge within the unit at hand. */
int coder_edge(Coder *c, Tid t);
/* Whether it outlives a program of one token: keys and values of those before, logits. */
bool coder_stays(const Coder *c, Tid t);
/* The storage of a tensor as the unit at hand sees it; decided at first sight. */
Storage coder_place(Coder *c, Tid t);
/* A temporary of such a type. */
Tid coder_temp(Coder *c, const Tensor *t, const Dim *dim, int ndim);
/* The tensor whose storage this one has. */
Tid coder_root(const Coder *c, Tid t);
/* Gives the temporaries of the body offsets by the instructions that touch them; returns
 * their bytes. */
uint64_t coder_offsets(Coder *c);
/* Operands of a finished body; they depend on how many parameters and edges the whole
 * unit has. */
void coder_slots(Coder *c, Phase ph);

/* ---- unit_emit.c ---- */
/* Waits for the collective that makes `t`, if one is under way. */
void coder_settle(Coder *c, Tid t, const Op *op);
void coder_collective(Coder *c, const Op *op);
void coder_kernel(Coder *c, const Op *op);
/* Scratch of a kernel: a temporary that lives for one instruction. */
void coder_work(Coder *c, CodeInstr *x);
double coder_flops(const Graph *g, const Op *op);

/* ---- attention_backend.c ---- */
/* Decides who computes an op whose operands are known. */
void coder_backend(Coder *c, const Op *op, CodeInstr *x);
/* Whether the plan asks a library for what it does not do: then with an error. */
bool coder_refuses(const Coder *c, Diags *d);

#endif
