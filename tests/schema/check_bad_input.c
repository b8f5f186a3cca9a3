/* check_bad_input.c - what users get wrong, from the command line to the last byte of a
 * weight: the exit code, the message, and that nothing is left half-written.
 *
 * Plans are the files of tests/run; they, an oracle's weights and spoiled copies of them
 * lie in the folder in which the program runs. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/codes.h"
#include "tests/harness/process.h"

enum { SECONDS = 30 };

static void copy_plans(void) {
  char command[1024];
  scratch_setup();
  snprintf(command, sizeof command, "cp %s/tests/run/*.lua %s", WEFT_SOURCE_DIR,
           scratch_dir);
  ck_assert_int_eq(system(command), 0);
}

/* Exit code and stderr of `weft ARGS`. A text that begins with ~ is a part of stderr. */
typedef struct Case {
  const char *args;
  int code;
  const char *err;
} Case;

static void expect(const Case *c) {
  Outcome o = process_run(SECONDS, "$weft %s", c->args);
  const char *err = without_codes(o.err);
  bool part = c->err[0] == '~';
  bool same = part ? strstr(err, c->err + 1) != NULL : strcmp(err, c->err) == 0;
  ck_assert_msg(o.code == c->code, "weft %s: exit code %d\n%s", c->args, o.code, o.err);
  ck_assert_msg(same, "weft %s printed:\n%sexpected:\n%s", c->args, o.err, c->err);
  ck_assert_msg(part || !*o.out, "weft %s: stdout:\n%s", c->args, o.out);
}

/* Where a file is opened, its error ends with the field that names it; where a step reads
 * it, "~", it does not. */
static void expect_of_field(const char *args, const char *err, const char *field) {
  int n = (int)strlen(err) - 1;
  bool whole = err[0] != '~', line = err[n] == '\n';
  const char *all =
      arena_printf(scratch_arena, "%.*s%s", line ? n : n + 1, err, whole ? field : "");
  expect(&(Case){args, 2, all});
}

/* ---- the command line ---- */

static const Case usage[] = {
    {"chekc base.lua", 2, "weft: there is no verb \"chekc\" (did you mean \"check\"?)\n"},
    {"run base.lua --stpes 3", 2,
     "weft: run has no option --stpes (did you mean --steps?)\n"},
    {"run", 2, "weft: run needs a plan: weft run PLAN.lua\n"},
    {"run base.lua other.lua", 2,
     "weft: run takes one plan, got base.lua and other.lua\n"},
    {"run base.lua --steps", 2, "weft: --steps needs a value\n"},
    {"run base.lua --steps 0", 2,
     "weft: --steps takes an integer from 1 to 1000000000000, got \"0\"\n"},
    {"run base.lua --threads 0", 2,
     "weft: --threads takes an integer from 1 to 1024, got \"0\"\n"},
    {"run base.lua --threads -1", 2,
     "weft: --threads takes an integer from 1 to 1024, got \"-1\"\n"},
    {"run base.lua --threads 99999999999999999999", 2,
     "weft: --threads takes an integer from 1 to 1024, got \"99999999999999999999\"\n"},
    {"run base.lua --threads 1024", 2, "~weft: --threads 1024: 2 ranks of 1024 threads"},
    {"verify base.lua --ranks 0", 2,
     "weft: --ranks takes an integer from 1 to 1024, got \"0\"\n"},
    {"verify base.lua --tolerance inf", 2,
     "weft: --tolerance takes a positive number, got \"inf\"\n"},
    {"run base.lua --comm nvlink", 2,
     "weft: --comm is local, mpi, tcp or nccl, got \"nvlink\"\n"},
    {"run base.lua --comm nccl", 2,
     "~weft: --comm nccl transfers GPU memory, but device cpu computes in host memory; "
     "add --device cuda"},
    {"run base.lua --comm mpi", 2,
     "weft: this is one process that no launcher has started, but the plan's mesh (tp=2) "
     "has 2 ranks: start mpirun -n 2 weft run base.lua, or leave --comm out\n"},
    {"run base.lua --comm tcp", 2,
     "weft: this is one process that no launcher has started, but the plan's mesh (tp=2) "
     "has 2 ranks: add --procs 2, or leave --comm out\n"},
    {"show base.lua program --rank 2", 2,
     "weft: there is no rank 2: the mesh has 2, counted from 0\n"},
    {"show base.lua prgram", 2,
     "weft: \"prgram\" is none of mesh, graph, schedule, memory, stages, comm, rank, "
     "program: did you mean program?\n"},
    {"run base.lua --log .", 2, ".: error: cannot be written: Is a directory\n"},
    {"run base.lua --log no/x", 2,
     "no/x: error: cannot be written: No such file or directory\n"},
    {"run base.lua --trace no/x", 2,
     "no/x: error: cannot be written: No such file or directory\n"},
    {"run base.lua --log /dev/full", 2,
     "~/dev/full: error: cannot be written: No space left on device\n"},
    {"check base.lua >/dev/full", 2, "weft: cannot write to the standard output\n"},
    {"run nofile.lua", 2,
     "nofile.lua: error: cannot be opened: No such file or directory\n"},
    {"run .", 2, "~.: error: is a folder, a plan is a file (it has "},
    {"check base.lua --set 'optimizer=weft.moun{lr=1}'", 2,
     "weft: --set optimizer=weft.moun{lr=1}: weft has no 'moun' (did you mean "
     "'muon'?)\n"},
    {"check base.lua --set 'optimizer=weft.muon(f)'", 2,
     "weft: --set optimizer=weft.muon(f): 'f' is no value\n"},
    {"check base.lua --set mesh.tp", 2,
     "~--set mesh.tp: write --set PATH=VALUE, for example --set mesh.tp=4\n"},
};

/* ---- plans ---- */

static const Case plans[] = {
    {"check base.lua --set optimizer.stochastic_rounding=true", 1,
     "~optimizer.stochastic_rounding: states in f32 are not rounded"},
    {"check base.lua --set 'precision={param_dtype=\"bf16\",init_scale=8}'", 1,
     "~precision.init_scale: gradients of bf16 are not scaled"},
    {"check base.lua --set 'precision={param_dtype=\"f16\",backoff_factor=1}'", 1,
     "~precision.backoff_factor: "},
    {"run base.lua --set "
     "'precision={param_dtype=\"f16\",init_scale=1e30,min_scale=1e30}'",
     1, "~step 0: the gradient norm is"},
    {"run base.lua --set mesh.tpp=3", 1,
     "--set mesh.tpp=3: error: plan.mesh.tpp: unknown field (did you mean \"tp\"?)\n"
     "1 error\n"},
    {"run base.lua --set mesh.tp=abc", 1,
     "--set mesh.tp=abc: error: plan.mesh.tp: expected a positive integer, got string "
     "\"abc\"\n1 error\n"},
    {"check base.lua --set 'optimizer=weft.muon{lr=weft.cosine{max=1,mim=2}}'", 1,
     "--set optimizer=weft.muon{lr=weft.cosine{max=1,mim=2}}: error: "
     "plan.optimizer.lr.mim: unknown field (did you mean \"min\"?)\n1 error\n"},
    {"check base.lua --set optimizer.loss=1", 1,
     "--set optimizer.loss=1: error: plan.optimizer.loss: unknown field (a field of the "
     "plan itself)\n1 error\n"},
    {"run base.lua --set mesh.tp=3", 1,
     "~: error: plan.mesh.tp: 3 does not divide model.num_attention_heads = 4"},
    {"run base.lua --set mesh.world=8", 1,
     "base.lua:10: error: plan.mesh.dp: dp = 1, but world / (tp * pp * cp) = 8 / 2 = 4 "
     "(leave dp out or make it 4)\n1 error\n"},
    {"run base.lua --set cluster.gpu=h100-sxm", 1,
     "base.lua:10: error: plan.mesh.dp: dp = 1, but world / (tp * pp * cp) = 8 / 2 = 4: "
     "plan.cluster has 1 machine of 8 GPUs (leave dp out or make it 4; cluster = "
     "\"h100-sxm\", a name alone, has as many machines as the mesh needs)\n1 error\n"},
    {"check base.lua --set strategy.stage=3", 1,
     "--set strategy.stage=3: error: plan.strategy: the first item is the name of a "
     "strategy: { \"zero\", option = value } (the file has no strategy: --set "
     "'strategy={ "
     "... }' gives it whole)\n1 error\n"},
    {"run base.lua --set mesh.pp=3", 1,
     "~plan.mesh.pp: 3 stages (pp = 3 x virtual = 1), but the model has 2"},
    {"run base.lua --set model.num_hidden_layers=0", 1,
     "--set model.num_hidden_layers=0: error: plan.model.num_hidden_layers: expected a "
     "positive integer, got 0\n1 error\n"},
    {"run base.lua --set model.vocab_size=3000000000", 1,
     "~plan.model.vocab_size: expected at most 2147483647, got 3000000000\n"},
    {"run base.lua --set optimizer.lr=1e30", 1,
     "--set optimizer.lr=1e30: error: plan.optimizer.lr: expected a number from 0 to "
     "1000, got number 1e+30\n1 error\n"},
    {"run base.lua --set batch.seq=1e12", 1,
     "~plan.batch.seq: expected an integer of at most 1000000000, got number"},
    {"run base.lua --set batch.global=3 --set mesh.dp=2", 1,
     "~plan.batch.global: 3 is not a multiple of batch.micro * dp = 1 * 2 (nearest: 2 or "
     "4)"},
    {"run base.lua --set batch.global=2 --set mesh.dp=2 --set batch.micro=4", 1,
     "~plan.batch.global: 2 is not a multiple of batch.micro * dp = 4 * 2 (nearest: 8)"},
    {"run base.lua --set batch.global=1000000000000", 1,
     "~plan.batch.global: 1000000000000 microbatches are more than the 100000"},
    {"run base.lua --set data.vocab=1000", 1, "~plan.data.vocab: 1000 is above"},
    {"run hf.lua", 1, "~hf.lua:5: error: weft.vars.model has no value: give -D model="},
    {"run hf.lua -D model=3", 1,
     "~hf.lua:5: error: plan.model: weft.hf takes a string or a table, got number"},
    {"run model.lua", 1,
     "model.lua:7: error: plan.model: linear w: the input has 8 features, the weight "
     "takes 9\n1 error\n"},
    {"run recurse.lua", 1, "recurse.lua:2: error: stack overflow\n1 error\n"},
};

#define SCHEDULES WEFT_SOURCE_DIR "/tests/plans/bad_schedule_"

/* Too much of something: exit code 3, unless no machine could ever count it. */
static const Case limits[] = {
    {"check loop.lua", 3,
     "loop.lua:2: error: the plan was stopped after 50000000 instructions\n"},
    {"run loop.lua", 3,
     "loop.lua:2: error: the plan was stopped after 50000000 instructions\n"},
    {"run eat.lua", 3,
     "eat.lua: error: the plan needs more than its limit of 256 MiB of memory\n"},
    {"run schedule.lua -D case=loop", 3,
     "schedule.lua:29: error: the plan was stopped after 50000000 instructions\n"},
    {"check " SCHEDULES "loop.lua", 3, "~bad_schedule_loop.lua:5: error: the plan was "},
    {"check " SCHEDULES "memory.lua", 3, "~bad_schedule_memory.lua: error: the plan "},
    {"check " SCHEDULES "endless.lua", 1, "~bad_schedule_endless.lua:5: error: plan."},
    {"run base.lua --set mesh.dp=2000 --set batch.global=4000", 3,
     "weft: 4000 virtual ranks are more than one process runs (1024)\n"},
    {"run base.lua --set batch.seq=1000000000", 3,
     "~GiB of memory that this machine has; use a smaller batch.micro or batch.seq"},
    {"run base.lua --set model.vocab_size=2147483647", 3, "~weft: 2 ranks of 544.0 GiB"},
    {"run base.lua --set model.hidden_size=2147483640 --set batch.seq=1000000000", 1,
     "base.lua:11: error: plan.batch: embedding of model.embed_tokens would have "
     "2.15e+18 elements, at most 2^48 can be counted\n1 error\n"},
};

static const Case schedules[] = {
    {"run schedule.lua -D case=deadlock", 1,
     "schedule.lua:9: error: plan.schedule: deadlock, these actions wait for each "
     "other:\n"
     "  rank 0, step 1 (line 9): B of microbatch 0 waits for B of microbatch 0 of rank "
     "1, step 7 (line 9)\n"
     "  rank 1, step 0 (line 9): F of microbatch 3 waits for F of microbatch 3 of rank "
     "0, step 6 (line 9)\n1 error\n"},
    {"run schedule.lua -D case=twice", 1,
     "~schedule.lua:15: error: plan.schedule: rank 0, step 8: F of microbatch 0 is "
     "emitted twice, first at step 0 (line 14)\n"},
    {"run schedule.lua -D case=missing", 1,
     "~schedule.lua:19: error: plan.schedule: rank 1, step 3: F of microbatch 3 has no "
     "backward: B, or I and W, is missing\n"},
    {"run schedule.lua -D case=early", 1,
     "~schedule.lua:24: error: plan.schedule: rank 1, step 0: B of microbatch 0 comes "
     "before F of microbatch 0 at step 1 (line 24)\n"},
    {"run schedule.lua -D case=chunk", 1,
     "schedule.lua:27: error: plan.schedule: chunk 1 does not exist: there are 1, "
     "counted "
     "from 0\n1 error\n"},
    {"run schedule.lua -D case=fails", 1,
     "schedule.lua:31: error: plan.schedule: my own message\n1 error\n"},
};

START_TEST(usage_is_explained) { expect(&usage[_i]); }
END_TEST
START_TEST(plans_are_refused) { expect(&plans[_i]); }
END_TEST
START_TEST(limits_are_kept) { expect(&limits[_i]); }
END_TEST
START_TEST(schedules_are_refused) { expect(&schedules[_i]); }
END_TEST

/* The plan itself is fine: what the other tests see is what they changed. */
START_TEST(base_runs) {
  Outcome o = process_run(SECONDS, "$weft run base.lua --log log --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_str_eq(o.err, "");
  ck_assert_str_eq(o.out, "");
}
END_TEST

START_TEST(unreadable_plan) {
  if (geteuid() == 0) return; /* may read everything */
  ck_assert_int_eq(chmod(scratch_path("base.lua"), 0), 0);
  expect(&(Case){"run base.lua", 2,
                 "base.lua: error: cannot be opened: Permission denied\n"});
}
END_TEST

/* ---- logs ---- */

/* Every line of the log is a whole object, and the last one tells how the run has ended
 * (NULL: none does); returns how many steps there are. */
static int lines_of(const char *path, const char *event) {
  int n = 0;
  const char *s = scratch_log(path), *end;
  for (bool over = false; *s; s = end + 1) {
    end = strchr(s, '\n');
    ck_assert_msg(end != NULL, "half a line: %s", s);
    json_t *line = json_loadb(s, (size_t)(end - s), 0, NULL);
    ck_assert_msg(json_is_object(line) && !over, "%s", s);
    const char *is = json_string_value(json_object_get(line, "event"));
    over = is != NULL;
    ck_assert_msg(!over || (event && strcmp(is, event) == 0 && !end[1]), "%s", s);
    ck_assert_msg(over || json_integer_value(json_object_get(line, "step")) == n++, "%s",
                  s);
    json_decref(line);
  }
  return n;
}

/* ---- data ---- */

static const struct {
  const char *name, *bytes;
  size_t n;
  const char *err;
} data[] = {
    {"a.txt", "", 0, "a.txt: error: no data: 1 file, all empty\n"},
    {"a.txt", "abc", 3,
     "a.txt: error: 1 file with 3 bytes; one sample needs batch.seq + 1 = 9, the last as "
     "a label\n"},
    {"a.txt", "plain words, then \xc3\xa4\xc3\xb6 more words and then the end", 51,
     "~a.txt: error: byte 195 at offset 18 is not below the model's vocabulary of 128\n"},
    {"b.txt", "x", 1, "a.txt: error: no file matches (did you mean \"b.txt\"?)\n"},
    {"a.bin", "\1\0\2\0\3\0", 6,
     "a.bin: error: 1 file with 3 tokens; one sample needs batch.seq + 1 = 9, the last "
     "as "
     "a label\n"},
    {"a.bin", "\1\0\2\0\3", 5,
     "a.bin: error: has 5 bytes, which is odd; raw token files hold 16-bit ids\n"},
    {"a.bin", "\1\0\2\0\3\0\4\0\5\0\200\0\7\0\1\0\2\0\3\0", 20,
     "~a.bin: error: token 128 at offset 5 is not below the model's vocabulary of 128\n"},
};

START_TEST(data_is_checked) {
  bool text = strstr(data[_i].name, ".txt");
  scratch_put(data[_i].name, data[_i].bytes, data[_i].n);
  expect_of_field(text ? "run data.lua -D kind=text -D file=a.txt --log log"
                       : "run data.lua -D kind=tokens -D file=a.bin --log log",
                  data[_i].err, " (plan.data, data.lua:11)\n");
  lines_of(scratch_path("log"), NULL);
}
END_TEST

/* ---- weights ---- */

/* A safetensors file in memory. */
typedef struct Weights {
  json_t *header;
  char *data;
  size_t n;
} Weights;

static char *whole(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  ck_assert_ptr_nonnull(f);
  char *s = arena_alloc(scratch_arena, 1 << 20);
  *n = fread(s, 1, 1 << 20, f);
  ck_assert_uint_lt(*n, 1 << 20);
  fclose(f);
  return s;
}

static Weights read_weights(void) {
  size_t n;
  uint64_t header;
  char *s = whole(WEFT_SOURCE_DIR "/tests/oracle/llama/model.safetensors", &n);
  memcpy(&header, s, sizeof header);
  json_t *h = json_loadb(s + sizeof header, header, 0, NULL);
  ck_assert_ptr_nonnull(h);
  return (Weights){h, s + sizeof header + header, n - sizeof header - header};
}

/* Writes the folder "model": the weights and the oracle's config.json. */
static void write_model(const Weights *w, const char *config) {
  char *text = json_dumps(w->header, JSON_COMPACT);
  uint64_t n = strlen(text);
  ck_assert_int_eq(mkdir(scratch_path("model"), 0777), 0);
  FILE *f = fopen(scratch_path("model/model.safetensors"), "wb");
  ck_assert_ptr_nonnull(f);
  fwrite(&n, sizeof n, 1, f);
  fwrite(text, 1, n, f);
  fwrite(w->data, 1, w->n, f);
  ck_assert_int_eq(fclose(f), 0);
  free(text);
  size_t size = config ? strlen(config) : 0;
  if (!config) config = whole(WEFT_SOURCE_DIR "/tests/oracle/llama/config.json", &size);
  scratch_put("model/config.json", config, size);
}

#define NORM "model.norm.weight"

static void rename_norm(Weights *w) {
  json_object_set(w->header, "model.nrom.weight", json_object_get(w->header, NORM));
  json_object_del(w->header, NORM);
}

static void add_one(Weights *w) {
  json_object_set_new(w->header, "model.layers.9.bias",
                      json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "F32", "shape", 1,
                                "data_offsets", (json_int_t)w->n, (json_int_t)w->n + 4));
  w->n += 4; /* the buffer is larger and zero there */
}

static void turn(Weights *w) {
  json_object_set_new(json_object_get(w->header, "model.layers.0.mlp.up_proj.weight"),
                      "shape", json_pack("[i, i]", 32, 48));
}

static void cut_short(Weights *w) { w->n -= 100; }

/* The first value of the last norm. */
static void put_norm(Weights *w, float x) {
  json_t *at = json_object_get(json_object_get(w->header, NORM), "data_offsets");
  memcpy(w->data + json_integer_value(json_array_get(at, 0)), &x, sizeof x);
}
static void put_nan(Weights *w) { put_norm(w, NAN); }
static void put_inf(Weights *w) { put_norm(w, INFINITY); }

static const struct {
  void (*spoil)(Weights *w);
  int code;
  const char *err;
} weights[] = {
    {rename_norm, 2,
     "model: error: the weights do not fit the model (plan.model, hf.lua:5):\n"
     "  model.norm.weight: missing\n"
     "  model.nrom.weight: not in the model\n"},
    {add_one, 2,
     "model: error: the weights do not fit the model (plan.model, hf.lua:5):\n"
     "  model.layers.9.bias: not in the model\n"},
    {turn, 2,
     "model: error: the weights do not fit the model (plan.model, hf.lua:5):\n"
     "  model.layers.0.mlp.up_proj.weight: shape [32, 48], the model has [48, 32]\n"},
    {cut_short, 2, "~bytes of data (is the file complete?)"},
    {put_nan, 1, "~weft: step 0: loss is nan; first seen on rank "},
    {put_inf, 1, "~in op rmsnorm of model.norm\n"},
};

START_TEST(weights_are_checked) {
  Weights w = read_weights();
  weights[_i].spoil(&w);
  write_model(&w, NULL);
  json_decref(w.header);
  expect(
      &(Case){"run hf.lua -D model=model --log log", weights[_i].code, weights[_i].err});
  const char *end = weights[_i].code == 1 ? "failed" : NULL; /* else it has not begun */
  ck_assert_int_eq(lines_of(scratch_path("log"), end), 0);
  /* What the header says is found without a run. */
  if (weights[_i].code == 2)
    expect(&(Case){"check hf.lua -D model=model", 2, weights[_i].err});
}
END_TEST

START_TEST(files_that_are_no_weights) {
  Weights w = read_weights();
  write_model(&w, NULL);
  json_decref(w.header);
  const char *run = "run hf.lua -D model=model";
  scratch_put("model/model.safetensors", "nothing of the kind", 19);
  expect(&(Case){run, 2, "~model.safetensors: error: is not a safetensors file: "});
  scratch_put("model/model.safetensors", "", 0);
  expect(&(Case){run, 2, "~model.safetensors: error: has 0 bytes; a safetensors file "});
  remove(scratch_path("model/model.safetensors"));
  expect(&(Case){run, 2,
                 "model: error: holds neither model.safetensors nor "
                 "model.safetensors.index.json (plan.model, hf.lua:5)\n"});
  remove(scratch_path("model/config.json"));
  expect(
      &(Case){run, 1,
              "hf.lua:5: error: plan.model: model/config.json: cannot be opened: No such "
              "file or directory (weft.hf takes a folder that is at hand; nothing is "
              "downloaded)\n1 error\n"});
}
END_TEST

static const struct {
  const char *text, *err;
} configs[] = {
    {"{ \"model_type\": ,, }", "~plan.model: model/config.json:1: "},
    {"", "~plan.model: model/config.json:1: "},
    {"[1]", "hf.lua:5: error: plan.model: model/config.json:1: an object was expected\n"
            "1 error\n"},
    {"{\"model_type\": \"mamba\"}",
     "~hf.lua:5: error: plan.model: there is no model \"mamba\" (architectures: "
     "apertus, arcee, cohere2, deepseek_v3, "},
    {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\"}}",
     "hf.lua:5: error: plan.model: model/config.json: \"gemma3\" is a model of images or "
     "sound around one of text (text_config), and models of text alone are trained here "
     "(a folder of the model of text alone: its model_type is \"gemma3_text\")\n"
     "1 error\n"},
    {"{\"model_type\": \"llama\", \"hidden_size\": \"big\"}",
     "~plan.model.hidden_size: expected a positive integer, got \"big\"\n"},
    {"{\"model_type\": \"llama\", \"quantization_config\": {\"bits\": 4, "
     "\"quant_method\": \"gptq\"}, \"magic\": null}",
     "hf.lua:5: error: plan.model: model/config.json: quantized weights cannot be "
     "trained (quant_method = \"gptq\") (weights of mxfp4, or of fp8 in blocks of 128 x "
     "128, are read; adapter.base = \"nf4\" quantizes those of bf16, f16 and f32)\n"
     "1 error\n"},
    {"{\"model_type\": \"llama\", \"logit_cap\": 30.0, \"shared_kv\": true, "
     "\"extra\": false, \"hidden_size\": 0}",
     "~hf.lua:5: warning: plan.model: model/config.json has keys that mean nothing to "
     "llama "
     "models here: logit_cap, shared_kv\n"},
};

START_TEST(configs_are_checked) {
  Weights w = read_weights();
  write_model(&w, configs[_i].text);
  json_decref(w.header);
  expect(&(Case){"run hf.lua -D model=model", 1, configs[_i].err});
}
END_TEST

/* ---- while it runs ---- */

/* A learning rate that ends in NaN: the message names step, rank and op, and the log has
 * the steps before. */
START_TEST(a_loss_that_explodes) {
  Outcome o = process_run(
      SECONDS, "$weft run base.lua --set optimizer.lr=1000 --steps 20 --log log");
  ck_assert_int_eq(o.code, 1);
  int n = lines_of(scratch_path("log"), "failed");
  const char *at = strstr(o.err, "weft: step ");
  ck_assert_msg(at && atoi(at + 11) == n, "%d lines, %s", n, o.err);
  ck_assert_msg(strstr(at, " is nan; first seen on rank "), "%s", o.err);
  ck_assert_msg(strstr(at, " in op "), "%s", o.err);
}
END_TEST

START_TEST(an_interrupt_ends_the_run) {
  const char *log = scratch_path("log");
  Process p = process_start(SECONDS, "$weft run base.lua --steps 10000000 --log log -q");
  ck_assert(process_wait_for(&p, log, "\"step\":20,"));
  ck_assert_int_eq(kill(p.pid, SIGINT), 0);
  Outcome o = process_end(&p);
  ck_assert_int_eq(o.code, 130);
  ck_assert_msg(strncmp(o.err, "weft: interrupted ", 18) == 0, "%s", o.err);
  ck_assert_int_ge(lines_of(log, "interrupted"), 20);
}
END_TEST

START_TEST(a_kill_leaves_whole_lines) {
  const char *log = scratch_path("log");
  Process p = process_start(SECONDS, "$weft run base.lua --steps 10000000 --log log -q");
  ck_assert(process_wait_for(&p, log, "\"step\":20,"));
  ck_assert_int_eq(kill(p.pid, SIGKILL), 0);
  ck_assert_int_eq(process_end(&p).code, 128 + SIGKILL);
  ck_assert_int_ge(lines_of(log, NULL), 20);
}
END_TEST

Suite *bad_input_suite(void) {
  Suite *s = suite_create("bad_input");
  TCase *t = tcase_create("weft");
  tcase_set_timeout(t, 300);
  tcase_add_checked_fixture(t, copy_plans, scratch_teardown);
  tcase_add_test(t, base_runs);
  tcase_add_loop_test(t, usage_is_explained, 0, LEN(usage));
  tcase_add_loop_test(t, plans_are_refused, 0, LEN(plans));
  tcase_add_loop_test(t, limits_are_kept, 0, LEN(limits));
  tcase_add_loop_test(t, schedules_are_refused, 0, LEN(schedules));
  tcase_add_test(t, unreadable_plan);
  tcase_add_loop_test(t, data_is_checked, 0, LEN(data));
  tcase_add_loop_test(t, weights_are_checked, 0, LEN(weights));
  tcase_add_test(t, files_that_are_no_weights);
  tcase_add_loop_test(t, configs_are_checked, 0, LEN(configs));
  tcase_add_test(t, a_loss_that_explodes);
  tcase_add_test(t, an_interrupt_ends_the_run);
  tcase_add_test(t, a_kill_leaves_whole_lines);
  suite_add_tcase(s, t);
  return s;
}
