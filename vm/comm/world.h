/* world.h - the ranks that run a program together.
 *
 * A world is a row of the table in world.c; nobody else knows one by name. It has all its
 * ranks in this process, as threads, or one rank in each of many processes that a
 * launcher has started. Calls go through the world_* wrappers below. */
#ifndef WEFT_WORLD_H
#define WEFT_WORLD_H

#include "comm.h"

/* A setting of a library, as it stands in its environment. */
typedef struct WorldSetting {
  const char *name, *value;
} WorldSetting;

/* What a world may be told; none of it is needed later. */
typedef struct WorldOptions {
  const struct Rendezvous *meet; /* rendezvous.h; NULL: nowhere */
  int group_ctas, pair_ctas;     /* blocks of a GPU for a communicator; 0: it chooses */
  const WorldSetting *setting;   /* for its library, unless the environment has it */
  int nsetting;
  /* Tests: asked before each message of the host; true: it fails. */
  bool (*fault)(void *ud);
  void *fault_ud;
} WorldOptions;

enum { WORLD_VERSION = 2 };
typedef struct WorldVtable {
  const char *name;
  int version; /* WORLD_VERSION */
  /* Finds the other ranks: sets all facts of World but `alloc`. Nothing is held if it
   * fails. */
  weft_status (*start)(World *w, weft_error *e);
  /* Connects `rank` with the members of its groups; what is on the way lies in memory of
   * `d`. Groups with the same members, given in the same order by all of them, are one
   * group; a rank that gives the same members twice makes two. Nothing is allocated
   * later. */
  weft_status (*join)(World *w, int rank, Device *d, const CommNeeds *needs, Comm *c,
                      weft_error *e);
  /* Bytes of the host between processes, each call by one thread of each process; all
   * NULL in a world of one process. What did not come whole is an error, which names the
   * rank that it did not come from. */
  CHECKED weft_status (*barrier)(World *w, weft_error *e);
  CHECKED weft_status (*bcast)(World *w, void *p, size_t n, int root, weft_error *e);
  CHECKED weft_status (*send)(World *w, const void *p, size_t n, int peer, weft_error *e);
  CHECKED weft_status (*recv)(World *w, void *p, size_t n, int peer, weft_error *e);
  /* Whether something has failed on the side; NULL: every failure is one of a call. */
  weft_status (*poll)(World *w, weft_error *e);
  /* Ends the waits of all ranks with this reason; `rank` gives up, or -1: from outside.
   * Of processes that cannot be told it ends this one with `exit_code`, and the launcher
   * the others. When it returns, as when
   * a wait returns an error, no thread touches the buffers of any operation any more. Not
   * for signal handlers: it takes locks. */
  void (*abort)(World *w, int rank, weft_status code, int exit_code, const char *why);
  void (*close)(World *w);
  /* Tests: the most elements that one call of a library moves. May be NULL. */
  void (*limit)(World *w, uint64_t count);
} WorldVtable;

/* What weft allocates for a world, counted before there is one. */
typedef struct WorldBytes {
  uint64_t (*world)(int size);
  uint64_t (*rank)(int ngroup, int nhandle);
  uint64_t (*group)(int n, int in_flight); /* of two and more */
} WorldBytes;

/* A row of the table. */
typedef struct WorldKind {
  const char *name; /* "local" */
  bool processes;   /* one rank each, of a launcher; otherwise threads of this one */
  bool meets;       /* they find each other at World.meet */
  bool together;    /* they end together: closing it waits for all of them */
  bool bring_up;    /* between machines it is for first runs and for debugging */
  bool host;        /* moves memory of the host only, not that of a device, */
  bool device;      /* or that of a GPU only */
  bool over;        /* another world, of `host`, carries its bytes of the host: one
                       whose processes meet, or, told of no place, do not */
  int most;         /* ranks; 0: any number */
  const WorldBytes *bytes; /* NULL: a library has its own */
  /* The world itself; opens its shared object if it has one. NULL with an error that says
   * what is missing. */
  const WorldVtable *(*load)(weft_error *e);
} WorldKind;

struct World {
  const WorldVtable *vt;
  const weft_alloc *alloc;
  int size;        /* ranks in all; set before start, which may find another number */
  int rank, here;  /* the first rank of this process, and how many it has */
  int node, place; /* ranks on this machine; which of them the first one here is */
  const WorldOptions *told; /* for start only */
  struct Net *net;          /* the doors of its processes; NULL: it needs none */
  bool quiet;               /* another process tells why it ends */
  bool watched; /* the supervisor ends the waits for a rank that does not answer */
  bool (*fault)(void *ud); /* as it was told */
  void *fault_ud;
  bool broken;   /* a message has failed: no other one is sent or waited for */
  bool together; /* as of its row, or of the world that it is over: */
  World *under;  /* NULL: it is over none. Has the same facts */
  void *ctx;
};

/* NULL with an error that lists what is there. */
const WorldKind *world_kind(const char *name, weft_error *e);
/* The first row of ranks that are threads, or processes that meet, or do not, and that
 * moves memory of the host, or of another device. */
const WorldKind *world_default(bool processes, bool meets, bool host);
/* "local, mpi, tcp or nccl" */
const char *world_names(char buf[64]);

/* WEFT_EUSAGE if it does not move memory of this device. */
weft_status world_suits(const WorldKind *k, const DeviceKind *d, weft_error *e);
weft_status world_start(World *w, const WorldKind *k, const weft_alloc *a, int size,
                        const WorldOptions *told, weft_error *e);
weft_status world_join(World *w, int rank, Device *d, const CommNeeds *needs, Comm *c,
                       weft_error *e);
static inline bool world_has(const World *w, int rank) {
  return rank >= w->rank && rank < w->rank + w->here;
}
/* Messages of the host. A message begins with a head of its own, so that bytes which
 * never came, or those of another message, are an error and not an answer. After an error
 * the run is to end: the ranks no longer agree on which message is the next one. */
CHECKED weft_status world_barrier(World *w, weft_error *e);
CHECKED weft_status world_bcast(World *w, void *p, size_t n, int root, weft_error *e);
CHECKED weft_status world_send(World *w, const void *p, size_t n, int peer,
                               weft_error *e);
CHECKED weft_status world_recv(World *w, void *p, size_t n, int peer, weft_error *e);
/* From now on the supervisor ends all waits; until then a wait has a deadline of its own.
 */
void world_watched(World *w);
weft_status world_poll(World *w, weft_error *e);
/* address_exchange.c: doors for processes that have none yet, all of which call it. */
weft_status world_has_addresses(World *w, struct Net *n, weft_error *e);
void world_abort(World *w, int rank, weft_status code, const char *why);
void world_close(World *w); /* one that was never started is fine */

/* local.c, tcp.c, open_mpi.c, open_nccl.c */
extern const WorldVtable world_local, world_tcp;
extern const WorldBytes world_local_bytes;
const WorldVtable *world_load_mpi(weft_error *e);
const WorldVtable *world_load_nccl(weft_error *e);

#endif
