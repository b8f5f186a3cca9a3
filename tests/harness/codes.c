/* codes.c - takes codes from the ends of the lines of a report. */
#include "codes.h"

#include "scratch.h"
#include "vm/base/diag.h"

/* The length of a line without its code. */
static size_t plain_length(const char *line, size_t n) {
  if (!n || line[n - 1] != ']') return n;
  size_t at = n - 1;
  while (at > 0 && line[at] != '[') at--;
  const char *code = arena_strn(scratch_arena, line + at + 1, n - at - 2);
  return at > 0 && line[at - 1] == ' ' && diag_code(code) ? at - 1 : n;
}

const char *without_codes(const char *text) {
  const char *out = "";
  while (*text) {
    size_t n = strcspn(text, "\n");
    out = arena_printf(scratch_arena, "%s%.*s%s", out, (int)plain_length(text, n), text,
                       text[n] ? "\n" : "");
    text += n + (text[n] != 0);
  }
  return out;
}
