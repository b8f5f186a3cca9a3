/* check_clock.c - a step on the clock: what the parts of a step add up to, and what
 * changes when a figure of the machines does. */
#include <check.h>
#include <jansson.h>
#include <math.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/lua_run.h"
#include "tests/harness/process.h"
#include "vm/sim/step_clock.h"

/* ---- a plan ---- */

#define PLANS_OF_CLOCK                                                                   \
  "local function plan(t)\n"                                                             \
  "  t.model = t.model or weft.model { 'llama', hidden_size = 512, num_hidden_layers = " \
  "8,\n"                                                                                 \
  "    num_attention_heads = 8, intermediate_size = 1024, vocab_size = 1024 }\n"         \
  "  t.cluster = t.cluster or weft.cluster 'h100-sxm'\n"                                 \
  "  t.precision = t.precision or 'bf16'\n"                                              \
  "  t.batch = t.batch or { global = 32, micro = 1, seq = 256 }\n"                       \
  "  return weft.plan(t)\n"                                                              \
  "end\n"                                                                                \
  "local function near(a, b) if not (math.abs(a - b) <= 1e-9 + 1e-6 * math.abs(b)) "     \
  "then error(a .. ' is not ' .. b, 2) end end\n"                                        \
  "local function total(t) local s = 0 for _, x in pairs(t) do s = s + x end return s "  \
  "end\n"                                                                                \
  "local plans = {\n"                                                                    \
  "  {}, { mesh = { tp = 2 } }, { mesh = { tp = 4, dp = 2 }, strategy = { 'zero', "      \
  "sequence_parallel = true } },\n"                                                      \
  "  { mesh = { pp = 4 } }, { mesh = { pp = 4, tp = 2, dp = 2 }, schedule = "            \
  "'interleaved_1f1b' },\n"                                                              \
  "  { mesh = { pp = 2 }, schedule = 'zbv' }, { mesh = { dp = 4 }, strategy = 'fsdp2' "  \
  "},\n"                                                                                 \
  "  { mesh = { cp = 2, dp = 2 } }, { mesh = { dp = 16 }, recompute = 'full' } }\n"

/* Each moment of a pipeline rank is one of a kernel, a transfer or the bubble. */
START_TEST(parts_add_up) {
  lua_run(PLANS_OF_CLOCK
          "for _, t in ipairs(plans) do\n"
          "  local s = plan(t):sim()\n"
          "  for _, r in ipairs(s.pipeline) do\n"
          "    near(total(r.kernels) + total(r.exposed) + r.bubble, s.seconds)\n"
          "    near(total(r.kernels), r.compute)\n"
          "  end\n"
          "  near(s.tokens, 32 * 256)\n"
          "  assert(s.low < s.seconds and s.seconds < s.high, 'range')\n"
          "  near(s.tokens_per_s_per_gpu * s.seconds * s.ranks, s.tokens)\n"
          "end\n");
}
END_TEST

#define ADDS_UP                                                                          \
  "local function adds_up(s)\n"                                                          \
  "  for _, r in ipairs(s.pipeline) do\n"                                                \
  "    near(total(r.kernels) + total(r.exposed) + r.bubble, s.seconds)\n"                \
  "  end\n"                                                                              \
  "  return s\n"                                                                         \
  "end\n"

/* Without the sums over pipeline ranks between two steps one takes as long as the longest
 * span of a rank: no less than its work, and less than with them. */
START_TEST(steps_that_overlap) {
  lua_run(
      PLANS_OF_CLOCK ADDS_UP
      "local p = plan { mesh = { pp = 4 }, schedule = 'zb_h2' }\n"
      "local apart, overlap = adds_up(p:sim()), adds_up(p:sim { steps = 'overlap' })\n"
      "local busiest = 0\n"
      "for _, r in ipairs(overlap.pipeline) do busiest = math.max(busiest, r.compute) "
      "end\n"
      "assert(overlap.seconds >= busiest, 'less than its work')\n"
      "local sums = 2 * (3 * 2 * 2.5e-6)\n" /* of two scalars, around 4 ranks */
      "assert(apart.seconds - overlap.seconds > sums, 'no sum stands between')\n"
      "local alone = plan { mesh = { dp = 2 } }\n"
      "assert(alone:sim { steps = 'overlap' }.seconds > 0.98 * alone:sim().seconds)\n"
      "local fine, e = pcall(p.sim, p, { steps = 'beside' })\n"
      "assert(not fine and tostring(e):find('steps is \"apart\" or \"overlap\", not', 1, "
      "true), e)\n");
}
END_TEST

/* Of tp: a rank waits for a sum where it starts it, not where it is needed. */
START_TEST(collectives_that_block) {
  lua_run(
      PLANS_OF_CLOCK ADDS_UP
      "local function of(tp)\n"
      "  return adds_up(plan({ mesh = { tp = 4 }, tp_plan = weft.tp_plan 'llama' "
      "}):sim { tp = tp })\n"
      "end\n"
      "local beside, blocking = of 'beside', of 'blocking'\n"
      "local a, b = beside.pipeline[1], blocking.pipeline[1]\n"
      "assert(b.exposed.tp > 1.1 * a.exposed.tp, 'stands still')\n"
      "near(total(a.kernels), total(b.kernels))\n"
      "near(blocking.seconds - beside.seconds, b.exposed.tp - a.exposed.tp)\n"
      "local fine, e = pcall(of, 'apart')\n"
      "assert(not fine and tostring(e):find('tp is \"beside\" or \"blocking\", not', 1, "
      "true), e)\n");
}
END_TEST

/* Each rank stands still for what it sends: 32 microbatches to the next rank and as many
 * gradients back. */
START_TEST(sends_that_block) {
  lua_run(PLANS_OF_CLOCK ADDS_UP
          "local p = plan { mesh = { pp = 4 } }\n"
          "local beside, blocking = p:sim(), adds_up(p:sim { sends = 'blocking' })\n"
          "local one = 256 * 512 * 2 / (450e9 * 0.8)\n"
          "assert(blocking.pipeline[2].exposed.pp >= 64 * one, 'stands still')\n"
          "assert(blocking.pipeline[4].exposed.pp >= 32 * one, 'at the end')\n"
          "assert(blocking.seconds > beside.seconds + 32 * one, 'longer')\n"
          "near(blocking.pipeline[2].compute, beside.pipeline[2].compute)\n");
}
END_TEST

/* A gradient in f32 is added to by more bytes than one in bf16. */
START_TEST(gradients_in_f32) {
  lua_run(PLANS_OF_CLOCK
          "local function of(grad)\n"
          "  return plan({ precision = { param_dtype = 'bf16', grad_dtype = grad } })\n"
          "    :sim().pipeline[1].kernels.products\n"
          "end\n"
          "assert(of('f32') > 1.05 * of('bf16'), of('f32') / of('bf16'))\n");
}
END_TEST

/* Groups over a part of an axis, or over several, count for the one that they wait for.
 */
START_TEST(axes_of_waits) {
  lua_run(
      PLANS_OF_CLOCK
      "local function only(t, ...)\n"
      "  local want, exposed = {}, plan(t):sim().pipeline[1].exposed\n"
      "  for _, axis in ipairs { ... } do want[axis] = true end\n"
      "  for _, axis in ipairs { 'tp', 'cp', 'ep', 'dp', 'pp' } do\n"
      "    if (exposed[axis] ~= nil) ~= (want[axis] == true) then\n"
      "      error(axis .. ': ' .. tostring(exposed[axis]), 2)\n"
      "    end\n"
      "  end\n"
      "end\n"
      "only({})\n"
      "only({ mesh = { dp = 4 }, strategy = 'fsdp2' }, 'dp')\n"
      "only({ mesh = { dp = 4 }, strategy = { 'fsdp2', reshard_after_forward = 2 } }, "
      "'dp')\n"
      "only({ mesh = { dp = 8 }, strategy = { 'zero', stage = 1 } }, 'dp')\n"
      "only({ mesh = { cp = 2 } }, 'cp')\n"
      "only({ mesh = { cp = 2, dp = 2 } }, 'cp', 'dp')\n" /* gradients over both */
      "only({ mesh = { tp = 2 } }, 'tp')\n");
}
END_TEST

/* The estimate of sweeps is a bound, under all schedules and with stages of any sizes. */
START_TEST(never_below_the_bound) {
  lua_run(
      PLANS_OF_CLOCK
      "for _, name in ipairs { 'gpipe', 'eager_1f1b', 'zb_h2', 'zero_bubble', 'v_half',\n"
      "    'v_min', 'dualpipe_v', 'zbv', 'interleaved_1f1b', 'looped_bfs' } do\n"
      "  for _, global in ipairs { 8, 64 } do\n"
      "    plans[#plans + 1] = { mesh = { pp = 4 }, schedule = name,\n"
      "      batch = { global = global, micro = 1, seq = 256 } }\n"
      "  end\n"
      "end\n"
      "plans[#plans + 1] = { mesh = { dp = 2048 },\n" /* trees, where rings are long */
      "  batch = { global = 2048, micro = 1, seq = 256 } }\n"
      "plans[#plans + 1] = { mesh = { dp = 8 }, strategy = 'fsdp2', precision = 'fp8',\n"
      "  cluster = weft.cluster 'b200', batch = { global = 64, micro = 8, seq = 2048 },\n"
      "  model = weft.model { 'llama', hidden_size = 16384, num_hidden_layers = 2,\n"
      "    num_attention_heads = 128, num_key_value_heads = 8, intermediate_size = "
      "53248,\n"
      "    vocab_size = 16000 } }\n"
      "plans[#plans + 1] = { mesh = { dp = 64, ep = 64 }, moe = { dispatcher = "
      "'alltoall' "
      "},\n" /* rows that have room for those of all ranks */
      "  cluster = weft.cluster 'gb200-nvl72', batch = { global = 64, micro = 1, seq = "
      "4096 "
      "},\n"
      "  model = weft.model { 'qwen3-30b-a3b', num_hidden_layers = 6, num_experts = 64,\n"
      "    vocab_size = 4096, hidden_size = 4096, moe_intermediate_size = 128 } }\n"
      "for _, layers in ipairs { { 1, 5, 1, 1 }, { 5, 1, 1, 1 }, { 1, 1, 1, 5 } } do\n"
      "  plans[#plans + 1] = { mesh = { pp = 4, tp = 2 }, pp_plan = { layers = layers "
      "},\n"
      "    schedule = 'zero_bubble' }\n"
      "end\n"
      "for i, t in ipairs(plans) do\n"
      "  local p = plan(t)\n"
      "  local r = weft.sweep { plan = p, over = { { 'train.seed', 0 } } }\n"
      "  local bound, clock = r[1].step_ms, p:sim().seconds * 1e3\n"
      "  if not (bound > 0 and clock >= bound) then\n"
      "    error(('plan %d: %g ms is below the bound of %g'):format(i, clock, bound))\n"
      "  end\n"
      "end\n");
}
END_TEST

/* Where products reach the peak nothing else hides what is wrong with it: one layer a
 * stage, whose last W nobody waits for; gradients of several chunks; tp over two machines
 * where three ranks would be in one; orders of the mesh. */
START_TEST(never_below_the_bound_at_the_peak) {
  lua_run(
      "local function on(nodes, per_gpu)\n"
      "  return weft.cluster { gpus = 8, nodes = nodes, gpu = { 'h100-sxm', reached = "
      "989.4e12 },\n"
      "    network = { per_gpu = per_gpu, latency = 9.6e-6 } }\n"
      "end\n"
      "local n = 0\n"
      "local function try(mesh, more)\n"
      "  local world = mesh.world or mesh.tp or mesh.pp\n"
      "  mesh.world = world\n"
      "  for _, per_gpu in ipairs { 7e9, 25e9, 50e9 } do\n"
      "    local p = { mesh = mesh, precision = 'bf16', cluster = on(world / 8 , "
      "per_gpu),\n"
      "      model = weft.model { 'llama', hidden_size = 8192, num_hidden_layers = 16,\n"
      "        num_attention_heads = 96, head_dim = 128, intermediate_size = 24576,\n"
      "        num_key_value_heads = 48, vocab_size = 3072 },\n"
      "      batch = { global = world, micro = 1, seq = 4096 } }\n"
      "    for key, value in pairs(more) do p[key] = value end\n"
      "    local r = weft.sweep { plan = p, clock = 1, max_gib = 1e6,\n"
      "      over = { { 'train.seed', 0 } } }[1]\n"
      "    n = n + 1\n"
      "    if not (r.step_ms <= r.clock_ms) then\n"
      "      error(('%d: a bound of %g above %g ms'):format(n, r.step_ms, r.clock_ms))\n"
      "    end\n"
      "  end\n"
      "end\n"
      "local async = { 'zero', stage = 1, sequence_parallel = true,\n"
      "  enable_async_tensor_parallel = true }\n"
      "for _, name in ipairs { 'gpipe', '1f1b', 'zero_bubble', 'eager_1f1b' } do\n"
      "  for _, global in ipairs(name == 'gpipe' and { 1, 2, 16 } or { 16, 32 }) do\n"
      "    try({ pp = 16 }, { schedule = name, batch = { global = global, micro = 1,\n"
      "      seq = 4096 } })\n"
      "  end\n"
      "end\n"
      "for _, name in ipairs { 'interleaved_1f1b', 'looped_bfs' } do\n"
      "  for _, v in ipairs { 2, 4 } do\n"
      "    try({ pp = 4, tp = 8, world = 128 }, { schedule = name, pp_plan = { virtual = "
      "v },\n"
      "      strategy = async, batch = { global = 32, micro = 1, seq = 1024 } })\n"
      "    try({ pp = 4, world = 64 }, { schedule = name, pp_plan = { virtual = v } })\n"
      "  end\n"
      "end\n"
      "for _, name in ipairs { 'zbv', 'v_half', 'dualpipe_v' } do\n"
      "  try({ pp = 8, world = 64 }, { schedule = name, batch = { global = 128, micro = "
      "1,\n"
      "    seq = 2048 } })\n"
      "end\n"
      "for _, seq in ipairs { 6144, 12288 } do\n"
      "  try({ tp = 3, world = 24 }, { strategy = async, batch = { global = 32, micro = "
      "1,\n"
      "    seq = seq } })\n"
      "  try({ tp = 4, cp = 4, world = 32, order = { 'pp', 'tp', 'dp', 'cp' } },\n"
      "    { strategy = async, batch = { global = 8, micro = 1, seq = seq } })\n"
      "  try({ tp = 2, cp = 8, world = 16 }, { batch = { global = 4, micro = 1, seq = "
      "seq } })\n"
      "end\n");
}
END_TEST

/* A link of half the speed shows where it is waited for, and nowhere else. */
START_TEST(a_halved_link) {
  lua_run(PLANS_OF_CLOCK
          "local function on(nvlink, per_gpu)\n"
          "  local k = weft.cluster { nodes = 2, gpus = 2, gpu = { 'h100-sxm', nvlink = "
          "nvlink },\n"
          "    network = { per_gpu = per_gpu } }\n"
          "  return plan({ mesh = { tp = 2, pp = 2 }, cluster = k }):sim()\n"
          "end\n"
          "local was, half, far = on(400e9, 50e9), on(200e9, 50e9), on(400e9, 5e9)\n"
          "for i = 1, 2 do\n"
          "  local a, b, c = was.pipeline[i], half.pipeline[i], far.pipeline[i]\n"
          "  assert(b.exposed.tp > 1.05 * a.exposed.tp, 'tp')\n"
          "  near(b.compute, a.compute)\n"
          "  near(c.compute, a.compute)\n"
          "  near(c.exposed.tp, a.exposed.tp)\n"
          "end\n"
          "assert(half.seconds > was.seconds and far.seconds > 1.02 * was.seconds)\n");
}
END_TEST

/* The first wait of the last pipeline rank for what another one sends, and what follows
 * it. */
static Instr *wait_before_call(const Compiled *c, int pp) {
  const Program *p = &c->prog[pp];
  for (uint32_t i = 0; i + 1 < p->nmain; i++)
    if (p->code[i].code == I_WAIT && p->code[i + 1].code == I_CALL)
      return (Instr *)&p->code[i];
  ck_abort_msg("no call of pipeline rank %d waits", pp);
}

/* Where a wait comes one call too late a rank computes with what it has not got: it is
 * done with a layer when it should begin, and both ranks are idle for as much less. */
START_TEST(a_dropped_wait) {
  const char *set[] = {"cluster=h100-sxm", "mesh={pp=2,tp=8}", "batch.global=4",
                       "batch.micro=1"};
  weft_error e;
  Job j;
  SimReport r[2];
  SimOptions o = {.rates = sheet_rates(RATES_USUAL)};
  const Compiled *c = compiled_job(&j, scratch_arena,
                                   WEFT_SOURCE_DIR "/plans/llama3_8b.lua", set, LEN(set));
  ck_assert_int_eq(simulate(c, &j.plan, &o, scratch_arena, &r[0], &e), WEFT_OK);
  Instr *wait = wait_before_call(c, 1), was = wait[0];
  wait[0] = wait[1], wait[1] = was;
  ck_assert_int_eq(simulate(c, &j.plan, &o, scratch_arena, &r[1], &e), WEFT_OK);
  double less = r[0].seconds - r[1].seconds;
  ck_assert_double_gt(less, 5e-4); /* of 181 ms */
  for (int pp = 0; pp < 2; pp++)
    ck_assert_double_eq_tol(r[0].rank[pp].bubble - r[1].rank[pp].bubble, less, 1e-9);
  job_free(&j);
}
END_TEST

/* Twice the microbatches of a pipeline of four cost what three more of them do not. */
START_TEST(the_bubble_shrinks) {
  lua_run(PLANS_OF_CLOCK
          "local function of(global)\n"
          "  local s = plan({ mesh = { pp = 4 }, batch = { global = global, micro = 1,\n"
          "    seq = 256 } }):sim()\n"
          "  local idle = 0\n"
          "  for _, r in ipairs(s.pipeline) do idle = idle + r.bubble end\n"
          "  return idle / 4 / s.seconds\n"
          "end\n"
          "local few, many = of(8), of(64)\n"
          "assert(few > 0.2 and few < 0.36, few)\n" /* 3 of 11 in units */
          "assert(many < 0.12, many)\n");
}
END_TEST

/* Rows of experts are those that there are, not the room of buffers: exchanged rows have
 * room for all that may come, gathered ones for no more than come to all experts. */
START_TEST(even_experts) {
  lua_run(
      "local function of(how, ep)\n"
      "  return weft.plan { model = weft.model { 'mixtral', hidden_size = 256,\n"
      "    num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4,\n"
      "    intermediate_size = 512, vocab_size = 512, num_local_experts = 8,\n"
      "    num_experts_per_tok = 2 }, moe = { dispatcher = how },\n"
      "    mesh = { dp = 4, ep = ep }, cluster = weft.cluster 'h100-sxm',\n"
      "    precision = 'bf16', batch = { global = 16, micro = 1, seq = 32768 } }:sim()\n"
      "end\n"
      "local one, sent, all = of('alltoall', 1), of('alltoall', 4), of('allgather', 4)\n"
      "for _, s in ipairs { sent, all } do\n"
      "  assert(math.abs(s.flops / one.flops - 1) < 0.02, s.flops / one.flops)\n"
      "  assert(s.pipeline[1].exposed.ep > 0, 'ep')\n"
      "end\n"
      "local function memory(s) return s.pipeline[1].kernels.memory end\n"
      "assert(memory(sent) < 1.4 * memory(one), 'rows, not places')\n");
}
END_TEST

/* Where pp is not the slowest axis the ranks that share experts are on four machines: of
 * what they exchange three quarters pass the network, which is a ninth of NVLink. */
START_TEST(experts_on_several_machines) {
  lua_run("local function of(order)\n"
          "  return weft.plan { model = weft.model { 'mixtral', hidden_size = 1024,\n"
          "    num_hidden_layers = 8, num_attention_heads = 8, num_key_value_heads = 4,\n"
          "    intermediate_size = 1024, vocab_size = 512, num_local_experts = 8,\n"
          "    num_experts_per_tok = 2 }, moe = { dispatcher = 'alltoall' },\n"
          "    mesh = { world = 64, tp = 2, pp = 8, ep = 8, etp = 1, order = order },\n"
          "    cluster = weft.cluster { 'h100-sxm', nodes = 8 }, precision = 'bf16',\n"
          "    batch = { global = 32, micro = 1, seq = 4096 } }:sim().pipeline[1]\n"
          "end\n"
          "local near, far = of(nil), of { 'dp', 'pp', 'cp', 'tp' }\n"
          "assert(far.exposed.ep > 3 * near.exposed.ep, far.exposed.ep)\n"
          "assert(far.compute < 1.01 * near.compute and near.compute < 1.01 * "
          "far.compute)\n");
}
END_TEST

/* Ticks of a step that is longer than their sum can say are no time. Sweeps have a bound
 * of it all the same, in order. */
START_TEST(steps_of_months) {
  lua_run("local function of(global, pp)\n"
          "  return weft.plan { model = weft.model { 'llama', hidden_size = 8192,\n"
          "    num_hidden_layers = 120, num_attention_heads = 64, vocab_size = 32000,\n"
          "    num_key_value_heads = 8, intermediate_size = 28672,\n"
          "    max_position_embeddings = 1048576 }, precision = 'f32',\n"
          "    cluster = weft.cluster { 'h100-sxm', nodes = 1 },\n"
          "    mesh = { tp = 8 / pp, pp = pp }, batch = { global = global, micro = 1,\n"
          "    seq = 1048576 } }\n"
          "end\n"
          "local function bound(global, pp)\n"
          "  return weft.sweep { plan = of(global, pp), max_gib = 1e9,\n"
          "    over = { { 'train.seed', 0 } } }[1].step_ms\n"
          "end\n"
          "local few = of(20, 1):sim()\n"
          "assert(few.mfu < 1 and few.seconds > 4e5, few.seconds)\n"
          "for _, global in ipairs { 500, 1000 } do\n"
          "  local p = of(global, 1)\n"
          "  raises('days', p.sim, p)\n"
          "  for pp = 1, 2 do\n"
          "    local ratio = bound(global, pp) / bound(10, pp) / global * 10\n"
          "    assert(ratio > 0.8 and ratio < 1.01, ratio)\n"
          "  end\n"
          "end\n");
}
END_TEST

/* What a step does once is the optimizer's, products of matrices too. */
START_TEST(products_of_the_optimizer) {
  lua_run(
      PLANS_OF_CLOCK
      "local function of(optimizer)\n"
      "  return plan({ mesh = { dp = 2 }, optimizer = optimizer "
      "}):sim().pipeline[1].kernels\n"
      "end\n"
      "local muon, adamw = of(weft.muon { lr = 1e-3 }), of(weft.adamw { lr = 1e-3 })\n"
      "near(muon.products, adamw.products)\n"
      "assert(muon.optimizer > 2 * adamw.optimizer, 'no products')\n");
}
END_TEST

/* Ranks share the matrices of all layers, not of each alone: of the matrices of a shape a
 * layer has fewer than there are ranks. */
START_TEST(ranks_share_matrices) {
  lua_run(
      "local function ms(dp, tp)\n"
      "  local s = weft.plan { model = weft.model { 'llama', hidden_size = 512,\n"
      "    num_hidden_layers = 8, num_attention_heads = 8, num_key_value_heads = 2,\n"
      "    intermediate_size = 1024, vocab_size = 512 }, mesh = { dp = dp, tp = tp },\n"
      "    tp_plan = weft.tp_plan 'llama', cluster = weft.cluster 'h100-sxm',\n"
      "    strategy = 'fsdp2', precision = 'bf16', optimizer = weft.muon { lr = 1e-3 },\n"
      "    batch = { global = 8, micro = 1, seq = 512 } }:sim()\n"
      "  return s.pipeline[1].kernels.optimizer\n"
      "end\n"
      "local alone = ms(1, 1)\n"
      "assert(ms(8, 1) < alone / 4, 'dp')\n"
      "assert(ms(4, 2) < alone / 4, 'dp, tp')\n");
}
END_TEST

/* The model has the arithmetic that it has on one rank, whatever of it ranks repeat. */
START_TEST(a_model_on_any_mesh) {
  lua_run(
      PLANS_OF_CLOCK
      "local function model_flops(t)\n"
      "  t.model = weft.model { 'llama', hidden_size = 512, num_hidden_layers = 4,\n"
      "    num_attention_heads = 8, num_key_value_heads = 2, intermediate_size = 1024,\n"
      "    vocab_size = 1024 }\n"
      "  local s = plan(t):sim()\n"
      "  return s.flops * s.mfu / s.hfu, s.flops\n"
      "end\n"
      "local one = model_flops {}\n"
      "for i, t in ipairs { { mesh = { tp = 8 } }, { mesh = { tp = 4 }, tp_plan = {} },\n"
      "    { mesh = { tp = 4 }, strategy = { 'zero', sequence_parallel = true } },\n"
      "    { mesh = { cp = 4, tp = 4 }, cp = { comm = 'ring' } },\n"
      "    { mesh = { tp = 4 }, tp_plan = {}, recompute = 'full' },\n"
      "    { mesh = { tp = 4, pp = 2 }, loss_chunks = 4, precision = 'fp8' } } do\n"
      "  local model, all = model_flops(t)\n"
      "  if not (math.abs(model / one - 1) < 0.005 and all > model) then\n"
      "    error(('plan %d: %g, and %g in all, of %g'):format(i, model, all, one))\n"
      "  end\n"
      "end\n");
}
END_TEST

/* Whether an instruction is of this line of the report: an op, or -1 - the kind of a
 * transfer, of which the sender alone tells. */
static bool is_of(const Instr *in, int op) {
  if (in->code == I_KERNEL) return in->op == op;
  if (in->code == I_RECV || !(instr_is[in->code] & INSTR_STARTS)) return false;
  return -1 - (in->code == I_SEND ? COLL_SEND : (int)in->coll) == op;
}

/* How often the programs of a step run it: bodies as often as main calls them. */
static int64_t runs_of(const Compiled *c, int op) {
  int64_t runs = 0;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &c->prog[pp];
    for (const Instr *in = p->code; in < p->code + p->nmain; in++) {
      runs += is_of(in, op);
      if (in->code != I_CALL) continue;
      const Body *b = &p->body[p->call[in->call].body];
      for (uint32_t i = 0; i < b->n; i++) runs += is_of(&p->code[b->first + i], op);
    }
  }
  return runs;
}

/* Each op and type has one line, with all that runs it; what takes longest comes first.
 */
START_TEST(ops_are_summed) {
  static const char *const set[] = {"cluster=h100-sxm", "schedule=zbv"};
  Job j;
  SimReport r;
  SimOptions o = {.rates = sheet_rates(RATES_USUAL)};
  const char *path = WEFT_SOURCE_DIR "/plans/quickstart.lua";
  const Compiled *c = compiled_job(&j, scratch_arena, path, set, LEN(set));
  weft_status st = simulate(c, &j.plan, &o, scratch_arena, &r, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_int_gt(r.nop, 20);
  double from[COST_FROM_N] = {0}, before = INFINITY;
  for (int i = 0; i < r.nop; i++) {
    const SimOp *op = &r.op[i];
    int64_t count = op->count;
    double seconds = 0;
    for (int k = 0; k < r.nop; k++) {
      if (k == i || r.op[k].op != op->op) continue;
      ck_assert_msg(r.op[k].dtype != op->dtype, "%s is there twice", op->name);
      count += r.op[k].count;
    }
    ck_assert_msg(count == runs_of(c, op->op), "%s runs %lld times, not %lld", op->name,
                  (long long)runs_of(c, op->op), (long long)count);
    for (int f = 0; f < COST_FROM_N; f++)
      from[f] += op->seconds[f], seconds += op->seconds[f];
    ck_assert_msg(seconds <= before, "%s is behind what is shorter", op->name);
    before = seconds;
  }
  for (int f = 0; f < COST_FROM_N; f++)
    ck_assert_double_eq_tol(r.from[f], from[f], 1e-12);
  job_free(&j);
}
END_TEST

/* A slow rank makes its pipeline rank slow and others wait; the busiest rank of experts
 * has more of their work, and the step the same arithmetic. */
START_TEST(ranks_that_are_not_alike) {
  lua_run(
      PLANS_OF_CLOCK
      "local p = plan { mesh = { pp = 4 } }\n"
      "local was, slow = p:sim(), p:sim { skew = { slow = 1.5, pp = 2 } }\n"
      "near(slow.pipeline[3].compute, 1.5 * was.pipeline[3].compute)\n"
      "near(slow.pipeline[1].compute, was.pipeline[1].compute)\n"
      "assert(slow.pipeline[1].bubble > 1.3 * was.pipeline[1].bubble, 'nobody waits')\n"
      "assert(slow.seconds > 1.2 * was.seconds and slow.seconds < 1.5 * was.seconds)\n"
      "near(slow.flops, was.flops)\n"
      "local e = weft.plan { model = weft.model { 'mixtral', hidden_size = 256,\n"
      "  num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4,\n"
      "  intermediate_size = 512, vocab_size = 512, num_local_experts = 8,\n"
      "  num_experts_per_tok = 2 }, moe = { dispatcher = 'alltoall' },\n"
      "  mesh = { dp = 4, ep = 4 }, cluster = weft.cluster 'h100-sxm',\n"
      "  precision = 'bf16', batch = { global = 64, micro = 4, seq = 4096 } }\n"
      "local even, more = e:sim(), e:sim { skew = { experts = 1.5 } }\n"
      "local loads = e:sim { skew = { experts = { 2, 1, 1, 1, 1, 1, 1, 0 } } }\n"
      "local function experts(s) return s.pipeline[1].kernels['expert products'] end\n"
      "assert(experts(more) > 1.3 * experts(even), experts(more) / experts(even))\n"
      "near(more.flops, even.flops)\n"
      "near(loads.seconds, more.seconds)\n" /* 3 of 8 on the first of four ranks */
      "assert(more.pipeline[1].exposed.ep > even.pipeline[1].exposed.ep)\n"
      "raises('skew.pp is a pipeline rank, 0 to 3', p.sim, p, { skew = { slow = 2, pp = "
      "4 "
      "} })\n"
      "raises('skew.slow is missing', p.sim, p, { skew = { pp = 2 } })\n"
      "raises('skew.experts: the model has no experts', p.sim, p, { skew = { experts = 2 "
      "} })\n"
      "raises('skew.slow is a number from 1', p.sim, p, { skew = { slow = 0.5 } })\n"
      "raises('has 3 loads, which 4 ranks of ep cannot share', e.sim, e,\n"
      "  { skew = { experts = { 1, 2, 3 } } })\n"
      "raises('no expert gets anything', e.sim, e, { skew = { experts = { 0, 0, 0, 0 } } "
      "})\n");
}
END_TEST

/* A window leaves attention less to do, over cp too; a head in pieces repeats its product
 * and takes no less time than one whole. */
START_TEST(windows_and_heads_in_pieces) {
  lua_run(
      "local function of(t, window)\n"
      "  t.model = weft.model { 'mistral', hidden_size = 256, num_hidden_layers = 2,\n"
      "    num_attention_heads = 4, num_key_value_heads = 4, intermediate_size = 512,\n"
      "    vocab_size = 4096, sliding_window = window }\n"
      "  t.cluster, t.precision = weft.cluster 'h100-sxm', 'bf16'\n"
      "  t.batch = { global = 4, micro = 1, seq = 4096 }\n"
      "  return weft.plan(t):sim()\n"
      "end\n"
      "for cp = 1, 2 do\n"
      "  local mesh = { mesh = { cp = cp }, cp = { comm = 'ring' } }\n"
      "  local all, some = of(mesh), of(mesh, 64)\n"
      "  local less = 2 * 4 * 4 * 4096 * 4096 / 2 * 256 * 3.5 * (1 - 2 * 64 / 4096)\n"
      "  assert(math.abs((all.flops - some.flops) / less - 1) < 0.05,\n"
      "    (all.flops - some.flops) / less)\n"
      "end\n"
      "local whole, pieces = of({}), of { loss_chunks = 4 }\n"
      "local head = 4 * 2 * 4096 * 4096 * 256\n"
      "assert(math.abs((pieces.flops - whole.flops) / head - 1) < 0.05,\n"
      "  (pieces.flops - whole.flops) / head)\n"
      "assert(pieces.seconds > whole.seconds, 'faster')\n");
}
END_TEST

START_TEST(missing_figures_are_named) {
  lua_run(
      PLANS_OF_CLOCK
      "local p = plan { mesh = { tp = 2 }, cluster = weft.cluster { gpus = 8, gpu = {\n"
      "  name = 'mine', bf16 = 1e14, bandwidth = 1e12 } } }\n"
      "raises('plan.cluster.gpu.nvlink: the clock needs this figure of the plan', p.sim, "
      "p)\n"
      "local q = plan { cluster = weft.cluster { gpus = 8 } }\n"
      "raises('plan.cluster: the clock needs the machines', q.sim, q)\n");
}
END_TEST

/* ---- weft sim ---- */

#define SIM                                                                              \
  "$weft sim " WEFT_SOURCE_DIR "/plans/llama3_8b.lua --set cluster=h100-sxm --set "      \
  "batch.global=32"

static double seconds_of(const Outcome *o) {
  json_t *v = json_loads(o->out, 0, NULL), *result = json_object_get(v, "result");
  json_t *sim = json_object_get(result, "sim");
  double seconds = json_number_value(json_object_get(sim, "seconds"));
  ck_assert_msg(seconds > 0, "%s", o->out);
  json_decref(v);
  return seconds;
}

/* The fields of plan:sim's skew; with what shows a step otherwise they are an error. */
START_TEST(skew_of_the_verb) {
  static const struct {
    const char *options, *says;
  } wrong[] = {{"--skew \"slow = 0.5\" --json", "skew.slow is a number from 1 to 1000"},
               {"--skew \"slow = 2, pp = 99\"", "\": skew.pp is a pipeline rank, 0 to "},
               {"--skew \"slow = print\"", "'print' is no value"},
               {"--skew \"slow =\"", "unexpected symbol"},
               {"--skew \"slwo = 2\"", "there is no option 'slwo'"},
               {"--skew \"slow = 2\" --svg x.svg", "leave --svg out"},
               {"--skew \"slow = 2\" --trace x.json", "leave --trace out"},
               {"--skew \"slow = 2\" --diff x.lua", "leave --diff out"}};
  Outcome was = process_run(60, SIM " --json");
  Outcome slow = process_run(60, SIM " --json --skew \"slow = 1.5, pp = 0\"");
  ck_assert_msg(slow.code == 0, "%s", slow.err);
  ck_assert_double_gt(seconds_of(&slow), 1.2 * seconds_of(&was));
  ck_assert_double_lt(seconds_of(&slow), 1.5 * seconds_of(&was));
  for (int i = 0; i < LEN(wrong); i++) {
    Outcome o = process_run(60, SIM " %s", wrong[i].options);
    ck_assert_msg(o.code == 2, "%s: %d", wrong[i].options, o.code);
    ck_assert_msg(strstr(o.err, wrong[i].says) || strstr(o.out, wrong[i].says),
                  "%s: %s%s", wrong[i].options, o.err, o.out);
  }
}
END_TEST

START_TEST(the_verb) {
  Outcome o = process_run(60, SIM);
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_ptr_nonnull(strstr(o.out, "tokens/s for each GPU, MFU "));
  ck_assert_ptr_nonnull(strstr(o.out, "  mesh.tp "));
  ck_assert_ptr_nonnull(strstr(o.out, "nothing was measured"));
  o = process_run(60, SIM " --json --trace t.json");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_ptr_nonnull(strstr(o.out, "\"seconds\": "));
  const char *trace = scratch_get(scratch_path("t.json"));
  ck_assert_ptr_nonnull(strstr(trace, "\"traceEvents\":["));
  ck_assert_ptr_nonnull(strstr(trace, "layer:F of layers.0, microbatch 0"));
  o = process_run(60, SIM " --trace /dev/full");
  ck_assert_int_ne(o.code, 0);
  o = process_run(60, "$weft sim " WEFT_SOURCE_DIR "/plans/quickstart.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(
      strstr(o.err, "error: plan.cluster: the clock needs the machines"));
  o = process_run(60, SIM " --set \"cluster={ gpus = 8, gpu = { bf16 = 1e14 } }\"");
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(strstr(o.err,
                               "error: plan.cluster.gpu.bandwidth: the clock needs "
                               "this figure of the plan's machines [required]\n"));
  ck_assert_ptr_nonnull(strstr(o.err, "error: plan.cluster.gpu.nvlink: the clock needs"));
  ck_assert_ptr_nonnull(
      strstr(o.err, "error: plan.cluster.gpu.nvlink_latency: the clock needs"));
  o = process_run(60, SIM " --set \"cluster={ gpus = 8, gpu = { 'h100-sxm', bf16 = 1e8, "
                          "f32 = 1e8 } }\"");
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(strstr(o.err, "days of work for the ranks of a pipeline"));
}
END_TEST

Suite *clock_suite(void) {
  const TTest *plans[] = {parts_add_up,
                          ops_are_summed,
                          steps_that_overlap,
                          sends_that_block,
                          collectives_that_block,
                          gradients_in_f32,
                          axes_of_waits,
                          never_below_the_bound,
                          never_below_the_bound_at_the_peak,
                          a_halved_link,
                          a_dropped_wait,
                          the_bubble_shrinks,
                          even_experts,
                          experts_on_several_machines,
                          steps_of_months,
                          ranks_that_are_not_alike,
                          windows_and_heads_in_pieces,
                          missing_figures_are_named};
  Suite *s = suite_create("clock");
  TCase *p = tcase_create("plans");
  for (int i = 0; i < LEN(plans); i++) tcase_add_test(p, plans[i]);
  tcase_add_test(p, the_verb);
  tcase_add_test(p, products_of_the_optimizer);
  tcase_add_test(p, ranks_share_matrices);
  tcase_add_test(p, a_model_on_any_mesh);
  tcase_add_test(p, skew_of_the_verb);
  tcase_set_timeout(p, 120);
  tcase_add_checked_fixture(p, scratch_setup, scratch_teardown);
  suite_add_tcase(s, p);
  return s;
}
