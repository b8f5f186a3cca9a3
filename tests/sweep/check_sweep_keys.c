/* check_sweep_keys.c - what a sweep keeps must depend on all that it is looked up by: for
 * every field of schema.def, a point judged after others is what it is when judged alone.
 * So what its row says that it influences is not too little. */
#include <check.h>
#include <math.h>
#include <sys/stat.h>

#include "bindings/lang/plan_load.h"
#include "bindings/lang/plan_key.h"
#include "bindings/lang/vary.h"
#include "bindings/schema/schema.h"
#include "bindings/runner/runner.h"
#include "bindings/sweep/sweep.h"
#include "tests/harness/scratch.h"

static const char zero_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama-tiny', num_hidden_layers = 8,\n"
    "    vocab_size = 4096 },\n"
    "  cluster = weft.cluster { nodes = 1, gpus = 8, gpu = 'h100-sxm' },\n"
    "  mesh = { tp = 2, pp = 2 }, strategy = { 'zero' }, pp_plan = { virtual = 2 },\n"
    "  schedule = { 'interleaved_1f1b', group = 2 }, precision = { param_dtype = 'f32' "
    "},\n"
    "  batch = { global = 16, micro = 1, seq = 16 }, train = { steps = 3 },\n"
    "  optimizer = weft.adamw { lr = weft.cosine { max = 1, min = 0 } },\n"
    "  data = weft.synthetic {}, expect = { bubble = weft.between(0, 2) } }\n";
static const char ddp_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'llama-tiny', strategy = { 'ddp' },\n"
    "  cluster = weft.cluster { nodes = 1, gpus = 8, gpu = 'h100-sxm' },\n"
    "  batch = { global = 16, seq = 16 } }\n";
static const char fsdp2_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'llama-tiny', strategy = { 'fsdp2' },\n"
    "  cluster = weft.cluster { nodes = 1, gpus = 8, gpu = 'h100-sxm' },\n"
    "  mesh = { tp = 2 }, schedule = 'zero_bubble', batch = { global = 16, seq = 16 } "
    "}\n";

static const char megatron_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'llama-tiny', strategy = { 'megatron_fsdp' "
    "},\n"
    "  cluster = weft.cluster { nodes = 1, gpus = 8, gpu = 'h100-sxm' },\n"
    "  mesh = { tp = 2 }, batch = { global = 16, seq = 16 } }\n";

static const char moe_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'mixtral-tiny',\n"
    "  cluster = weft.cluster { nodes = 1, gpus = 8, gpu = 'h100-sxm' },\n"
    "  mesh = { tp = 2, pp = 1, dp = 4, ep = 2 }, batch = { global = 16, seq = 16 } }\n";

static const char muon_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'llama-tiny', strategy = { 'fsdp2' },\n"
    "  cluster = weft.cluster { nodes = 1, gpus = 8, gpu = 'h100-sxm' },\n"
    "  mesh = { tp = 2 }, batch = { global = 16, seq = 16 }, optimizer = weft.muon {} "
    "}\n";

/* Projections that files keep as one matrix, which optimizers of matrices refuse. */
static const char packed_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'phi3', hidden_size = 32, vocab_size = 96,\n"
    "    intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 4 },\n"
    "  strategy = { 'fsdp2' }, mesh = { dp = 2 }, batch = { global = 16, seq = 16 } }\n";

static const char function_plan[] =
    "local weft = require 'weft'\n"
    "local function all(s)\n"
    "  for c = 0, s.virtual - 1 do\n"
    "    for mb = 0, s.microbatches - 1 do s:F(c, mb) end\n"
    "  end\n"
    "  for c = s.virtual - 1, 0, -1 do\n"
    "    for mb = 0, s.microbatches - 1 do s:B(c, mb) end\n"
    "  end\n"
    "end\n"
    "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 8,\n"
    "    vocab_size = 4096 },\n"
    "  mesh = { pp = 2 }, pp_plan = { virtual = 2 },\n"
    "  schedule = { all, placement = 'loop' }, batch = { global = 8, seq = 16 } }\n";

/* The fields of some scopes can only be given where a name selects them. */
static const struct {
  const char *text;
  const char *only;     /* a scope, or NULL */
  const char *strategy; /* the one of these whose fields can be given, or NULL */
  int changed;          /* so many values, at least, give another point than the plan */
} plans[] = {{zero_plan, NULL, "zero", 60},
             {ddp_plan, NULL, "ddp", 20},
             {fsdp2_plan, "fsdp2", "fsdp2", 8},
             {megatron_plan, "megatron_fsdp", "megatron_fsdp", 6},
             {moe_plan, "moe", NULL, 4},
             {muon_plan, "muon", NULL, 0},
             {packed_plan, "plan", NULL, 8},
             {function_plan, "function", NULL, 1}};
static const char *const strategies[] = {"zero", "ddp", "fsdp2", "megatron_fsdp"};

/* Values of fields that have no simple type, in Lua. */
static const struct {
  const char *path, *values;
} samples[] = {
    {"model", "'model.num_hidden_layers', 4, 12"},
    {"name", "'name', 'a', 'b'"},
    {"optimizer.eps", "'optimizer.eps', 1e-06, 0.5, { 1e-30, 0.01 }"},
    {"cluster", "'cluster', 'h200', 'a100-80gb'"},
    {"cluster.gpu", "'cluster.gpu', 'h200', 'a100-80gb', { 'h200', bandwidth = 1e12 }"},
    {"cluster.network", "'cluster.network', { per_gpu = 1e9 }, { spine = 1e8 }"},
    {"mesh", "'mesh', { tp = 1, pp = 2 }, { tp = 4, pp = 2 }"},
    {"mesh.order", "'mesh.order', { 'tp', 'pp', 'dp_replicate', 'dp_shard', 'cp' }"},
    {"strategy", "'strategy', 'ddp', 'zero', { 'zero', sequence_parallel = true }"},
    {"strategy.reshard_after_forward",
     "'strategy.reshard_after_forward', true, false, 2"},
    {"strategy.zero_hpz_partition_size", "'strategy.zero_hpz_partition_size', 1, 2"},
    {"strategy.offload_optimizer", "'strategy.offload_optimizer', 'cpu', 'none'"},
    {"strategy.offload_param", "'strategy.offload_param', 'cpu', 'none'"},
    {"strategy.mp_policy", "'strategy.mp_policy', 'bf16', 'f16'"},
    {"strategy.offload_policy", "'strategy.offload_policy', true, false"},
    {"strategy.zero_dp_strategy",
     "'strategy.zero_dp_strategy', 0, 'optim', 'optim_grads', 3"},
    {"strategy.reduce_bucket_size", "'strategy.reduce_bucket_size', 1, 100, 100000"},
    {"strategy.autocast_dtype", "'strategy.autocast_dtype', 'bf16', 'f32'"},
    {"strategy.grad_reduce_in_fp32", "'strategy.grad_reduce_in_fp32', true, false"},
    {"precision.output_dtype", "'precision.output_dtype', 'f32'"},
    {"strategy.keep_fp8_transpose_cache", "'strategy.keep_fp8_transpose_cache', false"},
    {"strategy.preserve_fp32_weights", "'strategy.preserve_fp32_weights', true"},
    {"strategy.calculate_per_token_loss", "'strategy.calculate_per_token_loss', true"},
    {"strategy.check_for_nan_in_grad", "'strategy.check_for_nan_in_grad', true"},
    {"strategy.tp_plan", "'strategy.tp_plan', { lm_head = 'replicate' }"},
    {"strategy.activation_checkpointing", "'strategy.activation_checkpointing', true"},
    {"recompute", "'recompute', 'full', 'cheap', { 'layers.1' }, { 'layers.2.mlp' }"},
    {"tp_plan", "'tp_plan', { lm_head = 'replicate' }, { embed_tokens = 'replicate' }"},
    {"pp_plan", "'pp_plan', { virtual = 4 }, { virtual = 2, layers = { 1, 3, 2, 2 } }"},
    {"pp_plan.layers", "'pp_plan.layers', { 1, 3, 2, 2 }, { 2, 3, 1, 2 }"},
    {"pp_plan.modules",
     "'pp_plan.modules', { { 'embed_tokens' }, { 'layers.0', 'layers.1', 'layers.2', "
     "'layers.3', 'layers.4' }, { 'layers.5', 'layers.6', 'layers.7' }, { 'norm', "
     "'lm_head' } }"},
    {"pp_plan.layout", "'pp_plan.layout', 'Et|tt|ttt|ttL', 'E|ttt|ttt|ttL'"},
    {"schedule.group", "'schedule.group', 2, 4, 8"},
    {"schedule", "'schedule', '1f1b', 'gpipe', 'zero_bubble', 'zbv', 'interleaved_1f1b'"},
    {"precision", "'precision', 'f32', 'bf16', 'fp8'"},
    {"precision.exclude", "'precision.exclude', { 'q_proj' }"},
    {"freeze", "'freeze', { 'embed_tokens' }, { 'embed_tokens', 'layers.0' }"},
    {"adapter",
     "'adapter', { 'lora', rank = 2 }, { 'lora', rank = 2, targets = { 'q_proj' } }"},
    {"adapter.targets", "'adapter.targets', 'all-linear'"},
    {"adapter.target_parameters", "'adapter.target_parameters', { 'down_proj' }"},
    {"adapter.rank_pattern", "'adapter.rank_pattern', { q_proj = 4 }"},
    {"adapter.alpha_pattern", "'adapter.alpha_pattern', { q_proj = 4 }"},
    {"adapter.modules_to_save", "'adapter.modules_to_save', { 'norm' }, { 'lm_head' }"},
    {"groups", "'groups', { { 'lm_head', lr = 0.5 } }, { { 'norm', weight_decay = 0 } }"},
    {"cp", "'cp', {}, { comm = 'a2a', balance = 'none' }"},
    {"comm", "'comm', { timeout = 7 }"},
    {"nccl", "'nccl', { group_ctas = 4 }"},
    {"nccl.algo", "'nccl.algo', 'ring', 'ring,tree'"},
    {"nccl.proto", "'nccl.proto', '^ll'"},
    {"strategy.activation_checkpointing_scope",
     "'strategy.activation_checkpointing_scope', 'all'"},
    {"strategy.bucket_cap_mb", "'strategy.bucket_cap_mb', 0.001, 1"},
    {"mtp", "'mtp', { num_layers = 1 }, { num_layers = 2 }"},
    {"moe", "'moe', { aux_loss_coef = 0.1 }, { dispatcher = 'alltoall' }"},
    {"loss",
     "'loss', 'cross_entropy', { 'cross_entropy', per = 'sequences' },\n"
     "{ function(g, x) return g:sum_all(g:token_losses(x.logits, x.labels)) end, per = "
     "'tokens' },\n"
     "{ function(g, x, o) return g:sum_all(g:scale(g:token_losses(x.logits, x.labels),\n"
     "  { scale = o.by })) end, per = 'tokens', by = 2 },\n"
     "function(g, x) return g:scale(g:sum_all(g:token_losses(x.logits, x.labels)),\n"
     "  { scale = 0.5 }) end"},
    {"loss_chunks", "'loss_chunks', 2, 'auto'"},
    {"packed", "'packed', { eot = 3 }, { bos = 4 }"},
    {"batch", "'batch', { global = 32, seq = 16 }, { global = 16, seq = 32 }"},
    {"optimizer", "'optimizer', weft.adamw_8bit {}, weft.adamw {}, weft.muon {}, "
                  "weft.sgd { momentum = "
                  "0.9 }, weft.adafactor {}, weft.lion {}, 3"},
    {"optimizer.lr", "'optimizer.lr', 1e-3"},
    {"optimizer.betas", "'optimizer.betas', { 0.5, 0.6 }"},
    {"optimizer.ns_coefficients", "'optimizer.ns_coefficients', { 2, -1.5, 0.5 }"},
    {"data", "'data', weft.synthetic { vocab = 50 }, 3"},
    {"data.files", "'data.files', { 'x' }"},
    {"data.val", "'data.val', 3"},
    {"data.weights", "'data.weights', { 1 }"},
    {"data.format", "'data.format', 'raw'"},
    {"data.template", "'data.template', 'chatml'"},
    {"data.options", "'data.options', { system = 'x' }"},
    {"train.epochs", "'train.epochs', 2"},
    {"train.early_stopping", "'train.early_stopping', { patience = 3 }"},
    {"train", "'train', { steps = 7 }"},
    {"expect", "'expect', { bubble = 2 }"},
    {"checkpoint", "'checkpoint', { dir = 'x', every = 7 }"},
    {"checkpoint.save_consolidated", "'checkpoint.save_consolidated', true, 'every'"},
    {"checkpoint.dir", "'checkpoint.dir', 'x'"},
};

static const char *values_of(const Field *f, const char *out);

/* One axis: the field and values to try. NULL: it cannot be given. */
static const char *axis_of(const Field *f) {
  Arena *a = scratch_arena;
  const char *path = schema_path(a, f);
  if (f->type == FIELD_NOOP || f->type == FIELD_REFUSED) return NULL;
  if (f->type == FIELD_ALIAS) {
    const Field *of = schema_find(f->scope, f->names);
    const char *axis = axis_of(of);
    if (!axis) return NULL;
    return arena_printf(a, "'%s'%s", path, strchr(axis, ','));
  }
  for (int i = 0; i < LEN(samples); i++)
    if (strcmp(samples[i].path, path) == 0) return samples[i].values;
  return values_of(f, arena_printf(a, "'%s'", path));
}

static const char *values_of(const Field *f, const char *out) {
  Arena *a = scratch_arena;
  NameWord w;
  bool later = false;
  switch (f->type) {
  case FIELD_INT:
    for (int v = 0; v <= 5; v++)
      if (v >= f->lo && v <= f->hi) out = arena_printf(a, "%s, %d", out, v);
    return arena_printf(a, "%s, %.0f", out, MIN(64, f->hi));
  case FIELD_NUM: return arena_printf(a, "%s, %g, %g", out, f->lo, MIN(f->hi, 0.5));
  case FIELD_BOOL: return arena_printf(a, "%s, true, false", out);
  case FIELD_RANGE: return arena_printf(a, "%s, 1", out);
  case FIELD_NAME:
    for (const char *p = f->names; name_next(a, &p, &later, &w);)
      if (!w.later) out = arena_printf(a, "%s, '%s'", out, w.canon);
    return out;
  case FIELD_TEXT: return arena_printf(a, "%s, 'x'", out);
  default: ck_abort_msg("%s needs a sample here", out); return NULL;
  }
}

typedef struct Seen {
  PointRow row;
  PointReason why;
} Seen;

/* Judges the plan as it is (-1) or with value number `v`; what it has in common with
 * others is checked again without `shared`. */
static Seen judge(Judge *j, SweepCaches *c, const LangShared *shared, int v) {
  Seen s = {0};
  j->caches = c;
  j->shared = shared;
  weft_status st = judge_point(j, &v, v >= 0, &s.row, &s.why);
  ck_assert_msg(st == WEFT_OK, "%s", j->e.text);
  return s;
}

static bool same(const Seen *a, const Seen *b) {
  return memcmp(&a->row, &b->row, sizeof a->row) == 0 &&
         (a->row.state != POINT_ILLEGAL || strcmp(a->why.text, b->why.text) == 0);
}

/* A field of its own, whose row says that it changes no figure. */
static bool is_idle(const Field *f) {
  bool fields =
      f->type == FIELD_TABLE || f->type == FIELD_BUILT || f->type == FIELD_ALIAS;
  return f->influences == FOR_NOTHING && !fields;
}

/* Judges every value after the plan itself and after each other, with what they have in
 * common, and alone. Returns how many differ from the plan. */
static int judge_axis(const Field *f, const char *axis) {
  Diags d = {.arena = scratch_arena};
  SweepCaches warm;
  LangOptions o = {0};
  LangPlan *lp;
  const LangShared *shared;
  weft_error e;
  Judge j;
  int values, n = 0;
  err_clear(&e);
  lua_State *L = script_new(NULL);
  ck_assert_int_eq(
      luaL_dostring(L, arena_printf(scratch_arena,
                                    "local weft = require 'weft' return {{ %s }}", axis)),
      LUA_OK);
  lua_rawgeti(L, -1, 1);
  int last = (int)lua_rawlen(L, -1) - 2;
  lua_pop(L, 1);
  ck_assert_int_eq(lang_load(&o, scratch_path("plan.lua"), &lp, &d, &e), WEFT_OK);
  ck_assert_int_eq(vary_take(lp, L, -1, &values, &d, &e), WEFT_OK);
  ck_assert_int_eq(plan_share(lp, values, &shared, &e), WEFT_OK);
  sweep_caches_init(&warm);
  ck_assert_int_eq(judge_open(&j, lp, values, shared, &warm, LIMIT_GPU), WEFT_OK);
  Seen plan = judge(&j, &warm, shared, -1);
  ck_assert_int_eq(plan.row.state, POINT_OK);
  for (int v = 0; v <= last; v++) {
    SweepCaches own;
    sweep_caches_init(&own);
    Seen after = judge(&j, &warm, shared, v), alone = judge(&j, &own, NULL, v);
    sweep_caches_free(&own);
    ck_assert_msg(same(&after, &alone), "value %d of %s: %g bytes after others, %g alone",
                  v + 1, axis, after.row.bytes, alone.row.bytes);
    if (is_idle(f) && alone.row.state == POINT_OK)
      ck_assert_msg(same(&alone, &plan), "%s says that it influences NOTHING", axis);
    n += !same(&alone, &plan);
  }
  judge_close(&j);
  sweep_caches_free(&warm);
  lua_close(L);
  return n;
}

static bool is_strategy(const char *scope) {
  for (int i = 0; i < LEN(strategies); i++)
    if (str_eq(scope, strategies[i])) return true;
  return false;
}

START_TEST(every_field) {
  int changed = 0;
  scratch_put("plan.lua", plans[_i].text, strlen(plans[_i].text));
  for (const Field *f = schema; f->scope; f++) {
    if (plans[_i].only && !str_eq(f->scope, plans[_i].only)) continue;
    if (is_strategy(f->scope) && !str_eq(f->scope, plans[_i].strategy)) continue;
    const char *axis = axis_of(f);
    if (axis) changed += judge_axis(f, axis);
  }
  ck_assert_int_ge(changed, plans[_i].changed);
}
END_TEST

/* A row that does not say what the field influences is in every key. */
START_TEST(in_doubt_everything) {
  static const unsigned products[] = {FOR_GRAPH, FOR_UNITS, FOR_SCHEDULE, FOR_SHARES};
  for (int i = 0; i < LEN(products); i++) {
    ck_assert(schema_influences(&(Field){.influences = 0}, products[i]));
    ck_assert(!schema_influences(&(Field){.influences = FOR_NOTHING}, products[i]));
  }
  for (const Field *f = schema; f->scope; f++)
    ck_assert_msg(f->influences, "%s.%s says nothing", f->scope, f->key);
}
END_TEST

static const char *key_in(const char *folder, unsigned what) {
  LangOptions o = {0};
  LangPlan *lp;
  Diags d = {.arena = scratch_arena};
  Text key = {0};
  mkdir(scratch_path(folder), 0777);
  const char *file = arena_printf(scratch_arena, "%s/plan.lua", folder);
  scratch_put(file, zero_plan, strlen(zero_plan));
  ck_assert_int_eq(lang_load(&o, scratch_path(file), &lp, &d, &scratch_error), WEFT_OK);
  ck_assert_int_eq(plan_key(lp, what, &key, &scratch_error), WEFT_OK);
  lang_free(lp);
  return arena_take(scratch_arena, &key);
}

/* The same text in another folder names other files. */
START_TEST(keys_tell_the_folder) {
  static const unsigned products[] = {FOR_GRAPH, FOR_UNITS, FOR_SCHEDULE, FOR_SHARES};
  for (int i = 0; i < LEN(products); i++)
    ck_assert_ptr_nonnull(strstr(key_in("a", products[i]), scratch_path("a")));
}
END_TEST

Suite *sweep_keys_suite(void) {
  Suite *s = suite_create("sweep_keys");
  TCase *c = tcase_create("fields");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, every_field, 0, LEN(plans));
  tcase_add_test(c, in_doubt_everything);
  tcase_add_test(c, keys_tell_the_folder);
  suite_add_tcase(s, c);
  return s;
}
