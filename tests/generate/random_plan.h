/* random_plan.h - small legal plans by number: model, mesh, styles, schedule and batch
 * are drawn from a counter-based generator, so plan N is the same everywhere. */
#ifndef WEFT_TEST_RANDOM_PLAN_H
#define WEFT_TEST_RANDOM_PLAN_H

#include "vm/run/run.h"
#include "vm/session/verify.h"

/* The library's schedules, and the condition of each on the number of microbatches. */
enum { NEEDS_NOTHING, NEEDS_RANKS, NEEDS_TWICE, NEEDS_ROUNDS };
typedef struct SchedulePick {
  const char *name;
  int chunks; /* per rank; 3: any number */
  int needs;
} SchedulePick;
enum { SCHEDULES = 11 };
extern const SchedulePick schedule_picks[];
bool schedule_takes(const SchedulePick *s, int ranks, int chunks, int m);

typedef struct RandomPlan {
  int tp, pp, dp, cp, micro, microbatches, virtual_stages;
  const char *schedule;
  bool sp;
  bool blocks;           /* an adapter's base is stored in 4 bits */
  int head_ranks;        /* cp ranks that exchange heads */
  char context[64];      /* the field cp */
  const char *recompute; /* as in the plan */
  char text[49152];      /* the plan file */
} RandomPlan;

void random_plan(uint64_t seed, uint64_t number, RandomPlan *out);
/* The same plan with all numbers in f32: for comparisons that see less than what another
 * order of sums does to 16 bits. */
void random_plan_in_f32(RandomPlan *p);
int random_ranks(const RandomPlan *p);
/* A plan whose modules have random styles, which need not be legal, and whose model may
 * be one of random_model.lua. */
void styled_plan(uint64_t seed, uint64_t number, RandomPlan *out);

/* The text of plan `number` of models with experts or latent attention
 * (random_experts.lua). */
void experts_plan(uint64_t number, Text *t);

/* Compiles the plan and its copy for one rank and compares `steps` steps. What is wrong
 * with the plan, or differs first, is added to `report`. */
weft_status plan_parity(const char *plan, int steps, double tolerance, VerifyReport *r,
                        Text *report);

/* The same with `data` added to train.seed: other initial values and tokens. */
weft_status plan_parity_with(const char *plan, uint64_t data, int steps, double tolerance,
                             VerifyReport *r, Text *report);

/* Writes plan `number`, compiles it and its one-rank twin, and compares `steps` steps.
 * True if they agree within `tolerance`; `report` says what was run and what differs. */
bool parity_holds(uint64_t seed, uint64_t number, int steps, double tolerance,
                  Text *report);

/* The same on a device and with these options; the one rank is the CPU's. */
bool parity_holds_on(const DeviceKind *device, const RunOptions *options, uint64_t seed,
                     uint64_t number, int steps, double tolerance, Text *report);

/* The same for plan `number` of models with experts or latent attention, over ep and etp,
 * too (random_experts.lua). */
bool experts_hold(uint64_t number, int steps, double tolerance, Text *report);

/* The same for a styled plan, which may also be refused with a message. */
typedef enum { EQUAL, REFUSED, DIFFERENT } Verdict;
Verdict styles_hold(uint64_t seed, uint64_t number, int steps, double tolerance,
                    Text *report);

/* `weft-tests --fuzz N [seed]`: the next N plans of a seed; `--fuzz N seed first`: N
 * plans from number `first`. Returns the exit code. See fuzz.c. */
int fuzz(int argc, char **argv);
/* `weft-tests --plan SEED NUMBER` prints one of them. */
int fuzz_plan(int argc, char **argv);
/* Whether one rank in the plan's number formats is as far from f32; in f32 it is not far
 * at all. */
bool fuzz_formats_do(const char *plan, const VerifyReport *was);
/* Whether a plan that is so far from one rank (`was`) is that by rounding alone. */
bool fuzz_only_rounds(const char *plan, const VerifyReport *was);
/* The next n plans of a seed whose state is kept in `folder`. */
int fuzz_in(const char *folder, uint64_t n, uint64_t seed);

#endif
