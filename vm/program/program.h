/* program.h - what a rank runs.
 *
 * There is one program per pp rank. It has two levels: `main`, a list of actions, and
 * bodies (one per unit kind and phase) that CALL runs with other bindings. Ranks that
 * differ in dp, cp or tp only share the program and read their coordinates at load
 * time. All memory of a rank is one arena; every operand is (slot, offset):
 * slot 0 is the arena itself, the others are bound by the call:
 *   slot 1 ..               bind[]   parameters and gradients of the unit
 *   slot 1 + call.nbind ..  dyn[]    frames, edges and inputs of this call
 * all of them offsets into the arena; from HOST_BASE on, into the one of the host. A
 * parameter lies where it is stored, or in a copy that GATHER made of the shards of all
 * ranks and FREE gives up: the call says which.
 *
 * An operand may be a *shard*: what a rank has of something that lies whole on each, its
 * place in the group over some axes times the size of a shard from the offset on. */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include "vm/device/device.h"
#include "vm/storage/region.h"
#include "vm/plan/link_speed.h"
#include "action.h"

typedef enum {
#define INSTR(name, is, doc) I_##name,
#include "instr.def"
  I_N
} InstrCode;
enum {
  INSTR_NOTHING = 0,
  INSTR_MAIN = 1,
  INSTR_TOUCHES = 2,
  INSTR_COLL = 4,
  INSTR_PAIR = 8,
  INSTR_STARTS = INSTR_COLL | INSTR_PAIR
};
extern const char *const instr_name[I_N];
extern const uint8_t instr_is[I_N]; /* of INSTR_ */

typedef enum {
#define COLL(id, name, in, out, is, doc) COLL_##id,
#include "coll.def"
  COLL_N,
  COLL_PAIRS = COLL_SEND /* collectives come before it */
} CollKind;
typedef enum { RED_SUM, RED_MAX } RedOp;
enum { COLL_SUMS = 1, COLL_BY_PAIR = 2, COLL_COUNTED = 4 };
enum { COLL_OPERANDS = 4 }; /* at most: input, counts given and taken, result */
typedef struct CollInfo {
  const char *name;
  bool in, out; /* of a piece for each member */
  uint8_t is;   /* of COLL_SUMS, COLL_BY_PAIR, COLL_COUNTED */
} CollInfo;
extern const CollInfo coll_info[COLL_N];

/* Accumulation into gradients: ACC_NEVER, ACC_ALWAYS, or ACC_BIT + k: accumulate unless
 * bit k of Call.fresh is set (the first microbatch of a step overwrites). */
enum { ACC_NEVER = 0, ACC_ALWAYS = 1, ACC_BIT = 2 };
enum { GRAD_CLEARED = -1 }; /* see UnitCode.grad_bit */

typedef struct Operand {
  uint64_t off; /* bytes, from the slot's base */
  uint16_t slot;
  uint8_t dtype, ndim;
  AxisSet shard; /* main: see above; 0: none */
  int64_t dim[MAX_DIM];
} Operand;

typedef struct Instr {
  uint8_t code;      /* InstrCode */
  uint8_t coll, red; /* collectives: CollKind, RedOp */
  uint8_t acc;       /* KERNEL: see ACC_ */
  uint16_t op;       /* KERNEL: OpCode */
  int16_t comm;      /* collectives: index into Program.comm */
  int16_t nin, nout;
  int16_t nwork;    /* KERNEL: 1 if its scratch follows the results, else 0 */
  int16_t by;       /* shift: as CommOp.by */
  int32_t handle;   /* of what starts, and WAIT */
  int32_t peer;     /* SEND, RECV: pp rank */
  uint32_t operand; /* first in Program.operand: inputs, outputs, scratch */
  union {
    uint32_t attr; /* KERNEL: index into Program.attr */
    uint32_t call; /* CALL: index into Program.call */
    uint32_t unit; /* GATHER, FREE, SCATTER: index into Program.unit */
  };
  uint32_t what;  /* index into Program.what: "layers.3.mlp.down_proj" or "F3" */
  int32_t line;   /* of the schedule action or the model op, 0 if unknown */
  int32_t action; /* main: 1 + index in this rank's list of the schedule; 0: none */
} Instr;

typedef struct Body {
  const char *name;         /* "layer:F" ... */
  uint32_t first, n;        /* instructions in Program.code */
  uint8_t phase;            /* Phase */
  uint16_t nslot;           /* 1 + unit binds + dyn slots */
  double flops, recomputed; /* recomputed: the part that recomputation adds, or
                               that other ranks of tp, cp and etp do as well */
  double room; /* flops of rows of experts that buffers have room for beside those that
                  there are if experts are balanced; `flops` are of these alone */
} Body;

/* Where a parameter or gradient of a call begins. */
enum { BIND_STORED = -1 };
typedef struct Bind {
  uint64_t off;
  int32_t copy; /* the unit in whose gathered copy that is, or BIND_STORED */
} Bind;

typedef struct Call {
  uint32_t body, unit; /* Program.body, Program.unit */
  uint16_t chunk;      /* local chunk */
  uint16_t nbind, ndyn;
  int32_t mb;
  uint32_t bind;  /* in Program.bind; calls with the same bases share them */
  uint32_t dyn;   /* in Program.dyn */
  uint64_t fresh; /* see ACC_BIT */
} Call;

/* A communicator. Members of a rank: its group over `axes`; if npp > 0, the ranks with
 * its own other coordinates on the listed pp ranks (tied weights) or all of them. */
typedef struct CommDesc {
  AxisSet axes;
  int npp;
  const int *pp;
  const char *name; /* "tp", "dp", "tie(0,3)" */
  int in_flight;    /* most starts without a wait on any rank */
} CommDesc;

typedef struct MemClass {
  const char *name; /* "parameters", "gradients", "optimizer", "activations", ... */
  uint64_t bytes;   /* distinct bytes of the arena */
  const char *note; /* "3 slots x 1.5 MiB" or NULL */
} MemClass;

/* The f64 scalars at Program.scalars. */
enum {
  SC_LR,
  SC_BC1,
  SC_BC2,     /* set by the host: lr, 1-beta1^t, 1-beta2^t */
  SC_CAREFUL, /* set by the host: clip_guess holds every step */
  SC_SCALE,
  SC_STEP, /* set by the host: gradients are multiplied by it; the
              number of the step */
  SC_CLIP,
  SC_NORM,
  SC_SKIP,                  /* results of clip_coef; the clip takes the scale out */
  SC_HOLD,                  /* the optimizer does nothing; of clip_coef and clip_guess */
  SC_GUESS,                 /* the clip that was stepped with early; 0: none was */
  SC_UNDO,                  /* that step was wrong; result of clip_coef */
  SC_ZERO_FROM,             /* from here on zeroed at the start of a step */
  SC_TOKENS = SC_ZERO_FROM, /* label tokens of the whole step, all ranks */
  SC_LOSS,                  /* sum of losses, after update: over all ranks */
  SC_ROWS,
  SC_ROWS_EXPERTS, /* rows that experts got; experts, each time it did */
  SC_DROPPED,      /* choices that no expert took */
  SC_ROWS_MAX,     /* most rows that one expert got at once */
  SC_NORM2,        /* squared gradient norm: of what is whole, then all */
  SC_NORM2_CUT,    /* from here on: of what is cut over one set of axes */
  SC_N = 32,
  /* Behind these, where the data are a blend: of each source the sum of its losses and
   * how many labels it has, after update: over all ranks. */
  SC_SOURCES = SC_N
};
static inline int scalar_count(int sources) { return SC_N + 2 * sources; }

typedef struct Program {
  int pp;      /* this program's pp rank */
  Instr *code; /* main, then the bodies */
  uint32_t ncode, nmain;
  Body *body;
  int nbody;
  const char **unit;
  int nunit;        /* "layers.3" */
  uint32_t *number; /* of each unit in the model, from 0: the same on every mesh */
  Bind *bind;
  uint32_t nbind;
  Call *call;
  uint32_t ncall;
  uint64_t *dyn;
  uint32_t ndyn;
  Operand *operand;
  uint32_t noperand;
  OpAttr *attr;
  uint32_t nattr;
  const char **what;
  uint32_t nwhat;
  Regions regions; /* where its parameters live */
  CommDesc *comm;
  int ncomm; /* the same list for all programs */
  int nhandle;
  uint64_t arena_bytes;
  MemClass *mem;
  int nmem;
  uint64_t host_bytes; /* of the arena in the memory of the host; 0: there is none */
  MemClass *host;
  int nhost;
  /* Inputs of a whole step, i32 (microbatches, micro, T); UINT64_MAX if not read here. */
  uint64_t input[IN_N];
  uint64_t sums, sums_bytes; /* what units add up over the microbatches of a step */
  uint64_t scalars;          /* f64[nscalar] */
  int nscalar;               /* scalar_count() */
  uint64_t logits;           /* with Compiled.context: its logits, of the compute type */
  double flops, recomputed, room; /* of one step, see Body */
} Program;

/* How many transfers of a kind, and the larger of what they take and give; of what is
 * counted when it runs, the places. */
typedef struct Flow {
  int64_t count;
  uint64_t bytes;
} Flow;

/* What prove() went through. */
typedef struct Proof {
  int64_t transfers, collectives, instructions;
  int communicators;
} Proof;

typedef struct Compiled {
  Arena *arena;
  Mesh mesh;
  Program *prog; /* [mesh.size[AXIS_PP]] */
  CompiledParam *param;
  int nparam;
  const Buffer *buffer; /* of the model's files */
  int nbuffer;
  int microbatches, micro;  /* per step; sequences per dp rank and microbatch */
  int64_t seq, tokens;      /* of a sequence: all; that a rank reads, seq / cp */
  bool zigzag, documents;   /* how cp cuts sequences: see sequence.h */
  int64_t vocab;            /* token ids and labels of the model are below it */
  DType dtype;              /* compute type */
  int optimizer;            /* OptimizerKind */
  const DeviceKind *device; /* whose kernels the scratch is sized for */
  Schedule schedule;        /* what the programs do, for messages */
  uint64_t params_total;    /* logical elements; */
  uint64_t params_second;   /* of these, a reference's or a teacher's */
  Proof proof;              /* of what compile() returned */
  Flow *flow;          /* flow_room() of them, which prove() fills, or NULL: flow_of() */
  int64_t context;     /* 0; or the program takes one token, after at most so many - 1
                          others whose keys and values are kept; then */
  int64_t logits;      /* columns of logits on a rank, */
  AxisSet logits_cut;  /* cut over these axes */
  ModuleNames modules; /* Adapter.modules */
  int sources;         /* of a blend, whose losses are told apart; 0: none */
  bool forward;        /* no backward, no optimizer: the loss and no more */
  struct Compiled *eval; /* the same step forward only, over the same arenas with the same
                            communicators; or NULL */
} Compiled;
/* Logical elements of the model that the plan trains. */
static inline uint64_t params_of_model(const Compiled *c) {
  return c->params_total - c->params_second;
}

/* instr.c: names for printing. */
extern const char *const prog_phase_name[PH_UPDATE + 1]; /* by Phase: "F", "I", ... */

/* ---- program.c: what the numbers of a program mean ---- */
static inline uint64_t operand_count(const Operand *o) { /* elements */
  uint64_t n = 1;
  for (int i = 0; i < o->ndim; i++) n *= (uint64_t)o->dim[i];
  return n;
}
static inline uint64_t operand_bytes(const Operand *o) {
  return operand_count(o) * (uint64_t)dtype_size((DType)o->dtype);
}
/* From `off` on, of the shards of all ranks: what any of them may touch. */
uint64_t operand_reach(const Mesh *m, const Operand *o);
/* Whether a collective of that kind over a communicator may have `in` and `out` begin in
 * the same place: as a whole and the rank's shard of it, or twice the same. */
bool operands_share(const Mesh *m, const CommDesc *d, CollKind kind, const Operand *in,
                    const Operand *out);
/* The coordinate of a rank over the axes that cut the heads of attention. */
int heads_index(const Mesh *m, AxisSet cut, int rank);
/* As a kernel sees it, without an address. */
KTensor operand_shape(const Operand *o);
/* Inputs, results and scratch. */
static inline int instr_operands(const Instr *in) {
  return in->nin + in->nout + in->nwork;
}
/* What a collective moves: the larger of its input and its result. */
static inline uint64_t coll_bytes(const Instr *in, const Operand *o) {
  return MAX(operand_bytes(&o[0]), operand_bytes(&o[in->nin]));
}
/* Where a slot starts in the arena. `call` is NULL in main, which has slot 0 only. */
static inline uint64_t slot_base(const Program *p, const Call *call, int slot) {
  if (slot == 0) return 0;
  assert(call);
  uint32_t i = (uint32_t)slot - 1, n = call->nbind;
  return i < n ? p->bind[call->bind + i].off : p->dyn[call->dyn + (i - n)];
}
/* The first call whose bindings begin at Program.bind[bind], or NULL; for printing. */
const Call *call_that_binds(const Program *p, uint32_t bind);
/* True if members of one group lie on several pp ranks. */
bool comm_spans_pp(const Mesh *m, const CommDesc *d);
bool comm_has_pp(const CommDesc *d, int pp);     /* ranks of `pp` are members */
int comm_size(const Mesh *m, const CommDesc *d); /* members of one group */
/* Whether it sends to pp rank `pp` or receives from it. */
bool program_meets(const Program *p, int pp);
/* The members of rank's group in mesh order; returns their number, 0 if `rank` is on a
 * pp rank that has no part. `out` holds mesh_size(m, d->axes | AXIS_BIT(AXIS_PP)). */
int comm_group(const Mesh *m, const CommDesc *d, int rank, int *out);
/* Of one step on a rank of each pp rank, by communicator and kind; transfers with other
 * stages (COLL_SEND, COLL_RECV) have comm -1. */
size_t flow_room(const Compiled *c);
size_t flow_index(const Compiled *c, int pp, int comm, CollKind kind);
const Flow *flow_of(const Compiled *c, int pp, int comm, CollKind kind);
typedef struct RankTraffic {
  uint64_t sent, received, collective;
} RankTraffic;
RankTraffic *traffic(const Compiled *c, Arena *arena); /* bytes, [pp rank] */
/* The rank with `rank`'s other coordinates on pp rank `pp`. */
int rank_on_pp(const Mesh *m, int rank, int pp);

/* program_print.c, program_json.c: the program of a world rank. The same program gives
 * the same text, so that two of them can be compared with diff. */
void program_print(const Compiled *c, int rank, bool offsets, Text *out);
void program_json(const Compiled *c, int rank, Text *out);

/* program_key.c: what the programs of all ranks compute and send, as a number. */
uint64_t program_key(const Compiled *c);

/* attention_report.c: who computes attention on a device that has a library beside its
 * kernels: "cuDNN", "weft's own kernels", or both; NULL on others, and if there is no
 * attention. */
enum { ATTENTION_WAY = 96 };
const char *attention_way(const Compiled *c, char text[ATTENTION_WAY]);

/* prove.c: runs all programs on the abstract machine of docs/architecture.md.
 * WEFT_OK with a summary, or WEFT_EPLAN with the instructions that block each other. */
weft_status prove(const Compiled *c, Proof *p, weft_error *e);

/* What a transfer takes of the links of its ranks while it runs: the share of each that
 * it fills if nothing else uses them. A transfer between two ranks takes one direction of
 * each, a collective both. Transfers that together want more than there is get equal
 * shares, and who wants less than that leaves the rest to others (max-min fairness). */
typedef struct LinkLoad {
  double link[LINK_KINDS];
  double spine;  /* of the machines' network, of a rank's part of it */
  double beside; /* kernels of its ranks take 1 + beside as long meanwhile */
} LinkLoad;

/* The compute queue of a rank came to a wait; it stood still if the transfer had not
 * ended.
 */
typedef struct RankWait {
  const Instr *what; /* that it waited for */
  int64_t came;
  int64_t began, ended; /* the transfer moved: before, others were waited for */
  int64_t times;        /* of the same in calls of one body, whose begin is 0 then */
} RankWait;

/* The same walk with what everything costs, in ticks of the caller's choice. */
typedef struct RunCosts {
  void *ud;
  /* How long an instruction of a pp rank takes: the compute queue for a CALL (without its
   * body), KERNEL or FREE; what is started, once all members have started it and it is
   * the first in its queues. In a body it must not depend on the call. */
  int64_t (*cost)(void *ud, int pp, const Instr *in);
  /* NULL, or called when an instruction of main is done with the compute queue, which had
   * come to it at `from`. */
  void (*ran)(void *ud, int pp, const Instr *in, int64_t from, int64_t to);
  /* NULL: transfers take their cost, whatever else runs. Or what is started takes of
   * links; then everything happens in the order of time, and what shares a link gets
   * slower. */
  void (*load)(void *ud, int pp, const Instr *in, LinkLoad *out);
  /* NULL, or called after each wait. */
  void (*waited)(void *ud, int pp, const RankWait *w);
  bool in_order; /* on the stricter backend, see prove.c */
  /* NULL, or whether a rank computes nothing while what it starts takes what it takes
   * alone. */
  bool (*stands)(void *ud, int pp, const Instr *in);
  /* With `load`, where ranks are threads: the cores of their machine, and how many of
   * them the ranks of one pp rank can use together. Compute queues that work and
   * transfers that move get equal shares of the cores if there are not enough. 0: each
   * rank has a device of its own. */
  double cores, rank_cores;
} RunCosts;
typedef struct RankTime {
  int64_t end;                  /* of main */
  int64_t busy, waited, shared; /* of the compute queue; together `end`. shared: what it
                                   took longer because others used its cores */
} RankTime;
/* Times of each pp rank, for programs that prove() has passed. */
weft_status run_costs(const Compiled *c, const RunCosts *costs, RankTime *out,
                      weft_error *e);

#endif
