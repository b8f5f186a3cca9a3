/* mpirun.c - see mpirun.h. */
#include "mpirun.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vm/comm/world.h"

/* mpirun needs two options to run as root. Sanitizers report the MPI library's own
 * leaks. */
MpirunOutcome mpirun(const char *child, const char *what) {
  MpirunOutcome o = {0};
  char exe[4096] = "", command[8192];
  ck_assert_int_gt(readlink("/proc/self/exe", exe, sizeof exe - 1), 0);
  snprintf(command, sizeof command,
           "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
           "ASAN_OPTIONS=detect_leaks=0 "
           "mpirun -n %d --oversubscribe '%s' %s %s 2>&1 </dev/null",
           MPIRUN_RANKS, exe, child, what);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  size_t n = fread(o.text, 1, sizeof o.text - 1, f);
  o.text[n] = 0;
  while (fgetc(f) != EOF) continue;
  o.status = pclose(f);
  return o;
}

bool mpirun_present(void) {
  char module[4096 + 16] = "";
  weft_error e;
  err_clear(&e);
  if (system("command -v mpirun >/dev/null 2>&1") != 0) {
    printf("mpirun: skipped: there is no mpirun\n");
    return false;
  }
  if (world_kind("mpi", &e)->load(&e)) return true;
  ck_assert_int_eq(e.code, WEFT_EFILE);
  ck_assert_msg(strstr(e.text, "libopenmpi-dev") != NULL, "%s", e.text);
  ck_assert_int_gt(readlink("/proc/self/exe", module, 4095), 0);
  strcpy(strrchr(module, '/') + 1, "weft_mpi.so");
  ck_assert_msg(access(module, F_OK) != 0, "%s", e.text);
  printf("mpirun: skipped: %s\n", e.text);
  return false;
}
