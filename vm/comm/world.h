/* world.h - the ranks that run a program together, and the backend that connects them.
 *
 * A World is made from a row of the table in world.c; no other file names a backend. All
 * its ranks are threads of this process, or each is one of many processes that a launcher
 * started. Calls go through the world_* wrappers below. */
#ifndef WEFT_WORLD_H
#define WEFT_WORLD_H

#include "comm.h"

/* An environment variable of a library and its default. */
typedef struct WorldSetting {
  const char *name, *value;
} WorldSetting;

/* Where arenas lie that a backend's library registers: in memory of the device; in its
 * own; in its own, which members of a group that have the same layout see in each
 * other as they see theirs (symmetric windows). */
typedef enum { ARENA_DEVICE, ARENA_LIBRARY, ARENA_SYMMETRIC } WorldArena;

/* Options for world_start; nothing is read later. */
typedef struct WorldOptions {
  const struct Rendezvous *meet; /* rendezvous.h; NULL: none */
  const char *host; /* without `meet`: under which name or address others reach this
                     * process; NULL: those of its machine */
  int group_ctas, pair_ctas;   /* thread blocks of a GPU per communicator; 0: chosen */
  WorldArena arena;            /* of backends for GPU memory */
  const WorldSetting *setting; /* for its library, unless the environment sets it */
  int nsetting;
  /* Tests: called before each host message; true makes it fail. */
  bool (*fault)(void *ud);
  void *fault_ud;
} WorldOptions;

enum { WORLD_VERSION = 4 };
typedef struct WorldVtable {
  const char *name;
  int version; /* WORLD_VERSION */
  /* Finds the other ranks and sets all of World but `alloc`. Holds nothing after a
   * failure. */
  weft_status (*start)(World *w, weft_error *e);
  /* The library's memory for the arenas of its ranks, which are freed after their
   * communicators are closed; NULL: it has none. May be NULL. */
  const DeviceArenas *(*arenas)(World *w);
  /* Connects `rank` with the members of its groups; operands lie in memory of `d`. Groups
   * with the same members, given in the same order by all of them, are one group; a rank
   * that lists the same members twice gets two. Later operations allocate nothing. */
  weft_status (*join)(World *w, int rank, Device *d, const CommNeeds *needs, Comm *c,
                      weft_error *e);
  /* Host messages between processes, called by one thread per process; all NULL in a
   * world of one process. An incomplete message is an error that names its sender. */
  CHECKED weft_status (*barrier)(World *w, weft_error *e);
  CHECKED weft_status (*bcast)(World *w, void *p, size_t n, int root, weft_error *e);
  CHECKED weft_status (*send)(World *w, const void *p, size_t n, int peer, weft_error *e);
  CHECKED weft_status (*recv)(World *w, void *p, size_t n, int peer, weft_error *e);
  /* Returns a failure that happened outside of a call; NULL: there are none. */
  weft_status (*poll)(World *w, weft_error *e);
  /* Ends the waits of all ranks with this reason; `rank` is the one that failed, or -1:
   * from outside. If other processes cannot be notified it exits this one with
   * `exit_code`, and the launcher ends the others. After it, or after a wait that
   * returned an error, no thread touches the buffers of any operation. Takes locks, so it
   * is not for signal handlers. */
  void (*abort)(World *w, int rank, weft_status code, int exit_code, const char *why);
  void (*close)(World *w);
  /* Tests: sets the most elements per library call. May be NULL. */
  void (*limit)(World *w, uint64_t count);
} WorldVtable;

/* Bytes that weft allocates for a world, known before it is started. */
typedef struct WorldBytes {
  uint64_t (*world)(int size);
  uint64_t (*rank)(int ngroup, int nhandle);
  uint64_t (*group)(int n, int in_flight); /* for groups of two or more ranks */
} WorldBytes;

/* A row of the table. */
typedef struct WorldKind {
  const char *name; /* "local" */
  bool processes;   /* one rank per process of a launcher; otherwise ranks are threads */
  bool meets;       /* processes find each other by rendezvous (WorldOptions.meet) */
  bool together;    /* collective close: closing waits for all ranks */
  bool bring_up;    /* between machines only for first runs and for debugging */
  bool host;        /* moves host memory only, */
  bool device;      /* or GPU memory only */
  bool over;        /* host messages go over another backend (one with `host`): with
                     * `meets` if there is a rendezvous address, else without */
  int most;         /* ranks; 0: any number */
  const WorldBytes *bytes; /* NULL: the library allocates its own */
  /* The backend; opens its shared object if it has one. NULL with an error: what is
   * missing. */
  const WorldVtable *(*load)(weft_error *e);
} WorldKind;

struct World {
  const WorldVtable *vt;
  const weft_alloc *alloc;
  int size;        /* ranks in all; set before start, which may find another number */
  int rank, here;  /* first rank of this process; number of its ranks */
  int node, place; /* ranks on this machine; index among them of the first rank here */
  int first;       /* the first rank on this machine */
  const WorldOptions *options; /* for start only */
  struct Net *net;             /* listening sockets of the processes; NULL: not needed */
  bool quiet;                  /* another process reports the error */
  bool watched;            /* the supervisor ends waits for a rank that does not answer */
  bool (*fault)(void *ud); /* from WorldOptions */
  void *fault_ud;
  bool broken;   /* a host message has failed: no other one is sent or awaited */
  bool together; /* the row's, or that of `under` */
  World *under;  /* the world that carries host messages, with equal ranks; NULL: none */
  void *ctx;
};

/* NULL with an error that lists the backends. */
const WorldKind *world_kind(const char *name, weft_error *e);
/* The first row with threads or processes, with or without rendezvous, for this kind of
 * memory. */
const WorldKind *world_default(bool processes, bool meets, bool host);
/* "local, mpi, tcp or nccl" */
const char *world_names(char buf[64]);

/* WEFT_EUSAGE if the backend cannot move this device's memory. */
weft_status world_suits(const WorldKind *k, const DeviceKind *d, weft_error *e);
weft_status world_start(World *w, const WorldKind *k, const weft_alloc *a, int size,
                        const WorldOptions *options, weft_error *e);
/* For Device.arenas; NULL: the device's own memory. */
const DeviceArenas *world_arenas(World *w);
weft_status world_join(World *w, int rank, Device *d, const CommNeeds *needs, Comm *c,
                       weft_error *e);
static inline bool world_has(const World *w, int rank) {
  return rank >= w->rank && rank < w->rank + w->here;
}
/* Host messages. Each has a header, so that missing bytes or those of another message are
 * an error and not an answer. After an error the run has to end: the ranks no longer
 * agree on which message is next. */
CHECKED weft_status world_barrier(World *w, weft_error *e);
CHECKED weft_status world_bcast(World *w, void *p, size_t n, int root, weft_error *e);
CHECKED weft_status world_send(World *w, const void *p, size_t n, int peer,
                               weft_error *e);
CHECKED weft_status world_recv(World *w, void *p, size_t n, int peer, weft_error *e);
/* From now on the supervisor ends all waits; until then each has a deadline. */
void world_watched(World *w);
weft_status world_poll(World *w, weft_error *e);
/* address_exchange.c: opens listening sockets; all processes call it. `host`: of
 * WorldOptions. */
weft_status world_has_addresses(World *w, struct Net *n, const char *host, weft_error *e);
/* A list for net_reach, of at most `size` bytes: the name of this machine and its
 * addresses that others may reach. */
void own_addresses(char *list, size_t size);
/* Takes out of a list what another one has, too; if that is all, nothing. */
void addresses_of_other(char *list, const char *mine);
void world_abort(World *w, int rank, weft_status code, const char *why);
void world_close(World *w); /* one that was never started is fine */

/* local.c, tcp.c, open_world.c */
extern const WorldVtable world_local, world_tcp;
extern const WorldBytes world_local_bytes;
const WorldVtable *world_load_mpi(weft_error *e);
const WorldVtable *world_load_nccl(weft_error *e);

#endif
