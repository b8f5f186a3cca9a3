/* run_ckpt.h - checkpoints of weft run: resume, save, signals. */
#ifndef WEFT_RUN_CKPT_H
#define WEFT_RUN_CKPT_H

#include "bindings/cli/cli.h"
#include "bindings/cli/data/export.h"
#include "vm/ckpt/ckpt_save.h"
#include "vm/session/session.h"

typedef struct RunCkpt {
  const Cli *cli;
  Job *job;
  bool first;                  /* this process speaks */
  void (*make_room)(void *ud); /* before something is printed */
  void *ud;
  Ckpt *from;           /* NULL: the run begins */
  Saver *saver;         /* NULL: the plan writes none */
  ExportFolder weights; /* what is beside them in the folders of save_consolidated */
  const RunFact *fact;  /* of this run */
  int nfact;
  int signal; /* that has ended the run, its state saved; 0: none */
  bool lost;  /* the run has gone well, but its last checkpoint was not written */
  char *plan_text;
  size_t plan_bytes;
} RunCkpt;

/* Finds what --resume names, sees that this run may go on from it, and lets the session
 * begin there. The facts get one about it. */
weft_status run_ckpt_find(RunCkpt *r, Session *s, JobFacts *f);
/* After the session was opened. */
weft_status run_ckpt_begin(RunCkpt *r, Session *s, int64_t end);
/* After each step. */
weft_status run_ckpt_step(RunCkpt *r, const StepResult *step, int64_t next);
/* What ends the loop over steps. */
const StopFlag *run_ckpt_stop(const RunCkpt *r);
/* Waits for what is being written, unless the run has failed. WEFT_ERUN if that is not
 * there in the end: `lost`, and all processes end in order. */
weft_status run_ckpt_end(RunCkpt *r, weft_status st);

#endif
