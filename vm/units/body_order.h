/* body_order.h - the order of the instructions of a body. */
#ifndef WEFT_BODY_ORDER_H
#define WEFT_BODY_ORDER_H

#include "units.h"

/* What an instruction touches, as numbers that are equal for one storage. */
typedef int64_t (*StorageOf)(void *ud, const CodeInstr *x, int operand);

enum { ORDER_MOST = 1024 };
/* The `n` instructions of a body with its collectives started as early and waited for as
 * late as the data allows, kernels that need none of those under way first, of those that
 * are at most `window` places behind the first one left. Results are the same bits: what
 * depends on each other stays in order. `out` has room for 2 * n; returns how many there
 * are. Bodies without collectives, or of more than ORDER_MOST, are for others. */
int body_order(Arena *a, const CodeInstr *at, int n, int window, StorageOf storage, void *ud,
               CodeInstr *out);

#endif
