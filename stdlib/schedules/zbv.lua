-- zbv.lua - zero bubble with two chunks per rank in a V: rank r has stage r and, on the
-- way back, stage 2P-1-r. The last rank hands over to itself; the loss is on rank 0.
--
-- Rule:       2(P-r)-1 times F0; r times F1 F0; P-r times F1 I1 W1; then F0 I0 W0 and
--             F1 I1 W1 in turns until the forwards are done; r times I0 I1; P-r times
--             I0 W0; what is left of W1, then of W0. (F0: forward of chunk 0.) It is made
--             for at least 2P-1 microbatches; with fewer those that are not there are
--             left out.
-- Constraint: two stages per rank; any number of microbatches.
-- Bubble:     none within a rank's own span if F = I = W and m >= 2P-1.
-- Memory:     2P chunks on every rank, as rank 0 of 1f1b.
return {
  virtual = 2,
  fixed = true,
  placement = "v",
  run = function(s)
    local p, r, m = s.ranks, s.rank, s.microbatches
    local n = math.max(2 * p - 1, m)
    local count = { F = { [0] = 0, 0 }, I = { [0] = 0, 0 }, W = { [0] = 0, 0 } }
    local function emit(kind, chunk)
      local mb = count[kind][chunk]
      count[kind][chunk] = mb + 1
      if mb < m then s[kind](s, chunk, mb) end
    end
    local function back(chunk)
      emit("I", chunk)
      emit("W", chunk)
    end
    for _ = 1, 2 * (p - r) - 1 do emit("F", 0) end
    for _ = 1, r do
      emit("F", 1)
      emit("F", 0)
    end
    for _ = 1, p - r do
      emit("F", 1)
      back(1)
    end
    while count.F[1] < n do
      if count.F[0] < n then emit("F", 0) end
      back(0)
      emit("F", 1)
      back(1)
    end
    for _ = 1, r do
      emit("I", 0)
      emit("I", 1)
    end
    for _ = 1, p - r do back(0) end
    while count.W[1] < n do emit("W", 1) end
    while count.W[0] < n do emit("W", 0) end
  end,
}
