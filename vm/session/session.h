/* session.h - a training session: a run with its data and weights, and the loop over
 * steps. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include "vm/run/run.h"

typedef struct Session {
  Run *run;
  Data *data;           /* NULL: not opened yet; closed by session_close */
  Data *val;            /* for evaluations, or NULL; closed likewise */
  SafeTensors *weights; /* NULL: initial values come from the seed; closed likewise */
  int64_t step;         /* the next step */
  /* Sets parameters and optimizer states, as from a checkpoint. NULL: from weights or
   * seed. */
  weft_status (*fill)(void *ud, Run *run, weft_error *e);
  void *fill_from;
  int64_t eval_every, eval_batches, patience, check_every; /* from the plan */
  double min_delta;
  BestEval best; /* set before session_train for a run that is resumed */
  bool stopped;  /* by early stopping */
} Session;

/* Opens the run of a session whose data and weights are set, and fills the parameters.
 * session_close must be called even after an error. */
weft_status session_open(Session *s, const Plan *p, const Compiled *c,
                         const RunOptions *o, weft_error *e);
/* Fills parameters from the weights or, without weights, from the seed; zeroes optimizer
 * states. */
weft_status session_fill(Session *s, weft_error *e);
/* Where the plan wants it after this many steps: run_check_replicas. */
weft_status session_check_replicas(Session *s, int64_t steps, weft_error *e);
/* Called after each step, for reports, evaluations and checkpoints. An error ends the
 * loop. */
typedef weft_status (*SessionAfter)(void *ud, const StepResult *r, weft_error *e);
/* Trains until `end` is the next step. Returns WEFT_EINTR between two steps once `stop`
 * (may be NULL) is set, and WEFT_ERUN after a step whose loss is not finite. */
weft_status session_train(Session *s, int64_t end, const StopFlag *stop,
                          SessionAfter after, void *ud, weft_error *e);
/* `failed`: this process exits while other ranks may still wait for it (run_abandon). */
void session_close(Session *s, bool failed);

#endif
