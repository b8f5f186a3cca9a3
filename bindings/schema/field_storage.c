/* field_storage.c - the values of a plan's fields where they lie in Plan. The row of
 * schema.def says where and how; no other file reads or writes by it. */
#include "schema.h"

#include <stdio.h>

/* ---- names that are stored as numbers ---- */

/* What the names of a row stand for, if that is not their place among them. */
static const struct {
  const char *scope, *key;
  int is[3];
} numbered[] = {
    {"precision", "param_dtype", {DT_F32, DT_BF16, DT_F16}},
    {"precision", "grad_dtype", {DT_F32, DT_BF16, DT_F16}},
    {"precision", "reduce_dtype", {DT_F32, DT_BF16}},
    {"precision", "recipe", {RECIPE_TENSORWISE, RECIPE_ROWWISE, RECIPE_MXFP8}},
    {"precision", "master_dtype", {DT_F32, DT_BF16}},
#define OPTIMIZER(ID, name, states, flops, changes, formula)                             \
  {#name, "state_dtype", {DT_F32, DT_BF16}},
#define MATRICES(ID, name, rest, states, flops, changes)                                 \
  {#name, "state_dtype", {DT_F32, DT_BF16}},
#include "vm/plan/optimizers.def"
    {"moe", "drop_policy", {DROP_PROBS, DROP_POSITION}},
    {"tokens", "dtype", {2, 4}}};

static int number_at(const Field *f, int place) {
  for (int i = 0; i < LEN(numbered); i++) {
    if (!str_eq(numbered[i].scope, f->scope) || !str_eq(numbered[i].key, f->key))
      continue;
    assert(place < LEN(numbered[i].is));
    return numbered[i].is[place];
  }
  return place;
}

/* The next name that is built and no alias; 0 letters at the end. */
static size_t next_name(const char **at) {
  for (;;) {
    *at += strspn(*at, " ");
    size_t n = **at == '|' ? 0 : strcspn(*at, " ");
    if (!memchr(*at, '=', n)) return n;
    *at += n;
  }
}

int field_name_number(const Field *f, const char *name) {
  int place = 0;
  size_t n, len = strlen(name);
  for (const char *s = f->names; (n = next_name(&s)); s += n, place++)
    if (n == len && memcmp(s, name, n) == 0) break;
  assert(n);
  return number_at(f, place);
}

static void print_name(const Field *f, int64_t v, Text *out) {
  int place = 0;
  size_t n;
  for (const char *s = f->names; (n = next_name(&s)); s += n)
    if (number_at(f, place++) == v) {
      text_addn(out, s, n);
      return;
    }
  text_add(out, "-"); /* nothing was said */
}

/* ---- reading ---- */

FieldValue field_get(const Field *f, const Plan *p) {
  const void *at = (const char *)p + f->at;
  FieldValue v = {.stored = f->stored};
  switch (f->stored) {
  case STORED_NOWHERE: break;
  case STORED_BOOL: v.whole = *(const bool *)at; break;
  case STORED_INT: v.whole = *(const int *)at; break;
  case STORED_INT64: v.whole = *(const int64_t *)at; break;
  case STORED_DOUBLE: v.real = *(const double *)at; break;
  case STORED_TEXT: v.text = *(const char *const *)at; break;
  case STORED_RANGE: v.range = *(const ExpectRange *)at; break;
  }
  return v;
}

/* Of a number, a switch or a name, or what the user wrote. */
static void print_text(const Field *f, const char *s, Text *out) {
  bool own = f->type == FIELD_TEXT || f->type == FIELD_OWN;
  if (!s)
    text_add(out, "-");
  else if (f->type == FIELD_BOOL)
    text_add(out, str_eq(s, "0") ? "false" : "true");
  else
    text_printf(out, own ? "\"%s\"" : "%s", s);
}

void field_print(const Field *f, const Plan *p, Text *out) {
  FieldValue v = field_get(f, p);
  bool name = f->type == FIELD_NAME || f->type == FIELD_NAMED || f->type == FIELD_BUILT;
  switch (f->stored) {
  case STORED_NOWHERE: break;
  case STORED_BOOL:
  case STORED_INT:
  case STORED_INT64:
    if (name)
      print_name(f, v.whole, out);
    else if (f->stored == STORED_BOOL)
      text_add(out, v.whole ? "true" : "false");
    else
      text_printf(out, "%lld", (long long)v.whole);
    break;
  case STORED_DOUBLE: text_printf(out, "%.17g", v.real); break;
  case STORED_TEXT: print_text(f, v.text, out); break;
  case STORED_RANGE:
    if (v.range.given)
      text_printf(out, "%.17g to %.17g", v.range.low, v.range.high);
    else
      text_add(out, "-");
    break;
  }
}

/* ---- writing ---- */

void field_set(Arena *a, const Field *f, Plan *p, double v) {
  void *at = (char *)p + f->at;
  switch (f->stored) {
  case STORED_NOWHERE: break;
  case STORED_BOOL: *(bool *)at = v != 0; break;
  case STORED_INT: *(int *)at = (int)v; break;
  case STORED_INT64: *(int64_t *)at = (int64_t)v; break;
  case STORED_DOUBLE: *(double *)at = v; break;
  case STORED_TEXT: *(const char **)at = arena_printf(a, "%.0f", v); break;
  case STORED_RANGE: *(ExpectRange *)at = (ExpectRange){true, v, v}; break;
  }
}

void field_set_text(const Field *f, Plan *p, const char *s) {
  assert(f->stored == STORED_TEXT);
  *(const char **)((char *)p + f->at) = s;
}

void field_set_range(const Field *f, Plan *p, ExpectRange r) {
  assert(f->stored == STORED_RANGE);
  *(ExpectRange *)((char *)p + f->at) = r;
}
