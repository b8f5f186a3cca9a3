/* check_sandbox.c - what a plan may not do: limits on instructions, memory and slow
 * calls, the functions that it reaches, and that it means the same on every run. */
#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "bindings/plan_table/loaded_plan.h"
#include "bindings/sandbox/length.h"
#include "bindings/schedule/schedule_facts.h"
#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

static const Plan *load(const char *text) { return lang_test_good(&t, text); }

static void expect_report(const char *text, const char *report) {
  lang_test_bad(&t, text, report);
}

/* ---- the table library ---- */

/* Positions that stock Lua refuses, and some that it takes. */
START_TEST(positions_of_items) {
  static const struct {
    const char *call;
    bool fine;
  } calls[] = {
      {"table.insert({ 1, 2 }, 4, 0)", false}, {"table.insert({ 1, 2 }, 0, 0)", false},
      {"table.insert({}, 1, 2, 3)", false},    {"table.remove({ 1, 2 }, 4)", false},
      {"table.remove({ 1, 2 }, -1)", false},   {"table.insert({ 1, 2 }, 3, 0)", true},
      {"table.remove({ 1, 2 }, 3)", true},     {"table.remove({}, 0)", true}};
  for (int i = 0; i < LEN(calls); i++) {
    const char *text = arena_printf(
        t.arena, "error(pcall(function() %s end) and 'taken' or 'refused')\n",
        calls[i].call);
    ck_assert_int_eq(lang_test_text(&t, text), WEFT_EPLAN);
    const char *report = lang_test_report(&t, scratch_dir);
    ck_assert_msg(strstr(report, calls[i].fine ? "taken" : "refused"), "%s: %s",
                  calls[i].call, report);
  }
}
END_TEST

/* ---- limits ---- */

static void expect_limit(const char *text, const char *message) {
  weft_status st = lang_test_text(&t, text);
  ck_assert_msg(st == WEFT_ELIMIT, "%d %s%s", st, lang_test_report(&t, scratch_dir),
                t.e.text);
  ck_assert_msg(strstr(t.e.text, message), "%s", t.e.text);
}

START_TEST(instruction_limit) {
  const char *said = "stopped after 100000 instructions";
  t.o.instruction_limit = 100000;
  expect_limit(HEAD "\nwhile true do end", said);
  ck_assert_int_eq(t.e.line, 3);
  expect_limit("while true do pcall(function() while true do end end) end", said);
  expect_limit("pcall(pcall, function() while true do end end)\nreturn {}", said);
  expect_limit("local co = coroutine.create(function() while true do end end)\n"
               "coroutine.resume(co)\nreturn {}",
               said);
  expect_limit("local co = coroutine.wrap(function() while true do end end)\n"
               "pcall(co)\nreturn {}",
               said);
  expect_limit(
      "xpcall(function() while true do end end, function() while true do end end)\n"
      "return {}",
      said);
  expect_limit("local t <close> = setmetatable({}, { __close = function()\n"
               "  while true do end end })\nwhile true do end",
               said);
  expect_limit("for i = 1, 1e9 do local co = coroutine.wrap(function() end); co() end",
               said);
}
END_TEST

START_TEST(memory_limit) {
  const char *said = "more than its limit of 8 MiB";
  t.o.memory_limit = 8 << 20;
  expect_limit("local t = {}\nfor i = 1, 1e9 do t[i] = i end", said);
  expect_limit("local s = ('x'):rep(1e6)\nlocal t = {}\n"
               "for i = 1, 1e6 do t[i] = s .. i end",
               said);
  expect_limit("while true do\n  pcall(function()\n    local t = {}\n"
               "    for i = 1, 1e9 do t[i] = i end\n  end)\nend",
               said);
  expect_limit("pcall(string.rep, 'x', 15e6)\nreturn {}", said);
  /* Memory that is given back is no problem. */
  load("for i = 1, 100 do local s = ('x'):rep(1e6) .. i end\n" HEAD GOOD);
}
END_TEST

/* Work inside of functions in C counts: bytes, and steps. */
START_TEST(slow_library_calls) {
  static const char *const endless[] = {
      "(('a'):rep(24)):find(('.-'):rep(12) .. 'b')",
      "(('a'):rep(1e4)):match('(.-)(.-)(.-)b')",
      "for i = 1, 1e9 do (('('):rep(1e5)):find('%b()') end",
      "for _ in (('a'):rep(2e5)):gmatch('a-b') do end",
      "(('a'):rep(2e5)):gsub('.-b', '')",
      "(''):rep(1e18, '') while true do (('x'):rep(1e6)):upper() end",
      "local s = ('x'):rep(1e6) while true do s = s:reverse() .. '' end",
      "local a, b = ('x'):rep(1e6), ('x'):rep(1e6) while true do local c = a == b end",
      "local s = ('1'):rep(1e6) while true do local n = tonumber(s) end",
      "local s = ('1'):rep(1e6) while true do utf8.len(s) end",
      "while true do string.pack('c1000000', '') end",
      "while true do ('%1000000s'):rep(1) local s = ('%s%s'):format(('x'):rep(1e5), '') "
      "end",
      "table.concat(setmetatable({}, { __index = function() return '' end }), '', 1, "
      "1e15)",
      "table.concat(setmetatable({}, { __len = function() return 1e15 end, __index =\n"
      "  function() return '' end }))",
      "table.move(setmetatable({}, { __index = function() end }), 1, 1e15, 2)",
      "table.move({}, 1, 1e15, 2)",
      "table.insert(setmetatable({}, { __len = function() return 1e15 end }), 1, 1)",
      "table.remove(setmetatable({}, { __len = function() return 1e15 end }), 1)",
      "table.sort(setmetatable({}, { __len = function() return 2e9 end }))",
      "local t = {} for i = 1, 1e5 do t[i] = -i end while true do table.sort(t) end",
      "local t = {} for i = 1, 1e5 do t[i] = i end while true do pairs(t) end",
      "for i = 1, 1e9 do coroutine.wrap(function() for j = 1, 20 do end end)() end",
  };
  t.o.instruction_limit = 1000000;
  for (int i = 0; i < LEN(endless); i++)
    expect_limit(arena_printf(t.arena, "%s\nreturn {}", endless[i]),
                 "stopped after 1000000 instructions");
  expect_report("local s = ('a'):rep(1e9)", "plan.lua:1: error: string.rep: the result "
                                            "would have more than 16 MiB\n1 error\n");
}
END_TEST

/* What few instructions can take long with: a count does not end it. */
START_TEST(slow_instructions) {
  /* Keys that all fall on one place of a table of 2^k. */
  static const char chain[] = "local function chain(k, n)\n"
                              "  local t, step = {}, (1 << k) - 1\n"
                              "  for i = 1, n or 1 << k - 1 do t[i * step] = true end\n"
                              "  return t, step\n"
                              "end\n";
  static const char *const endless[] = {
      "local t = {} for i = 1, 1990 do t = setmetatable({}, { __index = t }) end\n"
      "while true do local x = t.x end",
      "local t, step = chain(14) for i = 1, 1e9 do t[-i * step] = nil local x = t[-i * "
      "step] "
      "end",
      "local t, step = chain(14, 1e4) while true do local x = t[step] end",
      "local t = {} for i = 1, 2e5 do t['k' .. i] = i end\n"
      "for i = 1, 2e5 do t['k' .. i] = nil end while true do pairs(t) end",
      "local t = chain(14, 1e4) while true do pairs(t) end",
      "while true do local t, step = chain(14) t[step * 1e4 // 1 | 0] = true end",
      "while true do for i = 1, 20 do chain(13, 5e3) end end",
  };
  t.o.instruction_limit = (int64_t)1e12;
  t.o.cpu_limit = 0.2;
  for (int i = 0; i < LEN(endless); i++) {
    clock_t begin = clock();
    expect_limit(arena_printf(t.arena, "%s%s", chain, endless[i]),
                 "the plan was stopped after 0.2 seconds of CPU time");
    double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
    ck_assert_msg(took < 10, "%g s: %s", took, endless[i]);
  }
}
END_TEST

typedef struct Chained {
  int table; /* registry reference */
  void (*read)(lua_State *L);
} Chained;

/* 2e4 keys on one place. */
static void make_chain(lua_State *L, void *ud) {
  lua_newtable(L);
  for (lua_Integer i = 1; i <= 20000; i++) {
    lua_pushboolean(L, 1);
    lua_rawseti(L, -2, i * ((1 << 15) - 1));
  }
  ((Chained *)ud)->table = luaL_ref(L, LUA_REGISTRYINDEX);
}

static void read_chain(lua_State *L, void *ud) {
  Chained *c = ud;
  lua_rawgeti(L, LUA_REGISTRYINDEX, c->table);
  c->read(L);
}

static void measure(lua_State *L) { list_length(L, -1); }
static void sort(lua_State *L) { sorted_keys(L, -1); }

/* What reads the tables of a plan in C ends as well. */
START_TEST(slow_tables) {
  void (*const readers[])(lua_State * L) = {measure, sort};
  for (int i = 0; i < LEN(readers); i++) {
    LangState *s;
    LangOptions o = {0};
    Chained c = {.read = readers[i]};
    err_clear(&t.e);
    ck_assert_int_eq(plan_state_new(&o, t.arena, "plan.lua", "", NULL, &s, &t.e),
                     WEFT_OK);
    ck_assert_int_eq(state_protect(s, make_chain, &c, &t.e), WEFT_OK);
    o.cpu_limit = 0.02;
    ck_assert_int_eq(state_protect(s, read_chain, &c, &t.e), WEFT_ELIMIT);
    ck_assert_msg(strstr(t.e.text, "after 0.02 seconds of CPU time"), "%s", t.e.text);
    state_free(s);
  }
}
END_TEST

/* A table that grows moves all keys in one instruction, which takes minutes where they
 * fall on one place. */
START_TEST(too_many_keys) {
  const char *said = "a table of more than 262144 keys besides its list";
  t.o.instruction_limit = (int64_t)1e9;
  expect_limit("local t = {} for i = 1, 1 << 19 do t[i * ((1 << 20) - 1)] = true end",
               said);
  expect_limit("local t = {} for i = 1, 3e5 do pcall(function() t[-i] = true end) end",
               said);
  load("local t = {} for i = 1, 1 << 18 do t[-i] = true end\n"
       "local l = {} for i = 1, 1e6 do l[i] = i end\n" HEAD GOOD);
}
END_TEST

/* The compiler compares each label with all of its function. */
START_TEST(slow_to_compile) {
  Text text = {0};
  for (int i = 0; i < 120000; i++) text_printf(&text, "::a%d:: do end ", i);
  t.o.cpu_limit = 0.2;
  expect_limit(text.s, "the plan was stopped after 0.2 seconds of CPU time");
  text_free(&text);
}
END_TEST

/* Patterns of everyday use may be long, and so may lists. */
START_TEST(quick_library_calls) {
  load(HEAD "assert((' a=1 '):match('^%s*(.-)%s*$') == 'a=1')\n"
            "assert(#((' '):rep(1000) .. 'x'):match('^%s*(.-)%s*$') == 1)\n"
            "assert(('a.b'):find('.', 1, true) == 2)\n"
            "assert(('x,y'):gsub(',', ';') == 'x;y')\n"
            "local t = {}\nfor i = 1, 1e5 do t[i] = (i * 7919) % 100003 end\n"
            "table.sort(t)\n"
            "for i = 2, #t do assert(t[i - 1] <= t[i]) end\n"
            "assert(#table.concat(t, ' ') > 5e5)\n" GOOD);
}
END_TEST

START_TEST(interrupted) {
  static StopFlag stop = 1;
  t.o.stop = &stop;
  ck_assert_int_eq(lang_test_text(&t, "while true do pcall(error) end"), WEFT_EINTR);
}
END_TEST

/* ---- the sandbox ---- */

static const char allowed[] =
    " assert error getmetatable ipairs pairs pcall print rawequal rawget rawlen require"
    " select setmetatable tonumber tostring type xpcall"
    " coroutine.close coroutine.create coroutine.isyieldable coroutine.resume"
    " coroutine.running coroutine.status coroutine.wrap coroutine.yield"
    " math.abs math.acos math.asin math.atan math.ceil math.cos math.deg math.exp "
    "math.floor"
    " math.fmod math.log math.max math.min math.modf math.rad math.random math.randomseed"
    " math.sin math.sqrt math.tan math.tointeger math.type math.ult"
    " string.byte string.char string.find string.format string.gmatch string.gsub "
    "string.len"
    " string.lower string.match string.pack string.packsize string.rep string.reverse"
    " string.sub string.unpack string.upper"
    " table.concat table.insert table.move table.pack table.remove table.sort "
    "table.unpack"
    " utf8.char utf8.codepoint utf8.codes utf8.len utf8.offset ";

typedef struct Walk {
  int functions;
  char unknown[256];
} Walk;

/* Every function below the table on top must be on the list. */
static void walk(lua_State *L, Walk *w, const char *prefix, int depth) {
  ck_assert_int_lt(depth, 5);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    char name[128], word[136];
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
    if (lua_istable(L, -1) && lua_getmetatable(L, -1)) {
      /* A library behind an empty table. */
      ck_assert_int_eq(lua_getfield(L, -1, "__index"), LUA_TTABLE);
      walk(L, w, name, depth + 1);
      lua_pop(L, 2);
      continue;
    }
    if (lua_istable(L, -1)) walk(L, w, name, depth + 1);
    if (!lua_isfunction(L, -1)) continue;
    w->functions++;
    snprintf(word, sizeof word, " %s ", name);
    if (!strstr(allowed, word)) snprintf(w->unknown, sizeof w->unknown, "%s", name);
  }
}

static void walk_job(lua_State *L, void *ud) {
  Walk *w = ud;
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  ck_assert(lua_getmetatable(L, -1));
  ck_assert_int_eq(lua_getfield(L, -1, "__index"), LUA_TFUNCTION);
  ck_assert_str_eq(lua_getupvalue(L, -1, 1), "");
  walk(L, w, "", 0);
  /* Methods of texts are the same table, which cannot be reached as a metatable. */
  lua_getfield(L, -1, "string");
  ck_assert(lua_getmetatable(L, -1));
  lua_getfield(L, -1, "__index");
  lua_pushliteral(L, "");
  ck_assert(lua_getmetatable(L, -1));
  lua_getfield(L, -1, "__index");
  ck_assert(lua_rawequal(L, -1, -4));
}

START_TEST(every_reachable_function) {
  LangOptions o = {0};
  LangState *s;
  Walk w = {0};
  ck_assert_int_eq(plan_state_new(&o, t.arena, "plan.lua", "", NULL, &s, &t.e), WEFT_OK);
  weft_status st = state_protect(s, walk_job, &w, &t.e);
  ck_assert_msg(st == WEFT_OK, "%s", t.e.text);
  ck_assert_str_eq(w.unknown, "");
  int words = -1;
  for (const char *p = allowed; *p; p++) words += *p == ' ';
  ck_assert_int_eq(w.functions, words);
  state_free(s);
}
END_TEST

START_TEST(sandbox_rules) {
  load(HEAD
       "for _, name in ipairs { 'os', 'io', 'debug', 'load', 'loadfile', 'dofile',\n"
       "    'collectgarbage', 'package', 'next', 'rawset', '_G', 'warn' } do\n"
       "  assert(not pcall(function() return _ENV[name] end), name)\n"
       "end\n"
       "assert(not pcall(function() string = nil end))\n"
       "assert(not pcall(function() weft.plan = nil end))\n"
       "assert(getmetatable('') == 'string' and getmetatable(_ENV) == 'globals')\n"
       "assert(not pcall(function() string.format = nil end))\n"
       "assert(getmetatable(string) == 'string' and #string == 0)\n"
       "for k, v in pairs(string) do assert(string[k] == v) end\n"
       /* What a plan gets of the library is its own. */
       "local lib = require 'weft.models.llama'\n"
       "assert(lib == require 'weft.models.llama')\n"
       "lib.build = 3 lib.defaults = setmetatable({}, { __index = error })\n"
       "require('weft.schedules.1f1b').run = nil\n"
       "assert(not pcall(setmetatable, {}, { __gc = print }))\n"
       "assert(not pcall(setmetatable, {}, { __mode = 'k' }))\n"
       "assert(tostring({}) == 'table' and tostring(print) == 'function')\n"
       "assert(('%s %d'):format({}, 3) == 'table 3')\n"
       "for _, f in ipairs { '%p', 'a\\0%p', '%%\\0%5p', '%\\0%p', '%d\\0\\0%-9p' } do\n"
       "  local ok, why = pcall(string.format, f, {}, {})\n"
       "  assert(not ok and why:find '%%p is not available', why)\n"
       "end\n"
       "assert(('\\0%%p%s\\0'):format('p') == '\\0%pp\\0')\n"
       "assert(string.dump == nil)\n"
       "assert(not pcall(math.randomseed))\n" GOOD);
}
END_TEST

/* Whether something is collected may not show. */
START_TEST(no_weak_tables) {
  const char *said =
      "%s: error: a metatable got __mode: weak tables are not available in "
      "a plan\n1 error\n";
  static const struct {
    const char *text, *place;
  } weak[] = {
      {"local m = {}\nlocal t = setmetatable({}, m)\nm.__mode = 'k'\n" HEAD GOOD,
       "plan.lua"},
      {"local m = {}\nlocal t = setmetatable({}, m)\nm['__mo' .. 'de'] = 'v'\n"
       "for i = 1, 1e9 do t[1] = { i } if not t[1] then error 'gone' end end",
       "plan.lua:4"},
      {"local m = {}\nlocal t = setmetatable({}, m)\nm.__mode = 'v'\nwhile true do\n"
       "pcall(function() for i = 1, 1e9 do t[1] = { i } end end) end",
       "plan.lua:5"},
  };
  for (int i = 0; i < LEN(weak); i++)
    expect_report(weak[i].text, arena_printf(t.arena, said, weak[i].place));
  /* One that is taken back never was: nothing is lost in between. */
  load("local m = {}\nlocal t = setmetatable({ {} }, m)\nm.__mode = 'v'\n"
       "m.__mode = nil\nfor i = 1, 1e5 do local x = { i } end\nassert(t[1])\n" HEAD GOOD);
  /* Where memory runs out Lua collects by itself. */
  t.o.memory_limit = 4 << 20;
  int noticed = 0;
  for (int size = 400; size < 2000; size += 50) {
    const char *text = arena_printf(
        t.arena,
        "local m = {}\nlocal t = setmetatable({}, m)\nfor i = 1, 1e4 do t[i] = {} end\n"
        "m.__mode = 'v'\nlocal s = ('x'):rep(%d000) m.__mode = nil\n"
        "for i = 1, 1e4 do assert(t[i], 'lost') end\n" HEAD GOOD,
        size);
    weft_status st = lang_test_text(&t, text);
    const char *report = lang_test_report(&t, scratch_dir);
    bool weak_table =
        st == WEFT_EPLAN && strstr(report, "plan.lua:5: error: a metatable");
    noticed += weak_table;
    ck_assert_msg(weak_table || st == WEFT_ELIMIT || st == WEFT_OK, "%s", report);
  }
  ck_assert_int_gt(noticed, 0);
  t.o.memory_limit = 0;
  /* Finalizers are noticed where the metatable is given, or never run. */
  load("local m, ran = {}, 0\nfor i = 1, 1e5 do setmetatable({}, m) end\n"
       "m.__gc = function() ran = ran + 1 end\n"
       "for i = 1, 1e5 do local x = { i } end\nassert(ran == 0)\n"
       "assert(not pcall(setmetatable, {}, m))\n" HEAD GOOD);
}
END_TEST

START_TEST(pairs_are_sorted) {
  load(
      HEAD
      "local t = { b = 1, a = 2, [3] = 3, [1] = 4, [2.5] = 5, [true] = 6, [false] = 7 }\n"
      "local s = {}\n"
      "for k, v in pairs(t) do s[#s + 1] = tostring(k) .. v end\n"
      "assert(table.concat(s, ' ') == '14 2.55 33 a2 b1 false7 true6')\n"
      "for k in pairs(t) do t[k] = nil end\n"
      "assert(not pcall(pairs, { [{}] = 1 }))\n"
      "local p = setmetatable({}, { __pairs = function() return function(_, k)\n"
      "  if not k then return 1, 2 end end end })\n"
      "for k, v in pairs(p) do assert(k == 1 and v == 2) end\n" GOOD);
}
END_TEST

START_TEST(the_same_twice) {
  const char *text = HEAD "local s = {}\nfor i = 1, 5 do s[i] = math.random(1000) end\n"
                          "print(table.concat(s, ' '))\n" GOOD;
  load(text);
  char first[512];
  strcpy(first, t.printed);
  ck_assert(strlen(first) > 9);
  t.printed[0] = 0;
  load(text);
  ck_assert_str_eq(first, t.printed);
}
END_TEST

START_TEST(print_says_it_once) {
  /* Looking for lines evaluates the plan again, silently. */
  ck_assert_int_eq(lang_test_text(&t, HEAD "print('hello', 1, {})\nreturn weft.plan {}"),
                   WEFT_EPLAN);
  ck_assert_str_eq(t.printed, "hello\t1\ttable\n");
}
END_TEST

START_TEST(require_modules) {
  char lib[96];
  snprintf(lib, sizeof lib, "%s/lib", scratch_dir);
  ck_assert_int_eq(mkdir(lib, 0755), 0);
  lang_test_file("lib/a.lua", "local b = require 'lib.b'\nreturn { n = b.n + 1 }");
  lang_test_file("lib/b.lua", "return { n = 41, name = ... }");
  load(HEAD "assert(require('lib.a').n == 42 and require 'lib/a' == require 'lib/a')\n"
            "assert(require('lib.b').name == 'lib.b')\n"
            "assert(require 'weft' == weft)\n"
            "assert(type(require 'weft.models.llama') == 'table')\n" GOOD);
  expect_report("require '../etc/passwd'",
                "plan.lua:1: error: require \"../etc/passwd\": a module is \"weft\" or a "
                "name like \"folder.file\" below the plan's folder\n1 error\n");
  lang_test_file("lib/c.lua", "return require 'lib.c'");
  expect_report("require 'lib.c'", "lib/c.lua:1: error: require \"lib.c\": the module "
                                   "requires itself\n1 error\n");
  lang_test_file("lib/e.lua", "return error 'no'");
  load(HEAD "local function why() return select(2, pcall(require, 'lib.e')) end\n"
            "local first = why()\nassert(first:find 'lib/e.lua:1: no', first)\n"
            "assert(why() == first, why())\n" GOOD);
  lang_test_file("lib/d.lua", "local x =\n\nend");
  expect_report("require 'lib.d'",
                "lib/d.lua:3: error: unexpected symbol near 'end'\n1 error\n");
}
END_TEST

START_TEST(mark_of_utf8) {
  load("\xEF\xBB\xBF" HEAD GOOD);
  load("\xEF\xBB\xBF#!/usr/bin/env weft\n" HEAD GOOD);
}
END_TEST

/* Nobody writes into the pipe: reading it would wait for ever. */
START_TEST(only_regular_files) {
  ck_assert_int_eq(mkfifo(scratch_path("pipe.lua"), 0600), 0);
  ck_assert_int_eq(lang_test_path(&t, scratch_path("pipe.lua")), WEFT_EFILE);
  ck_assert_int_eq(lang_test_text(&t, "require 'pipe'"), WEFT_EPLAN);
  ck_assert_ptr_nonnull(strstr(t.d.list.at[0].summary, "is a pipe"));
}
END_TEST

/* A schedule of the library that is large does not count against the limit of plans. */
START_TEST(large_schedules) {
  const Plan *p = load(HEAD "return weft.plan { model = weft.model { 'llama-tiny', "
                            "num_hidden_layers = 256 }, mesh = { pp = 128 }, schedule = "
                            "'v_half', batch = { global = 128, micro = 1, seq = 16 } }");
  Mesh m;
  Schedule s;
  ck_assert(mesh_resolve(&p->mesh, 0, &m, &t.d));
  weft_status st = lang_schedule(t.lp, &m, 128, &s, &t.d, &t.e);
  ck_assert_msg(st == WEFT_OK, "%s", t.e.text);
  ck_assert_int_eq(s.n[127], 6 * 128);
}
END_TEST

START_TEST(links_may_not_leave) {
  const char *link = arena_printf(t.arena, "ln -s /etc %s/out", scratch_dir);
  ck_assert_int_eq(system(link), 0);
  ck_assert_int_eq(lang_test_text(&t, "require 'out.passwd'"), WEFT_EPLAN);
  ck_assert(strstr(t.d.list.at[0].summary, "below the plan's folder"));
}
END_TEST

/* ---- memory of the host ---- */

/* scratch_alloc refuses to shrink blocks too, which Lua does not expect. */
static void *grudging(void *ud, void *p, size_t old, size_t n) {
  ScratchMeter *m = ud;
  if (p && n > 0 && n <= old) m->left++;
  return scratch_alloc(ud, p, old, n);
}

/* Whatever allocation fails, the result is an error and nothing is lost. */
START_TEST(allocations_fail) {
  static ScratchMeter meter;
  static weft_alloc a = {grudging, &meter};
  t.o.alloc = &a;
  lang_test_file("plan.lua", HEAD GOOD);
  const char *path = scratch_path("plan.lua");
  int failed = 0;
  weft_status st = WEFT_ENOMEM;
  for (long n = 0; n < 100000 && st != WEFT_OK; n += 1 + n / 16) {
    meter.left = (int)n;
    st = lang_test_path(&t, path);
    ck_assert_msg(st == WEFT_OK || st == WEFT_ENOMEM, "%ld: %d %s%s", n, st, t.e.text,
                  lang_test_report(&t, ""));
    failed += st != WEFT_OK;
    if (st != WEFT_OK) ck_assert_int_eq(meter.held, 0);
  }
  ck_assert_int_eq(st, WEFT_OK);
  ck_assert_int_gt(failed, 20);
}
END_TEST

Suite *sandbox_suite(void) {
  const struct {
    const char *name;
    const TTest *tests[24];
  } group[] = {
      {"limits",
       {positions_of_items, instruction_limit, memory_limit, slow_library_calls,
        quick_library_calls, slow_instructions, slow_tables, too_many_keys,
        slow_to_compile, interrupted}},
      {"globals",
       {every_reachable_function, sandbox_rules, no_weak_tables, pairs_are_sorted,
        the_same_twice, print_says_it_once, require_modules, mark_of_utf8,
        only_regular_files, large_schedules, links_may_not_leave}},
      {"memory", {allocations_fail}},
  };
  Suite *s = suite_create("sandbox");
  for (int i = 0; i < LEN(group); i++) {
    TCase *c = tcase_create(group[i].name);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    for (int k = 0; group[i].tests[k]; k++) tcase_add_test(c, group[i].tests[k]);
    suite_add_tcase(s, c);
  }
  return s;
}
