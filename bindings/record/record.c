/* record.c - passes each step to the terminal, the log and the event file. */
#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "vm/base/plural.h"
#include "vm/base/terminal_row.h"
#include "vm/plan/cluster_figures.h"

/* ---- rates ---- */

double model_flops(const Compiled *c) {
  int ranks = c->mesh.size[AXIS_PP];
  double flops = 0;
  for (int r = 0; r < ranks; r++) flops += c->prog[r].flops - c->prog[r].recomputed;
  return flops * c->mesh.world / ranks;
}

double device_peak(const Plan *p, const Compiled *c) {
  bool figures = p->cluster.gpu && !c->device->host;
  return figures ? cluster_rate(&p->cluster, c->dtype) * c->mesh.world : 0;
}

/* Estimated from wall time, so that evaluations and checkpoints count, without the first
 * step, which prepares kernels. */
static double time_left(Recorder *rec, int64_t steps) {
  double now = now_s();
  if (rec->since == 0) {
    rec->since = now;
    return -1;
  }
  rec->done++;
  return (now - rec->since) / (double)rec->done * (double)steps;
}

static Record make_record(Recorder *rec, const StepResult *s) {
  Record r = {.step = *s, .end = rec->head.end, .memory = rec->memory};
  double seconds = s->ms / 1e3;
  r.left_s = time_left(rec, r.end - s->step - 1);
  if (seconds <= 0) return r;
  r.tokens_per_s = (double)s->tokens / seconds;
  r.flops_per_s = rec->flops / seconds;
  r.share = rec->peak > 0 ? r.flops_per_s / rec->peak : 0;
  return r;
}

/* ---- the terminal ---- */

void record_clear(Recorder *rec) {
  if (rec->last_progress > 0) fputs("\r\033[K", stderr);
  rec->last_progress = 0;
}

static void print(void (*line)(const Record *r, Text *out), const Record *r) {
  Text t = {0};
  line(r, &t);
  if (!t.oom) printf("%s\n", t.s);
  fflush(stdout);
  text_free(&t);
}

/* Of a file that cannot be written any more. */
static void warn(Recorder *rec, const char *what, const weft_error *why) {
  char text[1400];
  snprintf(text, sizeof text, "%s: %s: the run goes on without %s", why->file, why->text,
           what);
  record_clear(rec);
  if (rec->o.warn) rec->o.warn(rec->o.ud, text);
}

/* At most ten times per second. */
static void show_progress(Recorder *rec, const Record *r) {
  double time = now_s();
  if (!rec->o.progress || time - rec->last_progress < 0.1) return;
  rec->last_progress = time;
  Text t = {0};
  line_of_progress(r, &t);
  if (!t.oom) terminal_overwrite(stderr, t.s);
  text_free(&t);
}

/* Says once that the standard output takes no more, as a pipe whose reader has ended. */
static void check_lines(Recorder *rec) {
  weft_error why = NO_ERROR;
  if (rec->unread || !ferror(stdout)) return;
  rec->unread = true;
  err_file(&why, WEFT_EFILE, "the standard output", 0, "cannot be written: %s",
           strerror(errno));
  warn(rec, "its lines", &why);
}

static void tell(Recorder *rec, const Record *r) {
  int64_t every = rec->head.job->plan.log_every, step = r->step.step;
  bool due = step % every == 0 || step + 1 == r->end;
  bool line = due || r->step.skipped, evaluated = r->step.eval_tokens > 0;
  if (rec->o.lines && (line || evaluated)) record_clear(rec);
  if (rec->o.lines && line) print(r->step.skipped ? line_of_skipped : line_of_step, r);
  if (rec->o.lines && evaluated) print(line_of_evaluation, r);
  if (rec->o.lines) check_lines(rec);
  show_progress(rec, r);
}

/* ---- the writers ---- */

/* Makes a run id that is unique even if runs start at the same time on many machines. */
static void name_run(char id[20]) {
  char host[256] = "";
  struct timespec now;
  gethostname(host, sizeof host - 1);
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t h =
      hash_bytes(hash_bytes((uint64_t)getpid(), &now, sizeof now), host, strlen(host));
  snprintf(id, 20, "%016llx", (unsigned long long)h);
}

weft_status record_open(Recorder *rec, const RecordOptions *o, const RunHead *head,
                        weft_error *e) {
  *rec = (Recorder){
      .open = true, .o = *o, .head = *head, .log = {.fd = -1}, .events = EVENTS_NONE};
  if (o->append && !o->log && !o->events)
    return err_set(e, WEFT_EUSAGE, "--append belongs to --log FILE or --tensorboard DIR");
  name_run(rec->head.id);
  if (o->log) TRY(log_open(o->log, o->append, &rec->log, e));
  return o->events ? events_ready(o->events, o->append, &rec->events, e) : WEFT_OK;
}

weft_status record_begin(Recorder *rec, uint64_t memory, weft_error *e) {
  if (!rec->open) return WEFT_OK;
  const Job *j = rec->head.job;
  rec->memory = memory;
  rec->flops = model_flops(j->compiled);
  rec->peak = device_peak(&j->plan, j->compiled);
  if (rec->o.events) TRY(events_open(&rec->events, &rec->head, e));
  if (rec->log.fd < 0) return WEFT_OK;
  weft_status st = log_head(&rec->log, &rec->head, e);
  rec->begun = st == WEFT_OK;
  const Text *t = &rec->early;
  for (size_t i = 0; st == WEFT_OK && !t->oom && i < t->n; i += strlen(t->s + i) + 1)
    st = log_note(&rec->log, &rec->head, "warning", t->s + i, e);
  return st;
}

/* ---- files that cannot be written any more ---- */

/* Before a line that follows lost ones: cuts off what there is of the first of these, and
 * says how many they were. */
static weft_status mend_log(Recorder *rec, weft_error *e) {
  char text[80];
  if (!rec->lost) return WEFT_OK;
  TRY(log_mend(&rec->log, e));
  snprintf(text, sizeof text, "%lld line%s could not be written here",
           (long long)rec->lost, plural(rec->lost, "s"));
  TRY(log_note(&rec->log, &rec->head, "warning", text, e));
  rec->lost = 0;
  return WEFT_OK;
}

/* After a line of the log. */
static void count_lost(Recorder *rec, weft_status st, const weft_error *why) {
  if (st != WEFT_OK && rec->lost++ == 0) warn(rec, "lines of its log", why);
}

void record_step(Recorder *rec, const StepResult *s) {
  weft_error why = NO_ERROR;
  if (!rec->open) return;
  Record r = make_record(rec, s);
  if (rec->log.fd >= 0) {
    weft_status st = mend_log(rec, &why);
    if (st == WEFT_OK) st = log_record(&rec->log, &rec->head, &r, &why);
    count_lost(rec, st, &why);
  }
  /* Readers stop at the part of a record that there may be. */
  if (rec->events.file.fd >= 0 && events_record(&rec->events, &r, &why) != WEFT_OK) {
    warn(rec, "its event file", &why);
    events_close(&rec->events);
  }
  tell(rec, &r);
}

void record_note(Recorder *rec, const char *event, const char *text) {
  weft_error why = NO_ERROR;
  if (!rec->open || rec->log.fd < 0) return;
  if (!rec->begun) {
    text_addn(&rec->early, text, strlen(text) + 1);
    return;
  }
  weft_status st = mend_log(rec, &why);
  if (st == WEFT_OK) st = log_note(&rec->log, &rec->head, event, text, &why);
  count_lost(rec, st, &why);
}

void record_end(Recorder *rec, weft_status st, const weft_error *e) {
  char text[1400] = "the run has ended in order", line[32] = "";
  if (!rec->begun) return;
  if (st != WEFT_OK && e->line) snprintf(line, sizeof line, ":%d", e->line);
  if (st != WEFT_OK)
    snprintf(text, sizeof text, "%s%s%s%s", e->file, line, *e->file ? ": " : "", e->text);
  record_note(rec,
              st == WEFT_OK      ? "done"
              : st == WEFT_EINTR ? "interrupted"
                                 : "failed",
              text);
}

void record_close(Recorder *rec) {
  if (!rec->open) return;
  file_end(&rec->log);
  text_free(&rec->early);
  events_close(&rec->events);
  rec->open = false;
}
