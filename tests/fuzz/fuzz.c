/* fuzz.c - the files of tests/generate/broken_files.h under libFuzzer: `weft-fuzz TARGET
 * [corpus ...] [options of libFuzzer]`. Every input ends as fuzz_read says, or the
 * process does. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/generate/broken_files.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed);

static const FuzzTarget *target;
static char folder[] = "/tmp/weft-fuzz-XXXXXX";
static FuzzFile file = {.folder = folder};

/* What the target's reader looks for beside the file, and, into `to`, files that are
 * right, to begin with. */
static void make_files(const char *to) {
  char path[512];
  for (int i = 0; i < target->forms; i++) {
    file.n = 0;
    target->make(&file, i);
    snprintf(path, sizeof path, "%s/right-%d", to, i);
    FILE *f = to ? fopen(path, "wb") : NULL;
    if (f) fwrite(file.s, 1, file.n, f), fclose(f);
  }
}

static int usage(void) {
  fprintf(stderr, "usage: weft-fuzz TARGET CORPUS [options of libFuzzer]; targets are");
  for (int i = 0; fuzz_target(i); i++) fprintf(stderr, " %s", fuzz_target(i)->name);
  fprintf(stderr, "\n");
  exit(2);
}

/* Takes the target's name away from libFuzzer. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
  struct stat st;
  for (int i = 0; *argc > 2 && fuzz_target(i); i++)
    if (strcmp(fuzz_target(i)->name, (*argv)[1]) == 0) target = fuzz_target(i);
  if (!target || !mkdtemp(folder)) return usage();
  const char *corpus = (*argv)[2];
  make_files(stat(corpus, &st) == 0 && S_ISDIR(st.st_mode) ? corpus : NULL);
  (*argv)[1] = (*argv)[0];
  (*argc)--, (*argv)++;
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  Text report = {0};
  if (n > FUZZ_BYTES) return -1;
  memcpy(file.s, data, n);
  file.n = n;
  fuzz_read(target, &file, &report);
  if (!report.n) return 0;
  fprintf(stderr, "%s", report.s);
  abort();
}

/* Seven of eight changes are looked into. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed) {
  n = LLVMFuzzerMutate(data, n, MIN(most, (size_t)FUZZ_BYTES));
  if (!target->repair || seed % 8 == 0) return n;
  memcpy(file.s, data, n);
  file.n = n;
  target->repair(&file);
  memcpy(data, file.s, MIN(file.n, most));
  return MIN(file.n, most);
}
