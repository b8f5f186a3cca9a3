/* check_escapes.c - what a script gets from a plan runs nothing of it, and no function
 * that a script can reach does more than raise, whatever it is called with. */
#include <check.h>
#include <string.h>

#include "tests/harness/lua_run.h"
#include "tests/harness/scratch.h"

#define TINY                                                                             \
  "local function tiny(over)\n"                                                          \
  "  local t = { model = weft.model 'llama-tiny', batch = { global = 8, seq = 16 },\n"   \
  "              mesh = { pp = 2, tp = 2, dp = 2 } }\n"                                  \
  "  for k, v in pairs(over or {}) do t[k] = v end\n"                                    \
  "  return weft.plan(t)\n"                                                              \
  "end\n"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

/* ---- fields of a plan ---- */

/* What a script gets from a plan is data: none of the plan's code can run in it. */
START_TEST(nothing_of_a_plan_runs_outside) {
  put("trap.lua",
      "local weft = require 'weft'\n"
      "local function trap() return os.exit(7) end\n"
      "local mt = {}\n"
      "for _, name in ipairs { 'index', 'newindex', 'call', 'tostring', 'len', 'eq',\n"
      "    'lt', 'le', 'concat', 'unm', 'add', 'pairs', 'close', 'name' } do\n"
      "  mt['__' .. name] = trap\n"
      "end\n"
      "local function model(g) return trap end\n"
      "return weft.plan { model = { model, t = setmetatable({}, mt), g = _ENV,\n"
      "    s = string, f = string.format },\n"
      "  batch = setmetatable({ global = 8, seq = 16 }, mt),\n"
      "  name = setmetatable({}, mt) }\n");
  put("trapped.lua",
      "local weft = require 'weft'\n"
      "local function trap() return os.exit(7) end\n"
      "return weft.plan { model = weft.model { trap, x = setmetatable({},\n"
      "    { __tostring = trap, __index = trap, __gc1 = trap }), g = _ENV,\n"
      "    s = string, f = string.format },\n"
      "  batch = { global = 8, seq = 16 } }\n");
  lua_run(
      "local p, why = weft.load(SCRATCH .. 'trap.lua')\n"
      "same(p, nil) says(why, 'plan.name')\n"
      "p = assert(weft.load(SCRATCH .. 'trapped.lua'))\n"
      "local m = p.spec.model\n"
      "same(m.x.y, nil) same(getmetatable(m.x), nil)\n"
      "same(m.g == _G, false) same(next(m.g), nil)\n"
      "same(m.s == string, false) same(m.f == string.format, false)\n"
      "raises('it runs in plans only', m.f, '%d', 3)\n"
      "same(next(m.s), nil)\n"
      "raises('it runs in plans only', m[1])\n"
      "same(weft.plan(p.spec).spec.batch.seq, 16)\n"
      "raises(\"unknown global 'os'\", weft.plan(p.spec).memory, weft.plan(p.spec))\n");
}
END_TEST

/* Lua has no way to ask which globals a function names: names of every length are found
 * in its code. */
START_TEST(names_of_every_length) {
  lua_run(TINY
          "for _, n in ipairs { 1, 2, 30, 39, 40, 41, 62, 63, 64, 126, 127, 128, 200,\n"
          "    300, 20000 } do\n"
          "  local name = ('q'):rep(n)\n"
          "  _G[name] = n\n"
          "  local f = load('local s = ... assert(' .. name .. ' == ' .. n .. ')\\n' ..\n"
          "    \"for mb = 0, s.microbatches - 1 do s:F(0, mb) s:B(0, mb) end\")\n"
          "  same(#tiny { schedule = f }:schedule()[1], 8)\n"
          "  _G[name] = nil\n"
          "end\n");
}
END_TEST

/* ---- every function of every object ---- */

/* The metatables, too: debug.getmetatable reaches them, and their functions check what
 * they are given. */
START_TEST(every_function_with_everything) {
  lua_run(
      TINY
      "local dead = coroutine.create(function() end) coroutine.resume(dead)\n"
      "local wild = setmetatable({ 'dp' }, { __index = function(t, k) return k end,\n"
      "  __len = function() return 7 end, __tostring = function() return 5 end,\n"
      "  __name = {}, __pairs = error, __eq = error, __lt = error })\n"
      "local odd = { false, true, 0, 1, -1, 3, 2^53, math.maxinteger, math.mininteger,\n"
      "  0.5, 0/0, 1/0, '', 'tp', 'layers.*', '%s', ('x'):rep(300), {}, { 1, 2 },\n"
      "  { 'tp', 'dp' }, { tp = 2 }, { steps = 1 }, { text = {} }, { axis = 1 }, wild,\n"
      "  { wild }, { wild, nodes = wild }, rawequal, dead, coroutine.create(type), "
      "io.stdout }\n"
      "local p = tiny { train = { steps = 1 } }\n"
      "local m = p.mesh\n"
      "local found = { p, m, p:memory(), p:comm(), p:schedule(), p:match '*', "
      "p:diff(p),\n"
      "  p:shards 'lm_head.weight', m:coord(0), m:group('tp', 0), m:groups 'tp',\n"
      "  m:neighbors(0), m:slice { tp = 0 }, weft.grid { { 'mesh.tp', 1, 2 } } }\n"
      "local ok, why = weft.load(SCRATCH .. 'none.lua')\n"
      "found[#found + 1] = why\n"
      "for _, v in ipairs(found) do odd[#odd + 1] = v end\n"
      "for _, name in ipairs { 'weft.run', 'weft.textbox', 'weft.arena', 'weft.sweeping' "
      "} do\n"
      "  found[#found + 1] = debug.getregistry()[name]\n"
      "end\n"
      "local functions, seen = {}, {}\n"
      "local function note(t, depth)\n"
      "  if type(t) == 'function' and not seen[t] then\n"
      "    seen[t] = true functions[#functions + 1] = t\n"
      "    for i = 1, 9 do local _, up = debug.getupvalue(t, i) note(up, depth - 1) end\n"
      "  end\n"
      "  if depth < 0 or seen[t] or t == nil then return end\n"
      "  if type(t) == 'table' then\n"
      "    seen[t] = true\n"
      "    for _, v in next, t do note(v, depth - 1) end\n"
      "  end\n"
      "  note(debug.getmetatable(t), depth - 1)\n"
      "end\n"
      "for _, v in ipairs(found) do if type(v) ~= 'string' then note(v, 3) end end\n"
      "local skip = {}\n"
      "for _, f in ipairs { debug.getmetatable(p).__gc, p.close, print, error } do\n"
      "  skip[f] = true end\n"
      "local calls = 0\n"
      "for _, f in ipairs(functions) do\n"
      "  for i = 1, skip[f] and 0 or #odd do\n"
      "    pcall(f, odd[i])\n"
      "    for k = 1, #odd do pcall(f, odd[i], odd[k]) end\n"
      "    pcall(f, odd[i], odd[(i * 7) % #odd + 1], odd[(i * 5) % #odd + 1], wild)\n"
      "    calls = calls + #odd + 2\n"
      "  end\n"
      "end\n"
      "assert(#functions > 40 and calls > 40000, #functions)\n"
      "same(p:check(), true)\n");
}
END_TEST

Suite *escapes_suite(void) {
  Suite *s = suite_create("escapes");
  TCase *tc = tcase_create("escapes");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, nothing_of_a_plan_runs_outside);
  tcase_add_test(tc, names_of_every_length);
  tcase_add_test(tc, every_function_with_everything);
  suite_add_tcase(s, tc);
  return s;
}
