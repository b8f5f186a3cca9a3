/* comm_cases.c - an element-wise reference for collectives, and the scenarios. */
#include "comm_cases.h"

#include <math.h>
#include <stdlib.h>

/* ---- reference ---- */

/* Rows of a place are counted by the sum of so many numbers. */
enum { EACH = 2, UNTOUCHED = 0x5a };

/* Elements of a row: the count is several rows, or one. */
static uint64_t row_of(const Case *k) {
  for (uint64_t row = 2; row < k->count; row++)
    if (k->count % row == 0) return row;
  return MAX(k->count, 1);
}

/* Rows that one member sends to another: none, a full place, or any number between. */
static uint64_t rows_between(const Case *k, int from, int to) {
  uint64_t room = k->count / row_of(k), key[2] = {(uint64_t)from, (uint64_t)to};
  switch ((from * 5 + to * 4) % 3) {
  case 0: return 0;
  case 1: return room;
  default: return hash_bytes(k->count, key, sizeof key) % (room + 1);
  }
}

/* True if element i is not written. */
static bool untouched(const Case *k, int member, uint64_t i) {
  return k->coll == COLL_ALL_TO_ALL_V &&
         i % k->count >= rows_between(k, (int)(i / k->count), member) * row_of(k);
}

static uint64_t in_count(const Case *k, int n) {
  return coll_info[k->coll].in ? k->count * (uint64_t)n : k->count;
}

static uint64_t out_count(const Case *k, int n) {
  return coll_info[k->coll].out ? k->count * (uint64_t)n : k->count;
}

/* The finalizer of splitmix64: each number of the reference is made for each member anew,
 * so this is most of what the scenarios do. */
static inline uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* A float with inexact sums, of either sign and very different magnitudes. */
static float value(int member, uint64_t i) {
  uint64_t h = mixed(i * 0x9e3779b97f4a7c15u + mixed((uint64_t)member + 1));
  return ldexpf((float)(int)(h >> 40 & 0xffff) - 32768.0f, -(int)(h & 15));
}

static float from_bf16(uint16_t b) {
  uint32_t u = (uint32_t)b << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* Rounds to nearest, ties to even. */
static uint16_t to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t lo = (uint16_t)(u >> 16), hi = (uint16_t)(lo + 1);
  double dl = fabs((double)f - from_bf16(lo)), dh = fabs((double)f - from_bf16(hi));
  return dl < dh || (dl == dh && lo % 2 == 0) ? lo : hi;
}

/* The compiler's half. */
static float from_f16(uint16_t b) {
  _Float16 h;
  memcpy(&h, &b, sizeof h);
  return (float)h;
}

static uint16_t to_f16(float f) {
  _Float16 h = (_Float16)f;
  uint16_t b;
  memcpy(&b, &h, sizeof b);
  return b;
}

/* A value in every type, and the sum of its terms' magnitudes. */
typedef struct Num {
  double d;
  float f;
  int32_t i;
  double size;
} Num;

static void put(DType t, void *p, uint64_t i, Num x) {
  switch (t) {
  case DT_F64: ((double *)p)[i] = x.d; return;
  case DT_BF16: ((uint16_t *)p)[i] = to_bf16(x.f); return;
  case DT_F16: ((uint16_t *)p)[i] = to_f16(x.f); return;
  case DT_I32: ((int32_t *)p)[i] = x.i; return;
  default: ((float *)p)[i] = x.f;
  }
}

static bool near(DType t, const void *p, uint64_t i, Num x) {
  switch (t) {
  case DT_F64: return fabs(((const double *)p)[i] - x.d) <= 1e-14 * x.size;
  case DT_BF16: return fabsf(from_bf16(((const uint16_t *)p)[i]) - x.f) <= 2e-2 * x.size;
  case DT_F16: return fabsf(from_f16(((const uint16_t *)p)[i]) - x.f) <= 2e-3 * x.size;
  case DT_I32: return ((const int32_t *)p)[i] == x.i;
  default: return fabsf(((const float *)p)[i] - x.f) <= 1e-6 * x.size;
  }
}

static Num input(const Case *k, int member, uint64_t i) {
  float f = value(member, i);
  if (k->dtype == DT_BF16) f = from_bf16(to_bf16(f));
  if (k->dtype == DT_F16) f = from_f16(to_f16(f / 64));
  return (Num){(double)f / 3, f, (int32_t)f * 1000, fabs((double)f)};
}

static Num reduced(const Case *k, int n, uint64_t i) {
  Num a = input(k, 0, i);
  for (int m = 1; m < n; m++) {
    Num x = input(k, m, i);
    double size = a.size + x.size;
    if (k->red == RED_SUM)
      a = (Num){a.d + x.d, a.f + x.f, a.i + x.i, size};
    else
      a = (Num){fmax(a.d, x.d), fmaxf(a.f, x.f), MAX(a.i, x.i), 0};
  }
  return a;
}

/* How far a shift goes. */
static int shift_by(const Case *k, int n) {
  return 1 + (int)(k->count % (uint64_t)MAX(n - 1, 1));
}

static Num expected(const Case *k, int n, int member, uint64_t i) {
  switch (k->coll) {
  case COLL_ALL_GATHER: return input(k, (int)(i / k->count), i % k->count);
  case COLL_REDUCE_SCATTER: return reduced(k, n, (uint64_t)member * k->count + i);
  case COLL_ALL_TO_ALL:
  case COLL_ALL_TO_ALL_V:
    return input(k, (int)(i / k->count), (uint64_t)member * k->count + i % k->count);
  case COLL_SHIFT: return input(k, (member + n - shift_by(k, n)) % n, i);
  default: return reduced(k, n, i);
  }
}

void case_input(const Case *k, int n, int member, void *in) {
  for (uint64_t i = 0; i < in_count(k, n); i++) put(k->dtype, in, i, input(k, member, i));
}

bool case_matches(const Case *k, int n, int member, const void *out, bool exact) {
  size_t size = (size_t)dtype_size(k->dtype);
  for (uint64_t i = 0; i < out_count(k, n); i++) {
    Num x = expected(k, n, member, i);
    double want;
    put(k->dtype, &want, 0, x);
    bool none = untouched(k, member, i);
    if (none) memset(&want, UNTOUCHED, size);
    bool same = memcmp(&want, (const char *)out + i * size, size) == 0;
    if (!same && (exact || none || !near(k->dtype, out, i, x))) return false;
  }
  return true;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TYPES_OF_MANY = 2 };
#else
enum { TYPES_OF_MANY = 5 };
#endif

/* Case number i; false after the last. */
static bool case_at(int i, Case *k) {
  /* None, one, part of a block, a block and a bit, several segments: of these most of the
   * time goes to the reference, so sanitizers, who look at memory and order, see two
   * types of them. */
  static const uint64_t count[] = {0, 1, 13, 2049, 40001};
  static const DType dtype[] = {DT_F32, DT_BF16, DT_F64, DT_I32, DT_F16};
  static const struct {
    CollKind coll;
    RedOp red;
    bool in_place;
  } what[] = {
      {COLL_ALL_REDUCE, RED_SUM, false},     {COLL_ALL_REDUCE, RED_SUM, true},
      {COLL_ALL_REDUCE, RED_MAX, false},     {COLL_ALL_REDUCE, RED_MAX, true},
      {COLL_ALL_GATHER, RED_SUM, false},     {COLL_REDUCE_SCATTER, RED_SUM, false},
      {COLL_REDUCE_SCATTER, RED_MAX, false}, {COLL_ALL_GATHER, RED_SUM, true},
      {COLL_REDUCE_SCATTER, RED_SUM, true},  {COLL_REDUCE_SCATTER, RED_MAX, true},
      {COLL_ALL_TO_ALL, RED_SUM, false},     {COLL_SHIFT, RED_SUM, false},
      {COLL_ALL_TO_ALL_V, RED_SUM, false},
  };
  if (i >= ((LEN(count) - 1) * LEN(dtype) + TYPES_OF_MANY) * LEN(what)) return false;
  int w = i % LEN(what), d = i / LEN(what) % LEN(dtype);
  *k = (Case){what[w].coll, what[w].red, dtype[d], count[i / LEN(what) / LEN(dtype)],
              what[w].in_place};
  return true;
}

/* Puts a member's piece at its place in the whole. all_reduce has no pieces, and members
 * need not agree: it is in place on every other rank only. */
static void put_in_place(const Peer *p, const Case *k, CommOp *op, char *whole) {
  char *piece = whole + (size_t)dtype_size(k->dtype) * k->count * (size_t)p->rank;
  if (k->coll == COLL_ALL_REDUCE && p->rank % 2) return;
  op->in = k->coll == COLL_ALL_GATHER ? piece : whole;
  op->out = k->coll == COLL_REDUCE_SCATTER ? piece : whole;
}

static bool is_exact(const Peer *p, const Case *k) {
  uint64_t bytes = k->count * (uint64_t)dtype_size(k->dtype);
  return p->exact || (p->exact_from && bytes >= p->exact_from);
}

/* Fills this rank's row counts; returns the elements that it sends. */
static uint64_t put_counts(const Peer *p, const Case *k, CommOp *op,
                           int32_t counts[2][MAX_RANKS * EACH]) {
  uint64_t given = 0;
  for (int m = 0; m < p->n; m++) {
    uint64_t rows[] = {rows_between(k, p->rank, m), rows_between(k, m, p->rank)};
    for (int way = 0; way < 2; way++) {
      counts[way][m * EACH] = (int32_t)(rows[way] / 3);
      counts[way][m * EACH + 1] = (int32_t)(rows[way] - rows[way] / 3);
    }
    given += rows[0] * row_of(k);
  }
  op->give = counts[0], op->take = counts[1];
  op->members = p->n, op->each = EACH, op->row = row_of(k);
  return given;
}

static bool try_case(Peer *p, const Case *k) {
  int32_t counts[2][MAX_RANKS * EACH];
  size_t room = (size_t)dtype_size(k->dtype) * (k->count * (size_t)p->n + 1);
  char *in = malloc(room), *out = malloc(room);
  CommOp op = {.coll = k->coll,
               .red = k->red,
               .dtype = k->dtype,
               .by = shift_by(k, p->n),
               .in = in,
               .out = out,
               .count = k->count};
  uint64_t given = k->count, before = p->c.stats.bytes[k->coll];
  memset(out, UNTOUCHED, room);
  if (k->in_place) put_in_place(p, k, &op, in);
  if (k->coll == COLL_ALL_TO_ALL_V) given = put_counts(p, k, &op, counts);
  case_input(k, p->n, p->rank, (void *)op.in);
  bool ok = op_run(p, op) && case_matches(k, p->n, p->rank, op.out, is_exact(p, k));
  ok = ok && p->c.stats.bytes[k->coll] - before == given * (uint64_t)dtype_size(k->dtype);
  free(in);
  free(out);
  return ok;
}

void all_cases(Peer *p) {
  Case k;
  for (int i = 0; case_at(i, &k); i++) {
    if (try_case(p, &k)) continue;
    snprintf(p->bad, sizeof p->bad,
             "rank %d of %d, case %d: %s%s of %d %s, reduction %d, is wrong; %.60s",
             p->rank, p->n, i, coll_info[k.coll].name, k.in_place ? " in place" : "",
             (int)k.count, dtype_name(k.dtype), k.red, p->e.text);
    comm_abort(&p->c, p->bad);
    return;
  }
}

/* ---- several operations in flight ---- */

enum { FLY = 4, ROUNDS = 40, PEERS = 8 };

/* Each rank waits in its own order. */
static void out_of_order(Peer *p) {
  int32_t x[FLY];
  for (int r = 0; r < ROUNDS; r++) {
    for (int i = 0; i < FLY; i++) {
      x[i] = (p->rank + 1) * (r + 10 * i + 1);
      NEED(op_start(p, i, ALL_REDUCE(DT_I32, &x[i], &x[i], 1)));
    }
    for (int i = 0; i < FLY; i++) NEED(op_wait(p, (i * 3 + p->rank + r) % FLY));
    for (int i = 0; i < FLY; i++) NEED(x[i] == p->n * (p->n + 1) / 2 * (r + 10 * i + 1));
  }
}

/* Counted rows, other messages between the same members, and sums, all in flight at once:
 * rank r sends rank m r + m rows of two. */
static void among_others(Peer *p) {
  enum { ROOM = 4 * PEERS };
  int32_t given[2][PEERS * ROOM], got[2][PEERS * ROOM], x[2], rows[PEERS];
  for (int m = 0; m < p->n; m++) rows[m] = p->rank + m;
  for (int r = 0; r < ROUNDS; r++) {
    for (int i = 0; i < p->n * ROOM; i++)
      given[0][i] = given[1][i] = p->rank * 1000 + i + r;
    memset(got, UNTOUCHED, sizeof got);
    for (int i = 0; i < 2; i++) {
      CommOp op = {.coll = COLL_ALL_TO_ALL_V,
                   .dtype = DT_I32,
                   .in = given[i],
                   .out = got[i],
                   .count = ROOM,
                   .give = rows,
                   .take = rows,
                   .members = p->n,
                   .each = 1,
                   .row = 2};
      NEED(op_start(p, 2 * i, op));
      x[i] = i ? p->rank : 1;
      CommOp other = ALL_REDUCE(DT_I32, &x[0], &x[0], 1);
      if (i)
        other = (CommOp){.coll = COLL_SHIFT,
                         .dtype = DT_I32,
                         .by = 1,
                         .in = given[0],
                         .out = &x[1],
                         .count = 1};
      NEED(op_start(p, 2 * i + 1, other));
    }
    for (int i = 0; i < FLY; i++) NEED(op_wait(p, (i * 3 + p->rank + r) % FLY));
    NEED(x[0] == p->n && x[1] == (p->rank + p->n - 1) % p->n * 1000 + r);
    for (int i = 0; i < p->n * ROOM; i++) {
      int from = i / ROOM, at = i % ROOM;
      int32_t want = from * 1000 + p->rank * ROOM + at + r;
      if (at >= 2 * (from + p->rank)) memset(&want, UNTOUCHED, sizeof want);
      NEED(got[0][i] == want && got[1][i] == want);
    }
  }
}

/* One operation stays in flight during many others. */
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

/* Groups with equal members are two communicators: their operations may start in
 * different orders. */
static void twins(Peer *p) {
  float x[2] = {1, 10};
  for (int i = 0; i < 2; i++) {
    int g = (i + p->rank) % 2;
    CommOp op = ALL_REDUCE(DT_F32, &x[g], &x[g], 1);
    op.group = g;
    NEED(op_start(p, g, op));
  }
  NEED(op_wait(p, 0) && op_wait(p, 1));
  NEED(x[0] == (float)p->n && x[1] == (float)(10 * p->n));
}

/* ---- a mesh with axes of two: bit g of the rank is its coordinate on axis g ---- */

static int axis_members(int rank, int n, int group, int *out) {
  int bit = 1 << group;
  if (bit >= n) return out[0] = rank, 1;
  out[0] = rank & ~bit;
  out[1] = rank | bit;
  return 2;
}

enum { AXES = 3, WIDE = 5000 };

/* Starts all axes and an exchange with the farthest rank, waits in another order. */
static bool mesh_round(Peer *p, int r, float *in, float *out, float *got) {
  static const int order[] = {4, 1, 3, 0, 2};
  float sent = (float)(p->rank * 7 + r);
  int far = p->rank ^ p->n / 2;
  for (int i = 0; i < WIDE; i++) in[i] = (float)(p->rank * 100 + r);
  for (int g = 0; g < AXES; g++) {
    CommOp op = ALL_REDUCE(DT_F32, in, out + g * WIDE, WIDE);
    op.group = g;
    if (!op_start(p, g, op)) return false;
  }
  if (!op_start(p, 3, SEND(DT_F32, far, &sent, 1))) return false;
  if (!op_start(p, 4, RECV(DT_F32, far, got, 1))) return false;
  for (int i = 0; i < LEN(order); i++)
    if (!op_wait(p, order[i])) return false;
  return true;
}

static bool mesh_right(const Peer *p, int r, const float *out, float got) {
  bool right = got == (float)((p->rank ^ p->n / 2) * 7 + r);
  for (int g = 0; g < AXES; g++) {
    int at[2] = {0}, n = axis_members(p->rank, p->n, g, at);
    float want = (float)((at[0] + at[1]) * 100 + n * r);
    right = right && out[g * WIDE] == want && out[g * WIDE + WIDE - 1] == want;
  }
  return right;
}

static void mesh(Peer *p) {
  float *in = calloc(WIDE, sizeof *in), *out = calloc(AXES * WIDE, sizeof *out), got = -1;
  bool ok = true, right = true;
  for (int r = 0; r < 20 && ok && right; r++) {
    ok = mesh_round(p, r, in, out, &got);
    right = mesh_right(p, r, out, got);
  }
  free(in);
  free(out);
  NEED(ok);
  NEED(right);
}

/* ---- send and receive ---- */

static void ping_pong(Peer *p) {
  int32_t x = 0, peer = p->rank ^ 1;
  for (int i = 0; i < 300; i++) {
    if (p->rank % 2 == i % 2) {
      x = i;
      NEED(op_run(p, SEND(DT_I32, peer, &x, 1)));
    } else {
      x = -1;
      NEED(op_run(p, RECV(DT_I32, peer, &x, 1)));
      NEED(x == i);
    }
  }
}

enum { DEEP = 6 };

/* Every rank sends to all (itself too) before it waits; operations of a pair match in the
 * order of starts although the waits come in reverse. */
static void fifo(Peer *p) {
  int32_t out[PEERS][DEEP], in[PEERS][DEEP];
  for (int peer = 0; peer < p->n; peer++)
    for (int k = 0; k < DEEP; k++) {
      int h = 2 * (peer * DEEP + k);
      out[peer][k] = p->rank * 100 + peer * 10 + k;
      in[peer][k] = -1;
      NEED(op_start(p, h, SEND(DT_I32, peer, &out[peer][k], 1)));
      NEED(op_start(p, h + 1, RECV(DT_I32, peer, &in[peer][k], 1)));
    }
  for (int h = 2 * p->n * DEEP - 1; h >= 0; h--) NEED(op_wait(p, h));
  for (int peer = 0; peer < p->n; peer++)
    for (int k = 0; k < DEEP; k++) NEED(in[peer][k] == peer * 100 + p->rank * 10 + k);
}

/* ---- progress without a wait ---- */

/* Rank 0 starts, then waits for a message that rank 1 sends only after its own wait. */
static void start_is_enough(Peer *p, uint64_t n) {
  float *x = calloc(n, sizeof *x), note = 0, all = (float)p->n;
  for (uint64_t i = 0; i < n; i++) x[i] = 1;
  bool ok = op_start(p, 0, ALL_REDUCE(DT_F32, x, x, n));
  if (p->rank == 0) {
    ok =
        ok && op_start(p, 1, RECV(DT_F32, 1, &note, 1)) && op_wait(p, 1) && op_wait(p, 0);
  } else {
    ok = ok && op_wait(p, 0);
    if (p->rank == 1)
      ok = ok && op_start(p, 1, SEND(DT_F32, 0, &x[n - 1], 1)) && op_wait(p, 1);
  }
  bool right = x[0] == all && x[n - 1] == all && (p->rank || note == all);
  free(x);
  NEED(ok);
  NEED(right);
}

static void start_small(Peer *p) { start_is_enough(p, 1); }
static void start_large(Peer *p) { start_is_enough(p, 100000); }

const Scenario scenario[SCENARIOS] = {
    {"all cases", all_cases, {.in_flight = 1, .nhandle = 1, .ngroup = 1}},
    {"out of order", out_of_order, {.in_flight = FLY, .nhandle = FLY, .ngroup = 1}},
    {"among others", among_others, {.in_flight = FLY, .nhandle = FLY, .ngroup = 1}},
    {"held", held, {.in_flight = 2, .nhandle = 2, .ngroup = 1}},
    {"twins", twins, {.in_flight = 1, .nhandle = 2, .ngroup = 2}},
    {"mesh",
     mesh,
     {.in_flight = 1, .nhandle = 5, .ngroup = AXES, .members = axis_members}},
    {"ping pong", ping_pong, {.nhandle = 1}},
    {"fifo", fifo, {.nhandle = 2 * PEERS * DEEP}},
    {"start is enough, small", start_small, {.in_flight = 1, .nhandle = 2, .ngroup = 1}},
    {"start is enough, large", start_large, {.in_flight = 1, .nhandle = 2, .ngroup = 1}},
};
