/* scratch.h - a temporary folder for one test, its files, and the error that the test
 * expects. Use scratch_setup and scratch_teardown as a checked fixture: the test fails if
 * it leaves descriptors open. */
#ifndef WEFT_TESTS_SCRATCH_H
#define WEFT_TESTS_SCRATCH_H

#include "vm/base/base.h"

extern char scratch_dir[64];
extern Arena *scratch_arena;
extern weft_error scratch_error;

void scratch_setup(void);
void scratch_teardown(void);
/* The path of a file in the folder. */
const char *scratch_path(const char *name);
/* Writes the file; returns its path. */
const char *scratch_put(const char *name, const void *p, size_t n);
/* How many descriptors this process has. */
int scratch_descriptors(void);
/* Names in the folder, sorted, each followed by a space. */
const char *scratch_list(void);
/* Checks `got`, and scratch_error, which it clears, against exactly these values. */
void scratch_check_error(weft_status got, weft_status want, const char *file,
                         const char *text);

/* An allocator, {scratch_alloc, &meter}, that succeeds `left` times and counts the bytes
 * allocated. */
typedef struct ScratchMeter {
  int left;
  int64_t held;
} ScratchMeter;
void *scratch_alloc(void *ud, void *p, size_t old, size_t n);

#endif
