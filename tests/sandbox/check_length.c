/* check_length.c - the length of a table in a plan: the same in every state, whatever the
 * seed of its hashes; and programs whose code was given another length operator do what
 * they did before. */
#include <alloca.h>
#include <check.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/plan_table/loaded_plan.h"
#include "bindings/sandbox/length.h"
#include "tests/harness/lang_fixture.h"
#include "tests/harness/lua_run.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

/* ---- programs in states of both kinds ---- */

/* A state of Lua alone. Its seed comes from addresses, one of the stack. */
static lua_State *plain_state(int depth) {
  volatile char *room = alloca((size_t)depth * 48 + 16);
  *room = 0;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  return L;
}

static LangState *plan_state(int depth) {
  volatile char *room = alloca((size_t)depth * 48 + 16);
  LangState *s;
  *room = 0;
  ck_assert_int_eq(plan_state_new(&t.o, t.arena, "plan.lua", "", NULL, &s, &t.e),
                   WEFT_OK);
  return s;
}

/* What the program gives, a text; of an error the message. */
static const char *result(lua_State *L) {
  const char *s = lua_tostring(L, -1);
  ck_assert_msg(s != NULL, "the program gives no text");
  return arena_str(t.arena, s);
}

static const char *run_plain(const char *text, int depth) {
  lua_State *L = plain_state(depth);
  if (luaL_loadbufferx(L, text, strlen(text), "@p.lua", "t") == LUA_OK)
    lua_pcall(L, 0, 1, 0);
  const char *s = result(L);
  lua_close(L);
  return s;
}

typedef struct Chunk {
  const char *text, *said;
} Chunk;

static void run_job(lua_State *L, void *ud) {
  Chunk *p = ud;
  int status = chunk_load(L, p->text, strlen(p->text), "@p.lua");
  if (status == LUA_OK) {
    length_function(L);
    lua_pcall(L, 0, 1, 0);
  }
  p->said = result(L);
}

static const char *run_in_plan(const char *text, int depth) {
  LangState *s = plan_state(depth);
  Chunk p = {text, NULL};
  weft_status st = state_protect(s, run_job, &p, &t.e);
  ck_assert_msg(st == WEFT_OK, "%s\n%s", t.e.text, text);
  state_free(s);
  return p.said;
}

/* ---- holes ---- */

/* Tables that Lua itself measures differently from seed to seed: texts and numbers share
 * the hash, and when that grows depends on where the texts fell. */
static const char holes[] =
    "local said, tables = {}, {}\n"
    "for n = 8, 40 do for step = 2, 4 do\n"
    "  local t = {}\n"
    "  for i = 1, n do t['k' .. i] = i if i % step ~= 0 then t[i] = i end end\n"
    "  for i = 1, n do t['k' .. i] = nil end\n"
    "  for i = n, n + 3 do t['l' .. i] = i t[i] = i end\n"
    "  tables[#tables + 1] = t\n"
    "end end\n"
    "for _, t in ipairs(tables) do\n"
    "  said[#said + 1] = #t\n"
    "  said[#said + 1] = rawlen(t)\n"
    "  said[#said + 1] = select('#', table.unpack(t))\n"
    "  table.insert(t, 'x')\n"
    "  said[#said + 1] = #t\n"
    "  said[#said + 1] = tostring(table.remove(t))\n"
    "  said[#said + 1] = select(2, pcall(table.concat, t))\n"
    "  table.sort(t, function(a, b) return tostring(a) > tostring(b) end)\n"
    "  said[#said + 1] = tostring(t[1])\n"
    "end\n"
    "local with_nil = { 1, nil, 3 }\n"
    "said[#said + 1] = #with_nil .. #{ nil, nil, 3 } .. #{ n = 1, [2] = 2 }\n"
    "return table.concat(said, ' ')\n";

enum { STATES = 64 };

START_TEST(the_same_for_every_seed) {
  const char *first = run_in_plan(holes, 0), *end = strrchr(first, ' ');
  bool differ = false;
  const char *plain = run_plain(holes, 0);
  for (int i = 1; i < STATES; i++) {
    ck_assert_str_eq(run_in_plan(holes, i), first);
    differ |= strcmp(run_plain(holes, i), plain) != 0;
  }
  ck_assert_msg(differ, "Lua itself measures these alike: they show nothing");
  ck_assert_str_eq(end, " 100");
}
END_TEST

/* The n that doubling and halving finds, for all tables of 12 items. */
START_TEST(a_border_of_the_contents) {
  lua_State *L = luaL_newstate();
  for (unsigned set = 0; set < 1u << 12; set++) {
    lua_newtable(L);
    for (int i = 0; i < 12; i++)
      if (set >> i & 1) lua_pushboolean(L, 1), lua_rawseti(L, -2, i + 1);
    lua_Integer n = table_length(L, -1);
    ck_assert_msg(n == 0 || set >> (n - 1) & 1, "%x: %d", set, (int)n);
    ck_assert_msg(!(set >> n & 1), "%x: %d", set, (int)n);
    bool list = !(set & (set + 1));
    ck_assert_int_eq(list_length(L, -1), list ? n : -1);
    if (list) ck_assert_int_eq(set >> n, 0);
    lua_pop(L, 1);
  }
  /* The largest index there is. */
  lua_newtable(L);
  for (int i = 0; i < 63; i++)
    lua_pushboolean(L, 1), lua_rawseti(L, -2, (lua_Integer)1 << i);
  ck_assert_int_eq(table_length(L, -1), (lua_Integer)1 << 62);
  lua_pushboolean(L, 1), lua_rawseti(L, -2, LUA_MAXINTEGER);
  ck_assert(table_length(L, -1) == LUA_MAXINTEGER);
  lua_close(L);
}
END_TEST

/* Functions that a script wrote were compiled by whatever program it runs in. */
START_TEST(functions_of_scripts) {
  lua_run(
      "local seen = {}\n"
      "for i = 1, 30 do\n"
      "  local pad = {} for k = 1, i * 7 do pad['p' .. i .. k] = k end\n"
      "  local plan = weft.plan { name = 'x', batch = { global = 8, seq = 16 },\n"
      "    model = function(g, c)\n"
      "      local t = {}\n"
      "      for i = 1, 29 do t['k' .. i] = i if i % 3 ~= 0 then t[i] = i end end\n"
      "      for i = 1, 29 do t['k' .. i] = nil end\n"
      "      for i = 29, 33 do t['l' .. i] = i t[i] = i end\n"
      "      local function inner() return #t end\n"
      "      error(('length %d %d %d'):format(#t, inner(), rawlen(t)))\n"
      "    end }\n"
      "  local ok, why = plan:check()\n"
      "  seen[why and tostring(why):match 'length %d+ %d+ %d+' or tostring(ok)] = true\n"
      "end\n"
      "same(next(seen), 'length 33 33 33')\n"
      "same(next(seen, next(seen)), nil)\n");
}
END_TEST

/* A list with holes is no list of a plan, in any process. */
START_TEST(lists_of_plans) {
  lang_test_bad(
      &t,
      HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"
           "  mesh = { order = { 'dp', nil, 'tp' } },\n"
           "  batch = { global = 8, seq = 16 } }",
      "plan.lua:3: error: plan.mesh.order: expected a list of axes, got a table "
      "with other keys\n1 error\n");
}
END_TEST

/* ---- the same programs ---- */

static void same(const char *text) {
  const char *plain = run_plain(text, 0), *plan = run_in_plan(text, 0);
  ck_assert_msg(strcmp(plain, plan) == 0, "Lua: %s\nplan: %s\n%s", plain, plan, text);
}

START_TEST(what_it_is_called) {
  static const char *const wrong[] = {
      "local n = nil return #n",
      "local a, b, c = 1, {} return #b + #c",
      "local up return (function() return #up end)()",
      "return #math.nope",
      "local m = math return #m.nope",
      "return #('x' .. 1) + #nil",
      "local t = {}\n\n\n\nreturn #t\n\n+ #t.x",
      "local t = {} for i = 1, 3 do local x = t if i == 2 then x = nil end t[i] = #x end",
      "return #setmetatable({}, { __len = function(x) return 'len' .. select('#', x) end "
      "})",
      "return '10' ^ 2 .. ' ' .. 2 ^ '3'",
      "return #5",
  };
  for (int i = 0; i < LEN(wrong); i++) same(wrong[i]);
}
END_TEST

START_TEST(forms_of_code) {
  same("local co = coroutine.wrap(function() return #setmetatable({}, { __len = "
       "function()\n"
       "  return coroutine.yield(1) + 1 end }) end)\n"
       "return co() .. ' ' .. co(41)");
  same("local function f(...) return #{ ... } + #select(1, ...) end return '' .. "
       "f('abc', 2)");
  same("local a <close> = setmetatable({}, { __close = function() end })\n"
       "local s = '' for i = #a, #'abc' do s = s .. i .. #s end return s");
  same(
      "local n = 0 while #('x'):rep(n) < 5 do n = n + 1 if n == 3 then goto out end end\n"
      "::out:: return n .. ''");
  same("local s = 0 for k, v in ipairs { 'a', 'bb', 'ccc' } do s = s + #v * k end return "
       "s .. ''");
  same("local x <const> = #'abc' return (function() return x .. #'z' end)()");
  same("local function f() return #'ab' end return f() .. ''");
  /* More constants than an instruction holds, lines far apart, more than a jump of one
   * byte, the whole list of absolute lines. */
  Text text = {0};
  text_add(&text, "local s, t = '', { 1, 2, 3 }\nfor i = 1, 3 do\n");
  for (int i = 0; i < 700; i++) {
    text_printf(&text, "s = #s > 50 and '' or s .. 'c%d' .. #t + i\n", i);
    for (int k = 0; i % 97 == 0 && k < 200; k++) text_add(&text, "\n");
    if (i % 211 == 0)
      text_add(&text, "s = s .. select(2, pcall(function() local q q() end))\n");
  }
  text_add(&text, "end\nlocal where = select(2, pcall(function()\n\n t = t.x.y.z\nend))\n"
                  "return s .. where .. #s");
  same(text.s);
  text_free(&text);
}
END_TEST

/* ---- random programs ---- */

typedef struct Dice {
  uint64_t state;
  Text *out;
  int depth, loops, budget;
} Dice;

static int roll(Dice *d, int n) {
  d->state = d->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((d->state >> 33) % (uint64_t)n);
}

static void number(Dice *d, int nest) {
  static const char *const atoms[] = {"#s",        "#t",    "a",     "b",
                                      "3",         "#u.v",  "#'xy'", "#(s .. a)",
                                      "#{ a, b }", "f(#t)", "-#s",   "#u.v % 5"};
  if (nest == 0 || roll(d, 3) == 0) {
    text_add(d->out, atoms[roll(d, LEN(atoms))]);
    return;
  }
  static const char *const ops[] = {"+", "-", "*", "%", "//"};
  text_add(d->out, "(");
  number(d, nest - 1);
  const char *op = ops[roll(d, LEN(ops))];
  text_printf(d->out, " %s ", op);
  if (*op == '%' || *op == '/') text_add(d->out, "7 + ");
  number(d, nest - 1);
  text_add(d->out, ")");
}

static void condition(Dice *d) {
  static const char *const ops[] = {"<", "<=", "==", "~=", ">", ">="};
  number(d, 1);
  text_printf(d->out, " %s ", ops[roll(d, LEN(ops))]);
  number(d, 1);
  if (roll(d, 3) == 0) {
    text_add(d->out, roll(d, 2) ? " and " : " or not ");
    text_add(d->out, "#t > 2");
  }
}

static void block(Dice *d);

static void statement(Dice *d) {
  int loop;
  for (int n = roll(d, 9) == 0 ? roll(d, 160) : 0; n > 0; n--) text_add(d->out, "\n");
  switch (d->depth > 3 || --d->budget < 0 ? roll(d, 4) : roll(d, 12)) {
  case 0:
    text_add(d->out, "a = ");
    number(d, 2);
    text_add(d->out, " % 1000 note(a)\n");
    return;
  case 1:
    text_add(d->out, "s = (s .. ");
    number(d, 1);
    text_add(d->out, "):sub(-9) t[#t + 1] = #s if #t > 9 then t = { #t } end\n");
    return;
  case 2:
    text_add(d->out, "where(pcall(function() return #u.w");
    text_add(d->out, roll(d, 2) ? ".x end))\n" : " end))\n");
    return;
  case 3:
    text_add(d->out, "do local b = ");
    number(d, 2);
    text_add(d->out,
             " local q where(pcall(function() return #q end)) note(#t + b) end\n");
    return;
  case 4:
  case 5:
    text_add(d->out, "if ");
    condition(d);
    text_add(d->out, " then\n");
    block(d);
    if (roll(d, 2)) text_add(d->out, "else\n"), block(d);
    text_add(d->out, "end\n");
    return;
  case 6:
    loop = ++d->loops;
    text_printf(d->out, "for i%d = #u.v - 2, 3 %s do local c = #s + i%d note(c)\n", loop,
                roll(d, 2) ? "" : ", #'x'", loop);
    block(d);
    if (roll(d, 3) == 0) text_add(d->out, "if #t > 5 then break end\n");
    text_add(d->out, "end\n");
    return;
  case 7:
    loop = ++d->loops;
    text_printf(d->out, "local n%d = 0 while n%d < #'abc' do n%d = n%d + #'x'\n", loop,
                loop, loop, loop);
    block(d);
    text_add(d->out, "end\n");
    return;
  case 8:
    text_add(d->out, "for k, v in ipairs { s, 'z', 'yy' } do note(#v * k)\n");
    block(d);
    text_add(d->out, "end\n");
    return;
  case 9:
    loop = ++d->loops;
    text_printf(d->out, "do local m = 0 ::top%d:: m = m + #'x'\n", loop);
    block(d);
    text_printf(d->out, "if m < 3 then goto top%d end end\n", loop);
    return;
  case 10:
    text_add(d->out, "a = (function(a, ...) local b = #s + select('#', ...)\n");
    block(d);
    text_add(d->out, "return (b + #t) % 100 end)(a, #s, #t)\n");
    return;
  default:
    text_add(d->out, "repeat local z = #s note(z)\n");
    block(d);
    text_add(d->out, "until z + #s >= 0\n");
  }
}

static void block(Dice *d) {
  d->depth++;
  for (int n = 1 + roll(d, 3); n > 0; n--) statement(d);
  d->depth--;
}

/* Loops, jumps, closures and errors with their lines, told step by step. */
START_TEST(random_programs) {
  for (int i = 0; i < 300; i++) {
    Text text = {0};
    Dice d = {.state = (uint64_t)i, .out = &text, .budget = 25};
    text_add(&text, "local told, n = {}, 0\n"
                    "local function note(x) n = n + 1 told[n % 40 + 1] = x\n"
                    "  if n > 4000 then error 'enough' end end\n"
                    "local function where(ok, why) note(why) end\n"
                    "local function f(x) return x + #'q' end\n"
                    "local a, b, s, t, u = 1, 2, 'abc', { 1, 2, 3 }, { v = 'long' }\n"
                    "local ok, why = pcall(function()\n");
    for (int k = 0; k < 5; k++) block(&d);
    text_add(&text, "end)\nfor i = 1, 40 do told[i] = tostring(told[i]) end\n"
                    "return n .. tostring(why) .. table.concat(told, ' ')");
    same(text.s);
    text_free(&text);
  }
}
END_TEST

Suite *length_suite(void) {
  Suite *s = suite_create("length");
  TCase *c = tcase_create("length");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_set_timeout(c, 60);
  tcase_add_test(c, the_same_for_every_seed);
  tcase_add_test(c, a_border_of_the_contents);
  tcase_add_test(c, functions_of_scripts);
  tcase_add_test(c, lists_of_plans);
  tcase_add_test(c, what_it_is_called);
  tcase_add_test(c, forms_of_code);
  tcase_add_test(c, random_programs);
  suite_add_tcase(s, c);
  return s;
}
