-- random_user_schedule.lua - a small plan whose schedule is a function that gives a random legal
-- order of actions, with what else is drawn: loop or V placement, B or I and W or some of both,
-- overlapped pairs, actions on parameters, rounds, strategies, tied weights, experts, layers for
-- further tokens, recompute. `-D seed=N` says which.
local weft = require "weft"

-- Numbers from 0 to n - 1 that follow from `state` alone.
local function dice(state)
  return function(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return (state // 65536) % n
  end
end
local throw = dice(weft.var("seed", 1) * 7919 + 17)
for _ = 1, 5 do throw(2) end
local function pick(list) return list[throw(#list) + 1] end

local ranks, virtual = 1 + throw(3), 1 + throw(3)
if ranks == 1 and virtual == 1 then ranks = 2 end
local vee = virtual == 2 and throw(2) == 0
local splits, pairs_too = pick { "none", "all", "some" }, throw(3) == 0
local gathers, reduces = pick { "none", "all", "some" }, throw(2) == 1
local orders = throw(100000)

-- ---- the order of actions ----

-- Actions are { "F", chunk, mb, stage = }, { "OVERLAP", chunk, mb, chunk2, mb2 } or, on
-- parameters, { "UNSHARD", chunk }.
local function order(P, V, mbs)
  local draw, stages = dice(orders), P * V
  local done, split, lists = {}, {}, {}
  for s = 0, stages - 1 do
    done[s], split[s] = {}, {}
    for mb = 0, mbs - 1 do
      done[s][mb], split[s][mb] = {}, splits == "all" or splits == "some" and draw(2) == 0
    end
  end
  local function stage(rank, chunk)
    return vee and chunk == 1 and 2 * P - 1 - rank or chunk * P + rank
  end
  -- What may come next for a microbatch on a stage.
  local function next_of(s, mb)
    local d = done[s][mb]
    if not d.F then return (s == 0 or done[s - 1][mb].F) and "F" end
    if not d.I then return (s == stages - 1 or done[s + 1][mb].I) and (split[s][mb] and "I" or "B") end
    return not d.W and "W" or nil
  end
  local function choices(rank)
    local can = {}
    for chunk = 0, V - 1 do
      for mb = 0, mbs - 1 do
        local s = stage(rank, chunk)
        local kind = next_of(s, mb)
        if kind then can[#can + 1] = { kind, chunk, mb, stage = s } end
      end
    end
    return can
  end
  local function mark(a)
    local d = done[a.stage][a[3]]
    if a[1] == "B" then d.I, d.W = true, true else d[a[1]] = true end
  end
  -- The action, or with a backward that may run now the pair of both.
  local function with_partner(a, can)
    if not pairs_too or a[1] ~= "F" then return a end
    for _, b in ipairs(can) do
      if b[1] == "B" then
        mark(b)
        return { "OVERLAP", a[2], a[3], b[2], b[3] }
      end
    end
    return a
  end
  for rank = 0, P - 1 do lists[rank] = {} end
  while true do
    local rank, can = draw(P), nil
    for _ = 1, P do
      can = choices(rank)
      if #can > 0 then break end
      rank = (rank + 1) % P
    end
    if #can == 0 then break end
    local a = can[draw(#can) + 1]
    mark(a)
    lists[rank][#lists[rank] + 1] = with_partner(a, can)
  end
  return lists, draw
end

local function uses(a, chunk)
  return a[3] ~= nil and (a[2] == chunk or a[1] == "OVERLAP" and a[4] == chunk)
end

-- The list with gathers of a chunk's parameters before its actions, and frees behind some.
local function with_gathers(list, chunk, draw)
  local out, open = {}, false
  for _, a in ipairs(list) do
    if uses(a, chunk) and not open then
      out[#out + 1], open = { "UNSHARD", chunk }, true
    end
    out[#out + 1] = a
    if open and draw(4) == 0 then
      out[#out + 1], open = { "RESHARD", chunk }, false
    end
  end
  return out
end

-- Adds the reduction of a chunk's gradients behind its last action.
local function add_reduction(list, chunk, draw)
  local last = 0
  for i, a in ipairs(list) do
    if uses(a, chunk) then last = i end
  end
  table.insert(list, last + 1 + draw(#list - last + 1), { "REDUCE_GRAD", chunk })
end

local function built(P, V, mbs)
  local lists, draw = order(P, V, mbs)
  for rank = 0, P - 1 do
    for chunk = 0, V - 1 do
      if gathers == "all" or gathers == "some" and draw(2) == 0 then
        lists[rank] = with_gathers(lists[rank], chunk, draw)
      end
      if reduces and draw(3) > 0 then add_reduction(lists[rank], chunk, draw) end
    end
  end
  return lists
end

local known = {}
local function schedule(s)
  local key = ("%d:%d:%d"):format(s.ranks, s.virtual, s.microbatches)
  known[key] = known[key] or built(s.ranks, s.virtual, s.microbatches)
  for _, a in ipairs(known[key][s.rank]) do
    local method = #a[1] == 1 and a[1] or a[1]:lower()
    s[method](s, table.unpack(a, 2))
  end
end

-- ---- the plan ----

local mbs, dp, tp = 1 + throw(5), pick { 1, 2, 2, 2 }, pick { 1, 1, 2 }
local experts, further = throw(4) == 0, throw(3) == 0 and 1 + throw(2) or 0
local rounds = throw(4) == 0 and 2 or 1
local model = {
  experts and "mixtral" or "llama", hidden_size = 16, num_attention_heads = 2, vocab_size = 64,
  num_hidden_layers = math.max(ranks * virtual - further, 1) + throw(3), intermediate_size = 32,
  num_key_value_heads = 2, tie_word_embeddings = throw(2) == 0,
  num_local_experts = experts and 4 or nil, num_experts_per_tok = experts and 2 or nil,
}
local strategy = { pick { "zero", "fsdp2", "fsdp2", "fsdp2" } }
if tp > 1 then strategy.sequence_parallel = throw(2) == 0 end
if strategy[1] == "zero" then
  strategy.stage = throw(4)
else
  strategy.reshard_after_forward = throw(2) == 0
  strategy.defer_fsdp_grad_sync = pick { true, false }
end

return weft.plan {
  model     = weft.model(model),
  mesh      = { pp = ranks, dp = dp, tp = tp },
  strategy  = strategy,
  pp_plan   = { virtual = not vee and virtual or nil, balance = throw(4) == 0 and "cost" or nil },
  schedule  = vee and { schedule, placement = "v" } or schedule,
  batch     = { global = dp * mbs * rounds, micro = 1, seq = 8, rounds = rounds },
  recompute = pick { "none", "none", "full", "selective", "cheap" },
  mtp       = further > 0 and { num_layers = further } or nil,
  moe       = experts and { aux_loss_coef = 0.1 } or nil,
  optimizer = weft.adamw { lr = 1e-3, post_validation = dp * tp == 1 and throw(2) == 0 },
  data      = weft.synthetic {},
  train     = { steps = 2 },
}
