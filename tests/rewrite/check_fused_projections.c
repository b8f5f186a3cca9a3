/* check_fused_projections.c - products that become one: which do and which must not, that
 * a step comes to the same with and without, and that what is seen as one matrix is one
 * in memory. */
#include <check.h>

#include "bindings/api/job.h"
#include "tests/harness/plan_bits.h"
#include "tests/harness/process.h"
#include "tests/generate/small_llama.h"
#include "vm/lower/arena_layout.h"
#include "vm/code/units.h"
#include "vm/compile/graph_passes.h"
#include "vm/compile/compile.h"

#define QUICK  WEFT_SOURCE_DIR "/plans/quickstart.lua"
#define CUSTOM WEFT_SOURCE_DIR "/plans/custom_model.lua"

static Arena *arena;
static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

/* ---- which ---- */

enum { SETS = 6 };
typedef struct Row {
  const char *set[SETS];
  int products, dx, dw; /* in the bodies of a rank that has one layer and the head */
  int qkv, qkv_dx, swiglu, swiglu_dx;
} Row;

/* Rows that more reads than what becomes one: up, too, and of its gradient there is more
 * to add. */
static const Row of_custom = {{NULL}, 5, 5, 5, 1, 1, 0, 0};

static int sets(const Row *r, const char **set) {
  int n = 0;
  set[n++] = "mesh.pp=1", set[n++] = "mesh.dp=1";
  set[n++] = r == &of_custom ? "strategy={'zero',overlap_tp=false}"
                             : "strategy.overlap_tp=false";
  for (int k = 0; k < SETS && r->set[k]; k++) set[n++] = r->set[k];
  return n;
}

static void count_ops(const Program *p, int *found) {
  for (uint32_t i = 0; i < p->ncode; i++)
    if (p->code[i].code == I_KERNEL) found[p->code[i].op]++;
}

#define ODD                                                                              \
  "model.hidden_size=72", "model.num_attention_heads=4", "model.num_key_value_heads=2",  \
      "model.intermediate_size=100", "mesh.tp=1"
static const Row which[] = {
    {{NULL}, 5, 5, 5, 1, 1, 1, 1},
    {{"fused_ops=false"}, 8, 8, 8, 0, 0, 0, 0},
    {{"mesh.tp=1"}, 5, 5, 5, 1, 1, 1, 1},
    /* each part must end where the next one begins */
    {{ODD}, 8, 8, 8, 0, 0, 0, 0},
    /* weights of a part of the keys are cut over fewer ranks */
    {{"mesh.tp=8"}, 7, 7, 7, 0, 0, 1, 1},
    /* keys stay whole, queries are cut */
    {{"strategy={'zero',stage=3,param_persistence_threshold=5000}"}, 7, 7, 7, 0, 0, 1, 1},
    {{"strategy={'zero',stage=3,param_persistence_threshold=50000}"},
     5,
     5,
     5,
     1,
     1,
     1,
     1},
    /* all runs again; the ropes do; the gate and what it gates do */
    {{"recompute=full"}, 8, 5, 5, 2, 1, 2, 1},
    {{"recompute=cheap"}, 5, 5, 5, 2, 1, 2, 1},
    {{"recompute={'layers.*.mlp'}"}, 6, 5, 5, 1, 1, 2, 1},
    /* one of the two does: they are no pair in the backward */
    {{"recompute={'layers.*.mlp.gate_proj'}"}, 7, 6, 6, 1, 1, 0, 0},
    /* rules that cut them otherwise; gradients of rows that are sliced before they add up
     */
    {{"tp_plan={['layers.*.mlp.gate_proj']='colwise',['layers.*.mlp.down_proj']='rowwise'"
      "}"},
     6,
     8,
     8,
     1,
     0,
     0,
     0},
};

START_TEST(products_of_the_same_rows) {
  bool custom = _i == LEN(which);
  const Row *r = custom ? &of_custom : &which[_i];
  const char *set[3 + SETS];
  int n = sets(r, set), found[OP_N] = {0};
  Job j;
  weft_status st =
      job_open(&j, arena, &(LangOptions){.set = set, .nset = n}, custom ? CUSTOM : QUICK);
  Text report = {0};
  if (st != WEFT_OK) report_text(&j.d, false, &report);
  ck_assert_msg(st == WEFT_OK, "%s%s", report.s ? report.s : "", j.e.text);
  count_ops(&j.compiled->prog[0], found);
  const int want[][2] = {{OP_linear, r->products},    {OP_linear_dx, r->dx},
                         {OP_linear_dw, r->dw},       {OP_rope_qkv, r->qkv},
                         {OP_rope_qkv_dx, r->qkv_dx}, {OP_swiglu, r->swiglu},
                         {OP_swiglu_dx, r->swiglu_dx}};
  for (int k = 0; k < LEN(want); k++)
    ck_assert_msg(found[want[k][0]] == want[k][1], "%s: %d of %s, not %d", set[n - 1],
                  found[want[k][0]], op_info[want[k][0]].name, want[k][1]);
  job_free(&j);
}
END_TEST

/* ---- the same ---- */

static const char *const same[][SETS] = {
    {"mesh.tp=1"},
    {"mesh.tp=4", "mesh.pp=1"},
    {"schedule=zbv", "recompute=full"},
    {"schedule=zbv", "recompute=cheap", "strategy.keep_gathered=true"},
    {"recompute={'layers.*.mlp'}", "strategy=fsdp2"},
    {"recompute=cheap", "strategy={'zero',stage=2,sequence_parallel=true}"},
    {"strategy={'zero',stage=3,param_persistence_threshold=5000}"},
    {"strategy={'zero',stage=1,offload_optimizer='cpu'}"},
    {"strategy={'zero',stage=0,bucket_bytes=20000}"},
    {"strategy={'zero',stage=0,bucket_bytes=130000}"},
    {"strategy={'zero',sequence_parallel=true,enable_async_tensor_parallel=true}"},
    {"mesh.cp=2", "mesh.dp=1"},
    {"tp_plan={['layers.*.mlp.gate_proj']='colwise',['layers.*.mlp.down_proj']='rowwise'"
     "}"},
};

/* Sums over the columns of several weights have another order. */
START_TEST(near_without) {
  const char *set[1 + SETS], *plan = _i < LEN(same) ? QUICK : CUSTOM;
  int n = 0;
  PlanBits with, without;
  for (int k = 0; k < SETS && _i < LEN(same) && same[_i][k]; k++) set[n++] = same[_i][k];
  plan_bits(arena, plan, set, n, &with);
  set[n] = "fused_ops=false";
  plan_bits(arena, plan, set, n + 1, &without);
  ck_assert_int_eq(with.n, without.n);
  for (int k = 0; k < 2; k++) {
    ck_assert_double_eq_tol(with.loss[k], without.loss[k], 2e-6 * without.loss[k]);
    ck_assert_double_eq_tol(with.norm[k], without.norm[k], 1e-5 * without.norm[k]);
  }
  /* Adam divides by what is near nothing for some: a step is 6e-4 at most. */
  int far = 0;
  double most = 0;
  for (int64_t i = 0; i < with.n; i++) {
    double d = fabs((double)with.param[i] - without.param[i]);
    most = MAX(most, d), far += d > 1e-5;
  }
  ck_assert_double_lt(most, 1e-3);
  ck_assert_int_lt(far, (int)(with.n / 500));
}
END_TEST

/* ---- time ---- */

/* By the data sheet: fewer passes, and products of several weights still run beside
 * transfers of tp, for which bodies may need more room than they would without them. */
START_TEST(faster_by_the_data_sheet) {
  static const char text[] =
      "local weft = require 'weft'\n"
      "local ms, gib = {}, {}\n"
      "local r = weft.sweep { plan = '" WEFT_SOURCE_DIR "/plans/llama3_70b.lua',\n"
      "  max_gib = 1000, over = weft.grid { { 'mesh.tp', 4 }, { 'mesh.pp', 8 },\n"
      "    { 'mesh.world', 64 }, { 'batch.micro', 1 }, { 'fused_ops', true, false },\n"
      "    { 'schedule', '1f1b', 'zero_bubble', 'interleaved_1f1b' } } }\n"
      "for _, x in ipairs(r) do\n"
      "  local key = x.schedule .. tostring(x.fused_ops)\n"
      "  ms[key], gib[key] = x.step_ms, x.peak_gib\n"
      "end\n"
      "for _, s in ipairs { '1f1b', 'zero_bubble', 'interleaved_1f1b' } do\n"
      "  print(#r, ms[s .. 'true'] < 0.98 * ms[s .. 'false'], gib[s .. 'true'] <\n"
      "    1.002 * gib[s .. 'false'])\n"
      "end\n";
  scratch_put("s.lua", text, sizeof text - 1);
  Outcome o = process_run(60, "$weft lua s.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_str_eq(o.out, "6\ttrue\ttrue\n6\ttrue\ttrue\n6\ttrue\ttrue\n");
}
END_TEST

/* ---- memory ---- */

static Units *units_of(const Toy *t) {
  Units *u;
  Diags d = {.arena = arena};
  weft_error e = {0};
  CompileInput in = {.plan = &t->plan,
                     .mesh = &t->mesh,
                     .graph = t->graph,
                     .arena = arena,
                     .scratch = arena_new(NULL)};
  ck_assert_int_eq(compile_units(&in, false, arena, &u, &d, &e), WEFT_OK);
  arena_free(in.scratch);
  return u;
}

/* A part that is not where the product reads it is no wrong number but an error. */
START_TEST(parts_must_be_side_by_side) {
  ToyOptions o = toy_default();
  Toy t;
  Stages st;
  Layout l;
  Diags d = {.arena = arena};
  weft_error e = {0};
  int told = 0, joined = 0;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  Units *u = units_of(&t);
  ck_assert(stages(u, &t.plan.pp, &t.schedule, arena, &st, &d));
  layout(&st, &t.plan, &t.mesh, 0, 1, arena, arena, &l);
  ck_assert_msg(layout_check(&st, 0, &l, &e) == WEFT_OK, "%s", e.text);
  const UnitCode *c = u->at[1].code;
  for (int i = 0; i + 1 < c->nparam; i++) {
    joined += c->joined[i];
    if (c->joined[i]) continue;
    c->joined[i] = true;
    if (layout_check(&st, 0, &l, &e) == WEFT_OK) continue;
    ck_assert_int_eq(e.code, WEFT_EINTERNAL);
    ck_assert_msg(strstr(e.text, " does not lie behind ") != NULL, "%s", e.text);
    c->joined[i] = false;
    told++;
  }
  ck_assert_int_gt(told, 0);
  toy_free(&t);
}
END_TEST

Suite *fused_projections_suite(void);
Suite *fused_projections_suite(void) {
  Suite *s = suite_create("fused_projections");
  TCase *tc = tcase_create("join");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, products_of_the_same_rows, 0, LEN(which) + 1);
  tcase_add_loop_test(tc, near_without, 0, LEN(same) + 1);
  tcase_add_test(tc, parts_must_be_side_by_side);
  suite_add_tcase(s, tc);
  tc = tcase_create("time");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, faster_by_the_data_sheet);
  suite_add_tcase(s, tc);
  return s;
}
