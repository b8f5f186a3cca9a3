/* check_model_flops.c - the arithmetic of a step is that of the model on any mesh,
 * wherever it is counted: of experts that of the rows that there are. */
#include <check.h>

#include "tests/harness/lua_run.h"
#include "tests/harness/scratch.h"

/* `write` makes a plan file of the mesh and other fields; `on` its plan, and the
 * arithmetic of a step: all of it, what is repeated, and the room of buffers. */
#define EXPERTS                                                                          \
  "local function write(fields)\n"                                                       \
  "  local f <close> = assert(io.open(SCRATCH .. 'p.lua', 'w'))\n"                       \
  "  f:write([[local weft = require 'weft'\n"                                            \
  "    return weft.plan { model = weft.model { 'mixtral', hidden_size = 512,\n"          \
  "      num_hidden_layers = 4, num_attention_heads = 8, num_key_value_heads = 8,\n"     \
  "      intermediate_size = 1024, vocab_size = 1024, num_local_experts = 8,\n"          \
  "      num_experts_per_tok = 2 }, cluster = weft.cluster 'h100-sxm',\n"                \
  "      precision = 'bf16', batch = { global = 16, micro = 1, seq = 256 },\n"           \
  "      ]] .. fields .. '}')\n"                                                         \
  "  return SCRATCH .. 'p.lua'\n"                                                        \
  "end\n"                                                                                \
  "local function on(fields)\n"                                                          \
  "  local p = assert(weft.load(write(fields)))\n"                                       \
  "  local all, again, room = 0, 0, 0\n"                                                 \
  "  for r = 0, p.mesh.world - 1 do\n"                                                   \
  "    local q = p:program(r)\n"                                                         \
  "    all, again = all + q.flops, again + q.flops_recomputed\n"                         \
  "    room = room + (q.flops_room or 0)\n"                                              \
  "  end\n"                                                                              \
  "  return p, all, again, room\n"                                                       \
  "end\n"                                                                                \
  "local function near(a, b, most)\n"                                                    \
  "  if not (math.abs(a / b - 1) <= (most or 1e-9)) then\n"                              \
  "    error(a .. ' is not ' .. b, 2) end\n"                                             \
  "end\n"

/* Programs, stages and the clock, for dispatchers, limits, experts that are cut by their
 * inner features, and experts and routers that all ranks of tp have. */
START_TEST(of_experts_on_any_mesh) {
  lua_run(EXPERTS
          "local _, all, again = on 'mesh = { dp = 4 }'\n"
          "local one = all - again\n"
          "for _, fields in ipairs { 'mesh = { dp = 4, ep = 2 }', 'mesh = { dp = 4, ep = "
          "4 }',\n"
          "    'mesh = { dp = 4, ep = 4 }, moe = { dispatcher = \"alltoall\" }',\n"
          "    'mesh = { dp = 4, ep = 4 }, ' ..\n"
          "    'moe = { dispatcher = \"alltoall\", max_tokens_factor = 1.5 }',\n"
          "    'mesh = { dp = 4, ep = 4 }, moe = { capacity_factor = 1.25 }',\n"
          "    'mesh = { dp = 4, ep = 4 }, recompute = \"full\"',\n"
          "    'mesh = { dp = 2, tp = 2, ep = 2, etp = 2 }, moe = { dispatcher = "
          "\"alltoall\" }',\n"
          "    'mesh = { dp = 1, tp = 4, ep = 4, etp = 1 }', 'mesh = { tp = 4 }',\n"
          "    'mesh = { tp = 4 }, tp_plan = {}',\n"
          "    'mesh = { cp = 2, tp = 2, ep = 4, etp = 1 }',\n"
          "    'mesh = { pp = 2, dp = 2, ep = 2 }' } do\n"
          "  local p, all, again = on(fields)\n"
          "  local s, stages = p:sim(), 0\n"
          "  for _, x in ipairs(p:stages()) do stages = stages + x.flops end\n"
          "  local calls = p:schedule().microbatches * p.mesh.world / p.mesh.pp\n"
          "  near(s.flops, all) near(stages * calls, all)\n"
          "  near(s.flops * s.mfu / s.hfu, all - again)\n"
          "  if math.abs((all - again) / one - 1) > 0.01 then\n"
          "    error(('%s: %g of %g'):format(fields, all - again, one))\n"
          "  end\n"
          "end\n");
}
END_TEST

/* Both ranks of ep = 2 may get a row for each of two choices, so the room is as large as
 * the rows; with ep = 4 three times as large. A limit leaves less of it. */
START_TEST(room_of_buffers) {
  lua_run(EXPERTS
          "local function room(fields)\n"
          "  local _, all, again, room = on(fields) return room\n"
          "end\n"
          "local function near(a, b) assert(math.abs(a - b) < 1e-9 * b, a / b) end\n"
          "same(room 'mesh = { dp = 4 }', 0) same(room 'mesh = { tp = 4 }', 0)\n"
          "local rows = room 'mesh = { dp = 4, ep = 2 }'\n"
          "assert(rows > 0)\n"
          "near(room 'mesh = { dp = 4, ep = 4 }', 3 * rows)\n"
          "near(room 'mesh = { dp = 4, ep = 4 }, moe = { max_tokens_factor = 1.5 }',\n"
          "  0.5 * rows)\n"
          "says(on('mesh = { dp = 4, ep = 2 }'):program(0), ', room for ')\n");
}
END_TEST

/* The narrow product of an adapter is the same on all ranks of etp. */
START_TEST(of_adapters) {
  lua_run(EXPERTS
          "local lora = 'adapter = { \"lora\", rank = 32,\\n'\n"
          "  .. 'target_parameters = { \"gate_up_proj\", \"down_proj\" } }, '\n"
          "local _, all, again = on(lora .. 'mesh = { dp = 4 }')\n"
          "local _, more, repeated = on(lora .. 'mesh = { dp = 4, ep = 2, etp = 2 }')\n"
          "near(more - repeated, all - again, 0.005)\n"
          "assert(more > 1.01 * all)\n");
}
END_TEST

/* Scans of state-space layers that tp does not cut are the same on all of its ranks. */
START_TEST(of_state_spaces) {
  lua_run(
      "local function model_flops(mesh)\n"
      "  local s = weft.plan { mesh = mesh, model = weft.model { 'falcon_h1',\n"
      "    hidden_size = 256, num_hidden_layers = 2, num_attention_heads = 8,\n"
      "    num_key_value_heads = 4, head_dim = 32, intermediate_size = 512,\n"
      "    vocab_size = 512, mamba_d_ssm = 512, mamba_n_heads = 16, mamba_d_head = 32,\n"
      "    mamba_n_groups = 4, mamba_d_state = 64 }, cluster = weft.cluster 'h100-sxm',\n"
      "    precision = 'bf16', batch = { global = 4, micro = 1, seq = 256 } }:sim()\n"
      "  return s.flops * s.mfu / s.hfu\n"
      "end\n"
      "local more = model_flops { tp = 4 } / model_flops {}\n"
      "assert(more < 1.03, more)\n");
}
END_TEST

/* Sweeps, and the shares of stages: ep changes neither. */
START_TEST(of_points_and_stages) {
  lua_run(EXPERTS
          "local path = write 'mesh = { dp = 4, pp = 2 }'\n"
          "local rows = weft.sweep { plan = path, over = weft.grid {\n"
          "  { 'mesh.ep', 1, 2, 4 }, { 'moe.dispatcher', 'allgather', 'alltoall' },\n"
          "  { 'moe.max_tokens_factor', 1.25, 2 } } }\n"
          "same(#rows, 12)\n"
          "for _, r in ipairs(rows) do near(r.tflop, rows[1].tflop, 0.01) end\n"
          "local one = weft.load(path):stages()\n"
          "local many = weft.load(path, { set = { ['mesh.ep'] = 4 } }):stages()\n"
          "near(one[2].share, many[2].share, 0.01)\n");
}
END_TEST

Suite *model_flops_suite(void);
Suite *model_flops_suite(void) {
  Suite *s = suite_create("model_flops");
  TCase *t = tcase_create("model_flops");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 60);
  tcase_add_test(t, of_experts_on_any_mesh);
  tcase_add_test(t, room_of_buffers);
  tcase_add_test(t, of_adapters);
  tcase_add_test(t, of_state_spaces);
  tcase_add_test(t, of_points_and_stages);
  suite_add_tcase(s, t);
  return s;
}
