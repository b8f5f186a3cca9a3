/* sweep_table.c - the rows of a sweep as an aligned table and as CSV, and the reasons why
 * points are none. */
#include "sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- cells ---- */

typedef struct Column {
  const char *title;
  int axis, value; /* one of them is -1 */
} Column;

static Column column_at(const Sweep *s, int c) {
  if (c < s->grid.n) return (Column){s->grid.axis[c].name, c, -1};
  return (Column){sweep_columns[c - s->grid.n], -1, c - s->grid.n};
}

static int columns(const Sweep *s) {
  return s->grid.n + SWEEP_COLUMNS;
}

/* Has any of the rows a figure there? */
static bool column_used(const Sweep *s, int c, int64_t rows) {
  if (c < s->grid.n) return true;
  for (int64_t i = 0; i < rows; i++) {
    double v = sweep_value(s, s->best[i], c - s->grid.n);
    if (!isnan(v) && v != 0) return true;
  }
  return false;
}

static const char *cell(const Sweep *s, Column c, int64_t row, char buf[32]) {
  int choice[64];
  if (c.axis >= 0) {
    sweep_grid_choice(&s->grid, s->todo[row], choice);
    return s->grid.axis[c.axis].text[choice[c.axis]];
  }
  double v = sweep_value(s, row, c.value);
  if (isnan(v)) return "-";
  if (v == floor(v) && fabs(v) < 1e9 && c.value < 2)
    snprintf(buf, 32, "%.0f", v);
  else
    snprintf(buf, 32,
             v >= 1000  ? "%.0f"
             : v >= 100 ? "%.1f"
             : v >= 1   ? "%.2f"
                        : "%.4f",
             v);
  return buf;
}

/* ---- the table ---- */

static void add_rows(const Sweep *s, int64_t rows, Text *out) {
  char buf[32];
  int *width = NEW_N(s->arena, int, columns(s));
  for (int c = 0; c < columns(s); c++) {
    Column x = column_at(s, c);
    if (!column_used(s, c, rows)) continue;
    width[c] = (int)strlen(x.title);
    for (int64_t i = 0; i < rows; i++)
      width[c] = MAX(width[c], (int)strlen(cell(s, x, s->best[i], buf)));
  }
  for (int64_t i = -1; i < rows; i++) {
    const char *gap = "";
    for (int c = 0; c < columns(s); c++) {
      Column x = column_at(s, c);
      if (!width[c]) continue;
      text_printf(out, "%s%*s", gap, width[c],
                  i < 0 ? x.title : cell(s, x, s->best[i], buf));
      gap = "  ";
    }
    text_add(out, "\n");
  }
}

static int by_count(const void *a, const void *b) {
  const SweepReason *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  return x->first < y->first ? -1 : x->first > y->first;
}

/* "    586  mesh.tp: 3 does not divide ..." with the text of the first such point. */
void sweep_reasons(const Sweep *s, Text *out) {
  SweepReason *r = NEW_N(s->arena, SweepReason, s->nreason + 1);
  memcpy(r, s->reason, sizeof *r * (size_t)s->nreason);
  qsort(r, (size_t)s->nreason, sizeof *r, by_count);
  if (s->nmemory && s->limit == LIMIT_GPU)
    text_printf(out, "%9lld  memory: more than the GPU has, less cluster.reserve_gib\n",
                (long long)s->nmemory);
  else if (s->nmemory)
    text_printf(out, "%9lld  memory: more than %.4g GiB on a rank\n",
                (long long)s->nmemory, (double)s->limit / (1 << 30));
  for (int i = 0; i < s->nreason; i++)
    text_printf(out, "%9lld  %s%s%s%s%s\n", (long long)r[i].count, r[i].why.code,
                *r[i].why.path ? ": plan." : "", r[i].why.path,
                *r[i].why.text ? ": " : "", r[i].why.text);
}

static void add_summary(const Sweep *s, Text *out) {
  int64_t done = s->nlegal + s->nillegal + s->nmemory;
  text_printf(out, "%lld of %lld points judged", (long long)done,
              (long long)s->grid.points);
  if (s->ntodo < s->grid.points)
    text_printf(out, " (%lld left out by where)", (long long)(s->grid.points - s->ntodo));
  if (s->nresumed) text_printf(out, ", %lld of them before", (long long)s->nresumed);
  if (s->seconds > 0)
    text_printf(out, " in %.2f s, %.0f points/s", s->seconds,
                (double)(done - s->nresumed) / s->seconds);
  text_printf(out, ": %lld plans, %lld without enough memory, %lld illegal",
              (long long)s->nlegal, (long long)s->nmemory, (long long)s->nillegal);
  if (s->ndropped)
    text_printf(out, "; %lld plans without a score", (long long)s->ndropped);
  text_add(out, s->interrupted ? "; interrupted\n" : "\n");
}

void sweep_table(const Sweep *s, int64_t most, Text *out) {
  int64_t rows = MIN(s->nbest, most);
  add_summary(s, out);
  sweep_reasons(s, out);
  if (!rows) return;
  text_add(out, "\n");
  add_rows(s, rows, out);
  if (rows < s->nbest)
    text_printf(out, "... and %lld more\n", (long long)(s->nbest - rows));
  bool time = false;
  for (int64_t i = 0; i < rows; i++)
    time |= s->row[s->best[i]].seconds > 0;
  if (time)
    text_add(out, "step_ms is an estimate from data sheets, a bound and no forecast: see "
                  "docs/sweeps.md\n");
}

/* ---- CSV ---- */

static void add_field(Text *out, const char *v) {
  if (!strpbrk(v, ",\"\n")) {
    text_add(out, v);
    return;
  }
  text_add(out, "\"");
  for (; *v; v++) {
    if (*v == '"') text_add(out, "\"");
    text_addn(out, v, 1);
  }
  text_add(out, "\"");
}

void sweep_csv(const Sweep *s, Text *out) {
  for (int64_t i = -1; i < s->nbest; i++)
    for (int c = 0; c < columns(s); c++) {
      Column x = column_at(s, c);
      char buf[32];
      if (c) text_add(out, ",");
      if (i < 0) {
        add_field(out, x.axis >= 0 ? s->grid.axis[c].path : x.title);
      } else if (x.axis >= 0) {
        add_field(out, cell(s, x, s->best[i], buf));
      } else {
        double v = sweep_value(s, s->best[i], x.value);
        if (!isnan(v)) text_printf(out, "%.10g", v);
      }
      if (c + 1 == columns(s)) text_add(out, "\n");
    }
}
