-- experts.lua - every mesh of small models with experts against one rank:
--
--   weft lua tests/matrix/experts.lua [model]
--
-- Mixtral, Qwen3-MoE and DeepSeek-V3, each over ep x etp x dp x pp, with both dispatchers;
-- tp is the smallest that has enough ranks for ep and etp. Strategies take
-- turns. Ends with 1 if any differs by more than 1e-5.
local weft = require "weft"

local some = {
  vocab_size = 64, hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 16,
  intermediate_size = 16,
}

local function with(name, more)
  local t = { name }
  for k, v in pairs(some) do t[k] = v end
  for k, v in pairs(more) do t[k] = v end
  return t
end

local models = {
  mixtral = with("mixtral", { num_key_value_heads = 16, num_local_experts = 8 }),
  qwen3_moe = with("qwen3_moe", {
    num_key_value_heads = 16, head_dim = 4, moe_intermediate_size = 16, num_experts = 8,
    num_experts_per_tok = 3, norm_topk_prob = true,
  }),
  deepseek_v3 = with("deepseek_v3", {
    num_key_value_heads = false, moe_intermediate_size = 16, n_routed_experts = 8,
    num_experts_per_tok = 2, first_k_dense_replace = 1, n_group = 2, topk_group = 1,
    q_lora_rank = 12, kv_lora_rank = 10, qk_nope_head_dim = 6, qk_rope_head_dim = 4,
    v_head_dim = 5,
  }),
}

local strategies = { "ddp", { "zero", stage = 1 }, { "zero", stage = 2 }, "fsdp2" }

local count, worst, failed = 0, 0, 0

local function compare(name, ep, etp, dp, pp, dispatcher)
  local tp = math.max(1, ep * etp // dp)
  local strategy = strategies[count % #strategies + 1]
  if strategy == "ddp" and ep * etp > 1 then strategy = strategies[2] end
  local made, plan, why = pcall(weft.plan, {
    model = weft.model(models[name]), precision = "f32",
    mesh = { tp = tp, dp = dp, pp = pp, ep = ep, etp = etp },
    strategy = strategy,
    moe = { dispatcher = dispatcher, aux_loss_coef = name ~= "deepseek_v3" and 0.01 or nil },
    batch = { global = 4 * pp, micro = 1, seq = 16 },
    optimizer = weft.adamw { lr = 1e-3 }, data = weft.synthetic {}, train = { steps = 2 },
  })
  count = count + 1
  local label = string.format("%s ep %d etp %d dp %d pp %d tp %d %s", name, ep, etp, dp, pp,
                              tp, dispatcher)
  if not made or not plan then
    failed = failed + 1
    return print("FAILED", label, tostring(made and why or plan))
  end
  local r = plan:verify { steps = 2, ranks = 64, tolerance = 1e-5 }
  plan:close()
  local most = math.max(r.loss, r.grad, r.param)
  worst = math.max(worst, most)
  if not r.ok then failed = failed + 1 end
  print(r.ok and "equal" or "FAILED", label, string.format("%.1e", most), r.first or "")
end

for _, name in ipairs(arg[1] and { arg[1] } or { "mixtral", "qwen3_moe", "deepseek_v3" }) do
  for _, ep in ipairs { 1, 2, 4, 8 } do
    for _, etp in ipairs { 1, 2 } do
      for _, dp in ipairs { 1, 2, 4 } do
        for _, pp in ipairs { 1, 2 } do
          for _, dispatcher in ipairs { "allgather", "alltoall" } do
            compare(name, ep, etp, dp, pp, dispatcher)
          end
        end
      end
    end
  end
end
print(string.format("%d plans, %d failed, worst difference %.1e", count, failed, worst))
os.exit(failed == 0 and 0 or 1)
