/* check_ckpt_run.c - checkpoints of weft run, as a user meets them: what goes on, what is
 * refused, what is told. */
#include <check.h>
#include <stdlib.h>

#include "tests/harness/ckpt_cli.h"

START_TEST(a_run_goes_on) {
  Outcome all = run(0, "");
  has(all.err, "checkpoint of step 6 in runs");
  ck_assert_str_eq(scratch_get(scratch_path("runs/latest")), "step-00000006\n");
  run(0, "--steps 4 --set checkpoint.dir=half");
  Outcome rest = run(0, "--set checkpoint.dir=half --resume auto");
  has(rest.err, "resumes from step 4");
  const char *want = losses(all.out);
  ck_assert_str_eq(losses(rest.out), want + strlen(want) / 6 * 4);
  /* By name, on another mesh. */
  rest = run(0, "--set checkpoint.dir=other --set mesh.tp=1 --resume runs/step-00000004");
  has(rest.err, "plan.mesh.tp: 2 in the checkpoint, 1 now");
  rest = run(0, "--set checkpoint.dir=third --set mesh={} --resume runs/step-00000004");
  has(rest.err, "plan.mesh.tp: 2 in the checkpoint, not given now");
  /* Another run's folder is not this one's. */
  rest = run(2, "--resume half");
  has(rest.err, "runs: error: has checkpoints already");
  /* Nothing is left to do. */
  rest = run(0, "--resume auto");
  ck_assert_str_eq(rest.out, "");
  has(rest.err, ", the last one: nothing is left to train\n");
  /* What no step has measured is not 0, which would be the best of all losses. */
  rest = run(0, "--resume auto --json");
  has(rest.out, "\"loss\": null,\n");
  has(rest.out, "\"grad_norm\": null,\n");
  has(rest.out, "\"lr\": null,\n");
}
END_TEST

/* From the newest one that is whole; what is not is named, and why. */
START_TEST(auto_goes_back_to_a_whole_one) {
  run(0, "--set checkpoint.keep=0");
  process_run(10, "rm runs/step-00000006/rank-00001.safetensors");
  process_run(10, "truncate -s 100 runs/step-00000004/rank-00000.safetensors");
  Outcome o = run(0, "--resume auto --set checkpoint.every=0");
  has(o.err,
      "warning: the checkpoint step-00000006 is incomplete or damaged and is skipped: "
      "runs/step-00000006/rank-00001.safetensors: cannot be opened: No such file");
  has(o.err, "warning: the checkpoint step-00000004 is incomplete or damaged and is "
             "skipped: runs/step-00000004/rank-00000.safetensors: is 100 bytes long, it "
             "was written with ");
  has(o.err, "resumes from step 2 ");
  ck_assert_ptr_null(strstr(o.err, "the last one"));
  has(ckpt(0, "verify runs/step-00000006"), "complete");
  /* The one that `latest` names may be gone, or have no manifest. */
  process_run(10, "rm -r runs/step-00000006");
  o = run(0, "--resume auto --set checkpoint.every=0 --steps 3");
  has(o.err, "warning: the checkpoint step-00000006 is incomplete or damaged");
  process_run(10, "rm runs/step-00000003/manifest.json");
  o = run(0, "--resume auto --set checkpoint.every=0 --steps 3");
  has(o.err, "warning: the checkpoint step-00000003 is incomplete or damaged and is "
             "skipped: runs/step-00000003/manifest.json: ");
  has(o.err, "resumes from step 2 ");
}
END_TEST

/* One that is named is that one or none; and where none is whole, nothing is begun. */
START_TEST(what_is_named_must_be_whole) {
  run(0, "");
  process_run(10, "sh -c 'rm runs/step-0000000[46]/rank-00001.safetensors'");
  has(run(2, "--resume runs/step-00000006").err, "rank-00001.safetensors: ");
  has(run(2, "--resume runs").err, "runs/step-00000006/rank-00001.safetensors: ");
  process_run(10, "sh -c 'echo >runs/step-00000002/manifest.json'");
  Outcome o = run(2, "--resume auto");
  has(o.err, "runs: error: none of its 3 checkpoints is complete; the last one: "
             "runs/step-00000006/rank-00001.safetensors: cannot be opened");
  ck_assert_str_eq(listed("runs"), "latest step-00000002 step-00000004 step-00000006 ");
}
END_TEST

START_TEST(auto_begins_where_there_is_nothing) {
  Outcome o = run(0, "--steps 1 --resume auto");
  has(o.err, "there is no checkpoint yet: the run starts at step 0");
  o = run(2, "--resume nowhere");
  has(o.err, "nowhere: error: there is no checkpoint");
}
END_TEST

/* Those of each checkpoint that is kept, or of the last one: the files of --export. */
START_TEST(weights_beside_checkpoints) {
  run(0, "--set checkpoint.save_consolidated=every --set checkpoint.keep=2 --export end");
  ck_assert_str_eq(
      listed("runs"),
      "latest step-00000004 step-00000006 weights-00000004 weights-00000006 ");
  Outcome o = process_run(20, "diff -r runs/weights-00000006 end");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = process_run(20, "diff -q runs/weights-00000004/model.safetensors "
                      "runs/weights-00000006/model.safetensors");
  ck_assert_int_eq(o.code, 1);
  run(0, "--set checkpoint.save_consolidated=final --set checkpoint.dir=f");
  ck_assert_str_eq(listed("f"),
                   "latest step-00000002 step-00000004 step-00000006 weights-00000006 ");
  /* Steps that are taken again have their weights written again; what an end has left
   * half is removed. */
  o = process_run(20, "sh -c 'mkdir f/weights-00000002.77-0.tmp; "
                      "echo half >f/weights-00000002.77-0.tmp/model.safetensors; "
                      "echo old >f/weights-00000006/model.safetensors'");
  ck_assert_int_eq(o.code, 0);
  run(0, "--resume f/step-00000004 --set checkpoint.save_consolidated=true "
         "--set checkpoint.dir=f");
  ck_assert_str_eq(listed("f"),
                   "latest step-00000002 step-00000004 step-00000006 weights-00000006 ");
  o = process_run(20, "diff -r f/weights-00000006 end");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = run(1, "--set checkpoint.save_consolidated=often");
  has(o.err, "unknown value \"often\"");
}
END_TEST

START_TEST(another_run_is_refused) {
  run(0, "--steps 2");
  Outcome o = run(2, "");
  has(o.err,
      "runs: error: has checkpoints already, the last one of step 2: --resume auto");
  o = run(2, "--resume auto --set train.seed=7");
  has(o.err, "belongs to another run:\n  plan.train.seed: 0 in the checkpoint, 7 now");
  o = run(2, "--resume auto --set batch.global=4");
  has(o.err, "plan.batch.global: 2 in the checkpoint, 4 now (each step would take other");
  has(o.err, "\n  (a new run begins with its weights, at step 0: weft ckpt export PLAN "
             "runs/step-00000002 DIR, then model = weft.hf \"DIR\" in the plan)");
  o = run(2, "--resume auto --set model.rope_theta=77");
  has(o.err, "the parameters are of another model");
  ck_assert_ptr_null(strstr(o.err, "weft ckpt export"));
  o = run(2, "--resume auto --set model.hidden_size=32");
  has(o.err,
      "is of another model:\n  model.embed_tokens.weight: shape [32, 16], the model "
      "has [32, 32]");
  o = run(0, "--resume auto --set optimizer.clip=7");
  has(o.err, "warning: plan.optimizer.clip: 1 in the checkpoint, 7 now");
}
END_TEST

/* Who reads parameters alone takes them from a run of any optimizer, also those that were
 * frozen there; a run does not go on without states. */
START_TEST(parameters_need_no_states) {
  static const char freed[] = "--set \"freeze={'norm','embed_tokens'}\"", small[] = SMALL;
  const char *rest = strstr(small, "  checkpoint = ");
  const char *sgd =
      arena_printf(scratch_arena, "%.*s  optimizer = weft.sgd { lr = 1 },\n%s",
                   (int)(rest - small), small, rest);
  scratch_put("sgd.lua", sgd, strlen(sgd));
  static const char *const plans[] = {"plan.lua", "sgd.lua"},
                           *const says[] = {"has no optimizer states of ",
                                            "has the states of weft.adamw, the plan's "
                                            "optimizer is weft.sgd"};
  run(0, arena_printf(scratch_arena, "--steps 2 %s", freed));
  for (int i = 0; i < LEN(plans); i++) {
    ckpt(0, arena_printf(scratch_arena, "export %s runs out%d", plans[i], i));
    Outcome o = process_run(50, "$weft eval %s --ckpt runs --batches 1", plans[i]);
    ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
    o = process_run(50, "$weft run %s --resume auto --threads 1", plans[i]);
    ck_assert_int_eq(o.code, 2);
    has(o.err, says[i]);
  }
}
END_TEST

/* Lists, functions and options that lie in no place of Plan. */
START_TEST(what_is_written_otherwise_is_told) {
  static const char text[] =
      "local weft = require 'weft'\n"
      "local k = weft.var('K', 1)\n"
      "local function loss(g, x)\n"
      "  return g:sum_all(g:scale(g:token_losses(x.logits, x.labels), { scale = k }))\n"
      "end\n"
      "return weft.plan { mesh = { dp = 1 }, data = weft.synthetic {},\n"
      "  model = weft.model { 'llama-tiny', num_hidden_layers = 1, hidden_size = 16,\n"
      "    intermediate_size = 16, num_attention_heads = 2, num_key_value_heads = 2 },\n"
      "  loss = k < 3 and { loss, per = 'tokens' } or { 'cross_entropy', z_loss = k },\n"
      "  batch = { global = 2, seq = 4 }, groups = { { 'norm', lr = k / 8 } },\n"
      "  train = { steps = 4 }, checkpoint = { dir = weft.var('DIR', 'w'), every = 2 } "
      "}\n";
  scratch_put("written.lua", text, strlen(text));
  process_run(50, "$weft run written.lua --threads 1 --steps 2");
  process_run(50, "$weft run written.lua --threads 1 --steps 2 -D K=3 -D DIR=z");
  Outcome o = process_run(50, "$weft run written.lua --threads 1 --resume auto -D K=2");
  has(o.err, "plan.groups: { { \"norm\", lr = 0.125 } } in the checkpoint, "
             "{ { \"norm\", lr = 0.25 } } now");
  has(o.err, "plan.loss: { function ");
  o = process_run(
      50, "$weft run written.lua --threads 1 --resume auto -D K=4 -D DIR=z --steps 4");
  has(o.err, "plan.loss.z_loss: 3 in the checkpoint, 4 now");
  o = process_run(50, "$weft run written.lua --threads 1 --resume auto -D K=2 --steps 5");
  ck_assert_msg(!strstr(o.err, "in the checkpoint"), "%s", o.err);
}
END_TEST

/* It grew from 8 to 32 before the run ended. */
START_TEST(the_loss_scale_goes_on) {
  static const char f16[] =
      "--set precision.param_dtype=f16 --set precision.init_scale=8 "
      "--set precision.growth_interval=2";
  process_run(50, "$weft run plan.lua --threads 1 %s --steps 4", f16);
  Outcome o = process_run(
      50, "$weft run plan.lua --threads 1 %s --resume auto --log more.jsonl", f16);
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *step = strstr(scratch_get(scratch_path("more.jsonl")), "\"loss\"");
  ck_assert_ptr_nonnull(step);
  has(arena_printf(scratch_arena, "%.120s", step), "\"loss_scale\":32,");
}
END_TEST

/* A rate that is constant depends on no steps; values are shown as one writes them, and
 * what is cut says so. */
START_TEST(notes_of_resuming_say_what_matters) {
  run(0, "--steps 2 --set optimizer.lr=0.1");
  Outcome o =
      run(0, "--resume auto --steps 3 --set optimizer.lr=0.2 --set train.steps=7");
  has(o.err, "0.1 in the checkpoint, 0.2 now");
  ck_assert_msg(!strstr(o.err, "lr.steps") && !strstr(o.err, "without steps of its own"),
                "%s", o.err);
  o = run(2, "--resume auto --set model.rms_norm_eps=0.001");
  has(o.err, "... in the checkpoint, ");
  o = run(0, "--resume auto --set train.steps=1");
  has(o.err, "resumes from step 3 (");
  has(o.err, "), after the last one, 1: nothing is left to train");
}
END_TEST

/* What differs is among the diagnostics of --json. */
START_TEST(warnings_of_resuming_are_in_json) {
  run(0, "--steps 2");
  Outcome o = process_run(60, "$weft run plan.lua --threads 1 --resume auto --json --set "
                              "train.steps=7 --set optimizer.lr=2e-3");
  ck_assert_msg(o.code == 0, "%s", o.err);
  has(o.out, "\"summary\": \"plan.optimizer.lr.max: 0.001 in the checkpoint, 0.002 now");
  has(o.out, "\"severity\": \"warning\"");
  has(o.err, "weft: warning: plan.optimizer.lr.max: 0.001 in");
}
END_TEST

static const char *const ways[] = {"", "--procs 2"};

/* The state that the last good step has left is saved, also where its files were still
 * being written when the step after it failed. */
START_TEST(a_loss_that_is_not_finite_costs_no_checkpoint) {
  Outcome o = run(1, arena_printf(scratch_arena,
                                  "--set optimizer.lr=1000 --set checkpoint.every=1 %s",
                                  ways[_i]));
  const char *at = strstr(o.err, "weft: step ");
  ck_assert_msg(at != NULL, "%s", o.err);
  int step = atoi(at + 11);
  has(at, " is nan; first seen on rank ");
  has(o.err, arena_printf(scratch_arena, "checkpoint of step %d in runs", step));
  ck_assert_str_eq(scratch_get(scratch_path("runs/latest")),
                   arena_printf(scratch_arena, "step-%08d\n", step));
  has(ckpt(0, arena_printf(scratch_arena, "verify runs/step-%08d", step)), "complete");
}
END_TEST

Suite *ckpt_run_suite(void) {
  Suite *s = suite_create("ckpt_run");
  TCase *c = tcase_create("weft run");
  tcase_set_timeout(c, 180);
  tcase_add_checked_fixture(c, ckpt_cli_setup, scratch_teardown);
  tcase_add_test(c, a_run_goes_on);
  tcase_add_test(c, auto_begins_where_there_is_nothing);
  tcase_add_test(c, auto_goes_back_to_a_whole_one);
  tcase_add_test(c, what_is_named_must_be_whole);
  tcase_add_test(c, weights_beside_checkpoints);
  tcase_add_test(c, another_run_is_refused);
  tcase_add_test(c, parameters_need_no_states);
  tcase_add_test(c, what_is_written_otherwise_is_told);
  tcase_add_test(c, the_loss_scale_goes_on);
  tcase_add_test(c, warnings_of_resuming_are_in_json);
  tcase_add_test(c, notes_of_resuming_say_what_matters);
  tcase_add_loop_test(c, a_loss_that_is_not_finite_costs_no_checkpoint, 0, LEN(ways));
  suite_add_tcase(s, c);
  return s;
}
