/* check_data.c - what a plan names and what weft reads of it, as a user sees it: pipes,
 * folders, --data, files that change while a run reads them. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/codes.h"
#include "tests/harness/process.h"
#include "vm/io/io.h"

enum { SECONDS = 20 };

static void setup(void) {
  char command[1024];
  scratch_setup();
  snprintf(command, sizeof command, "cp %s/tests/run/*.lua %s", WEFT_SOURCE_DIR,
           scratch_dir);
  ck_assert_int_eq(system(command), 0);
}

static void expect(int code, const char *err, const char *args) {
  Outcome o = process_run(SECONDS, "$weft %s", args);
  ck_assert_msg(o.code == code, "weft %s: exit code %d\n%s", args, o.code, o.err);
  ck_assert_msg(strstr(without_codes(o.err), err) != NULL,
                "weft %s printed:\n%sexpected:\n%s", args, o.err, err);
}

/* A hundred lines of text, for plans with a vocabulary of 128. */
static void put_text(const char *name) {
  char text[1000];
  for (int i = 0; i < 1000; i++) text[i] = (char)('a' + i % 20);
  scratch_put(name, text, sizeof text);
}

/* ---- what is no file ---- */

START_TEST(pipes_do_not_hang) {
  static const char require[] = "require 'pipe'\n";
  ck_assert_int_eq(mkfifo(scratch_path("pipe.lua"), 0600), 0);
  ck_assert_int_eq(mkdir(scratch_path("model"), 0700), 0);
  ck_assert_int_eq(mkfifo(scratch_path("model/config.json"), 0600), 0);
  scratch_put("requires.lua", require, strlen(require));
  expect(2, "pipe.lua: error: is a pipe, a file is expected\n", "check pipe.lua");
  expect(1, "require \"pipe\": is a pipe, a file is expected", "check requires.lua");
  expect(1, "plan.model: model/config.json: is a pipe, a file is expected",
         "check hf.lua -D model=model");
  expect(2, "pipe.lua: error: is a pipe, a file is expected (plan.data, data.lua:11)\n",
         "check data.lua -D kind=text -D file=pipe.lua");
  expect(2, "/dev/zero: error: is a device, a file is expected\n", "check /dev/zero");
}
END_TEST

START_TEST(large_files_are_no_plans) {
  const char *plan = scratch_put("big.lua", "--", 2);
  ck_assert_int_eq(truncate(plan, (off_t)5 << 30), 0);
  expect(2, "big.lua: error: is larger than the 16 MiB that are read here\n",
         "check big.lua");
}
END_TEST

/* ---- folders ---- */

START_TEST(data_outside_needs_its_folder) {
  ck_assert_int_eq(mkdir(scratch_path("plans"), 0700), 0);
  ck_assert_int_eq(mkdir(scratch_path("other"), 0700), 0);
  ck_assert_int_eq(rename(scratch_path("data.lua"), scratch_path("plans/data.lua")), 0);
  put_text("other/a.txt");
  ck_assert_int_eq(symlink("../other/a.txt", scratch_path("plans/link.txt")), 0);
  expect(2,
         "is outside of the plan's folder; give the folder that it may be read from: "
         "--data DIR (plan.data, plans/data.lua:11)\n",
         "check plans/data.lua -D kind=text -D file=link.txt");
  expect(2, "is outside of the plan's folder",
         "run plans/data.lua -D kind=text -D file=../other/a.txt");
  expect(0, "", "check plans/data.lua -D kind=text -D file=link.txt --data other");
  expect(2, "plans/a.txt: error: no file matches (plan.data, plans/data.lua:11)\n",
         "check plans/data.lua -D kind=text -D file=a.txt");
  expect(2,
         "plans/a.txt: error: no file matches, nor in the folders of --data (plan.data, "
         "plans/data.lua:11)\n",
         "check plans/data.lua -D kind=text -D file=a.txt --data plans");
  put_text("here.txt");
  expect(2,
         "plans/here.txt: error: no file matches beside the plan; there is one in the "
         "current folder, which --data . adds (plan.data, plans/data.lua:11)\n",
         "check plans/data.lua -D kind=text -D file=here.txt");
  expect(0, "", "check plans/data.lua -D kind=text -D file=here.txt --data .");
  expect(0, "1 file, 1.0 k bytes",
         "run plans/data.lua -D kind=text -D file=a.txt --data plans --data other");
}
END_TEST

START_TEST(models_outside_need_their_folder) {
  char command[512];
  ck_assert_int_eq(mkdir(scratch_path("plans"), 0700), 0);
  ck_assert_int_eq(rename(scratch_path("hf.lua"), scratch_path("plans/hf.lua")), 0);
  snprintf(command, sizeof command, "cp -r %s/tests/oracle/llama %s/m", WEFT_SOURCE_DIR,
           scratch_dir);
  ck_assert_int_eq(system(command), 0);
  expect(1, "plan.model: plans/../m/config.json: leads to ",
         "check plans/hf.lua -D model=../m");
  expect(0, "", "check plans/hf.lua -D model=../m --data .");
  expect(0, "", "check plans/hf.lua -D model=m --data .");
  ck_assert_int_eq(unlink(scratch_path("m/model.safetensors")), 0);
  expect(2, "./m: error: holds neither model.safetensors nor model.safetensors.index",
         "check plans/hf.lua -D model=m --data .");
}
END_TEST

/* Plans that a script loads: the folder of the command line, or one of its own. */
START_TEST(scripts_name_folders) {
  static const char script[] = "local weft, options = require 'weft', {}\n"
                               "options.define = { model = 'm' }\n"
                               "if arg[1] then options.data = arg[1] end\n"
                               "local plan, why = weft.load('plans/hf.lua', options)\n"
                               "print(plan and 'loaded' or why)\n";
  char command[512];
  ck_assert_int_eq(mkdir(scratch_path("plans"), 0700), 0);
  ck_assert_int_eq(rename(scratch_path("hf.lua"), scratch_path("plans/hf.lua")), 0);
  snprintf(command, sizeof command, "cp -r %s/tests/oracle/llama %s/m", WEFT_SOURCE_DIR,
           scratch_dir);
  ck_assert_int_eq(system(command), 0);
  scratch_put("s.lua", script, sizeof script - 1);
  static const struct {
    const char *args, *said;
  } cases[] = {{"s.lua", "m/config.json: cannot be opened"},
               {"--data . s.lua", "loaded"},
               {"s.lua .", "loaded"},
               {"s.lua plans", "m/config.json: cannot be opened"}};
  for (int i = 0; i < LEN(cases); i++) {
    Outcome o = process_run(SECONDS, "$weft lua %s", cases[i].args);
    ck_assert_msg(o.code == 0 && strstr(o.out, cases[i].said), "%s: %s%s", cases[i].args,
                  o.out, o.err);
  }
}
END_TEST

/* ---- files that are not there ---- */

/* The nearest name, what to do instead, and where the plan asks for it. */
START_TEST(missing_files_are_told) {
  put_text("talks.txt");
  ck_assert_int_eq(mkdir(scratch_path("m"), 0700), 0);
  static const char config[] =
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 1,\n"
      "\"num_attention_heads\": 4, \"intermediate_size\": 64, \"vocab_size\": 128}";
  scratch_put("m/config.json", config, sizeof config - 1);
  scratch_put("m/pytorch_model-00001-of-00002.bin", "", 0);
#define PICKLE                                                                           \
  "pytorch_model-00001-of-00002.bin is a pickle of PyTorch, which is code and is not "   \
  "read. Once, with Transformers: python3 -c 'from transformers import "                 \
  "AutoModelForCausalLM as M; M.from_pretrained(\"m\", "
  expect(2,
         "talk.txt: error: no file matches (did you mean \"talks.txt\"?) (plan.data, "
         "data.lua:11)\n",
         "check data.lua -D kind=text -D file=talk.txt");
  expect(2, PICKLE, "check hf.lua -D model=m --data .");
  expect(2, " (plan.model, hf.lua:5)\n", "run hf.lua -D model=m --data .");
  expect(1,
         "hf.lua:5: error: plan.model: meta-llama/Llama-3.1-8B/config.json: cannot be "
         "opened: No such file or directory (a folder is needed and nothing is "
         "downloaded; if this is a name of the Hugging Face hub, hf download "
         "meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B gets it)\n",
         "check hf.lua -D model=meta-llama/Llama-3.1-8B");
  expect(2,
         "weft: meta-llama/Llama-3.1-8B: is nothing to import: a folder is needed and "
         "nothing is downloaded; ",
         "import meta-llama/Llama-3.1-8B");
  expect(2, "m/model.gguf: is nothing to import: model.gguf is of llama.cpp",
         "report m/model.gguf");
  expect(2, "q/w: error: is not there: a folder is needed",
         "eval data.lua -D kind=text -D file=talks.txt --weights q/w");
  /* A folder of the user's with a wrong name in it is no name of the hub. */
  expect(1, "m/x/config.json: cannot be opened: No such file or directory (weft.hf takes",
         "check hf.lua -D model=m/x --data .");
}
END_TEST

/* ---- check sees data ---- */

START_TEST(check_looks_at_data) {
  char text[1000];
  memset(text, 'a', sizeof text);
  scratch_put("few.txt", text, 20);
  text[999] = '\xc3';
  scratch_put("bad.txt", text, 1000);
  expect(0,
         "data.lua:11: warning: plan.data: 1 file, 20 bytes: that is 2 samples of "
         "batch.seq tokens, so that a step of 4 sequences sees some of them more than "
         "once\n",
         "check data.lua -D kind=text -D file=few.txt");
  expect(2,
         "bad.txt: error: byte 195 at offset 999 is not below the model's vocabulary of "
         "128 (plan.data, data.lua:11)\n",
         "check data.lua -D kind=text -D file=bad.txt");
}
END_TEST

START_TEST(check_looks_at_validation_data) {
  put_text("a.txt");
  put_text("v.txt");
  FILE *f = fopen(scratch_path("v.txt"), "ab");
  ck_assert(f && fputs("\xc3", f) >= 0 && fclose(f) == 0);
#define DATA(more) "check validate.lua --set 'data." more "'"
  expect(0, "", DATA("val_fraction=0.1"));
  expect(1, "plan.data.val_fraction: ", DATA("val_fraction=0.6"));
  expect(2, "v.txt: error: byte 195 at offset 1000 is not below",
         "check validate.lua -D val=v.txt");
  expect(1, "plan.data: val and val_fraction both say what is for validation",
         DATA("val_fraction=0.1") " -D val=a.txt");
  expect(1, "plan.data.val.val: is in the data for validation, which has none itself",
         "check validate.lua -D val=a.txt -D deeper=v.txt");
  expect(1, "plan.data.val.val_fraction: all of these data are for validation",
         DATA("val.val_fraction=0.1") " -D val=a.txt");
  expect(1, "plan.data.val: expected ", DATA("val=7"));
#undef DATA
}
END_TEST

START_TEST(weights_go_with_files) {
  put_text("a.txt");
  put_text("b.txt");
  expect(0, "75 % of 1 file, 1.0 k bytes; 25 % of 1 file, 1.0 k bytes", "run blend.lua");
  expect(1,
         "plan.data.weights: 1 of them for 2 names of files; each name, which may be a "
         "pattern, has one",
         "check blend.lua --set 'data.weights={1}'");
  expect(1, "plan.data.weights[2]: expected a number above 0, got number 0",
         "check blend.lua --set 'data.weights={1,0}'");
  expect(1, "plan.data.weights: expected a list of numbers, got",
         "check blend.lua --set 'data.weights=3'");
  expect(1, "plan.data.format: ", "check blend.lua --set 'data.format=\"raw\"'");
}
END_TEST

/* ---- a file that is cut short while it is read ---- */

START_TEST(a_run_ends_when_its_data_is_cut) {
  put_text("a.txt");
  Process p = process_start(SECONDS, "$weft run data.lua -D kind=text -D file=a.txt "
                                     "--set train.steps=100000000 --threads 1");
  ck_assert(process_wait_for(&p, p.out, "step      3"));
  ck_assert_int_eq(truncate(scratch_path("a.txt"), 10), 0);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 2, "exit code %d: %s", o.code, o.err);
  ck_assert_msg(strstr(o.err, "a.txt: error: has become shorter: it had 1000 bytes"),
                "%s", o.err);
}
END_TEST

/* ---- packed documents ---- */

START_TEST(separators_are_said_once) {
  expect(1, "plan.packed: eot and bos both say where documents end; give one of them",
         "check base.lua --set 'packed={eot=1,bos=2}'");
  expect(1, "plan.packed: which token separates documents?",
         "check base.lua --set packed={}");
  expect(1, "plan.packed.bos: token 5000 is not below model.vocab_size",
         "check base.lua --set packed={bos=5000}");
  expect(1, "plan.packed.labels: unknown",
         "check base.lua --set 'packed={eot=1,labels=\"some\"}'");
  expect(0, "", "verify base.lua --set 'packed={bos=1,labels=\"within\"}'");
}
END_TEST

/* The losses of a run of packed.lua. */
static void losses(const char *args, double out[4]) {
  Outcome o = process_run(SECONDS, "$weft run packed.lua %s --log log", args);
  char *s;
  size_t n;
  ck_assert_msg(o.code == 0, "%s: %s", args, o.err);
  ck_assert_int_eq(file_read(NULL, scratch_path("log"), 1 << 20, &s, &n, &scratch_error),
                   WEFT_OK);
  const char *at = s;
  for (int i = 0; i < 4; i++) {
    at = strstr(at, "\"loss\":");
    ck_assert_ptr_nonnull(at);
    out[i] = strtod(at += 7, NULL);
  }
  mem_free(NULL, s, n + 1);
  unlink(scratch_path("log"));
}

/* The same documents, one in each sequence of 8, and several in those of 16: every step
 * has all of them, so it must do the same. */
START_TEST(packing_does_not_change_the_loss) {
  static const int32_t lengths[] = {8, 8, 5, 5, 5, 6, 6, 7, 7, 5, 5, 6};
  double apart[4], packed[4];
  megatron_put("m", &(MegatronFile){4, LEN(lengths), 20, lengths, 0, NULL});
  losses("-D seq=8 -D global=12", apart);
  losses("-D seq=16 -D global=5", packed);
  ck_assert_double_gt(fabs(apart[3] - apart[0]), 1e-2);
  for (int i = 0; i < 4; i++)
    ck_assert_double_eq_tol(apart[i], packed[i], 2e-6 * apart[i]);
}
END_TEST

START_TEST(sizes_of_packs_are_checked) {
  expect(1, "plan.packed.size: 4 is not batch.seq = 8, the length of a sequence",
         "check base.lua --set 'packed={size=4}'");
  expect(1, "plan.packed.labels: with size labels are of their token's document",
         "check base.lua --set 'packed={size=8,labels=\"all\"}'");
  expect(1, "plan.packed.too_long: says what size needs, which is not given",
         "check base.lua --set 'packed={eot=1,too_long=\"drop\"}'");
  expect(0, "", "verify base.lua --set 'packed={size=8}'");
}
END_TEST

Suite *data_suite(void);
Suite *data_suite(void) {
  Suite *s = suite_create("data");
  TCase *t = tcase_create("weft");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_add_test(t, pipes_do_not_hang);
  tcase_add_test(t, large_files_are_no_plans);
  tcase_add_test(t, data_outside_needs_its_folder);
  tcase_add_test(t, models_outside_need_their_folder);
  tcase_add_test(t, scripts_name_folders);
  tcase_add_test(t, missing_files_are_told);
  tcase_add_test(t, check_looks_at_data);
  tcase_add_test(t, check_looks_at_validation_data);
  tcase_add_test(t, weights_go_with_files);
  tcase_add_test(t, a_run_ends_when_its_data_is_cut);
  tcase_add_test(t, separators_are_said_once);
  tcase_add_test(t, packing_does_not_change_the_loss);
  tcase_add_test(t, sizes_of_packs_are_checked);
  suite_add_tcase(s, t);
  return s;
}
