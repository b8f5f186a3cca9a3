/* advice.c - warnings about plans that are legal and do less than they seem to. */
#include "job.h"
#include "vm/plan/link_speed.h"
#include "vm/base/plural.h"

/* Uses train.steps of the plan, although a run may be given fewer steps. */
static void warmup(Job *j) {
  const Plan *p = lang_plan(j->lp);
  LrSchedule lr = lr_resolved(p);
  if (p->epochs > 0 || lr.warmup <= p->steps) return;
  diag_warn(
      &j->d, "warmup", "optimizer.lr.warmup",
      "the run ends after train.steps = %lld, before the warmup of %lld step%s does",
      (long long)p->steps, (long long)lr.warmup, plural(lr.warmup, "s"));
}

/* A fall that the warmup leaves no room for, or that is over long before the run. */
static void fall(Job *j) {
  const Plan *p = lang_plan(j->lp);
  LrSchedule lr = lr_resolved(p);
  int64_t left = MAX(lr.steps - lr.warmup, 0);
  bool over = lr.steps < p->steps, falls = lr.kind != LR_CONSTANT;
  if (p->epochs > 0 || lr.kind == LR_INVERSE_SQRT || !falls || lr.warmup > p->steps)
    return;
  if (over && left == 0)
    diag_warn(
        &j->d, "warmup", "optimizer.lr.steps",
        "%lld is no more than the warmup of %lld step%s: behind it the rate is %g at "
        "once",
        (long long)lr.steps, (long long)lr.warmup, plural(lr.warmup, "s"), lr.min);
  else if (lr.kind == LR_WSD && lr.decay > left)
    diag_warn(&j->d, "warmup",
              lr.decay_ratio > 0 ? "optimizer.lr.decay_ratio" : "optimizer.lr.decay",
              "the warmup of %lld step%s leaves %lld of %lld for a fall of %lld, which "
              "takes these",
              (long long)lr.warmup, plural(lr.warmup, "s"), (long long)left,
              (long long)lr.steps, (long long)lr.decay);
  else if (over && lr.min == 0)
    diag_warn(&j->d, "warmup", "optimizer.lr.steps",
              "the rate is 0 from step %lld on, and train.steps = %lld",
              (long long)lr.steps, (long long)p->steps);
}

/* Positions beyond those that the model was made for were never seen in training. */
static void positions(Job *j) {
  int64_t most;
  if (!lang_config_int(j->lp, "max_position_embeddings", &most) || most <= 0) return;
  if (j->plan.batch.seq <= most) return;
  diag_warn(&j->d, "positions", "batch.seq",
            "%lld tokens are more than model.max_position_embeddings = %lld",
            (long long)j->plan.batch.seq, (long long)most);
}

/* The ranks of a tp group exchange activations in every layer. */
static void tp_over_nodes(Job *j) {
  const Cluster *k = &j->plan.cluster;
  int tp = j->mesh.size[AXIS_TP];
  if (!cluster_domain(k) || tp == 1) return;
  LinkKind link = link_kind(&j->mesh, k, AXIS_BIT(AXIS_TP));
  if (link == LINK_NETWORK)
    diag_warn(&j->d, "tp-network", "mesh.tp",
              "groups of tp = %d reach over machines of %lld GPUs: every layer waits for "
              "the network",
              tp, (long long)MAX(k->gpus, cluster_domain(k)));
  if (link == LINK_HOST)
    diag_warn(&j->d, "tp-network", "mesh.tp",
              "groups of tp = %d reach over the %lld GPUs that NVLink joins: every layer "
              "waits for their machine's PCIe",
              tp, (long long)cluster_domain(k));
}

static void tp_cuts_little(Job *j) {
  int64_t whole = 0, all = 0;
  if (j->mesh.size[AXIS_TP] == 1) return;
  for (int i = 0; i < j->compiled->nparam; i++) {
    const CompiledParam *p = &j->compiled->param[i];
    int64_t n = param_count(p);
    all += n;
    if (!place_cuts(p->place)) whole += n;
  }
  if (2 * whole <= all) return;
  const char *share = whole == all ? "all"
                                   : arena_printf(j->arena, "%.0f %% of the",
                                                  100.0 * (double)whole / (double)all);
  diag_warn(&j->d, "tp-whole", j->plan.ntp ? "tp_plan" : "mesh.tp",
            "%s parameters are whole on each rank of tp = %d, which then repeat each "
            "other's work",
            share, j->mesh.size[AXIS_TP]);
}

void job_advise(Job *j) {
  warmup(j);
  fall(j);
  positions(j);
  tp_over_nodes(j);
  tp_cuts_little(j);
}
