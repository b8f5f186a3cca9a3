/* op_fp8.h - linears whose operands are rounded to fp8 (vm/base/fp8.h): which elements
 * share a scale, and the ops amax that find it.
 *
 * A product sums over one dimension of each operand: the features of x and of a weight,
 * or the tokens. With one scale an operand (FP8_TENSORWISE) or one for each of its other
 * dimension (FP8_ROWWISE) the result is scaled back after the sum; blocks of 32 along the
 * dimension of the sum (FP8_MX) have powers of two. A scale comes of the largest
 * magnitude, which op amax gives where it is not that of a block: of whatever rank has
 * what, since amax is placed as all ops are, and a maximum of parts is one (PL_MAX).
 *
 * Tokens of other dp ranks are another microbatch, with scales of their own. Where the
 * graph has several of them (one rank that stands for all), they are `groups` of rows. */
#ifndef WEFT_OP_FP8_H
#define WEFT_OP_FP8_H

#include "graph.h"
#include "vm/base/fp8.h"

/* OpAttr.fp8 */
enum { FP8_TENSORWISE = 1, FP8_ROWWISE, FP8_MX };
/* OpAttr.fp8_how. Output gradients are e5m2 unless said; scales are rounded down to
 * powers of two. Of amax: one for each row, or column, of its operand. */
enum { FP8_GRADS_E4M3 = 1, FP8_POWERS = 2, FP8_ROWS = 4, FP8_COLUMNS = 8 };

/* FP8_ROWS, FP8_COLUMNS or 0: what of operand `i` (0 or 1) of linear_fp8, linear_fp8_dx
 * or linear_fp8_dw a scale is for. */
int fp8_kind(int code, const OpAttr *a, int i);

/* Whether such an op sums over the rows of operand `i`, as they are stored: then it has
 * scales of columns, and blocks go down the columns. */
static inline bool fp8_sums_rows(int code, const OpAttr *a, int i) {
  if (code == OP_linear_fp8_dw) return true;
  return i == 1 && (a->layout == 0) != (code == OP_linear_fp8);
}

/* What operand `i` of such an op is rounded to. */
static inline Fp8Type fp8_operand_type(int code, const OpAttr *a, int i) {
  int gradient = code == OP_linear_fp8_dx ? 0 : code == OP_linear_fp8_dw ? 1 : -1;
  return i == gradient && !(a->fp8_how & FP8_GRADS_E4M3) ? FP8_E5M2 : FP8_E4M3;
}

static inline bool is_linear_fp8(int code) {
  return code == OP_linear_fp8 || code == OP_linear_fp8_dx || code == OP_linear_fp8_dw;
}

/* Adds the amax of tensor `t` as operand `i` of an op with this code, for a linear `of`;
 * backward if that is op `fwd`, -1: forward. */
Tid fp8_add_amax(Graph *g, Op of, Oid fwd, int code, int i, Tid t);

#endif
