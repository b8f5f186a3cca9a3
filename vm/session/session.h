/* session.h - a training session: a run with the data and weights that it reads, and the
 * one loop over its steps. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include "vm/run/run.h"

typedef struct Session {
  Run *run;
  Data *data;           /* NULL: none yet; session_close closes it */
  Data *val;            /* for evaluations, or NULL; closed likewise */
  SafeTensors *weights; /* NULL: initial values come from the seed; closed likewise */
  int64_t step;         /* the next one */
  /* NULL: values come from the weights or the seed. Else this sets them, and the moments.
   */
  weft_status (*fill)(void *ud, Run *run, weft_error *e);
  void *fill_from;
  int64_t eval_every, eval_batches; /* of the plan */
} Session;

/* Opens the run of a session that has its data and weights, and fills the parameters.
 * After an error session_close is called as well. */
weft_status session_open(Session *s, const Plan *p, const Compiled *c,
                         const RunOptions *o, weft_error *e);
/* Parameters from the weights, or from the seed without; the moments become zero. */
weft_status session_fill(Session *s, weft_error *e);
/* What follows a step: reports, and later evaluations and checkpoints. An error ends the
 * loop. */
typedef weft_status (*SessionAfter)(void *ud, const StepResult *r, weft_error *e);
/* Steps until `end` is the next one. Ends with WEFT_EINTR between two steps once `stop`
 * (may be NULL) is set, with WEFT_ERUN after one whose loss is not finite. */
weft_status session_train(Session *s, int64_t end, const StopFlag *stop,
                          SessionAfter after, void *ud, weft_error *e);
/* `failed`: this process ends, and other ranks may never arrive (run_abandon). */
void session_close(Session *s, bool failed);

#endif
