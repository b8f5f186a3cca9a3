/* kernel_cases.h - the cases on which kernels and references are compared: shapes, types
 * and attributes of every op. */
#ifndef WEFT_TESTS_KERNEL_CASES_H
#define WEFT_TESTS_KERNEL_CASES_H

#include "reference_ops.h"

/* The number of the unit that kernels run in, and their place among those with heads. */
enum { KERNEL_UNIT = 3, KERNEL_HEADS = 2 };

/* Operands are written "kind dims kind dims ...", for example "x 2,3,8 w 8":
 *   x activation, w parameter (both of the compute type), f f32, v f32 in (0,1),
 *   h bf16, p bf16 in (0,1), q activation in eighths: sums of two are exact,
 *   d f32 in (-1,0), y f32 of which every third is 0, e f32 that are all 0, m<N> f32
 * around N or 4, b bias-like x, t<N> ids below N, l<N> labels (some ignored), i<N>
 * positions below N, s document starts (B,T), z<N> document starts in the order of N
 * slots, o<N> offsets of experts in N rows, r<N> rows of choices, -1 some, g scalars, k
 * scalars that hold adamw, c scalars of a careful step, u scalars of an early step that
 * was wrong, n of one with an infinite norm,
 *   =<I> (results) the buffer of operand I. */
typedef struct KernelCase {
  int op;
  const char *in, *out;
  OpAttr attr;
  int index;
} KernelCase;
extern const KernelCase kernel_case[];
extern const int kernel_cases;

/* A backward op: its operands in terms of a forward op: x<i> input, y<i> output, d<i>
 * gradient of output i, u the loss seed. `grad` lists the inputs whose gradients are its
 * results; ' ' separated. It is tried on every case of the forward op. */
typedef struct GradCase {
  int op, forward;
  const char *in, *grad;
  bool inverse; /* rope: with the other attr.inverse */
} GradCase;
extern const GradCase grad_case[];
extern const int grad_cases;
/* Whether the gradient is one of such a case: that of sinks needs them. */
bool grad_case_is_of(const GradCase *g, const KernelCase *c);

typedef struct Value {
  char kind;
  int64_t limit;
  int alias; /* operand, or -1 */
  DType type;
  int ndim;
  int64_t dim[MAX_DIM];
  double *v;
} Value;

/* One case with its numbers, all of them exact in their type. */
typedef struct Problem {
  int op;
  OpAttr attr;
  int index, nin, nout;
  Value in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT];
  bool adds; /* a result is a parameter's gradient (accumulates) */
} Problem;

/* A seed for a case that stays the same wherever its row stands among the others. */
uint64_t problem_seed(const KernelCase *c);
void problem_make(Problem *p, const KernelCase *c, DType dtype, uint64_t seed);
/* The backward problem of c; `forward` (may be NULL) gets the forward one. */
void problem_grad(Problem *p, Problem *forward, const GradCase *g, const KernelCase *c,
                  DType dtype, uint64_t seed);
/* Makes the results of a problem that adds, gradients of parameters, of this type. */
void problem_narrow(Problem *p, DType gradients);
void problem_free(Problem *p);
/* The problem as arguments of the reference; results go to the problem's own arrays. */
RefArgs problem_ref(const Problem *p, bool accumulate);
const char *op_title(int op);

#endif
