/* check_published_memory.c - memory that was published for runs whose settings are known,
 * beside weft's. */
#include <check.h>

#include "tests/harness/lua_run.h"

/* Zero Bubble Pipeline Parallelism (arXiv 2401.10241), table 4: 1F1B and interleaved 1F1B
 * of four GPT on A100, 16-bit parameters with f32 gradients and states. Its stack stores
 * attention scores, which weft never does: softmax (2 bytes), what dropout leaves of it
 * (2) and the mask (1), 5 a s^2 b for each layer and microbatch in flight. With these
 * weft is below what the allocator had, by at most 9 %. */
START_TEST(zero_bubble) {
  lua_run(
      "local GPT = { { 22, 2304, 24, 6, 8, 30, 40 }, { 30, 4096, 32, 3, 8, 39, 48 },\n"
      "  { 46, 5120, 40, 1, 16, 32, 39 }, { 62, 6144, 48, 1, 32, 43, 58 } }\n"
      /* the first and the last stage have a layer less */
      "local function layout(layers, stages)\n"
      "  local each, out = (layers + 2) // stages, {}\n"
      "  for i = 1, stages do\n"
      "    local ends = (i == 1 or i == stages) and 1 or 0\n"
      "    out[i] = (i == 1 and 'E' or '') .. ('t'):rep(each - ends)\n"
      "      .. (i == stages and 'L' or '')\n"
      "  end\n"
      "  return table.concat(out, '|')\n"
      "end\n"
      "for _, gpt in ipairs(GPT) do\n"
      "  local layers, hidden, heads, micro, pp = table.unpack(gpt)\n"
      "  for k, name in ipairs { '1f1b', 'interleaved_1f1b' } do\n"
      "    local v = k == 2 and (layers + 2) // pp or 1\n"
      "    local p = weft.plan { model = weft.model { 'gpt2', n_embd = hidden,\n"
      "        n_layer = layers, n_head = heads, n_positions = 1024, vocab_size = "
      "32000,\n"
      "        resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1,\n"
      "        tie_word_embeddings = false },\n"
      "      cluster = weft.cluster { 'a100-80gb', nodes = pp // 8 }, mesh = { pp = pp "
      "},\n"
      "      strategy = { 'zero', stage = 0 }, schedule = name, precision = 'bf16',\n"
      "      pp_plan = { virtual = v, layout = layout(layers, pp * v) },\n"
      "      batch = { global = 3 * pp * micro, micro = micro, seq = 1024 } }\n"
      "    local memory, most = p:memory(), 0\n"
      "    same(memory.scores, 5 * heads * 1024 * 1024 * micro)\n"
      "    for r = 0, pp - 1 do\n"
      "      local ends = (r == 0 or r == pp - 1) and 1 or 0\n"
      "      local live = ((layers + 2) // pp - ends) * (pp - r)\n"
      "      if k == 2 then live = (pp - r - 1) * 2 + (v - 1) * pp + 1 end\n"
      "      most = math.max(most,\n"
      "        memory[r + 1].total + memory.scores * live)\n"
      "    end\n"
      "    local off = most / 2 ^ 30 / gpt[5 + k] - 1\n"
      "    local plain = memory[memory.worst_pp + 1].total / 2 ^ 30 / gpt[5 + k] - 1\n"
      "    assert(off > -0.09 and off <= 0, hidden .. name .. ': ' .. off)\n"
      "    assert(plain < -0.25, hidden .. name .. ' without scores: ' .. plain)\n"
      "    p:close()\n"
      "  end\n"
      "end\n");
}
END_TEST

Suite *published_memory_suite(void) {
  Suite *s = suite_create("published_memory");
  TCase *c = tcase_create("runs");
  tcase_add_test(c, zero_bubble);
  tcase_set_timeout(c, 120);
  suite_add_tcase(s, c);
  return s;
}
