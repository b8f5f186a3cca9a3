/* one_rank_pair.h - a toy on its mesh and on one rank, for tests that compare both
 * runs. */
#ifndef WEFT_TEST_PAIR_H
#define WEFT_TEST_PAIR_H

#include "tests/generate/small_llama.h"
#include "vm/session/verify.h"

/* Compiles; fails the test if that fails. */
void toy_compiles(Toy *t, const ToyOptions *o);

typedef struct Pair {
  Toy many, one;
  VerifyReport report;
} Pair;

/* Compiles both; fails the test if that fails, or if the prover refuses a program. */
void pair_compile(Pair *p, const ToyOptions *o);
/* The same logical microbatches on one rank. */
ToyOptions pair_alone(const ToyOptions *o);
/* Runs both and fills `report`; fails the test if they cannot run. */
void pair_verify(Pair *p, int steps, double tolerance);
void pair_free(Pair *p);
/* All of the above; fails the test unless both agree within 1e-5 for two steps. */
void pair_agrees(const ToyOptions *o);

/* Every diagnostic, one per line: "error tp-plan tp_plan: text; suggestion". */
const char *toy_diags(Toy *t);

#endif
