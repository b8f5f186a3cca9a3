-- rates.lua - learning rates of other systems as builders of a plan. Megatron and NeMo AutoModel have
-- one scheduler: the same names, the same falls of a rate that stays at its maximum first (WSD).
local quote = use "import/quote"
local values = use "import/values"
local rates = {}

-- Megatron's --lr-decay-style.
rates.shapes = { constant = "constant", linear = "linear", cosine = "cosine", WSD = "wsd",
                 ["inverse-square-root"] = "inverse_sqrt" }

-- The other way; a polynomial is none there, and a line comes near.
rates.style_of = { polynomial = "linear" }
for there, here in next, rates.shapes do rates.style_of[here] = there end

-- What such a rate falls along at the end.
local FALLS = { linear = true, cosine = true, exponential = true, minus_sqrt = true }

-- The last steps, in which the rate falls, and along what: `key` says so, else `default`.
function rates.put_fall(book, plan, steps, steps_key, key, default)
  plan:put("optimizer.lr.decay", quote.value(math.max(steps, 1)), book:leaf(steps_key))
  book:translated(steps_key, "optimizer.lr.decay")
  local name = book:value(key) or default
  if not FALLS[name] then
    book:refuse(key, string.format("%s: expected linear, cosine, exponential or minus_sqrt", quote.shown(name)))
    name = "linear"
  end
  plan:put("optimizer.lr.decay_style", quote.text(name), book:leaf(key) or "the default there")
  book:translated(key, "optimizer.lr.decay_style")
end

-- The step at which a rate that falls with the root of the steps is set to its least: there is none here.
function rates.end_of_root(book, key, at, steps)
  if at and steps and at < steps then
    book:cannot(key, "the rate is at its least from this step on; here it goes on falling")
  else
    book:no_effect(key, "the rate falls to the end of the run")
  end
end

-- The least rate, the default of which is there `least`.
function rates.put_least(book, plan, key, least, why)
  plan:put("optimizer.lr.min", quote.value(values.positive(book, key) or least), book:leaf(key) or why)
  book:translated(key, "optimizer.lr.min")
end

return rates
