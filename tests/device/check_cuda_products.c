/* check_cuda_products.c - which of cuBLASLt's algorithms a product takes, on the
 * stand-in, which proposes some that it refuses and says how long each takes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/device_plans.h"
#include "tests/harness/emulated.h"
#include "tests/harness/process.h"

Suite *cuda_products_suite(void);

#ifdef WEFT_EMULATED_CUDA

#include "tests/generate/small_llama.h"
#include "tests/standin/standin.h"
#include "vm/rank/rank.h"

enum { FIRST = 0, FASTEST = 3, STATE = 128 };

static Device d;
static weft_error err;

static void open_device(bool times, int algorithms, size_t memory) {
  Standin s = standin_usual;
  s.algorithms = algorithms;
  if (memory) s.memory = memory;
  standin_set(&s);
  ck_assert_int_eq(device_open(&d, device_standin()->load(&err), NULL, 0, 0, 1, &err),
                   WEFT_OK);
  d.times = times;
}

static void close_device(void) {
  device_close(&d);
  standin_set(&standin_usual);
}

/* A linear layer of so many outputs, prepared. */
typedef struct Layer {
  OpAttr attr;
  KernelArgs a;
  const Kernel *k;
  _Alignas(64) char state[STATE];
} Layer;

static void prepare(Layer *l, int64_t outputs, bool add) {
  *l = (Layer){0};
  l->a = (KernelArgs){.attr = &l->attr,
                      .nin = 2,
                      .nout = 1,
                      .accumulate = add,
                      .state = l->state,
                      .in = {{.dtype = DT_F32, .ndim = 2, .dim = {4, 8}},
                             {.dtype = DT_F32, .ndim = 2, .dim = {outputs, 8}}},
                      .out = {{.dtype = DT_F32, .ndim = 2, .dim = {4, outputs}}}};
  l->k = device_kernel(&d, OP_linear, &l->a);
  ck_assert_msg(l->k->prepare(&d, &l->a, &err) == WEFT_OK, "%s", err.text);
}

static uint64_t products(void) {
  uint64_t n = 0;
  for (int i = 0; i < LT_ALGORITHMS; i++) n += standin_products(i);
  return n;
}

/* By which algorithm it is computed, as it should be. */
static void computed_by(Layer *l, int algorithm) {
  enum { X = 32, W = 64 * 8, Y = 4 * 64 };
  float *at, x[X], w[W], y[Y];
  void *p;
  int64_t n = l->a.out[0].dim[1];
  for (int i = 0; i < X; i++) x[i] = (float)(i % 5);
  for (int i = 0; i < W; i++) w[i] = (float)(i % 7);
  ck_assert_int_eq(device_alloc(&d, sizeof x + sizeof w + sizeof y, &p, &err), WEFT_OK);
  at = p;
  l->a.in[0].p = at, l->a.in[1].p = at + X, l->a.out[0].p = at + X + W;
  device_upload(&d, at, x, sizeof x);
  device_upload(&d, at + X, w, sizeof w);
  uint64_t all = products(), mine = standin_products(algorithm);
  device_launch(&d, l->k, &l->a);
  ck_assert_int_eq(device_sync(&d, &err), WEFT_OK);
  device_download(&d, y, at + X + W, sizeof y);
  ck_assert_uint_eq(standin_products(algorithm) - mine, 1);
  ck_assert_uint_eq(products() - all, 1);
  for (int64_t r = 0; r < 4; r++)
    for (int64_t o = 0; o < n; o++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) sum += x[r * 8 + k] * w[o * 8 + k];
      ck_assert_float_eq(y[r * n + o], sum);
    }
  device_free(&d, p, sizeof x + sizeof w + sizeof y);
}

START_TEST(the_fastest_is_taken) {
  Layer l;
  open_device(true, LT_ALGORITHMS, 0);
  uint64_t before = products();
  prepare(&l, 6, false);
  ck_assert_uint_gt(products() - before, 3); /* all that run, more than once */
  computed_by(&l, FASTEST);
  ck_assert(lt_algorithm[1].refused && standin_products(1) == 0);
  ck_assert(lt_algorithm[2].fails && standin_products(2) == 0);
  l.k->release(&d, &l.a);
  close_device();
}
END_TEST

START_TEST(the_first_is_taken_without_a_clock) {
  Layer l;
  open_device(false, LT_ALGORITHMS, 0);
  uint64_t before = products();
  prepare(&l, 6, false);
  ck_assert_uint_eq(products(), before);
  computed_by(&l, FIRST);
  l.k->release(&d, &l.a);
  close_device();
}
END_TEST

START_TEST(equal_products_are_timed_once) {
  Layer l[4];
  open_device(true, LT_ALGORITHMS, 0);
  prepare(&l[0], 6, false);
  uint64_t before = products();
  prepare(&l[1], 6, false);
  ck_assert_uint_eq(products(), before);
  computed_by(&l[1], FASTEST);
  before = products();
  prepare(&l[2], 7, false);
  ck_assert_uint_gt(products(), before);
  before = products();
  prepare(&l[3], 6, true); /* what adds reads its result, too */
  ck_assert_uint_gt(products(), before);
  for (int i = 0; i < 4; i++) l[i].k->release(&d, &l[i].a);
  close_device();
}
END_TEST

/* More of them than are remembered: those that went are timed again. */
START_TEST(many_products) {
  Layer l;
  open_device(true, LT_ALGORITHMS, 0);
  for (int again = 0; again < 2; again++)
    for (int64_t n = 1; n <= 64 + 6; n++) {
      prepare(&l, n, false);
      if (n <= 64) computed_by(&l, FASTEST);
      l.k->release(&d, &l.a);
    }
  close_device();
}
END_TEST

START_TEST(without_room_the_first_is_taken) {
  Layer l;
  open_device(true, LT_ALGORITHMS, 600);
  uint64_t before = products();
  prepare(&l, 6, false);
  ck_assert_uint_eq(products(), before);
  l.k->release(&d, &l.a);
  close_device();
  open_device(true, 1, 0); /* there is nothing to choose */
  prepare(&l, 6, false);
  ck_assert_uint_eq(products(), before);
  l.k->release(&d, &l.a);
  close_device();
}
END_TEST

/* The user waits for it: one that takes long is tried once. */
START_TEST(a_slow_product_is_timed_little) {
  Layer l;
  open_device(true, LT_ALGORITHMS, 0);
  Standin s = *standin_is();
  s.lt_slow = 20;
  standin_set(&s);
  uint64_t before = products();
  prepare(&l, 6, false);
  ck_assert_uint_eq(products() - before, 1);
  computed_by(&l, FIRST);
  l.k->release(&d, &l.a);
  close_device();
}
END_TEST

/* With room for the operands of any product, but not for the arena. */
START_TEST(what_does_not_fit_is_not_timed) {
  Toy t;
  Rank *r = NULL;
  ToyOptions o = toy_default();
  o.device = device_standin();
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  uint64_t arena = t.compiled->prog[0].arena_bytes, before = products();
  open_device(true, LT_ALGORITHMS, arena - 1);
  ck_assert_int_eq(rank_new(NULL, t.compiled, 0, &d, &r, &err), WEFT_ENOMEM);
  ck_assert_msg(strstr(err.text, "as check predicts") != NULL, "%s", err.text);
  ck_assert_uint_eq(products(), before);
  close_device();
  open_device(true, LT_ALGORITHMS, 0);
  ck_assert_int_eq(rank_new(NULL, t.compiled, 0, &d, &r, &err), WEFT_OK);
  ck_assert_uint_gt(products(), before);
  rank_free(r);
  close_device();
  toy_free(&t);
}
END_TEST

/* ---- the program ---- */

static Outcome run(const char *algorithms, const char *more) {
  return process_run(
      60,
      "sh -c 'cp $weft weft; ln -sf %s/standin/weft_cuda.so .; exec env "
      "WEFT_STANDIN=algorithms=%s ./weft run plan.lua --device cuda --threads 1 "
      "--json %s'",
      WEFT_BINARY_DIR, algorithms, more);
}

static void put_plan(void) {
  static const char plan[] =
      "local weft = require \"weft\"\n"
      "return weft.plan {\n"
      "  model = weft.model { \"llama\", hidden_size = 16, num_hidden_layers = 1,\n"
      "    num_attention_heads = 2, intermediate_size = 16, vocab_size = 32 },\n"
      "  mesh = { tp = 1 }, precision = \"f32\",\n"
      "  batch = { global = 2, micro = 1, seq = 8 },\n"
      "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-2, warmup = 2 } },\n"
      "  data = weft.synthetic { val = weft.synthetic {} },\n"
      "  train = { steps = 3, log_every = 1, eval_every = 2, eval_batches = 1 },\n"
      "}\n";
  scratch_put("plan.lua", plan, sizeof plan - 1);
}

/* Up to the first figure that differs from run to run. */
static void same_figures(const Outcome *a, const Outcome *b) {
  const char *end = strstr(a->out, "\"tokens_per_s\"");
  ck_assert_msg(a->code == 0 && b->code == 0 && end, "%s%s%s", a->out, a->err, b->err);
  ck_assert_msg(strncmp(a->out, b->out, (size_t)(end - a->out)) == 0, "%s%s", a->out,
                b->out);
}

/* The stand-in's algorithms give the same numbers: timing them changes nothing that a run
 * has, parameters, their gradients, or those of evaluations. */
START_TEST(timing_leaves_no_trace) {
  put_plan();
  Outcome timed = run("5", ""), first = run("5", "--set deterministic=true"),
          one = run("1", "");
  same_figures(&timed, &first);
  same_figures(&timed, &one);
}
END_TEST

/* Which product it is: of the linear, its shape, whoever finds that there is none. */
static const struct {
  const char *machine, *more, *says;
} refusals[] = {
    {"lt_refuses=1", "", "no algorithm for the product of 8 x 16 x 48: status 15"},
    {"lt_refuses=2 algorithms=5", "",
     "no algorithm that it runs for the product of 8 x 16 x 48: status 7"},
    {"lt_refuses=2", "--set deterministic=true",
     "the product of 8 x 16 x 48 failed: status 7"},
};

START_TEST(a_refused_product_is_named) {
  put_plan();
  Outcome o =
      process_run(60,
                  "sh -c 'cp $weft weft; ln -sf %s/standin/weft_cuda.so .; exec env "
                  "WEFT_STANDIN=\"%s\" ./weft run plan.lua --device cuda --threads 1 %s'",
                  WEFT_BINARY_DIR, refusals[_i].machine, refusals[_i].more);
  ck_assert_msg(o.code == 1 && strstr(o.err, refusals[_i].says), "%s", o.err);
  ck_assert_msg(strstr(o.err, "rank 0: op linear of ") &&
                    strstr(o.err, ": device cuda: cuBLASLt: "),
                "%s", o.err);
}
END_TEST

Suite *cuda_products_suite(void) {
  Suite *s = suite_create("cuda_products");
  TCase *tc = tcase_create("choice");
  tcase_add_test(tc, the_fastest_is_taken);
  tcase_add_test(tc, the_first_is_taken_without_a_clock);
  tcase_add_test(tc, equal_products_are_timed_once);
  tcase_add_test(tc, many_products);
  tcase_add_test(tc, without_room_the_first_is_taken);
  tcase_add_test(tc, a_slow_product_is_timed_little);
  tcase_add_test(tc, what_does_not_fit_is_not_timed);
  suite_add_tcase(s, tc);
  tc = tcase_create("program");
  tcase_set_timeout(tc, 200);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, timing_leaves_no_trace);
  tcase_add_loop_test(tc, a_refused_product_is_named, 0, LEN(refusals));
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_products_suite(void) { return emulated_suite_without("cuda_products"); }

#endif
