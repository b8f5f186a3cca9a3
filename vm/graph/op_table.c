/* op_table.c - the table of op rules, from ops.def; which results may lie over operands.
 */
#include "rules.h"

const OpInfo op_info[OP_N] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc)                               \
  {#name, nin, nout, infer, grad, cost, doc},
#include "ops.def"
};

const OpPlace op_place[] = {
#define OVER(op, result, operand, when) {OP_##op, result, operand, false, PLACE_##when},
#define TWICE(op, result, other)        {OP_##op, result, other, true, PLACE_STEP},
#include "in_place.def"
};
const int op_places = LEN(op_place);

bool op_place_is(const OpPlace *p, int code, const OpAttr *a) {
  return p->op == code && (p->when != PLACE_LATER || a->step > 0);
}

int op_parse(const char *name) {
  for (int i = 0; i < OP_N; i++)
    if (strcmp(op_info[i].name, name) == 0) return i;
  return -1;
}
