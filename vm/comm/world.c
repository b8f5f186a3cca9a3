/* world.c - the table of backends, and the wrappers for calls to one. A new backend is a
 * module and a row here. */
#include "world.h"

static const WorldVtable *load_local(weft_error *e) { return &world_local; }

static const WorldVtable *load_tcp(weft_error *e) { return &world_tcp; }

static const WorldKind kinds[] = {
    {.name = "local", .most = 1024, .bytes = &world_local_bytes, .load = load_local},
    {.name = "mpi",
     .processes = true,
     .together = true,
     .host = true,
     .load = world_load_mpi},
    {.name = "tcp",
     .processes = true,
     .meets = true,
     .bring_up = true,
     .host = true,
     .load = load_tcp},
    {.name = "nccl",
     .processes = true,
     .device = true,
     .over = true,
     .load = world_load_nccl},
};

const char *world_names(char buf[64]) {
  TextBuf t = textbuf(buf, 64);
  for (int i = 0; i < LEN(kinds); i++)
    textbuf_printf(&t, "%s%s",
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
  err_set(e, WEFT_EUSAGE, "there is no backend \"%s\" in this build, only %s", name,
          world_names(names));
  return NULL;
}

static bool fits(const WorldKind *k, bool processes, bool meets, bool host) {
  return k->processes == processes && (k->over || k->meets == meets) &&
         !(host ? k->device : k->host);
}

const WorldKind *world_default(bool processes, bool meets, bool host) {
  int i = 0;
  meets &= processes; /* one meets nobody */
  while (i < LEN(kinds) && !fits(&kinds[i], processes, meets, host)) i++;
  assert(i < LEN(kinds));
  return &kinds[i];
}

weft_status world_suits(const WorldKind *k, const DeviceKind *d, weft_error *e) {
  if (!d->host && k->host)
    return err_set(
        e, WEFT_EUSAGE,
        "--comm %s transfers host memory only, not that of device %s; run all ranks in "
        "one process (--comm local), processes with --comm nccl, or on the cpu",
        k->name, d->name);
  if (d->host && k->device)
    return err_set(e, WEFT_EUSAGE,
                   "--comm %s transfers GPU memory, but device %s computes in host "
                   "memory; add --device cuda, or leave --comm out",
                   k->name, d->name);
  return WEFT_OK;
}

/* ---- a world over another ---- */

static void close_under(World *w) {
  if (!w->under) return;
  world_close(w->under);
  mem_free(w->alloc, w->under, sizeof *w->under);
  w->under = NULL;
}

static weft_status start_under(World *w, int size, weft_error *e) {
  bool meets = w->options && w->options->meet;
  World *u = w->under = mem_new(w->alloc, sizeof *u);
  if (!u) return err_set(e, WEFT_ENOMEM, "out of memory");
  TRY(world_start(u, world_default(true, meets, true), w->alloc, size, w->options, e));
  w->rank = u->rank;
  w->here = u->here;
  w->size = u->size;
  w->node = u->node;
  w->place = u->place;
  w->first = u->first;
  w->net = u->net;
  w->together = u->together;
  return WEFT_OK;
}

/* ---- calls ---- */

weft_status world_start(World *w, const WorldKind *k, const weft_alloc *a, int size,
                        const WorldOptions *options, weft_error *e) {
  *w = (World){0};
  if (k->most && size > k->most)
    return err_set(e, WEFT_ELIMIT, "%d virtual ranks are more than one process runs (%d)",
                   size, k->most);
  const WorldVtable *vt = k->load(e);
  if (!vt) return e && e->code ? e->code : WEFT_EFILE;
  assert(vt->version == WORLD_VERSION);
  *w = (World){.vt = vt,
               .fault = options ? options->fault : NULL,
               .fault_ud = options ? options->fault_ud : NULL,
               .alloc = a,
               .size = size,
               .here = size,
               .node = size,
               .options = options,
               .together = k->together};
  weft_status st = k->over ? start_under(w, size, e) : WEFT_OK;
  if (st == WEFT_OK) st = vt->start(w, e);
  w->options = NULL;
  if (st == WEFT_OK) return WEFT_OK;
  close_under(w);
  w->vt = NULL;
  return st;
}

const DeviceArenas *world_arenas(World *w) {
  return w->vt->arenas ? w->vt->arenas(w) : NULL;
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

/* The world that carries the host messages. */
static World *carrier(World *w) { return w->under ? w->under : w; }

/* ---- messages of the host ---- */

enum { HEAD_MAGIC = 0x74666577, HEAD_ROOM = 1008 };

/* The header of a message, with as much of its data as fits: most messages fit. */
typedef struct Head {
  uint32_t magic;
  int32_t from;
  uint64_t bytes;
  char first[HEAD_ROOM];
} Head;

static size_t head_size(size_t first) { return offsetof(Head, first) + first; }

/* Called before each message. After a failure the ranks no longer agree on the
 * message. */
static weft_status begin(World *w, const char *what, int peer, weft_error *e) {
  if (w->broken)
    return err_set(
        e, WEFT_ERUN,
        "rank %d: cannot start the %s rank %d: an earlier message of this run has failed",
        w->rank, what, peer);
  if (!w->fault || !w->fault(w->fault_ud)) return WEFT_OK;
  return err_set(e, WEFT_ERUN, "rank %d: injected fault in the %s rank %d", w->rank, what,
                 peer);
}

static weft_status over(World *w, weft_status st) {
  if (st != WEFT_OK) w->broken = true;
  return st;
}

static void make_head(const World *w, Head *h, const void *p, size_t n, size_t first) {
  h->magic = HEAD_MAGIC;
  h->from = w->rank;
  h->bytes = n;
  if (first) memcpy(h->first, p, first);
}

static weft_status take_head(const World *w, const Head *h, int peer, void *p, size_t n,
                             size_t first, weft_error *e) {
  if (h->magic != HEAD_MAGIC || h->from != peer || h->bytes != n)
    return err_set(
        e, WEFT_EINTERNAL,
        "rank %d: the message from rank %d is not the one of %zu bytes that was expected",
        w->rank, peer, n);
  if (first) memcpy(p, h->first, first);
  return WEFT_OK;
}

static weft_status barrier(World *w, World *c, weft_error *e) {
  TRY(begin(w, "barrier with", 0, e));
  return c->vt->barrier ? c->vt->barrier(c, e) : WEFT_OK;
}

static weft_status bcast(World *w, World *c, void *p, size_t n, int root, weft_error *e) {
  size_t first = MIN(n, HEAD_ROOM);
  TRY(begin(w, "broadcast of", root, e));
  if (!c->vt->bcast) return WEFT_OK;
  bool sends = world_has(w, root);
  Head h = {0};
  if (sends) make_head(w, &h, p, n, first);
  TRY(c->vt->bcast(c, &h, head_size(first), root, e));
  if (!sends) TRY(take_head(w, &h, root, p, n, first, e));
  return first < n ? c->vt->bcast(c, (char *)p + first, n - first, root, e) : WEFT_OK;
}

static weft_status put(World *w, World *c, const void *p, size_t n, int peer,
                       weft_error *e) {
  size_t first = MIN(n, HEAD_ROOM);
  TRY(begin(w, "send to", peer, e));
  Head h;
  make_head(w, &h, p, n, first);
  TRY(c->vt->send(c, &h, head_size(first), peer, e));
  return first < n ? c->vt->send(c, (const char *)p + first, n - first, peer, e)
                   : WEFT_OK;
}

static weft_status get(World *w, World *c, void *p, size_t n, int peer, weft_error *e) {
  size_t first = MIN(n, HEAD_ROOM);
  TRY(begin(w, "receive from", peer, e));
  Head h = {0};
  TRY(c->vt->recv(c, &h, head_size(first), peer, e));
  TRY(take_head(w, &h, peer, p, n, first, e));
  return first < n ? c->vt->recv(c, (char *)p + first, n - first, peer, e) : WEFT_OK;
}

weft_status world_barrier(World *w, weft_error *e) {
  return over(w, barrier(w, carrier(w), e));
}

weft_status world_bcast(World *w, void *p, size_t n, int root, weft_error *e) {
  return over(w, bcast(w, carrier(w), p, n, root, e));
}

weft_status world_send(World *w, const void *p, size_t n, int peer, weft_error *e) {
  assert(!world_has(w, peer));
  return over(w, put(w, carrier(w), p, n, peer, e));
}

weft_status world_recv(World *w, void *p, size_t n, int peer, weft_error *e) {
  assert(!world_has(w, peer));
  return over(w, get(w, carrier(w), p, n, peer, e));
}

void world_watched(World *w) {
  for (; w; w = w->under) w->watched = true;
}

weft_status world_poll(World *w, weft_error *e) {
  if (w->vt->poll) TRY(w->vt->poll(w, e));
  return w->under ? world_poll(w->under, e) : WEFT_OK;
}

void world_abort(World *w, int rank, weft_status code, const char *why) {
  w->vt->abort(w, rank, code, weft_exit_code(code), why ? why : "no reason given");
  if (!w->under) return;
  w->under->quiet = w->quiet;
  world_abort(w->under, rank, code, why);
}

void world_close(World *w) {
  if (!w->vt) return;
  w->vt->close(w);
  close_under(w);
  *w = (World){0};
}
