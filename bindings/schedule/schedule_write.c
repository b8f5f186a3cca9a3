/* schedule_write.c - writes schedules in PyTorch's CSV notation. */
#include "schedule_csv.h"

#include <stdio.h>

void schedule_action_text(const Schedule *s, int rank, const Action *a,
                          char buf[ACTION_TEXT]) {
  static const char *const kind[ACT_N] = {"F", "I",       "W",       "B",
                                          "",  "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  int stage = schedule_stage(s, rank, a->chunk);
  if (a->kind == ACT_OVERLAP)
    snprintf(buf, ACTION_TEXT, "(%dF%d;%dB%d)OVERLAP_F_B", stage, a->mb,
             schedule_stage(s, rank, a->chunk2), a->mb2);
  else if (a->mb < 0)
    snprintf(buf, ACTION_TEXT, "%d%s", stage, kind[a->kind]);
  else
    snprintf(buf, ACTION_TEXT, "%d%s%d", stage, kind[a->kind], a->mb);
}

/* ---- transfers ---- */

/* Ranks take turns, one action each; a rank whose next action lacks an input is skipped.
 */
typedef struct Writer {
  const Schedule *s;
  Text *row; /* [ranks] */
  /* [stage * microbatches + mb]: input of F is there 1, of the backward 2 */
  uint8_t *there;
} Writer;

static uint8_t *there(Writer *w, int stage, int mb) {
  return &w->there[(size_t)stage * (size_t)w->s->microbatches + (size_t)mb];
}

static void cell(Writer *w, int rank, const char *text) {
  text_printf(&w->row[rank], "%s%s", w->row[rank].n ? "," : "", text);
}

/* Stage `stage` has finished a direction of mb: the next stage has its input, after a
 * transfer if it is on another rank. */
static void pass_on(Writer *w, int rank, int stage, int mb, bool forward) {
  char text[ACTION_TEXT];
  int to = forward ? stage + 1 : stage - 1, peer, chunk;
  if (to < 0 || to >= w->s->ranks * w->s->virtual_stages) return;
  schedule_where(w->s, to, &peer, &chunk);
  *there(w, to, mb) |= forward ? 1 : 2;
  if (peer == rank) return;
  snprintf(text, sizeof text, "%dSEND_%c%d", stage, forward ? 'F' : 'B', mb);
  cell(w, rank, text);
  snprintf(text, sizeof text, "%dRECV_%c%d", to, forward ? 'F' : 'B', mb);
  cell(w, peer, text);
}

static bool ready(Writer *w, int stage, int mb, bool forward) {
  if (stage == (forward ? 0 : w->s->ranks * w->s->virtual_stages - 1)) return true;
  return *there(w, stage, mb) & (forward ? 1 : 2);
}

static bool turn(Writer *w, int rank, const Action *a) {
  char text[ACTION_TEXT];
  bool pair = a->kind == ACT_OVERLAP, f = pair || a->kind == ACT_F;
  bool b = pair || a->kind == ACT_I || a->kind == ACT_B;
  int fs = schedule_stage(w->s, rank, a->chunk);
  int bs = pair ? schedule_stage(w->s, rank, a->chunk2) : fs, bmb = pair ? a->mb2 : a->mb;
  if (f && !ready(w, fs, a->mb, true)) return false;
  if (b && !ready(w, bs, bmb, false)) return false;
  schedule_action_text(w->s, rank, a, text);
  cell(w, rank, text);
  if (f) pass_on(w, rank, fs, a->mb, true);
  if (b) pass_on(w, rank, bs, bmb, false);
  return true;
}

static void take_turns(Writer *w, int *at) {
  int left = 0;
  for (int r = 0; r < w->s->ranks; r++) left += w->s->n[r];
  for (bool moved = true; moved && left > 0;) {
    moved = false;
    for (int r = 0; r < w->s->ranks; r++)
      if (at[r] < w->s->n[r] && turn(w, r, &w->s->list[r][at[r]]))
        at[r]++, left--, moved = true;
  }
}

static void write_comms(const Schedule *s, Text *out) {
  const weft_alloc *a = out->alloc;
  size_t ranks = (size_t)s->ranks, stages = ranks * (size_t)s->virtual_stages;
  size_t cells = stages * (size_t)s->microbatches;
  Writer w = {.s = s};
  w.row = mem_new(a, ranks * sizeof *w.row);
  w.there = mem_new(a, cells);
  int *at = mem_new(a, ranks * sizeof *at);
  bool ok = w.row && w.there && at;
  if (!ok) out->oom = true;
  for (size_t r = 0; ok && r < ranks; r++) w.row[r].alloc = a;
  if (ok) take_turns(&w, at);
  for (size_t r = 0; w.row && r < ranks; r++) {
    if (ok) text_printf(out, "%s\n", w.row[r].s ? w.row[r].s : "");
    out->oom |= w.row[r].oom;
    text_free(&w.row[r]);
  }
  mem_free(a, w.row, ranks * sizeof *w.row);
  mem_free(a, w.there, cells);
  mem_free(a, at, ranks * sizeof *at);
}

void schedule_csv_write(const Schedule *s, bool comms, Text *out) {
  char text[ACTION_TEXT];
  if (comms) write_comms(s, out);
  for (int r = 0; r < s->ranks && !comms; r++) {
    for (int i = 0; i < s->n[r]; i++) {
      schedule_action_text(s, r, &s->list[r][i], text);
      text_printf(out, "%s%s", i ? "," : "", text);
    }
    text_add(out, "\n");
  }
}
