/* check_cli.c - the program `weft` from outside: exit codes, what goes to which stream,
 * JSON, and how long it takes to start. */
#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/scratch.h"
#include "vm/io/io.h"

#define PLANS      WEFT_SOURCE_DIR "/plans/"
#define TEST_PLANS WEFT_SOURCE_DIR "/tests/plans/"

static char *out, *err; /* what the last command printed */
static size_t out_n, err_n;

static void forget(void) {
  if (out) mem_free(NULL, out, out_n + 1);
  if (err) mem_free(NULL, err, err_n + 1);
  out = err = NULL;
}

static void setup(void) { scratch_setup(); }
static void teardown(void) {
  forget();
  scratch_teardown();
}

/* Runs the program with these arguments of a shell; returns its exit code. */
static int weft(const char *args) {
  char command[2048];
  snprintf(command, sizeof command,
           "env -u NO_COLOR %s/weft %s >%s/out 2>%s/err </dev/null", WEFT_BINARY_DIR,
           args, scratch_dir, scratch_dir);
  int status = system(command);
  forget();
  ck_assert_int_eq(
      file_read(NULL, scratch_path("out"), FILE_OWN_MAX, &out, &out_n, &scratch_error),
      0);
  ck_assert_int_eq(
      file_read(NULL, scratch_path("err"), FILE_OWN_MAX, &err, &err_n, &scratch_error),
      0);
  ck_assert(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void expect(const char *args, int code, const char *in_out, const char *in_err) {
  int got = weft(args);
  ck_assert_msg(got == code, "weft %s: exit %d\n%s%s", args, got, out, err);
  ck_assert_msg(strstr(out, in_out) && (*in_out || !*out), "weft %s: stdout:\n%s", args,
                out);
  ck_assert_msg(strstr(err, in_err) && (*in_err || !*err), "weft %s: stderr:\n%s", args,
                err);
}

static void plan(const char *text) { scratch_put("plan.lua", text, strlen(text)); }

/* ---- usage ---- */

START_TEST(help) {
  expect("", 2, "", "usage: weft VERB");
  expect("--help", 0, "usage: weft VERB", "");
  expect("help", 0, "usage: weft VERB", "");
  expect("--version", 0, "weft 0.", "");
  /* Every verb that is listed is one. */
  char verb[16];
  int n = 0;
  expect("--help", 0, "usage: weft VERB", "");
  const char *list = arena_str(scratch_arena, strstr(out, "\n\n  "));
  for (const char *s = list + 2; sscanf(s, " %15s", verb) == 1 && s[0] == ' '; n++) {
    expect(arena_printf(scratch_arena, "%s --help", verb), 0, "Exit codes:", "");
    s = strchr(s, '\n') + 1;
  }
  enum {
#define VERB(ID, ...) VERB_##ID,
#include "bindings/cli/verbs.def"
    VERBS
  };
  ck_assert_int_eq(n, VERBS);
}
END_TEST

START_TEST(usage_errors) {
  expect("chekc x", 2, "",
         "weft: there is no verb \"chekc\" (did you mean \"check\"?)\n");
  expect("frobnicate", 2, "", "see weft --help");
  expect("check", 2, "", "weft: check needs a plan");
  expect("check --jsn x", 2, "",
         "weft: check has no option --jsn (did you mean --json?)\n");
  expect("check --define a=1 x", 2, "", "no option --define (did you mean -D?)\n");
  expect("launch --sbatch x", 2, "", "no option --sbatch (did you mean --slurm?)\n");
  expect("help chekc", 2, "", "no verb \"chekc\" (did you mean \"check\"?)\n");
  expect("help check", 0, "usage: weft check PLAN.lua\n", "");
  expect("check --steps 3 x", 2, "", "check has no option --steps");
  expect("run x --steps", 2, "", "--steps needs a value");
  expect("run x --steps many", 2, "",
         "--steps takes an integer from 1 to 1000000000000, got \"many\"");
  expect("check a b", 2, "", "check takes one plan, got a and b");
  expect("check a ./b=c", 2, "", "check takes one plan, got a and ./b=c");
  expect("check --json=1 x", 2, "", "--json takes no value");
  expect("lua", 2, "", "weft: lua needs a script: weft lua SCRIPT.lua [args]\n");
}
END_TEST

/* What stands behind an option is not lost in it. */
/* What each verb says to who gives it nothing. */
START_TEST(verbs_without_arguments) {
  static const struct {
    const char *verb, *says; /* NULL: it needs nothing */
  } all[] = {
      {"init", "needs a name for a folder: weft init DIR\n"},
      {"run", "needs a plan: weft run PLAN.lua\n"},
      {"check", "needs a plan: weft check PLAN.lua\n"},
      {"explain", NULL},
      {"show", "needs a plan: weft show PLAN.lua [TOPIC]\n"},
      {"sim", "needs a plan: weft sim PLAN.lua\n"},
      {"calibrate", "needs a plan: weft calibrate PLAN.lua... [-o FILE.lua]\n"},
      {"diff", "needs a pair of plans: weft diff A.lua [B.lua] [key=value ...]\n"},
      {"best", "needs a plan: weft best PLAN.lua [NAME=VALUE,... ...]\n"},
      {"verify", "needs a plan: weft verify PLAN.lua\n"},
      {"eval", "needs a plan: weft eval PLAN.lua\n"},
      {"sample", "needs a plan: weft sample PLAN.lua\n"},
      {"sweep", "needs a script: weft sweep SCRIPT.lua [args]\n"},
      {"repl", NULL},
      {"lua", "needs a script: weft lua SCRIPT.lua [args]\n"},
      {"ckpt", "needs a verb: weft ckpt ls|verify|diff|convert|export|merge|plan ...\n"},
      {"tokenize",
       "needs a tokenizer.json and files of text: weft tokenize TOKENIZER FILE...\n"},
      {"launch", "needs a plan: weft launch PLAN.lua\n"},
      {"import",
       "needs a file or folder of settings: weft import FILE|DIR [key=value ...]\n"},
      {"export", "needs a plan: weft export --to SYSTEM PLAN.lua\n"},
      {"report", "needs a file: weft report PLAN.lua|FILE|DIR [key=value ...]\n"},
      {"completion",
       "needs a shell, man or schema: weft completion bash|zsh|fish|man|schema\n"},
      {"doctor", NULL},
  };
  static const char *const verbs[] = {
#define VERB(ID, name, ...) #name,
#include "bindings/cli/verbs.def"
  };
  for (int v = 0; v < LEN(verbs); v++) {
    int i = 0;
    while (i < LEN(all) && !str_eq(all[i].verb, verbs[v])) i++;
    ck_assert_msg(i < LEN(all), "%s: what does it say without arguments?", verbs[v]);
    if (!all[i].says) {
      int code = weft(verbs[v]);
      ck_assert_msg(code == 0 && !*err, "weft %s: exit %d\n%s", verbs[v], code, err);
      continue;
    }
    expect(verbs[v], 2, "",
           arena_printf(scratch_arena, "weft: %s %s", verbs[v], all[i].says));
  }
}
END_TEST

START_TEST(values_that_are_missing) {
  static const struct {
    const char *args, *said;
  } all[] = {
      {"sample p.lua --prompt= --greedy", "weft: the value of --prompt is empty\n"},
      {"sample p.lua --prompt '' --greedy", "weft: the value of --prompt is empty\n"},
      {"sample p.lua --prompt --greedy",
       "weft: --prompt needs a value, and --greedy is an option; --prompt=--greedy if it "
       "is the value\n"},
      {"sample p.lua --seed= 3", "weft: the value of --seed is empty\n"},
      {"sample p.lua --prompt a --stop=", "weft: the value of --stop is empty\n"},
      {"run p.lua --log --quiet",
       "weft: --log needs a value, and --quiet is an option; --log=--quiet if it is the "
       "value\n"},
      {"run p.lua --set --quiet", "--set needs a value, and --quiet is an option"},
      {"run p.lua --log=", "weft: the value of --log is empty\n"},
      {"run p.lua -D", "weft: -D needs a value\n"},
      {"run p.lua --steps -D a=b", "--steps needs a value, and -D is an option"},
      {"tokenize t.json a -o --eot x", "--out needs a value, and --eot is an option"},
  };
  for (int i = 0; i < LEN(all); i++) expect(all[i].args, 2, "", all[i].said);
  /* A value may look like an option that is none. */
  expect("sample p.lua --prompt -x", 2, "", "p.lua");
}
END_TEST

/* What a verb would ignore is an error that says where it means something. */
START_TEST(options_of_other_forms) {
  static const struct {
    const char *args, *said;
  } all[] = {
      {"run " PLANS "quickstart.lua --dtype bf16", "--dtype belongs to --export\n"},
      {"run " PLANS "quickstart.lua --shard-size 1GB",
       "--shard-size belongs to --export\n"},
      {"ckpt ls . --dtype bf16", "--dtype belongs to ckpt export and merge\n"},
      {"ckpt plan a.lua --shard-size 1GB",
       "--shard-size belongs to ckpt export and merge\n"},
      {"ckpt export a.lua b c --from d.lua", "--from belongs to ckpt plan\n"},
      {"ckpt verify . --set mesh.tp=2",
       "--set belongs to ckpt convert, export, merge and plan, which read plans\n"},
      {"ckpt diff a b -D x=1", "-D belongs to ckpt convert, export"},
      {"ckpt diff a b --data .", "--data belongs to ckpt convert, export"},
      {"ckpt ls . --memory 1", "--memory belongs to ckpt convert, export"},
  };
  for (int i = 0; i < LEN(all); i++) expect(all[i].args, 2, "", all[i].said);
}
END_TEST

/* ---- check ---- */

/* What is left to defaults that other systems do not have is one line. */
START_TEST(check_unsaid) {
  static const struct {
    const char *fields, *line;
  } all[] = {
      {"", "  unsaid  strategy: copies on all 2 ranks of dp (NeMo, torchtitan: fsdp2); "
           "precision: f32 (NeMo, torchtitan: bf16)\n"},
      {"strategy = 'ddp'", "  unsaid  precision: f32 (NeMo, torchtitan: bf16)\n"},
      {"precision = 'f32'", "  unsaid  strategy: copies on all 2 ranks of dp (NeMo, "
                            "torchtitan: fsdp2)\n"},
      {"strategy = 'zero', mp_policy = 'bf16'", NULL},
      {"strategy = { 'fsdp2', mp_policy = 'bf16' }", NULL},
      {"strategy = { 'fsdp2', autocast_dtype = 'bf16' }", NULL},
      {"mesh = { tp = 2 }, precision = 'bf16'", NULL},
  };
  for (int i = 0; i < LEN(all); i++) {
    const char *mesh = strstr(all[i].fields, "mesh") ? "" : "mesh = { dp = 2 },";
    plan(arena_printf(scratch_arena,
                      "local weft = require 'weft'\nreturn weft.plan { %s model = "
                      "weft.model 'llama-tiny', batch = { global = 8, seq = 16 }, %s }",
                      mesh, all[i].fields));
    const char *check = arena_printf(scratch_arena, "check %s", scratch_path("plan.lua"));
    ck_assert_int_eq(weft(check), 0);
    const char *line = strstr(out, "  unsaid  ");
    ck_assert_msg(!line == !all[i].line, "%s: %s", all[i].fields, out);
    if (line) ck_assert_str_eq(line, all[i].line);
  }
}
END_TEST

START_TEST(check_good) {
  expect("check " PLANS "quickstart.lua", 0, "quickstart: ok\n", "");
  expect("check --quiet " PLANS "quickstart.lua", 0, "", "");
  expect("check " PLANS "quickstart.lua --set mesh={}", 0, "none is stated",
         "plan.tp_plan: has no effect at tp = 1");
  expect("check -- " PLANS "quickstart.lua", 0, ": ok\n", "");
}
END_TEST

/* What a kernel cannot compute is told where it would run; its memory is known. */
START_TEST(check_large_heads) {
  plan("return require('weft').plan {\n"
       "  model = require('weft').model { 'gpt2', hidden_size = 1024, num_hidden_layers "
       "= 2,\n"
       "    num_attention_heads = 2, vocab_size = 64, max_position_embeddings = 64 },\n"
       "  batch = { global = 1, seq = 64 }, data = require('weft').synthetic {},\n}\n");
  expect(arena_printf(scratch_arena, "check %s/plan.lua", scratch_dir), 0, ": ok\n", "");
  expect(arena_printf(scratch_arena, "run --steps 1 %s/plan.lua", scratch_dir), 1, "",
         "head_dim = 512: attention on the CPU takes at most 256");
}
END_TEST

/* Whatever grows over the limit is named, in a message that fits into what is left. */
START_TEST(memory_limit) {
  expect("check --memory 0.03 " PLANS "quickstart.lua", 0, ": ok\n", "");
  expect(
      "check --memory 0.004 " PLANS "quickstart.lua --set model.num_hidden_layers=2000",
      3, "", "weft: the memory limit of 4.1 MiB is reached while making the graph (so");
  expect("check --memory 0.01 " PLANS "quickstart.lua --set batch.global=320000", 3, "",
         "is reached while making the schedule (so far: the graph ");
  expect("check --memory 0.02 --json " PLANS "quickstart.lua --set batch.global=30000", 3,
         "\"code\": \"limit\"", "");
  expect("check --memory 0 " PLANS "quickstart.lua", 2, "",
         "--memory takes a positive number, got \"0\"");
}
END_TEST

START_TEST(check_bad) {
  expect("check " TEST_PLANS "bad_missing.lua", 1, "",
         "bad_missing.lua:3: error: plan.model");
  ck_assert(strstr(err, "\n3 errors\n"));
  expect("check " TEST_PLANS "bad_schedule.lua", 1, "", "bad_schedule.lua:5: error: ");
  expect("check " PLANS "quickstart.lua --set mesh.tp=3", 1, "",
         "--set mesh.tp=3: error: plan.mesh.tp: 3 does not divide");
  expect("check " PLANS "quickstart.lua --set 'tp_plan[\"nothing.*\"]=colwise'", 1, "",
         "error: plan.tp_plan[\"nothing.*\"]: ");
  expect("check /nowhere.lua", 2, "", "/nowhere.lua: error: cannot be opened");
  scratch_put("mein Plan.lua", "", 0);
  expect(arena_printf(scratch_arena, "check %s/mein", scratch_dir), 2, "",
         "mein: error: there is no such file (did you mean \"mein Plan.lua\"?)");
  expect(arena_printf(scratch_arena, "check %s/mein.lua", scratch_dir), 2, "",
         "(did you mean \"mein Plan.lua\"?)");
  expect("check " PLANS "quickstart.lua --set x", 2, "", "write --set PATH=VALUE");
  plan("while true do end\n");
  expect(arena_printf(scratch_arena, "check %s/plan.lua", scratch_dir), 3, "",
         "plan.lua:1: error: the plan was stopped after 50000000 instructions\n");
}
END_TEST

/* A pattern that matches nothing is found by a pass, and still has its line. */
START_TEST(lines_of_later_passes) {
  plan("local weft = require 'weft'\nreturn weft.plan {\n  model = weft.model "
       "'llama-tiny',\n"
       "  mesh = { tp = 2 },\n  batch = { global = 4, seq = 16 },\n"
       "  tp_plan = weft.extend(weft.tp_plan 'llama', {\n"
       "    ['layers.*.mlp.wrong'] = 'colwise',\n  }),\n}\n");
  expect(arena_printf(scratch_arena, "check %s/plan.lua", scratch_dir), 1, "",
         "plan.lua:7: error: plan.tp_plan[\"layers.*.mlp.wrong\"]: ");
}
END_TEST

static json_t *parse(void) {
  json_error_t e;
  json_t *j = json_loads(out, JSON_REJECT_DUPLICATES, &e);
  ck_assert_msg(j != NULL, "%s at %d:\n%s", e.text, e.line, out);
  return j;
}

/* Keys in the order of the alphabet, everywhere. */
static void check_sorted(const json_t *v, const char *where) {
  const char *key, *last = "";
  json_t *item;
  size_t i;
  json_object_foreach((json_t *)v, key, item) {
    ck_assert_msg(strcmp(last, key) < 0, "%s: \"%s\" after \"%s\"", where, key, last);
    last = key;
    check_sorted(item, where);
  }
  json_array_foreach(v, i, item) check_sorted(item, where);
}

static void expect_json(const char *args, int code, int errors) {
  int got = weft(args);
  ck_assert_msg(got == code, "weft %s: exit %d\n%s%s", args, got, out, err);
  json_t *j = parse();
  ck_assert_int_eq(json_integer_value(json_object_get(j, "error_count")), errors);
  ck_assert_int_eq(json_is_true(json_object_get(j, "valid")), errors == 0);
  ck_assert_int_eq(json_array_size(json_object_get(j, "diagnostics")), errors);
  ck_assert_int_eq(json_is_null(json_object_get(j, "result")), errors > 0);
  ck_assert_str_eq(json_string_value(json_object_get(j, "format_version")), "1.0");
  check_sorted(j, args);
  json_decref(j);
}

START_TEST(json) {
  static const char *const what[] = {"",        "mesh",   "graph", "schedule", "memory",
                                     "program", "stages", "comm",  "rank"};
  expect_json("check --json " PLANS "quickstart.lua", 0, 0);
  expect_json("check --json " TEST_PLANS "bad_missing.lua", 1, 3);
  expect_json("check --json " TEST_PLANS "bad_syntax.lua", 1, 1);
  expect_json("check --json /nowhere.lua", 2, 1);
  expect_json("check --what --json", 2, 1);
  expect_json("check --json", 2, 1);
  for (int i = 0; i < LEN(what); i++)
    expect_json(
        arena_printf(scratch_arena, "show --json %s " PLANS "quickstart.lua", what[i]), 0,
        0);
  expect_json("verify --json --steps 1 " PLANS "quickstart.lua", 0, 0);
  expect_json("run --json --steps 1 --threads 1 " PLANS "quickstart.lua", 0, 0);
}
END_TEST

/* ---- show ---- */

START_TEST(show) {
  const char *quickstart = PLANS "quickstart.lua";
  Arena *a = scratch_arena;
  expect(arena_printf(a, "show %s", quickstart), 0, "memory of each rank", "");
  expect(arena_printf(a, "show %s mesh", quickstart), 0, "  pp 1   dp 1    |   6     7 |",
         "");
  expect(arena_printf(a, "show graph %s", quickstart), 0, "linear", "");
  expect(arena_printf(a, "show %s schedule", quickstart), 0, "   0 F0F1....B0--F2", "");
  expect(arena_printf(a, "show %s schedule --csv", quickstart), 0,
         "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n", "");
  expect(arena_printf(a, "show graph %s", quickstart), 0,
         "%44(2,64,128)f32[dp:S(0) cp:R tp:S(1)] = reduce_scatter %43", "");
  expect(arena_printf(a, "show graph %s --logical", quickstart), 0, "%2(4,128,128)act",
         "");
  expect(arena_printf(a, "show stages %s", quickstart), 0,
         "layers.2 to layers.3, norm, lm_head\n", "");
  expect(arena_printf(a, "show rank 5 %s", quickstart), 0,
         "\nstep: 4 microbatches\n  (F B) x 4\n", "");
  expect(arena_printf(a, "show %s rank 8", quickstart), 2, "", "no rank 8");
  expect(arena_printf(a, "show comm 1 %s --json", quickstart), 0, "\"rank\": 1\n", "");
  expect(arena_printf(a, "show mesh %s --logical", quickstart), 2, "",
         "--logical belongs");
  expect(arena_printf(a, "show %s program --rank 5", quickstart), 0, "rank 5 of 8", "");
  expect(arena_printf(a, "show %s program --rank 8", quickstart), 2, "", "no rank 8");
  expect(arena_printf(a, "show %s mesh --rank 1", quickstart), 2, "", "--rank belongs");
  expect(arena_printf(a, "show %s mesh --csv", quickstart), 2, "", "--csv belongs");
  expect(arena_printf(a, "show %s mash", quickstart), 2, "", "\"mash\" is none of");
  expect(arena_printf(a, "show meshes %s", quickstart), 2, "", ": did you mean mesh?");
  expect(arena_printf(a, "show %s mesh --set mesh.tp=", quickstart), 2, "",
         "--set mesh.tp= there is no value behind =; mesh.tp=nil");
  expect(
      arena_printf(a, "show program %s", quickstart), 0,
      "SEND   h3 to rank 4, 65536 bytes, f32[2,64,128]  \"activation after layers.1\"\n",
      "");
  expect(arena_printf(a, "show program %s --offsets", quickstart), 0,
         "\"gradient before layers.2\"\n", "");
  expect("show mesh", 2, "", "show needs a plan");
}
END_TEST

/* ---- run and verify ---- */

/* So many lines begin runs, so many are steps. */
static void check_log(const char *log, int runs, int steps) {
  int ran = runs, done = 0;
  char *text;
  size_t n;
  ck_assert_int_eq(file_read(NULL, log, FILE_OWN_MAX, &text, &n, &scratch_error),
                   WEFT_OK);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *j = json_loads(line, 0, NULL);
    ck_assert(j != NULL);
    check_sorted(j, "log");
    const char *event = json_string_value(json_object_get(j, "event"));
    bool start = event && strcmp(event, "start") == 0;
    ck_assert_int_eq(json_object_size(j), start ? 16 : event ? 3 : 10);
    ck_assert(json_object_get(j, event ? "run" : "loss") != NULL);
    runs -= start;
    steps -= !event;
    done += event && strcmp(event, "done") == 0;
    json_decref(j);
  }
  ck_assert_int_eq(runs, 0);
  ck_assert_int_eq(steps, 0);
  ck_assert_int_eq(done, ran);
  mem_free(NULL, text, n + 1);
}

START_TEST(run_and_log) {
  const char *log = scratch_path("log");
  expect(arena_printf(scratch_arena,
                      "run " PLANS "quickstart.lua --steps 3 --threads 1 "
                      "--set train.log_every=2 --log %s",
                      log),
         0, "step      0/3  loss ", "quickstart: pp=2 dp=2 tp=2, 8 ranks (local)");
  ck_assert(strstr(out, "step      2/3  loss ") && !strstr(out, "step      1/"));
  check_log(log, 1, 3);
  /* A second run may only be added, and begins with a line of its own. */
  const char *again = arena_printf(
      scratch_arena, "run " PLANS "quickstart.lua --steps 1 --threads 1 --log %s", log);
  expect(again, 2, "", "exists and is not empty; give --log another name, or --append");
  check_log(log, 1, 3);
  expect(arena_printf(scratch_arena, "%s --append", again), 0, "step ",
         "quickstart: pp=2");
  check_log(log, 2, 4);
  expect("run " PLANS "quickstart.lua --append", 2, "", "--append belongs to --log FILE");
}
END_TEST

/* A run that is told to end early is the beginning of the whole one: its learning rate
 * after the warmup is near the largest, not at the end of its decay. */
START_TEST(steps_end_a_run_early) {
  ck_assert_int_eq(weft("run " PLANS "quickstart.lua --json --steps 2 --threads 1 "
                        "--set optimizer.lr.warmup=0"),
                   0);
  json_t *j = parse(), *r = json_object_get(j, "result");
  ck_assert_int_eq(json_integer_value(json_object_get(r, "steps")), 2);
  ck_assert_double_gt(json_real_value(json_object_get(r, "lr")), 2.99e-3);
  json_decref(j);
}
END_TEST

/* Options of weft sweep may follow the script, and none is lost in it. */
START_TEST(options_after_a_script) {
  Arena *a = scratch_arena;
  scratch_put("s.lua", "print(#arg, ...)", 16);
  const char *s = scratch_path("s.lua");
  expect(arena_printf(a, "sweep %s --csb x", s), 2, "",
         "weft: sweep has no option --csb (did you mean --csv?)\n");
  expect(arena_printf(a, "sweep --csv x %s --csv y", s), 2, "", "--csv is given twice");
  expect(arena_printf(a, "sweep %s one --csv x two -- --three", s), 1,
         "3\tone\ttwo\t--three\n", "made no sweep");
  expect(arena_printf(a, "lua %s one --csv -- x", s), 0, "4\tone\t--csv\t--\tx\n", "");
  expect("run x --threads 1 --threads 2", 2, "", "--threads is given twice");
}
END_TEST

START_TEST(run_errors) {
  expect("run " PLANS "quickstart.lua --comm carrier-pigeon", 2, "",
         "weft: --comm is local, mpi, tcp or nccl, got \"carrier-pigeon\"\n");
  expect("run " PLANS "quickstart.lua --log /nowhere/log", 2, "",
         "/nowhere/log: error: cannot be written");
  expect("run " PLANS "quickstart.lua --set 'data.files={\"none*\"}' --set 'data[1]=nil'",
         2, "", "none*");
  expect("run " PLANS "quickstart.lua --steps 0", 2, "",
         "--steps takes an integer from 1");
}
END_TEST

START_TEST(verify_plans) {
  expect("verify --steps 1 " PLANS "quickstart.lua", 0, "the same (tolerance 1e-05)", "");
  ck_assert(!strstr(out, "made smaller"));
  expect("verify --steps 1 --ranks 8 " PLANS "llama3_405b_16k.lua", 0, "the same", "");
  ck_assert(strstr(out, "made smaller, so not covered: "));
  /* with what CUDA and NCCL take besides it is at the edge */
  expect("check " PLANS "llama3_70b_64xh100.lua", 0, "the limit is kept",
         "[gpu-reserve]");
  expect("verify --steps 1 --tolerance 1e-30 " PLANS "quickstart.lua", 1, "DIFFERENT",
         "tolerance 1e-30");
}
END_TEST

/* Ctrl-C ends a run between steps, with its own code. */
START_TEST(interrupt) {
  pid_t child = fork();
  if (child == 0) {
    freopen(scratch_path("out"), "w", stdout);
    freopen(scratch_path("err"), "w", stderr);
    execl(WEFT_BINARY_DIR "/weft", "weft", "run", PLANS "quickstart.lua", "--steps",
          "100000", "--threads", "1", "--set", "train.log_every=1", (char *)NULL);
    _exit(99);
  }
  ck_assert_int_gt(child, 0);
  /* Wait until the first step is printed. */
  for (int i = 0; i < 200; i++) {
    usleep(50000);
    forget();
    if (file_read(NULL, scratch_path("out"), FILE_OWN_MAX, &out, &out_n,
                  &scratch_error) == WEFT_OK &&
        strstr(out, "step "))
      break;
  }
  int status;
  ck_assert_int_eq(kill(child, SIGINT), 0);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFEXITED(status));
  ck_assert_int_eq(WEXITSTATUS(status), 130);
}
END_TEST

/* ---- streams ---- */

START_TEST(full_disk) {
  char command[512];
  snprintf(command, sizeof command,
           "%s/weft check " PLANS "quickstart.lua >/dev/full 2>&1", WEFT_BINARY_DIR);
  int status = system(command);
  ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}
END_TEST

/* Who closes a pipe wants no more: no word about it. */
START_TEST(closed_pipe) {
  char command[512];
  snprintf(command, sizeof command,
           "{ %s/weft show " PLANS "quickstart.lua program 2>%s; } | true",
           WEFT_BINARY_DIR, scratch_path("err"));
  ck_assert_int_eq(system(command), 0);
  char *text;
  size_t n;
  ck_assert_int_eq(
      file_read(NULL, scratch_path("err"), FILE_OWN_MAX, &text, &n, &scratch_error),
      WEFT_OK);
  ck_assert_str_eq(text, "");
  mem_free(NULL, text, n + 1);
}
END_TEST

Suite *cli_suite(void) {
  const TTest *tests[] = {help,
                          usage_errors,
                          verbs_without_arguments,
                          values_that_are_missing,
                          options_of_other_forms,
                          check_good,
                          check_unsaid,
                          check_large_heads,
                          check_bad,
                          memory_limit,
                          lines_of_later_passes,
                          json,
                          show,
                          run_and_log,
                          run_errors,
                          verify_plans,
                          steps_end_a_run_early,
                          options_after_a_script,
                          interrupt,
                          full_disk,
                          closed_pipe};
  Suite *s = suite_create("cli");
  TCase *c = tcase_create("program");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_set_timeout(c, 60);
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
  return s;
}
