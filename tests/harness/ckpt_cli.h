/* ckpt_cli.h - runs of weft with checkpoints, as a user has them: the plan plan.lua of
 * the scratch folder, which saves into runs. */
#ifndef WEFT_TESTS_CKPT_CLI_H
#define WEFT_TESTS_CKPT_CLI_H

#include <check.h>

#include "tests/harness/process.h"

/* The text of plan.lua. */
#define SMALL                                                                            \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan {\n"                                                                 \
  "  model = weft.model { 'llama', hidden_size = 16, num_hidden_layers = 2,\n"           \
  "    num_attention_heads = 2, num_key_value_heads = 2, intermediate_size = 32,\n"      \
  "    vocab_size = 32 },\n"                                                             \
  "  mesh = { tp = 2 }, strategy = 'fsdp2',\n"                                           \
  "  batch = { global = 2, micro = 1, seq = 8 },\n"                                      \
  "  optimizer = weft.adamw { lr = 1e-3 },\n"                                            \
  "  data = weft.synthetic {},\n"                                                        \
  "  train = { steps = 6, log_every = 1 },\n"                                            \
  "  checkpoint = { dir = 'runs', every = 2 },\n"                                        \
  "}\n"

static inline void ckpt_cli_setup(void) {
  scratch_setup();
  scratch_put("plan.lua", SMALL, strlen(SMALL));
}

static inline void has(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

/* Trains, with further arguments; fails the test unless it ends with this code. */
static inline Outcome run(int code, const char *args) {
  Outcome o = process_run(50, "$weft run plan.lua --threads 1 %s", args);
  ck_assert_msg(o.code == code, "%d: %s%s", o.code, o.out, o.err);
  return o;
}

/* The names in a folder, each with a blank behind it. */
static inline const char *listed(const char *dir) {
  return process_run(20, "sh -c 'ls %s | tr \"\\n\" \" \"'", dir).out;
}

/* The column of losses of printed steps. */
static inline const char *losses(const char *out) {
  const char *s = "";
  for (const char *at = out; (at = strstr(at, "loss ")); at++)
    s = arena_printf(scratch_arena, "%s%.14s\n", s, at);
  return s;
}

/* What weft ckpt says; fails the test unless it ends with this code. */
static inline const char *ckpt(int code, const char *args) {
  Outcome o = process_run(50, "$weft ckpt %s", args);
  ck_assert_msg(o.code == code, "%s: %d: %s%s", args, o.code, o.out, o.err);
  return arena_printf(scratch_arena, "%s%s", o.out, o.err);
}

#endif
