-- further.lua - layers that predict further tokens: settings of how many, and of how much their
-- losses count, as mtp of a plan.
local quote = use "import/quote"
local values = use "import/values"

local further = {}

-- Of a model of architecture `arch`, "function" if the plan has it written out; `usual` is the weight
-- where none is given. Returns how many layers the plan has of them, 0: none.
function further.put(book, plan, arch, number, weight, usual)
  local n = values.whole(book, number, 0) or 0
  if n == 0 then return 0 end
  if arch == "gpt2" or arch == "function" then
    book:cannot(number, "this model of weft has no layers that predict further tokens: the plan has it without them")
    return 0
  end
  if n > 4 then
    book:refuse(number, string.format("%d layers that predict further tokens: weft has up to 4", n))
    return 0
  end
  plan:put("mtp.num_layers", quote.value(n), book:leaf(number))
  book:translated(number, "mtp.num_layers")
  plan:put("mtp.loss_scaling_factor", quote.value(values.positive(book, weight) or usual),
           book:leaf(weight) or "the default")
  book:translated(weight, "mtp.loss_scaling_factor")
  book:assume("mtp", "losses of further tokens are divided by the label tokens of the whole step, as the loss is")
  return n
end

return further
