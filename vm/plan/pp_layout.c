/* pp_layout.c - reads a pipeline layout in Megatron's notation: E embedding, t layer,
 * m layer of multi-token prediction (mtp of a plan), L loss (with the head), | between
 * stages, x*n and (...)*n repeat, commas and blanks mean nothing. The result is the
 * number of layers of each stage, those of m among them; E opens the first stage and L
 * closes the last one. */
#include "vm/plan/plan.h"

enum { DEPTH_MAX = 16, STEPS_MAX = 1000000, REPEAT_MAX = 1000000 };

typedef struct Reader {
  const char *text;
  int at; /* index of the next character */
  int depth, steps;
  bool embedding, loss; /* already seen */
  int further;          /* layers for further tokens */
  VEC(int) layers;      /* of each stage so far */
  Arena *a;
  const char *wrong;
} Reader;

/* Records the first error, at character `at`. */
static bool wrong(Reader *r, int at, const char *what) {
  if (!r->wrong)
    r->wrong = arena_printf(r->a, "column %d of \"%s\": %s", at + 1, r->text, what);
  return false;
}

static void skip_blanks(Reader *r) {
  while (r->text[r->at] == ',' || r->text[r->at] == ' ') r->at++;
}

static bool symbol(Reader *r, int at) {
  char c = r->text[at];
  if (r->loss) return wrong(r, at, "nothing follows L, which closes the last stage");
  if (c == 'E' && r->embedding) return wrong(r, at, "a layout has one E");
  if (c != 'E' && !r->embedding)
    return wrong(r, at, "a layout begins with E, the embedding");
  if (c == 'E') r->embedding = true;
  if (c == 'L') r->loss = true;
  if (c == 't' && r->further)
    return wrong(r, at, "m, a layer for a further token, is behind all t");
  if (c == 'm') r->further++;
  if (c == 't' || c == 'm') r->layers.at[r->layers.n - 1]++;
  if (c == '|') *VEC_PUSH(r->a, r->layers) = 0;
  return true;
}

static bool element(Reader *r);

static bool group(Reader *r) {
  int open = r->at++;
  if (++r->depth > DEPTH_MAX) return wrong(r, open, "parentheses are nested too deeply");
  for (skip_blanks(r); r->text[r->at] != ')'; skip_blanks(r)) {
    if (!r->text[r->at]) return wrong(r, open, "this ( is never closed");
    if (!element(r)) return false;
  }
  r->at++;
  r->depth--;
  return true;
}

/* Reads a symbol or a group, without repeats. */
static bool primary(Reader *r) {
  char c = r->text[r->at];
  if (++r->steps > STEPS_MAX)
    return wrong(r, r->at,
                 arena_printf(r->a, "the layout has more than %d parts", STEPS_MAX));
  switch (c) {
  case '(': return group(r);
  case ')': return wrong(r, r->at, "this ) closes nothing");
  case '*': return wrong(r, r->at, "there is nothing before this * to repeat");
  case 'E':
  case 't':
  case 'm':
  case 'L':
  case '|': return symbol(r, r->at++);
  default:
    return wrong(r, r->at,
                 "expected E (embedding), t (layer), m (layer for a further token), L "
                 "(loss) or | (next stage)");
  }
}

/* The number after a '*'; -1 if there is none. */
static int repeats(Reader *r) {
  int star = r->at++, n = 0, digits = 0;
  for (skip_blanks(r); r->text[r->at] >= '0' && r->text[r->at] <= '9'; digits++) {
    n = n * 10 + (r->text[r->at++] - '0');
    if (n > REPEAT_MAX) break;
  }
  if (digits && n >= 1 && n <= REPEAT_MAX) return n;
  wrong(r, star, arena_printf(r->a, "* needs a number from 1 to %d", REPEAT_MAX));
  return -1;
}

/* A repeated group is parsed again for each copy, which checks each in its context. */
static bool element(Reader *r) {
  int start = r->at;
  if (!primary(r)) return false;
  skip_blanks(r);
  if (r->text[r->at] != '*') return true;
  int n = repeats(r), end = r->at;
  for (int k = 1; k < n; k++) {
    r->at = start;
    if (!primary(r)) return false;
  }
  r->at = end;
  return n > 0;
}

const int *pp_layout(const char *text, Arena *a, int *stages, int *further,
                     const char **why) {
  Reader r = {.text = text, .a = a};
  *VEC_PUSH(a, r.layers) = 0;
  bool ok = true;
  for (skip_blanks(&r); ok && text[r.at]; skip_blanks(&r)) ok = element(&r);
  if (ok && !r.embedding) ok = wrong(&r, r.at, "a layout begins with E, the embedding");
  if (ok && !r.loss) ok = wrong(&r, r.at, "a layout ends with L, the loss");
  *why = r.wrong;
  *stages = r.layers.n;
  *further = r.further;
  return ok ? r.layers.at : NULL;
}
