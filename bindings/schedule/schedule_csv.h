/* schedule_csv.h - schedules as CSV in PyTorch's notation: a row per pp rank, an action
 * per cell, an empty cell is idle time.
 *
 *   2F0 2I0 2W0 2B0      stage, forward / input gradients / weight gradients / both,
 *                        microbatch
 *   (0F1;3B0)OVERLAP_F_B both at the same time
 *   1UNSHARD 1RESHARD 1REDUCE_GRAD
 *   0SEND_F1 1RECV_F1 1SEND_B1 0RECV_B1, and the ends of such: 0WAIT_SEND_F1 ... */
#ifndef WEFT_SCHEDULE_CSV_H
#define WEFT_SCHEDULE_CSV_H

#include "vm/compile/compile.h"

enum { ACTION_TEXT = 64 };
/* Appends one action of a rank: "2F0". */
void schedule_action_text(const Schedule *s, int rank, const Action *a,
                          char buf[ACTION_TEXT]);
/* Appends a schedule that has passed schedule_check. With `comms` also the transfers: a
 * send follows its action, a receive is where the sender has finished. */
void schedule_csv_write(const Schedule *s, bool comms, Text *out);

/* Reads a table. Numbers of ranks, chunks and microbatches and the placement of stages
 * follow from its cells. Transfers, if there are any, must be complete and in order; they
 * are dropped, because the compiler places transfers itself. Whether the schedule can run
 * is checked by schedule_check. False after diagnostics at lines of `file`, which is kept
 * as Schedule.file, as is the line of each action. */
bool schedule_csv_read(const char *text, const char *file, Schedule *out, Diags *d);

#endif
