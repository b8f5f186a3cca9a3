/* pattern.c - Lua patterns, by backtracking. Each byte and item that is examined counts
 * as a step, so that an exponential pattern hits the limit like an endless loop.
 * Character classes are ASCII's, whatever the locale. */
#include "lib.h"

enum { CHARGE_EVERY = 1000, MAX_DEPTH = 200 };

static const char *match(Matcher *m, const char *s, const char *p);

static void step(Matcher *m, int64_t n) {
  m->steps += n;
  if (m->steps < CHARGE_EVERY) return;
  lib_charge(m->L, m->steps);
  m->steps = 0;
}

/* ---- one character ---- */

static bool lower(int c) { return c >= 'a' && c <= 'z'; }
static bool upper(int c) { return c >= 'A' && c <= 'Z'; }
static bool digit(int c) { return c >= '0' && c <= '9'; }
static bool printable(int c) { return c > ' ' && c < 127; }

/* Whether c belongs to %class; a capital letter means the complement. */
static bool in_class(int c, int class) {
  bool yes;
  switch (upper(class) ? class - 'A' + 'a' : class) {
  case 'a': yes = lower(c) || upper(c); break;
  case 'c': yes = c < ' ' || c == 127; break;
  case 'd': yes = digit(c); break;
  case 'g': yes = printable(c); break;
  case 'l': yes = lower(c); break;
  case 'p': yes = printable(c) && !lower(c) && !upper(c) && !digit(c); break;
  case 's': yes = c == ' ' || (c >= '\t' && c <= '\r'); break;
  case 'u': yes = upper(c); break;
  case 'w': yes = lower(c) || upper(c) || digit(c); break;
  case 'z': /* not in the manual any more, but still in Lua */ yes = c == 0; break;
  case 'x': yes = digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); break;
  default: return c == class;
  }
  return yes != upper(class);
}

/* The end of the single-character item at p: a character, %x or a set. */
static const char *item_end(Matcher *m, const char *p) {
  int c = *p++;
  if (c == '%') {
    if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (ends with '%%')");
    return p + 1;
  }
  if (c != '[') return p;
  if (p < m->pattern_end && *p == '^') p++;
  for (bool first = true;; first = false) {
    if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
    step(m, 1);
    if (*p == ']' && !first) return p + 1;
    if (*p++ != '%') continue;
    if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
    p++;
  }
}

/* Whether c belongs to the set from p ("[") to before end. */
static bool in_set(Matcher *m, int c, const char *p, const char *end) {
  bool found = true;
  p++, end--;
  if (*p == '^') p++, found = false;
  for (; p < end; p++) {
    step(m, 1);
    if (*p == '%') {
      p++;
      if (in_class(c, (unsigned char)*p)) return found;
    } else if (p + 2 < end && p[1] == '-') {
      if ((unsigned char)p[0] <= c && c <= (unsigned char)p[2]) return found;
      p += 2;
    } else if ((unsigned char)*p == c) {
      return found;
    }
  }
  return !found;
}

/* Whether the character at s, if there is one, fits the item from p to before end. */
static bool fits(Matcher *m, const char *s, const char *p, const char *end) {
  step(m, 1);
  if (s >= m->text_end) return false;
  int c = (unsigned char)*s;
  switch (*p) {
  case '.': return true;
  case '%': return in_class(c, (unsigned char)p[1]);
  case '[': return in_set(m, c, p, end);
  default: return (unsigned char)*p == c;
  }
}

/* ---- captures ---- */

static const char *open_capture(Matcher *m, const char *s, const char *p, ptrdiff_t n) {
  if (m->ncapture == MAX_CAPTURES) luaL_error(m->L, "too many captures");
  m->capture[m->ncapture++] = (Capture){s, n};
  const char *end = match(m, s, p);
  if (!end) m->ncapture--;
  return end;
}

static const char *close_capture(Matcher *m, const char *s, const char *p) {
  int i = m->ncapture - 1;
  while (i >= 0 && m->capture[i].n != CAPTURE_OPEN) i--;
  if (i < 0) luaL_error(m->L, "invalid pattern capture");
  m->capture[i].n = s - m->capture[i].at;
  const char *end = match(m, s, p);
  if (!end) m->capture[i].n = CAPTURE_OPEN;
  return end;
}

/* Matches %1: the text of an earlier capture again. */
static const char *again(Matcher *m, const char *s, int number) {
  int i = number - '1';
  if (i < 0 || i >= m->ncapture || m->capture[i].n == CAPTURE_OPEN)
    luaL_error(m->L, "invalid capture index %%%d", i + 1);
  ptrdiff_t n = m->capture[i].n;
  step(m, MAX(n, (ptrdiff_t)0) / 8);
  if (n == CAPTURE_POSITION || m->text_end - s < n ||
      memcmp(m->capture[i].at, s, (size_t)n) != 0)
    return NULL;
  return s + n;
}

/* ---- items of several characters ---- */

/* %bxy: from x to the y that closes it. With x = y the next x closes it. */
static const char *balanced(Matcher *m, const char *s, const char *p) {
  if (m->pattern_end - p < 2)
    luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
  if (s >= m->text_end || *s != p[0]) return NULL;
  for (int64_t open = 1; ++s < m->text_end;) {
    step(m, 1);
    if (*s == p[1] && --open == 0) return s + 1;
    if (*s == p[0]) open++;
  }
  return NULL;
}

/* %f[set]: between a character outside of the set and one in it. */
static bool frontier(Matcher *m, const char *s, const char *p, const char *end) {
  int before = s == m->text ? 0 : (unsigned char)s[-1];
  int after = s == m->text_end ? 0 : (unsigned char)*s;
  return !in_set(m, before, p, end) && in_set(m, after, p, end);
}

static const char *most(Matcher *m, const char *s, const char *p, const char *end) {
  ptrdiff_t n = 0;
  while (fits(m, s + n, p, end)) n++;
  for (; n >= 0; n--) {
    const char *found = match(m, s + n, end + 1);
    if (found) return found;
  }
  return NULL;
}

static const char *least(Matcher *m, const char *s, const char *p, const char *end) {
  for (;; s++) {
    const char *found = match(m, s, end + 1);
    if (found) return found;
    if (!fits(m, s, p, end)) return NULL;
  }
}

/* ---- the pattern from p on, at s ---- */

/* %b, %f and %1 move s and p, or make s NULL; false for what is a single character. */
static bool special(Matcher *m, const char **s, const char **p) {
  const char *at = *p + 2, *end;
  if (*p + 1 == m->pattern_end) return false;
  switch ((*p)[1]) {
  case 'b':
    *s = balanced(m, *s, at);
    *p = at + 2;
    return true;
  case 'f':
    if (at == m->pattern_end || *at != '[')
      luaL_error(m->L, "missing '[' after '%%f' in pattern");
    end = item_end(m, at);
    if (!frontier(m, *s, at, end)) *s = NULL;
    *p = end;
    return true;
  default:
    if (!digit((*p)[1])) return false;
    *s = again(m, *s, (*p)[1]);
    *p = at;
    return true;
  }
}

/* Matches the rest of the pattern; recurs only where another way may have to be tried. */
static const char *walk(Matcher *m, const char *s, const char *p) {
  const char *last = m->pattern_end;
  while (s && p < last) {
    step(m, 1);
    if (*p == '(')
      return p + 1 < last && p[1] == ')' ? open_capture(m, s, p + 2, CAPTURE_POSITION)
                                         : open_capture(m, s, p + 1, CAPTURE_OPEN);
    if (*p == ')') return close_capture(m, s, p + 1);
    if (*p == '$' && p + 1 == last) return s == m->text_end ? s : NULL;
    if (*p == '%' && special(m, &s, &p)) continue;
    const char *end = item_end(m, p);
    switch (end < last ? *end : 0) {
    case '*': return most(m, s, p, end);
    case '+': return fits(m, s, p, end) ? most(m, s + 1, p, end) : NULL;
    case '-': return least(m, s, p, end);
    case '?':
      if (fits(m, s, p, end)) {
        const char *found = match(m, s + 1, end + 1);
        if (found) return found;
      }
      p = end + 1;
      break;
    default: s = fits(m, s, p, end) ? s + 1 : NULL; p = end;
    }
  }
  return s;
}

static const char *match(Matcher *m, const char *s, const char *p) {
  if (m->depth == MAX_DEPTH) luaL_error(m->L, "pattern too complex");
  m->depth++;
  const char *end = walk(m, s, p);
  m->depth--;
  return end;
}

const char *pattern_match(Matcher *m, const char *s) {
  m->ncapture = m->depth = 0;
  return match(m, s, m->pattern);
}
