/* rendezvous.h - how processes that no launcher library has connected find each other:
 * all of them connect to rank 0, prove that they know the same secret, and receive the
 * addresses of all ranks. */
#ifndef WEFT_RENDEZVOUS_H
#define WEFT_RENDEZVOUS_H

#include "net.h"

typedef struct Rendezvous {
  int rank, size;
  const char *addr; /* where rank 0 listens: MASTER_ADDR */
  int port;
  int door;             /* rank 0: a socket that listens there (taken over), or -1 */
  const char *host;     /* host name or address at which other ranks reach this process;
                         * NULL: the address of its connection to rank 0 */
  const char *secret;   /* not empty */
  double seconds;       /* timeout until all processes have joined; 0: MEET_S */
  const StopFlag *stop; /* ends all waits here and later ones of `out`, until the caller
                         * clears it there; may be NULL */
} Rendezvous;
enum { MEET_S = 25 };

/* All processes call it. WEFT_EUSAGE on all of them if their settings do not fit together
 * or some did not join in time; the error says which. WEFT_EINTR if it was stopped. */
weft_status rendezvous(const Rendezvous *m, const weft_alloc *a, Net *out, weft_error *e);

#endif
