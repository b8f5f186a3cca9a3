/* passes.h - what the passes of compile.c hand to each other.
 *
 *   autodiff -> shard -> stage -> unit_code -> layout -> actions -> memory -> lower -> prove
 */
#ifndef WEFT_PASSES_H
#define WEFT_PASSES_H

#include "compile.h"
#include "shard.h"
#include "vm/pipeline/timeline.h"

/* schedule.c: schedule_check, and when its actions run; texts on the way lie in `a`. */
bool schedule_ready(const Schedule *s, Diags *d, Arena *a, Timeline *when);

/* Adds the backward ops and tags every op F, I or W. */
weft_status autodiff(Graph *g, weft_error *e);

/* ---- stage.c: which units each stage runs ---- */

typedef struct Stages {
  int n;                 /* pp * virtual */
  int *first;            /* [n + 1]: units first[s] .. first[s+1]-1 */
  int *of_unit;          /* unit -> stage */
} Stages;
/* What all ops of each unit cost, forward and backward, for one microbatch on one rank. */
double *unit_costs(const Graph *local, int units, Arena *a);
/* requires units and their costs; establishes a stage for each. Problems go to `d`. */
bool stage(const CompileInput *in, const double *cost, Stages *out, Diags *d);
/* stage_balance.c: first[0 .. stages] such that the dearest stage costs least; there are
 * at least as many units as stages. */
void stage_balance(Arena *a, const double *cost, int units, int stages, int *first);

/* ---- unit_code.c: the bodies of each unit, operands still symbolic ---- */

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

typedef struct Build {
  const CompileInput *in;
  Arena *arena;
  Arena *scratch;        /* of one pp rank: emptied before the next */
  Diags *d;
  Sharded sh;
  double *cost;          /* of each unit: unit_costs */
  UnitCode *unit;
  Stages st;
  /* For each boundary between stages s and s+1: tensors that cross it. */
  struct Cross {
    Tid *at;
    int n;
  } *fwd, *bwd;
  VEC(CommDesc) comm;
  int in_handles;        /* handles of all bodies: main ones come after */
  int microbatches;      /* of the whole step: schedule's x rounds */
  Timeline when;         /* when the schedule's actions run, if all take one unit */
  /* What each pp rank sends, in order: to the rank after it, then to the one before. */
  struct Sends {
    struct SendItem {
      Tid t;
      int32_t stage, mb; /* that receives it */
      int32_t handle;    /* of its receive */
      int64_t posted;    /* when that receive is there, on the clock of `when` */
    } *at;
    int n;
  } *sends;
  /* [stage * microbatches + mb]: number of the first item that the forward and the
   * backward of a stage receive. */
  int32_t *arrives[2];
  bool late_reduce;      /* a warning about REDUCE_GRAD was given */
} Build;

/* The local chunk of a global stage on its rank, and back: see schedule_where. */
int stage_rank(const Build *b, int stage);

/* No tensor has more than 2^ELEMENTS_LOG2 elements. */
enum { ELEMENTS_LOG2 = 48 };
/* compile.c: the passes before the pipeline, from the logical graph to bodies. They depend
 * neither on the schedule nor on mesh.pp. */
weft_status compile_units(Build *b, Diags *d, weft_error *e);
/* Fills c->param and c->params_total; requires stages. */
void describe_params(Build *b, Compiled *c);
bool unit_code(Build *b, Diags *d);   /* false: a unit is too large (reported) */
/* requires stages; finds what crosses each boundary */
void stage_edges(Build *b);
/* The communicator over these axes (npp = 0) or these pp ranks; -1 if it has one member. */
int comm_for(Build *b, AxisSet axes, const int *pp, int npp);

/* ---- offsets.c: intervals to addresses ---- */
typedef struct Interval {
  int start, end;        /* inclusive positions */
  uint64_t size, off;
  int32_t what;          /* of actions(): 3 * unit + frame class, or 3 * units + tensor */
} Interval;
/* Gives every interval an offset such that no two that overlap in time overlap in space.
 * Best fit in order of start; returns the bytes that are needed. */
uint64_t offsets(Arena *a, Interval *v, int n);
enum { ALIGN = 64 };
static inline uint64_t align_up(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- layout.c: static regions of a pp rank ---- */
typedef struct Bucket {
  AxisSet axes;          /* the gradients are partial over these */
  uint64_t off, count;   /* f32 elements */
  uint64_t chunks;       /* local chunks that write them, a bit each */
  int *param, nparam;    /* indices into Layout.param */
} Bucket;
typedef struct Layout {
  ProgParam *param; int nparam;
  int *of;               /* Compiled.param -> index here, -1 */
  VEC(Bucket) bucket;
  uint64_t input[IN_N];
  uint64_t scalars, seed;
  uint64_t bytes[5];     /* parameters, master, gradients, optimizer, inputs */
  uint64_t end;          /* activations begin here */
  uint64_t kept;         /* bytes from `end` on that the optimizer keeps to undo a step,
                            once the activations are dead */
} Layout;
void layout(Build *b, int rank, const Compiled *c, Layout *l);
/* The inputs that a rank reads, 1 << InputKind, and the bytes of each for a step. */
uint64_t inputs_of(const Build *b, int rank);
uint64_t input_bytes(int64_t microbatches, int64_t micro, int64_t seq);
/* lower.c: the workspace of a rank. */
uint64_t temp_of(const Build *b, int rank);

/* ---- actions.c: a rank's main list with buffers still as intervals ---- */
typedef enum { EV_CALL, EV_SEND, EV_RECV, EV_WAIT, EV_REDUCE } EventKind;
typedef struct Event {
  uint8_t kind;
  uint8_t phase;         /* CALL */
  int32_t unit, mb;      /* CALL */
  int32_t buffer;        /* SEND, RECV: index into buffers */
  int32_t peer;          /* SEND, RECV: pp rank */
  int32_t handle;        /* SEND, RECV, WAIT, REDUCE */
  int32_t bucket;        /* REDUCE */
  int32_t action;        /* see Instr */
  int32_t line;
  uint32_t edges;        /* CALL: first of its frames and edges in call_buffer */
  Tid t;                 /* SEND, RECV */
} Event;
typedef struct MainList {
  VEC(Event) ev;
  VEC(Interval) buffer;
  VEC(int32_t) call_buffer;  /* per CALL: FI, FW, IW (-1 none), then the unit's edges */
  int handles;
  int *reduce_handle;    /* of each bucket: -1 if the epilogue starts it */
  bool brief;            /* set before: only the buffers are wanted */
} MainList;
/* requires the schedule to be checked; `rank` is the pp rank */
void actions(Build *b, int rank, const Layout *l, MainList *t);

/* ---- transfers.c: the order of all sends, for all ranks; before actions() ---- */
void transfers(Build *b);
/* Which of its two lists `src` has for `dst`, and that list. */
int send_side(const Build *b, int src, int dst);
struct Sends *sends_to(const Build *b, int src, int dst);
/* What a part of an action receives: items first .. first + n - 1 of what `src` sends. */
typedef struct Inlet {
  int src, first, n;
} Inlet;
/* False if nothing comes from another rank. */
bool inlet(const Build *b, int stage, int mb, bool forward, Inlet *in);
/* The tensors that enter a stage from the one before it (forward) or after it. */
const struct Cross *entering(const Build *b, int stage, bool forward);

/* ---- lower.c, update.c ---- */
typedef struct Emit {
  Build *b;
  Program *p;
  const Layout *l;
  VEC(Instr) code;
  VEC(Operand) operand;
  VEC(OpAttr) attr;
  VEC(Call) call;
  VEC(uint64_t) dyn, bind;
  VEC(const char *) what;
  VEC(Body) body;
  VEC(UnitBind) unit;
} Emit;
Instr *emit_instr(Emit *e, InstrCode code, const char *what);
uint32_t emit_operand(Emit *e, uint64_t off, DType dt, int64_t count);
/* Before the first action and after the last one. */
void update_prologue(Emit *e, const Compiled *c);
void update_epilogue(Emit *e, const Compiled *c, MainList *t);
void lower(Build *b, int rank, const Layout *l, MainList *t, Compiled *c);

#endif
