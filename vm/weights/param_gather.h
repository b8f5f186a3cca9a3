/* param_gather.h - parameters of a run as wholes: initial values, gathering, scattering.
 */
#ifndef WEFT_PARAM_GATHER_H
#define WEFT_PARAM_GATHER_H

#include "vm/run/run.h"

/* Initial values by name and global index: the same bits for every mesh. The moments of
 * the optimizer become zero, as in run_load. */
weft_status run_init(Run *r, weft_error *e);
/* Whether any rank keeps this of a parameter; if not, run_get gives 0. */
bool run_keeps(const Compiled *c, StateKind k, int param);
/* Gathers one logical parameter (or its gradient, after the last step; before clipping)
 * in its global shape. Every process takes part; `out` and `in` are those of rank 0. */
weft_status run_get(Run *r, StateKind k, int param, float *out, weft_error *e);
weft_status run_set(Run *r, StateKind k, int param, const float *in, weft_error *e);
/* The largest distance (L2) of what any local rank holds of a gathered parameter from it,
 * the copy that ops read too. Replicas hold the same bits, so it is 0 unless a collective
 * is missing. */
weft_status run_apart(Run *r, StateKind k, int param, float *global, double *out,
                      weft_error *e);

#endif
