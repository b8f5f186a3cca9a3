/* check_attention_trial.c - attention forward by wgmma on the stand-in for a GPU of 9.0:
 * it is taken where it computes what mma.sync does, and left where it does not. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/device_plans.h"
#include "tests/harness/emulated.h"
#include "tests/harness/process.h"
#include "tests/reference/kernel_sets.h"

#ifdef WEFT_EMULATED_CUDA

#include "kernels/cuda/attention/attention_hopper.h"
#include "tests/standin/standin.h"

static Device dev;

static void open_gpu(int capability, bool wrong) {
  Standin s = standin_usual;
  weft_error e = {.rank = -1};
  s.capability = capability;
  s.wgmma_wrong = wrong;
  standin_set(&s);
  weft_status st = device_open(&dev, device_standin()->load(&e), NULL, 0, 0, 1, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
}

/* Whether a prepared op is computed by wgmma. */
static bool prepared(const Problem *p) {
  KernelArgs a = {.attr = &p->attr, .nin = p->nin, .nout = p->nout, .index = p->index};
  weft_error e = {0};
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = kernel_tensor(&p->out[i]);
  for (int i = 0; i < p->nin; i++) a.in[i].p = NULL;
  for (int i = 0; i < p->nout; i++) a.out[i].p = NULL;
  a.state = calloc(1, cuda_state(p->op, &a));
  weft_status st = cuda_kernels[p->op].prepare(&dev, &a, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  bool takes = hopper_takes(&a);
  free(a.state);
  return takes;
}

static const struct {
  int capability;
  bool wrong, takes;
} gpus[] = {{90, false, true}, {90, true, false}, {80, false, false}, {100, true, false}};

/* The case of 150 rows of two sequences of packed documents. */
static int case_of_documents(void) {
  for (int i = 0; i < kernel_cases; i++)
    if (strcmp(kernel_case[i].in, "x 2,150,80 x 2,150,40 x 2,150,40 s 2,150") == 0)
      return i;
  ck_abort_msg("there is no such case");
}

/* Each shape once. */
START_TEST(gpus_have_it_or_not) {
  Problem p;
  problem_make(&p, &kernel_case[case_of_documents()], DT_BF16, 1);
  open_gpu(gpus[_i].capability, gpus[_i].wrong);
  ck_assert_int_eq(prepared(&p), gpus[_i].takes);
  uint64_t launched = standin_launched();
  ck_assert_int_eq(prepared(&p), gpus[_i].takes);
  ck_assert_uint_eq(standin_launched(), launched);
  if (!gpus[_i].wrong || gpus[_i].capability != 90)
    ck_assert_ptr_null(dev.fallback);
  else
    ck_assert_msg(strstr(dev.fallback, "goes on by mma.sync, as on GPUs without wgmma: "
                                       "wgmma computes another o than mma.sync, on the "
                                       "same numbers of these shapes (sequence ") != NULL,
                  "%s", dev.fallback);
  device_close(&dev);
  problem_free(&p);
}
END_TEST

/* Of all cases: documents in slots, steps of a ring, values of another size. */
START_TEST(all_cases_agree) {
  Problem p;
  problem_make(&p, &kernel_case[_i], DT_BF16, problem_seed(&kernel_case[_i]));
  if (kernels_hopper_have(&p)) {
    open_gpu(90, false);
    ck_assert_msg(prepared(&p), "%s: %s", kernel_case[_i].in,
                  dev.fallback ? dev.fallback : "?");
    device_close(&dev);
  }
  problem_free(&p);
}
END_TEST

/* ---- the program ---- */

#define BESIDE                                                                           \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so " WEFT_BINARY_DIR      \
  "/standin/weft_nccl.so .; exec env "
#define WARNS                                                                            \
  "attention forward goes on by mma.sync, as on GPUs without wgmma: wgmma computes "     \
  "another o than mma.sync"

static void put_plan(void) {
  static const char plan[] =
      "local weft = require \"weft\"\n"
      "return weft.plan {\n"
      "  model = weft.model { \"mistral\", hidden_size = 32, num_hidden_layers = 2,\n"
      "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 32,\n"
      "    vocab_size = 32, sliding_window = false }, precision = \"bf16\", comm = { "
      "timeout = 30 },\n"
      "  packed = { eot = 3 },\n"
      "  batch = { global = 2, micro = 1, seq = 160 },\n"
      "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-2, warmup = 2 } },\n"
      "  data = weft.synthetic {}, train = { steps = 3, log_every = 1 },\n"
      "}\n";
  scratch_put("plan.lua", plan, strlen(plan));
}

static double loss_on(const char *gpu, bool warns) {
  Outcome o =
      process_run(100,
                  "sh -c '" BESIDE "WEFT_STANDIN=%s ./weft run plan.lua --device cuda "
                  "--threads 1 --json'",
                  gpu);
  const char *at = strstr(o.out, "\"loss\":");
  ck_assert_msg(o.code == 0 && at, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg((strstr(o.err, "warning: " WARNS) != NULL) == warns, "%s", o.err);
  return strtod(at + strlen("\"loss\":"), NULL);
}

/* What goes on by mma.sync is what a GPU without the instructions computes. */
START_TEST(a_run_goes_on_by_the_other_kernel) {
  put_plan();
  double right = loss_on("capability=90", false), older = loss_on("capability=80", false);
  double wrong = loss_on("wgmma_wrong=1", true);
  ck_assert_msg(wrong == older, "%.17g and %.17g", wrong, older);
  ck_assert_msg(right > 0.99 * older && right < 1.01 * older, "%.17g and %.17g", right,
                older);
}
END_TEST

START_TEST(ranks_are_as_one) {
  static const char *const set[] = {"mesh.cp=1", "mesh.cp=2",
                                    "mesh.cp=2 --set cp.comm=allgather"};
  put_plan();
  for (int wrong = 0; wrong < 2; wrong++) {
    Outcome o = process_run(120,
                            "sh -c '" BESIDE "WEFT_STANDIN=wgmma_wrong=%d ./weft verify "
                            "plan.lua --device cuda --set %s'",
                            wrong, set[_i]);
    ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
    ck_assert_msg((strstr(o.out, WARNS) != NULL) == wrong, "%s", o.out);
  }
}
END_TEST

Suite *attention_trial_suite(void) {
  Suite *s = suite_create("attention_trial");
  TCase *t = tcase_create("prepared");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, gpus_have_it_or_not, 0, LEN(gpus));
  tcase_add_loop_test(t, all_cases_agree, 0, kernel_cases);
  suite_add_tcase(s, t);
  t = tcase_create("runs");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 400);
  tcase_add_test(t, a_run_goes_on_by_the_other_kernel);
  tcase_add_loop_test(t, ranks_are_as_one, 0, 3);
  suite_add_tcase(s, t);
  return s;
}

#else

Suite *attention_trial_suite(void) { return emulated_suite_without("attention_trial"); }

#endif
