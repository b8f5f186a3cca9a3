/* check_zero_table.c - the table of the paper on ZeRO (Rajbhandari et al. 2020, table 1):
 * a model of 7.5 billion parameters on 1, 4, 16 and 64 ranks under each stage. The paper
 * counts 2 bytes of gradients for a parameter and weft keeps 4, so that 18 bytes stand
 * for its 16; all else is as it says. */
#include <check.h>

#include "tests/harness/lua_run.h"

/* Gigabytes (10^9) of parameters, gradients and optimizer state on a rank, for d = 1, 4,
 * 16, 64, of P = 7,459,729,408: stage 0: 18 P; 1: (6 + 12/d) P; 2: (2 + 16/d) P; 3: 18 P
 * / d. */
START_TEST(states_of_a_rank) {
  lua_run("local golden = {\n"
          "  [0] = { 134.28, 134.28, 134.28, 134.28 },\n"
          "  { 134.28, 67.14, 50.35, 46.16 },\n"
          "  { 134.28, 44.76, 22.38, 16.78 },\n"
          "  { 134.28, 33.57, 8.392, 2.098 } }\n"
          "local kept = { parameters = 1, gradients = 1, ['master weights'] = 1,\n"
          "  ['optimizer state'] = 1 }\n"
          "for stage = 0, 3 do\n"
          "  for i, d in ipairs { 1, 4, 16, 64 } do\n"
          "    local p = assert(weft.load(PLANS .. 'gpt_7b_zero.lua',\n"
          "      { define = { stage = tostring(stage) }, set = { ['mesh.dp'] = d } }))\n"
          "    local bytes, n = 0, 7459729408\n"
          "    for _, c in ipairs(p:memory(0).classes) do\n"
          "      bytes = bytes + (kept[c.name] and c.bytes or 0)\n"
          "    end\n"
          "    local want = golden[stage][i]\n"
          "    local says = string.format('stage %d, %d ranks: %.2f GB', stage, d, bytes "
          "/ 1e9)\n"
          "    assert(math.abs(bytes / 1e9 - want) < 0.001 * want, says)\n"
          "    local each = ({ [0] = 18, 6 + 12 / d, 2 + 16 / d, 18 / d })[stage]\n"
          "    assert(bytes >= each * n and bytes < 1.001 * each * n, says)\n"
          "  end\n"
          "end\n");
}
END_TEST

Suite *zero_table_suite(void);
Suite *zero_table_suite(void) {
  Suite *s = suite_create("zero_table");
  TCase *c = tcase_create("paper");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, states_of_a_rank);
  suite_add_tcase(s, c);
  return s;
}
