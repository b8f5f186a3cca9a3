/* json.c - JSON text from C values. The output is valid whatever the input: bytes
 * that are not UTF-8 become U+FFFD, and numbers do not depend on the locale. */
#include "json.h"
#include "terminal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- strings ---- */

/* Also escapes what a terminal would interpret, as JSON is printed there, too. */
static void escape(Text *t, uint32_t code) {
  if (code >= 0x10000)
    text_printf(t, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
  else
    text_printf(t, "\\u%04x", code);
}

static void quote(Text *t, const char *s, size_t n) {
  static const char named[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
  text_add(t, "\"");
  for (const char *end = s + n; s < end;) {
    uint32_t code;
    int len = text_character(s, (size_t)(end - s), &code);
    const char *special = *s ? strchr(named, *s) : NULL;
    if (special)
      text_printf(t, "\\%c", letter[special - named]);
    else if (len <= 0)
      text_add(t, "\xef\xbf\xbd");
    else if (text_hidden(code))
      escape(t, code);
    else
      text_addn(t, s, (size_t)len);
    s += MAX(len, 1);
  }
  text_add(t, "\"");
}

/* ---- numbers ---- */

/* The fewest digits that read back as the same double. If at most 15 digits suffice for a
 * normal double, %.15 gives them padded with zeros, so the search starts there; a
 * subnormal one has fewer significant digits. */
static void shortest(double v, char *out, size_t size) {
  for (int p = fabs(v) < DBL_MIN ? 1 : 15; p <= 17; p++) {
    snprintf(out, size, "%.*e", p - 1, v);
    if (strtod(out, NULL) == v) return;
  }
}

/* Writes d.ddd * 10^exponent, plainly where that is short. */
static void layout(Text *t, const char *digit, int n, int exponent) {
  if (exponent < -5 || exponent > 15) {
    text_addn(t, digit, 1);
    if (n > 1) text_add(t, "."), text_addn(t, digit + 1, (size_t)n - 1);
    text_printf(t, "e%d", exponent);
    return;
  }
  if (exponent < 0) text_add(t, "0.");
  for (int i = exponent + 1; i < 0; i++) text_add(t, "0");
  for (int i = 0; i < n || i <= exponent; i++) {
    if (i == exponent + 1 && i > 0) text_add(t, ".");
    text_addn(t, i < n ? digit + i : "0", 1);
  }
}

static void number(Text *t, double v) {
  char raw[48], digit[20];
  int n = 0, i = 0;
  shortest(v, raw, sizeof raw);
  if (raw[0] == '-') text_add(t, "-");
  /* The locale's decimal point is skipped: only digits are copied. */
  for (; raw[i] && raw[i] != 'e'; i++)
    if (raw[i] >= '0' && raw[i] <= '9') digit[n++] = raw[i];
  while (n > 1 && digit[n - 1] == '0') n--;
  layout(t, digit, n, atoi(raw + i + 1));
}

/* ---- values ---- */

static void newline(Json *j) {
  if (!j->pretty) return;
  text_add(j->out, "\n");
  for (int i = 0; i < j->depth; i++) text_add(j->out, "  ");
}

/* Writes what precedes a value: comma, line break, key. */
static void lead(Json *j, const char *key) {
  if (j->depth > 0) {
    if (j->comma[j->depth]) text_add(j->out, ",");
    j->comma[j->depth] = true;
    newline(j);
  }
  if (!key) return;
  quote(j->out, key, strlen(key));
  text_add(j->out, j->pretty ? ": " : ":");
}

void json_open(Json *j, const char *key, char bracket) {
  assert(bracket == '{' || bracket == '[');
  assert(j->depth + 1 < LEN(j->comma));
  lead(j, key);
  text_addn(j->out, &bracket, 1);
  j->comma[++j->depth] = false;
}

void json_close(Json *j, char bracket) {
  assert(bracket == '}' || bracket == ']');
  assert(j->depth > 0);
  bool empty = !j->comma[j->depth--];
  if (!empty) newline(j);
  text_addn(j->out, &bracket, 1);
}

void json_str(Json *j, const char *key, const char *s) {
  if (s) {
    json_strn(j, key, s, strlen(s));
    return;
  }
  lead(j, key);
  text_add(j->out, "null");
}

void json_strn(Json *j, const char *key, const char *s, size_t n) {
  lead(j, key);
  quote(j->out, s, n);
}

void json_int(Json *j, const char *key, int64_t v) {
  lead(j, key);
  text_printf(j->out, "%lld", (long long)v);
}

void json_ints(Json *j, const char *key, const int64_t *v, int n) {
  json_open(j, key, '[');
  for (int i = 0; i < n; i++) json_int(j, NULL, v[i]);
  json_close(j, ']');
}

void json_num(Json *j, const char *key, double v) {
  lead(j, key);
  if (!isfinite(v)) {
    bool named = j->python && isinf(v);
    text_add(j->out, !named ? "null" : v < 0 ? "-Infinity" : "Infinity");
    return;
  }
  size_t from = j->out->n;
  number(j->out, v);
  if (j->point && !j->out->oom && !strpbrk(j->out->s + from, ".e"))
    text_add(j->out, ".0");
}

void json_bool(Json *j, const char *key, bool v) {
  lead(j, key);
  text_add(j->out, v ? "true" : "false");
}

void json_none(Json *j, const char *key) { json_str(j, key, NULL); }

void json_raw(Json *j, const char *key, const char *s, size_t n) {
  lead(j, key);
  text_addn(j->out, s, n);
}
