/* plan.h - a plan as the compiler sees it: plain data, every field checked for type and
 * range. The bindings fill it from Lua; a C host may fill it by hand. */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "plan_data.h"
#include "plan_learning.h"
#include "plan_parallel.h"

/* Rows of files that are fewer than those of the model: see weights_open.h. */
typedef struct VocabGrowth {
  int64_t from, to; /* 0: nothing grows */
} VocabGrowth;

/* When a run writes its state, and where; see vm/ckpt/ckpt.h. */
/* Whether weights are written for others beside checkpoints: beside none, the last, all.
 */
typedef enum { CONSOLIDATED_NEVER, CONSOLIDATED_FINAL, CONSOLIDATED_EVERY } Consolidated;

typedef struct Checkpointing {
  const char *dir;     /* NULL: nowhere */
  const char *within;  /* the plan's folder, with which `dir` begins, and below
                          which no link to it is followed; NULL: the user named
                          `dir` */
  int64_t every, keep; /* steps; 0: at the end only. Last ones that stay; 0: all */
  bool keep_best;      /* saves after the best evaluation, and keeps that one, too */
  bool async;          /* steps go on while it is written */
  Consolidated consolidated;
} Checkpointing;

/* Names of parameters and modules, as patterns of tp_plan. */
typedef struct Patterns {
  const char *const *at;
  int n;
} Patterns;

/* Patterns, and a number for what each of them names. */
typedef struct PatternNumber {
  const char *pattern;
  double number;
} PatternNumber;
typedef struct PatternNumbers {
  const PatternNumber *at;
  int n;
} PatternNumbers;

/* Parameters that are stepped in another way than the others. */
typedef struct ParamGroup {
  Patterns of;
  double lr;           /* times that of the plan */
  bool own_decay;      /* weight_decay is given: for all of them, vectors too */
  double weight_decay; /* instead of the optimizer's */
} ParamGroup;

/* As the plan's precision says, or in 4 bits: see vm/rewrite/quantized_base.c. */
typedef enum { BASE_UNQUANTIZED, BASE_NF4 } BaseStorage;
/* Where an adapter drops: what A reads, as PEFT does, or what B gives. */
typedef enum { DROPS_PRE, DROPS_POST } DropoutPosition;

/* Modules that Transformers has in memory, and PEFT in an adapter's folder, under another
 * name than files of the model, whose names are those of parameters. */
typedef struct ModuleName {
  const char *files, *memory; /* "mlp.shared_mlp", "mlp.shared_experts" */
} ModuleName;
typedef struct ModuleNames {
  const ModuleName *at;
  int n;
  bool tensors; /* tensors of an adapter's folder have the names of files all the same */
  Patterns experts; /* names of linears that PEFT takes for those of experts */
} ModuleNames;

/* Low-rank adapters (LoRA, arXiv:2106.09685) of linears and experts: see
 * vm/rewrite/adapters.c. */
typedef struct Adapter {
  int64_t rank;   /* 0: the plan has none */
  double alpha;   /* 0: as rank. What an adapter adds is multiplied by alpha / rank, */
  bool rslora;    /* or alpha / sqrt(rank) */
  double dropout; /* of what A reads, or B gives, this part of all is dropped */
  DropoutPosition drops;
  bool dora;        /* with a magnitude for each output feature */
  BaseStorage base; /* of the frozen weights of linears of layers */
  const char *from; /* the folder of PEFT that it begins at; NULL: initial values */
  bool all;         /* of all linears of layers, */
  Patterns targets; /* or of these, */
  Patterns experts; /* and of these weights of all experts of a layer */
  PatternNumbers ranks, alphas; /* of some modules, in the place of rank and alpha */
  Patterns saved; /* modules that learn beside it as they are, without one */
  ModuleNames modules;
} Adapter;
/* What an adapter adds is multiplied by this. */
double plan_adapter_scale(const Adapter *a, int64_t rank, double alpha);

/* What a step's sum of losses is divided by: how many label tokens it has, sequences, or
 * pairs of these. */
typedef enum { LOSS_PER_TOKENS, LOSS_PER_SEQUENCES, LOSS_PER_PAIRS } LossPer;
/* The model beside the one that is trained, of which a loss reads the logits: a copy of
 * the model as it begins, the base of adapters, or one with weights of its own. Or there
 * is none, and the loss reads what the model as it begins gave for each sequence. */
typedef enum {
  SECOND_NONE,
  SECOND_COPY,
  SECOND_BASE,
  SECOND_TEACHER,
  SECOND_FILE
} SecondKind;
typedef struct LossPlan {
  const char *name; /* of stdlib/losses, or "function"; NULL: cross entropy */
  LossPer per;
  SecondKind second;
  const char *teacher; /* the folder of one with weights of its own */
  const char *file; /* of losses of a reference, see vm/io/reference/reference_file.h */
} LossPlan;
/* Whether there is a model beside the one that is trained. */
static inline bool second_is_model(SecondKind k) {
  return k != SECOND_NONE && k != SECOND_FILE;
}

typedef struct Batch {
  int64_t global, micro, seq, rounds;
} Batch;

/* Which forward ops run again in the backward, see vm/rewrite/recompute_policy.c. Without
 * any all activations are kept. */
typedef struct Recompute {
  bool full, selective, cheap; /* of each layer: all ops; the core of attention; what
                                  only moves data */
  const struct RecomputePattern {
    const char *text; /* of units and modules */
    int item;         /* its number in the plan's list, from 1 */
  } * pattern;
  int npattern;
  bool may_miss; /* patterns need not match anything */
} Recompute;

/* How attention works on a sequence that is cut over cp; see vm/graph/sequence.h. */
typedef enum {
  CP_ALLGATHER, /* keys and values are gathered */
  CP_A2A,       /* queries, keys and values change from tokens to heads, and back */
  CP_RING,      /* keys and values go round, and each pair is added to what there is */
  CP_A2A_RING   /* groups of neighbours as a2a, among which they go round */
} CpComm;
typedef struct CpPlan {
  CpComm comm;
  bool in_order; /* balance = "none": each rank has one run */
  int heads;     /* a2a+p2p: ranks that exchange heads; 0: not said */
} CpPlan;

/* How tokens come to the ranks of ep that have their experts. */
typedef enum {
  MOE_ALLGATHER, /* each rank gets those of all, and takes what is for its experts */
  MOE_ALLTOALL   /* each rank sorts its own, and they are exchanged */
} MoeDispatcher;
/* Over which tokens choices of experts are counted for the loss that balances them. */
typedef enum {
  AUX_MICRO, /* those of a microbatch */
  AUX_GLOBAL /* the mean of the microbatches of a step so far */
} AuxBatch;
/* What experts add to a plan. */
/* What the alltoall dispatcher sends between ranks whose memory the host does not see. */
typedef enum {
  EXCHANGE_AUTO,   /* rows where buffers have room for more than twice the mean */
  EXCHANGE_ROWS,   /* those that there are; the host waits for their numbers */
  EXCHANGE_BUFFERS /* whole buffers */
} MoeExchange;
/* `share`: of the rows that buffers have room for those that there are if experts are
 * balanced. */
static inline bool moe_sends_rows(MoeExchange what, double share) {
  return what == EXCHANGE_AUTO ? share < 0.5 : what == EXCHANGE_ROWS;
}

typedef struct MoePlan {
  double aux, z; /* coefficients of the losses of routers */
  AuxBatch aux_batch;
  int64_t aux_sequences;      /* whose choices are balanced together; 0: a microbatch's */
  int64_t sinkhorn_sequences; /* over whose tokens Sinkhorn's iterations balance choices;
                                 0: they do not */
  int64_t groups, group_topk; /* of experts, and of how many a token chooses; 0: the
                                 model's */
  double bias_rate;           /* step of the bias that chooses experts; 0: none */
  int64_t bias_steps;         /* of the optimizer, with which it moves; 0: all */
  double capacity;            /* of an expert, by the mean of all; 0: as many as come */
  double most;                /* of a rank that has experts, by the mean; 0: the same */
  bool drops;                 /* what is beyond `most` is left out, else it is an error */
  int drop;                   /* DROP_x, which are left out */
  bool keep_router;           /* it does not run again in the backward */
  MoeDispatcher dispatcher;
  MoeExchange exchange; /* what it sends between GPUs */
} MoePlan;

/* Layers that predict further tokens, each one more than the layer before it: see
 * stdlib/models/decoder.lua. Their losses add `weight` / `layers` times their sum. */
typedef struct MtpPlan {
  int64_t layers; /* 0: none; at most NEXT_MOST */
  double weight;
} MtpPlan;

/* The machines that a plan is for: figures of one GPU in SI units, of the plan or of
 * stdlib/clusters. 0: the figure is not known; see cluster_figures.h. */
typedef struct Cluster {
  const char *gpu;     /* NULL: not known, and neither are the figures */
  int64_t nodes, gpus; /* nodes 0: as many as the mesh needs; gpus 0: no cluster */
  int64_t domain;      /* GPUs that NVLink joins; 0: those of a machine */
  int64_t sms;         /* streaming multiprocessors */
  double memory_gib;
  double reserve_gib;         /* of it, that plans may not fill */
  double bf16, f16, fp8, f32; /* flop/s of matrix products; f16 0: as bf16 */
  double reached; /* flop/s that large products in bf16 come to; 0: not measured */
  double mma; /* share of what kernels with an A100's instructions reach there of the peak
               * that they reach here; 0: all of it */
  double hbm_bandwidth; /* bytes/s, as all bandwidths */
  double nvlink_bandwidth, nvlink_latency;
  double peer_bandwidth; /* of NVLink to one other GPU; 0: as to all */
  double network_bandwidth, network_latency; /* of the card of each GPU */
  double spine;          /* between machines if all send at once; 0: as the card's */
  double host_bandwidth; /* to the memory of the host, and that memory's own */
} Cluster;

/* Limits of `expect`; see expect.def. */
typedef enum {
#define EXPECT(name, whole, doc) EXPECT_##name,
#include "expect.def"
  EXPECT_N
} ExpectKey;
typedef struct ExpectRange {
  bool given;
  double low, high; /* equal: a plain number */
} ExpectRange;
#define EXPECT_TOLERANCE 0.01

/* Where the arena of a rank lies: in CUDA's memory, in NCCL's, in symmetric windows. */
typedef enum { NCCL_ARENA_CUDA, NCCL_ARENA_NCCL, NCCL_ARENA_SYMMETRIC } NcclArena;

/* Settings of the library, each as text; NULL: not given. */
typedef struct NcclPlan {
  NcclArena arena;
  int group_ctas, pair_ctas; /* 0: chosen when ranks join */
#define INTEGER(key, variable, lo, hi, doc) const char *key;
#define SWITCH(key, variable, doc)          const char *key;
#define WORD(key, variable, words, doc)     const char *key;
#define WORDS(key, variable, doc)           const char *key;
#include "nccl.def"
} NcclPlan;

/* Who computes attention on a GPU: cuDNN where it can, weft's kernels, cuDNN. */
typedef enum { ATTENTION_AUTO, ATTENTION_NATIVE, ATTENTION_CUDNN } AttentionBackend;

/* precision = "fp8": linears round their operands to 8 bits; all else computes in
 * Plan.dtype. */
typedef enum { RECIPE_NONE, RECIPE_TENSORWISE, RECIPE_ROWWISE, RECIPE_MXFP8 } Fp8Recipe;
typedef enum { FORMAT_HYBRID, FORMAT_E4M3 } Fp8Format;
typedef struct Fp8Plan {
  Fp8Recipe recipe; /* NONE: nothing is in fp8 */
  Fp8Format format; /* of output gradients: HYBRID: e5m2 */
  bool powers;      /* scales are powers of two */
  bool excludes;    /* the plan says what is left out: */
  Patterns exclude; /* of linears */
  int64_t groups;   /* microbatches that the rows of one are; 0: a rank has one */
} Fp8Plan;

typedef struct Plan {
  const char *name, *file;
  const char *tokenizer; /* a folder, as the plan writes it, or NULL */
  Cluster cluster;
  MeshSpec mesh;
  Strategy strategy;
  const TpRule *tp;
  int ntp;
  PpPlan pp;
  const char *schedule; /* canonical name, "function" or "csv" */
  DType dtype;          /* compute type: f32, bf16 or f16 */
  DType grad;           /* in which gradients are stored and add up over microbatches */
  DType reduce;         /* in which they are summed over dp */
  DType master;         /* of the values that the optimizer steps: f32, or bf16 where ops
                         * read those themselves */
  LossScale loss_scale; /* f16 */
  Fp8Plan fp8;
  Recompute recompute;
  Batch batch;
  Optimizer opt;
  Patterns freeze; /* of parameters that do not learn */
  Adapter adapter;
  LossPlan loss;
  VocabGrowth grown; /* embedding and head have more rows than their files */
  const ParamGroup *group;
  int ngroup;
  DataSpec data;
  Packed packed;
  Checkpointing checkpoint;
  CpPlan cp;
  MoePlan moe;
  MtpPlan mtp;
  ExpectRange expect[EXPECT_N];
  double noise_alpha; /* of noise on embeddings (NEFTune); 0: none */
  int64_t steps, log_every;
  int64_t check_replicas_every; /* steps; 0: before checkpoints only */
  double
      epochs; /* instead of steps, which it makes once the data are open; 0: not said */
  int64_t eval_every,
      eval_batches;    /* steps between evaluations, 0: none; their batches */
  int64_t patience;    /* evaluations without a lower loss that end the run; 0: none do */
  double min_delta;    /* by so much lower */
  double comm_timeout; /* seconds; 0: see stall_patience */
  NcclPlan nccl;
  bool cuda_graph; /* steps on a GPU are replayed */
  AttentionBackend attention;
  int attention_library; /* DeviceKind.attention_version of the machine that runs it; 0:
                          * not asked
                          */
  bool deterministic;    /* the same bits each time, on GPUs too */
  bool fused_ops;        /* ops that pass over the same memory become one */
  int loss_chunks;       /* pieces of the rows of logits; 0, 1: all at once, or
                            LOSS_CHUNKS_AUTO */
  uint64_t seed;
} Plan;
enum { LOSS_CHUNKS_AUTO = -1 };

/* Ranks of dp_shard x cp that share what stays of parameters between forward and
 * backward, all of cp among them: a divisor of it between 1 and all; 1 where the plan has
 * none that fits. */
int plan_reshard_group(const Plan *p, const Mesh *m);

/* Whether each document is cut over cp by itself: see vm/graph/sequence.h. */
bool plan_cuts_documents(const Plan *p, int cp);

/* Ranks of cp that exchange heads: a divisor of it. */
int plan_cp_heads(const Plan *p, const Mesh *m);

/* What the step of a parameter in this group (Param.group) takes: the factor of the
 * learning rate, and the weight decay, where `decay` says whether the optimizer's
 * applies.
 */
double plan_lr_factor(const Plan *p, int group, bool matrix);
double plan_weight_decay(const Plan *p, int group, bool decay);

/* What the losses of `rows` sequences, with so many label tokens, are divided by. */
double plan_loss_count(const Plan *p, int64_t rows, double tokens);

/* Bytes that a rank may fill on the cluster's GPU; INFINITY if that is not known. */
double plan_memory_limit(const Plan *p);

/* Stages of each pipeline rank. */
int plan_virtual(const Plan *p);

/* cp cuts the sequence, and sequence parallelism what is left of it over tp: reports one
 * that they do not divide. */
void check_sequence_cut(const Plan *p, int cp, int tp, Diags *d);

enum { MICROBATCHES_MAX = 100000 }; /* of a step, all rounds together */

/* batch.global / (micro * dp * rounds); 0 if it does not divide, or for more than
 * MICROBATCHES_MAX in a step. */
int plan_microbatches(const Plan *p, const Mesh *m);

#endif
