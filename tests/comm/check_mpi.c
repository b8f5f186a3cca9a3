/* check_mpi.c - the MPI backend: this binary under mpirun, with --mpi-child and what to
 * do.
 *
 * Skipped, with the reason, where there is no mpirun or no weft_mpi.so. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/scratch.h"
#include "tests/ranks/comm_child.h"
#include "tests/ranks/mpirun.h"

int mpi_child(int argc, char **argv);

/* ---- the child: one of the ranks ---- */

/* The host's allocator gets back what it gave, by the sizes that it gave. */
int mpi_child(int argc, char **argv) {
  World world;
  weft_error e;
  ScratchMeter meter = {.left = INT_MAX};
  weft_alloc host = {scratch_alloc, &meter};
  err_clear(&e);
  if (world_start(&world, world_kind("mpi", &e), &host, 1, NULL, &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    return EXIT_FAILURE;
  }
  bool ok = argc == 3 && comm_child(&world, argv[2]);
  world_close(&world);
  if (meter.held) fprintf(stderr, "%lld bytes are lost\n", (long long)meter.held);
  return ok && meter.held == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- the parent ---- */

static const char *const good[] = {"scenes", "cut", "raw"};

START_TEST(test_good) {
  if (!mpirun_present()) return;
  MpirunOutcome o = mpirun("--mpi-child", good[_i]);
  ck_assert_msg(o.status == 0, "%s: status %d: %s", good[_i], o.status, o.text);
}
END_TEST

START_TEST(test_abort_ends_all) {
  if (!mpirun_present()) return;
  MpirunOutcome o = mpirun("--mpi-child", "abort");
  ck_assert_int_ne(o.status, 0);
  ck_assert_msg(strstr(o.text, "weft: rank 1 failed: the disk is on fire"), "%s", o.text);
}
END_TEST

START_TEST(test_death_ends_all) {
  if (!mpirun_present()) return;
  MpirunOutcome o = mpirun("--mpi-child", "die");
  ck_assert_int_ne(o.status, 0);
  ck_assert_msg(strstr(o.text, "rank 1"), "%s", o.text);
}
END_TEST

Suite *mpi_suite(void) {
  Suite *s = suite_create("mpi");
  TCase *t = tcase_create("mpirun");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, test_good, 0, LEN(good));
  tcase_add_test(t, test_abort_ends_all);
  tcase_add_test(t, test_death_ends_all);
  suite_add_tcase(s, t);
  return s;
}
