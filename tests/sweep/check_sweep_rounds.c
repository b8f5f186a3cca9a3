/* check_sweep_rounds.c - steps of several rounds in a sweep: each round fills the
 * pipeline and drains it, so that the estimate grows with them, as the clock does, whose
 * bound it is. */
#include <check.h>

#include "tests/harness/lua_run.h"
#include "tests/harness/scratch.h"

#define ROUNDS_OF                                                                        \
  "local function rounds_of(schedule, pp, seq)\n"                                        \
  "  local at, p = {}, weft.plan { precision = 'bf16', schedule = schedule,\n"           \
  "    cluster = 'h100-sxm', mesh = { pp = pp }, recompute = 'full',\n"                  \
  "    model = weft.model { 'llama', hidden_size = 512, num_hidden_layers = 8,\n"        \
  "      num_attention_heads = 8, intermediate_size = 1024, vocab_size = 1024 },\n"      \
  "    batch = { global = 32, micro = 1, seq = seq } }\n"                                \
  "  local rows = weft.sweep { plan = p, clock = 3, over = { { 'batch.rounds', 1, 2, 4 " \
  "} } }\n"                                                                              \
  "  for _, r in ipairs(rows) do\n"                                                      \
  "    if not (r.step_ms > 0 and r.step_ms <= r.clock_ms) then\n"                        \
  "      error(('%s, %d rounds: a bound of %g above %g ms'):format(schedule, "           \
  "r.rounds,\n"                                                                          \
  "        r.step_ms, r.clock_ms))\n"                                                    \
  "    end\n"                                                                            \
  "    at[r.rounds] = r\n"                                                               \
  "  end\n"                                                                              \
  "  return at\n"                                                                        \
  "end\n"

START_TEST(each_round_fills_and_drains) {
  lua_run(ROUNDS_OF "for _, schedule in ipairs { 'gpipe', '1f1b' } do\n"
                    "  for _, seq in ipairs { 256, 2048 } do\n"
                    "    local at = rounds_of(schedule, 4, seq)\n"
                    "    assert(at[1].step_ms < at[2].step_ms, '2 rounds')\n"
                    "    assert(at[2].step_ms < at[4].step_ms, '4 rounds')\n"
                    /* of the bubbles of equal stages, 3 of 35 and 12 of 44 units */
                    "    local more = at[4].step_ms / at[1].step_ms\n"
                    "    assert(more > 1.15 and more < 1.35, more)\n"
                    "  end\n"
                    "end\n");
}
END_TEST

START_TEST(never_above_the_clock) {
  lua_run(ROUNDS_OF
          "for _, schedule in ipairs { 'zbv', 'zero_bubble', 'zb_h2', 'v_half',\n"
          "    'dualpipe_v', 'interleaved_1f1b', 'looped_bfs', 'eager_1f1b' } do\n"
          "  for _, pp in ipairs { 2, 4 } do rounds_of(schedule, pp, 512) end\n"
          "end\n"
          "rounds_of('1f1b', 1, 512)\n");
}
END_TEST

Suite *sweep_rounds_suite(void);
Suite *sweep_rounds_suite(void) {
  Suite *s = suite_create("sweep_rounds");
  TCase *t = tcase_create("rounds");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, each_round_fills_and_drains);
  tcase_add_test(t, never_above_the_clock);
  suite_add_tcase(s, t);
  return s;
}
