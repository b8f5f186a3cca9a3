/* check_cuda_limits.c - what kernels need of a GPU, by what ptxas said of them when
 * weft_cuda.so was built, and what A100, H100 and B200 have: every launch of the cases of
 * all kernels, and of norms of rows as wide as models have them, fits on each; and one
 * that does not is refused before it runs, with the op, the grid and the memory. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/generate/device_plans.h"
#include "tests/harness/emulated.h"
#include "tests/reference/kernel_sets.h"

#ifdef WEFT_EMULATED_CUDA

#include "kernels/cuda/attention/attention_hopper.h"
#include "tests/standin/kernel_figures.h"
#include "tests/standin/standin.h"

static const int capabilities[] = {80, 90, 100};
static const DType types[] = {DT_F32, DT_BF16};
static Device dev;

/* A device that only looks at what it is told to launch. */
static void look_only(int capability) {
  Standin s = standin_usual;
  weft_error e = {.rank = -1};
  s.capability = capability;
  standin_set(&s);
  weft_status st = device_open(&dev, device_standin()->load(&e), NULL, 0, 0, 1, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  dev.dry = dev.loads = true;
}

static const char *refused(void) { return ((CudaContext *)dev.ctx)->refused; }

/* Operands are nowhere: nothing looks at what they hold. */
static KernelArgs args_of(const Problem *p) {
  KernelArgs a = {.attr = &p->attr, .nin = p->nin, .nout = p->nout, .unit = KERNEL_UNIT};
  uintptr_t at = 1 << 20;
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = kernel_tensor(&p->out[i]);
  for (int i = 0; i < p->nin; i++) a.in[i].p = (void *)(at += 1 << 20);
  for (int i = 0; i < p->nout; i++) {
    int over = p->out[i].alias; /* -1: its own place */
    a.out[i].p = over < 0 ? (void *)(at += 1 << 20) : a.in[over].p;
  }
  a.work = (void *)(at += 1 << 20);
  return a;
}

static void widen(KernelArgs *a, int64_t from, int64_t to) {
  for (int i = 0; i < a->nin + a->nout; i++) {
    KTensor *t = i < a->nin ? &a->in[i] : &a->out[i - a->nin];
    for (int k = 0; k < t->ndim; k++)
      if (t->dim[k] == from) t->dim[k] = to;
  }
}

static void fits(const Problem *p, const KernelArgs *a) {
  cuda_kernels[p->op].run(&dev, a);
  ck_assert_msg(!*refused(), "op %s in %s, last operand of %lld: %s", op_info[p->op].name,
                dtype_name(a->in[0].dtype), (long long)cuda_last(&a->in[0]), refused());
}

/* Heads in pieces make products with what they keep, of which there is nothing here. */
static bool is_left_out(int op) {
  return !cuda_kernels[op].run || strncmp(op_info[op].name, "linear_ce", 9) == 0;
}

static void problem_fits(const Problem *p) {
  static const int64_t widths[] = {1024, 4096, 8192, 12287, 12288, 16384, 65536};
  if (is_left_out(p->op)) return;
  KernelArgs a = args_of(p);
  fits(p, &a);
  if (((CudaContext *)dev.ctx)->capability == 90 && kernels_hopper_have(p)) {
    ck_assert(cuda_attention_hopper(&dev, &a));
    ck_assert_msg(!*refused(), "%s", refused());
  }
  if (!strstr(op_info[p->op].name, "norm")) return;
  for (int i = 0; i < LEN(widths); i++) {
    KernelArgs wide = a;
    int64_t width = cuda_last(&a.in[0]);
    if (width > 2) widen(&wide, width, widths[i]);
    fits(p, &wide);
  }
}

/* Of each kernel that was looked at something is known: both compilers name it alike. */
static void check_figures(void) {
  char name[256];
  if (access(WEFT_BINARY_DIR "/kernels/cuda/kernel_figures.txt", F_OK) != 0)
    printf("skipped: registers and own shared memory: weft_cuda.so is not built here\n");
  else
    ck_assert_msg(!kernel_without_figures(name, sizeof name), "%s", name);
}

START_TEST(every_launch_fits) {
  look_only(capabilities[_i]);
  for (int t = 0; t < LEN(types); t++)
    for (int c = 0; c < kernel_cases; c++) {
      Problem p;
      problem_make(&p, &kernel_case[c], types[t], problem_seed(&kernel_case[c]));
      problem_fits(&p);
      problem_free(&p);
      for (int g = 0; g < grad_cases; g++) {
        if (!grad_case_is_of(&grad_case[g], &kernel_case[c])) continue;
        problem_grad(&p, NULL, &grad_case[g], &kernel_case[c], types[t],
                     problem_seed(&kernel_case[c]));
        problem_fits(&p);
        problem_free(&p);
      }
    }
  device_close(&dev);
  check_figures();
}
END_TEST

/* ---- one that does not ---- */

static CudaLaunch launch_of(unsigned threads, size_t room) {
  return (CudaLaunch){(const void *)cuda_tell_load, {7, 2, 1}, {threads, 1, 1}, room};
}

static const struct {
  int capability;
  unsigned threads;
  size_t room;
  const char *says;
} too_much[] = {
    {80, 256, 163 << 10, NULL},
    {80, 256, (163 << 10) + 1, "the GPU has 166912 bytes for a block"},
    {86, 256, 120 << 10, "the GPU has 101376 bytes for a block"},
    {90, 256, 227 << 10, NULL},
    {90, 256, (227 << 10) + 4, "the GPU has 232448 bytes for a block"},
    {90, 1025, 0, "a block has at most 1024 threads"},
};

START_TEST(what_does_not_fit_is_refused) {
  look_only(too_much[_i].capability);
  CudaLaunch l = launch_of(too_much[_i].threads, too_much[_i].room);
  const char *says = too_much[_i].says;
  bool ok = cuda_launch_fits(dev.ctx, &l);
  ck_assert_msg(ok == !says, "%s", refused());
  if (says) {
    ck_assert_msg(strstr(refused(), says) != NULL, "%s", refused());
    ck_assert_msg(strstr(refused(), "a grid of 7 x 2 x 1 blocks of") != NULL, "%s",
                  refused());
  }
  device_close(&dev);
}
END_TEST

static const struct {
  unsigned grid[3];
  bool fits;
} grids[] = {
    {{2147483647, 65535, 65535}, true},
    {{2147483648, 1, 1}, false},
    {{1, 65536, 1}, false},
    {{1, 1, 65536}, false},
    {{0, 1, 1}, false},
};

START_TEST(grids_have_a_limit) {
  look_only(90);
  CudaLaunch l = launch_of(32, 0);
  memcpy(l.grid, grids[_i].grid, sizeof l.grid);
  ck_assert_int_eq(cuda_launch_fits(dev.ctx, &l), grids[_i].fits);
  ck_assert_int_eq(!strstr(refused(), "a grid has at least 1 and at most"),
                   grids[_i].fits);
  device_close(&dev);
}
END_TEST

/* Rows of a long microbatch, each cut into parts. */
START_TEST(magnitudes_of_many_rows_fit) {
  enum { ROWS = 1 << 17, COLUMNS = 28672 };
  const OpAttr by_row = {0};
  look_only(90);
  for (int t = 0; t < LEN(types); t++) {
    KernelArgs a = {.attr = &by_row, .nin = 1, .nout = 1, .work = (void *)(1 << 20)};
    a.in[0] = (KTensor){.p = (void *)(2 << 20), .dtype = types[t], .ndim = 2};
    a.in[0].dim[0] = ROWS, a.in[0].dim[1] = COLUMNS;
    a.out[0] = (KTensor){.p = (void *)(3 << 20), .dtype = DT_F32, .ndim = 1};
    a.out[0].dim[0] = ROWS;
    cuda_kernels[OP_amax].run(&dev, &a);
    ck_assert_msg(!*refused(), "%s", refused());
  }
  device_close(&dev);
}
END_TEST

Suite *cuda_limits_suite(void) {
  Suite *s = suite_create("cuda_limits");
  TCase *tc = tcase_create("launches");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, every_launch_fits, 0, LEN(capabilities));
  tcase_add_loop_test(tc, what_does_not_fit_is_refused, 0, LEN(too_much));
  tcase_add_loop_test(tc, grids_have_a_limit, 0, LEN(grids));
  tcase_add_test(tc, magnitudes_of_many_rows_fit);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_limits_suite(void) { return emulated_suite_without("cuda_limits"); }

#endif
