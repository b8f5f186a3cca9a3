/* endless_run.h - a small plan whose run with a checkpoint does not end by itself, for
 * tests of what ends it. */
#ifndef WEFT_TESTS_ENDLESS_RUN_H
#define WEFT_TESTS_ENDLESS_RUN_H

#include <string.h>

#include "tests/harness/scratch.h"

/* Makes a scratch folder with plan.lua, which saves into runs when it ends and prints
 * every tenth step. */
static inline void endless_setup(void) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan {\n"
      "  model = weft.model { 'llama', hidden_size = 16, num_hidden_layers = 2,\n"
      "    num_attention_heads = 2, num_key_value_heads = 2, intermediate_size = 32,\n"
      "    vocab_size = 32 },\n"
      "  mesh = { tp = 2 },\n"
      "  batch = { global = 2, micro = 1, seq = 8 },\n"
      "  data = weft.synthetic {},\n"
      "  train = { steps = 100000000, log_every = 10 },\n"
      "  checkpoint = { dir = 'runs', every = 0 },\n"
      "}\n";
  scratch_setup();
  scratch_put("plan.lua", plan, sizeof plan - 1);
}

#endif
