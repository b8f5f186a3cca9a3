/* resume.h - whether a run may go on from a checkpoint. */
#ifndef WEFT_RESUME_H
#define WEFT_RESUME_H

#include "job.h"
#include "vm/ckpt/ckpt.h"

/* What a checkpoint of this job says of it: the facts, and those that processes need not
 * compare. They lie in the arena of `f`. */
weft_status resume_facts(Job *j, const JobFacts *f, const RunFact **out, int *n,
                         weft_error *e);
/* WEFT_EUSAGE if the checkpoint is of another run; all that is in the way is one error.
 * What else differs is a line each in `notes`. */
weft_status resume_check(const Ckpt *c, const RunFact *fact, int n, Text *notes,
                         weft_error *e);

#endif
