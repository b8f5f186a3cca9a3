/* check_source.c - what the sources do not do again. Texts are put together by Text,
 * which grows, or by TextBuf, which ends where its buffer ends: nobody uses what snprintf
 * returns, which is the length that the text would have had, and so leads behind the
 * buffer; nobody copies strings without a bound. An error of a function begins empty, as
 * one that is filled keeps what it has. What a macro evaluates twice changes nothing. */
#include <check.h>
#include <ctype.h>
#include <glob.h>
#include <stdio.h>

#include "vm/io/io.h"

/* ---- C without comments and literals ---- */

/* Blanks the literal or comment that begins at `s`; returns what is behind it. */
static char *blank_until(char *s, size_t skip, const char *end, bool escapes) {
  char *at = s + skip;
  while (*at && strncmp(at, end, strlen(end)) != 0)
    at += escapes && *at == '\\' && at[1] ? 2 : 1;
  at += *at ? strlen(end) : 0;
  for (; s < at; s++)
    if (*s != '\n') *s = ' ';
  return at;
}

static void blank(char *s) {
  while (*s)
    if (strncmp(s, "/*", 2) == 0)
      s = blank_until(s, 2, "*/", false);
    else if (strncmp(s, "//", 2) == 0)
      s = blank_until(s, 2, "\n", false);
    else if (*s == '"' || *s == '\'')
      s = blank_until(s, 1, *s == '"' ? "\"" : "'", true);
    else
      s++;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* ---- one call ---- */

/* Whether the text from `all` to `end` ends with this word. */
static bool ends_with(const char *all, const char *end, const char *word) {
  size_t n = strlen(word);
  return (size_t)(end - all) >= n && memcmp(end - n, word, n) == 0 &&
         (end - n == all || !is_word(end[-(ptrdiff_t)n - 1]));
}

static const char *trim(const char *all, const char *end) {
  while (end > all && isspace((unsigned char)end[-1])) end--;
  return end;
}

/* The '(' of the ')' at end[-1]. */
static const char *opening(const char *all, const char *end) {
  int depth = 0;
  while (end > all) {
    end--;
    depth += (*end == ')') - (*end == '(');
    if (depth == 0) break;
  }
  return end;
}

/* Whether a statement begins at `call`, so that its result is dropped. */
static bool begins_statement(const char *all, const char *call) {
  const char *end = trim(all, call);
  if (end == all || strchr(";{}:,", end[-1])) return true;
  if (ends_with(all, end, "else") || ends_with(all, end, "do")) return true;
  if (end[-1] != ')') return false;
  end = trim(all, opening(all, end));
  return ends_with(all, end, "if") || ends_with(all, end, "for") ||
         ends_with(all, end, "while");
}

/* Whether the second argument is a difference: what is left of a buffer. */
static bool size_is_a_rest(const char *call) {
  const char *s = strchr(call, '(') + 1;
  int depth = 0, argument = 0;
  for (; *s && depth >= 0 && argument < 2; s++) {
    depth += (*s == '(' || *s == '[') - (*s == ')' || *s == ']');
    if (*s == ',' && depth == 0) argument++;
    if (argument == 1 && *s == '-' && s[1] != '>') return true;
  }
  return false;
}

static const char *const unbounded[] = {"sprintf", "vsprintf", "strcpy",
                                        "stpcpy",  "strcat",   "strncat"};

/* Macros that evaluate an argument more than once. */
static const char *const repeating[] = {"MIN", "MAX", "VEC_PUSH"};

static bool assigns(const char *all, const char *s) {
  return *s == '=' && s[1] != '=' && !(s > all && strchr("=!<>", s[-1]));
}

/* Whether an argument of this call is another one when it is evaluated again: it counts,
 * assigns or looks at the clock. */
static bool changes(const char *call) {
  const char *s = strchr(call, '(') + 1;
  for (int depth = 0; *s && depth >= 0; s++) {
    depth += (*s == '(') - (*s == ')');
    if (strncmp(s, "++", 2) == 0 || strncmp(s, "--", 2) == 0) return true;
    if (assigns(call, s) || strncmp(s, "now_s()", 7) == 0) return true;
  }
  return false;
}

static bool repeats(const char *call, size_t n) {
  for (int i = 0; i < LEN(repeating); i++)
    if (strlen(repeating[i]) == n && memcmp(call, repeating[i], n) == 0) return true;
  return false;
}

/* What is wrong with the function that is called here; NULL: nothing. */
static const char *fault(const char *all, const char *call, size_t n) {
  for (int i = 0; i < LEN(unbounded); i++)
    if (strlen(unbounded[i]) == n && memcmp(call, unbounded[i], n) == 0)
      return "a call has no bound: use Text or TextBuf (vm/base/base.h)";
  if (repeats(call, n) && changes(call))
    return "a macro evaluates an argument twice that changes something: take it out of "
           "the call";
  bool formats = (n == 8 && memcmp(call, "snprintf", n) == 0) ||
                 (n == 9 && memcmp(call, "vsnprintf", n) == 0);
  if (formats && size_is_a_rest(call))
    return "a call writes into the rest of a buffer: use Text or TextBuf "
           "(vm/base/base.h)";
  if (formats && !begins_statement(all, call))
    return "a call has a result that is used: use Text or TextBuf (vm/base/base.h)";
  return NULL;
}

#define ERROR "weft_error "

/* Whether an error is declared at `s`, inside a function, that begins as whatever lies on
 * the stack. `outer`: the last line that is not indented. */
static bool error_begins_anyhow(const char *outer, const char *s) {
  static const char *const kind[] = {"typedef struct", "struct", "union",
                                     "typedef union"};
  for (int i = 0; i < LEN(kind); i++)
    if (strncmp(outer, kind[i], strlen(kind[i])) == 0) return false;
  if (s == outer || strncmp(s, ERROR, strlen(ERROR)) != 0) return false;
  s += strlen(ERROR);
  if (!is_word(*s)) return false; /* a pointer */
  while (is_word(*s)) s++;
  return *s == ';' || *s == ',';
}

/* The first fault in a source; its line, or 0. */
static int find_fault(char *source, const char **what) {
  int line = 1;
  const char *outer = source;
  blank(source);
  for (const char *s = source; *s; s++) {
    line += *s == '\n';
    if (s > source && s[-1] == '\n' && !isspace((unsigned char)*s)) outer = s;
    if (!is_word(*s) || (s > source && is_word(s[-1]))) continue;
    if (error_begins_anyhow(outer, s)) {
      *what = "an error is not empty at first: write = NO_ERROR (vm/base/base.h)";
      return line;
    }
    size_t n = 0;
    while (is_word(s[n])) n++;
    if (s[n] == '(' && (*what = fault(source, s, n))) return line;
  }
  return 0;
}

/* ---- tests ---- */

static const struct {
  const char *source;
  int line; /* 0: nothing is wrong */
} example[] = {
    {"n += snprintf(buf + n, 64 - n, \"%d\", i);", 1},
    {"n = 0;\nn += (size_t)snprintf(s, z, \"-\");", 2},
    {"return snprintf(buf, n, \"a\");", 1},
    {"if (ok)\n  snprintf(buf + n, sizeof buf - (size_t)n, \" b\");", 2},
    {"if (snprintf(a, b, \"c\") > 3) x();", 1},
    {"int at = d ? snprintf(a, 1, \"\") : 0;", 1},
    {"a();\nstrcat(names, \", \");", 2},
    {"char c = '\"'; strcpy(p, q);", 1},
    {"snprintf(w->why, sizeof w->why, \"%s\", f(a, b - 1));", 0},
    {"if (f(x) > 2) snprintf(a, n + 1, \"x - y\"); else snprintf(b, n, \"\");", 0},
    {"/* n += snprintf(a, b - n) */ x = \"strcat(a)\"; mysprintf(a);", 0},
    {"textbuf_printf(&t, \"%d\", i); text_printf(&u, \"\");", 0},
    {"n = 0;\nmost = MAX(most, ++*n);", 2},
    {"a = MIN(f(b--), c);", 1},
    {"a = MIN(b, (c = d));", 1},
    {"a = MAX(b, now_s() - c);", 1},
    {"*VEC_PUSH(a, list[i++]) = b;", 1},
    {"a = MAX(b - -c, d <= e ? f : g == h), i++; NMAX(i++);", 0},
    {"*VEC_PUSH(a, list) = from[i++];", 0},
    {"int f(void) {\n  weft_error e;\n  return g(&e);", 2},
    {"int f(void) {\n  if (x) {\n    weft_error e, why;", 3},
    {"int f(void) {\n  weft_error e = NO_ERROR;\n  weft_error *p = &e;", 0},
    {"typedef struct A {\n  weft_error e;\n} A;\nvoid f(weft_error *e) {", 0},
    {"typedef struct A {\n  weft_error e;\n} A;\nvoid f(void) {\n  weft_error e;", 5},
};

START_TEST(faults_are_seen) {
  for (int i = 0; i < LEN(example); i++) {
    char source[128];
    const char *what = NULL;
    snprintf(source, sizeof source, "%s", example[i].source);
    int line = find_fault(source, &what);
    ck_assert_msg(line == example[i].line, "line %d of: %s", line, example[i].source);
  }
}
END_TEST

/* The functions that others use instead are there. */
static bool may(const char *path) {
  return str_eq(path, WEFT_SOURCE_DIR "/vm/base/base.c") ||
         str_eq(path, WEFT_SOURCE_DIR "/vm/base/arena.c");
}

static int look_at_files(const char *pattern) {
  glob_t g;
  int n = 0;
  if (glob(pattern, 0, NULL, &g) != 0) return 0;
  for (; n < (int)g.gl_pathc; n++) {
    const char *path = g.gl_pathv[n], *what = NULL;
    char *text;
    size_t size;
    weft_error e;
    err_clear(&e);
    ck_assert_msg(file_read(NULL, path, FILE_OWN_MAX, &text, &size, &e) == WEFT_OK, "%s",
                  e.text);
    int line = may(path) ? 0 : find_fault(text, &what);
    ck_assert_msg(line == 0, "%s:%d: %s", path, line, what);
    mem_free(NULL, text, size + 1);
  }
  globfree(&g);
  return n;
}

START_TEST(sources_have_no_fault) {
  static const char *const folder[] = {"vm", "bindings", "kernels"};
  static const char *const below[] = {"*", "*/*", "*/*/*"};
  static const char *const kind[] = {"c", "h", "cu", "cpp"};
  int n = 0;
  for (int i = 0; i < LEN(folder) * LEN(below) * LEN(kind); i++) {
    char pattern[512];
    snprintf(pattern, sizeof pattern, "%s/%s/%s.%s", WEFT_SOURCE_DIR,
             folder[i % LEN(folder)], below[i / LEN(folder) % LEN(below)],
             kind[i / LEN(folder) / LEN(below)]);
    n += look_at_files(pattern);
  }
  ck_assert_int_gt(n, 300);
}
END_TEST

Suite *source_suite(void);
Suite *source_suite(void) {
  Suite *s = suite_create("source");
  TCase *t = tcase_create("source");
  tcase_add_test(t, faults_are_seen);
  tcase_add_test(t, sources_have_no_fault);
  suite_add_tcase(s, t);
  return s;
}
