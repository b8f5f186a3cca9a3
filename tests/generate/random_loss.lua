-- random_loss.lua - draws by number the loss of a plan whose model ends in g:loss: cross entropy by
-- tokens or sequences, pairs against a copy, the base of an adapter or numbers of a file, a
-- divergence from a copy. Returns it, or nothing, and whether it is of sequences or pairs.
local function divergence(g, x, o)
  local apart = g:divergence(x.logits, x.reference, x.labels, { beta = o.beta })
  local loss = g:add(g:sum_all(apart), g:cross_entropy(x.logits, x.labels))
  if o.per == "tokens" then return loss end
  local sums = g:row_sums(g:token_losses(x.logits, x.labels))
  return g:add(loss, g:sum_all(sums))
end

return function(new_draw, seed, family, micro, adapter)
  local d = new_draw(seed + 17)
  if family == "function" or not d:maybe(3) then return nil, false end
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
