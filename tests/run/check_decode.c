/* check_decode.c - tokens one after another: the logits of Hugging Face's models, what
 * its generate gives, how a token is chosen, and weft sample. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "tests/harness/process.h"
#include "vm/run/sampler.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/weights_load.h"

#define ORACLE WEFT_SOURCE_DIR "/tests/oracle/"

/* ---- logits ---- */

typedef struct Decoding {
  Job j;
  Run *run;
  const char *folder;
} Decoding;

static void decoding_open(Decoding *d, const char *model, const char *more, int tp) {
  const char *define = arena_printf(scratch_arena, "model=%s", model);
  const char *set[] = {arena_printf(scratch_arena, "mesh.tp=%d", tp), more};
  LangOptions o = {.define = &define, .ndefine = 1, .set = set, .nset = more ? 2 : 1};
  SafeTensors *weights;
  d->folder = arena_printf(scratch_arena, ORACLE "%s", model);
  weft_status st = job_load(&d->j, scratch_arena, &o, ORACLE "plan.lua");
  if (st == WEFT_OK) st = job_decode(&d->j, 16);
  ck_assert_msg(st == WEFT_OK, "%s: %s%s", model, d->j.e.text,
                d->j.d.list.n ? d->j.d.list.at[0].summary : "");
  RunOptions run = {.threads = 1};
  st = run_open(&d->j.plan, d->j.compiled, &run, &d->run, &d->j.e);
  if (st == WEFT_OK) st = st_open(NULL, d->folder, NULL, &weights, &d->j.e);
  if (st == WEFT_OK) st = run_load(d->run, weights, &d->j.e);
  ck_assert_msg(st == WEFT_OK, "%s: %s", model, d->j.e.text);
  st_close(weights);
}

static void decoding_close(Decoding *d) {
  run_close(d->run);
  job_free(&d->j);
}

enum { SEQ = 16, VOCAB = 96 };

/* The first sequence of the oracle, token by token. */
static void check_logits(const char *model, const char *more, int tp, double tolerance) {
  Decoding d;
  SafeTensors *expected;
  static float want[SEQ * VOCAB], got[VOCAB];
  int32_t token[SEQ];
  weft_error *e = &d.j.e;
  decoding_open(&d, model, more, tp);
  const char *file = arena_printf(scratch_arena, "%s/expected.safetensors", d.folder);
  ck_assert_int_eq(st_open(NULL, file, NULL, &expected, e), WEFT_OK);
  const SafeTensor *t = st_find(expected, "tokens");
  ck_assert_int_eq(file_at(t->in, t->at, token, sizeof token, e), WEFT_OK);
  ck_assert_int_eq(st_read_f32(st_find(expected, "logits"), want, e), WEFT_OK);
  for (int i = 0; i < SEQ; i++) {
    double diff = 0, norm = 0;
    weft_status st = run_decode(d.run, token[i], i, got, e);
    ck_assert_msg(st == WEFT_OK, "%s", e->text);
    for (int k = 0; k < VOCAB; k++) {
      double x = want[i * VOCAB + k];
      diff += (got[k] - x) * (got[k] - x), norm += x * x;
    }
    ck_assert_msg(sqrt(diff / norm) <= tolerance, "%s, tp %d, token %d: %g", model, tp, i,
                  sqrt(diff / norm));
  }
  st_close(expected);
  decoding_close(&d);
}

static const struct {
  const char *model;
  int tp[3];
} oracle[] = {{"llama", {1, 2}},
              {"llama_tied", {1, 2}},
              {"llama3_rope", {1, 2}},
              {"qwen2", {1, 2}},
              {"qwen3", {1, 4}},
              {"gpt2", {1, 2}},
              {"llama_one_kv", {1, 2, 8}},
              {"qwen3_two_kv", {1, 4, 8}},
              {"llama_yarn", {1, 2}},
              {"deepseek_v3", {1, 2, 4}},
              {"deepseek_v3_no_lora", {1, 2}},
              {"mixtral", {1, 2}},
              {"qwen3_moe", {1, 2, 4}},
              {"qwen3_moe_step", {1, 2}},
              {"deepseek_v3_moe", {1, 2, 4}}};

START_TEST(logits_of_hugging_face) {
  for (int k = 0; k < 3 && oracle[_i].tp[k]; k++)
    check_logits(oracle[_i].model, NULL, oracle[_i].tp[k], 1e-5);
}
END_TEST

/* However the head is cut, and whatever is summed up behind it. */
START_TEST(logits_of_all_styles) {
  static const struct {
    const char *model, *rule;
  } style[] = {
      {"llama", "lm_head = \"rowwise\""},
      {"llama", "lm_head = \"rowwise_rep\""},
      {"llama", "lm_head = \"colwise_rep\""},
      {"llama", "lm_head = \"replicate\""},
      {"llama", "[\"model.norm\"] = \"sequence_parallel\""},
      {"llama_tied", "embed_tokens = \"embedding_colwise\", lm_head = \"rowwise\""}};
  const char *set =
      arena_printf(scratch_arena, "tp_plan=weft.extend(weft.tp_plan \"llama\", { %s })",
                   style[_i].rule);
  check_logits(style[_i].model, set, 2, 1e-5);
}
END_TEST

START_TEST(logits_in_bf16) {
  check_logits("llama", "precision=bf16", 2, 2e-2);
  check_logits("qwen3", "precision=f16", 1, 5e-3);
}
END_TEST

/* Parameters, and beside them only what is kept of tokens and the activations of one. */
START_TEST(bytes_of_a_sampler) {
  Decoding d;
  decoding_open(&d, "llama", NULL, 1);
  const Program *p = &d.j.compiled->prog[0];
  uint64_t rows = 4 * 2 * SEQ * 16 * sizeof(float); /* layers, k and v, kv heads of 8 */
  ck_assert_int_eq(p->regions.nregion, 1);
  ck_assert_int_eq(p->regions.region[0].kind, REGION_WORK);
  uint64_t params = region_bytes(&p->regions.region[0]);
  ck_assert_uint_ge(p->arena_bytes, params + rows);
  ck_assert_uint_le(p->arena_bytes, params + rows + (32 << 10));
  decoding_close(&d);
}
END_TEST

/* ---- choosing ---- */

START_TEST(the_largest) {
  const float x[] = {1, 3, -2, 3, 0};
  int32_t room[5];
  SamplerOptions c = {.greedy = true};
  ck_assert_int_eq(sample_token(&c, x, 5, 0, room), 1);
  c = (SamplerOptions){.temperature = 1, .top_k = 1, .top_p = 1};
  for (int i = 0; i < 20; i++) ck_assert_int_eq(sample_token(&c, x, 5, i, room), 1);
  c = (SamplerOptions){.temperature = 1, .top_p = 1e-9};
  for (int i = 0; i < 20; i++) ck_assert_int_eq(sample_token(&c, x, 5, i, room), 1);
}
END_TEST

enum { DRAWS = 20000 };

/* How often each of the ids was drawn, against its probability. */
static void check_shares(const SamplerOptions *c, const float *x, int n,
                         const double *want) {
  int32_t room[8];
  int count[8] = {0};
  for (int i = 0; i < DRAWS; i++) count[sample_token(c, x, n, i, room)]++;
  for (int k = 0; k < n; k++)
    ck_assert_msg(fabs((double)count[k] / DRAWS - want[k]) < 0.012 &&
                      (want[k] > 0 || count[k] == 0),
                  "id %d: %d of %d, not %g", k, count[k], DRAWS, want[k]);
}

START_TEST(by_probability) {
  const float x[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
  check_shares(&(SamplerOptions){.temperature = 1, .top_p = 1}, x, 4,
               (double[]){0.1, 0.4, 0.2, 0.3});
  check_shares(&(SamplerOptions){.temperature = 0.5, .top_p = 1}, x, 4,
               (double[]){0.1 / 3, 1.6 / 3, 0.4 / 3, 0.9 / 3});
  check_shares(&(SamplerOptions){.temperature = 1, .top_k = 2, .top_p = 1}, x, 4,
               (double[]){0, 4.0 / 7, 0, 3.0 / 7});
  check_shares(&(SamplerOptions){.temperature = 1, .top_p = 0.65}, x, 4,
               (double[]){0, 4.0 / 7, 0, 3.0 / 7});
  check_shares(&(SamplerOptions){.temperature = 1, .top_p = 0.75}, x, 4,
               (double[]){0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
}
END_TEST

/* By what is no number nothing can be drawn. */
START_TEST(logits_must_be_numbers) {
  Decoding d;
  float logits[VOCAB], value[32];
  weft_error *e = &d.j.e;
  decoding_open(&d, "llama", NULL, 2);
  ck_assert_int_eq(run_decode(d.run, 3, 0, logits, e), WEFT_OK);
  int norm = 0;
  while (strcmp(d.j.compiled->param[norm].name, "model.norm.weight")) norm++;
  ck_assert_int_eq(run_get(d.run, STATE_PARAM, norm, value, e), WEFT_OK);
  for (int i = 0; i < 2; i++) {
    value[5] = i ? NAN : INFINITY;
    ck_assert_int_eq(run_set(d.run, STATE_PARAM, norm, value, e), WEFT_OK);
    ck_assert_int_eq(run_decode(d.run, 3, 1, logits, e), WEFT_ERUN);
    ck_assert_msg(strstr(e->text, "after token 1 the logit of token ") != NULL, "%s",
                  e->text);
  }
  decoding_close(&d);
}
END_TEST

/* ---- weft sample ---- */

#define SAMPLE "cd " ORACLE " && $weft sample plan.lua -D model=%s "

/* What Hugging Face's generate gives, by the likeliest token. */
START_TEST(greedy_as_hugging_face) {
  char model[32], ids[256];
  FILE *f = fopen(ORACLE "greedy.txt", "r");
  ck_assert(f != NULL);
  int n = 0;
  while (fscanf(f, "%31s %255s", model, ids) == 2) {
    char *end = ids;
    for (int i = 0; i < 5; i++) end = strchr(end, ',') + 1;
    Outcome o =
        process_run(60, "sh -c '" SAMPLE "--greedy --tokens %.*s --max-tokens 11'", model,
                    (int)(end - ids - 1), ids);
    ck_assert_msg(o.code == 0, "%s", o.err);
    ck_assert_str_eq(o.out, arena_printf(scratch_arena, "%s\n", ids));
    n++;
  }
  fclose(f);
  ck_assert_int_eq(n, LEN(oracle));
}
END_TEST

START_TEST(the_same_seed_the_same_text) {
  static const char *const more[] = {"--seed 1", "--seed 1", "--seed 2"};
  const char *out[3];
  for (int i = 0; i < 3; i++) {
    Outcome o =
        process_run(60, "sh -c '" SAMPLE "--tokens 7 --json %s'", "llama", more[i]);
    ck_assert_msg(o.code == 0, "%s", o.err);
    out[i] = o.out;
  }
  ck_assert_str_eq(out[0], out[1]);
  ck_assert_str_ne(out[0], out[2]);
  json_t *j = json_loads(out[0], 0, NULL), *r = json_object_get(j, "result");
  ck_assert_int_eq(json_integer_value(json_object_get(r, "prompt")), 1);
  ck_assert_int_eq(json_array_size(json_object_get(r, "tokens")), SEQ);
  json_decref(j);
}
END_TEST

/* Nothing is printed of a prompt that cannot be continued. */
START_TEST(ids_are_checked_first) {
  Outcome o = process_run(60, "sh -c '" SAMPLE "--tokens 1,2,30000'", "llama");
  ck_assert_int_eq(o.code, 2);
  ck_assert_str_eq(o.out, "");
  ck_assert_msg(strstr(o.err, "token 30000 is not below the vocabulary"), "%s", o.err);
}
END_TEST

/* A folder like the oracle's with another generation_config.json. */
static const char *ends_with(const char *generation) {
  const char *dir = scratch_path("ends");
  Outcome o = process_run(20, "sh -c 'rm -rf %s; cp -r " ORACLE "llama %s'", dir, dir);
  ck_assert_msg(o.code == 0, "%s", o.err);
  scratch_put("ends/generation_config.json", generation, strlen(generation));
  return dir;
}

/* As generate does: the token is the last one. */
START_TEST(an_eos_ends_a_text) {
  Outcome o =
      process_run(60, "sh -c '" SAMPLE "--greedy --tokens 1,2 --max-tokens 9'", "llama");
  ck_assert_msg(o.code == 0, "%s", o.err);
  char all[200], *third = all;
  snprintf(all, sizeof all, "%s", o.out);
  for (int i = 0; i < 3; i++) third = strchr(third, ',') + 1;
  *strpbrk(third, ",\n") = 0;
  const char *eos = arena_printf(scratch_arena, "{\"eos_token_id\": [95, %s]}", third);
  o = process_run(60,
                  "sh -c '" SAMPLE "--weights %s --greedy --tokens 1,2 --max-tokens 9'",
                  "llama", ends_with(eos));
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_int_le(strlen(o.out), strlen(all) + 1);
  ck_assert_msg(strncmp(all, o.out, strlen(o.out) - 1) == 0, "%s, %s", all, o.out);
  o = process_run(60,
                  "sh -c '" SAMPLE
                  "--weights %s/model.safetensors --greedy --tokens 1,2 --max-tokens 9'",
                  "llama", ends_with(eos));
  ck_assert_msg(o.code == 0 && strncmp(all, o.out, strlen(o.out) - 1) == 0, "%s, %s%s",
                all, o.out, o.err);
  o = process_run(60, "sh -c '" SAMPLE "--weights %s --greedy --tokens 1'", "llama",
                  ends_with("{\"eos_token_id\": \"</s>\"}"));
  ck_assert_msg(o.code == 2 && strstr(o.err, "\"eos_token_id\" is not the id of a token"),
                "%s", o.err);
}
END_TEST

/* From a run to its text. */
START_TEST(a_text_from_a_checkpoint) {
  const char *plan = WEFT_SOURCE_DIR "/plans/quickstart.lua";
  Outcome o = process_run(60,
                          "$weft run %s --steps 2 --threads 1 --quiet --set "
                          "checkpoint.dir=ck --set mesh.pp=1 --set mesh.dp=1",
                          plan);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft sample %s --ckpt ck --prompt ROMEO --max-tokens 9 --greedy",
                  plan);
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(strncmp(o.out, "ROMEO", 5) == 0 && strlen(o.out) == 5 + 9 + 1, "%s",
                o.out);
  const char *all = o.out;
  o = process_run(60,
                  "$weft sample %s --ckpt ck --prompt ROMEO --max-tokens 9 --greedy "
                  "--quiet --set mesh.tp=1",
                  plan);
  ck_assert_str_eq(o.out, all + 5);
  /* Up to a text, which two of its tokens make; and of several prompts. */
  o = process_run(60,
                  "$weft sample %s --ckpt ck --prompt ROMEO --max-tokens 9 --greedy "
                  "--quiet --stop nowhere --stop '%.2s'",
                  plan, all + 8);
  const char *at = strstr(all + 5, arena_printf(scratch_arena, "%.2s", all + 8));
  ck_assert_str_eq(o.out,
                   arena_printf(scratch_arena, "%.*s\n", (int)(at - all - 5), all + 5));
  o = process_run(
      60,
      "$weft sample %s --ckpt ck --prompt JULIET --prompt ROMEO --max-tokens 9 "
      "--greedy --json",
      plan);
  json_t *j = json_loads(o.out, 0, NULL);
  json_t *list = json_object_get(json_object_get(j, "result"), "samples");
  ck_assert_int_eq(json_array_size(list), 2);
  const json_t *second = json_array_get(list, 1);
  ck_assert_str_eq(json_string_value(json_object_get(second, "ended")), "length");
  ck_assert_str_eq(arena_printf(scratch_arena, "%s\n",
                                json_string_value(json_object_get(second, "text"))),
                   all + 5);
  json_decref(j);
  o = process_run(60, "sh -c 'RANK=0 WORLD_SIZE=2 $weft sample %s --ckpt ck --prompt a'",
                  plan);
  ck_assert_msg(o.code == 2 && strstr(o.err, "a launcher has started 2 processes"), "%s",
                o.err);
}
END_TEST

/* The ids of a text are those of the tokenizer, and what comes out is text again. */
START_TEST(a_text_through_a_tokenizer) {
  const char *words = WEFT_SOURCE_DIR "/tests/tokenizer/gpt2.json";
  static const char text[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
      "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
      "  vocab_size = 460 }, batch = { global = 1, seq = 32 },\n"
      "  optimizer = weft.adamw { lr = 1e-3 }, checkpoint = { dir = 'ck' } }\n";
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft run plan.lua --steps 1 --threads 1 --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *plan = "plan.lua --ckpt ck --greedy";
  o = process_run(60,
                  "$weft sample %s --tokenizer %s --prompt 'It is day' --max-tokens 5",
                  plan, words);
  if (o.code != 0 && strstr(o.err, "weft_text.so")) {
    printf("skipped: a text through a tokenizer: %s", o.err);
    return;
  }
  ck_assert_msg(o.code == 0 && strncmp(o.out, "It is day", 9) == 0, "%s%s", o.out, o.err);
  const char *all = o.out;
  o = process_run(60,
                  "$weft sample %s --tokenizer %s --prompt 'It is day' --max-tokens 5 "
                  "--quiet",
                  plan, words);
  ck_assert_str_eq(o.out, all + 9);
  o = process_run(60, "$weft sample %s --prompt 'It is day'", plan);
  ck_assert_msg(o.code == 2 && strstr(o.err, "give --tokenizer FILE"), "%s", o.err);
}
END_TEST

START_TEST(what_is_wrong_with_a_request) {
  static const struct {
    const char *args, *text;
  } wrong[] = {{"", "give a --prompt TEXT or --tokens 1,2,3"},
               {"--prompt a --tokens 1", "give a --prompt TEXT or --tokens 1,2,3"},
               {"--prompt a", "the tokens of this plan are not bytes"},
               {"--tokens 1,x", "--tokens takes ids with commas between"},
               {"--tokens 1,96", "token 96 is not below the vocabulary of 96"},
               {"--tokens 1 --max-tokens 16",
                "1 token of the prompt and 16 more: the plan trains"},
               {"--tokens 1 --stop a", "--stop is a string, and the tokens of this plan"},
               {"--tokens 1 --top-p 1.5", "--top-p is a probability"},
               {"--tokens 1 --greedy --top-k 3", "--greedy leaves no choice"},
               {"--tokens 1 --ckpt a --weights b", "give --ckpt or --weights, not both"},
               {"--tokens 1 --ckpt /nowhere", "/nowhere"}};
  for (int i = 0; i < LEN(wrong); i++) {
    Outcome o = process_run(60, "sh -c '" SAMPLE "%s'", "llama", wrong[i].args);
    ck_assert_msg(o.code == 2 && strstr(o.err, wrong[i].text), "%s: %d, %s",
                  wrong[i].args, o.code, o.err);
  }
  Outcome o = process_run(60, "$weft sample %s --prompt a",
                          WEFT_SOURCE_DIR "/plans/quickstart.lua");
  ck_assert_msg(o.code == 2 && strstr(o.err, "the plan names no weights"), "%s", o.err);
}
END_TEST

/* A table of positions has no row for a token behind its end, in whatever model: sampling
 * more tokens than that would read what lies behind it. */
START_TEST(no_token_behind_the_last_position) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "local function f(g)\n"
      "  local t = g:param('t', { { 'vocab', 16 }, { 'hidden', 8 } }, { std = 0.1 })\n"
      "  local p = g:param('p', { { 'position', 8 }, { 'hidden', 8 } }, { std = 0.1 })\n"
      "  local x = g:unit('embed', function()\n"
      "    return g:add(g:embedding(g:tokens(), t), g:embedding(g:positions(), p))\n"
      "  end)\n"
      "  return g:unit('head', function() return g:loss(g:linear(x, t)) end)\n"
      "end\n"
      "local gpt2 = weft.model { 'gpt2', n_embd = 8, n_layer = 1, n_head = 2,\n"
      "                          vocab_size = 16, n_positions = 8 }\n"
      "return weft.plan { model = weft.var('own', false) and f or gpt2,\n"
      "  batch = { global = 1, seq = 8 }, data = weft.synthetic {},\n"
      "  train = { steps = 1 }, checkpoint = { dir = 'runs' } }\n";
  static const char *const own[] = {"false", "true"};
  static const char *const said[] = {
      "9 tokens of a sample exceed max_position_embeddings = 8",
      "a table of 8 rows for 9 positions (the prompt and --max-tokens)"};
  scratch_put("plan.lua", plan, sizeof plan - 1);
  for (int i = 0; i < 2; i++) {
    Outcome o = process_run(60, "$weft run plan.lua --quiet -D own=%s", own[i]);
    ck_assert_msg(o.code == 0, "%s", o.err);
    for (int more = 5; more <= 6; more++) {
      o = process_run(60,
                      "$weft sample plan.lua --ckpt runs --tokens 1,2,3 --max-tokens %d "
                      "--set batch.seq=16 -D own=%s",
                      more, own[i]);
      bool refused = o.code == 1 && strstr(o.err, said[i]);
      ck_assert_msg(more == 5 ? o.code == 0 : refused, "%d: %s", o.code, o.err);
    }
    process_run(10, "rm -r runs");
  }
}
END_TEST

/* Layers that predict further tokens are in a checkpoint, and a sample has no use for
 * them; another layer too many is still one of another model. */
START_TEST(a_checkpoint_with_further_tokens) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 8, vocab_size = "
      "16,\n"
      "    num_hidden_layers = weft.var('layers', 2), num_attention_heads = 2,\n"
      "    num_key_value_heads = 2, intermediate_size = 8 },\n"
      "  batch = { global = 1, seq = 8 }, data = weft.synthetic {}, mtp = { num_layers = "
      "1 },\n"
      "  optimizer = weft.adamw { lr = 1e-2 },\n"
      "  train = { steps = 2 }, checkpoint = { dir = 'runs' } }\n";
  scratch_put("plan.lua", plan, sizeof plan - 1);
  Outcome o = process_run(60, "$weft run plan.lua --quiet --export out");
  ck_assert_msg(o.code == 0, "%s", o.err);
#define SAID "$weft sample plan.lua --tokens 1,2,3 --max-tokens 5 --seed 3 "
  Outcome a = process_run(60, SAID "--weights out"),
          b = process_run(60, SAID "--ckpt runs");
  ck_assert_msg(a.code == 0 && b.code == 0, "%s%s", a.err, b.err);
  ck_assert_str_eq(a.out, b.out);
  o = process_run(60, SAID "--ckpt runs -D layers=1");
  ck_assert_msg(o.code == 2 &&
                    strstr(o.err, "model.layers.1.self_attn.q_proj.weight: not in"),
                "%d: %s", o.code, o.err);
}
END_TEST

Suite *decode_suite(void) {
  Suite *s = suite_create("decode");
  TCase *tc = tcase_create("decode");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_set_timeout(tc, 240);
  tcase_add_loop_test(tc, logits_of_hugging_face, 0, LEN(oracle));
  tcase_add_loop_test(tc, logits_of_all_styles, 0, 6);
  tcase_add_test(tc, logits_in_bf16);
  tcase_add_test(tc, bytes_of_a_sampler);
  tcase_add_test(tc, the_largest);
  tcase_add_test(tc, by_probability);
  tcase_add_test(tc, logits_must_be_numbers);
  tcase_add_test(tc, greedy_as_hugging_face);
  tcase_add_test(tc, the_same_seed_the_same_text);
  tcase_add_test(tc, ids_are_checked_first);
  tcase_add_test(tc, an_eos_ends_a_text);
  tcase_add_test(tc, a_text_from_a_checkpoint);
  tcase_add_test(tc, a_text_through_a_tokenizer);
  tcase_add_test(tc, what_is_wrong_with_a_request);
  tcase_add_test(tc, no_token_behind_the_last_position);
  tcase_add_test(tc, a_checkpoint_with_further_tokens);
  suite_add_tcase(s, tc);
  return s;
}
