/* device_plans.c - see device_plans.h. */
#include "device_plans.h"

#include "tests/harness/emulated.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef WEFT_EMULATED_CUDA

#include "tests/standin/standin.h"

extern const DeviceVtable *const weft_device;

static const DeviceVtable *load(weft_error *e) { return weft_device; }

const DeviceKind *device_standin(void) {
  static DeviceKind kind;
  kind = *device_kind("cuda", NULL);
  kind.load = load;
  return &kind;
}

extern const WorldVtable weft_nccl_world;

static const WorldVtable *load_world(weft_error *e) { return &weft_nccl_world; }

const WorldKind *world_standin(void) {
  static WorldKind kind;
  kind = *world_kind("nccl", NULL);
  kind.load = load_world;
  return &kind;
}

bool device_plan_holds(uint64_t seed, uint64_t number, uint64_t order, Text *report) {
  Standin s = standin_usual;
  s.order = order;
  standin_set(&s);
  return parity_holds_on(device_standin(), NULL, seed, number, 1, 1e-4, report);
}

int device_plans(int argc, char **argv) {
  uint64_t n = argc > 0 ? strtoull(argv[0], NULL, 10) : 200;
  uint64_t orders = argc > 1 ? strtoull(argv[1], NULL, 10) : 5;
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, failed = 0;
  for (uint64_t i = first * orders; i < (first + n) * orders; i++) {
    Text t = {0};
    if (!device_plan_holds(1, i / orders, i % orders, &t))
      failed++, fprintf(stderr, "FAILED in order %d: %s", (int)(i % orders), t.s);
    text_free(&t);
    if (i % orders == orders - 1)
      printf("plan %d: %d orders\n", (int)(i / orders), (int)orders);
    fflush(stdout);
  }
  printf("%d plans x %d orders: %d failed\n", (int)n, (int)orders, (int)failed);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#else

int device_plans(int argc, char **argv) {
  printf(EMULATED_SKIPPED);
  return EXIT_SUCCESS;
}

#endif
