/* log.c - the log of a run: lines of JSON, keys sorted, each with the id of its run, so
 * that a line belongs to one run whatever stands around it. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bindings/object/format.h"
#include "vm/base/json.h"

static weft_status not_written(const char *path, const char *why, weft_error *e) {
  return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", why);
}

/* Whether a run that was killed has left half a line at the end. */
static bool is_torn(const char *path, off_t size) {
  char last = '\n';
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool torn = pread(fd, &last, 1, size - 1) == 1 && last != '\n';
  close(fd);
  return torn;
}

/* One file is the log of one run, unless the user says otherwise. */
weft_status log_open(const char *path, bool append, int *fd, weft_error *e) {
  struct stat st;
  bool full = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
  if (full && !append)
    return err_file(e, WEFT_EUSAGE, path, 0,
                    "exists and is not empty; give --log another name, or --append to "
                    "add this run to it");
  *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (*fd < 0) return not_written(path, strerror(errno), e);
  if (full && is_torn(path, st.st_size) && write(*fd, "\n", 1) != 1)
    return not_written(path, strerror(errno), e);
  return WEFT_OK;
}

/* One write for a whole line: lines of several writers do not mix, and a reader never
 * sees half of one for long. Frees the text. */
static weft_status write_line(int fd, const char *path, Text *text, weft_error *e) {
  text_add(text, "\n");
  ssize_t n = text->oom ? -1 : write(fd, text->s, text->n);
  bool ok = n == (ssize_t)text->n;
  text_free(text);
  return ok ? WEFT_OK
            : not_written(path, n < 0 ? strerror(errno) : "the disk is full", e);
}

static void add_resumed(Json *out, const RunHead *h) {
  if (!h->resumed) return;
  json_open(out, "resumed", '{');
  json_str(out, "checkpoint", h->resumed);
  json_int(out, "step", h->resumed_step);
  json_close(out, '}');
}

/* What the lines after it are about. */
weft_status log_head(int fd, const char *path, const RunHead *h, weft_error *e) {
  const Job *j = h->job;
  char host[256] = "", time_text[32], mesh[96], hash[20], attention[ATTENTION_WAY];
  time_t now = time(NULL);
  struct tm utc;
  gethostname(host, sizeof host - 1);
  strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)h->plan_hash);
  Text text = {0};
  Json out = {.out = &text};
  json_open(&out, NULL, '{');
  if (attention_way(j->compiled, attention)) json_str(&out, "attention", attention);
  json_str(&out, "comm", h->comm);
  json_str(&out, "data", h->data);
  json_str(&out, "device", j->compiled->device->name);
  json_str(&out, "event", "start");
  json_num(&out, "flops", model_flops(j->compiled));
  json_str(&out, "host", host);
  json_str(&out, "mesh", format_mesh(&j->mesh, mesh));
  json_str(&out, "name", j->plan.name);
  json_int(&out, "parameters", (int64_t)j->compiled->params_total);
  json_str(&out, "plan", h->plan);
  json_str(&out, "plan_hash", hash);
  add_resumed(&out, h);
  json_str(&out, "run", h->id);
  json_int(&out, "steps", h->end);
  if (h->way) json_str(&out, "steps_are", h->way);
  json_str(&out, "time", time_text);
  json_str(&out, "version", weft_version());
  json_int(&out, "world", j->mesh.world);
  json_close(&out, '}');
  return write_line(fd, path, &text, e);
}

weft_status log_warning(int fd, const char *path, const RunHead *h, const char *text,
                        weft_error *e) {
  Text line = {0};
  Json out = {.out = &line};
  json_open(&out, NULL, '{');
  json_str(&out, "event", "warning");
  json_str(&out, "run", h->id);
  json_str(&out, "text", text);
  json_close(&out, '}');
  return write_line(fd, path, &line, e);
}

weft_status log_record(int fd, const char *path, const RunHead *h, const Record *r,
                       weft_error *e) {
  const StepResult *s = &r->step;
  Text text = {0};
  Json out = {.out = &text};
  json_open(&out, NULL, '{');
  if (s->expert_max > 0) json_int(&out, "dropped", s->dropped);
  if (s->eval_tokens) {
    json_num(&out, "eval_loss", s->eval_loss);
    json_num(&out, "eval_ms", s->eval_ms);
    json_int(&out, "eval_tokens", s->eval_tokens);
  }
  if (s->expert_max > 0) {
    json_num(&out, "expert_imbalance", s->expert_max / s->expert_mean);
    json_num(&out, "expert_max", s->expert_max);
    json_num(&out, "expert_mean", s->expert_mean);
  }
  json_num(&out, "flops_per_s", r->flops_per_s);
  json_num(&out, "grad_norm", s->grad_norm);
  json_num(&out, "loss", s->loss);
  if (s->loss_scale > 0) json_num(&out, "loss_scale", s->loss_scale);
  json_num(&out, "lr", s->lr);
  json_int(&out, "memory_bytes", (int64_t)r->memory);
  json_str(&out, "run", h->id);
  if (r->share > 0) json_num(&out, "share", r->share);
  if (s->loss_scale > 0) json_bool(&out, "skipped", s->skipped);
  json_int(&out, "step", s->step);
  json_num(&out, "step_ms", s->ms);
  json_int(&out, "tokens", s->tokens);
  json_num(&out, "tokens_per_s", r->tokens_per_s);
  json_close(&out, '}');
  return write_line(fd, path, &text, e);
}
