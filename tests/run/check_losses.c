/* check_losses.c - losses of a plan's own: on every mesh as on one rank, from the right
 * reference, of whole pairs; and what plans may not ask for. What the values must be,
 * PyTorch and TRL know (tests/oracle/preference.py). */
#include <check.h>
#include <math.h>

#include "bindings/api/job.h"
#include "tests/generate/random_plan.h"
#include "tests/harness/process.h"
#include "tests/harness/run_bits.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/weights_load.h"
#include "vm/weights/weights_open.h"

#define LLAMA(rest)                                                                      \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { 'llama', num_hidden_layers = 8,\n"            \
  "  hidden_size = 16, num_attention_heads = 4, num_key_value_heads = 2,\n"              \
  "  intermediate_size = 24, vocab_size = 96, initializer_range = 0.2 },\n"              \
  "  batch = { global = 8, micro = 2, seq = 16 },\n"                                     \
  "  optimizer = weft.adamw { lr = 1e-2 }, train = { steps = 3, seed = 3 },\n" rest

/* Every op that losses are written of, with gradients through each operand. */
#define OWN                                                                              \
  "{ function(g, x, o)\n"                                                                \
  "  local losses = g:row_sums(g:token_losses(x.logits, x.labels))\n"                    \
  "  local apart = g:divergence(x.reference, x.logits, x.labels, { beta = 0.5 })\n"      \
  "  local back = g:divergence(x.logits, x.reference, x.labels, { beta = 0.2 })\n"       \
  "  local far = g:row_sums(g:add(back, g:scale(apart, { scale = 0 })))\n"               \
  "  local by = g:offset(losses, { scale = 100 })\n"                                     \
  "  local a, b = g:split_pairs(g:divide(losses, by))\n"                                 \
  "  local c, d = g:split_pairs(far)\n"                                                  \
  "  a = g:exponential(g:add(a, g:relu(g:offset(b, { scale = -o.margin }))))\n"          \
  "  a = g:mul(g:add(a, c), g:log_sigmoid(g:offset(d, { scale = 1 })))\n"                \
  "  return g:sum_all(g:add(a, b))\n"                                                    \
  "end, per = 'pairs', reference = 'copy', margin = 0.3 }"

static const struct {
  const char *loss;
  double tolerance;
} losses[] = {
    {"loss = { 'cross_entropy', per = 'sequences' }", 1e-5},
    {"loss = { 'dpo', beta = 0.5 }", 1e-5},
    {"loss = { 'dpo', label_smoothing = 0.2 }, adapter = { 'lora', rank = 2 }", 3e-5},
};

static const char *const meshes[] = {
    "mesh = { dp = 2, tp = 2 }",
    "mesh = { tp = 4 }, strategy = { 'zero', stage = 1, sequence_parallel = true }",
    "mesh = { pp = 4 }, schedule = 'zbv'",
    "mesh = { pp = 2, dp = 2 }, strategy = 'fsdp2', recompute = 'full'",
    "mesh = { cp = 4 }, tp_plan = { lm_head = 'replicate' }",
    "mesh = { cp = 2, tp = 2 }, cp = { comm = 'ring' }, packed = { size = 16, eot = 3, "
    "alone = true }, strategy = { 'zero', loss_parallel = false }",
};

START_TEST(the_same_on_every_mesh) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  int loss = _i / LEN(meshes);
  text_printf(&plan, LLAMA("%s, %s, data = weft.synthetic {} }\n"), losses[loss].loss,
              meshes[_i % LEN(meshes)]);
  weft_status st = plan_parity(plan.s, 3, losses[loss].tolerance, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s%s", why.s ? why.s : "", plan.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

START_TEST(a_function_of_the_plan) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  text_printf(&plan, LLAMA("loss = " OWN ", %s, data = weft.synthetic {} }\n"),
              meshes[_i]);
  weft_status st = plan_parity(plan.s, 2, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s%s", why.s ? why.s : "", plan.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* ---- where runs begin ---- */

static const LangOptions options;
static Arena *arena;
static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

/* The losses of two steps. */
static void two_steps(const char *text, double loss[2]) {
  Job j;
  Run *r;
  Data *d;
  RunOptions how = {.world = world_kind("local", NULL), .threads = 1};
  const char *path = scratch_put("plan.lua", text, strlen(text));
  OK(job_open(&j, arena, &options, path));
  OK(job_data(&j, NULL, &d));
  OK(run_open(&j.plan, j.compiled, &how, &r, &trace_err));
  OK(run_init(r, &trace_err));
  for (int i = 0; i < 2; i++) {
    StepResult res = {.step = i};
    OK(run_step(r, d, i, &res, &trace_err));
    loss[i] = res.loss;
  }
  run_close(r);
  data_close(d);
  job_free(&j);
}

/* A model that is its reference prefers nothing: the loss is log 2, and not afterwards.
 * So the reference has the model's values, on whatever mesh, and keeps them. */
START_TEST(begins_at_its_reference) {
  static const char *const rest[] = {
      "loss = 'dpo', mesh = { dp = 2, pp = 2 }, ",
      "loss = { 'dpo', label_smoothing = 0.3 }, mesh = { tp = 2 }, ",
      "loss = 'dpo', adapter = { 'lora', rank = 2 }, mesh = { dp = 2 }, ",
      "loss = { 'dpo', reference = 'copy' }, adapter = { 'lora', rank = 2 }, ",
  };
  double loss[2];
  two_steps(arena_printf(arena, LLAMA("%s data = weft.synthetic {} }\n"), rest[_i]),
            loss);
  ck_assert_double_eq_tol(loss[0], log(2), 1e-6);
  ck_assert_double_gt(fabs(loss[1] - loss[0]), 1e-4);
}
END_TEST

/* ---- pairs of files ---- */

/* Documents (2k + 1, 90, 0) and (2k + 2, 90, 0). */
static void put_pairs(int documents) {
  uint16_t id[300];
  for (int i = 0; i < documents; i++)
    id[3 * i] = (uint16_t)(i + 1), id[3 * i + 1] = 90, id[3 * i + 2] = 0;
  scratch_put("pairs.bin", (char *)id, (size_t)documents * 6);
}

#define PAIRS                                                                            \
  "loss = 'dpo', packed = { eot = 0, size = 16, alone = true }, "                        \
  "data = weft.tokens { 'pairs.bin' } }\n"

START_TEST(shuffles_pairs_and_not_their_halves) {
  Job j;
  Data *d;
  int32_t tokens[2][16], labels[16];
  int moved = 0;
  put_pairs(20);
  const char *path = scratch_put("plan.lua", LLAMA(PAIRS), strlen(LLAMA(PAIRS)));
  OK(job_open(&j, arena, &options, path));
  OK(job_data(&j, NULL, &d));
  ck_assert_int_eq(data_windows(d), 20);
  for (int i = 0; i < 40; i += 2) {
    for (int k = 0; k < 2; k++) OK(data_sample(d, i + k, tokens[k], labels, &trace_err));
    ck_assert_int_eq(tokens[0][0] % 2, 1);
    ck_assert_int_eq(tokens[1][0], tokens[0][0] + 1);
    ck_assert_int_eq(labels[1], 0);
    ck_assert_int_eq(labels[2], LABEL_DOCUMENT_END);
    moved += tokens[0][0] != i % 20 + 1;
  }
  ck_assert_int_gt(moved, 5);
  data_close(d);
  job_free(&j);
}
END_TEST

/* ---- messages ---- */

static const struct {
  const char *plan, *text;
} refused[] = {
    {"loss = 'dpa'", "plan.loss: unknown value \"dpa\" (did you mean \"dpo\"?)"},
    {"loss = { 'dpo', bet = 1 }",
     "plan.loss.bet: unknown field (did you mean \"beta\"?)"},
    {"loss = { 'dpo', beta = 0 }", "plan.loss.beta: expected a number of at least 1e-06"},
    {"loss = 3", "a name or a function, or a table that begins with one"},
    {"loss = { 'dpo', reference = 'base' }", "the plan has no adapter"},
    {"loss = { function() end, per = 'words' }", "plan.loss.per"},
    {"loss = { 'distill' }", "plan.loss.teacher: is missing"},
    {"loss = { 'distill', teacher = 'nowhere' }", "nowhere/config.json"},
    {"loss = 'dpo', loss_chunks = 2", "plan.loss_chunks: is built for the cross entropy"},
    {"loss = 'dpo', packed = { eot = 3 }", "needs one document in each"},
    {"loss = 'dpo', data = weft.tokens { 'pairs.bin' }", "two of which are a pair"},
    {"loss = 'dpo', data = weft.tokens { 'pairs.bin', val_fraction = 0.5 }, "
     "packed = { eot = 0, size = 16, alone = true }",
     "plan.data.val_fraction: is not built for pairs"},
    {"loss = 'dpo', packed = { eot = 0, size = 16, alone = true, too_long = 'drop' }",
     "leave pairs whole"},
    {"loss = function(g, x) return 3 end", "must return the loss"},
    {"loss = function(g, x) return g:row_sums(x.logits) end",
     "operand 1 must be f32 (batch, seq)"},
    {"loss = function(g, x) return g:sum_all(x.reference) end", "got nil"},
    {"loss = { function(g, x) return g:cross_entropy(x.logits, x.labels) end, "
     "reference = 'copy' }",
     "parameter reference.model.embed_tokens.weight does not influence the loss"},
    {"loss = 'dpo', batch = { global = 6, micro = 3, seq = 16 }",
     "3 sequences are no pairs: batch.micro is to be even"},
    {"loss = 'dpo', mesh = { dp = 2 }, batch = { global = 6, micro = 3, seq = 16 }",
     "plan.batch.micro: the loss is of pairs of sequences, and 3 in a microbatch would "
     "split one"},
};

START_TEST(names_what_is_wrong) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  bool data = strstr(refused[_i].plan, "data =") != NULL;
  text_printf(&plan, LLAMA("%s%s }\n"), data ? "" : "data = weft.synthetic {}, ",
              refused[_i].plan);
  ck_assert_int_eq(plan_parity(plan.s, 1, 1e-5, &r, &why), WEFT_EPLAN);
  ck_assert_msg(strstr(why.s, refused[_i].text), "%s\nhas no: %s", why.s,
                refused[_i].text);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* What is said of a loss's option is not said of one that has none of that name. */
START_TEST(options_are_of_a_loss) {
  Text why = {0};
  VerifyReport r;
  static const char plan[] =
      LLAMA("data = weft.synthetic {}, loss = { 'distill', teacher = 'x', "
            "reference_file = 'y' } }\n");
  ck_assert_int_eq(plan_parity(plan, 1, 1e-5, &r, &why), WEFT_EPLAN);
  ck_assert_msg(strstr(why.s, "loss.reference_file: unknown field") != NULL, "%s", why.s);
  ck_assert_msg(!strstr(why.s, "has what a reference gave"), "%s", why.s);
  text_free(&why);
}
END_TEST

/* A model that ends in a loss of its own does not know the plan's. */
START_TEST(models_end_in_the_loss_of_the_plan) {
  Text why = {0};
  VerifyReport r;
  const char *plan =
      "local weft = require 'weft'\n"
      "local function model(g)\n"
      "  local e = g:param('e.weight', { { 'vocab', 32 }, { 'hidden', 8 } })\n"
      "  return g:cross_entropy(g:linear(g:embedding(g:tokens(), e), e), g:labels())\n"
      "end\n"
      "return weft.plan { model = model, data = weft.synthetic {},\n"
      "  loss = { 'cross_entropy', per = 'sequences' },\n"
      "  batch = { global = 1, micro = 1, seq = 8 } }\n";
  ck_assert_int_eq(plan_parity(plan, 1, 1e-5, &r, &why), WEFT_EPLAN);
  ck_assert_msg(strstr(why.s, "it ends in g:loss(logits)"), "%s", why.s);
  text_free(&why);
}
END_TEST

/* ---- a teacher ---- has other sizes, half as many layers, and tied weights or not */

static void put_teacher(const char *of) {
  Outcome o = process_run(60, "cp -r " WEFT_SOURCE_DIR "/tests/oracle/%s teacher", of);
  ck_assert_int_eq(o.code, 0);
}

START_TEST(a_teacher_on_every_mesh) {
  static const char *const options[] = {"temperature = 2, beta = 0.3",
                                        "alpha = 1, beta = 1"};
  const char *text =
      arena_printf(arena,
                   LLAMA("loss = { 'distill', teacher = 'teacher', %s }, %s,\n"
                         "data = weft.synthetic {} }\n"),
                   options[_i / LEN(meshes)], meshes[_i % LEN(meshes)]);
  put_teacher(_i % 2 ? "llama" : "llama_tied");
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft verify plan.lua");
  ck_assert_msg(o.code == 0 && strstr(o.out, "the same"), "%s%s%s", text, o.out, o.err);
}
END_TEST

START_TEST(a_teacher_of_another_vocabulary) {
  const char *text = LLAMA("loss = { 'distill', teacher = 'teacher' } }\n");
  put_teacher("steps_llama");
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft check plan.lua");
  ck_assert_int_ne(o.code, 0);
  ck_assert_msg(strstr(o.err, "the vocabularies differ"), "%s", o.err);
}
END_TEST

/* ---- a teacher beside a model of initial values ---- */

#define WIDE(rest)                                                                       \
  "return require 'weft'.plan { model = require 'weft'.model { 'llama',\n"               \
  "  num_hidden_layers = 1, hidden_size = 128, num_attention_heads = 4,\n"               \
  "  intermediate_size = 128, vocab_size = 96 }, data = require 'weft'.synthetic {},\n"  \
  "  batch = { global = 4, micro = 2, seq = 16 }, train = { steps = 1 },\n" rest " }\n"

/* One whose rows are whole blocks: all bases of the plan are stored in 4 bits. */
static void make_teacher(void) {
  const char *text = WIDE("checkpoint = { dir = 'ck', every = 1 }");
  scratch_put("teacher.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft run teacher.lua -q");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft ckpt export teacher.lua ck teacher");
  ck_assert_msg(o.code == 0, "%s", o.err);
}

/* All parameters but the teacher's, one after the other. */
static float *values_of(Run *r, const Compiled *c, int64_t *n) {
  float *all = arena_alloc(arena, (size_t)c->params_total * 2 * sizeof *all);
  *n = 0;
  for (int i = 0; i < c->nparam; i++) {
    if (strncmp(c->param[i].name, "teacher.", 8) == 0) continue;
    OK(run_get(r, STATE_PARAM, i, all + *n, &trace_err));
    *n += param_count(&c->param[i]);
  }
  return all;
}

static const char *const initial_bases[] = {
    "adapter = { 'lora', rank = 4, dora = true }",
    "adapter = { 'lora', rank = 4, base = 'nf4' }, mesh = { dp = 2 }, strategy = 'fsdp2'",
    "adapter = { 'lora', rank = 4, dora = true, base = 'nf4', "
    "targets = { 'q_proj', 'down_proj' } }, mesh = { tp = 2 }",
};

/* Files have nothing of what magnitudes and codes follow from here. */
START_TEST(a_teacher_changes_no_initial_values) {
  Job j;
  Run *r;
  SafeTensors *s;
  RunOptions how = {.world = world_kind("local", NULL), .threads = 1};
  Folders in = {.plan = scratch_dir};
  const char *text = arena_printf(
      arena, WIDE("loss = { 'distill', teacher = 'teacher' }, %s"), initial_bases[_i]);
  make_teacher();
  OK(job_open(&j, arena, &options, scratch_put("plan.lua", text, strlen(text))));
  OK(run_open(&j.plan, j.compiled, &how, &r, &trace_err));
  OK(weights_open(NULL, NULL, NULL, &j.plan, &in, &s, &trace_err));
  OK(run_load(r, s, &trace_err));
  int64_t n, same;
  const float *loaded = values_of(r, j.compiled, &n);
  OK(run_init(r, &trace_err));
  const float *initial = values_of(r, j.compiled, &same);
  ck_assert_int_eq(n, same);
  ck_assert(memcmp(loaded, initial, (size_t)n * sizeof *loaded) == 0);
  st_close(s);
  run_close(r);
  job_free(&j);
}
END_TEST

/* ---- sampling ---- */

static const char *const second_models[] = {
    "loss = { 'dpo', reference = 'copy' }",
    "loss = { 'distill', teacher = 'teacher' }",
    "loss = { 'distill', teacher = 'teacher' }, adapter = { 'lora', rank = 2 }",
};

/* Tokens come from the model alone: its checkpoint has the other one, too. */
START_TEST(samples_without_the_second_model) {
  const char *text = arena_printf(arena,
                                  LLAMA("%s, data = weft.synthetic {},\n"
                                        "checkpoint = { dir = 'ck', every = 3 } }\n"),
                                  second_models[_i]);
  put_teacher("llama");
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft run plan.lua -q");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft sample plan.lua --ckpt ck --tokens 1,2 --max-tokens 3");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft run plan.lua -q --resume ck --set train.steps=4");
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

/* Parameters of no second model are the model's, or the checkpoint is of another. */
START_TEST(samples_no_other_model) {
  const char *text = LLAMA("loss = { 'dpo', reference = 'copy' }, data = "
                           "weft.synthetic {}, checkpoint = { dir = 'ck', every = 3 } "
                           "}\n");
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft run plan.lua -q");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft sample plan.lua --ckpt ck --tokens 1,2 --max-tokens 3 "
                      "--set model.num_hidden_layers=7");
  ck_assert_int_ne(o.code, 0);
  ck_assert_msg(strstr(o.err, "model.layers.7.") && !strstr(o.err, "reference."), "%s",
                o.err);
}
END_TEST

/* ---- folders of teachers ---- */

static const char lm_head[] = "lm_head.weight";

/* Writes the weights of a teacher again: names lose `base`; with `by` >= 0 the embedding
 * is repeated as the head, whose first element is greater by so much. */
static void rewrite_teacher(const char *base, float by) {
  SafeTensors *s;
  const char *path = scratch_path("teacher/model.safetensors");
  size_t skip = strlen(base);
  OK(st_open(NULL, path, NULL, &s, &trace_err));
  int n = st_count(s);
  StWrite *t = NEW_N(arena, StWrite, n + 1);
  for (int i = 0; i < st_count(s); i++) {
    const SafeTensor *from = st_at(s, i);
    const char *name = from->name;
    float *data = arena_alloc(arena, from->bytes);
    OK(st_read_f32(from, data, &trace_err));
    if (strncmp(name, base, skip) == 0) name += skip;
    t[i] = (StWrite){.name = arena_str(arena, name), .ndim = from->ndim, .data = data};
    memcpy(t[i].dim, from->dim, sizeof t[i].dim);
    if (by < 0 || !strstr(name, "embed_tokens")) continue;
    data = arena_copy(arena, data, from->bytes);
    data[0] += by;
    t[n] = t[i];
    t[n].name = lm_head, t[n++].data = data;
  }
  st_close(s);
  OK(st_write(NULL, path, t, n, &trace_err));
}

static const struct {
  const char *of, *base;
  float by;
  const char *says; /* NULL: it is a teacher */
} folders[] = {
    {"gpt2", "transformer.", -1, NULL},
    {"llama", "model.", -1, NULL},
    {"llama_tied", "", 0, NULL},
    {"llama_tied", "model.", 0, NULL},
    {"llama_tied", "", 1,
     "teacher.lm_head.weight: differs from teacher.model.embed_tokens.weight"},
};

/* What weft.hf takes is a teacher, too, also beside a model of a folder. */
START_TEST(folders_of_the_hub_teach) {
  const char *model = _i % 2 ? "weft.model { 'llama', num_hidden_layers = 2, hidden_size "
                               "= 32, num_attention_heads = 4, vocab_size = 96 }"
                             : "weft.hf 'student'";
  int row = _i / 2;
  const char *text =
      arena_printf(arena,
                   "local weft = require 'weft'\nreturn weft.plan { model = %s,\n"
                   "batch = { global = 2, micro = 2, seq = 8 }, train = { steps = 1 },\n"
                   "data = weft.synthetic {},\n"
                   "loss = { 'distill', teacher = 'teacher' } }\n",
                   model);
  put_teacher(folders[row].of);
  OK(process_run(60, "cp -r " WEFT_SOURCE_DIR "/tests/oracle/llama_tied student").code);
  rewrite_teacher(folders[row].base, folders[row].by);
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft run plan.lua -q");
  if (folders[row].says)
    ck_assert_msg(o.code != 0 && strstr(o.err, folders[row].says), "%s", o.err);
  else
    ck_assert_msg(o.code == 0, "%s, %s: %s", folders[row].of, text, o.err);
}
END_TEST

START_TEST(odd_documents_are_no_pairs) {
  put_pairs(7);
  scratch_put("plan.lua", LLAMA(PAIRS), strlen(LLAMA(PAIRS)));
  Outcome o = process_run(60, "$weft run plan.lua -q");
  ck_assert_int_ne(o.code, 0);
  ck_assert_msg(strstr(o.err, "7 documents are no pairs"), "%s", o.err);
}
END_TEST

Suite *losses_suite(void);
Suite *losses_suite(void) {
  Suite *s = suite_create("losses");
  TCase *tc = tcase_create("meshes");
  suite_add_tcase(s, tc);
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, the_same_on_every_mesh, 0, LEN(losses) * LEN(meshes));
  tcase_add_loop_test(tc, a_function_of_the_plan, 0, LEN(meshes));
  tcase_add_loop_test(tc, names_what_is_wrong, 0, LEN(refused));
  tcase_add_test(tc, options_are_of_a_loss);
  tcase_add_test(tc, models_end_in_the_loss_of_the_plan);
  tc = tcase_create("runs");
  suite_add_tcase(s, tc);
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, begins_at_its_reference, 0, 4);
  tcase_add_test(tc, shuffles_pairs_and_not_their_halves);
  tcase_add_test(tc, odd_documents_are_no_pairs);
  tcase_add_loop_test(tc, a_teacher_on_every_mesh, 0, 2 * LEN(meshes));
  tcase_add_test(tc, a_teacher_of_another_vocabulary);
  tcase_add_loop_test(tc, a_teacher_changes_no_initial_values, 0, LEN(initial_bases));
  tcase_add_loop_test(tc, samples_without_the_second_model, 0, LEN(second_models));
  tcase_add_test(tc, samples_no_other_model);
  tcase_add_loop_test(tc, folders_of_the_hub_teach, 0, 2 * LEN(folders));
  return s;
}
