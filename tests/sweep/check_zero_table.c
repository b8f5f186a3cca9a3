/* check_zero_table.c - tables that others have published of what a rank keeps of
 * parameters, gradients and optimizer state: those of the paper on ZeRO (Rajbhandari et
 * al. 2020, table 1), of Megatron's distributed optimizer, and what PyTorch's FSDP2
 * keeps. */
#include <check.h>

#include "tests/harness/lua_run.h"

/* Loads the plan with P parameters and gives the bytes of a rank by class. */
#define KEPT                                                                             \
  "local P = 7500001280\n"                                                               \
  "local function kept(stage, set)\n"                                                    \
  "  local p = assert(weft.load(PLANS .. 'gpt_7b_zero.lua',\n"                           \
  "    { define = { stage = tostring(stage) }, set = set }))\n"                          \
  "  local of = { parameters = 0, gradients = 0, ['master weights'] = 0,\n"              \
  "    ['optimizer state'] = 0 }\n"                                                      \
  "  for _, c in ipairs(p:memory(0).classes) do\n"                                       \
  "    if of[c.name] then of[c.name] = of[c.name] + c.bytes end\n"                       \
  "  end\n"                                                                              \
  "  return of\n"                                                                        \
  "end\n"                                                                                \
  "local function states(of) return of['master weights'] + of['optimizer state'] end\n"  \
  "local function is(what, bytes, each)\n"                                               \
  "  local says = string.format('%s: %.4f bytes for a parameter, not %.4f', what,\n"     \
  "    bytes / P, each)\n"                                                               \
  "  assert(bytes >= each * P and bytes < 1.0005 * each * P, says)\n"                    \
  "end\n"

/* Gigabytes (10^9), with the digits of the paper, of 7.5 billion parameters on d ranks
 * under P_os, P_os+g and P_os+g+p: (4 + 12/d) P, (2 + 14/d) P, 16 P / d. */
START_TEST(digits_of_the_paper) {
  lua_run(KEPT
          "local paper = {\n"
          "  { 1, '120', '120', '120' }, { 4, '52.5', '41.3', '30.0' },\n"
          "  { 16, '35.6', '21.6', '7.5' }, { 64, '31.4', '16.6', '1.88' },\n"
          "  { 256, '30.4', '15.4', '0.47' }, { 1024, '30.1', '15.1', '0.12' } }\n"
          "for _, row in ipairs(paper) do\n"
          "  local d = row[1]\n"
          "  for stage = 1, 3 do\n"
          "    local of = kept(stage, { ['mesh.dp'] = d, ['batch.global'] = d })\n"
          "    local all = of.parameters + of.gradients + states(of)\n"
          "    local _, digits = row[stage + 1]:match '^(%d+)%.?(%d*)$'\n"
          "    local got = string.format('%.' .. #digits .. 'f', all / 1e9)\n"
          "    assert(got == row[stage + 1], string.format(\n"
          "      'stage %d, %d ranks: %s GB, not %s', stage, d, got, row[stage + 1]))\n"
          "    is('parameters', of.parameters, stage < 3 and 2 or 2 / d)\n"
          "    is('gradients', of.gradients, stage < 2 and 2 or 2 / d)\n"
          "    is('states', states(of), 12 / d)\n"
          "  end\n"
          "end\n");
}
END_TEST

/* Bytes for a parameter without and with the distributed optimizer (stage 1), by the
 * types of parameters and gradients: bf16 and bf16 (as fp16 and fp16 in Megatron) 16, 4 +
 * 12/d; bf16 and f32 18, 6 + 12/d; f32 and f32 16, 8 + 8/d. */
START_TEST(bytes_of_the_distributed_optimizer) {
  lua_run(
      KEPT
      "local forms = {\n"
      "  { 'bf16', 'bf16', 4, 12 }, { 'bf16', 'f32', 6, 12 }, { 'f32', 'f32', 8, 8 } }\n"
      "for _, f in ipairs(forms) do\n"
      "  for stage = 0, 1 do\n"
      "    for _, d in ipairs { 1, 8, 64 } do\n"
      "      local of = kept(stage, { ['mesh.dp'] = d,\n"
      "        ['precision.param_dtype'] = f[1], ['precision.grad_dtype'] = f[2] })\n"
      "      local all = of.parameters + of.gradients + states(of)\n"
      "      is(f[1] .. ' and ' .. f[2], all, f[3] + f[4] / (stage > 0 and d or 1))\n"
      "    end\n"
      "  end\n"
      "end\n");
}
END_TEST

/* Nothing but bf16, as FSDP2 has it of a model in bf16: 8 bytes for a parameter, all of
 * them sharded. */
START_TEST(nothing_but_16_bits) {
  lua_run(
      KEPT
      "for _, d in ipairs { 1, 8, 64 } do\n"
      "  local of = kept(3, { ['mesh.dp'] = d, strategy = 'fsdp2',\n"
      "    ['precision.master_dtype'] = 'bf16', ['optimizer.state_dtype'] = 'bf16' })\n"
      "  assert(of['master weights'] == 0)\n"
      "  is('parameters', of.parameters, 2 / d)\n"
      "  is('gradients', of.gradients, 2 / d)\n"
      "  is('averages', of['optimizer state'], 4 / d)\n"
      "end\n");
}
END_TEST

Suite *zero_table_suite(void);
Suite *zero_table_suite(void) {
  Suite *s = suite_create("zero_table");
  TCase *c = tcase_create("published");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, digits_of_the_paper);
  tcase_add_test(c, bytes_of_the_distributed_optimizer);
  tcase_add_test(c, nothing_but_16_bits);
  suite_add_tcase(s, c);
  return s;
}
