/* move_member.h - what one rank does while a collective, or a transfer between two ranks,
 * is measured; its ranks are threads (move_threads.c) or processes (move_processes.c). */
#ifndef WEFT_MOVE_MEMBER_H
#define WEFT_MOVE_MEMBER_H

#include "calibrate.h"
#include "vm/comm/world.h"

typedef struct MoveMember {
  Device *device; /* these two from the beginning */
  Comm *comm;
  char *in, *out;
  size_t in_bytes, out_bytes;
  int32_t *rows; /* [members] of an exchange of rows: one to each */
  CommOp op;
} MoveMember;

/* Member `i` of the group with this index in the rank's list; a pair is ranks 0 and 1. */
weft_status move_member_open(MoveMember *x, const Bench *b, const WantedMove *w, int i,
                             int group, weft_error *e);
void move_member_close(MoveMember *x);
/* One sample for all rounds: which rank moves the data differs from round to round. */
weft_status move_member_time(MoveMember *x, const Bench *b, const WantedMove *w,
                             double *each, weft_error *e);
/* The processor time of all members, on as many cores as they can use. */
double move_on_all_cores(const Bench *b, double each, int members);

#endif
