/* run_ckpt.h - checkpoints of weft run: resume, save, signals. */
#ifndef WEFT_RUN_CKPT_H
#define WEFT_RUN_CKPT_H

#include "bindings/cli/cli.h"
#include "bindings/runs/export_folder.h"
#include "vm/ckpt/ckpt_save.h"
#include "vm/session/session.h"

typedef struct RunCkpt {
  const Cli *cli;
  Job *job;
  bool first;                  /* this process reports */
  void (*make_room)(void *ud); /* called before something is printed */
  void (*warn)(void *ud, const char *text);
  void *ud;
  Ckpt *from;           /* NULL: the run does not resume */
  Saver *saver;         /* NULL: the plan saves no checkpoints */
  ExportFolder weights; /* files beside the weights of save_consolidated */
  const RunFact *fact;  /* of this run */
  int nfact;
  Run *run;
  int64_t end;   /* of its steps */
  StopFlag stop; /* without a saver: the signal that one of the processes was sent */
  int signal;    /* the signal that has ended the run in order: after a step on all ranks,
                  * whose state is saved; 0: none */
  bool lost;     /* no step has failed, but the last checkpoint could not be written */
  char *plan_text;
  size_t plan_bytes;
} RunCkpt;

/* Finds the checkpoint that --resume names, checks that this run may resume from it, and
 * sets the session's first step. Adds a fact about it. */
weft_status run_ckpt_find(RunCkpt *r, Session *s, JobFacts *f);
/* To be called after the session was opened. */
weft_status run_ckpt_begin(RunCkpt *r, Session *s, int64_t end);
/* After each step. */
weft_status run_ckpt_step(RunCkpt *r, const StepResult *step, int64_t next);
/* The flag that ends the loop over steps, on all processes after the same one; a signal
 * in the last step cuts nothing short, and does not set it. */
const StopFlag *run_ckpt_stop(const RunCkpt *r);
/* Waits until a checkpoint in progress is written, unless the run has failed. WEFT_ERUN
 * if the last one could not be written: then `lost` is set and all processes end in
 * order. */
weft_status run_ckpt_end(RunCkpt *r, weft_status st);

#endif
