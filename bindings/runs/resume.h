/* resume.h - whether a run may go on from a checkpoint. */
#ifndef WEFT_RESUME_H
#define WEFT_RESUME_H

#include "bindings/api/job.h"
#include "vm/ckpt/ckpt.h"

/* The facts that a checkpoint of this job stores: those that processes compare, and
 * others. They are in the arena of `f`. */
weft_status resume_facts(Job *j, const JobFacts *f, const RunFact **out, int *n,
                         weft_error *e);
/* WEFT_EUSAGE if the checkpoint belongs to another run; one error lists all differences.
 * Differences that are allowed are a line each in `notes`. */
weft_status resume_check(const Ckpt *c, const RunFact *fact, int n, Text *notes,
                         weft_error *e);
/* The best evaluation so far, unless those of this run measure something else: by its
 * loss none of them would be the best, or each, and a run might stop at once. `note` says
 * then that it is forgotten; else it is empty. */
BestEval resume_best(const Ckpt *c, const RunFact *fact, int n, char note[200]);
/* Warns of a plan that scales the adapter of a checkpoint otherwise than the run that
 * wrote it: its alpha is in no tensor, nor are those of modules. */
weft_status resume_adapter(Job *j, const Ckpt *c);

#endif
