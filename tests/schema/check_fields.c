/* check_fields.c - every field of the schema with a value that is legal and not its
 * default, made from its row: facts, hash and JSON know it, and another process, at other
 * addresses, says the same of all of them. */
#include <check.h>
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "bindings/runs/resume.h"
#include "bindings/plan_table/json_value.h"
#include "bindings/schema/schema.h"
#include "tests/harness/process.h"

/* ---- plans in which the fields of a scope mean something ---- */

#define MODEL                                                                            \
  "model = weft.model { 'llama', num_hidden_layers = 4, hidden_size = 16, "              \
  "num_attention_heads = 4, num_key_value_heads = 4, intermediate_size = 24, "           \
  "vocab_size = 128 }, "
#define EXPERTS                                                                          \
  "model = weft.model { 'mixtral', num_hidden_layers = 2, hidden_size = 16, "            \
  "num_attention_heads = 4, num_key_value_heads = 4, intermediate_size = 24, "           \
  "vocab_size = 128, num_local_experts = 4 }, "
#define BATCH "batch = { global = 8, micro = 1, seq = 16 }, "
#define CHAT  "data = weft.chat { 'a.jsonl', tokenizer = 't', template = 'llama3' }"
#define VALIDATED                                                                        \
  "data = weft.text { 'a.txt', val_fraction = 0.25 }, train = { eval_every = 5"
#define ADAMW(lr) MODEL BATCH "optimizer = weft.adamw { lr = " lr " }"
#define FUNCTION                                                                         \
  "function(s) for m = 0, s.microbatches - 1 do s:forward(m) s:backward(m) end end"

static const struct {
  const char *scope, *fields;
} scopes[] = {
    {"zero", MODEL BATCH "strategy = { 'zero', stage = 3 }"},
    {"fsdp2", MODEL BATCH "strategy = { 'fsdp2' }"},
    {"megatron_fsdp", MODEL BATCH "strategy = { 'megatron_fsdp' }"},
    {"ddp", MODEL BATCH "strategy = { 'ddp' }"},
    {"cluster", MODEL BATCH "cluster = weft.cluster { nodes = 1, gpu = 'h100-sxm' }"},
    {"gpu", MODEL BATCH "cluster = weft.cluster { gpus = 8, gpu = { name = 'own' } }"},
    {"network", MODEL BATCH "cluster = weft.cluster { gpus = 8, network = {} }"},
    {"pp_plan", MODEL BATCH "mesh = { pp = 2 }"},
    {"interleaved_1f1b",
     MODEL BATCH "mesh = { pp = 2 }, schedule = { 'interleaved_1f1b' }"},
    {"function", MODEL BATCH "schedule = { " FUNCTION " }"},
    {"lora", MODEL BATCH "adapter = { 'lora', rank = 7 }"},
    {"precision", MODEL BATCH "precision = { param_dtype = 'f16' }"},
    {"packed", MODEL BATCH "packed = { eot = 3, size = 16 }"},
    {"cp", MODEL BATCH "mesh = { cp = 8 }, cp = { comm = 'a2a+p2p', heads_size = 4 }"},
    {"moe", EXPERTS BATCH "mesh = { ep = 2 }"},
    {"mtp", MODEL BATCH "mtp = { num_layers = 1 }"},
    {"batch", MODEL BATCH},
    {"adamw", ADAMW("1e-3")},
    {"adam", MODEL BATCH "optimizer = weft.adam { lr = 1e-3 }"},
    {"adamw_8bit", MODEL BATCH "optimizer = weft.adamw_8bit { lr = 1e-3 }"},
    {"sgd", MODEL BATCH "optimizer = weft.sgd { lr = 1e-3, momentum = 0.9 }"},
    {"lion", MODEL BATCH "optimizer = weft.lion { lr = 1e-3 }"},
    {"muon", MODEL BATCH "optimizer = weft.muon { lr = 1e-3 }"},
    {"adafactor", MODEL BATCH "optimizer = weft.adafactor { lr = 1e-3 }"},
    {"cosine", ADAMW("weft.cosine { max = 1e-3 }")},
    {"linear", ADAMW("weft.linear { max = 1e-3 }")},
    {"polynomial", ADAMW("weft.polynomial { max = 1e-3 }")},
    {"inverse_sqrt", ADAMW("weft.inverse_sqrt { max = 1e-3 }")},
    {"wsd", ADAMW("weft.wsd { max = 1e-3, decay = 5 }")},
    {"constant", ADAMW("weft.constant { max = 1e-3 }")},
    {"text", MODEL BATCH "data = weft.text { 'a.txt' }"},
    {"tokens", MODEL BATCH "data = weft.tokens { 'a.bin' }"},
    {"chat", MODEL BATCH CHAT},
    {"synthetic", MODEL BATCH "data = weft.synthetic {}"},
    {"train", MODEL BATCH "data = weft.text { 'a.txt', val_fraction = 0.25 }"},
    {"cross_entropy", MODEL BATCH "loss = { 'cross_entropy' }"},
    {"dpo", MODEL BATCH "adapter = { 'lora', rank = 2 }, loss = { 'dpo' }"},
    {"distill", MODEL BATCH "loss = { 'distill', teacher = 'teacher' }"},
    {"early_stopping", MODEL BATCH VALIDATED ", early_stopping = { patience = 3 } }"},
    {"checkpoint", MODEL BATCH "checkpoint = { dir = 'a' }"},
    {"at_most", MODEL BATCH "expect = { bubble = weft.at_most(1) }"},
    {"at_least", MODEL BATCH "expect = { bubble = weft.at_least(1) }"},
    {"between", MODEL BATCH "expect = { bubble = weft.between(1, 3) }"},
};

/* What rows alone cannot make up: the value, as --set takes it, or NULL where only the
 * whole plan can say it; the plan around it, where that is not the scope's. */
typedef struct Given {
  const char *scope, *key, *value, *fields;
} Given;
static const Given given[] = {
    {"plan", "version", "1", NULL}, /* the one that there is */
    {"plan", "model", NULL, BATCH "model = weft.model 'gpt2-124m'"},
    {"plan", "cluster", "a100-80gb", NULL},
    {"plan", "tp_plan", "{ lm_head = 'replicate' }", NULL},
    {"plan", "schedule", "gpipe", NULL},
    {"plan", "precision", "bf16", NULL},
    {"plan", "recompute", "full", NULL},
    {"plan", "packed", "{ eot = 3 }", NULL},
    {"plan", "loss_chunks", "2", NULL},
    {"plan", "freeze", "{ 'embed_tokens' }", NULL},
    {"plan", "groups", NULL, MODEL BATCH "groups = { { 'lm_head', lr = 0.5 } }"},
    {"plan", "adapter", NULL, MODEL BATCH "adapter = { 'lora', rank = 2 }"},
    {"lora", "target_parameters", NULL,
     EXPERTS BATCH "adapter = { 'lora', rank = 7, target_parameters = { 'down_proj' } }"},
    {"lora", "rank_pattern", "{ q_proj = 3 }", NULL},
    {"lora", "alpha_pattern", "{ q_proj = 3 }", NULL},
    {"lora", "modules_to_save", "{ 'norm' }", NULL},
    {"plan", "loss", NULL, MODEL BATCH "loss = { 'cross_entropy', per = 'sequences' }"},
    {"cross_entropy", "per", "sequences", NULL},
    {"distill", "teacher", "tutor", NULL},
    {"lora", "targets", "{ 'q_proj' }", NULL},
    {"lora", "base", "nf4", NULL},
    {"lora", "dropout_position", "post",
     MODEL BATCH "adapter = { 'lora', rank = 7, dropout = 0.1 }"},
    {"group", "lr", NULL, MODEL BATCH "groups = { { 'norm', lr = 2 } }"},
    {"group", "weight_decay", NULL,
     MODEL BATCH "groups = { { 'norm', weight_decay = 2 } }"},
    {"plan", "optimizer", NULL, MODEL BATCH "optimizer = weft.sgd { lr = 1e-3 }"},
    {"plan", "data", NULL, MODEL BATCH "data = weft.text { 'a.txt' }"},
    {"cluster", "nodes", "2",
     MODEL "batch = { global = 16, seq = 16 }, cluster = weft.cluster { nodes = 1, gpu = "
           "'h100-sxm' }"},
    {"cluster", "gpu", "a100-80gb", NULL},
    {"mesh", "order", "{ 'dp_replicate', 'dp_shard', 'pp', 'cp', 'tp' }", NULL},
    {"zero", "zero_hpz_partition_size", "2",
     MODEL BATCH "mesh = { dp = 4 }, strategy = { 'zero', stage = 3 }"},
    {"zero", "reduce_bucket_size", "1000000", NULL},
    {"zero", "offload_optimizer", "cpu", NULL},
    {"zero", "offload_param", "cpu",
     MODEL BATCH "strategy = { 'zero', stage = 3, offload_optimizer = 'cpu' }"},
    {"zero", "tp_plan", "{ lm_head = 'replicate' }", NULL},
    {"zero", "activation_checkpointing", "full", NULL},
    {"fsdp2", "tp_plan", "{ lm_head = 'replicate' }", NULL},
    {"fsdp2", "reshard_after_forward", "2",
     MODEL BATCH "mesh = { dp = 4 }, strategy = { 'fsdp2' }"},
    {"fsdp2", "mp_policy", "bf16", NULL},
    {"fsdp2", "offload_policy", "true", NULL},
    {"fsdp2", "autocast_dtype", "bf16", NULL},
    {"fsdp2", "activation_checkpointing", "full", NULL},
    {"megatron_fsdp", "zero_dp_strategy", "2", NULL},
    {"megatron_fsdp", "tp_plan", "{ lm_head = 'replicate' }", NULL},
    {"megatron_fsdp", "grad_reduce_in_fp32", "false",
     MODEL BATCH "precision = 'bf16', strategy = { 'megatron_fsdp' }"},
    /* Of the next four one value is legal, that which says what is done anyway. */
    {"megatron_fsdp", "preserve_fp32_weights", "true", NULL},
    {"megatron_fsdp", "calculate_per_token_loss", "true", NULL},
    {"megatron_fsdp", "check_for_nan_in_grad", "true", NULL},
    {"megatron_fsdp", "keep_fp8_transpose_cache", "false", NULL},
    {"megatron_fsdp", "activation_checkpointing", "full", NULL},
    {"fsdp2", "activation_checkpointing_scope", "all", NULL},
    {"ddp", "activation_checkpointing", "full", NULL},
    {"ddp", "bucket_cap_mb", "5", NULL},
    {"nccl", "algo", "ring,tree", NULL},
    {"nccl", "proto", "^ll", NULL},
    {"pp_plan", "layers", "{ 1, 3 }", NULL},
    {"pp_plan", "modules",
     "{ { 'embed_tokens', 'layers.0' }, { 'layers.1', 'layers.2', 'layers.3', 'norm', "
     "'lm_head' } }",
     NULL},
    {"pp_plan", "layout", "Et|tttL", NULL},
    {"precision", "output_dtype", "f32", NULL},
    {"precision", "recipe", "rowwise", MODEL BATCH "precision = { 'fp8' }"},
    {"precision", "fp8_format", "e4m3", MODEL BATCH "precision = { 'fp8' }"},
    {"precision", "round_scales_to_power_of_2", "true",
     MODEL BATCH "precision = { 'fp8' }"},
    {"precision", "exclude", "{ 'q_proj' }", MODEL BATCH "precision = { 'fp8' }"},
    {"precision", "master_dtype", "bf16",
     MODEL BATCH "precision = { param_dtype = 'bf16' }"},
    {"packed", "eot", "5", MODEL BATCH "packed = { eot = 3 }"},
    {"packed", "bos", "5", MODEL BATCH "packed = { bos = 3 }"},
    {"packed", "alone", "true", MODEL BATCH "packed = { size = 16 }"},
    {"packed", "size", "16", MODEL BATCH "packed = { eot = 3 }"},
    {"cp", "comm", "ring", MODEL BATCH "mesh = { cp = 2 }"},
    {"moe", "aux_loss_sequences", "1", EXPERTS BATCH "moe = { aux_loss_coef = 0.1 }"},
    {"moe", "aux_loss_batch", "global", EXPERTS BATCH "moe = { aux_loss_coef = 0.1 }"},
    {"moe", "bias_update_steps", "7", EXPERTS BATCH "moe = { bias_update_rate = 0.1 }"},
    {"moe", "num_groups", "4", EXPERTS BATCH "moe = { num_groups = 2, group_topk = 1 }"},
    {"moe", "group_topk", "2", EXPERTS BATCH "moe = { num_groups = 4, group_topk = 1 }"},
    {"moe", "drop", "true",
     EXPERTS BATCH "mesh = { ep = 2 }, moe = { max_tokens_factor = 2 }"},
    {"moe", "drop_policy", "position",
     EXPERTS BATCH "mesh = { ep = 2 }, moe = { capacity_factor = 2 }"},
    {"adamw", "lr", "0.002", NULL},
    {"adamw", "betas", "{ 0.8, 0.9 }", NULL},
    {"adamw", "stochastic_rounding", "true",
     MODEL BATCH "optimizer = weft.adamw { lr = 1e-3, state_dtype = 'bf16' }"},
    {"adam", "lr", "0.002", NULL},
    {"adam", "betas", "{ 0.8, 0.9 }", NULL},
    {"adam", "stochastic_rounding", "true",
     MODEL BATCH "optimizer = weft.adam { lr = 1e-3, state_dtype = 'bf16' }"},
    {"adamw_8bit", "lr", "0.002", NULL},
    {"adamw_8bit", "betas", "{ 0.8, 0.9 }", NULL},
    {"sgd", "lr", "0.002", NULL},
    {"sgd", "dampening", "0.25", NULL},
    {"sgd", "stochastic_rounding", "true",
     MODEL BATCH "optimizer = weft.sgd { lr = 1e-3, state_dtype = 'bf16' }"},
    {"lion", "lr", "0.002", NULL},
    {"lion", "betas", "{ 0.8, 0.9 }", NULL},
    {"lion", "stochastic_rounding", "true",
     MODEL BATCH "optimizer = weft.lion { lr = 1e-3, state_dtype = 'bf16' }"},
    {"muon", "lr", "0.002", NULL},
    {"muon", "betas", "{ 0.8, 0.9 }", NULL},
    {"muon", "ns_coefficients", "{ 1.5, -0.5, 0 }", NULL},
    {"muon", "stochastic_rounding", "true",
     MODEL BATCH "optimizer = weft.muon { lr = 1e-3, state_dtype = 'bf16' }"},
    {"adafactor", "lr", "0.002", NULL},
    {"adafactor", "eps", "{ 1e-15, 1e-3 }", NULL},
    {"cosine", "min", "1e-5", NULL},
    {"polynomial", "min", "1e-5", NULL},
    {"inverse_sqrt", "min", "1e-5", NULL},
    {"wsd", "min", "1e-5", NULL},
    {"chat", "files", NULL,
     MODEL BATCH "data = weft.chat { 'b.jsonl', tokenizer = 't', template = 'llama3' }"},
    {"chat", "weights", "{ 1, 3 }",
     MODEL BATCH
     "data = weft.chat { files = { 'a.jsonl', 'b.jsonl' }, weights = { 1, 2 }, "
     "tokenizer = 't', template = 'llama3' }"},
    {"chat", "val", NULL,
     MODEL BATCH "data = weft.chat { 'a.jsonl', tokenizer = 't', template = 'llama3', "
                 "val = weft.text 'b.txt' }"},
    {"chat", "format", "alpaca", NULL},
    {"chat", "template", "chatml", NULL},
    {"chat", "options", "{ system = 'x' }", NULL},
    {"train", "epochs", "2", NULL},
    {"checkpoint", "keep_best", "true",
     MODEL BATCH VALIDATED " }, checkpoint = { dir = 'a' }"},
    {"wsd", "decay_ratio", "0.5", ADAMW("weft.wsd { max = 1e-3, decay_ratio = 0.2 }")},
    {"linear", "min", "1e-5", NULL},
    {"text", "files", NULL, MODEL BATCH "data = weft.text { 'b.txt' }"},
    {"text", "weights", "{ 0.25, 0.75 }",
     MODEL BATCH "data = weft.text { 'a.txt', 'b.txt' }"},
    {"text", "val", NULL,
     MODEL BATCH "data = weft.text { 'a.txt', val = weft.text { 'b.txt' } }"},
    {"tokens", "files", NULL, MODEL BATCH "data = weft.tokens { 'b.bin' }"},
    {"tokens", "weights", "{ 0.25, 0.75 }",
     MODEL BATCH "data = weft.tokens { 'a.bin', 'b.bin' }"},
    {"tokens", "val", NULL,
     MODEL BATCH "data = weft.tokens { 'a.bin', val = weft.tokens { 'b.bin' } }"},
    {"synthetic", "val", NULL,
     MODEL BATCH "data = weft.synthetic { val = weft.synthetic {} }"},
    {"checkpoint", "dir", "b", NULL},
    {"checkpoint", "save_consolidated", "every", NULL},
};

static const Given *given_to(const Field *f) {
  for (int i = 0; i < LEN(given); i++)
    if (str_eq(given[i].scope, f->scope) && str_eq(given[i].key, f->key))
      return &given[i];
  return NULL;
}

/* Without the field. */
static const char *plan_of(const Field *f) {
  const Given *own = given_to(f);
  if (own && own->value && own->fields) return own->fields;
  for (int i = 0; i < LEN(scopes); i++)
    if (str_eq(scopes[i].scope, f->scope)) return scopes[i].fields;
  return MODEL BATCH;
}

static const char *number(const Field *f, int i) {
  const double all[] = {2, 3, 4, 8, 16, 0.25, 0.5, 5, f->lo, f->hi};
  if (i >= LEN(all)) return NULL;
  double v = all[i];
  bool fits = v >= f->lo && v <= f->hi && v != f->def;
  if (f->type == FIELD_INT) fits &= v == floor(v);
  return fits ? arena_printf(scratch_arena, "%.17g", v) : "";
}

static const char *name(const Field *f, int i) {
  NameWord w;
  bool later = false;
  for (const char *p = f->names; name_next(scratch_arena, &p, &later, &w);)
    if (w.s[w.n] != '=' && i-- == 0) return later ? NULL : w.canon;
  return NULL;
}

/* The i-th value to try, "" for none, NULL at the end. */
static const char *candidate(const Field *f, int i) {
  const Given *own = given_to(f);
  if (own) return i ? NULL : own->value ? own->value : "the whole plan";
  switch (f->type) {
  case FIELD_INT:
  case FIELD_NUM: return number(f, i);
  case FIELD_BOOL: return i == 0 ? "true" : i == 1 ? "false" : NULL;
  case FIELD_NAME:
  case FIELD_NAMED: return name(f, i);
  case FIELD_TEXT: return i ? NULL : "a \"text\"";
  case FIELD_RANGE: return i ? NULL : "0.75";
  default: return NULL;
  }
}

/* ---- one plan ---- */

typedef struct Loaded {
  Arena *arena;
  Job job;
  JobFacts facts;
  uint64_t hash;
} Loaded;

static void unload(Loaded *l) {
  job_free(&l->job);
  arena_free(l->arena);
}

static bool finish(Loaded *l, weft_status st) {
  weft_error e = {.rank = -1};
  if (st == WEFT_OK) {
    l->facts = (JobFacts){.arena = l->arena};
    st = job_facts(&l->job, &l->facts, &e);
    ck_assert_msg(st == WEFT_OK, "%s", e.text);
    l->hash = job_hash(&l->facts);
    return true;
  }
  return false;
}

static const LangOptions options;

/* `set` may be NULL. False if the plan is wrong. */
static bool load(const char *fields, const char *set, Loaded *l) {
  const char *text = arena_printf(
      scratch_arena, "local weft = require 'weft'\nreturn weft.plan { %s }\n", fields);
  const char *path = scratch_put("plan.lua", text, strlen(text));
  LangOptions o = options;
  o.set = &set, o.nset = set ? 1 : 0;
  l->arena = arena_new(NULL);
  return finish(l, job_load(&l->job, l->arena, &o, path));
}

/* The plan of `of` with the value at `path` that has gone through JSON. */
static bool load_json(const Loaded *of, const char *path, const char *value, Loaded *l) {
  lua_State *L = luaL_newstate();
  Text text = {0};
  Json out = {.out = &text};
  const char *code = lua_pushfstring(L, "return %s", value);
  if (luaL_dostring(L, code) != LUA_OK || lua_isnil(L, -1)) lua_pushstring(L, value);
  json_open(&out, NULL, '[');
  json_value(L, NULL, &out);
  json_close(&out, ']');
  json_t *doc = json_loads(text.s, 0, NULL);
  ck_assert_msg(doc != NULL, "%s", text.s);
  lua_newtable(L);
  json_push(L, json_array_get(doc, 0));
  lua_setfield(L, -2, path);
  json_decref(doc);
  text_free(&text);
  LangValue v = {.copy = of->job.lp,
                 .from = L,
                 .changes = lua_gettop(L),
                 .changes_file = "json",
                 .file = of->job.plan.file};
  l->arena = arena_new(NULL);
  bool ok = finish(l, job_load_value(&l->job, l->arena, &options, &v));
  lua_close(L);
  return ok;
}

static const char *fact(const Loaded *l, const char *what) {
  for (int i = 0; i < l->facts.n; i++)
    if (str_eq(l->facts.fact[i].what, what)) return l->facts.fact[i].value;
  return NULL;
}

/* ---- one field ---- */

static const Field *teller(const Field *f) {
  for (const Field *g = schema; g->scope; g++)
    if (f->stored && g->at == f->at && schema_tells(g)) return g;
  return NULL;
}

static const char *report(const Loaded *l) {
  if (l->job.d.list.n) return l->job.d.list.at[0].summary;
  return l->job.e.text;
}

typedef struct Resumed {
  const RunFact *fact;
  int n;
} Resumed;

static Resumed resumed(const Loaded *l) {
  Job job = l->job;
  Resumed r;
  weft_error e = {0};
  ck_assert_int_eq(resume_facts(&job, &l->facts, &r.fact, &r.n, &e), WEFT_OK);
  return r;
}

static const char *value_of(const Resumed *r, const char *what) {
  for (int i = 0; i < r->n; i++)
    if (str_eq(r->fact[i].what, what)) return r->fact[i].value;
  return "";
}

/* Fields of which a run that is resumed says nothing. */
static bool is_free(const char *what) {
  enum { REFUSE, NOTE, FREE };
  static const struct {
    const char *what;
    int rule;
  } rows[] = {
#define RESUME(what, rule, evaluations, why) {what, rule},
#include "bindings/runs/resume.def"
  };
  for (int i = 0; i < LEN(rows); i++)
    if (str_eq(rows[i].what, what)) return rows[i].rule == FREE;
  return false;
}

/* How many facts of `what` or below it differ; *any: there is one of it. */
static int differing(const Resumed *a, const Resumed *b, const char *what, bool *any) {
  int n = 0;
  size_t length = strlen(what);
  for (int i = 0; i < a->n; i++) {
    const char *name = a->fact[i].what;
    if (strncmp(name, what, length) != 0 || (name[length] && name[length] != '.'))
      continue;
    *any |= !name[length] && !is_free(what);
    n += !str_eq(a->fact[i].value, value_of(b, name));
  }
  return n;
}

/* A run that is resumed hears of it, where it says anything of such a field; of one in a
 * list, by the list. */
static void check_resumed(const Field *f, const Loaded *was, const Loaded *is) {
  Resumed a = resumed(was), b = resumed(is);
  bool any = false, above = false;
  int told = 0;
  for (const Field *in = f; in; in = schema_parent(in)) {
    const char *path = schema_path(scratch_arena, in);
    told += differing(&a, &b, arena_printf(scratch_arena, "plan.%s", path),
                      in == f ? &any : &above);
  }
  ck_assert_msg(told > 0 || !any, "%s.%s", f->scope, f->key);
}

/* The fact of the field's place tells the value, and nothing else. */
static void check_fact(const Field *f, const char *path, const Loaded *was,
                       const Loaded *is) {
  const Field *t = teller(f);
  if (!t) {
    ck_assert_msg(!str_eq(fact(was, "the plan's other fields"),
                          fact(is, "the plan's other fields")),
                  "%s: no fact tells it", path);
    check_resumed(f, was, is);
    return;
  }
  const char *what =
      arena_printf(scratch_arena, "plan.%s", schema_path(scratch_arena, t));
  Text text = {0};
  field_print(t, &is->job.plan, &text);
  ck_assert_msg(str_eq(fact(is, what), text.s), "%s", what);
  bool one = t->type == FIELD_BUILT && !strchr(t->names, ' '); /* builder that there is */
  ck_assert_msg(one || !str_eq(fact(was, what), fact(is, what)),
                "%s: %s tells %s of both", path, what, text.s);
  for (const char *s = text.s; *s; s++)
    ck_assert_msg((unsigned char)*s < 127, "%s: %s tells \"%s\"", path, what, text.s);
  text_free(&text);
}

static void check_json(const char *path, const char *value, const Loaded *was,
                       const Loaded *is) {
  Loaded json;
  ck_assert_msg(load_json(was, path, value, &json), "%s = %s: %s", path, value,
                report(&json));
  for (int i = 0; i < is->facts.n; i++)
    ck_assert_msg(str_eq(is->facts.fact[i].value, json.facts.fact[i].value),
                  "%s: %s is %s, through JSON %s", path, is->facts.fact[i].what,
                  is->facts.fact[i].value, json.facts.fact[i].value);
  ck_assert(json.hash == is->hash);
  unload(&json);
}

/* Adds a line with the value and the hash. False if no value was legal. */
static bool check_field(const Field *f, Text *lines) {
  const char *path = schema_path(scratch_arena, f), *value, *why = "nothing to try";
  Loaded was, is;
  ck_assert_msg(load(plan_of(f), NULL, &was), "%s: %s", f->scope, report(&was));
  const Given *own = given_to(f);
  bool found = false, whole = own && !own->value;
  for (int i = 0; !found && (value = candidate(f, i)); i++) {
    if (!*value) continue;
    const char *set = arena_printf(scratch_arena, "%s=%s", path, value);
    bool ok = whole ? load(own->fields, NULL, &is) : load(plan_of(f), set, &is);
    found = ok && is.hash != was.hash;
    if (!ok)
      why = arena_printf(scratch_arena, "%s: %s", value, report(&is));
    else if (!found)
      why = arena_printf(scratch_arena, "%s: the same hash", value);
    if (found) {
      check_fact(f, path, &was, &is);
      if (!whole) check_json(path, value, &was, &is);
      text_printf(lines, "%s.%s = %s: %016llx\n", f->scope, f->key, value,
                  (unsigned long long)is.hash);
    }
    unload(&is);
  }
  unload(&was);
  if (!found) printf("%s.%s (%s): %s\n", f->scope, f->key, path, why);
  return found;
}

/* Rows that change nothing, or that others speak for. */
static bool has_values(const Field *f) {
  return f->type != FIELD_NOOP && f->type != FIELD_REFUSED && f->type != FIELD_ALIAS &&
         f->type != FIELD_TABLE;
}

static const char *lines_of_all(void) {
  Text lines = {0};
  int n = 0, bad = 0;
  for (const Field *f = schema; f->scope; f++) {
    if (!has_values(f)) continue;
    n++;
    bad += !check_field(f, &lines);
  }
  ck_assert_int_gt(n, 150);
  ck_assert_msg(bad == 0, "%d of %d fields", bad, n);
  const char *s = arena_str(scratch_arena, lines.s);
  text_free(&lines);
  return s;
}

/* ---- functions ---- */

static uint64_t hash_of(const char *fields) {
  Loaded l;
  ck_assert_msg(load(fields, NULL, &l), "%s: %s", fields, report(&l));
  unload(&l);
  return l.hash;
}

#define SCHEDULE(head, count)                                                            \
  MODEL BATCH                                                                            \
      "schedule = (function() local n = " count " return function(s) " head              \
      " for m = 0, s.microbatches - n do s:forward(m) s:backward(m) end end end)()"

START_TEST(functions_are_told_by_code_and_what_they_hold) {
  uint64_t one = hash_of(SCHEDULE("", "1"));
  ck_assert(one == hash_of(SCHEDULE("", "1")));
  ck_assert(one != hash_of(SCHEDULE("", "2")));
  ck_assert(one != hash_of(SCHEDULE("local x = 1", "1")));
  /* One that holds itself has an end. */
  const char *self = MODEL BATCH
      "schedule = (function() local f function f(s, n) if n then return f(s) end "
      "for m = 0, s.microbatches - 1 do s:forward(m) s:backward(m) end end return f "
      "end)()";
  ck_assert(hash_of(self) == hash_of(self));
}
END_TEST

/* 1.0 is 1, and a default that is written is the default. */
START_TEST(the_hash_is_of_what_is_meant) {
  ck_assert(hash_of(MODEL BATCH) ==
            hash_of(MODEL "batch = { global = 8.0, seq = 16 }, train = { seed = 0 }"));
  ck_assert(hash_of(MODEL BATCH "strategy = 'zero', precision = 'bf16'") ==
            hash_of(MODEL BATCH
                    "strategy = { 'zero' }, precision = { param_dtype = 'bfloat16' }"));
  ck_assert(hash_of(MODEL BATCH "pp_plan = { layers = { 4 } }") ==
            hash_of(MODEL BATCH "pp_plan = { layers = { 4.0 } }"));
}
END_TEST

/* No code elsewhere knows a field by its key: its row has a type, or names who checks it
 * and says what it takes. The model is looked at once all other fields are known. */
START_TEST(every_row_has_a_type_or_a_checker) {
  int own = 0;
  for (const Field *f = schema; f->scope; f++) {
    bool has = f->check || (str_eq(f->scope, "plan") && str_eq(f->key, "model"));
    ck_assert_msg((f->type == FIELD_OWN) == (f->form != NULL), "%s.%s", f->scope, f->key);
    ck_assert_msg(f->type != FIELD_OWN || has, "%s.%s", f->scope, f->key);
    own += f->type == FIELD_OWN;
  }
  ck_assert_int_gt(own, 20);
}
END_TEST

/* Options that are switches elsewhere and names here take both. */
START_TEST(names_may_be_switches) {
  static const char *const same[][2] = {{"'cpu'", "true"}, {"'none'", "false"}};
  for (int i = 0; i < LEN(same); i++) {
    uint64_t hash[2];
    for (int k = 0; k < 2; k++)
      hash[k] = hash_of(arena_printf(
          scratch_arena,
          MODEL BATCH "strategy = { 'zero', stage = 1, offload_optimizer = %s }",
          same[i][k]));
    ck_assert_msg(hash[0] == hash[1], "%s", same[i][0]);
  }
  Loaded l;
  ck_assert(!load(MODEL BATCH "strategy = { 'zero', stage = 1, offload_optimizer = 3 }",
                  NULL, &l));
  ck_assert_str_eq(report(&l), "expected a name, true or false, got number 3");
  unload(&l);
}
END_TEST

/* ---- two processes ---- */

#define ALSO "WEFT_FIELDS_TO"

START_TEST(every_field_is_told) {
  const char *s = lines_of_all(), *to = getenv(ALSO);
  const char *f = arena_printf(scratch_arena, "function: %016llx\n",
                               (unsigned long long)hash_of(SCHEDULE("", "1")));
  s = arena_printf(scratch_arena, "%s%s", s, f);
  if (to) {
    FILE *file = fopen(to, "w");
    ck_assert(file && fputs(s, file) >= 0 && fclose(file) == 0);
    return;
  }
  const char *path = scratch_path("other");
  Outcome o = process_run(120, "env " ALSO "=%s CK_RUN_CASE=schema %s/weft-tests fields",
                          path, WEFT_BINARY_DIR);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_str_eq(scratch_get(path), s);
}
END_TEST

/* ---- what is no field ---- */

typedef struct Inputs {
  StWrite tensor[2];
  int n;
  const char *text, *val; /* of data; NULL: none */
  int64_t steps;
  const char *resumed;
} Inputs;

/* All facts of a plan with these inputs. */
static const char *facts_of(const Inputs *in) {
  const Folders here = {.plan = scratch_dir};
  Loaded l;
  JobFacts f = {.steps = in->steps, .resumed = in->resumed};
  Data *data[2] = {0};
  SafeTensors *weights = NULL;
  weft_error e;
  err_clear(&e);
  ck_assert_msg(load(MODEL BATCH, NULL, &l), "%s", report(&l));
  for (int i = 0; i < 2; i++) {
    const char *text = i ? in->val : in->text, *file = i ? "v.txt" : "d.txt";
    if (!text) continue;
    scratch_put(file, text, strlen(text));
    DataSpec spec = {.kind = DATA_TEXT, .files = &file, .nfiles = 1, .dir = scratch_dir};
    ck_assert_msg(data_open(NULL, &spec, 4, 256, 0, &data[i], &e) == WEFT_OK, "%s",
                  e.text);
  }
  const char *path = scratch_path("w.safetensors");
  if (in->n) {
    ck_assert_int_eq(st_write(NULL, path, in->tensor, in->n, &e), WEFT_OK);
    ck_assert_msg(st_open(NULL, path, &here, &weights, &e) == WEFT_OK, "%s", e.text);
  }
  f.arena = l.arena, f.data = data[0], f.val = data[1], f.weights = weights;
  ck_assert_msg(job_facts(&l.job, &f, &e) == WEFT_OK, "%s", e.text);
  const char *all = "";
  for (int i = 0; i < f.n; i++)
    all = arena_printf(l.arena, "%s%s = %s\n", all, f.fact[i].what, f.fact[i].value);
  all = arena_str(scratch_arena, all);
  st_close(weights);
  data_close(data[0]);
  data_close(data[1]);
  unload(&l);
  return all;
}

/* Two runs whose data, weights, steps or checkpoint differ in anything differ in a fact.
 */
START_TEST(every_input_is_told) {
  static const uint16_t zeros[8], others[8] = {[1] = 1};
  const Inputs base = {
      .tensor = {{"a", DT_F16, 2, {2, 3}, zeros}, {"b", DT_BF16, 1, {2}, zeros}},
      .n = 2,
      .text = "some text to read",
      .val = "some more to look at",
      .steps = 7,
      .resumed = "step-5"};
  Inputs in[13];
  for (int i = 0; i < LEN(in); i++) in[i] = base;
  in[1].tensor[0].name = "c";
  in[2].tensor[0].dtype = DT_BF16;
  in[3].tensor[1].dtype = DT_F16;
  in[4].tensor[0].dim[0] = 3, in[4].tensor[0].dim[1] = 2;
  in[5].tensor[0].ndim = 1, in[5].tensor[0].dim[0] = 6;
  in[6].n = 1;
  in[7].n = 0;
  in[8].text = "some text to reax";
  in[9].val = NULL;
  in[10].steps = 8;
  in[11].resumed = "step-6";
  in[12].tensor[1].data = others;
  const char *said[LEN(in)];
  for (int i = 0; i < LEN(in); i++) {
    said[i] = facts_of(&in[i]);
    for (int k = 0; k < i; k++)
      ck_assert_msg(!str_eq(said[i], said[k]), "%d and %d say the same", i, k);
    ck_assert_str_eq(facts_of(&in[i]), said[i]);
  }
  ck_assert_msg(strstr(said[0], "\nweights = 2 tensors, 16 bytes ("), "%s", said[0]);
  ck_assert_msg(strstr(said[7], "\nweights = none\n"), "%s", said[7]);
  ck_assert_msg(strstr(said[9], "\ndata for validation = none\n"), "%s", said[9]);
  ck_assert_msg(strstr(said[10], "\n--steps = 8\n"), "%s", said[10]);
  ck_assert_msg(strstr(said[11], "\ncheckpoint = step-6\n"), "%s", said[11]);
}
END_TEST

/* ---- a run of two processes ---- */

static const char *hash_in_log(const char *path) {
  json_t *doc = json_loads(scratch_get(path), JSON_DISABLE_EOF_CHECK, NULL);
  const char *hash = json_string_value(json_object_get(doc, "plan_hash"));
  ck_assert_msg(hash != NULL, "%s", scratch_get(path));
  hash = arena_str(scratch_arena, hash);
  json_decref(doc);
  return hash;
}

/* All options of a library that are kept as texts, whatever they are. */
START_TEST(processes_agree_on_every_option_of_nccl) {
  const char *text = "local weft = require 'weft'\nreturn weft.plan { " MODEL BATCH
                     "mesh = { dp = 2 }, data = weft.synthetic {}, nccl = { ";
  for (const Field *f = schema; f->scope; f++) {
    if (!str_eq(f->scope, "nccl")) continue;
    const char *value = "";
    for (int i = 0; value && !*value; i++) value = candidate(f, i);
    bool name = f->type == FIELD_NAME || f->type == FIELD_TEXT || f->type == FIELD_OWN;
    text = arena_printf(scratch_arena, name ? "%s%s = [[%s]], " : "%s%s = %s, ", text,
                        f->key, value);
  }
  text = arena_printf(scratch_arena, "%s} }\n", text);
  scratch_put("nccl.lua", text, strlen(text));
  const char *hash[2];
  for (int i = 0; i < 2; i++) {
    Outcome o = process_run(120,
                            "$weft run nccl.lua --procs 2 --threads 1 --steps 1 --quiet "
                            "--log log%d",
                            i);
    ck_assert_msg(o.code == 0, "%s", o.err);
    hash[i] = hash_in_log(scratch_path(i ? "log1" : "log0"));
  }
  ck_assert_str_eq(hash[0], hash[1]);
}
END_TEST

/* Folders that rows of weft.hf and of teachers name. */
static void setup(void) {
  scratch_setup();
  for (int i = 0; i < 2; i++) {
    Outcome o = process_run(60, "cp -r " WEFT_SOURCE_DIR "/tests/oracle/llama %s",
                            i ? "tutor" : "teacher");
    ck_assert_int_eq(o.code, 0);
  }
}

Suite *fields_suite(void);
Suite *fields_suite(void) {
  Suite *s = suite_create("fields");
  TCase *t = tcase_create("schema");
  tcase_set_timeout(t, 300);
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_add_test(t, every_field_is_told);
  suite_add_tcase(s, t);
  t = tcase_create("meaning");
  tcase_set_timeout(t, 300);
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_add_test(t, functions_are_told_by_code_and_what_they_hold);
  tcase_add_test(t, the_hash_is_of_what_is_meant);
  tcase_add_test(t, every_row_has_a_type_or_a_checker);
  tcase_add_test(t, names_may_be_switches);
  tcase_add_test(t, every_input_is_told);
  tcase_add_test(t, processes_agree_on_every_option_of_nccl);
  suite_add_tcase(s, t);
  return s;
}
