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

/* Ops and shapes that were compared, as hashes, and what came of it. */
typedef struct Tried {
  struct {
    uint64_t hash;
    bool differs;
  } * at;
  int n, room;
  bool any; /* differs */
} Tried;

void attention_forget(Device *d, Tried *t);

/* Adds shapes and types to the hash of an op; its blocks, of which the steps of a ring
 * have few kinds. */
uint64_t attention_hash(uint64_t h, const KernelArgs *a);
uint64_t attention_hash_blocks(uint64_t h, int op, const KernelArgs *a);

/* Runs a prepared op by both on the same operands, in memory of its own, and compares,
 * each hash once: layers are alike. An error says which result differs, or why they
 * cannot be compared. Where there is no memory for a forward op it is as those that were
 * compared: the arena of an evaluation is that of the training, and may leave none. */
weft_status attention_trial(Device *d, const Contender *other, Tried *tried,
                            uint64_t hash, int op, const KernelArgs *a, bool *differs,
                            weft_error *e);

#endif
