/* check_waiting.c - what waits for weight gradients that run apart: shards that are
 * gathered again, and products only; so the schedules that split backward keep the
 * promises of their papers in bytes. */
#include <check.h>
#include <string.h>

#include "bindings/api/job.h"
#include "tests/harness/lang_fixture.h"

static LangTest t;
static Job j;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) {
  job_free(&j);
  lang_test_end(&t);
}

/* Compiles a plan of the source folder with the first `n` of `set`. */
static void compile_with(const char *plan, const char *const *set, int n) {
  job_free(&j);
  const char *path = arena_printf(t.arena, "%s/%s", WEFT_SOURCE_DIR, plan);
  weft_status st = job_open(&j, t.arena, &(LangOptions){.set = set, .nset = n}, path);
  Text report = {0};
  if (st != WEFT_OK) report_text(&j.d, false, &report);
  ck_assert_msg(st == WEFT_OK, "%s%s", report.s ? report.s : "", j.e.text);
}

/* Bytes of activations of the worst rank, or of the first one. */
static double activations(bool first) {
  double most = 0;
  for (int r = 0; r < j.mesh.size[AXIS_PP]; r++)
    for (int i = 0; i < j.compiled->prog[r].nmem; i++) {
      const MemClass *m = &j.compiled->prog[r].mem[i];
      if (strcmp(m->name, "activations") == 0 && (r == 0 || !first))
        most = MAX(most, (double)m->bytes);
    }
  return most;
}

/* ---- promises ---- */

/* Llama 70B, tp 8 with sequence parallelism, P = 8, m = 64. */
static double bytes_of(const char *schedule, bool keep, bool first) {
  const char *set[] = {"mesh.pp=8", "batch.global=64",
                       arena_printf(t.arena, "schedule=%s", schedule),
                       "strategy.keep_gathered=true"};
  compile_with("plans/llama3_70b.lua", set, keep ? 4 : 3);
  return activations(first);
}

START_TEST(papers_keep_their_promises_in_bytes) {
  double one = bytes_of("1f1b", false, true);
  ck_assert_double_le(bytes_of("zbv", false, false), 1.1 * one);
  ck_assert_double_le(bytes_of("v_half", false, false), 0.7 * one);
  /* zb_h2 takes two times the microbatches; what I leaves to W is workspace in 1f1b. */
  ck_assert_double_le(bytes_of("zb_h2", false, true), 2.02 * one);
  ck_assert_double_gt(bytes_of("zbv", true, false), 2.0 * one);
  ck_assert_double_eq(bytes_of("1f1b", true, true), one);
}
END_TEST

/* ---- what bodies do ---- */

static const char *const names[] = {"layer:F", "layer:I", "layer:W"};

/* How often a layer's bodies gather, and whether a kernel is in one of them. */
static int gathers(int phase) {
  int n = 0;
  const Program *p = &j.compiled->prog[0];
  for (int b = 0; b < p->nbody; b++)
    for (uint32_t i = 0; i < p->body[b].n; i++) {
      const Instr *x = &p->code[p->body[b].first + i];
      n += strcmp(p->body[b].name, names[phase]) == 0 && x->code == I_COLL &&
           x->coll == COLL_ALL_GATHER;
    }
  return n;
}

static bool has_kernel(int phase, int op) {
  const Program *p = &j.compiled->prog[0];
  for (int b = 0; b < p->nbody; b++)
    for (uint32_t i = 0; i < p->body[b].n; i++) {
      const Instr *x = &p->code[p->body[b].first + i];
      if (strcmp(p->body[b].name, names[phase]) == 0 && x->code == I_KERNEL &&
          x->op == op)
        return true;
    }
  return false;
}

static void small(const char *schedule, bool keep) {
  const char *set[] = {arena_printf(t.arena, "schedule=%s", schedule),
                       "strategy.overlap_tp=false", /* I and W apart */
                       "fused_ops=false", "strategy.keep_gathered=true"};
  compile_with("plans/quickstart.lua", set, keep ? 4 : 3);
}

START_TEST(gathered_again_only_if_w_runs_apart) {
  const struct {
    const char *schedule;
    bool keep;
    int w; /* gathers */
  } rows[] = {{"1f1b", false, 2}, {"1f1b", true, 2}, {"zbv", false, 4}, {"zbv", true, 2}};
  for (int i = 0; i < LEN(rows); i++) {
    small(rows[i].schedule, rows[i].keep);
    ck_assert_int_eq(gathers(PH_F), 2);
    ck_assert_int_eq(gathers(PH_I), 2);
    ck_assert_int_eq(gathers(PH_W), rows[i].w);
  }
}
END_TEST

/* Wherever W runs apart in a schedule, no body is of both. */
START_TEST(both_are_one_only_if_w_follows) {
  const char *const schedule[] = {"schedule=1f1b", "schedule=zbv", "schedule=dualpipe_v"};
  for (int i = 0; i < LEN(schedule); i++) {
    int n = 0;
    compile_with("plans/quickstart.lua", &schedule[i], 1);
    for (int b = 0; b < j.compiled->prog[0].nbody; b++)
      n += j.compiled->prog[0].body[b].phase == PH_B;
    ck_assert_int_eq(n > 0, i == 0);
  }
}
END_TEST

START_TEST(norms_do_not_wait) {
  small("1f1b", false);
  ck_assert(has_kernel(PH_W, OP_rmsnorm_dw) && !has_kernel(PH_I, OP_rmsnorm_dw));
  small("zbv", false);
  ck_assert(has_kernel(PH_I, OP_rmsnorm_dw) && !has_kernel(PH_W, OP_rmsnorm_dw));
  ck_assert(has_kernel(PH_W, OP_linear_dw) && !has_kernel(PH_I, OP_linear_dw));
}
END_TEST

Suite *waiting_suite(void);
Suite *waiting_suite(void) {
  Suite *s = suite_create("waiting");
  TCase *c = tcase_create("waiting");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, papers_keep_their_promises_in_bytes);
  tcase_add_test(c, gathered_again_only_if_w_runs_apart);
  tcase_add_test(c, both_are_one_only_if_w_follows);
  tcase_add_test(c, norms_do_not_wait);
  suite_add_tcase(s, c);
  return s;
}
