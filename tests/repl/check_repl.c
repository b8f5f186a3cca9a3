/* check_repl.c - the prompt on a real terminal, and scripts without one. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "tests/harness/prompt.h"
#include "vm/io/io.h"

/* ---- values ---- */

START_TEST(values) {
  Terminal *t = prompt_repl("");
  prompt_says(t, "1 + 1", "2\n");
  prompt_says(t, "_ * 21", "42\n");
  prompt_says(t, "'a', nil, {1}", "a       nil     { 1 }\n");
  prompt_says(t, "_", "a\n");
  prompt_says(t, "7;", "");
  prompt_says(t, "_", "7\n");
  prompt_says(t, "x = { b = 1, a = { 2 } }", "");
  prompt_says(t, "x", "{ a = { 2 }, b = 1 }\n");
  prompt_says(t, "print 'said'", "said\n");
  prompt_says(t, "return 1, 2", "1       2\n");
  prompt_says(t, "function f() end f()", "");
  prompt_says(t, "f()", "");
  prompt_says(t, "-- only a remark", "");
  prompt_says(t, "'\xc3\xa4\xe2\x82\xac'", "\xc3\xa4\xe2\x82\xac\n");
  prompt_says(t, "", "");
  prompt_says(t, "local y = 1",
              "note: a local ends with its line; without the word it stays\n");
  prompt_says(t, "local y = 1", "");
  prompt_leave(t);
  ck_assert_int_eq(t->colours, 0);
}
END_TEST

START_TEST(several_lines) {
  Terminal *t = prompt_repl("");
  terminal_enter(t, "for i = 1, 2 do", ">>");
  terminal_enter(t, "  print(i)", ">>");
  prompt_says(t, "end", "1\n2\n");
  terminal_enter(t, "{", ">>");
  prompt_says(t, "1 }", "{ 1 }\n");
  terminal_enter(t, "[[a", ">>");
  prompt_says(t, "b]]", "a\nb\n");
  terminal_enter(t, "1 +", ">>");
  terminal_enter(t, "", ">>");
  prompt_says(t, "2", "3\n");
  terminal_enter(t, "f = function()", ">>");
  terminal_enter(t, "  error 'on two'", ">>");
  prompt_says(t, "end f()",
              "error: stdin:2: on two\n  stdin:2: in function 'f'\n"
              "  stdin:3: in the chunk\n");
  prompt_leave(t);
}
END_TEST

START_TEST(errors) {
  Terminal *t = prompt_repl("");
  prompt_says(t, "x y", "error: syntax error near 'y'\n");
  prompt_says(t, "1 + + 2", "error: unexpected symbol near '+'\n");
  prompt_says(t, "error 'oh'", "error: oh\n");
  prompt_says(t, "error({ code = 1 })", "error: { code = 1 }\n");
  prompt_says(t, "error()", "error: nil\n");
  prompt_says(t, "maths.pi",
              "error: attempt to index a nil value (global 'maths') (did you mean "
              "'math'?)\n");
  prompt_says(t, "weft.mehs", "error: weft has no 'mehs' (did you mean 'mesh'?)\n");
  prompt_answer(
      t, "function deep(n) if n == 0 then error 'bottom' end deep(n - 1) return 1 end");
  const char *s = prompt_answer(t, "deep(100)");
  ck_assert_ptr_nonnull(strstr(s, "error: bottom\n  stdin:1: in "));
  ck_assert_ptr_nonnull(strstr(s, "\n  ...\n"));
  ck_assert_ptr_null(strstr(s, "[C]"));
  s = prompt_answer(t, "function forever() return 1 + forever() end forever()");
  ck_assert_ptr_nonnull(strstr(s, "error: stack overflow"));
  prompt_says(t, "setmetatable({}, { __tostring = function() error('no', 0) end })",
              "<its __tostring fails: no>\n");
  prompt_leave(t);
}
END_TEST

/* ---- commands and help ---- */

START_TEST(command_lines) {
  Terminal *t = prompt_repl("");
  prompt_says(t, ",hlep", "error: no command ',hlep' (did you mean ',help'?)\n");
  prompt_says(t, ",x", "error: no command ',x'; ,help lists them\n");
  prompt_says(t, ",", "error: no command ','; ,help lists them\n");
  prompt_says(t, ",reload", "error: there is no plan to load again: ,plan FILE\n");
  prompt_says(t, ",reload it", "error: ,reload takes nothing\n");
  prompt_says(t, ",set", "every field is as in the plan\n");
  prompt_says(t, ",set mesh.tp", "error: ,set takes path=value: mesh.tp=4\n");
  prompt_says(t, ",set mesh.tp=4", "error: there is no plan to change: ,plan FILE\n");
  prompt_says(t, ",plan", "no plan: ,plan FILE loads one\n");
  prompt_says(t, ",time", "the time of each line is printed\n");
  prompt_tells(t, "1", " ms\n");
  prompt_says(t, ",time", "the time of each line is not printed\n");
  prompt_tells(t, ",time 1 + 1", "2\n");
  prompt_tells(t, ",help", ",reload");
  prompt_says(t, ",help ,time",
              ",time [code]\n"
              "  times a line of Lua; alone: every line, or none\n");
  terminal_type(t, ",quit\n");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

START_TEST(help) {
  Terminal *t = prompt_repl("");
  prompt_says(t, "?batch.micro",
              "batch = { micro = ... }   integer, 1 to 1e+09; default: 1\n"
              "  sequences of a rank's microbatch\n");
  prompt_says(t, "? plan.batch.micro", prompt_answer(t, "?batch.micro"));
  prompt_tells(t, "?mesh.tp", "tensor parallel: ");
  prompt_says(
      t, "?zero.sequence_parallel",
      "strategy = { \"zero\", sequence_parallel = ... }   true, false; default: false\n"
      "  activations between layers are cut by sequence over tp\n");
  prompt_says(
      t, "?adamw.eps",
      "weft.adamw { eps = ... }   number, 0 to 1; default: 1e-08\n"
      "  added to the root of the second average; with 0 an element whose gradients were "
      "all 0 does not move\n");
  prompt_says(t, "help(weft.mesh { tp = 2 }.coord)", prompt_answer(t, "?mesh.coord"));
  prompt_tells(t, "help(weft.mesh { tp = 2 })", "mesh:coord(");
  prompt_tells(t, "m = weft.mesh { tp = 2 } ?m", "error: ");
  prompt_answer(t, "m = weft.mesh { tp = 2 }");
  prompt_says(t, "?m.coord", prompt_answer(t, "?mesh.coord"));
  prompt_says(t, "?weft.version", "weft.version\n  the version of weft, as a string\n");
  prompt_says(t, "help 'weft.version'",
              "weft.version\n  the version of weft, as a string\n");
  prompt_says(t, "help(weft.synthetic)", "weft.synthetic {}\n  made-up tokens as data\n");
  prompt_says(t, "?mesh.tpp",
              "error: nothing is known about 'mesh.tpp' (did you mean "
              "'mesh.tp'?)\n");
  prompt_says(t, "help 'zzz'", "error: nothing is known about 'zzz'\n");
  prompt_tells(t, "help(print)", "not this function");
  prompt_tells(t, "?batch", "  micro ");
  prompt_tells(t, "?1f1b", "schedule = \"1f1b\"\n  one forward, one backward: ");
  prompt_tells(t, "?1f1b", "  Memory:     P-r microbatches on rank r.\n");
  prompt_tells(t, "?llama3-8b",
               "weft.model \"llama3-8b\"\n  a preset of the architecture llama:");
  prompt_tells(t, "?llama3.2-1b", "  hidden_size = 2048\n");
  prompt_tells(t, "?llama3-9b",
               "nothing is known about 'llama3-9b' (did you mean 'llama3-8b'?)");
  prompt_tells(t, "?optimizer.lr.max", "after the warmup");
  prompt_leave(t);
}
END_TEST

/* ---- plans ---- */

START_TEST(plans) {
  prompt_plan("a.lua", 1);
  prompt_plan("b.lua", 2);
  Terminal *t = prompt_start(arena_printf(
      scratch_arena, "NO_COLOR=1 $weft repl %s -D SEQ=32", scratch_path("a.lua")));
  static const char a[] = "plan a.lua: tp=2, 2 ranks, 1f1b\n";
  ck_assert_ptr_nonnull(strstr(terminal_rows(t, 0, t->row), a));
  prompt_says(t, "plan", a);
  prompt_says(t, "plan.spec.batch", "{ global = 8, micro = 1, seq = 32 }\n");
  prompt_says(t, "mesh == plan.mesh, mesh.tp", "true    2\n");
  prompt_tells(t, ",set mesh.tp=1", "plan a.lua: one rank");
  prompt_says(t, ",set mesh.tp = 4", "plan a.lua: tp=4, 4 ranks, 1f1b\n");
  prompt_says(t, ",set", "mesh.tp=4\n");
  prompt_tells(t, ",set mesh.tp=3", "3 does not divide");
  prompt_tells(t, ",set mesh.tpp=3", "did you mean \"tp\"?");
  prompt_says(t, ",set", "mesh.tp=4\n");
  prompt_says(t, "mesh.tp", "4\n");
  /* A plan that went wrong can be mended. */
  prompt_plan("a.lua", 0);
  prompt_tells(t, ",reload", "a.lua:6: error: plan.batch.micro");
  prompt_says(t, "mesh.tp", "4\n");
  prompt_plan("a.lua", 4);
  prompt_says(t, ",reload", "plan a.lua: tp=4, 4 ranks, 1f1b\n");
  prompt_says(t, "plan.spec.batch.micro", "4\n");
  prompt_says(t, arena_printf(scratch_arena, ",plan %s", scratch_path("b.lua")),
              "plan b.lua: tp=2, 2 ranks, 1f1b\n");
  /* -D is for the plan of the command line. */
  prompt_says(t, "plan.spec.batch.seq", "16\n");
  prompt_says(t, ",set mesh.tp=4", "plan b.lua: tp=4, 4 ranks, 1f1b\n");
  prompt_tells(t, ",plan none.lua", "none.lua: error: ");
  /* That slip changed nothing. */
  prompt_says(t, "plan", "plan b.lua: tp=4, 4 ranks, 1f1b\n");
  prompt_says(t, ",set", "mesh.tp=4\n");
  prompt_says(t, ",reload", "plan b.lua: tp=4, 4 ranks, 1f1b\n");
  prompt_says(t, "plan.mehs", "error: weft.plan has no 'mehs' (did you mean 'mesh'?)\n");
  prompt_says(t, "plan:wiht {}",
              "error: weft.plan has no 'wiht' (did you mean 'with'?)\n");
  prompt_leave(t);
}
END_TEST

/* What somebody may do to Lua's functions, types and globals does not reach the prompt.
 */
START_TEST(nothing_of_lua_is_left) {
  static const char wreck[] =
      "local next, ipairs, set, all = next, ipairs, debug.setmetatable, _G\n"
      "local evil = {}\n"
      "for _, name in ipairs { 'index', 'newindex', 'tostring', 'len', 'call', "
      "'concat',\n"
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
  prompt_plan("a.lua", 1);
  const char *file = scratch_put("wreck.lua", wreck, strlen(wreck));
  const char *command =
      arena_printf(scratch_arena, "NO_COLOR=1 $weft repl %s", scratch_path("a.lua"));
  static const char *const lines[] = {"{ 1, 'x', { a = true } }",
                                      "1.5, nil",
                                      "plan",
                                      "mesh",
                                      "plan:memory()",
                                      "plan:rank(1)",
                                      "plan:comm()",
                                      "plan:match 'norm'",
                                      "plan:shards 'lm_head'",
                                      "plan:diff(plan)",
                                      "mesh:coord(1)",
                                      "mesh:groups 'tp'",
                                      "plan.spec.batch",
                                      "?batch.micro",
                                      "?plan.diff",
                                      ",set mesh.tp=4",
                                      ",set",
                                      ",x",
                                      "plan.mehs",
                                      "1 + + 2",
                                      "local x = 1"};
  const char *want[LEN(lines)];
  Terminal *t = prompt_start(command);
  for (int i = 0; i < LEN(lines); i++)
    want[i] = arena_str(scratch_arena, prompt_answer(t, lines[i]));
  prompt_leave(t);
  t = prompt_start(command);
  prompt_says(t, arena_printf(scratch_arena, "dofile '%s'", file), "");
  for (int i = 0; i < LEN(lines); i++) prompt_says(t, lines[i], want[i]);
  terminal_type(t, "pla\t.me\t\n");
  terminal_wait(t, "> plan.mesh\n");
  prompt_leave(t);
}
END_TEST

START_TEST(a_wrong_plan_leaves_the_prompt) {
  prompt_plan("a.lua", 0);
  Terminal *t = prompt_repl("a.lua");
  ck_assert_ptr_nonnull(
      strstr(terminal_rows(t, 0, t->row), "a.lua:6: error: plan.batch.micro"));
  prompt_says(t, "plan", "nil\n");
  prompt_plan("a.lua", 1);
  prompt_says(t, ",reload", "plan a.lua: tp=2, 2 ranks, 1f1b\n");
  prompt_leave(t);
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
      t = prompt_start(arena_printf(scratch_arena, "NO_COLOR=1 $weft %s", line + 7));
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
      terminal_wait_busy(t);
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
  for (const char *p = want; *p; p++) lines += *p == '\n';
  Terminal *t = replay(session);
  prompt_leave(t);
  const char *got = terminal_rows(t, 0, t->row - 1);
  ck_assert_msg(strcmp(got, want) == 0, "docs/repl.md should have:\n%s", got);
  ck_assert_int_ge(lines, 40);
}
END_TEST

/* ---- keys ---- */

START_TEST(tab) {
  Terminal *t = prompt_repl("");
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
  prompt_leave(t);
}
END_TEST

START_TEST(ctrl_c_clears_the_line) {
  Terminal *t = prompt_repl("");
  terminal_type(t, "not finished\003");
  terminal_wait_row(t, 1, ">");
  terminal_enter(t, "for i = 1, 2 do", ">>");
  terminal_type(t, "\003");
  terminal_wait_row(t, t->row, ">");
  prompt_says(t, "1", "1\n");
  prompt_leave(t);
}
END_TEST

/* In the chunk itself, so that it is interrupted there, however soon. */
#define BEGUN "io.write 'begun' io.flush()"

static void interrupts(Terminal *t, const char *code, const char *want) {
  int row = t->row;
  terminal_type(t, arena_printf(scratch_arena, BEGUN " %s\n", code));
  terminal_wait_row(t, row, "begun");
  terminal_type(t, "\003");
  terminal_wait_row(t, row + 1, ">");
  const char *s = terminal_rows(t, row + 1, t->row - 1);
  ck_assert_msg(strstr(s, want) != NULL, "%s: %s", code, s);
}

START_TEST(ctrl_c_stops_code) {
  Terminal *t = prompt_repl("");
  static const char wanted[] = "error: interrupted!\n  stdin:1: in the chunk\n";
  interrupts(t, "while true do end", wanted);
  interrupts(t, "while true do pcall(function() while true do end end) end", wanted);
  interrupts(t, "coroutine.wrap(function() while true do end end)() print 'on'",
             "error: interrupted!");
  interrupts(t, "repeat local ok = pcall(error) until false", wanted);
  prompt_answer(t, "co = coroutine.create(function() while true do end end)");
  interrupts(t, "while true do coroutine.resume(co) end", wanted);
  interrupts(t, "setmetatable({}, { __gc = function() end }) for i = 1, math.huge do end",
             wanted);
  /* The state is as good as before. */
  prompt_says(t, "1 + 1", "2\n");
  prompt_says(t, "coroutine.wrap(function() return 3 end)()", "3\n");
  prompt_leave(t);
}
END_TEST

/* What takes long in C listens, too. */
START_TEST(ctrl_c_stops_work_in_c) {
  prompt_plan("a.lua", 1);
  static const char endless[] = "while true do end";
  scratch_put("endless.lua", endless, strlen(endless));
  Terminal *t = prompt_repl("a.lua");
  interrupts(t, "plan:run { steps = 1000000 }", "interrupted");
  prompt_says(t, "1 + 1", "2\n");
  interrupts(t, "_ = (('a'):rep(40)):find(('.-'):rep(20) .. 'b')", "interrupted!");
  interrupts(t,
             "table.concat(setmetatable({}, { __index = function() return '' end }), '', "
             "1, 1e15)",
             "interrupted!");
  interrupts(t, "pcall(table.move, {}, 1, 1e15, 2)", "interrupted!");
  interrupts(t, "while true do pcall(string.gsub, ('a'):rep(1e5), '.-.-b', '') end",
             "interrupted!");
  interrupts(
      t,
      arena_printf(scratch_arena, "return weft.load '%s'", scratch_path("endless.lua")),
      "interrupted");
  prompt_says(t, "plan:check()", "true\n");
  prompt_leave(t);
}
END_TEST

/* Words that people try when they want to leave or are lost. */
START_TEST(words_that_are_no_lua) {
  Terminal *t = prompt_repl("");
  prompt_tells(t, "help", ",quit");
  prompt_says(t, "exit = 3", "");
  prompt_says(t, "exit", "3\n");
  prompt_says(t, "exit = nil", "");
  terminal_type(t, "exit\n");
  ck_assert_int_eq(terminal_end(t), 0);
  t = prompt_repl("");
  terminal_type(t, "quit()\n");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

START_TEST(a_second_ctrl_c_ends_what_does_not_listen) {
  Terminal *t = prompt_repl("");
  prompt_answer(t, "function slow() " BEGUN " while true do end end");
  terminal_type(t, "setmetatable({}, { __gc = slow }) collectgarbage()\n");
  terminal_wait_row(t, t->row, "begun");
  terminal_type(t, "\003");
  terminal_wait_here(t, "^C");
  process_took(t->pid, SIGINT);
  terminal_type(t, "\003");
  ck_assert_int_eq(terminal_end(t), 128 + SIGINT);
}
END_TEST

START_TEST(ctrl_d_typed_ahead_leaves) {
  Terminal *t = prompt_repl("");
  terminal_type(t, "print 'begun' for i = 1, 2e7 do end\n");
  terminal_wait(t, "\nbegun\n");
  prompt_leave(t);
}
END_TEST

START_TEST(ctrl_d_with_text_does_not_leave) {
  Terminal *t = prompt_repl("");
  terminal_type(t, "1\004");
  usleep(50000);
  terminal_type(t, " + 1\n");
  terminal_wait_row(t, 2, ">");
  ck_assert_ptr_nonnull(strstr(terminal_rows(t, 0, t->row), "\n2\n>"));
  prompt_leave(t);
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
  suite_add_tcase(s, t);
  return s;
}
