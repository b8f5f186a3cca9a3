-- schedule.lua - schedule functions with one mistake each (-D case=).
local weft = require "weft"
local cases = {}

-- Rank 1 takes the microbatches in the opposite order.
function cases.deadlock(s)
  for m = 0, s.microbatches - 1 do
    local mb = s.rank == 0 and m or s.microbatches - 1 - m
    s:F(0, mb) s:B(0, mb)
  end
end

function cases.twice(s)
  for m = 0, s.microbatches - 1 do s:F(0, m) s:B(0, m) end
  s:F(0, 0)
end

function cases.missing(s)
  for m = 0, s.microbatches - 1 do s:F(0, m) end
  for m = 0, s.microbatches - 2 do s:B(0, m) end
end

function cases.early(s)
  for m = 0, s.microbatches - 1 do s:B(0, m) s:F(0, m) end
end

function cases.chunk(s) s:F(1, 0) end

function cases.loop() while true do end end

function cases.fails() error("my own message") end

return weft.plan {
  model = weft.model {
    "llama", num_hidden_layers = 2, hidden_size = 16, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 24, vocab_size = 128,
  },
  mesh = { pp = 2 },
  schedule = cases[weft.vars.case],
  batch = { global = 4, micro = 1, seq = 8 },
  data = weft.synthetic {},
}
