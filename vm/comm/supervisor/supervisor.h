/* supervisor.h - connections over which the processes of a run report where their rank
 * is.
 *
 * A thread of each process sends its rank's state several times a second to two hubs:
 * rank 0, and rank 1 in case rank 0 is the one that fails. The acting hub notices a rank
 * that failed, a process that ended, one that does not answer, and a run in which no rank
 * makes progress. It waits a moment to collect where the other ranks are, makes one
 * message of it, and ends the run on all ranks. */
#ifndef WEFT_CONTROL_H
#define WEFT_CONTROL_H

#include "net.h"

/* The state that a rank reports. The host (vm/run) defines what the numbers mean. */
typedef struct RankNote {
  int32_t state, part;
  uint32_t instr; /* index in its program */
  uint64_t ticks; /* grows with every instruction and operation */
  uint64_t nth;   /* number of the operation on its communicator that it waits for */
  int64_t step;
} RankNote;

/* A rank as a hub sees it. */
typedef struct RankSeen {
  RankNote note; /* the last one received */
  bool heard;    /* `note` is valid */
  bool left;     /* the rank finished in order */
  bool lost;     /* its connection is closed */
  double silent; /* seconds since the last note */
} RankSeen;

/* Called by the thread of the supervisor. */
typedef struct SupervisorHost {
  void *ud;
  void (*here)(void *ud, RankNote *out);
  double (*limit)(void *ud); /* seconds that a rank may be silent */
  /* True if no rank has made progress for that long; `why` becomes the message. */
  bool (*stuck)(void *ud, const RankSeen *rank, char *why, size_t size);
  /* Appends "; rank 1 waits in ...", for all ranks but the culprit and finished ones. */
  void (*others)(void *ud, const RankSeen *rank, int culprit, Text *out);
  /* Called once, when the run has ended. `speaks`: this process reports the error. */
  void (*end)(void *ud, int culprit, weft_status code, const char *why, bool speaks);
} SupervisorHost;

typedef struct Supervisor Supervisor;
/* All processes call it. `net` is open. */
weft_status supervisor_start(Supervisor **out, const weft_alloc *a, Net *net,
                             const SupervisorHost *host, weft_error *e);
/* Reports that the run failed here because of rank `culprit`. Returns once all ranks have
 * been notified, or after a few seconds. */
void supervisor_fail(Supervisor *c, int culprit, weft_status code, const char *why);
/* Both after success and after a failure. NULL is allowed. */
void supervisor_close(Supervisor *c);

#endif
