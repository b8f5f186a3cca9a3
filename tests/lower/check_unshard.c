/* check_unshard.c - when parameters are gathered and freed and gradients are reduced, on
 * lists of calls written by hand: what is placed where, and that buffers never meet. */
#include <check.h>

#include "vm/lower/unshard.h"

enum { UNITS = 8, KIB = 1024 };

static Arena *arena;
static Strategy how;
static bool pipelined;
static UnshardedList held;
static MainList list;

/* Unit u has block u, in chunk 0: its F and I read 1 KiB of parameters, its W writes 2
 * KiB of gradients. */
static void setup(void) {
  arena = arena_new(NULL);
  how = (Strategy){.overlap_grad_reduce = true, .defer_grad_sync = true};
  pipelined = false;
  held = (UnshardedList){
      .at = (void *)arena_alloc(arena, sizeof(UnshardedBucket) * (UNITS + 1)),
      .n = UNITS,
      .first = NEW_N(arena, int32_t, UNITS + 1),
      .use = NEW_N(arena, BucketUse, 2 * UNITS)};
  for (int u = 0; u < UNITS; u++) {
    held.at[u] =
        (UnshardedBucket){.block = u, .unit = u, .chunks = 1, .area = AREA_GATHER};
    held.at[u].bytes[FULL_PARAM] = KIB, held.at[u].bytes[FULL_GRAD] = 2 * KIB;
    held.use[u] = (BucketUse){u, 1 << PH_F | 1 << PH_I, 1 << PH_W};
    held.first[u + 1] = u + 1;
  }
}
static void teardown(void) { arena_free(arena); }

static void only(int what) {
  for (int u = 0; u < held.n; u++)
    for (int k = 0; k < UNSHARDED_N; k++)
      if (k != what) held.at[u].bytes[k] = 0;
}

/* ---- lists as text ---- */

/* "F0 I0 W0": calls of units; "+0 -0 =0": UNSHARD, RESHARD, REDUCE_GRAD of chunks. */
static void add_step(char c, int of) {
  static const char marks[] = "+-=", calls[] = "FIW";
  const char *mark = strchr(marks, c), *call = strchr(calls, c);
  Step s = {.of = of, .at = list.positions};
  if (mark) s.kind = (uint8_t)(STEP_UNSHARD + (mark - marks));
  if (call) s.phase = (uint8_t)(call - calls);
  *VEC_PUSH(arena, list.step) = s;
  if (!call) return;
  *VEC_PUSH(arena, list.ev) =
      (Event){.kind = EV_CALL, .phase = s.phase, .unit = of, .handle = -1};
  list.positions++;
}

static void place(const char *text) {
  list = (MainList){.steps = true};
  for (; *text; text++)
    if (*text != ' ') {
      add_step(text[0], text[1] - '0');
      text++;
    }
  unshard(&how, pipelined, &held, arena, &list);
}

/* What was started with a handle. */
static const Event *started(int handle, int before) {
  for (int i = before - 1; i >= 0; i--) {
    const Event *e = &list.ev.at[i];
    if (e->handle == handle && e->kind != EV_WAIT) return e;
  }
  return NULL;
}

/* Calls as they were; g0: GATHER of block 0, G0: of what a group kept, w0: its WAIT, k0:
 * KEEP, f0: FREE, t0: TAKE, s0 or, for the first of the step, S0: SCATTER, d0: its WAIT,
 * a0: ADD. */
static const char *text_of(void) {
  static const char letter[] = {[EV_GATHER] = 'g', [EV_KEEP] = 'k',    [EV_FREE] = 'f',
                                [EV_TAKE] = 't',   [EV_SCATTER] = 's', [EV_ADD] = 'a'};
  char *all = arena_str(arena, "");
  for (int i = 0; i < list.ev.n; i++) {
    const Event *e = &list.ev.at[i];
    char c = letter[e->kind];
    if (e->kind == EV_CALL) c = "FIW"[e->phase];
    if (e->kind == EV_WAIT) c = started(e->handle, i)->kind == EV_GATHER ? 'w' : 'd';
    if (e->first) c = 'S';
    if (e->kept) c = 'G';
    all = arena_printf(arena, "%s%s%c%d", all, *all ? " " : "", c,
                       e->kind == EV_CALL ? e->unit : e->unsharded);
  }
  return all;
}

/* ---- what always holds ---- */

typedef struct Now {
  int copy[UNITS + 1], sum[UNITS + 1], part[UNITS + 1]; /* buffers, -1 */
  bool waited[UNITS + 1];
  bool flying[64]; /* by handle */
  bool live[1024];
} Now;

static void begin(Now *n, int buffer) {
  const Interval *v = list.buffer[AREA_GATHER].at, *x = &v[buffer];
  ck_assert(!n->live[buffer]);
  for (int i = 0; i < list.buffer[AREA_GATHER].n; i++)
    ck_assert_msg(!n->live[i] || v[i].off + v[i].size <= x->off ||
                      x->off + x->size <= v[i].off,
                  "buffers %d and %d meet in %s", buffer, i, text_of());
  n->live[buffer] = true;
}

static void check_call(const Now *n, const Event *e) {
  for (int i = held.first[e->unit]; i < held.first[e->unit + 1]; i++) {
    int b = held.use[i].bucket;
    if (held.at[b].bytes[FULL_PARAM] && held.use[i].reads >> e->phase & 1)
      ck_assert_msg(n->copy[b] >= 0 && n->waited[b], "%d in %s", b, text_of());
    if (held.at[b].bytes[FULL_GRAD] && held.use[i].writes >> e->phase & 1)
      ck_assert_msg(n->sum[b] >= 0, "%d in %s", b, text_of());
  }
}

/* The block of the FREE at `at` has a GATHER after it. */
static bool gathered_again(int at) {
  for (int i = at + 1; i < list.ev.n; i++)
    if (list.ev.at[i].kind == EV_GATHER &&
        list.ev.at[i].unsharded == list.ev.at[at].unsharded)
      return true;
  return false;
}

static void go_on(Now *n, int at) {
  const Event *e = &list.ev.at[at], *of;
  switch ((EventKind)e->kind) {
  case EV_CALL: check_call(n, e); break;
  case EV_KEEP:
    ck_assert(n->part[e->unsharded] < 0 && n->copy[e->unsharded] >= 0 &&
              n->waited[e->unsharded]);
    n->part[e->unsharded] = e->buffer;
    begin(n, e->buffer);
    break;
  case EV_GATHER:
    ck_assert(n->copy[e->unsharded] < 0);
    ck_assert_int_eq(e->kept, n->part[e->unsharded] >= 0);
    n->copy[e->unsharded] = e->buffer, n->waited[e->unsharded] = false;
    begin(n, e->buffer);
    break;
  case EV_FREE:
    ck_assert(n->copy[e->unsharded] == e->buffer && n->waited[e->unsharded]);
    n->live[e->buffer] = false, n->copy[e->unsharded] = -1;
    if (n->part[e->unsharded] >= 0 && !gathered_again(at))
      n->live[n->part[e->unsharded]] = false;
    break;
  case EV_TAKE:
    ck_assert(n->sum[e->unsharded] < 0);
    n->sum[e->unsharded] = e->buffer;
    begin(n, e->buffer);
    break;
  case EV_SCATTER:
    ck_assert_int_eq(n->sum[e->unsharded], e->buffer);
    n->sum[e->unsharded] = -1;
    break;
  case EV_WAIT:
    of = started(e->handle, at);
    ck_assert(n->flying[e->handle]);
    n->flying[e->handle] = false;
    if (of->kind == EV_GATHER) n->waited[of->unsharded] = true;
    /* The sum is done with, unless an ADD follows. */
    bool adds = at + 1 < list.ev.n && list.ev.at[at + 1].kind == EV_ADD;
    if (of->kind == EV_SCATTER && !adds) n->live[of->buffer] = false;
    if (of->kind == EV_SCATTER) ck_assert_int_eq(of->first, !adds);
    break;
  case EV_ADD: n->live[e->buffer] = false; break;
  default: ck_abort_msg("event %d", e->kind);
  }
  if (e->kind != EV_GATHER && e->kind != EV_SCATTER) return;
  ck_assert(!n->flying[e->handle]);
  n->flying[e->handle] = true;
}

/* Packs the buffers and goes through the list; every byte is used by one block at a time.
 * Gives the bytes of all. */
static uint64_t holds(void) {
  Now n = {0};
  memset(n.copy, -1, sizeof n.copy);
  memset(n.sum, -1, sizeof n.sum);
  memset(n.part, -1, sizeof n.part);
  int buffers = list.buffer[AREA_GATHER].n;
  uint64_t bytes = offsets(arena, list.buffer[AREA_GATHER].at, buffers);
  for (int i = 0; i < list.ev.n; i++) go_on(&n, i);
  for (int i = 0; i < buffers; i++) ck_assert_msg(!n.live[i], "buffer %d stays", i);
  for (int i = 0; i < LEN(n.flying); i++) ck_assert(!n.flying[i]);
  return bytes;
}

/* The list that comes of another one, and how many KiB its buffers take. */
static void gives(const char *from, const char *to, int kib) {
  place(from);
  ck_assert_str_eq(text_of(), to);
  ck_assert_uint_eq(holds(), (uint64_t)kib * KIB);
}

/* ---- parameters ---- */

START_TEST(right_before_use) {
  only(FULL_PARAM);
  how.reshard = RESHARD_YES;
  gives("F0 F1 F2 I2 W2 I1 W1 I0 W0",
        "g0 w0 F0 f0 g1 w1 F1 f1 g2 w2 F2 I2 f2 W2 g1 w1 I1 f1 W1 g0 w0 I0 f0 W0", 1);
}
END_TEST

START_TEST(one_ahead) {
  only(FULL_PARAM);
  how.prefetch[0] = how.prefetch[1] = 1;
  gives("F0 F1 F2 I2 I1 I0",
        "g0 g1 w0 F0 f0 g2 w1 F1 f1 w2 F2 g1 I2 f2 g0 w1 I1 f1 w0 I0 f0", 2);
}
END_TEST

/* With a W to run beside, a GATHER comes after the FREE before it: as many copies as
 * without looking ahead. */
START_TEST(beside_weight_gradients) {
  only(FULL_PARAM);
  how.reshard = RESHARD_YES;
  how.prefetch[1] = 1;
  gives("F0 F1 F2 I2 W2 I1 W1 I0 W0",
        "g0 w0 F0 f0 g1 w1 F1 f1 g2 w2 F2 I2 f2 g1 W2 w1 I1 f1 g0 W1 w0 I0 f0 W0", 1);
  how.prefetch[1] = 2;
  gives(
      "F0 F1 F2 F3 I3 W3 I2 W2 I1 W1 I0 W0",
      "g0 w0 F0 f0 g1 w1 F1 f1 g2 w2 F2 f2 g3 w3 F3 I3 f3 g2 g1 W3 w2 I2 f2 g0 W2 w1 I1 "
      "f1 W1 w0 I0 f0 W0",
      2);
}
END_TEST

/* The backward looks further ahead, but not back over the turn. */
START_TEST(two_ahead_in_backward) {
  only(FULL_PARAM);
  how.prefetch[0] = 1, how.prefetch[1] = 2;
  gives(
      "F0 F1 F2 F3 I3 I2 I1 I0",
      "g0 g1 w0 F0 f0 g2 w1 F1 f1 g3 w2 F2 f2 w3 F3 g2 g1 I3 f3 g0 w2 I2 f2 w1 I1 f1 w0 "
      "I0 f0",
      3);
}
END_TEST

/* Microbatches that follow each other share a copy that would be gathered again at once.
 */
START_TEST(one_after_the_other) {
  only(FULL_PARAM);
  how.prefetch[0] = 1;
  gives("F0 F1 F0 F1 I1 I0", "g0 g1 w0 F0 w1 F1 F0 f0 F1 I1 f1 g0 w0 I0 f0", 2);
  gives("F0 I0 W0 F1 F0 I0", "g0 w0 F0 I0 f0 W0 g1 g0 w1 F1 f1 w0 F0 I0 f0", 2);
}
END_TEST

START_TEST(kept_between_forward_and_backward) {
  only(FULL_PARAM);
  how.reshard = RESHARD_NO;
  how.prefetch[0] = 1;
  gives("F0 F1 I1 I0 F0 F1 I1 I0", "g0 g1 w0 F0 w1 F1 I1 I0 F0 F1 I1 f1 I0 f0", 2);
}
END_TEST

/* What nothing is said about is kept where microbatches are under way on several ranks.
 */
START_TEST(kept_by_pipelines) {
  only(FULL_PARAM);
  pipelined = true;
  gives("F0 F1 F0 I1 I0 F1 I0 I1", "g0 w0 F0 g1 w1 F1 F0 I1 I0 F1 I0 f0 I1 f1", 2);
}
END_TEST

/* Two units read block 2; only the first of them reads it in its backward. */
START_TEST(read_by_two_units) {
  only(FULL_PARAM);
  static BucketUse use[] = {{0, 1 << PH_F | 1 << PH_I, 0},
                            {2, 1 << PH_F, 0},
                            {1, 1 << PH_F | 1 << PH_I, 0},
                            {2, 1 << PH_F | 1 << PH_I, 0}};
  static int32_t first[] = {0, 2, 4};
  held.use = use, held.first = first, held.n = 3;
  gives("F0 F1 I1 I0", "g0 g2 w0 w2 F0 f0 g1 w1 F1 I1 f1 f2 g0 w0 I0 f0", 2);
}
END_TEST

/* A group keeps what it gathered from the first forward to the last time that it is
 * needed, if that is not at once. */
START_TEST(kept_by_a_group) {
  only(FULL_PARAM);
  how.reshard = RESHARD_YES;
  for (int u = 0; u < held.n; u++)
    held.at[u].bytes[FULL_PARAM] = 2 * KIB, held.at[u].bytes[GROUP_SHARD] = KIB;
  gives("F0 F1 F2 I2 I1 I0",
        "g0 w0 F0 k0 f0 g1 w1 F1 k1 f1 g2 w2 F2 I2 f2 G1 w1 I1 f1 G0 w0 I0 f0", 4);
  gives("F0 F1 I1 I0 F0 F1 I1 I0",
        "g0 w0 F0 k0 f0 g1 w1 F1 I1 f1 G0 w0 I0 F0 f0 g1 w1 F1 I1 f1 G0 w0 I0 f0", 3);
  ck_assert_uint_eq(list.moved, 6 * KIB);
  ck_assert_uint_eq(list.moved_kept, 4 * KIB);
  gives("I0 F1 F0 I1 I0",
        "g0 w0 I0 f0 g1 w1 F1 k1 f1 g0 w0 F0 k0 f0 G1 w1 I1 f1 G0 w0 I0 f0", 4);
}
END_TEST

/* RESHARD gives up all of it. */
START_TEST(no_part_where_the_schedule_says) {
  only(FULL_PARAM);
  held.n = 1;
  held.at[0].bytes[GROUP_SHARD] = KIB / 2;
  gives("+0 F0 -0 +0 I0 -0", "g0 w0 F0 f0 g0 w0 I0 f0", 1);
}
END_TEST

/* In another type a sum has a buffer of its own, and is added even if it is the first. */
START_TEST(summed_in_another_type) {
  only(FULL_GRAD);
  how.defer_grad_sync = false;
  for (int u = 0; u < held.n; u++) held.at[u].bytes[REDUCE_BUFFER] = KIB;
  place("I1 W1 I0 W0 I1 W1");
  ck_assert_str_eq(text_of(), "I1 t1 W1 S1 I0 d1 S1 t0 W0 S0 I1 d0 S0 t1 W1 s1 d1 a1");
  ck_assert_uint_eq(list.moved, 3 * KIB);
  const Interval *v = list.buffer[AREA_GATHER].at;
  ck_assert_int_eq(list.buffer[AREA_GATHER].n, 6);
  ck_assert_uint_eq(offsets(arena, list.buffer[AREA_GATHER].at, 6), 3 * KIB);
  for (int i = 0; i < 6; i += 2)
    ck_assert(v[i].what % UNSHARDED_N == FULL_GRAD &&
              v[i + 1].what % UNSHARDED_N == REDUCE_BUFFER && v[i].end >= v[i + 1].start);
}
END_TEST

/* ---- gradients ---- */

/* One sum a step for each block; the wait leaves time for the next unit's I. */
START_TEST(reduced_once) {
  only(FULL_GRAD);
  gives("F0 F1 I1 W1 I0 W0 F0 F1 I1 W1 I0 W0",
        "F0 F1 I1 t1 W1 I0 t0 W0 F0 F1 I1 W1 S1 I0 d1 W0 S0 d0", 4);
}
END_TEST

START_TEST(reduced_in_each_backward) {
  only(FULL_GRAD);
  how.defer_grad_sync = false;
  gives("I1 W1 I0 W0 I1 W1 I0 W0",
        "I1 t1 W1 S1 I0 d1 t0 W0 S0 I1 d0 t1 W1 s1 I0 d1 a1 t0 W0 s0 d0 a0", 2);
}
END_TEST

/* Without an I between them the next W is what hides the transfer. */
START_TEST(weight_gradients_in_a_row) {
  only(FULL_GRAD);
  how.defer_grad_sync = false;
  gives("I1 I0 W1 W0 W1 W0",
        "I1 I0 t1 W1 S1 t0 W0 S0 d1 t1 W1 s1 d0 t0 W0 s0 d1 a1 d0 a0", 4);
}
END_TEST

START_TEST(waited_for_at_once) {
  only(FULL_GRAD);
  how.overlap_grad_reduce = false;
  gives("I1 W1 I0 W0", "I1 t1 W1 S1 d1 I0 t0 W0 S0 d0", 2);
}
END_TEST

/* Some gradients of block 0 are made in I already: a buffer is given up after W. */
START_TEST(begun_in_i) {
  only(FULL_GRAD);
  how.defer_grad_sync = false;
  held.use[0].writes = 1 << PH_I | 1 << PH_W;
  gives("I0 I1 W1 W0 I0 W0", "t0 I0 I1 t1 W1 S1 W0 S0 d1 t0 I0 d0 W0 s0 d0 a0", 4);
}
END_TEST

/* Two units' worth of memory: a copy and the one that comes next in forward, a copy and
 * the sum that is under way in backward, also if the next one is gathered ahead. */
START_TEST(two_units_at_once) {
  for (int u = 0; u < held.n; u++) held.at[u].bytes[FULL_PARAM] = 2 * KIB;
  how.defer_grad_sync = false;
  how.prefetch[0] = 1;
  gives(
      "F0 F1 F2 I2 W2 I1 W1 I0 W0",
      "g0 g1 w0 F0 f0 g2 w1 F1 f1 w2 F2 I2 f2 t2 W2 S2 g1 w1 I1 f1 d2 t1 W1 S1 g0 w0 I0 "
      "f0 d1 t0 W0 S0 d0",
      4);
  how.prefetch[1] = 1;
  gives(
      "F0 F1 F2 I2 W2 I1 W1 I0 W0",
      "g0 g1 w0 F0 f0 g2 w1 F1 f1 w2 F2 I2 f2 g1 t2 W2 S2 w1 I1 f1 d2 g0 t1 W1 S1 w0 I0 "
      "f0 d1 t0 W0 S0 d0",
      4);
  how.prefetch[1] = 2;
  place("F0 F1 F2 F3 I3 W3 I2 W2 I1 W1 I0 W0");
  ck_assert_uint_eq(holds(), 6 * KIB);
}
END_TEST

/* ---- what a schedule says ---- */

START_TEST(where_the_schedule_says) {
  only(FULL_PARAM);
  held.n = 2;
  held.at[1].chunks = 2;
  gives("+0 +1 F0 F1 -1 I0 -0", "g0 g1 w0 F0 w1 F1 f1 I0 f0", 2);
  gives("+0 F0 F1 I1 -0 +0 I0", "g0 w0 F0 g1 w1 F1 I1 f1 f0 g0 w0 I0 f0", 2);
  /* Both at one place: the second one may not lie where the first one still is. */
  gives("+0 F0 +1 -0 F1 -1", "g0 w0 F0 g1 f0 w1 F1 f1", 2);
}
END_TEST

/* A block that a chunk uses for which nothing is said is the compiler's. */
START_TEST(said_for_one_of_two_chunks) {
  only(FULL_PARAM);
  how.reshard = RESHARD_YES;
  held.at[0].chunks = 3;
  gives("+1 F0 F1 F0 -1", "g0 w0 F0 f0 g1 w1 F1 f1 g0 w0 F0 f0", 1);
}
END_TEST

START_TEST(reduced_where_the_schedule_says) {
  only(FULL_GRAD);
  how.defer_grad_sync = false;
  held.at[1].chunks = 2;
  gives("W0 W1 W0 W1 F0 =0 F1", "t0 W0 t1 W1 S1 W0 d1 t1 W1 s1 d1 a1 F0 S0 d0 F1", 4);
}
END_TEST

/* Too early: what another chunk still writes is reduced after it. */
START_TEST(reduced_after_the_last_chunk) {
  only(FULL_GRAD);
  held.at[0].chunks = 3;
  gives("W0 =0 F1 W0 F1", "t0 W0 F1 W0 S0 d0 F1", 2);
}
END_TEST

/* ---- any list ---- */

static uint64_t seed;
static int any(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

/* Each microbatch of each unit runs F, I and W in this order, otherwise as it comes. */
static void any_list(char *text) {
  enum { MB = 4 };
  int state[UNITS][MB] = {{0}};
  for (int left = 3 * UNITS * MB; left > 0;) {
    int u = any(UNITS), mb = any(MB);
    if (state[u][mb] == 3) continue;
    *text++ = "FIW"[state[u][mb]++];
    *text++ = (char)('0' + u);
    left--;
  }
  *text = 0;
}

START_TEST(any_order) {
  char text[3 * UNITS * 4 * 2 + 1];
  for (seed = 0; seed < 40; seed++) {
    uint64_t from = seed;
    how = (Strategy){.reshard = (Reshard)any(3),
                     .prefetch = {any(4), any(4)},
                     .overlap_grad_reduce = any(2),
                     .defer_grad_sync = any(2)};
    pipelined = any(2);
    for (int i = 0; i < UNITS; i++) {
      held.use[i].reads = (uint8_t)any(8), held.use[i].writes = (uint8_t)(2 * any(4));
      held.at[i].bytes[GROUP_SHARD] = seed % 2 ? KIB / 4 : 0;
    }
    any_list(text);
    place(text);
    (void)holds();
    seed = from;
  }
}
END_TEST

/* A list that is only counted has the buffers of one that is written. */
START_TEST(brief_or_not) {
  place("F0 F1 I1 W1 I0 W0");
  MainList whole = list,
           brief = {.steps = true, .brief = true, .positions = whole.positions};
  brief.step.at = list.step.at, brief.step.n = list.step.n;
  brief.positions = 6;
  unshard(&how, pipelined, &held, arena, &brief);
  ck_assert_int_eq(brief.ev.n, 0);
  ck_assert_int_eq(brief.buffer[AREA_GATHER].n, whole.buffer[AREA_GATHER].n);
  ck_assert_uint_eq(brief.moved, whole.moved);
  for (int i = 0; i < brief.buffer[AREA_GATHER].n; i++) {
    const Interval *a = &brief.buffer[AREA_GATHER].at[i];
    const Interval *b = &whole.buffer[AREA_GATHER].at[i];
    ck_assert(a->start == b->start && a->end == b->end && a->size == b->size &&
              a->what == b->what);
  }
}
END_TEST

Suite *unshard_suite(void) {
  const TTest *test[] = {right_before_use,
                         one_ahead,
                         beside_weight_gradients,
                         two_ahead_in_backward,
                         one_after_the_other,
                         kept_between_forward_and_backward,
                         kept_by_pipelines,
                         read_by_two_units,
                         kept_by_a_group,
                         no_part_where_the_schedule_says,
                         summed_in_another_type,
                         reduced_once,
                         reduced_in_each_backward,
                         weight_gradients_in_a_row,
                         waited_for_at_once,
                         begun_in_i,
                         two_units_at_once,
                         where_the_schedule_says,
                         said_for_one_of_two_chunks,
                         reduced_where_the_schedule_says,
                         reduced_after_the_last_chunk,
                         any_order,
                         brief_or_not};
  Suite *s = suite_create("unshard");
  TCase *tc = tcase_create("calls");
  tcase_add_checked_fixture(tc, setup, teardown);
  for (int i = 0; i < LEN(test); i++) tcase_add_test(tc, test[i]);
  suite_add_tcase(s, tc);
  return s;
}
