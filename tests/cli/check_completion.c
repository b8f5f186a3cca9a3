/* check_completion.c - weft completion: every verb and option is in each of its scripts
 * and, with what help says of it, on the manual page; shells can read what they get.
 * Skipped, with the reason, for a shell that is not there. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/cli/cli.h"
#include "tests/harness/process.h"

static const struct {
  const char *name, *shorter;
  unsigned on;
} options[] = {
#define FLAG(member, name, shorter, on)         {name, shorter, on},
#define INTEGER(member, name, shorter, on, ...) {name, shorter, on},
#define NUMBER(member, name, shorter, on)       {name, shorter, on},
#define WORD(member, name, shorter, on)         {name, shorter, on},
#define OUTPUT(member, name, shorter, on)       {name, shorter, on},
#define CHOICE(member, name, shorter, on, ...)  {name, shorter, on},
#define LIST(member, name, shorter, on, n)      {name, shorter, on},
#include "bindings/cli/options.def"
};

static const struct {
  unsigned bit;
  const char *name, *args, *summary;
} verbs[] = {
#define VERB(ID, name, takes, needs, args, summary, groups)                              \
  {ON_##ID, #name, args, summary},
#include "bindings/cli/verbs.def"
};

static const char *made(const char *kind) {
  Outcome o = process_run(10, "$weft completion %s", kind);
  ck_assert_msg(o.code == 0 && !*o.err, "%s: exit %d\n%s", kind, o.code, o.err);
  return o.out;
}

static void has_text(const char *in, const char *kind, const char *text) {
  ck_assert_msg(strstr(in, text) != NULL, "%s has no %s", kind, text);
}

/* What the script says between the name of a verb and the next one. */
static const char *part(const char *script, const char *begin, const char *end) {
  const char *at = strstr(script, begin);
  ck_assert_msg(at != NULL, "no %s", begin);
  return arena_printf(scratch_arena, "%.*s", (int)(strstr(at + strlen(begin), end) - at),
                      at);
}

START_TEST(scripts_have_all) {
  const char *bash = made("bash"), *zsh = made("zsh"), *fish = made("fish");
  int n = 0;
  for (int v = 0; v < LEN(verbs); v++) {
    const char *name = verbs[v].name;
    const char *in_bash = part(bash, arena_printf(scratch_arena, "\n  %s) ", name), ";;");
    const char *in_zsh = part(zsh, arena_printf(scratch_arena, "\n  %s)\n", name), ";;");
    for (int i = 0; i < LEN(options); i++) {
      if (!options[i].name || !(options[i].on & verbs[v].bit)) continue;
      const char *o = options[i].name, *dashes = strncmp(o, "--", 2) == 0 ? "l" : "s";
      has_text(in_bash, name, o);
      has_text(in_zsh, name, arena_printf(scratch_arena, "'*%s[", o));
      has_text(fish, name,
               arena_printf(scratch_arena, "__fish_seen_subcommand_from %s' -%s %s ",
                            name, dashes, o + strspn(o, "-")));
      n++;
    }
  }
  ck_assert_int_gt(n, 100);
}
END_TEST

/* Hyphens of options can be copied from the page. */
static bool says(const char *section, const char *option) {
  const char *dashed = "";
  for (const char *c = option; c && *c; c++)
    dashed = arena_printf(scratch_arena, *c == '-' ? "%s\\-" : "%s%c", dashed, *c);
  return option && strstr(section, dashed) != NULL;
}

/* The page says each verb, what it takes and what it is for, and all that its help says.
 */
START_TEST(the_page_has_all) {
  const char *page = made("man");
  for (int v = 0; v < LEN(verbs); v++) {
    const char *begin = arena_printf(scratch_arena, "\n.SS weft %s ", verbs[v].name);
    const char *section = part(page, begin, "\n.S");
    const char *plan = verbs[v].bit & PLAN_VERBS
                           ? part(page, "\n.SH OPTIONS OF PLANS", "\n.SH EXIT")
                           : "";
    has_text(section, verbs[v].name, verbs[v].summary + 1);
    for (int i = 0; i < LEN(options); i++) {
      if (!(options[i].on & verbs[v].bit) || str_eq(options[i].name, "--help")) continue;
      ck_assert_msg(says(section, options[i].name) || says(section, options[i].shorter) ||
                        says(plan, options[i].name),
                    "the help of weft %s does not say %s", verbs[v].name,
                    options[i].name);
    }
  }
  has_text(page, "the page", "\n.SH EXIT STATUS\n");
  for (const char *at = page; (at = strchr(at, '\n')) != NULL; at++)
    ck_assert_msg(at[1] != '\'', "a line of text is a request:%.40s", at);
}
END_TEST

START_TEST(an_unknown_shell) {
  Outcome o = process_run(10, "$weft completion ksh");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "weft completion has no ksh; there are bash, zsh, fish, "
                              "man and schema\n") != NULL,
                "%s", o.err);
}
END_TEST

static bool has(const char *shell) {
  Outcome o = process_run(10, "sh -c 'command -v %s'", shell);
  if (o.code != 0) printf("completion: skipped: there is no %s\n", shell);
  return o.code == 0;
}

START_TEST(shells_read_it) {
  static const char *const shells[] = {"bash", "zsh", "fish"};
  for (int i = 0; i < LEN(shells); i++) {
    if (!has(shells[i])) continue;
    const char *script = made(shells[i]);
    scratch_put("script", script, strlen(script));
    Outcome o = process_run(10, "%s -n script", shells[i]);
    ck_assert_msg(o.code == 0 && !*o.err, "%s: %s", shells[i], o.err);
  }
}
END_TEST

START_TEST(bash_completes) {
  static const char ask[] =
      "source ./script\n"
      "ask() { COMP_WORDS=(weft \"$@\") COMP_CWORD=$#; _weft; echo \"${COMPREPLY[*]}\"; "
      "}\n"
      "ask ch; ask show p.lua me; ask run --thr; ask check --thr; ask run p\n"
      "ask run p.lua --comm t; ask check --device c; ask explain dead; ask report --gpu "
      "h2; "
      "ask export --to me; ask run --log c\n";
  if (!has("bash")) return;
  const char *script = made("bash");
  scratch_put("script", script, strlen(script));
  scratch_put("ask", ask, strlen(ask));
  Outcome o = process_run(10, "bash ask");
  ck_assert_str_eq(o.err, "");
  ck_assert_str_eq(o.out, "check\nmesh memory\n--threads\n\n\n"
                          "tcp\ncpu cuda\ndeadlock\nh200\nmegatron\n\n");
}
END_TEST

/* What is completed for an option is what the program takes: it says so where it gets
 * something else. */
START_TEST(choices_are_those_of_the_program) {
  static const struct {
    const char *command, *option;
  } all[] = {{"run plan.lua", "--comm"},
             {"check plan.lua", "--device"},
             {"export plan.lua", "--to"}};
  static const char plan[] = "local weft = require 'weft'\nreturn weft.plan { model = "
                             "weft.model 'llama-tiny', batch = { global = 1, seq = 8 } }";
  const char *bash = made("bash");
  scratch_put("plan.lua", plan, strlen(plan));
  for (int i = 0; i < LEN(all); i++) {
    const char *line = arena_printf(scratch_arena, "\n    %s) words='", all[i].option);
    const char *words = part(bash, line, "'") + strlen(line);
    Outcome o = process_run(20, "$weft %s %s no-such", all[i].command, all[i].option);
    ck_assert_int_ne(o.code, 0);
    char *list = arena_str(scratch_arena, words);
    for (char *word; (word = strsep(&list, " ")) != NULL;)
      ck_assert_msg(strstr(o.err, word) != NULL, "%s: no %s in %s", all[i].option, word,
                    o.err);
  }
}
END_TEST

Suite *completion_suite(void) {
  Suite *s = suite_create("completion");
  TCase *t = tcase_create("completion");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 60);
  tcase_add_test(t, scripts_have_all);
  tcase_add_test(t, the_page_has_all);
  tcase_add_test(t, an_unknown_shell);
  tcase_add_test(t, shells_read_it);
  tcase_add_test(t, bash_completes);
  tcase_add_test(t, choices_are_those_of_the_program);
  suite_add_tcase(s, t);
  return s;
}
