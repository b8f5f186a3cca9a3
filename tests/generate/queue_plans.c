/* queue_plans.c - see queue_plans.h. */
#include "queue_plans.h"

#include "tests/harness/emulated.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef WEFT_EMULATED_CUDA

#include "bindings/api/job.h"
#include "device_plans.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/standin/standin.h"

enum { STEPS = 3 };

uint64_t queue_plan_number(uint64_t seed, uint64_t n) {
  static RandomPlan p;
  for (uint64_t number = 0;; number++) {
    random_plan(seed, number, &p);
    int ranks = random_ranks(&p);
    if (ranks > 1 && ranks <= FORKED_MOST && n-- == 0) return number;
  }
}

/* ---- a rank ---- */

static DeviceVtable unloaded;

static const DeviceVtable *load_nothing_ahead(weft_error *e) {
  unloaded = *device_standin()->load(e);
  unloaded.lazy = false;
  return &unloaded;
}

/* Streams of each rank share connections in another way. */
static void use_machine(const QueuePlan *p, int rank) {
  Standin s = standin_usual;
  s.order = p->order * 8 + (uint64_t)rank;
  s.connections = p->connections;
  s.idle = true;
  char set[16] = "32"; /* as loading the device does */
  if (p->told) snprintf(set, sizeof set, "%d", p->connections);
  setenv(CUDA_CONNECTIONS, set, 1);
  unsetenv("WEFT_STRICT"); /* memory that nothing was computed in would not be finite */
  standin_set(&s);
}

static weft_status load_plan(const QueuePlan *p, const DeviceKind *device, Job *j,
                             Arena *a) {
  static RandomPlan plan;
  char path[] = "/tmp/weft-plan-XXXXXX.lua";
  random_plan(p->seed, p->number, &plan);
  random_plan_in_f32(&plan);
  int fd = mkstemps(path, 4);
  if (fd < 0 || write(fd, plan.text, strlen(plan.text)) < 0) return WEFT_EFILE;
  close(fd);
  weft_status st = job_load(j, a, &(LangOptions){0}, path);
  j->device = device;
  if (st == WEFT_OK) st = job_mesh(j, 0);
  if (st == WEFT_OK) st = job_compile(j);
  unlink(path);
  return st;
}

/* `late`: kernels and algorithms that were first used in a step. */
static weft_status run_steps(const Job *j, const RunOptions *o, uint64_t *late,
                             weft_error *e) {
  Run *r = NULL;
  StepResult result = {0};
  size_t n = staged_bytes(j->compiled) * FORKED_MOST * FORKED_MOST;
  int32_t *ids = calloc(MAX(n, 1), 1); /* more than there are */
  weft_status st = run_open(&j->plan, j->compiled, o, &r, e);
  *late = standin_loads();
  for (int i = 0; st == WEFT_OK && i < STEPS; i++)
    st = run_step_tokens(r, ids, ids, i, &result, e);
  *late = standin_loads() - *late;
  run_close(r);
  free(ids);
  return st;
}

/* Plans are drawn for the CPU: what the device cannot do is refused. */
static void say(int rank, const Job *j, const weft_error *e) {
  Text t = {0};
  report_text(&j->d, false, &t);
  bool refused = t.s && strstr(t.s, "error: ");
  fprintf(stderr, "rank %d: %s%s%s\n", rank, refused ? "refused: " : "", e->text,
          refused && t.s ? t.s : "");
  text_free(&t);
}

static bool be_rank(const Rendezvous *m, const void *arg) {
  const QueuePlan *p = arg;
  DeviceKind device = *device_standin();
  if (p->lazily) device.load = load_nothing_ahead;
  RunOptions o = {.world = world_standin(),
                  .settings.meet = m,
                  .threads = 1,
                  .patience_s = p->patience};
  Arena *a = arena_new(NULL);
  Job j;
  use_machine(p, m->rank);
  if (setjmp(*arena_guard(a))) return false;
  weft_status st = load_plan(p, &device, &j, a);
  weft_error e = j.e;
  uint64_t late = 0;
  if (st == WEFT_OK) st = run_steps(&j, &o, &late, &e);
  if (st == WEFT_OK && late)
    st = err_set(&e, WEFT_ERUN, "%d kernels were first used in a step", (int)late);
  if (st != WEFT_OK) say(m->rank, &j, &e);
  job_free(&j);
  arena_free(a);
  return st == WEFT_OK;
}

/* ---- all ranks ---- */

QueueOutcome queue_plan_runs(const QueuePlan *p, Text *report) {
  static RandomPlan plan;
  random_plan(p->seed, p->number, &plan);
  int ranks = random_ranks(&plan);
  Forked f = forked(ranks, be_rank, p);
  bool ends = true;
  for (int i = 0; i < ranks; i++) ends = ends && f.code[i] == 0;
  if (ends) return QUEUES_END;
  text_printf(report, "plan %d, order %d, %d connections: %s", (int)p->number,
              (int)p->order, p->connections, f.text);
  if (strstr(f.text, "refused: ") || strstr(f.text, "queues on the GPU"))
    return QUEUES_REFUSED;
  return strstr(f.text, "no progress for") ? QUEUES_STOP : QUEUES_FAIL;
}

int queue_plans(int argc, char **argv) {
  uint64_t n = argc > 0 ? strtoull(argv[0], NULL, 10) : 300;
  QueuePlan p = {.seed = 1, .connections = argc > 1 ? atoi(argv[1]) : 0, .patience = 60};
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0,
           count[QUEUE_OUTCOMES] = {0};
  p.told = argc > 3 && strcmp(argv[3], "told") == 0;
  if (p.connections) p.patience = 5;
  for (uint64_t i = first; i < first + n; i++) {
    Text t = {0};
    p.number = queue_plan_number(p.seed, i);
    p.order = i;
    QueueOutcome o = queue_plan_runs(&p, &t);
    count[o]++;
    if (o != QUEUES_END) printf("%s", t.s);
    if (i % 10 == 9) printf("%d plans\n", (int)(i - first + 1));
    fflush(stdout);
    text_free(&t);
  }
  printf("%d random plans, %d connections: %d end, %d stop, %d fail, %d refused\n",
         (int)n, p.connections ? p.connections : 32, (int)count[QUEUES_END],
         (int)count[QUEUES_STOP], (int)count[QUEUES_FAIL], (int)count[QUEUES_REFUSED]);
  bool planted = p.connections > 0 && !p.told;
  return count[QUEUES_FAIL] || (!planted && count[QUEUES_STOP]) ? EXIT_FAILURE
                                                                : EXIT_SUCCESS;
}

#else

uint64_t queue_plan_number(uint64_t seed, uint64_t n) { return n; }
QueueOutcome queue_plan_runs(const QueuePlan *p, Text *report) { return QUEUES_END; }

int queue_plans(int argc, char **argv) {
  printf(EMULATED_SKIPPED);
  return EXIT_SUCCESS;
}

#endif
