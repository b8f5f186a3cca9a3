/* only.c - the linker sends all calls of _tcase_add_test here (--wrap), which is behind
 * each tcase_add_...(), and those of _mark_point, which is behind each assertion. */
#include "tests/harness/only.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 200 };

typedef struct {
  char suite[NAME], check[NAME]; /* no check: all of them */
  int iteration;                 /* -1: all of them */
} Wanted;

static struct {
  Wanted *list;
  size_t n;
  const char *suite; /* whose checks are made now */
} only;

static bool add(const char *text, size_t len) {
  Wanted w = {.iteration = -1};
  char name[2 * NAME + 16], rest;
  if (len >= sizeof name) return false;
  memcpy(name, text, len);
  name[len] = '\0';
  int n = sscanf(name, "%199[^:]:%199[^:]:%d%c", w.suite, w.check, &w.iteration, &rest);
  if (n < 1 || n > 3) return false;
  Wanted *list = realloc(only.list, (only.n + 1) * sizeof *list);
  if (!list) return false;
  only.list = list;
  only.list[only.n++] = w;
  return true;
}

static bool add_file(const char *path) {
  FILE *f = fopen(path, "r");
  char line[2 * NAME + 16];
  bool ok = f != NULL;
  while (ok && fgets(line, sizeof line, f)) {
    size_t len = strcspn(line, "\n");
    if (len) ok = add(line, len);
  }
  if (f) fclose(f);
  return ok;
}

bool only_add(const char *argument) {
  bool ok = *argument == '@' ? add_file(argument + 1) : add(argument, strlen(argument));
  if (!ok)
    fprintf(stderr,
            "%s: a SUITE, SUITE:CHECK, SUITE:CHECK:ITERATION or @FILE of such lines\n",
            argument);
  return ok;
}

bool only_suite(const char *suite) {
  only.suite = suite;
  for (size_t i = 0; i < only.n; i++)
    if (strcmp(only.list[i].suite, suite) == 0) return true;
  return only.n == 0;
}

static bool wanted(const char *check, int iteration) {
  for (size_t i = 0; i < only.n; i++) {
    const Wanted *w = &only.list[i];
    if (strcmp(w->suite, only.suite) == 0 &&
        (!w->check[0] || strcmp(w->check, check) == 0) &&
        (w->iteration < 0 || w->iteration == iteration))
      return true;
  }
  return only.n == 0;
}

/* ---- a share of the rows ---- */

/* WEFT_ROWS="1/3": of the rows of a table every third one. Which ones differs between
 * checks, so that tables of the same types or meshes are not seen at the same ones. */
static bool in_share(const char *check, int iteration) {
  const char *rows = getenv("WEFT_ROWS");
  unsigned share, shares, at = (unsigned)iteration;
  if (!rows) return true;
  if (sscanf(rows, "%u/%u", &share, &shares) != 2 || share >= shares) {
    fprintf(stderr, "WEFT_ROWS=%s: a share of so many, such as 0/3\n", rows);
    exit(EXIT_FAILURE);
  }
  for (const char *s = check; *s; s++) at += (unsigned char)*s;
  return at % shares == share;
}

/* ---- recording ---- */

/* Of tests/mutate/trace.c, in the build that records. */
__attribute__((weak)) void cover_begin(const char *check);

typedef struct {
  const char *suite;
  const TTest *test;
  TTest *made; /* what Check has in its place, as long as the program */
  int iteration;
} Recorded;

static Recorded *recorded;
static size_t n_recorded;

/* In the process of a check. Its number is all that Check tells: each iteration is made
 * one of a loop of its own, which begins at the number. */
static void run_recorded(int number) {
  const Recorded *r = &recorded[number];
  char name[4096];
  snprintf(name, sizeof name, "%s/%s#%s#%d#%d", getenv("WEFT_TRACE"), r->suite,
           r->test->name, r->iteration, number);
  cover_begin(name);
  r->test->fn(r->iteration);
}

void __real__tcase_add_test(TCase *c, const TTest *t, int signal, int status, int first,
                            int end);
void __wrap__tcase_add_test(TCase *c, const TTest *t, int signal, int status, int first,
                            int end);

static void add_recorded(TCase *c, const TTest *t, int signal, int status,
                         int iteration) {
  TTest *made = malloc(sizeof *made);
  Recorded *list = realloc(recorded, (n_recorded + 1) * sizeof *list);
  if (!made || !list) abort();
  recorded = list;
  recorded[n_recorded] = (Recorded){only.suite, t, made, iteration};
  *made = *t;
  made->fn = run_recorded;
  int number = (int)n_recorded++;
  __real__tcase_add_test(c, made, signal, status, number, number + 1);
}

void __wrap__tcase_add_test(TCase *c, const TTest *t, int signal, int status, int first,
                            int end) {
  const char *folder = getenv("WEFT_TRACE");
  bool recording = cover_begin && folder && !strchr(folder, '#');
  for (int i = first; i < end; i++) {
    if (!wanted(t->name, i) || (end - first > 1 && !in_share(t->name, i))) continue;
    if (recording)
      add_recorded(c, t, signal, status, i);
    else
      __real__tcase_add_test(c, t, signal, status, i, i + 1);
  }
}

/* ---- the place that was reached ---- */

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

/* An assertion that holds writes its place for the parent, which tells it of a check that
 * crashed. In a loop these are the same few places a million times: of a check with many,
 * those that were written before are left out. */
void __wrap__mark_point(const char *file, int line) {
  enum { EXACT = 1000, PLACES = 64 };
  static struct {
    const char *file;
    int line;
  } seen[PLACES], *place;
  static int written;
  bool same = place && place->file == file && place->line == line;
  place = &seen[(unsigned)line % PLACES];
  bool known = place->file == file && place->line == line;
  place->file = file, place->line = line;
  if (same || (known && written >= EXACT)) return;
  written++;
  __real__mark_point(file, line);
}
