/* repl_scan.h - what the text before the cursor means for completion: its tokens, whether
 * the cursor stands in a text or a comment, and which table of a plan is open there. */
#ifndef WEFT_REPL_SCAN_H
#define WEFT_REPL_SCAN_H

#include "bindings/lang/schema.h"

typedef struct Token {
  char type; /* 'a': a name or word, '0': a number, '"': a text, else itself */
  int at, n;
} Token;

/* An open bracket. `scope` is that of schema.def whose fields the braces hold ("mesh"),
 * or "tp_plan", "schedule", "grid", "axis", or NULL. `field`: the field that the braces
 * are the value of, if it is one. */
typedef struct Bracket {
  char type;
  const char *scope;
  const Field *field;
  int items; /* commas so far */
} Bracket;

typedef enum { AT_CODE, AT_TEXT, AT_COMMENT } ScanPlace;

typedef struct Scan {
  Arena *arena;
  const char *text;
  int cursor;
  VEC(Token) tokens; /* all that end at or before the cursor, but for an open text */
  ScanPlace place;
  int text_at; /* AT_TEXT: the byte after its quote */
  Bracket brackets[32];
  int depth;
} Scan;

void scan(Scan *s, Arena *a, const char *text, int cursor);
/* The token `back` places before the end; its type is 0 before the beginning. */
Token scan_back(const Scan *s, int back);
bool scan_is(const Scan *s, Token t, const char *word);
/* The innermost bracket; its type is 0 outside all. */
Bracket scan_bracket(const Scan *s);

/* The field `key` of a scope, behind its aliases; NULL if there is none. */
const Field *scan_field(const char *scope, const char *key);
/* The scope of the table that `key` takes in `scope`, or NULL. */
const char *scan_child(Arena *a, const char *scope, const char *key);
/* The scope of a path: "" for "plan", "mesh" for "mesh"; a leading "plan." is allowed. */
const char *scan_path(Arena *a, const char *path, size_t n);

#endif
