/* check_sweep_scripts.c - sweeps as users run them: rows, options, forms of plans, bad
 * input, and the files that are written. */
#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/comma.h"
#include "tests/harness/process.h"

#define PLANS WEFT_SOURCE_DIR "/plans/"

/* ---- scripts ---- */

#define SWEEP "local weft = require 'weft'\nlocal P = '" PLANS "quickstart.lua'\n"

static Outcome script(const char *verb, const char *text) {
  char *all = arena_printf(scratch_arena, SWEEP "%s", text);
  scratch_put("s.lua", all, strlen(all));
  return process_run(60, "$weft %s s.lua", verb);
}

static void says(const char *text, const char *out) {
  Outcome o = script("lua", text);
  ck_assert_msg(o.code == 0, "%s: exit %d\n%s%s", text, o.code, o.out, o.err);
  ck_assert_str_eq(o.out, out);
}

static void refused(const char *text, int code, const char *err) {
  Outcome o = script("lua", text);
  ck_assert_msg(o.code == code, "%s: exit %d\n%s%s", text, o.code, o.out, o.err);
  ck_assert_msg(strstr(o.err, err), "%s:\n%s", text, o.err);
}

START_TEST(rows) {
  says(
      "local r = weft.sweep { plan = P, score = 'peak_gib',\n"
      "  over = weft.grid { { 'mesh.tp', 1, 2, 3 }, { 'schedule', 'gpipe', '1f1b' } } }\n"
      "print(#r, r.points, r.judged, r.legal, r.illegal, r.memory, r.dropped)\n"
      "print(r[1].tp, r[1]['mesh.tp'], r[1].schedule, r[1].dp, r[1].microbatches)\n"
      "print(r[1].peak_gib < r[2].peak_gib, r[1].comm_gib.tp > 0, r[1].tflop > 0)\n"
      "print(r[1].step_ms, r.reasons[1].code, r.reasons[1].path, r.reasons[1].count)\n",
      "4\t6\t6\t4\t2\t0\t0\n2\t2\t1f1b\t2\t4\ntrue\ttrue\ttrue\n"
      "nil\tdivisibility\tmesh.tp\t2\n");
}
END_TEST

/* Tensor plans of the library build on each other, also where require is Lua's. */
START_TEST(tensor_plans) {
  says("print(weft.tp_plan('qwen3_moe')['layers.*.self_attn.q_proj'])\n"
       "print(#weft.sweep { plan = P, over = { { 'tp_plan', weft.tp_plan 'mixtral', "
       "weft.tp_plan 'llama' } } })\n",
       "colwise\n2\n");
}
END_TEST

/* Rows that experts get if all get the same need not more places than that; how many more
 * there are changes what may move at most. */
START_TEST(rows_of_experts) {
  says("local r = weft.sweep { score = function(r) return r.max_tokens_factor end,\n"
       "  plan = weft.plan { model = weft.model 'qwen3-moe-tiny',\n"
       "    mesh = { dp = 4, ep = 4 }, moe = { dispatcher = 'alltoall' },\n"
       "    batch = { global = 8, seq = 32 }, data = weft.synthetic {} },\n"
       "  over = { { 'moe.max_tokens_factor', 1, 2 },\n"
       "    { 'moe.dispatcher', 'alltoall', 'allgather' } } }\n"
       "local one, two\n"
       "for _, x in ipairs(r) do\n"
       "  local ep, even = x.comm_gib.ep, x.comm_gib.ep_even\n"
       "  if x.dispatcher == 'allgather' then print(ep > 0, ep == even)\n"
       "  elseif x.max_tokens_factor == 1 then one = x.comm_gib\n"
       "  else two = x.comm_gib end\n"
       "end\n"
       "print(one.ep == one.ep_even, one.ep == two.ep_even, two.ep / one.ep > 1.9)\n",
       "true\ttrue\ntrue\ttrue\ntrue\ttrue\ttrue\n");
}
END_TEST

/* Whether a schedule may take microbatches in another order is for each point to see. */
START_TEST(order_of_microbatches) {
  says("local r = weft.sweep { score = function() return 1 end,\n"
       "  plan = weft.plan { model = weft.model 'qwen3-moe-tiny', mesh = { pp = 2 },\n"
       "    batch = { global = 4, seq = 32 }, data = weft.synthetic {},\n"
       "    moe = { aux_loss_coef = 0.1 }, schedule = function(s)\n"
       "      for i = s.microbatches - 1, 0, -1 do s:F(0, i) end\n"
       "      for i = 0, s.microbatches - 1 do s:B(0, i) end\n"
       "    end },\n"
       "  over = { { 'moe.aux_loss_batch', 'micro', 'global' } } }\n"
       "print(#r, r[1].aux_loss_batch, r.reasons[1].path)\n",
       "1\tmicro\tschedule\n");
}
END_TEST

/* What plans are told of the same mistake. */
START_TEST(scripts_require_weft) {
  static const char text[] = "local r = weft.sweep {}\n";
  scratch_put("bare.lua", text, strlen(text));
  Outcome o = process_run(60, "$weft sweep bare.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, "(global 'weft') (write: local weft = require \"weft\")"),
                "%s", o.err);
}
END_TEST

/* A point has no figures yet, whose names its axes may have. */
START_TEST(names_of_axes) {
  says("local r = weft.sweep { plan = P, score = 'peak_gib',\n"
       "  where = function(p) return p.tp * p.dp == 8 and p['mesh.dp'] == p.dp end,\n"
       "  over = { { 'mesh.tp', 1, 2, 4 }, { 'mesh.pp', 1 }, { 'mesh.dp', 2, 4, 8 } } }\n"
       "print(r.judged, r[1].tp * r[1].dp, r[1].tp * r[1]['mesh.dp'])\n",
       "3\t8\t8\n");
  refused("weft.sweep { plan = P, over = { { 'mesh.tp', 1 } },\n"
          "  where = function(p) return p.tpp == 1 end }",
          1, "s.lua:4: there is no axis 'tpp' (did you mean 'tp'?)");
}
END_TEST

START_TEST(options) {
  says("local r = weft.sweep { plan = P, keep = 2, score = function(row)\n"
       "    if row.tp == 1 then return nil end\n    return -row.pp end,\n"
       "  where = function(p) return p.pp < 4 end,\n"
       "  over = { { 'mesh.tp', 1, 2, 4 }, { 'mesh.pp', 1, 2, 4 } } }\n"
       "print(#r, r.judged, r.dropped, r[1].pp, r[1].tp, r[2].pp, r[2].tp)\n",
       "2\t6\t2\t2\t2\t2\t4\n");
  says("print((tostring(weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } },\n"
       "  score = function(row) end }):gsub('.*: ', '')))\n",
       "2 plans, 0 without enough memory, 0 illegal; 2 plans without a score\n");
  says("print(select(2, pcall(weft.sweep, { over = { { 'x', 1 } },\n"
       "  plan = function() return 5 end })))\n",
       "s.lua:3: weft.sweep: plan() returned a number, not a plan, a file or nil\n");
  says("local r = weft.sweep { plan = P, max_gib = 0.01, score = 'peak_gib',\n"
       "  over = { { 'mesh.tp', 1, 2 }, { 'mesh.pp', 1, 2 } } }\n"
       "print(#r, r.legal, r.memory, r[1].peak_gib <= 0.01)\n",
       "1\t1\t3\ttrue\n");
  /* Without max_gib the GPU's memory is the limit; here all but 10 MiB are reserved. */
  says("local r = weft.sweep { plan = P, score = 'peak_gib', over = { { 'mesh.tp', 1, 2 "
       "},\n"
       "  { 'mesh.pp', 1, 2 }, { 'cluster', { 'h100',\n"
       "      reserve_gib = 81559 / 1024 - 0.01 } } } }\n"
       "print(#r, r.legal, r.memory, r[1].peak_gib <= 0.01)\n",
       "1\t1\t3\ttrue\n");
  says("local g = weft.grid { { 'mesh.tp', 1, 2 }, { 'pp_plan.layers', { 1, 3 } } }\n"
       "print(#g, g)\n",
       "2\tgrid of 2 points: mesh.tp 1, 2; pp_plan.layers { 1, 3 }\n");
}
END_TEST

/* A wrong plan is one among others, whether the function returns the reasons or they are
 * raised in it; any other error ends the sweep. All threads judge, with the same rows. */
START_TEST(functions_that_give_wrong_plans) {
  says("local function plan(q)\n"
       "  return weft.plan { model = weft.model 'llama-tiny', mesh = { tp = q.tp },\n"
       "    batch = { global = 8, micro = q.micro, seq = 16 } } end\n"
       "local function try(threads, give)\n"
       "  return weft.sweep { threads = threads, plan = give, score = 'peak_gib',\n"
       "    over = { { 'tp', 1, 2, 3, 4, 5, 6, 7, 8 }, { 'micro', 1, 2, 3, 4, 5, 6, 7, 8 "
       "} } }\n"
       "end\n"
       "local one, all = try(1, plan), try(4, plan)\n"
       "print(one.illegal > 0, one.judged, all.judged, one.illegal == all.illegal)\n"
       "assert(#one == #all and one.legal + one.illegal == 64)\n"
       "for i = 1, #one do assert(one[i].peak_gib == all[i].peak_gib and\n"
       "  one[i].tp == all[i].tp and one[i].micro == all[i].micro) end\n"
       "table.sort(one.reasons, function(a, b) return a.count > b.count end)\n"
       "print(one.reasons[1].path, one.reasons[1].message)\n"
       "print(pcall(try, 4, function(q) if q.tp == 5 then error('x' .. q.tp, 0) end\n"
       "  return plan(q) end))\n",
       "true\t64\t64\ttrue\n"
       "mesh.tp\t3 does not divide model.num_attention_heads = 8\n"
       "false\tx5\n");
}
END_TEST

/* Plans as objects, from functions, from tables; a model of the script's own. */
START_TEST(forms_of_plans) {
  says("local p = weft.load(P)\n"
       "local a = weft.sweep { plan = p, over = { { 'mesh.tp', 1, 2 } } }\n"
       "local b = weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } } }\n"
       "local c = weft.sweep { over = { { 'x', 1, 2, 5 } }, plan = function(q)\n"
       "    if q.x == 5 then return nil end\n"
       "    return p:with { ['mesh.tp'] = q.x } end }\n"
       "for i = 1, 2 do print(a[i].peak_gib == b[i].peak_gib, a[i].peak_gib == "
       "c[i].peak_gib) end\n"
       "print(c.illegal, c.reasons[1].message)\n"
       "local d = weft.sweep { over = { { 'x', 1, 3 } }, plan = function(q)\n"
       "    return p:with { ['mesh.tp'] = q.x } end }\n"
       "print(d.reasons[1].path, d.reasons[1].message)\n",
       "true\ttrue\ntrue\ttrue\n1\tthe function gave no plan\nbatch.seq\t3 does not "
       "divide "
       "batch.seq = 128\n");
  says("local function model(g, c)\n"
       "  local x = g:unit('in', function()\n"
       "    return g:embedding(g:tokens(), g:param('e', { { 'vocab', 64 }, { 'hidden', "
       "c.w } })) end)\n"
       "  return g:unit('out', function()\n"
       "    return g:cross_entropy(g:linear(x, g:param('o', { { 'vocab', 64 }, { "
       "'hidden', c.w } })), g:labels()) end)\n"
       "end\n"
       "local r = weft.sweep { over = { { 'w', 16, 32 } }, score = 'peak_gib', plan = "
       "function(q)\n"
       "  return weft.plan { model = weft.model { model, w = q.w },\n"
       "    batch = { global = 4, seq = 16 } } end }\n"
       "print(#r, r[1].w, r[2].peak_gib > r[1].peak_gib)\n",
       "2\t16\ttrue\n");
}
END_TEST

/* What a script does to a point it does to its copy. */
/* Functions go with their point, and others lie where they lay: what was found for one is
 * not found again for another. */
START_TEST(functions_of_points) {
  says("local weft = require 'weft'\n"
       "local axis = { 'k' }\n"
       "for i = 1, 200 do axis[i + 1] = i % 4 end\n"
       "local r = weft.sweep { over = { axis }, keep = 200, threads = 2,\n"
       "  plan = function(q)\n"
       "    local function loss(g, x)\n"
       "      local t = g:token_losses(x.logits, x.labels)\n"
       "      for i = 1, q.k do t = g:exponential(t) end\n"
       "      return g:sum_all(t)\n"
       "    end\n"
       "    return weft.plan { model = weft.model 'llama-tiny', cluster = 'h100-sxm',\n"
       "      loss = { loss, per = 'tokens' }, mesh = { dp = 1 },\n"
       "      batch = { global = 1, seq = 16 } }\n"
       "  end }\n"
       "local seen, n = {}, 0\n"
       "for _, row in ipairs(r) do\n"
       "  seen[row.k] = seen[row.k] or row.step_ms\n"
       "  assert(row.step_ms == seen[row.k] and (row.k == 0 or seen[row.k - 1] and\n"
       "    seen[row.k - 1] < row.step_ms), row.k)\n"
       "  n = n + 1\n"
       "end\n"
       "print(n)\n",
       "200\n");
}
END_TEST

START_TEST(points_are_copies) {
  says(
      "local r = weft.sweep { plan = P, score = function(row) return row.layers[1] end,\n"
      "  over = { { 'pp_plan.layers', { 1, 3 }, { 2, 2 } } },\n"
      "  where = function(p) p.layers[1], p.layers[2] = 2, 2 return true end }\n"
      "print(r[1].layers[1], r[1].peak_gib ~= r[2].peak_gib)\n",
      "1\ttrue\n");
}
END_TEST

START_TEST(threads_change_nothing) {
  says("local function text(n)\n"
       "  local r = weft.sweep { plan = P, threads = n, score = 'peak_gib', over = {\n"
       "    { 'mesh.tp', 1, 2, 3, 4 }, { 'mesh.pp', 1, 2, 4 }, { 'batch.micro', 1, 2 },\n"
       "    { 'schedule', 'gpipe', '1f1b', 'zbv' }, { 'batch.global', 8, 16, 24 } } }\n"
       "  local t = {}\n"
       "  for i, row in ipairs(r) do\n"
       "    t[i] = table.concat({ row.tp, row.pp, row.micro, row.schedule, row.global,\n"
       "      string.format('%.17g %.17g', row.peak_gib, row.bubble) }, ' ') end\n"
       "  for i, x in ipairs(r.reasons) do t[#t + 1] = x.path .. x.count end\n"
       "  table.sort(t)\n"
       "  return table.concat(t, '\\n') end\n"
       "print(text(1) == text(4))\n",
       "true\n");
}
END_TEST

/* Rows made ahead, too, of few points and of many. */
START_TEST(threads_change_no_exact_row) {
  says("local function text(n, some)\n"
       "  local t = {}\n"
       "  for i, row in ipairs(weft.sweep { plan = P, threads = n, score = 'peak_gib',\n"
       "      clock = 9, bounds = true, keep = 11, over = {\n"
       "      { 'cluster', weft.cluster 'h100-sxm' },\n"
       "      { 'mesh.tp', table.unpack { 1, 2, some and 4 or nil } }, { 'mesh.pp', 1, 2 "
       "},\n"
       "      { 'batch.micro', 1, 2 }, { 'schedule', 'gpipe', '1f1b' } } }) do\n"
       "    t[i] = ('%d %d %d %s %a %a %a'):format(row.tp, row.pp, row.micro, "
       "row.schedule,\n"
       "      row.peak_gib, row.step_ms, row.clock_ms or 0) end\n"
       "  return table.concat(t, '\\n'), #t\n"
       "end\n"
       "for _, some in ipairs { false, true } do\n"
       "  local one, n = text(1, some)\n"
       "  print(one == text(4, some), n)\n"
       "end\n",
       "true\t11\ntrue\t11\n");
}
END_TEST

START_TEST(measured) {
  says("local r = weft.sweep { plan = P, measure = 1, keep = 1, over = { { 'mesh.tp', 2 "
       "} } }\n"
       "print(r[1].tokens_per_s > 0)\n",
       "true\n");
}
END_TEST

/* The whole program: its time is that of plan:sim(), no less than the bound, and orders
 * the rows. */
START_TEST(on_the_clock) {
  says(
      "local r = weft.sweep { plan = P, clock = 3, keep = 4, over = {\n"
      "  { 'cluster', weft.cluster 'h100-sxm' }, { 'mesh.tp', 1, 2 },\n"
      "  { 'schedule', 'gpipe', '1f1b' } } }\n"
      "for i = 1, 3 do\n"
      "  local p = weft.load(P, { set = { ['cluster'] = 'h100-sxm',\n"
      "    ['mesh.tp'] = tostring(r[i].tp), schedule = r[i].schedule } })\n"
      "  local ms = p:sim().seconds * 1e3\n"
      "  print(math.abs(r[i].clock_ms - ms) < 1e-9 * ms, r[i].step_ms <= r[i].clock_ms,\n"
      "    i == 1 or r[i - 1].clock_ms <= r[i].clock_ms)\n"
      "end\n"
      "print(#r, r[4].clock_ms)\n",
      "true\ttrue\ttrue\ntrue\ttrue\ttrue\ntrue\ttrue\ttrue\n4\tnil\n");
}
END_TEST

/* Experts lie over other ranks than the rest, and are gathered and summed over other
 * links: no program takes less than its bound for them, either. */
START_TEST(experts_on_the_clock) {
  says(
      "local r = weft.sweep { clock = 100, plan = weft.plan {\n"
      "    model = weft.model { 'mixtral', hidden_size = 1024, num_hidden_layers = 2,\n"
      "      num_attention_heads = 8, num_key_value_heads = 8, vocab_size = 256,\n"
      "      intermediate_size = 4096, num_local_experts = 8, num_experts_per_tok = 2 "
      "},\n"
      "    precision = 'bf16', mesh = { world = 16, tp = 4 },\n"
      "    batch = { global = 32, seq = 256 },\n"
      "    cluster = { 'h100-pcie', network = { per_gpu = 5e9, latency = 1e-5 } } },\n"
      "  over = { { 'mesh.tp', 2, 4 }, { 'mesh.ep', 2, 4 }, { 'mesh.etp', 1, 4 },\n"
      "    { 'strategy', { 'zero', stage = 1 }, { 'zero', overlap_grad_reduce = false }, "
      "'fsdp2' },\n"
      "    { 'optimizer', weft.adamw {}, weft.muon {}, weft.adafactor {} } } }\n"
      "local over = 0\n"
      "for _, x in ipairs(r) do over = over + (x.step_ms > x.clock_ms and 1 or 0) end\n"
      "print(#r, over)\n",
      "72\t0\n");
}
END_TEST

/* Machines of which a figure is not known have neither a bound nor a time. */
START_TEST(some_on_the_clock) {
  says("local known = weft.cluster { 'h100-pcie', gpus = 1,\n"
       "  network = { per_gpu = 5e9, latency = 1e-5 } }\n"
       "local other = weft.cluster { 'h100-pcie', gpus = 1 }\n"
       "local function sweep(...)\n"
       "  return weft.sweep { plan = P, clock = 4, score = 'peak_gib', over = {\n"
       "    { 'mesh.tp', 1, 2 }, { 'cluster', ... } } }\n"
       "end\n"
       "local r = sweep(other, known)\n"
       "print(#r, r[1].clock_ms > 0, r[2].clock_ms > 0, r[3].clock_ms, r[4].step_ms)\n"
       "print((select(2, pcall(sweep, other)):gsub('.*weft.sweep: ', '')))\n",
       "4\ttrue\ttrue\tnil\tnil\n"
       "clock: plan.cluster.network.per_gpu: the clock needs this figure of the plan's "
       "machines\n");
}
END_TEST

/* Rows that are kept are exact, also where the limit leaves out points that bounds let
 * in; a cached stage is of the right point when neighbours differ. */
START_TEST(by_bounds) {
  says("local over = { { 'cluster', weft.cluster 'h100-sxm' }, { 'mesh.tp', 1, 2 },\n"
       "  { 'mesh.pp', 1, 2 }, { 'batch.micro', 1, 2 }, { 'schedule', 'gpipe', '1f1b' } "
       "}\n"
       "local function rows(bounds, max_gib)\n"
       "  local list = {}\n"
       "  for _, x in ipairs(weft.sweep { plan = P, score = 'peak_gib', over = over,\n"
       "      threads = 1, bounds = bounds, max_gib = max_gib, keep = 1000 }) do\n"
       "    list[#list + 1] = ('%d %d %d %s %a %a %a %d'):format(x.tp, x.pp, x.micro,\n"
       "      x.schedule, x.peak_gib, x.step_ms, x.bubble, x.worst_rank)\n"
       "  end\n"
       "  return table.concat(list, '\\n'), #list\n"
       "end\n"
       "local all, n = rows(false)\n"
       "local middle = tonumber(all:match('^%d %d %d %S+ (%S+)')) * 1.5\n"
       "local some, fewer = rows(false, middle)\n"
       "print(rows(true) == all, rows(true, middle) == some, n > fewer, fewer > 1)\n"
       "print(#weft.sweep { plan = P, over = over, bounds = true, keep = 3 })\n",
       "true\ttrue\ttrue\ttrue\n3\n");
}
END_TEST

#define OVER "over = { { 'mesh.tp', 1, 2 } }"

START_TEST(bad_input) {
  static const struct {
    const char *text;
    int code;
    const char *err;
  } all[] = {
      {"weft.sweep { plan = P, over = { { 'mesh.tpp', 1 } } }", 1,
       "a plan has no field 'mesh.tpp' (did you mean 'tp'?)"},
      {"weft.sweep { plan = P, over = { { 'shedule', 'gpipe' } } }", 1,
       "a plan has no field 'shedule' (did you mean 'schedule'?)"},
      {"weft.grid {}", 1, "the grid has no axes"},
      {"weft.sweep { plan = P, over = {} }", 1, "the grid has no axes"},
      {"weft.sweep { plan = P, over = { tp = { 1, 2 } } }", 1,
       "each of which is a field and its values: weft.grid { { \"mesh.tp\", 1, 2 } }\n"},
      {"weft.grid { { 'mesh.tp' } }", 1, "axis 1 (mesh.tp) has no values"},
      {"weft.grid { { 1, 2 } }", 1, "axis 1: the first item is the path of a field"},
      {"weft.grid { 'mesh.tp' }", 1, "axis 1 is a string, not { \"path\", value"},
      {"weft.grid { { 'mesh.tp', 1 }, { 'mesh.tp', 2 } }", 1, "two axes mesh.tp"},
      {"weft.grid { { 'mesh.tp', 1, 2 }, foo = { 'mesh.pp', 1, 2 } }", 1,
       "the grid is a list, but has a key \"foo\" besides"},
      {"weft.grid { { 'mesh.tp', 1, 2, pp = 3, dp = 1 } }", 1,
       "axis 1 (mesh.tp) is a list, but has a key \"dp\" besides"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 1 }, [1.5] = { 'mesh.pp', 2 } } }",
       1, "the grid is a list, but has a key \"1.5\" besides"},
      {"weft.sweep { plan = P }", 1, "over is missing"},
      {"weft.sweep { " OVER " }", 1, "plan is missing"},
      {"weft.sweep { plan = P, " OVER ", wher = 1 }", 1, "did you mean 'where'?"},
      {"weft.sweep { plan = P, " OVER ", where = 1 }", 1, "where is a function"},
      {"weft.sweep { plan = P, " OVER ", score = 'peak' }", 1,
       "did you mean 'peak_gib'?"},
      {"weft.sweep { plan = P, " OVER ", score = function() return 'x' end }", 1,
       "score() returned a string"},
      {"weft.sweep { plan = P, " OVER ", max_gib = 0 }", 1,
       "max_gib is a positive number"},
      {"weft.sweep { plan = P, " OVER ", keep = 0 }", 1, "keep must be an integer"},
      {"weft.sweep { plan = P, " OVER ", where = function() return false end }", 1,
       "where() leaves none of 2 points"},
      {"weft.sweep { plan = 'no.lua', " OVER " }", 2, "no.lua"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 3, 5 } } }", 1,
       "none of the 2 points is a plan\n          2  divisibility: plan.mesh.tp: 3 does "
       "not "
       "divide"},
      {"weft.sweep { plan = P, " OVER ", max_gib = 0.001 }", 1,
       "        2  memory: more than 0.001 GiB on a rank"},
      {"weft.sweep { plan = P, " OVER ", csv = '/dev/full' }", 2,
       "/dev/full: error: cannot be written: No space left"},
      {"weft.sweep { plan = 'no.lua', " OVER ", csv = '/nowhere/x' }", 2,
       "/nowhere/x"}, /* before the plan is opened */
      {"weft.sweep { plan = P, " OVER ", jsonl = '/dev/full' }", 2,
       "/dev/full: error: cannot be written: No space left"},
      {"weft.sweep { plan = P, " OVER ", jsonl = '/nowhere/x' }", 2, "/nowhere/x"},
      {"weft.sweep { plan = 3, " OVER " }", 1,
       "plan is a file, a plan or function(point), got number"},
      {"weft.grid { { 'mesh.tp', 1, nil, 2 } }", 1, "axis 1 (mesh.tp): value 2 is nil"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 1, io.open } } }", 1,
       "in the grid [1][3] is io.open, which cannot be copied into a plan"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 1 }, { 'plan.mesh.tp', 2 } } }", 1,
       "the grid has two axes mesh.tp"},
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 1 }, { 'mesh', { tp = 2 } } } }", 1,
       "axis mesh would set mesh.tp again: put it first"},
      {"weft.sweep { plan = function() return P end, over = { { 'dp', 1 } } }", 1,
       "axis 1: dp is the name of a column"},
      {"weft.sweep { plan = P, over = { { 'optimizer.lrr', 1 } } }", 1,
       "plan.optimizer.lrr: unknown field (did you mean \"lr\"?)"},
      {"weft.sweep { plan = P, " OVER ", score = 'step_ms' }", 1,
       "step_ms needs the GPU's name in plan.cluster"},
      {"weft.sweep { plan = P, " OVER ", score = 'tokens_per_s' }", 1,
       "tokens_per_s is measured after"},
      {"weft.sweep { plan = P, " OVER ", score = 'clock_ms' }", 1,
       "clock_ms is known of the first rows"},
      {"weft.sweep { plan = P, " OVER ", clock = 0 }", 1, "clock"},
      {"weft.sweep { plan = function() return P end, clock = 1, over = { { 'x', 1 } } }",
       1, "clock needs a plan or a file, not a function"},
      {"weft.sweep { plan = function() return P end, bounds = true, over = { { 'x', 1 } "
       "} "
       "}",
       1, "bounds needs a plan or a file, not a function"},
      {"weft.sweep { plan = P, " OVER ", bounds = true, jsonl = 'x' }", 1,
       "bounds leaves most rows inexact"},
      {"weft.sweep { plan = P, " OVER ", bounds = 1 }", 1, "bounds is true or false"},
      {"weft.sweep { plan = P, " OVER ", jsonl = 'x', resume = 'y' }", 1,
       "leave out jsonl"},
      {"weft.sweep { plan = P, " OVER ", jsonl = 'x', csv = 'x' }", 1,
       "two outputs would be written to x"},
      {"weft.sweep { plan = P, " OVER ", resume = '/dev/full' }", 2,
       "/dev/full: error: is not a file that can be taken up"},
      {"local t = {}\nt.x, t.y = t, t\nweft.sweep { plan = { batch = { global = 4, seq = "
       "16 }, model = weft.model { function(g) end, t = t } }, over = { { 'batch.micro', "
       "1, 2 } } }",
       1, "2  plan: a table in the plan is nested too deeply to be compared"},
      {"weft.sweep { plan = P, " OVER ", where = function(p) return p.tp.q.r end }", 1,
       "attempt to index a number value"},
  };
  for (int i = 0; i < LEN(all); i++) refused(all[i].text, all[i].code, all[i].err);
}
END_TEST

/* ---- files ---- */

#define BIG                                                                              \
  "print(weft.sweep { plan = P, score = 'peak_gib', over = { { 'mesh.tp', 1, 2, 3 },\n"  \
  "  { 'mesh.pp', 1, 2 }, { 'batch.global', 8, 16, 32, 64 } }, keep = 3 })\n"

static int lines(const char *s) {
  int n = 0;
  for (; (s = strchr(s, '\n')); s++) n++;
  return n;
}

START_TEST(csv_and_json) {
  Outcome o = script("sweep --csv a.csv --jsonl a.jsonl", BIG);
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *csv = scratch_get(scratch_path("a.csv")),
             *rows = scratch_get(scratch_path("a.jsonl"));
  ck_assert_ptr_eq(strstr(csv, "mesh.tp,mesh.pp,batch.global,dp,microbatches,peak_gib,"),
                   csv);
  ck_assert_int_eq(lines(csv), 4);
  ck_assert_int_eq(lines(rows), 25);
  for (const char *line = rows; *line; line = strchr(line, '\n') + 1) {
    json_t *x = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    ck_assert(json_is_object(x));
    if (line != rows) ck_assert_ptr_nonnull(json_object_get(x, "state"));
    json_decref(x);
  }
  ck_assert_ptr_nonnull(strstr(rows, "\"state\":\"illegal\""));
  ck_assert_ptr_nonnull(strstr(o.out, "24 of 24 points judged"));
  ck_assert_ptr_nonnull(strstr(o.out, "tp  pp  global"));
}
END_TEST

/* The files of the command line are for the first sweep; others have those that they
 * name. No file is left out without a word. */
START_TEST(files_of_the_command_line) {
  static const char two[] =
      "weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } } }\n"
      "weft.sweep { plan = P, over = { { 'mesh.dp', 1, 2 } }, csv = 'second.csv' }\n"
      "weft.sweep { plan = P, over = { { 'batch.micro', 1 } } }\n";
  Outcome o = script("sweep --csv first.csv --jsonl first.jsonl", two);
  ck_assert_msg(o.code == 0, "%d %s", o.code, o.err);
  const char *csv = scratch_get(scratch_path("first.csv"));
  ck_assert_msg(strncmp(csv, "mesh.tp,", 8) == 0 && lines(csv) == 3, "%s", csv);
  csv = scratch_get(scratch_path("second.csv"));
  ck_assert_msg(strncmp(csv, "mesh.dp,", 8) == 0 && lines(csv) == 3, "%s", csv);
  static const char own[] =
      "weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } }, csv = 'own.csv' }\n";
  o = script("sweep --csv other.csv", own);
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, "csv = is in the script, and --csv on the command line"),
                "%s", o.err);
  ck_assert_str_eq(scratch_get(scratch_path("own.csv")), "");
  o = script("sweep --jsonl other.jsonl", own);
  ck_assert_msg(o.code == 0, "%d %s", o.code, o.err);
  ck_assert_int_eq(lines(scratch_get(scratch_path("own.csv"))), 3);
  ck_assert_int_eq(lines(scratch_get(scratch_path("other.jsonl"))), 3);
}
END_TEST

/* A script, or the program around require "weft", may have another locale than C. */
START_TEST(files_have_decimal_points) {
  if (!comma_set()) return;
  comma_end();
  static const char sweep[] =
      "assert(os.setlocale 'C' and (not arg[1] or os.setlocale(arg[1])))\n"
      "weft.sweep { plan = P, over = { { 'optimizer.lr', 1.5e-3, 0.25 } },\n"
      "  csv = (arg[1] or 'a') .. '.csv', jsonl = (arg[1] or 'a') .. '.jsonl' }\n"
      "print(1.5, pcall(weft.sweep, { plan = P, over = 1 }), 1.5)\n";
  char *all = arena_printf(scratch_arena, SWEEP "%s", sweep);
  scratch_put("s.lua", all, strlen(all));
  Outcome o = process_run(60, "$weft lua s.lua");
  ck_assert_msg(o.code == 0 && strstr(o.out, "1.5\tfalse"), "%s%s", o.out, o.err);
  const char *csv = scratch_get(scratch_path("a.csv")),
             *rows = scratch_get(scratch_path("a.jsonl"));
  o = process_run(60, "env LOCPATH=. $weft lua s.lua " COMMA_NAME);
  /* What the script prints is its own. */
  ck_assert_msg(o.code == 0 && strstr(o.out, "1,5\tfalse") && strstr(o.out, "\t1,5\n"),
                "%s%s", o.out, o.err);
  ck_assert_str_eq(scratch_get(scratch_path(COMMA_NAME ".csv")), csv);
  ck_assert_str_eq(scratch_get(scratch_path(COMMA_NAME ".jsonl")), rows);
}
END_TEST

/* A file that was cut in the middle of a line is finished; the result is the same. */
START_TEST(resume) {
  script("sweep --jsonl whole.jsonl --csv whole.csv", BIG);
  const char *whole = scratch_get(scratch_path("whole.jsonl"));
  size_t half = strlen(whole) / 2;
  scratch_put("part.jsonl", whole, half);
  Outcome o = script("sweep --resume part.jsonl --csv part.csv", BIG);
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_str_eq(scratch_get(scratch_path("part.jsonl")), whole);
  ck_assert_str_eq(scratch_get(scratch_path("part.csv")),
                   scratch_get(scratch_path("whole.csv")));
  ck_assert_ptr_nonnull(strstr(o.out, " of them before"));
  o = script("sweep --resume part.jsonl",
             "print(weft.sweep { plan = P, over = { { 'mesh.tp', 1, 2 } } })\n");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "is not of this sweep"));
  ck_assert_str_eq(scratch_get(scratch_path("part.jsonl")), whole);
  /* Files that nobody may lose: a text without a line end, a row without its figures. */
  scratch_put("note.txt", "hello", 5);
  o = script("sweep --resume note.txt", BIG);
  ck_assert_int_eq(o.code, 2);
  ck_assert_str_eq(scratch_get(scratch_path("note.txt")), "hello");
  char *odd = arena_str(scratch_arena, whole);
  memcpy(strstr(odd, "\"peak_bytes\""), "\"PEAK_BYTES\"", 12);
  scratch_put("odd.jsonl", odd, strlen(odd));
  o = script("sweep --resume odd.jsonl", BIG);
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "has a line that is no row of a sweep"));
  o = script("sweep --resume new.jsonl", BIG);
  ck_assert_int_eq(o.code, 0);
  ck_assert_str_eq(scratch_get(scratch_path("new.jsonl")), whole);
  /* Neither the rows of a sweep nor anything else is replaced; a sweep that is taken up
   * has its own table, but none of another grid. */
  o = script("sweep --jsonl whole.jsonl", BIG);
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "weft sweep --resume whole.jsonl"), "%s", o.err);
  ck_assert_str_eq(scratch_get(scratch_path("whole.jsonl")), whole);
  o = script("sweep --csv whole.csv", BIG);
  ck_assert_msg(o.code == 2 && strstr(o.err, "whole.csv: "), "%d %s", o.code, o.err);
  o = script("sweep --resume whole.jsonl --csv note.txt", BIG);
  ck_assert_msg(o.code == 2 && strstr(o.err, "note.txt: "), "%d %s", o.code, o.err);
  ck_assert_str_eq(scratch_get(scratch_path("note.txt")), "hello");
  o = script("sweep --resume whole.jsonl --csv whole.csv", BIG);
  ck_assert_msg(o.code == 0, "%d %s", o.code, o.err);
}
END_TEST

/* Ctrl-C or SIGTERM: what is done stands, the script goes on, and the exit code tells. A
 * point that was at work is no judgement. */
static void interrupt_sweep(const char *plan, int signal) {
  const char *text = arena_printf(
      scratch_arena,
      SWEEP
      "local p, n = weft.load(P), {}\nfor i = 1, 2000 do n[i] = 16 * i end\n"
      "local r = weft.sweep { plan = %s, jsonl = 'i.jsonl', score = 'peak_gib', over = "
      "{\n"
      "  { 'batch.global', table.unpack(n) }, { 'mesh.tp', 1, 2, 4 }, { 'mesh.pp', 1, 2 "
      "} } }\n"
      "print('rows', #r > 0, r.interrupted, r.judged < r.points, r.illegal)\n",
      plan);
  scratch_put("i.lua", text, strlen(text));
  unlink(scratch_path("i.jsonl"));
  Process p = process_start(60, "$weft sweep i.lua");
  ck_assert(process_wait_for(&p, scratch_path("i.jsonl"), "\"state\""));
  kill(p.pid, signal);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 130, "exit %d\n%s%s", o.code, o.out, o.err);
  ck_assert_msg(strcmp(o.out, "rows\ttrue\ttrue\ttrue\t0\n") == 0, "%s: %s", plan, o.out);
  ck_assert_int_gt(lines(scratch_get(scratch_path("i.jsonl"))), 1);
}

START_TEST(interrupt) {
  interrupt_sweep("P", SIGINT);
  interrupt_sweep("P", SIGTERM);
  interrupt_sweep("function(q) return p:with { ['mesh.tp'] = q.tp } end", SIGINT);
  interrupt_sweep("function(q) local r = assert(p:with {}) return r end", SIGINT);
  interrupt_sweep("function(q) for i = 1, 1e6 do end return P end", SIGINT);
}
END_TEST

/* One object for machines; what the script prints is not in it. Of two sweeps it is the
 * first. */
START_TEST(json_alone) {
  Outcome o = script("sweep --json",
                     "local over = { { 'mesh.tp', 1, 2, 3 }, { 'schedule', '1f1b' } }\n"
                     "local r = weft.sweep { plan = P, over = over, keep = 1 }\n"
                     "weft.sweep { plan = P, over = { { 'mesh.tp', 1 } } }\n"
                     "print('rows', #r)\n");
  ck_assert_msg(o.code == 0, "exit %d\n%s%s", o.code, o.out, o.err);
  ck_assert_str_eq(o.err, "rows\t1\n");
  json_t *doc = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL), *row;
  json_int_t tp, points, illegal, dp;
  const char *schedule, *path;
  double peak;
  ck_assert_msg(json_unpack(doc, "{s:b, s:{s:{s:I, s:I, s:[{s:s}], s:[o]}}}", "valid",
                            &(int){0}, "result", "sweep", "points", &points, "illegal",
                            &illegal, "reasons", "path", &path, "rows", &row) == 0,
                "%s", o.out);
  ck_assert_int_eq(json_unpack(row, "{s:I, s:s, s:I, s:F}", "mesh.tp", &tp, "schedule",
                               &schedule, "dp", &dp, "peak_gib", &peak),
                   0);
  ck_assert(points == 3 && illegal == 1 && (tp == 1 || tp == 2) && dp == 2 && peak > 0);
  ck_assert_str_eq(schedule, "1f1b");
  ck_assert_str_eq(path, "mesh.tp");
  json_decref(doc);
}
END_TEST

/* What is wrong is in the object, too. */
START_TEST(json_of_errors) {
  static const struct {
    const char *script, *says;
    int code;
  } rows[] = {
      {"weft.sweep { plan = P, over = { { 'mesh.tp', 3 } } }", "the point is no plan", 1},
      {"weft.sweep { plan = P, over = { { 'mehs.tp', 3 } } }", "'mesh'", 1},
      {"print(1)", "made no sweep", 1},
      {"weft.sweep { plan = 'no.lua', over = { { 'mesh.tp', 3 } } }", "no.lua", 2}};
  for (int i = 0; i < LEN(rows); i++) {
    Outcome o = script("sweep --json", rows[i].script);
    json_t *doc = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
    const char *summary = "";
    json_unpack(doc, "{s:[{s:s}], s:n}", "diagnostics", "summary", &summary, "result");
    ck_assert_msg(o.code == rows[i].code && strstr(summary, rows[i].says),
                  "%s: exit %d\n%s%s", rows[i].script, o.code, o.out, o.err);
    json_decref(doc);
  }
}
END_TEST

/* A plan instead of a script. */
START_TEST(no_sweep) {
  Outcome o = process_run(30, "$weft sweep --csv x.csv " PLANS "quickstart.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(strstr(o.err, "quickstart.lua made no sweep: it is a script"));
}
END_TEST

START_TEST(example) {
  Outcome o = process_run(30, "$weft sweep " PLANS "sweep_70b_64xh100.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *table = strstr(o.out, "tp  pp  micro");
  ck_assert_ptr_nonnull(table);
  ck_assert_int_eq(lines(table), 12);
  ck_assert_ptr_nonnull(strstr(o.out, "memory: more than 79 GiB on a rank"));
}
END_TEST

Suite *sweep_scripts_suite(void);
Suite *sweep_scripts_suite(void) {
  Suite *s = suite_create("sweep_scripts");
  TCase *t = tcase_create("scripts");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, rows);
  tcase_add_test(t, scripts_require_weft);
  tcase_add_test(t, names_of_axes);
  tcase_add_test(t, options);
  tcase_add_test(t, rows_of_experts);
  tcase_add_test(t, order_of_microbatches);
  tcase_add_test(t, forms_of_plans);
  tcase_add_test(t, functions_that_give_wrong_plans);
  tcase_add_test(t, functions_of_points);
  tcase_add_test(t, points_are_copies);
  tcase_add_test(t, threads_change_nothing);
  tcase_add_test(t, threads_change_no_exact_row);
  tcase_add_test(t, measured);
  tcase_add_test(t, on_the_clock);
  tcase_add_test(t, experts_on_the_clock);
  tcase_add_test(t, some_on_the_clock);
  tcase_add_test(t, by_bounds);
  tcase_add_test(t, tensor_plans);
  tcase_add_test(t, bad_input);
  tcase_add_test(t, csv_and_json);
  tcase_add_test(t, files_of_the_command_line);
  tcase_add_test(t, files_have_decimal_points);
  tcase_add_test(t, resume);
  tcase_add_test(t, interrupt);
  tcase_add_test(t, json_alone);
  tcase_add_test(t, json_of_errors);
  tcase_add_test(t, no_sweep);
  tcase_add_test(t, example);
  suite_add_tcase(s, t);
  return s;
}
