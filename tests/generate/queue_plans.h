/* queue_plans.h - random plans whose ranks are processes over the stand-in of NCCL: do
 * they end although streams share connections to the GPU and kernels are loaded when they
 * are first used (tests/standin/connections.cpp)? */
#ifndef WEFT_TESTS_QUEUE_PLANS_H
#define WEFT_TESTS_QUEUE_PLANS_H

#include "vm/base/base.h"

typedef enum {
  QUEUES_END,
  QUEUES_STOP,
  QUEUES_FAIL,
  QUEUES_REFUSED, /* the device has not what the plan asks for */
  QUEUE_OUTCOMES
} QueueOutcome;

typedef struct QueuePlan {
  uint64_t seed, number, order; /* another order: other streams share a connection */
  int connections;              /* 0: as many as weft sets */
  bool told;                    /* the environment says so, too, and weft sees it */
  bool lazily;                  /* nothing is loaded before the first step */
  double patience;              /* seconds without progress after which it has stopped */
} QueuePlan;

/* The plans with 2 to 8 ranks: the number of the n-th one. */
uint64_t queue_plan_number(uint64_t seed, uint64_t n);
/* Runs three steps, the last one as a graph; kernels compute nothing. `report` says what
 * a plan that did not end said. */
QueueOutcome queue_plan_runs(const QueuePlan *p, Text *report);

/* `weft-tests --queue-plans [N [connections [first [told]]]]`: the exit code. */
int queue_plans(int argc, char **argv);

#endif
