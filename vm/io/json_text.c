/* json_text.c - parses JSON after estimating its size. A parsed document takes up to 70
 * times the memory of its text, so the text's length is no useful bound. */
#include "json_text.h"

#include <math.h>
#include <string.h>

#include "vm/base/json.h"

enum { VALUES_MAX = 2000000, CONTAINERS_MAX = 600000, DEPTH_MAX = 32 };

typedef struct Count {
  size_t values, containers;
  int depth, deepest;
} Count;

/* The end of the string that begins at s[i]. */
static size_t skip_string(const char *s, size_t n, size_t i) {
  for (i++; i < n && s[i] != '"'; i++)
    if (s[i] == '\\') i++;
  return i;
}

/* Each value but the first of its container follows a comma or a colon, so these are
 * counted. The parser checks the syntax. */
static Count count(const char *s, size_t n) {
  Count c = {.values = 1};
  for (size_t i = 0; i < n; i++) {
    char x = s[i];
    if (x == '"') i = skip_string(s, n, i);
    if (x == ',' || x == ':') c.values++;
    if (x == '[' || x == '{') {
      c.containers++;
      c.values++;
      c.depth++;
      c.deepest = MAX(c.deepest, c.depth);
    }
    if (x == ']' || x == '}') c.depth--;
    if (c.values > VALUES_MAX || c.containers > CONTAINERS_MAX || c.deepest > DEPTH_MAX)
      break;
  }
  return c;
}

static json_t *parse(const char *path, const char *what, const char *s, size_t n,
                     size_t flags, weft_error *e) {
  Count c = count(s, n);
  json_error_t why;
  if (c.deepest > DEPTH_MAX)
    err_file(e, WEFT_EFILE, path, 0, "%sis nested more than %d deep", what, DEPTH_MAX);
  else if (c.values > VALUES_MAX || c.containers > CONTAINERS_MAX)
    err_file(e, WEFT_EFILE, path, 0,
             "%sholds more values than are read here: at most %d, %d of them objects or "
             "lists",
             what, VALUES_MAX, CONTAINERS_MAX);
  if (c.deepest > DEPTH_MAX || c.values > VALUES_MAX || c.containers > CONTAINERS_MAX)
    return NULL;
  json_t *doc = json_loadb(s, n, JSON_REJECT_DUPLICATES | flags, &why);
  if (!doc)
    err_file(e, WEFT_EFILE, path, MAX(why.line, 1), "%sis not JSON: %s", what, why.text);
  return doc;
}

json_t *json_text(const char *path, const char *what, const char *s, size_t n,
                  weft_error *e) {
  return parse(path, what, s, n, 0, e);
}

json_t *json_text_reals(const char *path, const char *what, const char *s, size_t n,
                        weft_error *e) {
  return parse(path, what, s, n, JSON_DECODE_INT_AS_REAL, e);
}

/* ---- rows of Python ---- */

enum { DIGITS = 18 }; /* of which each number has 64 bits */

/* The bytes of what Python writes for a number that is none, at the begin of s. */
static size_t endless(const char *s, size_t n) {
  static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
  for (int i = 0; i < LEN(words); i++) {
    size_t m = strlen(words[i]);
    if (n >= m && memcmp(s, words[i], m) == 0) return m;
  }
  return 0;
}

/* Adds the row to `out`; returns whether it is another one than before. */
static bool rewrite_row(const char *s, size_t n, bool big, Text *out) {
  bool changed = false;
  for (size_t i = 0, m; i < n; i += m) {
    size_t word = endless(s + i, n - i);
    m = MAX(word, 1);
    if (s[i] == '"') m = MIN(skip_string(s, n, i) + 1, n) - i;
    if (!word && strchr("-0123456789", s[i]) && s[i]) {
      while (i + m < n && s[i + m] && strchr("0123456789.eE+-", s[i + m])) m++;
    }
    text_addn(out, word ? "null" : s + i, word ? 4 : m);
    bool whole = m > DIGITS && s[i] != '"' && !memchr(s + i, '.', m) &&
                 !memchr(s + i, 'e', m) && !memchr(s + i, 'E', m);
    if (big && whole) text_addn(out, ".0", 2);
    changed |= word || (big && whole);
  }
  return changed;
}

json_t *json_text_row(const char *path, const char *s, size_t n, bool nul, bool big,
                      weft_error *e) {
  size_t flags = nul ? JSON_ALLOW_NUL : 0;
  Text t = {0};
  weft_error first = NO_ERROR;
  json_t *doc = parse(path, "", s, n, flags, &first);
  if (!doc && rewrite_row(s, n, big, &t) && !t.oom) {
    doc = parse(path, "", t.s, t.n, flags, e);
  } else if (!doc) {
    *e = first;
  }
  text_free(&t);
  return doc;
}

/* ---- Python's infinities ---- */

static const char word[] = "Infinity", number[] = "1e308   "; /* as many bytes */
enum { WORD = sizeof word - 1, NUMBER = 5 };

static void replace_infinity(char *s, size_t n) {
  bool string = false;
  for (size_t i = 0; i < n; i++) {
    if (string && s[i] == '\\')
      i++;
    else if (s[i] == '"')
      string = !string;
    else if (!string && n - i >= WORD && memcmp(s + i, word, WORD) == 0)
      memcpy(s + i, number, WORD);
  }
}

json_t *json_text_python(const char *path, const char *what, const char *s, size_t n,
                         weft_error *e) {
  char *copy = mem_new(NULL, n + 1);
  if (!copy) {
    err_set(e, WEFT_ENOMEM, "out of memory");
    return NULL;
  }
  memcpy(copy, s, n);
  replace_infinity(copy, n);
  json_t *doc = parse(path, what, copy, n, 0, e);
  mem_free(NULL, copy, n + 1);
  return doc;
}

static void add_value(Json *out, const char *key, const json_t *v) {
  const char *name;
  json_t *x;
  size_t i;
  switch (json_typeof(v)) {
  case JSON_OBJECT:
    json_open(out, key, '{');
    json_object_foreach((json_t *)v, name, x) add_value(out, name, x);
    json_close(out, '}');
    return;
  case JSON_ARRAY:
    json_open(out, key, '[');
    json_array_foreach(v, i, x) add_value(out, NULL, x);
    json_close(out, ']');
    return;
  case JSON_STRING: json_str(out, key, json_string_value(v)); return;
  case JSON_INTEGER: json_int(out, key, json_integer_value(v)); return;
  case JSON_REAL: {
    double d = json_real_value(v);
    json_num(out, key, fabs(d) == JSON_INFINITE ? copysign(INFINITY, d) : d);
    return;
  }
  case JSON_NULL: json_none(out, key); return;
  default: json_bool(out, key, json_is_true(v));
  }
}

void json_text_to_python(const json_t *doc, Text *out) {
  Json j = {.out = out, .pretty = true, .point = true, .python = true};
  add_value(&j, NULL, doc);
}
