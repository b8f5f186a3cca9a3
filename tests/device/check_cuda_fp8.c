/* check_cuda_fp8.c - precision = "fp8" on the CUDA device: codes and scales to the bit of
 * the CPU's, products through the stand-in of cuBLASLt, plans of each recipe against one
 * rank of the CPU, and what is said where a GPU has no such products. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/device_plans.h"
#include "tests/harness/emulated.h"
#include "tests/harness/one_rank_pair.h"
#include "tests/harness/process.h"

Suite *cuda_fp8_suite(void);

#ifdef WEFT_EMULATED_CUDA

#include "kernels/cuda/gemm/fp8_product.h"
#include "tests/reference/fp8_codes.h"
#include "tests/reference/kernel_sets.h"
#include "tests/standin/standin.h"
#include "vm/graph/op_fp8.h"
#include "vm/session/verify.h"

static void on_gpu(int capability) {
  Standin s = standin_usual;
  s.capability = capability;
  standin_set(&s);
}

/* ---- casts ---- */

enum { M = 96, N = 160 };
static const int ops[] = {OP_linear_fp8, OP_linear_fp8_dx, OP_linear_fp8_dw};
static const int recipes[] = {FP8_TENSORWISE, FP8_ROWWISE, FP8_MX};

/* Of all sizes, some not finite. */
static float some(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  uint32_t r = *seed >> 8;
  if (r % 211 == 0) return r % 2 ? NAN : -INFINITY;
  if (r % 13 == 0) return 0;
  return ldexpf((float)(r % 4096) / 2048 - 1, (int)(r % 37) - 20);
}

static void fill(KTensor *t, bool bf16, uint32_t seed) {
  t->dtype = bf16 ? DT_BF16 : DT_F32;
  for (int64_t i = 0, n = t->dim[0] * t->dim[1]; i < n; i++) {
    float x = some(&seed);
    if (bf16)
      ((uint16_t *)t->p)[i] = bf16_from_f32(x);
    else
      ((float *)t->p)[i] = x;
  }
}

static float element(const KTensor *t, int64_t r, int64_t c) {
  int64_t i = r * t->dim[1] + c;
  return t->dtype == DT_BF16 ? bf16_to_f32(((uint16_t *)t->p)[i]) : ((float *)t->p)[i];
}

/* The exponent of a block lies where cuBLASLt's documentation has it. */
static uint8_t exponent_at(const uint8_t *e, int64_t row, int64_t block, int64_t pitch) {
  int64_t tile = row / 128 * (pitch / 128) + block / 4;
  return e[tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4];
}

static float scale_of(const Fp8Product *p, const Fp8Operand *o, const KernelArgs *a,
                      const KTensor *x, int64_t outer, int64_t k) {
  Fp8Type type = o->e5m2 ? FP8_E5M2 : FP8_E4M3;
  int64_t r = o->down ? k : outer, c = o->down ? outer : k;
  const char *work = a->work;
  if (o->scales) {
    int64_t at = r / o->each * o->width + c % o->width;
    float s = fp8_scale(type, ((const float *)a->in[2 + o->in].p)[at], p->powers);
    ck_assert(((const float *)(work + o->back))[at] == 1 / s);
    return s;
  }
  float most = 0;
  for (int64_t i = k / MX_BLOCK * MX_BLOCK, j = 0; j < MX_BLOCK; i++, j++) {
    float v = fabsf(o->down ? element(x, i, outer) : element(x, outer, i));
    most = v > most ? v : most;
  }
  float back = mx_scale(type, most);
  uint8_t e = exponent_at((const uint8_t *)work + o->back, outer, k / MX_BLOCK, o->pitch);
  ck_assert_int_eq(e, isnan(back) ? 0xff : back == 0x1p-127f ? 0 : ilogbf(back) + 127);
  return 1 / back;
}

static void same_codes(const Fp8Product *p, const Fp8Operand *o, const KernelArgs *a) {
  const KTensor *x = &a->in[o->in];
  Fp8Type type = o->e5m2 ? FP8_E5M2 : FP8_E4M3;
  const uint8_t *code = (const uint8_t *)a->work + o->codes;
  for (int64_t i = 0; i < o->outer; i++)
    for (int64_t k = 0; k < o->pitch; k++) {
      uint8_t want = 0, is = code[i * o->pitch + k];
      float v = 0;
      if (k < o->k) {
        v = o->down ? element(x, k, i) : element(x, i, k);
        want = fp8_code(type, fp8_round(type, v * scale_of(p, o, a, x, i, k)));
      }
      bool nan = (want & 0x7f) == 0x7f && (is & 0x7f) == 0x7f;
      ck_assert_msg(is == want || nan, "operand %d (%lld, %lld), %g: %#x, not %#x", o->in,
                    (long long)i, (long long)k, v, is, want);
    }
}

START_TEST(codes_have_the_bits_of_the_cpu) {
  static float x[2][M * N], amax[2][M + N], y[N * N];
  int op = ops[_i % 3], recipe = recipes[_i / 3 % 3], layout = _i / 9 % 2;
  bool bf16 = _i / 18, dw = op == OP_linear_fp8_dw;
  int how = _i % 2 ? FP8_POWERS : FP8_GRADS_E4M3;
  OpAttr attr = {.fp8 = recipe, .fp8_how = how, .layout = layout};
  bool k_first = !dw && (layout != 0) == (op == OP_linear_fp8);
  KernelArgs a = {.attr = &attr, .nin = recipe == FP8_MX ? 2 : 4, .nout = 1};
  int64_t rows = recipe == FP8_MX ? M : M - 3; /* tokens of dw are no whole vectors */
  a.in[0] = (KTensor){.p = x[0], .ndim = 2, .dim = {rows, N}};
  a.in[1] = (KTensor){.p = x[1], .ndim = 2, .dim = {dw ? rows : k_first ? N : M, N}};
  if (k_first) a.in[1].dim[1] = M;
  int64_t m = dw ? N : rows, n = dw ? N : M;
  a.out[0] = (KTensor){.p = y, .ndim = 2, .dim = {m, n}};
  for (int i = 0; i < 2; i++) {
    fill(&a.in[i], bf16, (uint32_t)(77 + 2 * _i + i));
    int kind = fp8_kind(op, &attr, i);
    int64_t count = kind ? a.in[i].dim[kind == FP8_COLUMNS] : 1;
    a.in[2 + i] = (KTensor){.p = amax[i], .ndim = 1, .dim = {count}};
    for (int64_t k = 0; k < count; k++) amax[i][k] = ldexpf(1.3f, (int)(k % 40) - 20);
  }
  a.work = kernel_guarded(cuda_work(op, &a));
  kernels_cuda.kernel(op)->run(&(Device){.threads = 1}, &a);
  Fp8Product p = cuda_fp8_product(op, &a);
  for (int i = 0; i < 2; i++) same_codes(&p, &p.of[i], &a);
  kernel_check_guard(a.work, cuda_work(op, &a));
  free(a.work);
}
END_TEST

/* ---- products ---- */

static bool refused(const Problem *p) {
  KernelArgs a = {.attr = &p->attr, .nin = p->nin, .nout = p->nout};
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = kernel_tensor(&p->out[i]);
  return cuda_fp8_refuses(p->op, &a) != NULL;
}

/* Those that the library takes are its own; the others, weft's kernel's. */
START_TEST(products_through_cublaslt) {
  const char *why;
  CudaContext c = {.lt = cuda_lt_open(&why)};
  KernelSet lt = kernels_cuda;
  int tried = 0;
  lt.device = (Device){.ctx = &c};
  ck_assert_msg(c.lt != NULL, "%s", why);
  for (int i = 0; i < kernel_cases; i++) {
    const KernelCase *k = &kernel_case[i];
    if (!is_linear_fp8(k->op)) continue;
    on_gpu(k->attr.fp8 == FP8_MX ? 100 : 90);
    for (int t = 0; t < 4; t++) {
      Problem p;
      if (t % 2 && k->op != OP_linear_fp8_dw) continue;
      problem_make(&p, k, t / 2 ? DT_BF16 : DT_F32, problem_seed(k));
      uint64_t before = standin_products(0);
      bool own = refused(&p);
      kernel_agrees(&lt, &p, t % 2, t / 2 ? "bf16" : "f32");
      ck_assert_msg((standin_products(0) == before) == own, "%s", k->in);
      tried += !own;
      problem_free(&p);
    }
  }
  ck_assert_int_ge(tried, 20);
  ck_assert_str_eq(c.refused, "");
  cuda_lt_close(c.lt);
  standin_set(&standin_usual);
}
END_TEST

/* ---- plans ---- */

static const Fp8Recipe plan_recipes[] = {RECIPE_TENSORWISE, RECIPE_ROWWISE, RECIPE_MXFP8};

/* As in suite fp8: later steps round otherwise where a sum has another order. */
START_TEST(plans_agree_with_one_rank_of_the_cpu) {
  static const double tolerance[] = {1e-5, 5e-2};
  ToyOptions o = toy_default();
  bool mx = plan_recipes[_i] == RECIPE_MXFP8;
  o.fp8 = (Fp8Plan){.recipe = plan_recipes[_i], .powers = true};
  o.dp = 2, o.tp = mx ? 1 : 2, o.layers = 1, o.micro = 1;
  o.hidden = 32, o.heads = 2, o.kv_heads = 2, o.ffn = 32, o.seq = mx ? 32 : 8;
  on_gpu(mx ? 100 : 90);
  for (int i = 0; i < 2; i++) {
    Pair p;
    pair_compile(&p, &o);
    toy_free(&p.many);
    ToyOptions many = o;
    many.device = device_standin();
    ck_assert_int_eq(toy_compile(&p.many, &many, NULL), WEFT_OK);
    uint64_t before = standin_products(0);
    pair_verify(&p, i + 1, tolerance[i]);
    ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
    ck_assert_uint_gt(standin_products(0), before);
    pair_free(&p);
  }
  standin_set(&standin_usual);
}
END_TEST

/* ---- what is said ---- */

#define BESIDE                                                                           \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so .; exec env "

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 32,\n"
    "    num_hidden_layers = 1, num_attention_heads = 4, intermediate_size = 48,\n"
    "    vocab_size = 64 },\n"
    "  mesh = { tp = weft.var('tp', 1) }, batch = { global = 1, micro = 1, seq = 32 },\n"
    "  precision = { 'fp8', recipe = weft.var('recipe', 'tensorwise') } }\n";

static const struct {
  const char *machine, *how, *says;
  int code;
} runs[] = {
    {"capability=80", "--steps 1",
     "precision = \"fp8\": recipe = \"tensorwise\" needs 8.9 or newer, but the GPU has "
     "compute capability 8.0",
     1},
    {"capability=100", "--steps 1 -D recipe=rowwise",
     "recipe = \"rowwise\" needs 9.0, but the GPU has compute capability 10.0", 1},
    {"capability=90", "--steps 1 -D recipe=mxfp8",
     "recipe = \"mxfp8\" needs 10.0 or newer, but the GPU has compute capability 9.0", 1},
    {"capability=90", "--steps 1 -D tp=4",
     "in fp8: rows of its result on a rank are no multiple of 16 bytes", 1},
    {"capability=90", "--steps 2", "", 0},
};

START_TEST(a_gpu_without_it_is_told) {
  scratch_put("plan.lua", plan, strlen(plan));
  Outcome o = process_run(
      60, "sh -c '" BESIDE "WEFT_STANDIN=\"%s\" ./weft run plan.lua %s --device cuda'",
      runs[_i].machine, runs[_i].how);
  ck_assert_msg(strstr(o.err, runs[_i].says) != NULL, "%s", o.err);
  ck_assert_msg(o.code == runs[_i].code, "%d: %s", o.code, o.err);
}
END_TEST

Suite *cuda_fp8_suite(void) {
  Suite *s = suite_create("cuda_fp8");
  TCase *tc = tcase_create("standin");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, codes_have_the_bits_of_the_cpu, 0, 36);
  tcase_add_test(tc, products_through_cublaslt);
  tcase_add_loop_test(tc, plans_agree_with_one_rank_of_the_cpu, 0, LEN(plan_recipes));
  suite_add_tcase(s, tc);
  tc = tcase_create("program");
  tcase_set_timeout(tc, 300);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_loop_test(tc, a_gpu_without_it_is_told, 0, LEN(runs));
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_fp8_suite(void) { return emulated_suite_without("cuda_fp8"); }

#endif
