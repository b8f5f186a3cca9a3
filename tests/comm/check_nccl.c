/* check_nccl.c - the NCCL engine in processes of their own, on stand-ins of CUDA's
 * runtime and of NCCL (tests/standin): what every engine must do, plans against one rank
 * of the CPU in several legal orders of what is queued, waits that are missing, failures,
 * and what is said where something is not there. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/comm_child.h"
#include "tests/lib/device_plans.h"
#include "tests/lib/forked.h"
#include "tests/lib/pair.h"
#include "tests/lib/process.h"

#ifdef WEFT_EMULATED_CUDA

#include "tests/standin/standin.h"

/* Each rank runs what it has queued in an order of its own. */
static void order(uint64_t n, int rank) {
  Standin s = standin_usual;
  s.order = n + 7 * (uint64_t)rank;
  standin_set(&s);
}

static void all_end_well(const Forked *f, int n) {
  for (int i = 0; i < n; i++)
    ck_assert_msg(f->code[i] == 0, "rank %d: code %d: %s", i, f->code[i], f->text);
}

/* ---- what every engine must do ---- */

/* Scenarios look at results after a wait, which must then be one of the host. */
typedef struct Hosted {
  Device dev;
  WorldVtable world;
  CommVtable comm;
  weft_status (*join)(World *, int, Device *, const CommNeeds *, Comm *, weft_error *);
  weft_status (*wait)(Comm *, int, weft_error *);
} Hosted;
static Hosted hosted;

static weft_status wait_on_host(Comm *c, int handle, weft_error *e) {
  TRY(hosted.wait(c, handle, e));
  return device_sync(&hosted.dev, e);
}

static weft_status join_on_host(World *w, int rank, Device *d, const CommNeeds *needs,
                                Comm *c, weft_error *e) {
  TRY(hosted.join(w, rank, &hosted.dev, needs, c, e));
  hosted.comm = *c->vt;
  hosted.wait = c->vt->wait;
  hosted.comm.wait = wait_on_host;
  c->vt = &hosted.comm;
  return WEFT_OK;
}

static weft_status open_hosted(World *w, const Meet *m, weft_error *e) {
  WorldOptions o = {.meet = m};
  TRY(world_start(w, world_standin(), NULL, m->size, &o, e));
  TRY(device_open(&hosted.dev, device_standin()->load(e), NULL, m->rank, w->place, 1, e));
  hosted.world = *w->vt;
  hosted.join = w->vt->join;
  hosted.world.join = join_on_host;
  w->vt = &hosted.world;
  return WEFT_OK;
}

static bool act(const Meet *m, const void *what) {
  World w;
  weft_error e = {.rank = -1};
  order(3, m->rank);
  bool ok = open_hosted(&w, m, &e) == WEFT_OK;
  if (!ok) fprintf(stderr, "%s\n", e.text);
  ok = ok && comm_child(&w, what);
  world_close(&w);
  device_close(&hosted.dev);
  return ok;
}

static const struct {
  const char *what;
  int n;
} good[] = {{"scenes", 4}, {"scenes", 2}, {"raw", 3}};

START_TEST(engine) {
  Forked f = forked(good[_i].n, act, good[_i].what);
  all_end_well(&f, good[_i].n);
}
END_TEST

/* ---- plans ---- */

typedef struct Ranks {
  ToyOptions toy;
  uint64_t seed, order;
  const WorldKind *world;
  int steps;
  bool must_differ;
} Ranks;

static RunOptions over_nccl(const Meet *m) {
  return (RunOptions){.world = world_standin(), .settings.meet = m, .threads = 1};
}

static ToyOptions small(int tp, int pp, int dp) {
  ToyOptions o = toy_default();
  o.tp = tp, o.pp = pp, o.dp = dp;
  o.layers = pp, o.micro = 1, o.microbatches = pp, o.hidden = 16, o.heads = 2,
  o.kv_heads = 2, o.ffn = 16, o.seq = 4;
  o.device = device_standin();
  return o;
}

/* The toy and its one rank on the CPU, compared by rank 0. */
static bool agrees(const Meet *m, const ToyOptions *o, const RunOptions *run,
                   VerifyReport *r, weft_error *e) {
  Toy many, one;
  ToyOptions alone = pair_alone(o);
  alone.device = NULL;
  if (toy_compile(&many, o, NULL) != WEFT_OK) return false;
  if (toy_compile(&one, &alone, NULL) != WEFT_OK) return false;
  weft_status st =
      verify(&many.plan, many.compiled, &one.plan, one.compiled, 2, 1e-4, run, r, e);
  toy_free(&one);
  toy_free(&many);
  return st == WEFT_OK && r->ok;
}

static bool be_rank(const Meet *m, const void *arg) {
  const Ranks *x = arg;
  RunOptions run = over_nccl(m);
  VerifyReport r;
  weft_error e = {.rank = -1};
  order(x->order, m->rank);
  bool ok = agrees(m, &x->toy, &run, &r, &e);
  if (!ok) fprintf(stderr, "order %d: %s%s\n", (int)x->order, r.first_bad, e.text);
  return ok;
}

static const int meshes[][3] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1}, {1, 2, 2}};

START_TEST(meshes_agree) {
  const int *m = meshes[_i];
  Ranks x = {.toy = small(m[0], m[1], m[2])};
  x.toy.sp = m[0] > 1;
  if (m[2] > 1) x.toy.strategy.stage = 2;
  for (x.order = 0; x.order < 3; x.order++) {
    Forked f = forked(m[0] * m[1] * m[2], be_rank, &x);
    all_end_well(&f, m[0] * m[1] * m[2]);
  }
}
END_TEST

static void add_tests(Suite *s) {
  TCase *tc = tcase_create("standin");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, engine, 0, LEN(good));
  tcase_add_loop_test(tc, meshes_agree, 0, LEN(meshes));
  suite_add_tcase(s, tc);
}

#else

START_TEST(needs_a_compiler) {
  printf("skipped: the stand-in of NCCL is built where there is a C++ compiler\n");
}
END_TEST
static void add_tests(Suite *s) {
  TCase *tc = tcase_create("standin");
  tcase_add_test(tc, needs_a_compiler);
  suite_add_tcase(s, tc);
}

#endif

Suite *nccl_suite(void);
Suite *nccl_suite(void) {
  Suite *s = suite_create("nccl");
  add_tests(s);
  return s;
}
