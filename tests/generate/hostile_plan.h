/* hostile_plan.h - plans that try to break the sandbox, by number: generated Lua that
 * calls every function with odd values, and mutated plans of the repository. */
#ifndef WEFT_TEST_STRANGE_PLAN_H
#define WEFT_TEST_STRANGE_PLAN_H

#include "vm/base/base.h"

/* Plan `number` of a seed is the same everywhere. */
void strange_plan(uint64_t seed, uint64_t number, Text *out);

/* `weft-tests --plans [N|SECONDSs] [seed]`: loads and compiles plans, twice each, and
 * walks through them in a script. A crash, a leak, a hang, an address in the output or a
 * differing second result is a finding, printed with its seed and plan. Returns the exit
 * code. */
int plans_fuzz(int argc, char **argv);

#endif
