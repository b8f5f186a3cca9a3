/* check_prove_random.c - calls of bodies are proven in one step where possible. Random
 * programs are proven in two forms, with calls and with the bodies copied into main:
 * both must be right, or both wrong. */
#include <check.h>

#include "tests/generate/program_builder.h"

enum { SLOTS = 4, CELL = 64, CELLS = 24, KINDS = 3, MOST = 8 };

/* A generator of its own: the programs are the same on every machine. */
static uint32_t state;
static int pick(int n) {
  state = state * 1664525u + 1013904223u;
  return (int)((state >> 8) % (uint32_t)n);
}

typedef struct Step {
  bool coll;
  int from, to; /* slots; cells of 16 elements */
  int handle;
  int wait; /* handle to wait for afterwards, or -1 */
} Step;

typedef struct Recipe {
  Step step[MOST];
  int n;
} Recipe;

/* Starts use handles 0 and 1 and are mostly waited for before the body ends. */
static Recipe recipe(void) {
  Recipe r = {.n = 1 + pick(MOST)};
  bool flying[2] = {false, false};
  for (int i = 0; i < r.n; i++) {
    Step *s = &r.step[i];
    *s = (Step){.coll = pick(3) == 0, .from = pick(SLOTS), .to = pick(SLOTS), .wait = -1};
    if (s->coll && flying[0] && flying[1]) s->coll = false;
    if (s->coll) {
      s->handle = flying[0] ? 1 : 0;
      flying[s->handle] = true;
    }
    int w = pick(2);
    bool last = i == r.n - 1;
    if (flying[w] && (pick(2) || last)) s->wait = w, flying[w] = false;
  }
  /* What the last step could not wait for becomes a kernel. */
  for (int i = r.n - 1; i >= 0; i--)
    if (r.step[i].coll && flying[r.step[i].handle] && pick(8))
      r.step[i].coll = false, flying[r.step[i].handle] = false;
  /* No body, called or not, may have a kernel whose result lies over its operand; slots
   * that are bound to one place are refused with each call, and so is the same kernel in
   * main. */
  for (int i = 0; i < r.n; i++)
    if (!r.step[i].coll && r.step[i].to == r.step[i].from)
      r.step[i].to = (r.step[i].to + 1) % SLOTS;
  return r;
}

static void emit(Build *b, const Recipe *r, const uint64_t *bind) {
  for (int i = 0; i < r->n; i++) {
    const Step *s = &r->step[i];
    Operand from = f32_at(bind ? 0 : s->from + 1, bind ? bind[s->from] : 0, 16);
    Operand to = f32_at(bind ? 0 : s->to + 1, bind ? bind[s->to] : 0, 16);
    if (s->coll)
      build_coll(b, 0, 0, COLL_ALL_REDUCE, s->handle, from, to, "work");
    else
      build_kernel(b, 0, OP_scale, from, to);
    if (s->wait >= 0) build_wait(b, 0, s->wait);
  }
}

static uint64_t cell(void) { return 128 + (uint64_t)pick(CELLS) * CELL; }

/* Slots of one call: distinct, except now and then. */
static void bindings(uint64_t *bind) {
  for (int i = 0; i < SLOTS; i++) {
    bind[i] = cell();
    for (int j = 0; j < i; j++)
      if (bind[i] == bind[j] && pick(8)) bind[i] = cell(), j = -1;
  }
}

/* Rank 0 calls bodies while it receives; rank 1 only sends. */
static Build *program(Arena *a, uint32_t seed, bool inlined) {
  state = seed;
  Build *b = build_new(a, 2, 2, 128 + CELLS * CELL);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1 + pick(3), NULL, 0);
  Recipe r[KINDS];
  for (int i = 0; i < KINDS; i++) {
    r[i] = recipe();
    if (inlined) continue;
    build_body(b, 0, "body", PH_F, 1 + SLOTS);
    emit(b, &r[i], NULL);
    build_main(b, 0);
  }
  int calls = 1 + pick(4);
  for (int i = 0; i < calls; i++) {
    uint64_t bind[SLOTS], at = cell();
    int body = pick(KINDS), handle = pick(16) ? 2 + i : pick(2);
    bool recv = pick(3) == 0;
    bindings(bind);
    if (recv) {
      build_recv(b, 0, 1, handle, f32_at(0, at, 16), "in");
      build_send(b, 1, 0, 0, f32_at(0, 128, 16), "out");
      build_wait(b, 1, 0);
    }
    if (inlined)
      emit(b, &r[body], bind);
    else
      build_call(b, 0, body, 0, i, "call", bind, SLOTS);
    if (recv) build_wait(b, 0, handle);
  }
  return b;
}

/* Kernels and collectives of different lengths; a call itself costs nothing. */
static int64_t cost(void *ud, int pp, const Instr *in) {
  if (in->code == I_CALL) return 0;
  return in->code == I_KERNEL ? 3 : in->code == I_COLL ? 5 + 4 * in->handle : 7;
}

static void same_times(const Compiled *one, const Compiled *two, uint32_t seed) {
  for (int in_order = 0; in_order < 2; in_order++) {
    RunCosts k = {.cost = cost, .in_order = in_order};
    RankTime t[2], u[2];
    weft_error e = {0};
    ck_assert_int_eq(run_costs(one, &k, t, &e), WEFT_OK);
    ck_assert_int_eq(run_costs(two, &k, u, &e), WEFT_OK);
    for (int r = 0; r < 2; r++)
      ck_assert_msg(t[r].end == u[r].end && t[r].busy == u[r].busy,
                    "seed %u, rank %d: %lld and %lld ticks", seed, r, (long long)t[r].end,
                    (long long)u[r].end);
  }
}

START_TEST(calls_are_their_instructions) {
  int good = 0, wrong = 0;
  for (uint32_t seed = 1; seed <= 4000; seed++) {
    Arena *a = arena_new(NULL);
    Proof p = {0}, q = {0};
    weft_error e = {0}, f = {0};
    const Compiled *calls = build_done(program(a, seed, false));
    const Compiled *inlined = build_done(program(a, seed, true));
    weft_status one = prove(calls, &p, &e);
    weft_status two = prove(inlined, &q, &f);
    ck_assert_msg(one == two, "seed %u: calls: %d %s; inlined: %d %s", seed, one, e.text,
                  two, f.text);
    ck_assert_int_eq(p.collectives, q.collectives);
    ck_assert_int_eq(p.transfers, q.transfers);
    ck_assert_msg(one == WEFT_OK || one == WEFT_EPLAN || one == WEFT_EINTERNAL,
                  "seed %u: %d %s", seed, one, e.text);
    if (one == WEFT_OK) same_times(calls, inlined, seed);
    good += one == WEFT_OK;
    wrong += one != WEFT_OK;
    arena_free(a);
  }
  ck_assert_int_gt(good, 400);
  ck_assert_int_gt(wrong, 400);
}
END_TEST

Suite *prove_random_suite(void) {
  Suite *s = suite_create("prove_random");
  TCase *tc = tcase_create("calls");
  tcase_add_test(tc, calls_are_their_instructions);
  suite_add_tcase(s, tc);
  return s;
}
