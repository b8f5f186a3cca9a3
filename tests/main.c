/* main.c - runs every Check suite, or those named on the command line, whole or single
 * checks of them (SUITE:CHECK:ITERATION, or @FILE of such lines); --suites lists them.
 * Check prints its own counts; the last line sums them up. mpirun starts it with
 * --mpi-child or
 * --run-child. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/script/api_doc.h"
#include "bindings/model/model.h"
#include "tests/generate/random_plan.h"
#include "bindings/lang/report.h"
#include "bindings/schema/schema.h"
#include "tests/generate/device_plans.h"
#include "tests/generate/queue_plans.h"
#include "tests/reference/exactness.h"
#include "tests/generate/fuzz_io.h"
#include "tests/ranks/killed_runs.h"
#include "tests/generate/schedule_cases.h"
#include "tests/generate/hostile_plan.h"
#include "tests/harness/only.h"

#define SUITE(x) Suite *x##_suite(void);
#include "suites.def"
#undef SUITE

/* One rank of check_mpi.c and of check_run_mpi.c. */
int mpi_child(int argc, char **argv);
int run_child(int argc, char **argv);
int host_child(int argc, char **argv); /* of check_hosts_mpi.c */
int fail_child(int argc, char **argv); /* of check_failures.c */
/* check_oracle.c: the models of a folder that tests/oracle/steps.py made. */
int oracle_folder(int argc, char **argv);

static const struct {
  const char *name;
  Suite *(*make)(void);
} suites[] = {
#define SUITE(x) {#x, x##_suite},
#include "suites.def"
#undef SUITE
};

/* The generated half of a page. */
static int print_page(void (*page)(Text *out)) {
  Text t = {0};
  page(&t);
  fputs(t.s ? t.s : "", stdout);
  text_free(&t);
  return EXIT_SUCCESS;
}

static int print_suites(void) {
  for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) puts(suites[i].name);
  return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  /* Check's own limit of four seconds is short. All limits, also those of suites, are for
   * what hangs, not for a sanitizer on a machine that does other things. */
  setenv("CK_DEFAULT_TIMEOUT", "60", 0);
  setenv("CK_TIMEOUT_MULTIPLIER", "3", 0);
  /* Of all processes that the suites start, too: see vm/base/strict.h. */
  setenv("WEFT_STRICT", "1", 0);
  if (argc > 1 && strcmp(argv[1], "--mpi-child") == 0) return mpi_child(argc, argv);
  if (argc > 1 && strcmp(argv[1], "--run-child") == 0) return run_child(argc, argv);
  if (argc > 1 && strcmp(argv[1], "--host-child") == 0) return host_child(argc, argv);
  if (argc > 4 && strcmp(argv[1], "--fail-child") == 0) return fail_child(argc, argv);
  if (argc > 1 && strcmp(argv[1], "--fuzz") == 0) return fuzz(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--plan") == 0) return fuzz_plan(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--fuzz-io") == 0) return fuzz_io(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--kill") == 0) return killed_main(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--oracle") == 0)
    return oracle_folder(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--schedules") == 0)
    return schedules_fuzz(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--device-plans") == 0)
    return device_plans(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--queue-plans") == 0)
    return queue_plans(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--exactness") == 0) return exactness();
  if (argc > 1 && strcmp(argv[1], "--plans") == 0) return plans_fuzz(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "--suites") == 0) return print_suites();
  if (argc > 1 && strcmp(argv[1], "--fields") == 0) return print_page(schema_markdown);
  if (argc > 1 && strcmp(argv[1], "--api") == 0) return print_page(api_doc_markdown);
  if (argc > 1 && strcmp(argv[1], "--codes") == 0)
    return print_page(report_codes_markdown);
  if (argc > 1 && strcmp(argv[1], "--ops") == 0) return print_page(graph_ops_markdown);
  for (int i = 1; i < argc; i++)
    if (!only_add(argv[i])) return EXIT_FAILURE;
  SRunner *sr = srunner_create(NULL);
  for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
    if (only_suite(suites[i].name)) srunner_add_suite(sr, suites[i].make());
  /* What a program printed belongs to what failed. The library moves twice as much with
   * each check that is passed. */
  check_set_max_msg_size(1 << 14);
  srunner_run_all(sr, CK_ENV);
  int failed = srunner_ntests_failed(sr), run = srunner_ntests_run(sr);
  srunner_free(sr);
  printf("%d passed, %d failed\n", run - failed, failed);
  return failed || run == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
