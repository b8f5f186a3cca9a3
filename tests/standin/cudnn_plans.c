/* cudnn_plans.c - the plans that cuDNN makes of attention for a GPU that is not here: a
 * program of its own, because driver.c is the driver then.
 *
 *   cudnn_plans GPU.json < SHAPES
 *
 * A line of SHAPES is "forward B T H K D" or "backward ...", H heads of queries, K of
 * keys. For each there is a line: "plan BYTES FORMULA", what cuDNN needs for itself and
 * what weft's formula has for that, or "none REASON". */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/cudnn/cudnn_plan.h"

typedef struct Shape {
  int op;
  long b, t, h, k, d;
} Shape;

static bool read_shape(const char *line, Shape *s) {
  char what[16];
  if (sscanf(line, "%15s %ld %ld %ld %ld %ld", what, &s->b, &s->t, &s->h, &s->k, &s->d) !=
      6)
    return false;
  s->op = strcmp(what, "backward") == 0 ? OP_attention_dx : OP_attention;
  return true;
}

static KTensor tensor(long b, long t, long width) {
  return (KTensor){.dtype = DT_BF16, .ndim = 3, .dim = {b, t, width}};
}

static void answer(const CudnnTarget *target, const Shape *s) {
  KTensor q = tensor(s->b, s->t, s->h * s->d), kv = tensor(s->b, s->t, s->k * s->d);
  OpAttr attr = {.head_dim = (int)s->d, .scale = .125f, .backend = BACKEND_CUDNN};
  KernelArgs a = {.attr = &attr, .in = {q, kv, kv}, .out = {q, kv, kv}};
  AttentionGraph g;
  CudnnPlan p;
  weft_error e = {0};
  attention_graph(s->op, &a, &g);
  uint64_t room = cudnn_work(s->op, &a) - (uint64_t)g.scratch;
  if (cudnn_plan(target, &g, (uint64_t)1 << 62, &p, &e) != WEFT_OK) {
    printf("none %s\n", e.text);
    return;
  }
  printf("plan %lld %llu\n", (long long)cudnn_plan_work(target->lib, p.plan),
         (unsigned long long)room);
  cudnn_plan_free(target->lib, &p);
}

/* The descriptor of a GPU from what a file says of it. */
static cudnnBackendDescriptor_t describe(const CudnnLib *lib, const char *path) {
  char text[4096];
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  cudnnBackendDescriptor_t d = NULL;
  if (f) fclose(f);
  text[n++] = 0;
  cudnnStatus_t r = lib->BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
  if (r == CUDNN_STATUS_SUCCESS)
    r = lib->BackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)n, text);
  if (r == CUDNN_STATUS_SUCCESS) r = lib->BackendFinalize(d);
  return r == CUDNN_STATUS_SUCCESS ? d : NULL;
}

int main(int argc, char **argv) {
  CudnnLib lib;
  weft_error e = {0};
  char line[200];
  Shape s;
  if (argc != 2) return 2;
  if (cudnn_lib_open(&lib, &e) != WEFT_OK) {
    printf("%s\n", e.text);
    return 3;
  }
  CudnnTarget target = {.lib = &lib, .elsewhere = describe(&lib, argv[1])};
  if (!target.elsewhere) {
    printf("cuDNN does not know the GPU of %s\n", argv[1]);
    return 4;
  }
  while (fgets(line, sizeof line, stdin)) {
    if (!read_shape(line, &s)) return 2;
    answer(&target, &s);
    fflush(stdout);
  }
  (void)lib.BackendDestroyDescriptor(target.elsewhere);
  return 0;
}
