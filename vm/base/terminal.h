/* terminal.h - text of others on a terminal. What comes from a plan, a file or a peer may
 * hold characters that a terminal obeys, or that make one line look like two: names,
 * paths and messages are shown with these written out ("\n", "\x1b", "\u{202e}"). */
#ifndef WEFT_TERMINAL_H
#define WEFT_TERMINAL_H

#include "base.h"

typedef enum ShownLines {
  ONE_LINE,   /* a name: line feeds are written out, too */
  PARAGRAPH,  /* a message: those that two spaces follow stay; no line of it begins at the
                 margin, where messages and results begin */
  FREE_LINES, /* what is text and may have lines and tabs */
} ShownLines;

/* Adds n bytes so that control characters, what turns the direction of text, what has no
 * width and what is no UTF-8 are seen; all others stay as they are. Returns how many it
 * took: a character that is cut off at the end is left, unless it is the end. */
size_t text_add_shown(Text *t, const char *s, size_t n, ShownLines lines, bool end);
/* The same for a buffer; what does not fit any more is left out. */
void show_in(char *s, size_t room, ShownLines lines);
/* A copy in the arena, or `s` itself if there is nothing to show. */
char *arena_shown(Arena *a, char *s, ShownLines lines);
/* `s` as one line in `room`, cut off where it ends: for printf("%s", SHOWN(name)). */
const char *show_name(const char *s, char *to, size_t room);
#define SHOWN(s) show_name((s), (char[512]){0}, 512)
/* Bytes of the UTF-8 character at s, of which n are there, and its number; 0: it is none,
 * -1: one that is cut off. */
int text_character(const char *s, size_t n, uint32_t *code);
/* Controls, and what changes how other characters look without a look of its own. */
bool text_hidden(uint32_t code);
/* Whether there is something to show: such a text is no name. */
bool has_control(const char *s);

#endif
