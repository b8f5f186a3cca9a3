-- sweep.lua - weft.sweep { ... }: reads its options, lets threads judge the points while it
-- shows how far they are, asks the script for scores, and makes the result.
local format = string.format
local ahead, core = use "sweep/ahead", use "sweep/core"
local figures, grid = use "sweep/figures", use "sweep/grid"
local file, print, report = use "sweep/file", use "sweep/print", use "reports/report"
local options, text = use "objects/options", use "reports/text"

local shown, shown_measured, measured_steps, usual_clocked = 20, 10, 3, 10

local function failf(...) fail(format("weft.sweep: " .. ..., select(2, ...))) end

-- ---- options ----

local option_names = { "plan", "over", "where", "score", "keep", "max_gib", "measure", "csv",
                       "jsonl", "resume", "threads", "clock", "bounds" }

local function want(o, key, kinds, what)
  local v = o[key]
  if v == nil then return nil end
  for _, kind in ipairs(kinds) do
    if type(v) == kind then return v end
  end
  failf("%s is %s, got %s", key, what, type(v))
end

local function read_score(o)
  local score = want(o, "score", { "function", "string" }, "a column or function(row)")
  if type(score) ~= "string" then return score end
  if score == "tokens_per_s" then
    failf "tokens_per_s is measured after the rows have been ordered by another score"
  end
  if score == "clock_ms" then
    failf "clock_ms is known of the first rows by another score: clock = N orders these by it"
  end
  if figures.column[score] then return score end
  local near = suggest(score, figures)
  failf("there is no column '%s'%s", score, near and format(" (did you mean '%s'?)", near)
    or "")
end

-- The files that the command line names are those of the first sweep. None of two files for one
-- thing is left out without a word.
local function read_files(o)
  local host, files = core.files(), {}
  for _, key in ipairs { "csv", "jsonl", "resume" } do
    files[key] = want(o, key, { "string" }, "the name of a file")
  end
  if host and not host.used then
    for key, name in next, host do
      if files[key] then
        failf("%s = is in the script, and --%s on the command line: name the file in one of them", key, key)
      end
      files[key] = name
    end
  end
  if files.jsonl and files.resume then
    failf "resume goes on with its own file; leave out jsonl"
  end
  files.rows = files.jsonl or files.resume
  if files.csv and files.csv == files.rows then
    failf("two outputs would be written to %s", files.csv)
  end
  return files
end

-- What another sweep has written, or somebody else, is not replaced; a sweep that is taken up
-- writes its own table again.
local function check_files(r)
  local csv, rows = r.files.csv, r.files.jsonl
  if csv then core.writable(csv) end
  if rows and core.filled(rows) then
    core.wrong(rows, "exists and is not empty" .. (r.given and "; give another name, or remove it first"
      or format(": resume goes on with the rows of a sweep (weft sweep --resume %s); or give another "
        .. "name, or remove it", rows)))
  end
  if not csv or not core.filled(csv) then return end
  local head = print.header(r) .. "\n"
  if r.files.resume and string.sub(core.read(csv), 1, #head) == head then return end
  core.wrong(csv, "exists and is not empty; give another name, or remove it first")
end

-- What a function reads when it is called, such as other plans, is in no key of the sweep.
local function check_given(r)
  if not r.given or not r.files.resume then return end
  failf("resume needs a plan or a file, not a function: what the function reads may have changed "
    .. "since the rows were written; write them to another file with jsonl")
end

-- Bounds are to choose by: what is kept is exact.
local function check_bounds(r)
  if r.given then failf "bounds needs a plan or a file, not a function" end
  if r.files.rows then failf "bounds leaves most rows inexact: they are not written to jsonl and resume" end
  r.keep = r.keep or shown
end

local function read_options(o)
  options.read(o, option_names, "sweep")
  local plan, r = o.plan, {}
  if plan == nil then failf "plan is missing: a file, a plan or function(point)" end
  if not core.is_plan(plan) then
    want(o, "plan", { "string", "table", "function" },
      "a file, a plan or function(point)")
  end
  r.plan, r.given = plan, type(plan) == "function"
  if o.over == nil then failf "over is missing: a grid of values" end
  r.grid = grid.read(o.over, not r.given)
  r.score = read_score(o)
  r.where = want(o, "where", { "function" }, "a function")
  r.max_gib = o.max_gib
  if r.max_gib ~= nil then
    local v = math.type(r.max_gib) and r.max_gib
    if not v or not (v > 0) or v > 1e9 then failf "max_gib is a positive number" end
  end
  r.files = read_files(o)
  check_given(r)
  r.keep = options.integer(o, "keep", 1, 0x7fffffff)
  r.threads = options.integer(o, "threads", 1, 1024) or 0
  r.measure = o.measure == true and measured_steps
    or o.measure and options.integer(o, "measure", 1, 1000)
  r.bounds = want(o, "bounds", { "boolean" }, "true or false") or false
  if r.bounds then check_bounds(r) end
  r.clock = o.clock == true and usual_clocked
    or o.clock and options.integer(o, "clock", 1, 100000)
  return r
end

-- ---- the points ----

local function choose(r, shield)
  local todo = nil
  if r.where then
    todo = {}
    for point = 0, r.grid.points - 1 do
      if shield:call(r.where, grid.strict_point(r.grid, point)) then todo[#todo + 1] = point end
    end
    if #todo == 0 and not r.may_be_none then
      failf("where() leaves none of %s", text.plural(r.grid.points, "point"))
    end
  end
  r.todo, r.asked = todo, todo and #todo or r.grid.points
  r.point = function(i) return todo and todo[i + 1] or i end
end

-- A plain list: that of weft.grid has methods, which plans do not take along.
local function plain_axes(g)
  local list = {}
  for i, x in ipairs(g) do list[i] = x.values end
  return list
end

local function key_of(r, points)
  local out = {}
  for _, x in ipairs(r.grid) do
    for _, text in ipairs(x.text) do out[#out + 1] = format("%s=%s,", x.path, text) end
  end
  return points:key(table.concat(out))
end

-- ---- scores ----

local function row_of(r, i, row)
  return figures.add(grid.fields(r.grid, r.point(i)), row)
end

local function score_of(r, shield, i, row)
  if type(r.score) == "string" then return figures.column[r.score](row) end
  local v = shield:call(r.score, row_of(r, i, row))
  if v ~= nil and not tonumber(v) then
    failf("score() returned a %s, not a number or nil", type(v))
  end
  v = tonumber(v)
  return v == v and v or nil
end

-- Without the figures of a GPU no row would have a time.
local function check_score(r, gpu)
  if r.score ~= "step_ms" or gpu ~= false then return end
  for _, x in ipairs(r.grid) do
    if string.find(x.path, "cluster", 1, true) then return end
  end
  failf "step_ms needs the GPU's name in plan.cluster"
end

-- Without a score: by time where the figures of GPUs are known, else by memory.
local function default_score(r, points)
  for i = 0, r.asked - 1 do
    local _, row = points:row(i)
    if row and row.step_ms then return "step_ms" end
  end
  return "peak_gib"
end

local function by_score(a, b)
  if a.score ~= b.score then return a.score < b.score end
  return a.i < b.i
end

local function rank(r, shield, points)
  local best, dropped = {}, 0
  for i = 0, r.asked - 1 do
    local state, row = points:row(i)
    if state == "ok" then
      local score = score_of(r, shield, i, row)
      if score then
        best[#best + 1] = { i = i, point = r.point(i), row = row, score = score }
      else
        dropped = dropped + 1
      end
    end
  end
  table.sort(best, by_score)
  return best, dropped
end

-- ---- running ----

-- The first error among the reasons why there is no plan, or what the script says.
local function reason_of(why)
  for _, x in ipairs(type(why) == "table" and why or {}) do
    if type(x) == "table" and x.severity == "error" then
      return x.message, x.code, x.path
    end
  end
  local text = why == nil and "the function gave no plan" or tostring(why)
  return string.match(text, "[^\n]*")
end

-- plan = function(point): nil and perhaps reasons, or what a plan can be.
local function judge_given(r, shield, points, i)
  local ok, plan, why = shield:try(points, r.plan, grid.point(r.grid, r.point(i)))
  if not ok then return end
  if type(plan) == "string" or type(plan) == "table" or core.is_plan(plan) then
    points:judge(i, plan)
  elseif plan ~= nil then
    failf("plan() returned a %s, not a plan, a file or nil", type(plan))
  else
    points:judge(i, nil, reason_of(why))
  end
end

-- "1200 of 2880 points, 950/s; best step_ms 1234"
local function show_progress(r, shield, points, seen, start)
  while seen.n < r.asked do
    local state, row = points:row(seen.n)
    if not state then break end
    local v = state == "ok" and score_of(r, shield, seen.n, row)
    if v and not (seen.best and v >= seen.best) then seen.best = v end
    seen.n = seen.n + 1
  end
  local done, name = points:counts().judged, type(r.score) == "string" and r.score or "score"
  local seconds = math.max(core.clock() - start, 1e-3)
  core.progress(format("%d of %d points, %.0f/s%s", done, r.asked,
    (done - seen.resumed) / seconds,
    seen.best and format("; best %s %.4g", name, seen.best) or ""))
end

local function run(r, shield, points, rows)
  local start, more = core.clock(), true
  local seen = { n = 0, resumed = rows and rows.resumed or 0 }
  points:start()
  while more do
    if r.given then
      local i = points:take()
      if i then judge_given(r, shield, points, i) end
      more = i ~= nil
    else
      more = points:work(0.1)
    end
    if core.progress() then show_progress(r, shield, points, seen, start) end
    if rows then rows:add() end
  end
  points:join()
  local seconds = core.clock() - start
  if core.progress() then core.progress(nil) end
  if rows then rows:finish() end
  return seconds
end

-- ---- the result ----

local function result_of(r)
  local list = {}
  for i, b in ipairs(r.best) do list[i] = row_of(r, b.i, b.row) end
  for _, key in ipairs { "points", "judged", "legal", "illegal", "memory", "dropped",
                         "seconds", "interrupted", "reasons", "text" } do
    list[key] = r[key]
  end
  return report("result", list)
end

local function measure(r, points)
  if not r.measure or r.interrupted then return end
  if r.given then failf "measure needs a plan or a file, not a function" end
  for i = 1, math.min(r.keep or shown_measured, #r.best) do
    local b = r.best[i]
    b.row.tokens_per_s = points:measure(b.i, r.measure)
  end
end

local function row_of(b) return b.i end

-- The first rows, as many as are kept, judged exactly; those that have no room are no plans.
local function whole_rows(r, shield, points)
  if not r.bounds or r.interrupted then return end
  local list, look = {}, ahead(points, r.best, row_of, true, false)
  for i, b in ipairs(r.best) do
    if #list == r.keep then break end
    look(i)
    local state, row = points:whole(b.i)
    if not state then
      r.interrupted = true
      break
    end
    local score = state == "ok" and score_of(r, shield, b.i, row)
    if score then
      list[#list + 1] = { i = b.i, point = b.point, row = row, score = score }
    elseif state == "memory" then
      r.legal, r.memory = r.legal - 1, r.memory + 1
    end
  end
  table.sort(list, by_score)
  r.best = list
end

-- The first rows compiled whole and on the clock of weft sim; those that have its time come
-- first, by it. Ctrl-C leaves the others as they are, and so do clusters that lack a figure, which
-- have no bound either, unless all do.
local function clock_rows(r, points)
  if not r.clock or r.interrupted then return end
  if r.given then failf "clock needs a plan or a file, not a function" end
  local most = math.min(r.clock, r.keep or #r.best, #r.best)
  local timed, lacking = 0, nil
  local look = ahead(points, table.move(r.best, 1, most, 1, {}), row_of, false, true)
  for i = 1, most do
    local b = r.best[i]
    look(i)
    local sim, why = points:clock(b.i)
    if not sim and not why then
      r.interrupted = true
      break
    end
    if sim then
      b.row.clock_ms, timed = sim.seconds * 1e3, timed + 1
    elseif b.row.step_ms then
      failf("a plan that was judged does not compile: %s", why.message or why.summary)
    else
      lacking = lacking or why
    end
    if core.progress() then core.progress(format("on the clock: %d of %d rows", i, most)) end
  end
  if core.progress() then core.progress(nil) end
  if lacking and timed == 0 then failf("clock: %s", lacking.summary or lacking.message) end
  table.sort(r.best, function(a, b)
    local x, y = a.row.clock_ms or math.huge, b.row.clock_ms or math.huge
    if x ~= y then return x < y end
    return by_score(a, b)
  end)
end

-- `may_be_none`, of callers in the library: that no point is a plan is an answer, without rows, and
-- no error.
return function(o, may_be_none)
  expected(o, "table", "sweep")
  local r = read_options(o)
  r.may_be_none = may_be_none
  check_files(r)
  local shield <close> = core.shield()
  choose(r, shield)
  if r.asked == 0 then return {} end
  local sizes = {}
  for i, x in ipairs(r.grid) do sizes[i] = x.n end
  local points <close> = core.points(sizes, r.todo or r.grid.points, r.max_gib)
  local gpu = points:open(not r.given and r.plan or nil, plain_axes(r.grid), r.threads, r.bounds,
                          r.bounds or r.clock ~= nil)
  local default = r.score == nil
  if default then r.score = gpu and "step_ms" or "peak_gib" end
  check_score(r, gpu)
  local rows <close> = r.files.rows
    and file.open(r, points, key_of(r, points))
  r.points, r.resumed = r.grid.points, rows and rows.resumed or 0
  r.seconds = run(r, shield, points, rows)
  for key, v in next, points:counts() do r[key] = v end
  if r.legal == 0 and not r.interrupted and not may_be_none then
    local out = { "weft.sweep: " .. (r.asked == 1 and "the point is no plan" or format("none of the %d points is a plan", r.asked)) }
    error(table.concat(print.reasons(r, out), "\n"), 0)
  end
  if default then r.score = default_score(r, points) end
  r.best, r.dropped = rank(r, shield, points)
  whole_rows(r, shield, points)
  clock_rows(r, points)
  measure(r, points)
  local all, keep = #r.best, r.keep or #r.best
  for i = all, keep + 1, -1 do r.best[i] = nil end
  r.text = print.table(r, keep < all and keep or shown)
  local result = result_of(r)
  if r.files.csv then core.write(r.files.csv, print.csv(r)) end
  if core.wanted() then core.give(print.json(r)) end
  return result
end
