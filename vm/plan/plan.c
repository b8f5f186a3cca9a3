/* plan.c - the parts of a plan that need no Lua: names of tp_plan styles, the learning
 * rate of a step, the number of microbatches. */
#include "plan.h"

#include <math.h>

#include "vm/base/multiples.h"

/* Version 1 of the names: the canonical one first, then those that model libraries use
 * or used for the same thing. A weight that is whole on every rank gets its gradient
 * summed where that is needed without being told, so both such names are one; and so are
 * "local" ones, whose callers make sums themselves. "local_params" only says that the
 * forward pass of a module sees its own parameters as each rank has them, which is so
 * here: those of them that no other rule names are whole. */
#define STYLE_NAMES(X)                                                                   \
  X("replicate", STYLE_REPLICATE, 0)                                                     \
  X("replicated_with_grad_allreduce", STYLE_REPLICATE, 0)                                \
  X("mla_kv_a_proj", STYLE_REPLICATE, 0)                                                 \
  X("local_params", STYLE_REPLICATE, 0)                                                  \
  X("colwise", STYLE_COLWISE, 0)                                                         \
  X("colwise_loss_parallel", STYLE_COLWISE, STYLE_WITH_LOSS)                             \
  X("rowwise", STYLE_ROWWISE, 0)                                                         \
  X("rowwise_allreduce", STYLE_ROWWISE, 0)                                               \
  X("rowwise_reduce_scatter", STYLE_ROWWISE, STYLE_WITH_SEQUENCE)                        \
  X("colwise_rep", STYLE_COLWISE_GATHER, 0)                                              \
  X("colwise_gather_output", STYLE_COLWISE_GATHER, 0)                                    \
  X("colwise_allgather", STYLE_COLWISE_GATHER, 0)                                        \
  X("rowwise_rep", STYLE_ROWWISE_REP, 0)                                                 \
  X("rowwise_split_input", STYLE_ROWWISE_REP, 0)                                         \
  X("sequence_parallel", STYLE_SEQUENCE, 0)                                              \
  X("embedding_rowwise", STYLE_EMBEDDING_ROWWISE, 0)                                     \
  X("vocab_allreduce", STYLE_EMBEDDING_ROWWISE, 0)                                       \
  X("vocab_reduce_scatter", STYLE_EMBEDDING_ROWWISE, STYLE_WITH_SEQUENCE)                \
  X("ColwiseParallel", STYLE_COLWISE, 0)                                                 \
  X("RowwiseParallel", STYLE_ROWWISE, 0)                                                 \
  X("SequenceParallel", STYLE_SEQUENCE, 0)                                               \
  X("embedding_colwise", STYLE_EMBEDDING_COLWISE, 0)                                     \
  X("packed_colwise", STYLE_PACKED_COLWISE, 0)                                           \
  X("packed_rowwise", STYLE_PACKED_ROWWISE, 0)                                           \
  X("local_colwise", STYLE_COLWISE, 0)                                                   \
  X("local_rowwise", STYLE_ROWWISE, 0)                                                   \
  X("local_packed_rowwise", STYLE_PACKED_ROWWISE, 0)                                     \
  X("moe_tp_gate_up_colwise", STYLE_PACKED_COLWISE, 0)                                   \
  X("moe_tp_down_rowwise", STYLE_ROWWISE, 0)                                             \
  X("grouped_gemm", STYLE_EXPERTS, 0)                                                    \
  X("moe_tp_experts", STYLE_EXPERTS, 0)                                                  \
  X("moe_experts_allreduce", STYLE_EXPERTS, 0)                                           \
  X("ep_dispatch_experts", STYLE_EXPERTS, 0)                                             \
  X("ep_router", STYLE_EXPERTS, 0)

static const struct {
  const char *name;
  TpStyle style;
  int with;
} styles[] = {
#define STYLE(name, style, with) {name, style, with},
    STYLE_NAMES(STYLE)
#undef STYLE
};

/* Known names that this version does not build. */
static const char *const later_styles[] = {"local",
                                           "gather",
                                           "all_reduce",
                                           "moe_identity_expert",
                                           "megamoe_router",
                                           "megamoe_experts",
                                           "activation",
                                           "activation_seq_dim_2",
                                           "module_allgather",
                                           "module_allgather_hidden_states",
                                           "module_allgather_split"};

int tp_style_parse(const char *name, bool *later) {
  if (later) *later = false;
  for (int i = 0; i < LEN(styles); i++)
    if (str_ieq(styles[i].name, name)) return (int)styles[i].style;
  for (int i = 0; later && i < LEN(later_styles); i++)
    if (str_ieq(later_styles[i], name)) *later = true;
  return -1;
}

int tp_style_with(const char *name) {
  for (int i = 0; i < LEN(styles); i++)
    if (str_ieq(styles[i].name, name)) return styles[i].with;
  return 0;
}

const char *tp_style_name(TpStyle s) {
  for (int i = 0; i < LEN(styles); i++)
    if (styles[i].style == s) return styles[i].name;
  return "?";
}

const char *const *tp_style_names(void) {
#define STYLE(name, style, with) name,
  static const char *const names[] = {STYLE_NAMES(STYLE) NULL};
#undef STYLE
  return names;
}

int plan_virtual(const Plan *p) {
  return MAX(p->pp.virtual_stages ? p->pp.virtual_stages : p->pp.virtual_default, 1);
}

int plan_microbatches(const Plan *p, const Mesh *m) {
  const Batch *b = &p->batch;
  int64_t one;
  if (__builtin_mul_overflow(b->micro * mesh_size(m, AXES_DP), MAX(b->rounds, 1), &one))
    return 0;
  if (one <= 0 || b->global % one != 0) return 0;
  if (b->global / one > MICROBATCHES_MAX / MAX(b->rounds, 1)) return 0;
  return (int)(b->global / one);
}

int plan_reshard_group(const Plan *p, const Mesh *m) {
  const Strategy *s = &p->strategy;
  int cp = m->size[AXIS_CP], ranks = m->size[AXIS_DP_SHARD] * cp, n = s->reshard_to;
  bool fits = s->stage > 2 && s->reshard == RESHARD_YES && n > 1 && n < ranks;
  return fits && ranks % n == 0 && n % cp == 0 ? n : 1;
}

bool plan_cuts_documents(const Plan *p, int cp) {
  return p->packed.on && cp > 1 && !p->cp.in_order;
}

int plan_cp_heads(const Plan *p, const Mesh *m) {
  int cp = m->size[AXIS_CP], n = p->cp.heads;
  if (p->cp.comm == CP_A2A) return cp;
  return p->cp.comm == CP_A2A_RING && n > 0 && cp % n == 0 ? n : 1;
}

double plan_loss_count(const Plan *p, int64_t rows, double tokens) {
  switch (p->loss.per) {
  case LOSS_PER_SEQUENCES: return (double)rows;
  case LOSS_PER_PAIRS: return (double)rows / 2;
  default: return tokens;
  }
}

double plan_memory_limit(const Plan *p) {
  const Cluster *c = &p->cluster;
  if (!c->gpu || c->memory_gib == 0) return INFINITY;
  return MAX(c->memory_gib - c->reserve_gib, 0) * (1 << 30);
}

void check_sequence_cut(const Plan *p, int cp, int tp, Diags *d) {
  int64_t seq = p->batch.seq;
  int runs = cp == 1 ? 1 : p->cp.in_order ? cp : 2 * cp;
  if (seq % runs != 0) {
    diag_error(d, "divisibility", "batch.seq",
               "%lld is not a multiple of %scp = %d: each rank has %s of the sequence",
               (long long)seq, runs > cp ? "2 * " : "", runs,
               runs > cp ? "two runs" : "one run")
        ->suggestion =
        arena_printf(d->arena, "%s%s", nearest_multiples(d->arena, seq, runs),
                     runs > cp ? ", or cp = { balance = \"none\" }" : "");
    return;
  }
  const char *what = cp > 1 ? "batch.seq / cp" : "batch.seq";
  const char *wrong = mesh_tp_divides(d->arena, tp, what, seq / cp);
  if (!p->strategy.sequence_parallel || !wrong) return;
  int64_t unit = (int64_t)cp * tp * (runs > cp && tp % 2 ? 2 : 1); /* of both cuts */
  diag_error(d, "divisibility", "batch.seq", "%s", wrong)->suggestion =
      arena_printf(d->arena, "sequence_parallel cuts it over tp; %s",
                   nearest_multiples(d->arena, seq, unit));
}

/* ---- data ---- */

static int streams(const DataSpec *d) { return d->nweights > 1 ? d->nfiles : 0; }

int plan_sources(const DataSpec *d) {
  int n = MAX(streams(d), d->val ? streams(d->val) : 0);
  return n <= SOURCES_MOST ? n : 0;
}

/* ---- groups of parameters ---- */

double plan_weight_decay(const Plan *p, int group, bool decay) {
  if (group && p->group[group - 1].own_decay) return p->group[group - 1].weight_decay;
  return decay || p->opt.decay_vectors ? p->opt.weight_decay : 0;
}

double plan_adapter_scale(const Adapter *a, int64_t rank, double alpha) {
  return alpha / (a->rslora ? sqrt((double)rank) : (double)rank);
}
