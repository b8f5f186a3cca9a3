-- dpo.lua - direct preference optimisation (Rafailov et al., arXiv:2305.18290): of each pair
-- the first sequence is to become likelier than the second, against a reference model.
--
-- Options: beta, how little the model may leave the reference; label_smoothing, what part of
-- the pairs is thought to be labelled the wrong way round. With reference_file the reference's
-- losses are there already, one a sequence.
local dpo = { per = "pairs", reference = "copy" }

-- The loss of a sequence is minus the logarithm of its probability.
local function sequence_losses(g, logits, labels)
  return g:row_sums(g:token_losses(logits, labels))
end

-- log(model / reference) of the chosen sequences minus that of the rejected ones.
function dpo.margin(g, x)
  local own = sequence_losses(g, x.logits, x.labels)
  local other = x.reference_losses or sequence_losses(g, x.reference, x.labels)
  local chosen, rejected = g:split_pairs(g:add(other, g:scale(own, { scale = -1 })))
  return g:add(chosen, g:scale(rejected, { scale = -1 }))
end

function dpo.loss(g, x, o)
  local beta, smooth = o.beta or 0.1, o.label_smoothing or 0
  local margin = g:scale(dpo.margin(g, x), { scale = beta })
  local loss = g:scale(g:log_sigmoid(margin), { scale = smooth - 1 })
  if smooth > 0 then
    local flipped = g:log_sigmoid(g:scale(margin, { scale = -1 }))
    loss = g:add(loss, g:scale(flipped, { scale = -smooth }))
  end
  return g:sum_all(loss)
end

return dpo
