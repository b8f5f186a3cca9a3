/* collective_counts.h - builds tp_plans from the usual rules and counts the collectives
 * that result. */
#ifndef WEFT_TESTS_PLACED_H
#define WEFT_TESTS_PLACED_H

#include "tests/harness/one_rank_pair.h"

#define QKVO                                                                             \
  {"layers.*.self_attn.q_proj", STYLE_COLWISE, true, 0},                                 \
      {"layers.*.self_attn.k_proj", STYLE_COLWISE, true, 0},                             \
      {"layers.*.self_attn.v_proj", STYLE_COLWISE, true, 0}, {                           \
    "layers.*.self_attn.o_proj", STYLE_ROWWISE, true, 0                                  \
  }
#define MLP                                                                              \
  {"layers.*.mlp.gate_proj", STYLE_COLWISE, true, 0},                                    \
      {"layers.*.mlp.up_proj", STYLE_COLWISE, true, 0}, {                                \
    "layers.*.mlp.down_proj", STYLE_ROWWISE, true, 0                                     \
  }
#define TABLE                                                                            \
  { "embed_tokens", STYLE_EMBEDDING_ROWWISE, true, 0 }
#define HEAD                                                                             \
  { "lm_head", STYLE_COLWISE, true, 0 }

#define WITH_RULES(o, ...)                                                               \
  const TpRule rules_[] = {__VA_ARGS__};                                                 \
  (o).rules = rules_, (o).nrules = LEN(rules_)

typedef struct CollCounts {
  int n[COLL_N]; /* by CollKind */
  int bodies;    /* that were looked at */
} CollCounts;

/* Adds the collectives of n instructions from `first` on; comm NULL: on any
 * communicator. */
void collectives_count(const Program *p, uint32_t first, uint32_t n, const char *comm,
                       CollCounts *c);
/* Counts those in the bodies with this name ("layer:F"). */
CollCounts collectives_in(const Program *p, const char *name, const char *comm);
/* Fails the test unless there are so many. */
void collectives_are(const CollCounts *c, const char *what, int reduce, int gather,
                     int scatter);
/* Checks the only body of this name on the first pp rank. */
void body_has(const Toy *t, const char *name, int reduce, int gather, int scatter);

#endif
