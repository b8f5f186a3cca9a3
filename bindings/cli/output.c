/* output.c - how the program prints: sizes, colours, complaints. */
#include "cli.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool colour_wanted(FILE *f) {
  const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
  if (no && *no) return false;
  if (!isatty(fileno(f))) return false;
  return term && strcmp(term, "dumb") != 0;
}

int columns_of(FILE *f) {
  struct winsize size;
  bool known = isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &size) == 0;
  return known && size.ws_col > 0 ? size.ws_col : 80;
}

void complain(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("weft: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
}

static const char *scaled(double n, double step, const char *const *unit, char buf[32]) {
  int i = 0;
  while (n >= step * 0.9995 && unit[i + 1])
    n /= step, i++;
  snprintf(buf, 32,
           i == 0    ? "%.0f%s%s"
           : n < 10  ? "%.2f%s%s"
           : n < 100 ? "%.1f%s%s"
                     : "%.0f%s%s",
           n, *unit[i] ? " " : "", unit[i]);
  return buf;
}

const char *format_bytes(double n, char buf[32]) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", NULL};
  return scaled(n, 1024, unit, buf);
}

const char *format_count(double n, char buf[32]) {
  static const char *const unit[] = {"", "k", "M", "B", "T", NULL};
  return scaled(n, 1000, unit, buf);
}

const char *format_mesh(const Mesh *m, char buf[96]) {
  size_t n = 0;
  buf[0] = 0;
  int dp = mesh_size(m, AXES_DP);
  for (int i = 0; i < AXIS_N; i++) {
    Axis a = (Axis)m->order[i];
    bool split = m->size[AXIS_DP_REPLICATE] > 1 && m->size[AXIS_DP_SHARD] > 1;
    const char *name = axis_name(a);
    int size = m->size[a];
    if (a == AXIS_DP_REPLICATE && !split) continue;
    if (a == AXIS_DP_SHARD && !split) name = "dp", size = dp;
    if (size == 1) continue;
    n += (size_t)snprintf(buf + n, 96 - n, "%s%s=%d", n ? " " : "", name, size);
  }
  if (!n) snprintf(buf, 96, "one rank");
  return buf;
}

void print_text(FILE *f, Text *t) {
  if (t->s) fwrite(t->s, 1, t->n, f);
  text_free(t);
}
