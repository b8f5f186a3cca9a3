/* one_rank_pair.h - a toy and its run on one rank, for tests that compare the two. */
#ifndef WEFT_TEST_PAIR_H
#define WEFT_TEST_PAIR_H

#include "tests/generate/small_llama.h"
#include "vm/session/verify.h"

/* Compiles; the test fails if that does. */
void toy_compiles(Toy *t, const ToyOptions *o);

typedef struct Pair {
  Toy many, one;
  VerifyReport report;
} Pair;

/* Compiles both; the test fails if that does, or if the prover refuses a program. */
void pair_compile(Pair *p, const ToyOptions *o);
/* The same logical microbatches on one rank. */
ToyOptions pair_alone(const ToyOptions *o);
/* Runs both and fills `report`; the test fails if they cannot run. */
void pair_verify(Pair *p, int steps, double tolerance);
void pair_free(Pair *p);
/* All of the above; the test fails unless the two agree within 1e-5 for two steps. */
void pair_agrees(const ToyOptions *o);

/* Every diagnostic, one a line: "error tp-plan tp_plan: text; suggestion". */
const char *toy_diags(Toy *t);

#endif
