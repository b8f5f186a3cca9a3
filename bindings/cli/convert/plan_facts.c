/* plan_facts.c - what verbs that are written in Lua read of a plan object, beside its
 * methods. */
#include "convert.h"

#include "bindings/object/plan_object.h"
#include "bindings/object/reasons.h"
#include "bindings/object/result.h"
#include "bindings/runner/runner.h"
#include "bindings/script/library.h"

/* The sizes of a model by any of these names, 0 if it has none. */
static int64_t config_int(const Job *j, const char *const *names) {
  int64_t n;
  for (; *names; names++)
    if (lang_config_int(j->lp, *names, &n)) return n;
  return 0;
}

static void add_proof(lua_State *L, const Proof *p) {
  lua_createtable(L, 0, 4);
  set_integer(L, "transfers", p->transfers);
  set_integer(L, "collectives", p->collectives);
  set_integer(L, "communicators", p->communicators);
  set_integer(L, "instructions", p->instructions);
  lua_setfield(L, -2, "proof");
}

static void add_gpu(lua_State *L, const Job *j) {
  const Cluster *c = &j->plan.cluster;
  if (!c->gpu) return;
  set_text(L, "gpu", c->gpu);
  set_integer(L, "room", (int64_t)plan_memory_limit(&j->plan));
  set_number(L, "reserve_gib", c->reserve_gib);
}

/* plan_facts(plan): raises all reasons why it cannot be compiled. */
static int plan_facts(lua_State *L) {
  static const char *const layers[] = {"num_hidden_layers", NULL};
  static const char *const experts[] = {"num_experts", "num_local_experts",
                                        "n_routed_experts", NULL};
  char mesh[96];
  const Job *j = plan_object_compiled(L);
  const Batch *b = &j->plan.batch;
  lua_newtable(L);
  set_text(L, "name", j->plan.name);
  set_text(L, "mesh", format_mesh(&j->mesh, mesh));
  set_integer(L, "world", j->mesh.world);
  lua_pushboolean(L, job_open_world(j));
  lua_setfield(L, -2, "open_world");
  set_integer(L, "node", job_node_ranks(j));
  if (lang_architecture(j->lp)) set_text(L, "model", lang_architecture(j->lp));
  set_integer(L, "parameters", (int64_t)j->compiled->params_total);
  set_integer(L, "layers", config_int(j, layers));
  set_integer(L, "experts", config_int(j, experts));
  set_integer(L, "global", b->global);
  set_integer(L, "micro", b->micro);
  set_integer(L, "seq", b->seq);
  set_integer(L, "microbatches", j->compiled->microbatches);
  set_text(L, "schedule", j->plan.schedule);
  add_gpu(L, j);
  add_proof(L, &j->compiled->proof);
  reasons_list(L, &j->d);
  lua_setfield(L, -2, "warnings");
  return 1;
}

void plan_facts_provide(lua_State *L) {
  script_weft(L);
  library_provide(L, "weft");
  lua_pushcfunction(L, plan_facts);
  library_provide(L, "plan_facts");
  lua_pushcfunction(L, plan_object_text);
  library_provide(L, "plan_of_text");
}
