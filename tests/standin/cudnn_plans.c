/* cudnn_plans.c - the plans that cuDNN makes of attention for a GPU that is not here: a
 * program of its own, because driver.c is the driver then.
 *
 *   cudnn_plans GPU.json < SHAPES
 *
 * A line of SHAPES is "forward B T H K D WHICH" or "backward ...", H heads of queries, K
 * of keys; WHICH is "whole", "window", "documents", or of a rank of two over cp
 * "gathered" or "step". For each there is a line: "plan BYTES FORMULA", what cuDNN needs
 * for itself and what weft's formula has for that, of the block where it is the largest
 * part of it, or "none REASON". */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/cudnn/cudnn_plan.h"

enum { RANKS = 2 };

typedef struct Shape {
  int op;
  long b, t, h, k, d;
  OpAttr attr;
  bool documents;
} Shape;

static bool read_shape(const char *line, Shape *s) {
  char what[16], which[16];
  *s = (Shape){0};
  if (sscanf(line, "%15s %ld %ld %ld %ld %ld %15s", what, &s->b, &s->t, &s->h, &s->k,
             &s->d, which) != 7)
    return false;
  bool back = strcmp(what, "backward") == 0, step = strcmp(which, "step") == 0;
  s->attr = (OpAttr){.head_dim = (int)s->d, .scale = .125f, .backend = BACKEND_CUDNN};
  s->op = back ? OP_attention_dx : OP_attention;
  if (step) s->op = back ? OP_attention_part_dx : OP_attention_part;
  s->attr.step = step;
  if (step || strcmp(which, "gathered") == 0) s->attr.n = RANKS, s->attr.mirror = 1;
  if (strcmp(which, "window") == 0) s->attr.window = 1 + (int)s->t / 4;
  s->documents = strcmp(which, "documents") == 0;
  return true;
}

static KTensor tensor(long b, long t, long width) {
  return (KTensor){.dtype = DT_BF16, .ndim = 3, .dim = {b, t, width}};
}

static KernelArgs args_of(const Shape *s) {
  bool gathered = s->attr.n > 1 && !attention_is_part(s->op);
  KTensor q = tensor(s->b, s->t, s->h * s->d);
  KTensor kv = tensor(s->b, gathered ? RANKS * s->t : s->t, s->k * s->d);
  KernelArgs a = {.attr = &s->attr, .in = {q, kv, kv}, .out = {q, kv, kv}};
  if (!s->documents) return a;
  a.nin = attention_starts(s->op) + 1;
  a.in[a.nin - 1] = (KTensor){.dtype = DT_I32, .ndim = 2, .dim = {s->b, s->t}};
  return a;
}

/* The plan of a block beside the formula; those of the block with the least room stay. */
static weft_status plan_block(const CudnnTarget *target, int op, const KernelArgs *a,
                              const AttentionBlock *b, int64_t most[2], weft_error *e) {
  AttentionGraph g;
  CudnnPlan p;
  attention_graph(op, a, b, &g);
  TRY(cudnn_plan(target, &g, (uint64_t)1 << 62, &p, e));
  int64_t is = cudnn_plan_work(target->lib, p.plan), room = cudnn_own_work(op, a, b);
  cudnn_plan_free(target->lib, &p);
  if (most[1] == 0 || room - is < most[1] - most[0]) most[0] = is, most[1] = room;
  return WEFT_OK;
}

static void answer(const CudnnTarget *target, const Shape *s) {
  KernelArgs a = args_of(s);
  AttentionBlock b[BLOCKS_MOST];
  int64_t most[2] = {0};
  weft_error e = {0};
  weft_status st = WEFT_OK;
  for (int i = 0; i < attention_pieces(&a) && st == WEFT_OK; i++)
    for (int k = attention_blocks(s->op, &a, i, b); k-- > 0 && st == WEFT_OK;)
      st = plan_block(target, s->op, &a, &b[k], most, &e);
  if (st == WEFT_OK)
    printf("plan %lld %lld\n", (long long)most[0], (long long)most[1]);
  else
    printf("none %s\n", e.text);
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
