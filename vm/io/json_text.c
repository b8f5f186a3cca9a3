/* json_text.c - parses JSON after estimating its size. A parsed document takes up to 70
 * times the memory of its text, so the text's length is no useful bound. */
#include "json_text.h"

#include <string.h>

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

static int add_text(const char *s, size_t n, void *out) {
  text_addn(out, s, n);
  return ((Text *)out)->oom ? -1 : 0;
}

/* Whether the number begins at s[i], and is all of one. */
static bool is_infinite(const char *s, size_t n, size_t i) {
  bool begins = i == 0 || !strchr("0123456789.e+-", s[i - 1]) || s[i - 1] == '-';
  return begins && n - i >= NUMBER && memcmp(s + i, number, NUMBER) == 0 &&
         (n - i == NUMBER || !strchr("0123456789", s[i + NUMBER]));
}

void json_text_to_python(const json_t *doc, Text *out) {
  Text t = {.alloc = out->alloc};
  if (json_dump_callback(doc, add_text, &t, JSON_INDENT(2)) != 0) out->oom = true;
  for (size_t i = 0, next; i < t.n; i = next) {
    bool infinite = is_infinite(t.s, t.n, i);
    next = i + (infinite ? NUMBER : 1);
    if (t.s[i] == '"') next = MIN(skip_string(t.s, t.n, i) + 1, t.n);
    text_addn(out, infinite ? word : t.s + i, infinite ? WORD : next - i);
  }
  text_free(&t);
}
