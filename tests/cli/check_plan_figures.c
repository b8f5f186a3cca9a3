/* check_plan_figures.c - figures that verbs print of a plan, beside what they are by hand
 * or by another verb: parameters beside a frozen second model, steps of several rounds,
 * memory of the host, attention scores of a ring. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/process.h"
#include "tests/harness/scratch.h"

#define PLANS WEFT_SOURCE_DIR "/plans/"

static void write_plan(const char *name, const char *fields) {
  char text[1024];
  int n =
      snprintf(text, sizeof text,
               "local weft = require 'weft'\n"
               "return weft.plan { model = weft.model { 'llama', hidden_size = 64,\n"
               "    num_hidden_layers = 4, num_attention_heads = 4, vocab_size = 256,\n"
               "    num_key_value_heads = 2, intermediate_size = 128 },\n"
               "  cluster = 'h100-sxm', %s }\n",
               fields);
  ck_assert_int_lt(n, sizeof text);
  scratch_put(name, text, (size_t)n);
}

static void says(const char *command, const char *what) {
  Outcome o = process_run(60, "%s", command);
  ck_assert_msg(o.code == 0 && strstr(o.out, what), "%s: exit %d, not \"%s\":\n%s%s",
                command, o.code, what, o.out, o.err);
}

/* The sum of the numbers behind a text. */
static int64_t sum_of(const char *s, const char *before) {
  int64_t sum = 0;
  for (; (s = strstr(s, before)); s += strlen(before)) sum += atoll(s + strlen(before));
  return sum;
}

/* Stages have the parameters of the model between them, with its adapters, whatever two
 * of them share and whatever is beside it. */
START_TEST(parameters_of_stages) {
#define LORA "--set adapter='{\"lora\",rank=4}' "
#define TIED "--set model.tie_word_embeddings=true "
  static const char *const plans[] = {
      PLANS "dpo.lua",         PLANS "distill.lua", "plan.lua",
      "plan.lua " TIED,        "plan.lua " LORA,    "plan.lua " LORA TIED,
      PLANS "mixtral_8x7b.lua"};
  write_plan("plan.lua",
             "mesh = { pp = 2 }, batch = { global = 8, micro = 1, seq = 32 }");
  for (int i = 0; i < LEN(plans); i++) {
    Outcome stages = process_run(60, "$weft show stages %s --json", plans[i]);
    Outcome check = process_run(60, "$weft check %s --json", plans[i]);
    int64_t parts = sum_of(stages.out, "\"parameters\": ");
    int64_t all = sum_of(check.out, "\n    \"parameters\": ");
    ck_assert_int_gt(all, 0);
    ck_assert_msg(parts == all, "%s: %lld, not %lld", plans[i], (long long)parts,
                  (long long)all);
  }
}
END_TEST

/* A reference and a teacher are models of their own. */
START_TEST(parameters_of_the_model) {
  says("$weft check " PLANS "dpo.lua --set expect.parameters=180800",
       "181 k parameters, beside a frozen model of 181 k parameters\n");
  says("$weft check " PLANS "dpo.lua --json", "\"parameters\": 180800");
  says("$weft check " PLANS "dpo.lua --json", "\"second_parameters\": 180800");
}
END_TEST

/* Rounds follow each other without a gap: ranks work for 8 * 48 units, and stand still
 * for one, as they would in each round alone. */
START_TEST(steps_of_rounds) {
  write_plan("plan.lua", "mesh = { pp = 2 }, schedule = 'zbv', batch = { global = 64, "
                         "micro = 1, seq = 16, rounds = 8 }");
  static const char script[] =
      "local weft = require 'weft'\n"
      "local plan = weft.load 'plan.lua'\n"
      "local row = weft.sweep { plan = plan, over = { { 'batch.rounds', 1, 8 } } }\n"
      "for i = 1, 2 do print(('%.7f'):format(row[i].bubble)) end\n"
      "print(plan:schedule().microbatches, ('%.7f'):format(plan:schedule().bubble))\n";
  scratch_put("script.lua", script, strlen(script));
  says("$weft check plan.lua --set expect.bubble=0.00259740", "in 64 microbatches");
  says("$weft show rank 0 plan.lua", "step: 64 microbatches\n");
  says("$weft show rank 0 plan.lua --json", "\"microbatches\": 64");
  says("$weft show schedule plan.lua", "64 microbatches in 8 rounds");
  says("$weft show schedule plan.lua --json", "\"makespan\": 385");
  says("$weft report plan.lua", "0.3 % of the pipeline's time, if every");
  says("$weft lua script.lua", "0.0025974\n0.0025974\n64\t0.0025974\n");
}
END_TEST

/* Rounds of 1f1b drain each by itself, and leave a step as idle as one round is; those of
 * zbv do not. */
START_TEST(few_microbatches_of_rounds) {
#define FEW                                                                              \
  "$weft check plan.lua --set cluster=h100-sxm --set mesh.pp=8 --set schedule=1f1b "     \
  "--set precision=bf16 --set recompute=full --set batch.micro=2 --set batch.seq=2048 "  \
  "--set batch.rounds=%d --set batch.global=%d"
  static const char plan[] = "local weft = require 'weft'\n"
                             "return weft.plan { model = weft.model 'llama3-8b',\n"
                             "  batch = { global = 8, seq = 16 } }\n";
  scratch_put("plan.lua", plan, strlen(plan));
  for (int rounds = 1; rounds <= 4; rounds += 3) {
    Outcome o = process_run(60, FEW, rounds, 16 * rounds);
    ck_assert_msg(strstr(o.err, "47 % of the step idle") &&
                      strstr(o.err, "[few-microbatches]"),
                  "%d rounds: %s", rounds, o.err);
  }
}
END_TEST

/* Four microbatches for each pipeline rank are enough. */
START_TEST(enough_microbatches) {
  static const char plan[] = "local weft = require 'weft'\n"
                             "return weft.plan { model = weft.model 'llama3-8b',\n"
                             "  batch = { global = 8, seq = 8192, micro = 4 } }\n";
  scratch_put("plan.lua", plan, strlen(plan));
  for (int n = 31; n <= 32; n++) {
    Outcome o = process_run(60,
                            "$weft check plan.lua --set cluster=h100-sxm --set mesh.pp=8 "
                            "--set schedule=1f1b --set precision=bf16 --set "
                            "recompute=full --set batch.global=%d",
                            4 * n);
    ck_assert_int_eq(strstr(o.err, "[few-microbatches]") != NULL, n < 32);
  }
}
END_TEST

START_TEST(memory_of_the_host) {
#define OFFLOAD                                                                          \
  "mesh = { dp = 2 }, batch = { global = 8, micro = 1, seq = 32 }, "                     \
  "strategy = { 'zero', stage = 3, offload_optimizer = true }, optimizer = weft.adamw "  \
  "{ "                                                                                   \
  "state_dtype = '%s' }"
  char fields[512];
  snprintf(fields, sizeof fields, OFFLOAD, "f32");
  write_plan("a.lua", fields);
  snprintf(fields, sizeof fields, OFFLOAD, "bf16");
  write_plan("b.lua", fields);
  says("$weft show memory a.lua", "in the memory of the host: ");
  says("$weft show memory a.lua --json", "\"host\": [\n          {\n");
  Outcome o = process_run(60, "$weft diff a.lua b.lua");
  ck_assert_msg(o.code == 1 && strstr(o.out, "memory of the host: "), "%s%s", o.out,
                o.err);
}
END_TEST

/* cp cuts queries alone, whatever brings keys to them. */
START_TEST(scores_of_a_ring) {
  write_plan("plan.lua",
             "mesh = { cp = 2 }, cp = { comm = weft.var('comm', 'allgather') }, "
             "batch = { global = 8, micro = 1, seq = 128 }");
  static const char *const ways[] = {"allgather", "a2a", "ring"};
  for (int i = 0; i < 3; i++) {
    char command[96];
    snprintf(command, sizeof command, "$weft check plan.lua -D comm=%s", ways[i]);
    says(command, "160 KiB");
  }
}
END_TEST

Suite *plan_figures_suite(void) {
  Suite *s = suite_create("plan_figures");
  TCase *tc = tcase_create("plan_figures");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, parameters_of_the_model);
  tcase_add_test(tc, parameters_of_stages);
  tcase_add_test(tc, steps_of_rounds);
  tcase_add_test(tc, few_microbatches_of_rounds);
  tcase_add_test(tc, enough_microbatches);
  tcase_add_test(tc, memory_of_the_host);
  tcase_add_test(tc, scores_of_a_ring);
  suite_add_tcase(s, tc);
  return s;
}
