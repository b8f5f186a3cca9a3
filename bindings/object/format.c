/* format.c - numbers, sizes and meshes as strings for people. */
#include "format.h"

#include <stdio.h>

static const char *scaled(double n, double step, const char *const *unit, char buf[32]) {
  int i = 0;
  while (n >= step * 0.9995 && unit[i + 1]) n /= step, i++;
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

const char *format_flops(double per_s, char buf[32]) {
  static const char *const unit[] = {"FLOP/s",  "kFLOP/s", "MFLOP/s", "GFLOP/s",
                                     "TFLOP/s", "PFLOP/s", "EFLOP/s", NULL};
  return scaled(per_s, 1000, unit, buf);
}

const char *format_span(double s, char buf[32]) {
  static const struct {
    int seconds;
    const char *name, *part; /* the unit, and the unit of the remainder */
  } unit[] = {{86400, "d", "h"}, {3600, "h", "min"}, {60, "min", "s"}, {1, "s", NULL}};
  int64_t n = s > 0 && s < 1e15 ? (int64_t)(s + 0.5) : 0;
  int i = 0;
  while (unit[i].part && n < unit[i].seconds) i++;
  int64_t rest = n % unit[i].seconds;
  if (unit[i].part)
    snprintf(buf, 32, "%lld %s %02lld %s", (long long)(n / unit[i].seconds), unit[i].name,
             (long long)(rest / unit[i + 1].seconds), unit[i].part);
  else
    snprintf(buf, 32, "%lld s", (long long)n);
  return buf;
}

const char *format_mesh_ranks(const Mesh *m, char buf[128]) {
  char mesh[96];
  TextBuf t = textbuf(buf, 128);
  textbuf_printf(&t, "%s", mesh_text(m, mesh));
  if (m->world > 1) textbuf_printf(&t, ", %d ranks", m->world);
  return buf;
}
