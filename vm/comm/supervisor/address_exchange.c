/* address_exchange.c - exchanges the listening addresses of processes that a launcher's
 * library (MPI) has connected already: rank 0 gathers them over the backend's host
 * messages and broadcasts the list. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "net.h"
#include "vm/comm/world.h"

/* The address that others connect to: the host name of this machine. */
static weft_status name_of(NetPeer *p, const Net *n, weft_error *e) {
  p->port = net_port(n->listener.fd);
  if (gethostname(p->host, sizeof p->host - 1) == 0) return WEFT_OK;
  return err_set(e, WEFT_ERUN, "rank %d: cannot read the host name of this machine: %s",
                 n->rank, strerror(errno));
}

weft_status world_has_addresses(World *w, Net *n, weft_error *e) {
  NetPeer mine = {.host = ""};
  bool alone = w->node == w->size;
  TRY(net_open(n, w->alloc, w->rank, w->size, alone ? "127.0.0.1" : NULL, e));
  TRY(name_of(&mine, n, e));
  n->peer[w->rank] = mine;
  if (w->rank == 0) net_random(n->key, sizeof n->key);
  if (w->rank != 0) TRY(world_send(w, &mine, sizeof mine, 0, e));
  for (int i = 1; w->rank == 0 && i < w->size; i++)
    TRY(world_recv(w, &n->peer[i], sizeof n->peer[i], i, e));
  TRY(world_bcast(w, n->key, sizeof n->key, 0, e));
  TRY(world_bcast(w, n->peer, (size_t)n->size * sizeof *n->peer, 0, e));
  for (int i = 0; i < n->size; i++)
    if (alone || strcmp(n->peer[i].host, mine.host) == 0)
      snprintf(n->peer[i].host, sizeof n->peer[i].host, "127.0.0.1");
  return WEFT_OK;
}
