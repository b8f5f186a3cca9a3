/* check_ckpt_run.c - checkpoints of weft run, as a user meets them. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/generate/megatron_files.h"
#include "tests/ranks/killed_runs.h"
#include "tests/ranks/mpirun.h"
#include "tests/harness/process.h"
#include "vm/base/checksum.h"

#define SMALL                                                                            \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan {\n"                                                                 \
  "  model = weft.model { 'llama', hidden_size = 16, num_hidden_layers = 2,\n"           \
  "    num_attention_heads = 2, num_key_value_heads = 2, intermediate_size = 32,\n"      \
  "    vocab_size = 32 },\n"                                                             \
  "  mesh = { tp = 2 }, strategy = 'fsdp2',\n"                                           \
  "  batch = { global = 2, micro = 1, seq = 8 },\n"                                      \
  "  optimizer = weft.adamw { lr = 1e-3 },\n"                                            \
  "  data = weft.synthetic {},\n"                                                        \
  "  train = { steps = 6, log_every = 1 },\n"                                            \
  "  checkpoint = { dir = 'runs', every = 2 },\n"                                        \
  "}\n"

static void setup(void) {
  scratch_setup();
  scratch_put("plan.lua", SMALL, strlen(SMALL));
}

static void has(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

static Outcome run(int code, const char *args) {
  Outcome o = process_run(50, "$weft run plan.lua --threads 1 %s", args);
  ck_assert_msg(o.code == code, "%d: %s%s", o.code, o.out, o.err);
  return o;
}

static const char *listed(const char *dir) {
  return process_run(20, "sh -c 'ls %s | tr \"\\n\" \" \"'", dir).out;
}

/* The column of losses of printed steps. */
static const char *losses(const char *out) {
  const char *s = "";
  for (const char *at = out; (at = strstr(at, "loss ")); at++)
    s = arena_printf(scratch_arena, "%s%.14s\n", s, at);
  return s;
}

/* Of weft ckpt. */
static const char *ckpt(int code, const char *args) {
  Outcome o = process_run(50, "$weft ckpt %s", args);
  ck_assert_msg(o.code == code, "%s: %d: %s%s", args, o.code, o.out, o.err);
  return arena_printf(scratch_arena, "%s%s", o.out, o.err);
}

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

/* The checkpoint is there all the same, and the run has gone well. */
START_TEST(what_cannot_be_removed_is_a_warning) {
  run(0, "--steps 2");
  scratch_put("runs/step-00000002/mine", "x", 1);
  Outcome o = run(0, "--resume auto --set checkpoint.keep=1");
  has(o.err,
      "warning: checkpoints before that of step 4 were not all removed: runs/step-");
  has(o.err, "checkpoint of step 4 in runs");
  ck_assert_msg(!strstr(o.err, "was not written"), "%s", o.err);
  ck_assert_str_eq(listed("runs"), "latest step-00000002 step-00000006 ");
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

/* The checkpoint is whole, and the run goes on. */
START_TEST(weights_that_cannot_be_written_are_a_warning) {
  Outcome o = process_run(20, "sh -c 'mkdir -p runs/weights-00000002.0-0.tmp/x "
                              "runs/weights-00000002/x'");
  o = run(0, "--set checkpoint.save_consolidated=every --set checkpoint.keep=0");
  has(o.err, "warning: the weights of step 2 were not written beside its checkpoint: "
             "runs/weights-00000002: exists and is not empty");
  has(o.err, "checkpoint of step 6 in runs");
  o = process_run(20, "ls runs/step-00000002/manifest.json runs/weights-00000006");
  ck_assert_msg(o.code == 0, "%s", o.err);
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

/* ---- weft ckpt ---- */

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

/* ---- other data ---- */

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

/* ---- signals ---- */

static const struct {
  const char *name;
  int code;
} signals[] = {{"TERM", 143}, {"USR1", 138}, {"INT", 130}, {"HUP", 129}};

START_TEST(a_signal_saves_and_ends) {
  Process p = process_start(50, "$weft run plan.lua --threads 1 --steps 100000000 --set "
                                "checkpoint.every=0");
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  process_run(10, "kill -%s %d", signals[_i].name, (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == signals[_i].code, "%d: %s", o.code, o.err);
  has(o.err, "checkpoint of step ");
  has(o.err, "interrupted after ");
  long long saved = atoll(strstr(o.err, "checkpoint of step ") + 19);
  ck_assert_int_ge(saved, 4);
  run(0, arena_printf(scratch_arena, "--resume auto --steps %lld", saved + 2));
}
END_TEST

/* Of a state that is lost no code says that it is saved, which scripts would believe. */
START_TEST(a_signal_whose_save_is_lost_is_a_failure) {
  scratch_put("runs", "x", 1);
  Process p = process_start(50,
                            "$weft run plan.lua --threads 1 --steps 100000000 --set "
                            "checkpoint.every=0 %s",
                            _i % 2 ? "--procs 2" : "");
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  process_run(10, "kill -%s %d", signals[_i].name, (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 1, "%d: %s", o.code, o.err);
  has(o.err, "weft: the last checkpoint, of step ");
  ck_assert_ptr_null(strstr(o.err, "interrupted after "));
}
END_TEST

/* The folder was not there when the run began, and has another run's checkpoints now: no
 * process writes there. */
START_TEST(another_run_has_taken_the_folder) {
  run(0, "--steps 2 --set checkpoint.dir=other");
  process_run(10, "cp -r other copy");
  scratch_put("runs", "x", 1);
  Process p = process_start(50,
                            "$weft run plan.lua --threads 1 --steps 100000000 --set "
                            "checkpoint.every=0 %s",
                            _i ? "--procs 2" : "");
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  ck_assert_int_eq(process_run(10, "sh -c 'rm runs; mv other runs'").code, 0);
  kill(p.pid, SIGTERM);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 1, "%d: %s", o.code, o.err);
  has(o.err, "was not written: runs: has checkpoints already, the last one of step 2");
  o = process_run(10, "diff -r copy runs");
  ck_assert_msg(o.code == 0, "%s", o.out);
}
END_TEST

/* One of two processes is told to end, and the other one is lost while both save: which
 * of them it has reached by then is chance, but the code is true. */
START_TEST(a_signal_and_a_lost_process) {
  Process p[2];
  for (int r = 0; r < 2; r++)
    p[r] = process_start(50,
                         "env RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                         "WEFT_SECRET=w $weft run plan.lua --threads 1 --steps 100000000 "
                         "--set checkpoint.every=0 --set model.hidden_size=256",
                         r, 21000 + getpid() % 9000);
  ck_assert(process_wait_for(&p[0], p[0].out, "step      3/"));
  kill(p[0].pid, SIGTERM);
  for (int i = 0; i < 5000 && !strstr(listed("runs"), ".tmp"); i++) usleep(100);
  kill(p[1].pid, SIGKILL);
  Outcome o = process_end(&p[0]), other = process_end(&p[1]);
  bool saved = strstr(listed("runs"), "latest") != NULL;
  ck_assert_msg(o.code == (saved ? 143 : 1), "%d and %d, %s: %s", o.code, other.code,
                saved ? "saved" : "lost", o.err);
}
END_TEST

/* While it waits for the other process; what comes before that ends it by itself. */
START_TEST(a_signal_ends_an_evaluation) {
  run(0, "--steps 2");
  Process p =
      process_start(50,
                    "env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                    "MASTER_PORT=%d WEFT_SECRET=w $weft eval plan.lua --ckpt runs",
                    21000 + getpid() % 9000);
  usleep(500000);
  kill(p.pid, SIGTERM);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 143, "%d: %s", o.code, o.err);
}
END_TEST

/* One that comes in the last step cuts nothing short. */
START_TEST(a_signal_in_the_last_step_is_no_interruption) {
  Process p = process_start(50, "$weft run plan.lua --threads 1 --steps 1 --set "
                                "batch.global=20000");
  ck_assert(process_wait_for(&p, p.err, "2 ranks (local)"));
  process_run(10, "kill -INT %d", (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  has(o.out, "step      0/1");
  has(o.err, "checkpoint of step 1 ");
}
END_TEST

/* ---- processes ---- */

static Outcome processes(int code, const char *args) {
  Outcome o = process_run(90, MPIRUN " $weft run plan.lua --threads 1 %s", 2, args);
  ck_assert_msg(o.code == code, "%d: %s%s", o.code, o.out, o.err);
  return o;
}

START_TEST(processes_write_and_go_on) {
  if (!mpirun_present()) return;
  processes(0, "");
  processes(0, "--set checkpoint.dir=half --steps 4");
  Outcome o = processes(0, "--set checkpoint.dir=half --resume auto");
  has(o.err, "resumes from step 4");
  has(ckpt(0, "diff runs half"), " 0 differ");
  has(ckpt(0, "verify half"), "half/step-00000006: complete, ");
  /* What processes wrote threads read. */
  run(0, "--resume runs/step-00000004 --set checkpoint.dir=there");
  has(ckpt(0, "verify there"), "complete");
  o = processes(2, "");
  has(o.err, "has checkpoints already");
}
END_TEST

/* One of them is told; all save the same step. */
START_TEST(a_signal_to_one_process_ends_all) {
  if (!mpirun_present()) return;
  Process p = process_start(90,
                            MPIRUN " $weft run plan.lua --threads 1 --steps 100000000 "
                                   "--set checkpoint.every=0",
                            2);
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  Outcome k =
      process_run(10, "sh -c 'read -r a b </proc/%d/task/%d/children; kill -USR1 $b'",
                  (int)p.pid, (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(k.code == 0 && o.code != 0, "%d %d: %s", k.code, o.code, o.err);
  has(o.err, "checkpoint of step ");
  has(ckpt(0, "verify runs"), "complete");
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

/* ---- trouble ---- */

START_TEST(a_second_run_in_the_folder_is_refused) {
  Process p = process_start(50, "$weft run plan.lua --threads 1 --steps 100000000");
  ck_assert(process_wait_for(&p, p.err, "checkpoint of step 2"));
  Outcome o = run(2, "--resume auto");
  has(o.err, "runs: error: another run writes its checkpoints there");
  process_run(10, "kill -TERM %d", (int)p.pid);
  process_end(&p);
}
END_TEST

/* A file where the folder should be: nobody can make it, not even root. */
START_TEST(a_folder_that_cannot_be_is_a_warning) {
  scratch_put("runs", "x", 1);
  Outcome o = run(1, "");
  has(o.err, "warning: checkpoints cannot be written: runs: ");
  has(o.err, "warning: the checkpoint of step 2 was not written: ");
  has(o.err, "the run goes on");
  has(o.out, "step      5/6");
  has(o.err, "weft: the last checkpoint, of step 6, was not written: ");
}
END_TEST

START_TEST(a_read_only_folder_is_a_warning) {
  if (geteuid() == 0) {
    printf("skipped: root writes to any folder\n");
    return;
  }
  run(0, "--steps 2");
  process_run(10, "chmod 500 runs");
  Outcome o = run(1, "--resume auto");
  process_run(10, "chmod 700 runs");
  has(o.err, "warning: the checkpoint of step 4 was not written: ");
  has(scratch_get(scratch_path("runs/latest")), "step-00000002");
}
END_TEST

/* The state is saved without it, and --resume finds it. */
START_TEST(a_latest_that_cannot_be_written_is_a_warning) {
  run(0, "--steps 2");
  process_run(10, "sh -c 'rm runs/latest; mkdir runs/latest'");
  Outcome o = run(0, "--resume auto --steps 4 --set checkpoint.keep=1");
  has(o.err, "warning: the checkpoint of step 4 is there, but \"latest\" does not name "
             "it: runs/latest: cannot be written: ");
  ck_assert_str_eq(listed("runs"), "latest step-00000004 ");
  has(run(0, "--resume auto --steps 5").err, "resumes from step 4 ");
  o = process_run(50, "sh -c 'mkdir -p one/latest; $weft ckpt convert plan.lua plan.lua "
                      "runs one --json'");
  ck_assert_int_eq(o.code, 0);
  has(o.out, "\\\"latest\\\" does not name it: one/latest: cannot be written");
}
END_TEST

/* On a small file system: the third checkpoint has no room. */
START_TEST(a_full_disk_is_a_warning) {
  const char *disk = scratch_path("disk");
  Outcome m = process_run(
      10, "sh -c 'mkdir disk && mount -t tmpfs -o size=220k tmpfs disk 2>/dev/null'");
  if (m.code != 0) {
    printf("skipped: this user cannot mount a small file system\n");
    return;
  }
  Process p = process_start(50,
                            "$weft run plan.lua --threads 1 --set checkpoint.dir=%s "
                            "--set checkpoint.keep=0 --steps 12",
                            disk);
  Outcome o = process_end(&p);
  const char *latest = scratch_get(scratch_path("disk/latest"));
  Outcome list = process_run(10, "ls disk");
  process_run(10, "umount disk");
  ck_assert_msg(o.code == 1, "%s", o.err);
  has(o.err, "No space left on device; the run goes on");
  has(o.err, "weft: the last checkpoint, of step 12, was not written: ");
  has(o.out, "step     11/12");
  has(latest, "step-0000000");
  ck_assert_msg(!strstr(list.out, ".tmp"), "%s", list.out);
}
END_TEST

static const int kills[KILLED_WAYS - 1] = {9, 9, 3, 3};

START_TEST(killed_runs_go_on) {
  Text report = {0};
  if (_i >= KILLED_MPIRUN && !mpirun_present()) return;
  bool ok = killed_runs(WEFT_BINARY_DIR "/weft", scratch_dir, _i, kills[_i], 3, &report);
  ck_assert_msg(ok, "%s", report.s);
  text_free(&report);
}
END_TEST

Suite *ckpt_run_suite(void) {
  Suite *s = suite_create("ckpt_run");
  TCase *c = tcase_create("weft run");
  tcase_set_timeout(c, 180);
  tcase_add_checked_fixture(c, setup, scratch_teardown);
  tcase_add_test(c, a_run_goes_on);
  tcase_add_test(c, auto_begins_where_there_is_nothing);
  tcase_add_test(c, auto_goes_back_to_a_whole_one);
  tcase_add_test(c, what_is_named_must_be_whole);
  tcase_add_test(c, what_cannot_be_removed_is_a_warning);
  tcase_add_test(c, weights_beside_checkpoints);
  tcase_add_test(c, weights_that_cannot_be_written_are_a_warning);
  tcase_add_test(c, another_run_is_refused);
  tcase_add_test(c, parameters_need_no_states);
  tcase_add_test(c, what_is_written_otherwise_is_told);
  tcase_add_test(c, the_loss_scale_goes_on);
  tcase_add_test(c, other_data_of_the_same_size);
  tcase_add_test(c, the_same_tokens_in_another_format);
  tcase_add_test(c, other_validation_data_are_told);
  tcase_add_test(c, what_changes_losses_is_told);
  tcase_add_test(c, the_best_that_there_is_stays);
  tcase_add_test(c, checkpoints_are_listed_and_checked);
  tcase_add_test(c, planned_bytes_are_those_of_states);
  tcase_add_test(c, states_that_neither_has_do_not_differ);
  tcase_add_test(c, checkpoints_are_converted_and_compared);
  tcase_add_loop_test(c, a_signal_saves_and_ends, 0, LEN(signals));
  tcase_add_loop_test(c, a_signal_whose_save_is_lost_is_a_failure, 0, LEN(signals));
  tcase_add_test(c, a_signal_and_a_lost_process);
  tcase_add_loop_test(c, another_run_has_taken_the_folder, 0, 2);
  tcase_add_test(c, a_signal_ends_an_evaluation);
  tcase_add_test(c, warnings_of_resuming_are_in_json);
  tcase_add_test(c, a_listing_marks_what_is_incomplete);
  tcase_add_test(c, notes_of_resuming_say_what_matters);
  tcase_add_test(c, a_signal_in_the_last_step_is_no_interruption);
  tcase_add_test(c, processes_write_and_go_on);
  tcase_add_test(c, a_signal_to_one_process_ends_all);
  tcase_add_loop_test(c, a_loss_that_is_not_finite_costs_no_checkpoint, 0, LEN(ways));
  tcase_add_test(c, a_second_run_in_the_folder_is_refused);
  tcase_add_test(c, a_folder_that_cannot_be_is_a_warning);
  tcase_add_test(c, a_read_only_folder_is_a_warning);
  tcase_add_test(c, a_latest_that_cannot_be_written_is_a_warning);
  tcase_add_test(c, a_full_disk_is_a_warning);
  tcase_add_loop_test(c, killed_runs_go_on, 0, KILLED_WAYS - 1);
  suite_add_tcase(s, c);
  return s;
}
