/* plan.c - the parts of a plan that need no Lua: names of tp_plan styles, the learning
 * rate of a step, the number of microbatches. */
#include "plan.h"

#include <math.h>

typedef struct StyleName {
  const char *name;
  int style; /* -1: known, not built yet */
} StyleName;

/* Version 1 of the names: the canonical one first, then those that model libraries use
 * or used for the same thing. A weight that is whole on every rank gets its gradient
 * summed where that is needed without being told, so both such names are one. */
static const StyleName styles[] = {
    {"replicate", STYLE_REPLICATE},
    {"replicated_with_grad_allreduce", STYLE_REPLICATE},
    {"colwise", STYLE_COLWISE},
    {"rowwise", STYLE_ROWWISE},
    {"rowwise_allreduce", STYLE_ROWWISE},
    {"colwise_gather_output", STYLE_COLWISE_GATHER},
    {"colwise_rep", STYLE_COLWISE_GATHER},
    {"colwise_allgather", STYLE_COLWISE_GATHER},
    {"rowwise_split_input", STYLE_ROWWISE_REP},
    {"rowwise_rep", STYLE_ROWWISE_REP},
    {"sequence", STYLE_SEQUENCE},
    {"sequence_parallel", STYLE_SEQUENCE},
    {"embedding_rowwise", STYLE_EMBEDDING_ROWWISE},
    {"vocab_allreduce", STYLE_EMBEDDING_ROWWISE},
    {"packed_colwise", STYLE_PACKED_COLWISE},
    {"packed_rowwise", STYLE_PACKED_ROWWISE},
    {"embedding_colwise", -1},
    {"local", -1},
    {"gather", -1},
    {"local_colwise", -1},
    {"local_rowwise", -1},
    {"local_packed_rowwise", -1},
    {"all_reduce", -1},
    {"grouped_gemm", -1},
    {"ep_router", -1},
    {"moe_tp_experts", -1},
    {"moe_experts_allreduce", -1},
    {"moe_identity_expert", -1},
    {"moe_tp_gate_up_colwise", -1},
    {"moe_tp_down_rowwise", -1},
    {"megamoe_router", -1},
    {"megamoe_experts", -1},
    {"mla_kv_a_proj", -1},
    {"colwise_loss_parallel", -1},
    {"rowwise_reduce_scatter", -1},
    {"vocab_reduce_scatter", -1},
    {"activation", -1},
    {"activation_seq_dim_2", -1},
    {"module_allgather", -1},
    {"module_allgather_hidden_states", -1},
    {"module_allgather_split", -1},
};

int tp_style_parse(const char *name, bool *later) {
  if (later) *later = false;
  for (int i = 0; i < LEN(styles); i++) {
    if (!str_ieq(styles[i].name, name)) continue;
    if (later) *later = styles[i].style < 0;
    return styles[i].style;
  }
  return -1;
}

const char *tp_style_name(TpStyle s) {
  for (int i = 0; i < LEN(styles); i++)
    if (styles[i].style == (int)s) return styles[i].name;
  return "?";
}

const char *const *tp_style_names(void) {
  static const char *const names[] = {"replicate",
                                      "replicated_with_grad_allreduce",
                                      "colwise",
                                      "rowwise",
                                      "rowwise_allreduce",
                                      "colwise_gather_output",
                                      "colwise_rep",
                                      "colwise_allgather",
                                      "rowwise_split_input",
                                      "rowwise_rep",
                                      "sequence",
                                      "sequence_parallel",
                                      "embedding_rowwise",
                                      "vocab_allreduce",
                                      "packed_colwise",
                                      "packed_rowwise",
                                      NULL};
  return names;
}

double lr_at(const LrSchedule *lr, int64_t step) {
  if (step < lr->warmup) return lr->max * (double)(step + 1) / (double)lr->warmup;
  if (lr->kind == LR_CONSTANT || lr->steps <= 0) return lr->max;
  if (step >= lr->steps) return lr->min;
  double t = (double)(step - lr->warmup) / (double)(lr->steps - lr->warmup);
  double down = lr->kind == LR_LINEAR ? t : 0.5 * (1 - cos(3.14159265358979323846 * t));
  return lr->max + (lr->min - lr->max) * down;
}

int plan_microbatches(const Plan *p, const Mesh *m) {
  const Batch *b = &p->batch;
  int64_t one = b->micro * mesh_size(m, AXES_DP) * MAX(b->rounds, 1);
  if (one <= 0 || b->global % one != 0 || b->global / one > INT32_MAX) return 0;
  return (int)(b->global / one);
}
