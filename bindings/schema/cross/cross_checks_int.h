/* cross_checks_int.h - what the rules between fields, model and mesh share. */
#ifndef WEFT_CROSS_CHECKS_INT_H
#define WEFT_CROSS_CHECKS_INT_H

#include "bindings/schema/schema.h"

typedef struct Cross {
  lua_State *L;
  LangPlan *lp;
  const Plan *plan;
  const Mesh *mesh;
  Diags *d;
} Cross;

/* strategy_checks.c: what the data-parallel strategy does not go with. */
void check_strategy(const Cross *c);
void check_offload(const Cross *c);

#endif
