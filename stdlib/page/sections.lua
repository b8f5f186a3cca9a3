-- sections.lua - what is known of a plan, a section for each: mesh and stages, memory, time,
-- schedule, communication. Every picture has its figures in a table beside it.
local html, text, longest = use "page/html", use "reports/text", use "reports/waits"
local el, format = html.el, string.format
local sections = {}

local COLOURS = 7 -- of classes that have one of their own; others share the last
local PICTURE_MOST = 300 * 1024
local WAITS = 8

local function colour(i) return "k" .. math.min(i - 1, COLOURS) end

local function percent(x) return format("%.1f %%", 100 * x) end

-- Rows of consecutive ranks that have the same figures, as one: "1–14".
local function merged(rows)
  local out = {}
  local function alike(a, b)
    for i = 2, #a do
      if type(a[i]) ~= "table" and a[i] ~= b[i] then return false end
    end
    return a.class == b.class
  end
  for _, row in ipairs(rows) do
    local last = out[#out]
    if last and alike(last.row, row) then last.to = row[1] else
      out[#out + 1] = { row = row, from = row[1], to = row[1] }
    end
  end
  for i, one in ipairs(out) do
    if one.to ~= one.from then one.row[1] = one.from .. "–" .. one.to end
    out[i] = one.row
  end
  return out
end

-- ---- mesh and stages ----

local function axes(mesh)
  local rows = {}
  for _, axis in ipairs(mesh.axes) do
    if mesh[axis] > 1 then
      local group = mesh:group(axis, 0)
      rows[#rows + 1] = { axis == "dp_shard" and mesh.dp_replicate == 1 and "dp" or axis, #group,
                          group[2] - group[1], group.nodes, text.list(group, 8) }
    end
  end
  return rows
end

local function stages(plan)
  local rows, most = {}, 0
  local list = plan:stages()
  for _, s in ipairs(list) do most = math.max(most, s.share) end
  for i, s in ipairs(list) do
    rows[i] = { s.stage, s.pp, s.chunk, s.layers, text.count(s.parameters),
                html.bar { { most > 0 and s.share / most or 0, "k0" } }, percent(s.share) }
  end
  return rows
end

function sections.mesh(d)
  local mesh, rows = d.plan.mesh, axes(d.plan.mesh)
  local axis = #rows > 0 and html.table("Axes of the mesh, the slowest first",
    { { "axis", "w" }, "size", "stride", "nodes of a group", { "ranks of the first group", "w" } }, rows)
  return html.section("mesh", "Mesh",
    el("p", nil, format("%s on %s of %d: %s.", text.plural(#mesh, "rank"),
      text.plural(mesh.nodes, "node"), mesh.gpus, d.facts.mesh)),
    axis,
    html.table("Stages of the pipeline",
      { "stage", "pp rank", "chunk", "layers", "parameters", { "work", "wide" }, "share" }, stages(d.plan)))
end

-- ---- memory ----

-- Names of classes, those with most bytes on any rank first.
local function classes_of(memory)
  local most, names = {}, {}
  for _, m in ipairs(memory) do
    for _, c in ipairs(m.classes) do
      if not most[c.name] then names[#names + 1] = c.name end
      most[c.name] = math.max(most[c.name] or 0, c.bytes)
    end
  end
  table.sort(names, function(a, b)
    if most[a] ~= most[b] then return most[a] > most[b] end
    return a < b
  end)
  return names
end

local function by_name(list)
  local bytes = {}
  for _, c in ipairs(list) do bytes[c.name] = (bytes[c.name] or 0) + c.bytes end
  return bytes
end

local function sum(list)
  local n = 0
  for _, c in ipairs(list) do n = n + (c.bytes or 0) end
  return n
end

local function memory_row(m, names, scale, room)
  local bytes, shares = by_name(m.classes), {}
  local row = { m.pp, false, text.bytes(m.total) }
  for i, name in ipairs(names) do
    shares[i] = { (bytes[name] or 0) / scale, colour(i), name }
    row[#row + 1] = bytes[name] and text.bytes(bytes[name]) or "–"
  end
  row[2] = html.bar(shares, room and room / scale)
  row[#row + 1] = text.bytes(sum(m.outside))
  if m.host then row[#row + 1] = text.bytes(sum(m.host)) end
  return row
end

function sections.memory(d)
  local memory, room = d.memory, d.facts.room
  local names, scale, rows, legend = classes_of(memory), math.max(memory.peak, room or 0), {}, {}
  local heads = { "pp rank", { room and "beside " .. text.bytes(room) or "arena", "wide" }, "arena" }
  for i, name in ipairs(names) do
    heads[#heads + 1] = name
    if i <= COLOURS + 1 then legend[i] = { colour(i), i <= COLOURS and name or "others" } end
  end
  heads[#heads + 1] = "outside"
  if memory[1].host then heads[#heads + 1] = "host" end
  for i, m in ipairs(memory) do
    rows[i] = memory_row(m, names, scale, room)
    if #memory > 1 and m.pp == memory.worst_pp then rows[i].class = "most" end
  end
  return html.section("memory", "Memory",
    html.note("Bytes that a run allocates, exactly. The arena of a rank is allocated once; ranks that ",
      "differ only in tp, cp or dp have the same."),
    html.legend(legend),
    html.table("Memory of each rank, by pipeline rank and class", heads, merged(rows)))
end

-- ---- time ----

local KERNELS = { "products", "expert products", "attention", "attention backward", "memory", "optimizer" }
local EXPOSED = { "tp", "cp", "ep", "dp", "pp" }

-- The kinds of time that some rank has, each with its place in a rank's figures.
local function kinds_of(sim)
  local kinds = {}
  local function add(key, name, label)
    for _, r in ipairs(sim.pipeline) do
      if (r[key][name] or 0) > sim.seconds / 1e4 then
        kinds[#kinds + 1] = { key = key, name = name, label = label }
        return
      end
    end
  end
  for _, name in ipairs(KERNELS) do add("kernels", name, name) end
  for _, name in ipairs(EXPOSED) do add("exposed", name, "exposed " .. name) end
  return kinds
end

local function span(s)
  if s >= 1 then return format("%.3g s", s) end
  return s >= 1e-3 and format("%.3g ms", 1e3 * s) or format("%.3g µs", 1e6 * s)
end

local function waits(sim)
  local rows = {}
  for i, w in ipairs(longest(sim, WAITS)) do
    rows[i] = { w.field, w.where, w.pp, w.count, span(w.seconds), percent(w.seconds / sim.seconds) }
  end
  return #rows > 0 and html.table("The longest waits for transfers",
    { { "field", "w" }, { "where", "w" }, "pp rank", "times", "time", "of the step" }, rows)
end

function sections.time(d)
  local sim = d.sim
  if not sim then
    return html.section("time", "Time", html.note("Not predicted: ", d.no_sim))
  end
  local kinds, rows, heads, legend = kinds_of(sim), {}, { "pp rank", { "of the step", "wide" } }, {}
  for i, k in ipairs(kinds) do
    heads[#heads + 1], legend[i] = k.label, { colour(i), k.label }
  end
  heads[#heads + 1], legend[#legend + 1] = "bubble", { "idle", "bubble" }
  for i, r in ipairs(sim.pipeline) do
    local shares, row = {}, { r.pp, false }
    for n, k in ipairs(kinds) do
      local share = (r[k.key][k.name] or 0) / sim.seconds
      shares[n] = { share, colour(n), k.label }
      row[#row + 1] = percent(share)
    end
    shares[#shares + 1] = { r.bubble / sim.seconds, "idle", "bubble" }
    row[2], row[#row + 1] = html.bar(shares), percent(r.bubble / sim.seconds)
    rows[i] = row
  end
  return html.section("time", "Time",
    html.note(format("A step takes %s on the clock, between %s and %s: by data sheets, nothing was measured.",
      span(sim.seconds), span(sim.low), span(sim.high))),
    html.legend(legend),
    html.table("Where each pipeline rank spends a step", heads, merged(rows)), waits(sim))
end

-- ---- schedule ----

function sections.schedule(d)
  local s, picture = d.schedule, d.picture
  local said = format("%s: %s, %s%s; bubble %s if every action took a unit of time.", s.name,
    text.plural(s.ranks, "pipeline rank"), text.plural(s.microbatches, "microbatch"),
    s.virtual > 1 and format(", %d chunks of each rank", s.virtual) or "", percent(s.bubble))
  local drawn = #picture <= PICTURE_MOST and html.scrolling("Timeline of the schedule",
      el("div", { class = "picture" }, html.markup(picture)))
    or html.note("It has too many actions for a picture in a page; weft show PLAN schedule --svg FILE draws it.")
  local rows = {}
  for i, r in ipairs(s) do rows[i] = { r.pp, #r, r.peak } end
  return html.section("schedule", "Schedule",
    el("p", nil, said),
    html.note(d.by_clock and "One pipeline, each action when the clock runs it, from its first kernel to its last."
      or "One pipeline; every action takes a unit of time, transfers take none."),
    drawn, el("details", nil, el("summary", nil, "Figures of each pipeline rank"),
      html.table("Actions of a step, and most chunks whose activations are held", { "pp rank", "actions", "peak chunks" },
        merged(rows))))
end

-- ---- communication ----

function sections.communication(d)
  local rows, most = {}, 0
  for _, r in ipairs(d.comm) do most = math.max(most, r.bytes) end
  if #d.comm == 0 then return html.section("communication", "Communication", el("p", nil, "None: one rank.")) end
  for i, r in ipairs(d.comm) do
    rows[i] = { r.axis, r.op, r.link, r.count, (r.at_most and "at most " or "") .. text.bytes(r.bytes),
                html.bar { { most > 0 and r.bytes / most or 0, r.link == "node" and "k1" or "k4", r.link } } }
  end
  return html.section("communication", "Communication",
    html.note("Of the rank with most, each step; within a machine, or over the network."),
    html.legend { { "k1", "node" }, { "k4", "network" } },
    html.table("Communication by axis and operation",
      { { "axis", "w" }, { "operation", "w" }, { "link", "w" }, "count", "bytes", { "bytes beside each other", "wide" } },
      rows))
end

return sections
