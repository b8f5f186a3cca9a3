/* comm_cases.h - scenarios that every backend must pass, run by each rank of a world. */
#ifndef WEFT_TESTS_COMM_CASES_H
#define WEFT_TESTS_COMM_CASES_H

#include "comm_world.h"

typedef struct Scenario {
  const char *name;
  void (*fn)(Peer *p);
  Setup setup; /* the caller sets n: a power of two, at least 2 */
} Scenario;

enum { SCENARIOS = 10 };
extern const Scenario scenario[SCENARIOS];

/* Every collective, type, size and placement against a naive reference; any n. */
void all_cases(Peer *p);

typedef struct Case {
  CollKind coll;
  RedOp red;
  DType dtype;
  uint64_t count;
  bool in_place;
} Case;
void case_input(const Case *k, int n, int member, void *in);
/* True if the whole output is right: bit-exact, or within the rounding of sums in any
 * order. */
bool case_matches(const Case *k, int n, int member, const void *out, bool exact);

#endif
