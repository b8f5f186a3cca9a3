/* main.c - weft-gpu VERB [options]; see gpu.h. */
#include "gpu.h"

#include <stdio.h>
#include <time.h>

int gpu_fails(const char *name, weft_status st, const weft_error *e) {
  fprintf(stderr, "weft-gpu: %s: %s\n", name, e->text);
  return weft_exit_code(st);
}

double gpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
  } verbs[] = {{"kernels", gpu_kernels}, {"table", gpu_table}};
  for (int i = 0; i < LEN(verbs); i++)
    if (argc > 1 && strcmp(argv[1], verbs[i].name) == 0)
      return verbs[i].run(argc - 2, argv + 2);
  fprintf(stderr, "usage: weft-gpu kernels [--brief] [--cudnn] [--op NAME]\n"
                  "       weft-gpu table PLAN.lua [--set PATH=VALUE] [-D NAME=VALUE]\n"
                  "                [--cube N] [--copy MIB] [--ms N]\n");
  return 2;
}
