/* ckpt_save.h - saves checkpoints while a run continues.
 *
 * A save begins with a copy of the state, for which the steps wait. A thread of each
 * process then writes the files of its ranks; when all processes have finished, one of
 * them writes the manifest and renames the folder. Processes exchange their progress
 * after each step, so no step waits for a disk: only the next save waits for the one
 * before. If a step ends the run with an error that all processes have found, they finish
 * the save in progress first (run_before_end).
 *
 * A failed save does not end a run: it is reported, and earlier checkpoints stay. But a
 * run whose last save has failed ends with an error. */
#ifndef WEFT_CKPT_SAVE_H
#define WEFT_CKPT_SAVE_H

#include "ckpt_store.h"

typedef struct SaverOptions {
  const Plan *plan;      /* borrowed, like all pointers here */
  const char *plan_text; /* content of the plan's file */
  const char *mesh;      /* "pp=2 tp=2" */
  const RunFact *fact;   /* facts that another run has to share to resume from it */
  int nfact;
  const Ckpt *from; /* the checkpoint that the run resumes from, or NULL */
  int64_t end;      /* first step that is not taken: at it the last save is due */
  /* Exports the weights of a checkpoint (plan->checkpoint.consolidated) to a new folder
   * `name`; called by a thread of the first process. NULL: no export. */
  weft_status (*weights)(void *ud, const char *ckpt, const Dir *in, const char *name,
                         weft_error *e);
  /* Reports warnings and news, one line each. */
  void (*say)(void *ud, bool warning, const char *text);
  void *ud;
} SaverOptions;

typedef struct Saver Saver;
/* Before the first step, by all processes. Removes what interrupted runs left.
 * WEFT_EUSAGE if the folder has checkpoints of another run, or another run writes
 * there. */
weft_status saver_open(Run *r, const SaverOptions *o, Saver **out, weft_error *e);
/* After each step, by all processes: `next` is the following step, `signal` the signal
 * that this process received, 0: none. Saves if a save is due. */
weft_status saver_step(Saver *s, const StepResult *r, int64_t next, int signal,
                       weft_error *e);
/* Set once a process has received a signal before the last step and the state is saved:
 * for session_train. */
const StopFlag *saver_stop(const Saver *s);
/* Saves now, by all processes, and waits until it is written. `best`: the best evaluation
 * so far. WEFT_EFILE, on all processes, if it was not; earlier ones stay. */
weft_status saver_now(Saver *s, int64_t next, const BestEval *best, weft_error *e);
/* Other facts for the checkpoints from here on; no save may be in progress. */
void saver_facts(Saver *s, const RunFact *fact, int n);
/* Waits for a save in progress. */
weft_status saver_finish(Saver *s, weft_error *e);
/* After saver_finish: WEFT_ERUN with the reason if the last save failed, on all
 * processes. */
weft_status saver_lost(const Saver *s, weft_error *e);
/* Without waiting for other processes. May be NULL. */
void saver_close(Saver *s);
/* True while a thread of this process writes. */
bool saver_writes(const Saver *s);
/* Seconds for which steps have waited for copies and saves (benchmarks). */
double saver_paused(const Saver *s);
RankFile *saver_disk(Saver *s); /* tests */

#endif
