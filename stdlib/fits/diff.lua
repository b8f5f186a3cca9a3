-- diff.lua - weft diff: what differs between two plans, or a plan and the same with other
-- values: their fields, by what these come to, and what follows from them: mesh, memory by class, communication, operations, and the time of a step.
local assignments = use "fits/assignments"
local plan_facts, plan_fields, plan_means = use "plan_facts", use "plan_fields", use "plan_means"
local text = use "reports/text"
local weft = use "weft"
local shown = use "shown"

-- ---- what is compared ----

-- What the fields of a plan come to, by path; those of its model as its config.json has them.
local function meaning(plan)
  local by_path, config, mesh = plan_means(plan), plan_fields(plan).config, plan.mesh
  for _, axis in ipairs { "tp", "pp", "cp", "dp_replicate" } do by_path["mesh." .. axis] = mesh[axis] end
  local gpu = by_path["cluster.gpu.name"] -- a name alone, or a table around it
  by_path.cluster, by_path["cluster.gpu"] = gpu, gpu
  by_path["mesh.ep"], by_path["mesh.etp"] = mesh.expert.ep, mesh.expert.etp
  for key, v in next, config or {} do
    if type(v) ~= "table" then by_path["model." .. key] = tostring(math.tointeger(v) or v) end
  end
  return by_path
end

-- The rows of plan:diff but for those that say the same otherwise: a default that only one of the
-- plans writes, a name as the first item of a table.
local function differing_fields(a, b)
  local here, there, list = meaning(a), meaning(b), {}
  for _, d in ipairs(a:diff(b)) do
    local path = string.gsub(d.path, "%[1%]$", "")
    local same = here[path] ~= nil and here[path] == there[path]
    if not d.figure and not same then list[#list + 1] = d end
  end
  return list
end

-- Bytes of the classes of the rank with most memory.
local function memory(plan, into)
  local rank = plan:memory()
  for _, one in ipairs(rank) do
    if one.pp == rank.worst_pp then rank = one end
  end
  into("memory", rank.total, text.bytes)
  for _, class in ipairs(rank.classes) do into("memory: " .. class.name, class.bytes, text.bytes) end
  for _, class in ipairs(rank.host or {}) do into("memory of the host: " .. class.name, class.bytes, text.bytes) end
end

-- Messages and bytes of a step, by axis and operation.
local function communication(plan, into)
  for _, row in ipairs(plan:comm()) do
    local name = string.format("%s %s", row.axis, row.op)
    into(name .. ": count", row.count, tostring)
    into(name .. ": bytes", row.bytes, text.bytes)
  end
end

local function seconds(s)
  return s < 1 and string.format("%.4g ms", 1e3 * s) or string.format("%.4g s", s)
end

-- nil where the clock lacks figures; then why.
local function clock(plan, into)
  local ok, sim = pcall(plan.sim, plan)
  if not ok then return tostring(sim) end
  into("step, predicted", sim.seconds, seconds)
  into("tokens/s for each GPU", sim.tokens_per_s_per_gpu, text.count)
  into("MFU", sim.mfu, function(x) return string.format("%.1f %%", 100 * x) end)
end

local function ranks(plan, into) into("ranks", plan.mesh.world, tostring) end

-- Rows by name, in the order in which they are first met; and why the clock has none.
local function figures(a, b)
  local rows, why = {}, nil
  for _, measure in ipairs { ranks, memory, communication, clock } do
    for side, plan in ipairs { a, b } do
      why = measure(plan, function(name, value, show)
        if not rows[name] then
          rows[name] = { name = name, show = show }
          rows[#rows + 1] = rows[name]
        end
        rows[name][side] = value
      end) or why
    end
  end
  return rows, why
end

-- ---- the verb ----

local function load_plan(path, args, changes)
  local set = assignments(args.set)
  for field, value in next, assignments(changes) do set[field] = value end
  local plan, why = weft.load(path, { set = set, define = assignments(args.define) })
  if not plan then error(why, 0) end
  return plan
end

local function differing(rows)
  local out = {}
  for _, row in ipairs(rows) do
    if row[1] ~= row[2] then out[#out + 1] = row end
  end
  return out
end

local function told(row, side)
  return row[side] and row.show(row[side]) or "-"
end

-- "+12 %"; nothing where one of them is not there or is 0.
local function change(row)
  if not row[1] or not row[2] or row[1] == 0 then return "" end
  local by = 100 * (row[2] / row[1] - 1)
  return string.format(math.abs(by) < 10 and "%+.1f %%" or "%+.0f %%", by)
end

local function screen(fields, rows, why, tight)
  local out, same = {}, #fields == 0 and #rows == 0
  if same then out[1] = "the same" end
  for _, f in ipairs(fields) do
    out[#out + 1] = string.format("%s: %s -> %s", shown(f.path), shown(f.from or "(nothing)"),
      shown(f.to or "(nothing)"))
  end
  local cells = {}
  for i, row in ipairs(rows) do cells[i] = { row.name, told(row, 1), told(row, 2), change(row) } end
  if #cells > 0 then
    out[#out + 1] = (#fields > 0 and "\n" or "")
      .. text.columns({ "what follows, of the rank with most", "from", "to", "" }, cells)
  end
  if why and not same then out[#out + 1] = "time is not compared: " .. why end
  for _, line in ipairs(tight) do out[#out + 1] = line end
  return table.concat(out, "\n") .. "\n"
end

-- Whether a plan fits its GPUs, nil where it names none; adds a line if it does not.
local function fits(plan, path, lines)
  local room, total = plan_facts(plan).room, 0
  if not room then return nil end
  for _, rank in ipairs(plan:memory()) do total = math.max(total, rank.total) end
  if total > room then
    lines[#lines + 1] = string.format("%s does not fit its GPUs: %s too much on the worst rank", shown(path),
                                      text.bytes(total - room))
  end
  return total <= room
end

-- The second plan: a file, or the first one again, and the changes of it.
local function second(args)
  local path, changes = nil, {}
  for _, word in ipairs(args.words) do
    if assignments.is(word) then
      changes[#changes + 1] = word
    elseif path then
      fail("diff takes two plans, got a third: " .. shown(word))
    else
      path = word
    end
  end
  if not path and #changes == 0 then
    fail "diff takes two plans, or one and a change of it: weft diff A.lua mesh.tp=4"
  end
  path = path or args.file
  return load_plan(path, args, changes), table.concat({ path, table.unpack(changes) }, " ")
end

return function(args)
  local a = load_plan(args.file, args, {})
  local b, b_name = second(args)
  local fields, json = differing_fields(a, b), { fields = {}, figures = {} }
  for i, d in ipairs(fields) do json.fields[i] = { path = d.path, from = d.from, to = d.to } end
  local all, why = figures(a, b)
  local rows = differing(all)
  for i, row in ipairs(rows) do json.figures[i] = { name = row.name, from = row[1], to = row[2] } end
  local tight = {}
  json.from_fits, json.to_fits = fits(a, args.file, tight), fits(b, b_name, tight)
  json.unknown = why
  json.same = #fields == 0 and #rows == 0
  return { ok = json.same, text = screen(fields, rows, why, tight), json = json }
end
