/* lone_comm.h - the communicator of a rank that runs without the others: it gets at once
 * what it gives itself, in as many pieces as there are members, and from other pipeline
 * ranks small numbers. So values are of the size that they have in a step, and memory is
 * written where it is written there. */
#ifndef WEFT_LONE_COMM_H
#define WEFT_LONE_COMM_H

#include "vm/rank/rank.h"

/* `needs` has to outlive it. */
weft_status lone_comm_open(Comm *c, int rank, int size, const CommNeeds *needs,
                           weft_error *e);
void lone_comm_close(Comm *c);

#endif
