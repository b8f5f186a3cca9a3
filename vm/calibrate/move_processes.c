/* move_processes.c - measures collectives and transfers in a world of processes, one rank
 * each: rank 0 says which, the first ranks of the world are their members, and rank 0
 * gets what each of them took. */
#include "move_member.h"

typedef struct Ranks {
  const Bench *b;
  World *world;
  Device device;
  Comm comm;
  CommGroup *group; /* the largest first, so that it has one number on all its members */
  int *rank, ngroup;
  int *index; /* [size + 1]: the group of so many */
} Ranks;

/* The list of rank 0 on all ranks; `*list` of others is allocated in `a`. */
static weft_status share_list(World *w, WantedMove **list, int *n, Arena *a,
                              weft_error *e) {
  TRY(world_bcast(w, n, sizeof *n, 0, e));
  if (w->rank != 0) *list = NEW_N(a, WantedMove, *n);
  return *n ? world_bcast(w, *list, sizeof **list * (size_t)*n, 0, e) : WEFT_OK;
}

/* Groups of the first ranks, as large as what is measured needs them. */
static void find_groups(Ranks *r, const WantedMove *list, int n, Arena *a) {
  int size = r->world->size;
  uint32_t *uses = NEW_N(a, uint32_t, size + 1);
  r->group = NEW_N(a, CommGroup, size + 1);
  r->rank = NEW_N(a, int, size);
  r->index = NEW_N(a, int, size + 1);
  for (int i = 0; i < size; i++) r->rank[i] = i;
  for (int i = 0; i < n; i++)
    if (list[i].kind != COLL_SEND) uses[list[i].ranks] |= 1u << list[i].kind;
  for (int k = size; k > r->world->rank; k--) {
    if (!uses[k]) continue;
    r->index[k] = r->ngroup;
    r->group[r->ngroup++] = (CommGroup){
        .rank = r->rank, .n = k, .in_flight = 1, .uses = uses[k], .name = "measured"};
  }
}

static weft_status join(Ranks *r, weft_error *e) {
  int peer = 1 - r->world->rank;
  bool pair = r->world->rank < 2 && r->world->size > 1;
  CommNeeds needs = {
      .group = r->group, .ngroup = r->ngroup, .peer = &peer, .npeer = pair, .nhandle = 1};
  return world_join(r->world, r->world->rank, &r->device, &needs, &r->comm, e);
}

static weft_status measure(Ranks *r, const WantedMove *w, double *each, weft_error *e) {
  MoveMember x = {.device = &r->device, .comm = &r->comm};
  weft_status st = move_member_open(&x, r->b, w, r->world->rank, r->index[w->ranks], e);
  if (st == WEFT_OK) st = move_member_time(&x, r->b, w, each, e);
  move_member_close(&x);
  return st;
}

/* The mean of what the members took, on rank 0. */
static weft_status collect(World *w, int members, double *each, weft_error *e) {
  if (w->rank != 0) return world_send(w, each, sizeof *each, 0, e);
  for (int i = 1; i < members; i++) {
    double other;
    TRY(world_recv(w, &other, sizeof other, i, e));
    *each += other;
  }
  *each /= members;
  return WEFT_OK;
}

static weft_status measure_all(Ranks *r, const WantedMove *list, int n, MoveDone *done,
                               void *ud, weft_error *e) {
  for (int i = 0; i < n; i++) {
    double each = 0;
    if (r->world->rank >= list[i].ranks) continue;
    TRY(measure(r, &list[i], &each, e));
    TRY(collect(r->world, list[i].ranks, &each, e));
    if (r->world->rank == 0)
      TRY(done(ud, &list[i], move_on_all_cores(r->b, each, list[i].ranks), e));
  }
  return WEFT_OK;
}

weft_status time_moves(const Bench *b, World *w, WantedMove *list, int n, MoveDone *done,
                       void *ud, Arena *a, weft_error *e) {
  Ranks r = {.b = b, .world = w};
  bool joined = false;
  TRY(share_list(w, &list, &n, a, e));
  find_groups(&r, list, n, a);
  TRY(device_open(&r.device, b->device, NULL, w->rank, w->place, b->threads, e));
  weft_status st = join(&r, e);
  joined = st == WEFT_OK;
  if (st == WEFT_OK) st = measure_all(&r, list, n, done, ud, e);
  if (st == WEFT_OK) st = world_barrier(w, e);
  if (st != WEFT_OK) world_abort(w, w->rank, st, e->text);
  if (joined) comm_close(&r.comm);
  device_close(&r.device);
  return st;
}
