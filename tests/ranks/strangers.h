/* strangers.h - a process that comes to a listening socket as no rank does: many
 * connections at a time that say nothing, something else, half of what is expected, or
 * never stop. */
#ifndef WEFT_TESTS_STRANGERS_H
#define WEFT_TESTS_STRANGERS_H

#include <sys/types.h>

#include "vm/comm/supervisor/rendezvous.h"

typedef struct Strangers {
  pid_t pid;
  int out; /* what the process tells */
} Strangers;

/* As many connections to this port, which stay. Comes back when all are there. `message`:
 * a first message whose hash is wrong, of which some send a half. */
Strangers strangers_begin(int port, int n, const void *message, size_t size);
/* Ends them. False, with why, if one of them was told more than a question and a refusal.
 */
bool strangers_end(Strangers *s, char why[NET_TEXT]);
/* Whether one process may have so many connections here; says so if not. */
bool strangers_fit(int n);

#endif
