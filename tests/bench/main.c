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
    {"comm", "all_reduce on virtual ranks and through MPI", bench_comm},
    {"load", "a model of 135 M parameters from files, beside cat", bench_load},
    {"data", "samples per second from files of tokens", bench_data},
    {"ckpt", "steps while a checkpoint of 5 M parameters is written", bench_ckpt},
    {"sweep", "points per second of a sweep over Llama 3 70B", bench_sweep},
    {"sim", "simulated steps per second of Llama 3 70B and 405B", bench_sim},
    {"precision", "losses of the quick start after 200 steps, by precision",
     bench_precision},
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

void bench_open(Job *j, const char *file, const char *const *set, int nset) {
  Arena *a = arena_new(NULL);
  if (!a || setjmp(*arena_guard(a))) exit(3);
  LangOptions o = {.set = set, .nset = nset};
  if (job_open(j, a, &o, file) == WEFT_OK) return;
  Text t = {0};
  report_text(&j->d, false, &t);
  fprintf(stderr, "%s%s\n", t.s ? t.s : "", j->e.text);
  exit(1);
}

void bench_close(Job *j) {
  job_free(j);
  arena_free(j->arena);
}

int main(int argc, char **argv) {
  bool any = false;
  if (argc == 2 && strcmp(argv[1], "--comm-child") == 0) return bench_comm_child();
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
