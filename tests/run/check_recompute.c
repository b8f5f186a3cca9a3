/* check_recompute.c - activations that are computed again: the same bits as without, for
 * every mesh, schedule and precision; less memory, to the byte; and which ops run again.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/api/job.h"
#include "tests/harness/lang_fixture.h"
#include "tests/harness/plan_bits.h"
#include "tests/generate/random_plan.h"
#include "tests/harness/run_bits.h"
#include "vm/storage/memory_plan.h"
#include "vm/code/units.h"
#include "vm/compile/graph_passes.h"
#include "vm/compile/compile.h"

#define WITH(...) ((Recompute){__VA_ARGS__})

static const struct RecomputePattern mlp[] = {{"layers.*.mlp", 1}},
                                     attn[] = {{"layers.*.self_attn", 1}},
                                     units[] = {{"layers.1", 1}, {"lm_head", 2}};

static const Recompute choices[] = {
    {.full = true},
    {.selective = true},
    {.cheap = true},
    {.selective = true, .cheap = true},
    {.pattern = mlp, .npattern = 1},
    {.pattern = attn, .npattern = 1},
    {.pattern = units, .npattern = 2},
};

/* ---- the same bits: toys ---- */

static void same_as_kept(ToyOptions o, const Recompute *r) {
  Toy kept, again;
  Trace x, y;
  trace(&kept, &o, 1, &x);
  o.recompute = *r;
  trace(&again, &o, 1, &y);
  same_bits(&x, &y);
  ck_assert_double_eq(kept.compiled->prog[0].recomputed, 0);
  double more = 0, flops[2] = {0};
  for (int p = 0; p < o.pp; p++) {
    const Program *a = &kept.compiled->prog[p], *b = &again.compiled->prog[p];
    flops[0] += a->flops, flops[1] += b->flops;
    more += b->recomputed;
  }
  ck_assert_double_gt(more, 0);
  ck_assert_double_eq_tol(flops[1] - flops[0], more, 1e-9 * flops[0]);
  toy_free(&kept);
  toy_free(&again);
}

START_TEST(toys_have_the_same_bits) {
  ToyOptions o[] = {meshed(1, 1, 1), meshed(2, 1, 1), meshed(2, 1, 2), meshed(2, 2, 1)};
  for (int i = 0; i < LEN(o); i++) {
    o[i].sp = i > 1, o[i].tied = i == 1, o[i].bias = i == 2, o[i].overlap = i == 3;
    o[i].dtype = i % 2 ? DT_BF16 : DT_F32;
    o[i].layers = 2;
    same_as_kept(o[i], &choices[_i]);
  }
}
END_TEST

/* ---- the same bits: random plans, all schedules ---- */

static Arena *arena;

static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

/* Work that is done again may move layers, and then sums have another order. What is
 * frozen leaves two products of a layer apart, which are one in a forward that keeps
 * nothing: a library may round their columns in two ways (oneDNN's with AVX2 does). */
static void same_plan(uint64_t number) {
  RandomPlan p;
  random_plan(77, number, &p);
  const char *set[] = {number % 2 ? "precision=bf16" : "precision=f32",
                       "pp_plan.balance=even", "recompute=none"};
  if (plan_bits_agree(arena, p.text, set, 2, 3, true)) return;
  const char *learnt[] = {set[0], set[1], "freeze=nil", "recompute=none"};
  plan_bits_same(arena, p.text, learnt, 3, 4);
}

enum { PLANS = 36, EACH = 6 };

START_TEST(random_plans_have_the_same_bits) {
  for (int i = 0; i < EACH; i++) same_plan((uint64_t)(_i * EACH + i));
}
END_TEST

/* The sample must reach what it is for. */
START_TEST(sample_is_wide) {
  bool seen[SCHEDULES] = {false};
  int kinds = 0, again = 0, split = 0;
  for (uint64_t i = 0; i < PLANS; i++) {
    RandomPlan p;
    random_plan(77, i, &p);
    again += strcmp(p.recompute, "\"none\"") != 0;
    split += p.sp && p.tp > 1 && strstr(p.text, "keep_gathered = false") != NULL;
    for (int k = 0; k < SCHEDULES; k++)
      seen[k] |= strcmp(p.schedule, schedule_picks[k].name) == 0;
  }
  for (int k = 0; k < SCHEDULES; k++) kinds += seen[k];
  ck_assert_int_eq(kinds, SCHEDULES);
  ck_assert_int_ge(again, 24);
  ck_assert_int_ge(split, 8);
}
END_TEST

/* The first unit has no input gradients: what runs again there is in W, which then reads
 * parameters. */
static const char first_unit[] =
    "local weft = require 'weft'\n"
    "local function model(g, c)\n"
    "  local hidden, ffn, vocab = { 'hidden', 32 }, { 'ffn', 64 }, { 'vocab', 50 }\n"
    "  local function mlp(x, name)\n"
    "    local w = g:param(name .. '.norm.weight', { hidden }, { init = 'ones' })\n"
    "    local up = g:param(name .. '.up.weight', { ffn, hidden })\n"
    "    local down = g:param(name .. '.down.weight', { hidden, ffn })\n"
    "    local h = g:relu(g:linear(g:rmsnorm(x, w, { eps = 1e-5 }), up))\n"
    "    return g:add(x, g:linear(g:mul(h, h), down))\n"
    "  end\n"
    "  local x = g:unit('embed', function()\n"
    "    local table = g:param('embed.weight', { vocab, hidden })\n"
    "    return mlp(g:embedding(g:tokens(), table), 'first')\n"
    "  end)\n"
    "  for i = 0, 3 do\n"
    "    x = g:layer(i, function() return mlp(x, 'layers.' .. i) end)\n"
    "  end\n"
    "  return g:unit('head', function()\n"
    "    local w = g:param('head.weight', { vocab, hidden })\n"
    "    return g:cross_entropy(g:linear(x, w), g:labels())\n"
    "  end)\n"
    "end\n"
    "return weft.plan {\n"
    "  model = weft.model { model, vocab_size = 50 },\n"
    "  mesh = { tp = 2, pp = 2, dp = 2 },\n"
    "  tp_plan = { ['layers.*.up'] = 'colwise', ['layers.*.down'] = 'rowwise',\n"
    "    ['first.up'] = 'colwise', ['first.down'] = 'rowwise' },\n"
    "  recompute = { 'embed', 'layers.*.up', 'head' },\n"
    "  batch = { global = 8, micro = 1, seq = 8 },\n"
    "  data = weft.synthetic {}, train = { steps = 2 } }\n";

START_TEST(units_without_input_gradients) {
  static const char *const strategy[] = {"strategy={\"zero\",sequence_parallel=true}",
                                         "strategy=fsdp2", "strategy={\"zero\",stage=2}"};
  static const char *const schedule[] = {"schedule=1f1b", "schedule=zbv"};
  for (int i = 0; i < LEN(strategy); i++)
    for (int k = 0; k < LEN(schedule); k++) {
      const char *set[3] = {strategy[i], schedule[k]};
      set[2] = "recompute=none";
      plan_bits_same(arena, first_unit, set, 2, 3);
    }
}
END_TEST

/* ---- what runs again ---- */

/* Kernels and collectives of the body that are copies, in order, as one text. */
static const char *copies_in(const Program *p, const char *body, Text *out) {
  out->n = 0;
  text_add(out, "");
  for (int b = 0; b < p->nbody; b++)
    for (uint32_t i = 0; i < p->body[b].n && strcmp(p->body[b].name, body) == 0; i++) {
      const Instr *x = &p->code[p->body[b].first + i];
      if (!strstr(p->what[x->what], "(recomputed)")) continue;
      if (x->code == I_KERNEL) text_printf(out, "%s ", op_info[x->op].name);
      if (x->code == I_COLL) text_printf(out, "%s ", coll_info[x->coll].name);
    }
  return out->s;
}

static const char *copies(const Toy *t, const char *body, Text *out) {
  return copies_in(&t->compiled->prog[0], body, out);
}

START_TEST(each_word_runs_its_ops_again) {
  static const char *const want[] = {
      "rmsnorm all_gather linear linear linear rope rope attention linear "
      "reduce_scatter add rmsnorm all_gather linear linear silu_mul ",
      "attention ",
      "rmsnorm rope rope add rmsnorm silu_mul ",
      "rmsnorm rope rope attention add rmsnorm silu_mul ",
      "all_gather linear linear silu_mul ",
      "all_gather linear linear linear rope rope attention ",
  };
  Text s = {0};
  for (int i = 0; i < LEN(want); i++) {
    ToyOptions o = meshed(2, 1, 1);
    Toy t;
    o.sp = o.as_written = true;
    o.recompute = choices[i];
    ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
    ck_assert_str_eq(copies(&t, "layer:F", &s), "");
    ck_assert_str_eq(copies(&t, "layer:W", &s), "");
    ck_assert_str_eq(copies(&t, "layer:I", &s), want[i]);
    ck_assert_str_eq(copies(&t, "lm_head:I", &s), "");
    toy_free(&t);
  }
  text_free(&s);
}
END_TEST

/* `weft show graph` tells copies from the ops that they are copies of. */
START_TEST(graph_shows_copies) {
  ToyOptions o = meshed(2, 1, 1);
  Toy t;
  int n = 0;
  o.recompute = choices[1];
  ck_assert_int_eq(toy_compile(&t, &o, "r"), WEFT_OK);
  for (const char *s = t.dump.s; (s = strstr(s, " (recomputed)\n")); s++) n++;
  ck_assert_int_eq(n, o.layers);
  toy_free(&t);
}
END_TEST

/* Models with sinks, which are a parameter that attention reads: in all layers, or in
 * those that have windows. */
static const struct {
  const char *model, *set[3];
} with_sinks[] = {
#define SINKS(kind, more)                                                                \
  "model = weft.model { '" kind "', hidden_size = 32, intermediate_size = 16, "          \
  "num_hidden_layers = 2, num_attention_heads = 8, num_key_value_heads = 4, "            \
  "vocab_size = 37, num_experts_per_tok = 2, sliding_window = 5, "                       \
  "max_position_embeddings = 64, " more " }"
#define GPT_OSS SINKS("gpt_oss", "head_dim = 8, num_local_experts = 4")
#define MIMO                                                                             \
  SINKS("mimo_v2_flash", "head_dim = 12, v_head_dim = 4, n_routed_experts = 4, "         \
                         "moe_intermediate_size = 8")
    {GPT_OSS, {"mesh={tp=2}"}},
    {GPT_OSS, {"mesh={cp=2}", "cp={comm=\"ring\"}"}},
    {MIMO, {"mesh={tp=2}", "schedule=zb_h2"}},
};

START_TEST(attention_with_sinks_runs_again) {
  const char *set[3] = {with_sinks[_i].set[0], with_sinks[_i].set[1]};
  const char *text = arena_printf(
      arena,
      "local weft = require 'weft'\nreturn weft.plan { %s, mesh = {}, recompute = "
      "'selective',\n  batch = { global = 2, micro = 1, seq = 16 }, data = "
      "weft.synthetic {}, train = { steps = 2 } }\n",
      with_sinks[_i].model);
  LangOptions o = {.set = set, .nset = 1 + (set[1] != NULL), .text = text};
  int first = 0, again = 0;
  Job j;
  OK(job_open(&j, arena, &o, "plan.lua"));
  const Program *p = &j.compiled->prog[0];
  for (uint32_t i = p->nmain; i < p->ncode; i++) {
    const Instr *x = &p->code[i];
    if (x->code != I_KERNEL || (x->op != OP_attention && x->op != OP_attention_part))
      continue;
    *(strstr(p->what[x->what], "(recomputed)") ? &again : &first) += 1;
  }
  ck_assert_int_gt(first, 0);
  ck_assert_int_eq(again, first);
  job_free(&j);
  set[o.nset] = "recompute=none";
  plan_bits_same(arena, text, set, o.nset, o.nset + 1);
}
END_TEST

/* Nobody gathers for W what was gathered for copies, unless W runs apart: then it has
 * copies of its own, with two all_gathers and a reduce_scatter, and gathers two
 * gradients. */
START_TEST(w_takes_what_copies_gathered) {
  for (int keep = 0; keep < 2; keep++) {
    const char *set[] = {"recompute=full", keep ? "schedule=1f1b" : "schedule=zbv",
                         "strategy.overlap_tp=false"};
    Job j;
    int gathers = 0;
    const char *path = WEFT_SOURCE_DIR "/plans/quickstart.lua";
    ck_assert_int_eq(job_open(&j, arena, &(LangOptions){.set = set, .nset = 3}, path),
                     WEFT_OK);
    const Program *p = &j.compiled->prog[0];
    for (int b = 0; b < p->nbody; b++)
      for (uint32_t i = 0; i < p->body[b].n; i++)
        gathers += strcmp(p->body[b].name, "layer:W") == 0 &&
                   p->code[p->body[b].first + i].code == I_COLL;
    ck_assert_int_eq(gathers, keep ? 0 : 5);
    job_free(&j);
  }
}
END_TEST

/* Where W runs apart what it needs runs once more if that keeps fewer bytes: not
 * gradients of norms, whose operands are as large as their sources. */
START_TEST(w_has_copies_of_its_own) {
  static const struct {
    const char *recompute, *w;
  } rows[] = {
      {"recompute=full",
       "rmsnorm all_gather unpack linear rope_qkv attention linear pack "
       "reduce_scatter add_rmsnorm all_gather unpack linear swiglu "},
      {"recompute=cheap", ""},
      {"recompute={'layers.*.mlp'}", "all_gather unpack linear swiglu "},
  };
  Text s = {0};
  for (int i = 0; i < LEN(rows); i++) {
    const char *set[] = {rows[i].recompute, "schedule=zbv", "strategy.overlap_tp=false"};
    Job j;
    const char *path = WEFT_SOURCE_DIR "/plans/quickstart.lua";
    ck_assert_int_eq(job_open(&j, arena, &(LangOptions){.set = set, .nset = 3}, path),
                     WEFT_OK);
    ck_assert_str_eq(copies_in(&j.compiled->prog[0], "layer:W", &s), rows[i].w);
    job_free(&j);
  }
  text_free(&s);
}
END_TEST

/* ---- what is kept ---- */

/* Bytes of the frames of a layer from F to its backward: what I and W read of it besides
 * its input, which is an edge. Each tensor is aligned. */
START_TEST(layers_keep_less) {
  enum { H = 32, KV = 16, FFN = 48, T = 8 };
  const uint64_t x = 4 * T * H, kv = 4 * T * KV, up = 4 * T * FFN, stat = ALIGN;
  const uint64_t norms = 2 * (x + stat), core = x + stat; /* o, lse */
  const uint64_t all = norms + x + 2 * kv + core + x + 3 * up;
  const uint64_t want[] = {0,
                           all - core,
                           all - norms - up,
                           all - norms - up - core,
                           all - 3 * up,
                           all - x - 2 * kv - core};
  for (int i = -1; i < (int)LEN(want); i++) {
    ToyOptions o = toy_default();
    Toy t;
    Units *u;
    if (i >= 0) o.recompute = choices[i];
    ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
    CompileInput in = {.plan = &t.plan,
                       .mesh = &t.mesh,
                       .graph = t.graph,
                       .arena = arena,
                       .scratch = arena_new(NULL)};
    ck_assert_int_eq(compile_units(&in, false, arena, &u, &t.diags, &t.err), WEFT_OK);
    const uint64_t *frame = u->at[1].code->frame;
    ck_assert_msg(frame[0] + frame[1] == (i < 0 ? all : want[i]), "%d: %d, not %d", i,
                  (int)(frame[0] + frame[1]), (int)(i < 0 ? all : want[i]));
    arena_free(in.scratch);
    toy_free(&t);
  }
}
END_TEST

/* ---- bad input ---- */

START_TEST(patterns_that_match_nothing) {
  Job j;
  Text report = {0};
  const char *set[] = {"recompute={\"cheap\",\"layers.*.mpl\",\"norms\",\"layers.9\"}"};
  const char *path = WEFT_SOURCE_DIR "/plans/quickstart.lua";
  ck_assert_int_eq(job_open(&j, arena, &(LangOptions){.set = set, .nset = 1}, path),
                   WEFT_EPLAN);
  report_text(&j.d, false, &report);
  static const char *const want[] = {
      "recompute[2]: \"layers.*.mpl\" is neither a unit or module of the model nor one "
      "of "
      "full, selective, cheap (did you mean \"layers.*.mlp\"?)\n",
      "recompute[3]: \"norms\" is neither", "(did you mean \"norm\"?)\n",
      "recompute[4]: \"layers.9\" is neither", "3 errors\n"};
  for (int i = 0; i < LEN(want); i++)
    ck_assert_msg(strstr(report.s, want[i]) != NULL, "%s", report.s);
  text_free(&report);
  job_free(&j);
}
END_TEST

/* A smaller plan may have lost the layers that a pattern speaks of. */
START_TEST(verify_of_a_pattern) {
  Job j;
  JobVerify v = {.ranks = 4, .steps = 1};
  const char *set[] = {"recompute={\"layers.70.mlp\",\"selective\"}"};
  const char *path = WEFT_SOURCE_DIR "/plans/llama3_70b.lua";
  OK(job_load(&j, arena, &(LangOptions){.set = set, .nset = 1}, path));
  weft_status st = job_verify(&j, &v);
  ck_assert_msg(st == WEFT_OK, "%s", j.e.text);
  job_free(&j);
}
END_TEST

Suite *recompute_suite(void);
Suite *recompute_suite(void) {
  Suite *s = suite_create("recompute");
  TCase *c = tcase_create("bits");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_loop_test(c, toys_have_the_same_bits, 0, LEN(choices));
  tcase_add_loop_test(c, random_plans_have_the_same_bits, 0, PLANS / EACH);
  tcase_add_test(c, sample_is_wide);
  tcase_add_test(c, units_without_input_gradients);
  suite_add_tcase(s, c);
  c = tcase_create("what runs again");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, each_word_runs_its_ops_again);
  tcase_add_test(c, graph_shows_copies);
  tcase_add_loop_test(c, attention_with_sinks_runs_again, 0, LEN(with_sinks));
  tcase_add_test(c, w_takes_what_copies_gathered);
  tcase_add_test(c, w_has_copies_of_its_own);
  tcase_add_test(c, layers_keep_less);
  tcase_add_test(c, patterns_that_match_nothing);
  tcase_add_test(c, verify_of_a_pattern);
  suite_add_tcase(s, c);
  return s;
}
