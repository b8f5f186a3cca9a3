-- interleaved_1f1b.lua - 1F1B with several chunks per rank.
--
-- Rule:       a rank takes its microbatches in groups of about `ranks`; a group goes
--             through all its chunks before the next one starts, backward likewise with
--             the chunks reversed. Rank r begins with (v-1)*group + 2*(P-1-r) forwards,
--             then forward and backward in turns.
-- Constraint: with R = max(1, m // P) rounds, m is a multiple of R (any m if v = 1). With
--             the option `group`: P <= group <= m, and m % group is 0 or at least P.
-- Bubble:     (P-1)(F+I+W)/v of a rank's time.
-- Memory:     (v-1)*group + 2*(P-1-r) + 1 chunks on rank r.
local rounds = require "weft.rounds"

return {
  virtual = 2,
  run = function(s, options)
    local v, m, total = s.virtual, s.microbatches, s.virtual * s.microbatches
    local group = options.group or rounds.size(s.ranks, m)
    local at = rounds.order(v, m, group)
    local warm = math.min((v - 1) * group + 2 * (s.ranks - 1 - s.rank), total)
    for step = 0, total + warm - 1 do
      if step < total then
        local chunk, mb = at(step)
        s:F(chunk, mb)
      end
      if step >= warm then
        local chunk, mb = at(step - warm)
        s:B(v - 1 - chunk, mb)
      end
    end
  end,
  check = function(ranks, virtual, microbatches, options)
    local group = options.group
    if not group then
      return rounds.problem("interleaved_1f1b", ranks, virtual, microbatches)
    end
    if group < ranks then
      return string.format("interleaved_1f1b needs a group of at least as many "
                           .. "microbatches as pipeline ranks, got %d for %d", group,
                           ranks)
    end
    if group > microbatches then
      return string.format("interleaved_1f1b needs at least a group of microbatches, got "
                           .. "%d for group = %d", microbatches, group)
    end
    local rest = microbatches % group
    if rest > 0 and rest < ranks then
      return string.format("interleaved_1f1b cannot cut %d microbatches into groups of "
                           .. "%d: the last group would have %d, it needs %d",
                           microbatches, group, rest, ranks)
    end
  end,
}
