/* check_launch.c - which launcher's rank and size are taken. */
#include <check.h>

#include "vm/comm/launcher_env.h"

/* An environment: "NAME=value" strings, NULL-terminated. */
static const char *get(void *ud, const char *name) {
  size_t n = strlen(name);
  for (const char **v = ud; *v; v++)
    if (strncmp(*v, name, n) == 0 && (*v)[n] == '=') return *v + n + 1;
  return NULL;
}

#define ENV(...) ((const char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static LaunchInfo detect(const char **env) {
  LaunchInfo i;
  weft_error e;
  err_clear(&e);
  ck_assert_msg(launch_detect(get, env, &i, &e) == WEFT_OK, "%s", e.text);
  return i;
}

static void is(const char **env, LaunchKind kind, int rank, int size, int local) {
  LaunchInfo i = detect(env);
  ck_assert_int_eq(i.kind, kind);
  ck_assert_int_eq(i.rank, rank);
  ck_assert_int_eq(i.size, size);
  ck_assert_int_eq(i.local_rank, local);
}

static void fails(const char **env, const char *text) {
  LaunchInfo i;
  weft_error e;
  err_clear(&e);
  ck_assert_int_eq(launch_detect(get, env, &i, &e), WEFT_EUSAGE);
  ck_assert_msg(strstr(e.text, text) != NULL, "\"%s\" does not say \"%s\"", e.text, text);
}

#define OMPI  "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=6"
#define SLURM "SLURM_PROCID=3", "SLURM_NTASKS=5"

START_TEST(test_each_launcher) {
  is(ENV("PATH=/bin"), LAUNCH_NONE, 0, 1, -1);
  is(ENV("RANK=1", "WORLD_SIZE=4"), LAUNCH_ENV, 1, 4, -1);
  is(ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=0"), LAUNCH_ENV, 1, 4, 0);
  /* mpirun says the same, in a daemon that srun has started. */
  is(ENV("RANK=1", "WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3",
         "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=3"),
     LAUNCH_ENV, 1, 3, -1);
  is(ENV(OMPI, "OMPI_COMM_WORLD_LOCAL_RANK=1"), LAUNCH_OMPI, 2, 6, 1);
  is(ENV("PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0"), LAUNCH_PMI, 0, 2, 0);
  is(ENV(SLURM, "SLURM_STEP_ID=0", "SLURM_LOCALID=1"), LAUNCH_SLURM, 3, 5, 1);
}
END_TEST

START_TEST(test_master) {
  LaunchInfo i =
      detect(ENV("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=node7", "MASTER_PORT=29500"));
  ck_assert_str_eq(i.master_addr, "node7");
  ck_assert_int_eq(i.master_port, 29500);
  i = detect(ENV(OMPI, "MASTER_ADDR=node7", "MASTER_PORT=nonsense"));
  ck_assert_ptr_null(i.master_addr);
  fails(ENV("RANK=0", "WORLD_SIZE=1", "MASTER_PORT=0"), "MASTER_PORT=0");
}
END_TEST

START_TEST(test_innermost_wins) {
  is(ENV(SLURM, "SLURM_STEP_ID=0", "RANK=3", "WORLD_SIZE=5"), LAUNCH_ENV, 3, 5, -1);
  is(ENV(SLURM, "SLURM_STEP_ID=0", OMPI, "RANK=1", "WORLD_SIZE=12"), LAUNCH_ENV, 1, 12,
     -1);
  is(ENV(SLURM, "SLURM_STEP_ID=0", OMPI), LAUNCH_OMPI, 2, 6, -1);
  is(ENV(SLURM, "SLURM_STEP_ID=0", "PMI_RANK=1", "PMI_SIZE=2"), LAUNCH_PMI, 1, 2, -1);
  /* srun with its plugin pmi2. */
  is(ENV(SLURM, "SLURM_STEP_ID=0", "SLURM_LOCALID=1", "PMI_RANK=3", "PMI_SIZE=5"),
     LAUNCH_SLURM, 3, 5, 1);
  /* What is outside is not looked at, whole or not. */
  is(ENV("SLURM_STEP_ID=0", "SLURM_NTASKS=5", OMPI), LAUNCH_OMPI, 2, 6, -1);
}
END_TEST

/* Fewer ranks than those of what is outside are the rest of something else. */
START_TEST(test_what_hides_a_launcher) {
  fails(ENV("RANK=0", "WORLD_SIZE=1", OMPI),
        "RANK=0 WORLD_SIZE=1 in the environment hide the 6 ranks of mpirun: unset them");
  fails(ENV("RANK=0", "WORLD_SIZE=1", "PMI_RANK=0", "PMI_SIZE=5"),
        "hide the 5 ranks of mpiexec");
  fails(ENV("RANK=0", "WORLD_SIZE=1", SLURM, "SLURM_STEP_ID=0"),
        "hide the 5 ranks of srun");
  /* A torchrun for each task of srun; a shell in an allocation; a broken outer one. */
  is(ENV("RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=x", SLURM, "SLURM_STEP_ID=0"),
     LAUNCH_ENV, 0, 2, -1);
  is(ENV("RANK=0", "WORLD_SIZE=1", SLURM), LAUNCH_ENV, 0, 1, -1);
  /* As many, but MPI would not meet by these numbers. */
  fails(ENV("RANK=0", "WORLD_SIZE=6", OMPI),
        "RANK=0 in the environment, but mpirun says rank 2: unset RANK and WORLD_SIZE");
  is(ENV("RANK=2", "WORLD_SIZE=6", OMPI), LAUNCH_ENV, 2, 6, -1);
  is(ENV("RANK=0", "WORLD_SIZE=6", OMPI, "WEFT_LAUNCHER=env"), LAUNCH_ENV, 0, 6, -1);
  /* Where it is meant; several of one number are noticed when they meet. */
  is(ENV("RANK=0", "WORLD_SIZE=1", OMPI, "WEFT_LAUNCHER=env"), LAUNCH_ENV, 0, 1, -1);
  is(ENV("RANK=3", "WORLD_SIZE=4", "PMI_RANK=0", "PMI_SIZE=5"), LAUNCH_ENV, 3, 4, -1);
  is(ENV("RANK=0", "WORLD_SIZE=1", "PMI_SIZE=5"), LAUNCH_ENV, 0, 1, -1);
}
END_TEST

/* Only a step of srun started ranks. */
START_TEST(test_slurm_without_a_step) {
  is(ENV("SLURM_NTASKS=5"), LAUNCH_NONE, 0, 1, -1);
  is(ENV(SLURM), LAUNCH_NONE, 0, 1, -1);
}
END_TEST

/* A shell that is a step by itself keeps the number of tasks of its allocation. */
START_TEST(test_size_of_a_step) {
  is(ENV("SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0",
         "SLURM_NTASKS=16"),
     LAUNCH_SLURM, 0, 1, -1);
  is(ENV("SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=5", "SLURM_NTASKS=4"),
     LAUNCH_SLURM, 5, 8, -1);
  fails(ENV("SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=x", "SLURM_PROCID=0",
            "SLURM_NTASKS=4"),
        "SLURM_STEP_NUM_TASKS=x");
}
END_TEST

START_TEST(test_half_a_set) {
  fails(ENV("RANK=1"), "RANK is set in the environment but WORLD_SIZE is not");
  fails(ENV("WORLD_SIZE=4", OMPI),
        "WORLD_SIZE is set in the environment but RANK is not");
  fails(ENV("RANK=1", "WORLD_SIZE="), "but WORLD_SIZE is not");
  fails(ENV("OMPI_COMM_WORLD_RANK=1"), "but OMPI_COMM_WORLD_SIZE is not");
  fails(ENV("PMI_SIZE=1"), "but PMI_RANK is not");
  fails(ENV("SLURM_STEP_ID=0", "SLURM_NTASKS=5"), "but SLURM_PROCID is not");
}
END_TEST

START_TEST(test_bad_numbers) {
  fails(ENV("RANK=4", "WORLD_SIZE=4"),
        "RANK=4 in the environment: must be a number in 0..3");
  fails(ENV("RANK=-1", "WORLD_SIZE=4"), "RANK=-1");
  fails(ENV("RANK=0", "WORLD_SIZE=0"), "WORLD_SIZE=0");
  fails(ENV("RANK=one", "WORLD_SIZE=4"), "RANK=one");
  fails(ENV("RANK=0", "WORLD_SIZE=4x"), "WORLD_SIZE=4x");
  fails(ENV("RANK=0", "WORLD_SIZE=99999999999999999999"), "WORLD_SIZE=9999");
  fails(ENV("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=2"), "LOCAL_RANK=2");
}
END_TEST

Suite *launch_suite(void) {
  Suite *s = suite_create("launch");
  TCase *t = tcase_create("environment");
  tcase_add_test(t, test_each_launcher);
  tcase_add_test(t, test_master);
  tcase_add_test(t, test_innermost_wins);
  tcase_add_test(t, test_what_hides_a_launcher);
  tcase_add_test(t, test_slurm_without_a_step);
  tcase_add_test(t, test_size_of_a_step);
  tcase_add_test(t, test_half_a_set);
  tcase_add_test(t, test_bad_numbers);
  suite_add_tcase(s, t);
  return s;
}
