/* timeline_figures.c - the numbers of a timeline as text and as JSON. */
#include "timeline_draw.h"
#include "vm/base/plural.h"

static long long idle(const Timeline *t, int rank) {
  return (long long)(t->makespan - t->busy[rank]);
}

static long long idle_own(const Timeline *t, int rank) {
  return (long long)(t->last[rank] - t->first[rank] - t->busy[rank]);
}

void timeline_figures(const Timeline *t, const RankTraffic *bytes, int copies,
                      Text *out) {
  uint64_t total = 0;
  text_printf(
      out,
      "bubble %.2f %% of %lld unit%s on %d rank%s; %.2f %% within each rank's own "
      "span\n",
      100 * timeline_bubble(t), (long long)t->makespan, plural(t->makespan, "s"),
      t->ranks, plural(t->ranks, "s"), 100 * timeline_bubble_own(t));
  text_add(out, "rank    idle  in own span  most chunks in flight");
  text_add(out, bytes ? "     bytes sent bytes received\n" : "\n");
  for (int r = 0; r < t->ranks; r++) {
    text_printf(out, "%4d  %6lld  %11lld  %21d", r, idle(t, r), idle_own(t, r),
                t->peak[r]);
    if (bytes) {
      text_printf(out, " %14llu %14llu", (unsigned long long)bytes[r].sent,
                  (unsigned long long)bytes[r].received);
      total += bytes[r].sent * (uint64_t)copies;
    }
    text_add(out, "\n");
  }
  if (bytes)
    text_printf(out, "all ranks together send %llu bytes to other stages in a step\n",
                (unsigned long long)total);
}

void timeline_json_shares(const Timeline *t, Json *out) {
  json_num(out, "bubble", timeline_bubble(t));
  json_num(out, "bubble_own", timeline_bubble_own(t));
  json_int(out, "makespan", t->makespan);
}

static void json_slots(const Schedule *s, const Timeline *t, int rank, Json *out) {
  json_open(out, "slots", '[');
  for (int i = 0; i < s->n[rank]; i++) {
    char buf[48];
    TextBuf slot = textbuf(buf, sizeof buf);
    textbuf_printf(&slot, "[%lld, %lld]", (long long)t->slot[rank][i].start,
                   (long long)t->slot[rank][i].end);
    json_raw(out, NULL, slot.s, slot.n);
  }
  json_close(out, ']');
}

void timeline_json_ranks(const Schedule *s, const Timeline *t, const RankTraffic *bytes,
                         Json *out) {
  json_open(out, "ranks", '[');
  for (int r = 0; r < t->ranks; r++) {
    json_open(out, NULL, '{');
    if (bytes) {
      json_int(out, "bytes_received", (int64_t)bytes[r].received);
      json_int(out, "bytes_sent", (int64_t)bytes[r].sent);
    }
    json_int(out, "chunks_in_flight", t->peak[r]);
    json_int(out, "idle", idle(t, r));
    json_int(out, "idle_own", idle_own(t, r));
    json_slots(s, t, r, out);
    json_close(out, '}');
  }
  json_close(out, ']');
}
