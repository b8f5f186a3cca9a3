/* log.c - the log of a run as JSON lines with sorted keys. Each line has the id of its
 * run, so that several runs may share a file. */
#include "record.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "vm/base/json.h"
#include "vm/io/json_text.h"

/* The beginning of a line of a log, which stays without its end. */
static bool is_half(const Text *line) {
  weft_error none = NO_ERROR;
  json_t *whole = *line->s == '{' ? json_text("", "", line->s, line->n, &none) : NULL;
  json_decref(whole);
  return *line->s == '{' && !whole;
}

weft_status log_mend(const FileEnd *to, weft_error *e) {
  enum { MOST = 1 << 20 }; /* no line of a log is as long */
  Text tail = {0};
  if (file_last(to) == '\n') return WEFT_OK;
  int64_t size;
  bool half = file_tail(to, MOST, &tail, &size) && is_half(&tail);
  size_t n = tail.n;
  text_free(&tail);
  return half ? file_cut(to, n, size, e) : file_add(to, "\n", 1, e);
}

/* A file has the log of one run unless --append is given. */
weft_status log_open(const char *path, bool append, FileEnd *out, weft_error *e) {
  TRY(file_extend(NULL, path, 0644, false, out, e));
  weft_status st = WEFT_OK;
  if (!out->empty && !append)
    st = err_file(e, WEFT_EUSAGE, path, 0,
                  "exists and is not empty; give --log another name, or --append to "
                  "add this run to it");
  if (st == WEFT_OK && !out->empty) st = log_mend(out, e);
  if (st != WEFT_OK) file_end(out);
  return st;
}

/* Writes a whole line with one call, so that readers rarely see a part of it. Frees the
 * text. */
static weft_status write_line(const FileEnd *to, Text *text, weft_error *e) {
  text_add(text, "\n");
  return file_add_text(to, text, e);
}

static void add_resumed(Json *out, const RunHead *h) {
  if (!h->resumed) return;
  json_open(out, "resumed", '{');
  json_str(out, "checkpoint", h->resumed);
  json_int(out, "step", h->resumed_step);
  json_close(out, '}');
}

/* The first line of a run: what the lines after it are about. */
weft_status log_head(const FileEnd *to, const RunHead *h, weft_error *e) {
  const Job *j = h->job;
  char host[256] = "", time_text[32], mesh[96], hash[20];
  time_t now = time(NULL);
  struct tm utc;
  gethostname(host, sizeof host - 1);
  strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)h->plan_hash);
  Text text = {0};
  Json out = {.out = &text};
  json_open(&out, NULL, '{');
  if (h->arena) json_str(&out, "arena", h->arena);
  if (h->attention) json_str(&out, "attention", h->attention);
  json_str(&out, "comm", h->comm);
  json_str(&out, "data", h->data);
  json_str(&out, "device", j->compiled->device->name);
  json_str(&out, "event", "start");
  json_num(&out, "flops", model_flops(j->compiled));
  json_str(&out, "host", host);
  if (h->kernels) json_str(&out, "kernels", h->kernels);
  json_str(&out, "mesh", mesh_text(&j->mesh, mesh));
  json_str(&out, "name", j->plan.name);
  json_int(&out, "parameters", (int64_t)params_of_model(j->compiled));
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
  return write_line(to, &text, e);
}

weft_status log_note(const FileEnd *to, const RunHead *h, const char *event,
                     const char *text, weft_error *e) {
  Text line = {0};
  Json out = {.out = &line};
  json_open(&out, NULL, '{');
  json_str(&out, "event", event);
  json_str(&out, "run", h->id);
  json_str(&out, "text", text);
  json_close(&out, '}');
  return write_line(to, &line, e);
}

weft_status log_record(const FileEnd *to, const RunHead *h, const Record *r,
                       weft_error *e) {
  const StepResult *s = &r->step;
  Text text = {0};
  Json out = {.out = &text};
  json_open(&out, NULL, '{');
  if (s->expert_max > 0) json_int(&out, "dropped", s->dropped);
  if (s->partial) json_int(&out, "dropped_tokens", s->left_out);
  if (s->eval_tokens) {
    json_num(&out, "eval_loss", s->eval_loss);
    json_num(&out, "eval_ms", s->eval_ms);
    sources_json(&out, "eval_sources", h->val, s->eval_source, s->eval_sources);
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
  if (s->partial) json_int(&out, "padded_tokens", s->padded);
  json_str(&out, "run", h->id);
  if (r->share > 0) json_num(&out, "share", r->share);
  if (s->loss_scale > 0) json_bool(&out, "skipped", s->skipped);
  sources_json(&out, "sources", h->of, s->source, s->sources);
  json_int(&out, "step", s->step);
  json_num(&out, "step_ms", s->ms);
  json_int(&out, "tokens", s->tokens);
  json_num(&out, "tokens_per_s", r->tokens_per_s);
  json_close(&out, '}');
  return write_line(to, &text, e);
}
