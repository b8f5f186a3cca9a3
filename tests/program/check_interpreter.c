/* check_interpreter.c - programs as JSON, executed by an interpreter that has nothing
 * else of weft (tests/reference/interpreter.lua): losses and parameters after two steps
 * are those of a run, whatever order ranks and transfers take. */
#include <check.h>
#include <jansson.h>
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <stdio.h>

#include "bindings/api/api.h"
#include "bindings/plan_table/json_value.h"
#include "tests/harness/scratch.h"
#include "vm/io/io.h"

/* ---- plans ---- */

#define SIZES "hidden_size = 16, num_attention_heads = 4, vocab_size = 29"
#define LLAMA(layers)                                                                    \
  "model = weft.model { 'llama', num_hidden_layers = " #layers ", " SIZES                \
  ", num_key_value_heads = 2, intermediate_size = 24, rms_norm_eps = 1e-5 }, "
#define GPT2                                                                             \
  "model = weft.model { 'gpt2', n_layer = 2, n_embd = 16, n_head = 4, vocab_size = 29, " \
  "n_positions = 8 }, "
#define DROPOUT(layers)                                                                  \
  "model = weft.model { 'gpt2', n_layer = " #layers ", n_embd = 16, n_head = 4, "        \
  "vocab_size = 29, n_positions = 8, embd_pdrop = 0.2, resid_pdrop = 0.5, "              \
  "attn_pdrop = 0.3 }, "                                                                 \
  "train = { seed = 5 }, "
#define MIXTRAL                                                                          \
  "model = weft.model { 'mixtral', num_hidden_layers = 2, " SIZES                        \
  ", num_key_value_heads = 2, intermediate_size = 12, num_local_experts = 4, "           \
  "num_experts_per_tok = 2 }, "
#define DEEPSEEK                                                                         \
  "model = weft.model { 'deepseek_v3', num_hidden_layers = 2, " SIZES                    \
  ", intermediate_size = 24, moe_intermediate_size = 12, n_routed_experts = 8, "         \
  "num_experts_per_tok = 2, n_group = 4, topk_group = 2, first_k_dense_replace = 1, "    \
  "q_lora_rank = 12, kv_lora_rank = 8, qk_nope_head_dim = 6, qk_rope_head_dim = 4, "     \
  "v_head_dim = 6, num_key_value_heads = 4 }, "
#define BATCH(n) "batch = { global = " #n ", micro = 1, seq = 8 }, "

static const struct {
  const char *name, *fields;
} plans[] = {
    {"llama", LLAMA(2) BATCH(2)},
    {"llama tp pp dp", LLAMA(4) BATCH(8) "mesh = { tp = 2, pp = 2, dp = 2 }"},
    {"sequence parallel",
     LLAMA(2) BATCH(4) "mesh = { tp = 2, dp = 2 }, strategy = { 'zero', stage = 1, "
                       "sequence_parallel = true }"},
    {"zero 3", LLAMA(2) BATCH(4) "mesh = { dp = 4 }, strategy = { 'zero', stage = 3 }"},
    {"fsdp2", LLAMA(4) BATCH(8) "mesh = { dp = 2, pp = 2 }, strategy = { 'fsdp2', "
                                "reshard_after_forward = true }"},
    {"fsdp2 in groups",
     LLAMA(2)
         BATCH(4) "mesh = { dp = 4 }, strategy = { 'fsdp2', reshard_after_forward = 2 }"},
    {"offloaded",
     LLAMA(2)
         BATCH(4) "mesh = { dp = 2 }, strategy = { 'fsdp2', offload_policy = true }"},
    {"gathered keys", LLAMA(2) BATCH(2) "mesh = { cp = 2 }"},
    {"ring", LLAMA(2) BATCH(2) "mesh = { cp = 4 }, cp = { comm = 'ring' }"},
    {"a2a", LLAMA(2) BATCH(2) "mesh = { cp = 2 }, cp = { comm = 'a2a' }"},
    {"one run each", LLAMA(2) BATCH(2) "mesh = { cp = 2 }, cp = { balance = 'none' }"},
    {"a2a and ring",
     LLAMA(2) BATCH(2) "mesh = { cp = 4 }, cp = { comm = 'a2a+p2p', heads_size = 2 }"},
    {"async tp", LLAMA(2) BATCH(2) "mesh = { tp = 2 }, strategy = { 'zero', "
                                   "enable_async_tensor_parallel = true }"},
    {"megatron_fsdp", LLAMA(2) BATCH(4) "mesh = { dp = 2 }, strategy = 'megatron_fsdp'"},
    {"zbv", LLAMA(4) BATCH(8) "mesh = { pp = 2 }, schedule = 'zbv'"},
    {"interleaved", LLAMA(4) BATCH(4) "mesh = { pp = 2 }, schedule = 'interleaved_1f1b'"},
    {"recomputed", LLAMA(2) BATCH(2) "mesh = { tp = 2 }, recompute = 'full'"},
    {"gpt2 tp", GPT2 BATCH(2) "mesh = { tp = 2 }"},
    {"gpt2 tied", GPT2 BATCH(4) "mesh = { pp = 2, dp = 2 }"},
    {"dropout", DROPOUT(2) BATCH(2)},
    {"dropout on a mesh",
     DROPOUT(4) BATCH(8) "mesh = { tp = 2, pp = 2, dp = 2 }, recompute = 'full'"},
    {"dropout of runs of tokens",
     DROPOUT(2) BATCH(2) "mesh = { tp = 2, cp = 2 }, strategy = { 'zero', "
                         "sequence_parallel = true }"},
    {"dropout in a ring",
     DROPOUT(2) BATCH(2) "mesh = { cp = 4, tp = 2 }, cp = { comm = 'a2a+p2p', "
                         "heads_size = 2 }"},
    {"post validation",
     LLAMA(4)
         BATCH(4) "mesh = { pp = 2 }, optimizer = weft.adamw { lr = 1e-2, eps = 1e-3, "
                  "post_validation = true }"},
    {"muon", LLAMA(2) BATCH(4) "mesh = { tp = 2, dp = 2 }, strategy = 'fsdp2', "
                               "optimizer = weft.muon { lr = 1e-2, ns_steps = 3 }"},
    {"muon of experts",
     MIXTRAL BATCH(4) "mesh = { dp = 2, ep = 2, etp = 2, tp = 2 }, moe = { dispatcher = "
                      "'alltoall' }, optimizer = weft.muon { lr = 1e-2, ns_steps = 3, "
                      "nesterov = false, adjust_lr = 'match_rms_adamw' }"},
    {"adafactor", LLAMA(2) BATCH(4) "mesh = { tp = 2, dp = 2 }, strategy = 'fsdp2', "
                                    "optimizer = weft.adafactor { lr = 1e-1 }"},
    {"adafactor of experts",
     MIXTRAL BATCH(
         4) "mesh = { dp = 2, ep = 2, etp = 2, tp = 2 }, moe = { dispatcher = "
            "'alltoall' }, optimizer = weft.adafactor { lr = 1e-2, relative_step = "
            "false, scale_parameter = false, weight_decay = 0.1 }"},
    {"mixtral", MIXTRAL BATCH(2)},
    {"mixtral allgather",
     MIXTRAL BATCH(8) "mesh = { dp = 2, ep = 2 }, moe = { aux_loss_coef = 0.02, "
                      "aux_loss_batch = 'global' }"},
    {"mixtral alltoall",
     MIXTRAL BATCH(
         4) "mesh = { dp = 2, ep = 2, tp = 2 }, moe = { dispatcher = 'alltoall', "
            "aux_loss_coef = 0.02, z_loss_coef = 0.001 }"},
    {"deepseek",
     DEEPSEEK BATCH(
         4) "mesh = { tp = 2, dp = 2, ep = 2 }, moe = { dispatcher = 'alltoall', "
            "bias_update_rate = 0.01 }"},
};

static const char *const orders[] = {"late", "early", "drawn"};

/* ---- weft's run ---- */

enum { STEPS = 2, VOCAB = 29 };

typedef struct Trained {
  weft_plan *plan;
  int nparam;
  float **before, **after;
  int32_t *tokens[STEPS], *labels[STEPS];
  size_t n;
  weft_step step[STEPS];
} Trained;

static weft_error err;
#define OK(call) ck_assert_msg((call) == WEFT_OK, "%s", err.text)

static float *param_of(weft_run *run, const weft_param *p) {
  float *v = arena_alloc(scratch_arena, sizeof *v * (size_t)p->count);
  OK(weft_run_get(run, WEFT_PARAM, p->name, v, (size_t)p->count, &err));
  return v;
}

static void params_of(const Trained *t, weft_run *run, float **to) {
  weft_param p;
  for (int i = 0; i < t->nparam; i++) {
    OK(weft_plan_param_at(t->plan, i, &p, &err));
    to[i] = param_of(run, &p);
  }
}

/* Some labels do not count. */
static void draw_ids(Trained *t) {
  uint32_t x = 12345;
  for (int k = 0; k < STEPS; k++) {
    t->tokens[k] = arena_alloc(scratch_arena, t->n * sizeof(int32_t));
    t->labels[k] = arena_alloc(scratch_arena, t->n * sizeof(int32_t));
    for (size_t i = 0; i < t->n; i++) {
      x = x * 1664525 + 1013904223;
      t->tokens[k][i] = (int32_t)(x >> 8) % VOCAB;
      t->labels[k][i] = x >> 29 == 0 ? -100 : (int32_t)(x >> 13) % VOCAB;
    }
  }
}

static void load_plan(Trained *t, const char *fields) {
  const char *optimizer = strstr(fields, "weft.adamw")
                              ? ""
                              : "optimizer = weft.adamw { lr = 1e-2, eps = 1e-3 }, ";
  const char *text = arena_printf(
      scratch_arena, "local weft = require 'weft'\nreturn weft.plan { %s%s }\n",
      optimizer, fields);
  const char *path = scratch_put("plan.lua", text, strlen(text));
  OK(weft_plan_load(NULL, path, &t->plan, &err));
  OK(weft_plan_compile(t->plan, 0, &err));
}

static void train(Trained *t, const char *fields) {
  weft_run *run;
  weft_run_options o = {.size = sizeof o, .threads = 1};
  *t = (Trained){0};
  load_plan(t, fields);
  t->nparam = weft_plan_param_count(t->plan);
  t->n = (size_t)(weft_plan_sequences(t->plan) * weft_plan_tokens(t->plan));
  t->before = arena_alloc(scratch_arena, sizeof(float *) * (size_t)t->nparam);
  t->after = arena_alloc(scratch_arena, sizeof(float *) * (size_t)t->nparam);
  draw_ids(t);
  OK(weft_run_open(t->plan, &o, &run, &err));
  OK(weft_run_init(run, &err));
  params_of(t, run, t->before);
  for (int k = 0; k < STEPS; k++)
    OK(weft_run_step_tokens(run, t->tokens[k], t->labels[k], t->n, k, &t->step[k], &err));
  params_of(t, run, t->after);
  weft_run_close(run);
}

/* ---- the interpreter ---- */

static void must(lua_State *L, int status) {
  ck_assert_msg(status == LUA_OK, "%s", lua_tostring(L, -1));
}

/* Pushes the value of a file of tests/reference. */
static void push_file(lua_State *L, const char *name) {
  must(L, luaL_dofile(L, arena_printf(scratch_arena, "%s/tests/reference/%s.lua",
                                      WEFT_SOURCE_DIR, name)));
}

static int with_traceback(lua_State *L) {
  luaL_traceback(L, L, lua_tostring(L, 1), 1);
  return 1;
}

/* Adds the ops of a file to the table of all ops, which lies below. */
static void add_ops(lua_State *L, const char *file) {
  push_file(L, file);
  for (lua_pushnil(L); lua_next(L, -2);) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -5);
  }
  lua_pop(L, 1);
}

/* Leaves the interpreter, with its ops. */
static lua_State *open_interpreter(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_pushcfunction(L, with_traceback);
  push_file(L, "interpreter_lists");
  lua_setglobal(L, "interpreter_lists");
  push_file(L, "interpreter_ops");
  lua_pushvalue(L, -1);
  lua_setglobal(L, "interpreter_ops");
  add_ops(L, "interpreter_attention");
  add_ops(L, "interpreter_loss");
  add_ops(L, "interpreter_experts");
  add_ops(L, "interpreter_step");
  push_file(L, "interpreter");
  lua_insert(L, 2);
  lua_setfield(L, 2, "ops");
  return L;
}

static void push_programs(lua_State *L, const Compiled *c) {
  lua_newtable(L);
  for (int r = 0; r < c->mesh.world; r++) {
    Text t = {0};
    program_json(c, r, &t);
    json_t *doc = json_loads(t.s, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(doc);
    json_push(L, doc);
    lua_rawseti(L, -2, r + 1);
    json_decref(doc);
    text_free(&t);
  }
}

static void push_params(lua_State *L, const Trained *t) {
  lua_newtable(L);
  for (int i = 0; i < t->nparam; i++) {
    weft_param p;
    OK(weft_plan_param_at(t->plan, i, &p, &err));
    lua_newtable(L);
    lua_createtable(L, (int)p.count, 0);
    for (int64_t k = 0; k < p.count; k++) {
      lua_pushnumber(L, t->before[i][k]);
      lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "value");
    lua_setfield(L, -2, p.name);
  }
}

static void push_ids(lua_State *L, const int32_t *id, size_t n, const char *key) {
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    lua_pushinteger(L, id[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, key);
}

static void push_scalar(lua_State *L, const char *name, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, name);
}

static void push_steps(lua_State *L, const Trained *t) {
  const Optimizer *o = &t->plan->job.plan.opt;
  lua_newtable(L);
  for (int k = 0; k < STEPS; k++) {
    lua_newtable(L);
    push_ids(L, t->tokens[k], t->n, "tokens");
    push_ids(L, t->labels[k], t->n, "labels");
    lua_newtable(L);
    push_scalar(L, "SC_LR", t->step[k].lr);
    push_scalar(L, "SC_BC1", 1 - pow(o->beta1, k + 1));
    push_scalar(L, "SC_BC2", 1 - pow(o->beta2, k + 1));
    push_scalar(L, "SC_STEP", k + 1);
    push_scalar(L, "SC_SCALE", 1);
    lua_setfield(L, -2, "scalars");
    lua_rawseti(L, -2, k + 1);
  }
}

/* ---- comparing ---- */

static double number(lua_State *L, int t, const char *key) {
  lua_getfield(L, t, key);
  double v = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return v;
}

static void close_to(double got, double want, double tolerance, const char *what,
                     int step) {
  ck_assert_msg(fabs(got - want) <= tolerance * fabs(want),
                "step %d: %s is %.9g, in the run %.9g", step, what, got, want);
}

static void check_steps(lua_State *L, int list, const Trained *t) {
  for (int k = 0; k < STEPS; k++) {
    lua_rawgeti(L, list, k + 1);
    int s = lua_gettop(L);
    close_to(number(L, s, "tokens"), (double)t->step[k].tokens, 0, "tokens", k);
    close_to(number(L, s, "loss"), t->step[k].loss, 2e-6, "the loss", k);
    close_to(number(L, s, "norm"), t->step[k].grad_norm, 2e-5, "the norm", k);
    lua_pop(L, 1);
  }
}

/* Parameters move by so little that what they are is no comparison: how they moved is,
 * but for the roundings of the run's f32. */
static void check_params(lua_State *L, int table, const Trained *t) {
  for (int i = 0; i < t->nparam; i++) {
    weft_param p;
    double moved = 0, apart = 0, size = 0;
    OK(weft_plan_param_at(t->plan, i, &p, &err));
    lua_getfield(L, table, p.name);
    ck_assert_msg((int64_t)lua_rawlen(L, -1) == p.count, "%s has %lld elements", p.name,
                  (long long)lua_rawlen(L, -1));
    for (int64_t k = 0; k < p.count; k++) {
      lua_rawgeti(L, -1, k + 1);
      moved += pow((double)t->after[i][k] - t->before[i][k], 2);
      apart += pow(lua_tonumber(L, -1) - t->after[i][k], 2);
      size += pow(t->after[i][k], 2);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
    ck_assert_msg(moved > 0, "%s does not move", p.name);
    double most = 1e-4 * sqrt(moved) + STEPS * 0x1p-24 * sqrt(size);
    ck_assert_msg(sqrt(apart) < most, "%s: %.3g apart, has moved by %.3g", p.name,
                  sqrt(apart), sqrt(moved));
  }
}

/* Executes what was trained, with a change of the programs in Lua. */
static int execute(lua_State *L, const Trained *t, const char *order,
                   const char *change) {
  push_programs(L, t->plan->job.compiled);
  must(L, luaL_loadstring(L, arena_printf(scratch_arena, "local p = ... %s", change)));
  lua_pushvalue(L, -2);
  must(L, lua_pcall(L, 1, 0, 0));
  lua_getfield(L, 2, "run");
  lua_insert(L, -2);
  push_params(L, t);
  push_steps(L, t);
  lua_pushstring(L, order);
  lua_pushinteger(L, 17);
  return lua_pcall(L, 5, 2, 1);
}

START_TEST(executes_as_a_run) {
  Trained t;
  train(&t, plans[_i].fields);
  for (int k = 0; k < LEN(orders); k++) {
    lua_State *L = open_interpreter();
    int status = execute(L, &t, orders[k], "");
    ck_assert_msg(status == LUA_OK, "%s, %s: %s", plans[_i].name, orders[k],
                  lua_tostring(L, -1));
    int top = lua_gettop(L);
    check_steps(L, top - 1, &t);
    check_params(L, top, &t);
    lua_close(L);
  }
  weft_plan_free(t.plan);
}
END_TEST

/* ---- that it would notice ---- */

/* take(program, start): takes the first instruction of that code out of main, and its
 * wait. */
#define TAKE                                                                             \
  "local function take(list, code) for i, x in ipairs(list) do if x.code == code then "  \
  "for k = i + 1, #list do if list[k].code == 'WAIT' and list[k].handle == x.handle "    \
  "then return x, table.remove(list, k), table.remove(list, i) end end end end end "

/* What is done to the programs, and what the interpreter then says; "": other losses. */
static const struct {
  const char *change, *said;
} faults[] = {
    {"", NULL},
    /* A wait less: values are used that have not come. */
    {TAKE "local x = take(p[3].main, 'RECV') table.insert(p[3].main, 1, x)", ""},
    {TAKE
     "local x = take(p[1].bodies[1].code, 'COLL') table.insert(p[1].bodies[1].code, 1, "
     "x)",
     ""},
    /* A rank that sends when all else is done. */
    {TAKE "local m = p[1].main local x, w = take(m, 'SEND') m[#m + 1] = x m[#m + 1] = w",
     "no rank can go on"},
    {"for _, x in ipairs(p[1].main) do if x.code == 'CALL' and x.body == 1 then x.body = "
     "2 "
     "end end",
     ""},
    {"for _, x in ipairs(p[2].main) do if x.code == 'CALL' then x.fresh = 0 end end", ""},
    {"local x = p[4].bodies[1].code[1]['in'][1] x.offset = x.offset + 4", ""},
    {"p[1].scalars.names.SC_LR = p[1].scalars.names.SC_BC1", ""},
};

static bool is_right(lua_State *L, const Trained *t) {
  bool right = true;
  for (int k = 0; k < STEPS; k++) {
    lua_rawgeti(L, -2, k + 1);
    double loss = number(L, lua_gettop(L), "loss");
    right &= fabs(loss - t->step[k].loss) <= 2e-6 * t->step[k].loss;
    lua_pop(L, 1);
  }
  return right;
}

START_TEST(notices_what_is_wrong) {
  Trained t;
  train(&t, LLAMA(4) BATCH(8) "mesh = { tp = 2, pp = 2 }");
  lua_State *L = open_interpreter();
  int status = execute(L, &t, "late", faults[_i].change);
  const char *said = status == LUA_OK ? "" : lua_tostring(L, -1);
  if (!faults[_i].said)
    ck_assert_msg(status == LUA_OK && is_right(L, &t), "%s", said);
  else
    ck_assert_msg(strstr(said, faults[_i].said) && (status != LUA_OK || !is_right(L, &t)),
                  "%s: \"%s\"", faults[_i].change, said);
  lua_close(L);
  weft_plan_free(t.plan);
}
END_TEST

/* ---- what is documented ---- */

/* Names that are the model's or the mesh's, and meanings of ops, are no keys of the page.
 */
static bool has_own_keys(const char *key) {
  static const char *const all[] = {"attr", "coordinates", "inputs", "kernels", "names"};
  for (int i = 0; i < LEN(all); i++)
    if (strcmp(all[i], key) == 0) return true;
  return false;
}

static void check_keys(const json_t *v, const char *page) {
  const char *key, *name;
  json_t *item;
  size_t i;
  json_array_foreach(v, i, item) check_keys(item, page);
  json_object_foreach((json_t *)v, key, item) {
    name = arena_printf(scratch_arena, "`%s`", key);
    bool inside = strstr(page, arena_printf(scratch_arena, "%s, ", key)) ||
                  strstr(page, arena_printf(scratch_arena, "%s }", key));
    ck_assert_msg(strstr(page, name) || inside, "docs/program.md does not name %s", key);
    if (!has_own_keys(key)) check_keys(item, page);
  }
}

START_TEST(every_key_is_documented) {
  char *page;
  size_t n;
  OK(file_read(NULL, WEFT_SOURCE_DIR "/docs/program.md", FILE_OWN_MAX, &page, &n, &err));
  for (int i = 0; i < LEN(plans); i++) {
    Trained t = {0};
    Text text = {0};
    load_plan(&t, plans[i].fields);
    program_json(t.plan->job.compiled, 0, &text);
    json_t *doc = json_loads(text.s, 0, NULL);
    check_keys(doc, page);
    json_decref(doc);
    text_free(&text);
    weft_plan_free(t.plan);
  }
  mem_free(NULL, page, n + 1);
}
END_TEST

/* ---- that all there is has been executed ---- */

static void note(const Program *p, bool code[I_N], bool coll[COLL_N]) {
  for (uint32_t i = 0; i < p->ncode; i++) {
    const Instr *in = &p->code[i];
    code[in->code] = true;
    if (instr_is[in->code] & INSTR_COLL) coll[in->coll] = true;
  }
}

START_TEST(all_instructions_occur) {
  bool code[I_N] = {0}, coll[COLL_N] = {0};
  for (int i = 0; i < LEN(plans); i++) {
    Trained t = {0};
    load_plan(&t, plans[i].fields);
    const Compiled *c = t.plan->job.compiled;
    for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) note(&c->prog[pp], code, coll);
    weft_plan_free(t.plan);
  }
  for (int i = 0; i < I_N; i++) ck_assert_msg(code[i], "no plan has a %s", instr_name[i]);
  for (int i = 0; i < COLL_PAIRS; i++)
    ck_assert_msg(coll[i], "no plan has a %s", coll_info[i].name);
}
END_TEST

Suite *interpreter_suite(void);
Suite *interpreter_suite(void) {
  Suite *s = suite_create("interpreter");
  TCase *t = tcase_create("programs");
  tcase_set_timeout(t, 300);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, executes_as_a_run, 0, LEN(plans));
  tcase_add_loop_test(t, notices_what_is_wrong, 0, LEN(faults));
  tcase_add_test(t, all_instructions_occur);
  tcase_add_test(t, every_key_is_documented);
  suite_add_tcase(s, t);
  return s;
}
