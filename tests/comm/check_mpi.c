/* check_mpi.c - the MPI engine: this binary under mpirun, with --mpi-child and what to do.
 *
 * Skipped, with the reason, where there is no mpirun or no weft_mpi.so. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/comm_cases.h"
#include "tests/lib/mpirun.h"

int mpi_child(int argc, char **argv);

/* ---- the child: one of the ranks ---- */

static World world; /* of the child process, which is one rank */

/* Joins, runs, closes. True if the scenario found nothing wrong. */
static bool scene(const Scenario *s, int rank, int n) {
  CommGroup group[MAX_GROUPS];
  int member[MAX_GROUPS][MAX_RANKS];
  Peer p = {.rank = rank, .n = n};
  Setup setup = s->setup;
  setup.n = n;
  setup_groups(&setup, rank, group, member);
  err_clear(&p.e);
  if (world_join(&world, rank, NULL, group, setup.ngroup, setup.nhandle, &p.c, &p.e) != WEFT_OK) {
    fprintf(stderr, "%s\n", p.e.text);
    return false;
  }
  s->fn(&p);
  comm_close(&p.c);
  if (p.bad[0]) fprintf(stderr, "%s: %s\n", s->name, p.bad);
  return !p.bad[0];
}

static bool scenes(int rank, int n) {
  bool ok = true;
  for (int i = 0; i < SCENARIOS; i++)
    ok = scene(&scenario[i], rank, n) && ok;
  return ok;
}

/* Operations larger than a call may be are cut into many. */
static bool cut(int rank, int n) {
  world.vt->limit(&world, 1000);
  return scene(&scenario[0], rank, n) && scene(&scenario[SCENARIOS - 1], rank, n);
}

/* State is gathered to rank 0 in raw bytes and comes back from there. */
static bool raw(int rank, int n) {
  enum { BYTES = 2500 };
  unsigned char b[BYTES];
  bool ok = true;
  world.vt->limit(&world, 1000);
  world_barrier(&world);
  memset(b, rank, BYTES);
  if (rank) world_send(&world, b, BYTES, 0);
  for (int peer = 1; rank == 0 && peer < n; peer++) {
    world_recv(&world, b, BYTES, peer);
    ok = ok && b[0] == peer && b[BYTES - 1] == peer;
  }
  memset(b, rank == n - 1 ? 77 : 0, BYTES);
  world_bcast(&world, b, BYTES, n - 1);
  return ok && b[0] == 77 && b[BYTES - 1] == 77;
}

/* Never comes back: the engine ends all processes when rank 1 gives up. */
static void gives_up(Peer *p) {
  float x = 0;
  if (p->rank == 1) comm_abort(&p->c, "the disk is on fire");
  op_run(p, ALL_REDUCE(DT_F32, &x, &x, 1));
}

static void dies(Peer *p) {
  float x = 0;
  if (p->rank == 1) raise(SIGKILL);
  op_run(p, ALL_REDUCE(DT_F32, &x, &x, 1));
}

static bool ends_badly(int rank, int n, void (*fn)(Peer *p)) {
  Scenario s = {"ends", fn, {.in_flight = 1, .nhandle = 1, .ngroup = 1}};
  return scene(&s, rank, n);
}

static bool act(const char *what, int rank, int n, int local_ranks) {
  if (strcmp(what, "scenes") == 0) return local_ranks == n && scenes(rank, n);
  if (strcmp(what, "cut") == 0) return cut(rank, n);
  if (strcmp(what, "raw") == 0) return raw(rank, n);
  if (strcmp(what, "abort") == 0) return ends_badly(rank, n, gives_up);
  if (strcmp(what, "die") == 0) return ends_badly(rank, n, dies);
  return false;
}

int mpi_child(int argc, char **argv) {
  weft_error e;
  err_clear(&e);
  if (world_start(&world, world_kind("mpi", &e), NULL, 1, &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    return EXIT_FAILURE;
  }
  bool ok = argc == 3 && act(argv[2], world.rank, world.size, world.node);
  world_close(&world);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
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
  ck_assert_msg(strstr(o.text, "weft: rank 1 gave up: the disk is on fire"), "%s",
                o.text);
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
