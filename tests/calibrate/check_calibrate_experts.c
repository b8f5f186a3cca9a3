/* check_calibrate_experts.c - kernels and exchanges of experts are measured with the rows
 * that the clock gives them: as many to each expert. No time is compared. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/process.h"
#include "vm/calibrate/calibrate.h"
#include "vm/calibrate/kernel_operands.h"

enum { TOKENS = 16, EXPERTS = 8 }; /* of a rank, in a microbatch; of the model */

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { name = 'experts',\n"
    "  model = weft.model { 'mixtral', hidden_size = 16, num_hidden_layers = 2,\n"
    "    num_attention_heads = 4, num_key_value_heads = 4, intermediate_size = 32,\n"
    "    vocab_size = 64, num_local_experts = 8, num_experts_per_tok = %d },\n"
    "  mesh = { world = 4, ep = %d }, moe = { dispatcher = '%s', bias_update_rate = %s "
    "},\n"
    "  batch = { global = 8, micro = 1, seq = 16 },\n"
    "  optimizer = weft.adamw { lr = 1e-3 }, train = { steps = 2 },\n"
    "  data = weft.synthetic {} }\n";

static const struct {
  int topk, ep;
  const char *dispatcher, *rate;
} ways[] = {{2, 4, "alltoall", "0"},
            {2, 4, "allgather", "0"},
            {2, 1, "allgather", "0.001"},
            {3, 2, "alltoall", "0.001"}};

static void put_plan(int i) {
  char text[1024];
  int n = snprintf(text, sizeof text, plan, ways[i].topk, ways[i].ep, ways[i].dispatcher,
                   ways[i].rate);
  scratch_put("experts.lua", text, (size_t)n);
}

/* ---- what kernels are given ---- */

static int64_t count(const KTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
  return n;
}

/* All rows, and not what the buffer has room for beside them. */
static void ends_are_even(const KTensor *ends, int64_t rows) {
  const int32_t *at = ends->p;
  int64_t n = count(ends), most = 0, least = INT64_MAX;
  ck_assert_int_eq(at[0], 0);
  ck_assert_int_eq(at[n - 1], rows);
  for (int64_t e = 1; e < n; e++) {
    most = MAX(most, at[e] - at[e - 1]);
    least = MIN(least, at[e] - at[e - 1]);
  }
  ck_assert_int_le(most - least, 1);
}

/* Each row is one choice's; the other choices are elsewhere. */
static void places_are_rows(const KTensor *places, int64_t rows) {
  const int32_t *at = places->p;
  int64_t here = 0;
  bool taken[EXPERTS * TOKENS] = {false};
  for (int64_t i = 0; i < count(places); i++) {
    if (at[i] == ROW_ELSEWHERE) continue;
    ck_assert(at[i] >= 0 && at[i] < rows && !taken[at[i]]);
    taken[at[i]] = true, here++;
  }
  ck_assert_int_eq(here, rows);
}

static void counts_fit(const KTensor *counts, int64_t room, int64_t rows) {
  const int32_t *at = counts->p;
  int64_t all = 0, each = counts->dim[1];
  for (int64_t p = 0; p < counts->dim[0]; p++) {
    int64_t place = 0;
    for (int64_t e = 0; e < each; e++) place += at[p * each + e];
    ck_assert_int_le(place, room);
    all += place;
  }
  ck_assert_int_eq(all, rows);
}

/* Each expert as often as the others, none twice for a token. */
static void ids_are_experts(const KTensor *ids) {
  const int32_t *at = ids->p;
  int64_t n = count(ids), chosen[EXPERTS] = {0}, topk = ids->dim[ids->ndim - 1];
  for (int64_t i = 0; i < n; i++) {
    ck_assert(at[i] >= 0 && at[i] < EXPERTS);
    for (int64_t k = i / topk * topk; k < i; k++) ck_assert_int_ne(at[k], at[i]);
    chosen[at[i]]++;
  }
  for (int e = 0; e < EXPERTS; e++) ck_assert_int_eq(chosen[e], n / EXPERTS);
}

static bool look_at(const WantedKernel *w, int64_t rows) {
  TimedKernel t = timed_instr(w->c, w->p, w->in, w->even);
  if (!t.routed) return false;
  char *block = malloc(operands_bytes(&t));
  ck_assert_ptr_nonnull(block);
  operands_fill(&t, block);
  operands_place(&t, &t.args, &(Places){.own = block});
  const KTensor *x = &t.args.in[t.routed->operand];
  switch (t.op) {
  case OP_grouped_linear:
  case OP_grouped_linear_dx:
  case OP_grouped_linear_dw: ends_are_even(x, rows); break;
  case OP_combine:
  case OP_combine_dx:
  case OP_permute_dx: places_are_rows(x, rows); break;
  case OP_regroup:
    counts_fit(x, (t.args.attr->inverse ? &t.args.out[0] : &t.args.in[0])->dim[1], rows);
    break;
  default: ids_are_experts(x);
  }
  free(block);
  return true;
}

/* Whatever the dispatcher, experts of a rank get as many rows as its tokens have choices.
 */
START_TEST(all_experts_get_the_same) {
  put_plan(_i);
  const Compiled *c = compiled_job(&job, arena, scratch_path("experts.lua"), NULL, 0);
  Wanted w = {0};
  CostTable none = {0};
  int seen = 0;
  wanted_add(&w, c, &none, arena);
  for (int i = 0; i < w.kernel.n; i++)
    seen += look_at(&w.kernel.at[i], (int64_t)TOKENS * ways[_i].topk);
  ck_assert_int_ge(seen, 9);
  ck_assert_int_eq(w.left_out, 0);
  job_free(&job);
}
END_TEST

/* ---- what is measured ---- */

START_TEST(all_of_a_step_is_measured) {
  put_plan(_i);
  Outcome o = process_run(120, "$weft calibrate experts.lua --threads 1 -o c.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(!strstr(o.out, "left out"), "%s", o.out);
  o = process_run(60, "$weft sim experts.lua --calibration c.lua --json");
  ck_assert_msg(o.code == 0 && strstr(o.out, "\"measured\": 1\n"), "%s%s", o.out, o.err);
}
END_TEST

/* Exchanges of rows between processes, too. */
START_TEST(processes_exchange_rows) {
  put_plan(3);
  Outcome o =
      process_run(120, "$weft calibrate experts.lua --threads 1 --procs 2 -o p.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *file = scratch_get(scratch_path("p.lua"));
  ck_assert_msg(strstr(file, "move { \"all_to_all_v\", \"f32\", ranks = 2, "), "%s",
                file);
}
END_TEST

Suite *calibrate_experts_suite(void) {
  Suite *s = suite_create("calibrate_experts");
  TCase *c = tcase_create("experts");
  tcase_add_checked_fixture(c, job_setup, job_teardown);
  tcase_set_timeout(c, 300);
  tcase_add_loop_test(c, all_experts_get_the_same, 0, LEN(ways));
  tcase_add_loop_test(c, all_of_a_step_is_measured, 0, LEN(ways));
  tcase_add_test(c, processes_exchange_rows);
  suite_add_tcase(s, c);
  return s;
}
