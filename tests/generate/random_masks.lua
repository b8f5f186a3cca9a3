-- random_masks.lua - draws by number which share of the tokens is learnt, or nil: all. Rows are short,
-- so that ranks and microbatches have very different numbers of labels.
return function(new_draw, number)
  local d = new_draw(number + 47)
  return d:maybe(2) and d:pick { 0.3, 0.6, 0.9 } or nil
end
