/* schedule_text.h - schedules for tests, written as PyTorch writes them: one row per
 * rank, actions such as 2F0, 1I3 or (0F1;3B0)OVERLAP_F_B separated by commas. */
#ifndef WEFT_TEST_SCHED_TEXT_H
#define WEFT_TEST_SCHED_TEXT_H

#include "vm/compile/compile.h"

/* Rows end with a newline or the string. A stage may appear on any rank: where it does
 * not belong its chunk is -1. */
Schedule sched_text(Arena *a, const char *text, int virtual_stages, int microbatches,
                    bool v_placement);

#endif
