/* terminal.h - shows untrusted strings on a terminal. Names, paths and messages from a
 * plan, a file or a peer may contain control characters or fake line breaks: these are
 * written as escapes ("\n", "\x1b", "\u{202e}"). */
#ifndef WEFT_TERMINAL_H
#define WEFT_TERMINAL_H

#include "base.h"

typedef enum ShownLines {
  ONE_LINE,   /* a name: line feeds are escaped, too */
  PARAGRAPH,  /* a message: line feeds followed by two spaces stay, so no line of it
               * begins at the margin, where weft's own messages and results begin */
  FREE_LINES, /* a text with line feeds and tabs */
} ShownLines;

/* Adds n bytes, with control characters, bidirectional marks, characters without width
 * and invalid UTF-8 escaped. Returns the bytes consumed: an incomplete character at the
 * end is left unless `end` is set. */
size_t text_add_shown(Text *t, const char *s, size_t n, ShownLines lines, bool end);
/* The same in place; what no longer fits is left out. */
void show_in(char *s, size_t room, ShownLines lines);
/* A copy in the arena, or `s` itself if nothing has to be escaped. */
char *arena_shown(Arena *a, char *s, ShownLines lines);
/* `s` as one line in `room` bytes, truncated: for printf("%s", SHOWN(name)). */
const char *show_name(const char *s, char *to, size_t room);
#define SHOWN(s) show_name((s), (char[512]){0}, 512)
/* Bytes of the UTF-8 character at s[0, n), and its code; 0: not UTF-8; -1: cut off. */
int text_character(const char *s, size_t n, uint32_t *code);
/* Adds n bytes as UTF-8: U+FFFD stands for each part that is none, as in Python's
 * errors="replace" and the texts that tokenizers decode. */
void text_add_utf8(Text *t, const char *s, size_t n);
/* The bytes before the first that is not UTF-8; n: all are. */
size_t text_utf8(const char *s, size_t n);
/* Control characters, and those that are invisible but change how others look. */
bool text_hidden(uint32_t code);
/* True if something has to be escaped: such a string is not a valid name. */
bool has_control(const char *s);

#endif
