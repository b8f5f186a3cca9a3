/* table.c - weft-gpu table PLAN: what a step of the plan launches on the device `cuda`,
 * one line for each op and shape: how often, how long, and how much of what the GPU can
 * do that is. All ops and shapes come from the compiled plan, all flops from ops.def.
 *
 * A plan of one rank takes one step, op by op, whose launches are noted with their
 * arguments. Each is then launched many times: with a flush of the caches between ("ms"),
 * and again at once ("again"). In a step some of what a kernel reads is in the caches:
 * its time lies between the two. */
#include <stdio.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "gpu.h"
#include "launches.h"
#include "tests/reference/kernel_values.h"
#include "vm/weights/param_gather.h"

enum { FIELDS = 64 };

typedef struct Asked {
  const char *plan, *set[FIELDS], *define[FIELDS], *data[FIELDS];
  int nset, ndefine, ndata;
  int64_t cube, ms;
  double copy_mib;
} Asked;

typedef struct Row {
  const Launch *launch;
  double cold, warm; /* seconds */
} Row;

typedef struct Table {
  Asked asked;
  Launches launches;
  Row *row;
  Limits limits;
  double step; /* seconds, op by op */
} Table;

/* ---- the plan ---- */

static void print_diags(const Diags *d) {
  Text t = {0};
  report_text(d, false, &t);
  if (t.s) fputs(t.s, stderr);
  text_free(&t);
}

static weft_status compile_plan(Table *t, Job *j, Arena *arena, weft_error *e) {
  LangOptions o = {.set = t->asked.set,
                   .nset = t->asked.nset,
                   .define = t->asked.define,
                   .ndefine = t->asked.ndefine,
                   .data = t->asked.data,
                   .ndata = t->asked.ndata};
  weft_status st = job_load(j, arena, &o, t->asked.plan);
  j->device = launches_device(&t->launches, e);
  job_library(j);
  if (st == WEFT_OK) st = job_mesh(j, 1);
  if (st == WEFT_OK) st = job_compile(j);
  if (st == WEFT_OK) return WEFT_OK;
  print_diags(&j->d);
  *e = j->e;
  return st;
}

/* Ids without an order, the same each time. */
static int32_t *ids(const Run *r, const Compiled *c, uint64_t s) {
  size_t n = staged_bytes(c) / sizeof(int32_t);
  int32_t *p = malloc(MAX(n, 1) * sizeof *p);
  for (size_t i = 0; p && i < n; i++) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    p[i] = (int32_t)((s >> 33) % (uint64_t)c->vocab);
  }
  return p;
}

/* Two steps: what is made lazily comes to be in the first one. */
static weft_status steps(Table *t, Run *r, const Compiled *c, weft_error *e) {
  StepResult res = {0};
  int32_t *tokens = ids(r, c, 1), *labels = ids(r, c, 2);
  weft_status st = tokens && labels ? run_step_tokens(r, tokens, labels, 0, &res, e)
                                    : err_set(e, WEFT_ENOMEM, "out of memory");
  t->launches.on = true;
  if (st == WEFT_OK) st = run_step_tokens(r, tokens, labels, 1, &res, e);
  t->launches.on = false;
  if (st == WEFT_OK) st = run_step_tokens(r, tokens, labels, 2, &res, e);
  t->step = res.ms / 1e3;
  free(tokens), free(labels);
  if (st == WEFT_OK && (t->launches.lost || !t->launches.n))
    return err_set(e, WEFT_ERUN, "the launches of a step could not be noted");
  return st;
}

/* ---- times ---- */

static weft_status measure(Table *t, weft_error *e) {
  Launches *l = &t->launches;
  Flush f;
  double seconds = (double)t->asked.ms / 1e3;
  weft_status st = flush_open(&f, l->device, (size_t)(t->asked.copy_mib * 1048576), e);
  t->row = calloc((size_t)l->n, sizeof *t->row);
  if (!t->row) st = err_set(e, WEFT_ENOMEM, "out of memory");
  if (st == WEFT_OK)
    st = limits_measure(l->device, &f, t->asked.cube, 5 * seconds, &t->limits, e);
  for (int i = 0; st == WEFT_OK && i < l->n; i++) {
    Row *r = &t->row[i];
    r->launch = &l->at[i];
    st =
        time_launch(l->device, l->at[i].kernel, &l->at[i].args, &f, seconds, &r->cold, e);
    if (st == WEFT_OK)
      st = time_launch(l->device, l->at[i].kernel, &l->at[i].args, NULL, seconds,
                       &r->warm, e);
  }
  flush_close(&f, l->device);
  return st;
}

/* ---- the table ---- */

static double of_step(const Row *r) { return MAX(r->cold, r->warm) * r->launch->times; }

static int dearer(const void *a, const void *b) {
  double x = of_step(a), y = of_step(b);
  return (x < y) - (x > y);
}

static void print_shape(const KTensor *t, Text *out) {
  text_printf(out, "%s(", dtype_name(t->dtype));
  for (int i = 0; i < t->ndim; i++)
    text_printf(out, "%s%lld", i ? "," : "", (long long)t->dim[i]);
  text_add(out, ")");
}

static void print_row(const Table *t, const Row *r) {
  const Launch *l = r->launch;
  const KernelArgs *a = &l->args;
  bool moves = launch_moves(l);
  double does = moves ? launch_bytes(l) : launch_flops(l), each = MAX(r->cold, r->warm);
  double rate = each > 0 ? does / each : 0;
  double most = moves ? t->limits.bytes : t->limits.flops;
  Text shape = {0};
  for (int i = 0; i < a->nin; i++)
    text_add(&shape, i ? " " : ""), print_shape(&a->in[i], &shape);
  text_add(&shape, " ->");
  for (int i = 0; i < a->nout; i++)
    text_add(&shape, " "), print_shape(&a->out[i], &shape);
  printf("%-17s %5d %9.4f %9.4f %9.3f %12.6g %-5s %9.2f %-7s %5.1f %%  %s%s\n",
         op_info[l->op].name, l->times, 1e3 * r->cold, 1e3 * r->warm, 1e3 * of_step(r),
         1e-9 * does, moves ? "GB" : "Gflop", 1e-12 * rate, moves ? "TB/s" : "Tflop/s",
         100 * rate / most, a->accumulate ? "adding " : "", shape.s ? shape.s : "");
  text_free(&shape);
}

static void print_limits(const Limits *l) {
  printf("a product of %lld x %lld x %lld in bf16: %.1f Tflop/s; a copy of %g MiB: %.3f "
         "TB/s, read and written\n",
         (long long)l->cube, (long long)l->cube, (long long)l->cube, 1e-12 * l->flops,
         (double)l->copied / (1 << 20), 1e-12 * l->bytes);
}

static void print_table(const Table *t) {
  double cold = 0, warm = 0, flops = 0;
  int launches = 0;
  print_limits(&t->limits);
  printf("%-17s %5s %9s %9s %9s %18s %17s %7s  %s\n", "op", "times", "ms", "again",
         "in a step", "does", "rate", "share", "operands -> results");
  qsort(t->row, (size_t)t->launches.n, sizeof *t->row, dearer);
  for (int i = 0; i < t->launches.n; i++) {
    const Row *r = &t->row[i];
    print_row(t, r);
    cold += r->cold * r->launch->times, warm += r->warm * r->launch->times;
    launches += r->launch->times;
    if (!launch_moves(r->launch)) flops += launch_flops(r->launch) * r->launch->times;
  }
  printf(
      "kernels of a step: %d launches, %.3f ms, again %.3f ms, %.6g Gflop; a step op by "
      "op: %.3f ms\n",
      launches, 1e3 * cold, 1e3 * warm, 1e-9 * flops, 1e3 * t->step);
}

/* ---- the verb ---- */

static weft_status run_plan(Table *t, Job *j, weft_error *e) {
  Run *r = NULL;
  TRY(run_open(&j->plan, j->compiled, &(RunOptions){0}, &r, e));
  weft_status st = run_init(r, e);
  if (st == WEFT_OK) st = steps(t, r, j->compiled, e);
  if (st == WEFT_OK) st = measure(t, e);
  if (st == WEFT_OK) print_table(t);
  run_close(r);
  free(t->row);
  free(t->launches.at);
  return st;
}

static bool add(const char *list[FIELDS], int *n, const char *value) {
  if (*n < FIELDS) list[(*n)++] = value;
  return *n <= FIELDS;
}

static bool read_args(Asked *a, int argc, char **argv) {
  *a = (Asked){.cube = 8192, .copy_mib = 256, .ms = 20};
  for (int i = 0; i < argc; i++) {
    const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (*name != '-') {
      if (a->plan) return false;
      a->plan = name;
      continue;
    }
    if (!value) return false;
    i++;
    if (strcmp(name, "--set") == 0)
      add(a->set, &a->nset, value);
    else if (strcmp(name, "-D") == 0)
      add(a->define, &a->ndefine, value);
    else if (strcmp(name, "--data") == 0)
      add(a->data, &a->ndata, value);
    else if (strcmp(name, "--cube") == 0)
      a->cube = atoll(value);
    else if (strcmp(name, "--copy") == 0)
      a->copy_mib = atof(value);
    else if (strcmp(name, "--ms") == 0)
      a->ms = atoll(value);
    else
      return false;
  }
  return a->plan && a->cube > 0 && a->copy_mib > 1e-3 && a->ms >= 0;
}

int gpu_table(int argc, char **argv) {
  Table t = {0};
  Job j = {0};
  weft_error e = {.rank = -1};
  if (!read_args(&t.asked, argc, argv))
    return gpu_fails("table", err_set(&e, WEFT_EUSAGE, "a plan and options are needed"),
                     &e);
  Arena *arena = arena_new(NULL);
  if (!arena || setjmp(*arena_guard(arena))) {
    arena_free(arena);
    return gpu_fails("table", err_set(&e, WEFT_ENOMEM, "out of memory"), &e);
  }
  weft_status st = compile_plan(&t, &j, arena, &e);
  if (st == WEFT_OK) st = run_plan(&t, &j, &e);
  job_free(&j);
  arena_free(arena);
  return st == WEFT_OK ? 0 : gpu_fails(t.asked.plan, st, &e);
}
