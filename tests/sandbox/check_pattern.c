/* check_pattern.c - the patterns of plans against those of Lua itself: random patterns on
 * random texts, results and errors alike, and what is easily mistaken. */
#include <check.h>
#include <lauxlib.h>
#include <lualib.h>

#include "bindings/sandbox/lib.h"

static void charge(lua_State *L, int64_t steps) {}
static const Meter meter = {charge, 1 << 20};

/* Runs the code with two libraries of texts, `lua` and `weft`. */
static void run(const char *code) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_newtable(L);
  lib_string(L, &meter);
  lua_setglobal(L, "weft");
  lua_getglobal(L, "string");
  lua_setglobal(L, "lua");
  int status = luaL_dostring(L, code);
  ck_assert_msg(status == LUA_OK, "%s", status == LUA_OK ? "" : lua_tostring(L, -1));
  lua_close(L);
}

/* same(function, ...): both give the same. */
static const char same[] =
    "local function told(lib, f, ...)\n"
    "  local r = table.pack(pcall(lib[f], ...))\n"
    "  if f == 'gmatch' and r[1] then\n"
    "    local next, all = r[2], {}\n"
    "    for i = 1, 30 do\n"
    "      local m = table.pack(pcall(next))\n"
    "      if m[2] == nil then break end\n"
    "      for k = 1, m.n do all[#all + 1] = tostring(m[k]) end\n"
    "      all[#all + 1] = ';'\n"
    "      if not m[1] then break end\n"
    "    end\n"
    "    return table.concat(all, ' ')\n"
    "  end\n"
    "  for i = 1, r.n do r[i] = math.type(r[i]) and '#' .. r[i] or tostring(r[i]) end\n"
    "  return table.concat(r, ' ')\n"
    "end\n"
    "local function same(f, ...)\n"
    "  local a, b = told(lua, f, ...), told(weft, f, ...)\n"
    "  if a ~= b then\n"
    "    local given = table.pack(...)\n"
    "    for i = 1, given.n do given[i] = ('%q'):format(given[i]) end\n"
    "    error(('%s(%s)\\nLua:  %s\\nweft: %s'):format(f, table.concat(given, ', '), a, "
    "b), "
    "0)\n"
    "  end\n"
    "end\n";

static const char known[] =
    /* Equal delimiters close what they open. */
    "for _, s in ipairs { 'x', 'xx', 'xax', 'xaxbx', 'xxx', 'axa', '' } do\n"
    "  same('find', s, '%bxx') same('match', s, '(%bxx)(.*)') same('gsub', s, '%bxx', "
    "'<%0>')\n"
    "  same('find', s, '%bxa') same('find', s, '%bax')\n"
    "end\n"
    "same('find', '((a)b)', '%b()') same('find', '(()', '%b()') same('find', 'a', '%b')\n"
    "same('find', 'a', '%ba') same('find', '\\0a\\0', '%b\\0\\0')\n"
    /* A class that the manual has no longer, and Lua still knows. */
    "same('find', 'a\\0b', '%z') same('find', 'a\\0b', '%Z+') same('find', 'z', '%z')\n"
    "same('gsub', '\\0\\0z', '[%z]', '0') same('find', '\\0', '[^%z]') same('find', 'Z', "
    "'%Z')\n"
    "same('find', 'a', '%f[%z]') same('find', 'ab', '%f[^%z]b')\n"
    "for c = 0, 255 do\n"
    "  for b = 1, 255 do same('find', string.char(c), '%' .. string.char(b)) end\n"
    "end\n";

static const char random[] =
    "math.randomseed(7)\n"
    "local pick = math.random\n"
    "local items = { 'a', 'b', '.', '%a', '%z', '%Z', '%s', '%%', '%d', '%W', '[ab]',\n"
    "  '[^a%z]', '[]a]', '[^]]', '[a-c]', '[%a-b]', '[a-]', '[b-a]', '\\0', '\\255', "
    "'-', ' ',\n"
    "  '%(', '%]', ']', '[%', '[a', '%' }\n"
    "local odd = { '()', '(', ')', '%1', '%2', '%0', '%b()', '%baa', '%bab', '%b', "
    "'%f[%a]',\n"
    "  '%f[%z]', '%f[^ab]', '%fa', '^', '$', '(a*)', '(.-)' }\n"
    "local quantity = { '', '', '', '', '*', '+', '-', '?' }\n"
    "local texts = { 'a', 'b', 'aa', '(', ')', '\\0', ' ', 'x', '%', '-', '5', ']', "
    "'\\255' }\n"
    "local function made(n, from, other)\n"
    "  local t = {}\n"
    "  for i = 1, pick(0, n) do\n"
    "    t[i] = other and pick(4) == 1 and other[pick(#other)]\n"
    "      or from[pick(#from)] .. (other and quantity[pick(#quantity)] or '')\n"
    "  end\n"
    "  return table.concat(t)\n"
    "end\n"
    "local to = { '<%0>', '%1', '%2%1', 'x', '%%', '%', '%a', '' }\n"
    "for i = 1, 60000 do\n"
    "  local s, p = made(10, texts), made(6, items, odd)\n"
    "  if pick(8) == 1 then p = '^' .. p end\n"
    "  if pick(8) == 1 then p = p .. '$' end\n"
    "  local from = pick(3) == 1 and pick(-12, 12) or nil\n"
    "  same('find', s, p, from) same('match', s, p, from) same('gmatch', s, p, from)\n"
    "  same('gsub', s, p, to[pick(#to)], pick(4) == 1 and pick(0, 3) or nil)\n"
    "  same('find', s, p, from, true)\n"
    "end\n";

static void run_both(const char *code) {
  Text t = {0};
  text_add(&t, same);
  text_add(&t, code);
  run(t.s);
  text_free(&t);
}

START_TEST(easily_mistaken) { run_both(known); }
END_TEST

START_TEST(random_patterns) { run_both(random); }
END_TEST

Suite *pattern_suite(void) {
  Suite *s = suite_create("pattern");
  TCase *c = tcase_create("pattern");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, easily_mistaken);
  tcase_add_test(c, random_patterns);
  suite_add_tcase(s, c);
  return s;
}
