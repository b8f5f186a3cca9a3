/* check_experts.c - experts that ranks share: the same training as on one rank, whichever
 * ranks have which experts, and however tokens reach them. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/one_rank_pair.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"
#include "tests/harness/run_bits.h"
#include "vm/storage/piece.h"

/* tp x dp ranks; ep of them have different experts, etp share each. Routers score with
 * weights of 0.1 over features of norm: no two scores of a token are nearly the same. */
static ToyOptions toy_of(int tp, int dp, int ep, int etp) {
  ToyOptions o = toy_default();
  o.layers = 2, o.heads = 8, o.kv_heads = 8, o.vocab = 51, o.seq = 16;
  o.tp = tp, o.dp = dp, o.ep = ep, o.etp = etp;
  o.experts = 8, o.topk = 2;
  o.aux = 0.02f, o.z = 0.001f;
  return o;
}

/* Meshes in which the ranks that share experts are those of dp, of tp, or some of both.
 */
static const struct {
  int tp, dp, ep, etp;
} meshes[] = {{1, 2, 1, 1}, {2, 2, 1, 2}, {1, 2, 2, 1}, {1, 4, 2, 1},
              {1, 4, 4, 1}, {2, 2, 2, 1}, {2, 2, 2, 2}, {2, 4, 4, 2},
              {2, 4, 8, 1}, {2, 2, 1, 1}, {1, 4, 2, 2}, {4, 1, 2, 2},
              {2, 1, 2, 1}, {4, 2, 4, 1}, {1, 8, 8, 1}, {2, 4, 2, 2}};

/* Each with both dispatchers, stages of ZeRO, with and without pipeline and sequence
 * parallelism, with one sequence on a rank or two, whose pieces are not rows in a row. */
START_TEST(agrees_with_one_rank) {
  ToyOptions o = toy_of(meshes[_i].tp, meshes[_i].dp, meshes[_i].ep, meshes[_i].etp);
  for (int i = 0; i < 2; i++) {
    o.dispatcher = i ? MOE_ALLTOALL : MOE_ALLGATHER;
    o.strategy.stage = (_i + 2 * i) % 4;
    o.pp = (_i / 2 + i) % 2 + 1;
    o.sp = o.tp > 1 && (_i + i) % 2;
    o.fused = (_i / 4 + i) % 2;
    o.micro = 2 - (_i / 2 + i) % 2;
    pair_agrees(&o);
  }
}
END_TEST

/* Sequences that are cut, what runs again, shards in groups, and copies of shards. */
START_TEST(goes_with_the_rest) {
  static const Recompute again[] = {{.full = true}, {.selective = true}, {.cheap = true}};
  ToyOptions o = toy_of(2, 4, 4, 1 + _i % 2);
  o.dispatcher = _i % 2 ? MOE_ALLTOALL : MOE_ALLGATHER;
  o.cp = _i == 1 ? 2 : 1;
  if (_i == 1) o.dp = 2;
  o.recompute = again[_i % 3];
  o.replicate = _i == 2 ? 2 : 1;
  o.strategy.stage = _i == 0 ? 3 : _i;
  o.strategy.defer_grad_sync = _i == 2;
  if (_i == 0) o.strategy.reshard = RESHARD_YES, o.strategy.reshard_to = 2;
  o.topk = 3, o.overlap = true;
  pair_agrees(&o);
}
END_TEST

static int kernels_of(const Program *p, int op) {
  int n = 0;
  for (int b = 0; b < p->nbody; b++)
    for (uint32_t i = p->body[b].first; i < p->body[b].first + p->body[b].n; i++)
      n += p->code[i].code == I_KERNEL && p->code[i].op == op;
  return n;
}

static int gathers_of(const Program *p) {
  int n = 0;
  for (uint32_t i = 0; i < p->nmain; i++) n += p->code[i].code == I_GATHER;
  return n;
}

/* Routers run once more with all else, unless the plan keeps what they said. */
START_TEST(routers_are_kept) {
  int runs[2];
  for (int keep = 0; keep < 2; keep++) {
    Pair p;
    ToyOptions o = toy_of(1, 2, 2, 1);
    o.recompute.full = true, o.keep_router = keep, o.pp = 1 + _i;
    pair_compile(&p, &o);
    runs[keep] = kernels_of(&p.many.compiled->prog[0], OP_route);
    pair_verify(&p, 2, 1e-5);
    ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
    pair_free(&p);
  }
  ck_assert_int_gt(runs[1], 0);
  ck_assert_int_eq(runs[0], 2 * runs[1]);
}
END_TEST

/* Whether gathered experts stay is said apart from all others: where nothing else stays
 * that is fewer gathers and more memory, where all does they may go, too. */
START_TEST(experts_stay_or_not) {
  int gathers[3];
  uint64_t bytes[3];
  static const char *const said[] = {NULL, "0", "1"};
  for (int i = 0; i < 3; i++) {
    Pair p;
    ToyOptions o = toy_of(1, 4, 2, 1);
    o.strategy.stage = 3, o.strategy.reshard = _i ? RESHARD_NO : RESHARD_YES;
    o.strategy.reshard_experts = said[i];
    pair_compile(&p, &o);
    const Program *prog = &p.many.compiled->prog[0];
    gathers[i] = gathers_of(prog);
    bytes[i] = prog->arena_bytes;
    pair_verify(&p, 2, 1e-5);
    ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
    pair_free(&p);
  }
  int same = _i ? 1 : 2, other = 3 - same;
  ck_assert_int_eq(gathers[0], gathers[same]);
  ck_assert_uint_eq(bytes[0], bytes[same]);
  ck_assert_int_lt(gathers[1], gathers[2]);
  ck_assert_uint_gt(bytes[1], bytes[2]);
  ck_assert_int_ne(gathers[0], gathers[other]);
}
END_TEST

/* Each way of attention over cut sequences, whole and cut over tp. */
START_TEST(goes_with_context) {
  static const CpPlan way[] = {{CP_ALLGATHER, false, 0},
                               {CP_RING, true, 0},
                               {CP_A2A, false, 0},
                               {CP_A2A_RING, false, 2}};
  ToyOptions o = toy_of(1 + _i % 2, 2, 2 << _i / 4, 1);
  o.how = way[_i % 4];
  o.cp = o.how.comm == CP_A2A_RING ? 4 : 2;
  o.dispatcher = _i % 3 ? MOE_ALLTOALL : MOE_ALLGATHER;
  o.strategy.stage = _i % 4;
  pair_agrees(&o);
}
END_TEST

/* ---- no more rows than there is room for ---- where dp alone cuts tokens, one rank can
 * leave out the same choices */

static const struct {
  int dp, ep, pp;
  float bound;
} bounds[] = {{4, 4, 1, 1}, {4, 2, 2, 1.125f}, {8, 8, 1, 1.25f}, {2, 2, 1, 1}};

START_TEST(drops_the_same_as_one_rank) {
  ToyOptions o = toy_of(1, bounds[_i].dp, bounds[_i].ep, 1);
  o.bound = bounds[_i].bound, o.pp = bounds[_i].pp;
  o.strategy.stage = _i;
  for (int i = 0; i < 4; i++) {
    o.dispatcher = i % 2 ? MOE_ALLTOALL : MOE_ALLGATHER;
    o.drop = i / 2 ? DROP_PROBS : DROP_POSITION;
    o.fused = i == 1;
    pair_agrees(&o);
  }
}
END_TEST

/* A capacity counts the tokens of each rank, whichever ranks see them. */
START_TEST(capacity_is_of_the_tokens_of_a_rank) {
  static const struct {
    int dp, ep, etp;
    float capacity;
  } ways[] = {
      {4, 4, 1, 1}, {4, 2, 1, 0.75f}, {4, 2, 2, 0.75f}, {4, 1, 2, 1}, {2, 1, 1, 1}};
  ToyOptions o = toy_of(1, ways[_i].dp, ways[_i].ep, ways[_i].etp);
  o.capacity = ways[_i].capacity, o.pp = _i % 2 + 1;
  o.strategy.stage = _i % 4;
  for (int i = 0; i < 4; i++) {
    o.dispatcher = i % 2 ? MOE_ALLTOALL : MOE_ALLGATHER;
    o.drop = i / 2 ? DROP_PROBS : DROP_POSITION;
    o.topk = 1 + i % 2;
    pair_agrees(&o);
  }
}
END_TEST

/* Room that is enough changes nothing, whatever cuts tokens. */
START_TEST(fits_with_room) {
  ToyOptions o = toy_of(meshes[_i].tp, meshes[_i].dp, meshes[_i].ep, meshes[_i].etp);
  o.dispatcher = _i % 2 ? MOE_ALLTOALL : MOE_ALLGATHER;
  Pair p;
  ToyOptions one = pair_alone(&o);
  o.bound = 3.5f;
  ck_assert_int_eq(toy_compile(&p.many, &o, NULL), WEFT_OK);
  ck_assert_int_eq(toy_compile(&p.one, &one, NULL), WEFT_OK);
  pair_verify(&p, 2, 1e-5);
  ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  pair_free(&p);
}
END_TEST

static uint64_t bytes_with(ToyOptions o, float bound) {
  Toy t;
  o.bound = bound, o.drop = bound > 0 ? DROP_PROBS : DROP_NONE;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  uint64_t bytes = t.compiled->prog[0].arena_bytes;
  toy_free(&t);
  return bytes;
}

/* Memory is that of the rows that there is room for. */
START_TEST(bound_bounds_memory) {
  ToyOptions o = toy_of(1, 8, 8, 1);
  o.dispatcher = _i ? MOE_ALLTOALL : MOE_ALLGATHER;
  o.topk = 1, o.seq = 64;
  uint64_t all = bytes_with(o, 0), four = bytes_with(o, 4), one = bytes_with(o, 1);
  ck_assert_uint_eq(bytes_with(o, 8), all);
  ck_assert_uint_lt(four, all);
  ck_assert_uint_lt(one, four);
}
END_TEST

/* What experts got and what was dropped are all choices of the step, however ranks share
 * experts, and features of each. */
START_TEST(counts_every_choice) {
  ToyOptions o = toy_of(meshes[_i].tp, meshes[_i].dp, meshes[_i].ep, meshes[_i].etp);
  Toy t;
  Run *r;
  StepResult res;
  o.dispatcher = _i / 2 % 2 ? MOE_ALLTOALL : MOE_ALLGATHER;
  o.pp = _i % 2 + 1;
  o.bound = 1, o.drop = DROP_PROBS;
  open_toy(&t, &o, 1, &r);
  trace_step(r, &t, 0, &res);
  double experts = (double)o.experts * o.dp * o.tp / (o.ep * o.etp);
  double choices = (double)o.micro * o.seq * o.dp * o.topk;
  double times = o.microbatches * o.layers;
  ck_assert_double_eq_tol(res.expert_mean * experts * times + (double)res.dropped,
                          choices * times, 1e-6);
  ck_assert((res.dropped > 0) == (o.ep > 1));
  ck_assert_double_ge(res.expert_max, res.expert_mean);
  run_close(r);
  toy_free(&t);
}
END_TEST

/* Names of styles that speak of experts cut nothing by themselves. */
START_TEST(styles_of_experts) {
  static const TpRule rules[] = {
      {"layers.*.self_attn.q_proj", STYLE_COLWISE, false, 0},
      {"layers.*.self_attn.k_proj", STYLE_COLWISE, false, 0},
      {"layers.*.self_attn.v_proj", STYLE_COLWISE, false, 0},
      {"layers.*.self_attn.o_proj", STYLE_ROWWISE, false, 0},
      {"layers.*.mlp.gate", STYLE_EXPERTS, false, 0},
      {"layers.*.mlp.experts", STYLE_EXPERTS, false, 0},
  };
  ToyOptions o = toy_of(2, 2, 1 + _i, 2);
  ck_assert_int_eq(tp_style_parse("grouped_gemm", NULL), STYLE_EXPERTS);
  ck_assert_int_eq(tp_style_parse("ep_router", NULL), STYLE_EXPERTS);
  ck_assert_int_eq(tp_style_parse("moe_tp_gate_up_colwise", NULL), STYLE_PACKED_COLWISE);
  o.rules = rules, o.nrules = LEN(rules);
  pair_agrees(&o);
}
END_TEST

/* ---- the room that would have been enough ---- */

/* Takes a step of the toy: 0, or the factor that its error names. */
static double factor_named(const ToyOptions *o) {
  static const char before[] = "allows; ";
  Toy t;
  Run *r;
  StepResult res;
  open_toy(&t, o, 1, &r);
  int64_t n = t.plan.batch.global * t.plan.batch.seq;
  int32_t *ids = NEW_N(t.arena, int32_t, 2 * n);
  random_ids(&t, 0, ids, ids + n);
  err_clear(&trace_err);
  weft_status st = run_step_tokens(r, ids, ids + n, 0, &res, &trace_err);
  const char *at = strstr(trace_err.text, before);
  ck_assert_msg(st == WEFT_OK || at, "%s", trace_err.text);
  run_close(r);
  toy_free(&t);
  return st == WEFT_OK ? 0 : atof(at + strlen(before));
}

/* Whoever follows errors comes to a factor that one row less would not do for, which is
 * no more than all that there are. */
START_TEST(no_more_room_than_needed) {
  ToyOptions o = toy_of(1, 4, 4, 1);
  o.dispatcher = _i % 2 ? MOE_ALLTOALL : MOE_ALLGATHER;
  o.topk = 1 + _i / 2;
  double mean = (double)(o.micro * o.seq * o.topk) / o.ep, next;
  o.bound = 1;
  while ((next = factor_named(&o)) > 0) {
    ck_assert_msg(next > o.bound && next <= o.ep, "%g, not %g", next, o.bound);
    o.bound = (float)next;
  }
  double rows = floor(o.bound * mean + 1e-3);
  ck_assert_double_gt(rows, mean);
  o.bound = (float)((rows - 1) / mean);
  ck_assert_double_eq_tol(factor_named(&o), rows / mean, 2e-3);
}
END_TEST

static const char bounded[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'qwen3-moe-tiny',\n"
    "  mesh = { dp = 4, pp = 2, ep = 4 },\n"
    "  moe = { dispatcher = weft.vars.WAY, max_tokens_factor = 1 },\n"
    "  batch = { global = 8, seq = 32 }, precision = weft.vars.TYPE,\n"
    "  data = weft.synthetic {}, train = { steps = 3 } }\n";

static Outcome run_bounded(const char *more) {
  static const char *const way[] = {"allgather", "alltoall"};
  static const char *const type[] = {"f32", "bf16", "f16"};
  scratch_put("plan.lua", bounded, sizeof bounded - 1);
  return process_run(200, "$weft run plan.lua -D WAY=%s -D TYPE=%s %s",
                     way[more[0] == '1'], type[more[1] - '0'], more + 2);
}

/* All ranks end, and say where, and how much room would have been enough here. */
START_TEST(too_many_rows_end_the_run) {
  const char *const how[] = {"00", "11", "02", "10"};
  Outcome o = run_bounded(how[_i]);
  ck_assert_int_eq(o.code, 1);
  const char *at = strstr(o.err, "step 0: rank ");
  ck_assert_msg(at, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(at, ": layers."), "%s", o.err);
  ck_assert_msg(strstr(at, "moe.max_tokens_factor = 1 allows; "), "%s", o.err);
  double factor = atof(strstr(at, "allows; ") + strlen("allows; "));
  ck_assert_msg(factor > 1 && factor <= 4, "%s", o.err);
}
END_TEST

/* With drop it goes on, and the log has how many. */
START_TEST(drops_and_says_how_many) {
  const char *const how[] = {"00", "11"};
  char all[100];
  snprintf(all, sizeof all, "%s --set moe.drop=true --log log.jsonl", how[_i]);
  Outcome o = run_bounded(all);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = process_run(20, "sh -c 'grep dropped log.jsonl | tail -n 1'");
  const char *dropped = strstr(o.out, "\"dropped\":");
  const char *most = strstr(o.out, "\"expert_max\":");
  const char *mean = strstr(o.out, "\"expert_mean\":");
  ck_assert_msg(dropped && most && mean, "%s", o.out);
  ck_assert_int_gt(atoi(dropped + strlen("\"dropped\":")), 0);
  ck_assert_double_gt(atof(most + strlen("\"expert_max\":")),
                      atof(mean + strlen("\"expert_mean\":")));
}
END_TEST

/* One rank has all rows; verify says so. */
START_TEST(verify_has_room_for_all) {
  scratch_put("plan.lua", bounded, sizeof bounded - 1);
  Outcome o = process_run(200, "$weft verify plan.lua -D WAY=alltoall -D TYPE=f32 %s",
                          _i ? "--set moe.drop=true" : "");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  const char *said = "moe.max_tokens_factor 1 -> none";
  ck_assert_msg(strstr(o.out, said) || strstr(o.err, said), "%s%s", o.out, o.err);
}
END_TEST

/* In 16 bits a router would choose other experts than that of the one rank, in f32. */
START_TEST(verify_compares_routers_in_f32) {
  static const char *const type[] = {"bf16", "f16"};
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'qwen3-moe-tiny',\n"
      "  mesh = { dp = 4, tp = 2, ep = 4, etp = 1 },\n"
      "  moe = { dispatcher = 'alltoall', aux_loss_coef = 0.01 },\n"
      "  batch = { global = 8, seq = 32 },\n"
      "  data = weft.synthetic {} }\n";
  scratch_put("plan.lua", plan, sizeof plan - 1);
  Outcome o = process_run(200, "$weft verify plan.lua --set precision=%s", type[_i]);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "the same (tolerance 1e-05)"), "%s", o.out);
  const char *said = _i ? "precision f16 -> f32" : "precision bf16 -> f32";
  ck_assert_msg(strstr(o.out, said) || strstr(o.err, said), "%s%s", o.out, o.err);
}
END_TEST

/* ---- storage ---- */

static const CompiledParam *param_of(const Compiled *c, const char *part) {
  for (int i = 0; i < c->nparam; i++)
    if (strstr(c->param[i].name, part)) return &c->param[i];
  ck_abort_msg("no parameter %s", part);
  return NULL;
}

/* Experts are cut over ep and etp, and flat over ep_shard; routers as other parameters.
 */
START_TEST(experts_lie_on_their_mesh) {
  ToyOptions o = toy_of(2, 4, 2, 2);
  Toy t;
  o.strategy.stage = 3;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  const Compiled *c = t.compiled;
  const Regions *s = &c->prog[0].regions;
  AxisSet cut = AXIS_BIT(AXIS_EP) | AXIS_BIT(AXIS_ETP), flat = AXIS_BIT(AXIS_EP_SHARD);
  const CompiledParam *down = param_of(c, "experts.down_proj");
  const CompiledParam *gate = param_of(c, "mlp.gate.weight");
  ck_assert_uint_eq(place_cuts(down->place), cut);
  ck_assert_uint_eq(place_cuts(gate->place), 0);
  for (int k = 0; k < REGION_N; k++) {
    const Stored *p = regions_param(s, (int)(down - c->param));
    const Region *r = regions_find(s, (RegionKind)k, p);
    if (!r) continue;
    ck_assert_uint_eq(r->flat, flat);
    ck_assert_int_eq(r->ways, 2);
    ck_assert_uint_eq(piece_axes(down, r), cut | flat);
    r = regions_find(s, (RegionKind)k, regions_param(s, (int)(gate - c->param)));
    ck_assert_uint_eq(r->flat, AXES_DP);
  }
  toy_free(&t);
}
END_TEST

/* ---- what cannot be ---- */

static void refuses(const ToyOptions *o, const char *text) {
  Toy t;
  ck_assert_int_eq(toy_compile(&t, o, NULL), WEFT_EPLAN);
  ck_assert_str_eq(toy_diags(&t), text);
  toy_free(&t);
}

START_TEST(says_what_does_not_divide) {
  ToyOptions o = toy_of(1, 4, 4, 1);
  o.experts = 6;
  refuses(&o, "error divisibility mesh.ep: 4 does not divide the 6 experts of "
              "model.layers.0.mlp.experts.gate_proj; ep may be 1, 2, 3 or 6\n");
  o = toy_of(1, 10, 2, 5);
  refuses(&o, "error divisibility mesh.etp: 5 does not divide the 48 inner features of "
              "model.layers.0.mlp.experts.gate_proj\n");
  o = toy_of(2, 2, 2, 1);
  o.seq = 9;
  refuses(
      &o,
      "error divisibility batch.seq: 2 does not divide batch.seq / cp = 9; experts with "
      "a mesh of their own (mesh.ep, mesh.etp) get tokens that are sharded over tp\n");
  o = toy_of(1, 2, 2, 1);
  o.experts = 0;
  refuses(&o, "error pointless mesh.ep: the model has no experts that 2 ranks could "
              "share\n");
}
END_TEST

Suite *experts_suite(void);
Suite *experts_suite(void) {
  Suite *s = suite_create("experts");
  TCase *t = tcase_create("experts");
  tcase_set_timeout(t, 300);
  tcase_add_loop_test(t, agrees_with_one_rank, 0, LEN(meshes));
  tcase_add_loop_test(t, goes_with_the_rest, 0, 3);
  tcase_add_loop_test(t, routers_are_kept, 0, 2);
  tcase_add_loop_test(t, experts_stay_or_not, 0, 2);
  tcase_add_loop_test(t, goes_with_context, 0, 8);
  tcase_add_loop_test(t, drops_the_same_as_one_rank, 0, LEN(bounds));
  tcase_add_loop_test(t, capacity_is_of_the_tokens_of_a_rank, 0, 5);
  tcase_add_loop_test(t, fits_with_room, 0, 8);
  tcase_add_loop_test(t, bound_bounds_memory, 0, 2);
  tcase_add_loop_test(t, no_more_room_than_needed, 0, 4);
  tcase_add_loop_test(t, counts_every_choice, 0, LEN(meshes));
  tcase_add_loop_test(t, styles_of_experts, 0, 2);
  tcase_add_test(t, experts_lie_on_their_mesh);
  tcase_add_test(t, says_what_does_not_divide);
  suite_add_tcase(s, t);
  t = tcase_create("verify");
  tcase_set_timeout(t, 300);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, verify_compares_routers_in_f32, 0, 2);
  tcase_add_loop_test(t, too_many_rows_end_the_run, 0, 4);
  tcase_add_loop_test(t, drops_and_says_how_many, 0, 2);
  tcase_add_loop_test(t, verify_has_room_for_all, 0, 2);
  suite_add_tcase(s, t);
  return s;
}
