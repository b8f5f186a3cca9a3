/* check_import_shell.c - which command of a script weft import reads, and as which words:
 * scripts that print it first, evaluate a text, call another file, or have no value for
 * it; and what variables are where it stands: as in bash, or said. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/import_files.h"

/* T: a program that trains, with two arguments. */
static const struct Script {
  const char *script, *says, *lacks;
} scripts[] = {
    {"CMD=\"T --x 1\"\necho $CMD\neval $CMD\n", "a.sh:1: --x = 1", NULL},
    {"CMD=\"T --x 1\"\necho $CMD\n", "a.sh:1: --x = 1", NULL},
    {"T --x 1\nT --x 1\n", "a.sh:1: --x = 1", NULL},
    {"CMD=\"T --x '(1 2)'\"\neval $CMD\n", "a.sh:1: --x = '(1 2)'", NULL},
    {"CMD=\"T --x '[1]*2' 2>&1 | tee log\"\neval $CMD\n", "a.sh:1: --x = [1]*2", "tee"},
    {"CMD=\"cd d && export A=1 && T --x 1 && ls\"\neval $CMD\n", "a.sh:1: --x = 1", "ls"},
    {"A=(--x 'E\\|\\(t\\)*2')\nCMD=\"T ${A[@]}\"\neval $CMD\n", "a.sh:1: --x = E|(t)*2",
     NULL},
    {"T --x 300_000_000\n", "a.sh:1: --x = 300000000", NULL},
    {"T --x 1__0\n", "a.sh:1: --x = 1__0", NULL},
    {"L=$(($(who | wc -l)-2))\nCMD=\"T --x $L --y 3\"\neval $CMD\n",
     "a.sh:2: --x = $(($(who | wc -l)-2))", NULL},
    {"if $(ssh a \"test -f \\\"$F\\\"\"); then A=1; fi\nT --x 4\n", "a.sh:2: --x = 4",
     NULL},
    {"T --x 8 ${ARGS[@]} --y 1\n", "a.sh:1: --x = 8", "8 ${ARGS[@]}"},
    {"source \"$D/sizes.sh\"\nT --x 1\n",
     "a.sh:1: ${D}/sizes.sh is not beside the script", NULL},
    {". sizes.sh\nT --x 1\n", "a.sh:1: sizes.sh is not beside the script", NULL},
    {"T --x 1 --deepspeed --zero-stage 3\n", "it is of Megatron-DeepSpeed", NULL},
};

START_TEST(the_command_that_trains_is_read) {
  const struct Script *s = &scripts[_i];
  Text t = {0};
  for (const char *p = s->script; *p; p++) {
    if (p[0] == 'T' && p[1] == ' ')
      text_add(&t, "python a.py --micro-batch-size 1");
    else
      text_printf(&t, "%c", *p);
  }
  import_put("a.sh", t.s);
  text_free(&t);
  const char *report = import_file("a.sh", "--model llama3.2-1b");
  import_has(report, s->says);
  if (s->lacks) import_lacks(report, s->lacks);
}
END_TEST

START_TEST(two_commands_that_train_are_refused) {
  import_put("a.sh",
             "python a.py --micro-batch-size 1\npython a.py --micro-batch-size 2\n");
  import_fails(
      2, "a.sh", "--model llama3.2-1b",
      "a.sh:2: a second command that trains begins (the first one is in line 1)");
}
END_TEST

START_TEST(more_choices_than_experts_are_refused) {
  import_put("a.sh",
             "python a.py --micro-batch-size 1 --num-layers 2 --hidden-size 64 \\\n"
             "  --num-attention-heads 4 --num-experts 2 --seq-length 64 \\\n"
             "  --max-position-embeddings 64 --position-embedding-type rotary\n");
  import_fails(1, "a.sh", "--set moe-router-topk=3",
               "each token goes to 3 experts (--moe-router-topk), and there are 2");
  /* One expert is an MLP, as DeepSpeed's scripts have it. */
  import_file("a.sh", "--set num-experts=1");
  import_plan_lacks("g:moe()");
  /* What a checkpoint says is not in the settings. */
  import_fails(
      1, "a.sh", "--set num-layers=-1",
      "error: the settings do not say --num-layers, which comes from a checkpoint");
}
END_TEST

/* ---- as bash ---- */

static const struct Row {
  const char *script, *m;
} rows[] = {
#define ROW(script, m) {script, m},
#include "shell_rows.def"
#undef ROW
};

/* All rows in one script, each with variables of its own; row N leaves its M in RN. */
static void add_rows(Text *t) {
  for (int i = 0; i < LEN(rows); i++)
    text_printf(
        t, "unset A B D M N P T X a i j k x SIZE; unset -f f g h\nset --\n%s\nR%d=$M\n",
        rows[i].script, i);
}

START_TEST(rows_are_as_in_bash) {
  Text t = {0};
  add_rows(&t);
  text_printf(&t, "python a.py --micro-batch-size 1");
  for (int i = 0; i < LEN(rows); i++) text_printf(&t, " --r%d $R%d", i, i);
  text_printf(&t, "\n");
  import_put("a.sh", t.s);
  text_free(&t);
  const char *report = import_file("a.sh", "--model llama3.2-1b");
  for (int i = 0; i < LEN(rows); i++) {
    const char *want = arena_printf(scratch_arena, ": --r%d = %s\n", i, rows[i].m);
    ck_assert_msg(strstr(report, want), "row %d, %s: no \"%s\" in:\n%s", i,
                  rows[i].script, want, report);
  }
}
END_TEST

/* The table is of bash itself, of this machine's where there is one. */
START_TEST(rows_are_of_bash) {
  Text t = {0};
  add_rows(&t);
  for (int i = 0; i < LEN(rows); i++) text_printf(&t, "echo \"row %d $R%d.\"\n", i, i);
  import_put("b.sh", t.s);
  text_free(&t);
  Outcome o =
      process_run(IMPORT_SECONDS, "sh -c 'bash b.sh </dev/null 2>&1 || exit 127'");
  if (o.code == 127) return;
  for (int i = 0; i < LEN(rows); i++) {
    const char *want = arena_printf(scratch_arena, "row %d %s.\n", i, rows[i].m);
    ck_assert_msg(strstr(o.out, want), "row %d, %s: no \"%s\" in:\n%s", i, rows[i].script,
                  want, o.out);
  }
}
END_TEST

#define TEST_UNKNOWN                                                                     \
  "whether the test in this line holds is not in the file: read as if it does not"
#define COMMAND_UNKNOWN                                                                  \
  "whether the command in this line succeeds is not in the file: read as if it does"
#define CASE_UNKNOWN "which of these cases holds is not in the file: none is read"

/* What nobody knows is read in one way, and said. */
static const struct Told {
  const char *script, *m, *says;
} told[] = {
    {"[ -f cfg ] && M=9\n", "3", "a.sh:2: " TEST_UNKNOWN},
    {"[[ $M =~ ^3 ]] || M=9\n", "9", "a.sh:2: " TEST_UNKNOWN},
    {"[[ $M == 4 || -f x ]] && M=9\n", "3", "a.sh:2: " TEST_UNKNOWN},
    {"if [[ $M == 4 || -f x ]]; then M=9; fi\n", "3", "a.sh:2: " TEST_UNKNOWN},
    {"if grep -q H100 info.txt; then M=9; fi\n", "3", "a.sh:2: " TEST_UNKNOWN},
    {"if smi | grep -q A100; then M=9; fi\n", "3", "a.sh:2: " TEST_UNKNOWN},
    {"if command -v nope >/dev/null; then M=9; fi\n", "3", "a.sh:2: " TEST_UNKNOWN},
    {"if M2=$(cmd); then M=9; fi\n", "3", "a.sh:2: " TEST_UNKNOWN},
    {"cd x && M=9\n", "9", "a.sh:2: " COMMAND_UNKNOWN},
    {"cd x || M=9\n", "3", "a.sh:2: " COMMAND_UNKNOWN},
    {"python - <<EOF && M=9\nprint(1)\nEOF\n", "9", "a.sh:2: " COMMAND_UNKNOWN},
    {"case $(arch) in x*) M=9;; esac\n", "3", "a.sh:2: " CASE_UNKNOWN},
    {"case abc in @(abc|d)) M=9;; *) M=4;; esac\n", "3", "a.sh:2: " CASE_UNKNOWN},
    {"case \303\251 in ?) M=9;; *) M=4;; esac\n", "3", "a.sh:2: " CASE_UNKNOWN},
    {"while [ $M -lt 9 ]; do M=9; done\n", "3", "a.sh:2: this loop is not read"},
    {"for i in $(seq 2); do M=9; done\n", "9",
     "a.sh:2: what this loop goes over is not all in the file: $(seq 2) is read as one"},
    {"[ -f x ] || exit 1\n", "3", "a.sh:2: whether the script ends here is not in the"},
    {"if [ -z \"$Y\" ]; then M=9; exit; fi\n", "9",
     "a.sh:2: the file does not set Y: here it is tested as empty"},
    {"Y=\nwhile read a; do Y=1; done <f\n[ -z \"$Y\" ] && exit 1\n", "3",
     "a.sh:4: whether the script ends here is not in the file: read as if not"},
    {"f() { [ -f x ] && return; M=9; }\nf\n", "9", "a.sh:2: " TEST_UNKNOWN},
    {"eval \"M=\\$(cmd)\"\n", "3", "a.sh:2: what eval sets in this line is not followed"},
    {"A[x]=3\n", "3", "a.sh:2: what this line sets is not followed"},
    {"declare -i N=2\n", "3", "a.sh:2: what declare -i makes of the values in this line"},
    {"return\nM=9\n", "9", "a.sh:2: return has nothing to leave here"},
    {"readonly M\nreadonly N=1\nN=2\n", "3",
     "a.sh:4: N is readonly: it stays what it is"},
    {"IFS=,\n", "3", "a.sh:2: words are cut at blanks here, whatever IFS is"},
};

START_TEST(what_is_not_decided_is_said) {
  const struct Told *x = &told[_i];
  import_put("a.sh",
             arena_printf(scratch_arena,
                          "M=3\n%spython a.py --micro-batch-size 1 --z 1 --m $M\n",
                          x->script));
  const char *report = import_file("a.sh", "--model llama3.2-1b");
  import_has(report, arena_printf(scratch_arena, ": --m = %s\n", x->m));
  import_has(report, x->says);
}
END_TEST

/* A script that ends before another command trains has one of them. */
START_TEST(what_is_behind_exit_is_not_read) {
  import_put("a.sh",
             "M=3\nif [ $M = 3 ]; then\n  python a.py --micro-batch-size 1 --z 1 --m 4\n"
             "  exit 0\nfi\npython a.py --micro-batch-size 1 --z 1 --m 5\n");
  import_has(import_file("a.sh", "--model llama3.2-1b"), "a.sh:3: --m = 4\n");
}
END_TEST

/* Patterns take no longer than both lengths; loops inside of loops come to an end. */
START_TEST(hostile_scripts_end) {
  Text t = {0};
  text_printf(&t, "X=");
  for (int i = 0; i < 900; i++) text_printf(&t, "a");
  text_printf(&t,
              "\ncase $X in *a*a*a*a*a*a*a*b) M=9;; *) M=4;; esac\n"
              "Y=${X#*a*a*a*a*a*a*a*b}\npython a.py --micro-batch-size 1 --z 1 --m $M\n");
  import_put("a.sh", t.s);
  import_has(import_file("a.sh", "--model llama3.2-1b"), ": --m = 4\n");
  t.n = 0;
  for (int k = 0; k < 4; k++) {
    text_printf(&t, "for i%d in", k);
    for (int i = 0; i < 99; i++) text_printf(&t, " %d", i);
    text_printf(&t, "; do\n");
  }
  text_printf(&t, "M=1\ndone; done; done; done\npython a.py --micro-batch-size 1\n");
  import_put("b.sh", t.s);
  text_free(&t);
  import_fails(2, "b.sh", "", "is too long to follow: its loops, or its patterns");
}
END_TEST

/* The rest of the line of <<EOF is of the command. */
START_TEST(arguments_behind_a_text_are_read) {
  import_put("a.sh",
             "python a.py --micro-batch-size 1 <<EOF --a 2 \\\n  --b 3\n--c 4\nEOF\n");
  const char *report = import_file("a.sh", "--model llama3.2-1b");
  import_has(report, "a.sh:1: --a = 2\n");
  import_has(report, "a.sh:2: --b = 3\n");
  import_lacks(report, "--c");
}
END_TEST

/* What its reader is to fill in is a text, and no error of the shell. */
START_TEST(placeholders_are_texts) {
  import_put("a.sh",
             "VOCAB=<Path to vocab.json (e.g. /gpt2-vocab.json)>\nDATA=<a path>\n"
             "python a.py --micro-batch-size 1 --num-layers 2 --hidden-size 64 \\\n"
             "  --num-attention-heads 4 --seq-length 64 --vocab-file $VOCAB \\\n"
             "  --max-position-embeddings 64 --data-path $DATA\n");
  const char *report = import_file("a.sh", "");
  import_has(report, "--vocab-file = <Path to vocab.json (e.g. /gpt2-vocab.json)>");
}
END_TEST

Suite *import_shell_suite(void) {
  Suite *s = suite_create("import_shell");
  TCase *t = tcase_create("shell");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, the_command_that_trains_is_read, 0, LEN(scripts));
  tcase_add_test(t, two_commands_that_train_are_refused);
  tcase_add_test(t, more_choices_than_experts_are_refused);
  tcase_add_test(t, placeholders_are_texts);
  tcase_add_test(t, rows_are_as_in_bash);
  tcase_add_test(t, rows_are_of_bash);
  tcase_add_loop_test(t, what_is_not_decided_is_said, 0, LEN(told));
  tcase_add_test(t, what_is_behind_exit_is_not_read);
  tcase_add_test(t, hostile_scripts_end);
  tcase_add_test(t, arguments_behind_a_text_are_read);
  suite_add_tcase(s, t);
  return s;
}
