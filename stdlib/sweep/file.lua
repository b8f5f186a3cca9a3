-- file.lua - the rows of a sweep as lines of JSON, written in the order of the points as
-- they are done, so that an interrupted sweep can be taken up again. The first line says
-- which sweep it is, of which build of weft; a last line that is cut short does not count.
-- Rows of a sweep that is taken up are in the file all the while, also those behind a gap:
-- a file with such rows gets its order when the sweep ends.
local find, gmatch, sub = string.find, string.gmatch, string.sub
local core, grid = use "sweep/core", use "sweep/grid"

local file = {}
file.__index = file

local function is_number(t, ...)
  for _, key in ipairs { ... } do
    if type(t[key]) ~= "number" then return false end
  end
  return true
end

-- ---- writing ----

local function header(self)
  return core.json { format_version = "1.0", key = self.key, points = self.r.grid.points,
                     weft = core.build() } .. "\n"
end

-- nil: the point is not done.
local function line_of(self, i)
  local state, t, why = self.points:row(i)
  if not state then return nil end
  t.n, t.point, t.state, t.reason = self.r.point(i), {}, state, why
  local choice = grid.choice(self.r.grid, t.n)
  for k, x in ipairs(self.r.grid) do t.point[x.path] = x.text[choice[k]] end
  return core.json(t) .. "\n"
end

-- Rows that are not in the file yet; with `all` those behind a gap, too.
local function lines(self, all)
  local out = {}
  while self.written < self.r.asked do
    local line = line_of(self, self.written)
    if not line and not all then break end
    if not self.ahead[self.written] then out[#out + 1] = line end
    self.written = self.written + 1
  end
  return table.concat(out)
end

-- Rows of the old file that are behind a gap.
local function lines_ahead(self)
  local out = {}
  for i = self.written, self.r.asked - 1 do
    local line = line_of(self, i)
    self.ahead[i] = line and true
    out[#out + 1] = line
  end
  return table.concat(out)
end

function file:add(all)
  local text = lines(self, all)
  if text ~= "" then self.points:write(text) end
end

-- Nothing that is done is lost, however the sweep ends.
function file:finish()
  self.finished = true
  self:add(true)
  self.points:close()
  if next(self.ahead) ~= nil then
    self.ahead, self.written = {}, 0
    core.write(self.r.files.rows, header(self) .. lines(self, true))
  end
end

function file:__close()
  if self.finished then return end
  self.points:stop()
  pcall(self.finish, self)
end

-- ---- taking up ----

local function text_or_empty(v) return type(v) == "string" and v or "" end

-- Fills the row that a line is about; false if it is none of this sweep.
local function take(self, t)
  local i = self.index[t.n]
  if not i or self.points:row(i) then return true end
  if t.state == "illegal" then
    local why = type(t.reason) == "table" and t.reason or {}
    self.points:put(i, t.state, {}, text_or_empty(why.code), text_or_empty(why.path),
      text_or_empty(why.summary))
  elseif t.state == "ok" or t.state == "memory" then
    local all = is_number(t, "bubble", "dp", "flop", "flop_recomputed", "microbatches",
      "peak_bytes", "worst_rank") and type(t.comm_bytes) == "table"
      and is_number(t.comm_bytes, "cp", "dp", "ep", "ep_even", "pp", "tp")
    if not all then return false end
    self.points:put(i, t.state, t)
  else
    return false
  end
  self.resumed = self.resumed + 1
  return true
end

local function foreign(self)
  core.wrong(self.r.files.rows, "is not of this sweep: its plan, a file that this names, or its grid was another")
end

-- Builds may differ in figures: rows of two are not mixed.
local function check_build(self, t)
  if t.weft == core.build() then return end
  core.wrong(self.r.files.rows, string.format("was written by %s, and this is weft %s: begin the sweep again "
    .. "in another file", type(t.weft) == "string" and "weft " .. t.weft or "another weft", core.build()))
end

local function take_up(self, text)
  local first = true
  self.index = {}
  for i = 0, self.r.asked - 1 do self.index[self.r.point(i)] = i end
  if not find(text, "\n", 1, true) then
    -- One that was cut in its first line, not one that somebody else wrote.
    if text ~= sub(header(self), 1, #text) then foreign(self) end
    return
  end
  for line in gmatch(text, "([^\n]*)\n") do
    local t = core.parse(line)
    if first then
      if not t or not t.key then foreign(self) end
      check_build(self, t)
      if t.key ~= self.key then foreign(self) end
    elseif not t or not take(self, t) then
      core.wrong(self.r.files.rows, "has a line that is no row of a sweep")
    end
    first = false
  end
end

-- Begins the file of a sweep, or goes on with it; a whole new file takes its place.
function file.open(r, points, key)
  local self = setmetatable({ r = r, points = points, key = key, written = 0, resumed = 0,
    ahead = {}, finished = true }, file)
  local old = r.files.resume and core.read(r.files.rows)
  if old then take_up(self, old) end
  core.write(r.files.rows, header(self) .. lines(self, false) .. lines_ahead(self))
  points:append(r.files.rows)
  self.finished = false
  return self
end

return file
