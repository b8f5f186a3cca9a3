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

json_t *json_text_nul(const char *path, const char *what, const char *s, size_t n,
                      weft_error *e) {
  return parse(path, what, s, n, JSON_ALLOW_NUL, e);
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
