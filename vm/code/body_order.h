/* body_order.h - the order of a body's instructions: collectives early, independent
 * kernels beside them, within a limit of workspace. Dependences keep their order. */
#ifndef WEFT_BODY_ORDER_H
#define WEFT_BODY_ORDER_H

#include "body_code.h"

typedef struct OrderHooks {
  void *ud;
  /* What an instruction touches, as numbers that are equal for one storage. */
  int64_t (*storage)(void *ud, const CodeInstr *x, int operand);
  /* What a kernel takes, or a collective by itself. */
  double (*seconds)(void *ud, const CodeInstr *x);
} OrderHooks;

enum { ORDER_MOST = 1024 };
typedef struct BodyOrder BodyOrder;
/* What depends on what in the `n` instructions of a body, waits left out. Bodies of more
 * than ORDER_MOST are for others. */
BodyOrder *body_order_begin(Arena *a, const CodeInstr *at, int n, const OrderHooks *h);
/* How far an order reaches: to kernels, and to collectives, that are at most so many
 * places behind the first one left. */
typedef struct Reach {
  int kernels, transfers;
} Reach;
/* The instructions with collectives started as early and waited for as late as the data
 * allows, and kernels beside them. Results are the same bits: what depends on each other
 * stays in order. `out` has room for 2 * n; returns how many there are. */
int body_order(BodyOrder *o, Reach reach, CodeInstr *out);

#endif
