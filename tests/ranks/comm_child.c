/* comm_child.c - see comm_child.h. */
#include "comm_child.h"

#include <signal.h>

#include "comm_cases.h"

/* Joins, runs, closes. True if the scenario found no error. */
static bool scene(World *w, const Scenario *s) {
  Needs room;
  Peer p = {.rank = w->rank, .n = w->size, .exact = str_eq(w->vt->name, "tcp")};
  if (str_eq(w->vt->name, "mpi")) p.exact_from = 1 << 17;
  Setup setup = s->setup;
  setup.n = w->size;
  err_clear(&p.e);
  const CommNeeds *needs = setup_needs(&setup, w->rank, &room);
  if (world_join(w, w->rank, NULL, needs, &p.c, &p.e) != WEFT_OK) {
    fprintf(stderr, "%s\n", p.e.text);
    return false;
  }
  s->fn(&p);
  comm_close(&p.c);
  if (p.bad[0]) fprintf(stderr, "%s: %s\n", s->name, p.bad);
  return !p.bad[0];
}

static bool scenes(World *w) {
  bool ok = true;
  for (int i = 0; i < SCENARIOS; i++) ok = scene(w, &scenario[i]) && ok;
  return ok;
}

/* Operations above the limit of a library call are split. */
static bool cut(World *w) {
  if (w->vt->limit) w->vt->limit(w, 1000);
  return scene(w, &scenario[0]) && scene(w, &scenario[SCENARIOS - 1]);
}

/* Gathers raw bytes to rank 0 and sends them back. */
static bool raw(World *w) {
  enum { BYTES = 2500 };
  unsigned char b[BYTES];
  bool ok = true;
  int rank = w->rank, n = w->size;
  if (w->vt->limit) w->vt->limit(w, 1000);
  weft_error e = {.rank = -1};
  ok = world_barrier(w, &e) == WEFT_OK;
  memset(b, rank, BYTES);
  if (rank) ok = ok && world_send(w, b, BYTES, 0, &e) == WEFT_OK;
  for (int peer = 1; rank == 0 && peer < n; peer++) {
    ok = ok && world_recv(w, b, BYTES, peer, &e) == WEFT_OK;
    ok = ok && b[0] == peer && b[BYTES - 1] == peer;
  }
  memset(b, rank == n - 1 ? 77 : 0, BYTES);
  ok = ok && world_bcast(w, b, BYTES, n - 1, &e) == WEFT_OK;
  if (e.code) fprintf(stderr, "%s\n", e.text);
  return ok && b[0] == 77 && b[BYTES - 1] == 77;
}

/* Never returns: the backend ends all processes when rank 1 aborts. */
static void gives_up(Peer *p) {
  float x = 0;
  if (p->rank == 1) comm_abort(&p->c, "the disk is on fire");
  op_run(p, ALL_REDUCE(DT_F32, &x, &x, 1));
}

static void dies(Peer *p) {
  float x = 0;
  if (p->rank == 1) raise(SIGKILL);
  NEED(op_run(p, ALL_REDUCE(DT_F32, &x, &x, 1)));
}

static bool ends_badly(World *w, void (*fn)(Peer *p)) {
  Scenario s = {"ends", fn, {.in_flight = 1, .nhandle = 1, .ngroup = 1}};
  return scene(w, &s);
}

bool comm_child(World *w, const char *what) {
  if (strcmp(what, "scenes") == 0) return w->node == w->size && scenes(w);
  if (strcmp(what, "cut") == 0) return cut(w);
  if (strcmp(what, "raw") == 0) return raw(w);
  if (strcmp(what, "abort") == 0) return ends_badly(w, gives_up);
  if (strcmp(what, "die") == 0) return ends_badly(w, dies);
  return false;
}
