/* main.c - the list of measurements, and what they share. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct {
  const char *name, *what;
  void (*run)(void);
} benches[] = {
    {"gemm", "matrix products of GPT-2 124M, forward and backward", bench_gemm},
    {"kernels", "the other CPU kernels on shapes of GPT-2 124M", bench_kernels},
    {"gpt2", "training steps of GPT-2 124M, B=4 T=64, one rank, two threads", bench_gpt2},
    {"check", "time and memory to compile and prove the plans of plans/", bench_check},
};

double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, by_value);
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void need(BenchPlan *b, weft_status st, const weft_error *e) {
  if (st == WEFT_OK) return;
  Text t = {0};
  report_text(&b->d, false, &t);
  fprintf(stderr, "%s%s\n", t.s ? t.s : "", e->text);
  exit(1);
}

void bench_open(BenchPlan *b, const char *file, const char *const *set, int nset) {
  *b = (BenchPlan){.arena = arena_new(NULL)};
  if (!b->arena || setjmp(*arena_guard(b->arena))) exit(3);
  b->d.arena = b->arena;
  weft_error e = {.rank = -1};
  LangOptions o = {.set = set, .nset = nset};
  need(b, lang_load(&o, file, &b->lp, &b->d, &e), &e);
  b->plan = *lang_plan(b->lp);
  if (!mesh_resolve(&b->plan.mesh, lang_cluster_ranks(b->lp), &b->mesh, &b->d))
    need(b, WEFT_EPLAN, &e);
  int64_t batch = b->plan.batch.micro * mesh_size(&b->mesh, AXES_DP);
  Graph *g = graph_new(b->arena, batch, b->plan.batch.seq);
  need(b, lang_build_graph(b->lp, batch, b->plan.batch.seq, g, &b->d, &e), &e);
  Schedule s;
  need(b, lang_schedule(b->lp, &b->mesh, plan_microbatches(&b->plan, &b->mesh), &s, &b->d,
                        &e), &e);
  CompileInput in = {.plan = &b->plan, .mesh = &b->mesh, .graph = g, .schedule = &s,
                     .arena = b->arena};
  need(b, compile(&in, &b->compiled, &b->d, &e), &e);
}

void bench_close(BenchPlan *b) {
  lang_free(b->lp);
  arena_free(b->arena);
}

int main(int argc, char **argv) {
  bool any = false;
  for (int i = 0; i < LEN(benches); i++) {
    bool wanted = argc == 1;
    for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], benches[i].name) == 0;
    if (!wanted) continue;
    any = true;
    printf("== %s: %s\n", benches[i].name, benches[i].what);
    fflush(stdout);
    benches[i].run();
  }
  if (any) return 0;
  fprintf(stderr, "weft-bench: names are");
  for (int i = 0; i < LEN(benches); i++) fprintf(stderr, " %s", benches[i].name);
  fprintf(stderr, "\n");
  return 2;
}
