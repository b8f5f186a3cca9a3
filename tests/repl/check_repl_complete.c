/* check_repl_complete.c - what the tab key offers, and that it runs nobody's code. */
#include <check.h>
#include <lauxlib.h>
#include <lualib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bindings/cli/repl/repl.h"
#include "bindings/runner/runner.h"
#include "tests/harness/scratch.h"

static lua_State *L;

static void run(const char *code) {
  ck_assert_msg(luaL_dostring(L, code) == LUA_OK, "%s", lua_tostring(L, -1));
}

static void setup(void) {
  scratch_setup();
  L = script_new(NULL);
  ck_assert_ptr_nonnull(L);
  run("weft = require 'weft'");
  repl_provide(L, NULL);
}

static void teardown(void) {
  lua_close(L);
  scratch_teardown();
}

/* The matches at the bar in `text`, each followed by a space; then what they replace. */
static const char *matches(const char *text) {
  const char *bar = strchr(text, '|');
  ck_assert_ptr_nonnull(bar);
  const char *line =
      arena_printf(scratch_arena, "%.*s%s", (int)(bar - text), text, bar + 1);
  EditMatches m;
  int top = lua_gettop(L), cursor = (int)(bar - text);
  repl_complete(L, line, cursor, &m);
  ck_assert_int_eq(lua_gettop(L), top);
  ck_assert_int_le(m.from, cursor);
  const char *all = "";
  for (int i = 0; i < m.n; i++) {
    ck_assert_int_eq(strncmp(m.text[i], line + m.from, (size_t)(cursor - m.from)), 0);
    all = arena_printf(scratch_arena, "%s%s%s ", all, m.text[i],
                       m.n == 1 && m.suffix ? m.suffix : "");
  }
  return all;
}

static void expect(const char *text, const char *want) {
  const char *got = matches(text);
  ck_assert_msg(strcmp(got, want) == 0, "%s: %s", text, got);
}

/* Among others. */
static void offers(const char *text, const char *want) {
  const char *got = matches(text);
  const char *all = arena_printf(scratch_arena, " %s", got);
  ck_assert_msg(strstr(all, arena_printf(scratch_arena, " %s ", want)) != NULL, "%s: %s",
                text, got);
}

static void offers_not(const char *text, const char *word) {
  const char *all = arena_printf(scratch_arena, " %s", matches(text));
  ck_assert_msg(strstr(all, arena_printf(scratch_arena, " %s", word)) == NULL, "%s: %s",
                text, all);
}

START_TEST(globals) {
  expect("wef|", "weft ");
  expect("x = coll|", "collectgarbage( ");
  expect("whi|", "while ");
  expect("fo|", "for ");
  expect("_VER|", "_VERSION ");
  offers("|", "print");
  offers_not("|", "_G");
  offers_not("|", "while");
  expect("nothing_like_that|", "");
  run("my_table = { 1 }");
  expect("print(my_|)", "my_table ");
}
END_TEST

START_TEST(fields) {
  run("t = { inner = { deep = 1, fn = print, ['two words'] = 1 }, [3] = { three = 1 } }");
  expect("t.|", "inner ");
  expect("t.in|", "inner ");
  expect("t.inner.|", "deep fn ");
  expect("t.inner:|", "fn( ");
  expect("t['inner'].d|", "deep ");
  expect("t[3].|", "three ");
  expect("t [ 3 ] . th|", "three ");
  expect("f(t.inner.|", "deep fn ");
  expect("string.re|", "rep reverse ");
  expect("t.none.|", "");
}
END_TEST

/* After the operator the next name is a new one. */
START_TEST(concatenation) {
  run("t = { first = 1 } other = 1");
  expect("x = 'a' ..t.|", "first ");
  expect("x = t..t.|", "first ");
  expect("x = t..oth|", "other ");
}
END_TEST

START_TEST(inherited_methods) {
  run("Base = { go = print, size = 3 } Base.__index = Base "
      "Sub = setmetatable({ stop = print }, Base) Sub.__index = Sub "
      "o = setmetatable({ own = 1 }, Sub) s = 'text'");
  expect("o.|", "go own size stop ");
  expect("o:|", "go stop ");
  expect("s:re|", "rep reverse ");
  expect("(\"x\"):|", "");
  offers("\"x\":|", "rep");
  run("loop = {} loop.__index = loop setmetatable(loop, loop)");
  expect("loop.x|", "");
}
END_TEST

START_TEST(calls_no_metamethods) {
  run("called = 0 local function f() called = called + 1 return {} end "
      "m = setmetatable({}, { __index = f, __pairs = f, __len = f, __name = 'weft.plan', "
      "__tostring = f, __metatable = f })"
      "setmetatable(_G, { __index = f, __newindex = f })");
  expect("m.|", "");
  expect("m:|", "");
  expect("m.x.|", "");
  expect("nosuch.|", "");
  expect("f().|", "");
  expect("t[i].|", "");
  lua_getglobal(L, "called");
  ck_assert_int_eq(lua_tointeger(L, -1), 0);
}
END_TEST

START_TEST(objects) {
  run("m = weft.mesh { tp = 2, pp = 2 }");
  expect("m:co|", "coord( ");
  expect("m.wor|", "world ");
  expect("m.co|", "coord( ");
  expect("m.expert:nei|", "neighbors( ");
  offers("m.|", "expert");
  offers_not("m.|", "coord");
  offers_not("m:|", "world");
  expect("m.coord.|", "");
}
END_TEST

START_TEST(plan_fields) {
  expect("weft.plan { mes|", "mesh =  ");
  expect("weft.plan { mesh = { t|", "tp =  ");
  expect("weft.plan { mesh = { tp = 8, p|", "pp =  ");
  expect("weft.plan { batch = { seq = 1 }, tra|", "train =  ");
  expect("weft.plan({ batch = {\n  mi|", "micro =  ");
  expect("return { optimizer = weft.adamw { lr = weft.cosine { st|", "steps =  ");
  expect("weft.mesh { dp_|", "dp_replicate =  ");
  expect("p:with { pp_plan = { vir|", "virtual =  ");
  expect("weft.plan { strategy = { \"zero\", seq|", "sequence_parallel =  ");
  expect("weft.plan { strategy = { \"ddp\", seq|", "");
  expect("weft.plan { schedule = { \"interleaved_1f1b\", gr|", "group =  ");
  expect("weft.plan { activation_checkpointing = { no_such|", "");
  expect("weft.plan { mesh = { t = pri|", "print( ");
  offers("weft.plan { |", "model");
}
END_TEST

START_TEST(values_of_fields) {
  offers("weft.plan { schedule = \"1|", "1f1b");
  offers("weft.plan { schedule = { \"g|", "gpipe");
  expect("weft.plan { schedule = \"zb|", "zb_h2 zbv ");
  offers("weft.plan { tp_plan = { [\"lm_head\"] = \"colw|", "colwise");
  offers("weft.plan { tp_plan = weft.extend(weft.tp_plan \"llama\", { [\"a\"] = \"row|",
         "rowwise");
  expect("weft.plan { strategy = { \"d|", "ddp ");
  expect("weft.plan { precision = { param_dtype = \"b|", "bf16 ");
  offers("weft.grid { { \"mesh.t|", "tp");
  expect("weft.grid { { \"mesh.tp\", 1, 2 }, { \"sched|", "schedule ");
  expect("require \"w|", "weft ");
  expect("mesh:group(\"t|", "tp ");
  expect("help \"mesh.w|", "world ");
  expect("-- weft.plan { sch|", "");
  expect("x = [[ wef|", "");
  expect("--[[ done ]] wef|", "weft ");
  expect("'it''s' wef|", "weft ");
}
END_TEST

START_TEST(commands_and_topics) {
  expect(",|", "help plan quit reload set time ");
  expect(",pl|", "plan  ");
  expect(",set mesh.t|", "tp= ");
  expect(",set mesh.|", "cp dp dp_replicate ep etp order pp tp world ");
  expect(",set optimizer.l|", "lr= ");
  offers(",set schedule=g|", "gpipe");
  expect(",set precision.param_dtype=b|", "bf16 ");
  expect(",time wef|", "weft ");
  expect(",nosuch x|", "");
  expect(",reload x|", "");
  expect("?mesh.wo|", "world ");
  /* Fields and methods. */
  expect("?plan.me|", "memory mesh ");
  expect("?mesh.gr|", "group groups ");
  expect("?weft.muo|", "muon ");
  expect(",help weft.muo|", "muon ");
}
END_TEST

START_TEST(files) {
  scratch_put("one.lua", "", 0);
  scratch_put("other.txt", "", 0);
  scratch_put(".hidden", "", 0);
  ck_assert_int_eq(mkdir(scratch_path("onward"), 0700), 0);
  const char *d = scratch_dir;
  expect(arena_printf(scratch_arena, "io.open(\"%s/o|", d), "one.lua onward/ other.txt ");
  expect(arena_printf(scratch_arena, "io.open '%s/.|", d), ".hidden ");
  expect(arena_printf(scratch_arena, "x = \"%s/nothing|", d), "");
  expect(arena_printf(scratch_arena, "x = \"%s/nothing/|", d), "");
  expect(arena_printf(scratch_arena, ",plan %s/o|", d), "one.lua onward/ ");
  ck_assert_int_eq(rmdir(scratch_path("onward")), 0);
}
END_TEST

START_TEST(nonsense) {
  static const char *const texts[] = {
      "|",    ".|",   ":|",        "a.|b", "...|",   "}}}|",    "{{{{|",    "]].|",
      "[=[|", "'\\|", "'|",        ", |",  ",set |", ",set =|", ",set .=|", "?|",
      "?.|",  "1.|",  "\xff\xfe|", "a[|",  "a['|",   "a[''].|", "[''].|"};
  for (int i = 0; i < LEN(texts); i++) matches(texts[i]);
  const char *deep = "|";
  for (int i = 0; i < 100; i++) deep = arena_printf(scratch_arena, "{%s", deep);
  matches(deep);
}
END_TEST

START_TEST(many_names) {
  run("big = {} for i = 1, 100000 do big['n' .. i] = i end");
  EditMatches m;
  repl_complete(L, "big.n", 5, &m);
  ck_assert_int_eq(m.n, 2000);
}
END_TEST

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

START_TEST(a_large_plan) {
  run("plan = weft.load '" WEFT_SOURCE_DIR
      "/plans/llama3_405b_16k.lua' mesh = plan.mesh");
  expect("plan.|", "mesh spec ");
  expect("plan:prog|", "program( ");
  expect("plan.prog|", "program( ");
  expect("plan.mesh:neigh|", "neighbors( ");
  expect("plan.mesh.expert.wor|", "world ");
  expect("plan.spec.mo|", "model ");
  expect("plan.spec.batch.|", "global micro seq ");
  expect("plan.spec.tp_plan['lm_head'].|", "");
  expect("print(plan.mesh.w|", "world ");
  static const char *const lines[] = {"plan.|",
                                      "plan:|",
                                      "plan.mesh:co|",
                                      "plan.spec.|",
                                      "plan.spec.batch.m|",
                                      "|",
                                      "weft.plan { mesh = { t|",
                                      "plan:with { tp_plan = { [\"lm_head\"] = \"c|"};
  double worst = 0;
  for (int i = 0; i < LEN(lines); i++) {
    double best = 1e9;
    for (int k = 0; k < 5; k++) {
      double from = now_ms();
      matches(lines[i]);
      best = MIN(best, now_ms() - from);
    }
    worst = MAX(worst, best);
  }
  printf("# repl_complete: with 16,384 ranks at most %.2f ms\n", worst);
}
END_TEST

Suite *repl_complete_suite(void) {
  Suite *s = suite_create("repl_complete");
  TCase *t = tcase_create("names");
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_test(t, globals);
  tcase_add_test(t, fields);
  tcase_add_test(t, concatenation);
  tcase_add_test(t, inherited_methods);
  tcase_add_test(t, calls_no_metamethods);
  tcase_add_test(t, objects);
  tcase_add_test(t, plan_fields);
  tcase_add_test(t, values_of_fields);
  tcase_add_test(t, commands_and_topics);
  tcase_add_test(t, files);
  tcase_add_test(t, nonsense);
  tcase_add_test(t, many_names);
  tcase_add_test(t, a_large_plan);
  suite_add_tcase(s, t);
  return s;
}
