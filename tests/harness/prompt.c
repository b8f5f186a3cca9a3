/* prompt.c - lines at the prompt and what they print. */
#include "prompt.h"

#include <check.h>
#include <string.h>

Terminal *prompt_start(const char *command) {
  Terminal *t = terminal_start(command);
  terminal_wait_row(t, 0, ">");
  return t;
}

Terminal *prompt_repl(const char *file) {
  return prompt_start(arena_printf(scratch_arena, "NO_COLOR=1 $weft repl %s",
                                   *file ? scratch_path(file) : ""));
}

const char *prompt_answer(Terminal *t, const char *line) {
  int row = t->row;
  terminal_enter(t, line, ">");
  return terminal_rows(t, row + 1, t->row - 1);
}

void prompt_says(Terminal *t, const char *line, const char *want) {
  ck_assert_str_eq(prompt_answer(t, line), want);
}

void prompt_tells(Terminal *t, const char *line, const char *part) {
  const char *s = prompt_answer(t, line);
  ck_assert_msg(strstr(s, part) != NULL, "%s: \"%s\" is not in: %s", line, part, s);
}

void prompt_leave(Terminal *t) {
  terminal_type(t, "\004");
  ck_assert_int_eq(terminal_end(t), 0);
}

void prompt_plan(const char *name, int micro) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\n"
      "return weft.plan {\n"
      "  name = '%s', mesh = { tp = 2 },\n"
      "  model = weft.model { 'llama', hidden_size = 64, num_hidden_layers = 2,\n"
      "    num_attention_heads = 4, intermediate_size = 128, vocab_size = 256 },\n"
      "  batch = { global = 8, micro = %d, seq = weft.var('SEQ', 16) },\n"
      "}\n",
      name, micro);
  scratch_put(name, text, strlen(text));
}
