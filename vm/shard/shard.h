/* shard.h - the interface between the pass and the placement rules, and its result
 * (Sharded). */
#ifndef WEFT_SHARD_H
#define WEFT_SHARD_H

#include "vm/program/compile_input.h"

typedef struct Shard Shard;

/* The role of a parameter in the op that reads it, which decides what a style shards. */
typedef enum {
  ROLE_WEIGHT,
  ROLE_BIAS,
  ROLE_TABLE,
  ROLE_NORM,
  ROLE_SINKS,       /* of all heads, or numbers of an activation: whole, also where what
                       reads them is sharded */
  ROLE_EXPERTS,     /* weights (expert, out, in), or (expert, in, out) */
  ROLE_EXPERTS_BIAS /* (expert, out) */
} ParamRole;

typedef struct Conversion {
  Place to;
  int unit;
  Phase phase;
  Tid t;       /* in the sharded graph */
  bool gather; /* a gather: repeated in the backward instead of being saved */
} Conversion;

/* Row counts of a permutation that the ranks of ep exchange. */
struct Way {
  const Op *permute;
  Tid given, taken; /* rows sent to each rank, received from each: operand n of regroup */
};

/* Writes an op that its placement makes several ops: `in` are its operands in the sharded
 * graph; sets s->local of its results. Also writes the backward op of such an op. */
typedef void ExpandFn(Shard *s, Oid op, const Tid *in);

/* The placement rule of an op (shard_rules.c), named in ops.def; NULL: the op has none.
 * False: it cannot be placed (reported). */
typedef bool ShardRule(Shard *s, Oid op);
extern ShardRule *const shard_rule[OP_N];

struct Shard {
  const Graph *g; /* logical, after autodiff */
  Graph *out;     /* sharded: only ops with local shapes and collectives */
  const Plan *plan;
  Diags *d;
  int n[AX_N];           /* axis sizes */
  int tp;                /* ranks of tp, over both parts */
  bool own_experts;      /* experts are sharded over the expert mesh; if not, as other
                            layers are */
  Place *place;          /* of each logical tensor, as its op gives it */
  Place **need, **yield; /* of each op: of operands, of results */
  bool regather;         /* W gathers again what I has gathered */
  ExpandFn **expand;     /* of each forward op: NULL for one that stays one op */
  bool *gathered; /* of each op: its result is gathered at once (colwise_gather_output) */
  Tid *local;     /* of each logical tensor: its sharded tensor */
  VEC(Conversion) * conv; /* of each logical tensor: conversions so far */
  bool *crosses;          /* of each logical tensor: another unit reads it, or the host */
  Tid logits;             /* that the host reads, or -1 */
  int told_losses;        /* cross entropies of which each source has a part */
  int *rule_hits;         /* number of parameters that each tp_plan rule matched */
  int8_t *placed;         /* of each parameter: 1 once its placement is fixed */
  Place *grad_to; /* of each parameter: the placement in which its gradient accumulates */
  int *contributions;     /* of each parameter: number of results that are its gradient */
  VEC(struct Way) way;    /* see expert_dispatch.c */
  VEC(const char *) told; /* warnings about conversions that were given */
};

/* ---- shard_param.c ---- */
/* For a model with fewer key-value heads than tp ranks: the number of ranks that share a
 * head. */
int shard_head_copies(const Graph *g, int tp);
/* Whether the pieces of dimension `dim` over tp_kv are replicated over tp_rep. */
bool shard_copied(const Shard *s, Tid id, int dim);
/* True the first time it is called with this message: layers repeat problems. */
bool shard_tell_once(Shard *s, const char *what);
/* Whether tp divides dimension `dim` of a tensor; reports it if not. */
bool shard_check_cut(Shard *s, Tid id, int dim);

/* Places the weights of experts over the expert mesh, as shard_param does. */
bool shard_experts_param(Shard *s, Oid op, int i, Place *p);
/* False, and reported, if the placements that the rule of an op has set cut, or sum up,
 * over both meshes; those of the results are then whole over the dense one. */
bool shard_stays_on_mesh(Shard *s, Oid op);

/* ---- shard_experts.c ---- */
/* The most rows of experts that a rank can have of a logical tensor in this placement. */
int64_t shard_ragged(const Shard *s, Tid t, Place p);
/* The part of them that there is if all experts get the same. */
double shard_even(const Shard *s, Tid t, Place p);
void shard_limit_rows(const Shard *s, Op *op);

/* The permutation that made the rows of a tensor, or of the tensor it is the gradient of;
 * NULL if it has no such rows. */
const Op *shard_permutation(const Graph *g, Tid t);

/* ---- expert_dispatch.c ---- */
/* Whether a conversion is between rows of a rank's own tokens and rows for its own
 * experts. */
bool shard_exchanges_rows(Place from, Place want);
/* Makes that conversion of `from`, which stands for `logical`. */
Tid shard_exchange_rows(Shard *s, Tid logical, Tid from, int want, const Op *user,
                        Phase ph);

/* ---- shard_backward.c ---- */
/* Sets the placements of operands and results of a backward op. */
void shard_place_backward(Shard *s, Oid op);
void shard_grad_targets(Shard *s);
/* ---- shard_fp8.c ---- Of a backward op that is an amax, or that reads one. */
void shard_place_fp8(Shard *s, Oid op);
/* Whether all operands of an op are partial over the axis. */
bool shard_all_parts(const Shard *s, Oid op, int axis);
/* If result i of a backward op that was just written is the gradient of a parameter,
 * makes it accumulate in the parameter's gradient buffer. */
bool shard_settle_gradient(Shard *s, Oid op, int i);

/* ---- shard_convert.c ---- */
/* Converts `from`, which stands for `logical`, to placement `want`, in a body of the unit
 * of `user`; returns the converted tensor. */
Tid shard_convert(Shard *s, Tid logical, Tid from, Place want, const Op *user, Phase ph);
/* Whether a conversion includes a gather. */
bool shard_gathers(Place p, Place want);

/* ---- shard_emit.c, for shard.c, those and shard_backward.c ---- */
/* Writes an op of the sharded graph; its result stands for `logical` in this placement,
 * with the dimensions of `logical` or, if given, these local ones. */
Tid shard_emit(Shard *s, int code, const Tid *in, int nin, OpAttr attr, Tid logical,
               Place p, const Dim *dim, int ndim, const Op *user, Phase ph);
/* The placement with which `p` is compared: a part of cp or tp with one rank counts as
 * the other part. */
Place shard_told(const Shard *s, Place p);
bool shard_same(const Shard *s, Place a, Place b);
/* A cast of `from`, which stands for `logical` placed as `to`; over the axes of
 * `one_rank` only the first rank contributes. */
Tid shard_emit_cast(Shard *s, Tid logical, Tid from, Place to, AxisSet one_rank,
                    const Op *user);

/* ---- shard_emit.c, for rules that expand an op ---- */
Oid shard_emit_op(Shard *s, int code, int nin, int nout, const Op *like, Phase ph);
/* Adds a tensor that stands for logical tensor `t` placed as `p`. */
Tid shard_emit_tensor(Shard *s, Tid t, Place p);
/* Makes tensor t result k of an op. */
void shard_bind(Shard *s, Oid id, int k, Tid t);
/* Whether rows are in the order of document chunks; see sequence.h. */
bool shard_cut_documents(const Shard *s);
/* Tells a kernel that drops with which seed, and which columns or heads this rank has;
 * `id` is its logical op. */
void shard_dropout_place(const Shard *s, Oid id, Op *op);
/* Tells an attention kernel which queries this rank has, and the order of its rows. */
void shard_cut_queries(const Shard *s, Op *op);
/* Writes an op as it is, of these operands. */
void shard_emit_like(Shard *s, Oid id, const Tid *in);
/* Sets the local sizes of parameters once their placement is known. */
void shard_size_params(Shard *s);
/* ---- ring_attention.c ---- */
ExpandFn shard_ring;
/* The axes of the ring, as bits. */
uint32_t shard_ring_axes(const Shard *s);

/* ---- for rules ---- Rules see tp as one axis, AX_TP; AX_TP_REP follows it, except that
 * replicated heads are whole over it (shard_with_copies). */
/* Placement of operand i as its op gives it. */
Place shard_in(const Shard *s, Oid op, int i);
/* The same after partial sums are reduced: to S(seq) on tp for the residual stream under
 * sequence parallelism, else to R. */
Place shard_settled(const Shard *s, Oid op, int i);
Place shard_settle(const Shard *s, Tid t);
bool shard_is_residual(const Shard *s, Tid t);
/* `p`, but with the last dimension of tensor t whole over tp where it is packed from
 * parts: for what finds a column by its number, which needs one run of them. */
Place shard_one_run(const Shard *s, Tid t, Place p);
/* `p` adapted to tensor t, whose heads may be replicated over AX_TP_REP. */
Place shard_with_copies(const Shard *s, Tid t, Place p);
/* Whether a placement is whole over the dense mesh, or over the expert mesh. Ranks with
 * one coordinate of the one have several of the other: a piece of both is nobody's. */
bool shard_on_one_mesh(Place p);
/* A placement that is partial over the whole expert mesh, as one that is partial over the
 * dense mesh; else `p`. */
Place shard_dense_sum(const Shard *s, Place p);
/* Makes *y partial (`how` is PL_P or PL_MAX) over the tp axes that shard `by`. */
void shard_divide(Place *y, Place by, int how);
void shard_need(Shard *s, Oid op, int i, Place p);
void shard_yield(Shard *s, Oid op, int i, Place p);
/* The end of most rules: needs in[] of the first n operands, yields y, and is true. */
bool shard_placed(Shard *s, Oid op, int n, const Place *in, Place y);
/* The placement of the parameter at operand i by its style; `out_dim` is the dimension of
 * the output features of a weight. False if that is impossible (reported). */
bool shard_param(Shard *s, Oid op, int i, ParamRole role, int out_dim, Place *p);
/* Whether a linear takes a sum that is partial over an axis as it is: B of an adapter
 * whose base is cut along its input, because the result is added to that of the base,
 * which is partial, too. */
bool shard_takes_partial(const Shard *s, Oid op, ShardAxis a);
/* The placement of its rows then: settled but for what is partial over tp. */
Place shard_linear_rows(const Shard *s, Oid op);
/* Whether dimensions `di` of operand i and `dk` of operand k, which are sharded alike,
 * are packed from the same parts; reports it if not. */
bool shard_same_parts(Shard *s, Oid op, int i, int di, int k, int dk);
/* Whether the last dimension of operand i is sharded between heads of `head` elements
 * each; reports it if not. */
bool shard_whole_heads(Shard *s, Oid op, int i, int head);
/* Whether cp divides the heads of queries, keys and values; reports it if not. */
bool shard_cp_heads(Shard *s, Oid op);
TpStyle shard_style(Shard *s, Oid op, int i);

/* ---- tp_plan_match.c ---- */
/* Index of the tp_plan rule for a parameter that module `module` reads, or -1: replicate.
 * Counts every rule that matches in `hits`; `tie` is a rule that is as specific as the
 * result but has another style, or -1. */
int tp_match(const Plan *p, const char *param, const char *module, int *hits, int *tie);
/* Whether a pattern matches the parameter, or the module that reads it where the
 * parameter is tied (NULL: its own module). */
bool tp_pattern_matches(const char *pattern, const char *param, const char *module);
/* Whether a pattern is this name of `n` characters, with or without a leading "model.",
 * "transformer." or "backbone.". */
bool tp_pattern_fits(const char *pattern, const char *s, size_t n);
/* Whether a pattern is this name or a module that contains it. */
bool tp_pattern_holds(const char *pattern, const char *name);
/* Adds the name and all modules that contain it, as patterns. */
typedef VEC(const char *) PatternList;
void tp_module_patterns(Arena *a, const char *name, PatternList *out);
/* The pattern for a parameter as a user would write it:
 * "model.layers.3.mlp.up_proj.weight" -> "layers.*.mlp.up_proj". */
const char *tp_as_pattern(Arena *a, const char *param);
/* Reports rules of the user that matched nothing. */
void tp_unmatched(const Shard *s);

/* Weights of one unit that are adjacent in memory, the last one first, so that ops read
 * them as one matrix. */
enum { JOINED_MOST = 3 };
typedef struct Joined {
  int n, param[JOINED_MOST];
  Tid whole; /* the matrix, as a parameter with the index of the last weight */
} Joined;

/* ---- the pass ---- */
typedef struct Sharded {
  Graph *g;           /* F ops, then I, then W, each in order */
  Tid *local;         /* logical tensor -> its sharded tensor */
  Place *param_place; /* of each parameter as stored */
  Place *grad_place;  /* of each parameter's gradient as W leaves it */
  Place loss_place;
  Place sources_place; /* of the sums for each source of a blend */
  int sources;         /* 0: the loss has none */
  Joined **joined;     /* of each parameter, or NULL; NULL if there are none: see
                          fused_projections.c */
  int copies;          /* tp ranks that share a key-value head */
} Sharded;
/* Checks the invariants of the result, those of gradients only if it `trains`; the error
 * names the op. */
weft_status shard_check(const Graph *logical, const Sharded *s, bool trains,
                        weft_error *e);
/* requires autodiff; establishes placements, local shapes, collectives as ops */
weft_status shard(const CompileInput *in, Sharded *out, Diags *d, weft_error *e);

#endif
