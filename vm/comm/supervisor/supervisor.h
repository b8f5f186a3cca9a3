/* supervisor.h - how processes of a run know of each other while they wait.
 *
 * Every process has a thread that says several times a second where its rank is, to two
 * hubs: rank 0, and rank 1 in case that it is rank 0 that fails. The hub notices who has
 * failed, whose process has ended, who does not answer, and that nobody gets anywhere.
 * It waits for a moment, so that it knows where the others have come to, makes one
 * message of all that, and ends the run on all of them. */
#ifndef WEFT_CONTROL_H
#define WEFT_CONTROL_H

#include "net.h"

/* What a rank says of itself; what the numbers mean is the host's business. */
typedef struct RankNote {
  int32_t state, part;
  uint32_t instr; /* index in its program */
  uint64_t ticks; /* grows with all that it does */
  uint64_t nth;   /* of the operation on its communicator that it waits for */
  int64_t step;
} RankNote;

/* A rank as the hub knows it. */
typedef struct RankSeen {
  RankNote note; /* the last one */
  bool heard;    /* there is one */
  bool left;     /* it has come to its end in order */
  bool lost;     /* its connection is closed */
  double silent; /* seconds since the last one */
} RankSeen;

/* Called by the thread of the supervisor. */
typedef struct SupervisorHost {
  void *ud;
  void (*here)(void *ud, RankNote *out);
  double (*limit)(void *ud); /* seconds for which a rank need not answer */
  /* Whether no rank has got anywhere for that long. */
  bool (*stuck)(void *ud, const RankSeen *rank, char *why, size_t size);
  /* "; rank 1 waits in ...", of all ranks but the culprit and those that left. */
  void (*others)(void *ud, const RankSeen *rank, int culprit, Text *out);
  /* The run has ended; `speaks`: this process is to tell why. Once. */
  void (*end)(void *ud, int culprit, weft_status code, const char *why, bool speaks);
} SupervisorHost;

typedef struct Supervisor Supervisor;
/* All processes call it; `net` is open. */
weft_status supervisor_start(Supervisor **out, const weft_alloc *a, Net *net,
                             const SupervisorHost *host, weft_error *e);
/* The run has failed here, because of `culprit`. Comes back when all have been told, or
 * after a few seconds. */
void supervisor_fail(Supervisor *c, int culprit, weft_status code, const char *why);
/* After a run that went well on this process, and else. NULL is allowed. */
void supervisor_close(Supervisor *c);

#endif
