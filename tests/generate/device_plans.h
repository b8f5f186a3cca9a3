/* device_plans.h - random plans on the CUDA device of the stand-in runtime, against one
 * rank on the CPU. */
#ifndef WEFT_TESTS_DEVICE_PLANS_H
#define WEFT_TESTS_DEVICE_PLANS_H

#include "random_plan.h"

/* The row of the device cuda, with the stand-in's functions. */
const DeviceKind *device_standin(void);

/* The row of the world nccl, over the stand-in of NCCL. */
const WorldKind *world_standin(void);

/* Runs random plan `number` with queued work executed in the `order`-th order, against
 * one rank on the CPU within 1e-4. */
bool device_plan_holds(uint64_t seed, uint64_t number, uint64_t order, Text *report);

/* `weft-tests --device-plans N [orders [first]]`: the exit code. */
int device_plans(int argc, char **argv);

#endif
