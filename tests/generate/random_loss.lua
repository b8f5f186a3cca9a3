-- random_loss.lua - draws by number the loss of a plan whose model ends in g:loss: cross entropy by
-- tokens or sequences, pairs against a copy, the base of an adapter or numbers of a file, a
-- divergence from a copy. Returns it, or nothing, whether it is of sequences or pairs, and `mtp` of
-- the plan.
local function divergence(g, x, o)
  local apart = g:divergence(x.logits, x.reference, x.labels, { beta = o.beta })
  local loss = g:add(g:sum_all(apart), g:cross_entropy(x.logits, x.labels))
  if o.per == "tokens" then return loss end
  local sums = g:row_sums(g:token_losses(x.logits, x.labels))
  return g:add(loss, g:sum_all(sums))
end

-- Cross entropy of the next token, and of further ones, with a generator of its own.
local function of_tokens(new_draw, seed, family, adapter)
  local e = new_draw(seed + 47)
  local loss = e:maybe(3) and { "cross_entropy", z_loss = e:pick { 0.01, 0.1 } } or nil
  local mtp = e:maybe(3) and { num_layers = e:pick { 1, 1, 2, 3 }, loss_scaling_factor = e:pick { 0.1, 0.3, 1 } }
  if family ~= "llama" or adapter then mtp = nil end
  return loss, false, mtp or nil
end

return function(new_draw, seed, family, micro, adapter)
  local d = new_draw(seed + 17)
  if family == "function" then return nil, false end
  if not d:maybe(3) then return of_tokens(new_draw, seed, family, adapter) end
  local which = d:below(micro % 2 == 0 and 4 or 2)
  if which == 0 then return { "cross_entropy", per = "sequences" }, true end
  if which == 1 then
    local per = d:pick { "tokens", "sequences" }
    return { divergence, per = per, reference = "copy", beta = d:pick { 0, 0.3, 1 } },
           per ~= "tokens"
  end
  local smooth, reference = d:pick { 0, 0.2 }, adapter and d:pick { "copy", "base" } or nil
  if adapter and adapter.modules_to_save then reference = "copy" end
  local file = d:maybe(3) and "made-up" or nil -- with synthetic data nothing is read
  if file then reference = nil end
  return { "dpo", beta = 0.5, label_smoothing = smooth, reference = reference,
           reference_file = file }, true
end
