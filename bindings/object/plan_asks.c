/* plan_asks.c - what a plan asks for and what bounds other layouts of it, for searches:
 * the plan need not be one that can be compiled; and what its reader should know of it.
 */
#include "plan_object.h"

#include "bindings/script/script.h"
#include "reasons.h"

/* The sizes of a model by any of these names, 0 if it has none. */
static int64_t config_int(const Job *j, const char *const *names) {
  int64_t n;
  for (; *names; names++)
    if (lang_config_int(j->lp, *names, &n)) return n;
  return 0;
}

static void add_gpu(lua_State *L, const Job *j) {
  const Cluster *c = &j->plan.cluster;
  if (!c->gpu) return;
  set_text(L, "gpu", c->gpu);
  set_integer(L, "room", (int64_t)plan_memory_limit(&j->plan));
  if (c->memory_gib > 0) set_number(L, "gpu_memory", c->memory_gib * (1 << 30));
  set_number(L, "reserve_gib", c->reserve_gib);
}

void plan_bounds_set(lua_State *L, const Job *j) {
  static const char *const layers[] = {"num_hidden_layers", NULL};
  static const char *const experts[] = {"num_experts", "num_local_experts",
                                        "n_routed_experts", NULL};
  set_integer(L, "node", job_node_ranks(j));
  set_integer(L, "domain", MAX(job_node_ranks(j), j->plan.cluster.domain));
  set_integer(L, "layers", config_int(j, layers));
  set_integer(L, "experts", config_int(j, experts));
  add_gpu(L, j);
}

/* plan_asks(plan): the ranks that a plan is for, as it writes them, and the bounds of
 * other layouts. It need not be one that can be compiled. */
int plan_asks(lua_State *L) {
  const Job *j = &plan_object_self(L)->job;
  const MeshSpec *m = &j->plan.mesh;
  lua_newtable(L);
  set_integer(L, "world", m->world ? m->world : lang_cluster_ranks(j->lp));
  set_integer(L, "tp", m->tp), set_integer(L, "pp", m->pp);
  set_integer(L, "cp", m->cp), set_integer(L, "ep", m->ep);
  set_integer(L, "etp", m->etp), set_integer(L, "dp", m->dp);
  const Strategy *y = &j->plan.strategy;
  if (y->kind == STRATEGY_ZERO) set_integer(L, "zero_stage", y->stage);
  set_boolean(L, "is_ddp", y->kind == STRATEGY_DDP);
  plan_bounds_set(L, j);
  return 1;
}

/* plan:warnings(): a list with its text, as weft check prints it. */
int plan_warnings(lua_State *L) {
  const Diags *d;
  weft_error e = NO_ERROR;
  plan_object_no_arguments(L, "warnings");
  plan_object_compiled(L);
  weft_plan *p = plan_object_self(L);
  weft_status st = api_plan_warnings(p, &d, &e);
  if (st != WEFT_OK) return plan_object_raise(L, p, st, &e);
  reasons_list(L, d);
  Text *t = script_push_text(L);
  if (d->list.n)
    report_text(d, REPORT_CODES, t);
  else
    text_add(t, "no warnings");
  script_end_text(L);
  lua_setfield(L, -2, "text");
  return 1;
}
