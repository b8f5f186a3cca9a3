/* check_grad_dtype.c - gradients that are stored in 16 bits, and parameters without f32
 * master weights: what is rounded where, against sums made by hand; the same bits
 * whatever is cut and whatever is taken back; two bytes of each; and one rank that rounds
 * nothing. */
#include <check.h>

#include "bindings/api/job.h"
#include "tests/harness/gradient_sums.h"
#include "tests/harness/scratch.h"
#include "vm/base/f16.h"
#include "vm/weights/param_gather.h"

/* ---- sums by hand ---- */

/* sum[i] += x[i], and x[i] alone where it is the first: rounded once. */
static void add_rounded(float *sum, const float *x, float scale, int64_t n, bool first) {
  for (int64_t i = 0; i < n; i++)
    sum[i] = rounded_to_bf16((first ? 0 : sum[i]) + x[i] * scale);
}

/* What ranks [first, first + n) have summed over microbatches and among themselves. A
 * step that knows a part of its labels divides by their number, which is by a power of
 * two more than it is. */
static float *sum_of_group(Run *r, Toy *t, int first, int n, bool each) {
  const float scale = 1.0f / (SUM_RANKS * SUM_MICROBATCHES);
  int64_t size = (int64_t)t->compiled->params_total;
  float *part[SUM_RANKS], *sum = NEW_N(t->arena, float, size);
  for (int k = 0; k < n; k++) part[k] = NEW_N(t->arena, float, size);
  for (int mb = 0; mb < SUM_MICROBATCHES; mb++) {
    float *one = NEW_N(t->arena, float, size);
    for (int k = 0; k < n; k++) {
      add_rounded(part[k], gradients_of_part(r, t, first + k, mb), scale, size,
                  each || mb == 0);
      for (int64_t i = 0; i < size; i++) one[i] += part[k][i];
    }
    for (int64_t i = 0; i < size; i++) one[i] = rounded_to_bf16(one[i]);
    if (each)
      add_rounded(sum, one, 1, size, mb == 0);
    else
      sum = one; /* of all microbatches so far: the last one counts */
  }
  return sum;
}

static void is_the_sum_by_hand(int stage, int copies, bool defer, DType reduce) {
  ToyOptions o = sum_options(stage, copies, defer);
  int group = SUM_RANKS / copies;
  bool each = stage >= 2 && !defer;
  Toy one;
  Run *r;
  sum_open_one(&one, &r);
  float *want = sum_of_group(r, &one, 0, group, each);
  if (copies > 1)
    add_rounded(want, sum_of_group(r, &one, group, group, each), 1,
                (int64_t)one.compiled->params_total, false);
  run_close(r);
  o.grad = DT_BF16, o.reduce = reduce;
  sum_is(&o, want);
  toy_free(&one);
}

/* Sums in f32 are rounded where they are stored, so that they are the same. */
START_TEST(rounded_once_for_each_sum) {
  for (int copies = 1; copies <= 2; copies++) {
    is_the_sum_by_hand(_i, copies, true, DT_BF16);
    is_the_sum_by_hand(_i, copies, true, DT_F32);
    if (_i >= 2) is_the_sum_by_hand(_i, copies, false, DT_BF16);
  }
}
END_TEST

/* ---- whole runs ---- */

static const int meshes[][4] = {{1, 1, 2, 1}, {2, 1, 2, 1}, {1, 2, 4, 2},
                                {2, 2, 2, 1}, {2, 1, 4, 2}, {1, 2, 2, 1}};

/* Gradients in bf16 under f32 and bf16, and in f16; nothing but bf16. */
static ToyOptions of_mesh(int i, int stage) {
  ToyOptions o = sum_on_mesh(meshes[i], i, stage);
  o.dtype = i == 0 ? DT_F32 : i == 1 ? DT_F16 : DT_BF16;
  o.grad = o.reduce = i == 1 ? DT_F16 : DT_BF16;
  if (i > 2) o.master = DT_BF16;
  if (i > 3) o.state = DT_BF16;
  if (i == 5) o.stochastic = true;
  return o;
}

START_TEST(agrees_with_one_rank) {
  double microbatches = 0x1p-9 * 2; /* a root of four of them */
  sum_agrees_with_one_rank(of_mesh, _i, 2e-2 + microbatches);
}
END_TEST

START_TEST(shards_change_no_bit) { sum_changes_no_bit(of_mesh, _i); }
END_TEST

/* A step that is undone and taken again leaves what one leaves that waited. */
START_TEST(taken_back_to_the_bit) {
  ToyOptions waits = of_mesh(_i, _i % SUM_STAGES), tries = waits;
  Toy a, b;
  Trace x, y;
  waits.clip = tries.clip = 1e-3, tries.post_validation = true;
  trace(&a, &waits, 1, &x);
  trace(&b, &tries, 1, &y);
  same_bits(&x, &y);
  toy_free(&a);
  toy_free(&b);
}
END_TEST

/* Offloaded states are stepped on the host, from values in the same type. */
START_TEST(offload_changes_no_bit) {
  ToyOptions here = of_mesh(_i, 1), away = here;
  Toy a, b;
  Trace x, y;
  away.strategy.offload_state = true;
  trace(&a, &here, 1, &x);
  trace(&b, &away, 1, &y);
  same_bits(&x, &y);
  toy_free(&a);
  toy_free(&b);
}
END_TEST

/* ---- bytes ---- */

static uint64_t bytes_of(const Toy *t, const char *class) {
  const Program *p = &t->compiled->prog[0];
  for (int i = 0; i < p->nmem; i++)
    if (strcmp(p->mem[i].name, class) == 0) return p->mem[i].bytes;
  return 0;
}

static void compiled_of(Toy *t, const ToyOptions *o) {
  weft_status st = toy_compile(t, o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, t->err.text, toy_diags(t));
}

/* Of bf16 training with f32 master weights, and with nothing but bf16: the elements are
 * the same. */
START_TEST(two_bytes_of_each) {
  ToyOptions o = of_mesh(4, _i), pure = o;
  Toy mixed, half;
  o.grad = o.reduce = o.master = o.state = DT_F32;
  o.bucket_bytes = 2 * pure.bucket_bytes; /* as many elements */
  compiled_of(&mixed, &o);
  compiled_of(&half, &pure);
  uint64_t params = bytes_of(&mixed, "parameters");
  ck_assert_uint_gt(params, 1024);
  ck_assert_uint_eq(bytes_of(&half, "parameters"), params);
  ck_assert_uint_gt(bytes_of(&mixed, "master weights"), 0);
  ck_assert_uint_eq(bytes_of(&half, "master weights"), 0);
  ck_assert_uint_eq(2 * bytes_of(&half, "gradients"), bytes_of(&mixed, "gradients"));
  ck_assert_uint_eq(2 * bytes_of(&half, "optimizer state"),
                    bytes_of(&mixed, "optimizer state"));
  toy_free(&mixed);
  toy_free(&half);
}
END_TEST

/* ---- counts ---- */

static const char counted[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'deepseek_v3', hidden_size = 32, num_hidden_layers = 2,\n"
    "    num_attention_heads = 2, num_key_value_heads = 2, intermediate_size = 32,\n"
    "    vocab_size = 50, n_routed_experts = 4, num_experts_per_tok = 2, n_group = 1,\n"
    "    moe_intermediate_size = 16, topk_group = 1, first_k_dense_replace = 0,\n"
    "    kv_lora_rank = 8, q_lora_rank = 8, qk_rope_head_dim = 4, qk_nope_head_dim = 4,\n"
    "    v_head_dim = 8 },\n"
    "  mesh = { dp = 4 }, moe = { bias_update_rate = 0.001 },\n"
    "  strategy = { 'zero', stage = tonumber(weft.vars.stage) },\n"
    "  precision = { param_dtype = 'bf16', grad_dtype = 'bf16', master_dtype = 'bf16' "
    "},\n"
    "  batch = { global = 8, micro = 1, seq = 16 }, data = weft.synthetic {},\n"
    "}\n";

/* Whether the bytes of the operand lie in the region. */
static bool in_region(const Operand *o, const Region *r) {
  return o->off >= r->off && o->off < r->off + region_bytes(r);
}

static int sums_of(const Program *p, const Region *r, DType want) {
  int n = 0;
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *x = &p->code[i];
    const Operand *o = &p->operand[x->operand];
    bool sums = x->code == I_COLL && x->coll != COLL_ALL_GATHER;
    if (!sums || !in_region(o, r)) continue;
    ck_assert_int_eq(o->dtype, want);
    n++;
  }
  return n;
}

/* Neither they nor the biases that they move are rounded to 16 bits. */
START_TEST(counts_of_routers_stay) {
  const char *path = scratch_put("counts.lua", counted, sizeof counted - 1);
  const char *define[] = {arena_printf(scratch_arena, "stage=%d", _i), NULL};
  Job j;
  weft_status st =
      job_load(&j, scratch_arena, &(LangOptions){.define = define, .ndefine = 1}, path);
  if (st == WEFT_OK) st = job_mesh(&j, 0);
  if (st == WEFT_OK) st = job_compile(&j);
  ck_assert_msg(st == WEFT_OK, "%s", j.e.text);
  const Program *p = &j.compiled->prog[0];
  int biases = 0, sums = 0;
  for (int i = 0; i < p->regions.nparam; i++) {
    const Stored *at = &p->regions.param[i];
    bool counts = j.compiled->param[at->param].share > 0;
    const Region *g = regions_find(&p->regions, REGION_GRAD, at);
    ck_assert_int_eq(g->dtype, counts ? DT_F32 : DT_BF16);
    ck_assert_int_eq(regions_value(&p->regions, at)->dtype, counts ? DT_F32 : DT_BF16);
    const Region *read = regions_find(&p->regions, REGION_WORK, at);
    ck_assert_int_eq(read->dtype, counts ? DT_F32 : DT_BF16);
    sums += sums_of(p, g, (DType)g->dtype);
    biases += counts;
  }
  ck_assert_int_eq(biases, 2);
  if (_i < 2) ck_assert_int_gt(sums, 0);
  job_free(&j);
}
END_TEST

Suite *grad_dtype_suite(void);
Suite *grad_dtype_suite(void) {
  Suite *s = suite_create("grad_dtype");
  TCase *c = tcase_create("grad_dtype");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, rounded_once_for_each_sum, 0, SUM_STAGES);
  tcase_add_loop_test(c, agrees_with_one_rank, 0, LEN(meshes));
  tcase_add_loop_test(c, shards_change_no_bit, 0, LEN(meshes));
  tcase_add_loop_test(c, taken_back_to_the_bit, 0, LEN(meshes));
  tcase_add_loop_test(c, offload_changes_no_bit, 0, LEN(meshes));
  tcase_add_loop_test(c, two_bytes_of_each, 0, SUM_STAGES);
  suite_add_tcase(s, c);
  TCase *experts = tcase_create("experts");
  tcase_add_checked_fixture(experts, scratch_setup, scratch_teardown);
  tcase_add_loop_test(experts, counts_of_routers_stay, 0, SUM_STAGES);
  suite_add_tcase(s, experts);
  return s;
}
