/* check_library.c - stdlib in states of scripts: its environment, and where its errors
 * are.
 */
#include <check.h>
#include <lauxlib.h>

#include "bindings/script/library.h"
#include "bindings/runner/runner.h"
#include "tests/harness/lua_run.h"
#include "tests/harness/process.h"

#define TINY                                                                             \
  "local p = weft.plan { model = weft.model 'llama-tiny', mesh = { tp = 2, pp = 2 },\n"  \
  "  batch = { global = 8, seq = 16 } }\n"

/* The line of the script, whichever function of the library finds what is wrong. */
START_TEST(errors_are_at_the_callers_place) {
  lua_run(TINY
          "raises('test:5: there is no rank 99', function()\n"
          "  local c =\n"
          "    p.mesh:coord(99)\n"
          "end)\n"
          "raises('test:7: there is no rank 99', function() p:rank(99) end)\n"
          "raises('test:8: there is no rank 99', function() p:memory(99) end)\n"
          "raises('test:9: the mesh has no axis', function() p.mesh:group('x', 0) end)\n"
          "raises('test:10: there is no parameter', function() p:shards 'x' end)\n"
          "raises('test:11: another plan is', function() p:diff(1) end)\n"
          "raises(\"test:12: bad argument to 'match'\", function() p:match {} end)\n"
          "raises(\"test:14: bad argument to 'slice' (table expected, got nil\",\n"
          "  function() return (p.mesh:slice()) end)\n"
          "local q = p:with {} q:close()\n"
          "raises('test:16: the other plan is closed', function() p:diff(q) end)\n"
          "raises('test:17: this plan is closed', function() q:match() end)\n"
          "raises('test:18: the plan is missing', function() q.diff() end)\n");
}
END_TEST

/* Everything that prints does so without the functions that the script has left. */
START_TEST(globals_do_not_matter) {
  lua_run(
      TINY
      "local big = weft.mesh { dp = 128, dp_replicate = 2, ep = 4 }\n"
      "local things = { p, p.mesh, big, big.expert, p:memory(), p:memory(1), p:comm(),\n"
      "  p:comm(1), p:stages(), p:rank(1), p:schedule(), p:match(), p:match 'x',\n"
      "  p:shards 'lm_head', p:diff(p:with { mesh = { tp = 4 } }), big:coord(7),\n"
      "  big:groups 'dp_shard', big:neighbors(3), big:slice { dp_replicate = 0 },\n"
      "  big:flatten { 'dp', 'cp' }, big.ranks }\n"
      "local want = {}\n"
      "for i, x in ipairs(things) do want[i] = tostring(x) end\n"
      "local tostring, ipairs, next, error = tostring, ipairs, next, error\n"
      "debug.setmetatable('', nil)\n"
      "for _, t in ipairs { string, table, math, utf8, debug, io, os, _G } do\n"
      "  for k in next, t do t[k] = nil end\n"
      "end\n"
      "for i, x in ipairs(things) do\n"
      "  if tostring(x) ~= want[i] then error(want[i]) end\n"
      "end\n"
      "if big:rank(big:coord(77)) ~= 77 or #p:diff(p) ~= 0 then error 'other' end\n");
}
END_TEST

/* ("x"):rep(3) asks the metatable of texts, which is the script's. */
START_TEST(no_methods_of_texts) {
  Outcome o = process_run(
      20, "grep -rnE ':(byte|find|format|gmatch|gsub|lower|match|rep|sub|upper)\\b' "
          "stdlib/objects stdlib/prompt stdlib/reports | grep -v 'plan:match'");
  ck_assert_str_eq(o.out, "");
}
END_TEST

static int push_nothing(lua_State *L) {
  library_push(L, "reports/nothing");
  return 1;
}

START_TEST(files) {
  lua_State *L = script_new(NULL);
  lua_pushcfunction(L, push_nothing);
  ck_assert_int_ne(lua_pcall(L, 0, 1, 0), LUA_OK);
  ck_assert_str_eq(lua_tostring(L, -1), "the library has no file reports/nothing");
  library_push(L, "reports/text");
  library_push(L, "reports/text");
  ck_assert(lua_rawequal(L, -1, -2));
  lua_close(L);
}
END_TEST

Suite *library_suite(void) {
  Suite *s = suite_create("library");
  TCase *tc = tcase_create("stdlib");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, errors_are_at_the_callers_place);
  tcase_add_test(tc, globals_do_not_matter);
  tcase_add_test(tc, no_methods_of_texts);
  tcase_add_test(tc, files);
  suite_add_tcase(s, tc);
  return s;
}
