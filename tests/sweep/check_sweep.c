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
#include "tests/harness/process.h"

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
  const LangShared *shared;
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
  ck_assert_int_eq(plan_share(lp, values, &shared, &e), WEFT_OK);
  ck_assert_int_eq(judge_open(&a->judge, lp, values, shared, &a->caches, LIMIT_NONE),
                   WEFT_OK);
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
  double tp, cp, ep, dp, pp;
} Moved;

/* Over cp a body exchanges what attention reads; in main gradients and parameters are. */
static void add_comm(const Program *p, const Instr *x, bool main, Moved *c) {
  if (x->code == I_SEND) c->pp += (double)operand_bytes(&p->operand[x->operand]);
  if (!(instr_is[x->code] & INSTR_COLL)) return;
  const CommDesc *d = &p->comm[x->comm];
  AxisSet data = AXES_DP | AXIS_BIT(AXIS_EP_SHARD);
  AxisSet of_experts = AXIS_BIT(AXIS_EP) | AXIS_BIT(AXIS_ETP);
  double bytes = (double)coll_bytes(x, &p->operand[x->operand]);
  *(d->npp || d->axes & AXIS_BIT(AXIS_PP)     ? &c->pp
    : axes_whole(d->axes) & data              ? &c->dp
    : axes_whole(d->axes) & AXIS_BIT(AXIS_CP) ? main ? &c->dp : &c->cp
    : d->axes & of_experts                    ? &c->ep
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
      add_comm(p, x, true, &one);
      if (x->code != I_CALL) continue;
      const Body *b = &p->body[p->call[x->call].body];
      for (uint32_t k = b->first; k < b->first + b->n; k++)
        add_comm(p, &p->code[k], false, &one);
    }
    most = (Moved){MAX(most.tp, one.tp), MAX(most.cp, one.cp), MAX(most.ep, one.ep),
                   MAX(most.dp, one.dp), MAX(most.pp, one.pp)};
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
    again += j.compiled->prog[r].recomputed * copies;
  }
  ck_assert_msg((double)job_worst_memory(&j, &pp) == row->bytes,
                "point %d: %.0f, not %.0f", (int)point, row->bytes,
                (double)job_worst_memory(&j, &pp));
  ck_assert_double_eq(bubble_of(&j), row->bubble);
  ck_assert_int_eq(j.compiled->microbatches, row->microbatches);
  ck_assert_double_eq_tol(flops / row->flops, 1, 1e-12);
  ck_assert_double_le(fabs(again - row->recomputed), 1e-12 * again);
  ck_assert_int_eq(row->worst, pp);
  /* Scalars are left out. */
  Moved c = comm_of(j.compiled);
  ck_assert_msg(fabs(c.tp - row->tp) < 256 && fabs(c.cp - row->cp) < 256 &&
                    fabs(c.ep - row->ep) < 256 && fabs(c.dp - row->dp_bytes) < 256 &&
                    fabs(c.pp - row->pp) < 256,
                "point %d: tp %.0f cp %.0f ep %.0f dp %.0f pp %.0f, not %.0f %.0f %.0f "
                "%.0f %.0f",
                (int)point, row->tp, row->cp, row->ep, row->dp_bytes, row->pp, c.tp, c.cp,
                c.ep, c.dp, c.pp);
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
      /* shards over cp alone */
      "return { { 'mesh.dp', 1, 2 }, { 'mesh.cp', 1, 2, 4 }, { 'mesh.tp', 1 },"
      " { 'mesh.pp', 1 }, { 'strategy.stage', 1, 2, 3 },"
      " { 'strategy.defer_grad_sync', false, true } }",
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

/* Without lifetimes of buffers bytes and times are lower bounds, and microbatches in
 * flight count: schedules and recomputation differ by them. */
START_TEST(floors) {
  static const char *const grids[] = {
      "return { { 'schedule', '1f1b', 'gpipe', 'zero_bubble', 'zbv', 'zb_h2',"
      "  'interleaved_1f1b', 'v_half', 'v_min', 'dualpipe_v', 'eager_1f1b' },"
      " { 'recompute', 'none', 'cheap', 'full' }, { 'mesh.pp', 1, 2 }, { 'mesh.tp', 1, 2 "
      "},"
      " { 'batch.global', 32 }, { 'model.tie_word_embeddings', false, true } }",
      "return { { 'strategy', 'fsdp2', 'zero', { 'zero', stage = 2 } },"
      " { 'schedule', '1f1b', 'zbv' }, { 'mesh.dp', 2, 4 }, { 'batch.micro', 1, 2 },"
      " { 'batch.global', 32 }, { 'freeze', { 'embed_tokens' }, { 'layers.0.*' } } }"};
  int apart = 0;
  for (int k = 0; k < LEN(grids); k++) {
    Axes a;
    axes_open(&a, PLANS "quickstart.lua", grids[k]);
    for (int64_t p = 0; p < a.points; p++) {
      PointRow row, least;
      PointReason why;
      judge_at(&a, p, &row, &why);
      a.judge.floor = true;
      judge_at(&a, p, &least, &why);
      a.judge.floor = false;
      ck_assert_int_eq(least.state, row.state);
      if (row.state != POINT_OK) continue;
      ck_assert_msg(least.bytes <= row.bytes, "grid %d, point %lld: %.0f, really %.0f", k,
                    (long long)p, least.bytes, row.bytes);
      ck_assert(least.floor && least.mean_fixed <= least.bytes);
      ck_assert(least.seconds <= row.seconds && least.dp_bytes <= row.dp_bytes);
      apart += least.bytes > least.mean_fixed * 1.05;
    }
    axes_close(&a);
  }
  ck_assert_int_gt(apart, 20);
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

/* Whether gathers start ahead follows from another field. */
START_TEST(gathers_of_megatron_fsdp) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 8 },\n"
      "  strategy = { 'megatron_fsdp' }, mesh = { dp = 2, tp = 2 }, precision = 'bf16',\n"
      "  batch = { global = 16, seq = 32 } }\n";
  Axes a;
  PointRow row;
  PointReason why;
  scratch_put("mfsdp.lua", plan, strlen(plan));
  char *path = arena_str(scratch_arena, scratch_path("mfsdp.lua"));
  axes_open(&a, path,
            "return { { 'strategy.overlap_param_gather', true, false },"
            " { 'mesh.dp', 2, 4 }, { 'mesh.cp', 1, 2 } }");
  for (int64_t p = 0; p < a.points; p++) {
    judge_at(&a, p, &row, &why);
    ck_assert_msg(row.state == POINT_OK, "%s: %s", why.path, why.text);
    same_as_full(&a, path, p, &row);
  }
  axes_close(&a);
}
END_TEST

/* Experts that ranks share: rows as many as there can be, or as there is room for, and
 * storage on a mesh of their own. */
START_TEST(shared_experts) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'mixtral-tiny', mesh = { dp = 4, tp = 2 },\n"
      "  moe = { aux_loss_coef = 0.01, aux_loss_batch = 'global' },\n"
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

/* The bias of a router is in f32 beside parameters in bf16, and its region comes first.
 */
START_TEST(routers_that_count) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'deepseek_v3', hidden_size = 64,\n"
      "    num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4,\n"
      "    intermediate_size = 128, moe_intermediate_size = 32, q_lora_rank = 32,\n"
      "    kv_lora_rank = 16, qk_nope_head_dim = 16, qk_rope_head_dim = 8,\n"
      "    v_head_dim = 16, n_routed_experts = 4, num_experts_per_tok = 2,\n"
      "    n_shared_experts = 1, first_k_dense_replace = 1, n_group = 1,\n"
      "    topk_group = 1, vocab_size = 256 },\n"
      "  strategy = { 'zero', stage = 1 }, mesh = { dp = 4 },\n"
      "  precision = { param_dtype = 'bf16' }, batch = { global = 16, seq = 32 } }\n";
  static const char grid[] =
      "return { { 'strategy.stage', 0, 1, 2, 3 }, { 'mesh.pp', 1, 2 },"
      " { 'mesh.ep', 1, 2 }, { 'strategy.defer_grad_sync', true, false } }";
  Axes a;
  PointRow row;
  PointReason why;
  scratch_put("routers.lua", plan, strlen(plan));
  char *path = arena_str(scratch_arena, scratch_path("routers.lua"));
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

/* More kinds of reasons than there is room for: the last one counts what is left. */
START_TEST(every_reason_is_counted) {
  enum { KINDS = SWEEP_REASONS + 44 };
  Arena *arena = arena_new(NULL);
  Sweep *s = NEW(arena, Sweep);
  s->row = NEW_N(arena, PointRow, KINDS);
  s->why = NEW_N(arena, PointReason *, KINDS);
  s->ready = NEW_N(arena, _Atomic bool, KINDS);
  pthread_mutex_init(&s->lock, NULL);
  for (int i = 0; i < KINDS; i++) {
    PointReason why = {.code = "field"};
    snprintf(why.path, sizeof why.path, "plan.f%d", i);
    s->row[i].state = POINT_ILLEGAL;
    sweep_note(s, i, &why);
  }
  ck_assert_int_eq(s->nreason, SWEEP_REASONS);
  for (int i = 0; i < SWEEP_REASONS - 1; i++) ck_assert_int_eq(s->reason[i].count, 1);
  ck_assert_int_eq(s->reason[SWEEP_REASONS - 1].count, 45);
  ck_assert_int_eq(s->nillegal, KINDS);
  for (int i = 0; i < KINDS; i++) free(s->why[i]);
  pthread_mutex_destroy(&s->lock);
  arena_free(arena);
}
END_TEST

Suite *sweep_suite(void) {
  Suite *s = suite_create("sweep");
  TCase *t = tcase_create("points");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, points_are_compiled_plans);
  tcase_add_test(t, other_fields);
  tcase_add_test(t, schedule_of_a_file);
  tcase_add_test(t, floors);
  tcase_add_test(t, held_blocks);
  tcase_add_test(t, gathers_of_megatron_fsdp);
  tcase_add_test(t, shared_experts);
  tcase_add_test(t, narrow_sums);
  tcase_add_test(t, routers_that_count);
  tcase_add_test(t, points_that_look_alike);
  tcase_add_test(t, reasons_are_those_of_check);
  tcase_add_test(t, every_reason_is_counted);
  suite_add_tcase(s, t);
  return s;
}
