/* check_run_mpi.c - runs over MPI processes: this binary under mpirun. Rank 0 also runs
 * the same programs on virtual ranks and compares.
 *
 * Skipped, with the reason, where there is no mpirun or no weft_mpi.so. */
#include <check.h>
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "tests/ranks/alive.h"
#include "tests/ranks/mpirun.h"
#include "tests/generate/small_llama.h"
#include "vm/weights/param_gather.h"

enum { IDS = 512, LARGEST = 4096 };
/* Seconds without progress after which ranks say where they wait: all have come to their
 * wait by then. */
enum { AWAY_S = 5 };

typedef struct Child {
  Toy toy;
  Run *run, *local; /* local: rank 0 only */
  int32_t tokens[IDS], labels[IDS];
  float *a, *b;
  weft_error err;
} Child;

/* ---- the child: one of the ranks ---- */

static bool bad(const Child *c, const char *what) {
  printf("%s: %s\n", what, c->err.text);
  return false;
}

/* With patience_s, ranks wait for one that stays away, and rank 0 has nothing to compare.
 */
static bool begin(Child *c, ToyOptions o, double patience_s) {
  RunOptions mpi = {
      .world = world_kind("mpi", NULL), .threads = 1, .patience_s = patience_s};
  RunOptions local = {.world = world_kind("local", NULL), .threads = 1};
  if (toy_compile(&c->toy, &o, NULL) != WEFT_OK) return bad(c, "compile");
  for (int i = 0; i < IDS; i++) {
    c->tokens[i] = (i * 7 + i / 5) % o.vocab;
    c->labels[i] = i % 6 ? (i * 11 + 3) % o.vocab : -100;
  }
  c->a = mem_new(NULL, LARGEST * sizeof *c->a);
  c->b = mem_new(NULL, LARGEST * sizeof *c->b);
  if (run_open(&c->toy.plan, c->toy.compiled, &mpi, &c->run, &c->err) != WEFT_OK)
    return bad(c, "run_open");
  if (run_init(c->run, &c->err) != WEFT_OK) return bad(c, "run_init");
  if (run_rank(c->run) != 0 || patience_s > 0) return true;
  if (run_open(&c->toy.plan, c->toy.compiled, &local, &c->local, &c->err) != WEFT_OK)
    return bad(c, "run_open local");
  return run_init(c->local, &c->err) == WEFT_OK || bad(c, "run_init local");
}

static void end(Child *c) {
  run_close(c->local);
  run_close(c->run);
  mem_free(NULL, c->b, LARGEST * sizeof *c->b);
  mem_free(NULL, c->a, LARGEST * sizeof *c->a);
  toy_free(&c->toy);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

static bool same_step(Child *c, int64_t step) {
  StepResult r, l;
  if (run_step_tokens(c->run, c->tokens, c->labels, step, &r, &c->err) != WEFT_OK)
    return bad(c, "step");
  if (!c->local) return true;
  if (run_step_tokens(c->local, c->tokens, c->labels, step, &l, &c->err) != WEFT_OK)
    return bad(c, "local step");
  if (near(r.loss, l.loss) && near(r.grad_norm, l.grad_norm) && r.tokens == l.tokens)
    return true;
  printf("loss %.9g, local %.9g; norm %.9g, local %.9g\n", r.loss, l.loss, r.grad_norm,
         l.grad_norm);
  return false;
}

/* Largest difference over the largest value. */
static bool same_values(const float *a, const float *b, int64_t n, double tolerance) {
  double diff = 0, most = 0;
  for (int64_t i = 0; i < n; i++) {
    diff = fmax(diff, fabs((double)a[i] - b[i]));
    most = fmax(most, fabs((double)b[i]));
  }
  return diff <= tolerance * most;
}

/* Gathers from the processes and from the virtual ranks. */
static bool same_state(Child *c, StateKind k, double tolerance) {
  const Compiled *p = c->toy.compiled;
  for (int i = 0; i < p->nparam; i++) {
    int64_t n = param_count(&p->param[i]);
    if (n > LARGEST) return bad(c, "the toy is too large");
    if (run_get(c->run, k, i, c->local ? c->a : NULL, &c->err) != WEFT_OK)
      return bad(c, "get");
    if (!c->local) continue;
    if (run_get(c->local, k, i, c->b, &c->err) != WEFT_OK) return bad(c, "local get");
    if (same_values(c->a, c->b, n, tolerance)) continue;
    printf("%s differs\n", p->param[i].name);
    return false;
  }
  return true;
}

/* What rank 0 sets arrives everywhere: it comes back from the ranks that own it. */
static bool set_and_get(Child *c) {
  const Compiled *p = c->toy.compiled;
  for (int i = 0; i < p->nparam; i++) {
    int64_t n = param_count(&p->param[i]);
    for (int64_t k = 0; k < n; k++) c->a[k] = (float)(i + k);
    if (run_set(c->run, STATE_OPT2, i, c->local ? c->a : NULL, &c->err) != WEFT_OK)
      return bad(c, "set");
    if (run_get(c->run, STATE_OPT2, i, c->local ? c->b : NULL, &c->err) != WEFT_OK)
      return bad(c, "get");
    if (c->local && memcmp(c->a, c->b, (size_t)n * sizeof *c->a) != 0) return false;
  }
  return true;
}

static bool trains(Child *c) {
  if (!same_state(c, STATE_PARAM, 0)) return false;
  for (int step = 0; step < 2; step++)
    if (!same_step(c, step)) return false;
  return same_state(c, STATE_GRAD, 1e-4) && same_state(c, STATE_OPT1, 1e-4) &&
         set_and_get(c);
}

/* Does not come back: the rank that finds the value ends all processes. */
static bool meets_nan(Child *c) {
  StepResult r;
  float nan[LARGEST];
  for (int i = 0; i < LARGEST; i++) nan[i] = NAN;
  if (run_set(c->run, STATE_PARAM, 0, nan, &c->err) != WEFT_OK) return bad(c, "set");
  run_step_tokens(c->run, c->tokens, c->labels, 6, &r, &c->err);
  return true;
}

/* Rank 1 stays away from the step. The others wait for it, directly or not, and are
 * ended; so is rank 1, which does not come back either. */
static bool stays_away(Child *c) {
  StepResult r;
  if (run_rank(c->run) == 1) sleep(60);
  run_step_tokens(c->run, c->tokens, c->labels, 7, &r, &c->err);
  return true;
}

int run_child(int argc, char **argv) {
  Child c = {.err = {.rank = -1}};
  ToyOptions o = toy_default();
  o.layers = 2, o.micro = 2, o.microbatches = 2, o.tied = true;
  o.tp = 2, o.pp = 2;
  const char *what = argc == 3 ? argv[2] : "";
  if (strcmp(what, "dp") == 0) o.pp = 1, o.dp = 2;
  if (strcmp(what, "size") == 0) o.tp = 1;
  bool ok = begin(&c, o, strcmp(what, "away") == 0 ? AWAY_S : 0);
  if (ok)
    ok = strcmp(what, "nan") == 0    ? meets_nan(&c)
         : strcmp(what, "away") == 0 ? stays_away(&c)
                                     : trains(&c);
  fflush(stdout);
  end(&c);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- the parent ---- */

static const char *const good[] = {"pp", "dp"};

START_TEST(processes_agree_with_threads) {
  if (!mpirun_present()) return;
  MpirunOutcome o = mpirun("--run-child", good[_i]);
  ck_assert_msg(o.status == 0, "%s: status %d: %s", good[_i], o.status, o.text);
}
END_TEST

START_TEST(another_number_of_processes_is_refused) {
  if (!mpirun_present()) return;
  MpirunOutcome o = mpirun("--run-child", "size");
  ck_assert_int_ne(o.status, 0);
  ck_assert_msg(strstr(o.text, "the plan's mesh has 2 ranks, but the launcher started 4"),
                "%s", o.text);
}
END_TEST

START_TEST(nan_ends_all_processes) {
  if (!mpirun_present()) return;
  MpirunOutcome o = mpirun("--run-child", "nan");
  ck_assert_int_ne(o.status, 0);
  ck_assert_msg(strstr(o.text, "step 6: loss is nan; first seen on rank "), "%s", o.text);
}
END_TEST

/* Of four ranks, tp=2 and pp=2, rank 1 is missing: rank 0 waits for it in tp, the others
 * for what rank 0 and it would send. One message names all. */
START_TEST(a_rank_that_stays_away_is_told) {
  if (!mpirun_present()) return;
  MpirunOutcome o = mpirun("--run-child", "away");
  ck_assert_int_ne(o.status, 0);
  static const char *const said[] = {"weft: step 7: no progress for ",
                                     "rank 0 waits in all_reduce(", "rank 2 waits in ",
                                     "rank 3 waits in ", "rank 1 has finished its step"};
  for (int i = 0; i < LEN(said); i++)
    ck_assert_msg(strstr(o.text, said[i]) != NULL, "\"%s\" is not in:\n%s", said[i],
                  o.text);
  ck_assert_msg(strstr(o.text, "rank 1 waits") == NULL, "%s", o.text);
}
END_TEST

static bool within(double seconds, bool (*done)(void)) {
  for (int i = 0; i < seconds * 1000; i++) {
    if (done()) return true;
    usleep(1000);
  }
  return false;
}

static bool ranks_are_stuck(void) {
  glob_t found = {0};
  int failed =
      glob(arena_printf(scratch_arena, "%s/stuck.*", scratch_dir), 0, NULL, &found);
  bool all = !failed && found.gl_pathc == 2;
  globfree(&found);
  return all;
}

static bool nobody_is_there(void) { return alive_all(scratch_dir, 0) == 0; }

/* MPI_Init of Open MPI waits for ever if the launcher dies at the wrong moment, which a
 * preloaded one makes certain. */
START_TEST(ranks_in_mpi_init_end_with_their_launcher) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'llama-tiny', mesh = { dp = 2 },\n"
      "                   batch = { global = 2, seq = 8 } }\n";
  if (!mpirun_present()) return;
#ifdef __SANITIZE_ADDRESS__
  printf("skipped: nothing can be preloaded before the address sanitizer\n");
  return;
#endif
  scratch_put("plan.lua", plan, strlen(plan));
  Process p = process_start(120,
                            MPIRUN " -x LD_PRELOAD=" WEFT_BINARY_DIR "/stuck_mpi.so"
                                   " $weft run plan.lua --threads 1 --quiet",
                            2);
  ck_assert(within(60, ranks_are_stuck));
  kill(p.pid, SIGKILL);
  process_end(&p);
  bool gone = within(60, nobody_is_there);
  int left = gone ? 0 : alive_all(scratch_dir, SIGKILL);
  ck_assert_msg(gone, "%d ranks are there 60 s after their launcher", left);
}
END_TEST

Suite *run_mpi_suite(void) {
  Suite *s = suite_create("run_mpi");
  TCase *t = tcase_create("mpirun");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, processes_agree_with_threads, 0, LEN(good));
  tcase_add_test(t, another_number_of_processes_is_refused);
  tcase_add_test(t, nan_ends_all_processes);
  tcase_add_test(t, a_rank_that_stays_away_is_told);
  suite_add_tcase(s, t);
  t = tcase_create("launcher");
  tcase_set_timeout(t, 180);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, ranks_in_mpi_init_end_with_their_launcher);
  suite_add_tcase(s, t);
  return s;
}
