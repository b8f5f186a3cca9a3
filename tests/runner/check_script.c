/* check_script.c - full Lua states: weft lua from outside, interruption, the table weft,
 * texts of errors. */
#include <check.h>
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdlib.h>

#include "bindings/script/api_doc.h"
#include "bindings/runner/runner.h"
#include "tests/harness/lua_run.h"
#include "tests/harness/process.h"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

/* Runs `weft lua ARGS` in the scratch folder. */
static Outcome run(const char *args) {
  Process p = process_start(20, "$weft lua %s", args);
  return process_end(&p);
}

static void expect(const char *args, int code, const char *in_out, const char *in_err) {
  Outcome o = run(args);
  ck_assert_msg(o.code == code, "weft lua %s: exit %d\n%s%s", args, o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, in_out) && (*in_out || !*o.out), "weft lua %s: stdout:\n%s",
                args, o.out);
  ck_assert_msg(strstr(o.err, in_err) && (*in_err || !*o.err), "weft lua %s: stderr:\n%s",
                args, o.err);
}

START_TEST(arguments) {
  put("a.lua",
      "#!/usr/bin/env weft-lua\n"
      "print(arg[-1], arg[0], arg[1], #arg, ...)\n"
      "print(io.write ~= nil, os.getenv ~= nil, debug.sethook ~= nil, load ~= nil)\n"
      "print(weft, require 'weft' == require 'weft')\n");
  expect("a.lua x --json '' -D", 0, "weft lua\ta.lua\tx\t4\tx\t--json\t\t-D\n", "");
  expect("a.lua", 0, "weft lua\ta.lua\tnil\t0\ntrue\ttrue\ttrue\ttrue\nnil\ttrue\n", "");
  expect("-- a.lua --help", 0, "\t--help\n", "");
  expect("--help", 0, "usage: weft lua SCRIPT.lua [args]", "");
  expect("- y <a.lua", 0, "weft lua\t-\ty\t1\ty\n", "");
  expect("", 2, "", "weft: lua needs a script");
  expect("--frobnicate a.lua", 2, "", "lua has no option --frobnicate");
}
END_TEST

START_TEST(exit_codes) {
  put("raise.lua", "local function f()\n  error 'boom'\nend\nf()\n");
  expect("raise.lua", 1, "", "weft: raise.lua:2: boom\n  stack traceback:\n    ");
  expect("raise.lua", 1, "", "raise.lua:4: in main chunk");
  put("syntax.lua", "x = = 1\n");
  expect("syntax.lua", 1, "", "weft: syntax.lua:1: unexpected symbol near '='\n");
  put("object.lua",
      "error(setmetatable({}, { __tostring = function() return 'mine' end }))");
  expect("object.lua", 1, "", "weft: mine\n  stack traceback:\n");
  put("table.lua", "error {}\n");
  expect("table.lua", 1, "", "weft: (error object is a table value)\n");
  /* What the library refuses is told by the script's lines, without its own. */
  put("two.lua", "local weft = require 'weft'\nlocal function f()\n"
                 "  local r = weft.grid {}\n  return r\nend\nlocal r = f()\n");
  expect("two.lua", 1, "",
         "{ { \"mesh.tp\", 1, 2 } }\n  stack traceback:\n    two.lua:3: in local "
         "'f'\n    two.lua:6: in main chunk\n");
  put("one.lua", "local r = require 'weft'.grid {}\n");
  expect("one.lua", 1, "", "weft: one.lua:1: the grid has no axes");
  expect("one.lua", 1, "", "{ { \"mesh.tp\", 1, 2 } }\n");
  put("exit.lua", "io.write 'gone' os.exit(7)\n");
  expect("exit.lua", 7, "gone", "");
  expect("none.lua", 2, "",
         "weft: none.lua cannot be opened: No such file or directory\n");
  expect(".", 2, "", "weft: . ");
}
END_TEST

/* The status of a plan's error becomes the exit code. */
START_TEST(exit_codes_of_plans) {
  put("bad.lua", "local weft = require 'weft'\n"
                 "weft.plan { model = weft.model 'llama-tiny',\n"
                 "            batch = { gobal = 8, seq = 16 } }\n");
  expect("bad.lua", 1, "",
         "weft: bad.lua:2: error: plan.batch.gobal: unknown field (did you mean "
         "\"global\"?) [unknown-field]\n  1 error\n  stack traceback:\n");
  put("file.lua", "assert(require 'weft'.load 'none.lua')\n");
  expect("file.lua", 2, "", "weft: none.lua: error: cannot be opened");
  put("loop.lua",
      "local weft = require 'weft'\n"
      "assert(weft.plan { model = weft.model 'llama-tiny', batch = { global = "
      "8, seq = 16 },\n  schedule = function() while true do end end }:check())");
  expect("loop.lua", 3, "", "loop.lua:3: error: the plan was stopped after 50000000");
}
END_TEST

/* A full disk is not success. */
START_TEST(full_disk) {
  put("a.lua", "print 'x'\n");
  expect("a.lua >/dev/full", 2, "", "weft: cannot write to the standard output\n");
}
END_TEST

/* ---- interruption ---- */

/* Sends SIGINT as soon as the script says that it runs. */
static void interrupt(const char *name, const char *code) {
  char text[1024];
  snprintf(text, sizeof text,
           "io.stdout:setvbuf 'no'\nlocal weft = require 'weft'\n"
           "io.write 'runs\\n'\n%s\nprint 'came here'\n",
           code);
  put(name, text);
  Process p = process_start(20, "$weft lua %s", name);
  ck_assert(process_wait_for(&p, p.out, "runs"));
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(!o.late && o.code == 130, "%s: exit %d\n%s%s", name, o.code, o.out,
                o.err);
  ck_assert_msg(!strstr(o.out, "came here"), "%s", o.out);
}

START_TEST(interrupted) {
  interrupt("loop.lua", "while true do end");
  interrupt("pcall.lua", "while true do pcall(function() while true do end end) end");
  interrupt("co.lua", "local f = coroutine.wrap(function() while true do\n"
                      "  pcall(function() while true do end end) end end)\n"
                      "pcall(f) while true do end");
  interrupt("plan.lua",
            "for i = 1, 1e9 do weft.plan { model = weft.model 'llama-tiny', batch = {\n"
            "  global = 8, seq = 16 } }:check() end");
  interrupt("schedule.lua",
            "while true do weft.plan { model = weft.model 'llama-tiny', batch = {\n"
            "  global = 8, seq = 16 }, schedule = function(s) while true do end end\n"
            "  }:check() end");
  interrupt("train.lua",
            "weft.plan { model = weft.model 'llama-tiny', batch = { global = "
            "8, seq = 16 } }:run { steps = 1000000 }");
  /* What was interrupted is no answer that a script may go on with. */
  interrupt("caught.lua",
            "pcall(function() weft.plan { model = weft.model 'llama-tiny', batch = {\n"
            "  global = 8, seq = 16 } }:run { steps = 1000000 } end)");
  put("endless.lua", "while true do end");
  interrupt("nil.lua", "local p, why = weft.load 'endless.lua'");
  interrupt("verify.lua",
            "weft.plan { model = weft.model 'llama-tiny', mesh = { tp = 2 }, batch = {\n"
            "  global = 8, seq = 16 } }:verify { steps = 100000 }");
}
END_TEST

/* After the flag is cleared the state goes on. */
START_TEST(resumed) {
  StopFlag stop = 0;
  ScriptHost host = {.stop = &stop};
  lua_State *L = script_new(&host);
  ck_assert_ptr_eq(script_stop(L), &stop);
  stop = 1;
  ck_assert_int_ne(luaL_dostring(L, "for i = 1, 1e9 do end"), LUA_OK);
  ck_assert_ptr_nonnull(strstr(lua_tostring(L, -1), "interrupted!"));
  ck_assert_int_ne(luaL_dostring(L, "local x = 1"), LUA_OK);
  stop = 0;
  script_resume(L);
  ck_assert_int_eq(luaL_dostring(L, "for i = 1, 1e5 do end n = 3"), LUA_OK);
  lua_close(L);
}
END_TEST

/* ---- the table ---- */

static bool is_field(const char *object, const char *name) {
  const ApiDoc *d = api_doc_find(object, name);
  return d && !api_doc_is_method(d);
}

/* What api_doc.def lists is there, and nothing else is. */
START_TEST(documented) {
  lua_State *L = script_new(NULL);
  lua_pushcfunction(L, script_weft);
  lua_call(L, 0, 1);
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1))
    ck_assert_msg(api_doc_find("weft", lua_tostring(L, -2)) != NULL, "weft.%s",
                  lua_tostring(L, -2));
  for (const ApiDoc *d = api_doc; d->object; d++) {
    ck_assert_msg(strncmp(d->form, d->object, strlen(d->object)) == 0, "%s", d->form);
    ck_assert_msg(strstr(d->form, d->name) != NULL, "%s", d->form);
    ck_assert_msg(d->doc[0] && d->doc[strlen(d->doc) - 1] != '.', "%s", d->doc);
    ck_assert_msg(strcmp(d->object, "weft") != 0 ||
                      lua_getfield(L, 1, d->name) != LUA_TNIL,
                  "weft.%s is not there", d->name);
    lua_settop(L, 1);
  }
  ck_assert(is_field("mesh", "world") && !is_field("mesh", "coord"));
  lua_close(L);
  lua_run("local objects = { mesh = weft.mesh {}, plan = weft.plan {\n"
          "  model = weft.model 'llama-tiny', batch = { global = 8, seq = 16 } } }\n"
          "for name, o in pairs(objects) do\n"
          "  for line in io.lines(PLANS .. '../bindings/script/api_doc.def') do\n"
          "    local field = line:match('^DOC%(\"' .. name .. '\", \"([%w_]+)\"')\n"
          "    if field then assert(o[field] ~= nil, field) end\n"
          "  end\n"
          "end\n");
}
END_TEST

START_TEST(table_weft) {
  lua_run("raises(\"weft has no 'plna' (did you mean 'plan'?)\",\n"
          "  function() return weft.plna end)\n"
          "raises(\"weft has no 'vars'\", function() return weft.vars end)\n"
          "same(weft.version:match '^%d+%.%d+', '0.1')\n"
          "for k in pairs(weft) do same(type(k), 'string') end\n");
}
END_TEST

/* The globals of a state stay as they are. */
START_TEST(no_globals) {
  lua_State *L = luaL_newstate();
  lua_pushglobaltable(L);
  lua_pushcfunction(L, script_weft);
  lua_call(L, 0, 1);
  lua_pushnil(L);
  ck_assert_int_eq(lua_next(L, 1), 0);
  lua_close(L);
}
END_TEST

/* Running out of memory anywhere in it is an error of Lua, nothing leaks. */
static void *limited(void *ud, void *p, size_t old, size_t n) {
  size_t *left = ud;
  if (!p) old = 0;
  if (n > old && n - old > *left) return NULL;
  *left += old;
  *left -= n;
  if (n) return realloc(p, n);
  free(p);
  return NULL;
}

static const char work[] =
    "local weft = require 'weft'\n"
    "local f = math.floor\n"
    "local p = assert(weft.plan { model = weft.model 'llama-tiny', mesh = { tp = 2, pp = "
    "2 "
    "}, batch = { global = 8, seq = 16 }, schedule = function(s)\n"
    "  for i = 0, s.microbatches - 1 do s:F(0, f(i)) end\n"
    "  for i = 0, s.microbatches - 1 do s:B(0, i) end end })\n"
    "local m = p.mesh\n"
    "local t = { p:memory(), p:comm(), p:schedule(), p:match(), p:shards 'lm_head', "
    "m:coord(1),"
    " m:groups 'tp', p:diff(assert(p:with { name = 'x' })), p.spec }\n"
    "for i = 1, #t do t[i] = tostring(t[i]) end\n"
    "local none, why = p:with { mesh = { tp = 3 } } t = tostring(why) assert(not none)\n";

static int do_work(lua_State *L) {
  luaL_openlibs(L);
  luaL_requiref(L, "weft", script_weft, 0);
  if (luaL_dostring(L, work) != LUA_OK) return lua_error(L);
  return 0;
}

START_TEST(no_memory) {
  int failed = 0;
  bool done = false;
  for (size_t limit = 60000; !done; limit += limit / 120) {
    size_t left = limit;
    ck_assert_uint_lt(limit, 1 << 26);
    lua_State *L = lua_newstate(limited, &left);
    if (!L) continue;
    lua_pushcfunction(L, do_work);
    done = lua_pcall(L, 0, 0, 0) == LUA_OK;
    failed += !done;
    if (!done) {
      const char *why = lua_tostring(L, -1);
      ck_assert_msg(why && strstr(why, "memory"), "%s", why ? why : "?");
    }
    lua_close(L);
    ck_assert_uint_eq(left, limit);
  }
  ck_assert_int_gt(failed, 20);
}
END_TEST

Suite *script_suite(void) {
  Suite *s = suite_create("script");
  TCase *tc = tcase_create("scripts");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, arguments);
  tcase_add_test(tc, exit_codes);
  tcase_add_test(tc, exit_codes_of_plans);
  tcase_add_test(tc, full_disk);
  tcase_add_test(tc, interrupted);
  tcase_add_test(tc, resumed);
  tcase_add_test(tc, documented);
  tcase_add_test(tc, table_weft);
  tcase_add_test(tc, no_globals);
  tcase_add_test(tc, no_memory);
  suite_add_tcase(s, tc);
  return s;
}
