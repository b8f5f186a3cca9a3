-- distill.lua - learns from the probabilities of a teacher: (1 - alpha) times cross entropy and
-- alpha times a divergence of the two models, both at a temperature.
--
-- Options: alpha; beta: 0 is KL(teacher|student), 1 KL(student|teacher), between them the
-- generalised Jensen-Shannon divergence (Agarwal et al., arXiv:2306.13649); temperature.
local distill = { per = "tokens" }

function distill.loss(g, x, o)
  local alpha, temperature = o.alpha or 0.5, o.temperature or 1
  local function softened(logits)
    if temperature == 1 then return logits end
    return g:scale(logits, { scale = 1 / temperature })
  end
  local apart = g:divergence(softened(x.logits), softened(x.teacher), x.labels,
                             { beta = o.beta or 0 })
  local loss = g:scale(g:sum_all(apart), { scale = alpha })
  if alpha == 1 then return loss end
  return g:add(loss, g:scale(g:cross_entropy(x.logits, x.labels), { scale = 1 - alpha }))
end

return distill
