/* check_fp8.c - precision = "fp8" against PyTorch (tests/oracle/fp8.py): casts to the
 * bit, products of a linear and of its gradients, twelve steps on several meshes; and
 * many ranks against one, in each recipe. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/levels.h"
#include "tests/harness/one_rank_pair.h"
#include "tests/harness/plan_fixture.h"
#include "bindings/schedule/schedule_facts.h"
#include "tests/reference/fp8_codes.h"
#include "vm/compile/compile.h"
#include "vm/graph/op_fp8.h"
#include "vm/weights/weights_load.h"

static const weft_alloc libc_alloc;
static const char data[] = WEFT_SOURCE_DIR "/tests/oracle/fp8/expected.safetensors";
static const char start[] = WEFT_SOURCE_DIR "/tests/oracle/fp8/model.safetensors";

typedef struct Expected {
  SafeTensors *st;
  Arena *arena;
} Expected;

static Expected expected_open(Arena *a) {
  Expected x = {.arena = a};
  weft_error e = {0};
  ck_assert_msg(st_open(&libc_alloc, data, NULL, &x.st, &e) == WEFT_OK, "%s", e.text);
  return x;
}

static const SafeTensor *find(const Expected *x, const char *name) {
  const SafeTensor *t = st_find(x->st, name);
  ck_assert_msg(t != NULL, "%s is not in the data", name);
  return t;
}

static void *raw(const Expected *x, const char *name, size_t *bytes) {
  const SafeTensor *t = find(x, name);
  weft_error e = {0};
  void *p = arena_alloc(x->arena, t->bytes);
  ck_assert_int_eq(file_at(t->in, t->at, p, t->bytes, &e), WEFT_OK);
  if (bytes) *bytes = t->bytes;
  return p;
}

/* ---- casts ---- */

static const char *const type_names[] = {[FP8_E4M3] = "e4m3", [FP8_E5M2] = "e5m2"};

START_TEST(casts_have_the_bits_of_pytorch) {
  Arena *a = arena_new(NULL);
  Expected x = expected_open(a);
  Fp8Type type = (Fp8Type)_i;
  size_t bytes;
  const float *v = raw(&x, "cast", &bytes);
  const uint8_t *code = raw(&x, arena_printf(a, "code.%s", type_names[type]), NULL);
  for (size_t i = 0; i < bytes / sizeof *v; i++) {
    float r = fp8_round(type, v[i]);
    ck_assert_msg(fp8_code(type, r) == code[i], "%s of %.9g is %#x, not %#x",
                  type_names[type], (double)v[i], fp8_code(type, r), code[i]);
    ck_assert_msg(fp8_value(type, code[i]) == r, "%#x", code[i]);
  }
  st_close(x.st);
  arena_free(a);
}
END_TEST

START_TEST(codes_have_the_values_of_pytorch) {
  Arena *a = arena_new(NULL);
  Expected x = expected_open(a);
  Fp8Type type = (Fp8Type)_i;
  const float *v = raw(&x, arena_printf(a, "value.%s", type_names[type]), NULL);
  for (int c = 0; c < 256; c++) {
    float got = fp8_value(type, (uint8_t)c);
    ck_assert_msg(isnan(v[c]) ? isnan(got) : got == v[c], "%#x", c);
    if (isfinite(v[c])) ck_assert_int_eq(fp8_code(type, fp8_round(type, v[c])), c);
  }
  ck_assert(isnan(fp8_round(type, NAN)) && fp8_round(type, INFINITY) == fp8_max(type));
  st_close(x.st);
  arena_free(a);
}
END_TEST

/* ---- products ---- */

static const char *const recipes[] = {"tensorwise", "rowwise", "mxfp8"};
static const int recipe_of[] = {FP8_TENSORWISE, FP8_ROWWISE, FP8_MX};
static const int how_of[] = {0, FP8_GRADS_E4M3 | FP8_POWERS, FP8_GRADS_E4M3 | FP8_POWERS};
enum { ROWS = 64, IN = 96, OUT = 32 };

static KTensor matrix(float *p, int64_t rows, int64_t columns) {
  return (KTensor){.p = p, .dtype = DT_F32, .ndim = 2, .dim = {rows, columns}};
}

static void run_kernel(int op, KernelArgs *a) {
  Device dev = {.threads = 1};
  const Kernel *k = &cpu_set_here()->kernel[op];
  weft_error e = {0};
  a->state = aligned_alloc(64, (cpu_state(op, a) + 127) / 64 * 64);
  a->work = aligned_alloc(64, (cpu_work(op, a) + 127) / 64 * 64);
  memset(a->state, 0, cpu_state(op, a));
  if (k->prepare) ck_assert_int_eq(k->prepare(&dev, a, &e), WEFT_OK);
  k->run(&dev, a);
  if (k->release) k->release(&dev, a);
  free(a->state), free(a->work);
}

/* The amax of operand i of an op with the attributes. */
static KTensor amax_of(int op, const OpAttr *attr, int i, const KTensor *x, float *to) {
  OpAttr how = {.fp8_how = fp8_kind(op, attr, i)};
  KTensor m = {.p = to, .dtype = DT_F32, .ndim = 1, .dim = {1}};
  if (how.fp8_how) m.dim[0] = x->dim[how.fp8_how == FP8_ROWS ? 0 : 1];
  KernelArgs a = {.attr = &how, .in = {*x}, .out = {m}, .nin = 1, .nout = 1};
  run_kernel(OP_amax, &a);
  return m;
}

/* Norm-wise, as sums in f32 differ. */
static void product_agrees(const Expected *x, int op, int recipe, KTensor one,
                           KTensor other, KTensor out, const char *name) {
  static float amax[2][ROWS + IN + OUT];
  OpAttr attr = {.fp8 = recipe_of[recipe], .fp8_how = how_of[recipe]};
  KernelArgs a = {.attr = &attr, .in = {one, other}, .out = {out}, .nout = 1};
  a.nin = attr.fp8 == FP8_MX ? 2 : 4;
  for (int i = 0; i < 2 && a.nin == 4; i++)
    a.in[2 + i] = amax_of(op, &attr, i, &a.in[i], amax[i]);
  run_kernel(op, &a);
  const float *got = out.p, *want = raw(x, name, NULL);
  double diff = 0, norm = 0;
  for (int64_t i = 0; i < out.dim[0] * out.dim[1]; i++) {
    double d = (double)got[i] - want[i];
    diff += d * d, norm += (double)want[i] * want[i];
  }
  ck_assert_msg(norm > 0 && sqrt(diff / norm) < 3e-7, "%s differs by %.3g", name,
                sqrt(diff / norm));
}

START_TEST(products_agree_with_pytorch) {
  Arena *a = arena_new(NULL);
  Expected x = expected_open(a);
  float *to = NEW_N(a, float, ROWS *IN);
  KTensor in = matrix(raw(&x, "x", NULL), ROWS, IN);
  KTensor w = matrix(raw(&x, "w", NULL), OUT, IN);
  KTensor dy = matrix(raw(&x, "dy", NULL), ROWS, OUT);
  const char *r = recipes[_i];
  product_agrees(&x, OP_linear_fp8, _i, in, w, matrix(to, ROWS, OUT),
                 arena_printf(a, "y.%s", r));
  product_agrees(&x, OP_linear_fp8_dx, _i, dy, w, matrix(to, ROWS, IN),
                 arena_printf(a, "dx.%s", r));
  product_agrees(&x, OP_linear_fp8_dw, _i, in, dy, matrix(to, OUT, IN),
                 arena_printf(a, "dw.%s", r));
  st_close(x.st);
  arena_free(a);
}
END_TEST

/* ---- steps ---- */

enum { STEPS = 12, STEP_TOKENS = 8 * 32 };

static const char *const meshes[][4] = {
    {"mesh.dp=1"},
    {"mesh.tp=2"},
    {"mesh.tp=2", "mesh.dp=2",
     "strategy={ 'zero', sequence_parallel = true, stage = 1 }"},
    {"mesh.dp=4", "strategy=fsdp2"},
    {"mesh.dp=2", "mesh.pp=2", "schedule=zero_bubble"},
    {"mesh.dp=2", "mesh.pp=2", "strategy={ 'zero', stage = 3 }", "recompute=full"},
};

static void compile_steps(PlanFixture *f, Compiled **c) {
  const Plan *plan = lang_plan(f->lp);
  Mesh mesh;
  Graph *g;
  Schedule s;
  ck_assert(mesh_resolve(&plan->mesh, 0, &mesh, &f->d));
  int64_t B = plan->batch.micro * mesh_size(&mesh, AXES_DP);
  int m = plan_microbatches(plan, &mesh);
  ck_assert_int_eq(fixture_graph(f, B, plan->batch.seq, &g), WEFT_OK);
  ck_assert_int_eq(lang_schedule(f->lp, &mesh, m, &s, &f->d, &f->e), WEFT_OK);
  CompileInput in = {
      .plan = plan, .mesh = &mesh, .graph = g, .schedule = &s, .arena = f->arena};
  ck_assert_msg(compile(&in, c, &f->d, &f->e) == WEFT_OK, "%s", fixture_report(f));
}

/* One element in a million rounds the other way because sums have another order, and all
 * that reads it differs then by what fp8 rounds; in bf16 so does one in a hundred. The
 * first step in f32 is before that. */
START_TEST(steps_agree_with_pytorch) {
  int recipe = _i % LEN(recipes), mesh = _i / LEN(recipes) % LEN(meshes);
  bool f32 = _i / LEN(recipes) / LEN(meshes) == 0;
  const char *act = f32 ? "f32" : "bf16";
  PlanFixture f;
  Compiled *c;
  Run *run;
  SafeTensors *weights;
  char precision[96];
  snprintf(precision, sizeof precision,
           "precision={ 'fp8', recipe = '%s', param_dtype = '%s' }", recipes[recipe],
           act);
  const char *set[6] = {precision};
  memcpy(set + 1, meshes[mesh], sizeof meshes[0]);
  weft_status st = fixture_open(&f, "tests/oracle/fp8.lua", NULL, set);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  compile_steps(&f, &c);
  Expected x = expected_open(f.arena);
  RunOptions options = {.alloc = &libc_alloc, .threads = 1};
  ck_assert_int_eq(st_open(&libc_alloc, start, NULL, &weights, &f.e), WEFT_OK);
  ck_assert_int_eq(run_open(lang_plan(f.lp), c, &options, &run, &f.e), WEFT_OK);
  ck_assert_int_eq(run_load(run, weights, &f.e), WEFT_OK);
  const float *loss =
      raw(&x, arena_printf(f.arena, "loss.%s.%s", recipes[recipe], act), NULL);
  const float *norm =
      raw(&x, arena_printf(f.arena, "norm.%s.%s", recipes[recipe], act), NULL);
  const int32_t *tokens = raw(&x, "tokens", NULL), *labels = raw(&x, "labels", NULL);
  for (int i = 0; i < STEPS; i++) {
    StepResult r;
    int at = i * STEP_TOKENS;
    double tolerance = !f32 ? 5e-3 : i ? 3e-3 : 1e-5;
    st = run_step_tokens(run, tokens + at, labels + at, i, &r, &f.e);
    ck_assert_msg(st == WEFT_OK, "%s", f.e.text);
    ck_assert_msg(fabs(r.loss - loss[i]) <= tolerance * loss[i] &&
                      fabs(r.grad_norm - norm[i]) <= 10 * tolerance * norm[i],
                  "%s %s %s, step %d: loss %.9g, not %.9g; norm %.9g, not %.9g",
                  recipes[recipe], act, meshes[mesh][0], i, r.loss, (double)loss[i],
                  r.grad_norm, (double)norm[i]);
  }
  run_close(run);
  st_close(weights);
  st_close(x.st);
  fixture_close(&f);
}
END_TEST

/* ---- ranks ---- */

static ToyOptions toy(Fp8Recipe recipe) {
  ToyOptions o = toy_default();
  o.fp8 = (Fp8Plan){.recipe = recipe, .powers = true};
  o.layers = 2;
  if (recipe == RECIPE_MXFP8) o.hidden = 64, o.ffn = 128, o.kv_heads = 4, o.seq = 128;
  return o;
}

/* Scales that are powers of two do not change with the last bit of a magnitude. */
static const Fp8Recipe all_recipes[] = {RECIPE_TENSORWISE, RECIPE_ROWWISE, RECIPE_MXFP8};

static void agrees(int recipe, void (*mesh)(ToyOptions *o)) {
  ToyOptions o = toy(all_recipes[recipe]);
  mesh(&o);
  /* In the second step an operand may round the other way where a sum has another
   * order, and later gradients differ by as much as fp8 rounds. */
  static const double tolerance[] = {1e-5, 5e-2};
  for (int i = 0; i < 2; i++) {
    Pair p;
    pair_compile(&p, &o);
    pair_verify(&p, i + 1, tolerance[i]);
    ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
    ck_assert_int_eq(p.report.steps, i + 1);
    pair_free(&p);
  }
}

static void tp(ToyOptions *o) { o->tp = 2; }
static void tp_sp(ToyOptions *o) { o->tp = 2, o->sp = true, o->dp = 2, o->micro = 2; }
static void copies(ToyOptions *o) {
  if (o->fp8.recipe == RECIPE_MXFP8)
    o->tp = 2; /* a rank would have less than a block */
  else
    o->tp = 4, o->sp = true;
}
static void cp(ToyOptions *o) { o->cp = 2; }
static void cp_tp(ToyOptions *o) { o->cp = 2, o->tp = 2, o->how.comm = CP_RING; }
static void fsdp2(ToyOptions *o) {
  o->dp = 2, o->tp = 2, o->pp = 2, o->strategy.kind = STRATEGY_FSDP2;
}
static void zero3(ToyOptions *o) {
  o->dp = 2, o->strategy.stage = 3, o->recompute.full = true;
}
static void narrow(ToyOptions *o) {
  o->dp = 2, o->cp = 2, o->tied = true, o->bias = true, o->fuses = true;
}
static void (*const toy_meshes[])(ToyOptions *) = {tp,    tp_sp, copies, cp,
                                                   cp_tp, fsdp2, zero3,  narrow};

START_TEST(ranks_agree_with_one) {
  agrees(_i % LEN(all_recipes), toy_meshes[_i / LEN(all_recipes)]);
}
END_TEST

Suite *fp8_suite(void) {
  Suite *s = suite_create("fp8");
  TCase *t = tcase_create("pytorch");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, casts_have_the_bits_of_pytorch, 0, 2);
  tcase_add_loop_test(t, codes_have_the_values_of_pytorch, 0, 2);
  tcase_add_loop_test(t, products_agree_with_pytorch, 0, LEN(recipes));
  tcase_add_loop_test(t, steps_agree_with_pytorch, 0, 2 * LEN(recipes) * LEN(meshes));
  tcase_add_loop_test(t, ranks_agree_with_one, 0, LEN(all_recipes) * LEN(toy_meshes));
  suite_add_tcase(s, t);
  return s;
}
