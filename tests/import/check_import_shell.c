/* check_import_shell.c - which command of a script weft import reads, and as which words:
 * scripts that print it first, evaluate a text, call another file, or have no value for
 * it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

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
  suite_add_tcase(s, t);
  return s;
}
