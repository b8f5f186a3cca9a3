/* shard.h - the interface between the pass and placement rules, and its result (Sharded).
 */
#ifndef WEFT_SHARD_H
#define WEFT_SHARD_H

#include "vm/program/compile_input.h"

typedef struct Shard Shard;

/* What a parameter is to the op that reads it; decides what a style means for it. */
typedef enum {
  ROLE_WEIGHT,
  ROLE_BIAS,
  ROLE_TABLE,
  ROLE_NORM,
  ROLE_EXPERTS /* weights (expert, out, in) */
} ParamRole;

typedef struct Conversion {
  Place to;
  int unit;
  Phase phase;
  Tid t;       /* in the sharded graph */
  bool gather; /* issued again in backward instead of being saved */
} Conversion;

/* Rows that a permutation on the ranks of ep exchanges. */
struct Way {
  const Op *permute;
  Tid given, taken; /* n of regroup: to each rank, from each */
};

/* Writes an op that its placements make several ops, with their steps: `in` are the
 * sharded operands; sets s->local of the results. Writes the backward op of a forward op,
 * too. */
typedef void ExpandFn(Shard *s, Oid op, const Tid *in);

/* shard_rules.c: the placement rule of each op, from ops.def; NULL: it has none. False:
 * it cannot be placed (reported). */
typedef bool ShardRule(Shard *s, Oid op);
extern ShardRule *const shard_rule[OP_N];

struct Shard {
  const Graph *g; /* logical, after autodiff */
  Graph *out;     /* sharded: only ops with local shapes and collectives */
  const Plan *plan;
  Diags *d;
  int n[AX_N];            /* axis sizes */
  int tp;                 /* ranks over both parts of tp */
  Place *place;           /* of each logical tensor, as produced */
  Place **need, **yield;  /* of each op: operands, results */
  bool regather;          /* W gathers again what I gathered */
  ExpandFn **expand;      /* of each forward op: NULL, it is one op */
  bool *gathered;         /* op: its result is gathered at once (colwise_gather_output) */
  Tid *local;             /* sharded tensor of each logical one */
  VEC(Conversion) * conv; /* made so far, for each logical tensor */
  bool *crosses;          /* read in another unit than the one that makes it */
  int *rule_hits;         /* how many parameters each tp_plan rule matched */
  int8_t *placed;         /* of each parameter: 1 once its placement is fixed */
  Place *grad_to;         /* of each parameter: how its gradient adds up */
  int *contributions;     /* of each parameter: results that are its gradient */
  VEC(struct Way) way;    /* see expert_dispatch.c */
  VEC(const char *) told; /* unforced conversions that were reported */
};

/* ---- shard_param.c ---- */
/* Of a model that has fewer key-value heads than tp has ranks: the ranks that have the
 * same one. */
int shard_head_copies(const Graph *g, int tp);
/* Whether tp_rep has copies of the pieces into which tp_kv cuts dimension `dim`. */
bool shard_copied(const Shard *s, Tid id, int dim);
/* True the first time a problem is told; layers repeat it. */
bool shard_tell_once(Shard *s, const char *what);
/* Whether tp divides dimension `dim` of a tensor; reports it if not. */
bool shard_check_cut(Shard *s, Tid id, int dim);

/* The same of weights of experts that are cut over the expert mesh. */
bool shard_experts_param(Shard *s, Oid op, int i, Place *p);

/* ---- shard_experts.c ---- */
/* Whether experts are cut over the expert mesh; if not, they are as other layers are. */
bool shard_own_experts(const Shard *s);
/* Rows of experts on a rank, of a tensor of the logical graph: the most there can be. */
int64_t shard_ragged(const Shard *s, Tid t, Place p);
void shard_limit_rows(const Shard *s, Op *op);

/* The permutation that made the rows of a tensor, or of what it is the gradient of; NULL
 * if it has no such rows. */
const Op *shard_permutation(const Graph *g, Tid t);

/* ---- expert_dispatch.c ---- */
/* Whether a tensor changes between rows of own tokens and rows of own experts. */
bool shard_exchanges_rows(Place from, Place want);
/* `from`, which stands for `logical`, with the other ones. */
Tid shard_exchange_rows(Shard *s, Tid logical, Tid from, int want, const Op *user,
                        Phase ph);

/* ---- shard_backward.c ---- */
/* Operands and results of a backward op. */
void shard_place_backward(Shard *s, Oid op);
void shard_grad_targets(Shard *s);
/* Whether all operands of an op are parts of sums over the axis. */
bool shard_all_parts(const Shard *s, Oid op, int axis);
/* If result i of a backward op that was just written is the gradient of a parameter: has
 * it add up in that parameter's buffer. */
bool shard_settle_gradient(Shard *s, Oid op, int i);

/* ---- shard_convert.c ---- */
/* `from`, which stands for `logical`, as `want`, in a body of the unit of `user`. */
Tid shard_convert(Shard *s, Tid logical, Tid from, Place want, const Op *user, Phase ph);
/* Whether a rank gets what others have on the way. */
bool shard_gathers(Place p, Place want);

/* ---- shard.c, for those and shard_backward.c ---- */
/* Writes an op between tensors of the sharded graph; its result stands for `logical` with
 * that placement, and has its dimensions or, if given, these, which are local. */
Tid shard_emit(Shard *s, int code, const Tid *in, int nin, OpAttr attr, Tid logical,
               Place p, const Dim *dim, int ndim, const Op *user, Phase ph);
/* How two placements are told apart: a part of cp or tp with one rank is as the other. */
Place shard_told(const Shard *s, Place p);
bool shard_same(const Shard *s, Place a, Place b);
/* A cast of `from`, which stands for `logical` placed as `to`; over the axes of
 * `one_rank` only the first rank has it. */
Tid shard_emit_cast(Shard *s, Tid logical, Tid from, Place to, AxisSet one_rank,
                    const Op *user);

/* ---- shard.c, for what expands ---- ops and tensors of the sharded graph */
Oid shard_emit_op(Shard *s, int code, int nin, int nout, const Op *like, Phase ph);
/* A tensor that stands for logical tensor `t` placed as `p`. */
Tid shard_emit_tensor(Shard *s, Tid t, Place p);
/* What an op makes is a value, also where it is a piece of an input. */
void shard_bind(Shard *s, Oid id, int k, Tid t);
/* Whether rows stand in the order of slots; see sequence.h. */
bool shard_cut_documents(const Shard *s);
/* Tells a kernel of attention which queries are here, and in which order rows are. */
void shard_cut_queries(const Shard *s, Op *op);
/* ---- ring_attention.c ---- */
ExpandFn shard_ring;
/* The axes that the ring goes over, as bits. */
uint32_t shard_ring_axes(const Shard *s);

/* ---- for rules ---- of tp they know one axis, AX_TP: AX_TP_REP follows it in what they
 * need and yield, but where heads are copied it is whole (shard_with_copies) */
/* Placement of operand i as produced. */
Place shard_in(const Shard *s, Oid op, int i);
/* The same after any P was reduced: to S(seq) on tp for the residual stream under
 * sequence parallelism, else to R. */
Place shard_settled(const Shard *s, Oid op, int i);
Place shard_settle(const Shard *s, Tid t);
bool shard_is_residual(const Shard *s, Tid t);
/* `p` as a placement of tensor t. */
Place shard_with_copies(const Shard *s, Tid t, Place p);
/* A part of a sum over all of the expert mesh, which is one over the ranks of the dense
 * one, as that; else `p`. */
Place shard_dense_sum(const Shard *s, Place p);
/* Sums over tp of what an operand placed as `by` divides: `how` is PL_P or PL_MAX. */
void shard_divide(Place *y, Place by, int how);
void shard_need(Shard *s, Oid op, int i, Place p);
void shard_yield(Shard *s, Oid op, int i, Place p);
/* Cuts or replicates the parameter at operand i by its style; `out_dim` is the dimension
 * of its output features (weights). False if that is impossible (reported). */
bool shard_param(Shard *s, Oid op, int i, ParamRole role, int out_dim, Place *p);
/* Whether dimension `di` of operand i and `dk` of operand k, which are cut alike, have
 * the same packed parts; reports it if not. */
bool shard_same_parts(Shard *s, Oid op, int i, int di, int k, int dk);
/* Whether operand i, whose last dimension is cut, is cut between heads, each of so many
 * elements; reports it. */
bool shard_whole_heads(Shard *s, Oid op, int i, int head);
/* Whether each rank of cp has as many heads of queries, keys and values; reports it. */
bool shard_cp_heads(Shard *s, Oid op);
TpStyle shard_style(Shard *s, Oid op, int i);

/* ---- tp_plan_match.c ---- */
/* Index of the rule for a parameter read by module `module`, or -1: replicate. Counts
 * every rule that matches in `hits`; `tie` is one that is as specific as the result but
 * has another style, or -1. */
int tp_match(const Plan *p, const char *param, const char *module, int *hits, int *tie);
/* Whether a pattern speaks of the parameter, or of the module that reads it (NULL: its
 * own) where it is tied to another one. */
bool tp_pattern_matches(const char *pattern, const char *param, const char *module);
/* Whether a pattern is the name of `n` characters, with or without "model." or
 * "transformer." before it. */
bool tp_pattern_fits(const char *pattern, const char *s, size_t n);
/* "model.layers.3.mlp.up_proj.weight" -> "layers.*.mlp.up_proj", as one writes it. */
const char *tp_as_pattern(Arena *a, const char *param);
/* Errors for rules of the user that matched nothing. */
void tp_unmatched(const Shard *s);

/* Weights of one unit that lie side by side in memory, the last one first, as one matrix.
 */
enum { JOINED_MOST = 3 };
typedef struct Joined {
  int n, param[JOINED_MOST];
  Tid whole; /* that matrix; a parameter of the index of the last one */
} Joined;

/* ---- the pass ---- */
typedef struct Sharded {
  Graph *g;           /* F ops, then I, then W, each in order */
  Tid *local;         /* logical tensor -> sharded tensor as produced */
  Place *param_place; /* of each parameter as stored */
  Place *grad_place;  /* of each parameter's gradient as W bodies leave it */
  Place loss_place;
  Joined **joined; /* of each parameter, or NULL; NULL: there are none. See
                      fused_projections.h */
  int copies;      /* ranks of tp that have the same key-value heads */
} Sharded;
/* The invariants of the result, of which those of gradients only if it `trains`; names
 * the offender. */
weft_status shard_check(const Graph *logical, const Sharded *s, bool trains,
                        weft_error *e);
/* requires autodiff; establishes placements, local shapes, collectives as ops */
weft_status shard(const CompileInput *in, Sharded *out, Diags *d, weft_error *e);

#endif
