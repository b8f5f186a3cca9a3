/* world.c - the table of worlds, and the calls that everybody makes to one. One more
 * world is a module and a row here. */
#include "world.h"

#include <stdio.h>

static const WorldVtable *load_local(weft_error *e) {
  return &world_local;
}

static const WorldVtable *load_tcp(weft_error *e) {
  return &world_tcp;
}

static const WorldKind kinds[] = {
    {.name = "local", .most = 1024, .bytes = &world_local_bytes, .load = load_local},
    {.name = "mpi",
     .processes = true,
     .together = true,
     .host = true,
     .load = world_load_mpi},
    {.name = "tcp", .processes = true, .meets = true, .host = true, .load = load_tcp},
};

const char *world_names(char buf[64]) {
  int n = 0;
  for (int i = 0; i < LEN(kinds); i++)
    n += snprintf(buf + n, 64 - (size_t)n, "%s%s",
                  i == 0               ? ""
                  : i + 1 < LEN(kinds) ? ", "
                                       : " or ",
                  kinds[i].name);
  return buf;
}

const WorldKind *world_kind(const char *name, weft_error *e) {
  for (int i = 0; i < LEN(kinds); i++)
    if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
  char names[64];
  err_set(e, WEFT_EUSAGE, "there is no world \"%s\" in this build, only %s", name,
          world_names(names));
  return NULL;
}

const WorldKind *world_default(bool processes, bool meets) {
  int i = 0;
  while (kinds[i].processes != processes || kinds[i].meets != meets)
    i++;
  return &kinds[i];
}

weft_status world_start(World *w, const WorldKind *k, const weft_alloc *a, int size,
                        const struct Meet *meet, weft_error *e) {
  *w = (World){0};
  if (k->most && size > k->most)
    return err_set(e, WEFT_ELIMIT, "%d virtual ranks are more than one process runs (%d)",
                   size, k->most);
  const WorldVtable *vt = k->load(e);
  if (!vt) return e && e->code ? e->code : WEFT_EFILE;
  assert(vt->version == 1);
  *w = (World){
      .vt = vt, .alloc = a, .size = size, .here = size, .node = size, .meet = meet};
  weft_status st = vt->start(w, e);
  w->meet = NULL;
  if (st != WEFT_OK) w->vt = NULL;
  return st;
}

weft_status world_join(World *w, int rank, Device *d, const CommNeeds *needs, Comm *c,
                       weft_error *e) {
  assert(w->vt && world_has(w, rank));
  size_t bytes = comm_bytes(needs->ngroup, needs->nhandle);
  CommCount *count = mem_new(w->alloc, bytes);
  if (!count)
    return err_set(e, WEFT_ENOMEM, "no memory for the counters of rank %d", rank);
  weft_status st = w->vt->join(w, rank, d, needs, c, e);
  if (st != WEFT_OK) {
    mem_free(w->alloc, count, bytes);
    return st;
  }
  c->world = w;
  c->count = count;
  c->counted = (int *)(count + needs->ngroup + 1);
  c->ngroup = needs->ngroup;
  c->nhandle = needs->nhandle;
  return WEFT_OK;
}

void world_barrier(World *w) {
  if (w->vt->barrier) w->vt->barrier(w);
}

void world_bcast(World *w, void *p, size_t n, int root) {
  if (w->vt->bcast) w->vt->bcast(w, p, n, root);
}

void world_send(World *w, const void *p, size_t n, int peer) {
  assert(!world_has(w, peer));
  w->vt->send(w, p, n, peer);
}

void world_recv(World *w, void *p, size_t n, int peer) {
  assert(!world_has(w, peer));
  w->vt->recv(w, p, n, peer);
}

weft_status world_poll(World *w, weft_error *e) {
  return w->vt->poll ? w->vt->poll(w, e) : WEFT_OK;
}

void world_abort(World *w, int rank, weft_status code, const char *why) {
  w->vt->abort(w, rank, code, weft_exit_code(code), why ? why : "no reason given");
}

void world_close(World *w) {
  if (!w->vt) return;
  w->vt->close(w);
  *w = (World){0};
}
