/* check_nccl_windows.c - where the arena lies with NCCL, and which communicators have it
 * as a symmetric window: two processes on the stand-in, whose symmetric kernels take
 * their own offsets for those of all, as NCCL's do; and what the program says. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/emulated.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"
#include "tests/ranks/forked_ranks.h"

#ifdef WEFT_EMULATED_CUDA

#include "tests/generate/device_plans.h"
#include "tests/standin/standin.h"
#include "vm/comm/world.h"

/* ---- two ranks and their arenas ---- */

enum { MEMBERS = 2, COUNT = 96, ARENA = 1 << 16, IN = 4096, OUT = 8192 };

/* Rank 1 has its operands elsewhere, another number of pages, another machine, and
 * memory of CUDA's. */
typedef struct Case {
  const char *says; /* of the arena */
  WorldArena arena;
  size_t shift, more;
  bool apart, mixed;
  bool lies; /* about its layout: as if all had the same */
  bool wrong;
  int nccl, windows; /* of the stand-in: 0: as usual; 1: none */
} Case;

typedef struct Member {
  const Case *is;
  World w;
  Device dev;
  Comm c;
  int rank;
  char *arena;
  size_t bytes;
  weft_error e;
} Member;

static size_t shift_of(const Member *m) { return m->rank ? m->is->shift : 0; }

static float given(int rank, int i) { return (float)(100 * (rank + 1) + i); }

static weft_status take_arena(Member *m) {
  void *p = NULL;
  m->bytes = ARENA + (m->rank ? m->is->more : 0);
  TRY(device_alloc_arena(&m->dev, m->bytes, &p, &m->e));
  m->arena = p;
  static char zeros[ARENA];
  device_upload(&m->dev, p, zeros, sizeof zeros);
  return device_sync(&m->dev, &m->e);
}

static weft_status join(Member *m) {
  static const int member[] = {0, 1};
  static const unsigned uses =
      1u << COLL_ALL_REDUCE | 1u << COLL_ALL_GATHER | 1u << COLL_REDUCE_SCATTER;
  CommGroup g = {member, MEMBERS, 1, uses, "tp", 1};
  if (!m->is->lies) g.layout += shift_of(m);
  CommNeeds needs = {
      .group = &g, .ngroup = 1, .nhandle = 1, .memory = m->arena, .bytes = m->bytes};
  return world_join(&m->w, m->rank, &m->dev, &needs, &m->c, &m->e);
}

static weft_status open_member(Member *m, const Rendezvous *meet) {
  WorldArena arena = m->is->mixed && meet->rank ? ARENA_DEVICE : m->is->arena;
  WorldOptions o = {.meet = meet, .arena = arena};
  Standin s = standin_usual;
  setenv(CUDA_CONNECTIONS, "32", 0);
  if (m->is->apart && meet->rank) setenv("NCCL_HOSTID", "another", 1);
  s.order = (uint64_t)meet->rank + 3;
  if (m->is->nccl) s.nccl = m->is->nccl;
  s.nccl_windows = !m->is->windows;
  standin_set(&s);
  m->rank = meet->rank;
  TRY(world_start(&m->w, world_standin(), NULL, meet->size, &o, &m->e));
  TRY(device_open(&m->dev, device_standin()->load(&m->e), NULL, m->rank, m->w.place, 1,
                  &m->e));
  m->dev.arenas = world_arenas(&m->w);
  TRY(take_arena(m));
  return join(m);
}

static void close_member(Member *m) {
  if (m->c.vt) comm_close(&m->c);
  device_free_arena(&m->dev, m->arena, m->bytes);
  device_close(&m->dev);
  world_close(&m->w);
}

/* Runs one and reads `n` floats of the result. */
static weft_status operate(Member *m, CommOp op, float *got, int n) {
  op.dtype = DT_F32;
  TRY(comm_start(&m->c, &op, 0, device_record(&m->dev), &m->e));
  TRY(comm_wait(&m->c, 0, &m->e));
  TRY(device_sync(&m->dev, &m->e));
  device_download(&m->dev, got, op.out, (size_t)n * sizeof *got);
  return WEFT_OK;
}

static void fill(Member *m, char *at, int n) {
  float x[2 * COUNT];
  for (int i = 0; i < n; i++) x[i] = given(m->rank, i);
  device_upload(&m->dev, at, x, (size_t)n * sizeof *x);
}

static int sums(Member *m) {
  char *in = m->arena + IN + shift_of(m), *out = m->arena + OUT + shift_of(m);
  float got[COUNT] = {0};
  int bad = 0;
  fill(m, in, COUNT);
  CommOp op = {.coll = COLL_ALL_REDUCE, .in = in, .out = out, .count = COUNT};
  if (operate(m, op, got, COUNT) != WEFT_OK) return -1;
  for (int i = 0; i < COUNT; i++) bad += got[i] != given(0, i) + given(1, i);
  return bad;
}

/* In place: the operand is the member's piece of the result. */
static int gathers(Member *m) {
  char *all = m->arena + OUT + shift_of(m);
  char *mine = all + (size_t)m->rank * COUNT * sizeof(float);
  float got[2 * COUNT] = {0};
  int bad = 0;
  fill(m, mine, COUNT);
  CommOp op = {.coll = COLL_ALL_GATHER, .in = mine, .out = all, .count = COUNT};
  if (operate(m, op, got, 2 * COUNT) != WEFT_OK) return -1;
  for (int i = 0; i < 2 * COUNT; i++) bad += got[i] != given(i / COUNT, i % COUNT);
  return bad;
}

static int scatters(Member *m) {
  char *all = m->arena + IN + shift_of(m);
  char *mine = all + (size_t)m->rank * COUNT * sizeof(float);
  float got[COUNT] = {0};
  int bad = 0, from = m->rank * COUNT;
  fill(m, all, 2 * COUNT);
  CommOp op = {.coll = COLL_REDUCE_SCATTER, .in = all, .out = mine, .count = COUNT};
  if (operate(m, op, got, COUNT) != WEFT_OK) return -1;
  for (int i = 0; i < COUNT; i++)
    bad += got[i] != given(0, from + i) + given(1, from + i);
  return bad;
}

/* Prints what its arena is, and of which operations results are wrong. */
static bool be_member(const Rendezvous *meet, const void *arg) {
  Member m = {.is = arg, .e = {.rank = -1}};
  if (open_member(&m, meet) != WEFT_OK) {
    fprintf(stderr, "rank %d: %s\n", m.rank, m.e.text);
    return false;
  }
  fprintf(stderr, "arena: %s.\n", m.c.arena);
  int bad[] = {sums(&m), gathers(&m), scatters(&m)};
  static const char *const name[] = {"all_reduce", "all_gather", "reduce_scatter"};
  for (int i = 0; i < LEN(bad); i++)
    if (bad[i]) fprintf(stderr, "rank %d: %s is wrong\n", m.rank, name[i]);
  close_member(&m);
  return true;
}

#define SYMMETRIC "NCCL's memory, symmetric windows of 1 of 1 groups"
#define NO_WINDOW "NCCL's memory, symmetric windows of 0 of 1 groups"
static const Case cases[] = {
    {.says = "NCCL's memory, registered.", .arena = ARENA_LIBRARY, .shift = 512},
    {.says = "CUDA's memory, registered.", .arena = ARENA_DEVICE, .shift = 512},
    {.says = SYMMETRIC, .arena = ARENA_SYMMETRIC},
    {.says = NO_WINDOW, .arena = ARENA_SYMMETRIC, .shift = 512},
    {.says = NO_WINDOW, .arena = ARENA_SYMMETRIC, .more = 4 << 20},
    {.says = NO_WINDOW, .arena = ARENA_SYMMETRIC, .windows = 1},
    {.says = NO_WINDOW, .arena = ARENA_SYMMETRIC, .apart = true},
    {.says = "NCCL's memory, not registered where members have other memory.",
     .arena = ARENA_LIBRARY,
     .shift = 512,
     .mixed = true},
    {.says = "CUDA's memory, registered (NCCL 2.26 has no windows).",
     .arena = ARENA_SYMMETRIC,
     .nccl = 22602},
    {.says = "CUDA's memory, registered.", .arena = ARENA_LIBRARY, .nccl = 22602},
    /* What the comparison is for: operands lie elsewhere, and nobody knows. */
    {.says = SYMMETRIC,
     .arena = ARENA_SYMMETRIC,
     .shift = 512,
     .lies = true,
     .wrong = true},
};

START_TEST(arenas_are_registered) {
  const Case *is = &cases[_i];
  Forked f = forked(MEMBERS, be_member, is);
  for (int i = 0; i < MEMBERS; i++)
    ck_assert_msg(f.code[i] == 0, "rank %d: code %d: %s", i, f.code[i], f.text);
  ck_assert_msg(strstr(f.text, is->says) != NULL, "%s", f.text);
  static const char *const all[] = {"all_reduce is", "all_gather is",
                                    "reduce_scatter is"};
  for (int i = 0; i < LEN(all); i++)
    ck_assert_msg((strstr(f.text, all[i]) != NULL) == is->wrong, "%s: %s", all[i],
                  f.text);
}
END_TEST

/* ---- the program ---- */

#define HERE                                                                             \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so " WEFT_BINARY_DIR      \
  "/standin/weft_nccl.so .; "
#define BESIDE HERE "exec env "
#define RUN    "./weft run plan.lua --device cuda --threads 1 --steps 3 --procs 4 "

static void put_plan(void) {
  static const char plan[] =
      "local weft = require \"weft\"\n"
      "return weft.plan {\n"
      "  model = weft.model { \"llama\", hidden_size = 16, num_hidden_layers = 2,\n"
      "    num_attention_heads = 2, intermediate_size = 16, vocab_size = 32 },\n"
      "  mesh = { tp = 2, pp = 2 }, precision = \"f32\", comm = { timeout = 60 },\n"
      "  batch = { global = 2, micro = 1, seq = 8 },\n"
      "  optimizer = weft.adamw { lr = 1e-2 }, data = weft.synthetic { val = "
      "weft.synthetic {} },\n"
      "  train = { steps = 3, log_every = 1, eval_every = 1, eval_batches = 1 },\n"
      "}\n";
  scratch_put("plan.lua", plan, strlen(plan));
}

static double loss_of(const Outcome *o) {
  const char *at = strstr(o->out, "\"loss\":");
  ck_assert_msg(o->code == 0 && at, "code %d: %s%s", o->code, o->out, o->err);
  return atof(at + 7);
}

static const struct {
  const char *environment, *options, *says;
} runs[] = {
    {"WEFT_STANDIN=order=1", "--set nccl.arena=nccl",
     "; arena: NCCL's memory, registered\n"},
    {"WEFT_STANDIN=order=2", "", "; arena: CUDA's memory, registered\n"},
    {"NCCL_CUMEM_ENABLE=0", "--set nccl.arena=symmetric",
     "; arena: NCCL's memory, symmetric windows of 0 of 3 groups, registered "
     "elsewhere\n"},
    {"WEFT_STANDIN=order=3", "--set nccl.arena=symmetric",
     "; arena: NCCL's memory, symmetric windows of 1 of 3 groups, registered "
     "elsewhere\n"},
    {"WEFT_STANDIN=nccl=22602", "--set nccl.arena=symmetric",
     "; arena: CUDA's memory, registered (NCCL 2.26 has no windows)\n"},
};

START_TEST(the_program_tells_it) {
  put_plan();
  Outcome one = process_run(60, "$weft run plan.lua --threads 1 --steps 3 --json");
  double want = loss_of(&one);
  Outcome o = process_run(100, "sh -c '" BESIDE "%s " RUN "--json --log log %s'",
                          runs[_i].environment, runs[_i].options);
  double got = loss_of(&o);
  ck_assert_msg(got > want - 1e-4 * want && got < want + 1e-4 * want, "%g, not %g", got,
                want);
  ck_assert_msg(strstr(o.err, runs[_i].says) != NULL, "%s", o.err);
  o = process_run(10, "grep -c '\"arena\":' log");
  ck_assert_str_eq(o.out, "1\n");
}
END_TEST

static const struct {
  const char *environment, *says;
  int code;
} failures[] = {
    {"NCCL_SYM_CTAS=8", "NCCL_SYM_CTAS is 8 in the environment: what lies in symmetric",
     2},
    {"NCCL_CTA_POLICY=2", "NCCL_CTA_POLICY is 2 in the environment: what lies in", 2},
    {"WEFT_STANDIN=memory=3000", "as check predicts; the GPU has", 3},
    /* Kernels of windows look at no abort, and nothing else ends them. */
    {"WEFT_STANDIN=nccl_hang=9", "no progress for ", 1},
};

START_TEST(what_fails_is_told) {
  put_plan();
  Outcome o = process_run(
      60, "sh -c '" BESIDE "%s " RUN "--set nccl.arena=symmetric --set comm.timeout=4'",
      failures[_i].environment);
  ck_assert_msg(strstr(o.err, failures[_i].says) != NULL, "%s", o.err);
  ck_assert_int_eq(o.code, failures[_i].code);
}
END_TEST

/* Of four processes one is killed: the abort of the others does not end, and yet they say
 * why before the launcher ends them. */
START_TEST(a_lost_rank_is_told) {
  put_plan();
  Outcome o = process_run(
      60, "sh -c '" HERE "./weft run plan.lua --device cuda --threads 1 --procs 4 "
          "--steps 1000000 --set nccl.arena=symmetric >out 2>err & p=$!; "
          "until grep -q step out; do sleep 0.1; done; "
          "for s in /proc/[0-9]*/status; do "
          "grep -qs \"^PPid:.$p$\" $s && last=${s#/proc/}; done; "
          "kill -9 ${last%%/status}; wait $p; echo code $?; cat err'");
  ck_assert_msg(strstr(o.out, " has ended; it was in ") != NULL, "%s%s", o.out, o.err);
  ck_assert_msg(!strstr(o.out, "code 0"), "%s", o.out);
}
END_TEST

Suite *nccl_windows_suite(void) {
  Suite *s = suite_create("nccl_windows");
  TCase *tc = tcase_create("members");
  tcase_set_timeout(tc, 100);
  tcase_add_loop_test(tc, arenas_are_registered, 0, LEN(cases));
  suite_add_tcase(s, tc);
  tc = tcase_create("program");
  tcase_set_timeout(tc, 200);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_loop_test(tc, the_program_tells_it, 0, LEN(runs));
  tcase_add_loop_test(tc, what_fails_is_told, 0, LEN(failures));
  tcase_add_test(tc, a_lost_rank_is_told);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *nccl_windows_suite(void) { return emulated_suite_without("nccl_windows"); }

#endif
