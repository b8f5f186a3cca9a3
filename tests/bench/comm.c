/* comm.c - all_reduce of 64 MB: through MPI beside the library's own loop in the same
 * processes, which take turns, and on virtual ranks beside what copying allows. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "vm/comm/world.h"

#ifdef WEFT_BENCH_MPI
#include <mpi.h>
#endif

enum { RANKS = 2, COUNT = 16 << 20, ROUNDS = 25 }; /* 64 MB of f32 */

/* ---- virtual ranks ---- */

typedef struct Member {
  World *w;
  int rank;
  pthread_t thread;
  pthread_barrier_t *together;
  float *x;
  double ms[ROUNDS], copy_ms[ROUNDS];
} Member;

static weft_status fuse_projections(World *w, int rank, Comm *c, weft_error *e) {
  static const int both[RANKS] = {0, 1};
  CommGroup g = {both, RANKS, 1, ~0u, "all", 0};
  CommNeeds needs = {.group = &g, .ngroup = 1, .nhandle = 1};
  return world_join(w, rank, NULL, &needs, c, e);
}

static bool all_reduce(Comm *c, float *x, weft_error *e) {
  CommOp op = {.coll = COLL_ALL_REDUCE,
               .dtype = DT_F32,
               .peer = -1,
               .in = x,
               .out = x,
               .count = COUNT};
  return comm_start(c, &op, 0, (DeviceEvent){0}, e) == WEFT_OK &&
         comm_wait(c, 0, e) == WEFT_OK;
}

static void fill(float *x) {
  for (int i = 0; i < COUNT; i++) x[i] = (float)(i & 15) * 1e-3f;
}

/* An all_reduce in place reads and writes what each rank has once; so does a copy of half
 * of it onto the other half, twice. All ranks copy at once, too. */
static void *be_member(void *arg) {
  Member *m = arg;
  Comm c = {0};
  weft_error e;
  err_clear(&e);
  bool ok = fuse_projections(m->w, m->rank, &c, &e) == WEFT_OK;
  for (int i = 0; i < ROUNDS; i++) {
    fill(m->x);
    pthread_barrier_wait(m->together);
    double begin = bench_now();
    ok = ok && all_reduce(&c, m->x, &e);
    pthread_barrier_wait(m->together);
    m->ms[i] = bench_now() - begin;
    begin = bench_now();
    for (int k = 0; k < 2; k++) {
      memcpy(m->x + COUNT / 2, m->x, COUNT / 2 * sizeof *m->x);
      __asm__ volatile("" ::: "memory");
    }
    pthread_barrier_wait(m->together);
    m->copy_ms[i] = bench_now() - begin;
  }
  if (!ok) fprintf(stderr, "%s\n", e.text);
  comm_close(&c);
  return NULL;
}

static void bench_threads(void) {
  World w;
  Member m[RANKS];
  pthread_barrier_t together;
  weft_error e;
  err_clear(&e);
  pthread_barrier_init(&together, NULL, RANKS);
  if (world_start(&w, world_kind("local", &e), NULL, RANKS, NULL, &e) != WEFT_OK) return;
  for (int i = 0; i < RANKS; i++) {
    m[i] = (Member){.w = &w, .rank = i, .together = &together};
    m[i].x = malloc(COUNT * sizeof *m[i].x);
    pthread_create(&m[i].thread, NULL, be_member, &m[i]);
  }
  for (int i = 0; i < RANKS; i++) pthread_join(m[i].thread, NULL), free(m[i].x);
  double ms = bench_median(m[0].ms, ROUNDS), copy = bench_median(m[0].copy_ms, ROUNDS);
  printf("  virtual ranks   %8.1f ms   copying as much %8.1f ms   ratio %.2f\n", ms, copy,
         copy / ms);
  world_close(&w);
  pthread_barrier_destroy(&together);
}

/* ---- MPI ---- */

#ifdef WEFT_BENCH_MPI
int bench_comm_child(void) {
  World w;
  Comm c;
  weft_error e;
  double ours[ROUNDS], theirs[ROUNDS], ratio[ROUNDS];
  err_clear(&e);
  if (world_start(&w, world_kind("mpi", &e), NULL, RANKS, NULL, &e) != WEFT_OK ||
      fuse_projections(&w, w.rank, &c, &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    return 1;
  }
  float *x = malloc(COUNT * sizeof *x);
  for (int i = 0; i < ROUNDS; i++) {
    fill(x);
    if (world_barrier(&w, &e) != WEFT_OK) return 1;
    double begin = bench_now();
    if (!all_reduce(&c, x, &e)) return 1;
    ours[i] = bench_now() - begin;
    fill(x);
    if (world_barrier(&w, &e) != WEFT_OK) return 1;
    begin = bench_now();
    MPI_Allreduce(MPI_IN_PLACE, x, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    theirs[i] = bench_now() - begin;
  }
  for (int i = 0; i < ROUNDS; i++)
    ratio[i] = theirs[i] / ours[i]; /* of turns beside each other */
  double a = bench_median(ours, ROUNDS), b = bench_median(theirs, ROUNDS);
  if (w.rank == 0)
    printf("  MPI             %8.1f ms   its own loop    %8.1f ms   ratio %.2f\n", a, b,
           bench_median(ratio, ROUNDS));
  fflush(stdout);
  free(x);
  comm_close(&c);
  world_close(&w);
  return 0;
}

static void bench_processes(void) {
  char exe[4096] = "", command[8192];
  if (readlink("/proc/self/exe", exe, sizeof exe - 1) <= 0) return;
  snprintf(command, sizeof command,
           "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
           "mpirun --oversubscribe -n %d '%s' --comm-child",
           RANKS, exe);
  fflush(stdout);
  if (system(command) != 0) printf("  MPI: mpirun failed\n");
}
#else
int bench_comm_child(void) { return 2; }
static void bench_processes(void) { printf("  MPI: built without it\n"); }
#endif

void bench_comm(void) {
  printf("all_reduce of 64 MB of f32 in place, %d ranks, median of %d\n", RANKS, ROUNDS);
  bench_threads();
  bench_processes();
}
