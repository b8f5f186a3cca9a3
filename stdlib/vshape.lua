-- vshape.lua - builds the schedules with little memory of "Pipeline Parallelism with
-- Controllable Memory": two chunks per rank in a V, a repeating pattern that says when a
-- rank runs what, and a bound on the chunks that are alive on it.
--
-- A pattern has six slots per microbatch: on rank r its F0, F1, I1 and I0 stand at four
-- given slots, shifted by six for each microbatch, and the W fill the two holes. At both
-- ends of a step it leaves more holes, so the table is built slot by slot for all ranks:
-- before its first I0 and after its last F1 a rank may take an action that is ready ahead
-- of the pattern, unless another, whose slot comes first, would then find no memory.
-- If there is none, it takes the oldest W.
local vshape = {}

local CHUNK = { 0, 1, 1, 0 } -- of the four kinds F0, F1, I1, I0

-- What a kind on rank r (from 1) must come after: a kind and a rank, or nothing.
local function before(ranks, kind, r)
  if kind == 1 then if r > 1 then return 1, r - 1 end return nil end
  if kind == 2 then if r == ranks then return 1, r end return 2, r + 1 end
  if kind == 3 then if r == 1 then return 2, r end return 3, r - 1 end
  if r == ranks then return 3, r end
  return 4, r + 1
end

-- May the rank take a forward or backward at slot `now` that the pattern has at `slot`?
-- Goes through what it has until then: in every hole between, a waiting W frees a chunk.
local function room(rank, now, kind, slot, microbatches)
  local alive, waiting = rank.alive, #rank.done - rank.w
  if kind <= 2 then alive = alive + 1 else waiting = waiting + 1 end
  if alive > rank.limit then return false end
  local at = { rank.next[1], rank.next[2], rank.next[3], rank.next[4] }
  at[kind] = at[kind] + 1
  local from = now + 1
  while true do
    local first, which = slot, nil
    for k = 1, 4 do
      local x = rank.pattern[k] + 6 * at[k]
      if at[k] < microbatches and x < first then first, which = x, k end
    end
    local freed = math.min(waiting, math.max(0, first - from))
    alive, waiting = alive - freed, waiting - freed
    if not which then return true end
    if which <= 2 then alive = alive + 1 else waiting = waiting + 1 end
    if alive > rank.limit then return false end
    at[which] = at[which] + 1
    from = math.max(from, first + 1)
  end
end

-- The kind that a rank takes at slot `now`, or nil; all ranks choose before any acts.
local function choose(rank, now, microbatches, ready)
  local n, pattern = rank.next, rank.pattern
  local free = n[4] == 0 or n[2] == microbatches
  local tried = {}
  while true do
    local kind, slot
    for k = 1, 4 do
      local x = pattern[k] + 6 * n[k]
      if n[k] < microbatches and not tried[k] and not (slot and slot <= x) then
        kind, slot = k, x
      end
    end
    if not kind then return nil end
    if ready(rank, kind) and room(rank, now, kind, slot, microbatches) then
      return kind
    end
    if not free then return nil end
    tried[kind] = true
  end
end

local function take(rank, kind)
  local out, chunk, mb = rank.out, CHUNK[kind], rank.next[kind]
  rank.next[kind] = mb + 1
  out[#out + 1] = { kind <= 2 and "F" or "I", chunk, mb }
  if kind <= 2 then
    rank.alive = rank.alive + 1
  else
    rank.done[#rank.done + 1] = out[#out]
  end
end

local function take_weight(rank)
  local i = rank.done[rank.w + 1]
  rank.w = rank.w + 1
  rank.alive = rank.alive - 1
  rank.out[#rank.out + 1] = { "W", i[2], i[3] }
end

local function build(ranks, microbatches, slots, limit)
  local list = {}
  for r = 1, ranks do
    list[r] = { next = { 0, 0, 0, 0 }, pattern = { slots(ranks, r - 1) }, limit = limit,
                alive = 0, w = 0, done = {}, out = {}, after = {} }
    for kind = 1, 4 do list[r].after[kind] = { before(ranks, kind, r) } end
  end
  local function ready(rank, kind)
    local k, r = rank.after[kind][1], rank.after[kind][2]
    return not k or list[r].next[k] > rank.next[kind]
  end
  local left, now, choice = ranks * 6 * microbatches, 0, {}
  while left > 0 do
    for r = 1, ranks do choice[r] = choose(list[r], now, microbatches, ready) or false end
    for r = 1, ranks do
      local rank = list[r]
      if choice[r] then
        take(rank, choice[r])
        left = left - 1
      elseif rank.w < #rank.done then
        take_weight(rank)
        left = left - 1
      end
    end
    now = now + 1
  end
  local out = {}
  for r = 1, ranks do out[r] = list[r].out end
  return out
end

-- A schedule from slots(ranks, rank), which returns the slots of F0, F1, I1 and I0 of
-- microbatch 0, and limit(ranks), the chunks that may be alive on a rank.
function vshape.schedule(slots, limit)
  local ranks, microbatches, lists -- of the last call: they are those of all ranks
  return {
    virtual = 2,
    fixed = true,
    placement = "v",
    run = function(s)
      if s.ranks ~= ranks or s.microbatches ~= microbatches then
        ranks, microbatches = s.ranks, s.microbatches
        lists = build(ranks, microbatches, slots, limit(ranks))
      end
      for _, a in ipairs(lists[s.rank + 1]) do s[a[1]](s, a[2], a[3]) end
    end,
  }
end

return vshape
