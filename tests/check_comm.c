/* check_comm.c - the local engine: results, order, independence of timing. */
#include "comm_world.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "vm/comm/reduce.h"

/* ---- every collective, type, size and group against the reference ---- */

static void compare(Peer *p, const Case *k) {
  size_t size = (size_t)dtype_size(k->dtype), room = size * (k->count * (size_t)p->n + 1);
  char *in = malloc(room), *out = malloc(room), *want = malloc(room);
  case_input(k, p->n, p->rank, in);
  case_expect(k, p->n, p->rank, want);
  /* In place on every other rank only: the members need not agree. */
  bool in_place = k->in_place && p->rank % 2 == 0;
  CommOp op = {.coll = k->coll,
               .red = k->red,
               .dtype = k->dtype,
               .in = in,
               .out = in_place ? in : out,
               .count = k->count};
  bool ok = op_run(p, op);
  bool same = ok && memcmp(op.out, want, size * case_out_count(k, p->n)) == 0;
  free(in);
  free(out);
  free(want);
  if (!same)
    snprintf(p->bad, sizeof p->bad, "rank %d of %d: %s %s %d of %d %s differs %.60s",
             p->rank, p->n, coll_name[k->coll], k->in_place ? "in place" : "", k->red,
             (int)k->count, dtype_name(k->dtype), p->e.text);
}

static void all_cases(Peer *p) {
  Case k;
  for (int i = 0; case_at(i, &k) && !p->bad[0]; i++)
    compare(p, &k);
}

static const int group_sizes[] = {1, 2, 3, 4, 8};

START_TEST(test_reference) {
  comm_world(&(Setup){.n = group_sizes[_i], .in_flight = 1, .nhandle = 1, .ngroup = 1},
             all_cases, NULL);
}
END_TEST

START_TEST(test_nan_is_kept) {
  float x[3][3] = {{1, NAN, 2}, {NAN, 1, 3}, {0, 5, 1}}, out[3];
  ReduceAcc acc;
  reduce_load(DT_F32, &acc, x[0], 3);
  for (int i = 1; i < 3; i++)
    reduce_add(DT_F32, RED_MAX, &acc, x[i], 3);
  reduce_store(DT_F32, out, &acc, 3);
  ck_assert(out[0] != out[0] && out[1] != out[1] && out[2] == 3);
  uint16_t b[2] = {0x7f81, 0x3f80}, c[2]; /* a NaN that truncation makes infinite */
  reduce_load(DT_BF16, &acc, b, 2);
  reduce_store(DT_BF16, c, &acc, 2);
  ck_assert((c[0] & 0x7f80) == 0x7f80 && (c[0] & 0x7f) != 0 && c[1] == 0x3f80);
}
END_TEST

/* ---- several operations in flight ---- */

enum { FLY = 4, ROUNDS = 40 };

/* Each rank waits in an order of its own. */
static void out_of_order(Peer *p) {
  int32_t x[FLY];
  for (int r = 0; r < ROUNDS; r++) {
    for (int i = 0; i < FLY; i++) {
      x[i] = (p->rank + 1) * (r + 10 * i + 1);
      NEED(op_start(p, i, ALL_REDUCE(DT_I32, &x[i], &x[i], 1)));
    }
    for (int i = 0; i < FLY; i++)
      NEED(op_wait(p, (i * 3 + p->rank + r) % FLY));
    for (int i = 0; i < FLY; i++)
      NEED(x[i] == p->n * (p->n + 1) / 2 * (r + 10 * i + 1));
  }
}

START_TEST(test_out_of_order) {
  comm_world(&(Setup){.n = 4, .in_flight = FLY, .nhandle = FLY, .ngroup = 1},
             out_of_order, NULL);
}
END_TEST

/* One operation stays in flight while many others come and go. */
static void held(Peer *p) {
  float kept = 1, x;
  NEED(op_start(p, 1, ALL_REDUCE(DT_F32, &kept, &kept, 1)));
  for (int r = 0; r < 200; r++) {
    x = (float)r;
    NEED(op_run(p, ALL_REDUCE(DT_F32, &x, &x, 1)));
    NEED(x == (float)(r * p->n));
  }
  NEED(op_wait(p, 1));
  NEED(kept == (float)p->n);
}

START_TEST(test_held) {
  comm_world(&(Setup){.n = 3, .in_flight = 2, .nhandle = 2, .ngroup = 1}, held, NULL);
}
END_TEST

/* Groups with equal members are two communicators: their operations need not be started
 * in the same order. */
static void twins(Peer *p) {
  float x[2] = {1, 10};
  for (int i = 0; i < 2; i++) {
    int g = (i + p->rank) % 2;
    CommOp op = ALL_REDUCE(DT_F32, &x[g], &x[g], 1);
    op.group = g;
    NEED(op_start(p, g, op));
  }
  NEED(op_wait(p, 0) && op_wait(p, 1));
  NEED(x[0] == 2 && x[1] == 20);
}

START_TEST(test_twins) {
  comm_world(&(Setup){.n = 2, .in_flight = 1, .nhandle = 2, .ngroup = 2}, twins, NULL);
}
END_TEST

/* ---- a mesh of 2 x 2 x 2: rank = (pp, dp, tp) ---- */

static int mesh_members(int rank, int group, int *out) {
  int bit = 1 << group; /* 0: tp, 1: dp, 2: pp */
  out[0] = rank & ~bit;
  out[1] = rank | bit;
  return 2;
}

/* All axes and the neighbour on pp at once, the waits in another order than the starts.
 */
static void mesh(Peer *p) {
  enum { N = 5000 };
  static const int order[] = {4, 1, 3, 0, 2};
  float *in = calloc(N, sizeof *in), *out = calloc(3 * N, sizeof *out);
  float sent = 0, got = -1;
  bool ok = true, right = true;
  for (int r = 0; r < 20 && ok; r++) {
    for (int i = 0; i < N; i++)
      in[i] = (float)(p->rank * 100 + r);
    sent = (float)(p->rank * 7 + r);
    for (int g = 0; g < 3 && ok; g++) {
      CommOp op = ALL_REDUCE(DT_F32, in, out + g * N, N);
      op.group = g;
      ok = op_start(p, g, op);
    }
    ok = ok && op_start(p, 3, SEND(DT_F32, p->rank ^ 4, &sent, 1)) &&
         op_start(p, 4, RECV(DT_F32, p->rank ^ 4, &got, 1));
    for (int i = 0; i < LEN(order) && ok; i++)
      ok = op_wait(p, order[i]);
    for (int g = 0; g < 3; g++) {
      int pair[2];
      mesh_members(p->rank, g, pair);
      float want = (float)((pair[0] + pair[1]) * 100 + 2 * r);
      right = right && out[g * N] == want && out[g * N + N - 1] == want;
    }
    right = right && got == (float)((p->rank ^ 4) * 7 + r);
  }
  free(in);
  free(out);
  NEED(ok);
  NEED(right);
}

START_TEST(test_mesh) {
  comm_world(
      &(Setup){
          .n = 8, .in_flight = 1, .nhandle = 5, .ngroup = 3, .members = mesh_members},
      mesh, NULL);
}
END_TEST

/* ---- send and receive ---- */

static void ping_pong(Peer *p) {
  int32_t x = 0, peer = 1 - p->rank;
  for (int i = 0; i < 300; i++) {
    if (p->rank == i % 2) {
      x = i;
      NEED(op_run(p, SEND(DT_I32, peer, &x, 1)));
    } else {
      x = -1;
      NEED(op_run(p, RECV(DT_I32, peer, &x, 1)));
      NEED(x == i);
    }
  }
}

START_TEST(test_ping_pong) {
  comm_world(&(Setup){.n = 2, .nhandle = 1}, ping_pong, NULL);
}
END_TEST

/* Every rank sends to all (itself too) before it waits; operations of one pair meet in
 * the order of their starts although the waits come in reverse. */
static void fifo(Peer *p) {
  enum { K = 6 };
  int32_t out[4][K], in[4][K];
  for (int peer = 0; peer < p->n; peer++)
    for (int k = 0; k < K; k++) {
      int h = 2 * (peer * K + k);
      out[peer][k] = p->rank * 100 + peer * 10 + k;
      in[peer][k] = -1;
      NEED(op_start(p, h, SEND(DT_I32, peer, &out[peer][k], 1)));
      NEED(op_start(p, h + 1, RECV(DT_I32, peer, &in[peer][k], 1)));
    }
  for (int h = 2 * p->n * K - 1; h >= 0; h--)
    NEED(op_wait(p, h));
  for (int peer = 0; peer < p->n; peer++)
    for (int k = 0; k < K; k++)
      NEED(in[peer][k] == peer * 100 + p->rank * 10 + k);
}

START_TEST(test_fifo) {
  comm_world(&(Setup){.n = 4, .nhandle = 48}, fifo, NULL);
}
END_TEST

/* ---- a start is enough for the others ---- */

/* Rank 0 starts and then waits for a message that rank 1 sends only after its own wait.
 */
static void starts_and_leaves(Peer *p) {
  uint64_t n = *(uint64_t *)p->arg;
  float *x = calloc(n, sizeof *x), note = 0;
  for (uint64_t i = 0; i < n; i++)
    x[i] = 1;
  CommOp op = ALL_REDUCE(DT_F32, x, x, n);
  bool ok = op_start(p, 0, op);
  if (p->rank == 0) {
    ok =
        ok && op_start(p, 1, RECV(DT_F32, 1, &note, 1)) && op_wait(p, 1) && op_wait(p, 0);
  } else {
    ok = ok && op_wait(p, 0);
    if (p->rank == 1)
      ok = ok && op_start(p, 1, SEND(DT_F32, 0, &x[n - 1], 1)) && op_wait(p, 1);
  }
  bool right = x[0] == 3 && x[n - 1] == 3 && (p->rank || note == 3);
  free(x);
  NEED(ok);
  NEED(right);
}

START_TEST(test_start_is_enough) {
  uint64_t n[] = {1, 100000};
  for (int i = 0; i < LEN(n); i++)
    comm_world(&(Setup){.n = 3, .in_flight = 1, .nhandle = 2, .ngroup = 1},
               starts_and_leaves, &n[i]);
}
END_TEST

/* ---- timing changes nothing ---- */

static void sleepy(Peer *p) {
  enum { N = 40000 };
  Case k = {COLL_ALL_REDUCE, RED_SUM, DT_F32, N, true};
  float *x = malloc(N * sizeof *x), *want = malloc(N * sizeof *want);
  case_expect(&k, p->n, p->rank, want);
  bool ok = true, same = true;
  for (int r = 0; r < 6 && ok; r++) {
    int key[] = {p->rank, r};
    usleep((useconds_t)(hash_bytes(1, key, sizeof key) % 3000));
    case_input(&k, p->n, p->rank, x);
    ok = op_start(p, 0, ALL_REDUCE(DT_F32, x, x, N));
    usleep((useconds_t)(hash_bytes(2, key, sizeof key) % 3000));
    ok = ok && op_wait(p, 0);
    same = same && memcmp(x, want, N * sizeof *x) == 0;
  }
  free(x);
  free(want);
  NEED(ok);
  NEED(same);
}

START_TEST(test_deterministic) {
  comm_world(&(Setup){.n = 5, .in_flight = 1, .nhandle = 1, .ngroup = 1}, sleepy, NULL);
}
END_TEST

/* ---- many more ranks than cores ---- */

static void many(Peer *p) {
  for (int i = 0; i < 100; i++) {
    int32_t x = p->rank == i % p->n ? i + 1 : 0;
    NEED(op_run(p, ALL_REDUCE(DT_I32, &x, &x, 1)));
    NEED(x == i + 1);
  }
}

START_TEST(test_many_ranks) {
  comm_world(&(Setup){.n = 64, .in_flight = 1, .nhandle = 1, .ngroup = 1}, many, NULL);
}
END_TEST

Suite *comm_suite(void) {
  Suite *s = suite_create("comm");
  TCase *t = tcase_create("local");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, test_reference, 0, LEN(group_sizes));
  tcase_add_test(t, test_nan_is_kept);
  tcase_add_test(t, test_out_of_order);
  tcase_add_test(t, test_held);
  tcase_add_test(t, test_twins);
  tcase_add_test(t, test_mesh);
  tcase_add_test(t, test_ping_pong);
  tcase_add_test(t, test_fifo);
  tcase_add_test(t, test_start_is_enough);
  tcase_add_test(t, test_deterministic);
  tcase_add_test(t, test_many_ranks);
  suite_add_tcase(s, t);
  return s;
}
