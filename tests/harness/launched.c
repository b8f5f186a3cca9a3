/* launched.c - see launched.h. */
#include "launched.h"

#include <string.h>

#include "tests/harness/scratch.h"

static const char plan_text[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  name = weft.var('a', 'small one'),\n"
    "  model = weft.model { 'llama', num_hidden_layers = 2, hidden_size = 16,\n"
    "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 24,\n"
    "    vocab_size = 128 },\n"
    "  mesh = { tp = 2, pp = 2, dp = 1 },\n"
    "  batch = { global = 4, micro = 1, seq = 8 },\n"
    "  data = weft.synthetic {},\n"
    "  comm = { timeout = 20 },\n"
    "  train = { steps = 1000000, log_every = 1000000 },\n"
    "}\n";

void launched_plan(void) { scratch_put("plan.lua", plan_text, strlen(plan_text)); }
