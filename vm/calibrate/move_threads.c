/* move_threads.c - measures one collective, or one transfer, in a world of its members
 * alone, which are threads of this process. */
#include "move_member.h"

typedef struct Moving {
  const Bench *b;
  const WantedMove *w;
  World world;
  int *rank; /* of its only group */
} Moving;

static weft_status join(const Moving *m, int i, Device *d, Comm *c, weft_error *e) {
  const WantedMove *w = m->w;
  bool pair = w->kind == COLL_SEND;
  CommGroup group = {.rank = m->rank,
                     .n = w->ranks,
                     .in_flight = 1,
                     .uses = 1u << w->kind,
                     .name = "measured"};
  int peer = 1 - i;
  CommNeeds needs = {.group = &group, .ngroup = 1, .nhandle = 1};
  if (pair) needs = (CommNeeds){.peer = &peer, .npeer = 1, .nhandle = 1};
  return world_join((World *)&m->world, i, d, &needs, c, e);
}

static weft_status member(void *ud, int i, Samples *out, weft_error *e) {
  const Moving *m = ud;
  Device device;
  Comm comm;
  MoveMember x = {.device = &device, .comm = &comm};
  TRY(device_open(&device, m->b->device, NULL, i, i, m->b->threads, e));
  bool joined = false;
  weft_status st = move_member_open(&x, m->b, m->w, i, 0, e);
  if (st == WEFT_OK) st = join(m, i, &device, &comm, e);
  joined = st == WEFT_OK;
  if (st == WEFT_OK) st = move_member_time(&x, m->b, m->w, &out->at[out->n], e);
  if (st == WEFT_OK) out->n++;
  if (st != WEFT_OK) world_abort((World *)&m->world, i, st, e->text);
  if (joined) comm_close(&comm);
  move_member_close(&x);
  device_close(&device);
  return st;
}

weft_status time_move(const Bench *b, const WantedMove *w, double *seconds,
                      weft_error *e) {
  Moving m = {.b = b, .w = w};
  int n = w->ranks;
  size_t bytes = sizeof(int) * (size_t)n;
  m.rank = mem_new(NULL, bytes);
  if (!m.rank) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < n; i++) m.rank[i] = i;
  weft_status st =
      world_start(&m.world, world_default(false, false, b->kind->host), NULL, n, NULL, e);
  if (st == WEFT_OK) st = mean_of_threads(n, 1, member, &m, seconds, e);
  if (st == WEFT_OK) *seconds = move_on_all_cores(b, *seconds, n);
  world_close(&m.world);
  mem_free(NULL, m.rank, bytes);
  return st;
}
