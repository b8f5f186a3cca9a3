/* check_best.c - weft.best and weft best: the first choice beside that of an exhaustive
 * clock, what became of every layout, bounds that are bounds, plans as files, and
 * searches that find nothing. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>

#include "tests/harness/lua_run.h"
#include "tests/harness/process.h"
#include "tests/harness/terminal.h"

/* plan(t): a model of eight layers on eight GPUs; its activations are large beside its
 * parameters, so that layouts differ. */
#define SMALL                                                                            \
  "local function plan(t)\n"                                                             \
  "  local p = { name = 'small', model = weft.model { 'llama', hidden_size = 512,\n"     \
  "      num_hidden_layers = 8, num_attention_heads = 8, intermediate_size = 1024,\n"    \
  "      vocab_size = 1024 },\n"                                                         \
  "    cluster = weft.cluster { 'h100-sxm', nodes = 1 }, precision = 'bf16',\n"          \
  "    strategy = { 'zero', stage = 1 }, mesh = {},\n"                                   \
  "    batch = { global = 32, micro = 1, seq = 512 } }\n"                                \
  "  for key, value in pairs(t or {}) do p[key] = value end\n"                           \
  "  return p\n"                                                                         \
  "end\n"                                                                                \
  "local few = { tp = { 1, 2, 4 }, pp = { 1, 2, 4 }, micro = { 1, 2 },\n"                \
  "  strategy = { 'zero-1', 'fsdp2' }, recompute = { 'none', 'full' },\n"                \
  "  schedule = { '1f1b', 'interleaved_1f1b', 'zero_bubble' }, balance = { 'even' } }\n"

/* The clock of every plan that the search may look at, made one by one. */
START_TEST(near_the_exhaustive_choice) {
  lua_run(
      SMALL
      "local least, n = math.huge, 0\n"
      "local function try(tp, pp, micro, strategy, recompute, schedule, virtual)\n"
      "  local ok, p = pcall(weft.plan, plan { mesh = { tp = tp, pp = pp },\n"
      "    strategy = strategy, recompute = recompute, schedule = schedule,\n"
      "    pp_plan = virtual > 1 and { virtual = virtual } or nil,\n"
      "    batch = { global = 32, micro = micro, seq = 512 } })\n"
      "  if not ok or not p:check() then return end\n"
      "  n, least = n + 1, math.min(least, p:sim().seconds)\n"
      "  p:close()\n"
      "end\n"
      "local forms = { { '1f1b', 1 }, { 'zero_bubble', 1 }, { 'interleaved_1f1b', 2 },\n"
      "  { 'interleaved_1f1b', 4 } }\n"
      "for _, tp in ipairs(few.tp) do for _, pp in ipairs(few.pp) do\n"
      "  for _, micro in ipairs(few.micro) do for _, again in ipairs(few.recompute) do\n"
      "    for _, form in ipairs(forms) do\n"
      "      if tp * pp <= 8 and (pp > 1 or form[1] == '1f1b') and pp * form[2] <= 8 "
      "then\n"
      "        for _, s in ipairs { { 'zero', stage = 1, sequence_parallel = true },\n"
      "            { 'fsdp2', sequence_parallel = true } } do\n"
      "          try(tp, pp, micro, s, again, form[1], form[2])\n"
      "        end\n"
      "      end\n"
      "    end\n"
      "  end end\n"
      "end end\n"
      "local r = weft.best { plan = plan(), over = few, clock = 30, keep = 1 }\n"
      "assert(n > 100, n)\n"
      "same(r.on_the_clock + r.forecast_slower + r.slower_by_bound, n)\n"
      "assert(r.best.seconds >= least * (1 - 1e-9))\n"
      "assert(r.best.seconds <= 1.02 * least, r.best.seconds / least)\n");
}
END_TEST

/* Where gradients of a rank's first chunks are reduced beside the work of the others no
 * layout is dropped by a bound that has not seen it. */
START_TEST(reductions_of_chunks_beside_work) {
  lua_run(
      "local virtual = { 4, 8, 16 }\n"
      "local p = { model = weft.model { 'llama', hidden_size = 8192, num_hidden_layers = "
      "64,\n"
      "    num_attention_heads = 64, num_key_value_heads = 8, intermediate_size = "
      "28672,\n"
      "    vocab_size = 32000 }, mesh = { tp = 8, pp = 4, world = 512 },\n"
      "  cluster = weft.cluster { gpu = 'a100-80gb', gpus = 8, nodes = 64,\n"
      "    network = { per_gpu = 25e9, latency = 9.6e-6 } }, precision = 'bf16',\n"
      "  schedule = 'looped_bfs', batch = { global = 128, micro = 1, seq = 1024 },\n"
      "  strategy = { 'zero', stage = 1, sequence_parallel = true } }\n"
      "local all, least = weft.sweep { plan = p, clock = 6, keep = 6, max_gib = 1000,\n"
      "  over = { { 'mesh.tp', 4, 8 }, { 'pp_plan.virtual', 4, 8, 16 } } }, math.huge\n"
      "same(#all, 6)\n"
      "for _, row in ipairs(all) do\n"
      "  least = math.min(least, row.clock_ms)\n"
      "  assert(row.step_ms <= row.clock_ms, row.step_ms / row.clock_ms)\n"
      "end\n"
      "local r = weft.best { plan = p, over = { tp = { 4, 8 }, pp = { 4 }, micro = { 1 "
      "},\n"
      "  strategy = { 'zero-1' }, schedule = { 'looped_bfs' }, virtual = virtual,\n"
      "  recompute = { 'none' }, balance = { 'even' } } }\n"
      "assert(math.abs(r.best.seconds * 1e3 - least) < 1e-6 * least,\n"
      "  r.best.seconds * 1e3 / least)\n");
}
END_TEST

/* Every layout is in one of the counts. */
START_TEST(nothing_is_dropped) {
  lua_run(SMALL
          "for _, o in ipairs { { clock = 10 }, { clock = 1000000, memory = 0.5 },\n"
          "    { clock = 30, over = few }, { over = { tp = { 8 }, micro = { 1, 64 } } } "
          "} do\n"
          "  o.plan, o.threads = plan(), 1\n"
          "  o.over = o.over or { micro = { 1, 2 }, schedule = { '1f1b', 'zbv' } }\n"
          "  local r = weft.best(o)\n"
          "  same(r.on_the_clock + r.forecast_slower + r.slower_by_bound + r.memory\n"
          "    + r.memory_beside + r.refused + r.unseen, r.layouts)\n"
          "  same(r.unseen, 0)\n"
          "  says(r, r.layouts .. ' layouts in ')\n"
          "end\n");
}
END_TEST

/* Tied weights lie once where a V schedule has the first and the last stage on one rank:
 * that another one has no room for them says nothing of it. */
START_TEST(tied_weights_in_a_v) {
  lua_run(
      SMALL
      "local function best(schedules, memory)\n"
      "  return weft.best { plan = plan {\n"
      "    model = weft.model { 'llama', hidden_size = 512, num_hidden_layers = 16,\n"
      "      num_attention_heads = 8, intermediate_size = 2048, vocab_size = 65536,\n"
      "      tie_word_embeddings = true },\n"
      "    cluster = weft.cluster { 'h100-sxm', nodes = 1, gpus = 2 } },\n"
      "    memory = memory, over = { tp = { 1 }, pp = { 2 }, schedule = schedules,\n"
      "      strategy = { 'zero-0' }, micro = { 1 }, recompute = { 'full' } } }\n"
      "end\n"
      "local free = best { 'zbv' }\n"
      "local least, fastest = math.huge, nil\n"
      "for _, row in ipairs(free.rows) do\n"
      "  if row.peak_gib < least then least, fastest = row.peak_gib, row.seconds end\n"
      "end\n"
      "least = least + 0.01\n"
      "assert(not best({ '1f1b' }, least).best)\n"
      "same(best({ 'zbv' }, least).best.seconds, fastest)\n"
      "same(best({ '1f1b', 'zbv' }, least).best.seconds, fastest)\n");
}
END_TEST

/* A schedule with backwards in two bodies has more work; what one of these takes is no
 * bound of the others. */
START_TEST(the_order_of_schedules) {
  Outcome o = process_run(120, "$weft best " WEFT_SOURCE_DIR
                               "/plans/llama3_70b.lua tp=16 pp=1,2 micro=1 cp=1 "
                               "strategy=zero-1 recompute=full balance=even "
                               "schedule=zero_bubble,1f1b");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "pp 2, schedule 1f1b") != NULL, "%s", o.out);
}
END_TEST

/* A layout must have room for what CUDA and NCCL take besides. */
START_TEST(room_for_communicators) {
  lua_run(
      SMALL
      "local function best(room, memory)\n"
      "  return weft.best { plan = plan { cluster = weft.cluster { 'h100-sxm', nodes = "
      "1,\n"
      "    gpu = { memory_gib = room } } }, over = few, clock = 30, memory = memory }\n"
      "end\n"
      "local free = best(80)\n"
      "same(free.memory_beside, 0)\n"
      "local room = free.best.peak_gib + 2.001\n"
      "local tight = best(room)\n"
      "assert(tight.memory_beside > 0)\n"
      "says(tight, 'have no room for what CUDA and NCCL take besides')\n"
      "same(best(room, 80).memory_beside, 0)\n"
      "same(best(room, 80).best.seconds, free.best.seconds)\n");
}
END_TEST

/* The step that was found is that of weft sim for the same plan, and its bytes are those
 * that weft check has. */
START_TEST(figures_are_those_of_the_plan) {
  lua_run(
      SMALL
      "local r = weft.best { plan = plan(), over = few, clock = 12 }\n"
      "for _, row in ipairs(r.rows) do\n"
      "  local p = plan()\n"
      "  for _, f in ipairs(row.fields) do\n"
      "    if f[1] == 'batch.micro' then p.batch.micro = f[2] else p[f[1]] = f[2] end\n"
      "  end\n"
      "  local made = weft.plan(p)\n"
      "  local v, m = made:sim(), made:memory()\n"
      "  assert(math.abs(v.seconds - row.seconds) < 1e-9 * v.seconds)\n"
      "  same(m[m.worst_pp + 1].total, math.tointeger(row.peak_gib * 2 ^ 30))\n"
      "  assert(row.bound <= row.seconds)\n"
      "  same(made.mesh.tp, row.layout.tp)\n"
      "  same(made.mesh.dp, row.layout.dp)\n"
      "end\n");
}
END_TEST

/* Rows are in the order of time; the classes of why add up to the difference. */
START_TEST(why_adds_up) {
  lua_run(SMALL "local r = weft.best { plan = plan(), over = few, clock = 12 }\n"
                "assert(#r.rows > 5)\n"
                "for i = 2, #r.rows do\n"
                "  local row, sum = r.rows[i], 0\n"
                "  assert(row.seconds >= r.rows[i - 1].seconds)\n"
                "  for _, x in ipairs(row.why) do sum = sum + x.seconds end\n"
                "  local behind = row.seconds - r.best.seconds\n"
                "  assert(math.abs(sum - behind) < 1e-6 * r.best.seconds)\n"
                "  assert(math.abs(row.behind - behind / r.best.seconds) < 1e-9)\n"
                "  if row.behind < 0.03 then same(row.tie, true) end\n"
                "end\n"
                "local far = r.rows[#r.rows]\n"
                "assert(far.behind > 0.1 and not far.tie)\n"
                "says(r, string.format('%.1f %%  ', 100 * far.behind))\n");
}
END_TEST

/* A choice of its own for one thread or several, and twice. */
START_TEST(the_same_twice) {
  lua_run(SMALL
          "local one = weft.best { plan = plan(), over = few, clock = 20, threads = 1 }\n"
          "local two = weft.best { plan = plan(), over = few, clock = 20, threads = 2 }\n"
          "same(#one.rows, #two.rows)\n"
          "for i, row in ipairs(one.rows) do same(two.rows[i].seconds, row.seconds) end\n"
          "same(two.memory, one.memory)\n"
          "same(two.slower_by_bound, one.slower_by_bound)\n");
}
END_TEST

/* The ranks are those of the plan's mesh; of a model function nobody knows how many
 * layers it has, so several numbers of stages are tried and those that do not fit are
 * counted. */
START_TEST(ranks_and_layers_nobody_told) {
  lua_run(
      SMALL
      "local p = plan { cluster = weft.cluster 'h100-sxm', mesh = { tp = 2, dp = 2 } }\n"
      "same(weft.best { plan = p, over = few, clock = 2 }.ranks, 4)\n"
      "raises('nothing says that there are several ranks', weft.best, { plan = plan {\n"
      "  cluster = weft.cluster 'h100-sxm' }, over = few })\n"
      "p = plan { model = weft.model { function(g)\n"
      "  local wide = { 'hidden', 64 }\n"
      "  local x = g:unit('embed', function()\n"
      "    return g:embedding(g:tokens(), g:param('e.weight', { { 'vocab', 256 }, wide "
      "}))\n"
      "  end)\n"
      "  for i = 0, 7 do\n"
      "    x = g:layer(i, function() return g:add(x, g:linear(x,\n"
      "      g:param('layers.' .. i .. '.l.weight', { { 'hidden', 64 }, wide }))) end)\n"
      "  end\n"
      "  return g:unit('head', function()\n"
      "    local w = g:param('h.weight', { { 'vocab', 256 }, wide })\n"
      "    return g:cross_entropy(g:linear(x, w), g:labels())\n"
      "  end)\n"
      "end, vocab_size = 256 } }\n"
      "local r = weft.best { plan = p, over = { tp = { 1 }, pp = { 2 }, micro = { 1 },\n"
      "  strategy = { 'zero-1' }, recompute = { 'none' }, balance = { 'even' },\n"
      "  schedule = { 'interleaved_1f1b' } }, keep = 10 }\n"
      "local seen = {}\n"
      "for _, x in ipairs(r.rows) do seen[x.layout.virtual] = true end\n"
      "assert(seen[2] and seen[4], 'no virtual stages')\n"
      "same(r.refused, 1)\n" /* 8 of each */
      "same(r.on_the_clock + r.forecast_slower + r.slower_by_bound, 2)\n");
}
END_TEST

START_TEST(without_a_plan) {
  lua_run(SMALL
          "local p = plan()\n"
          "local r = weft.best { model = p.model, cluster = p.cluster, batch = 32,\n"
          "  seq = 512, over = { tp = { 2 }, pp = { 2 }, micro = { 1 } }, clock = 3 }\n"
          "same(r.best.layout.tp, 2)\n"
          "same(r.best.layout.dp, 2)\n");
}
END_TEST

/* Experts are shared by ranks of dp; etp is 1 or tp. The clock has balanced experts, and
 * so has the bound, though buffers have room for more. */
START_TEST(experts) {
  lua_run(
      SMALL
      "local p = plan { batch = { global = 32, micro = 1, seq = 4096 },\n"
      "  model = weft.model { 'mixtral', hidden_size = 2048,\n"
      "  num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4,\n"
      "  intermediate_size = 8192, vocab_size = 256, num_local_experts = 4,\n"
      "  num_experts_per_tok = 2 }, moe = { dispatcher = 'alltoall' } }\n"
      "local r = weft.best { plan = p, clock = 200, keep = 200,\n"
      "  over = { pp = { 1 }, tp = { 1, 2 }, micro = { 1 }, strategy = { 'zero-1' },\n"
      "    recompute = { 'none' } } }\n"
      "local seen = {}\n"
      "for _, row in ipairs(r.rows) do\n"
      "  local is = row.layout\n"
      "  seen[is.ep] = true\n"
      "  assert(is.etp == 1 or is.etp == is.tp)\n"
      "  assert(row.bound <= row.seconds, row.bound / row.seconds)\n"
      "end\n"
      "same(seen[1] and seen[2] and seen[4] and not seen[8], true)\n");
}
END_TEST

START_TEST(searches_that_cannot_be) {
  lua_run(
      SMALL
      "local function bad(text, o) raises(text, weft.best, o) end\n"
      "bad(\"option 'plann' (did you mean 'plan'?)\", { plann = 1 })\n"
      "bad('model is missing', {})\n"
      "bad('seq is missing', { model = 'llama3-8b', cluster = 'h100-sxm', batch = 8 })\n"
      "bad('seq is that of the plan', { plan = plan(), seq = 512 })\n"
      "bad(\"over has no 'tpp' (did you mean 'tp'?)\", { plan = plan(),\n"
      "  over = { tpp = { 1 } } })\n"
      "bad('over.tp has no values', { plan = plan(), over = { tp = {} } })\n"
      "bad('over.tp: 0 is no size', { plan = plan(), over = { tp = { 0 } } })\n"
      "bad('over.tp: expected a list', { plan = plan(), over = { tp = 4 } })\n"
      "bad(\"no schedule '1f1c' (did you mean '1f1b'?)\", { plan = plan(),\n"
      "  over = { schedule = { '1f1c' } } })\n"
      "bad('no layout of 8 ranks has tp 3', { plan = plan(), over = { tp = { 3 } } })\n"
      "bad('no layout of 8 ranks has tp 8, pp 2', { plan = plan(),\n"
      "  over = { tp = { 8 }, pp = { 2 } } })\n"
      "bad('memory is a positive number', { plan = plan(), memory = 0 })\n"
      "bad('clock must be an integer', { plan = plan(), clock = 0 })\n"
      "bad('the plan names no GPU', { plan = plan {\n"
      "  cluster = weft.cluster { nodes = 1, gpus = 8 } } })\n"
      "bad('machines lack a figure', { plan = plan { cluster = weft.cluster {\n"
      "  nodes = 1, gpus = 8, gpu = { name = 'x', bf16 = 1e14, memory_gib = 80 } } },\n"
      "  over = few })\n");
}
END_TEST

/* Nothing fits, or everything is refused: a result that says so. */
START_TEST(nothing_is_found) {
  lua_run(SMALL "local r = weft.best { plan = plan(), memory = 0.001, over = few }\n"
                "same(r.best, nil)\n"
                "same(r.memory + r.refused, r.layouts)\n"
                "says(r, 'no layout fits')\n"
                "says(r, 'need more than 0.001 GiB on a rank')\n"
                "r = weft.best { plan = plan(), over = { micro = { 64 } } }\n"
                "same(r.best, nil)\n"
                "same(r.refused, r.layouts)\n"
                "says(r, 'is not a multiple of batch.micro')\n");
}
END_TEST

/* ---- weft best ---- */

#define PLAN_TEXT                                                                        \
  "local weft = require \"weft\"\n"                                                      \
  "return weft.plan {\n"                                                                 \
  "  name = \"small\",\n"                                                                \
  "  model = weft.model { \"llama\", hidden_size = 512, num_hidden_layers = 8,\n"        \
  "    num_attention_heads = 8, intermediate_size = 1024, vocab_size = 1024 },\n"        \
  "  cluster = weft.cluster { \"h100-sxm\", nodes = 1 },\n"                              \
  "  mesh = { tp = 3 },\n"                                                               \
  "  tp_plan = weft.extend(weft.tp_plan \"llama\", { lm_head = \"colwise\" }),\n"        \
  "  precision = \"bf16\",\n"                                                            \
  "  expect = { peak_gib = weft.between(0, 70) },\n"                                     \
  "  batch = { global = 32, micro = 1, seq = 512 },\n"                                   \
  "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-3, min = 1e-4 } },\n"          \
  "  data = weft.synthetic {},\n"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static Outcome best(int code, const char *arguments) {
  Outcome o = process_run(60, "$weft best %s", arguments);
  ck_assert_msg(o.code == code, "weft best %s: %d: %s%s", arguments, o.code, o.out,
                o.err);
  return o;
}

static void has(const char *text, const char *what) {
  ck_assert_msg(strstr(text, what), "no \"%s\" in:\n%s", what, text);
}

#define FEW "tp=1,2 pp=1,2 micro=1 recompute=none schedule=1f1b clock=6 "

/* The layout of the plan itself need not be right. What -o writes is a plan whose step is
 * the one that was told. */
START_TEST(a_plan_file) {
  put("small.lua", PLAN_TEXT "}\n");
  Outcome o = best(0, "small.lua " FEW "-o found.lua --json");
  json_t *v = json_loads(o.out, 0, NULL), *of = json_object_get(v, "best");
  ck_assert_msg(of != NULL, "%s", o.out);
  double seconds = json_number_value(json_object_get(of, "seconds"));
  Outcome sim = process_run(60, "$weft sim found.lua --json");
  ck_assert_msg(sim.code == 0, "%s%s", sim.out, sim.err);
  json_t *w = json_loads(sim.out, 0, NULL);
  json_t *result = json_object_get(w, "result");
  json_t *r = json_object_get(result, "sim");
  double again = json_number_value(json_object_get(r ? r : result, "seconds"));
  ck_assert_msg(again > 0, "%s", sim.out);
  ck_assert_double_eq_tol(again, seconds, 1e-9 * seconds);
  json_decref(v), json_decref(w);
  has(best(2, "small.lua " FEW "-o found.lua").err, "found.lua");
}
END_TEST

/* Neither the file nor the command has a setting without effect. */
START_TEST(nothing_is_warned_of) {
  static const char *const own[] = {"", "  strategy = { 'zero', stage = 1, "
                                        "enable_async_tensor_parallel = true },\n"};
  for (int i = 0; i < LEN(own); i++) {
    put("small.lua", arena_printf(scratch_arena, PLAN_TEXT "%s}\n", own[i]));
    process_run(60, "rm -f found.lua");
    Outcome o = best(0, "small.lua pp=1,2 micro=1 recompute=none schedule=1f1b "
                        "clock=6 tp=1 strategy=zero-1,fsdp2 -o found.lua");
    ck_assert_ptr_null(strstr(o.out, "sequence_parallel"));
    o = process_run(60, "$weft check found.lua");
    ck_assert_msg(!strstr(o.out, "plan.strategy"), "%s", o.out);
  }
  put("small.lua", PLAN_TEXT "}\n");
  has(best(0, "small.lua pp=1 micro=1 tp=2 strategy=zero-1 clock=1").out,
      "sequence_parallel = true");
}
END_TEST

START_TEST(options_of_the_verb) {
  put("small.lua", PLAN_TEXT "}\n");
  has(best(0, "small.lua " FEW).out, "weft run small.lua --set 'mesh={ ");
  /* What the plan was given here it is given there, too. */
  put("an odd.lua", "local n = require('weft').var('n', 'x')\n" PLAN_TEXT "}\n");
  has(best(0, "\"an odd.lua\" " FEW "-D \"n=it's\" --set batch.seq=128 --data .").out,
      "weft run 'an odd.lua' -D 'n=it'\\''s' --set batch.seq=128 --data . --set "
      "'mesh={ ");
  /* A schedule is no part of a layout without a pipeline, nor a stage of one without
   * replicas. */
  Outcome o = best(0, "small.lua tp=8 schedule=zbv virtual=2 clock=2 -o one.lua");
  has(o.out, "schedule, virtual: of layouts with a pipeline; the best has none");
  o = process_run(60, "$weft sim one.lua");
  ck_assert_msg(o.code == 0 && !strstr(o.err, "no-effect"), "%s%s", o.out, o.err);
  has(best(1, "small.lua " FEW "memory=0.001").out, "no layout fits");
  has(best(2, "small.lua tpp=1").err, "\"tpp\" is nothing that is searched");
  has(best(2, "small.lua tp").err, "is no NAME=VALUE");
  has(best(2, "small.lua tp=").err, "over.tp has no values");
  has(best(2, "small.lua clock=many").err, "clock=many is no number");
  has(best(2, "missing.lua").err, "missing.lua");
  put("wrong.lua", PLAN_TEXT "  batchh = 1,\n}\n");
  has(best(1, "wrong.lua").out, "batchh");
  put("wrong.lua", PLAN_TEXT "  cluster = weft.cluster { nodes = 1, gpus = 8 },\n}\n");
  has(best(1, "wrong.lua").out,
      "wrong.lua: error: plan.cluster: the clock needs the GPU");
}
END_TEST

/* The answer is told, and no file is left. */
START_TEST(a_full_disk) {
  put("small.lua", PLAN_TEXT "}\n");
  Outcome o =
      process_run(60, "sh -c \"(trap '' XFSZ; ulimit -f 0; $weft best small.lua " FEW
                      "-o new.lua; echo code=\\$?) 2>&1 | cat\"");
  has(o.out, "new.lua: cannot be written: ");
  has(o.out, "weft run small.lua --set");
  has(o.out, "code=2\n");
  ck_assert_str_eq(scratch_get("new.lua"), "");
  has(best(2, "small.lua " FEW "-o /dev/full").err, "/dev/full: cannot be written");
}
END_TEST

/* A function cannot be put into another file: an error, and no file. */
START_TEST(plans_that_cannot_be_written) {
  put("own.lua", PLAN_TEXT "  schedule = function(s) for mb = 0, s.microbatches - 1 do "
                           "s:F(0, mb) s:B(0, mb) end end,\n}\n");
  Outcome o = best(2, "own.lua tp=2 pp=2 micro=1 recompute=none clock=2 -o other.lua");
  has(o.err, "plan.schedule is a function of the plan");
  has(o.out, "weft run own.lua --set");
  ck_assert_str_eq(scratch_get("other.lua"), "");
  put("lost.lua", PLAN_TEXT "  loss = function(g) end,\n}\n");
  o = best(2, "lost.lua tp=2 clock=2 -o other.lua");
  has(o.err, "plan.loss is a function of the plan");
  ck_assert_str_eq(o.out, ""); /* before the search */
  process_run(10, "mkdir model far");
  put("model/config.json", "{\"model_type\": \"llama\", \"hidden_size\": 64, "
                           "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                           "\"intermediate_size\": 128, \"vocab_size\": 64}");
  put("near.lua", "local weft = require 'weft'\nreturn weft.plan { model = weft.hf "
                  "'model', cluster = weft.cluster 'h100-sxm', mesh = { tp = 2 },\n"
                  "precision = 'bf16', batch = { global = 8, seq = 64 } }\n");
  o = best(2, "near.lua micro=1 clock=2 -o far/other.lua");
  has(o.err, "the plan cannot be written: ");
  has(o.out, "weft run near.lua --set");
}
END_TEST

/* Ctrl-C while programs are on the clock: the best so far is told; before that there is
 * none. */
START_TEST(interrupted) {
  Terminal *t = terminal_start("$weft best plans/llama3_70b.lua tp=4,8 pp=4,8 micro=1");
  terminal_wait(t, "on the clock: ");
  terminal_type(t, "\003");
  ck_assert_int_eq(terminal_end(t), 130);
  const char *screen = terminal_rows(t, 0, t->row);
  has(screen, "s, interrupted:");
  has(screen, "weft run plans/llama3_70b.lua --set");
  t = terminal_start("$weft best plans/llama3_70b.lua");
  terminal_wait(t, "bounds of ");
  terminal_type(t, "\003");
  ck_assert_int_eq(terminal_end(t), 130);
  screen = terminal_rows(t, 0, t->row);
  has(screen, "no layout was on the clock yet");
  has(screen, "not looked at");
}
END_TEST

Suite *best_suite(void);
Suite *best_suite(void) {
  Suite *s = suite_create("best");
  TCase *c = tcase_create("best");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_test(c, near_the_exhaustive_choice);
  tcase_add_test(c, reductions_of_chunks_beside_work);
  tcase_add_test(c, nothing_is_dropped);
  tcase_add_test(c, tied_weights_in_a_v);
  tcase_add_test(c, the_order_of_schedules);
  tcase_add_test(c, room_for_communicators);
  tcase_add_test(c, figures_are_those_of_the_plan);
  tcase_add_test(c, why_adds_up);
  tcase_add_test(c, the_same_twice);
  tcase_add_test(c, ranks_and_layers_nobody_told);
  tcase_add_test(c, without_a_plan);
  tcase_add_test(c, experts);
  tcase_add_test(c, searches_that_cannot_be);
  tcase_add_test(c, nothing_is_found);
  tcase_add_test(c, a_plan_file);
  tcase_add_test(c, nothing_is_warned_of);
  tcase_add_test(c, options_of_the_verb);
  tcase_add_test(c, plans_that_cannot_be_written);
  tcase_add_test(c, a_full_disk);
  tcase_add_test(c, interrupted);
  suite_add_tcase(s, c);
  return s;
}
