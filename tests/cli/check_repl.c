/* check_repl.c - the prompt on a real terminal, and scripts without one. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/process.h"
#include "tests/lib/terminal.h"
#include "vm/io/io.h"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static Terminal *prompt(const char *command) {
  Terminal *t = terminal_start(command);
  terminal_wait_row(t, 0, ">");
  return t;
}

/* Enters a line; what was printed before the next prompt. */
static const char *answer(Terminal *t, const char *line) {
  int row = t->row;
  terminal_enter(t, line, ">");
  return terminal_rows(t, row + 1, t->row - 1);
}

static void expect(Terminal *t, const char *line, const char *want) {
  ck_assert_str_eq(answer(t, line), want);
}

static int leave(Terminal *t) {
  terminal_type(t, "\004");
  return terminal_end(t);
}

/* ---- values ---- */

START_TEST(values) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  expect(t, "1 + 1", "2\n");
  expect(t, "_ * 21", "42\n");
  expect(t, "'a', nil, {1}", "a       nil     { 1 }\n");
  expect(t, "_", "a\n");
  expect(t, "7;", "");
  expect(t, "_", "7\n");
  expect(t, "x = { b = 1, a = { 2 } }", "");
  expect(t, "x", "{ a = { 2 }, b = 1 }\n");
  expect(t, "print 'said'", "said\n");
  expect(t, "return 1, 2", "1       2\n");
  expect(t, "function f() end f()", "");
  expect(t, "f()", "");
  expect(t, "-- only a remark", "");
  expect(t, "'\xc3\xa4\xe2\x82\xac'", "\xc3\xa4\xe2\x82\xac\n");
  expect(t, "", "");
  expect(t, "local y = 1",
         "note: a local ends with its line; without the word it stays\n");
  expect(t, "local y = 1", "");
  ck_assert_int_eq(leave(t), 0);
  ck_assert_int_eq(t->colours, 0);
}
END_TEST

START_TEST(several_lines) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  terminal_enter(t, "for i = 1, 2 do", ">>");
  terminal_enter(t, "  print(i)", ">>");
  expect(t, "end", "1\n2\n");
  terminal_enter(t, "{", ">>");
  expect(t, "1 }", "{ 1 }\n");
  terminal_enter(t, "[[a", ">>");
  expect(t, "b]]", "a\nb\n");
  terminal_enter(t, "1 +", ">>");
  terminal_enter(t, "", ">>");
  expect(t, "2", "3\n");
  terminal_enter(t, "f = function()", ">>");
  terminal_enter(t, "  error 'on two'", ">>");
  expect(t, "end f()",
         "error: stdin:2: on two\n  stdin:2: in function 'f'\n"
         "  stdin:3: in the chunk\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

START_TEST(errors) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  expect(t, "x y", "error: syntax error near 'y'\n");
  expect(t, "1 + + 2", "error: unexpected symbol near '+'\n");
  expect(t, "error 'oh'", "error: oh\n");
  expect(t, "error({ code = 1 })", "error: { code = 1 }\n");
  expect(t, "error()", "error: nil\n");
  expect(t, "maths.pi",
         "error: attempt to index a nil value (global 'maths') (did you mean "
         "'math'?)\n");
  expect(t, "weft.mehs", "error: weft has no 'mehs' (did you mean 'mesh'?)\n");
  answer(t,
         "function deep(n) if n == 0 then error 'bottom' end deep(n - 1) return 1 end");
  const char *s = answer(t, "deep(100)");
  ck_assert_ptr_nonnull(strstr(s, "error: bottom\n  stdin:1: in "));
  ck_assert_ptr_nonnull(strstr(s, "\n  ...\n"));
  ck_assert_ptr_null(strstr(s, "[C]"));
  s = answer(t, "function forever() return 1 + forever() end forever()");
  ck_assert_ptr_nonnull(strstr(s, "error: stack overflow"));
  expect(t, "setmetatable({}, { __tostring = function() error('no', 0) end })",
         "<its __tostring fails: no>\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* ---- commands and help ---- */

START_TEST(command_lines) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  expect(t, ",hlep", "error: no command ',hlep' (did you mean ',help'?)\n");
  expect(t, ",x", "error: no command ',x'; ,help lists them\n");
  expect(t, ",", "error: no command ','; ,help lists them\n");
  expect(t, ",reload", "error: there is no plan to load again: ,plan FILE\n");
  expect(t, ",reload it", "error: ,reload takes nothing\n");
  expect(t, ",set", "every field is as in the plan\n");
  expect(t, ",set mesh.tp", "error: ,set takes path=value: mesh.tp=4\n");
  expect(t, ",set mesh.tp=4", "error: there is no plan to change: ,plan FILE\n");
  expect(t, ",plan", "no plan: ,plan FILE loads one\n");
  expect(t, ",time", "the time of each line is printed\n");
  ck_assert_ptr_nonnull(strstr(answer(t, "1"), " ms\n"));
  expect(t, ",time", "the time of each line is not printed\n");
  ck_assert_ptr_nonnull(strstr(answer(t, ",time 1 + 1"), "2\n"));
  ck_assert_ptr_nonnull(strstr(answer(t, ",help"), ",reload"));
  expect(t, ",help ,time",
         ",time [code]\n"
         "  times a line of Lua; alone: every line, or none\n");
  terminal_type(t, ",quit\n");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

START_TEST(help) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  expect(t, "?batch.micro",
         "batch = { micro = ... }   integer, 1 to 1e+09; default: 1\n"
         "  sequences of a rank's microbatch\n");
  expect(t, "? plan.batch.micro", answer(t, "?batch.micro"));
  ck_assert_ptr_nonnull(strstr(answer(t, "?mesh.tp"), "tensor parallel: "));
  expect(
      t, "?zero.sequence_parallel",
      "strategy = { \"zero\", sequence_parallel = ... }   true, false; default: false\n"
      "  activations between layers are cut by sequence over tp\n");
  expect(t, "?adamw.eps",
         "weft.adamw { eps = ... }   number, 0 to 1; default: 1e-08\n"
         "  added to the root of the second average\n");
  expect(t, "help(weft.mesh { tp = 2 }.coord)", answer(t, "?mesh.coord"));
  ck_assert_ptr_nonnull(strstr(answer(t, "help(weft.mesh { tp = 2 })"), "mesh:coord("));
  ck_assert_ptr_nonnull(strstr(answer(t, "m = weft.mesh { tp = 2 } ?m"), "error: "));
  answer(t, "m = weft.mesh { tp = 2 }");
  expect(t, "?m.coord", answer(t, "?mesh.coord"));
  expect(t, "?weft.version", "weft.version\n  the version of weft, as text\n");
  expect(t, "help 'weft.version'", "weft.version\n  the version of weft, as text\n");
  expect(t, "help(weft.synthetic)", "weft.synthetic {}\n  made-up tokens as data\n");
  expect(t, "?mesh.tpp",
         "error: nothing is known about 'mesh.tpp' (did you mean "
         "'mesh.tp'?)\n");
  expect(t, "help 'zzz'", "error: nothing is known about 'zzz'\n");
  ck_assert_ptr_nonnull(strstr(answer(t, "help(print)"), "not this function"));
  ck_assert_ptr_nonnull(strstr(answer(t, "?batch"), "  micro "));
  ck_assert_ptr_nonnull(strstr(answer(t, "?optimizer.lr.max"), "after the warmup"));
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* ---- plans ---- */

static void put_plan(const char *name, int micro) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\n"
      "return weft.plan {\n"
      "  name = '%s', mesh = { tp = 2 },\n"
      "  model = weft.model { 'llama', hidden_size = 64, num_hidden_layers = 2,\n"
      "    num_attention_heads = 4, intermediate_size = 128, vocab_size = 256 },\n"
      "  batch = { global = 8, micro = %d, seq = tonumber(weft.vars.SEQ or 16) },\n"
      "}\n",
      name, micro);
  scratch_put(name, text, strlen(text));
}

START_TEST(plans) {
  put_plan("a.lua", 1);
  put_plan("b.lua", 2);
  Terminal *t = prompt(arena_printf(scratch_arena, "NO_COLOR=1 $weft repl %s -D SEQ=32",
                                    scratch_path("a.lua")));
  static const char a[] = "plan a.lua: tp=2, 2 ranks, 1f1b\n";
  ck_assert_ptr_nonnull(strstr(terminal_rows(t, 0, t->row), a));
  expect(t, "plan", a);
  expect(t, "plan.spec.batch", "{ global = 8, micro = 1, seq = 32 }\n");
  expect(t, "mesh == plan.mesh, mesh.tp", "true    2\n");
  ck_assert_ptr_nonnull(strstr(answer(t, ",set mesh.tp=1"), "plan a.lua: one rank"));
  expect(t, ",set mesh.tp = 4", "plan a.lua: tp=4, 4 ranks, 1f1b\n");
  expect(t, ",set", "mesh.tp=4\n");
  ck_assert_ptr_nonnull(strstr(answer(t, ",set mesh.tp=3"), "3 does not divide"));
  ck_assert_ptr_nonnull(strstr(answer(t, ",set mesh.tpp=3"), "did you mean \"tp\"?"));
  expect(t, ",set", "mesh.tp=4\n");
  expect(t, "mesh.tp", "4\n");
  /* A plan that went wrong can be mended. */
  put_plan("a.lua", 0);
  ck_assert_ptr_nonnull(strstr(answer(t, ",reload"), "a.lua:6: error: plan.batch.micro"));
  expect(t, "mesh.tp", "4\n");
  put_plan("a.lua", 4);
  expect(t, ",reload", "plan a.lua: tp=4, 4 ranks, 1f1b\n");
  expect(t, "plan.spec.batch.micro", "4\n");
  expect(t, arena_printf(scratch_arena, ",plan %s", scratch_path("b.lua")),
         "plan b.lua: tp=2, 2 ranks, 1f1b\n");
  expect(t, ",set mesh.tp=4", "plan b.lua: tp=4, 4 ranks, 1f1b\n");
  ck_assert_ptr_nonnull(strstr(answer(t, ",plan none.lua"), "none.lua: error: "));
  /* That slip changed nothing. */
  expect(t, "plan", "plan b.lua: tp=4, 4 ranks, 1f1b\n");
  expect(t, ",set", "mesh.tp=4\n");
  expect(t, ",reload", "plan b.lua: tp=4, 4 ranks, 1f1b\n");
  expect(t, "plan.mehs", "error: weft.plan has no 'mehs' (did you mean 'mesh'?)\n");
  expect(t, "plan:wiht {}", "error: weft.plan has no 'wiht' (did you mean 'with'?)\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* What somebody may do to Lua's functions, types and globals does not reach the prompt. */
START_TEST(nothing_of_lua_is_left) {
  static const char wreck[] =
      "local next, ipairs, set, all = next, ipairs, debug.setmetatable, _G\n"
      "local evil = {}\n"
      "for _, name in ipairs { 'index', 'newindex', 'tostring', 'len', 'call', 'concat',\n"
      "  'eq', 'lt', 'le', 'pairs', 'name', 'metatable' } do\n"
      "  evil['__' .. name] = function() while true do end end end\n"
      "setmetatable(_G, evil)\n"
      "for _, library in ipairs { string, table, math, utf8, debug, io, os, coroutine,\n"
      "  package.loaded, package, weft } do\n"
      "  for k in next, library do library[k] = nil end end\n"
      "for k in next, all do if k ~= 'plan' and k ~= 'mesh' then all[k] = nil end end\n"
      "evil.__tostring = nil\n" /* string.format calls it for texts, too */
      "for _, v in ipairs { '', 0, true, next } do set(v, evil) end\n"
      "set(nil, evil)\n";
  put_plan("a.lua", 1);
  const char *file = scratch_put("wreck.lua", wreck, strlen(wreck));
  const char *command =
      arena_printf(scratch_arena, "NO_COLOR=1 $weft repl %s", scratch_path("a.lua"));
  static const char *const lines[] = {
      "{ 1, 'x', { a = true } }", "1.5, nil",      "plan",        "mesh",
      "plan:memory()",            "plan:rank(1)",  "plan:comm()", "plan:match 'norm'",
      "plan:shards 'lm_head'",    "plan:diff(plan)", "mesh:coord(1)", "mesh:groups 'tp'",
      "plan.spec.batch",          "?batch.micro",  "?plan.diff",  ",set mesh.tp=4",
      ",set",                     ",x",            "plan.mehs",   "1 + + 2",
      "local x = 1"};
  const char *want[LEN(lines)];
  Terminal *t = prompt(command);
  for (int i = 0; i < LEN(lines); i++)
    want[i] = arena_str(scratch_arena, answer(t, lines[i]));
  ck_assert_int_eq(leave(t), 0);
  t = prompt(command);
  expect(t, arena_printf(scratch_arena, "dofile '%s'", file), "");
  for (int i = 0; i < LEN(lines); i++)
    expect(t, lines[i], want[i]);
  terminal_type(t, "pla\t.me\t\n");
  terminal_wait(t, "> plan.mesh\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

START_TEST(a_wrong_plan_leaves_the_prompt) {
  put_plan("a.lua", 0);
  Terminal *t = prompt(
      arena_printf(scratch_arena, "NO_COLOR=1 $weft repl %s", scratch_path("a.lua")));
  ck_assert_ptr_nonnull(
      strstr(terminal_rows(t, 0, t->row), "a.lua:6: error: plan.batch.micro"));
  expect(t, "plan", "nil\n");
  put_plan("a.lua", 1);
  expect(t, ",reload", "plan a.lua: tp=2, 2 ranks, 1f1b\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* ---- the session of docs/repl.md ---- */

/* Types what the page has after its prompts; Ctrl-C where it shows one. */
static Terminal *replay(char *session) {
  char *line = strtok(session, "\n"), *next;
  Terminal *t = NULL;
  for (; line; line = next) {
    next = strtok(NULL, "\n");
    bool more = strncmp(line, ">> ", 3) == 0;
    if (strncmp(line, "$ weft ", 7) == 0) {
      t = prompt(arena_printf(scratch_arena, "NO_COLOR=1 $weft %s", line + 7));
      continue;
    }
    if (strcmp(line, "> ^D") == 0) return t;
    if (!more && strncmp(line, "> ", 2) != 0) continue;
    ck_assert_ptr_nonnull(t);
    const char *keys = line + (more ? 3 : 2);
    int row = t->row;
    if (next && strncmp(next, "^C", 2) == 0) {
      terminal_type(t, arena_printf(scratch_arena, "%s\n", keys));
      terminal_wait_row(t, row, "");
      usleep(50000);
      terminal_type(t, "\003");
      terminal_wait_row(t, row, ">");
    } else {
      terminal_enter(t, keys, next && strncmp(next, ">> ", 3) == 0 ? ">>" : ">");
    }
  }
  return t;
}

START_TEST(session_of_the_page) {
  const char *page = scratch_get(WEFT_SOURCE_DIR "/docs/repl.md");
  const char *begin = strstr(page, "```console\n"), *end;
  ck_assert_ptr_nonnull(begin);
  begin += strlen("```console\n");
  end = strstr(begin, "```");
  ck_assert_ptr_nonnull(end);
  char *session = arena_strn(scratch_arena, begin, (size_t)(end - begin));
  const char *want = strchr(arena_str(scratch_arena, session), '\n') + 1;
  int lines = 0;
  for (const char *p = want; *p; p++)
    lines += *p == '\n';
  Terminal *t = replay(session);
  ck_assert_int_eq(leave(t), 0);
  const char *got = terminal_rows(t, 0, t->row - 1);
  ck_assert_msg(strcmp(got, want) == 0, "docs/repl.md should have:\n%s", got);
  ck_assert_int_ge(lines, 40);
}
END_TEST

/* ---- keys ---- */

START_TEST(tab) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  terminal_type(t, "wef\t.ver\t");
  terminal_wait_row(t, -1, "> weft.version");
  terminal_type(t, "\n");
  terminal_wait(t, "\n0.");
  terminal_wait_row(t, 2, ">");
  terminal_type(t, "string.re\t");
  terminal_wait(t, "rep      reverse\n> string.re");
  terminal_type(t, "v\t'ab')\n");
  terminal_wait(t, "> string.reverse('ab')\nba\n>");
  terminal_type(t, "x\003");
  terminal_wait(t, "> x^C\n>");
  /* Also after the line was drawn, wherever the cursor stands. */
  terminal_type(t, "weft");
  terminal_wait_row(t, -1, "> weft");
  terminal_type(t, "\002\002\003");
  terminal_wait(t, "> x^C\n> weft^C\n>");
  /* With nothing before it the key indents. */
  terminal_type(t, "\t7\n");
  terminal_wait(t, ">   7\n7\n>");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

START_TEST(ctrl_c_clears_the_line) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  terminal_type(t, "not finished\003");
  terminal_wait_row(t, 1, ">");
  terminal_enter(t, "for i = 1, 2 do", ">>");
  terminal_type(t, "\003");
  terminal_wait_row(t, t->row, ">");
  expect(t, "1", "1\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

static void interrupts(Terminal *t, const char *code, const char *want) {
  int row = t->row;
  terminal_type(t, arena_printf(scratch_arena, "begun() %s\n", code));
  terminal_wait_row(t, row, "begun");
  usleep(20000);
  terminal_type(t, "\003");
  terminal_wait_row(t, row + 1, ">");
  const char *s = terminal_rows(t, row + 1, t->row - 1);
  ck_assert_msg(strstr(s, want) != NULL, "%s: %s", code, s);
}

START_TEST(ctrl_c_stops_code) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  answer(t, "function begun() io.write 'begun' io.flush() end");
  static const char wanted[] = "error: interrupted!\n  stdin:1: in the chunk\n";
  interrupts(t, "while true do end", wanted);
  interrupts(t, "while true do pcall(function() while true do end end) end", wanted);
  interrupts(t, "coroutine.wrap(function() while true do end end)() print 'on'",
             "error: interrupted!");
  interrupts(t, "repeat local ok = pcall(error) until false", wanted);
  answer(t, "co = coroutine.create(function() while true do end end)");
  interrupts(t, "while true do coroutine.resume(co) end", wanted);
  interrupts(t, "setmetatable({}, { __gc = function() end }) for i = 1, math.huge do end",
             wanted);
  /* The state is as good as before. */
  expect(t, "1 + 1", "2\n");
  expect(t, "coroutine.wrap(function() return 3 end)()", "3\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* What takes long in C listens, too. */
START_TEST(ctrl_c_stops_work_in_c) {
  put_plan("a.lua", 1);
  static const char endless[] = "while true do end";
  scratch_put("endless.lua", endless, strlen(endless));
  Terminal *t = prompt(
      arena_printf(scratch_arena, "NO_COLOR=1 $weft repl %s", scratch_path("a.lua")));
  answer(t, "function begun() io.write 'begun' io.flush() end");
  interrupts(t, "plan:run { steps = 1000000 }", "interrupted");
  expect(t, "1 + 1", "2\n");
  interrupts(t, "_ = (('a'):rep(40)):find(('.-'):rep(20) .. 'b')", "interrupted!");
  interrupts(t, "table.concat(setmetatable({}, { __index = function() return '' end }), '', "
                "1, 1e15)", "interrupted!");
  interrupts(t, "pcall(table.move, {}, 1, 1e15, 2)", "interrupted!");
  interrupts(t, "while true do pcall(string.gsub, ('a'):rep(1e5), '.-.-b', '') end",
             "interrupted!");
  interrupts(
      t,
      arena_printf(scratch_arena, "return weft.load '%s'", scratch_path("endless.lua")),
      "interrupted");
  expect(t, "plan:check()", "true\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* Words that people try when they want to leave or are lost. */
START_TEST(words_that_are_no_lua) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  ck_assert_ptr_nonnull(strstr(answer(t, "help"), ",quit"));
  expect(t, "exit = 3", "");
  expect(t, "exit", "3\n");
  expect(t, "exit = nil", "");
  terminal_type(t, "exit\n");
  ck_assert_int_eq(terminal_end(t), 0);
  t = prompt("NO_COLOR=1 $weft repl");
  terminal_type(t, "quit()\n");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

START_TEST(a_second_ctrl_c_ends_what_does_not_listen) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  answer(t, "function slow() io.write 'begun' io.flush() while true do end end");
  terminal_type(t, "setmetatable({}, { __gc = slow }) collectgarbage()\n");
  terminal_wait_row(t, t->row, "begun");
  terminal_type(t, "\003");
  usleep(400000);
  terminal_type(t, "\003");
  ck_assert_int_eq(terminal_end(t), 128 + SIGINT);
}
END_TEST

START_TEST(ctrl_d_typed_ahead_leaves) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  terminal_type(t, "print 'begun' for i = 1, 2e7 do end\n");
  terminal_wait(t, "\nbegun\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

START_TEST(ctrl_d_with_text_does_not_leave) {
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  terminal_type(t, "1\004");
  usleep(50000);
  terminal_type(t, " + 1\n");
  terminal_wait_row(t, 2, ">");
  ck_assert_ptr_nonnull(strstr(terminal_rows(t, 0, t->row), "\n2\n>"));
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* ---- colours, dumb terminals ---- */

START_TEST(colours) {
  Terminal *t = prompt("$weft repl");
  expect(t, "{ 1, 'x' }", "{ 1, \"x\" }\n");
  ck_assert_int_gt(t->colours, 4);
  ck_assert_int_eq(leave(t), 0);
  t = prompt("NO_COLOR=1 $weft repl");
  expect(t, "{ 1, 'x' }", "{ 1, \"x\" }\n");
  expect(t, "error 'x'", "error: x\n");
  ck_assert_int_eq(leave(t), 0);
  ck_assert_int_eq(t->colours, 0);
}
END_TEST

START_TEST(dumb_terminal) {
  Terminal *t = prompt("TERM=dumb $weft repl");
  expect(t, "1 + 1", "2\n");
  terminal_type(t, "dropped\003");
  terminal_wait_row(t, t->row, ">");
  expect(t, "3", "3\n");
  terminal_type(t, "while true do end\n");
  usleep(100000);
  terminal_type(t, "\003");
  terminal_wait(t, "interrupted!");
  ck_assert_int_eq(leave(t), 0);
  ck_assert_int_eq(t->colours, 0);
}
END_TEST

START_TEST(without_the_editor) {
  const char *weft = scratch_path("weft");
  ck_assert_int_eq(
      system(arena_printf(scratch_arena, "cp " WEFT_BINARY_DIR "/weft %s", weft)), 0);
  Terminal *t = prompt(arena_printf(scratch_arena, "NO_COLOR=1 %s repl", weft));
  ck_assert_ptr_nonnull(
      strstr(terminal_rows(t, 0, t->row),
             "weft: no line editing and no completion: weft_edit.so: "));
  expect(t, "1 + 1", "2\n");
  ck_assert_int_eq(leave(t), 0);
}
END_TEST

/* ---- history ---- */

static int mode_of(const char *path) {
  struct stat s;
  ck_assert_msg(stat(path, &s) == 0, "%s is not there", path);
  return (int)(s.st_mode & 0777);
}

START_TEST(history) {
  const char *path = scratch_path("history");
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  expect(t, "'back\\\\slash'", "back\\slash\n");
  terminal_enter(t, "{", ">>");
  expect(t, "1 }", "{ 1 }\n");
  expect(t, "2", "2\n");
  expect(t, "2", "2\n");
  expect(t, ",set", "every field is as in the plan\n");
  /* The same text stands above already. */
  int row = t->row;
  terminal_type(t, "\033[A\033[A\n");
  terminal_wait_row(t, row + 1, ">");
  ck_assert_str_eq(terminal_rows(t, row, t->row), "> 2\n2\n>\n");
  ck_assert_int_eq(leave(t), 0);
  ck_assert_str_eq(scratch_get(path), "'back\\\\\\\\slash'\n{\\n1 }\n2\n,set\n2\n");
  ck_assert_int_eq(mode_of(path), 0600);
  /* The next prompt brings it back; a mode that was changed is put right. */
  ck_assert_int_eq(chmod(path, 0644), 0);
  t = prompt("NO_COLOR=1 $weft repl");
  terminal_type(t, "\033[A\n");
  terminal_wait(t, "> 2\n2\n>");
  expect(t, "9", "9\n");
  ck_assert_int_eq(leave(t), 0);
  ck_assert_int_eq(mode_of(path), 0600);
}
END_TEST

START_TEST(history_places) {
  const char *home = scratch_dir;
  Terminal *t = prompt("-u WEFT_HISTORY -u XDG_STATE_HOME NO_COLOR=1 $weft repl");
  expect(t, "1", "1\n");
  leave(t);
  const char *path = arena_printf(scratch_arena, "%s/.local/state/weft/history", home);
  ck_assert_int_eq(mode_of(path), 0600);
  ck_assert_int_eq(mode_of(arena_printf(scratch_arena, "%s/.local/state/weft", home)),
                   0700);
  t = prompt(arena_printf(scratch_arena,
                          "-u WEFT_HISTORY XDG_STATE_HOME=%s/xdg NO_COLOR=1 $weft repl",
                          home));
  expect(t, "1", "1\n");
  leave(t);
  ck_assert_int_eq(mode_of(arena_printf(scratch_arena, "%s/xdg/weft/history", home)),
                   0600);
  /* Off; and a place that cannot be written is said once. */
  t = prompt("WEFT_HISTORY= NO_COLOR=1 $weft repl");
  expect(t, "1", "1\n");
  leave(t);
  t = prompt("WEFT_HISTORY=/dev/full NO_COLOR=1 $weft repl");
  expect(t, "1",
         "1\nweft: the history is not kept: cannot write /dev/full: No space left "
         "on device\n");
  expect(t, "2", "2\n");
  ck_assert_int_eq(leave(t), 0);
  ck_assert_int_eq(
      system(arena_printf(scratch_arena, "rm -r %s/xdg %s/.local", home, home)), 0);
}
END_TEST

START_TEST(long_history_is_cut) {
  Text all = {0};
  for (int i = 0; i < 3000; i++)
    text_printf(&all, "x = %d\n", i);
  const char *path = scratch_put("history", all.s, all.n);
  text_free(&all);
  Terminal *t = prompt("NO_COLOR=1 $weft repl");
  terminal_type(t, "\033[A");
  terminal_wait(t, "> x = 2999");
  terminal_type(t, "\003");
  terminal_wait_row(t, t->row, ">");
  leave(t);
  const char *kept = scratch_get(path);
  ck_assert_int_eq(strncmp(kept, "x = 2000\n", 9), 0);
  ck_assert_int_eq(mode_of(path), 0600);
}
END_TEST

/* ---- without a terminal ---- */

static void script(const char *text, const char *args, int code, const char *out,
                   const char *err) {
  scratch_put("script", text, strlen(text));
  Outcome o = process_run(20, "$weft repl %s <script", args);
  ck_assert_msg(o.code == code, "%s: exit %d: %s%s", text, o.code, o.out, o.err);
  ck_assert_str_eq(o.out, out);
  ck_assert_msg(*err ? strstr(o.err, err) != NULL : !*o.err, "%s: %s", text, o.err);
}

START_TEST(piped_input_is_a_script) {
  script("", "", 0, "", "");
  script("local x = 1\nprint(x + 1)\n", "", 0, "2\n", "");
  script("print(weft.version ~= nil)", "", 0, "true\n", "");
  script("print 'before'\nerror 'here'\nprint 'after'\n", "", 1, "before\n",
         "stdin:2: here");
  script("1 +\n", "", 1, "", "stdin:1: ");
  script("print(1)", "no_such_plan.lua", 2, "", "no_such_plan.lua");
  /* Options are those of weft check. */
  put_plan("a.lua", 1);
  const char *a = scratch_path("a.lua");
  script("print(plan.mesh.tp)", arena_printf(scratch_arena, "%s -D LONG", a), 0, "2\n",
         "");
  script("print(1)", arena_printf(scratch_arena, "%s --set mesh.tp", a), 2, "",
         "--set mesh.tp: write --set PATH=VALUE");
  Outcome o = process_run(20, "sh -c \"echo 'print(1)' | $weft repl >/dev/full\"");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "cannot write to the standard output"));
}
END_TEST

START_TEST(no_verb) {
  Terminal *t = prompt("NO_COLOR=1 $weft");
  expect(t, "1", "1\n");
  ck_assert_int_eq(leave(t), 0);
  ck_assert_int_eq(process_run(20, "$weft").code, 2);
  /* Values that go elsewhere are no reason to prompt. */
  t = terminal_start(arena_printf(scratch_arena, "$weft repl >%s", scratch_path("out")));
  terminal_type(t, "print 'quiet'\n\004");
  ck_assert_int_eq(terminal_end(t), 0);
  ck_assert_str_eq(scratch_get(scratch_path("out")), "quiet\n");
}
END_TEST

/* ---- time ---- */

START_TEST(first_prompt) {
  double best = 1e9;
  for (int i = 0; i < 7; i++) {
    double from = now_ms();
    Terminal *t = prompt("NO_COLOR=1 $weft repl");
    best = MIN(best, now_ms() - from);
    leave(t);
  }
  printf("# repl: first prompt after %.1f ms\n", best);
}
END_TEST

Suite *repl_suite(void) {
  Suite *s = suite_create("repl");
  TCase *t = tcase_create("terminal");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, values);
  tcase_add_test(t, several_lines);
  tcase_add_test(t, errors);
  tcase_add_test(t, command_lines);
  tcase_add_test(t, help);
  tcase_add_test(t, plans);
  tcase_add_test(t, nothing_of_lua_is_left);
  tcase_add_test(t, a_wrong_plan_leaves_the_prompt);
  tcase_add_test(t, session_of_the_page);
  tcase_add_test(t, tab);
  tcase_add_test(t, words_that_are_no_lua);
  tcase_add_test(t, ctrl_c_clears_the_line);
  tcase_add_test(t, ctrl_c_stops_code);
  tcase_add_test(t, ctrl_c_stops_work_in_c);
  tcase_add_test(t, a_second_ctrl_c_ends_what_does_not_listen);
  tcase_add_test(t, ctrl_d_with_text_does_not_leave);
  tcase_add_test(t, ctrl_d_typed_ahead_leaves);
  tcase_add_test(t, colours);
  tcase_add_test(t, dumb_terminal);
  tcase_add_test(t, without_the_editor);
  tcase_add_test(t, history);
  tcase_add_test(t, history_places);
  tcase_add_test(t, long_history_is_cut);
  tcase_add_test(t, piped_input_is_a_script);
  tcase_add_test(t, no_verb);
  tcase_add_test(t, first_prompt);
  suite_add_tcase(s, t);
  return s;
}
