/* graph.h - ops over tensors, whose dimensions and placements are those of place.h.
 *
 * The logical graph describes ONE microbatch of all data-parallel ranks together:
 * B = micro * dp sequences of T tokens. Shapes are global. autodiff() adds the
 * backward ops; shard() writes a second graph whose tensors also carry a placement
 * and local sizes, with collectives as ops. */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include <math.h>

#include "place.h"
#include "vm/base/base.h"

typedef enum {
  DT_F32,
  DT_BF16,
  DT_F64,
  DT_I32,
  DT_F16,
  DT_U8,  /* codes of quantised weights */
  DT_Q8,  /* averages in 8 bits, in blocks (vm/base/dynamic8.h): of any sign, */
  DT_UQ8, /* and of squares. An item of these types is a block */
  DT_ACT, /* the plan's compute type; shard() resolves it */
  DT_GRAD /* that of its gradients of parameters, likewise */
} DType;
int dtype_size(DType t);             /* bytes of an item; DT_ACT and DT_GRAD are errors */
int dtype_elements(DType t);         /* of an item: 1, or those of a block */
DType dtype_named(const char *name); /* one of those below; DT_ACT: none */
const char *
dtype_name(DType t); /* "f32", "bf16", "f64", "i32", "f16", "u8", "act", "grad" */

typedef int32_t Tid; /* tensor */
typedef int32_t Oid; /* op */

typedef enum { T_VALUE, T_PARAM, T_INPUT } TensorKind;
enum { NEXT_MOST = 4 }; /* how many tokens ahead inputs look, at most */
typedef enum {
  IN_TOKENS,
  IN_LABELS,
  IN_POSITIONS,
  IN_DOC_STARTS,
  IN_TOKEN_NUMBERS,
  IN_SOURCES,
  IN_REFERENCE,
  IN_NEXT_TOKENS,
  IN_NEXT_LABELS = IN_NEXT_TOKENS + NEXT_MOST,
  IN_SEED = IN_NEXT_LABELS + NEXT_MOST,
  IN_N
} InputKind;
/* The input of tokens, or of labels, `ahead` places further on; 0: these themselves. */
static inline InputKind input_ahead(InputKind of, int ahead) {
  InputKind first = of == IN_TOKENS ? IN_NEXT_TOKENS : IN_NEXT_LABELS;
  return ahead ? (InputKind)((int)first + ahead - 1) : of;
}
/* How far ahead an input is; 0 of all but those of input_ahead. */
static inline int input_places(InputKind k) {
  if (k < IN_NEXT_TOKENS || k >= IN_SEED) return 0;
  return ((int)k - IN_NEXT_TOKENS) % NEXT_MOST + 1;
}
extern const char *const input_name[IN_N]; /* "tokens", "labels", ... */
/* tokens, labels, positions, doc_starts: i32 (B, T). doc_starts[b,t] is the position in
 * the row of the first token of t's document. token_numbers: i32 (B, T), the number of a
 * token since the beginning of training, modulo 2^32. sources: i32 (B, T), the number of
 * the stream that the row is from, in a blend of data. reference: f32 (B, T), at the
 * first token of a row the loss of a reference model for the row, elsewhere 0.
 * next_tokens_k, next_labels_k: the token and the label k places further on, or 0 and
 * -100 where that is another document's, or behind the row. seed: f32 (1), the loss scale
 * 1/tokens. */

enum { MAX_DIM = 4, KERNEL_OPERANDS = 19 };

typedef struct Tensor {
  const char *name; /* parameter name, input name, or NULL */
  uint8_t kind;     /* TensorKind */
  uint8_t dtype;    /* DType */
  uint8_t ndim;
  bool joined; /* a parameter, or its gradient, and those behind it: see
                  fused_projections.c */
  Dim dim[MAX_DIM];
  Place place;   /* after shard() */
  Oid producer;  /* -1 for params and inputs */
  int32_t index; /* param index, or InputKind */
  int32_t unit;  /* unit of the producer, -1 */
  Tid grad_of;   /* the tensor that this one is the gradient of, or -1 */
  Tid logical;   /* in a sharded graph: the tensor of the logical graph */
  double even;   /* there, of rows of experts: the part of them that there is if all
                    experts get the same; 1 of any other tensor */
} Tensor;

enum { ROPE_FACTORS = 64 }; /* pairs of a head that may have one each */

/* Attributes of ops, flat: an op reads the fields its row in ops.def names. */
typedef struct OpAttr {
#define INT(name)    int32_t name;
#define BITS(name)   uint32_t name;
#define REAL(name)   float name;
#define LIST(name)   float name[ROPE_FACTORS];
#define WIDE(name)   double name;
#define COUNT(name)  uint64_t name;
#define NUMBER(name) double name;
#define SWITCH(name) double name;
#include "attrs.def"
#include "vm/plan/optimizers.def"
} OpAttr;
/* The size of a head of v and o. */
static inline int attr_value_dim(const OpAttr *a) {
  return a->value_dim ? a->value_dim : a->head_dim;
}
/* What is added to the weight of a norm. */
static inline float attr_weight_plus(const OpAttr *a) {
  return a->zero_centered ? 1.0f : 0.0f;
}
/* The learning rate of a step, where `lr` is that of the plan. */
static inline double attr_lr(const OpAttr *a, double lr) {
  return a->lr > 0 ? a->lr * lr : lr;
}
/* What rope multiplies all that turns at a position by. */
static inline float attr_length_factor(const OpAttr *a, int32_t position) {
  if (a->length_scale == 0) return 1.0f;
  return 1.0f + a->length_scale * logf((float)(1 + position / a->length));
}
/* How many elements of a head turn. */
static inline int attr_rotary_dim(const OpAttr *a) {
  return a->rotary_dim ? a->rotary_dim : a->head_dim;
}

/* Kernels of the device's own, or a library beside them. EITHER: cuDNN, or the device's
 * own kernels where it makes no plan of it. COPIES: the kernel that all such devices
 * have, as ranks repeat a forward op and have to get the same bits. */
enum { BACKEND_NATIVE, BACKEND_CUDNN, BACKEND_EITHER, BACKEND_COPIES };
static inline bool attr_of_library(const OpAttr *a) {
  return a->backend == BACKEND_CUDNN || a->backend == BACKEND_EITHER;
}
enum { SCORE_SOFTMAX, SCORE_SIGMOID };
enum { DROP_NONE, DROP_POSITION, DROP_PROBS };
/* In the place of the row of a choice: its expert is not here; there was no room for it.
 */
enum { ROW_ELSEWHERE = -1, ROW_DROPPED = -2 };
/* `factor` times the mean of n over `of`, rounded up. The factor is a decimal number that
 * f64 only comes near: 1.1 times a mean of 10 is 11, not 12. */
static inline int64_t rows_taken(double factor, int64_t n, int64_t of) {
  double most = factor * (double)n / (double)of * (1 - 1e-12);
  int64_t whole = (int64_t)most;
  return whole + (most > (double)whole);
}
/* permute: of n choices those that go where they have a limit in common. */
static inline int64_t attr_rows_taken(const OpAttr *a, int64_t n) {
  int senders = a->n > 1 ? a->n : 1, owners = a->parts > 1 ? a->parts : 1;
  if (a->capacity > 0) return rows_taken(a->capacity, n / senders, a->experts);
  return a->bound > 0 && owners > 1 ? rows_taken(a->bound, n / senders, owners) : n;
}
enum { EXPERTS_MAX = 1024 }; /* that kernels take */
/* Sinkhorn's iterations end when the factors of experts move by less than this in the
 * mean, as Megatron's do, or after so many; its epsilon is added to each sum. */
enum { SINKHORN_MOST = 1000 };
#define SINKHORN_TOLERANCE 1e-4
#define SINKHORN_EPS       1e-8
enum { SSM_CHUNK = 64 }; /* ssm_scan: tokens whose products are made at once */

/* The bodies of a unit, and what comes after all of them. B: I and W as one; no op is of
 * it. */
typedef enum { PH_F, PH_I, PH_W, PH_B, BODIES, PH_UPDATE = BODIES } Phase;

typedef struct Op {
  uint16_t code; /* OP_x */
  uint8_t phase; /* Phase */
  uint8_t nout;
  bool second;     /* of a second model: adapters leave it as it is */
  bool recomputed; /* forward: runs again where the backward needs its results, see
                 recompute.c; backward: is such a copy */
  int16_t nin;
  Tid *in, *out;
  OpAttr attr;
  int32_t unit;
  Oid fwd;          /* the forward op that a backward op belongs to; -1 */
  const char *name; /* module: "layers.3.mlp.down_proj", or NULL */
  int32_t line;     /* in the file of the model function, 0 if unknown */
  uint8_t role[16]; /* backward ops: what in[i] is, then what out[i] is, see below */
} Op;

/* How an operand or result of a backward op relates to its forward op. Low bits: index.
 */
enum {
  ROLE_NONE = 0,
  ROLE_IN = 0x10,
  ROLE_OUT = 0x20,
  ROLE_DOUT = 0x30,
  ROLE_DIN = 0x40,
  ROLE_KIND = 0xf0,
  ROLE_INDEX = 0x0f
};

typedef enum {
  INIT_NORMAL,
  INIT_ZEROS,
  INIT_ONES,
  INIT_UNIFORM,
  INIT_NUMBER,      /* std */
  INIT_ROW_NORMS,   /* of magnitudes: the norms of their base's rows, */
  INIT_COLUMN_NORMS /* or columns: see vm/weights/magnitudes.h */
} InitKind;
/* Parameters of an adapter of a linear y = x @ W: y + scale * (x @ A) @ B; of experts,
 * which have one each, A is (E, rank, in) and B (E, out, rank). */
typedef enum { ADAPTER_NONE, ADAPTER_A, ADAPTER_B, ADAPTER_M } AdapterPart;
/* What the part's name has behind that of the module, as PEFT has it. */
static inline const char *adapter_suffix(AdapterPart part) {
  return part == ADAPTER_A   ? ".lora_A.weight"
         : part == ADAPTER_B ? ".lora_B.weight"
                             : ".lora_magnitude_vector";
}
/* Parameters that a frozen weight (O, I) is stored as in 4 bits (vm/base/nf4.h): two
 * codes in a byte (O, I/2), under the name of the weight; scales of blocks (O, I/64); of
 * groups of these, with the offset behind. */
typedef enum { QUANT_NONE, QUANT_CODES, QUANT_SCALES, QUANT_GROUPS } QuantPart;
typedef struct Param {
  const char *name; /* Hugging Face name */
  Tid tensor;
  uint8_t init;     /* InitKind */
  float std;        /* of INIT_UNIFORM: values are between -std and std */
  uint8_t adapter;  /* AdapterPart */
  uint8_t quant;    /* QuantPart */
  const char *base; /* of an adapter, and of scales: the weight that it belongs to */
  double alpha;     /* of an adapter: see plan_adapter_scale */
  bool saved;       /* of the model, and learns beside its adapter */
  bool decay;       /* weight decay applies: a matrix, and no biases of experts */
  bool frozen;      /* does not learn: see vm/rewrite/trainable.c */
  int32_t group;    /* Plan.group that it is in, from 1; 0: none */
  float share;      /* of a router's bias, which chooses: of all choices those that an
                       expert should get; 0: stepped by the optimizer */
  int32_t line;     /* in Graph.file, 0 if unknown */
  const char *like; /* the parameter that it begins as, by a name of the model's own; its
                       own name but for those of a second model */
} Param;

/* Where pp_plan, recompute and FSDP may cut. Units are in execution order. */
typedef struct Unit {
  const char *name; /* "layers.3", "embed_tokens", "norm", "lm_head" */
  int layer;        /* layer number, or -1 */
} Unit;
/* A module name without what says which layer: bodies of equal layers are equal. */
const char *unit_relative_name(const Unit *u, const char *name);

/* A model beside the one that is trained: see second_model.h. */
typedef struct SecondModel {
  const char *prefix; /* of its parameters; "": it has none of its own */
  bool open;          /* what is added now is of it */
  int units;          /* of it, the first ones of the graph */
} SecondModel;

/* A number that files of the model have beside its parameters, as a tensor without
 * dimensions, and that is the same in all of them: a buffer of PyTorch's module. */
typedef struct Buffer {
  const char *name;
  float value;
} Buffer;

typedef struct Graph {
  Arena *arena;
  VEC(Tensor) t;
  VEC(Op) op; /* forward in execution order, then backward */
  VEC(Param) param;
  VEC(Buffer) buffer;
  VEC(Unit) unit;
  Names param_names, unit_names; /* of what graph_param and graph_open_unit made */
  int32_t open_unit;             /* -1 outside */
  Tid input[IN_N];               /* -1 if the model does not read it */
  Tid loss;
  Tid told;  /* a cross entropy that is computed for its sums by source alone, or -1 */
  Tid *grad; /* after autodiff: for each tensor its gradient, or -1 */
  int64_t batch, seq;        /* B, T */
  int64_t context;           /* of a graph of one token: with those before it; 0: seq */
  SecondModel *second;       /* NULL: the graph has none */
  int sources;               /* streams of a blend whose losses are told apart; 0: none */
  const char *file;          /* of the model function, NULL if it is not the user's */
  const char *const *packed; /* modules that files of the model have as one, see
                                packed_modules.h; NULL: none */
  int forward_ops;           /* ops before this index are forward (after autodiff) */
} Graph;

/* Whether what is added now is of a second model. */
static inline bool second_open(const Graph *g) { return g->second && g->second->open; }

enum OpCode {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) OP_##name,
#include "ops.def"
  OP_N
};

typedef struct OpInfo {
  const char *name;
  int nin, nout;                                         /* -1: any number */
  weft_status (*infer)(Graph *g, Op *op, weft_error *e); /* sets shapes of op->out */
  void (*grad)(Graph *g, Oid op, const Tid *dout, Tid *din);
  double (*cost)(const Graph *g, const Op *op); /* flops from local sizes, of experts of
                                                   all rows that buffers have */
  const char *doc;
} OpInfo;
extern const OpInfo op_info[OP_N];
int op_parse(const char *name); /* -1 if unknown */
/* Ops that make gradients of parameters: f32, added to what is there where told. */
bool op_adds(int code);
/* The parameter that a weight is, or is made of where that is stored in 4 bits; else `t`.
 */
Tid graph_weight(const Graph *g, Tid t);
/* The type of the gradient of a tensor as ops that add up make it: DT_GRAD of a
 * parameter, but f32 of a router's bias, whose gradient is a count, and of others. */
DType graph_grad_dtype(const Graph *g, Tid of);
/* Where results may lie: the rows of in_place.def. */
typedef enum { PLACE_UNIT, PLACE_LATER, PLACE_STEP, PLACE_ALWAYS } PlaceWhen;
typedef struct OpPlace {
  uint16_t op;
  uint8_t result, other; /* of an operand, or of a result if `twice` */
  bool twice;
  uint8_t when; /* PlaceWhen */
} OpPlace;
extern const OpPlace op_place[];
extern const int op_places;
/* Whether the row is one of an op with such attributes. */
bool op_place_is(const OpPlace *p, int code, const OpAttr *a);
/* Whether units may choose it, where nobody reads the operand afterwards. */
static inline bool place_is_free(const OpPlace *p) {
  return p->when == PLACE_UNIT || p->when == PLACE_LATER;
}

Graph *graph_new(Arena *a, int64_t batch, int64_t seq);
/* A graph that begins as this one and to which ops can be added. What both have in common
 * stays in the arena of `g`. */
Graph *graph_fork(const Graph *g, Arena *a);
/* An input of the model, made at first use. */
Tid graph_input(Graph *g, InputKind k);
/* A parameter; asking again for the same name gives the same tensor (tied weights)
 * and is an error if the dimensions differ. */
weft_status graph_param(Graph *g, const char *name, const Dim *dim, int ndim,
                        InitKind init, float std, Tid *out, weft_error *e);
/* A buffer; giving it again is an error if the value differs. */
weft_status graph_buffer(Graph *g, const char *name, float value, weft_error *e);
/* Adds an op; its outputs (op_info.nout, for split attr.n) go to out[]. `name` is the
 * module it belongs to or NULL: then the module of its first parameter operand. */
weft_status graph_op(Graph *g, int code, const Tid *in, int nin, const OpAttr *attr,
                     const char *name, int line, Tid *out, weft_error *e);
/* Units may not nest. layer = -1 for units that are not layers. */
weft_status graph_open_unit(Graph *g, const char *name, int layer, weft_error *e);
void graph_close_unit(Graph *g);
/* Whether one of its ops has this code. */
bool graph_has(const Graph *g, int code);
/* Ends building: the loss must be a scalar made by this graph. */
weft_status graph_finish(Graph *g, Tid loss, weft_error *e);

/* For the passes: no inference, shapes are given. Returns the new op. */
Oid graph_add(Graph *g, int code, int nin, int nout, int unit, Phase ph);
Tid graph_tensor(Graph *g, TensorKind kind, DType dt, const Dim *dim, int ndim);
double dims_size(const Dim *dim, int n); /* elements of all ranks */
int64_t tensor_count(const Tensor *t);   /* elements, local sizes */
int64_t tensor_bytes(const Tensor *t);
const char *tensor_label(const Graph *g, Tid t, char buf[96]); /* for messages */

/* The invariants of the graph, between passes where it is asked for (strict.h); names
 * the offender. */
weft_status graph_check(const Graph *g, weft_error *e);
void graph_dump(const Graph *g, Text *out);

#endif
