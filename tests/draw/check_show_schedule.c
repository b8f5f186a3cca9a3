/* check_show_schedule.c - the timeline as people see it: drawn in text at several widths,
 * in colour on a terminal only, as a picture and as JSON; and its bytes. */
#include <check.h>
#include <jansson.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "tests/generate/schedule_text.h"
#include "tests/harness/markup.h"
#include "vm/draw/timeline_draw.h"
#include "vm/io/io.h"

enum { SECONDS = 30 };

static Timeline timeline_of(const Schedule *s) {
  Timeline t;
  weft_error e;
  err_clear(&e);
  weft_status st = timeline_run(s, TIMELINE_UNIT, scratch_arena, &t, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  return t;
}

/* The drawing, in the arena. */
static const char *draw(const Schedule *s, int width, bool colour) {
  Text out = {0};
  Timeline t = timeline_of(s);
  timeline_text(s, &t, width, colour, &out);
  ck_assert(!out.oom);
  const char *copy = arena_str(scratch_arena, out.s);
  text_free(&out);
  return copy;
}

static Schedule small(void) {
  return sched_text(scratch_arena, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2", 1,
                    3, false);
}

/* m microbatches through P ranks in turn, for drawings that do not fit. */
static Schedule large(int ranks, int m) {
  Schedule s = {.ranks = ranks,
                .virtual_stages = 1,
                .microbatches = m,
                .name = "1f1b",
                .list = NEW_N(scratch_arena, Action *, ranks),
                .n = NEW_N(scratch_arena, int, ranks)};
  for (int r = 0; r < ranks; r++) {
    Action *a = s.list[r] = NEW_N(scratch_arena, Action, 2 * m);
    for (int f = 0, b = 0; b < m; a++) {
      bool forward = f < m && f - b < MIN(m, ranks - r);
      *a = (Action){.kind = forward ? ACT_F : ACT_B, .mb = forward ? f++ : b++};
    }
    s.n[r] = 2 * m;
  }
  return s;
}

/* ---- text ---- */

START_TEST(numbers_where_they_fit) {
  Schedule s = small();
  ck_assert_str_eq(draw(&s, 80, false), "rank 0         5         10\n"
                                        "   0 F0F1....B0--F2B1--..B2--\n"
                                        "   1 ..F0B0--F1B1--F2B2--....\n"
                                        "F forward, B backward, . idle, - goes on\n"
                                        "numbers: the microbatch\n");
}
END_TEST

START_TEST(pairs_and_chunks) {
  Schedule s = sched_text(scratch_arena,
                          "0F0,1F0,(0F1;1B0)OVERLAP_F_B,0I0,1F1,0W0,1B1,0B1", 2, 2, true);
  ck_assert_str_eq(draw(&s, 80, false),
                   "rank 0         5         10\n"
                   "   0 F0f0F1/b0-I0f1W0b1--B1--\n"
                   "F forward, I input gradients, W weight gradients,"
                   " B both, F/B a pair, . idle, - goes on\n"
                   "numbers: the microbatch\n"
                   "lower case: chunks after the first one of a rank"
                   "\n");
}
END_TEST

START_TEST(rows_are_cut) {
  Schedule s = small();
  ck_assert_str_eq(draw(&s, 21, false), "rank 0         5\n"
                                        "   0 F0F1....B0--F2B1\n"
                                        "   1 ..F0B0--F1B1--F2\n"
                                        "rank     10\n"
                                        "   0 --..B2--\n"
                                        "   1 B2--....\n"
                                        "F forward, B backward, . idle, - goes on\n"
                                        "numbers: the microbatch\n"
                                        "cut into 2 rows of 8 units\n");
}
END_TEST

START_TEST(large_ones_are_scaled) {
  Schedule s = large(16, 128);
  const char *text = draw(&s, 80, false);
  ck_assert(strstr(text, "   0 FFf.....=====") && strstr(text, "=bbbb...\n"));
  ck_assert(strstr(text, "a column is 6 units: "));
  ck_assert(strstr(text, "429 units do not fit here; --width 434 shows each of them\n"));
  text = draw(&s, 434, false);
  ck_assert(strstr(text, "  15 ...............FB-FB-"));
  ck_assert(!strstr(text, "do not fit"));
}
END_TEST

/* No line of the drawing is wider than asked, for any kind of detail. */
START_TEST(lines_have_their_width) {
  for (int width = 24; width < 500; width += 7) {
    Schedule s = large(7, 1 + width % 120);
    for (const char *line = draw(&s, width, false); *line;) {
      int n = (int)strcspn(line, "\n");
      bool drawing = line[0] == ' ' || strncmp(line, "rank", 4) == 0;
      ck_assert_msg(!drawing || n <= width, "%d > %d: %.*s", n, width, n, line);
      line += n + 1;
    }
  }
}
END_TEST

/* Colours are added; nothing else differs but the fill of slots and what is said of it.
 */
START_TEST(colour_changes_nothing_else) {
  Schedule s = small();
  const char *plain = draw(&s, 80, false), *coloured = draw(&s, 80, true);
  ck_assert(!strchr(plain, '\033'));
  ck_assert(strstr(coloured, "\033[38;5;231;48;5;25m"));
  ck_assert(strstr(coloured, "\033[0m\033[2m...."));
  for (const char *c = coloured; *c && strncmp(c, "F forward", 9) != 0; c++) {
    if (*c == '\033') {
      c = strchr(c, 'm');
      continue;
    }
    ck_assert_msg(*c == *plain || (*plain == '-' && *c == ' '), "%s", coloured);
    plain++;
  }
  ck_assert_int_eq(strncmp(plain, "F forward", 9), 0);
}
END_TEST

/* ---- picture ---- */

static const char *picture(const Schedule *s) {
  Text out = {0};
  Timeline t = timeline_of(s);
  timeline_svg(s, &t, false, &out);
  ck_assert(!out.oom);
  const char *copy = arena_str(scratch_arena, out.s);
  text_free(&out);
  return copy;
}

static int count(const char *s, const char *part) {
  int n = 0;
  for (; (s = strstr(s, part)); s++) n++;
  return n;
}

START_TEST(pictures_are_well_formed) {
  Schedule s = sched_text(scratch_arena,
                          "0F0,1F0,(0F1;1B0)OVERLAP_F_B,0I0,1F1,0W0,1B1,0B1", 2, 2, true);
  s.name = "a<b> & \"c\"\n";
  const char *svg = picture(&s);
  markup_is_closed(svg);
  ck_assert(strstr(svg, ">a&lt;b&gt; &amp; &quot;c&quot; </text>"));
  ck_assert(strstr(svg, "overlapped pair"));
  Schedule big = large(8, 64);
  svg = picture(&big);
  markup_is_closed(svg);
  ck_assert(!strstr(svg, "overlapped"));
}
END_TEST

/* One cell for each action, numbers only where all of a width fit. */
START_TEST(pictures_have_every_action) {
  Schedule s = small();
  const char *svg = picture(&s);
  ck_assert_int_eq(count(svg, "M") - count(svg, "v5"), 12);
  ck_assert_int_eq(count(svg, ">2</text>"), 4 + 1); /* and the peak of rank 0 */
  ck_assert(strstr(svg, "bubble 25.0 %, 14.3 % within"));
  Schedule big = large(8, 128);
  svg = picture(&big);
  ck_assert_int_eq(count(svg, "M") - count(svg, "v5"), 8 * 256);
  ck_assert(!strstr(svg, ">127</text>"));
}
END_TEST

/* ---- the verb ---- */

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 4 },\n"
    "  mesh = { pp = 4, dp = 2 }, schedule = '1f1b', precision = 'f32',\n"
    "  batch = { global = 16, micro = 2, seq = 32 } }\n";

static void begin(void) {
  scratch_setup();
  scratch_put("plan.lua", plan, sizeof plan - 1);
}

static Outcome show(const char *args) {
  return process_run(SECONDS, "$weft show schedule plan.lua %s", args);
}

START_TEST(shows_drawing_and_figures) {
  Outcome o = show("");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_str_eq(o.err, "");
  ck_assert(strstr(o.out, "schedule: 1f1b, 4 pipeline ranks, 4 microbatches; "));
  ck_assert(strstr(o.out, "   3 ......F0B0--F1B1--F2B2--F3B3--............\n"));
  ck_assert(strstr(o.out, "bubble 42.86 % of 21 units on 4 ranks; 27.27 % within"));
  /* One tensor of 2 x 32 x 128 f32 per microbatch and direction. */
  ck_assert(strstr(o.out, "\n   0       9            9                      4"
                          "         131072         131072\n"));
  ck_assert(strstr(o.out, "\n   1       9            6                      3"
                          "         262144         262144\n"));
  ck_assert(strstr(o.out, "all ranks together send 1572864 bytes"));
  ck_assert(!strchr(o.out, '\033'));
}
END_TEST

/* What the compiler placed stands between the actions, and what the schedule says in its
 * place. */
START_TEST(shows_what_was_placed) {
  static const char fsdp2[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 1 },\n"
      "  mesh = { pp = 1, dp = 2 }, strategy = 'fsdp2',\n"
      "  batch = { global = 2, micro = 1, seq = 8 } }\n";
  Outcome o = show("");
  ck_assert(!strstr(o.out, "UNSHARD"));
  scratch_put("plan.lua", fsdp2, sizeof fsdp2 - 1);
  o = show("");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(
      strstr(o.out,
             "parameters and gradients among the first actions of each rank:\n"
             "   0  UNSHARD(embed_tokens) UNSHARD(layers.0) 0F0 RESHARD(embed_tokens) "
             "UNSHARD(norm) RESHARD(layers.0) UNSHARD(lm_head) RESHARD(norm) "),
      "%s", o.out);
  o = show("--json");
  ck_assert(strstr(o.out, "\"placed\""));
  ck_assert(strstr(o.out, "\"REDUCE_GRAD(layers.0)\""));
}
END_TEST

START_TEST(writes_the_picture) {
  Outcome o = show("--svg out.svg");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert(strstr(o.out, "bubble"));
  markup_is_closed(scratch_get(scratch_path("out.svg")));
  ck_assert(!strstr(scratch_list(), ".tmp"));
  o = show("--svg /nowhere/out.svg");
  ck_assert_int_eq(o.code, 2);
  ck_assert(strstr(o.err, "/nowhere/out.svg: error: cannot be written: No such file"));
  o = show("--csv --svg /dev/full");
  ck_assert_int_eq(o.code, 2);
  ck_assert(strstr(o.err, "/dev/full: error: cannot be written: No space left"));
}
END_TEST

START_TEST(json_has_all_figures) {
  Outcome o = show("--json");
  json_t *all = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL), *ranks;
  double bubble, own;
  int makespan, total, m, sent, received, peak, idle, idle_own, start, end;
  ck_assert_msg(all != NULL, "%s", o.out);
  ck_assert_int_eq(json_unpack(all, "{s:{s:{s:f,s:f,s:i,s:i,s:i,s:o}}}", "result",
                               "schedule", "bubble", &bubble, "bubble_own", &own,
                               "makespan", &makespan, "microbatches", &m,
                               "total_bytes_sent", &total, "ranks", &ranks),
                   0);
  ck_assert_double_eq_tol(bubble, 9.0 / 21, 1e-12);
  ck_assert_double_eq_tol(own, 18.0 / 66, 1e-12);
  ck_assert_int_eq(makespan, 21);
  ck_assert_int_eq(total, 1572864);
  ck_assert_int_eq((int)json_array_size(ranks), 4);
  ck_assert_int_eq(json_unpack(json_array_get(ranks, 3),
                               "{s:i,s:i,s:i,s:i,s:i,s:[[i,i],[i,i]]}", "bytes_sent",
                               &sent, "bytes_received", &received, "chunks_in_flight",
                               &peak, "idle", &idle, "idle_own", &idle_own, "slots",
                               &start, &end, &start, &end),
                   0);
  ck_assert_int_eq(sent, 131072);
  ck_assert_int_eq(received, 131072);
  ck_assert_int_eq(peak, 1);
  ck_assert_int_eq(idle, 9);
  ck_assert_int_eq(idle_own, 0);
  ck_assert_int_eq(start, 4);
  ck_assert_int_eq(end, 6);
  json_decref(all);
}
END_TEST

/* What the schedule alone says is shown although the plan does not compile. */
START_TEST(needs_no_plan_that_compiles) {
  Outcome o = show("--set 'tp_plan[\"nothing.*\"]=colwise'");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert(strstr(o.out, "bubble 42.86 %"));
  ck_assert(strstr(o.out, "bytes between stages are not known: the plan does not compile:"
                          " --set tp_plan[\"nothing.*\"]=colwise: plan.tp_plan"));
  o = show("--json --set 'tp_plan[\"nothing.*\"]=colwise'");
  ck_assert_int_eq(o.code, 0);
  ck_assert(strstr(o.out, "\"total_bytes_sent\": null"));
}
END_TEST

START_TEST(a_table_that_cannot_run_is_listed) {
  static const char bad[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'llama-tiny', mesh = { pp = 2 },\n"
      "  batch = { global = 1, seq = 8 }, schedule = function(s)\n"
      "    if s.rank == 1 then s:F(0, 0) s:B(0, 0) end\n"
      "    if s.rank == 0 then s:F(0, 0) end\n"
      "  end }\n";
  scratch_put("bad.lua", bad, sizeof bad - 1);
  Outcome o = process_run(SECONDS, "$weft show schedule bad.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert(strstr(o.err, "error: plan.schedule: "));
  ck_assert_str_eq(o.out, "schedule: function, 2 pipeline ranks, 1 microbatch; it cannot "
                          "run\n   0  0F0\n   1  1F0 1B0\n");
}
END_TEST

/* Runs the verb on a terminal with so many columns. */
static const char *on_terminal(int columns, const char *env) {
  struct winsize size = {.ws_row = 40, .ws_col = (unsigned short)columns};
  int fd;
  pid_t pid = forkpty(&fd, NULL, NULL, &size);
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    execl("/usr/bin/env", "env", "-u", "NO_COLOR", "TERM=xterm-256color", env,
          WEFT_BINARY_DIR "/weft", "show", "schedule", scratch_path("plan.lua"),
          (char *)NULL);
    _exit(127);
  }
  Text out = {0};
  char buf[4096];
  for (ssize_t n; (n = read(fd, buf, sizeof buf)) > 0;) text_addn(&out, buf, (size_t)n);
  int status;
  waitpid(pid, &status, 0);
  close(fd);
  ck_assert_msg(status == 0, "%s", out.s);
  const char *copy = arena_str(scratch_arena, out.s);
  text_free(&out);
  return copy;
}

START_TEST(terminals_have_colour_and_width) {
  ck_assert(strstr(on_terminal(80, "A=b"), "\033[38;5;231;48;5;25mB0"));
  const char *plain = on_terminal(32, "NO_COLOR=1");
  ck_assert(!strchr(plain, '\033'));
  ck_assert(strstr(plain, "cut into 2 rows of 13 units"));
}
END_TEST

START_TEST(options_are_checked) {
  Outcome o = process_run(SECONDS, "$weft show mesh plan.lua --svg x.svg");
  ck_assert_int_eq(o.code, 2);
  ck_assert_str_eq(o.err, "weft: --svg belongs to show PLAN schedule\n");
  o = show("--width 3");
  ck_assert_int_eq(o.code, 2);
  ck_assert_str_eq(o.err,
                   "weft: --width takes an integer from 20 to 1000000, got \"3\"\n");
  o = show("--csv --json");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.out, "--csv and --json are two forms"), "%s%s", o.out, o.err);
  o = show("--csv");
  ck_assert(strstr(o.out, "\n3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3\n"));
}
END_TEST

Suite *show_schedule_suite(void) {
  Suite *s = suite_create("show_schedule");
  TCase *tc = tcase_create("drawing");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, numbers_where_they_fit);
  tcase_add_test(tc, pairs_and_chunks);
  tcase_add_test(tc, rows_are_cut);
  tcase_add_test(tc, large_ones_are_scaled);
  tcase_add_test(tc, lines_have_their_width);
  tcase_add_test(tc, colour_changes_nothing_else);
  tcase_add_test(tc, pictures_are_well_formed);
  tcase_add_test(tc, pictures_have_every_action);
  suite_add_tcase(s, tc);
  tc = tcase_create("verb");
  tcase_add_checked_fixture(tc, begin, scratch_teardown);
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, shows_drawing_and_figures);
  tcase_add_test(tc, shows_what_was_placed);
  tcase_add_test(tc, writes_the_picture);
  tcase_add_test(tc, json_has_all_figures);
  tcase_add_test(tc, needs_no_plan_that_compiles);
  tcase_add_test(tc, a_table_that_cannot_run_is_listed);
  tcase_add_test(tc, terminals_have_colour_and_width);
  tcase_add_test(tc, options_are_checked);
  suite_add_tcase(s, tc);
  return s;
}
