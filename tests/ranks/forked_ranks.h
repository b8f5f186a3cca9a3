/* forked_ranks.h - runs a function in processes of their own that meet on this machine,
 * and catches what they say. */
#ifndef WEFT_TESTS_FORKED_H
#define WEFT_TESTS_FORKED_H

#include "vm/comm/supervisor/rendezvous.h"

enum { FORKED_MOST = 8 };

typedef struct Forked {
  int code[FORKED_MOST]; /* of exit; 128 + n if signal n ended it */
  char text[16384];      /* all that was printed */
} Forked;

/* `fn` gets where to meet, with the rank; true is exit code 0. Checks nothing. */
Forked forked(int n, bool (*fn)(const Rendezvous *m, const void *arg), const void *arg);

#endif
