/* units.h - the result of the passes on the graph: for each unit the code of one rank,
 * its frames, edges, parameters, reads and costs. Stages, storage, transfers and lowering
 * read this table and nothing of the graph. It does not depend on mesh.pp, and of the
 * schedule only on whether it splits I and W: a sweep shares it between plans that differ
 * in nothing else. */
#ifndef WEFT_UNITS_H
#define WEFT_UNITS_H

#include "body_code.h"
#include "vm/program/compile_input.h"

/* A collective of a body is started or waited for, behind kernels. */
typedef struct UnitMove {
  double seconds; /* of these, at the roofline of the cluster's GPU */
  bool waits;     /* for `handle`; else one starts: */
  CollKind coll;
  AxisSet axes;
  int comm, handle; /* those of a communicator run in their order */
  double bytes; /* as UnitWork.bytes, but of exchanges of rows of experts those that there
                   are if experts are balanced */
} UnitMove;

/* The work of one call of a body. */
typedef struct UnitWork {
  double flops, recomputed; /* see UnitBody */
  /* What takes time, in order. How long collectives take depends on where their groups
   * lie, and with that how much of them kernels hide: units know neither. */
  VEC(UnitMove) move;
  int comms, handles; /* their numbers in `move` are below these */
  double seconds;     /* of the kernels behind the last one */
  /* The same by the first axis that they are over, for the bytes of a step: */
  double bytes[AX_N][COLL_N]; /* operands of collectives, the larger side; at most */
  double empty[AX_N]; /* the part of them that is padding if experts are balanced */
} UnitWork;

/* Shared by units that differ only in names, parameters and edges. */
typedef struct UnitCode {
  int nparam, nedge;
  uint8_t *edge_use;  /* for each edge: 1 << Phase of each body that uses it */
  uint8_t *grad_use;  /* for each parameter: of each body that writes its gradient */
  uint8_t *param_use; /* for each parameter: of each body that reads it */
  /* For each body, of each parameter: whose bit of Call.fresh decides for its gradient,
   * itself but where one kernel writes several gradients; GRAD_CLEARED: the body only
   * accumulates, so one that is fresh is cleared before it. */
  int16_t *grad_bit;
  bool *joined; /* for each parameter: part of a fused projection, it must be right behind
                   the next one in memory (fused_projections.c) */
  /* Edges of other units that each body reads: indices within the unit, by first use. */
  struct UnitReads {
    int32_t *edge;
    int n;
  } read[3];
  uint64_t frame[3]; /* bytes of FI, FW, IW */
  uint64_t sums;     /* of what F adds up over the microbatches of a step */
  uint64_t temp; /* of temporaries, for the worst body; in B this includes what IW holds
                    between I and W */
  /* F, I, W; and B, called instead of I and W unless it is empty */
  const UnitBody *body[BODIES];
  UnitWork work[BODIES];
  double cost;         /* flops, forward and backward, of one microbatch */
  uint64_t input_mask; /* inputs that it reads, 1 << InputKind */
  int handles;         /* collectives in flight at once in a body */
} UnitCode;

/* Whether a body is called: B is in the place of I and W where the unit has it. */
static inline bool unit_calls(const UnitCode *c, int phase) {
  return phase == PH_F || (phase == PH_B) == (c->body[PH_B]->n > 0);
}

/* The slots that each call binds. */
static inline int unit_dyn(const UnitCode *c) {
  return DYN_EDGE + c->nedge + (c->sums > 0);
}

typedef struct CompiledUnit {
  const char *name; /* "layers.3", "embed_tokens" */
  int layer;        /* or -1 */
  const UnitCode *code;
  const int *param;    /* [code->nparam] in Units.param, in order of first use */
  const int32_t *edge; /* [code->nedge] in Units.edge */
} CompiledUnit;

/* A tensor that one unit makes and another reads. */
typedef struct UnitEdge {
  int32_t unit; /* the unit that makes it */
  bool gradient;
  const char *label; /* "activation after layers.3", "gradient before layers.4" */
  Place place;
  uint8_t dtype, ndim;
  int64_t dim[MAX_DIM]; /* local */
  uint64_t bytes;
} UnitEdge;
/* Sets the label from the name of the unit that makes the tensor. */
void edge_label(Arena *a, UnitEdge *e, const char *unit);

typedef struct UnitParam {
  const char *name, *like;
  uint8_t ndim, init; /* init: InitKind */
  Dim dim[MAX_DIM];   /* global and local sizes */
  float std, share;
  bool decay, frozen, matrix; /* matrix: such, of layers alone */
  int32_t group;
  uint8_t adapter, quant;
  double alpha;
  bool saved;        /* these, and like: see Param */
  uint8_t dtype;     /* that it is stored in: DType */
  Place place, grad; /* of the parameter as stored; of the gradient as W writes it */
  int64_t count;     /* local elements */
  int64_t factors;   /* rows and columns of its matrices, of each expert; 0: it is none */
} UnitParam;

typedef struct Units {
  int n;
  CompiledUnit *at;
  UnitEdge *edge;
  int nedge;
  UnitParam *param;
  int nparam;
  int loss;                        /* the unit that computes the loss */
  Place loss_place, sources_place; /* see Sharded */
  int sources;
  bool experts;    /* the model counts the tokens of each expert (SC_ROWS) */
  int64_t context; /* CompileInput.context; if set there are logits instead of a loss: */
  uint64_t logits_at; /* offset in the frame F..I of unit `loss` */
  int64_t logits;     /* columns on a rank */
  AxisSet logits_cut; /* axes that shard the columns */
  AxisSet *comm;      /* axes of the collectives in bodies, by first use */
  int ncomm;
  int tp_copies;      /* tp ranks that share a key-value head: mesh_split_tp */
  int handles;        /* of all bodies; those of the main list have higher numbers */
  int64_t micro, seq; /* sequences in a rank's microbatch; tokens of one */
  int64_t tokens;     /* tokens of a sequence on a rank: seq / cp */
  int64_t vocab;      /* token ids and labels are below this */
  DType dtype;        /* compute type */
  const DeviceKind *device;
  double widest; /* elements of the largest tensor that is no parameter, per sequence of
                    the whole microbatch */
} Units;

/* No tensor has more than 2^ELEMENTS_LOG2 elements. */
enum { ELEMENTS_LOG2 = 48 };
/* The axes over which a gradient is partial after W. */
AxisSet unit_param_partial(const UnitParam *p);
/* Matrices of a parameter, or of each of its experts: a gate and what it multiplies are
 * two of these. */
int unit_matrices(const UnitParam *p);
struct Sharded;
/* requires the graph of one rank; establishes units. in->scratch is reset after each
 * unit. False if a unit is too large (reported). */
bool units_make(const CompileInput *in, const struct Sharded *sh, bool code,
                Arena *scratch, Arena *keep, Units *out, Diags *d);

#endif
