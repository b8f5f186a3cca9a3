/* plan_program.c - a compiled plan on a rank: program, communication, stages and
 * schedule. */
#include "plan_object.h"
#include "bindings/script/library.h"
#include "bindings/script/script.h"
#include "vm/draw/timeline_draw.h"
#include "vm/graph/packed_modules.h"
#include "vm/graph/second_model.h"
#include "vm/plan/link_speed.h"
#include "vm/base/plural.h"

/* Replaces the text of script_push_text on top by a table with it as field `text`. */
static void begin_with_text(lua_State *L) {
  script_end_text(L);
  lua_newtable(L);
  lua_insert(L, -2);
  lua_setfield(L, -2, "text");
}

/* ---- plan:program(rank) ---- */

/* Adds one action of the main list to the table on top. */
static void set_action(lua_State *L, const Job *j, const Program *p, const Instr *in,
                       int rank) {
  set_text(L, "op", instr_name[in->code]);
  if (in->line) set_integer(L, "line", in->line);
  int is = instr_is[in->code];
  if ((is & INSTR_STARTS) || in->code == I_WAIT) set_integer(L, "handle", in->handle);
  if (in->code == I_CALL) {
    const Call *call = &p->call[in->call];
    set_text(L, "body", p->body[call->body].name);
    set_text(L, "unit", p->unit[call->unit]);
    set_integer(L, "mb", call->mb);
    set_integer(L, "chunk", call->chunk);
    return;
  }
  if (*p->what[in->what]) set_text(L, "what", p->what[in->what]);
  if (in->code == I_KERNEL) set_text(L, "kernel", op_info[in->op].name);
  if ((is & INSTR_MAIN) && in->code != I_CALL) set_text(L, "unit", p->unit[in->unit]);
  if (is & INSTR_COLL) {
    set_text(L, "collective", coll_info[in->coll].name);
    set_text(L, "axis", p->comm[in->comm].name);
  }
  if (is & INSTR_PAIR) set_integer(L, "peer", rank_on_pp(&j->mesh, rank, in->peer));
  if (is & INSTR_STARTS)
    set_integer(L, "bytes", (int64_t)operand_bytes(&p->operand[in->operand]));
}

int plan_program(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  int rank = plan_object_rank(L, j, 2), pp = mesh_coord(&j->mesh, rank, AXIS_PP);
  const Program *p = &j->compiled->prog[pp];
  program_print(j->compiled, rank, false, script_push_text(L));
  begin_with_text(L);
  set_integer(L, "rank", rank);
  set_integer(L, "pp", pp);
  set_integer(L, "arena_bytes", (int64_t)p->arena_bytes);
  set_number(L, "flops", p->flops);
  set_number(L, "flops_recomputed", p->recomputed);
  set_number(L, "flops_room", p->room);
  for (uint32_t i = 0; i < p->nmain; i++) {
    lua_createtable(L, 0, 6);
    set_action(L, j, p, &p->code[i], rank);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* ---- plan:comm([rank]) ---- */

/* Machines of the cluster, or as many ranks as those that the job would have. */
static Cluster machines(const Job *j) {
  Cluster k = j->plan.cluster;
  if (!k.gpus) k.gpus = job_node_ranks(j);
  return k;
}

/* Whether some group on a communicator, or some neighbours in the pipeline (-1), reach
 * over the network. */
static bool any_leaves(const Job *j, int comm) {
  const Mesh *m = &j->mesh;
  Cluster k = machines(j);
  if (comm >= 0) {
    const CommDesc *d = &j->compiled->prog->comm[comm];
    AxisSet pp = comm_spans_pp(m, d) ? AXIS_BIT(AXIS_PP) : 0;
    return link_kind(m, &k, d->axes | pp) == LINK_NETWORK;
  }
  for (int pp = 0; pp + 1 < m->size[AXIS_PP]; pp++)
    if (link_kind_pair(m, &k, pp, pp + 1) == LINK_NETWORK) return true;
  return false;
}

/* The same of the group of one rank, or its neighbours; `group` has room for it. */
static bool leaves(const Job *j, int comm, int rank, int *group) {
  const Mesh *m = &j->mesh;
  Cluster k = machines(j);
  int64_t joined = MAX(k.gpus, k.domain);
  int n = 0, pp = mesh_coord(m, rank, AXIS_PP);
  if (comm >= 0) {
    n = comm_group(m, &j->compiled->prog->comm[comm], rank, group);
  } else {
    group[n++] = rank;
    if (pp > 0) group[n++] = rank_on_pp(m, rank, pp - 1);
    if (pp + 1 < m->size[AXIS_PP]) group[n++] = rank_on_pp(m, rank, pp + 1);
  }
  for (int i = 1; i < n; i++)
    if (group[i] / joined != group[0] / joined) return true;
  return false;
}

/* Of pp ranks first..last the one with most bytes on a communicator; -1 if none has any.
 */
static int most_of(const Compiled *c, int first, int last, int comm, CollKind op) {
  int most = -1;
  for (int pp = first; pp <= last; pp++) {
    const Flow *f = flow_of(c, pp, comm, op);
    if (f->count && (most < 0 || f->bytes > flow_of(c, most, comm, op)->bytes)) most = pp;
  }
  return most;
}

int plan_comm(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  const Compiled *c = j->compiled;
  int rank = lua_isnoneornil(L, 2) ? -1 : plan_object_rank(L, j, 2), at = 0;
  int first = 0, last = j->mesh.size[AXIS_PP] - 1;
  if (rank >= 0) first = last = mesh_coord(&j->mesh, rank, AXIS_PP);
  int *group = lua_newuserdatauv(L, sizeof *group * ((size_t)j->mesh.world + 3), 0);
  lua_newtable(L);
  if (rank >= 0) set_integer(L, "rank", rank);
  for (int i = 0; i <= c->prog->ncomm; i++)
    for (CollKind op = COLL_ALL_REDUCE; op < COLL_N; op++) {
      int comm = i < c->prog->ncomm ? i : -1, pp = most_of(c, first, last, comm, op);
      if (pp < 0) continue;
      const Flow *f = flow_of(c, pp, comm, op);
      lua_createtable(L, 0, 6);
      set_text(L, "axis", comm < 0 ? "pp" : c->prog->comm[comm].name);
      set_text(L, "op", coll_info[op].name);
      set_integer(L, "count", (int64_t)f->count);
      set_integer(L, "bytes", (int64_t)f->bytes);
      set_boolean(L, "at_most", (coll_info[op].is & COLL_COUNTED) != 0);
      bool away = rank < 0 ? any_leaves(j, comm) : leaves(j, comm, rank, group);
      set_text(L, "link", away ? "network" : "node");
      lua_rawseti(L, -2, ++at);
    }
  return 1;
}

/* ---- plan:stages() ---- */

/* Whether an op is of the module, or of a part of it that files of the model have not. */
static bool is_of_module(const Graph *g, const Op *op, const char *module) {
  PackedName part;
  char whole[PACKED_NAME];
  if (!op->name || op->second) return false;
  if (str_eq(op->name, module)) return true;
  if (!g->packed || !packed_find(op->name, g->packed, &part)) return false;
  packed_rename(op->name, &part, part.of->whole, whole);
  return str_eq(whole, module);
}

/* The unit of the weight, or of the linear, that a part of an adapter is called after. */
static int unit_of_adapter(const Graph *g, const CompiledParam *p) {
  size_t n = strlen(p->name) - strlen(adapter_suffix((AdapterPart)p->adapter));
  char module[PACKED_NAME];
  snprintf(module, sizeof module, "%.*s", (int)n, p->name);
  for (int i = 0; i < g->forward_ops; i++) {
    const Op *op = &g->op.at[i];
    if (is_of_module(g, op, module)) return op->unit;
    for (int k = 0; k < op->nin; k++) {
      const Tensor *t = &g->t.at[op->in[k]];
      if (t->kind == T_PARAM && str_eq(t->name, module)) return op->unit;
    }
  }
  return -1;
}

/* Counts for each unit the elements of the parameters that its forward ops are the first
 * to read, of the model that is trained, and those of its adapters. */
static void count_parameters(const Job *j, double *count, bool *seen) {
  const Graph *g = j->graph;
  const Compiled *c = j->compiled;
  for (int i = 0; i < g->forward_ops; i++) {
    const Op *op = &g->op.at[i];
    for (int k = 0; k < op->nin && op->unit >= 0; k++) {
      const Tensor *t = &g->t.at[op->in[k]];
      if (t->kind != T_PARAM || seen[t->index]) continue;
      seen[t->index] = true;
      if (second_prefix(t->name, strlen(t->name))) continue;
      double n = 1;
      for (int d = 0; d < t->ndim; d++) n *= (double)t->dim[d].size;
      count[op->unit] += n;
    }
  }
  for (int i = 0; i < c->nparam; i++) {
    int unit = c->param[i].adapter ? unit_of_adapter(g, &c->param[i]) : -1;
    if (unit >= 0) count[unit] += (double)param_weights(&c->param[i]);
  }
}

static int unit_named(const Graph *g, const char *name) {
  for (int u = 0; u < g->unit.n; u++)
    if (strcmp(g->unit.at[u].name, name) == 0) return u;
  return -1;
}

/* Adds the work of the calls for microbatch 0 of one chunk to the stage on top. */
static double add_stage(lua_State *L, const Job *j, const Program *p, int chunk,
                        const double *params) {
  double flops = 0, count = 0;
  int units = 0, layers = 0;
  lua_newtable(L);
  for (uint32_t i = 0; i < p->nmain; i++) {
    if (p->code[i].code != I_CALL) continue;
    const Call *call = &p->call[p->code[i].call];
    const Body *body = &p->body[call->body];
    if (call->mb != 0 || call->chunk != chunk) continue;
    flops += body->flops;
    if (body->phase != PH_F) continue;
    int u = unit_named(j->graph, p->unit[call->unit]);
    if (u >= 0) count += params[u], layers += j->graph->unit.at[u].layer >= 0;
    lua_pushstring(L, p->unit[call->unit]);
    lua_rawseti(L, -2, ++units);
  }
  lua_setfield(L, -2, "units");
  set_integer(L, "layers", layers);
  set_integer(L, "parameters", (int64_t)count);
  set_number(L, "flops", flops);
  return flops;
}

int plan_stages(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  plan_object_no_arguments(L, "stages");
  const Schedule *s = &j->schedule;
  const Graph *g = j->graph;
  double *params = lua_newuserdatauv(L, sizeof *params * ((size_t)g->unit.n + 1), 0);
  bool *seen = lua_newuserdatauv(L, (size_t)g->param.n + 1, 0);
  memset(params, 0, sizeof *params * (size_t)g->unit.n);
  memset(seen, 0, (size_t)g->param.n);
  count_parameters(j, params, seen);
  double all = 0;
  lua_newtable(L);
  for (int stage = 0; stage < s->ranks * s->virtual_stages; stage++) {
    int pp, chunk;
    schedule_where(s, stage, &pp, &chunk);
    lua_createtable(L, 0, 8);
    all += add_stage(L, j, &j->compiled->prog[pp], chunk, params);
    set_integer(L, "stage", stage);
    set_integer(L, "pp", pp);
    set_integer(L, "chunk", chunk);
    lua_rawseti(L, -2, stage + 1);
  }
  for (int i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
    lua_getfield(L, -1, "flops");
    double flops = lua_tonumber(L, -1);
    lua_pop(L, 1);
    set_number(L, "share", all > 0 ? flops / all : 0);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return 1;
}

/* ---- plan:schedule([{ width = 80 }]) ---- */

static const char *action_kind(const Action *a) {
  static const char *const kind[ACT_N] = {"F",       "I",       "W",       "B",
                                          "overlap", "unshard", "reshard", "reduce_grad"};
  return kind[a->kind];
}

static void push_actions(lua_State *L, const Schedule *s, int rank) {
  lua_createtable(L, s->n[rank], 0);
  for (int i = 0; i < s->n[rank]; i++) {
    const Action *a = &s->list[rank][i];
    lua_createtable(L, 0, 6);
    set_text(L, "op", action_kind(a));
    set_integer(L, "chunk", a->chunk);
    set_integer(L, "stage", schedule_stage(s, rank, a->chunk));
    if (a->mb >= 0) set_integer(L, "mb", a->mb);
    if (a->kind == ACT_OVERLAP) {
      set_integer(L, "chunk2", a->chunk2);
      set_integer(L, "mb2", a->mb2);
    }
    if (a->line) set_integer(L, "line", a->line);
    lua_rawseti(L, -2, i + 1);
  }
}

typedef struct TimelineJob {
  const Job *j;
  Arena *arena;
  Schedule s;
  Timeline t;
  RankTraffic *bytes;
  weft_error e;
  weft_status st;
} TimelineJob;

static void timeline_job(void *ud) {
  TimelineJob *j = ud;
  j->s = job_step_schedule(j->j, j->arena);
  j->st = timeline_run(&j->s, TIMELINE_UNIT, j->arena, &j->t, &j->e);
  if (j->st == WEFT_OK) j->bytes = traffic(j->j->compiled, j->arena);
}

int plan_schedule(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  int width = (int)luaL_optinteger(L, 2, 80);
  TimelineJob k = {.j = j, .arena = script_push_arena(L)};
  err_clear(&k.e);
  if (!arena_try(k.arena, timeline_job, &k)) return luaL_error(L, "not enough memory");
  if (k.st != WEFT_OK) return plan_object_raise(L, plan_object_self(L), k.st, &k.e);
  const Schedule *s = &k.s;
  Text *t = script_push_text(L);
  text_printf(t, "schedule: %s, %d pipeline rank%s, %d microbatch%s\n", s->name, s->ranks,
              plural(s->ranks, "s"), s->microbatches, plural(s->microbatches, "es"));
  timeline_text(s, &k.t, width, false, t);
  timeline_figures(&k.t, k.bytes, j->mesh.world / s->ranks, t);
  begin_with_text(L);
  set_text(L, "name", s->name);
  set_integer(L, "ranks", s->ranks);
  set_integer(L, "virtual", s->virtual_stages);
  set_integer(L, "microbatches", s->microbatches);
  set_integer(L, "makespan", k.t.makespan);
  set_number(L, "bubble", timeline_bubble(&k.t));
  set_number(L, "bubble_own", timeline_bubble_own(&k.t));
  for (int r = 0; r < s->ranks; r++) {
    push_actions(L, s, r);
    set_integer(L, "pp", r);
    set_integer(L, "peak", k.t.peak[r]);
    lua_rawseti(L, -2, r + 1);
  }
  return 1;
}
