/* check_keys.c - functions of a plan in keys: what they lead to counts, however it hangs
 * together, and a key is the same in each state. */
#include <check.h>
#include <string.h>

#include "bindings/lang/plan_key.h"
#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

#define PLAN                                                                             \
  "return weft.plan { model = weft.model 'llama-tiny', loss = { f, o = o },\n"           \
  "  batch = { global = 8, seq = 16 } }\n"

static void add_written(void *ud, const struct Field *f, const char *text) {
  if (text) text_printf(ud, "%s\n", text);
}

/* What goes before the plan gives f, a function, and o, a table. Both keys, in a text. */
static const char *key_of(const char *before) {
  Text key = {0};
  weft_error e = NO_ERROR;
  const char *text = arena_printf(
      t.arena, HEAD "local f, o\nlocal function g() return 1 end\n%s\n%s", before, PLAN);
  ck_assert_msg(lang_test_text(&t, text) == WEFT_OK, "%s: %s", before, t.e.text);
  weft_status st = plan_key_others(t.lp, &key, &e);
  if (st == WEFT_OK) st = plan_written(t.lp, add_written, &key, &e);
  ck_assert_msg(st == WEFT_OK, "%s: %s", before, e.text);
  const char *s = arena_printf(t.arena, "%zu %016llx", key.n,
                               (unsigned long long)hash_bytes(0, key.s, key.n));
  text_free(&key);
  return s;
}

/* Two ways to write f and o, and whether they are the same. */
static const struct Pair {
  const char *a, *b;
  bool same;
} pairs[] = {
    {"f = function() return 1 end", "f = function() return 2 end", false},
    /* far below, in tables, functions and both */
    {"local v = 1 for i = 1, 1000 do v = { v } end f = function() return v end",
     "local v = 2 for i = 1, 1000 do v = { v } end f = function() return v end", false},
    {"local v = 1 for i = 1, 40 do local w = v v = function() return w end end f = v",
     "local v = 2 for i = 1, 40 do local w = v v = function() return w end end f = v",
     false},
    {"local v = 1 for i = 1, 1e5 do local w = v v = { function() return w end } end "
     "f = v[1]",
     "local v = 2 for i = 1, 1e5 do local w = v v = { function() return w end } end "
     "f = v[1]",
     false},
    /* functions that reach each other */
    {"local M = { n = 1 } for i = 1, 50 do M[i] = function() return M end end f = M[1]",
     "local M = { n = 2 } for i = 1, 50 do M[i] = function() return M end end f = M[1]",
     false},
    {"local M = {} for i = 1, 3000 do M[i] = function() return M end end f = M[1] o = M",
     "local M = {} for i = 1, 3000 do M[i] = function() return M end end f = M[1] o = M",
     true},
    {"local M = {} M.M = M f = function() return M end",
     "local M = {} M.M = { M = M } f = function() return M end", false},
    {"local d = {} for i = 1, 200 do d = { d, d } end f = function() return d end",
     "local d = {} for i = 1, 200 do d = { d, { d[1], d[2] } } end "
     "f = function() return d end",
     false},
    /* one table or two, which matters to functions alone */
    {"local a = {} local b = a f = function() return a, b end",
     "local a, b = {}, {} f = function() return a, b end", false},
    {"local a = { 1 } f = g o = { x = a, y = a }", "f = g o = { x = { 1 }, y = { 1 } }",
     true},
    /* metatables, of what is captured and of what is passed */
    {"local a = setmetatable({}, { __index = { s = 1 } }) f = function() return a.s end",
     "local a = setmetatable({}, { __index = { s = 2 } }) f = function() return a.s end",
     false},
    {"local a = setmetatable({}, { __index = { s = 1 } }) f = function() return a.s end",
     "local a = {} f = function() return a.s end", false},
    {"f = g o = { setmetatable({}, { __call = function() return 1 end }) }",
     "f = g o = { setmetatable({}, { __call = function() return 2 end }) }", false},
    {"local C = {} C.__index = C f = g o = { setmetatable({}, C) }",
     "local C = {} C.__index = C f = g o = { setmetatable({}, C) }", true},
    /* libraries, whose tables are empty to a plan */
    {"local S = string f = function() return S.char(65) end",
     "local S = utf8 f = function() return S.char(65) end", false},
    {"f = string.len", "f = string.lower", false},
    /* what a function of C holds */
    {"f = coroutine.wrap(function() return 1 end)",
     "f = coroutine.wrap(function() return 2 end)", false},
    {"local c = coroutine.create(function() return 1 end) f = function() return c end",
     "local c = coroutine.create(function() return 2 end) f = function() return c end",
     false},
    {"local c = coroutine.wrap(function(x) coroutine.yield() return x end) c(1) "
     "f = function() return c end",
     "local c = coroutine.wrap(function(x) coroutine.yield() return x end) c(2) "
     "f = function() return c end",
     false},
    /* modules that a function may ask for */
    {"require 'one' f = function() return require 'one' end",
     "require 'two' f = function() return require 'one' end", false},
    {"require 'one' local r = require f = function() return r 'one' end",
     "require 'two' local r = require f = function() return r 'one' end", false},
    {"require 'one' f = function() return 1 end",
     "require 'two' f = function() return 1 end", true},
    {"f = function() return weft.var('n', 1) end",
     "f = function() return weft.var('n', 2) end", false},
};

START_TEST(what_functions_lead_to) {
  const struct Pair *p = &pairs[_i];
  lang_test_file("one.lua", "return function() return 1 end\n");
  lang_test_file("two.lua", "return function() return 2 end\n");
  const char *a = key_of(p->a), *b = key_of(p->b), *again = key_of(p->a);
  ck_assert_msg(strcmp(a, again) == 0, "%s\n%s, then %s", p->a, a, again);
  ck_assert_msg((strcmp(a, b) == 0) == p->same, "%s\n%s\n%s\n%s", p->a, a, p->b, b);
}
END_TEST

/* Tables that a plan has many times count as often: a plan written again has copies. */
START_TEST(tables_that_repeat_without_end) {
  Text key = {0};
  weft_error e = NO_ERROR;
  const char *text = HEAD "local o = {} for i = 1, 60 do o = { o, o } end\n"
                          "local f = function() end\n" PLAN;
  ck_assert_int_eq(lang_test_text(&t, text), WEFT_OK);
  ck_assert_int_eq(plan_key_others(t.lp, &key, &e), WEFT_EPLAN);
  ck_assert_str_eq(e.text, "tables in the plan repeat too often to be compared");
  ck_assert_int_eq(plan_written(t.lp, add_written, &key, &e), WEFT_EPLAN);
  text_free(&key);
}
END_TEST

Suite *keys_suite(void);
Suite *keys_suite(void) {
  Suite *s = suite_create("keys");
  TCase *c = tcase_create("functions");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_set_timeout(c, 30);
  tcase_add_loop_test(c, what_functions_lead_to, 0, LEN(pairs));
  tcase_add_test(c, tables_that_repeat_without_end);
  suite_add_tcase(s, c);
  return s;
}
