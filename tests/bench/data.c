/* data.c - samples per second of each form of data, beside what a training step asks for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "vm/io/io.h"

enum { SEQ = 1024, TOKENS = 1 << 25, EOT = 7, SAMPLES = 4000 };

static void put_tokens(const char *path) {
  FILE *f = fopen(path, "wb");
  uint32_t x = 1;
  for (int i = 0; f && i < TOKENS; i++) {
    x = x * 1664525 + 1013904223;
    uint16_t id = (uint16_t)(x >> 22 == 0 ? EOT : 8 + (x >> 20) % 1000);
    fwrite(&id, sizeof id, 1, f);
  }
  if (!f || fclose(f)) exit(1);
}

static void measure(const char *what, const char *path, Packed packed, bool shuffle) {
  static int32_t tokens[SEQ], labels[SEQ];
  DataSpec spec = {.kind = DATA_TOKENS,
                   .dir = "/tmp",
                   .files = &path,
                   .nfiles = 1,
                   .shuffle = shuffle,
                   .packed = packed};
  weft_error e;
  Data *d;
  err_clear(&e);
  double begin = bench_now();
  weft_status st = data_open(NULL, &spec, SEQ, 2000, 1, &d, &e);
  double opened = bench_now();
  for (int i = 0; st == WEFT_OK && i < SAMPLES; i++)
    st = data_sample(d, i, tokens, labels, &e);
  double ms = bench_now() - opened;
  if (st != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    exit(1);
  }
  printf("| %s | %.1f | %.0f | %.1f |\n", what, opened - begin, 1e3 * SAMPLES / ms,
         1e-3 * SAMPLES * SEQ / ms);
  data_close(d);
}

void bench_data(void) {
  char path[64];
  Packed whole = {.on = true,
                  .separated = true,
                  .separator = EOT,
                  .size = SEQ,
                  .too_long = TOO_LONG_SPLIT};
  snprintf(path, sizeof path, "/tmp/weft-bench-%d.bin", (int)getpid());
  put_tokens(path);
  printf("samples of %d tokens out of %d, one thread, files in memory\n\n", SEQ, TOKENS);
  printf("| | ms to open | samples/s | M tokens/s |\n| --- | --- | --- | --- |\n");
  measure("windows in order", path, (Packed){0}, false);
  measure("windows, shuffled", path, (Packed){0}, true);
  measure("whole documents, shuffled", path, whole, true);
  unlink(path);
}
