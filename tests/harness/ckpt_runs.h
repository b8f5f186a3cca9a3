/* ckpt_runs.h - runs of toys that write checkpoints and go on from them. */
#ifndef WEFT_TEST_SAVED_TOY_H
#define WEFT_TEST_SAVED_TOY_H

#include "run_bits.h"
#include "vm/ckpt/ckpt_save.h"

typedef struct SavedToy {
  Toy t;
  Run *run;
  Saver *saver;
  char said[2000]; /* a line for each message, warnings with "!" before them */
} SavedToy;

/* Compiles and opens a run that writes to `dir` after each step, the last two staying;
 * from a checkpoint, or with initial values. */
void saved_open(SavedToy *s, const ToyOptions *o, const char *dir, const Ckpt *from);
/* Takes steps [first, end) and leaves what they found. */
void saved_steps(SavedToy *s, int first, int end, double loss[]);
/* Writes a checkpoint as one after so many steps. */
void saved_save(SavedToy *s, int step);
void saved_close(SavedToy *s);
/* All of it: steps [0, n) into `dir`, with a checkpoint after each of the last two. */
void saved_run(const ToyOptions *o, const char *dir, int n);
/* Opens DIR/step-...; the test fails if that does. */
Ckpt *saved_ckpt(const char *dir, int step);

#endif
