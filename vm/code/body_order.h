/* body_order.h - the order of a body's instructions: collectives start early and overlap
 * with independent kernels, within a limit of workspace. Dependent instructions keep
 * their order. */
#ifndef WEFT_BODY_ORDER_H
#define WEFT_BODY_ORDER_H

#include "body_code.h"

typedef struct OrderHooks {
  void *ud;
  /* A number for the storage of an operand: equal for the same storage. */
  int64_t (*storage)(void *ud, const CodeInstr *x, int operand);
  /* The duration of a kernel, or of a collective on an idle communicator. */
  double (*seconds)(void *ud, const CodeInstr *x);
} OrderHooks;

enum { ORDER_MOST = 1024 };
typedef struct BodyOrder BodyOrder;
/* Finds the dependences between the `n` instructions of a body; WAITs are left out. The
 * body must not have more than ORDER_MOST. */
BodyOrder *body_order_begin(Arena *a, const CodeInstr *at, int n, const OrderHooks *h);
/* How far ahead of the first remaining instruction a kernel or a collective may be taken.
 */
typedef struct Reach {
  int kernels, transfers;
} Reach;
/* Writes the instructions with collectives started as early and waited for as late as
 * data dependences allow. Results have the same bits. `out` has room for 2 * n; returns
 * the number. */
int body_order(BodyOrder *o, Reach reach, CodeInstr *out);

#endif
