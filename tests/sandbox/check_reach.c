/* check_reach.c - what a plan can reach: each function, and what those give, is called
 * with every kind of value; nothing crashes, and no address or order of the process
 * shows. */
#include <check.h>

#include "tests/harness/lang_fixture.h"
#include "tests/generate/hostile_plan.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

/* Values and functions: V, F. */
static const char values[] =
    "local weft = require 'weft'\n"
    "local V = { false, true, 0, 1, -1, 3, 2^53, math.maxinteger, math.mininteger, 0.5,\n"
    "  0/0, 1/0, '', 'a', '%d', '(.-)%1', '[', ('x'):rep(300), '\\0\\255', 'name', "
    "'weft',\n"
    "  'weft.models.llama', {}, { 1, 2, 3 }, { a = 1 }, { [{}] = 1 }, { 'x', name = {} } "
    "}\n"
    "local dead = coroutine.create(function() end) coroutine.resume(dead)\n"
    "for _, v in ipairs { coroutine.running(), dead, coroutine.create(print), string, "
    "_ENV,\n"
    "  weft } do V[#V + 1] = v end\n"
    "for _, v in ipairs { 5, 'n', false, {}, print, error, function() return 50 end,\n"
    "  function(t, k) return k end, function(t) return t end, function() return nil end "
    "} do\n"
    "  local m = {}\n"
    "  for _, k in ipairs { 'index', 'newindex', 'call', 'len', 'eq', 'lt', 'concat', "
    "'name',\n"
    "    'tostring', 'pairs', 'close', 'metatable' } do m['__' .. k] = v end\n"
    "  m.__index = #V % 2 == 0 and v or nil\n"
    "  V[#V + 1] = setmetatable({ 1, 2, x = 3 }, m)\n"
    "end\n"
    "local F, seen = {}, {}\n"
    "local function note(f)\n"
    "  if type(f) == 'function' and #F < 400 then F[#F + 1] = f end\n"
    "end\n"
    "for _, t in ipairs { string, table, math, utf8, coroutine } do\n"
    "  for _, f in pairs(t) do note(f) end\n"
    "end\n"
    "for _, f in ipairs { assert, error, getmetatable, ipairs, pairs, pcall, print, "
    "rawequal,\n"
    "  rawget, rawlen, require, select, setmetatable, tonumber, tostring, type, xpcall,\n"
    "  weft.plan, weft.model, weft.hf, weft.cluster, weft.adamw, weft.cosine, "
    "weft.linear,\n"
    "  weft.constant, weft.text, weft.tokens, weft.synthetic, weft.at_most, "
    "weft.at_least,\n"
    "  weft.between, weft.schedule_csv, weft.tp_plan, weft.extend } do note(f) end\n";

START_TEST(every_function_with_everything) {
  const char *calls = "local calls, known = 0, #F\n"
                      "local function try(f, ...)\n"
                      "  local r = table.pack(pcall(f, ...))\n"
                      "  calls = calls + 1\n"
                      "  for i = 2, math.min(r.n, 5) do\n"
                      "    if calls % 7 == 0 then note(r[i]) end\n"
                      "    local ok, s = pcall(tostring, r[i])\n"
                      "    assert(not ok or not s:find '0x%x%x%x%x%x', s)\n"
                      "  end\n"
                      "end\n"
                      "local i = 0\n"
                      "while i < #F do\n"
                      "  i = i + 1\n"
                      "  try(F[i])\n"
                      "  for a = 1, #V do\n"
                      "    try(F[i], V[a])\n"
                      "    for b = 1 + a % 3, #V, 3 do try(F[i], V[a], V[b]) end\n"
                      "    try(F[i], V[a], nil, V[(a * 7) % #V + 1])\n"
                      "  end\n"
                      "end\n"
                      "assert(#F > known and calls > 50000, calls)\n";
  t.o.instruction_limit = (int64_t)4e9;
  lang_test_good(&t, arena_printf(t.arena, "%s%s%s", values, calls, GOOD));
}
END_TEST

/* Each of these crashed, or showed an address. */
START_TEST(once_broken) {
  lang_test_good(&t, HEAD
                 "local n, t = pairs { a = 1 }\n"
                 "assert(n(nil) == 'a' and n(5) == nil)\n"
                 "for _, bad in ipairs { nil, 1, 'x', print } do pcall(pairs { a = 1 }, "
                 "bad, bad) end\n"
                 "print(setmetatable({}, { __name = 5 }), setmetatable({}, { __name = {} "
                 "}), 'end')\n"
                 "assert(tostring(setmetatable({}, { __name = 'mine' })) == 'mine')\n"
                 "assert(#('%s'):rep(3):format({}, print, coroutine.running()) > 0)\n"
                 "for _, m in ipairs { false, 0 } do pcall(getmetatable, m) end\n" GOOD);
  ck_assert_str_eq(t.printed, "table\ttable\tend\n");
  /* Metamethods do not run while fields are read. */
  ck_assert_int_eq(
      lang_test_text(&t,
                     HEAD "return weft.plan { model = weft.model 'llama-tiny', batch = {"
                          " global = 8,\n  seq = 16 }, packed = _ENV }\n"),
      WEFT_EPLAN);
  ck_assert_str_eq(t.d.list.at[0].path, "packed");
}
END_TEST

/* Neither the clock nor an address decides how a list is sorted, even by a function that
 * is no order. */
START_TEST(sorted_alike) {
  const char *text = HEAD
      "local t, k = {}, 7\n"
      "for i = 1, 300 do t[i] = { k = i % 5, i = i } end\n"
      "table.sort(t, function(a, b) return a.k < b.k end)\n"
      "for i = 2, #t do\n"
      "  local a, b = t[i - 1], t[i]\n"
      "  assert(a.k < b.k or a.k == b.k and a.i < b.i)\n"
      "end\n"
      "table.sort(t, function(a, b) k = k * 1103515245 + 12345 return k >> 16 & 1 == 0\n"
      "end)\n"
      "local s = 0\n"
      "for i = 1, #t do s = (s * 31 + t[i].i) % 1000003 end\n"
      "print(s)\n" GOOD;
  char first[512];
  lang_test_good(&t, text);
  strcpy(first, t.printed);
  t.printed[0] = 0;
  lang_test_good(&t, text);
  ck_assert_str_eq(t.printed, first);
}
END_TEST

/* A sample of ./dev fuzz-plans. */
START_TEST(strange_plans) {
  t.o.instruction_limit = 300000;
  t.o.memory_limit = 64 << 20;
  for (uint64_t i = 0; i < 80; i++) {
    Text text = {0};
    strange_plan(1, i, &text);
    weft_status st = lang_test_text(&t, text.s);
    text_free(&text);
    ck_assert_msg(st != WEFT_EINTERNAL && st != WEFT_ENOMEM, "plan %d: %s", (int)i,
                  t.e.text);
  }
}
END_TEST

Suite *reach_suite(void) {
  Suite *s = suite_create("reach");
  TCase *c = tcase_create("reach");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, every_function_with_everything);
  tcase_add_test(c, once_broken);
  tcase_add_test(c, sorted_alike);
  tcase_add_test(c, strange_plans);
  suite_add_tcase(s, c);
  return s;
}
