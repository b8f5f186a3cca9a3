/* units.h - the result of the passes on the graph: for each unit the code of one rank,
 * its frames, edges, parameters, reads and costs. Stages, storage, transfers and lowering
 * take this table and nothing of the graph. It does not depend on mesh.pp, and on the
 * schedule only in whether it ever splits I and W: plans that differ in nothing else
 * share it. */
#ifndef WEFT_UNITS_H
#define WEFT_UNITS_H

#include "body_code.h"
#include "vm/program/compile_input.h"

/* What one call of a body does. */
typedef struct UnitWork {
  double flops, recomputed;   /* see UnitBody */
  double seconds;             /* of its kernels, by the roofline of the cluster's GPU */
  double hidden;              /* of its collectives, beside them: see body_time.h */
  double bytes[AX_N][COLL_N]; /* that collectives work on, the larger side; at most, */
  double empty[AX_N];         /* if all experts get the same without so many */
  int count[AX_N][COLL_N];
} UnitWork;

/* Units that differ only in their names, parameters and edges share it. */
typedef struct UnitCode {
  int nparam, nedge;
  uint8_t *edge_use;  /* of each edge: 1 << Phase for each body that touches it */
  uint8_t *grad_use;  /* of each parameter: the same of those that make its gradient */
  uint8_t *param_use; /* of each parameter: the same of those that read it */
  bool *joined;       /* of each parameter: it must lie right behind the next one, as they
                         are one matrix to ops (fused_projections.h) */
  /* Edges of other units that each body reads: numbers within the unit, by first use. */
  struct UnitReads {
    int32_t *edge;
    int n;
  } read[3];
  uint64_t frame[3]; /* bytes of FI, FW, IW */
  uint64_t temp;     /* bytes of temporaries, worst body; what lies in IW between I
                        and W is one of B */
  const UnitBody *body[BODIES]; /* F, I, W; B, or empty: if not, it is called instead of
                                   I and W */
  UnitWork work[BODIES];
  double cost;         /* flops, forward and backward, of one microbatch */
  uint64_t input_mask; /* inputs it reads: 1 << InputKind */
  int handles;         /* in-body handles */
} UnitCode;

typedef struct CompiledUnit {
  const char *name; /* "layers.3", "embed_tokens" */
  int layer;        /* or -1 */
  const UnitCode *code;
  const int *param;    /* [code->nparam] in Units.param, in order of first use */
  const int32_t *edge; /* [code->nedge] in Units.edge */
} CompiledUnit;

/* A tensor that one unit makes and another one reads. */
typedef struct UnitEdge {
  int32_t unit; /* that makes it */
  bool gradient;
  const char *label; /* "activation after layers.3", "gradient before layers.4" */
  Place place;
  uint8_t dtype, ndim;
  int64_t dim[MAX_DIM]; /* local */
  uint64_t bytes;
} UnitEdge;
/* Sets the label, from the name of the unit that makes it. */
void edge_label(Arena *a, UnitEdge *e, const char *unit);

typedef struct UnitParam {
  const char *name;
  uint8_t ndim, init; /* init: InitKind */
  Dim dim[MAX_DIM];   /* global and local sizes */
  float std, share;
  bool decay;
  Place place, grad; /* as stored; as W bodies leave the gradient */
  int64_t count;     /* local elements */
} UnitParam;

typedef struct Units {
  int n;
  CompiledUnit *at;
  UnitEdge *edge;
  int nedge;
  UnitParam *param;
  int nparam;
  int loss; /* unit that makes the loss */
  Place loss_place;
  bool experts;       /* counts the rows that they get (SC_ROWS) */
  int64_t context;    /* of CompileInput; then instead of a loss there are logits: */
  uint64_t logits_at; /* in the frame F..I of unit `loss`, */
  int64_t logits;     /* so many columns on a rank; */
  AxisSet logits_cut; /* over these axes */
  AxisSet *comm;      /* axes of the collectives in bodies, by first use */
  int ncomm;
  int tp_copies;      /* ranks of tp with the same key-value heads: mesh_split_tp */
  int handles;        /* of all bodies: those of the main list come after */
  int64_t micro, seq; /* sequences of a rank's microbatch, tokens of one */
  int64_t tokens;     /* of a sequence, that a rank reads: seq / cp */
  int64_t vocab;      /* token ids and labels of the model are below it */
  DType dtype;        /* compute type */
  const DeviceKind *device;
  double widest; /* elements of the largest tensor but parameters, for each
                    sequence of the whole microbatch */
} Units;

/* No tensor has more than 2^ELEMENTS_LOG2 elements. */
enum { ELEMENTS_LOG2 = 48 };
/* The axes over which a gradient is partial as W bodies leave it. */
AxisSet unit_param_partial(const UnitParam *p);
struct Sharded;
/* requires the graph of one rank; establishes units. Its scratch is emptied
 * after each unit. False: a unit is too large (reported). */
bool units_make(const CompileInput *in, const struct Sharded *sh, bool code,
                Arena *scratch, Arena *keep, Units *out, Diags *d);

#endif
