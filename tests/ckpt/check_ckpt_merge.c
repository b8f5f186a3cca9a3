/* check_ckpt_merge.c - weft ckpt merge: what it writes is the base with its adapter, by
 * the formulas of LoRA and DoRA computed here from what the checkpoint has; and what a
 * checkpoint with frozen parameters has of them. */
#include <check.h>
#include <math.h>

#include "tests/harness/process.h"
#include "vm/ckpt/ckpt.h"

#define PLAN                                                                             \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { %s },\n"                                      \
  "  batch = { global = 4, micro = 1, seq = 8 },\n"                                      \
  "  optimizer = weft.adamw { lr = 0.05 }, data = weft.synthetic {},\n"                  \
  "  train = { steps = 3 }, checkpoint = { dir = 'runs' }, %s }\n"
#define LLAMA                                                                            \
  "'llama', hidden_size = 16, num_hidden_layers = 2, num_attention_heads = 2, "          \
  "num_key_value_heads = 2, intermediate_size = 32, vocab_size = 32, "                   \
  "tie_word_embeddings = false"

static void run(const char *model, const char *fields, const char *more) {
  const char *text = arena_printf(scratch_arena, PLAN, model, fields);
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft run plan.lua --threads 1 --quiet %s", more);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}

static Ckpt *last_checkpoint(void) {
  Ckpt *c;
  const char *dir = scratch_path("runs/step-00000003");
  ck_assert_msg(ckpt_open(dir, &c, &scratch_error) == WEFT_OK, "%s", scratch_error.text);
  return c;
}

/* ---- merging ---- */

static const struct {
  const char *model, *fields, *name; /* a weight, and the part of its name that is kept */
  double scale;
  int rank, experts, out, in;
  bool in_out;
} merged[] = {
    {LLAMA,
     "mesh = { tp = 2, dp = 2 }, strategy = 'fsdp2', adapter = { 'lora', rank = 2, "
     "alpha = 6 }",
     "model.layers.1.mlp.up_proj", 3, 2, 1, 32, 16, false},
    {LLAMA,
     "adapter = { 'lora', rank = 4, alpha = 6, rslora = true, rank_pattern = { "
     "['layers.0.self_attn.q_proj'] = 9 } }",
     "model.layers.0.self_attn.q_proj", 2, 9, 1, 16, 16, false},
    {LLAMA,
     "mesh = { pp = 2 }, adapter = { 'lora', rank = 2, alpha_pattern = { down_proj "
     "= 5 } }",
     "model.layers.1.mlp.down_proj", 2.5, 2, 1, 16, 32, false},
    {LLAMA, "mesh = { tp = 2 }, adapter = { 'dora', rank = 2, alpha = 6 }",
     "model.layers.1.mlp.down_proj", 3, 2, 1, 16, 32, false},
    {"'gpt2', n_embd = 16, n_layer = 2, n_head = 2, n_positions = 8, vocab_size = 32",
     "mesh = { tp = 2 }, adapter = { 'dora', rank = 2, alpha = 6 }",
     "transformer.h.1.mlp.c_fc", 3, 2, 1, 64, 16, true},
    /* Its head is the one product with rows of output features. */
    {"'gpt2', n_embd = 16, n_layer = 2, n_head = 2, n_positions = 8, vocab_size = 32, "
     "tie_word_embeddings = false",
     "adapter = { 'lora', rank = 2, alpha = 6, targets = { 'c_fc', 'lm_head' } }",
     "lm_head", 3, 2, 1, 32, 16, false},
    {"'mixtral', hidden_size = 16, num_hidden_layers = 2, num_attention_heads = 2, "
     "num_key_value_heads = 2, intermediate_size = 8, num_local_experts = 4, "
     "num_experts_per_tok = 2, vocab_size = 32",
     "mesh = { dp = 2, ep = 2 }, adapter = { 'lora', rank = 2, alpha = 3, "
     "target_parameters = { 'gate_up_proj' } }",
     "model.layers.1.mlp.experts.gate_up_proj", 1.5, 2, 4, 16, 16, false}};

/* A parameter of the checkpoint, whole; NULL if it has none of that name. */
static const float *param(const Ckpt *c, const char *name, int64_t n) {
  CkptRead r;
  int at = ckpt_param(c, name);
  if (at < 0) return NULL;
  float *to = arena_alloc(scratch_arena, sizeof *to * (size_t)n);
  ck_assert_int_eq(ckpt_read_begin(c, &r, &scratch_error), WEFT_OK);
  ck_assert_int_eq(ckpt_read_part(&r, 0, at, 0, n, to, &scratch_error), WEFT_OK);
  ckpt_read_end(&r);
  return to;
}

static const float *part(const Ckpt *c, const char *name, const char *end, int64_t n) {
  return param(c, arena_printf(scratch_arena, "%s%s", name, end), n);
}

START_TEST(merged_by_the_formula) {
  run(merged[_i].model, merged[_i].fields, "");
  Outcome o = process_run(60, "$weft ckpt merge plan.lua runs whole");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  int rank = merged[_i].rank, experts = merged[_i].experts;
  int out = merged[_i].out, in = merged[_i].in, all = experts * out * in;
  const char *name = merged[_i].name;
  const char *weight =
      experts > 1 ? name : arena_printf(scratch_arena, "%s.weight", name);
  Ckpt *c = last_checkpoint();
  const float *w = param(c, weight, all),
              *m = part(c, name, ".lora_magnitude_vector", out);
  const float *a = part(c, name, ".lora_A.weight", experts * rank * in);
  const float *b = part(c, name, ".lora_B.weight", experts * out * rank);
  SafeTensors *s;
  const char *file = scratch_path("whole/model.safetensors");
  ck_assert_int_eq(st_open(NULL, file, NULL, &s, &scratch_error), WEFT_OK);
  float *got = arena_alloc(scratch_arena, sizeof *got * (size_t)all);
  ck_assert_ptr_nonnull(st_find(s, weight));
  ck_assert_int_eq(st_read_part(st_find(s, weight), 0, all, got, &scratch_error),
                   WEFT_OK);
  ck_assert(w && a && b && (m != NULL) == (strstr(merged[_i].fields, "dora") != NULL));
  double moved = 0;
  for (int row = 0; row < experts * out; row++) {
    double want[64], squares = 0, by = 1;
    int expert = row / out, feature = row % out;
    for (int i = 0; i < in; i++) {
      double sum = 0;
      for (int r = 0; r < rank; r++)
        sum += (double)b[row * rank + r] * a[(expert * rank + r) * in + i];
      int at = merged[_i].in_out ? i * out + feature : row * in + i;
      want[i] = w[at] + merged[_i].scale * sum;
      squares += want[i] * want[i];
    }
    if (m) by = m[feature] / sqrt(squares);
    for (int i = 0; i < in; i++) {
      int at = merged[_i].in_out ? i * out + feature : row * in + i;
      ck_assert_msg(fabs(got[at] - by * want[i]) <= 1e-6 * (fabs(by * want[i]) + 1e-3),
                    "%s, %d: %g, not %g", weight, at, got[at], by * want[i]);
      moved = fmax(moved, fabs((double)got[at] - w[at]));
    }
  }
  ck_assert_double_gt(moved, 1e-4); /* three steps have learnt something */
  st_close(s);
  ckpt_close(c);
}
END_TEST

/* Alpha is in no tensor: a plan that says another one makes another model of the same
 * checkpoint. */
START_TEST(another_scale_is_warned_of) {
  static const char *const says = "warning: plan.adapter.alpha: what the adapter adds is "
                                  "multiplied by 4, and was by 1 in the run that wrote ";
  run(LLAMA, "adapter = { 'lora', rank = 2 }", "");
  Outcome o =
      process_run(60, "$weft ckpt merge plan.lua runs same --set adapter.alpha=2");
  ck_assert_msg(o.code == 0 && !strstr(o.err, "warning"), "%s", o.err);
  o = process_run(60, "$weft ckpt merge plan.lua runs other --set adapter.alpha=8");
  ck_assert_msg(o.code == 0 && strstr(o.err, says), "%s", o.err);
  o = process_run(60, "$weft ckpt export plan.lua runs adapter --set adapter.alpha=8");
  ck_assert_msg(o.code == 0 && strstr(o.err, says), "%s", o.err);
  o = process_run(60,
                  "$weft eval plan.lua --ckpt runs --batches 1 --set adapter.alpha=8");
  ck_assert_msg(o.code == 0 && strstr(o.err, says), "%s", o.err);
  /* A run that goes on tells it, too; no alpha is the rank. */
  o = process_run(60, "$weft run plan.lua --resume auto --set adapter.alpha=8");
  ck_assert_msg(strstr(o.err, "warning: plan.adapter.alpha: 2 in the checkpoint, 8 now"),
                "%s", o.err);
  ck_assert_msg(strstr(o.err, says), "%s", o.err);
  o = process_run(60, "$weft run plan.lua --resume auto --set adapter.alpha=2");
  ck_assert_msg(!strstr(o.err, "alpha"), "%s", o.err);
  o = process_run(60, "$weft ckpt merge plan.lua runs third --set "
                      "'adapter.alpha_pattern={ k_proj = 50 }'");
  ck_assert_msg(o.code == 0 && strstr(o.err, "plan.adapter.alpha_pattern: it was not "
                                             "given in the run that wrote runs/"),
                "%s", o.err);
}
END_TEST

/* ---- frozen parameters ---- */

#define FROZEN "freeze = { 'embed_tokens', 'layers.0' }"

/* Names of what is frozen are in the manifest, their values in the files, and states are
 * those of the others alone. */
START_TEST(frozen_have_values_alone) {
  run(LLAMA, "mesh = { tp = 2, dp = 2 }, strategy = 'fsdp2', " FROZEN, "");
  Ckpt *c = last_checkpoint();
  int frozen = 0, pieces[2][2] = {{0}};
  for (int i = 0; i < c->m.nparam; i++) {
    const CkptParam *p = &c->m.param[i];
    bool is = strstr(p->name, "embed_tokens") || strstr(p->name, "layers.0.");
    ck_assert_msg(p->frozen == is, "%s", p->name);
    frozen += p->frozen;
  }
  for (int i = 0; i < c->npiece; i++)
    pieces[c->m.param[c->piece[i].param].frozen][c->piece[i].kind > 0]++;
  ck_assert_int_eq(frozen, 10);
  ck_assert_int_gt(pieces[true][false], 0);
  ck_assert_int_eq(pieces[true][true], 0);
  ck_assert_int_gt(pieces[false][true], 0);
  uint64_t bytes;
  ck_assert_int_eq(ckpt_verify(c, NULL, &bytes, &scratch_error), WEFT_OK);
  ckpt_close(c);
}
END_TEST

/* A run goes on on another mesh with the same frozen parameters or more; what was frozen
 * has no states to go on with. */
START_TEST(frozen_runs_go_on) {
  run(LLAMA, "mesh = { tp = 2 }, " FROZEN, "");
  run(LLAMA, "mesh = { pp = 2 }, " FROZEN, "--steps 4 --resume runs/step-00000003");
  run(LLAMA, "freeze = { 'embed_tokens', 'layers.*' }",
      "--steps 4 --set checkpoint.dir=more --resume runs/step-00000003");
  const char *text = arena_printf(scratch_arena, PLAN, LLAMA, "");
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft run plan.lua --steps 4 --set checkpoint.dir=other "
                              "--resume runs/step-00000003");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "has no optimizer states of model.embed_tokens.weight: it "
                              "was frozen there, and the plan trains it"),
                "%s", o.err);
}
END_TEST

Suite *ckpt_merge_suite(void);
Suite *ckpt_merge_suite(void) {
  Suite *s = suite_create("ckpt_merge");
  TCase *t = tcase_create("ckpt_merge");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, merged_by_the_formula, 0, LEN(merged));
  tcase_add_test(t, another_scale_is_warned_of);
  tcase_add_test(t, frozen_have_values_alone);
  tcase_add_test(t, frozen_runs_go_on);
  suite_add_tcase(s, t);
  return s;
}
