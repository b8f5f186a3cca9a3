/* check_ckpt_data.c - runs that go on with other data, or that evaluate by others. */
#include <check.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/ckpt_cli.h"
#include "vm/base/checksum.h"

/* Takes a fact out of a manifest, as an earlier weft has written it. */
static void forget_fact(const char *path, const char *what) {
  const char *s = scratch_get(scratch_path(path)), *at = strstr(s, what);
  char hash[CHECKSUM_TEXT];
  ck_assert_ptr_nonnull(at);
  while (at[-1] != '\n') at--;
  s = arena_printf(scratch_arena, "%.*s%s", (int)(at - s), s, strchr(at, '\n') + 1);
  const char *end = strstr(s, ",\n  \"checksum\"");
  ck_assert_ptr_nonnull(end);
  checksum_text(checksum(s, (size_t)(end - s)), hash);
  s = arena_printf(scratch_arena, "%.*s,\n  \"checksum\": \"%s\"\n}\n", (int)(end - s), s,
                   hash);
  scratch_put(path, s, strlen(s));
}

/* Of the same size, with the same ends: other bytes between them are another run's. */
START_TEST(other_data_of_the_same_size) {
  enum { N = 40000 };
  static char text[N];
  for (int i = 0; i < N; i++) text[i] = (char)(1 + i % 31);
  scratch_put("t.txt", text, N);
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
      "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
      "  vocab_size = 32 }, batch = { global = 2, micro = 1, seq = 8 },\n"
      "  data = weft.text { 't.txt' }, train = { steps = 6 },\n"
      "  checkpoint = { dir = 'runs' } }\n";
  scratch_put("plan.lua", plan, sizeof plan - 1);
  run(0, "--steps 2");
  run(0, "--steps 3 --resume auto");
  forget_fact("runs/step-00000003/manifest.json", "\"samples of the data\": \"");
  run(0, "--steps 4 --resume auto");
  for (int i = N / 3; i < 2 * N / 3; i++) text[i] = (char)(1 + i % 29);
  scratch_put("t.txt", text, N);
  Outcome o = run(2, "--resume auto");
  has(o.err, "belongs to another run:\n  samples of the data: ");
  ck_assert_ptr_null(strstr(o.err, "\n  data: "));
}
END_TEST

/* The same ids in three kinds of files. */
static void put_ids(const char *name, const int32_t *id, int n) {
  uint16_t raw[400];
  ck_assert_int_le(n, LEN(raw));
  for (int i = 0; i < n; i++) raw[i] = (uint16_t)id[i];
  scratch_put(arena_printf(scratch_arena, "%s-16.bin", name), raw,
              (size_t)n * sizeof *raw);
  scratch_put(arena_printf(scratch_arena, "%s-32.bin", name), id, (size_t)n * sizeof *id);
  megatron_put_ids(arena_printf(scratch_arena, "%s-indexed", name),
                   &(MegatronFile){8, 1, 0, (int32_t[]){n}, 0, NULL}, id);
}

static const char converted[] =
    "local weft = require 'weft'\n"
    "local form, width = weft.var('form', '16'), weft.var('width', 'u16')\n"
    "local function files(name)\n"
    "  return { name .. '-' .. form .. '.bin', dtype = width ~= 'any' and width or nil "
    "}\n"
    "end\n"
    "local data = files 'train'\n"
    "data.val = weft.tokens(files 'val')\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
    "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
    "  vocab_size = 32 }, batch = { global = 2, micro = 1, seq = 8 },\n"
    "  data = weft.tokens(data),\n"
    "  train = { steps = 6, log_every = 1, eval_every = 2, eval_batches = 1 },\n"
    "  checkpoint = { dir = 'runs', every = 2 } }\n";

/* Files that are converted between two parts of a run are the same data: it goes on with
 * the same losses, and with the best evaluation so far. */
START_TEST(the_same_tokens_in_another_format) {
  int32_t id[400];
  for (int i = 0; i < LEN(id); i++) id[i] = i * 7 % 31;
  put_ids("train", id, LEN(id));
  put_ids("val", id, LEN(id) / 2);
  scratch_put("plan.lua", converted, sizeof converted - 1);
  const char *whole = losses(run(0, "--set checkpoint.dir=whole").out);
  run(0, "--steps 2");
  Outcome indexed = run(0, "--steps 4 --resume auto -D form=indexed -D width=any");
  ck_assert_ptr_null(strstr(indexed.err, "data"));
  ck_assert_ptr_null(strstr(indexed.err, "is forgotten"));
  Outcome wide = run(0, "--resume auto -D form=32 -D width=u32");
  ck_assert_ptr_null(strstr(wide.err, "data"));
  has(whole, losses(indexed.out));
  has(whole, losses(wide.out));
  id[1]++;
  put_ids("train", id, LEN(id));
  Outcome other = run(2, "--resume runs/step-00000002 -D form=indexed -D width=any");
  has(other.err, "belongs to another run:\n  data: 1 file (raw u16), ");
  has(other.err, " in the checkpoint, 1 file (Megatron), ");
}
END_TEST

/* Other data for validation change no step, but what evaluations say. */
static void put_evaluated(const char *checkpoint) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
      "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
      "  vocab_size = 32 }, batch = { global = 2, micro = 1, seq = 8 },\n"
      "  data = weft.synthetic { val = weft.synthetic { vocab = weft.var('v', 16) } },\n"
      "  optimizer = weft.adamw { lr = 1e-2 },\n"
      "  train = { steps = 4, eval_every = 2, eval_batches = 1 },\n"
      "  checkpoint = { dir = 'runs', %s } }\n";
  const char *text = arena_printf(scratch_arena, plan, checkpoint);
  scratch_put("plan.lua", text, strlen(text));
}

/* What was best by other samples, or by another loss, is not compared with. */
START_TEST(other_validation_data_are_told) {
  put_evaluated("every = 2");
  run(0, "-D v=16 --steps 2");
  Outcome o = run(0, "-D v=16 --steps 3 --resume auto");
  ck_assert_ptr_null(strstr(o.err, "data for validation"));
  ck_assert_ptr_null(strstr(o.err, "is forgotten"));
  o = run(0, "-D v=32 --resume auto --json");
  has(o.err, "data for validation: ");
  has(o.err, "evaluations are of other samples than before");
  has(o.err, "evaluations are not those of before: the best loss so far, ");
  has(o.out, "\"best_eval_step\": 4,");
  o = run(0, "-D v=16 --set 'loss={\"cross_entropy\",z_loss=1}' --set checkpoint.dir=b "
             "--resume runs/step-00000002 --json");
  has(o.err, "is forgotten");
  has(o.out, "\"best_eval_step\": 4,");
  o = run(0, "-D v=16 --set train.eval_batches=2 --set checkpoint.dir=c "
             "--resume runs/step-00000002");
  has(o.err, "after 2 steps, is forgotten");
}
END_TEST

/* So is what else changes steps, or what an evaluation measures of the same samples. */
START_TEST(what_changes_losses_is_told) {
  put_evaluated("every = 2");
  run(0, "--steps 2 --set packed={eot=3} --set train.neftune_noise_alpha=5");
  Outcome o = run(0, "--set packed={eot=3} --resume auto --steps 3");
  has(o.err, "warning: plan.train.neftune_noise_alpha: 5 in the checkpoint, 0 now");
  ck_assert_ptr_null(strstr(o.err, "is forgotten"));
  o = run(0, "--set 'packed={eot=3,labels=\"within\"}' --resume runs/step-00000002 "
             "--set train.neftune_noise_alpha=5 --set checkpoint.dir=b");
  has(o.err, "plan.packed.labels: all in the checkpoint, within now");
  has(o.err, "evaluations are not those of before: the best loss so far, ");
  ck_assert_ptr_null(strstr(o.err, "neftune"));
}
END_TEST

/* A better one that was not written does not cost the one before it. */
START_TEST(the_best_that_there_is_stays) {
  put_evaluated("every = 5, keep = 1, keep_best = true");
  process_run(10, "sh -c 'for i in 4 6; do mkdir -p runs/step-0000000$i.tmp; "
                  "echo >runs/step-0000000$i.tmp/x; done'");
  Outcome o = run(1, "--steps 6");
  has(o.err, "warning: the checkpoint of step 4 was not written: ");
  has(o.err, "after 6 steps, of which there is no checkpoint\n");
  has(listed("runs"), "latest step-00000002 step-00000004.tmp step-00000005 ");
  /* Once one can be written it goes. */
  process_run(10, "sh -c 'rm runs/step-0000000[46].tmp/x'");
  o = run(0, "--steps 6 --resume auto");
  has(o.err, "after 6 steps: its checkpoint is in runs/step-00000006\n");
  ck_assert_str_eq(listed("runs"), "latest step-00000006 ");
}
END_TEST

Suite *ckpt_data_suite(void) {
  Suite *s = suite_create("ckpt_data");
  TCase *c = tcase_create("weft run");
  tcase_set_timeout(c, 180);
  tcase_add_checked_fixture(c, ckpt_cli_setup, scratch_teardown);
  tcase_add_test(c, other_data_of_the_same_size);
  tcase_add_test(c, the_same_tokens_in_another_format);
  tcase_add_test(c, other_validation_data_are_told);
  tcase_add_test(c, what_changes_losses_is_told);
  tcase_add_test(c, the_best_that_there_is_stays);
  suite_add_tcase(s, c);
  return s;
}
