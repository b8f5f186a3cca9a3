/* sources.c - losses of the streams of a blend: what is told of a step, and of the last
 * steps of a run. */
#include "record.h"

#include "bindings/object/format.h"
#include "vm/base/terminal.h"

void sources_json(Json *out, const char *key, const Data *of, const SourceLoss *s,
                  int n) {
  if (!n) return;
  json_open(out, key, '[');
  for (int k = 0; k < n; k++) {
    if (!s[k].labels) continue;
    json_open(out, NULL, '{');
    json_num(out, "loss", s[k].sum / (double)s[k].labels);
    json_str(out, "name", data_source_name(of, k));
    json_int(out, "tokens", s[k].labels);
    json_close(out, '}');
  }
  json_close(out, ']');
}

void sources_text(const Data *of, const SourceLoss *s, int n, Text *out) {
  char tokens[32];
  for (int k = 0; k < n; k++)
    if (s[k].labels)
      text_printf(out, "  loss %8.4f  %s tokens  %s\n", s[k].sum / (double)s[k].labels,
                  format_count((double)s[k].labels, tokens),
                  SHOWN(data_source_name(of, k)));
}

static void add(SourceLoss *to, const SourceLoss *from, int n) {
  for (int k = 0; k < n; k++) {
    to[k].sum += from[k].sum;
    to[k].labels += from[k].labels;
  }
}

void sources_add(SourceSums *sums, const StepResult *r, int64_t tenth) {
  if (!r->sources) return;
  if (sums->steps >= MAX(tenth, (int64_t)1)) {
    memcpy(sums->before, sums->now, sizeof sums->now);
    memset(sums->now, 0, sizeof sums->now);
    sums->steps_before = sums->steps;
    sums->steps = 0;
  }
  add(sums->now, r->source, r->sources);
  sums->steps++;
}

int64_t sources_last(const SourceSums *sums, SourceLoss out[SOURCES_MOST]) {
  memcpy(out, sums->now, sizeof sums->now);
  add(out, sums->before, SOURCES_MOST);
  return sums->steps + sums->steps_before;
}
