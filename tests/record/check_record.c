/* check_record.c - what is told of a run: lines, log, event files, rates. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bindings/object/format.h"
#include "bindings/record/record.h"
#include "tests/harness/process.h"

#define RUN "$weft run " WEFT_SOURCE_DIR "/tests/embed/small.lua --threads 1 "

/* ---- lines ---- */

static Record a_record(void) {
  return (Record){.step = {.step = 119,
                           .tokens = 2048,
                           .loss = 2.25,
                           .grad_norm = 0.5,
                           .lr = 3e-4,
                           .ms = 100},
                  .end = 400,
                  .memory = 3 << 20,
                  .tokens_per_s = 20480,
                  .flops_per_s = 39.1e12,
                  .share = 0.412,
                  .left_s = 185};
}

static void check_line(void (*line)(const Record *r, Text *out), const Record *r,
                       const char *want) {
  Text t = {0};
  line(r, &t);
  ck_assert_str_eq(t.s, want);
  text_free(&t);
}

START_TEST(lines) {
  Record r = a_record();
  check_line(line_of_step, &r,
             "step    119/400  loss   2.2500  grad   0.5000  lr 3.000e-04  "
             "20.5 k tokens/s  39.1 TFLOP/s (41.2 %)  3.00 MiB  100.0 ms  "
             "3 min 05 s left");
  check_line(line_of_progress, &r,
             "120/400  loss 2.2500  20.5 k tokens/s  39.1 TFLOP/s (41.2 %)  "
             "3 min 05 s left");
  r.share = r.flops_per_s = 0, r.left_s = -1;
  check_line(line_of_step, &r,
             "step    119/400  loss   2.2500  grad   0.5000  lr 3.000e-04  "
             "20.5 k tokens/s  3.00 MiB  100.0 ms");
  r.step.partial = true;
  check_line(line_of_step, &r,
             "step    119/400  loss   2.2500  grad   0.5000  lr 3.000e-04  "
             "2.05 k learnt  20.5 k tokens/s  3.00 MiB  100.0 ms");
  r.step.padded = 70, r.step.left_out = 1200;
  check_line(line_of_step, &r,
             "step    119/400  loss   2.2500  grad   0.5000  lr 3.000e-04  "
             "2.05 k learnt, 70 padded, 1.20 k dropped  20.5 k tokens/s  3.00 MiB  "
             "100.0 ms");
  r.step.loss_scale = 1024;
  check_line(line_of_skipped, &r,
             "step    119/400  skipped: gradients overflowed at loss scale 1024");
}
END_TEST

START_TEST(spans) {
  static const struct {
    double s;
    const char *text;
  } span[] = {{0, "0 s"},           {59.4, "59 s"},
              {59.6, "1 min 00 s"}, {3599, "59 min 59 s"},
              {3600, "1 h 00 min"}, {86399, "23 h 59 min"},
              {86400, "1 d 00 h"},  {1e6, "11 d 13 h"},
              {-5, "0 s"}};
  char buf[32];
  for (int i = 0; i < LEN(span); i++)
    ck_assert_str_eq(format_span(span[i].s, buf), span[i].text);
}
END_TEST

/* ---- rates ---- */

#define QUICKSTART WEFT_SOURCE_DIR "/plans/quickstart.lua"

static double flops_of(const char *plan, const char *const *set, int n, Job *j,
                       Arena *arena) {
  LangOptions o = {.set = set, .nset = n};
  weft_status st = job_open(j, arena, &o, plan);
  ck_assert_msg(st == WEFT_OK, "%s",
                st == WEFT_EPLAN ? j->d.list.at[0].summary : j->e.text);
  return model_flops(j->compiled);
}

/* 6 for each parameter that is multiplied with each token, and what attention adds: two
 * products of T/2 x T forward and five backward. The mesh repeats a little of what is not
 * a product; what recompute repeats does not count. */
START_TEST(flops_of_a_step) {
  static const char *const one[] = {"mesh.tp=1", "mesh.pp=1", "mesh.dp=1",
                                    "strategy.sequence_parallel=false"};
  static const char *const many[] = {"recompute=full"};
  Job j;
  double tokens = 2048, T = 64, width = 128, layers = 4;
  double a = flops_of(QUICKSTART, one, LEN(one), &j, scratch_arena);
  double multiplied = (double)j.compiled->params_total - 256 * width;
  double want = tokens * (6 * multiplied + 3.5 * 2 * layers * T * width);
  job_free(&j);
  ck_assert_msg(a > want && a < 1.06 * want, "%g, not %g", a, want);
  double b = flops_of(QUICKSTART, many, 1, &j, scratch_arena);
  ck_assert_double_gt(j.compiled->prog[0].recomputed, 0);
  job_free(&j);
  ck_assert_msg(b >= a && b < 1.03 * a, "%g on eight ranks, %g on one", b, a);
}
END_TEST

/* Ranks of ep have the rows of one rank among them, whatever more their buffers hold. */
START_TEST(flops_of_experts) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'mixtral', hidden_size = 256,\n"
      "  num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4,\n"
      "  intermediate_size = 512, vocab_size = 256, num_local_experts = 8,\n"
      "  num_experts_per_tok = 2 }, mesh = { dp = 4 },\n"
      "  batch = { global = 4, micro = 1, seq = 64 } }\n";
  static const char *const gathered[] = {"mesh.ep=4"};
  static const char *const sent[] = {"mesh.ep=4", "moe.dispatcher=alltoall"};
  Job j;
  const char *path = scratch_put("experts.lua", plan, strlen(plan));
  double one = flops_of(path, NULL, 0, &j, scratch_arena);
  job_free(&j);
  double all = flops_of(path, gathered, 1, &j, scratch_arena);
  ck_assert_double_gt(j.compiled->prog[0].room, 0.5 * j.compiled->prog[0].flops);
  job_free(&j);
  ck_assert_double_eq_tol(all / one, 1, 0.02);
  all = flops_of(path, sent, 2, &j, scratch_arena);
  job_free(&j);
  ck_assert_double_eq_tol(all / one, 1, 0.02);
}
END_TEST

/* The figures are those of GPUs: of a run on CPUs they say nothing. */
START_TEST(share_of_the_peak) {
  DeviceKind gpu = {.name = "cuda"}, cpu = {.name = "cpu", .host = true};
  Compiled c = {.mesh = {.world = 4}, .device = &gpu, .dtype = DT_BF16};
  Plan p = {.cluster = {.gpu = "h100", .bf16 = 989e12, .f32 = 67e12}};
  ck_assert_double_eq(device_peak(&p, &c), 4 * 989e12);
  c.dtype = DT_F32;
  ck_assert_double_eq(device_peak(&p, &c), 4 * 67e12);
  c.device = &cpu;
  ck_assert_double_eq(device_peak(&p, &c), 0);
  c.device = &gpu, p.cluster.gpu = NULL;
  ck_assert_double_eq(device_peak(&p, &c), 0);
}
END_TEST

/* ---- the log ---- */

static const char *text_of(const json_t *j, const char *key) {
  const char *s = json_string_value(json_object_get(j, key));
  return s ? s : "";
}

/* Each line of the log is JSON and has its run's id; returns the number of runs. */
static int check_runs(const char *log) {
  char run[32] = "", *text = arena_str(scratch_arena, scratch_get(scratch_path(log)));
  int runs = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *j = json_loads(line, 0, NULL);
    ck_assert_msg(j != NULL, "%s", line);
    if (strcmp(text_of(j, "event"), "start") == 0) {
      ck_assert_str_ne(run, text_of(j, "run"));
      snprintf(run, sizeof run, "%s", text_of(j, "run"));
      runs++;
    }
    ck_assert_int_eq(strlen(run), 16);
    ck_assert_str_eq(run, text_of(j, "run"));
    json_decref(j);
  }
  return runs;
}

static json_t *head_of(const char *log) {
  const char *text = scratch_get(scratch_path(log));
  json_t *j = json_loadb(text, strcspn(text, "\n"), 0, NULL);
  ck_assert(j != NULL);
  return j;
}

START_TEST(every_line_names_its_run) {
  Outcome o = process_run(60, RUN "--steps 2 --log log --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  /* What a run that was killed in the middle of a line leaves. */
  FILE *f = fopen(scratch_path("log"), "a");
  fputs("{\"grad_no", f);
  fclose(f);
  o = process_run(60, RUN "--steps 1 --log log --quiet --append");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_int_eq(check_runs("log"), 2);
}
END_TEST

/* The same plan has the same hash, however often and wherever it runs; a field that is
 * set has another one. */
START_TEST(hash_of_the_plan) {
  static const char *const set[] = {"", "", "--set train.seed=8"};
  char *hash[3];
  for (int i = 0; i < 3; i++) {
    char log[8];
    snprintf(log, sizeof log, "log%d", i);
    Outcome o = process_run(60, RUN "--steps %d --log %s --quiet %s", 1 + i, log, set[i]);
    ck_assert_msg(o.code == 0, "%s", o.err);
    json_t *j = head_of(log);
    hash[i] = arena_str(scratch_arena, text_of(j, "plan_hash"));
    ck_assert_int_eq(strlen(hash[i]), 16);
    json_decref(j);
  }
  ck_assert_str_eq(hash[0], hash[1]);
  ck_assert_str_ne(hash[0], hash[2]);
}
END_TEST

START_TEST(head_of_a_run_that_goes_on) {
  Job j;
  flops_of(QUICKSTART, NULL, 0, &j, scratch_arena);
  RunHead h = {.job = &j,
               .plan = "p.lua",
               .comm = "local",
               .data = "none",
               .end = 9,
               .resumed = "runs/step-00000005",
               .resumed_step = 5};
  RecordOptions o = {.log = scratch_path("log")};
  Recorder rec;
  ck_assert_int_eq(record_open(&rec, &o, &h, &scratch_error), WEFT_OK);
  ck_assert_int_eq(record_begin(&rec, 1, &scratch_error), WEFT_OK);
  record_close(&rec);
  job_free(&j);
  json_t *head = head_of("log"), *resumed = json_object_get(head, "resumed");
  ck_assert_str_eq(text_of(resumed, "checkpoint"), "runs/step-00000005");
  ck_assert_int_eq(json_integer_value(json_object_get(resumed, "step")), 5);
  json_decref(head);
}
END_TEST

static int warned;
static char warning[1400];

static void keep_warning(void *ud, const char *text) {
  warned++;
  snprintf(warning, sizeof warning, "%s", text);
}

/* Steps while no file of this process grows beyond so many bytes, as on a full disk; nor
 * does that of Check, to which nothing may be said meanwhile. */
static void steps_without_room(Recorder *rec, rlim_t bytes) {
  StepResult step = {.tokens = 3, .ms = 1};
  struct rlimit had, limit;
  getrlimit(RLIMIT_FSIZE, &had);
  limit = had;
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 0; i < 3; i++) step.step = i, record_step(rec, &step);
  setrlimit(RLIMIT_FSIZE, &had);
}

/* A run goes on without the lines that cannot be written, and with those that can be
 * again; one without an event file once a record of it is lost. */
START_TEST(a_full_disk_ends_no_run) {
  Job j;
  flops_of(QUICKSTART, NULL, 0, &j, scratch_arena);
  RunHead h = {.job = &j, .plan = "p.lua", .comm = "local", .data = "none", .end = 9};
  RecordOptions o = {.log = scratch_path("log"), .warn = keep_warning};
  Recorder rec;
  StepResult step = {.tokens = 3, .ms = 1};
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(record_open(&rec, &o, &h, &scratch_error), WEFT_OK);
  ck_assert_int_eq(record_begin(&rec, 1, &scratch_error), WEFT_OK);
  steps_without_room(&rec, strlen(scratch_get(o.log)) + 40);
  ck_assert_int_eq(warned, 1);
  ck_assert_msg(strstr(warning, "/log: cannot be written: ") &&
                    strstr(warning, ": the run goes on without lines of its log"),
                "%s", warning);
  for (int i = 3; i < 5; i++) step.step = i, record_step(&rec, &step);
  record_close(&rec);
  ck_assert_int_eq(warned, 1);
  const char *log = scratch_get(o.log);
  const char *note = strstr(log, "\n{\"event\":\"warning\",");
  ck_assert_msg(note && strstr(note, "\"text\":\"3 lines could not be written here\"}\n"),
                "%s", log);
  ck_assert_msg(strstr(note, "\"step\":3,") && strstr(note, "\"step\":4,"), "%s", log);
  o = (RecordOptions){.events = scratch_path("events"), .warn = keep_warning};
  ck_assert_int_eq(record_open(&rec, &o, &h, &scratch_error), WEFT_OK);
  ck_assert_int_eq(record_begin(&rec, 1, &scratch_error), WEFT_OK);
  steps_without_room(&rec, 100);
  ck_assert_int_eq(warned, 2);
  ck_assert_msg(strstr(warning, ": the run goes on without its event file"), "%s",
                warning);
  record_close(&rec);
  job_free(&j);
}
END_TEST

/* The line of a step, whose members have the order of the alphabet. */
static const char *logged(const Record *r) {
  FileEnd to;
  RunHead h = {.id = "0123456789abcdef"};
  unlink(scratch_path("log"));
  ck_assert_int_eq(log_open(scratch_path("log"), false, &to, &scratch_error), WEFT_OK);
  ck_assert_int_eq(log_record(&to, &h, r, &scratch_error), WEFT_OK);
  file_end(&to);
  return scratch_get(scratch_path("log"));
}

/* Members that not every run has stand in the lines of those that do, whatever their
 * value. */
START_TEST(members_of_a_step) {
  Record r = a_record();
  ck_assert_str_eq(logged(&r),
                   "{\"flops_per_s\":39100000000000,\"grad_norm\":0.5,\"loss\":2.25,"
                   "\"lr\":0.0003,\"memory_bytes\":3145728,\"run\":\"0123456789abcdef\","
                   "\"share\":0.412,\"step\":119,\"step_ms\":100,\"tokens\":2048,"
                   "\"tokens_per_s\":20480}\n");
  r.share = r.flops_per_s = 0;
  r.step.expert_max = 1, r.step.expert_mean = 0.5;
  r.step.partial = true, r.step.loss_scale = 0.5, r.step.eval_tokens = 1;
  ck_assert_str_eq(
      logged(&r),
      "{\"dropped\":0,\"dropped_tokens\":0,\"eval_loss\":0,\"eval_ms\":0,\"eval_tokens\":"
      "1,"
      "\"expert_imbalance\":2,\"expert_max\":1,\"expert_mean\":0.5,\"flops_per_s\":0,"
      "\"grad_norm\":0.5,\"loss\":2.25,\"loss_scale\":0.5,\"lr\":0.0003,"
      "\"memory_bytes\":3145728,\"padded_tokens\":0,\"run\":\"0123456789abcdef\","
      "\"skipped\":false,\"step\":119,\"step_ms\":100,\"tokens\":2048,"
      "\"tokens_per_s\":20480}\n");
  r.step.dropped = 3, r.step.left_out = 4, r.step.padded = 5, r.step.skipped = true;
  r.step.eval_loss = 1.5, r.step.eval_ms = 6, r.step.expert_max = 0.25;
  ck_assert_str_eq(
      logged(&r),
      "{\"dropped\":3,\"dropped_tokens\":4,\"eval_loss\":1.5,\"eval_ms\":6,"
      "\"eval_tokens\":1,\"expert_imbalance\":0.5,\"expert_max\":0.25,"
      "\"expert_mean\":0.5,\"flops_per_s\":0,\"grad_norm\":0.5,\"loss\":2.25,"
      "\"loss_scale\":0.5,\"lr\":0.0003,\"memory_bytes\":3145728,\"padded_tokens\":5,"
      "\"run\":\"0123456789abcdef\",\"skipped\":true,\"step\":119,\"step_ms\":100,"
      "\"tokens\":2048,\"tokens_per_s\":20480}\n");
}
END_TEST

/* The names of all members, in the order in which they are written. */
static const char *keys_of(const char *line) {
  json_t *j = json_loads(line, 0, NULL);
  const char *key, *all = "";
  json_t *v;
  ck_assert_msg(j != NULL, "%s", line);
  json_object_foreach(j, key, v) all = arena_printf(scratch_arena, "%s%s ", all, key);
  json_decref(j);
  return all;
}

START_TEST(members_of_a_head) {
  static const char *const set[] = {"cluster=h100-sxm"};
  Job j;
  FileEnd to;
  flops_of(QUICKSTART, set, 1, &j, scratch_arena);
  RunHead h = {.job = &j, .plan = "p.lua", .comm = "tcp", .data = "text", .end = 9};
  h.plan_hash = 0xab, memcpy(h.id, "0123456789abcdef", 17);
  ck_assert_int_eq(log_open(scratch_path("log"), false, &to, &scratch_error), WEFT_OK);
  ck_assert_int_eq(log_head(&to, &h, &scratch_error), WEFT_OK);
  const char *head = scratch_get(scratch_path("log"));
  ck_assert_str_eq(keys_of(head),
                   "comm data device event flops host mesh name parameters "
                   "plan plan_hash run steps time version world ");
  json_t *v = json_loads(head, 0, NULL);
  static const char *const texts[][2] = {{"comm", "tcp"},
                                         {"data", "text"},
                                         {"device", "cpu"},
                                         {"event", "start"},
                                         {"plan", "p.lua"},
                                         {"plan_hash", "00000000000000ab"},
                                         {"name", "quickstart"},
                                         {"run", "0123456789abcdef"},
                                         {"mesh", "pp=2 dp=2 tp=2"},
                                         {"version", NULL}};
  for (int i = 0; i < LEN(texts); i++)
    ck_assert_str_eq(text_of(v, texts[i][0]), texts[i][1] ? texts[i][1] : weft_version());
  ck_assert_int_eq(json_integer_value(json_object_get(v, "steps")), 9);
  ck_assert_int_eq(json_integer_value(json_object_get(v, "world")), 8);
  ck_assert_int_eq(json_integer_value(json_object_get(v, "parameters")),
                   (json_int_t)j.compiled->params_total);
  ck_assert_double_eq(json_number_value(json_object_get(v, "flops")),
                      model_flops(j.compiled));
  struct tm utc = {0};
  const char *end = strptime(text_of(v, "time"), "%Y-%m-%dT%H:%M:%SZ", &utc);
  ck_assert(end && !*end);
  ck_assert_double_le(fabs(difftime(timegm(&utc), time(NULL))), 120);
  json_decref(v);
  h.way = "one by one", h.kernels = "copied", h.resumed = "c";
  ck_assert_int_eq(log_head(&to, &h, &scratch_error), WEFT_OK);
  ck_assert_str_eq(keys_of(strchr(scratch_get(scratch_path("log")), '\n') + 1),
                   "comm data device event flops host kernels mesh name parameters plan "
                   "plan_hash resumed run steps steps_are time version world ");
  file_end(&to);
  job_free(&j);
}
END_TEST

/* A file with a log is left alone unless it is added to, behind whole lines: half of one
 * is cut off. */
START_TEST(logs_are_added_to) {
  FileEnd to;
  RunHead h = {.id = "0123456789abcdef"};
  static const struct {
    const char *had, *has;
  } files[] = {{"{}\n", "{}\n"},       {"{}\n{\"run\":\"{}", "{}\n"}, {"{", ""},
               {"{}\n{}", "{}\n{}\n"}, {"words", "words\n"},          {"", ""}};
  const char *note =
      "{\"event\":\"warning\",\"run\":\"0123456789abcdef\",\"text\":\"a\\n\"}\n";
  for (int i = 0; i < LEN(files); i++) {
    const char *path = scratch_put("log", files[i].had, strlen(files[i].had));
    weft_status st = log_open(path, false, &to, &scratch_error);
    ck_assert_int_eq(st, *files[i].had ? WEFT_EUSAGE : WEFT_OK);
    ck_assert_str_eq(scratch_get(path), files[i].had);
    if (st == WEFT_OK) file_end(&to);
    err_clear(&scratch_error);
    ck_assert_int_eq(log_open(path, true, &to, &scratch_error), WEFT_OK);
    ck_assert_int_eq(log_note(&to, &h, "warning", "a\n", &scratch_error), WEFT_OK);
    file_end(&to);
    ck_assert_str_eq(scratch_get(path),
                     arena_printf(scratch_arena, "%s%s", files[i].has, note));
  }
}
END_TEST

/* What is told before the first line of a log comes right behind it. */
START_TEST(warnings_of_a_resumed_run) {
#define SAVED RUN "--quiet --set checkpoint.dir=%s --set checkpoint.every=1 "
  const char *dir = arena_str(scratch_arena, scratch_path("ck"));
  Outcome o = process_run(60, SAVED "--steps 2", dir);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60,
                  SAVED "--steps 3 --resume auto --set optimizer.lr=0.02 "
                        "--log log",
                  dir);
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *log = scratch_get(scratch_path("log")), *second = strchr(log, '\n') + 1;
  ck_assert_msg(strstr(log, "\"event\":\"start\"") < second, "%s", log);
  ck_assert_msg(strncmp(second, "{\"event\":\"warning\",", 19) == 0, "%s", log);
  int said = 0, kept = 0;
  for (const char *s = o.err; (s = strstr(s, "weft: warning: ")); s++) said++;
  for (const char *s = log; (s = strstr(s, "\"warning\"")); s++) kept++;
  ck_assert_int_gt(said, 0);
  ck_assert_int_eq(said, kept);
  ck_assert_int_eq(check_runs("log"), 1);
}
END_TEST

/* ---- event files ---- */

/* What TensorBoard's own writer makes of the same events. */
static const char fixture[] =
    "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e457665"
    "6e743a322a28646c2100000000000000017becf609000000000049934010ac02"
    "2a130a110a0a747261696e2f6c6f737315cdcccc3d9de199b0";

START_TEST(bytes_of_events) {
  Text t = {0}, hex = {0};
  events_version(&t, 1.5);
  events_scalar(&t, 1234.25, 300, "train/loss", 0.1);
  for (size_t i = 0; i < t.n; i++) text_printf(&hex, "%02x", (unsigned char)t.s[i]);
  ck_assert_str_eq(hex.s, fixture);
  text_free(&hex);
  text_free(&t);
}
END_TEST

/* As a writer of PyTorch with purge_step = 7 begins, at 1.5 s. */
START_TEST(bytes_of_a_restart) {
  static const char want[] = "0f000000000000006d532b0909000000000000f83f1007"
                             "3a020801774771c7";
  Text t = {0}, hex = {0};
  events_restart(&t, 1.5, 7);
  for (size_t i = 0; i < t.n; i++) text_printf(&hex, "%02x", (unsigned char)t.s[i]);
  ck_assert_str_eq(hex.s, want);
  text_free(&hex);
  text_free(&t);
}
END_TEST

static void *failing(void *ud, void *p, size_t old, size_t n) {
  int *left = ud;
  if (n == 0) return free(p), NULL;
  return (*left)-- > 0 ? realloc(p, n) : NULL;
}

/* A record is whole, or the text says that it is not. */
START_TEST(events_without_memory) {
  for (int n = 0;; n++) {
    int left = n;
    weft_alloc alloc = {failing, &left};
    Text t = {.alloc = &alloc};
    events_version(&t, 1.5);
    size_t first = t.oom ? 0 : t.n;
    events_scalar(&t, 1234.25, 300, "train/loss", 0.1);
    bool whole = !t.oom;
    ck_assert_msg(t.oom || t.n == (sizeof fixture - 1) / 2, "request %d: %zu bytes", n,
                  t.n);
    ck_assert_msg(!t.oom || t.n <= first, "request %d: half a record", n);
    text_free(&t);
    if (whole) break;
  }
}
END_TEST

START_TEST(events_as_tensorboard_reads_them) {
  Outcome o = process_run(60, RUN "--steps 3 --log log --tensorboard a/b --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, RUN "--steps 1 --tensorboard a/b --quiet");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "a/b: error: has event files of another run"), "%s", o.err);
  o = process_run(60, RUN "--steps 1 --tensorboard log --quiet");
  ck_assert_msg(o.code == 2 && strstr(o.err, "log: error: cannot be "), "%s", o.err);
  if (system("python3 -c 'import tensorboard' 2>/dev/null") != 0) {
    puts("skipped: python3 has no module tensorboard");
    return;
  }
  o = process_run(60, "python3 " WEFT_SOURCE_DIR "/tests/record/read_events.py a/b");
  ck_assert_msg(o.code == 0, "%s", o.err);
  char *text = arena_str(scratch_arena, scratch_log(scratch_path("log")));
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *j = json_loads(line, 0, NULL);
    const char *want = arena_printf(scratch_arena, "train/loss %d %.6g\n",
                                    (int)json_integer_value(json_object_get(j, "step")),
                                    json_number_value(json_object_get(j, "loss")));
    json_decref(j);
    ck_assert_msg(strstr(o.out, want), "%s is not in\n%s", want, o.out);
  }
}
END_TEST

/* The file of a resumed run comes behind that of the first one, of the same second too,
 * and says from which step on it counts. */
START_TEST(a_resumed_run_draws_its_steps_once) {
  Job j;
  flops_of(QUICKSTART, NULL, 0, &j, scratch_arena);
  RunHead h = {.job = &j, .plan = "p.lua", .comm = "local", .data = "none", .end = 9};
  RecordOptions o = {.events = scratch_path("tb")};
  Recorder rec;
  for (int i = 0; i < 8; i++) {
    h.resumed = i ? "c" : NULL, h.resumed_step = i;
    o.append = i > 0;
    ck_assert_int_eq(record_open(&rec, &o, &h, &scratch_error), WEFT_OK);
    ck_assert_int_eq(record_begin(&rec, 1, &scratch_error), WEFT_OK);
    record_step(&rec, &(StepResult){.step = i, .tokens = 3, .ms = 1});
    record_close(&rec);
  }
  job_free(&j);
  Outcome files = process_run(10, "ls tb");
  char *names = arena_str(scratch_arena, files.out), *rest;
  int n = 0;
  for (char *name = strtok_r(names, "\n", &rest); name;
       name = strtok_r(NULL, "\n", &rest), n++) {
    char *text;
    size_t size;
    const char *path = scratch_path(arena_printf(scratch_arena, "tb/%s", name));
    ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &text, &size, &scratch_error),
                     WEFT_OK);
    /* The step, and the session with its status. */
    char mark[] = {0x10, (char)n, 0x3a, 2, 8, 1};
    ck_assert((memmem(text, size, mark, sizeof mark) != NULL) == (n > 0));
    mem_free(NULL, text, size + 1);
  }
  ck_assert_int_eq(n, 8);
}
END_TEST

/* A run that does not begin leaves no file that keeps the next one out. */
START_TEST(no_events_of_no_run) {
  Outcome o = process_run(
      60, RUN "--steps 1 --tensorboard tb --set data=weft.text{files=\"no\"}");
  ck_assert_int_ne(o.code, 0);
  o = process_run(60, RUN "--steps 1 --tensorboard tb --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

Suite *record_suite(void) {
  Suite *s = suite_create("record");
  TCase *tc = tcase_create("record");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_set_timeout(tc, 240);
  tcase_add_test(tc, lines);
  tcase_add_test(tc, spans);
  tcase_add_test(tc, flops_of_a_step);
  tcase_add_test(tc, flops_of_experts);
  tcase_add_test(tc, share_of_the_peak);
  tcase_add_test(tc, every_line_names_its_run);
  tcase_add_test(tc, hash_of_the_plan);
  tcase_add_test(tc, head_of_a_run_that_goes_on);
  tcase_add_test(tc, a_full_disk_ends_no_run);
  tcase_add_test(tc, members_of_a_step);
  tcase_add_test(tc, members_of_a_head);
  tcase_add_test(tc, logs_are_added_to);
  tcase_add_test(tc, warnings_of_a_resumed_run);
  tcase_add_test(tc, bytes_of_events);
  tcase_add_test(tc, bytes_of_a_restart);
  tcase_add_test(tc, a_resumed_run_draws_its_steps_once);
  tcase_add_test(tc, events_without_memory);
  tcase_add_test(tc, events_as_tensorboard_reads_them);
  tcase_add_test(tc, no_events_of_no_run);
  suite_add_tcase(s, tc);
  return s;
}
