/* comm_world.c - see comm_world.h; and an element-wise reference for collectives. */
#include "comm_world.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

/* ---- worlds ---- */

typedef struct Thread {
  Peer p;
  const Setup *s;
  World *w;
  void (*fn)(Peer *p);
  pthread_t id;
} Thread;

const CommNeeds *setup_needs(const Setup *s, int rank, Needs *room) {
  CommNeeds *k = &room->needs;
  *k = (CommNeeds){.group = room->group,
                   .ngroup = s->ngroup,
                   .peer = room->peer,
                   .nhandle = s->nhandle};
  for (int i = 0; i < s->n; i++)
    if (i != rank) room->peer[k->npeer++] = i;
  for (int g = 0; g < s->ngroup; g++) {
    int n = s->n, *member = room->member[g];
    for (int i = 0; i < n; i++) member[i] = i;
    if (s->members) n = s->members(rank, n, g, member);
    room->group[g] = (CommGroup){member, n, s->in_flight, ~0u, "test", 0};
  }
  return k;
}

static weft_status fuse_projections(Thread *t) {
  Needs room;
  return world_join(t->w, t->p.rank, NULL, setup_needs(t->s, t->p.rank, &room), &t->p.c,
                    &t->p.e);
}

static void *run(void *arg) {
  Thread *t = arg;
  if (fuse_projections(t) == WEFT_OK) {
    t->fn(&t->p);
    comm_close(&t->p.c);
  } else {
    snprintf(t->p.bad, sizeof t->p.bad, "rank %d: %.200s", t->p.rank, t->p.e.text);
    world_abort(t->w, -1, WEFT_ERUN, "a rank could not join");
  }
  return NULL;
}

void comm_world(const Setup *s, void (*fn)(Peer *p), void *arg) {
  weft_error e;
  err_clear(&e);
  World w;
  const WorldKind *kind = world_kind("local", &e);
  ck_assert_int_eq(world_start(&w, kind, s->alloc, s->n, NULL, &e), WEFT_OK);
  if (s->world) *s->world = &w;
  Thread *t = calloc((size_t)s->n, sizeof *t);
  for (int i = 0; i < s->n; i++) {
    t[i] = (Thread){.p = {.rank = i, .n = s->n, .exact = true, .arg = arg},
                    .s = s,
                    .w = &w,
                    .fn = fn};
    err_clear(&t[i].p.e);
    ck_assert_int_eq(pthread_create(&t[i].id, NULL, run, &t[i]), 0);
  }
  for (int i = 0; i < s->n; i++) pthread_join(t[i].id, NULL);
  char bad[sizeof t->p.bad] = "";
  for (int i = 0; i < s->n; i++)
    if (!bad[0] || (strstr(bad, " failed: ") && t[i].p.bad[0]))
      memcpy(bad, t[i].p.bad, sizeof bad);
  free(t);
  world_close(&w);
  ck_assert_msg(!bad[0], "%s", bad);
}

bool op_start(Peer *p, int handle, CommOp op) {
  return comm_start(&p->c, &op, handle, (DeviceEvent){0}, &p->e) == WEFT_OK;
}

bool op_wait(Peer *p, int handle) { return comm_wait(&p->c, handle, &p->e) == WEFT_OK; }

bool op_run(Peer *p, CommOp op) { return op_start(p, 0, op) && op_wait(p, 0); }
