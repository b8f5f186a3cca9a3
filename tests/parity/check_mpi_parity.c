/* check_mpi_parity.c - weft run under mpirun: the same losses as on virtual ranks, one
 * voice, and what happens when a rank dies, is interrupted or is one too many.
 *
 * WEFT_MPI_PLANS=N (./dev mpi-fuzz N) compares all of the first N random plans that have
 * 2, 4 or 8 ranks instead of the sample. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/ranks/mpirun.h"
#include "tests/harness/process.h"
#include "tests/generate/random_plan.h"

enum { SEED = 2026, PLANS = 48, EVERY = 3, STEPS = 3, PATIENCE = 60 };
/* A loss is a mean; a gradient norm has the rounding of a whole backward, which grows
 * five times a step in some of these models: it has the tolerance of weft verify. */
static const double of_losses = 1e-6, of_norms = 1e-5;

/* ---- losses ---- */

/* Number `key` of each step of a log; the test fails unless it has exactly STEPS of them,
 * and then how the run has ended. */
static void read_log(const char *path, const char *key, double out[STEPS]) {
  const char *text = scratch_log(path);
  for (int i = 0; i < STEPS; i++) {
    json_error_t e;
    json_t *line = json_loads(text, JSON_DISABLE_EOF_CHECK, &e);
    ck_assert_msg(line != NULL, "%s, line %d: %s", path, i + 1, e.text);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "step")), i);
    out[i] = json_number_value(json_object_get(line, key));
    json_decref(line);
    text = strchr(text, '\n');
    ck_assert_ptr_nonnull(text);
    text++;
  }
  ck_assert_msg(strncmp(text, "{\"event\":\"done\"", 15) == 0 &&
                    strchr(text, '\n') == text + strlen(text) - 1,
                "%s", text);
}

static void agree(const char *key, double tolerance) {
  double local[STEPS], mpi[STEPS];
  read_log(scratch_path("local"), key, local);
  read_log(scratch_path("mpi"), key, mpi);
  for (int i = 0; i < STEPS; i++)
    ck_assert_msg(fabs(local[i] - mpi[i]) <= tolerance * fabs(local[i]),
                  "step %d: %s %.9g on virtual ranks, %.9g under mpirun", i, key,
                  local[i], mpi[i]);
}

/* Runs the plan both ways and compares. Exactly one process prints. */
static void both_ways(const char *plan, int ranks) {
  Outcome a = process_run(PATIENCE, "$weft run %s --steps %d --threads 1 --log local",
                          plan, STEPS);
  ck_assert_msg(a.code == 0, "virtual ranks: exit code %d: %s", a.code, a.err);
  Outcome b =
      process_run(PATIENCE, MPIRUN " $weft run %s --steps %d --threads 1 --log mpi",
                  ranks, plan, STEPS);
  ck_assert_msg(b.code == 0, "mpirun: exit code %d: %s", b.code, b.err);
  agree("loss", of_losses);
  agree("grad_norm", of_norms);
  for (const char *s = b.out; *s; s = strchr(s, '\n') + 1)
    ck_assert_msg(strncmp(s, "step ", 5) == 0 && strchr(s, '\n'), "%s", b.out);
  const char *once = strstr(b.out, "step      0");
  ck_assert_msg(once && !strstr(once + 1, "step      0"), "not one voice: %s", b.out);
  const char *start = strstr(b.err, "ranks (mpi)");
  ck_assert_msg(start && !strstr(start + 1, "ranks (mpi)"), "not one voice: %s", b.err);
}

/* The plan with AdamW, whose eps is large: an MPI library adds in another order, and
 * where a gradient is zero but for its rounding (biases of keys, for one), a small eps
 * makes full steps of it, as signs do. */
static const char *with_adamw(const char *plan) {
  static const char drawn[] = "optimizer = optimizer(";
  const char *at = strstr(plan, drawn);
  ck_assert_ptr_nonnull(at);
  const char *end = strchr(at, '\n');
  return arena_printf(scratch_arena,
                      "%.*soptimizer = weft.adamw { lr = 1e-3, eps = 1e-3 },%s",
                      (int)(at - plan), plan, end);
}

START_TEST(random_plans_agree) {
  RandomPlan p;
  random_plan(SEED, (uint64_t)_i, &p);
  int ranks = random_ranks(&p);
  if (!mpirun_present() || (ranks != 2 && ranks != 4 && ranks != 8)) return;
  if (!getenv("WEFT_MPI_PLANS") && _i % EVERY) return;
  random_plan_in_f32(&p);
  const char *plan = with_adamw(p.text);
  both_ways(scratch_put("plan.lua", plan, strlen(plan)), ranks);
}
END_TEST

START_TEST(quickstart_agrees) {
  if (mpirun_present())
    both_ways(WEFT_SOURCE_DIR "/plans/quickstart.lua --set train.log_every=1", 8);
}
END_TEST

/* The sample is not empty of what it is for. */
START_TEST(sample_is_wide) {
  int n = 0, tp = 0, pp = 0, dp = 0, eight = 0;
  for (int i = 0; i < PLANS; i += EVERY) {
    RandomPlan p;
    random_plan(SEED, (uint64_t)i, &p);
    int ranks = random_ranks(&p);
    if (ranks != 2 && ranks != 4 && ranks != 8) continue;
    n++, tp += p.tp > 1, pp += p.pp > 1, dp += p.dp > 1, eight += ranks == 8;
  }
  ck_assert_int_ge(n, 8);
  ck_assert_int_ge(MIN(MIN(tp, pp), MIN(dp, eight)), 2);
}
END_TEST

Suite *mpi_parity_suite(void) {
  const char *more = getenv("WEFT_MPI_PLANS");
  Suite *s = suite_create("mpi_parity");
  TCase *t = tcase_create("mpirun");
  tcase_set_timeout(t, 600);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, sample_is_wide);
  tcase_add_loop_test(t, random_plans_agree, 0, more ? atoi(more) : PLANS);
  tcase_add_test(t, quickstart_agrees);
  suite_add_tcase(s, t);
  return s;
}
