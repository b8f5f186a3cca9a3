/* strangers.h - a process that connects to a listening socket without being a rank: many
 * connections at a time that send nothing, garbage, half of a message, or endless
 * data. */
#ifndef WEFT_TESTS_STRANGERS_H
#define WEFT_TESTS_STRANGERS_H

#include <sys/types.h>

#include "vm/comm/supervisor/rendezvous.h"

typedef struct Strangers {
  pid_t pid;
  int out; /* reads the process's result */
} Strangers;

/* Opens n connections to this port and keeps them; returns when all exist. `message`: a
 * first message with a wrong HMAC, of which some send half. */
Strangers strangers_begin(int port, int n, const void *message, size_t size);
/* Ends them. False, with the reason, if one of them received more than a question and a
 * refusal. */
bool strangers_end(Strangers *s, char why[NET_TEXT]);
/* True if a process may open this many connections here; prints a reason if not. */
bool strangers_fit(int n);

#endif
