/* gradient_sums.h - gradients of single ranks and microbatches, from which suites make by
 * hand what ranks sum; and what holds of any type in which gradients are stored and
 * summed. */
#ifndef WEFT_TESTS_GRADIENT_SUMS_H
#define WEFT_TESTS_GRADIENT_SUMS_H

#include "run_bits.h"

enum { SUM_MICROBATCHES = 4, SUM_RANKS = 4, SUM_STAGES = 4 };

float rounded_to_bf16(float x);
/* All gradients of the first step in f32, one after the other, with only the labels of
 * one rank and microbatch (-1: of all). */
float *gradients_of_part(Run *r, Toy *t, int rank, int mb);
/* A plan of SUM_RANKS data-parallel ranks; `copies`: mesh.dp_replicate. */
ToyOptions sum_options(int stage, int copies, bool defer);
/* Opens one rank of such a plan. */
void sum_open_one(Toy *one, Run **r);
/* The first step of the plan has these gradients, to the bit. */
void sum_is(const ToyOptions *o, const float *want);

/* A plan of tp, pp, dp and dp_replicate as in `mesh`, number i of several. */
ToyOptions sum_on_mesh(const int mesh[4], int i, int stage);
/* Plan i of a suite with a stage of ZeRO. */
typedef ToyOptions SumPlan(int i, int stage);
/* Within a tolerance of one rank, which rounds nothing, with deferred sums and without.
 */
void sum_agrees_with_one_rank(SumPlan *of, int i, double tolerance);
/* The same bits in all stages. */
void sum_changes_no_bit(SumPlan *of, int i);

#endif
