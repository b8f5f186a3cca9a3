/* output.c - sizes, colours and error messages on the terminal. */
#include "cli.h"
#include "vm/base/terminal.h"
#include "vm/base/terminal_row.h"

#include <stdlib.h>
#include <unistd.h>

bool colour_wanted(FILE *f) {
  const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
  if (no && *no) return false;
  if (!isatty(fileno(f))) return false;
  return term && strcmp(term, "dumb") != 0;
}

int columns_of(FILE *f) { return terminal_columns(f); }

void report_error(const char *fmt, ...) {
  va_list ap;
  char text[1024];
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  show_in(text, sizeof text, PARAGRAPH);
  fprintf(stderr, "weft: %s\n", text);
}

void print_text(FILE *f, Text *t) {
  if (t->oom) {
    report_error("out of memory");
    exit(weft_exit_code(WEFT_ENOMEM));
  }
  if (t->s) fwrite(t->s, 1, t->n, f);
  text_free(t);
}
