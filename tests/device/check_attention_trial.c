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
#include "kernels/cuda/attention/attention_trial.h"
#include "tests/standin/standin.h"

static Device dev;

static void open_gpu_with(size_t memory, int capability, bool wrong) {
  Standin s = standin_usual;
  weft_error e = {.rank = -1};
  s.memory = memory;
  s.capability = capability;
  s.wgmma_wrong = wrong;
  standin_set(&s);
  weft_status st = device_open(&dev, device_standin()->load(&e), NULL, 0, 0, 1, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
}

static void open_gpu(int capability, bool wrong) {
  open_gpu_with(standin_usual.memory, capability, wrong);
}

static KernelArgs args_of(const Problem *p) {
  KernelArgs a = {.attr = &p->attr, .nin = p->nin, .nout = p->nout, .index = p->index};
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = kernel_tensor(&p->out[i]);
  for (int i = 0; i < p->nin; i++) a.in[i].p = NULL;
  for (int i = 0; i < p->nout; i++) a.out[i].p = NULL;
  return a;
}

/* Whether a prepared op is computed by wgmma. */
static bool prepared(const Problem *p) {
  KernelArgs a = args_of(p);
  weft_error e = NO_ERROR;
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
    ck_assert_msg(strstr(dev.fallback,
                         "attention of 150 tokens in heads of 20 goes on by mma.sync, as "
                         "on GPUs without wgmma: wgmma computes another o than mma.sync, "
                         "on the same numbers of these shapes (sequence ") != NULL,
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

/* Documents and sinks of as many heads as have had lse where sinks are. */
static const KernelCase sinks = {OP_attention,
                                 "x 1,102,512 x 1,102,64 x 1,102,64 s 1,102 w 64",
                                 "x 1,102,512 f 1,102,64",
                                 {.head_dim = 8, .scale = 0.3f},
                                 0};

START_TEST(sinks_are_operands) {
  Problem p;
  problem_make(&p, &sinks, DT_BF16, 3);
  open_gpu(90, false);
  ck_assert_msg(prepared(&p), "%s", dev.fallback ? dev.fallback : "?");
  device_close(&dev);
  problem_free(&p);
}
END_TEST

static bool without_lse(Device *d, const KernelArgs *a) {
  size_t n = (size_t)cuda_count(&a->out[1]);
  float *zero = calloc(n, sizeof *zero);
  cuda_attention(d, a);
  d->vt->upload(d, a->out[1].p, zero, n * sizeof *zero);
  weft_error e = NO_ERROR;
  ck_assert(d->vt->sync(d, &e) == WEFT_OK);
  free(zero);
  return true;
}

START_TEST(each_result_is_compared) {
  static const Contender bad = {
      .name = "it", .than = "that", .advice = "", .run = without_lse};
  Problem p;
  Tried tried = {0};
  weft_error e = NO_ERROR;
  bool differs;
  problem_make(&p, &sinks, DT_BF16, 3);
  open_gpu(90, false);
  KernelArgs a = args_of(&p);
  ck_assert(attention_trial(&dev, &bad, &tried, 1, p.op, &a, &differs, &e) == WEFT_ERUN);
  ck_assert_msg(differs && strstr(e.text, "it computes another lse than that"), "%s",
                e.text);
  ck_assert(attention_trial(&dev, &bad, &tried, 1, p.op, &a, &differs, &e) == WEFT_ERUN);
  ck_assert(differs && tried.n == 1);
  attention_forget(&dev, &tried);
  device_close(&dev);
  problem_free(&p);
}
END_TEST

/* Later steps of a ring with documents are each of their own: their masks are others. */
START_TEST(steps_with_documents_are_compared) {
  static const KernelCase step = {
      OP_attention_part,
      "x 1,32,16 x 1,32,16 x 1,32,16 f 1,32,16 f 1,32,2 s 1,32",
      "f 1,32,16 f 1,32,2",
      {.head_dim = 8, .scale = 0.3f, .n = 4, .step = 1},
      3};
  Problem p;
  problem_make(&p, &step, DT_BF16, 1);
  open_gpu(90, false);
  for (p.attr.step = 1; p.attr.step < 3; p.attr.step++) {
    uint64_t launched = standin_launched();
    ck_assert(prepared(&p));
    ck_assert(standin_launched() > launched);
  }
  device_close(&dev);
  problem_free(&p);
}
END_TEST

/* More shapes than it begins with. */
START_TEST(all_are_remembered) {
  static const Contender same = {
      .name = "it", .than = "that", .advice = "", .run = cuda_attention_hopper};
  enum { SHAPES = 20 };
  Problem p;
  Tried tried = {0};
  weft_error e = NO_ERROR;
  bool differs;
  problem_make(&p, &kernel_case[case_of_documents()], DT_BF16, 1);
  open_gpu(90, false);
  KernelArgs a = args_of(&p);
  for (int turn = 0; turn < 2; turn++) {
    for (uint64_t i = 0; i < SHAPES; i++) {
      uint64_t launched = standin_launched();
      ck_assert(attention_trial(&dev, &same, &tried, i, p.op, &a, &differs, &e) ==
                WEFT_OK);
      ck_assert(!differs && (standin_launched() == launched) == (turn == 1));
    }
  }
  ck_assert_int_eq(tried.n, SHAPES);
  attention_forget(&dev, &tried);
  device_close(&dev);
  problem_free(&p);
}
END_TEST

/* What cannot be compared goes on by mma.sync, unless others were: as they are. */
START_TEST(memory_may_be_short) {
  Problem p, small;
  problem_make(&p, &sinks, DT_BF16, 1);
  problem_make(&small, &kernel_case[case_of_documents()], DT_BF16, 1);
  open_gpu_with(300 << 10, 90, _i);
  ck_assert(!prepared(&p));
  ck_assert_str_eq(
      dev.fallback,
      "attention of 102 tokens in heads of 8 goes on by mma.sync, as on GPUs "
      "without wgmma: there is no memory on the GPU to compare wgmma with "
      "mma.sync");
  ck_assert_int_eq(prepared(&small), !_i);
  ck_assert_int_eq(prepared(&p), !_i);
  device_close(&dev);
  problem_free(&p);
  problem_free(&small);
}
END_TEST

START_TEST(copies_have_the_kernel_of_all_gpus) {
  Problem p;
  problem_make(&p, &kernel_case[case_of_documents()], DT_BF16, 1);
  open_gpu(90, false);
  p.attr.backend = BACKEND_COPIES;
  ck_assert(!prepared(&p));
  device_close(&dev);
  problem_free(&p);
}
END_TEST

START_TEST(the_environment_holds_it) {
  static const struct {
    const char *gpu;
    bool takes;
  } held[] = {{"8.0", false}, {"9.0", true}, {"12.0", true}, {"", true}};
  Problem p;
  problem_make(&p, &kernel_case[case_of_documents()], DT_BF16, 1);
  for (int i = 0; i < LEN(held); i++) {
    setenv("WEFT_GPU", held[i].gpu, 1);
    open_gpu(90, false);
    ck_assert_int_eq(prepared(&p), held[i].takes);
    device_close(&dev);
  }
  unsetenv("WEFT_GPU");
  problem_free(&p);
}
END_TEST

START_TEST(the_environment_is_a_capability) {
  static const char *const none[] = {"9", "hopper", "9.0a", "-1.0", "9.", "123.0"};
  weft_error e = {.rank = -1};
  setenv("WEFT_GPU", none[_i], 1);
  standin_set(&standin_usual);
  ck_assert(device_open(&dev, device_standin()->load(&e), NULL, 0, 0, 1, &e) ==
            WEFT_EUSAGE);
  unsetenv("WEFT_GPU");
  ck_assert_msg(strstr(e.text, "is no compute capability: give one as 8.0") != NULL, "%s",
                e.text);
}
END_TEST

/* ---- the program ---- */

#define BESIDE                                                                           \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so " WEFT_BINARY_DIR      \
  "/standin/weft_nccl.so .; exec env "
#define WARNS                                                                            \
  " tokens in heads of 128 goes on by mma.sync, as on GPUs without wgmma: wgmma "        \
  "computes another o than mma.sync"

static void put_plan(const char *more) {
  static const char plan[] =
      "local weft = require \"weft\"\n"
      "return weft.plan {\n"
      "  model = weft.model { \"mistral\", hidden_size = 128, num_hidden_layers = 1,\n"
      "    num_attention_heads = 1, num_key_value_heads = 1, intermediate_size = 32,\n"
      "    vocab_size = 32, sliding_window = false }, precision = \"bf16\", comm = { "
      "timeout = 30 },\n"
      "  packed = { eot = 3 },\n"
      "  batch = { global = 2, micro = 1, seq = 96 },\n"
      "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-2, warmup = 2 } },\n"
      "  data = weft.synthetic {}, train = { steps = 2, log_every = 1 },\n"
      "%s}\n";
  char text[2000];
  int n = snprintf(text, sizeof text, plan, more);
  scratch_put("plan.lua", text, (size_t)n);
}

static double loss_on(const char *gpu, bool warns) {
  Outcome o =
      process_run(100,
                  "sh -c '" BESIDE "WEFT_STANDIN=%s ./weft run plan.lua --device cuda "
                  "--threads 1 --json'",
                  gpu);
  const char *at = strstr(o.out, "\"loss\":");
  ck_assert_msg(o.code == 0 && at, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg((strstr(o.err, "warning: attention of 96" WARNS) != NULL) == warns, "%s",
                o.err);
  return strtod(at + strlen("\"loss\":"), NULL);
}

/* What goes on by mma.sync is what a GPU without the instructions computes. */
START_TEST(a_run_goes_on_by_the_other_kernel) {
  put_plan("");
  double right = loss_on("capability=90", false), older = loss_on("capability=80", false);
  double wrong = loss_on("wgmma_wrong=1", true);
  ck_assert_msg(wrong == older, "%.17g and %.17g", wrong, older);
  ck_assert_msg(right > 0.99 * older && right < 1.01 * older, "%.17g and %.17g", right,
                older);
  ck_assert_msg(right != older, "%.17g is not by wgmma", right);
}
END_TEST

START_TEST(ranks_are_as_one) {
  static const char *const set[] = {
      "mesh.cp=1", "mesh.cp=2 --set batch.seq=160",
      "mesh.cp=2 --set cp.comm=allgather --set batch.seq=160"};
  put_plan("");
  for (int wrong = 0; wrong < 2; wrong++) {
    Outcome o = process_run(120,
                            "sh -c '" BESIDE "WEFT_STANDIN=wgmma_wrong=%d ./weft verify "
                            "plan.lua --device cuda --steps 1 --set %s'",
                            wrong, set[_i]);
    ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
    ck_assert_msg((strstr(o.out, WARNS) != NULL) == wrong, "%s", o.out);
  }
}
END_TEST

/* Ranks of tp that all have the whole of an attention: none of them has wgmma, so none
 * has other bits where that is wrong on one. */
#define TWO_HEADS                                                                        \
  "--set model.hidden_size=256 --set model.num_attention_heads=2 --set "                 \
  "model.num_key_value_heads=2"
START_TEST(copies_are_told_in_programs) {
  put_plan(" mesh = { tp = 2 }, tp_plan = { [\"layers.*.mlp.gate_proj\"] = \"colwise\",\n"
           "  [\"layers.*.mlp.up_proj\"] = \"colwise\",\n"
           "  [\"layers.*.mlp.down_proj\"] = \"rowwise\" },\n");
  Outcome o = process_run(60, "sh -c '" BESIDE "WEFT_STANDIN=wgmma_wrong=1 ./weft verify "
                              "plan.lua --device cuda --steps 1 " TWO_HEADS "'");
  ck_assert_msg(o.code == 0 && !strstr(o.out, "wgmma"), "code %d: %s%s", o.code, o.out,
                o.err);
  o = process_run(30, "$weft show plan.lua program 0 --device cuda " TWO_HEADS);
  ck_assert_msg(strstr(o.out, "backend=3") != NULL, "%s%s", o.out, o.err);
  o = process_run(
      30, "$weft show plan.lua program 0 --device cuda --set mesh.tp=1 " TWO_HEADS);
  ck_assert_msg(!strstr(o.out, "backend=3"), "%s%s", o.out, o.err);
}
END_TEST

START_TEST(processes_have_the_same_kernels) {
  put_plan(" mesh = { dp = 2 },\n");
  Outcome o = process_run(
      60,
      "sh -c 'cp $weft weft; ln -sf " WEFT_BINARY_DIR
      "/standin/weft_cuda.so " WEFT_BINARY_DIR
      "/standin/weft_nccl.so .; export WEFT_SECRET=w MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 "
      "MASTER_PORT=$((20000 + $$ %% 10000)) WEFT_STANDIN=gpus=2; RANK=1 WEFT_GPU=8.0 "
      "./weft run plan.lua --device cuda --threads 1 2>/dev/null & RANK=0 exec ./weft "
      "run "
      "plan.lua --device cuda --threads 1'");
  ck_assert_msg(o.code == 2 &&
                    strstr(o.err,
                           "WEFT_GPU of the environment: not set on rank 0; 8.0 on "
                           "rank 1 (ranks would compute attention by different "
                           "kernels)"),
                "code %d: %s%s", o.code, o.out, o.err);
}
END_TEST

Suite *attention_trial_suite(void) {
  Suite *s = suite_create("attention_trial");
  TCase *t = tcase_create("prepared");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, gpus_have_it_or_not, 0, LEN(gpus));
  tcase_add_loop_test(t, all_cases_agree, 0, kernel_cases);
  tcase_add_test(t, sinks_are_operands);
  tcase_add_test(t, each_result_is_compared);
  tcase_add_test(t, steps_with_documents_are_compared);
  tcase_add_test(t, all_are_remembered);
  tcase_add_loop_test(t, memory_may_be_short, 0, 2);
  tcase_add_test(t, copies_have_the_kernel_of_all_gpus);
  tcase_add_test(t, the_environment_holds_it);
  tcase_add_loop_test(t, the_environment_is_a_capability, 0, 6);
  suite_add_tcase(s, t);
  t = tcase_create("runs");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 400);
  tcase_add_test(t, a_run_goes_on_by_the_other_kernel);
  tcase_add_loop_test(t, ranks_are_as_one, 0, 3);
  tcase_add_test(t, copies_are_told_in_programs);
  tcase_add_test(t, processes_have_the_same_kernels);
  suite_add_tcase(s, t);
  return s;
}

#else

Suite *attention_trial_suite(void) { return emulated_suite_without("attention_trial"); }

#endif
