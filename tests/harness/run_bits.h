/* run_bits.h - runs a toy for a few steps and keeps its resulting state, for tests that
 * compare runs bit by bit. */
#ifndef WEFT_TEST_TRACE_H
#define WEFT_TEST_TRACE_H

#include "one_rank_pair.h"

enum { STEPS = 3 };

typedef struct Trace {
  double loss[STEPS], norm[STEPS];
  int kinds;
  float *state[3]; /* parameters, states: all of them, one after the other */
  int64_t n;       /* elements of each */
} Trace;

extern weft_error trace_err; /* of the last OK() */

#define OK(call)                                                                         \
  do {                                                                                   \
    trace_err = (weft_error){.rank = -1};                                                \
    weft_status st_ = (call);                                                            \
    ck_assert_msg(st_ == WEFT_OK, "%s: %d: %s", #call, st_, trace_err.text);             \
  } while (0)

/* Compiles the toy and opens a run with initial values. */
void open_toy(Toy *t, const ToyOptions *o, int threads, Run **r);
/* The tokens and labels of step k. */
void random_ids(const Toy *t, int64_t k, int32_t *tokens, int32_t *labels);
void trace_step(Run *r, const Toy *t, int64_t k, StepResult *out);
/* Gathers the state after a step into the toy's arena. */
void read_state(Run *r, Toy *t, Trace *x);
/* Runs all steps and keeps their state; the caller frees the toy. */
void trace(Toy *t, const ToyOptions *o, int threads, Trace *x);
void same_bits(const Trace *a, const Trace *b);
/* Llama-like on tp x pp x dp ranks with four microbatches. */
ToyOptions meshed(int tp, int pp, int dp);

#endif
