/* ckpt_runs.h - runs of toys that save checkpoints and resume from them. */
#ifndef WEFT_TEST_SAVED_TOY_H
#define WEFT_TEST_SAVED_TOY_H

#include "run_bits.h"
#include "vm/ckpt/ckpt_save.h"

typedef struct SavedToy {
  Toy t;
  Run *run;
  Saver *saver;
  char said[2000]; /* all messages, one line each, warnings with "!" */
} SavedToy;

/* Compiles and opens a run that saves to `dir` after each step and keeps the last two
 * checkpoints; resumes from a checkpoint, or starts with initial values. */
void saved_open(SavedToy *s, const ToyOptions *o, const char *dir, const Ckpt *from);
/* Runs steps [first, end) and stores their losses. */
void saved_steps(SavedToy *s, int first, int end, double loss[]);
/* Saves a checkpoint as after so many steps. */
void saved_save(SavedToy *s, int step);
void saved_close(SavedToy *s);
/* All of it: runs steps [0, n) into `dir`, with checkpoints after the last two. */
void saved_run(const ToyOptions *o, const char *dir, int n);
/* Opens DIR/step-...; fails the test if that fails. */
Ckpt *saved_ckpt(const char *dir, int step);

#endif
