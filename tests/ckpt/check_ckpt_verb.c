/* check_ckpt_verb.c - weft ckpt: checkpoints that are listed, checked, compared and
 * converted. */
#include <check.h>
#include <stdlib.h>

#include "tests/harness/ckpt_cli.h"

START_TEST(checkpoints_are_listed_and_checked) {
  run(0, "");
  const char *s = ckpt(0, "ls runs");
  has(s, "step-00000002  2");
  has(s, "tp=2  plan  latest\n");
  has(ckpt(0, "ls runs --json"), "\"name\": \"step-00000006\"");
  has(ckpt(0, "verify runs"), "runs/step-00000004: complete, ");
  process_run(10,
              "sh -c 'printf x | dd of=runs/step-00000004/rank-00001.safetensors bs=1 "
              "seek=20000 conv=notrunc 2>/dev/null'");
  s = ckpt(2, "verify runs");
  has(s, "runs/step-00000002: complete, ");
  has(s, "runs/step-00000006: complete, ");
  has(s, "runs/step-00000004/rank-00001.safetensors: error: tensor \"");
  /* One whose manifest is damaged or gone is no checkpoint, and not nothing either. */
  process_run(10, "sh -c 'echo x >>runs/step-00000006/manifest.json'");
  s = ckpt(2, "verify runs");
  has(s, "runs/step-00000002: complete, ");
  has(s, "runs/step-00000006/manifest.json: error: does not end with a checksum");
  s = ckpt(0, "ls runs");
  has(s, "step-00000004  2");
  has(s, "warning: runs/step-00000006/manifest.json: does not end with a checksum");
  process_run(10, "sh -c 'rm -r runs/step-0000000[24]'");
  has(ckpt(2, "verify runs --json"), "\"valid\": false");
  has(run(2, "--steps 6").err, "runs: error: has step-00000006, which is no checkpoint");
  process_run(10, "rm runs/step-00000006/manifest.json");
  has(ckpt(2, "verify runs"), "there is no checkpoint");
  has(run(2, "").err, "runs: error: has step-00000006, which is no checkpoint");
  has(ckpt(2, "verify nothing"), "there is no checkpoint");
  has(ckpt(2, "verfy x"), "did you mean \"verify\"?");
  has(ckpt(2, "diff x"), "weft ckpt diff takes CKPT CKPT, got 1 argument");
}
END_TEST

static long long written(const char *set) {
  const char *s = ckpt(0, arena_printf(scratch_arena, "plan plan.lua --json %s", set));
  const char *at = strstr(s, "\"written\": ");
  ck_assert_msg(at != NULL, "%s", s);
  return atoll(at + 11);
}

/* What is written of a parameter: its two averages are none of one that is frozen, and
 * Muon's matrices have one. */
START_TEST(planned_bytes_are_those_of_states) {
  long long all = written("");
  ck_assert_int_eq(all % 12, 0);
  ck_assert_int_eq(written("--set 'freeze={\"embed_tokens\"}'"), all - 2 * 4 * 32 * 16);
  long long layer = 4 * 16 * 16 + 3 * 16 * 32;
  ck_assert_int_eq(written("--set 'optimizer=weft.muon { lr = 1e-3 }'"),
                   all - 2 * 4 * layer);
}
END_TEST

/* ", 9 are in one of them only" */
static int in_one_only(const char *args) {
  const char *said = ckpt(1, args), *at = strstr(said, " in one of them only");
  ck_assert_msg(at != NULL, "%s", said);
  while (*at != ',') at--;
  return atoi(at + 1);
}

/* What is frozen has no states: neither checkpoint has them. */
START_TEST(states_that_neither_has_do_not_differ) {
  run(0, "--steps 1 --set checkpoint.dir=a");
  run(0, "--steps 1 --set checkpoint.dir=b --set model.num_hidden_layers=3 --set "
         "'freeze={\"layers.2\"}'");
  const char *said = ckpt(1, "diff a b");
  has(said, "param/model.layers.2.mlp.down_proj.weight: only in the second one");
  ck_assert_msg(!strstr(said, "exp_avg/model.layers.2."), "%s", said);
  ck_assert_int_eq(in_one_only("diff a b"), 9);
  ck_assert_int_eq(in_one_only("diff b a"), 9);
}
END_TEST

START_TEST(checkpoints_are_converted_and_compared) {
  run(0, "");
  has(ckpt(0, "convert plan.lua plan.lua runs one --set mesh.tp=1 --set strategy=zero"),
      "one/step-00000006: step 6 as 1 rank writes it");
  has(ckpt(2, "convert plan.lua plan.lua runs one"),
      "one/step-00000006: error: is there already");
  has(ckpt(2, "convert plan.lua plan.lua runs runs --set mesh.tp=1 --set strategy=zero"),
      "runs/step-00000006: error: is there already");
  has(ckpt(0, "diff runs one"), " tensors, 0 differ, 0 are in one of them only");
  has(ckpt(1, "diff runs runs/step-00000004"),
      "param/lm_head.weight: 512 of 512 elements differ");
  has(ckpt(2, "convert plan.lua plan.lua runs other --set train.seed=1"),
      "belongs to another run:\n  plan.train.seed");
  has(ckpt(2, "convert plan.lua plan.lua runs other --set model.hidden_size=32"),
      "is of another model");
  has(ckpt(0, "plan plan.lua runs"), "2 ranks; reads runs/step-00000006");
  has(ckpt(0, "plan plan.lua --from plan.lua --json"), "\"rank_reads\": ");
  Outcome o = process_run(50, "$weft run plan.lua --threads 1 --set mesh.tp=1 --set "
                              "strategy=zero --set checkpoint.dir=one --resume auto "
                              "--steps 7");
  ck_assert_msg(o.code == 0 && strstr(o.out, "step      6/7"), "%s%s", o.out, o.err);
}
END_TEST

/* A file that is gone, or cut short, is seen without reading it. */
START_TEST(a_listing_marks_what_is_incomplete) {
  run(0, "--steps 4");
  ck_assert_ptr_null(strstr(ckpt(0, "ls runs"), "incomplete"));
  process_run(10, "sh -c 'rm runs/step-00000002/rank-00001.safetensors; "
                  "truncate -s 100 runs/step-00000004/rank-00000.safetensors'");
  const char *text = ckpt(0, "ls runs");
  has(text, "  incomplete: rank-00001.safetensors\n");
  has(text, "  latest  incomplete: rank-00000.safetensors\n");
  has(ckpt(0, "ls runs --json"), "\"complete\": false");
}
END_TEST

Suite *ckpt_verb_suite(void) {
  Suite *s = suite_create("ckpt_verb");
  TCase *c = tcase_create("weft ckpt");
  tcase_set_timeout(c, 180);
  tcase_add_checked_fixture(c, ckpt_cli_setup, scratch_teardown);
  tcase_add_test(c, checkpoints_are_listed_and_checked);
  tcase_add_test(c, planned_bytes_are_those_of_states);
  tcase_add_test(c, states_that_neither_has_do_not_differ);
  tcase_add_test(c, checkpoints_are_converted_and_compared);
  tcase_add_test(c, a_listing_marks_what_is_incomplete);
  suite_add_tcase(s, c);
  return s;
}
