/* repl_print.c - the pretty printer. A table is first tried on one line; what does not
 * fit is written again over several lines. Output is capped in depth, in items of each
 * table and in items over all. */
#include "repl_print.h"

#include "bindings/script/export.h"

#include <ctype.h>

#include "bindings/lang/lang.h"

enum { ITEMS_OVER_ALL = 1000, TEXT_SHOWN = 200 };

typedef enum { PLAIN, TEXTS, NUMBERS, WORDS, THINGS } Style;
static const char *const colours[] = {"", "\033[32m", "\033[36m", "\033[35m", "\033[33m"};

typedef struct Printer {
  lua_State *L;
  const PrintOptions *o;
  Text *out;
  int column, left; /* left: items that may still be shown */
  bool flat;        /* on one line; `wide` is set when that does not fit */
  bool wide;
  const void *above[32]; /* the tables around */
  int depth;
} Printer;

const char *const repl_keywords[] = {
    "and",      "break",  "do",   "else", "elseif", "end",   "false", "for",
    "function", "goto",   "if",   "in",   "local",  "nil",   "not",   "or",
    "repeat",   "return", "then", "true", "until",  "while", NULL};

bool repl_is_name(const char *s, size_t n) {
  if (!n || isdigit((unsigned char)*s)) return false;
  for (size_t i = 0; i < n; i++)
    if (!isalnum((unsigned char)s[i]) && s[i] != '_') return false;
  for (int i = 0; repl_keywords[i]; i++)
    if (strlen(repl_keywords[i]) == n && memcmp(repl_keywords[i], s, n) == 0)
      return false;
  return true;
}

/* ---- words ---- */

static int columns(const char *s, size_t n) {
  int c = 0;
  for (size_t i = 0; i < n; i++)
    c += ((unsigned char)s[i] & 0xc0) != 0x80;
  return c;
}

static void put(Printer *p, Style style, const char *s, size_t n) {
  bool coloured = p->o->colour && style != PLAIN;
  if (coloured) text_add(p->out, colours[style]);
  text_addn(p->out, s, n);
  if (coloured) text_add(p->out, "\033[0m");
  p->column += columns(s, n);
  if (p->column > p->o->width) p->wide = true;
}

static void puts_(Printer *p, Style style, const char *s) {
  put(p, style, s, strlen(s));
}

static void newline(Printer *p, int indent) {
  text_printf(p->out, "\n%*s", indent, "");
  p->column = indent;
}

/* The length of the UTF-8 character at s, 0 if there is none. */
static size_t character(const char *s, size_t n) {
  unsigned char c = (unsigned char)*s;
  size_t k = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : 4;
  if ((c >= 0x80 && c < 0xc2) || c > 0xf4 || k > n) return 0;
  for (size_t i = 1; i < k; i++)
    if (((unsigned char)s[i] & 0xc0) != 0x80) return 0;
  return k;
}

void repl_quote(const char *s, size_t n, Text *out) {
  text_add(out, "\"");
  for (size_t i = 0, k; i < n; i += k ? k : 1) {
    unsigned char c = (unsigned char)s[i];
    k = character(s + i, n - i);
    if (c == '"' || c == '\\')
      text_printf(out, "\\%c", c);
    else if (c == '\n' || c == '\t' || c == '\r')
      text_add(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
    else if (!k || c < 0x20 || c == 0x7f)
      text_printf(out, "\\%03d", c);
    else
      text_addn(out, s + i, k);
  }
  text_add(out, "\"");
}

/* The quoted text passes through a buffer of Lua's, so that no error can lose it. */
static void quoted(Printer *p, const char *s, size_t n) {
  size_t shown = n, from = p->out->n;
  if (n > TEXT_SHOWN)
    for (shown = TEXT_SHOWN; shown && ((unsigned char)s[shown] & 0xc0) == 0x80;)
      shown--;
  bool coloured = p->o->colour;
  if (coloured) text_add(p->out, colours[TEXTS]);
  repl_quote(s, shown, p->out);
  if (coloured) text_add(p->out, "\033[0m");
  size_t escapes = coloured ? strlen(colours[TEXTS]) + strlen("\033[0m") : 0;
  p->column += columns(p->out->s + from, p->out->n - from) - (int)escapes;
  if (p->column > p->o->width) p->wide = true;
  if (shown == n) return;
  char rest[48];
  snprintf(rest, sizeof rest, "... %zu more bytes", n - shown);
  puts_(p, PLAIN, rest);
}

/* ---- things without parts ---- */

static int tostring(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  return 1;
}

/* Pushes what __tostring says of the value; false, with nothing pushed, without one. */
static bool own_text(Printer *p, int idx) {
  lua_State *L = p->L;
  if (luaL_getmetafield(L, idx, "__tostring") == LUA_TNIL) return false;
  lua_pop(L, 1);
  lua_pushcfunction(L, tostring);
  lua_pushvalue(L, idx);
  if (lua_pcall(L, 1, 1, 0) == LUA_OK) return true;
  const char *why = lua_tostring(L, -1);
  lua_pushfstring(L, "<its __tostring fails: %s>", why ? why : "?");
  lua_remove(L, -2);
  return true;
}

/* A long text loses its end: a program has thousands of lines. */
static void add_lines(Printer *p, const char *s, size_t n) {
  const char *cut = NULL, *end = s + n;
  int lines = 1;
  for (const char *nl = s; (nl = memchr(nl, '\n', (size_t)(end - nl))); nl++)
    if (++lines == p->o->lines) cut = nl;
  if (lines <= p->o->lines) cut = end;
  text_addn(p->out, s, (size_t)(cut - s));
  p->column += columns(s, (size_t)(cut - s));
  if (cut == end) return;
  char more[64];
  snprintf(more, sizeof more, "\n... %d more lines; print(_) shows all",
           lines - p->o->lines + 1);
  puts_(p, PLAIN, more);
}

/* Text of several lines is shown whole only where it does not stand among other things.
 */
static void thing(Printer *p, int idx) {
  size_t n;
  const char *s = lua_tolstring(p->L, -1, &n);
  const char *nl = memchr(s, '\n', n);
  if (p->depth == 0)
    add_lines(p, s, n);
  else
    put(p, THINGS, s, nl ? (size_t)(nl - s) : n);
  if (p->depth && nl) puts_(p, PLAIN, " ...");
  lua_pop(p->L, 1);
}

static void function(Printer *p, int idx) {
  const char *known = known_name(p->L, idx);
  lua_Debug ar;
  char text[LUA_IDSIZE + 48];
  lua_pushvalue(p->L, idx);
  lua_getinfo(p->L, ">S", &ar);
  uint64_t hash;
  const char *place = export_is(p->L, idx) ? export_place(p->L, idx, &hash) : NULL;
  if (place)
    snprintf(text, sizeof text, "function (%s)", place);
  else if (known)
    snprintf(text, sizeof text, "function %s", known);
  else if (*ar.what == 'C')
    snprintf(text, sizeof text, "function (built in)");
  else
    snprintf(text, sizeof text, "function (%s:%d)", ar.short_src, ar.linedefined);
  puts_(p, THINGS, text);
}

static void simple(Printer *p, int idx) {
  lua_State *L = p->L;
  size_t n;
  const char *s;
  switch (lua_type(L, idx)) {
  case LUA_TNIL:
    puts_(p, WORDS, "nil");
    return;
  case LUA_TBOOLEAN:
    puts_(p, WORDS, lua_toboolean(L, idx) ? "true" : "false");
    return;
  case LUA_TNUMBER:
    s = luaL_tolstring(L, idx, &n);
    put(p, NUMBERS, s, n);
    lua_pop(L, 1);
    return;
  case LUA_TSTRING:
    s = lua_tolstring(L, idx, &n);
    if (p->depth)
      quoted(p, s, n);
    else
      put(p, PLAIN, s, n);
    return;
  case LUA_TFUNCTION:
    function(p, idx);
    return;
  default:
    plain_tostring(L, idx);
    thing(p, idx);
  }
}

/* ---- tables ---- */

static void value(Printer *p, int idx);

/* Adds the keys at the list on top's index `keys` that have no order, as they come. */
static void add_unordered(lua_State *L, int t, int keys) {
  lua_Integer n = (lua_Integer)lua_rawlen(L, keys);
  for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
    int type = lua_type(L, -2);
    if (type == LUA_TSTRING || type == LUA_TNUMBER || type == LUA_TBOOLEAN) continue;
    lua_pushvalue(L, -2);
    lua_rawseti(L, keys, ++n);
  }
}

/* Pushes the list of keys beside 1..listed. */
static void push_keys(lua_State *L, int t, lua_Integer listed) {
  lua_newtable(L);
  int ordered = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
    int type = lua_type(L, -2);
    bool item = lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 &&
                lua_tointeger(L, -2) <= listed;
    if (item || (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TBOOLEAN))
      continue;
    lua_pushvalue(L, -2);
    lua_pushboolean(L, true);
    lua_rawset(L, ordered);
  }
  sorted_keys(L, ordered);
  lua_remove(L, ordered);
  add_unordered(L, t, lua_gettop(L));
}

static void key(Printer *p, int idx) {
  size_t n;
  if (lua_type(p->L, idx) == LUA_TSTRING) {
    const char *s = lua_tolstring(p->L, idx, &n);
    if (repl_is_name(s, n)) {
      put(p, PLAIN, s, n);
      puts_(p, PLAIN, " = ");
      return;
    }
  }
  puts_(p, PLAIN, "[");
  if (lua_istable(p->L, idx))
    puts_(p, THINGS, "table"); /* opened as a key, it would read as a value */
  else
    simple(p, idx);
  puts_(p, PLAIN, "] = ");
}

/* Where one item ends and the next begins. Items of a list that do not fit on one line
 * fill the lines as words do; a pair or a table has a line of its own. */
static void separate(Printer *p, int number, bool own_line, int indent) {
  if (number) puts_(p, PLAIN, ",");
  if (!p->flat && (own_line || !number))
    newline(p, indent);
  else
    puts_(p, PLAIN, " ");
}

typedef struct Items {
  int t, keys; /* stack indices */
  lua_Integer listed, pairs;
} Items;

/* An item that began in the middle of a line and does not fit moves to the next one. */
static void list_item(Printer *p, const Items *it, lua_Integer i, int indent) {
  size_t before = p->out->n;
  int column = p->column, left = p->left;
  lua_rawgeti(p->L, it->t, i + 1);
  bool table = lua_istable(p->L, -1);
  separate(p, (int)i, table, indent);
  value(p, lua_gettop(p->L));
  if (!p->flat && !table && i && p->column + 1 > p->o->width) {
    p->out->n = before;
    p->column = column;
    p->left = left;
    separate(p, (int)i, true, indent);
    value(p, lua_gettop(p->L));
  }
  lua_pop(p->L, 1);
}

static void pair_item(Printer *p, const Items *it, lua_Integer i, int indent) {
  lua_State *L = p->L;
  separate(p, (int)(it->listed + i), true, indent);
  lua_rawgeti(L, it->keys, i + 1);
  key(p, lua_gettop(L));
  lua_rawget(L, it->t);
  value(p, lua_gettop(L));
  lua_pop(L, 1);
}

static void items(Printer *p, const Items *it, int indent) {
  lua_Integer all = it->listed + it->pairs, shown = 0;
  puts_(p, PLAIN, "{");
  for (; shown < all && shown < p->o->items && p->left > 0; shown++, p->left--) {
    if (shown < it->listed)
      list_item(p, it, shown, indent + 2);
    else
      pair_item(p, it, shown - it->listed, indent + 2);
    if (p->flat && p->wide) return;
  }
  if (shown < all) {
    char more[48];
    separate(p, (int)shown, false, indent + 2);
    snprintf(more, sizeof more, "... %lld more", (long long)(all - shown));
    puts_(p, PLAIN, more);
  }
  if (p->flat)
    puts_(p, PLAIN, " ");
  else
    newline(p, indent);
  puts_(p, PLAIN, "}");
}

/* On one line if it fits there, else over several. */
static void fit(Printer *p, const Items *it, int indent) {
  size_t before = p->out->n;
  int column = p->column, left = p->left;
  bool flat = p->flat;
  p->flat = true;
  if (!flat) p->wide = false;
  items(p, it, indent);
  if (!p->wide || flat) {
    p->flat = flat;
    return;
  }
  p->out->n = before;
  p->column = column;
  p->left = left;
  p->flat = p->wide = false;
  items(p, it, indent);
}

/* Columns at which the line with the value began. */
static int indent_of(const Printer *p) {
  const Text *t = p->out;
  size_t from = t->n, n = 0;
  while (from && t->s[from - 1] != '\n')
    from--;
  while (from + n < t->n && t->s[from + n] == ' ')
    n++;
  return (int)n;
}

static void table(Printer *p, int idx) {
  lua_State *L = p->L;
  const void *self = lua_topointer(L, idx);
  for (int i = 0; i < p->depth; i++)
    if (p->above[i] == self) {
      puts_(p, THINGS, "<the table around>");
      return;
    }
  lua_pushnil(L);
  bool empty = !lua_next(L, idx);
  if (!empty) lua_pop(L, 2);
  if (empty || p->depth >= p->o->depth || p->depth == LEN(p->above)) {
    puts_(p, PLAIN, empty ? "{}" : "{ ... }");
    return;
  }
  int top = lua_gettop(L);
  Items it = {.t = idx, .listed = (lua_Integer)lua_rawlen(L, idx)};
  push_keys(L, idx, it.listed);
  it.keys = lua_gettop(L);
  it.pairs = (lua_Integer)lua_rawlen(L, it.keys);
  p->above[p->depth++] = self;
  fit(p, &it, indent_of(p));
  p->depth--;
  lua_settop(L, top);
}

static void value(Printer *p, int idx) {
  luaL_checkstack(p->L, 12, NULL);
  if (lua_type(p->L, idx) == LUA_TTABLE || lua_type(p->L, idx) == LUA_TUSERDATA) {
    if (own_text(p, idx)) {
      thing(p, idx);
      return;
    }
  }
  if (lua_istable(p->L, idx))
    table(p, idx);
  else
    simple(p, idx);
}

void repl_print(lua_State *L, int idx, const PrintOptions *o, Text *out) {
  Printer p = {.L = L, .o = o, .out = out, .left = ITEMS_OVER_ALL};
  value(&p, lua_absindex(L, idx));
}
