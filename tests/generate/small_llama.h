/* small_llama.h - a small Llama-like model, plan and schedule built in C, for tests of
 * the compiler and of the runtime below the language. */
#ifndef WEFT_TEST_TOY_H
#define WEFT_TEST_TOY_H

#include "vm/run/run.h"

typedef struct ToyOptions {
  int layers, hidden, heads, kv_heads, ffn, vocab;
  int value_dim; /* of v's heads; 0: like q and k */
  int window;    /* that queries of odd layers see; 0: all */
  int tp, pp, dp;
  int cp;            /* 0: 1 */
  CpPlan how;        /* attention over cp */
  int ep, etp;       /* 0: 1, tp */
  int experts, topk; /* 0: a dense MLP */
  MoeDispatcher dispatcher;
  MoeExchange exchange;
  float bound, capacity; /* of permute, as the next two */
  int drop;              /* DROP_x */
  int senders, owners;   /* on one rank: simulated source ranks, expert ranks */
  bool keep_router;      /* moe.ignore_router_for_ac */
  bool fused;            /* gate and up of an expert are one weight */
  float aux, z;          /* coefficients of router_loss; both 0: there is none */
  bool running;          /* aux counts choices over the microbatches of a step */
  bool packed;           /* token 3 ends a document */
  int micro, microbatches, seq;
  int rounds;        /* 0: 1 */
  bool whole_logits; /* no loss_parallel */
  bool as_written;   /* no overlap_tp */
  bool async;        /* async_tp */
  bool sp, tied, bias, overlap;
  bool fuses; /* fused_ops */
  Recompute recompute;
  int64_t bucket_bytes; /* 0: 16 KiB */
  int replicate;        /* mesh.dp_replicate; 0: 1 */
  Strategy strategy;    /* without sp, overlap and bucket_bytes */
  DType dtype;
  Fp8Plan fp8;
  DType reduce; /* dtype of gradient reductions over dp */
  DType grad;   /* in which gradients are stored and add up */
  DType master; /* of what the optimizer steps */
  double clip;
  int optimizer; /* OptimizerKind */
  int ns_steps;  /* 0: 3 */
  DType state;   /* of the optimizer's states */
  bool stochastic;
  bool post_validation;
  int64_t eval_every;
  const Schedule *schedule; /* NULL: 1F1B of pp and microbatches */
  const DeviceKind *device; /* NULL: the first row */
  bool no_graph;            /* steps are launched op by op, without graph capture */
  const TpRule *rules;      /* NULL: the usual Llama plan */
  int nrules;
} ToyOptions;

/* hidden 32, 4 heads, 2 kv heads, ffn 48, vocab 50, 4 layers, seq 8, clip 1, one rank. */
ToyOptions toy_default(void);

typedef struct Toy {
  Arena *arena;
  Plan plan;
  Mesh mesh;
  Graph *graph;
  Schedule schedule;
  Compiled *compiled;
  Diags diags;
  weft_error err;
  Text dump;
} Toy;

/* Compiles; returns compile()'s status. Free with toy_free in any case. */
weft_status toy_compile(Toy *t, const ToyOptions *o, const char *dump);
void toy_free(Toy *t);

#endif
