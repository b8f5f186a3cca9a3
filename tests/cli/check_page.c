/* check_page.c - weft report --html: one file that asks for nothing, whose elements are
 * closed, in which nothing of a plan becomes markup; and, where chromium is, that a
 * browser shows it at the width of a phone, a tablet and a screen without cutting
 * anything off. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "tests/harness/markup.h"

enum { SECONDS = 60, LARGEST = 500 << 10 };

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static void has(const char *text, const char *what) {
  ck_assert_msg(strstr(text, what), "no \"%s\" in:\n%.400s ...", what, text);
}

static void lacks(const char *text, const char *what) {
  ck_assert_msg(!strstr(text, what), "\"%s\": %.200s", what, strstr(text, what));
}

/* The page of a report that ends with this code. */
static const char *page(int code, const char *arguments) {
  Outcome o = process_run(SECONDS, "$weft report %s --html page.html", arguments);
  ck_assert_msg(o.code == code, "%d: %s%s", o.code, o.out, o.err);
  return scratch_get(scratch_path("page.html"));
}

/* ---- what a page is made of ---- */

/* Each link leads to an element of the page. */
static int links(const char *s) {
  static const char begin[] = " href=\"";
  const char *all = s;
  int n = 0;
  for (; (s = strstr(s, begin)); n++) {
    s += strlen(begin);
    ck_assert_msg(*s == '#', "%.60s", s);
    int length = (int)strcspn(s, "\"") - 1;
    has(all, arena_printf(scratch_arena, " id=\"%.*s\"", length, s + 1));
  }
  return n;
}

/* One file that a browser shows without asking anybody for anything. */
static void stands_alone(const char *text) {
  static const char *const outside[] = {
      "http:", "https:", "//", "<script", "<link", "<iframe", "url(", "@import", "<img"};
  markup_is_closed(text);
  ck_assert_int_gt(links(text), 1);
  has(text, "<meta content=\"default-src &#39;none&#39;; ");
  const char *plan = strstr(text, "<section aria-labelledby=\"plan-title\"");
  const char *own =
      plan ? arena_printf(scratch_arena, "%.*s", (int)(plan - text), text) : text;
  for (size_t i = 0; i < LEN(outside); i++) lacks(own, outside[i]);
  for (const char *p = text; (p = strchr(p, '<')); p++) {
    int n = (int)strcspn(p, ">");
    const char *tag = arena_printf(scratch_arena, "%.*s", n, p), *on = strstr(tag, " on");
    ck_assert_msg(!strstr(tag, " src=") && !(on && strchr(on, '=')), "%s", tag);
  }
}

#define PLANS WEFT_SOURCE_DIR "/plans/"

/* Editors of other systems begin a file with a mark and end lines with two characters. */
START_TEST(lines_of_other_editors) {
  put("plan.lua", "\xef\xbb\xbflocal weft = require 'weft'\r\n"
                  "return weft.plan { model = weft.model 'llama-tiny',\r\n"
                  "  batch = { global = 8, seq = 64 } }\r\n");
  const char *text = page(0, "plan.lua");
  stands_alone(text);
  lacks(text, "\\r");
  lacks(text, "feff");
  has(text, "id=\"L3\"");
  lacks(text, "id=\"L4\"");
}
END_TEST

START_TEST(a_large_plan_is_one_small_file) {
  const char *text = page(0, PLANS "llama3_405b_16k.lua");
  ck_assert_uint_lt(strlen(text), LARGEST);
  stands_alone(text);
  static const char *const said[] = {"<h1>llama3-405b-h100x16384</h1>",
                                     "fits, 18 GiB to spare",
                                     "<html lang=\"en\">",
                                     "<td class=\"n\">59.7 GiB</td>",
                                     "<td class=\"n\">40.1 GiB</td>",
                                     "<td class=\"w\">reduce_scatter</td>",
                                     "<td class=\"w\">all_gather</td>",
                                     "exposed tp",
                                     "<svg class=\"tl\"",
                                     " by the clock, ",
                                     "Memory of each rank",
                                     ">11.9 GiB</td>",
                                     "llama3-405b&quot;",
                                     "<title>Timeline of the schedule 1f1b</title>"};
  for (size_t i = 0; i < LEN(said); i++) has(text, said[i]);
}
END_TEST

/* Without a GPU there is no clock, and the page says so; the schedule is in units. */
START_TEST(without_figures_there_is_no_time) {
  const char *text = page(0, PLANS "quickstart.lua --set 'cluster={nodes=1,gpus=8,"
                                   "gpu={name=\"x\",memory_gib=80}}'");
  stands_alone(text);
  has(text, "Not predicted: ");
  has(text, "every action takes a unit of time");
}
END_TEST

/* ---- what a plan says ---- */

#define HOSTILE                                                                          \
  "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>&amp;"
#define PLAN(mesh)                                                                       \
  "local weft = require \"weft\"\n"                                                      \
  "-- " HOSTILE "\n"                                                                     \
  "return weft.plan {\n"                                                                 \
  "  name = '" HOSTILE "',\n"                                                            \
  "  model = weft.model 'llama-tiny',\n"                                                 \
  "  mesh = { " mesh " },\n"                                                             \
  "  batch = { global = 8, seq = 16 },\n"                                                \
  "  [ [[<b onclick='x'>]] ] = 1,\n"                                                     \
  "}\n"
#define ESCAPED "&lt;/title&gt;&lt;/style&gt;&lt;script&gt;alert(1)&lt;/script&gt;"

static void harmless(const char *text) {
  stands_alone(text);
  lacks(text, "<script");
  lacks(text, "<img");
  lacks(text, "<b onclick");
  has(text, ESCAPED);
  has(text, "&amp;amp;");
}

START_TEST(nothing_of_a_plan_is_markup) {
  put("a.lua", PLAN("tp = 2"));
  harmless(page(1, "a.lua")); /* its last field is none */
  const char *text = page(1, "a.lua mesh.tp=3");
  harmless(text);
  has(text, "is no plan that can run");
  has(text, "<a href=\"#L8\">line 8</a>");
  has(text, "<span class=\"error\" data-n=\"8\" id=\"L8\">");
  has(text, "a.lua with mesh.tp=3");
}
END_TEST

START_TEST(names_are_no_markup) {
  put("a.lua", PLAN("tp = 2"));
  const char *plan = scratch_get(scratch_path("a.lua"));
  const char *field = strstr(plan, "  [ [[");
  put("b.lua", arena_printf(scratch_arena, "%.*s}\n", (int)(field - plan), plan));
  const char *text = page(0, "b.lua");
  harmless(text);
  has(text, "<h1>" ESCAPED);
}
END_TEST

/* A layout that does not fit is shown whole, with those that do. */
START_TEST(what_would_fit_is_a_table) {
  put("c.lua",
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'llama3-8b', mesh = { world = 8 },\n"
      "  batch = { global = 64, micro = 2, seq = 4096 } }\n");
  const char *text = page(1, "c.lua");
  stands_alone(text);
  has(text, "does not fit: ");
  has(text, ">Layouts that fit</h2>");
  has(text, "assumed: the plan names none");
}
END_TEST

/* ---- the file ---- */

/* Written whole or not at all. */
START_TEST(a_page_that_cannot_be_written_is_told) {
  put("a.lua", PLAN("tp = 2"));
  Outcome o = process_run(SECONDS, "$weft report a.lua --html /nowhere/page.html");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "/nowhere/page.html: cannot be written");
  o = process_run(SECONDS, "$weft report %s --html /dev/full", PLANS "quickstart.lua");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "/dev/full");
  o = process_run(SECONDS, "$weft check a.lua --html page.html");
  ck_assert_int_ne(o.code, 0);
  ck_assert_str_eq(scratch_get(scratch_path("page.html")), "");
}
END_TEST

/* A slip of the hand is not the end of a plan: what a verb reads is not written over, by
 * whatever name, nor one of two files that it writes. */
START_TEST(a_file_that_is_read_stays) {
  static const char *const line[] = {"report a.lua --html a.lua",
                                     "report a.lua --html ./b.lua",
                                     "sim a.lua --svg a.lua",
                                     "sim a.lua --trace a.lua",
                                     "run a.lua --log a.lua",
                                     "tokenize a.lua -o a.lua",
                                     "run a.lua --trace b.lua",
                                     "sim a.lua --trace=c.lua --calibration c.lua",
                                     "sim a.lua --svg=c.lua --compare c.lua",
                                     "run a.lua --log new.lua --trace new.lua"};
  put("a.lua", PLAN("tp = 2"));
  put("c.lua", PLAN("tp = 2"));
  ck_assert_int_eq(symlink("a.lua", scratch_path("b.lua")), 0);
  for (size_t i = 0; i < LEN(line); i++) {
    Outcome o = process_run(SECONDS, "$weft %s", line[i]);
    ck_assert_msg(o.code == 2 && strstr(o.err, "would write over it"), "%s: %d %s",
                  line[i], o.code, o.err);
    ck_assert_str_eq(scratch_get(scratch_path("a.lua")), PLAN("tp = 2"));
    ck_assert_str_eq(scratch_get(scratch_path("c.lua")), PLAN("tp = 2"));
  }
}
END_TEST

/* ---- a browser ---- */

static const int width[] = {360, 1024, 1920};

/* A page of frames, each as wide as a screen: it says of each how wide its content is,
 * and how many of its tables are wider than their place. */
static void put_frames(const char *text) {
  Text out = {0};
  text_add(&out, "<!DOCTYPE html><body style=\"margin:0\">");
  for (size_t i = 0; i < LEN(width); i++) {
    text_printf(&out, "<iframe width=\"%d\" height=\"900\" style=\"border:0\" srcdoc=\"",
                width[i]);
    for (const char *s = text; *s; s++)
      if (*s == '&' || *s == '"')
        text_add(&out, *s == '&' ? "&amp;" : "&quot;");
      else
        text_addn(&out, s, 1);
    text_add(&out, "\"></iframe>");
  }
  text_add(&out,
           "<script>onload = () => document.body.dataset.wide = [...document."
           "querySelectorAll('iframe')].map(f => f.contentDocument.documentElement"
           ".scrollWidth + '<=' + f.contentWindow.innerWidth).join(' ') + ' cut ' + "
           "[...document.querySelectorAll('iframe')].map(f => f.contentWindow."
           "innerWidth < 1000 ? 0 : [...f.contentDocument.querySelectorAll("
           "'.scroll')].filter(s => s.querySelector('table') && s.scrollWidth > "
           "s.clientWidth).length).join()</script>");
  scratch_put("frames.html", out.s, out.n);
  text_free(&out);
}

#define BROWSER                                                                          \
  "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir=b "

/* Whether a browser starts here; else says that the test is skipped, and why. */
static bool has_browser(void) {
  put("empty.html", "<!DOCTYPE html><title>x</title>");
  Outcome o = process_run(SECONDS, BROWSER "--dump-dom \"file://$PWD/empty.html\"");
  if (o.code == 0 && strstr(o.out, "<title>x</title>")) return true;
  printf(
      "page: skipped: a page in a browser: chromium does not run (Debian: chromium)\n");
  return false;
}

static void fits_its_width(const char *text) {
  put_frames(text);
  Outcome o = process_run(SECONDS, BROWSER "--dump-dom \"file://$PWD/frames.html\"");
  const char *said = strstr(o.out, "data-wide=\"");
  ck_assert_msg(o.code == 0 && said, "%s%s", o.out, o.err);
  for (size_t i = 0; i < LEN(width); i++) {
    int wide, room;
    said += strcspn(said, "0123456789");
    ck_assert_int_eq(sscanf(said, "%d&lt;=%d", &wide, &room), 2);
    ck_assert_int_eq(room, width[i]);
    ck_assert_msg(wide <= room, "%d pixels in %d", wide, room);
    said = strchr(said, '=') + 1 + strlen(arena_printf(scratch_arena, "%d", room));
  }
  /* Tables need to be scrolled on a phone alone. */
  ck_assert_msg(strncmp(said, " cut 0,0,0\"", 11) == 0, "tables that are cut: %.20s",
                said);
}

/* The picture is there and not one colour: those compress to almost nothing. */
static void can_be_seen(int wide) {
  Outcome o = process_run(SECONDS,
                          BROWSER "--window-size=%d,900 --screenshot=shot.png "
                                  "\"file://$PWD/page.html\"",
                          wide);
  ck_assert_msg(o.code == 0, "%s", o.err);
  Outcome size = process_run(SECONDS, "wc -c shot.png");
  ck_assert_msg(atoi(size.out) > 15000, "%d: %s%s", wide, size.out, size.err);
}

START_TEST(a_browser_shows_all_of_it) {
  if (!has_browser()) return;
  put("a.lua", PLAN("tp = 2"));
  fits_its_width(page(1, "a.lua"));
  fits_its_width(page(0, PLANS "llama3_405b_16k.lua"));
  for (size_t i = 0; i < LEN(width); i++) can_be_seen(width[i]);
}
END_TEST

Suite *page_suite(void) {
  Suite *s = suite_create("page");
  TCase *t = tcase_create("page");
  tcase_set_timeout(t, 300);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, a_large_plan_is_one_small_file);
  tcase_add_test(t, lines_of_other_editors);
  tcase_add_test(t, without_figures_there_is_no_time);
  tcase_add_test(t, nothing_of_a_plan_is_markup);
  tcase_add_test(t, names_are_no_markup);
  tcase_add_test(t, what_would_fit_is_a_table);
  tcase_add_test(t, a_page_that_cannot_be_written_is_told);
  tcase_add_test(t, a_file_that_is_read_stays);
  tcase_add_test(t, a_browser_shows_all_of_it);
  suite_add_tcase(s, t);
  return s;
}
