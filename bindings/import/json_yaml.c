/* json_yaml.c - JSON as YAML that means the same. Nearly all JSON is; libyaml refuses
 * halves of a character beyond U+FFFF, control characters and keys that are long or not
 * in the line of their colon, and takes three characters for ends of lines. */
#include <lauxlib.h>
#include <stdlib.h>

#include "settings.h"

enum { KEY = 256 }; /* bytes that a key may have without a mark before it */

/* The end of the string that begins at s[i], behind its quote. */
static size_t string_end(const char *s, size_t n, size_t i) {
  for (i++; i < n && s[i] != '"'; i++)
    if (s[i] == '\\') i++;
  return MIN(i + 1, n);
}

/* Whether the string from `begin` to `end` is a key that YAML wants marked. */
static bool wants_mark(const char *s, size_t n, size_t begin, size_t end) {
  bool line = false;
  size_t i = end;
  for (; i < n && strchr(" \t\r\n", s[i]); i++) line |= s[i] == '\n' || s[i] == '\r';
  return i < n && s[i] == ':' && (line || end - begin > KEY);
}

/* The value of \uXXXX at s, or -1. */
static long escaped(const char *s, size_t n) {
  char digits[5] = "";
  if (n < 6 || s[0] != '\\' || s[1] != 'u') return -1;
  memcpy(digits, s + 2, 4);
  return strtol(digits, NULL, 16);
}

/* Both halves of a character as the character: how many bytes of s they are, or 0. */
static size_t add_pair(luaL_Buffer *b, const char *s, size_t n) {
  long high = escaped(s, n), low = n > 6 ? escaped(s + 6, n - 6) : -1;
  if (high < 0xd800 || high > 0xdbff || low < 0xdc00 || low > 0xdfff) return 0;
  long c = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  const char utf8[] = {(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 0x3f)),
                       (char)(0x80 | (c >> 6 & 0x3f)), (char)(0x80 | (c & 0x3f))};
  luaL_addlstring(b, utf8, sizeof utf8);
  return 12;
}

/* A character that YAML has not, or takes for the end of a line, as \uXXXX: how many
 * bytes of s it has, or 0. */
static size_t add_escape(luaL_Buffer *b, const char *s, size_t n) {
  const unsigned char *u = (const unsigned char *)s;
  unsigned c = 0;
  size_t m = 0;
  if (u[0] == 0x7f)
    c = 0x7f, m = 1;
  else if (n > 1 && u[0] == 0xc2 && u[1] < 0xa0)
    c = u[1], m = 2;
  else if (n > 2 && (u[0] & 0xf0) == 0xe0)
    c = (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu), m = 3;
  if (m == 3 && c != 0x2028 && c != 0x2029 && c != 0xfeff && c < 0xfffe) return 0;
  if (!m) return 0;
  char text[8];
  snprintf(text, sizeof text, "\\u%04x", c);
  luaL_addlstring(b, text, 6);
  return m;
}

static void add_string(luaL_Buffer *b, const char *s, size_t n) {
  for (size_t i = 0, m; i < n; i += m) {
    m = add_pair(b, s + i, n - i);
    if (!m) m = add_escape(b, s + i, n - i);
    if (m) continue;
    m = s[i] == '\\' && i + 1 < n ? 2 : 1;
    luaL_addlstring(b, s + i, m);
  }
}

const char *json_yaml(lua_State *L, const char *text, size_t *n) {
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (size_t i = 0; i < *n;) {
    if (text[i] != '"') {
      luaL_addchar(&b, text[i++]);
      continue;
    }
    size_t end = string_end(text, *n, i);
    if (wants_mark(text, *n, i, end)) luaL_addstring(&b, "? ");
    add_string(&b, text + i, end - i);
    i = end;
  }
  luaL_pushresult(&b);
  return lua_tolstring(L, -1, n);
}
