/* comm_child.h - one process of a world, in which it is a rank: what the tests of every
 * backend of processes let it do. */
#ifndef WEFT_TESTS_COMM_CHILD_H
#define WEFT_TESTS_COMM_CHILD_H

#include <stdbool.h>

#include "vm/comm/world.h"

/* Does what `what` names ("scenes", "cut", "raw", "abort", "die"); true if nothing was
 * wrong. */
bool comm_child(World *w, const char *what);

#endif
