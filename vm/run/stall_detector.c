/* stall_detector.c - notices that no rank makes progress and reports what each waits for,
 * for the ranks of this process or, where processes report to each other, for all ranks.
 * A rank that computes is never counted as stalled, however long its kernel takes. */
#include "run_int.h"
#include "vm/base/plural.h"

#include <stdio.h>

/* ---- ranks that are looked at ---- */

static int count(const Run *r, Ranks all) { return all ? r->c->mesh.world : r->nworker; }

static int rank_of(const Run *r, Ranks all, int i) { return all ? i : r->worker[i].rank; }

static const Compiled *programs_of(const Run *r, const RankNote *n) {
  return n->part && r->c->eval ? r->c->eval : r->c;
}

static const Program *program_of(const Run *r, int rank, const RankNote *n) {
  return &programs_of(r, n)->prog[mesh_coord(&r->c->mesh, rank, AXIS_PP)];
}

/* State and position of a worker's rank; before it is loaded it is idle. */
RankNote stall_note(const Worker *w) {
  RankNote note = {.state = RANK_IDLE, .instr = UINT32_MAX, .step = w->run->step};
  if (!w->r) return note;
  note.part = w->run->evaluates;
  RankAt at = rank_at(worker_rank(w));
  const Program *p = program_of(w->run, w->rank, &note);
  note.state = at.state;
  note.ticks = at.ticks;
  note.nth = at.nth;
  if (at.instr) note.instr = (uint32_t)(at.instr - p->code);
  return note;
}

static RankNote note_of(const Run *r, Ranks all, int i) {
  return all ? all[i].note : stall_note(&r->worker[i]);
}

/* ---- messages ---- */

/* Where a rank is in its program: "all_reduce(tp) of layers.0.mlp, line 7". */
static void describe_place(const Run *r, int rank, const RankNote *n, char *to,
                           size_t size) {
  const Program *p = program_of(r, rank, n);
  const Instr *in = n->instr < p->ncode ? &p->code[n->instr] : NULL;
  char name[160], line[24] = "";
  if (!in) {
    snprintf(to, size, n->state == RANK_BUSY ? "its step" : "nothing yet");
    return;
  }
  instr_describe(programs_of(r, n), rank, in, name, sizeof name);
  if (in->line && !in->action) snprintf(line, sizeof line, ", line %d", in->line);
  snprintf(to, size, "%s%s", name, line);
}

/* The state of rank i as the end of a sentence whose subject is one rank or several. */
static void describe_state(const Run *r, Ranks all, int i, bool several, char *to,
                           size_t size) {
  RankNote n = note_of(r, all, i);
  char where[200], nth[48] = "";
  describe_place(r, rank_of(r, all, i), &n, where, sizeof where);
  if (all && all[i].lost)
    snprintf(to, size, "%s", several ? "have ended, too" : "has ended, too");
  else if (all && !all[i].heard)
    snprintf(to, size, "%s", several ? "have said nothing" : "has said nothing");
  else if (n.state == RANK_IDLE)
    snprintf(to, size, "%s",
             several ? "have finished their step" : "has finished its step");
  else if (n.state == RANK_BUSY)
    snprintf(to, size, "%s in %s", several ? "are" : "is", where);
  else {
    if (all) snprintf(nth, sizeof nth, " (number %llu)", (unsigned long long)n.nth);
    snprintf(to, size, "%s in %s%s", several ? "wait" : "waits", where, nth);
  }
}

static bool does_the_same(const Run *r, Ranks all, int a, int b) {
  char x[300], y[300];
  describe_state(r, all, a, true, x, sizeof x);
  describe_state(r, all, b, true, y, sizeof y);
  return strcmp(x, y) == 0;
}

static bool is_listed(const Run *r, Ranks all, int culprit, int i) {
  return rank_of(r, all, i) != culprit && !(all && all[i].left);
}

/* Appends one clause for rank i and all later ranks in the same state; nothing if an
 * earlier rank is in that state, whose clause has it. */
static void report_alike(const Run *r, Ranks all, int culprit, int i, Text *out) {
  char what[300];
  int n = 1, total = count(r, all);
  for (int k = 0; k < i; k++)
    if (is_listed(r, all, culprit, k) && does_the_same(r, all, k, i)) return;
  for (int k = i + 1; k < total; k++)
    n += is_listed(r, all, culprit, k) && does_the_same(r, all, i, k);
  text_printf(out, "; rank%s %d", plural(n, "s"), rank_of(r, all, i));
  for (int k = i + 1; k < total; k++)
    if (is_listed(r, all, culprit, k) && does_the_same(r, all, i, k))
      text_printf(out, ", %d", rank_of(r, all, k));
  describe_state(r, all, i, n > 1, what, sizeof what);
  text_printf(out, " %s", what);
}

void stall_others(const Run *r, Ranks all, int culprit, Text *out) {
  if (all && culprit >= 0 && all[culprit].heard) {
    char where[200];
    describe_place(r, culprit, &all[culprit].note, where, sizeof where);
    if (all[culprit].note.state != RANK_IDLE) text_printf(out, "; it was in %s", where);
  }
  for (int i = 0; i < count(r, all); i++)
    if (is_listed(r, all, culprit, i)) report_alike(r, all, culprit, i, out);
}

/* Longest time between two polls that is counted: a process that was suspended was not
 * idle for that time. */
static const double LOOK_MAX = 1;

double stall_patience(const Run *r) {
  const double slow_core = 1e9; /* flop/s */
  double flops = 0;
  if (run_asked(r)) return r->patience_s > 0 ? MIN(r->patience_s, 1) : 1;
  if (r->patience_s > 0) return r->patience_s;
  if (!r->kind->processes) return 60;
  if (r->longest_s > 0) return MAX(120, 10 * r->longest_s);
  for (int i = 0; i < r->c->mesh.size[AXIS_PP]; i++)
    flops = MAX(flops, r->c->prog[i].flops + r->c->prog[i].room);
  return MIN(MAX(120, flops / slow_core), 600);
}

bool stall_found(StallDetector *w, const Run *r, Ranks all, char *why, size_t n) {
  uint64_t ticks = 0;
  bool waits = false, works = false;
  for (int i = 0; i < count(r, all); i++) {
    RankNote at = note_of(r, all, i);
    ticks += at.ticks;
    waits |= at.state == RANK_WAITS;
    works |= at.state == RANK_BUSY;
  }
  double now = now_s(), passed = MIN(now - w->seen, LOOK_MAX);
  bool moved = ticks != w->ticks || works || !waits;
  *w = (StallDetector){.ticks = ticks, .seen = now, .idle = moved ? 0 : w->idle + passed};
  if (w->idle < stall_patience(r)) return false;
  Text t = {0};
  if (!all) stall_others(r, NULL, -1, &t);
  char part[RUN_PART];
  if (all)
    snprintf(why, n, "%s: no progress for %.0f s", run_part(r, part), w->idle);
  else
    snprintf(why, n, "no progress for %.0f s%s", w->idle, t.s && !t.oom ? t.s : "");
  text_free(&t);
  return true;
}
