/* check_cuda_graph_run.c - the program on the stand-ins for CUDA's runtime and NCCL: what
 * its users see of steps that are replayed, with evaluations, samples and failures. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/emulated.h"
#include "tests/harness/process.h"

#ifdef WEFT_EMULATED_CUDA

/* What is not launched by LAUNCH is not looked at. */
START_TEST(all_launches_are_looked_at) {
  static const char what[] = "<<<|START\\(|cudaLaunch|cudaMemcpy|cudaMemset";
  static const char at[] = WEFT_SOURCE_DIR "/kernels/cuda";
  Outcome o =
      process_run(10, "grep -rnE '%s' --include=*.cu --include=*.cuh %s", what, at);
  ck_assert_msg(o.code == 1, "code %d: %s%s", o.code, o.out, o.err);
  o = process_run(10, "grep -nE '%s' %s/launch/queue.h", what, at);
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

#define BESIDE                                                                           \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so " WEFT_BINARY_DIR      \
  "/standin/weft_nccl.so .; exec env "

static void put_plan(const char *mesh) {
  char plan[1024];
  int n = snprintf(
      plan, sizeof plan,
      "local weft = require \"weft\"\n"
      "return weft.plan {\n"
      "  model = weft.model { \"llama\", hidden_size = 16, num_hidden_layers = 2,\n"
      "    num_attention_heads = 2, intermediate_size = 16, vocab_size = 32 },\n"
      "  mesh = { %s }, precision = \"f32\", comm = { timeout = 2 },\n"
      "  batch = { global = 2, micro = 1, seq = 8 },\n"
      "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-2, warmup = 2 } },\n"
      "  data = weft.synthetic { val = weft.synthetic {} },\n"
      "  train = { steps = 6, log_every = 1, eval_every = 2, eval_batches = 2 },\n"
      "}\n",
      mesh);
  scratch_put("plan.lua", plan, (size_t)n);
}

/* What is the same whatever the time: up to the first figure that is not. */
static const char *figures(Outcome *o, char text[512]) {
  ck_assert_msg(o->code == 0, "code %d: %s%s", o->code, o->out, o->err);
  char *end = strstr(o->out, "\"tokens_per_s\"");
  ck_assert_msg(end && strstr(o->out, "eval_loss"), "%s", o->out);
  snprintf(text, 512, "%.*s", (int)(end - o->out), o->out);
  return text;
}

#define RUN "./weft run plan.lua --device cuda --threads 1 "

/* With evaluations between the steps, which are graphs of their own. */
START_TEST(the_program_replays) {
  char a[512], b[512];
  put_plan("tp = 1");
  Outcome kept = process_run(60, "sh -c '" BESIDE RUN "--json --log kept.log'");
  Outcome plain = process_run(60, "sh -c '" BESIDE RUN
                                  "--json --log plain.log --set cuda_graph=false'");
  ck_assert_str_eq(figures(&kept, a), figures(&plain, b));
  ck_assert_msg(strstr(kept.err, "; steps are replayed as one graph; kernels: ") != NULL,
                "%s", kept.err);
  ck_assert_msg(
      strstr(plain.err, "; steps are launched op by op: cuda_graph = false; kernels: ") !=
          NULL,
      "%s", plain.err);
  Outcome log = process_run(10, "cat kept.log");
  ck_assert_msg(strstr(log.out, "\"steps_are\":\"replayed as one graph\"") != NULL, "%s",
                log.out);
}
END_TEST

/* Each token is a step, at another place. */
START_TEST(samples_are_the_same) {
  static const char *const options[] = {"cuda", "cuda --set cuda_graph=false", "cpu"};
  char first[512];
  for (int i = 0; i < LEN(options); i++) {
    Outcome o =
        process_run(60,
                    "sh -c '" BESIDE "./weft sample " WEFT_SOURCE_DIR
                    "/tests/oracle/plan.lua -D model=llama --tokens 5,3,9 --greedy "
                    "--max-tokens 8 --threads 1 --device %s'",
                    options[i]);
    ck_assert_msg(o.code == 0 && strstr(o.out, ",") && !strstr(o.err, "warning"), "%s%s",
                  o.out, o.err);
    if (i == 0) snprintf(first, sizeof first, "%s", o.out);
    ck_assert_str_eq(o.out, first);
  }
}
END_TEST

/* What ./dev test gpu runs where there is a GPU. It must see when something is wrong. */
START_TEST(the_script_compares) {
  put_plan("tp = 1");
  for (int fails = 0; fails < 2; fails++) {
    Outcome o = process_run(60,
                            "sh -c '" BESIDE "WEFT_STANDIN=capture_fails=%d bash "
                            "%s/tests/gpu_graph.sh ./weft plan.lua . --threads 1 "
                            "--steps 4'",
                            20 * fails, WEFT_SOURCE_DIR);
    ck_assert_msg(o.code == fails, "code %d: %s%s", o.code, o.out, o.err);
    ck_assert_msg((strstr(o.out, "the same figures") != NULL) == !fails, "%s", o.out);
  }
}
END_TEST

START_TEST(a_capture_that_fails_is_in_the_log) {
  put_plan("tp = 1");
  Outcome o = process_run(60, "sh -c '" BESIDE "WEFT_STANDIN=capture_fails=20 " RUN
                              "--steps 4 --log run.log'");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *says = "warning: steps are launched op by op from here on: rank 0: op ";
  ck_assert_msg(strstr(o.err, says) != NULL, "%s", o.err);
  Outcome log = process_run(10, "cat run.log");
  ck_assert_msg(strstr(log.out, "\"event\":\"warning\"") != NULL, "%s", log.out);
}
END_TEST

/* In a replay the host knows nothing of where it is: the queues say it. */
static const struct {
  const char *machine, *says, *also;
} ends[] = {
    {"nccl_hang=150", "no progress for ", " wait in all_reduce(tp) of "},
    {"nccl_error=150", "remote error: the stand-in was told to fail", "(nccl)"},
    /* Each rank on a GPU of its own: what ends graphs is another thread than the rank's.
     */
    {"gpus=4,nccl_hang=150", "no progress for ", " wait in all_reduce(tp) of "},
};

START_TEST(a_failure_in_a_replay_is_told) {
  put_plan("tp = 2, pp = 2");
  Outcome o =
      process_run(60, "sh -c '" BESIDE "WEFT_STANDIN=%s " RUN "--steps 60 --procs 4'",
                  ends[_i].machine);
  ck_assert_msg(o.code == 1, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.err, ends[_i].says) && strstr(o.err, ends[_i].also), "%s",
                o.err);
  ck_assert_msg(strstr(o.out, "step      2/60") != NULL, "%s", o.out);
}
END_TEST

Suite *cuda_graph_run_suite(void) {
  Suite *s = suite_create("cuda_graph_run");
  TCase *tc = tcase_create("program");
  tcase_set_timeout(tc, 300);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, all_launches_are_looked_at);
  tcase_add_test(tc, the_program_replays);
  tcase_add_test(tc, samples_are_the_same);
  tcase_add_test(tc, the_script_compares);
  tcase_add_test(tc, a_capture_that_fails_is_in_the_log);
  tcase_add_loop_test(tc, a_failure_in_a_replay_is_told, 0, LEN(ends));
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_graph_run_suite(void) { return emulated_suite_without("cuda_graph_run"); }

#endif
