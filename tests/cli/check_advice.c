/* check_advice.c - what weft says about plans that are legal and not what they look like,
 * and about names that belong elsewhere. */
#include <check.h>
#include <stdio.h>

#include "bindings/schema/schema.h"
#include "tests/harness/process.h"

enum { SECONDS = 30 };

/* The warnings of `weft check` on a small plan with these fields; an own field hides one
 * of the plan. */
static void warns(const char *fields, const char *want) {
  Text t = {0};
  text_printf(&t,
              "local weft = require 'weft'\n"
              "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = "
              "2 },\n%s }\n",
              fields);
  scratch_put("plan.lua", t.s, t.n);
  text_free(&t);
  Outcome o = process_run(SECONDS, "$weft check --quiet plan.lua");
  ck_assert_msg(o.code == 0 && strcmp(o.err, want) == 0, "exit %d\n%s", o.code, o.err);
}

#define BATCH "batch = { global = 8, seq = 64 }"

START_TEST(warmup_and_positions) {
  warns(BATCH ", train = { steps = 5 },\n"
              "optimizer = weft.adamw { lr = weft.cosine { max = 1e-3, warmup = 5 } }",
        "");
  warns(BATCH ", train = { steps = 5 },\n"
              "optimizer = weft.adamw { lr = weft.cosine { max = 1e-3, warmup = 6 } }",
        "plan.lua:4: warning: plan.optimizer.lr.warmup: the run ends after train.steps = "
        "5, "
        "before the warmup of 6 steps does [warmup]\n1 warning\n");
  warns("batch = { global = 1, seq = 4096 }",
        "plan.lua:3: warning: plan.batch.seq: 4096 tokens are more than "
        "model.max_position_embeddings = 1024 [positions]\n1 warning\n");
}
END_TEST

static const struct {
  const char *lr, *want;
} rates[] = {
    {"weft.linear { max = 1, warmup = 3, steps = 10 }", ""},
    {"weft.linear { max = 1, warmup = 10 }", ""},
    {"weft.cosine { max = 1, min = 0.1, steps = 6 }", ""},
    {"weft.constant { max = 1, warmup = 10 }", ""},
    {"weft.inverse_sqrt { max = 1, warmup = 10 }", ""},
    {"weft.wsd { max = 1, warmup = 6, decay = 4 }", ""},
    {"weft.wsd { max = 1, warmup = 6, decay = 5 }",
     "decay: the warmup of 6 steps leaves 4 of 10 for a fall of 5, which takes these"},
    {"weft.wsd { max = 1, warmup_ratio = 0.5, decay_ratio = 0.6, min = 0.1 }",
     "decay_ratio: the warmup of 5 steps leaves 5 of 10 for a fall of 6, which takes "
     "these"},
    {"weft.wsd { max = 1, decay = 11 }",
     "decay: the warmup of 0 steps leaves 10 of 10 for a fall of 11, which takes these"},
    {"weft.linear { max = 1, min = 0.1, warmup = 5, steps = 5 }",
     "steps: 5 is no more than the warmup of 5 steps: behind it the rate is 0.1 at once"},
    {"weft.cosine { max = 1, min_ratio = 0.5, warmup = 5, steps = 3 }",
     "steps: 3 is no more than the warmup of 5 steps: behind it the rate is 0.5 at once"},
    {"weft.linear { max = 1, steps = 6 }",
     "steps: the rate is 0 from step 6 on, and train.steps = 10"},
};

/* A fall that is shorter than the plan says, or over too soon. */
START_TEST(rates_that_fall_otherwise) {
  const char *want = rates[_i].want;
  if (*want)
    want = arena_printf(scratch_arena,
                        "plan.lua:4: warning: plan.optimizer.lr.%s [warmup]\n1 warning\n",
                        want);
  warns(arena_printf(scratch_arena,
                     BATCH
                     ", train = { steps = 10 },\noptimizer = weft.adamw { lr = %s }",
                     rates[_i].lr),
        want);
}
END_TEST

/* A model function that has two layers of attention, of which `starts` gives what they
 * take behind q, k and v. */
static const char *attends(const char *first, const char *second, const char *fields) {
  return arena_printf(
      scratch_arena,
      "local weft = require 'weft'\n"
      "local function layer(g, i, x, starts)\n"
      "  local function to(name)\n"
      "    return g:linear(x, g:param('layers.' .. i .. name, { { 'head', 8, unit = 4 }, "
      "{ 'hidden', 8 } }))\n"
      "  end\n"
      "  local q, k, v = to '.q', to '.k', to '.v'\n"
      "  if starts then return g:attention(q, k, v, starts, { head_dim = 4 }) end\n"
      "  return g:attention(q, k, v, { head_dim = 4 })\n"
      "end\n"
      "local function model(g)\n"
      "  local e = g:param('e', { { 'vocab', 64 }, { 'hidden', 8 } })\n"
      "  local x = g:embedding(g:tokens(), e)\n"
      "  x = g:layer(0, function() return layer(g, 0, x, %s) end)\n"
      "  x = g:layer(1, function() return layer(g, 1, x, %s) end)\n"
      "  return g:cross_entropy(g:linear(x, e), g:labels())\n"
      "end\n"
      "return weft.plan { model = model, batch = { global = 1, seq = 16 },\n%s }\n",
      first, second, fields);
}

#define STARTS "g:doc_starts()"
#define SEES                                                                             \
  ": sees the other documents of a sequence, as it does not take g:doc_starts() "        \
  "[documents]\n1 warning\n"

static const struct {
  const char *first, *second, *fields, *want;
} attention[] = {
    {"nil", "nil", "", ""},
    {STARTS, STARTS, "packed = { eot = 1 }", ""},
    {"nil", "nil", "packed = { size = 16, alone = true }", ""},
    {"nil", "nil", "packed = { eot = 1 }",
     "plan.lua:8: warning: plan.packed: attention of layers.0 and of 1 more" SEES},
    {STARTS, "nil", "packed = { bos = 1, labels = 'within' }",
     "plan.lua:8: warning: plan.packed: attention of layers.1" SEES},
    {"nil", STARTS, "packed = { size = 16 }",
     "plan.lua:8: warning: plan.packed: attention of layers.0" SEES},
};

START_TEST(attention_over_documents) {
  const char *plan =
      attends(attention[_i].first, attention[_i].second, attention[_i].fields);
  scratch_put("plan.lua", plan, strlen(plan));
  Outcome o = process_run(SECONDS, "$weft check --quiet plan.lua");
  ck_assert_msg(o.code == 0 && str_eq(o.err, attention[_i].want), "exit %d\n%s", o.code,
                o.err);
}
END_TEST

#define HALF_FULL                                                                        \
  ", packed = { size = 16, eot = 0 }, data = weft.tokens { 'd.bin', shuffle = false },"  \
  " moe = { "

static const struct {
  int length;
  const char *moe;
  bool warns;
} padded[] = {
    {9, "aux_loss_coef = 0.01 }", true},   {9, "z_loss_coef = 0.01 }", true},
    {9, "capacity_factor = 2 }", true},    {9, "dispatcher = 'allgather' }", false},
    {15, "aux_loss_coef = 0.01 }", false},
};

/* Documents of 9 tokens leave 7 of 16 in each row for padding, all of whose tokens choose
 * the same experts. */
START_TEST(padding_that_routers_see) {
  uint16_t id[32 * 15];
  int length = padded[_i].length, n = 32 * length;
  for (int i = 0; i < n; i++) id[i] = (i + 1) % length ? (uint16_t)(1 + i % 200) : 0;
  scratch_put("d.bin", (char *)id, (size_t)n * sizeof *id);
  const char *plan = arena_printf(scratch_arena,
                                  "local weft = require 'weft'\nreturn weft.plan { model "
                                  "= weft.model 'mixtral-tiny', "
                                  "batch = { global = 2, seq = 16 }" HALF_FULL "%s }\n",
                                  padded[_i].moe);
  scratch_put("plan.lua", plan, strlen(plan));
  Outcome o = process_run(SECONDS, "$weft check --quiet plan.lua");
  bool warns = strstr(o.err, "plan.data: 44 % of the tokens in rows are padding, which "
                             "routers see, too") != NULL;
  ck_assert_msg(o.code == 0 && warns == padded[_i].warns, "exit %d\n%s", o.code, o.err);
}
END_TEST

START_TEST(tensor_parallelism_that_does_little) {
  warns(BATCH ", mesh = { tp = 2 }", "");
  warns(
      BATCH ", mesh = { tp = 2 },\ntp_plan = { norm = 'replicate' }",
      "plan.lua:4: warning: plan.tp_plan: all parameters are whole on each rank of tp = "
      "2, which then repeat each other's work [tp-whole]\n1 warning\n");
  warns(BATCH
        ",\nmesh = { tp = 4, dp = 2 }, cluster = weft.cluster { nodes = 2, gpus = 4 }",
        "");
  warns(BATCH
        ",\nmesh = { tp = 4, dp = 1 }, cluster = weft.cluster { nodes = 2, gpus = 2 }",
        "plan.lua:4: warning: plan.mesh.tp: groups of tp = 4 reach over machines of 2 "
        "GPUs: "
        "every layer waits for the network [tp-network]\n1 warning\n");
  /* What NVLink joins may be more than a machine, or less. */
  warns(BATCH ",\nmesh = { tp = 4, dp = 4 }, cluster = weft.cluster { gpus = 2, "
              "nodes = 8, domain = 72 }",
        "");
  warns(BATCH ",\nmesh = { tp = 4, dp = 1 }, cluster = weft.cluster { gpus = 4, "
              "nodes = 1, domain = 2 }",
        "plan.lua:4: warning: plan.mesh.tp: groups of tp = 4 reach over the 2 GPUs that "
        "NVLink joins: every layer waits for their machine's PCIe [tp-network]\n"
        "1 warning\n");
}
END_TEST

/* The warning of `weft check` on a plan for GPUs; `want`: what it says, "": it says none.
 */
static void sizes(const char *fields, const char *want) {
  Text t = {0};
  text_printf(
      &t,
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 2048,\n"
      "num_hidden_layers = 8, num_attention_heads = 16, intermediate_size = 8192,\n"
      "vocab_size = 32000, max_position_embeddings = 200000 },\n%s }\n",
      fields);
  scratch_put("plan.lua", t.s, t.n);
  text_free(&t);
  Outcome o = process_run(SECONDS, "$weft check --quiet plan.lua");
  bool right = *want ? strstr(o.err, want) != NULL : !*o.err;
  ck_assert_msg(o.code == 0 && right, "exit %d\n%s", o.code, o.err);
}

#define ON_GPUS "cluster = 'h100-sxm', precision = 'bf16', "

/* Each with what another setting gains; and none where that gains nothing. */
START_TEST(rules_of_sizing) {
  sizes(
      ON_GPUS "mesh = { world = 8, pp = 4, tp = 2 }, batch = { global = 16, micro = 4, "
              "seq = 2048 }",
      "plan.batch.micro: 4 microbatches on 4 pipeline ranks leave 43 % of the step idle; "
      "with micro = 1 there are 16, and by the clock a step takes ");
  sizes(ON_GPUS "mesh = { world = 8, pp = 4, tp = 2 }, batch = { global = 64, micro = 4, "
                "seq = 2048 }",
        "");
  sizes(
      "cluster = 'h100-sxm', mesh = { world = 2, tp = 2 }, batch = { global = 4, seq = "
      "2048 }",
      "plan.precision: nothing says the type, so all is computed in f32; with \"bf16\" a "
      "step takes ");
  sizes(
      "cluster = 'h100-sxm', precision = 'f32', mesh = { world = 2, tp = 2 }, batch = { "
      "global = 4, seq = 2048 }",
      "");
}
END_TEST

#define ON_SMALL_ONES                                                                    \
  "cluster = weft.cluster { gpus = 8, nodes = 1, gpu = { 'h100-sxm', memory_gib = 24 } " \
  "},\n"                                                                                 \
  "precision = 'bf16', mesh = { world = 8 }, "

START_TEST(copies_and_long_sequences) {
  sizes(ON_SMALL_ONES
        "batch = { global = 8, seq = 2048 }, strategy = { 'zero', stage = 0 }",
        "plan.strategy: each of 8 data-parallel ranks keeps all states of the "
        "optimizer; \"zero\" with stage = 1 needs ");
  sizes(ON_SMALL_ONES
        "batch = { global = 8, seq = 2048 }, strategy = { 'zero', stage = 1 }",
        "");
  sizes(ON_SMALL_ONES "batch = { global = 8, seq = 65536 }, strategy = 'fsdp2'",
        "plan.batch.seq: activations of 65536 tokens take ");
}
END_TEST

static const struct {
  const char *name, *here; /* NULL: it is not a field */
} foreign[] = {
#define FOREIGN(name, here)   {#name, here},
#define MODEL_KEY(name, keys) {#name, NULL},
#define NEEDLESS(name, why)   {#name, NULL},
#define ABSENT(name, what)    {#name, NULL},
#include "bindings/schema/foreign/foreign_names.def"
};
static const char *const instead[] = {
#define INSTEAD(path, text) path,
#include "bindings/schema/not_built.def"
};

/* True if a field of any table has the last name of this path ("optimizer.lr.min"). */
static bool path_known(const char *path) {
  size_t n = strcspn(path, " ,;[=");
  const char *last = path;
  for (size_t i = 0; i < n; i++)
    if (path[i] == '.') last = path + i + 1;
  n -= (size_t)(last - path);
  for (const Field *f = schema; f->scope; f++)
    if (strlen(f->key) == n && strncmp(f->key, last, n) == 0) return true;
  return false;
}

START_TEST(names_lead_to_fields) {
  for (int i = 0; i < LEN(foreign); i++) {
    const char *here = foreign[i].here;
    ck_assert_msg(!here || path_known(here), "%s", here);
    for (int k = 0; k < i; k++)
      ck_assert_msg(!name_same(foreign[k].name, foreign[i].name), "%s", foreign[i].name);
  }
  for (int i = 0; i < LEN(instead); i++)
    ck_assert_msg(path_known(instead[i]), "%s", instead[i]);
}
END_TEST

/* Help marks what a plan may say and this version does not do. */
START_TEST(help_marks_what_is_not_built) {
  Outcome o = process_run(SECONDS, "echo 'help \"moe.router_dtype\" "
                                   "help \"precision.param_dtype\"' | $weft repl");
  ck_assert_msg(strstr(o.out, "float32=f32 - later: f64 fp64=f64\n") &&
                    strstr(o.out, "half=f16 - later: fp8 bf16-true "
                                  "16-true\n"),
                "%s%s", o.out, o.err);
}
END_TEST

Suite *advice_suite(void) {
  Suite *s = suite_create("advice");
  TCase *c = tcase_create("advice");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_test(c, warmup_and_positions);
  tcase_add_loop_test(c, attention_over_documents, 0, LEN(attention));
  tcase_add_loop_test(c, padding_that_routers_see, 0, LEN(padded));
  tcase_add_loop_test(c, rates_that_fall_otherwise, 0, LEN(rates));
  tcase_add_test(c, tensor_parallelism_that_does_little);
  tcase_add_test(c, rules_of_sizing);
  tcase_add_test(c, copies_and_long_sequences);
  tcase_add_test(c, names_lead_to_fields);
  tcase_add_test(c, help_marks_what_is_not_built);
  suite_add_tcase(s, c);
  return s;
}
