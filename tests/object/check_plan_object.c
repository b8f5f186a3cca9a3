/* check_plan_object.c - plans as Lua objects: from files, from tables with functions, as
 * changed copies; what their methods say. */
#include <stdio.h>
#include <check.h>
#include <time.h>

#include "tests/harness/lua_run.h"
#include "tests/harness/scratch.h"

#define TINY                                                                             \
  "local function tiny(over)\n"                                                          \
  "  local t = { model = weft.model 'llama-tiny', batch = { global = 8, seq = 16 },\n"   \
  "              mesh = { pp = 2, tp = 2, dp = 2 } }\n"                                  \
  "  for k, v in pairs(over or {}) do t[k] = v end\n"                                    \
  "  return weft.plan(t)\n"                                                              \
  "end\n"

#define LLAMA "local p = assert(weft.load(PLANS .. 'llama3_70b.lua'))\n"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

/* ---- making ---- */

START_TEST(load) {
  put("bad.lua",
      "local weft = require 'weft'\nreturn weft.plan {\n  mesh = { tpp = 2 },\n"
      "  batch = { global = 8, seq = 16 } }\n");
  put("vars.lua", "local weft = require 'weft'\nreturn weft.plan { model = weft.model "
                  "'llama-tiny', name = weft.vars.NAME, mesh = { tp = weft.vars.TP },"
                  "batch = { global = 8, seq = 16 } }\n");
  lua_run(
      LLAMA
      "prints(p, 'plan llama3-70b-h100x64: pp=4 dp=2 tp=8, 64 ranks, 1f1b')\n"
      "same(p.mesh.tp, 8) same(p.mesh.gpus, 8) same(p.mesh, p.mesh)\n"
      "local bad, why = weft.load(SCRATCH .. 'bad.lua')\n"
      "same(bad, nil) same(#why, 2)\n"
      "says(why, 'bad.lua:2: error: plan.model: this field is required')\n"
      "says(why, 'bad.lua:3: error: plan.mesh.tpp: unknown field (did you mean \"tp\"')\n"
      "same(why[2].path, 'mesh.tpp') same(why[2].line, 3) same(why[2].suggestion, 'tp')\n"
      "same(why[2].severity, 'error') says('x' .. why, 'xfile' and 'unknown field')\n"
      "raises('unknown field', assert, bad, why)\n"
      "local none, why = weft.load(SCRATCH .. 'none.lua')\n"
      "same(none, nil) says(why, 'none.lua: error: cannot be opened')\n"
      "local v = weft.load(SCRATCH .. 'vars.lua', { define = { NAME = 'x', TP = 2 } })\n"
      "prints(v, 'plan x: tp=2, 2 ranks, 1f1b')\n"
      "raises(\"no option 'defin' (did you mean 'define'?)\", weft.load, 'x',\n"
      "  { defin = 1 })\n"
      "raises('written { [', weft.load, 'x', { set = { 'mesh.tp=4' } })\n"
      "raises('\"A\" is a table', weft.load, 'x', { define = { A = {} } })\n"
      "raises('string expected', weft.load, {})\n");
}
END_TEST

/* Numbers of options are the same numbers in the plan, and two that differ are told
 * apart.
 */
START_TEST(numbers) {
  lua_run("local P = PLANS .. 'llama3_70b.lua'\n"
          "local function clip(x)\n"
          "  return assert(weft.load(P, { set = { ['optimizer.clip'] = x } }))\n"
          "end\n"
          "for _, x in ipairs { 1 / 3, 0.1, 2^-40, 1e22, 2.0 } do\n"
          "  same(clip(x).spec.optimizer.clip, x)\n"
          "end\n"
          "local d = clip(1 / 3):diff(clip(1 / 3 + 2^-53))\n"
          "same(d[1].path, 'optimizer.clip') same(d[1].from, '0.33333333333333331')\n"
          "same(clip(0.1):diff(clip(0.25))[1].from, '0.1')\n");
}
END_TEST

/* Those of weft check, of what is compiled: memory, rules of sizing. */
START_TEST(warnings) {
  lua_run(TINY LLAMA
          "same(#p:warnings(), 0) prints(p:warnings(), 'no warnings')\n"
          "local q = assert(p:with { ['mesh.tp'] = 4 })\n"
          "local w = q:warnings()\n"
          "local memory\n"
          "for _, x in ipairs(w) do memory = memory or x.code == 'memory' and x end\n"
          "same(memory.severity, 'warning') same(memory.path, 'cluster')\n"
          "says(w, 'GiB more than the 79.6 GiB of h100-sxm') says(w, '[memory]\\n')\n"
          "same(#q:warnings(), #w) same(q:check(), true)\n"
          "raises('plan:warnings() has no argument', q.warnings, q, 1)\n"
          "local bad = tiny { schedule = function(s) end }\n"
          "raises('plan.schedule: ', bad.warnings, bad)\n");
}
END_TEST

/* One error with all reasons and the lines of the builders. */
START_TEST(wrong_table) {
  lua_run(
      "local ok, e = pcall(function()\n"
      "  return weft.plan {\n"
      "    model = weft.model 'lama3-8b',\n"
      "    batch = { gobal = 3, seq = 16 },\n"
      "    optimizer = weft.adamw {\n"
      "      lr = 'fast' } }\n"
      "end)\n"
      "same(ok, false) same(#e, 3)\n"
      "says(e, 'test:2: error: plan.batch.gobal: unknown field (did you mean \"global')\n"
      "says(e, 'test:3: error: plan.model: there is no model \"lama3-8b\"')\n"
      "says(e, 'test:5: error: plan.optimizer.lr')\n"
      "says(e, '3 errors')\n"
      "raises('weft.plan takes a table, got number', weft.plan, 3)\n"
      "raises('weft.plan takes a table, got nothing', weft.plan)\n");
}
END_TEST

START_TEST(spec_is_a_copy) {
  lua_run(LLAMA "same(p.spec.mesh.tp, 8) same(p.spec.model[1], 'llama3-70b')\n"
                "p.spec.mesh.tp = 3 same(p.spec.mesh.tp, 8)\n"
                "local t = { model = weft.model 'llama-tiny',\n"
                "  batch = { global = 8, seq = 16 }, mesh = { tp = 2 } }\n"
                "local q = weft.plan(t)\n"
                "t.mesh.tp = 4 t.batch = nil\n"
                "same(q.spec.mesh.tp, 2) same(q.mesh.tp, 2) same(q:check(), true)\n"
                /* Builders keep their marks on the way. */
                "local again = weft.plan(p.spec)\n"
                "prints(p:diff(again), 'the same')\n"
                "same(again:memory().peak, p:memory().peak)\n");
}
END_TEST

/* ---- functions ---- */

START_TEST(functions_move) {
  lua_run(TINY "local floor, calls = math.floor, 0\n"
               "local function count() calls = calls + 1 return calls end\n"
               "local function both(s, what, mb) s[what](s, 0, mb) count() end\n"
               "helper = function(n) return floor(n + 0.5) end\n"
               "unused = io.stdout\n"
               "lost = nil\n"
               "local function run(s)\n"
               "  for mb = 0, s.microbatches - 1 do both(s, 'F', mb) end\n"
               "  for mb = 0, helper(s.microbatches - 1) do both(s, 'B', mb) end\n"
               "  assert(count() == calls and calls > s.microbatches)\n"
               "  assert(lib == nil or lib == 1)\n"
               "end\n"
               "local p = tiny { schedule = run }\n"
               "raises(\"unknown global 'lib'\", p.schedule, p)\n"
               "lib = 1\n"
               /* A plan that goes on keeps what it took along, and takes no more. */
               "raises(\"unknown global 'lib'\", p.schedule, weft.plan(p.spec))\n"
               "p = tiny { schedule = run }\n"
               "same(#p:schedule()[1], 8) same(p:schedule()[1][1].op, 'F')\n"
               /* They run in the plan's own state. */
               "same(calls, 0)\n"
               "same(p:with { name = 'x' }:check(), true)\n");
}
END_TEST

START_TEST(models_move) {
  lua_run("local p = assert(weft.load(PLANS .. 'custom_model.lua'))\n"
          "local q = weft.plan(p.spec)\n"
          "prints(p:diff(q), 'the same') same(p:memory().peak, q:memory().peak)\n"
          "local q = p:with { ['mesh.tp'] = 1 }\n"
          "same(q:check(), true) same(q.mesh.world, 4)\n"
          "same(type(p.spec.model[1]), 'function')\n"
          "raises('it runs in plans only', p.spec.model[1])\n"
          "local s = p.spec p:close()\n"
          "raises('a function of a plan that is closed', weft.plan, s)\n");
}
END_TEST

/* Variables that two functions share, recursion, tables with metatables. */
START_TEST(captures) {
  lua_run(TINY "local box = setmetatable({ n = 0 }, { __index = function(t, k)\n"
               "  return k == 'first' and 1 or nil end })\n"
               "box.self = box\n"
               "local n = 0\n"
               "local function up() n = n + 1 end\n"
               "local function down(k) if k > 0 then up() down(k - 1) end end\n"
               "local p = tiny { schedule = function(s)\n"
               "  n = 0 down(3)\n"
               "  assert(n == 3 and box.self.self == box and box.first == 1)\n"
               "  assert(math.type(2^53) == 'float' and string.rep('x', 2) == 'xx')\n"
               "  local w = require 'weft' assert(w == weft and w.model)\n"
               "  for i = 0, s.microbatches - 1 do s:F(0, i) end\n"
               "  for i = 0, s.microbatches - 1 do s:B(0, i) end\n"
               "end }\n"
               "same(p:check(), true) same(n, 0)\n"
               "same(p:with { name = 'x' }:check(), true)\n");
}
END_TEST

START_TEST(what_cannot_move) {
  lua_run(
      TINY
      "local f, co = io.stdout, coroutine.create(print)\n"
      "raises(\"schedule (which uses 'f') is a userdata, which cannot be copied\",\n"
      "  tiny, { schedule = function(s) return f end })\n"
      "raises(\"schedule (which uses 'co') is a coroutine\",\n"
      "  tiny, { schedule = function(s) return co end })\n"
      "local open = io.open\n"
      "raises(\"schedule (which uses 'open') is io.open, which cannot\",\n"
      "  tiny, { schedule = function(s) return open end })\n"
      "raises('name is a userdata', tiny, { name = f })\n"
      "raises(\"name is a table with __gc or __mode\", tiny, { name = setmetatable({},\n"
      "  { __gc = function() end }) })\n"
      "local deep = {} for i = 1, 300 do deep = { deep } end\n"
      "raises('nested too deeply', tiny, { name = deep })\n"
      "same(tiny { schedule = function(s) os.exit(3) end }:check(), nil)\n"
      "local loop = tiny { schedule = function(s) while true do end end }\n"
      "local ok, why = loop:check() says(why, 'stopped after 50000000 instructions')\n"
      "same(why.status, 5)\n");
}
END_TEST

/* print() of a plan is the script's; it may not pull the plan away. */
START_TEST(print_of_a_plan) {
  lua_run(TINY
          "local lines, p = {}, nil\n"
          "function print(s) lines[#lines + 1] = s\n"
          "  if p then raises('in use', p.close, p) raises('in use', p.check, p) end\n"
          "end\n"
          "p = tiny { schedule = function(s) print('rank ' .. s.rank)\n"
          "  error('enough') end }\n"
          "says(select(2, p:check()), 'plan.schedule: enough')\n"
          "same(lines[1], 'rank 0')\n");
}
END_TEST

/* ---- copies ---- */

START_TEST(with) {
  lua_run(
      LLAMA
      "local q, why = p:with { mesh = { world = 64, pp = 4, tp = 6 } }\n"
      "same(q, nil) same(why[1].path, 'mesh.tp') says(why, 'test:2: error: "
      "plan.mesh.tp')\n"
      "local q = p:with { ['mesh.pp'] = 2, ['plan.mesh.tp'] = 4, schedule = 'gpipe' }\n"
      "prints(q, 'plan llama3-70b-h100x64: pp=2 dp=8 tp=4, 64 ranks, gpipe')\n"
      "same(p.mesh.tp, 8) same(q.spec.mesh.pp, 2) same(q.spec.optimizer.clip,\n"
      "  p.spec.optimizer.clip)\n"
      "local d = p:diff(q)\n"
      "same(d[1].path, 'mesh.pp') same(d[1].from, '4') same(d[1].to, '2')\n"
      "says(d, 'schedule: \"1f1b\" -> \"gpipe\"') says(d, '= mesh: pp=4 dp=2 tp=8 -> "
      "pp=2')\n"
      "same(d[#d].figure, true)\n"
      /* What only the compiler finds is a reason, too. */
      "local r, why = p:with { pp_plan = { layers = { 80, 0, 0, 1 } } }\n"
      "same(r, nil) says(why, 'plan.pp_plan.layers')\n"
      "local r, why = p:with { ['batch.global.x'] = 3 }\n"
      "same(r, nil) says(why, 'batch.global is a number, not a table')\n"
      "local r, why = p:with { 'x' } same(r, nil) says(why, 'test:16: error: a change "
      "is')\n"
      "raises('table expected', p.with, p)\n"
      "local long = q:with { name = 'a' }:with { name = 'b' }\n"
      "says(long, 'plan b: pp=2 dp=8 tp=4')\n");
}
END_TEST

/* ---- looking ---- */

START_TEST(match) {
  lua_run(
      LLAMA
      "local m = p:match 'layers.*.mlp.down_proj'\n"
      "same(#m, 80) same(m[1].style, 'rowwise') same(m[1].dim, 2) same(m[1].ways, 8)\n"
      "same(m[1].shape[2], 28672) same(m[1].name, "
      "'model.layers.0.mlp.down_proj.weight')\n"
      "prints(m, 'layers.*.mlp.down_proj.weight                  80 x (8192, 28672)  '\n"
      "  .. 'rowwise, dimension 2 cut by tp=8')\n"
      "same(p:match('norm')[1].dim, nil)\n"
      "same(#p:match(), 80 * 9 + 3)\n"
      "local none = p:match 'layers.*.mlp.down_prj.weight'\n"
      "same(#none, 0) says(none, 'did you mean \"layers.*.mlp.down_proj.weight\"?')\n");
}
END_TEST

START_TEST(shards) {
  lua_run(
      LLAMA
      "local s = p:shards 'model.layers.3.mlp.down_proj.weight'\n"
      "same(#s, 8) same(s[2].first, 3584) same(s[2].count, 3584) same(s[2].dim, 2)\n"
      "same(s[2].elements, 8192 * 3584) same(s[2].ranks[2], 9) same(s[2].padding, 0)\n"
      "says(s, 'tp 1   dimension 2: 3584 to 7167  on 2 ranks: 1, 9')\n"
      "local n = p:shards 'layers.79.input_layernorm'\n"
      "same(#n, 1) same(n[1].dim, nil) same(#n[1].ranks, 16) same(n[1].ranks[1], 48)\n"
      "says(n, 'whole  on 16 ranks: 48, 49, 50, 51, ..., 63')\n"
      "raises('stands for 80 parameters', p.shards, p, 'layers.*.mlp.up_proj')\n"
      "raises('(did you mean \"model.layers.3.mlp.up_proj.weight\"?)', p.shards, p,\n"
      "  'model.layer.3.mlp.up_proj.weight')\n"
      /* What is cut flat on top of that. */
      "local z = p:with { ['strategy.stage'] = 1 }:shards "
      "  'model.layers.3.mlp.down_proj.weight'\n"
      "same(z.flat.axis, 'dp') same(z.flat.ways, 2) same(z[2].elements, 8192 * 3584)\n"
      "same(table.concat(z.flat, ' '), 'master weights optimizer state')\n"
      "local x, y = z[2].pieces[1], z[2].pieces[2]\n"
      "same(x.count + y.count, z[2].elements) same(y.first, x.count) same(y.ranks[1], "
      "9)\n"
      "says(z, 'master weights, optimizer state cut by dp=2')\n"
      /* Every element is somewhere, also where the vocabulary is padded. */
      "local q = weft.plan { model = weft.model { 'llama-tiny', vocab_size = 251 },\n"
      "  mesh = { tp = 4 }, batch = { global = 8, seq = 16 } }\n"
      "local sum, padding = 0, 0\n"
      "for _, x in ipairs(q:shards 'embed_tokens') do sum = sum + x.count\n"
      "  padding = padding + x.padding end\n"
      "same(sum, 251) same(padding, 1)\n");
}
END_TEST

START_TEST(memory) {
  lua_run(LLAMA "local m = p:memory()\n"
                "same(#m, 4) same(m.worst_pp, 0) same(m.peak, m[1].total)\n"
                "for _, stage in ipairs(m) do\n"
                "  local sum = 0\n"
                "  for _, c in ipairs(stage.classes) do sum = sum + c.bytes end\n"
                "  assert(sum <= stage.total and sum > 0.99 * stage.total)\n"
                "end\n"
                "local one = p:memory(63) same(one.pp, 3) same(one.total, m[4].total)\n"
                "says(m, 'by pipeline rank: at most 48.9 GiB, at pp 0 (*)')\n"
                "says(m, 'pp 0 *      pp 1      pp 2      pp 3\\narena  ')\n"
                "local function state(o)\n"
                "  local q, s = p:with { optimizer = weft.sgd(o) }, 0\n"
                "  for _, c in ipairs(q:memory()[1].classes) do\n"
                "    if c.name == 'optimizer state' then s = c.bytes end\n"
                "  end\n"
                "  return s\n"
                "end\n"
                "same(state {}, 0) assert(state { momentum = 0.9 } > 1e9)\n"
                "same(state { post_validation = true }, state { momentum = 0.9 })\n"
                "local many = p:with { mesh = { pp = 16, tp = 4 } }:memory()\n"
                "says(many, '\\npp rank     arena  parameters')\n"
                "says(many, '\\n15    ')\n"
                "says(m, 'optimizer state') says(one, 'memory of rank 63: ')\n"
                "raises('there is no rank 64', p.memory, p, 64)\n");
}
END_TEST

/* Per Llama layer and microbatch, with sequence parallelism: see vm/shard/shard.c. */
START_TEST(comm) {
  lua_run(TINY
          "local function of(p, axis, op, rank)\n"
          "  for _, r in ipairs(p:comm(rank)) do\n"
          "    if r.axis == axis and r.op == op then return r end end\n"
          "end\n"
          "local p = tiny {}\n"
          "same(of(p, 'pp', 'send', 0).count, 4) same(of(p, 'pp', 'recv', 0).count, 4)\n"
          "same(of(p, 'pp', 'send', 0).bytes, 4 * 16 * 128 * 4)\n"
          /* Two layers a stage, 2 all_reduce forward and 2 in I, 4 microbatches. */
          "local a, b = of(p, 'tp', 'all_reduce', 0), of(p, 'tp', 'all_reduce', 7)\n"
          "assert(a.count >= 4 * 2 * 4 and b.count > a.count)\n"
          "same(of(p, 'tp', 'all_reduce').count, b.count)\n"
          "says(p:comm(), 'of the rank with most, each step')\n"
          "says(weft.plan { model = weft.model 'llama-tiny',\n"
          "  batch = { global = 8, seq = 16 } }:comm(), 'no communication')\n");
}
END_TEST

/* Stages add up to the model, and a rank has those of its pipeline rank. */
START_TEST(stages_and_ranks) {
  lua_run(LLAMA
          "local t, work, n, layers = p:stages(), 0, 0, 0\n"
          "for i, s in ipairs(t) do\n"
          "  same(s.stage, i - 1)\n"
          "  work, n, layers = work + s.share, n + s.parameters, layers + s.layers\n"
          "end\n"
          "assert(math.abs(work - 1) < 1e-12) same(layers, 80)\n"
          "same(n, 70553706496)\n"
          "local r = p:rank(13)\n"
          "same(r.memory.total, p:memory(13).total) same(#r.groups, 3)\n"
          "for _, g in ipairs(r.groups) do\n"
          "  local mine = false\n"
          "  for _, m in ipairs(g.ranks) do mine = mine or m == 13 end\n"
          "  assert(mine, g.axis)\n"
          "end\n"
          "for _, s in ipairs(r.stages) do same(s.pp, p.mesh:coord(13).pp) end\n"
          "for _, c in ipairs(p:comm(13)) do\n"
          "  same(c.link, c.axis == 'tp' and 'node' or 'network')\n"
          "end\n"
          "raises('there is no rank', p.rank, p, 64)\n");
}
END_TEST

/* Rank 0's group of three fits into a machine of four, that of ranks 3 to 5 does not;
 * where NVLink joins all machines nothing leaves them. */
START_TEST(links_of_all_groups) {
  lua_run(
      "local function of(domain, rank)\n"
      "  local p = weft.plan { model = weft.model { 'llama', hidden_size = 48,\n"
      "    num_hidden_layers = 1, num_attention_heads = 6, num_key_value_heads = 6,\n"
      "    intermediate_size = 48, vocab_size = 48 }, mesh = { tp = 3, dp = 4 },\n"
      "    cluster = weft.cluster { 'h100-sxm', nodes = 3, gpus = 4, domain = domain },\n"
      "    batch = { global = 4, micro = 1, seq = 6 } }\n"
      "  for _, c in ipairs(p:comm(rank)) do if c.axis == 'tp' then return c.link end "
      "end\n"
      "end\n"
      "same(of(), 'network')\n"
      "same(of(nil, 0), 'node')\n"
      "same(of(nil, 3), 'network')\n"
      "same(of(12), 'node')\n"
      "same(of(12, 3), 'node')\n");
}
END_TEST

START_TEST(program) {
  lua_run(TINY "local p = tiny {}\n"
               "local g = p:program(4)\n"
               "same(g.rank, 4) same(g.pp, 1) same(g.arena_bytes, p:memory(4).total)\n"
               "says(g, 'rank 4 of 8:')\n"
               "local n = { CALL = 0, SEND = 0, RECV = 0 }\n"
               "for i, a in ipairs(g) do\n"
               "  if n[a.op] then n[a.op] = n[a.op] + 1 end\n"
               "  if a.op == 'SEND' then same(a.peer, 0) same(a.bytes, 8192) end\n"
               "end\n"
               "same(n.SEND, 4) same(n.RECV, 4) assert(n.CALL > 16)\n"
               "raises('there is no rank 8', p.program, p, 8)\n"
               "raises('number expected', p.program, p)\n");
}
END_TEST

START_TEST(schedule) {
  lua_run(
      TINY
      "local s = tiny {}:schedule()\n"
      "same(s.name, '1f1b') same(s.ranks, 2) same(s.microbatches, 4) same(#s, 2)\n"
      "same(#s[1], 8) same(s[1][1].op, 'F') same(s[1][1].mb, 0)\n"
      "same(s[2][2].op, 'B') same(s[2][2].stage, 1) same(s[1].peak, 2)\n"
      "assert(math.abs(s.bubble - 0.2) < 1e-9, s.bubble)\n"
      "says(s, 'F0F1') says(s, 'schedule: 1f1b, 2 pipeline ranks, 4 microbatches')\n"
      "local width = 0\n"
      "for line in tostring(tiny {}:schedule { width = 30 }):gmatch '   %d [F.][^\\n]+' "
      "do\n"
      "  width = math.max(width, #line) end\n"
      "assert(width > 0 and width <= 30, width)\n"
      "raises('width must be an integer', tiny {}.schedule, tiny {}, { width = 'x' })\n");
}
END_TEST

/* ---- running ---- */

START_TEST(verify) {
  lua_run(
      TINY
      "local v = tiny {}:verify { steps = 1 }\n"
      "same(v.ok, true) same(v.ranks, 8) same(v.steps, 1) assert(v.grad < 1e-5)\n"
      "says(v, '8 ranks against one, 1 step,') says(v, 'the same (tolerance 1e-05)')\n"
      "local v = tiny {}:verify { steps = 1, tolerance = 1e-30 }\n"
      "same(v.ok, false) says(v, 'DIFFERENT') assert(v.first)\n"
      "raises('tolerance must be', tiny {}.verify, tiny {}, { tolerance = -1 })\n"
      "raises(\"no option 'step' (did you mean 'steps'?)\", tiny {}.verify,\n"
      "  tiny {}, { step = 1 })\n"
      /* The plan stays as it is. */
      "local p = assert(weft.load(PLANS .. 'custom_model.lua'))\n"
      "local before = p:memory().peak\n"
      "same(p:verify { steps = 1, ranks = 4 }.ok, true)\n"
      "same(p:memory().peak, before)\n");
}
END_TEST

START_TEST(run) {
  lua_run(TINY "local p = tiny { train = { steps = 3 } }\n"
               "local r = p:run { threads = 1 }\n"
               "same(#r, 3) same(r[3].step, 2) same(r[1].tokens, 128)\n"
               "assert(r[1].loss > 5 and r[1].loss < 6 and r[3].loss < r[1].loss)\n"
               "says(r, 'tokens/s')\n"
               "local again = p:run { steps = 2, threads = 1 }\n"
               "same(#again, 2) same(again[2].loss, r[2].loss)\n"
               "raises('steps must be an integer from 1', p.run, p, { steps = 0 })\n");
  put("tiny.txt", "01234567890123456789012345678901234567890123456789");
  put("epochs.lua",
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'llama-tiny', data = weft.text 'tiny.txt',\n"
      "  batch = { global = 2, seq = 8 }, train = { epochs = 4 } }\n");
  lua_run("local p = assert(weft.load(SCRATCH .. 'epochs.lua'))\n"
          "same(#p:run { threads = 1 }, 12)\n"); /* 6 windows, four times, by two */
}
END_TEST

/* ---- life ---- */

START_TEST(life) {
  lua_run(TINY "local p = tiny {}\n"
               "p:close() p:close()\n"
               "prints(p, 'plan (closed)') raises('this plan is closed', p.memory, p)\n"
               "raises('this plan is closed', function() return p.mesh end)\n"
               "raises('closed or in use', tiny {}.diff, tiny {}, p)\n"
               "local kept\n"
               "do local q <close> = tiny {} kept = q same(q:check(), true) end\n"
               "prints(kept, 'plan (closed)')\n"
               /* A result outlives its plan. */
               "local m, mesh = tiny {}:memory(), tiny {}.mesh\n"
               "collectgarbage() collectgarbage()\n"
               "says(m, 'memory of each rank') same(mesh:coord(7).tp, 1)\n"
               "raises('with a colon', kept.memory)\n"
               "same(getmetatable(kept), 'weft.plan')\n");
}
END_TEST

/* The collector is told of what Lua does not see: dropped plans do not pile up. */
START_TEST(collected) {
#ifdef __SANITIZE_THREAD__
  puts("skipped: memory is not counted under the thread sanitizer");
  return;
#endif
  lua_run(
      "local p = assert(weft.load(PLANS .. 'llama3_8b.lua'))\n"
      "local function resident()\n"
      "  local f <close> = assert(io.open '/proc/self/statm')\n"
      "  return f:read 'n' and f:read 'n' * 4096\n"
      "end\n"
      "for i = 1, 5 do p:with { name = 'warm' .. i } end\n"
      "local before = resident()\n"
      /* Kept, they would be 430 MiB; the address sanitizer keeps up to 256 of them. */
      "for i = 1, 300 do p:with { name = 'x' .. i } end\n"
      "local grown = (resident() - before) / 2^20\n"
      "assert(grown < 300, grown .. ' MiB')\n");
}
END_TEST

/* Either plan of a comparison may be one that does not compile. */
START_TEST(compared_without_programs) {
  lua_run(LLAMA "local bad = weft.plan { model = weft.model 'llama-tiny',\n"
                "  freeze = { 'nosuch' }, batch = { global = 1, seq = 8 } }\n"
                "for _, d in ipairs { p:diff(bad), bad:diff(p) } do\n"
                "  says(d, 'figures are not compared: a plan does not compile') end\n");
}
END_TEST

/* Every method knows when it is called without its plan, whatever else it is given, and
 * errors name the method that was called. */
START_TEST(wrong_calls) {
  lua_run(
      TINY
      "local p = tiny {}\n"
      "local missing = 'the plan is missing: write plan:method(...)'\n"
      "for _, name in ipairs { 'check', 'close', 'comm', 'diff', 'match', 'memory',\n"
      "    'program', 'rank', 'run', 'schedule', 'shards', 'sim', 'stages', 'verify',\n"
      "    'with' } do\n"
      "  raises(missing, p[name])\n"
      "  for _, x in ipairs { false, 3, {}, 'x' } do\n"
      "    raises(missing, p[name], nil, x) raises(missing, p[name], x)\n"
      "  end\n"
      "end\n"
      "raises(\"weft.plan has no 'self'\", function() return p.self end)\n"
      "raises(\"to 'rank' (number expected, got nil)\", p.rank, p)\n"
      "raises(\"to 'program' (number expected, got nil)\", p.program, p)\n"
      "raises(\"to 'with' (table expected, got nil)\", p.with, p, nil)\n"
      "raises('plan:stages() has no argument, but got a number', p.stages, p, 99)\n"
      "raises('plan:check() has no argument, but got a string', p.check, p, 'x')\n"
      "raises('plan:close() has no argument, but got a table', p.close, p, {})\n"
      "same(p:check(), true)\n");
}
END_TEST

START_TEST(names) {
  lua_run(LLAMA "raises(\"weft.plan has no 'mehs' (did you mean 'mesh'?)\",\n"
                "  function() return p.mehs end)\n"
                "raises(\"weft.plan has no 'shedule' (did you mean 'schedule'?)\",\n"
                "  function() return p:shedule() end)\n"
                "raises('the fields as written are in plan.spec.batch',\n"
                "  function() return p.batch end)\n"
                "raises('write plan:with { name = ... }', function() p.name = 1 end)\n");
}
END_TEST

START_TEST(large) {
  struct timespec a, b;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  lua_run("local p = assert(weft.load(PLANS .. 'llama3_405b_16k.lua'))\n"
          "local g = p:program(5) same(g.pp, 0) assert(#g > 100)\n");
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  printf("# plan_object: 16,384 ranks loaded, compiled and listed in %.0f ms\n",
         1e3 * (double)(b.tv_sec - a.tv_sec) + 1e-6 * (double)(b.tv_nsec - a.tv_nsec));
}
END_TEST

Suite *plan_object_suite(void) {
  Suite *s = suite_create("plan_object");
  TCase *tc = tcase_create("plans");
  tcase_set_timeout(tc, 60);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, load);
  tcase_add_test(tc, numbers);
  tcase_add_test(tc, warnings);
  tcase_add_test(tc, wrong_table);
  tcase_add_test(tc, spec_is_a_copy);
  tcase_add_test(tc, functions_move);
  tcase_add_test(tc, models_move);
  tcase_add_test(tc, captures);
  tcase_add_test(tc, what_cannot_move);
  tcase_add_test(tc, print_of_a_plan);
  tcase_add_test(tc, with);
  tcase_add_test(tc, match);
  tcase_add_test(tc, shards);
  tcase_add_test(tc, memory);
  tcase_add_test(tc, comm);
  tcase_add_test(tc, stages_and_ranks);
  tcase_add_test(tc, program);
  tcase_add_test(tc, schedule);
  tcase_add_test(tc, verify);
  tcase_add_test(tc, run);
  tcase_add_test(tc, life);
  tcase_add_test(tc, links_of_all_groups);
  tcase_add_test(tc, collected);
  tcase_add_test(tc, compared_without_programs);
  tcase_add_test(tc, wrong_calls);
  tcase_add_test(tc, names);
  tcase_add_test(tc, large);
  suite_add_tcase(s, tc);
  return s;
}
