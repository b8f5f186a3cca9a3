/* plan_parallel.h - how a plan lays a model over ranks: tp_plan, pp_plan, strategy. */
#ifndef WEFT_PLAN_PARALLEL_H
#define WEFT_PLAN_PARALLEL_H

#include "vm/base/diag.h"
#include "vm/mesh/mesh.h"

/* tp_plan styles; the canonical names of `style_info`. Aliases in tp_style_parse. */
typedef enum {
  STYLE_REPLICATE,
  STYLE_COLWISE,
  STYLE_ROWWISE,
  STYLE_COLWISE_GATHER,
  STYLE_ROWWISE_REP,
  STYLE_SEQUENCE,
  STYLE_EMBEDDING_ROWWISE,
  STYLE_EMBEDDING_COLWISE,
  STYLE_PACKED_COLWISE,
  STYLE_PACKED_ROWWISE,
  STYLE_EXPERTS, /* whole, but for what mesh.ep and mesh.etp cut */
  STYLE_N
} TpStyle;
/* -1 if unknown; `later` (may be NULL) is set if it is a known name that this version
 * does not build yet. */
int tp_style_parse(const char *name, bool *later);
/* What else a plan must say where it uses that name: bits. */
enum { STYLE_WITH_SEQUENCE = 1, STYLE_WITH_LOSS = 2 };
int tp_style_with(const char *name);
const char *tp_style_name(TpStyle s);
/* All names that tp_style_parse takes, for suggestions; NULL-terminated. */
const char *const *tp_style_names(void);

typedef struct TpRule {
  const char *pattern; /* "layers.*.self_attn.q_proj"; path tp_plan["<pattern>"] */
  TpStyle style;
  bool from_default; /* the library has it for this architecture: it may match nothing */
  uint8_t with;      /* what its name says beside the style: tp_style_with */
} TpRule;

/* Which units each stage runs, in the order of stages whatever ranks they lie on. At most
 * one of layers (or layout, which gives them), modules, by_cost and the group of
 * layers_per_stage and less is said; none: even. */
typedef struct PpPlan {
  int virtual_stages;  /* per rank; 0 = virtual_default */
  int virtual_default; /* what the schedule wants; 0 = 1 */
  const int *layers;
  int nlayers;        /* per stage */
  const char *layout; /* the text that `layers` was read from, or NULL; */
  int layout_further; /* of these, layers for further tokens */
  const char *const *const *modules;
  int nmodules;                                   /* per stage: NULL-terminated names */
  int layers_per_stage;                           /* at most so many; 0 = not said */
  enum { ROUND_NOT, ROUND_UP, ROUND_DOWN } round; /* its stages, to a multiple of pp */
  int first_less, last_less; /* layers that the embedding and the head count as */
  bool by_cost;              /* stages of equal work */
} PpPlan;

/* pp_layout.c: reads a layout such as "Et*3|(tt|)*29,t|L" into the layers of each stage;
 * *further: how many of them are for further tokens. NULL if it is wrong: then *wrong
 * says why and at which column, counted from 1. */
const int *pp_layout(const char *text, Arena *a, int *stages, int *further,
                     const char **wrong);

typedef enum {
  STRATEGY_ZERO,
  STRATEGY_DDP,
  STRATEGY_FSDP2,
  STRATEGY_MEGATRON_FSDP
} StrategyKind;
/* Whether gathered parameters are given up between forward and backward. */
typedef enum { RESHARD_BY_PP, RESHARD_YES, RESHARD_NO } Reshard;
typedef struct Strategy {
  StrategyKind kind;
  int stage; /* zero: what is cut over dp, see vm/lower/arena_layout.c */
  bool sequence_parallel, overlap_grad_reduce;
  bool overlap_tp;           /* orders bodies so that collectives run beside kernels */
  bool async_tp;             /* gathers and scatters of products in chunks */
  bool loss_parallel;        /* on logits that are cut by vocabulary, as they come */
  bool keep_gathered;        /* for W, where it runs apart from I */
  bool overlap_param_gather; /* beside the optimizer, which makes them */
  int64_t bucket_bytes;      /* of gradient all_reduce; default 25 MiB */
  Reshard reshard;           /* BY_PP: NO with pipeline stages, else YES */
  int reshard_to;            /* YES: shards over so many ranks that stay from forward to
                                backward; 0: none do */
  const char
      *reshard_experts; /* "1", "0": whether those of experts do; NULL: as others */
  int prefetch[2];      /* calls that a gather starts ahead: forward, backward */
  bool defer_grad_sync; /* gradients are reduced once a step, not in each W */
  int64_t persistence;  /* parameters of fewer elements stay whole */
  bool offload_state;   /* optimizer state lies in the memory of the host */
  bool offload_params;  /* and shards of parameters do */
} Strategy;

#endif
