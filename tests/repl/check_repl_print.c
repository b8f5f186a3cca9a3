/* check_repl_print.c - how the prompt shows values: order, caps, layout, colour. */
#include <check.h>
#include <lauxlib.h>

#include "bindings/script/library.h"
#include "bindings/runner/runner.h"
#include "tests/harness/scratch.h"

static lua_State *L;

static void setup(void) {
  scratch_setup();
  L = script_new(NULL);
}

static void teardown(void) {
  lua_close(L);
  scratch_teardown();
}

typedef struct PrintOptions {
  int depth, items, lines, width;
  bool colour;
} PrintOptions;

static void option(const char *name, int value) {
  lua_pushinteger(L, value);
  lua_setfield(L, -2, name);
}

static const char *printed(const char *expression, PrintOptions o) {
  const char *code = lua_pushfstring(L, "return %s", expression);
  library_push(L, "prompt/print");
  ck_assert_msg(luaL_loadbuffer(L, code, strlen(code), "=test") == LUA_OK &&
                    lua_pcall(L, 0, 1, 0) == LUA_OK,
                "%s", lua_tostring(L, -1));
  lua_newtable(L);
  option("depth", o.depth);
  option("items", o.items);
  option("lines", o.lines);
  option("width", o.width);
  lua_pushboolean(L, o.colour);
  lua_setfield(L, -2, "colour");
  if (lua_pcall(L, 2, 1, 0) != LUA_OK) ck_abort_msg("%s", lua_tostring(L, -1));
  const char *s = arena_str(scratch_arena, lua_tostring(L, -1));
  lua_settop(L, 0);
  return s;
}

static const PrintOptions plain = {.depth = 4, .items = 30, .lines = 5, .width = 60};

static void expect(const char *expression, const char *want) {
  ck_assert_str_eq(printed(expression, plain), want);
}

START_TEST(simple_values) {
  expect("nil", "nil");
  expect("true", "true");
  expect("42", "42");
  expect("0.1", "0.1");
  expect("2^53", "9.007199254741e+15");
  expect("'a\\nb'", "a\nb");
  expect("print", "function (built in)");
  expect("function() end", "function (test:1)");
  expect("coroutine.create(print)", "thread");
}
END_TEST

START_TEST(tables) {
  expect("{}", "{}");
  expect("{1, 2, 3}", "{ 1, 2, 3 }");
  expect("{b = 2, a = 'x', 7}", "{ 7, a = \"x\", b = 2 }");
  expect("{[2.5] = 1, [-1] = 0, [true] = 'y', ['a b'] = 1}",
         "{ [-1] = 0, [2.5] = 1, [\"a b\"] = 1, [true] = \"y\" }");
  expect("{['end'] = 1, _x1 = 2, ['1x'] = 3}",
         "{ [\"1x\"] = 3, _x1 = 2, [\"end\"] = 1 }");
  expect("{[{}] = 1}", "{ [table] = 1 }");
  expect("{{}, {{}}}", "{ {}, { {} } }");
  expect("{'\\0\\200\"\\\\\\t'}", "{ \"\\000\\200\\\"\\\\\\t\" }");
  expect("{'h\xc3\xa9'}", "{ \"h\xc3\xa9\" }");
  expect("{1, nil, 3}", "{ 1, nil, 3 }");
}
END_TEST

START_TEST(caps) {
  expect("{{{{{1}}}}}", "{ { { { { ... } } } } }");
  expect("(function() local t = {} t.t = t return t end)()",
         "{ t = <the table around> }");
  expect("(function() local t = {} for i = 1, 100 do t[i] = 1 end return t end)()",
         "{\n  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,\n"
         "  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ... 70 more\n}");
  expect("{('x'):rep(1000)}",
         arena_printf(scratch_arena, "{\n  \"%s\"... 800 more bytes\n}",
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
  /* Wide and deep at once: the items over all are capped, too. */
  const char *s =
      printed("(function() local function f(d) local t = {} if d > 0 then for "
              "i = 1, 30 do t[i] = f(d - 1) end end return t end return f(4) "
              "end)()",
              plain);
  ck_assert_uint_lt(strlen(s), 40000);
}
END_TEST

START_TEST(layout) {
  expect("{name = 'a long name for a plan', mesh = {tp = 8, pp = 4}, steps = 1000}",
         "{\n  mesh = { pp = 4, tp = 8 },\n  name = \"a long name for a plan\",\n"
         "  steps = 1000\n}");
  expect("{{1, 2}, {('x'):rep(30), ('y'):rep(10)}, {3}}",
         "{\n  { 1, 2 },\n  { \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\", "
         "\"yyyyyyyyyy\" },\n"
         "  { 3 }\n}");
  /* Exactly as wide as the screen is not too wide. */
  PrintOptions narrow = plain;
  narrow.width = 11;
  ck_assert_str_eq(printed("{1, 2, 3}", narrow), "{ 1, 2, 3 }");
  narrow.width = 10;
  ck_assert_str_eq(printed("{1, 2, 3}", narrow), "{\n  1, 2, 3\n}");
}
END_TEST

START_TEST(order_is_the_same_in_every_run) {
  const char *first = NULL;
  for (int i = 0; i < 5; i++) {
    lua_close(L);
    L = script_new(NULL);
    const char *s =
        printed("{alpha = 1, beta = 2, gamma = 3, delta = 4, eps = 5}", plain);
    if (first) ck_assert_str_eq(first, s);
    first = s;
  }
}
END_TEST

/* What would change how the line looks is written out. */
START_TEST(hidden_characters) {
  expect("{'\\u{9b}1m', '\\27[2J'}", "{ \"\\194\\1551m\", \"\\027[2J\" }");
  expect("{'a\\u{202e}b', '\\u{feff}'}",
         "{ \"a\\226\\128\\174b\", \"\\239\\187\\191\" }");
  expect("{'Zürich'}", "{ \"Zürich\" }");
}
END_TEST

START_TEST(own_texts) {
  expect("setmetatable({}, {__tostring = function() return 'two\\nlines' end})",
         "two\nlines");
  expect("{setmetatable({}, {__tostring = function() return 'two\\nlines' end})}",
         "{ two ... }");
  expect("setmetatable({}, {__tostring = function() return '1\\n2\\n3\\n4\\n5' end})",
         "1\n2\n3\n4\n5");
  expect("setmetatable({}, {__tostring = function() return '1\\n2\\n3\\n4\\n5\\n6' end})",
         "1\n2\n3\n4\n... 2 more lines; print(_) shows all");
  expect("setmetatable({1}, {__tostring = function() error('oh', 0) end})",
         "<its __tostring fails: oh>");
  expect("setmetatable({1}, {__tostring = function() return {} end})",
         "<its __tostring fails: '__tostring' must return a string>");
  expect("setmetatable({1}, {__index = error, __pairs = error, __len = error})", "{ 1 }");
}
END_TEST

START_TEST(colours) {
  PrintOptions o = plain;
  o.colour = true;
  ck_assert_str_eq(printed("{1, a = 'x', b = true}", o),
                   "{ \033[36m1\033[0m, a = \033[32m\"x\"\033[0m, b = "
                   "\033[35mtrue\033[0m }");
  /* Colours take no room. */
  o.width = 31;
  ck_assert_ptr_null(strchr(printed("{1, a = 'x', b = true, c = 9}", o), '\n'));
  o.width = 30;
  ck_assert_ptr_nonnull(strchr(printed("{1, a = 'x', b = true, c = 9}", o), '\n'));
}
END_TEST

Suite *repl_print_suite(void) {
  Suite *s = suite_create("repl_print");
  TCase *t = tcase_create("values");
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_test(t, simple_values);
  tcase_add_test(t, tables);
  tcase_add_test(t, caps);
  tcase_add_test(t, layout);
  tcase_add_test(t, order_is_the_same_in_every_run);
  tcase_add_test(t, hidden_characters);
  tcase_add_test(t, own_texts);
  tcase_add_test(t, colours);
  suite_add_tcase(s, t);
  return s;
}
