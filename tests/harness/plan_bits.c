/* plan_bits.c - see plan_bits.h. */
#include "plan_bits.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/api/job.h"
#include "tests/harness/run_bits.h"
#include "vm/weights/param_gather.h"

static void run_job(Arena *a, Job *j, PlanBits *out) {
  Run *r;
  Data *data;
  RunOptions options = {.world = world_kind("local", NULL), .threads = 1};
  OK(job_data(j, NULL, &data));
  OK(run_open(&j->plan, j->compiled, &options, &r, &trace_err));
  OK(run_init(r, &trace_err));
  for (int k = 0; k < 2; k++) {
    StepResult res;
    OK(run_step(r, data, k, &res, &trace_err));
    out->loss[k] = res.loss, out->norm[k] = res.grad_norm;
  }
  float *to = out->param = NEW_N(a, float, j->compiled->params_total);
  for (int i = 0; i < j->compiled->nparam; i++) {
    OK(run_get(r, STATE_PARAM, i, to, &trace_err));
    to += param_count(&j->compiled->param[i]);
  }
  out->n = to - out->param;
  run_close(r);
  data_close(data);
}

void plan_bits(Arena *a, const char *path, const char *const *set, int n, PlanBits *out) {
  Job j;
  Text report = {0};
  weft_status st = job_open(&j, a, &(LangOptions){.set = set, .nset = n}, path);
  if (st != WEFT_OK) report_text(&j.d, false, &report);
  ck_assert_msg(st == WEFT_OK, "%s%s", report.s ? report.s : "", j.e.text);
  run_job(a, &j, out);
  job_free(&j);
}

static bool same(const PlanBits *a, const PlanBits *b) {
  return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
         memcmp(a->norm, b->norm, sizeof a->norm) == 0 && a->n == b->n &&
         memcmp(a->param, b->param, sizeof(float) * (size_t)a->n) == 0;
}

static bool near(const PlanBits *a, const PlanBits *b) {
  bool is = true;
  for (int k = 0; k < 2; k++)
    is = is && fabs(a->loss[k] - b->loss[k]) <= 1e-6 * fabs(a->loss[k]) &&
         fabs(a->norm[k] - b->norm[k]) <= 1e-5 * fabs(a->norm[k]);
  return is;
}

bool plan_bits_agree(Arena *a, const char *text, const char *const *set, int n, int more,
                     bool rounds) {
  PlanBits one, other;
  char path[] = "/tmp/weft-bits-XXXXXX.lua";
  int fd = mkstemps(path, 4);
  ck_assert(fd >= 0 && write(fd, text, strlen(text)) > 0);
  close(fd);
  plan_bits(a, path, set, n, &one);
  plan_bits(a, path, set, more, &other);
  unlink(path);
  ck_assert_msg(same(&one, &other) || (rounds && near(&one, &other)),
                "losses %.9g and %.9g\n%s", one.loss[1], other.loss[1], text);
  return same(&one, &other);
}

void plan_bits_same(Arena *a, const char *text, const char *const *set, int n, int more) {
  (void)plan_bits_agree(a, text, set, n, more, false);
}
