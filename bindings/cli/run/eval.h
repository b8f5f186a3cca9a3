/* eval.h - shared by the files of weft eval. */
#ifndef WEFT_CLI_EVAL_H
#define WEFT_CLI_EVAL_H

#include "bindings/cli/cli.h"
#include "processes.h"
#include "vm/ckpt/ckpt.h"

typedef struct Evaluation {
  Job job;
  const Cli *cli;
  Processes ranks;
  Session session;
  Ckpt *ckpt;       /* NULL: the session has the weights */
  const char *name; /* of the checkpoint; NULL */
  int64_t batches;
  StepResult result;
  const char *written; /* by --reference: the file, */
  int64_t rows[2];     /* how many sequences for training and validation it has, */
  double mean[2];      /* and the means of their losses */
} Evaluation;

/* Opens the run of a compiled job whose data and weights are open. */
weft_status eval_open_run(Evaluation *v);

/* eval_reference.c: weft eval --reference, of a job that is loaded, with its mesh. */
weft_status eval_reference(Evaluation *v);
void eval_reference_json(Json *out, void *ud);

#endif
