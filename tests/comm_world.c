/* comm_world.c - see comm_world.h; and a reference for collectives, element by element.
 */
#include "comm_world.h"

#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* ---- worlds ---- */

typedef struct Thread {
  Peer p;
  const Setup *s;
  LocalWorld *w;
  void (*fn)(Peer *p);
  pthread_t id;
} Thread;

enum { MAX_RANKS = 64, MAX_GROUPS = 8 };

static weft_status join(Thread *t) {
  const Setup *s = t->s;
  CommGroup group[MAX_GROUPS];
  int rank[MAX_GROUPS][MAX_RANKS];
  for (int g = 0; g < s->ngroup; g++) {
    int n = s->n;
    for (int i = 0; i < n; i++)
      rank[g][i] = i;
    if (s->members) n = s->members(t->p.rank, g, rank[g]);
    group[g] = (CommGroup){rank[g], n, s->in_flight, "test"};
  }
  return local_join(t->w, t->p.rank, group, s->ngroup, s->nhandle, &t->p.c, &t->p.e);
}

static void *run(void *arg) {
  Thread *t = arg;
  if (join(t) == WEFT_OK) {
    t->fn(&t->p);
    comm_close(&t->p.c);
  } else {
    snprintf(t->p.bad, sizeof t->p.bad, "rank %d: %.200s", t->p.rank, t->p.e.text);
    local_world_abort(t->w, WEFT_ERUN, "a rank could not join");
  }
  return NULL;
}

void comm_world(const Setup *s, void (*fn)(Peer *p), void *arg) {
  weft_error e;
  err_clear(&e);
  LocalWorld *w = NULL;
  ck_assert_int_eq(local_world_new(s->alloc, s->n, &w, &e), WEFT_OK);
  if (s->world) *s->world = w;
  Thread *t = calloc((size_t)s->n, sizeof *t);
  for (int i = 0; i < s->n; i++) {
    t[i] = (Thread){.p = {.rank = i, .n = s->n, .arg = arg}, .s = s, .w = w, .fn = fn};
    err_clear(&t[i].p.e);
    ck_assert_int_eq(pthread_create(&t[i].id, NULL, run, &t[i]), 0);
  }
  for (int i = 0; i < s->n; i++)
    pthread_join(t[i].id, NULL);
  char bad[sizeof t->p.bad] = "";
  for (int i = 0; i < s->n; i++)
    if (!bad[0] || (strstr(bad, "the test failed") && t[i].p.bad[0]))
      memcpy(bad, t[i].p.bad, sizeof bad);
  free(t);
  local_world_free(w);
  ck_assert_msg(!bad[0], "%s", bad);
}

bool op_start(Peer *p, int handle, CommOp op) {
  return comm_start(&p->c, &op, handle, (DeviceEvent){0}, &p->e) == WEFT_OK;
}

bool op_wait(Peer *p, int handle) {
  return comm_wait(&p->c, handle, &p->e) == WEFT_OK;
}

bool op_run(Peer *p, CommOp op) {
  return op_start(p, 0, op) && op_wait(p, 0);
}

/* ---- reference ---- */

uint64_t case_in_count(const Case *k, int n) {
  return k->coll == COLL_REDUCE_SCATTER ? k->count * (uint64_t)n : k->count;
}

uint64_t case_out_count(const Case *k, int n) {
  return k->coll == COLL_ALL_GATHER ? k->count * (uint64_t)n : k->count;
}

/* A float that is not exact in sums, of either sign and of very different sizes. */
static float value(int member, uint64_t i) {
  uint64_t key[2] = {(uint64_t)member, i}, h = hash_bytes(7, key, sizeof key);
  return ldexpf((float)(int)(h >> 40 & 0xffff) - 32768.0f, -(int)(h & 15));
}

static float from_bf16(uint16_t b) {
  uint32_t u = (uint32_t)b << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* The nearer of the two neighbours, the even one of two equally near. */
static uint16_t to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t lo = (uint16_t)(u >> 16), hi = (uint16_t)(lo + 1);
  double dl = fabs((double)f - from_bf16(lo)), dh = fabs((double)f - from_bf16(hi));
  return dl < dh || (dl == dh && lo % 2 == 0) ? lo : hi;
}

static void put(DType t, void *p, uint64_t i, double v, float f, int32_t w) {
  switch (t) {
  case DT_F64:
    ((double *)p)[i] = v;
    return;
  case DT_BF16:
    ((uint16_t *)p)[i] = to_bf16(f);
    return;
  case DT_I32:
    ((int32_t *)p)[i] = w;
    return;
  default:
    ((float *)p)[i] = f;
  }
}

/* One value in all the forms that types need. */
typedef struct Num {
  double d;
  float f;
  int32_t i;
} Num;

static Num input(const Case *k, int member, uint64_t i) {
  float f = value(member, i);
  if (k->dtype == DT_BF16) f = from_bf16(to_bf16(f));
  return (Num){(double)f / 3, f, (int32_t)f * 1000};
}

void case_input(const Case *k, int n, int member, void *in) {
  for (uint64_t i = 0; i < case_in_count(k, n); i++) {
    Num x = input(k, member, i);
    put(k->dtype, in, i, x.d, x.f, x.i);
  }
}

static Num reduced(const Case *k, int n, uint64_t i) {
  Num a = input(k, 0, i);
  for (int m = 1; m < n; m++) {
    Num x = input(k, m, i);
    if (k->red == RED_SUM)
      a = (Num){a.d + x.d, a.f + x.f, a.i + x.i};
    else
      a = (Num){fmax(a.d, x.d), fmaxf(a.f, x.f), MAX(a.i, x.i)};
  }
  return a;
}

void case_expect(const Case *k, int n, int member, void *out) {
  for (uint64_t i = 0; i < case_out_count(k, n); i++) {
    Num x;
    switch (k->coll) {
    case COLL_ALL_GATHER:
      x = input(k, (int)(i / k->count), i % k->count);
      break;
    case COLL_REDUCE_SCATTER:
      x = reduced(k, n, (uint64_t)member * k->count + i);
      break;
    default:
      x = reduced(k, n, i);
    }
    put(k->dtype, out, i, x.d, x.f, x.i);
  }
}

bool case_at(int i, Case *k) {
  /* None, one, part of a block, a block and a bit, several segments. */
  static const uint64_t count[] = {0, 1, 13, 2049, 40001};
  static const DType dtype[] = {DT_F32, DT_BF16, DT_F64, DT_I32};
  static const struct {
    CollKind coll;
    RedOp red;
    bool in_place;
  } what[] = {
      {COLL_ALL_REDUCE, RED_SUM, false},     {COLL_ALL_REDUCE, RED_SUM, true},
      {COLL_ALL_REDUCE, RED_MAX, false},     {COLL_ALL_REDUCE, RED_MAX, true},
      {COLL_ALL_GATHER, RED_SUM, false},     {COLL_REDUCE_SCATTER, RED_SUM, false},
      {COLL_REDUCE_SCATTER, RED_MAX, false},
  };
  if (i >= LEN(count) * LEN(dtype) * LEN(what)) return false;
  int w = i % LEN(what), d = i / LEN(what) % LEN(dtype);
  *k = (Case){what[w].coll, what[w].red, dtype[d], count[i / LEN(what) / LEN(dtype)],
              what[w].in_place};
  return true;
}
