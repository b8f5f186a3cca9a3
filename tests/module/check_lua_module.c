/* check_lua_module.c - require "weft" in the lua5.4 of the system: the same answers as in
 * weft lua, nothing of Lua linked, one name exported. Skipped, with the reason, where
 * there is no lua5.4 or nm. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/process.h"

/* Sanitizers must be in the process from its start. */
#if defined(__SANITIZE_ADDRESS__)
#define RUNTIME "libasan.so"
#elif defined(__SANITIZE_THREAD__)
#define RUNTIME "libtsan.so"
#endif
#ifdef RUNTIME
#define STOCK                                                                            \
  "env LD_PRELOAD=$(cc -print-file-name=" RUNTIME ") ASAN_OPTIONS=detect_leaks=0 "       \
  "LUA_CPATH=" WEFT_BINARY_DIR "/?.so lua5.4 "
#else
#define STOCK "env LUA_CPATH=" WEFT_BINARY_DIR "/?.so lua5.4 "
#endif

static bool has(const char *program) {
  char command[64];
  snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
  if (system(command) == 0) return true;
  printf("lua_module: skipped: there is no %s\n", program);
  return false;
}

static const char script[] =
    "local weft = require 'weft'\n"
    "local p = assert(weft.load(arg[1] .. 'llama3_70b.lua'))\n"
    "print(p, p.mesh, p:memory(), p:comm(), p:match 'lm_head', p:schedule())\n"
    "print(#p:program(5).text, p:shards 'lm_head')\n"
    "print(p:with { mesh = { tp = 3, world = 64 } })\n"
    "local q = weft.plan { model = weft.model 'llama-tiny', mesh = { tp = 2 },\n"
    "  batch = { global = 8, seq = 16 }, schedule = function(s)\n"
    "    for i = 0, s.microbatches - 1 do s:F(0, i) s:B(0, i) end end }\n"
    "print(q:verify { steps = 1 }.ok, string.format('%.4f', q:run { steps = 2 "
    "}[2].loss))\n"
    "print(weft.mesh { tp = 2, pp = 2 }, pcall(weft.mesh, { tp = -1 }))\n"
    "for k in pairs(_G) do if k:find 'weft' then print(k) end end\n"
    "io.stderr:write 'end\\n'\n"
    "error 'last'\n";

static Outcome run(const char *with, const char *file) {
  Process p = process_start(60, "%s %s %s", with, file, WEFT_SOURCE_DIR "/plans/");
  return process_end(&p);
}

START_TEST(same_as_weft_lua) {
  if (!has("lua5.4")) return;
  scratch_put("a.lua", script, strlen(script));
  Outcome stock = run(STOCK, "a.lua"), own = run("$weft lua", "a.lua");
  ck_assert_msg(stock.code == 1 && strstr(stock.err, "end\n") &&
                    strstr(stock.err, "a.lua:13: last"),
                "exit %d\n%s%s", stock.code, stock.out, stock.err);
  ck_assert_int_eq(own.code, 1);
  ck_assert_str_eq(stock.out, own.out);
  ck_assert_ptr_nonnull(strstr(stock.out, "\ntrue\t5."));
}
END_TEST

/* A state that is closed in the middle of everything, and one that is left open. */
START_TEST(states_end) {
  static const char *const ends[] = {"os.exit(0, true)", "os.exit(0, false)",
                                     "p:run { steps = 1 } os.exit(0, true)",
                                     "p = nil collectgarbage() os.exit(0, true)",
                                     "package.loaded.weft = nil weft = nil\n"
                                     "collectgarbage() p:check() os.exit(0, true)"};
  if (!has("lua5.4")) return;
  for (int i = 0; i < LEN(ends); i++) {
    char text[512];
    snprintf(text, sizeof text,
             "weft = require 'weft' p = weft.plan { model = weft.model 'llama-tiny',\n"
             "mesh = { tp = 2 }, batch = { global = 8, seq = 16 } } p:check()\n%s\n",
             ends[i]);
    scratch_put("a.lua", text, strlen(text));
    Outcome o = run(STOCK, "a.lua");
    ck_assert_msg(o.code == 0 && !*o.out && !*o.err, "%s: exit %d\n%s%s", ends[i], o.code,
                  o.out, o.err);
  }
}
END_TEST

START_TEST(symbols) {
  if (!has("nm") || !has("ldd")) return;
  Outcome o = process_run(20, "nm -D --defined-only %s/weft.so", WEFT_BINARY_DIR);
  ck_assert_int_eq(o.code, 0);
  int n = 0;
  char name[256];
  for (const char *s = o.out; *s; s += strcspn(s, "\n"), s += *s == '\n') {
    ck_assert_int_eq(sscanf(s, "%*s %*c %255s", name), 1);
    if (strncmp(name, "__", 2) == 0) continue;
    ck_assert_str_eq(name, "luaopen_weft");
    n++;
  }
  ck_assert_int_eq(n, 1);
  o = process_run(20, "nm -D --undefined-only %s/weft.so", WEFT_BINARY_DIR);
  ck_assert_msg(strstr(o.out, " lua_newstate\n") != NULL, "%s", o.out);
  o = process_run(20, "ldd %s/weft.so", WEFT_BINARY_DIR);
  ck_assert_msg(o.code == 0 && !strstr(o.out, "liblua"), "%s", o.out);
}
END_TEST

Suite *lua_module_suite(void) {
  Suite *s = suite_create("lua_module");
  TCase *tc = tcase_create("module");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, same_as_weft_lua);
  tcase_add_test(tc, states_end);
  tcase_add_test(tc, symbols);
  suite_add_tcase(s, tc);
  return s;
}
