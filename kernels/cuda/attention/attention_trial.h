/* attention_trial.h - kernels of attention that are compared with weft's own for all GPUs
 * when a program is loaded. */
#ifndef WEFT_CUDA_ATTENTION_TRIAL_H
#define WEFT_CUDA_ATTENTION_TRIAL_H

#include "kernels/cuda/cuda.h"

/* What is compared: its kernels and words for messages. */
typedef struct Contender {
  const char *name, *than; /* "cuDNN", "weft's own kernel" */
  const char *advice;      /* where it differs, behind the message: ": use ..." or "" */
  bool (*run)(Device *d, const KernelArgs *a);
  uint64_t scratch; /* bytes of KernelArgs.work */
} Contender;

/* Ops and shapes that were compared, as hashes: the last ones. */
enum { TRIED = 64 };
typedef struct Tried {
  uint64_t hash[TRIED];
  int n; /* ever */
} Tried;

bool attention_was_tried(const Tried *t, uint64_t hash);
void attention_tried(Tried *t, uint64_t hash);

/* Runs a prepared op by both on the same operands, in memory of its own, and compares,
 * each hash once: layers are alike. An error says which result differs, or why they
 * cannot be compared. */
weft_status attention_trial(Device *d, const Contender *other, Tried *tried,
                            uint64_t hash, int op, const KernelArgs *a, bool *differs,
                            weft_error *e);

#endif
