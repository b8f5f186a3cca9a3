/* forked_ranks.h - runs a function in child processes that rendezvous on this machine,
 * and captures their output. */
#ifndef WEFT_TESTS_FORKED_H
#define WEFT_TESTS_FORKED_H

#include "vm/comm/supervisor/rendezvous.h"

enum { FORKED_MOST = 8 };

typedef struct Forked {
  int code[FORKED_MOST]; /* of exit; 128 + n if signal n ended it */
  char text[16384];      /* all that was printed */
} Forked;

/* `fn` gets the rendezvous and the rank; true gives exit code 0. Checks nothing
 * itself. */
Forked forked(int n, bool (*fn)(const Rendezvous *m, const void *arg), const void *arg);

#endif
