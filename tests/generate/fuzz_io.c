/* fuzz_io.c - see fuzz_io.h. */
#include "fuzz_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "broken_files.h"
#include "vm/base/rng.h"

typedef struct Case {
  FuzzFile f;
  Rng rng;
  uint64_t drawn;
} Case;

static uint32_t below(Case *c, uint32_t n) {
  return (uint32_t)((uint64_t)rng_u32(&c->rng, c->drawn++) * n >> 32);
}

/* ---- mutations ---- */

static void cut(Case *c, size_t at, size_t n) {
  n = MIN(n, c->f.n - at);
  memmove(c->f.s + at, c->f.s + at + n, c->f.n - at - n);
  c->f.n -= n;
}

static void insert(Case *c, size_t at, const void *s, size_t n) {
  n = MIN(n, (size_t)FUZZ_BYTES - c->f.n);
  memmove(c->f.s + at + n, c->f.s + at, c->f.n - at);
  memcpy(c->f.s + at, s, n);
  c->f.n += n;
}

/* Replaces a run of digits, if there is one after `at`. */
static void change_number(Case *c, size_t at) {
  static const char *const numbers[] = {"0",
                                        "-1",
                                        "1",
                                        "2147483648",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "18446744073709551615",
                                        "1e308",
                                        "1e999",
                                        "0.5",
                                        "4294967296",
                                        "null",
                                        "[]",
                                        "\"\""};
  while (at < c->f.n && (c->f.s[at] < '0' || c->f.s[at] > '9')) at++;
  size_t end = at;
  while (end < c->f.n && c->f.s[end] >= '0' && c->f.s[end] <= '9') end++;
  const char *s = numbers[below(c, LEN(numbers))];
  cut(c, at, end - at);
  insert(c, at, s, strlen(s));
}

static void change(Case *c) {
  static const char *const bits[] = {
      "{",           "}",    "[",       "]",        ",",    ":",
      "\"",          "\\",   "\\u0000", "\\ud800",  "\xff", "\xef\xbb\xbf",
      "null",        "true", "{\"a\":", "[[[[[[[[", "../",  "/dev/zero",
      "__metadata__"};
  size_t at = below(c, (uint32_t)c->f.n + 1);
  char block[256];
  switch (below(c, 8)) {
  case 0:
    if (at < c->f.n) c->f.s[at] ^= (unsigned char)(1u << below(c, 8));
    break;
  case 1:
    if (at < c->f.n) c->f.s[at] = (unsigned char)below(c, 256);
    break;
  case 2: cut(c, at, 1 + below(c, 16)); break;
  case 3: c->f.n = at; break;
  case 4: {
    const char *s = bits[below(c, LEN(bits))];
    insert(c, at, s, strlen(s));
    break;
  }
  case 5: {
    size_t n = MIN(sizeof block, c->f.n - at), times = 1 + below(c, 40);
    memcpy(block, c->f.s + at, n);
    while (times--) insert(c, at, block, n);
    break;
  }
  default: change_number(c, at); break;
  }
}

/* ---- cases ---- */

static const FuzzTarget *some_target(Case *c) {
  int n = 0;
  while (fuzz_target(n)) n++;
  return fuzz_target((int)below(c, (uint32_t)n));
}

bool fuzz_io_case(const char *folder, uint64_t seed, uint64_t number, Text *report) {
  char name[32];
  Text what = {0};
  snprintf(name, sizeof name, "fuzz.io.%llu", (unsigned long long)number);
  Case *c = calloc(1, sizeof *c);
  *c = (Case){.f.folder = folder, .rng = rng_make(seed, name)};
  const FuzzTarget *t = some_target(c);
  t->make(&c->f, (int)below(c, (uint32_t)t->forms));
  for (uint32_t i = below(c, 6); i > 0; i--) change(c);
  if (t->repair && below(c, 8)) t->repair(&c->f);
  fuzz_read(t, &c->f, &what);
  if (what.n)
    text_printf(report, "seed %llu, number %llu: %s", (unsigned long long)seed,
                (unsigned long long)number, what.s);
  text_free(&what);
  free(c);
  return !report->n;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int fuzz_io(int argc, char **argv) {
  double limit = argc > 0 ? atof(argv[0]) : 60, begin = seconds();
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL), n = 0;
  char folder[] = "/tmp/weft-fuzz-XXXXXX";
  Text report = {0};
  if (limit <= 0 || !mkdtemp(folder)) {
    fprintf(stderr, "usage: --fuzz-io SECONDS [seed]\n");
    return EXIT_FAILURE;
  }
  printf("seed %llu, files in %s\n", (unsigned long long)seed, folder);
  fflush(stdout);
  for (; seconds() - begin < limit && !report.n; n++)
    fuzz_io_case(folder, seed, n, &report);
  printf("%llu files: %s\n", (unsigned long long)n,
         report.n ? report.s : "nothing found");
  bool found = report.n > 0;
  text_free(&report);
  return found ? EXIT_FAILURE : EXIT_SUCCESS;
}
