/* standin.h - what tests tell the stand-in CUDA runtime. */
#ifndef WEFT_TESTS_STANDIN_H
#define WEFT_TESTS_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The machine that the runtime shows, and the order in which it runs what is queued. In a
 * program of its own the variable WEFT_STANDIN has them: "order=7 driver=12040". */
typedef struct Standin {
  uint64_t order;        /* another number, another legal order */
  int driver;            /* 13000: as new as the runtime; 0: there is none */
  int gpus, capability;  /* 1, 90 */
  size_t memory;         /* bytes of the device */
} Standin;
extern const Standin standin_usual;
/* Before the first call of the runtime, or when all of its queues are empty. */
void standin_set(const Standin *s);
/* What ran so far, of all queues. */
uint64_t standin_ran(void);

#ifdef __cplusplus
}
#endif

#endif
