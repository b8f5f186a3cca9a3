/* terminal.c - see terminal.h. */
#include "terminal.h"

#include <stdio.h>

/* ---- one character ---- */

int text_character(const char *text, size_t n, uint32_t *code) {
  const unsigned char *s = (const unsigned char *)text;
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  int len = *s < 0x80   ? 1
            : *s < 0xc2 ? 0
            : *s < 0xe0 ? 2
            : *s < 0xf0 ? 3
            : *s < 0xf5 ? 4
                        : 0;
  if (len < 2) {
    *code = *s;
    return len;
  }
  *code = *s & (0x7fu >> len);
  for (int i = 1; i < len; i++) {
    if ((size_t)i == n) return -1;
    if ((s[i] & 0xc0) != 0x80) return 0;
    *code = *code << 6 | (s[i] & 0x3fu);
  }
  bool surrogate = *code >= 0xd800 && *code < 0xe000;
  return *code < least[len] || *code > 0x10ffff || surrogate ? 0 : len;
}

size_t text_utf8(const char *s, size_t n) {
  uint32_t code;
  size_t i = 0;
  for (int k; i < n && (k = text_character(s + i, n - i, &code)) > 0;) i += (size_t)k;
  return i;
}

/* Whether a byte can be the second of a character: what would be too small, a surrogate
 * or too large is no beginning of one. */
static bool may_follow(unsigned char lead, unsigned char c) {
  unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return lead >= 0xc2 && lead < 0xf5 && c >= least && c <= most;
}

/* The bytes at s[0, n), which is not UTF-8, that began a character; at least one. */
static size_t begun(const char *text, size_t n) {
  const unsigned char *s = (const unsigned char *)text;
  size_t len = *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4, k = 1;
  if (n > 1 && may_follow(s[0], s[1])) k++;
  while (k > 1 && k < len && k < n && (s[k] & 0xc0) == 0x80) k++;
  return k;
}

void text_add_utf8(Text *t, const char *s, size_t n) {
  while (n > 0) {
    size_t good = text_utf8(s, n), bad = 0;
    text_addn(t, s, good);
    if (good < n) {
      bad = begun(s + good, n - good);
      text_add(t, "\xef\xbf\xbd");
    }
    s += good + bad;
    n -= good + bad;
  }
}

bool text_hidden(uint32_t c) {
  static const struct {
    uint32_t from, to;
  } range[] = {
      {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
      {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
      {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
  };
  for (int i = 0; i < LEN(range); i++)
    if (c >= range[i].from && c <= range[i].to) return true;
  return false;
}

static bool stays(const unsigned char *s, size_t n, ShownLines lines) {
  if (*s == '\n' && lines == PARAGRAPH) return n > 2 && s[1] == ' ' && s[2] == ' ';
  return (*s == '\n' || *s == '\t') && lines == FREE_LINES;
}

enum { WIDEST = 16 };

/* The escape for the character at s; *len: its bytes, 0 if it is incomplete. False:
 * none. */
static bool escape(const char *text, size_t n, ShownLines lines, int *len, char *out) {
  const unsigned char *s = (const unsigned char *)text;
  uint32_t code = 0;
  *len = text_character(text, n, &code);
  if (*len < 0) {
    *len = 0;
    return false;
  }
  const char *known = *s == '\n' ? "\\n" : *s == '\t' ? "\\t" : *s == '\r' ? "\\r" : NULL;
  if (*len > 0 && (!text_hidden(code) || stays(s, n, lines))) return false;
  if (known)
    snprintf(out, WIDEST, "%s", known);
  else if (*len > 1)
    snprintf(out, WIDEST, "\\u{%x}", code);
  else
    snprintf(out, WIDEST, "\\x%02x", *s);
  *len = MAX(*len, 1);
  return true;
}

/* ---- texts ---- */

size_t text_add_shown(Text *t, const char *s, size_t n, ShownLines lines, bool end) {
  size_t at = 0, plain = 0; /* [plain, at) needs no escape */
  while (at < n) {
    char out[WIDEST];
    int len;
    bool escaped = escape(s + at, n - at, lines, &len, out);
    if (!escaped && len == 0) {
      if (!end) break;
      snprintf(out, sizeof out, "\\x%02x", (unsigned char)s[at]);
      escaped = true;
      len = 1;
    }
    if (escaped) {
      text_addn(t, s + plain, at - plain);
      text_add(t, out);
      plain = at + (size_t)len;
    }
    at += (size_t)len;
  }
  text_addn(t, s + plain, at - plain);
  return at;
}

static bool clean(const char *s, ShownLines lines) {
  size_t n = strlen(s);
  char out[WIDEST];
  int len;
  for (; n > 0; s += len, n -= (size_t)len)
    if (escape(s, n, lines, &len, out) || len == 0) return false;
  return true;
}

/* Writes s, which may not overlap `to`; ends at a character that does not fit. */
static void show(const char *s, char *to, size_t room, ShownLines lines) {
  size_t n = strlen(s), at = 0;
  while (n > 0) {
    char out[WIDEST];
    int len;
    bool escaped = escape(s, n, lines, &len, out);
    if (!escaped && len == 0) {
      snprintf(out, sizeof out, "\\x%02x", (unsigned char)*s);
      escaped = true;
      len = 1;
    }
    size_t size = escaped ? strlen(out) : (size_t)len;
    if (at + size >= room) break;
    memcpy(to + at, escaped ? out : s, size);
    at += size;
    s += len;
    n -= (size_t)len;
  }
  to[at] = 0;
}

void show_in(char *s, size_t room, ShownLines lines) {
  char was[2048];
  assert(room <= sizeof was);
  if (clean(s, lines)) return;
  memcpy(was, s, strlen(s) + 1);
  show(was, s, room, lines);
}

char *arena_shown(Arena *a, char *s, ShownLines lines) {
  if (clean(s, lines)) return s;
  size_t room = 10 * strlen(s) + 1; /* \u{e007f} is the longest, for four bytes */
  char *to = arena_alloc(a, room);
  show(s, to, room, lines);
  return to;
}

const char *show_name(const char *s, char *to, size_t room) {
  show(s ? s : "", to, room, ONE_LINE);
  return to;
}

bool has_control(const char *s) { return !clean(s, ONE_LINE); }
