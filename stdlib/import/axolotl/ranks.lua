-- ranks.lua - the ranks of axolotl's recipes, and what lies where: DDP, FSDP and FSDP 2, or DeepSpeed. How many ranks
-- there are is said by the launcher, not by the recipe (_get_parallel_config_kwargs of utils/distributed.py).
local experts = use "import/automodel/experts"
local quote = use "import/quote"
local trainer = use "import/trainer"
local values = use "import/values"
local ranks = {}

-- ---- mesh ----

local function put_axis(book, plan, m, name, axis, key)
  local given
  m[name], given = values.degree(book, key)
  if given and m[name] > 1 then plan:put("mesh." .. axis, quote.value(m[name]), book:leaf(key)) end
  if book:leaf(key) then book:translated(key, "mesh." .. axis .. (m[name] == 1 and ", 1 as without it" or "")) end
  return given
end

-- The kinds of ring-flash-attn that axolotl has: of all keys and values, or around the ranks.
local RINGS = { varlen_llama3 = "allgather", batch_ring = "ring", batch_zigzag = "ring" }

local function put_ring(book, plan, m)
  local key = "ring_attn_func"
  local packs = values.switch(book, "sample_packing")
  local name = book:value(key) or packs and "varlen_llama3" or "batch_ring"
  if m.cp == 1 then return book:no_effect(key, "a sequence is not cut") end
  local comm = RINGS[name]
  if not comm then
    return book:refuse(key, string.format("%s: expected varlen_llama3 or batch_ring", quote.shown(name)))
  end
  plan:put("cp.comm", quote.text(comm), book:value(key) and book:leaf(key)
           or packs and "axolotl's default with sample_packing" or "axolotl's default")
  if name ~= "batch_zigzag" then plan:put("cp.balance", quote.text "none", "each rank has one run of the sequence there") end
  book:translated(key, "cp.comm")
end

-- Ranks in all: of --world, or of sizes that say it.
local function world_of(book, plan, m, options, shard)
  if options.world then
    plan:put("mesh.world", quote.value(options.world), "--world")
    return options.world
  end
  local least = values.lcm(m.tp * m.cp * m.rep, m.ep)
  if shard > 1 then
    local world = m.tp * m.cp * m.rep * m.ep * shard
    plan:put("mesh.world", quote.value(world), book:leaf "dp_shard_size")
    book:assume("mesh.world", string.format("%d ranks: the sizes of the recipe times each other; --world N says another", world))
    return world
  end
  local world = values.lcm(least, 8)
  if world > 4 * math.max(least, 8) then world = least end
  plan:put("mesh.world", quote.value(world), "assumed; --world N says another")
  book:assume("mesh.world", string.format("%d ranks: the launcher says how many, not the recipe; --world N says another", world))
  return world
end

-- Ranks that a size leaves no place for are an error there, too.
local function check_sizes(book, m, shard)
  local rest = m.tp * m.cp * m.rep
  if m.world % rest ~= 0 then
    return book:refuse(nil, string.format("%d ranks are no multiple of %d, tensor_parallel_size, context_parallel_size and "
                       .. "dp_replicate_size times each other", m.world, rest))
  end
  local left = m.world // rest
  if shard > 1 and left % shard ~= 0 then
    return book:refuse("dp_shard_size", string.format("%d ranks, which are left of %d by the other sizes, are no multiple of "
                       .. "dp_shard_size = %d", left, m.world, shard))
  end
  local sharded = book:value "dp_shard_size" ~= nil and book:value "dp_replicate_size" ~= nil and m.rep > 1 and shard > 1
  if sharded and left ~= shard and left ~= shard * m.ep then
    return book:refuse("dp_shard_size", string.format("%d ranks are left of %d by the other sizes, and dp_shard_size = %d beside a "
                       .. "dp_replicate_size takes all of them", left, m.world, shard))
  end
  return left
end

-- Layers whose state goes along a sequence, which no rank hands to the next one.
local STATES = { nemotron_h = true, falcon_h1 = true }

local function put_cp(book, plan, m, config)
  for _, key in ipairs { "context_parallel_size", "sequence_parallel_degree" } do
    if STATES[config[1]] and values.degree(book, key) > 1 then
      book:cannot(key, "layers with a state are not cut by sequence: more memory on each rank, and more ranks for other sequences")
    elseif not m.cp then
      if not put_axis(book, plan, m, "cp", "cp", key) then m.cp = nil end
    end
  end
  m.cp = m.cp or 1
  book:no_effect("sequence_parallel_degree", "context_parallel_size says it, its newer name")
end

-- `file`: DeepSpeed's settings, which may say tp.
function ranks.put_mesh(book, plan, options, config, file)
  local m = {}
  put_axis(book, plan, m, "tp", "tp", "tensor_parallel_size")
  local of_file = file and values.degree(file, "tensor_parallel.autotp_size") or 1
  if m.tp == 1 and of_file > 1 then
    m.tp = of_file
    plan:put("mesh.tp", quote.value(of_file), file:leaf "tensor_parallel.autotp_size")
  end
  put_cp(book, plan, m, config)
  if experts.has(config) then
    put_axis(book, plan, m, "ep", "ep", "expert_parallel_size")
  else
    book:no_effect("expert_parallel_size", "the model has no experts")
  end
  m.ep = m.ep or 1
  if m.ep > 1 and m.tp > 1 then plan:put("mesh.etp", "1", "axolotl does not cut experts by tp") end
  m.rep = values.degree(book, "dp_replicate_size")
  local shard = values.degree(book, "dp_shard_size")
  m.world = world_of(book, plan, m, options, shard)
  local left = check_sizes(book, m, shard) or 1
  if shard > 1 and m.rep == 1 and left % shard == 0 then m.rep = math.max(left // (shard * m.ep), 1) end
  if m.rep > 1 then
    plan:put("mesh.dp_replicate", quote.value(m.rep), book:value "dp_replicate_size" and book:leaf "dp_replicate_size"
             or book:leaf "dp_shard_size")
  end
  book:translated("dp_replicate_size", "mesh.dp_replicate")
  book:translated("dp_shard_size", "mesh.dp_replicate")
  m.dp = math.max(m.world // (m.tp * m.cp), 1)
  put_ring(book, plan, m)
  return m
end

-- ---- FSDP ----

-- Settings of fsdp_config, which older recipes write with fsdp_ before the name.
local function of_fsdp(book, name) return book:first("fsdp_config." .. name, "fsdp_config.fsdp_" .. name) end

local function fsdp_switch(book, name)
  local key = of_fsdp(book, name)
  return key and values.switch(book, key), key
end

-- Words of `fsdp`, a list or a text, as Transformers' TrainingArguments have them.
local WORDS = { full_shard = true, shard_grad_op = true, no_shard = true, hybrid_shard = true, hybrid_shard_zero2 = true,
                auto_wrap = true, offload = true }

local function words_of(book)
  local value, words = book:value "fsdp", {}
  if value == true then return { full_shard = true } end
  local list = type(value) == "table" and value or { value }
  for _, one in ipairs(list) do
    for word in string.gmatch(tostring(one), "[^%s,]+") do
      if not WORDS[word] then
        book:refuse("fsdp", string.format("%s: expected full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, "
                                          .. "auto_wrap and offload", quote.shown(word)))
      end
      words[word] = true
    end
  end
  return words
end

-- FSDP 1's sharding, by the names of the list and of fsdp_config.
local SHARDING = {
  full_shard = { reshard = true }, shard_grad_op = { reshard = false }, no_shard = { ddp = true },
  hybrid_shard = { reshard = true, hybrid = true }, hybrid_shard_zero2 = { reshard = false, hybrid = true },
}

local function sharding_of(book, words)
  local key, value = of_fsdp(book, "sharding_strategy")
  local name = key and string.lower(tostring(value))
  if key and not SHARDING[name] then
    book:refuse(key, string.format("%s: expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2",
                                   quote.shown(value)))
  end
  for _, word in ipairs(keys(words)) do
    if SHARDING[word] then return SHARDING[word], "fsdp" end
  end
  return key and SHARDING[name] or SHARDING.full_shard, key
end

local function put_reshard(book, plan, how, key)
  local on, own = fsdp_switch(book, "reshard_after_forward")
  if on ~= nil then
    plan:put("strategy.reshard_after_forward", tostring(on), book:leaf(own))
    book:translated(own, "strategy.reshard_after_forward")
  elseif key then
    plan:put("strategy.reshard_after_forward", tostring(how.reshard), book:leaf(key))
  end
end

-- `bf16` without FSDP is the name of another type than the plan's: said.
local function put_rest(book, plan, words)
  local offloads, key = fsdp_switch(book, "offload_params")
  if offloads or words.offload then
    plan:put("strategy.offload_policy", "true", key and book:leaf(key) or book:leaf "fsdp")
    if key then book:translated(key, "strategy.offload_policy") end
  elseif key then
    book:no_effect(key, "it is off")
  end
end

local function version_of(book)
  local key, value = book:first("fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version")
  local n = key and values.whole(book, key, 1) or 1
  if n > 2 then book:refuse(key, quote.shown(value) .. ": FSDP has versions 1 and 2") end
  for _, one in ipairs { "fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version" } do
    book:translated(one, "strategy")
  end
  return n
end

local function put_fsdp(book, plan)
  local words = words_of(book)
  local version = version_of(book)
  local how, key = sharding_of(book, words)
  if how.ddp then
    plan:put("strategy.#", quote.text "ddp", book:leaf(key))
  else
    plan:put("strategy.#", quote.text "fsdp2", version == 1 and "FSDP" or "FSDP 2")
    put_reshard(book, plan, how, key)
    put_rest(book, plan, words)
  end
  if how.hybrid then
    book:assume("mesh.dp_replicate", "1: hybrid sharding has a copy on each machine: --set mesh.dp_replicate=MACHINES")
  end
  for _, name in ipairs { "fsdp", "fsdp_config.sharding_strategy", "fsdp_config.fsdp_sharding_strategy" } do
    book:translated(name, "strategy")
  end
  return { name = how.ddp and "ddp" or "fsdp2", version = version }
end

-- ---- without shards ----

local function put_ddp(book, plan, m)
  local whole = m.tp > 1 or m.cp > 1 or m.ep > 1
  plan:put("strategy.#", quote.text(whole and "zero" or "ddp"), "neither fsdp_config nor deepspeed")
  if whole then plan:put("strategy.stage", "0", "neither fsdp_config nor deepspeed") end
  trainer.put_buckets(book, plan)
  return { name = whole and "zero" or "ddp" }
end

-- { name = of the strategy, version = of FSDP, file = DeepSpeed's settings }.
function ranks.put_strategy(book, plan, m, file)
  trainer.put_timeout(book, plan)
  local fsdp = book:value "fsdp" ~= nil or book:has "fsdp_config" and book:value "fsdp_config" == nil
  if file and fsdp then
    book:refuse("deepspeed", "deepspeed and FSDP exclude each other")
  end
  if file then return { name = "zero", file = file } end
  if fsdp and not (type(book:value "fsdp") == "table" and #book:value "fsdp" == 0) then return put_fsdp(book, plan) end
  return put_ddp(book, plan, m)
end

return ranks
