/* repl_scan.c - a small lexer of Lua that forgives everything, and the stack of brackets
 * that are open at the cursor. */
#include "repl_scan.h"

#include <ctype.h>

static bool in_name(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

/* ---- tokens ---- */

static void add(Scan *s, char type, int from, int to) {
  *VEC_PUSH(s->arena, s->tokens) = (Token){type, from, to - from};
}

/* The number of = signs of a long bracket at i, -1 if there is none. */
static int long_level(const Scan *s, int i) {
  int level = 0;
  for (i++; i < s->cursor && s->text[i] == '='; i++)
    level++;
  return i < s->cursor && s->text[i] == '[' ? level : -1;
}

/* The end of the long bracket that opens at i; the cursor if it stays open. */
static int long_end(const Scan *s, int i, int level, bool *open) {
  for (i += level + 2; i < s->cursor; i++) {
    if (s->text[i] != ']') continue;
    int k = 1;
    while (i + k < s->cursor && k <= level && s->text[i + k] == '=')
      k++;
    if (k == level + 1 && i + k < s->cursor && s->text[i + k] == ']') return i + k + 1;
  }
  *open = true;
  return s->cursor;
}

static int scan_comment(Scan *s, int i) {
  bool open = false;
  int level = s->text[i + 2] == '[' ? long_level(s, i + 2) : -1;
  if (level >= 0) {
    i = long_end(s, i + 2, level, &open);
  } else {
    while (i < s->cursor && s->text[i] != '\n')
      i++;
    open = i == s->cursor;
  }
  if (open) s->place = AT_COMMENT;
  return i;
}

static int scan_text(Scan *s, int i) {
  char quote = s->text[i];
  int k = i + 1;
  for (; k < s->cursor && s->text[k] != quote && s->text[k] != '\n'; k++)
    if (s->text[k] == '\\') k++;
  if (k < s->cursor) {
    add(s, '"', i, k + 1);
    return k + 1;
  }
  s->place = AT_TEXT;
  s->text_at = i + 1;
  return s->cursor;
}

static int scan_word(Scan *s, int i) {
  int k = i;
  bool number = isdigit((unsigned char)s->text[i]);
  while (k < s->cursor && (in_name(s->text[k]) || (number && s->text[k] == '.')))
    k++;
  add(s, number ? '0' : 'a', i, k);
  return k;
}

static void tokens(Scan *s) {
  for (int i = 0; i < s->cursor;) {
    char c = s->text[i];
    int level = c == '[' ? long_level(s, i) : -1;
    bool open = false;
    if (isspace((unsigned char)c)) {
      i++;
    } else if (c == '-' && i + 1 < s->cursor && s->text[i + 1] == '-') {
      i = scan_comment(s, i);
    } else if (level >= 0) {
      int end = long_end(s, i, level, &open);
      if (open) s->place = AT_COMMENT; /* no names are offered there either */
      add(s, '"', i, end);
      i = end;
    } else if (c == '"' || c == '\'') {
      i = scan_text(s, i);
    } else if (in_name(c)) {
      i = scan_word(s, i);
    } else if (c == '.' && i + 1 < s->cursor && s->text[i + 1] == '.') {
      add(s, '~', i, i + 2); /* no dot of a chain: an operator like any other */
      i += 2;
    } else {
      add(s, c, i, i + 1);
      i++;
    }
  }
}

bool scan_is(const Scan *s, Token t, const char *word) {
  return t.type == 'a' && (size_t)t.n == strlen(word) &&
         memcmp(s->text + t.at, word, (size_t)t.n) == 0;
}

/* Counted from the token after the last one at index n. */
static Token before(const Scan *s, int n, int back) {
  return n - back >= 0 ? s->tokens.at[n - back] : (Token){0};
}

Token scan_back(const Scan *s, int back) {
  return before(s, s->tokens.n, back);
}

/* ---- scopes ---- */

const Field *scan_field(const char *scope, const char *key) {
  const Field *f = scope ? schema_find(scope, key) : NULL;
  return f && f->type == FIELD_ALIAS ? schema_find(scope, f->names) : f;
}

static const char *known_scope(const char *name) {
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, name) == 0) return f->scope;
  return NULL;
}

const char *scan_child(Arena *a, const char *scope, const char *key) {
  const Field *f = scan_field(scope, key);
  if (!f) return NULL;
  if (f->type == FIELD_OTHER) {
    if (str_eq(f->key, "tp_plan") || str_eq(f->key, "schedule")) return f->key;
    if (str_eq(f->key, "lr")) return "cosine"; /* it has the fields of all the others */
    return known_scope(f->key);
  }
  if (!f->names || f->type == FIELD_NAME) return NULL;
  return known_scope(arena_strn(a, f->names, strcspn(f->names, " ")));
}

const char *scan_path(Arena *a, const char *path, size_t n) {
  const char *scope = "plan", *end = path + n;
  if (n >= 4 && memcmp(path, "plan", 4) == 0 && (n == 4 || path[4] == '.'))
    path += MIN(n, 5);
  while (path < end && scope) {
    const char *dot = memchr(path, '.', (size_t)(end - path));
    const char *stop = dot ? dot : end;
    scope = scan_child(a, scope, arena_strn(a, path, (size_t)(stop - path)));
    path = dot ? dot + 1 : end;
  }
  return scope;
}

/* ---- brackets ---- */

/* What a call of `name` takes in its braces. */
static const char *call_scope(Arena *a, const Scan *s, Token name) {
  static const char *const of_plan[] = {"plan", "with", "check"};
  for (int i = 0; i < LEN(of_plan); i++)
    if (scan_is(s, name, of_plan[i])) return "plan";
  if (scan_is(s, name, "grid")) return "grid";
  if (scan_is(s, name, "return")) return "plan";
  return known_scope(arena_strn(a, s->text + name.at, (size_t)name.n));
}

/* The field that the value whose first token is number n is given to. */
static const Field *assigned(Scan *s, int n, const char **scope) {
  Bracket b = scan_bracket(s);
  Token key = before(s, n, 2);
  *scope = NULL;
  if (before(s, n, 1).type != '=' || key.type != 'a' || !b.scope) return NULL;
  const char *name = arena_strn(s->arena, s->text + key.at, (size_t)key.n);
  *scope = scan_child(s->arena, b.scope, name);
  return scan_field(b.scope, name);
}

/* The first token of the chain a.b:c that ends before token n. */
static int chain_start(const Scan *s, int n) {
  while (before(s, n, 1).type == 'a') {
    char dot = before(s, n, 2).type;
    if (dot != '.' && dot != ':') return n - 1;
    n -= 2;
  }
  return n;
}

static void open_bracket(Scan *s, int n) {
  Bracket b = {.type = s->text[s->tokens.at[n].at]};
  Bracket around = scan_bracket(s);
  Token last = before(s, n, 1), name = before(s, n, last.type == '(' ? 2 : 1);
  bool item = last.type == '{' || last.type == ',' || last.type == '(';
  if (last.type == '=') {
    b.field = assigned(s, n, &b.scope);
  } else if (b.type == '(' && scan_is(s, name, "extend")) {
    b.field = assigned(s, chain_start(s, n), &b.scope);
  } else if (b.type == '{' && around.type == '(' && item && around.scope) {
    b.scope = around.scope; /* of weft.extend(..., { ... }) */
  } else if (b.type == '{' && name.type == 'a') {
    b.scope = call_scope(s->arena, s, name);
  } else if (b.type == '{' && item && str_eq(around.scope, "grid")) {
    b.scope = "axis";
  }
  if (s->depth < LEN(s->brackets)) s->brackets[s->depth] = b;
  s->depth++;
}

/* The first item of { "ddp", ... } says whose options follow. */
static void first_item(Scan *s, Token t) {
  Bracket *b =
      s->depth && s->depth <= LEN(s->brackets) ? &s->brackets[s->depth - 1] : NULL;
  if (!b || b->type != '{' || b->items || !b->field || t.n < 2) return;
  if (b->field->type != FIELD_NAMED && !str_eq(b->field->key, "schedule")) return;
  const char *named =
      known_scope(arena_strn(s->arena, s->text + t.at + 1, (size_t)t.n - 2));
  if (named) b->scope = named;
}

Bracket scan_bracket(const Scan *s) {
  return s->depth && s->depth <= LEN(s->brackets) ? s->brackets[s->depth - 1]
                                                  : (Bracket){0};
}

static void brackets(Scan *s) {
  for (int i = 0; i < s->tokens.n; i++) {
    Token t = s->tokens.at[i];
    if (strchr("({[", t.type))
      open_bracket(s, i);
    else if (strchr(")}]", t.type))
      s->depth -= s->depth > 0;
    else if (t.type == '"' && before(s, i, 1).type == '{')
      first_item(s, t);
    else if (strchr(",;", t.type) && s->depth && s->depth <= LEN(s->brackets))
      s->brackets[s->depth - 1].items++;
  }
}

void scan(Scan *s, Arena *a, const char *text, int cursor) {
  *s = (Scan){.arena = a, .text = text, .cursor = cursor};
  tokens(s);
  brackets(s);
}
