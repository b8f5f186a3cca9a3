/* address_exchange.c - exchanges the listening addresses of processes that a launcher's
 * library (MPI) has connected already: rank 0 gathers them over the backend's host
 * messages and broadcasts the list.
 *
 * The name of a machine need not be known to the others, as in containers, and several
 * machines may have one name, while MPI connects by addresses. So a process offers both,
 * and which ranks share its machine is what MPI says. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include "net.h"
#include "vm/comm/world.h"

/* ---- lists ---- */

static bool has(const char *list, const char *name, size_t n) {
  for (const char *s = list; *s; s += strcspn(s, ","), s += *s == ',')
    if (strcspn(s, ",") == n && memcmp(s, name, n) == 0) return true;
  return false;
}

/* A name that does not fit is left out, all of it. */
static void add(TextBuf *list, const char *name, size_t n) {
  if (!n || has(list->s, name, n) || list->n + n + 2 > list->size) return;
  textbuf_printf(list, "%s%.*s", list->n ? "," : "", (int)n, name);
}

void addresses_of_other(char *list, const char *mine) {
  char text[NET_HOST];
  TextBuf left = textbuf(text, sizeof text);
  for (const char *s = list; *s; s += strcspn(s, ","), s += *s == ',') {
    size_t n = strcspn(s, ",");
    if (!has(mine, s, n)) add(&left, s, n);
  }
  if (left.n) memcpy(list, text, left.n + 1);
}

/* ---- of this machine ---- */

/* An address of this link (fe80::) means nothing to others. */
static bool is_reached(const struct ifaddrs *a, int family) {
  if (!a->ifa_addr || a->ifa_addr->sa_family != family) return false;
  if (!(a->ifa_flags & IFF_UP) || a->ifa_flags & IFF_LOOPBACK) return false;
  const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(void *)a->ifa_addr;
  return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

void own_addresses(char *list, size_t size) {
  TextBuf to = textbuf(list, size);
  static const int families[] = {AF_INET, AF_INET6};
  static const socklen_t bytes[] = {sizeof(struct sockaddr_in),
                                    sizeof(struct sockaddr_in6)};
  struct ifaddrs *all = NULL;
  char name[NET_HOST] = "";
  if (gethostname(name, sizeof name - 1) == 0 && net_is_host(name))
    add(&to, name, strlen(name));
  if (getifaddrs(&all) != 0) return;
  for (int i = 0; i < LEN(families); i++)
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
      if (is_reached(a, families[i]) &&
          getnameinfo(a->ifa_addr, bytes[i], name, sizeof name, NULL, 0,
                      NI_NUMERICHOST) == 0)
        add(&to, name, strlen(name));
  freeifaddrs(all);
}

/* ---- the exchange ---- */

/* Where a process listens, and the first rank of its machine. */
typedef struct Offer {
  NetPeer at;
  int32_t first;
} Offer;

static weft_status exchange(World *w, Net *n, Offer *all, weft_error *e) {
  if (w->rank == 0) net_random(n->key, sizeof n->key);
  if (w->rank != 0) TRY(world_send(w, &all[w->rank], sizeof *all, 0, e));
  for (int i = 1; w->rank == 0 && i < w->size; i++)
    TRY(world_recv(w, &all[i], sizeof *all, i, e));
  TRY(world_bcast(w, n->key, sizeof n->key, 0, e));
  return world_bcast(w, all, (size_t)w->size * sizeof *all, 0, e);
}

weft_status world_has_addresses(World *w, Net *n, const char *host, weft_error *e) {
  bool alone = w->node == w->size;
  TRY(net_open(n, w->alloc, w->rank, w->size, alone ? "127.0.0.1" : NULL, e));
  size_t bytes = (size_t)w->size * sizeof(Offer);
  Offer *all = mem_new(w->alloc, bytes);
  if (!all) return err_set(e, WEFT_ENOMEM, "no memory for %d processes", w->size);
  Offer *mine = &all[w->rank];
  mine->first = w->first;
  mine->at.port = net_port(n->listener.fd);
  if (host)
    snprintf(mine->at.host, sizeof mine->at.host, "%s", host);
  else
    own_addresses(mine->at.host, sizeof mine->at.host);
  weft_status st = exchange(w, n, all, e);
  for (int i = 0; st == WEFT_OK && i < n->size; i++) {
    n->peer[i] = all[i].at;
    n->peer[i].host[NET_HOST - 1] = 0;
    if (all[i].first == w->first)
      snprintf(n->peer[i].host, sizeof n->peer[i].host, "127.0.0.1");
    else
      addresses_of_other(n->peer[i].host, mine->at.host);
  }
  mem_free(w->alloc, all, bytes);
  return st;
}
