/* plan_program.c - what a compiled plan does on a rank: its program, its memory, what it
 * sends, its schedule. */
#include <stdlib.h>

#include "format.h"
#include "plan_object.h"
#include "bindings/script/script.h"
#include "vm/draw/timeline_draw.h"

/* ---- plan:program(rank) ---- */

/* One action of the main list; the table is on top. */
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
    set_text(L, "collective", coll_name[in->coll]);
    set_text(L, "axis", p->comm[in->comm].name);
  }
  if (is & INSTR_PAIR) set_integer(L, "peer", rank_on_pp(&j->mesh, rank, in->peer));
  if (is & INSTR_STARTS)
    set_integer(L, "bytes", (int64_t)operand_bytes(&p->operand[in->operand]));
}

int plan_program(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  int rank = rank_arg(L, j, 2), pp = mesh_coord(&j->mesh, rank, AXIS_PP);
  const Program *p = &j->compiled->prog[pp];
  Text *t = result_begin(L);
  program_print(j->compiled, rank, t);
  set_integer(L, "rank", rank);
  set_integer(L, "pp", pp);
  set_integer(L, "arena_bytes", (int64_t)p->arena_bytes);
  set_number(L, "flops", p->flops);
  for (uint32_t i = 0; i < p->nmain; i++) {
    lua_createtable(L, 0, 6);
    set_action(L, j, p, &p->code[i], rank);
    lua_rawseti(L, -2, i + 1);
  }
  result_end(L);
  return 1;
}

/* ---- plan:memory([rank]) ---- */

/* Adds the classes to the table on top and to the text. */
static void add_memory(lua_State *L, const Program *p, Text *t) {
  char buf[32];
  set_integer(L, "total", (int64_t)p->arena_bytes);
  lua_createtable(L, p->nmem, 0);
  for (int i = 0; i < p->nmem; i++) {
    const MemClass *m = &p->mem[i];
    text_printf(t, "  %-18s %10s%s%s\n", m->name, format_bytes((double)m->bytes, buf),
                m->note ? "  " : "", m->note ? m->note : "");
    lua_createtable(L, 0, 3);
    set_text(L, "name", m->name);
    set_integer(L, "bytes", (int64_t)m->bytes);
    if (m->note) set_text(L, "note", m->note);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "classes");
}

/* Ranks that differ in dp, cp and tp only have equal sizes: one entry per pp rank. */
int plan_memory(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  char buf[32];
  if (!lua_isnoneornil(L, 2)) {
    int rank = rank_arg(L, j, 2), pp = mesh_coord(&j->mesh, rank, AXIS_PP);
    const Program *p = &j->compiled->prog[pp];
    Text *t = result_begin(L);
    text_printf(t, "memory of rank %d: %s\n", rank,
                format_bytes((double)p->arena_bytes, buf));
    add_memory(L, p, t);
    set_integer(L, "rank", rank);
    set_integer(L, "pp", pp);
    result_end(L);
    return 1;
  }
  int worst;
  Text *t = result_begin(L);
  set_integer(L, "peak", (int64_t)job_worst_memory(j, &worst));
  set_integer(L, "worst_pp", worst);
  for (int pp = 0; pp < j->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &j->compiled->prog[pp];
    text_printf(t, "memory of each rank at pipeline rank %d: %s%s\n", pp,
                format_bytes((double)p->arena_bytes, buf),
                pp == worst && j->mesh.size[AXIS_PP] > 1 ? "  (the most)" : "");
    lua_createtable(L, 0, 3);
    add_memory(L, p, t);
    set_integer(L, "pp", pp);
    lua_rawseti(L, -2, pp + 1);
  }
  result_end(L);
  return 1;
}

/* ---- plan:comm([rank]) ---- */

/* What happens on one communicator (or with other stages) in a step. */
typedef struct Traffic {
  const char *axis;
  CollKind op;
  Flow flow;
} Traffic;

static int compare(const void *pa, const void *pb) {
  const Traffic *a = pa, *b = pb;
  int c = strcmp(a->axis, b->axis);
  return c ? c : (int)a->op - (int)b->op;
}

/* On that of pp ranks first..last which moves most. */
static Flow most_flow(const Compiled *c, int first, int last, int comm, CollKind op) {
  Flow most = {0};
  for (int pp = first; pp <= last; pp++) {
    const Flow *f = flow_of(c, pp, comm, op);
    if (f->count && (!most.count || f->bytes > most.bytes)) most = *f;
  }
  return most;
}

int plan_comm(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  const Compiled *c = j->compiled;
  bool one_rank = !lua_isnoneornil(L, 2);
  int first = 0, last = j->mesh.size[AXIS_PP] - 1, ncomm = c->prog->ncomm, n = 0;
  if (one_rank) first = last = mesh_coord(&j->mesh, rank_arg(L, j, 2), AXIS_PP);
  Traffic *all = lua_newuserdatauv(L, sizeof *all * COLL_N * (size_t)(ncomm + 1), 0);
  for (int i = -1; i < ncomm; i++)
    for (CollKind op = COLL_ALL_REDUCE; op < COLL_N; op++) {
      Flow f = most_flow(c, first, last, i, op);
      if (f.count) all[n++] = (Traffic){i < 0 ? "pp" : c->prog->comm[i].name, op, f};
    }
  qsort(all, (size_t)n, sizeof *all, compare);
  char buf[32];
  Text *t = result_begin(L);
  text_printf(t, "%-12s %-16s %10s %14s  of %s, each step\n", "axis", "operation",
              "count", "bytes", one_rank ? "this rank" : "the rank with most");
  for (int i = 0; i < n; i++) {
    const Traffic *f = &all[i];
    text_printf(t, "%-12s %-16s %10lld %14s\n", f->axis, coll_name[f->op],
                (long long)f->flow.count, format_bytes((double)f->flow.bytes, buf));
    lua_createtable(L, 0, 4);
    set_text(L, "axis", f->axis);
    set_text(L, "op", coll_name[f->op]);
    set_integer(L, "count", f->flow.count);
    set_integer(L, "bytes", (int64_t)f->flow.bytes);
    lua_rawseti(L, -2, i + 1);
  }
  if (!n) text_add(t, "no communication\n");
  result_end(L);
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
  Timeline t;
  RankTraffic *bytes;
  weft_error e;
  weft_status st;
} TimelineJob;

static void timeline_job(void *ud) {
  TimelineJob *j = ud;
  j->st = timeline_run(&j->j->schedule, TIMELINE_UNIT, j->arena, &j->t, &j->e);
  if (j->st == WEFT_OK) j->bytes = traffic(j->j->compiled, j->arena);
}

int plan_schedule(lua_State *L) {
  static const char *const names[] = {"width", NULL};
  const Job *j = plan_object_compiled(L);
  const Schedule *s = &j->schedule;
  check_options(L, 2, names);
  int width = (int)option_int(L, 2, "width", 20, 10000, 80);
  TimelineJob k = {.j = j, .arena = script_push_arena(L)};
  err_clear(&k.e);
  if (!arena_try(k.arena, timeline_job, &k)) return luaL_error(L, "not enough memory");
  if (k.st != WEFT_OK) return plan_object_raise(L, plan_object_self(L), k.st, &k.e);
  Text *t = result_begin(L);
  text_printf(t, "schedule: %s, %d pipeline rank%s, %d microbatch%s\n", s->name, s->ranks,
              s->ranks > 1 ? "s" : "", s->microbatches, s->microbatches > 1 ? "es" : "");
  timeline_text(s, &k.t, width, false, t);
  timeline_figures(&k.t, k.bytes, j->mesh.world / s->ranks, t);
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
  result_end(L);
  return 1;
}
