/* ckpt_save.h - saving while a run goes on.
 *
 * A save begins with a copy of the state, for which the steps wait. A thread of each
 * process then writes the files of its ranks; when all processes are through, one of them
 * writes the manifest and gives the folder its name. What processes tell each other they
 * do after a step, so that no step waits for a disk: only the next save waits for the one
 * before.
 *
 * That a checkpoint could not be written does not end a run: it is said, and what there
 * was before stays. But a run whose last one was not written has not gone well. */
#ifndef WEFT_CKPT_SAVE_H
#define WEFT_CKPT_SAVE_H

#include "ckpt_store.h"

typedef struct SaverOptions {
  const Plan *plan;      /* with its checkpoint field; borrowed, as all here */
  const char *plan_text; /* of its file */
  const char *mesh;      /* "pp=2 tp=2" */
  const RunFact *fact;   /* what another run must have in common with this one */
  int nfact;
  const Ckpt *from; /* what the run goes on from, or NULL */
  int64_t end;      /* the step that is not taken any more: the last save */
  /* Writes the weights of a checkpoint for others (plan->checkpoint.consolidated) to a
   * new folder `name`, called by a thread of the first process; NULL: does not. */
  weft_status (*weights)(void *ud, const char *ckpt, const Dir *in, const char *name,
                         weft_error *e);
  /* Warnings and news, a line each. */
  void (*say)(void *ud, bool warning, const char *text);
  void *ud;
} SaverOptions;

typedef struct Saver Saver;
/* Before the first step, by all processes. Cleans up what other runs left. WEFT_EUSAGE if
 * the folder has checkpoints of another run, or another one writes there now. */
weft_status saver_open(Run *r, const SaverOptions *o, Saver **out, weft_error *e);
/* After each step, by all processes: `next` is the step after it. `signal` is what this
 * process was told to end with, 0: nothing. Saves if one is due. */
weft_status saver_step(Saver *s, const StepResult *r, int64_t next, int signal,
                       weft_error *e);
/* Set once some process was told to end and the state is saved: for session_train. */
const StopFlag *saver_stop(const Saver *s);
/* Waits for a save that is under way. */
weft_status saver_finish(Saver *s, weft_error *e);
/* WEFT_ERUN if the last save has left no checkpoint, with the reason; the same on all
 * processes. After saver_finish. */
weft_status saver_lost(const Saver *s, weft_error *e);
/* Without waiting for other processes. May be NULL. */
void saver_close(Saver *s);
/* A thread of this process writes. */
bool saver_writes(const Saver *s);
/* Steps have stopped for so long, in seconds, copies and waits (benchmarks). */
double saver_paused(const Saver *s);
RankFile *saver_disk(Saver *s); /* tests */

#endif
