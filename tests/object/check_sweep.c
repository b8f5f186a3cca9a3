/* check_sweep.c - sweeps: points against full compiles, their options, files, bad input.
 */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "bindings/runner/runner.h"
#include "bindings/sweep/sweep.h"
#include "vm/pipeline/timeline.h"
#include "tests/lib/process.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FULL_COMPILES = 6 }; /* everything is slower */
#else
enum { FULL_COMPILES = 50 };
#endif

#define PLANS WEFT_SOURCE_DIR "/plans/"

/* ---- points against full compiles ---- */

typedef struct Axes {
  const char *list; /* Lua: { { "path", value, ... }, ... } */
  lua_State *L;
  Sweep grid; /* its axes; points are counted from 0 */
  const char *path[SWEEP_AXES];
  int64_t points;
  Judge judge;
  SweepCaches caches;
} Axes;

/* The list of axes is on top. */
static void read_axes(Axes *a) {
  lua_State *L = a->L;
  a->grid = (Sweep){.naxis = (int)lua_rawlen(L, -1)};
  a->points = 1;
  for (int i = 0; i < a->grid.naxis; i++) {
    lua_rawgeti(L, -1, i + 1);
    lua_rawgeti(L, -1, 1);
    a->path[i] = lua_tostring(L, -1);
    a->grid.size[i] = (int)lua_rawlen(L, -2) - 1;
    a->points *= a->grid.size[i];
    lua_pop(L, 2);
  }
}

/* A value as weft.grid prints it and --set takes it. */
static const char *value_at(const Axes *a, int axis, int k) {
  lua_State *L = a->L;
  const char *code = "local p, v = ...\n"
                     "local g = require 'weft'.grid { { p, v } }\n"
                     "return tostring(g):match(':.- .- (.*)')";
  ck_assert_int_eq(luaL_loadstring(L, code), LUA_OK);
  lua_pushstring(L, a->path[axis]);
  lua_rawgeti(L, -3, axis + 1);
  lua_rawgeti(L, -1, k + 2);
  lua_remove(L, -2);
  ck_assert_int_eq(lua_pcall(L, 2, 1, 0), LUA_OK);
  const char *text = arena_str(scratch_arena, lua_tostring(L, -1));
  lua_pop(L, 1);
  return text;
}

static void axes_open(Axes *a, const char *plan, const char *list) {
  Diags d = {.arena = scratch_arena};
  weft_error e;
  LangPlan *lp;
  int values;
  err_clear(&e);
  a->L = script_new(NULL);
  ck_assert_ptr_nonnull(a->L);
  ck_assert_int_eq(luaL_dostring(a->L, list), LUA_OK);
  read_axes(a);
  sweep_caches_init(&a->caches);
  LangOptions o = {0};
  ck_assert_int_eq(lang_load(&o, plan, &lp, &d, &e), WEFT_OK);
  ck_assert_int_eq(vary_take(lp, a->L, -1, &values, &d, &e), WEFT_OK);
  ck_assert_int_eq(judge_open(&a->judge, lp, values, &a->caches, LIMIT_NONE), WEFT_OK);
}

static void axes_close(Axes *a) {
  judge_close(&a->judge);
  sweep_caches_free(&a->caches);
  lua_close(a->L);
}

static void judge_at(Axes *a, int64_t point, PointRow *row, PointReason *why) {
  int choice[32];
  sweep_choice(&a->grid, point, choice);
  weft_status st = judge_point(&a->judge, choice, a->grid.naxis, row, why);
  ck_assert_msg(st == WEFT_OK, "%s", a->judge.e.text);
}

/* The point's plan on its own, as weft check --set would have it; then what it printed.
 */
static weft_status compile_at(const Axes *a, const char *plan, int64_t point, Job *j,
                              Arena *arena) {
  const char *set[32];
  int choice[32];
  sweep_choice(&a->grid, point, choice);
  for (int i = 0; i < a->grid.naxis; i++)
    set[i] = arena_printf(scratch_arena, "%s=%s", a->path[i], value_at(a, i, choice[i]));
  LangOptions o = {.set = set, .nset = a->grid.naxis};
  return job_open(j, arena, &o, plan);
}

static double bubble_of(const Job *j) {
  Timeline t;
  weft_error e;
  err_clear(&e);
  ck_assert_int_eq(timeline_run(&j->schedule, TIMELINE_UNIT, j->arena, &t, &e), WEFT_OK);
  return timeline_bubble(&t);
}

typedef struct Moved {
  double tp, ep, dp, pp;
} Moved;

static void add_comm(const Program *p, const Instr *x, Moved *c) {
  if (x->code == I_SEND) c->pp += (double)operand_bytes(&p->operand[x->operand]);
  if (!(instr_is[x->code] & INSTR_COLL)) return;
  const CommDesc *d = &p->comm[x->comm];
  AxisSet data = AXES_DP | AXIS_BIT(AXIS_EP_SHARD);
  AxisSet of_experts = AXIS_BIT(AXIS_EP) | AXIS_BIT(AXIS_ETP);
  double bytes = (double)coll_bytes(x, &p->operand[x->operand]);
  *(d->npp || d->axes & AXIS_BIT(AXIS_PP) ? &c->pp
    : axes_whole(d->axes) & data          ? &c->dp
    : d->axes & of_experts                ? &c->ep
                                          : &c->tp) += bytes;
}

/* What the busiest rank of each axis gives to operations, of the programs. */
static Moved comm_of(const Compiled *c) {
  Moved most = {0};
  for (int r = 0; r < c->mesh.size[AXIS_PP]; r++) {
    const Program *p = &c->prog[r];
    Moved one = {0};
    for (uint32_t i = 0; i < p->nmain; i++) {
      const Instr *x = &p->code[i];
      add_comm(p, x, &one);
      if (x->code != I_CALL) continue;
      const Body *b = &p->body[p->call[x->call].body];
      for (uint32_t k = b->first; k < b->first + b->n; k++)
        add_comm(p, &p->code[k], &one);
    }
    most = (Moved){MAX(most.tp, one.tp), MAX(most.ep, one.ep), MAX(most.dp, one.dp),
                   MAX(most.pp, one.pp)};
  }
  return most;
}

static void same_as_full(const Axes *a, const char *plan, int64_t point,
                         const PointRow *row) {
  Job j;
  Arena *arena = arena_new(NULL);
  int pp;
  weft_status st = compile_at(a, plan, point, &j, arena);
  ck_assert_msg(st == WEFT_OK, "point %d: %s", (int)point, j.e.text);
  double flops = 0, again = 0, copies = (double)j.mesh.world / j.mesh.size[AXIS_PP];
  for (int r = 0; r < j.mesh.size[AXIS_PP]; r++) {
    flops += j.compiled->prog[r].flops * copies;
    again += j.compiled->prog[r].again * copies;
  }
  ck_assert_msg((double)job_worst_memory(&j, &pp) == row->bytes,
                "point %d: %.0f, not %.0f", (int)point, row->bytes,
                (double)job_worst_memory(&j, &pp));
  ck_assert_double_eq(bubble_of(&j), row->bubble);
  ck_assert_int_eq(j.compiled->microbatches, row->microbatches);
  ck_assert_double_eq_tol(flops / row->flops, 1, 1e-12);
  ck_assert_double_le(fabs(again - row->again), 1e-12 * again);
  ck_assert_int_eq(row->worst, pp);
  /* Scalars are left out. */
  Moved c = comm_of(j.compiled);
  ck_assert_msg(fabs(c.tp - row->tp) < 256 && fabs(c.ep - row->ep) < 256 &&
                    fabs(c.dp - row->dp_bytes) < 256 && fabs(c.pp - row->pp) < 256,
                "point %d: tp %.0f ep %.0f dp %.0f pp %.0f, not %.0f %.0f %.0f %.0f",
                (int)point, row->tp, row->ep, row->dp_bytes, row->pp, c.tp, c.ep, c.dp,
                c.pp);
  job_free(&j);
  arena_free(arena);
}

#define GRID_70B                                                                         \
  "return { { 'mesh.tp', 1, 2, 4, 8 }, { 'mesh.pp', 1, 2, 4, 8, 16 },"                   \
  " { 'batch.micro', 1, 2 }, { 'strategy.sequence_parallel', false, true },"             \
  " { 'schedule', 'gpipe', '1f1b', 'interleaved_1f1b', 'zbv', 'zero_bubble' },"          \
  " { 'batch.global', 16, 32, 64, 96, 128, 256 }, { 'strategy.stage', 0, 1 } }"

START_TEST(points_are_compiled_plans) {
  Axes a;
  PointRow row;
  PointReason why;
  uint64_t random = 12345;
  axes_open(&a, PLANS "llama3_70b.lua", GRID_70B);
  for (int n = 0; n < FULL_COMPILES;) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int64_t point = (int64_t)((random >> 33) % (uint64_t)a.points);
    judge_at(&a, point, &row, &why);
    if (row.state != POINT_OK || row.microbatches > 128) continue;
    same_as_full(&a, PLANS "llama3_70b.lua", point, &row);
    n++;
  }
  axes_close(&a);
}
END_TEST

/* Fields that change what a rank keeps in other ways, all points. */
START_TEST(other_fields) {
  static const char *const grids[] = {
      "return { { 'precision', 'f32', 'bf16' }, { 'batch.rounds', 1, 2 },"
      " { 'optimizer.post_validation', false, true }, { 'mesh.dp', 1, 2, 4 },"
      " { 'schedule', 'gpipe' } }",
      "return { { 'pp_plan.layers', { 1, 3 }, { 2, 2 }, { 0, 4 } },"
      " { 'strategy.bucket_bytes', 1000, 100000000 }, { 'batch.seq', 64, 128 } }",
      "return { { 'pp_plan.balance', 'cost', 'even' }, { 'mesh.tp', 1, 2 } }",
      /* gradients that only tp reduces, parameters on two pipeline ranks */
      "return { { 'mesh.dp', 1, 2 }, { 'mesh.tp', 1, 2 },"
      " { 'model.tie_word_embeddings', true, false } }",
      /* shards: how many ranks there are matters */
      "return { { 'mesh.dp', 1, 2, 4 }, { 'mesh.dp_replicate', 1, 2 }, { 'mesh.tp', 2 },"
      " { 'strategy.stage', 0, 1 }, { 'precision', 'f32', 'bf16' },"
      " { 'optimizer.post_validation', false, true },"
      " { 'strategy.bucket_bytes', 1000, 100000000 } }",
      /* ranks with copies of heads */
      "return { { 'mesh.dp', 1, 2 }, { 'mesh.tp', 2, 4 },"
      " { 'model.num_key_value_heads', 1, 2 } }",
      /* what is kept, and what waits for W */
      "return { { 'recompute', 'none', 'full', { 'cheap', 'layers.*.self_attn' } },"
      " { 'strategy.keep_gathered', false, true }, { 'schedule', '1f1b', 'zbv' } }",
      /* what evaluates has buffers of its own in the same place */
      "return { { 'train.eval_every', 0, 5 }, { 'data.val_fraction', 0.01 },"
      " { 'mesh.dp', 1, 2 }, { 'mesh.tp', 1 }, { 'strategy.stage', 0, 3 },"
      " { 'recompute', 'none', 'full' }, { 'schedule', 'gpipe', '1f1b', 'zbv' } }",
      /* ranks with the same bytes */
      "return { { 'mesh.dp', 6 }, { 'mesh.tp', 1 }, { 'batch.global', 24 },"
      " { 'model.vocab_size', 256 }, { 'optimizer.clip', 0 }, { 'schedule', 'zbv' },"
      " { 'strategy.overlap_grad_reduce', false } }"};
  for (int k = 0; k < LEN(grids); k++) {
    Axes a;
    axes_open(&a, PLANS "quickstart.lua", grids[k]);
    for (int64_t p = 0; p < a.points; p++) {
      PointRow row;
      PointReason why;
      const char *lists = strstr(grids[k], "layers");
      judge_at(&a, p, &row, &why);
      if (row.state == POINT_ILLEGAL && strstr(grids[k], "dp_replicate")) continue;
      ck_assert_msg(row.state == POINT_OK, "%s: %s", why.path, why.text);
      if (!lists) same_as_full(&a, PLANS "quickstart.lua", p, &row);
    }
    axes_close(&a);
  }
}
END_TEST

/* Parameters and gradients that are whole for a while. */
START_TEST(held_blocks) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 8 },\n"
      "  strategy = { 'fsdp2' }, mesh = { dp = 2, tp = 2 }, precision = 'bf16',\n"
      "  schedule = '1f1b', batch = { global = 16, seq = 32 } }\n";
  static const char *const grids[] = {
      "return { { 'strategy.defer_fsdp_grad_sync', true, false },"
      " { 'strategy.reshard_after_forward', true, false }, { 'mesh.dp', 1, 2, 4 },"
      " { 'strategy.backward_prefetch_depth', 0, 2 } }",
      "return { { 'schedule', 'zbv', 'interleaved_1f1b' }, { 'mesh.pp', 1, 2, 4 },"
      " { 'strategy.defer_fsdp_grad_sync', true, false },"
      " { 'model.tie_word_embeddings', true, false } }",
      "return { { 'mesh.dp', 4, 8 }, { 'mesh.pp', 1, 2 },"
      " { 'strategy.reshard_after_forward', true, 2, 4 },"
      " { 'strategy.defer_fsdp_grad_sync', true, false },"
      " { 'strategy.backward_prefetch_depth', 0, 2 } }"};
  Axes a;
  PointRow row;
  PointReason why;
  scratch_put("held.lua", plan, strlen(plan));
  char *path = arena_str(scratch_arena, scratch_path("held.lua"));
  for (int k = 0; k < LEN(grids); k++) {
    axes_open(&a, path, grids[k]);
    for (int64_t p = 0; p < a.points; p++) {
      judge_at(&a, p, &row, &why);
      ck_assert_msg(row.state == POINT_OK, "%s: %s", why.path, why.text);
      same_as_full(&a, path, p, &row);
    }
    axes_close(&a);
  }
}
END_TEST

/* Experts that ranks share: rows as many as there can be, or as there is room for, and
 * storage on a mesh of their own. */
START_TEST(shared_experts) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'mixtral-tiny', mesh = { dp = 4, tp = 2 },\n"
      "  strategy = { 'zero' }, batch = { global = 16, seq = 32 } }\n";
  static const char grid[] =
      "return { { 'mesh.ep', 1, 2, 4, 8 }, { 'mesh.etp', 1, 2 }, { 'mesh.dp', 2, 4 },"
      " { 'strategy.stage', 0, 1, 3 }, { 'moe.dispatcher', 'allgather', 'alltoall' },"
      " { 'moe.max_tokens_factor', 1.25, 64 } }";
  Axes a;
  PointRow row;
  PointReason why;
  int judged = 0;
  scratch_put("experts.lua", plan, strlen(plan));
  char *path = arena_str(scratch_arena, scratch_path("experts.lua"));
  axes_open(&a, path, grid);
  for (int64_t p = 0; p < a.points; p++) {
    judge_at(&a, p, &row, &why);
    if (row.state == POINT_ILLEGAL) {
      ck_assert_str_eq(why.path, "mesh.ep");
      continue;
    }
    ck_assert_msg(row.state == POINT_OK, "%s: %s", why.path, why.text);
    same_as_full(&a, path, p, &row);
    judged++;
  }
  ck_assert_int_ge(judged, 120);
  axes_close(&a);
}
END_TEST

/* Gradients that are summed in another type, through buckets or held blocks. */
START_TEST(narrow_sums) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'llama-tiny',\n"
      "  strategy = { 'zero', stage = 1 }, mesh = { dp = 4, tp = 2 },\n"
      "  precision = { param_dtype = 'bf16' }, batch = { global = 16, seq = 32 } }\n";
  static const char grid[] =
      "return { { 'strategy.stage', 0, 1, 2, 3 }, { 'mesh.pp', 1, 2 },"
      " { 'mesh.dp_replicate', 1, 2 }, { 'strategy.bucket_bytes', 4096, 26214400 },"
      " { 'precision.reduce_dtype', 'f32', 'bf16' },"
      " { 'strategy.defer_grad_sync', true, false } }";
  Axes a;
  PointRow row;
  PointReason why;
  scratch_put("narrow.lua", plan, strlen(plan));
  char *path = arena_str(scratch_arena, scratch_path("narrow.lua"));
  axes_open(&a, path, grid);
  for (int64_t p = 0; p < a.points; p++) {
    judge_at(&a, p, &row, &why);
    ck_assert_msg(row.state == POINT_OK, "%s: %s", why.path, why.text);
    same_as_full(&a, path, p, &row);
  }
  axes_close(&a);
}
END_TEST

/* The lists of a schedule's file are there for later points, too. */
START_TEST(schedule_of_a_file) {
  Axes a;
  PointRow row;
  PointReason why;
  const char *plan =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'llama-tiny',\n"
      "  mesh = { pp = 2, dp = 2 }, schedule = weft.schedule_csv 's.csv',\n"
      "  batch = { global = 4, seq = 32 } }\n";
  static const char csv[] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  scratch_put("csv.lua", plan, strlen(plan));
  scratch_put("s.csv", csv, strlen(csv));
  char *path = arena_str(scratch_arena, scratch_path("csv.lua"));
  axes_open(&a, path,
            "return { { 'mesh.tp', 1, 2, 4 }, { 'batch.seq', 32, 64 },"
            " { 'model.num_hidden_layers', 4, 5 } }");
  for (int64_t p = 0; p < a.points; p++) {
    judge_at(&a, p, &row, &why);
    ck_assert_msg(row.state == POINT_OK, "%s: %s", why.path, why.text);
    same_as_full(&a, path, p, &row);
  }
  axes_close(&a);
}
END_TEST

static PointState state_at(Axes *a, int64_t point, const char *text) {
  PointRow row;
  PointReason why = {.text = ""};
  judge_at(a, point, &row, &why);
  if (row.state == POINT_ILLEGAL)
    ck_assert_msg(strstr(why.text, text), "point %d: %s", (int)point, why.text);
  return row.state;
}

/* Only a layout may have empty stages, and only a large batch has tensors that are too
 * large, whichever point comes first. */
START_TEST(points_that_look_alike) {
  Axes a;
  axes_open(&a, PLANS "quickstart.lua",
            "return { { 'mesh.pp', 4 }, { 'pp_plan', { layers = { 0, 4, 0, 0 } },"
            " { layout = 'E|tttt||L' } } }");
  ck_assert_int_eq(state_at(&a, 0, "stage 2 is empty"), POINT_ILLEGAL);
  ck_assert_int_eq(state_at(&a, 1, ""), POINT_OK);
  axes_close(&a);
  axes_open(&a, PLANS "quickstart.lua",
            "return { { 'model.vocab_size', 128256 }, { 'batch.seq', 8192 },"
            " { 'batch.micro', 1 }, { 'batch.global', 1048576 },"
            " { 'mesh.dp', 32768, 524288, 65536 } }");
  ck_assert_int_eq(state_at(&a, 0, ""), POINT_OK);
  ck_assert_int_eq(state_at(&a, 1, "at most 2^48 can be counted"), POINT_ILLEGAL);
  ck_assert_int_eq(state_at(&a, 2, ""), POINT_OK);
  axes_close(&a);
}
END_TEST

/* What is wrong is what weft check says first. */
START_TEST(reasons_are_those_of_check) {
  static const char *const grid =
      "return { { 'mesh.tp', 2, 3, 'x', 1000 }, { 'mesh.pp', 1, 3, 64 },"
      " { 'batch.global', 16, 17 }, { 'schedule', '1f1b', '2f2b', 'zbv' } }";
  Axes a;
  int illegal = 0;
  axes_open(&a, PLANS "quickstart.lua", grid);
  for (int64_t p = 0; p < a.points; p++) {
    PointRow row;
    PointReason why;
    Job j;
    Arena *arena = arena_new(NULL);
    judge_at(&a, p, &row, &why);
    weft_status st = compile_at(&a, PLANS "quickstart.lua", p, &j, arena);
    ck_assert_msg((st == WEFT_OK) == (row.state == POINT_OK), "point %d", (int)p);
    bool found = st == WEFT_OK;
    for (int i = 0; i < j.d.list.n; i++)
      found |= strcmp(j.d.list.at[i].path, why.path) == 0 &&
               strncmp(j.d.list.at[i].summary, why.text, sizeof why.text - 1) == 0;
    ck_assert_msg(found, "point %d: %s: %s", (int)p, why.path, why.text);
    illegal += st != WEFT_OK;
    job_free(&j);
    arena_free(arena);
  }
  ck_assert_int_gt(illegal, 40);
  axes_close(&a);
}
END_TEST

/* ---- scripts ---- */

#define SWEEP "local weft = require 'weft'\nlocal P = '" PLANS "quickstart.lua'\n"

static Outcome script(const char *verb, const char *text) {
  char *all = arena_printf(scratch_arena, SWEEP "%s", text);
  scratch_put("s.lua", all, strlen(all));
  return process_run(60, "$weft %s s.lua", verb);
}

static void says(const char *text, const char *out) {
  Outcome o = script("lua", text);
  ck_assert_msg(o.code == 0, "%s: exit %d\n%s%s", text, o.code, o.out, o.err);
  ck_assert_str_eq(o.out, out);
}

static void refused(const char *text, int code, const char *err) {
  Outcome o = script("lua", text);
  ck_assert_msg(o.code == code, "%s: exit %d\n%s%s", text, o.code, o.out, o.err);
  ck_assert_msg(strstr(o.err, err), "%s:\n%s", text, o.err);
}

START_TEST(rows) {
  says(
      "local r = weft.sweep { plan = P, score = 'peak_gib',\n"
      "  over = weft.grid { { 'mesh.tp', 1, 2, 3 }, { 'schedule', 'gpipe', '1f1b' } } }\n"
      "print(#r, r.points, r.judged, r.legal, r.illegal, r.memory, r.dropped)\n"
      "print(r[1].tp, r[1]['mesh.tp'], r[1].schedule, r[1].dp, r[1].microbatches)\n"
      "print(r[1].peak_gib < r[2].peak_gib, r[1].comm_gib.tp > 0, r[1].tflop > 0)\n"
      "print(r[1].step_ms, r.reasons[1].code, r.reasons[1].path, r.reasons[1].count)\n",
      "4\t6\t6\t4\t2\t0\t0\n2\t2\t1f1b\t2\t4\ntrue\ttrue\ttrue\n"
      "nil\tdivisibility\tmesh.tp\t2\n");
}
END_TEST

/* Rows that experts get if all get the same need not more places than that; how many more
 * there are changes what may move at most. */
START_TEST(rows_of_experts) {
  says("local r = weft.sweep { score = function(r) return r.max_tokens_factor end,\n"
       "  plan = weft.plan { model = weft.model 'qwen3-moe-tiny',\n"
       "    mesh = { dp = 4, ep = 4 }, moe = { dispatcher = 'alltoall' },\n"
       "    batch = { global = 8, seq = 32 }, data = weft.synthetic {} },\n"
       "  over = { { 'moe.max_tokens_factor', 1, 2 },\n"
       "    { 'moe.dispatcher', 'alltoall', 'allgather' } } }\n"
       "local one, two\n"
       "for _, x in ipairs(r) do\n"
       "  local ep, even = x.comm_gib.ep, x.comm_gib.ep_even\n"
       "  if x.dispatcher == 'allgather' then print(ep > 0, ep == even)\n"
       "  elseif x.max_tokens_factor == 1 then one = x.comm_gib\n"
       "  else two = x.comm_gib end\n"
       "end\n"
       "print(one.ep == one.ep_even, one.ep == two.ep_even, two.ep / one.ep > 1.9)\n",
       "true\ttrue\ntrue\ttrue\ntrue\ttrue\ttrue\n");
}
END_TEST

START_TEST(options) {
  says("local r = weft.sweep { plan = P, keep = 2, score = function(row)\n"
       "    if row.tp == 1 then return nil end\n    return -row.pp end,\n"
       "  where = function(p) return p.pp < 4 end,\n"
       "  over = { { 'mesh.tp', 1, 2, 4 }, { 'mesh.pp', 1, 2, 4 } } }\n"
       "print(#r, r.judged, r.dropped, r[1].pp, r[1].tp, r[2].pp, r[2].tp)\n",
       "2\t6\t2\t2\t2\t2\t4\n");
  says("print((tostring(weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } },\n"
       "  score = function(row) end }):gsub('.*: ', '')))\n",
       "2 plans, 0 without enough memory, 0 illegal; 2 plans without a score\n");
  says("print(select(2, pcall(weft.sweep, { over = { { 'x', 1 } },\n"
       "  plan = function() return 5 end })))\n",
       "s.lua:3: weft.sweep: plan() returned a number, not a plan, a file or nil\n");
  says("local r = weft.sweep { plan = P, max_gib = 0.01, score = 'peak_gib',\n"
       "  over = { { 'mesh.tp', 1, 2 }, { 'mesh.pp', 1, 2 } } }\n"
       "print(#r, r.legal, r.memory, r[1].peak_gib <= 0.01)\n",
       "1\t1\t3\ttrue\n");
  /* Without max_gib the GPU's memory is the limit; here all but 10 MiB are reserved. */
  says("local r = weft.sweep { plan = P, score = 'peak_gib', over = { { 'mesh.tp', 1, 2 "
       "},\n"
       "  { 'mesh.pp', 1, 2 }, { 'cluster', { 'h100',\n"
       "      reserve_gib = 81559 / 1024 - 0.01 } } } }\n"
       "print(#r, r.legal, r.memory, r[1].peak_gib <= 0.01)\n",
       "1\t1\t3\ttrue\n");
  says("local g = weft.grid { { 'mesh.tp', 1, 2 }, { 'pp_plan.layers', { 1, 3 } } }\n"
       "print(#g, g)\n",
       "2\tgrid of 2 points: mesh.tp 1, 2; pp_plan.layers { 1, 3 }\n");
}
END_TEST

/* Plans as objects, from functions, from tables; a model of the script's own. */
START_TEST(forms_of_plans) {
  says("local p = weft.load(P)\n"
       "local a = weft.sweep { plan = p, over = { { 'mesh.tp', 1, 2 } } }\n"
       "local b = weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } } }\n"
       "local c = weft.sweep { over = { { 'x', 1, 2, 5 } }, plan = function(q)\n"
       "    if q.x == 5 then return nil end\n"
       "    return p:with { ['mesh.tp'] = q.x } end }\n"
       "for i = 1, 2 do print(a[i].peak_gib == b[i].peak_gib, a[i].peak_gib == "
       "c[i].peak_gib) end\n"
       "print(c.illegal, c.reasons[1].message)\n"
       "local d = weft.sweep { over = { { 'x', 1, 3 } }, plan = function(q)\n"
       "    return p:with { ['mesh.tp'] = q.x } end }\n"
       "print(d.reasons[1].message)\n",
       "true\ttrue\ntrue\ttrue\n1\tthe function gave no plan\n" PLANS
       "quickstart.lua:12: error: plan.batch.seq: 3 does not divide batch.seq = 128 "
       "(sequence_parallel cuts it over tp)\n");
  says("local function model(g, c)\n"
       "  local x = g:unit('in', function()\n"
       "    return g:embedding(g:tokens(), g:param('e', { { 'vocab', 64 }, { 'hidden', "
       "c.w } })) end)\n"
       "  return g:unit('out', function()\n"
       "    return g:cross_entropy(g:linear(x, g:param('o', { { 'vocab', 64 }, { "
       "'hidden', c.w } })), g:labels()) end)\n"
       "end\n"
       "local r = weft.sweep { over = { { 'w', 16, 32 } }, score = 'peak_gib', plan = "
       "function(q)\n"
       "  return weft.plan { model = weft.model { model, w = q.w },\n"
       "    batch = { global = 4, seq = 16 } } end }\n"
       "print(#r, r[1].w, r[2].peak_gib > r[1].peak_gib)\n",
       "2\t16\ttrue\n");
}
END_TEST

/* What a script does to a point it does to its copy. */
START_TEST(points_are_copies) {
  says(
      "local r = weft.sweep { plan = P, score = function(row) return row.layers[1] end,\n"
      "  over = { { 'pp_plan.layers', { 1, 3 }, { 2, 2 } } },\n"
      "  where = function(p) p.layers[1], p.layers[2] = 2, 2 return true end }\n"
      "print(r[1].layers[1], r[1].peak_gib ~= r[2].peak_gib)\n",
      "1\ttrue\n");
}
END_TEST

START_TEST(threads_change_nothing) {
  says("local function text(n)\n"
       "  local r = weft.sweep { plan = P, threads = n, score = 'peak_gib', over = {\n"
       "    { 'mesh.tp', 1, 2, 3, 4 }, { 'mesh.pp', 1, 2, 4 }, { 'batch.micro', 1, 2 },\n"
       "    { 'schedule', 'gpipe', '1f1b', 'zbv' }, { 'batch.global', 8, 16, 24 } } }\n"
       "  local t = {}\n"
       "  for i, row in ipairs(r) do\n"
       "    t[i] = table.concat({ row.tp, row.pp, row.micro, row.schedule, row.global,\n"
       "      string.format('%.17g %.17g', row.peak_gib, row.bubble) }, ' ') end\n"
       "  for i, x in ipairs(r.reasons) do t[#t + 1] = x.path .. x.count end\n"
       "  table.sort(t)\n"
       "  return table.concat(t, '\\n') end\n"
       "print(text(1) == text(4))\n",
       "true\n");
}
END_TEST

START_TEST(measured) {
  says("local r = weft.sweep { plan = P, measure = 1, keep = 1, over = { { 'mesh.tp', 2 "
       "} } }\n"
       "print(r[1].tokens_per_s > 0)\n",
       "true\n");
}
END_TEST

#define OVER "over = { { 'mesh.tp', 1, 2 } }"

START_TEST(bad_input) {
  static const struct {
    const char *text;
    int code;
    const char *err;
  } all[] = {
      {"weft.sweep { plan = P, over = { { 'mesh.tpp', 1 } } }", 1,
       "a plan has no field 'mesh.tpp' (did you mean 'tp'?)"},
      {"weft.sweep { plan = P, over = { { 'shedule', 'gpipe' } } }", 1,
       "a plan has no field 'shedule' (did you mean 'schedule'?)"},
      {"weft.grid {}", 1, "the grid has no axes"},
      {"weft.sweep { plan = P, over = {} }", 1, "the grid has no axes"},
      {"weft.grid { { 'mesh.tp' } }", 1, "axis 1 (mesh.tp) has no values"},
      {"weft.grid { { 1, 2 } }", 1, "axis 1: the first item is the path of a field"},
      {"weft.grid { 'mesh.tp' }", 1, "axis 1 is a string, not { \"path\", value"},
      {"weft.grid { { 'mesh.tp', 1 }, { 'mesh.tp', 2 } }", 1, "two axes mesh.tp"},
      {"weft.sweep { plan = P }", 1, "over is missing"},
      {"weft.sweep { " OVER " }", 1, "plan is missing"},
      {"weft.sweep { plan = P, " OVER ", wher = 1 }", 1, "did you mean 'where'?"},
      {"weft.sweep { plan = P, " OVER ", where = 1 }", 1, "where is a function"},
      {"weft.sweep { plan = P, " OVER ", score = 'peak' }", 1,
       "did you mean 'peak_gib'?"},
      {"weft.sweep { plan = P, " OVER ", score = function() return 'x' end }", 1,
       "score() returned a string"},
      {"weft.sweep { plan = P, " OVER ", max_gib = 0 }", 1,
       "max_gib is a positive number"},
      {"weft.sweep { plan = P, " OVER ", keep = 0 }", 1, "keep must be an integer"},
      {"weft.sweep { plan = P, " OVER ", where = function() return false end }", 1,
       "where() leaves none of the 2 points"},
      {"weft.sweep { plan = 'no.lua', " OVER " }", 2, "no.lua"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 3, 5 } } }", 1,
       "none of the 2 points is a plan\n        2  divisibility: plan.mesh.tp: 3 does "
       "not "
       "divide"},
      {"weft.sweep { plan = P, " OVER ", max_gib = 0.001 }", 1,
       "        2  memory: more than 0.001 GiB on a rank"},
      {"weft.sweep { plan = P, " OVER ", csv = '/dev/full' }", 2,
       "/dev/full: error: cannot be written: No space left"},
      {"weft.sweep { plan = P, " OVER ", jsonl = '/dev/full' }", 2,
       "/dev/full: error: cannot be written: No space left"},
      {"weft.sweep { plan = P, " OVER ", jsonl = '/nowhere/x' }", 2, "/nowhere/x"},
      {"weft.sweep { plan = 3, " OVER " }", 1,
       "plan is a file, a plan or function(point), got number"},
      {"weft.grid { { 'mesh.tp', 1, nil, 2 } }", 1, "axis 1 (mesh.tp): value 2 is nil"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 1, io.open } } }", 1,
       "in the grid [1][3] is io.open, which a plan cannot take along"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 1 }, { 'plan.mesh.tp', 2 } } }", 1,
       "the grid has two axes mesh.tp"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 1 }, { 'mesh', { tp = 2 } } } }", 1,
       "axis mesh would set mesh.tp again: put it first"},
      {"weft.sweep { plan = function() return P end, over = { { 'dp', 1 } } }", 1,
       "axis 1: dp is the name of a column"},
      {"weft.sweep { plan = P, over = { { 'optimizer.lrr', 1 } } }", 1,
       "plan.optimizer.lrr: unknown field (did you mean \"lr\"?)"},
      {"weft.sweep { plan = P, " OVER ", score = 'step_ms' }", 1,
       "step_ms needs the GPU's name in plan.cluster"},
      {"weft.sweep { plan = P, " OVER ", score = 'tokens_per_s' }", 1,
       "tokens_per_s is measured after"},
      {"weft.sweep { plan = P, " OVER ", jsonl = 'x', resume = 'y' }", 1,
       "leave out jsonl"},
      {"weft.sweep { plan = P, " OVER ", jsonl = 'x', csv = 'x' }", 1,
       "two outputs would be written to x"},
      {"weft.sweep { plan = P, " OVER ", resume = '/dev/full' }", 2,
       "/dev/full: error: is not a file that can be taken up"},
      {"local t = {}\nt.x, t.y = t, t\nweft.sweep { plan = { batch = { global = 4, seq = "
       "16 }, model = weft.model { function(g) end, t = t } }, over = { { 'batch.micro', "
       "1, 2 } } }",
       1, "2  plan: a table in the plan is nested too deeply for a sweep"},
      {"weft.sweep { plan = P, " OVER ", where = function(p) return p.q.r end }", 1,
       "attempt to index a nil value"},
  };
  for (int i = 0; i < LEN(all); i++)
    refused(all[i].text, all[i].code, all[i].err);
}
END_TEST

/* ---- files ---- */

#define BIG                                                                              \
  "print(weft.sweep { plan = P, score = 'peak_gib', over = { { 'mesh.tp', 1, 2, 3 },\n"  \
  "  { 'mesh.pp', 1, 2 }, { 'batch.global', 8, 16, 32, 64 } }, keep = 3 })\n"

static int lines(const char *s) {
  int n = 0;
  for (; (s = strchr(s, '\n')); s++)
    n++;
  return n;
}

START_TEST(csv_and_json) {
  Outcome o = script("sweep --csv a.csv --jsonl a.jsonl", BIG);
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *csv = scratch_get(scratch_path("a.csv")),
             *rows = scratch_get(scratch_path("a.jsonl"));
  ck_assert_ptr_eq(strstr(csv, "mesh.tp,mesh.pp,batch.global,dp,microbatches,peak_gib,"),
                   csv);
  ck_assert_int_eq(lines(csv), 4);
  ck_assert_int_eq(lines(rows), 25);
  for (const char *line = rows; *line; line = strchr(line, '\n') + 1) {
    json_t *x = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    ck_assert(json_is_object(x));
    if (line != rows) ck_assert_ptr_nonnull(json_object_get(x, "state"));
    json_decref(x);
  }
  ck_assert_ptr_nonnull(strstr(rows, "\"state\":\"illegal\""));
  ck_assert_ptr_nonnull(strstr(o.out, "24 of 24 points judged"));
  ck_assert_ptr_nonnull(strstr(o.out, "tp  pp  global"));
}
END_TEST

/* A file that was cut in the middle of a line is finished; the result is the same. */
START_TEST(resume) {
  script("sweep --jsonl whole.jsonl --csv whole.csv", BIG);
  const char *whole = scratch_get(scratch_path("whole.jsonl"));
  size_t half = strlen(whole) / 2;
  scratch_put("part.jsonl", whole, half);
  Outcome o = script("sweep --resume part.jsonl --csv part.csv", BIG);
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_str_eq(scratch_get(scratch_path("part.jsonl")), whole);
  ck_assert_str_eq(scratch_get(scratch_path("part.csv")),
                   scratch_get(scratch_path("whole.csv")));
  ck_assert_ptr_nonnull(strstr(o.out, " of them before"));
  o = script("sweep --resume part.jsonl",
             "print(weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } } })\n");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "is not of this sweep"));
  ck_assert_str_eq(scratch_get(scratch_path("part.jsonl")), whole);
  /* Files that nobody may lose: a text without a line end, a row without its figures. */
  scratch_put("note.txt", "hello", 5);
  o = script("sweep --resume note.txt", BIG);
  ck_assert_int_eq(o.code, 2);
  ck_assert_str_eq(scratch_get(scratch_path("note.txt")), "hello");
  char *odd = arena_str(scratch_arena, whole);
  memcpy(strstr(odd, "\"peak_bytes\""), "\"PEAK_BYTES\"", 12);
  scratch_put("odd.jsonl", odd, strlen(odd));
  o = script("sweep --resume odd.jsonl", BIG);
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "has a line that is no row of a sweep"));
  o = script("sweep --resume new.jsonl", BIG);
  ck_assert_int_eq(o.code, 0);
  ck_assert_str_eq(scratch_get(scratch_path("new.jsonl")), whole);
  o = script("sweep --csv x.csv", BIG BIG);
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(strstr(o.err, "are those of the first"));
}
END_TEST

/* Ctrl-C: what is done stands, the script goes on, and the exit code tells. A point that
 * was at work is no judgement. */
static void interrupt_sweep(const char *plan) {
  const char *text = arena_printf(
      scratch_arena,
      SWEEP
      "local p, n = weft.load(P), {}\nfor i = 1, 2000 do n[i] = 16 * i end\n"
      "local r = weft.sweep { plan = %s, jsonl = 'i.jsonl', score = 'peak_gib', over = "
      "{\n"
      "  { 'batch.global', table.unpack(n) }, { 'mesh.tp', 1, 2, 4 }, { 'mesh.pp', 1, 2 "
      "} } }\n"
      "print('rows', #r > 0, r.interrupted, r.judged < r.points, r.illegal)\n",
      plan);
  scratch_put("i.lua", text, strlen(text));
  unlink(scratch_path("i.jsonl"));
  Process p = process_start(60, "$weft sweep i.lua");
  ck_assert(process_wait_for(&p, scratch_path("i.jsonl"), "\"state\""));
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 130, "exit %d\n%s%s", o.code, o.out, o.err);
  ck_assert_msg(strcmp(o.out, "rows\ttrue\ttrue\ttrue\t0\n") == 0, "%s: %s", plan, o.out);
  ck_assert_int_gt(lines(scratch_get(scratch_path("i.jsonl"))), 1);
}

START_TEST(interrupt) {
  interrupt_sweep("P");
  interrupt_sweep("function(q) return p:with { ['mesh.tp'] = q.tp } end");
  interrupt_sweep("function(q) local r = assert(p:with {}) return r end");
  interrupt_sweep("function(q) for i = 1, 1e6 do end return P end");
}
END_TEST

/* A plan instead of a script. */
START_TEST(no_sweep) {
  Outcome o = process_run(30, "$weft sweep --csv x.csv " PLANS "quickstart.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(strstr(o.err, "quickstart.lua made no sweep: it is a script"));
}
END_TEST

START_TEST(example) {
  Outcome o = process_run(30, "$weft sweep " PLANS "sweep_70b_64xh100.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *table = strstr(o.out, "tp  pp  micro");
  ck_assert_ptr_nonnull(table);
  ck_assert_int_eq(lines(table), 12);
  ck_assert_ptr_nonnull(strstr(o.out, "memory: more than 79 GiB on a rank"));
}
END_TEST

Suite *sweep_suite(void) {
  Suite *s = suite_create("sweep");
  TCase *points = tcase_create("points"), *scripts = tcase_create("scripts");
  tcase_set_timeout(points, 120);
  tcase_set_timeout(scripts, 120);
  tcase_add_checked_fixture(points, scratch_setup, scratch_teardown);
  tcase_add_checked_fixture(scripts, scratch_setup, scratch_teardown);
  tcase_add_test(points, points_are_compiled_plans);
  tcase_add_test(points, other_fields);
  tcase_add_test(points, schedule_of_a_file);
  tcase_add_test(points, held_blocks);
  tcase_add_test(points, shared_experts);
  tcase_add_test(points, narrow_sums);
  tcase_add_test(points, points_that_look_alike);
  tcase_add_test(points, reasons_are_those_of_check);
  tcase_add_test(scripts, rows);
  tcase_add_test(scripts, options);
  tcase_add_test(scripts, rows_of_experts);
  tcase_add_test(scripts, forms_of_plans);
  tcase_add_test(scripts, points_are_copies);
  tcase_add_test(scripts, threads_change_nothing);
  tcase_add_test(scripts, measured);
  tcase_add_test(scripts, bad_input);
  tcase_add_test(scripts, csv_and_json);
  tcase_add_test(scripts, resume);
  tcase_add_test(scripts, interrupt);
  tcase_add_test(scripts, no_sweep);
  tcase_add_test(scripts, example);
  suite_add_tcase(s, points);
  suite_add_tcase(s, scripts);
  return s;
}
