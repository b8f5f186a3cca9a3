/* rendezvous.h - how processes that nobody has connected find each other: all of them
 * come to rank 0, show that they know the same word, and learn where the others are. */
#ifndef WEFT_RENDEZVOUS_H
#define WEFT_RENDEZVOUS_H

#include "net.h"

typedef struct Rendezvous {
  int rank, size;
  const char *addr; /* where rank 0 listens: MASTER_ADDR */
  int port;
  int door;             /* rank 0: a socket that listens there already; else -1 */
  const char *host;     /* under which the others reach this process; NULL: the address of
                           its connection to rank 0 */
  const char *secret;   /* not empty */
  double seconds;       /* until all are there; 0: MEET_S */
  const StopFlag *stop; /* ends all waits, those of `out` too, until it is cleared there;
                           may be NULL */
} Rendezvous;
enum { MEET_S = 25 };

/* All processes call it. WEFT_EUSAGE on all of them if they do not fit together, or not
 * all have come in time; the error says which. WEFT_EINTR if it was stopped. */
weft_status rendezvous(const Rendezvous *m, const weft_alloc *a, Net *out, weft_error *e);

#endif
