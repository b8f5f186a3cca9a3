/* tiny_plan.h - the text of a plan of four small layers, for tests of measured times. */
#ifndef WEFT_TEST_TINY_PLAN_H
#define WEFT_TEST_TINY_PLAN_H

static const char tiny_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { name = 'tiny',\n"
    "  model = weft.model { 'llama', hidden_size = 16, num_hidden_layers = 4,\n"
    "    num_attention_heads = 4, intermediate_size = 32, vocab_size = 64 },\n"
    "  batch = { global = 4, micro = 1, seq = 8 },\n"
    "  optimizer = weft.adamw { lr = 1e-3 }, train = { steps = 2 },\n"
    "  data = weft.synthetic {} }\n";

#endif
