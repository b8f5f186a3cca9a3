/* check_kernels.c - every CPU kernel against the reference in f64: f32, bf16, f16, odd
 * shapes, with and without accumulation, one and two threads. */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/reference/kernel_sets.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu/vecmath.h"
#include "vm/base/bf16.h"
#include "vm/program/program.h"

static const DType types[] = {DT_F32, DT_BF16, DT_F16};
static const char *const type_names[] = {"f32", "bf16", "f16"};

START_TEST(forward_case) {
  const KernelCase *c = &kernel_case[_i];
  for (int t = 0; t < LEN(types); t++) {
    Problem p;
    problem_make(&p, c, types[t], problem_seed(c));
    kernel_agrees(&kernels_cpu, &p, false, type_names[t]);
    problem_free(&p);
    if (!op_adds(c->op)) continue;
    problem_make(&p, c, types[t], problem_seed(c));
    kernel_agrees(&kernels_cpu, &p, true, type_names[t]);
    problem_free(&p);
  }
}
END_TEST

START_TEST(backward_case) {
  const GradCase *g = &grad_case[_i];
  int tried = 0;
  for (int i = 0; i < kernel_cases; i++) {
    if (!grad_case_is_of(g, &kernel_case[i])) continue;
    for (int k = 0; k < 2 * LEN(types); k++) { /* each overwriting and adding */
      Problem p;
      problem_grad(&p, NULL, g, &kernel_case[i], types[k / 2],
                   problem_seed(&kernel_case[i]));
      if (k % 2 == 0 || p.adds) kernel_agrees(&kernels_cpu, &p, k % 2, type_names[k / 2]);
      tried += k % 2 == 0 || p.adds;
      problem_free(&p);
    }
  }
  ck_assert_int_gt(tried, 0);
}
END_TEST

/* Gradients of parameters in 16 bits, of ops that compute in the first type. */
static const struct {
  DType ops, gradients;
  const char *name;
} narrow[] = {{DT_F32, DT_BF16, "f32, gradients bf16"},
              {DT_BF16, DT_BF16, "bf16, gradients too"},
              {DT_F16, DT_F16, "f16, gradients too"}};

START_TEST(gradients_of_16_bits) {
  const GradCase *g = &grad_case[_i];
  for (int i = 0; i < kernel_cases; i++) {
    if (!grad_case_is_of(g, &kernel_case[i])) continue;
    for (int k = 0; k < 2 * LEN(narrow); k++) {
      Problem p;
      problem_grad(&p, NULL, g, &kernel_case[i], narrow[k / 2].ops,
                   problem_seed(&kernel_case[i]));
      problem_narrow(&p, narrow[k / 2].gradients);
      if (p.adds) kernel_agrees(&kernels_cpu, &p, k % 2, narrow[k / 2].name);
      problem_free(&p);
    }
  }
}
END_TEST

START_TEST(results_lie_over_operands) {
  kernel_places_hold(&kernels_cpu, types, LEN(types));
}
END_TEST

START_TEST(every_kernel_has_a_case) {
  bool covered[OP_N] = {0};
  for (int i = 0; i < kernel_cases; i++) covered[kernel_case[i].op] = true;
  for (int i = 0; i < grad_cases; i++) covered[grad_case[i].op] = true;
  for (int op = 0; op < OP_N; op++) {
    ck_assert_msg(covered[op] == (cpu_set_here()->kernel[op].run != NULL), "%s: no case",
                  op_title(op));
    ck_assert_msg((ref_ops[op] != NULL) == covered[op], "%s: no reference", op_title(op));
    ck_assert((cpu_set_here()->kernel[op].run != NULL) ==
              (device_cpu.kernel(NULL, op, NULL) != NULL));
  }
}
END_TEST

/* ---- exp ---- */

START_TEST(exp_is_exact_to_2e_7) {
  double worst = 0;
  for (double x = -87.3; x < 88.7; x += 0.00137) {
    float f = (float)x;
    worst = fmax(worst, fabs(vexp(f) / exp(f) - 1));
  }
  ck_assert_msg(worst < 2e-7, "relative error %g", worst);
  ck_assert(vexp(0) == 1.0f && vexp(-INFINITY) == 0 && vexp(INFINITY) == INFINITY);
  ck_assert(vexp(90) == INFINITY && vexp(-200) == 0 && isnan(vexp(NAN)));
  ck_assert(fabs(vexp(-100) - exp(-100)) < 2e-45); /* below the normal numbers */
}
END_TEST

START_TEST(normal_cdf_is_exact_to_5e_7) {
  double worst = 0;
  for (double x = -6; x < 6; x += 0.000917) {
    double want = 0.5 * erfc(-(double)(float)x / sqrt(2));
    worst = fmax(worst, fabs(normal_cdf((float)x) - want) / fmax(want, 0.01));
  }
  ck_assert_msg(worst < 5e-7, "relative error %g", worst);
}
END_TEST

/* ---- rounding by chance ---- */

enum { CHANCES = 4096 };

/* Runs adamw on moments in bf16 that are all the same, `steps` times with gradient `g`.
 */
static void average(bf16 *m, bf16 *v, float g, int steps, int by_chance, uint64_t seed) {
  static float p[CHANCES], grad[CHANCES];
  double scal[SC_N] = {[SC_CLIP] = 1, [SC_BC1] = 1, [SC_BC2] = 1, [SC_SCALE] = 1};
  OpAttr attr = {
      .beta1 = 0.999, .beta2 = 0.999, .eps = 1, .kind = by_chance, .seed = seed};
  KTensor f = {.dtype = DT_F32, .ndim = 1, .dim = {CHANCES}}, h = f;
  KernelArgs a = {.attr = &attr, .nin = 5, .nout = 4};
  Device dev = {.vt = &device_cpu, .threads = 1};
  h.dtype = DT_BF16;
  for (int i = 0; i < CHANCES; i++) grad[i] = g * (1 + (float)i * 1e-6f);
  f.p = p, a.in[0] = a.out[0] = a.out[3] = f;
  f.p = grad, a.in[1] = f;
  h.p = m, a.in[2] = a.out[1] = h;
  h.p = v, a.in[3] = a.out[2] = h;
  a.in[4] = (KTensor){.p = scal, .dtype = DT_F64, .ndim = 1, .dim = {SC_N}};
  for (int k = 0; k < steps; k++) {
    scal[SC_STEP] = k + 1;
    cpu_set_here()->kernel[OP_adamw].run(&dev, &a);
  }
}

static double mean(const bf16 *x) {
  double sum = 0;
  for (int i = 0; i < CHANCES; i++) sum += bf16_to_f32(x[i]);
  return sum / CHANCES;
}

/* One step of an average moves it by a thousandth, less than half of the distance of two
 * numbers in bf16: to the nearest it stays where it is for good; by chance it goes where
 * an exact one would. */
START_TEST(small_changes_add_up_by_chance) {
  static bf16 m[CHANCES], v[CHANCES];
  const double left = pow(0.999, 500), want_m = 0.5 + 0.5 * left,
               want_v = 0.25 + 0.75 * left;
  for (int by_chance = 0; by_chance < 2; by_chance++) {
    for (int i = 0; i < CHANCES; i++) m[i] = v[i] = bf16_from_f32(1.0f);
    average(m, v, 0.5f, 500, by_chance, 0);
    double off_m = fabs(mean(m) / want_m - 1), off_v = fabs(mean(v) / want_v - 1);
    ck_assert_msg(by_chance ? off_m < 5e-3 : off_m > 0.1, "m: %g, not %g", mean(m),
                  want_m);
    ck_assert_msg(by_chance ? off_v < 5e-3 : off_v > 0.1, "v: %g, not %g", mean(v),
                  want_v);
  }
}
END_TEST

/* Another seed is another chance, the same seed the same. */
START_TEST(chance_is_of_the_seed) {
  static bf16 m[3][CHANCES], v[3][CHANCES];
  static const uint32_t seed[] = {1, 1, 2};
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < CHANCES; i++) m[k][i] = v[k][i] = bf16_from_f32(1.0f);
    average(m[k], v[k], 0.5f, 20, 1, seed[k]);
  }
  ck_assert_mem_eq(m[0], m[1], sizeof m[0]);
  ck_assert_mem_eq(v[0], v[1], sizeof v[0]);
  ck_assert_mem_ne(m[0], m[2], sizeof m[0]);
  ck_assert_mem_ne(v[0], v[2], sizeof v[0]);
}
END_TEST

/* With betas of 0 the averages are the gradient and its square, to the bit, whatever they
 * were before. */
START_TEST(no_average_with_betas_of_0) {
  enum { N = 64 };
  float p[N], g[N], m[N], v[N];
  double scal[SC_N] = {[SC_CLIP] = 1, [SC_BC1] = 1, [SC_BC2] = 1, [SC_SCALE] = 1};
  OpAttr attr = {.eps = 1e-8f};
  KTensor f = {.dtype = DT_F32, .ndim = 1, .dim = {N}};
  KernelArgs a = {.attr = &attr, .nin = 5, .nout = 4};
  Device dev = {.vt = &device_cpu, .threads = 1};
  for (int i = 0; i < N; i++) g[i] = ldexpf(1.1f, -i / 2), m[i] = 7, v[i] = 1000;
  f.p = p, a.in[0] = a.out[0] = a.out[3] = f;
  f.p = g, a.in[1] = f;
  f.p = m, a.in[2] = a.out[1] = f;
  f.p = v, a.in[3] = a.out[2] = f;
  a.in[4] = (KTensor){.p = scal, .dtype = DT_F64, .ndim = 1, .dim = {SC_N}};
  cpu_set_here()->kernel[OP_adamw].run(&dev, &a);
  for (int i = 0; i < N; i++) ck_assert(m[i] == g[i] && v[i] == g[i] * g[i]);
}
END_TEST

START_TEST(chance_keeps_what_is_not_finite) {
  for (uint32_t r = 0; r < 65536; r += 257) {
    ck_assert_uint_eq(bf16_by_chance(INFINITY, r), 0x7f80);
    ck_assert(isnan(bf16_to_f32(bf16_by_chance(NAN, r))));
    ck_assert_uint_eq(bf16_by_chance(1.0f, r), 0x3f80);
  }
}
END_TEST

/* ---- GEMM, every backend that is here ---- */

static const char *const backends[] = {"plain", "onednn", "openblas"};

/* The product in f64, which is exact for these numbers in any order: by rows of b, as a
 * sum along k waits for itself. */
static void reference_gemm(const GemmShape *s, const double *a, const double *b,
                           double *c, bool accumulate) {
  double *row = calloc((size_t)(s->k * s->n), sizeof *row);
  for (int64_t k = 0; k < s->k; k++)
    for (int64_t j = 0; j < s->n; j++)
      row[k * s->n + j] = b[s->tb ? j * s->k + k : k * s->n + j];
  for (int64_t i = 0; i < s->m; i++) {
    double *y = c + i * s->n;
    if (!accumulate) memset(y, 0, (size_t)s->n * sizeof *y);
    for (int64_t k = 0; k < s->k; k++) {
      double x = a[s->ta ? k * s->m + i : i * s->k + k];
      for (int64_t j = 0; j < s->n; j++) y[j] += x * row[k * s->n + j];
    }
  }
  free(row);
}

static void check_gemm(const char *backend, const GemmShape *s, bool accumulate) {
  Value a = {.kind = 'x', .type = s->in, .ndim = 2, .dim = {s->m, s->k}};
  Value b = {.kind = 'x', .type = s->in, .ndim = 2, .dim = {s->k, s->n}};
  Value c = {.kind = 'x', .type = s->out, .ndim = 2, .dim = {s->m, s->n}};
  Value *all[] = {&a, &b, &c};
  for (int i = 0; i < 3; i++) {
    int64_t n = all[i]->dim[0] * all[i]->dim[1];
    all[i]->v = calloc((size_t)n, sizeof(double));
    for (int64_t j = 0; j < n; j++)
      all[i]->v[j] = (double)((j * 37 + i * 11) % 65 - 32) / 32; /* exact in 8 bits */
  }
  KTensor out = kernel_tensor(&c);
  void *pa = kernel_typed(&a), *pb = kernel_typed(&b), *pc = kernel_typed(&c);
  void *again = kernel_typed(&c);
  Gemm g;
  weft_error e = {0};
  uint64_t bytes = gemm_work(s);
  void *work = kernel_guarded(bytes);
  ck_assert_msg(gemm_init_from(&g, backend, s, 2, &e) == WEFT_OK, "%s", e.text);
  ck_assert_str_eq(gemm_backend(&g), backend);
  gemm_run(&g, pa, pb, pc, accumulate, work);
  gemm_run(&g, pa, pb, again, accumulate, work);
  gemm_end(&g);
  kernel_check_guard(work, bytes);
  free(work);
  reference_gemm(s, a.v, b.v, c.v, accumulate);
  char what[128];
  snprintf(what, sizeof what, "%s %ldx%ldx%ld ta %d tb %d in %d out %d", backend,
           (long)s->m, (long)s->n, (long)s->k, s->ta, s->tb, s->in, s->out);
  out.p = pc;
  kernel_result_agrees(&out, out.dtype, c.v, 0, what, 0);
  ck_assert_msg(memcmp(pc, again, (size_t)(s->m * s->n) * (size_t)dtype_size(s->out)) ==
                    0,
                "%s: not the same bits twice", what);
  free(pa), free(pb), free(pc), free(again);
  for (int i = 0; i < 3; i++) free(all[i]->v);
}

START_TEST(gemm_backend_agrees) {
  static const int64_t size[][3] = {{1, 1, 1},      {3, 5, 7},      {65, 33, 129},
                                    {130, 257, 64}, {16, 300, 200}, {1, 64, 48},
                                    {529, 24, 40}, /* blocks of rows and a rest */
                                    {300, 70, 900}, {8, 900, 16}};
  const char *backend = backends[_i];
  if (!gemm_has(backend, NULL, 0)) {
    printf("skipped: GEMM backend %s is not installed here\n", backend);
    return;
  }
  for (int i = 0; i < LEN(size); i++)
    for (int v = 0; v < 8; v++) {
      GemmShape s = {size[i][0], size[i][1], size[i][2], v & 1, v & 2, DT_F32, DT_F32};
      check_gemm(backend, &s, v & 4);
      for (int t = 1; t < LEN(types); t++) {
        s.in = types[t], s.out = DT_F32;
        check_gemm(backend, &s, v & 4);
        s.out = types[t];
        check_gemm(backend, &s, false);
      }
    }
}
END_TEST

/* Sums of nothing are 0, or what was there, not what the product before left behind. */
START_TEST(a_product_of_no_terms) {
  static float c[3 * 5], had[3 * 5];
  GemmShape s = {3, 5, 0, false, true, DT_F32, DT_F32}, before = s;
  Gemm g;
  weft_error e = {0};
  before.k = 1;
  ck_assert_int_eq(gemm_init_from(&g, "plain", &s, 1, &e), WEFT_OK);
  for (int add = 0; add < 2; add++) {
    for (int i = 0; i < LEN(c); i++) had[i] = (float)(i + 1);
    gemm_run_as(&g, &before, had, had, c, false, NULL);
    memcpy(c, had, sizeof c);
    gemm_run(&g, had, had, c, add, NULL);
    for (int i = 0; i < LEN(c); i++) ck_assert(c[i] == (add ? had[i] : 0));
  }
  gemm_end(&g);
}
END_TEST

/* Virtual ranks: threads that multiply at the same time, each on its own. */
enum { RANKS = 4, SIDE = 96, REPEAT = 20 };
typedef struct Multiplier {
  Gemm g;
  const float *a, *b;
  float *c;
} Multiplier;

static void *multiply(void *arg) {
  Multiplier *m = arg;
  for (int i = 0; i < REPEAT; i++) gemm_run(&m->g, m->a, m->b, m->c, i > 0, NULL);
  return NULL;
}

START_TEST(ranks_multiply_at_the_same_time) {
  const char *backend = backends[_i];
  if (!gemm_has(backend, NULL, 0)) return; /* gemm_backend_agrees says so */
  static float a[SIDE * SIDE], b[SIDE * SIDE], c[RANKS + 1][SIDE * SIDE];
  for (int i = 0; i < SIDE * SIDE; i++) {
    a[i] = sinf((float)i);
    b[i] = cosf((float)i);
  }
  GemmShape s = {SIDE, SIDE, SIDE, false, true, DT_F32, DT_F32};
  Multiplier m[RANKS + 1];
  pthread_t t[RANKS];
  weft_error e = {0};
  for (int i = 0; i <= RANKS; i++) {
    m[i] = (Multiplier){.a = a, .b = b, .c = c[i]};
    ck_assert_int_eq(gemm_init_from(&m[i].g, backend, &s, 1, &e), WEFT_OK);
  }
  multiply(&m[RANKS]);
  for (int i = 0; i < RANKS; i++)
    ck_assert_int_eq(pthread_create(&t[i], NULL, multiply, &m[i]), 0);
  for (int i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < RANKS; i++) ck_assert_mem_eq(c[i], c[RANKS], sizeof c[i]);
  for (int i = 0; i <= RANKS; i++) gemm_end(&m[i].g);
}
END_TEST

START_TEST(bf16_is_widened_where_the_cpu_has_no_units) {
  CpuLevel level;
  if (!gemm_has("onednn", NULL, 0)) return;
  ck_assert_int_eq(cpu_level(&level, NULL), WEFT_OK);
  for (int t = 0; t < 2; t++) {
    GemmShape s = {SIDE, SIDE, SIDE, false, true, t ? DT_BF16 : DT_F32, DT_F32};
    Gemm g;
    gemm_init(&g, &s, 1);
    ck_assert_str_eq(gemm_backend(&g), "onednn");
    ck_assert(g.widens == (t && !cpu_level_bf16(level)));
    gemm_end(&g);
  }
}
END_TEST

START_TEST(unknown_backend_is_an_error) {
  GemmShape s = {4, 4, 4, false, false, DT_F32, DT_F32};
  Gemm g;
  weft_error e = {0};
  ck_assert_int_eq(gemm_init_from(&g, "nothing", &s, 1, &e), WEFT_EUSAGE);
  ck_assert(strstr(e.text, "nothing"));
}
END_TEST

/* ---- steps of heads with a state ---- */

/* A NaN is no step at a limit, whether there is one or not; others are what they were. */
START_TEST(a_step_that_is_no_number) {
  enum { HEADS = 4, BAD = 2 };
  float s[2 * HEADS] = {0.3f, -1, 2, 0.7f, 1, -3, NAN, 25}, zero[HEADS] = {0};
  float d[2 * HEADS], left[2 * HEADS];
  const KernelSet *set = kernel_sets[_i / 2];
  OpAttr attr = {.limit = _i % 2 ? 0.1f : 0};
  KTensor rows = {.p = s, .dtype = DT_F32, .ndim = 2, .dim = {2, HEADS}}, head = rows;
  head.p = zero, head.ndim = 1, head.dim[0] = HEADS;
  KernelArgs a = {
      .attr = &attr, .nin = 3, .nout = 2, .in = {rows, head, head}, .out = {rows, rows}};
  Device dev = set->device;
  dev.threads = 1;
  a.out[0].p = d, a.out[1].p = left;
  set->kernel(OP_ssm_steps)->run(&dev, &a);
  for (int i = 0; i < 2 * HEADS; i++) {
    float want = s[i] > 20 ? s[i] : log1pf(expf(s[i]));
    if (attr.limit != 0 && want > attr.limit) want = attr.limit;
    bool bad = i == HEADS + BAD;
    ck_assert(bad ? isnan(d[i]) : fabsf(d[i] - want) <= 1e-6f * want);
    ck_assert(bad ? isnan(left[i]) : left[i] == -d[i]);
  }
}
END_TEST

/* ---- gradients of tables in 16 bits ---- */

/* Many tokens, each id twice, from the last one on. */
START_TEST(a_table_of_many_ids) {
  enum { ROWS = 1 << 16, TOKENS = 2 * ROWS, WIDTH = 2 };
  int32_t *id = calloc(TOKENS, sizeof *id);
  float *dy = calloc(TOKENS * WIDTH, sizeof *dy);
  bf16 *dw = calloc(ROWS * WIDTH, sizeof *dw);
  OpAttr attr = {0};
  KernelArgs a = {.attr = &attr,
                  .nin = 2,
                  .nout = 1,
                  .in = {{.p = id, .dtype = DT_I32, .ndim = 1, .dim = {TOKENS}},
                         {.p = dy, .dtype = DT_F32, .ndim = 2, .dim = {TOKENS, WIDTH}}},
                  .out = {{.p = dw, .dtype = DT_BF16, .ndim = 2, .dim = {ROWS, WIDTH}}}};
  Device dev = {.vt = &device_cpu, .threads = 1};
  for (int i = 0; i < TOKENS; i++) id[i] = (ROWS - 1 - i) & (ROWS - 1);
  for (int i = 0; i < TOKENS * WIDTH; i++) dy[i] = (float)(i % 61);
  a.work = malloc(cpu_work(OP_embedding_dw, &a) + 1);
  cpu_set_here()->kernel[OP_embedding_dw].run(&dev, &a);
  for (int i = 0; i < ROWS * WIDTH; i++) {
    int r = ROWS - 1 - i / WIDTH, k = r * WIDTH + i % WIDTH;
    ck_assert(bf16_to_f32(dw[i]) == dy[k] + dy[k + ROWS * WIDTH]);
  }
  free(id), free(dy), free(dw), free(a.work);
}
END_TEST

/* ---- the device ---- */

START_TEST(device_counts_and_fails) {
  Device d;
  weft_error e = {0};
  void *p = NULL, *q = NULL;
  ck_assert_int_eq(device_open(&d, &device_cpu, NULL, 3, 0, 1, &e), WEFT_OK);
  ck_assert_int_eq(device_alloc(&d, 5 << 20, &p, &e), WEFT_OK);
  ck_assert_uint_eq((uintptr_t)p % 64, 0);
  int marks = 0; /* tests are strict: nothing is a number */
  for (int i = 0; i < 5 << 20; i++) marks += ((unsigned char *)p)[i] == 0xff;
  ck_assert_int_eq(marks, 5 << 20);
  ck_assert_uint_eq(d.count.copies, 0);
  d.fail_in = 2;
  ck_assert_int_eq(device_sync(&d, &e), WEFT_OK);
  ck_assert_int_eq(device_alloc(&d, 8, &q, &e), WEFT_ENOMEM);
  ck_assert(q == NULL && strstr(e.text, "rank 3"));
  float x[3] = {1, 2, 3}, y[3];
  device_upload(&d, p, x, sizeof x);
  device_download(&d, y, p, sizeof y);
  ck_assert_int_eq(memcmp(x, y, sizeof x), 0);
  KernelArgs a = {.nin = 2, .nout = 1};
  a.in[0] = a.in[1] = a.out[0] =
      (KTensor){.p = p, .dtype = DT_F32, .ndim = 1, .dim = {3}};
  device_launch(&d, device_kernel(&d, OP_add, &a), &a);
  ck_assert_double_eq(((float *)p)[2], 6);
  ck_assert(device_kernel(&d, OP_all_reduce, &a) == NULL);
  ck_assert_uint_eq(d.count.launches, 1);
  ck_assert_uint_eq(d.count.copies, 2);
  ck_assert_uint_eq(d.count.allocs, 1);
  device_free(&d, p, 5 << 20);
  device_close(&d);
}
END_TEST

static void *refuse(void *ud, void *p, size_t old, size_t n) {
  (void)ud, (void)p, (void)old, (void)n;
  return NULL;
}

START_TEST(device_reports_out_of_memory) {
  Device d;
  weft_error e = {0};
  weft_alloc none = {refuse, NULL};
  void *p;
  ck_assert_int_eq(device_open(&d, &device_cpu, &none, 0, 0, 1, &e), WEFT_OK);
  ck_assert_int_eq(device_alloc(&d, 1 << 20, &p, &e), WEFT_ENOMEM);
  ck_assert(p == NULL && strstr(e.text, "1048576"));
  device_close(&d);
}
END_TEST

START_TEST(too_wide_heads_are_an_error) {
  OpAttr attr = {.head_dim = 512};
  KernelArgs a = {.attr = &attr};
  weft_error e = {0};
  Device dev = {.vt = &device_cpu, .threads = 1};
  const Kernel *k = &cpu_set_here()->kernel[OP_attention];
  ck_assert_int_eq(k->prepare(&dev, &a, &e), WEFT_EPLAN);
  ck_assert(strstr(e.text, "512"));
}
END_TEST

Suite *kernels_suite(void) {
  Suite *s = suite_create("kernels");
  TCase *tc = tcase_create("cpu");
  tcase_set_timeout(tc, 60);
  tcase_add_loop_test(tc, forward_case, 0, kernel_cases);
  tcase_add_loop_test(tc, backward_case, 0, grad_cases);
  tcase_add_loop_test(tc, gradients_of_16_bits, 0, grad_cases);
  tcase_add_test(tc, results_lie_over_operands);
  tcase_add_test(tc, every_kernel_has_a_case);
  tcase_add_test(tc, small_changes_add_up_by_chance);
  tcase_add_test(tc, chance_is_of_the_seed);
  tcase_add_test(tc, no_average_with_betas_of_0);
  tcase_add_test(tc, chance_keeps_what_is_not_finite);
  tcase_add_test(tc, exp_is_exact_to_2e_7);
  tcase_add_test(tc, normal_cdf_is_exact_to_5e_7);
  tcase_add_loop_test(tc, gemm_backend_agrees, 0, LEN(backends));
  tcase_add_test(tc, a_product_of_no_terms);
  tcase_add_loop_test(tc, a_step_that_is_no_number, 0, 2 * KERNEL_SETS);
  tcase_add_loop_test(tc, ranks_multiply_at_the_same_time, 0, LEN(backends));
  tcase_add_test(tc, bf16_is_widened_where_the_cpu_has_no_units);
  tcase_add_test(tc, unknown_backend_is_an_error);
  tcase_add_test(tc, device_counts_and_fails);
  tcase_add_test(tc, device_reports_out_of_memory);
  tcase_add_test(tc, too_wide_heads_are_an_error);
  tcase_add_test(tc, a_table_of_many_ids);
  suite_add_tcase(s, tc);
  return s;
}
