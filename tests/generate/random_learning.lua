-- random_learning.lua - draws by number which parameters of a plan learn, and how: frozen
-- parts, from the front or anywhere, groups with a learning rate or a decay of their own, and
-- adapters of some linears or all.
-- `family` names the modules; `blocks`: sizes are such that the base of an adapter may be stored in
-- 4 bits, which it then is. `new_draw` is that of random_draw.lua.

-- No parameter is named twice.
local modules = {
  llama = { "embed_tokens", "layers.*.self_attn.q_proj", "layers.*.self_attn.v_proj",
            "layers.*.self_attn.o_proj", "layers.*.mlp.gate_proj", "layers.*.mlp.down_proj",
            "layers.*.input_layernorm", "layers.*.post_attention_layernorm", "norm" },
  gpt2 = { "wte", "wpe", "h.*.attn.c_attn.weight", "h.*.attn.c_proj", "h.*.mlp.c_fc",
           "h.*.ln_1.weight", "h.*.ln_2.bias", "ln_f.bias" },
  -- a model function has what its number says; this it always has
  ["function"] = { "embed.weight" },
}
local fronts = {
  llama = { { "embed_tokens" }, { "embed_tokens", "layers.0" }, { "layers.0.mlp" } },
  gpt2 = { { "wte", "wpe" }, { "wte", "wpe", "h.0" }, { "h.0.attn" } },
  ["function"] = { { "embed" } },
}

local function shuffled(d, list)
  local out = table.move(list, 1, #list, 1, {})
  for i = #out, 2, -1 do
    local k = 1 + d:below(i)
    out[i], out[k] = out[k], out[i]
  end
  return out
end

-- Modules with a linear, by their names or the ends of them.
local linears = {
  llama = { "q_proj", "layers.*.self_attn.k_proj", "v_proj", "self_attn.o_proj", "gate_proj",
            "layers.*.mlp.up_proj", "down_proj", "layers.0.mlp.up_proj" },
  gpt2 = { "c_attn", "attn.c_proj", "h.*.mlp.c_fc", "h.*.mlp.c_proj", "h.0.attn.c_attn" },
}

-- Modules that may learn beside an adapter, which are tied to nothing.
local beside = {
  llama = { "norm", "layers.0.input_layernorm", "post_attention_layernorm" },
  gpt2 = { "ln_f", "h.0.ln_1", "ln_2" },
}

-- Ranks of their own and modules that learn, with a generator of their own: the rest of a plan is
-- unchanged. `names` are targets, which none of them names twice.
local function patterns(e, family, names, adapter)
  if e:maybe(3) then adapter.rank_pattern = { [e:pick(names)] = e:pick { 1, 2, 5 } } end
  if e:maybe(4) then adapter.alpha_pattern = { [e:pick(names)] = e:pick { 1, 6.5 } } end
  if e:maybe(5) then adapter.modules_to_save = { e:pick(beside[family]) } end
end

-- A group of B's, as LoRA+ has it, now and then.
local function adapter(d, e, family, blocks, out)
  local names = shuffled(d, linears[family])
  local some = table.move(names, 1, 1 + d:below(#names - 1), 1, {})
  local rank = d:pick { 1, 2, 3, 4, 8 }
  out.adapter = {
    "lora", rank = rank, alpha = d:pick { rank, 16, 1, false } or nil,
    rslora = d:maybe(3) or nil, dora = d:maybe(3) or nil,
    base = blocks and "nf4" or nil,
    dropout = d:maybe(3) and d:pick { 0.1, 0.5 } or nil, targets = d:maybe(3) and "all-linear" or some,
  }
  local all = d:maybe(4)
  patterns(e, family, all and names or some, out.adapter)
  if out.adapter.dropout and e:maybe(2) then out.adapter.dropout_position = "post" end
  if not all then return out end
  local family_first = family == "llama" and "layers.0" or "h.0"
  out.adapter.targets = "all-linear"
  out.groups = { { family_first, lr = 2 } }
  return out
end

local function group(d, pattern)
  local lr = d:pick { 0.1, 0.5, 3, false } or nil
  return { pattern, lr = lr,
           weight_decay = (not lr or d:maybe(2)) and d:pick { 0, 0.01, 0.3 } or nil }
end

return function(new_draw, number, family, blocks)
  local d = new_draw(number + 29)
  local names, out = shuffled(d, modules[family]), {}
  local kind = d:pick { "all", "all", "front", "some", "some", "adapter", "adapter" }
  if blocks or kind == "adapter" and linears[family] then 
    return adapter(d, new_draw(number + 31), family, blocks, out)
  end
  if kind == "front" then out.freeze = d:pick(fronts[family]) end
  local frozen = kind == "some" and 1 + d:below(math.max(#names - 2, 1)) or 0
  if frozen > 0 then out.freeze = table.move(names, 1, frozen, 1, {}) end
  if kind == "front" or not d:maybe(2) or frozen == #names then return out end
  out.groups = {}
  for i = frozen + 1, math.min(frozen + 1 + d:below(2), #names) do
    table.insert(out.groups, group(d, names[i]))
  end
  return out
end
