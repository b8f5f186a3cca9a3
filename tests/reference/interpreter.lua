-- interpreter.lua - executes the programs that `weft show program --json` prints, written
-- from docs/program.md: no code of weft is in it, numbers are f64, and every op is the
-- shortest loop that says what it means (interpreter_ops.lua and those beside it).
--
-- Ranks take turns in an order that is drawn. Nothing is buffered: what is sent is read
-- when both sides have started, or later, and until then the place that it goes to holds
-- values that are not numbers.
local interpreter = {}

local size = { f32 = 4, i32 = 4, f64 = 8, u8 = 1 }
local nan = 0 / 0

-- ---- memory ----

local function count(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end

-- The memory that an operand is in, and where it begins there.
local function place(rank, o)
  local memory, at = o.host and rank.host or rank.arena, o.offset
  if o.slot > 0 then
    local base = rank.slots[o.slot]
    memory, at = base.host and rank.host or rank.arena, base.offset + o.offset
  end
  if o.shard then at = at + o.shard.index * count(o.shape) * size[o.dtype] end
  return memory, at
end

-- Regions begin as zeros; elsewhere nothing may be read that was not written.
local function first_value(rank, memory, at)
  for _, r in ipairs(rank.program.regions) do
    local holds = r.host and rank.host or rank.arena
    if memory == holds and at >= r.offset and at < r.offset + r.count * size[r.dtype] then
      return 0
    end
  end
  error(string.format("rank %d reads %d, where nothing was written", rank.number, at))
end

local function read(rank, o)
  local memory, at = place(rank, o)
  local step, kind, out = assert(size[o.dtype], o.dtype), o.dtype, {}
  for i = 1, count(o.shape) do
    local cell = at + (i - 1) * step
    local v = memory[cell]
    if v == nil then v = first_value(rank, memory, cell)
    elseif memory.kind[cell] ~= kind then
      error(string.format("rank %d reads %s at %d, where %s was written", rank.number, kind,
        cell, memory.kind[cell]))
    end
    out[i] = v
  end
  return out
end

local function write(rank, o, values)
  local memory, at = place(rank, o)
  local step, kind = size[o.dtype], o.dtype
  for i = 1, count(o.shape) do
    local cell = at + (i - 1) * step
    memory[cell], memory.kind[cell] = values[i], kind
  end
end

local function memory() return { kind = {} } end

-- ---- kernels ----

local zeros = { __index = function() return 0 end }

local function accumulates(rank, instr)
  local a = instr.accumulate
  if a == "never" or a == "always" then return a == "always" end
  return rank.fresh >> a & 1 == 0
end

local function run_kernel(rank, instr)
  local op = interpreter.ops[instr.op]
  if not op then error("no kernel " .. instr.op) end
  local k = { attr = setmetatable(instr.attr, zeros), index = instr.index or 0, dims = {},
    out_dims = {}, unit = rank.unit, heads_index = instr.heads_index or 0, shard = instr.shard or 0, program = rank.program, scalar = rank.program.scalars.names }
  local values = {}
  for i, o in ipairs(instr["in"]) do values[i], k.dims[i] = read(rank, o), o.shape end
  for i, o in ipairs(instr.out) do k.out_dims[i] = o.shape end
  local results = { op(k, table.unpack(values)) }
  local adds = accumulates(rank, instr)
  for i, o in ipairs(instr.out) do
    local y = results[i]
    if #y ~= count(o.shape) then
      error(string.format("%s: result %d has %d elements, not %d", instr.op, i, #y,
        count(o.shape)))
    end
    if adds and not (instr.op == "rmsnorm_back" and i > 1) then
      local was = read(rank, o)
      for e = 1, #y do y[e] = y[e] + was[e] end
    end
    write(rank, o, y)
  end
end

-- ---- transfers ----

local function poison(rank, source, o)
  if source then
    local m1, a1 = place(rank, source)
    local m2, a2 = place(rank, o)
    local b1, b2 = count(source.shape) * size[source.dtype], count(o.shape) * size[o.dtype]
    if m1 == m2 and a1 < a2 + b2 and a2 < a1 + b1 then return end
  end
  local values = {}
  for i = 1, count(o.shape) do values[i] = nan end
  write(rank, o, values)
end

-- Piece k of n of the flat values.
local function piece(values, k, n)
  local each = #values // n
  return { table.unpack(values, k * each + 1, (k + 1) * each) }
end

local function append(to, values)
  for i = 1, #values do to[#to + 1] = values[i] end
  return to
end

local function sums(all, largest)
  local out = {}
  for i = 1, #all[1] do
    local s = all[1][i]
    for k = 2, #all do s = largest and math.max(s, all[k][i]) or s + all[k][i] end
    out[i] = s
  end
  return out
end

local collectives = {}

function collectives.all_reduce(parts)
  local y, out = sums(parts, parts.largest), {}
  for k = 1, #parts do out[k] = y end
  return out
end

function collectives.all_gather(parts)
  local y, out = {}, {}
  for k = 1, #parts do append(y, parts[k]) end
  for k = 1, #parts do out[k] = y end
  return out
end

function collectives.reduce_scatter(parts)
  local y, out = sums(parts, parts.largest), {}
  for k = 1, #parts do out[k] = piece(y, k - 1, #parts) end
  return out
end

function collectives.all_to_all(parts)
  local out = {}
  for k = 1, #parts do
    out[k] = {}
    for j = 1, #parts do append(out[k], piece(parts[j], k - 1, #parts)) end
  end
  return out
end

function collectives.shift(parts, first)
  local out = {}
  for k = 1, #parts do out[k] = parts[(k - 1 - first.by) % #parts + 1] end
  return out
end

-- Rows that are not counted come as anything, which is here no number.
function collectives.all_to_all_v(parts)
  local n, out = #parts, {}
  local function rows(counts, k)
    local sum = 0
    for _, c in ipairs(piece(counts, k - 1, n)) do sum = sum + c end
    return sum
  end
  for k = 1, n do
    out[k] = {}
    for j = 1, n do
      local from = piece(parts[j], k - 1, n)
      local moved = rows(parts.given[j], k) * parts.width
      assert(moved == rows(parts.taken[k], j) * parts.width, "both sides count alike")
      for i = 1, #from do out[k][#out[k] + 1] = i <= moved and from[i] or nan end
    end
  end
  return out
end

local function move_collective(t)
  local first = t.side[1].instr
  local parts = { largest = first.reduction == "max" }
  parts.given, parts.taken = {}, {}
  local shape = first["in"][1].shape
  parts.width = shape[#shape]
  for k, side in ipairs(t.side) do
    local x = side.instr["in"]
    parts[k] = read(side.rank, x[1])
    if x[2] then
      parts.given[k], parts.taken[k] = read(side.rank, x[2]), read(side.rank, x[3])
    end
  end
  local results = collectives[first.collective](parts, first)
  for k, side in ipairs(t.side) do write(side.rank, side.instr.out[1], results[k]) end
end

local function move(t)
  if t.collective then
    move_collective(t)
  else
    local from, to = t.side[1], t.side[2]
    write(to.rank, to.instr.out[1], read(from.rank, from.instr["in"][1]))
  end
  for _, side in ipairs(t.side) do side.done = true end
end

-- The transfer that one of several sides starts, by what both sides know of it: the n-th
-- of a communicator, or from one rank to another.
local function meet(run, key, sides, at, side, collective)
  local n = (run.started[side.rank][key] or 0) + 1
  run.started[side.rank][key] = n
  local name = key .. "#" .. n
  local t = run.meeting[name]
  if not t then
    t = { side = {}, here = 0, sides = sides, collective = collective }
    run.meeting[name] = t
  end
  assert(not t.side[at], "a side comes once")
  t.side[at], t.here = side, t.here + 1
  if t.here == sides then
    run.meeting[name] = nil
    run.ready[#run.ready + 1] = t
  end
end

local function start(run, rank, instr)
  local side = { rank = rank, instr = instr, slots = rank.slots }
  rank.handles[instr.handle] = side
  if instr.code == "SEND" then
    meet(run, rank.number .. ">" .. instr.peer, 2, 1, side)
  elseif instr.code == "RECV" then
    poison(rank, nil, instr.out[1])
    meet(run, instr.peer .. ">" .. rank.number, 2, 2, side)
  else
    local c = rank.program.communicators[instr.communicator + 1]
    local at
    for k, member in ipairs(c.members) do at = member == rank.number and k or at end
    poison(rank, instr["in"][1], instr.out[1])
    meet(run, "c" .. instr.communicator .. ":" .. c.members[1], #c.members, at, side, true)
  end
end

-- ---- ranks ----

local run_list

local function call(run, rank, instr)
  local p = rank.program
  local bound
  for _, b in ipairs(p.bindings) do
    if b.first == instr.bind then bound = b.bind end
  end
  rank.slots, rank.fresh, rank.unit = {}, instr.fresh, instr.number
  for _, b in ipairs(bound or {}) do rank.slots[#rank.slots + 1] = b end
  for _, at in ipairs(instr.dyn) do rank.slots[#rank.slots + 1] = { offset = at } end
  run_list(run, rank, p.bodies[instr.body + 1].code)
  rank.slots, rank.fresh = {}, 0
end

local starts = { COLL = true, SEND = true, RECV = true, GATHER = true, SCATTER = true }

function run_list(run, rank, list)
  for i, instr in ipairs(list) do
    rank.at = instr
    if instr.code == "CALL" then
      call(run, rank, instr)
    elseif instr.code == "KERNEL" then
      run_kernel(rank, instr)
    elseif starts[instr.code] then
      start(run, rank, instr)
    elseif instr.code == "WAIT" then
      local side = assert(rank.handles[instr.handle], "a WAIT has a start")
      while not side.done do coroutine.yield(true) end
      rank.handles[instr.handle] = nil
    elseif instr.code ~= "FREE" then
      error("no instruction " .. instr.code)
    end
    coroutine.yield(false)
  end
end

-- What a slot is bound to may change while a transfer of a body goes on: it keeps its own.
local function resolved(side)
  return setmetatable({ slots = side.slots }, { __index = side.rank })
end

-- ---- orders ----

-- Who goes on, of ranks and transfers that can. "late": transfers happen when no rank can
-- go on without one; "early": at once; else as it is drawn.
local function choose(run, able)
  local ready = #run.ready
  if ready > 0 and (#able == 0 or run.order == "early"
      or (run.order ~= "late" and run.random(3) == 1)) then
    return nil, run.random(ready)
  end
  if #able == 0 then return nil, nil end
  return able[run.order == "late" and #able or run.random(#able)]
end

local function blocked(run)
  local out = {}
  for _, rank in ipairs(run.ranks) do
    if coroutine.status(rank.thread) ~= "dead" then
      out[#out + 1] = string.format("rank %d waits for handle %d (%s)", rank.number,
        rank.at.handle or -1, rank.at.what)
    end
  end
  error("no rank can go on:\n" .. table.concat(out, "\n"))
end

local function run_step(run)
  run.meeting, run.ready, run.started = {}, {}, {}
  for _, rank in ipairs(run.ranks) do
    run.started[rank], rank.handles, rank.slots, rank.fresh = {}, {}, {}, 0
    rank.waits, rank.thread = false, coroutine.create(run_list)
  end
  while true do
    local able, left = {}, false
    for _, rank in ipairs(run.ranks) do
      if coroutine.status(rank.thread) ~= "dead" then
        left = true
        if not rank.waits then able[#able + 1] = rank end
      end
    end
    if not left then break end
    local rank, transfer = choose(run, able)
    if rank then
      local ok, waits = coroutine.resume(rank.thread, run, rank, rank.program.main)
      if not ok then error(debug.traceback(rank.thread, waits), 0) end
      rank.waits = waits == true
    elseif transfer then
      local t = table.remove(run.ready, transfer)
      for _, side in ipairs(t.side) do
        side.real, side.rank = side.rank, resolved(side)
      end
      move(t)
      for _, side in ipairs(t.side) do side.real.waits = false end
    else
      blocked(run)
    end
  end
  assert(next(run.meeting) == nil, "every transfer has met")
end

-- ---- what a host does ----

-- Where element `e` of the row is in a region on this rank, or nil.
local function region_place(program, region, parameter, e)
  local b = program.blocks[parameter.block + 1]
  local shard = b.count // region.ways
  local here = b.first + (region.ways > 1 and region.index * shard or 0)
  if e < here or e >= here + shard then return nil end
  if region.count == region.whole then return e - region.first end
  return (b.first - region.first) // region.ways + e - here
end

-- The number in the whole parameter of element `i` of this rank's box, nil for padding.
local function global_place(q, i)
  local at, stride = 0, 1
  for d = #q.box, 1, -1 do
    local c = q.box[d]
    local here = i % (c.parts * c.slice)
    i = i // (c.parts * c.slice)
    if here % c.slice >= c.valid then return nil end
    at = at + (here // c.slice * c.size + c.first + here % c.slice) * stride
    stride = stride * q.shape[d]
  end
  return at
end

-- f(memory, cell, dtype, name, number in the whole parameter or nil) for all that a rank
-- has of its parameters in regions of a kind.
local function each_element(rank, kind, f)
  local p = rank.program
  for _, region in ipairs(p.regions) do
    for _, q in ipairs(region.kind == kind and p.parameters or {}) do
      if q.at >= region.first and q.at < region.first + region.whole then
        for i = 0, q.count - 1 do
          local at = region_place(p, region, q, q.at + i)
          if at then
            local memory = region.host and rank.host or rank.arena
            f(memory, region.offset + at * size[region.dtype], region.dtype, q,
              global_place(q, i))
          end
        end
      end
    end
  end
end

local function load(rank, params)
  for _, kind in ipairs { "work", "master" } do
    each_element(rank, kind, function(memory, cell, dtype, q, at)
      memory[cell] = at and params[q.name].value[at + 1] or 0
      memory.kind[cell] = dtype
    end)
  end
end

local function feed(rank, step)
  local p = rank.program
  local T, local_tokens = p.seq, 0
  local first = (step.scalars.SC_STEP - 1) * #step.tokens
  for _, r in ipairs(p.positions) do local_tokens = local_tokens + r.count end
  for name, offset in pairs(p.inputs) do
    local cell = offset
    for _, row in ipairs(p.rows) do
      for _, r in ipairs(p.positions) do
        for at = r.first, r.first + r.count - 1 do
          local v = name == "tokens" and step.tokens[row * T + at + 1]
            or name == "labels" and step.labels[row * T + at + 1]
            or name == "positions" and at
            or name == "sources" and (step.sources or {})[row + 1] or name == "sources" and 0
            or name == "token_numbers" and (first + row * T + at) % 2 ^ 32 or 0
          if name ~= "seed" then
            rank.arena[cell], rank.arena.kind[cell] = v, "i32"
            cell = cell + 4
          end
        end
      end
    end
  end
  local s = p.scalars
  for index = 0, s.count - 1 do
    local cell = s.offset + 8 * index
    rank.arena[cell], rank.arena.kind[cell] = 0, "f64"
  end
  for name, value in pairs(step.scalars) do
    rank.arena[s.offset + 8 * s.names[name]] = value
  end
end

local function scalar(rank, name)
  local s = rank.program.scalars
  return rank.arena[s.offset + 8 * s.names[name]]
end

-- The parameters as a whole; all ranks that hold an element must hold the same.
local function gather(run, params)
  local out = {}
  for name, p in pairs(params) do out[name] = {} end
  local function take(memory, cell, dtype, q, at)
    if not at then return end
    local v, was = memory[cell], out[q.name][at + 1]
    if was ~= nil and v ~= was then
      error(string.format("%s[%d] is %.17g and %.17g", q.name, at, was, v))
    end
    out[q.name][at + 1] = v
  end
  for _, rank in ipairs(run.ranks) do
    local kinds = {}
    for _, r in ipairs(rank.program.regions) do kinds[r.kind] = true end
    each_element(rank, kinds.master and "master" or "work", take)
  end
  return out
end

-- programs: of all ranks, in order. params: name -> { value = list }. steps: a list of
-- { tokens, labels, scalars }, in the order of the whole batch. Returns a list of
-- { loss, norm } and the parameters as they are then.
function interpreter.run(programs, params, steps, order, seed)
  local run = { ranks = {}, order = order }
  local state = seed
  function run.random(n) -- the same everywhere
    state = (state * 6364136223846793005 + 1442695040888963407)
    return (state >> 33) % n + 1
  end
  for i, p in ipairs(programs) do
    run.ranks[i] = { number = p.rank, program = p, arena = memory(), host = memory() }
    load(run.ranks[i], params)
  end
  local out = {}
  for i, step in ipairs(steps) do
    for _, rank in ipairs(run.ranks) do feed(rank, step) end
    run_step(run)
    local rank = run.ranks[1]
    out[i] = { loss = scalar(rank, "SC_LOSS") / scalar(rank, "SC_TOKENS"),
      norm = scalar(rank, "SC_NORM"), tokens = scalar(rank, "SC_TOKENS") }
  end
  return out, gather(run, params)
end

return interpreter
