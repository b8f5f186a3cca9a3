-- cross_entropy.lua - the loss of a plan that names none, divided by label tokens, or by
-- sequences: then each sequence counts as much as any other, with the mean of its tokens.
-- z_loss is the coefficient of the squared logarithm of what a softmax is divided by.
local cross_entropy = {}

function cross_entropy.loss(g, x, o)
  if o.per ~= "sequences" then return g:cross_entropy(x.logits, x.labels, { z_loss = o.z_loss }) end
  local sums = g:row_sums(g:token_losses(x.logits, x.labels))
  return g:sum_all(g:divide(sums, g:row_sums(g:label_mask(x.labels))))
end

return cross_entropy
