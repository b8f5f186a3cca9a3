/* move_threads.c - measures one collective, or one transfer, in a world of its members
 * alone, which are threads of this process. */
#include "move_member.h"

/* What a thread leaves open: others may still wait for an event of its device when it is
 * done, so all are closed when all are. */
typedef struct Member {
  Device device;
  Comm comm;
  MoveMember moves;
  bool opened, joined;
} Member;

typedef struct Moving {
  const Bench *b;
  const WantedMove *w;
  World world;
  Member *member; /* [ranks] */
  int *rank;      /* of its only group */
} Moving;

static weft_status join(Moving *m, int i, weft_error *e) {
  const WantedMove *w = m->w;
  Member *x = &m->member[i];
  bool pair = w->kind == COLL_SEND;
  CommGroup group = {.rank = m->rank,
                     .n = w->ranks,
                     .in_flight = 1,
                     .uses = 1u << w->kind,
                     .name = "measured"};
  int peer = 1 - i;
  CommNeeds needs = {.group = &group, .ngroup = 1, .nhandle = 1};
  if (pair) needs = (CommNeeds){.peer = &peer, .npeer = 1, .nhandle = 1};
  TRY(world_join(&m->world, i, &x->device, &needs, &x->comm, e));
  x->joined = true;
  return WEFT_OK;
}

static weft_status measure(Moving *m, int i, Samples *out, weft_error *e) {
  Member *x = &m->member[i];
  TRY(move_member_open(&x->moves, m->b, m->w, i, 0, e));
  TRY(join(m, i, e));
  TRY(move_member_time(&x->moves, m->b, m->w, &out->at[out->n], e));
  out->n++;
  return WEFT_OK;
}

/* All on the first GPU, as ranks of one process are: a kernel adds up what they have. */
static weft_status member(void *ud, int i, Samples *out, weft_error *e) {
  Moving *m = ud;
  Member *x = &m->member[i];
  weft_status st = device_open(&x->device, m->b->device, NULL, i, 0, m->b->threads, e);
  x->opened = st == WEFT_OK;
  x->moves = (MoveMember){.device = &x->device, .comm = &x->comm};
  if (st == WEFT_OK) st = measure(m, i, out, e);
  if (st != WEFT_OK) world_abort(&m->world, i, st, e->text);
  return st;
}

static void close_all(Moving *m) {
  for (int i = 0; i < m->w->ranks; i++)
    if (m->member[i].joined) comm_close(&m->member[i].comm);
  for (int i = 0; i < m->w->ranks; i++)
    if (m->member[i].opened) move_member_close(&m->member[i].moves);
  for (int i = 0; i < m->w->ranks; i++)
    if (m->member[i].opened) device_close(&m->member[i].device);
}

weft_status time_move(const Bench *b, const WantedMove *w, double *seconds,
                      weft_error *e) {
  Moving m = {.b = b, .w = w};
  int n = w->ranks;
  size_t bytes = sizeof(int) * (size_t)n, all = sizeof *m.member * (size_t)n;
  m.rank = mem_new(NULL, bytes);
  m.member = mem_new(NULL, all);
  weft_status st =
      m.rank && m.member ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; st == WEFT_OK && i < n; i++) m.rank[i] = i;
  if (st == WEFT_OK)
    st = world_start(&m.world, world_default(false, false, b->kind->host), NULL, n, NULL,
                     e);
  if (st == WEFT_OK) {
    st = mean_of_threads(n, 1, member, &m, true, seconds, e);
    if (st == WEFT_OK) *seconds = move_on_all_cores(b, *seconds, n);
    close_all(&m);
    world_close(&m.world);
  }
  mem_free(NULL, m.member, all);
  mem_free(NULL, m.rank, bytes);
  return st;
}
