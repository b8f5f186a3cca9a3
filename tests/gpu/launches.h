/* launches.h - what a step of a plan launches on the device `cuda`, kept so that each of
 * it can be launched again, on the memory and the numbers of the run. */
#ifndef WEFT_TESTS_LAUNCHES_H
#define WEFT_TESTS_LAUNCHES_H

#include "vm/device/device.h"

/* Launches that differ in their addresses alone. */
typedef struct Launch {
  int op, times;
  const Kernel *kernel;
  KernelArgs args; /* of the first one */
} Launch;

typedef struct Launches {
  Launch *at;
  int n, room;
  Device *device; /* that launched them */
  bool lost;      /* there was no memory for all */
  bool on;        /* launches are noted */
} Launches;

/* The row of the device `cuda` whose launches go to `l`, and which takes each step op by
 * op; one at a time. */
const DeviceKind *launches_device(Launches *l, weft_error *e);

/* What its op's rule in ops.def says; 0 if it has none. */
double launch_flops(const Launch *l);
/* Whether that counts elements that it moves. */
bool launch_moves(const Launch *l);
/* Of operands and results; of a table that is looked up in, the rows that are looked up.
 */
double launch_bytes(const Launch *l);

#endif
