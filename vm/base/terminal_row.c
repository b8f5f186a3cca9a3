/* terminal_row.c - overwrites a row of a terminal; see terminal_row.h. */
#include "terminal_row.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "terminal.h"

int terminal_columns(FILE *f) {
  struct winsize size;
  bool known = isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &size) == 0;
  return known && size.ws_col > 0 ? size.ws_col : 80;
}

/* A character in the last column leaves the cursor beyond it, or on the next row. */
void terminal_overwrite(FILE *f, const char *line) {
  int room = terminal_columns(f) - 1, bytes = 0;
  while (line[bytes] && room-- > 0) {
    uint32_t code;
    bytes += MAX(text_character(line + bytes, strnlen(line + bytes, 4), &code), 1);
  }
  fprintf(f, "\r%.*s\033[K", bytes, line);
  fflush(f);
}
