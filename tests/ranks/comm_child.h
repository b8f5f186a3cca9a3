/* comm_child.h - one process of a world that is one of its ranks, for the tests of all
 * backends with processes. */
#ifndef WEFT_TESTS_COMM_CHILD_H
#define WEFT_TESTS_COMM_CHILD_H

#include <stdbool.h>

#include "vm/comm/world.h"

/* Runs the scenarios named `what` ("scenes", "cut", "raw", "abort", "die"); true if no
 * error was found. */
bool comm_child(World *w, const char *what);

#endif
