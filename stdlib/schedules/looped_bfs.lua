-- looped_bfs.lua - breadth first: gpipe, chunk after chunk.
--
-- Rule:       for each chunk in order F of all microbatches; then for each chunk, last
--             first, B of all microbatches, last first.
-- Constraint: none.
-- Bubble:     (P-1)(F+I+W)/v of a rank's time.
-- Memory:     all m microbatches of every chunk. A chunk is used once per direction, so
--             sharded parameters are gathered least often.
return {
  virtual = 2,
  run = function(s)
    for chunk = 0, s.virtual - 1 do
      for mb = 0, s.microbatches - 1 do s:F(chunk, mb) end
    end
    for chunk = s.virtual - 1, 0, -1 do
      for mb = s.microbatches - 1, 0, -1 do s:B(chunk, mb) end
    end
  end,
}
