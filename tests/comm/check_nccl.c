/* check_nccl.c - the NCCL backend in processes of their own, on stand-ins of CUDA's
 * runtime and of NCCL (tests/standin): what every backend must do, plans against one rank
 * of the CPU in several legal orders of what is queued, waits that are missing, failures,
 * and what is said where something is not there. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/emulated.h"
#include "tests/ranks/comm_child.h"
#include "tests/generate/device_plans.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/harness/one_rank_pair.h"
#include "tests/harness/process.h"

#ifdef WEFT_EMULATED_CUDA

#include "tests/standin/standin.h"
#include "vm/comm/nccl_shares.h"
#include "vm/session/verify.h"

extern const WorldVtable weft_nccl_world;

/* Each rank runs what it has queued in an order of its own. */
static void order(uint64_t n, int rank) {
  Standin s = standin_usual;
  setenv(CUDA_CONNECTIONS, "32", 0); /* as loading the device does */
  s.order = n + 7 * (uint64_t)rank;
  standin_set(&s);
}

static void all_end_well(const Forked *f, int n) {
  for (int i = 0; i < n; i++)
    ck_assert_msg(f->code[i] == 0, "rank %d: code %d: %s", i, f->code[i], f->text);
}

/* ---- what every backend must do ---- */

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

static weft_status open_hosted(World *w, const Rendezvous *m, weft_error *e) {
  WorldOptions o = {.meet = m};
  TRY(world_start(w, world_standin(), NULL, m->size, &o, e));
  TRY(device_open(&hosted.dev, device_standin()->load(e), NULL, m->rank, w->place, 1, e));
  hosted.world = *w->vt;
  hosted.join = w->vt->join;
  hosted.world.join = join_on_host;
  w->vt = &hosted.world;
  return WEFT_OK;
}

static bool act(const Rendezvous *m, const void *what) {
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

START_TEST(backend) {
  Forked f = forked(good[_i].n, act, good[_i].what);
  all_end_well(&f, good[_i].n);
}
END_TEST

/* ---- plans ---- */

typedef struct Ranks {
  ToyOptions toy;
  uint64_t seed, number, order;
  NcclArena arena;
} Ranks;

static RunOptions over_nccl(const Rendezvous *m) {
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
static bool agrees(const Rendezvous *m, const Ranks *x, const RunOptions *run,
                   VerifyReport *r, weft_error *e) {
  Toy many, one;
  const ToyOptions *o = &x->toy;
  ToyOptions alone = pair_alone(o);
  alone.device = NULL;
  if (toy_compile(&many, o, NULL) != WEFT_OK) return false;
  if (toy_compile(&one, &alone, NULL) != WEFT_OK) return false;
  many.plan.nccl.arena = x->arena;
  weft_status st =
      verify(&many.plan, many.compiled, &one.plan, one.compiled, 2, 1e-4, run, r, e);
  toy_free(&one);
  toy_free(&many);
  return st == WEFT_OK && r->ok;
}

static bool be_rank(const Rendezvous *m, const void *arg) {
  const Ranks *x = arg;
  RunOptions run = over_nccl(m);
  VerifyReport r;
  weft_error e = {.rank = -1};
  order(x->order, m->rank);
  bool ok = agrees(m, x, &run, &r, &e);
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

/* Groups of one stage have windows, others have none. */
START_TEST(windows_agree) {
  const int *m = meshes[_i];
  Ranks x = {.toy = small(m[0], m[1], m[2]), .arena = NCCL_ARENA_SYMMETRIC};
  x.toy.sp = m[0] > 1;
  if (m[2] > 1) x.toy.strategy.stage = 2;
  for (x.order = 0; x.order < 2; x.order++) {
    Forked f = forked(m[0] * m[1] * m[2], be_rank, &x);
    all_end_well(&f, m[0] * m[1] * m[2]);
  }
}
END_TEST

/* Rows of experts, for whose numbers each rank waits, on meshes with pipelines, too. */
START_TEST(rows_agree) {
  Ranks x = {.toy = small(1, 1 + _i, 4 / (1 + _i))};
  x.toy.ep = x.toy.dp, x.toy.experts = 8, x.toy.topk = 2;
  x.toy.dispatcher = MOE_ALLTOALL, x.toy.exchange = EXCHANGE_ROWS;
  for (x.order = 0; x.order < 3; x.order++) {
    Forked f = forked(4, be_rank, &x);
    all_end_well(&f, 4);
  }
}
END_TEST

static bool be_rank_of_random(const Rendezvous *m, const void *arg) {
  const Ranks *x = arg;
  RunOptions run = over_nccl(m);
  Text t = {0};
  order(x->order, m->rank);
  bool ok = parity_holds_on(device_standin(), &run, x->seed, x->number, 3, 1e-4, &t);
  if (m->rank == 0 && !ok) fprintf(stderr, "order %d: %s", (int)x->order, t.s);
  text_free(&t);
  return ok || m->rank;
}

/* The first plans of more than one and at most six ranks; the third step is a replay. */
START_TEST(random_plans_agree) {
  Ranks x = {.seed = 11};
  RandomPlan p;
  int ranks = 0;
  for (int found = 0; found <= _i; x.number++) {
    random_plan(x.seed, x.number, &p);
    ranks = random_ranks(&p);
    found += ranks > 1 && ranks <= 6;
  }
  x.number--;
  Forked f = forked(ranks, be_rank_of_random, &x);
  all_end_well(&f, ranks);
}
END_TEST

/* Exchanges take a power of two of thread blocks: with what is given they have to fit. */
START_TEST(exchanges_fit) {
  enum { SMS = 132 };
  for (int n = 1; n <= SMS; n++) {
    int group = nccl_group_ctas(SMS, n), pair = nccl_pair_ctas(SMS, n);
    ck_assert_int_ge(group, pair);
    ck_assert(group == 1 || n * group <= SMS / 2);
    ck_assert(group == 1 || n * nccl_exchange_ctas(group) <= SMS - SMS / 4);
    ck_assert(pair == 1 || n * nccl_exchange_ctas(pair) <= SMS / 4);
  }
  ck_assert_int_eq(nccl_group_ctas(SMS, 4), 16);
  ck_assert_int_eq(nccl_group_ctas(SMS, 5), 13);
  ck_assert_int_eq(nccl_group_ctas(SMS, 7), 8); /* of 9 they could take 112 */
}
END_TEST

/* ---- waits that are missing ---- */

/* A queue that does not wait for what an operation reads or writes, or a compute queue
 * that does not wait for an operation: one of those of a rank, in every step. */
static struct {
  bool waits;
  int rank;
  uint64_t at, of, seen;
  WorldVtable world;
  CommVtable comm;
  weft_status (*start)(Comm *, const CommOp *, int, DeviceEvent, weft_error *);
  weft_status (*wait)(Comm *, int, weft_error *);
  bool receives[1024]; /* by handle */
} fault;

static bool is_lost(bool wait) {
  return wait == fault.waits && fault.of && fault.seen++ % fault.of == fault.at;
}

static weft_status lose_ready(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                              weft_error *e) {
  fault.receives[handle] = op->coll != COLL_SEND;
  bool lost = op->coll != COLL_RECV && is_lost(false);
  return fault.start(c, op, handle, lost ? (DeviceEvent){0} : ready, e);
}

static weft_status lose_wait(Comm *c, int handle, weft_error *e) {
  return fault.receives[handle] && is_lost(true) ? WEFT_OK : fault.wait(c, handle, e);
}

static weft_status join_with_fault(World *w, int rank, Device *d, const CommNeeds *needs,
                                   Comm *c, weft_error *e) {
  TRY(weft_nccl_world.join(w, rank, d, needs, c, e));
  if (rank != fault.rank) return WEFT_OK;
  fault.comm = *c->vt;
  fault.start = c->vt->start, fault.wait = c->vt->wait;
  fault.comm.start = lose_ready, fault.comm.wait = lose_wait;
  c->vt = &fault.comm;
  return WEFT_OK;
}

static const WorldVtable *load_fault(weft_error *e) {
  fault.world = weft_nccl_world;
  fault.world.join = join_with_fault;
  return &fault.world;
}

/* Whether the ranks agree with the one. */
static bool be_rank_with_fault(const Rendezvous *m, const void *arg) {
  const Ranks *x = arg;
  WorldKind kind = *world_standin();
  RunOptions run = over_nccl(m);
  VerifyReport r;
  weft_error e = {.rank = -1};
  kind.load = load_fault;
  run.world = &kind;
  run.patience_s = 20; /* some of these stop */
  order(x->order, m->rank);
  bool ok = agrees(m, x, &run, &r, &e);
  if (e.code != WEFT_OK) fprintf(stderr, "%s\n", e.text);
  return ok;
}

static bool shows(Ranks *x) {
  for (x->order = 0; x->order < 20; x->order++) {
    Forked f = forked(4, be_rank_with_fault, x);
    for (int i = 0; i < 4; i++)
      if (f.code[i]) return true;
  }
  return false;
}

enum { PLANTS = 10 };

/* Spread over a step of two ranks, waits and events in turns. */
START_TEST(a_missing_wait_shows) {
  Ranks x = {.toy = small(2, 2, 1)};
  x.toy.sp = true;
  fault.waits = _i % 2;
  fault.rank = _i / 2 % 2 * 3;
  fault.of = 11;
  fault.at = (uint64_t)_i;
  ck_assert_msg(shows(&x), "%s %d of rank %d was not missed",
                fault.waits ? "wait" : "event", _i, fault.rank);
}
END_TEST

START_TEST(no_wait_is_missing) {
  Ranks x = {.toy = small(2, 2, 1)};
  fault.rank = 0, fault.of = 0;
  x.order = 5;
  Forked f = forked(4, be_rank_with_fault, &x);
  all_end_well(&f, 4);
}
END_TEST

/* ---- the program ---- */

/* A copy of the program beside the modules for tests. */
#define BESIDE                                                                           \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so " WEFT_BINARY_DIR      \
  "/standin/weft_nccl.so .; exec env "
#define RUN "./weft run plan.lua --device cuda --threads 1 --steps 2 "

static void put_plan(void) {
  static const char plan[] =
      "local weft = require \"weft\"\n"
      "return weft.plan {\n"
      "  model = weft.model { \"llama\", hidden_size = 16, num_hidden_layers = "
      "2,\n"
      "    num_attention_heads = 2, intermediate_size = 16, vocab_size = 32 },\n"
      "  mesh = { tp = 2, pp = 2 }, precision = \"f32\", comm = { timeout = 60 },\n"
      "  batch = { global = 2, micro = 1, seq = 8 }, optimizer = weft.adamw { lr = 1e-2 "
      "},\n"
      "  data = weft.synthetic {}, train = { steps = 3, log_every = 1 },\n"
      "}\n";
  scratch_put("plan.lua", plan, strlen(plan));
}

static double loss_of(const Outcome *o) {
  const char *at = strstr(o->out, "\"loss\":");
  ck_assert_msg(o->code == 0 && at, "code %d: %s%s", o->code, o->out, o->err);
  return atof(at + 7);
}

/* Four processes; they may also be those of four GPUs. */
START_TEST(the_program_runs) {
  static const char *const start[] = {RUN "--json --procs 4",
                                      "WEFT_STANDIN=gpus=4 " RUN "--json"};
  put_plan();
  Outcome one = process_run(60, "$weft run plan.lua --threads 1 --steps 2 --json");
  double want = loss_of(&one);
  Outcome o = process_run(100, "sh -c '" BESIDE "%s'", start[_i]);
  double got = loss_of(&o);
  ck_assert_msg(got > want - 1e-4 * want && got < want + 1e-4 * want, "%g, not %g", got,
                want);
  ck_assert_msg(strstr(o.err, "4 ranks (nccl)") != NULL, "%s", o.err);
}
END_TEST

static const struct {
  const char *machine, *options, *says;
  int code;
} machines[] = {
    {"gpus=2", "", "the plan's mesh has 4 ranks, but this machine has 2 GPUs", 2},
    {"gpus=3", "--procs 4",
     "at least 4 processes were started on this machine, which shows 3 GPUs", 2},
    {"sms=2", "--procs 4", "more than the 2 multiprocessors of the GPU", 2},
    {"sms=30", "--procs 4 --set nccl.group_ctas=16",
     "more than the 30 multiprocessors of the GPU", 2},
    {"sms=14", "--procs 4 --set nccl.group_ctas=1 --set nccl.pair_ctas=5",
     "(sends and receives take a power of two), more than the 14 multiprocessors", 2},
    {"sms=132 CUDA_DEVICE_MAX_CONNECTIONS=1", "--procs 4",
     "but CUDA_DEVICE_MAX_CONNECTIONS is 1: queues that share a connection may wait for "
     "each other for ever; leave it unset",
     2},
    {"order=1 NCCL_LAUNCH_ORDER_IMPLICIT=1", "--procs 4",
     "NCCL_LAUNCH_ORDER_IMPLICIT is 1 in the environment", 2},
    {"nccl=21003", "--procs 4", "NCCL 2.10 is too old; weft needs 2.19 or newer", 2},
    {"nccl_error=1", "--procs 4", "remote error: the stand-in was told to fail", 1},
    {"nccl_error=9", "--procs 4", "remote error: the stand-in was told to fail", 1},
    {"nccl_init=1", "--procs 4", "NCCL: a communicator over ", 1},
    {"nccl_hang=9", "--procs 4", "no progress for ", 1},
    {"nccl_hang=5,depth=10", "--procs 4", "no progress for ", 1},
};

START_TEST(what_fails_is_told) {
  put_plan();
  /* Ranks that are right may take long on a busy machine: only what hangs has limits. */
  const char *machine = machines[_i].machine;
  bool hangs = strncmp(machine, "nccl_hang", 9) == 0;
  bool begins = strncmp(machine, "nccl_init", 9) == 0;
  Outcome o = process_run(60, "sh -c '" BESIDE "%sWEFT_STANDIN=%s " RUN "%s%s'",
                          begins ? "WEFT_JOIN_S=4 " : "", machine, machines[_i].options,
                          hangs ? " --set comm.timeout=4" : "");
  ck_assert_msg(strstr(o.err, machines[_i].says) != NULL, "%s", o.err);
  ck_assert_int_eq(o.code, machines[_i].code);
}
END_TEST

/* Whatever the module then says: CUDA reads it at the first call. */
START_TEST(connections_are_set) {
  weft_error e = {.rank = -1};
  const DeviceKind *cuda = device_kind("cuda", &e);
  unsetenv(CUDA_CONNECTIONS);
  (void)cuda->load(&e);
  ck_assert_str_eq(getenv(CUDA_CONNECTIONS), "32");
  setenv(CUDA_CONNECTIONS, "16", 1);
  (void)cuda->load(&e);
  ck_assert_str_eq(getenv(CUDA_CONNECTIONS), "16");
}
END_TEST

START_TEST(no_module_is_told) {
  put_plan();
  Outcome o = process_run(60, "sh -c 'cp $weft weft; ln -sf " WEFT_BINARY_DIR
                              "/standin/weft_cuda.so .; exec " RUN "--procs 4'");
  ck_assert_msg(strstr(o.err, "--comm nccl is not there: weft_nccl.so is built where the "
                              "CUDA toolkit with NCCL") != NULL,
                "%s", o.err);
  ck_assert_int_eq(o.code, 2);
}
END_TEST

Suite *nccl_suite(void) {
  Suite *s = suite_create("nccl");
  TCase *tc = tcase_create("standin");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, backend, 0, LEN(good));
  tcase_add_loop_test(tc, meshes_agree, 0, LEN(meshes));
  tcase_add_loop_test(tc, windows_agree, 0, LEN(meshes));
  tcase_add_loop_test(tc, rows_agree, 0, 2);
  tcase_add_test(tc, exchanges_fit);
  tcase_add_loop_test(tc, random_plans_agree, 0, 2);
  tcase_add_test(tc, no_wait_is_missing);
  tcase_add_loop_test(tc, a_missing_wait_shows, 0, PLANTS);
  suite_add_tcase(s, tc);
  tc = tcase_create("program");
  tcase_set_timeout(tc, 300);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_loop_test(tc, the_program_runs, 0, 2);
  tcase_add_test(tc, connections_are_set);
  tcase_add_loop_test(tc, what_fails_is_told, 0, LEN(machines));
  tcase_add_test(tc, no_module_is_told);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *nccl_suite(void) { return emulated_suite_without("nccl"); }

#endif
