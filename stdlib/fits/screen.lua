-- screen.lua - what fits.lua has found, as one screen and as JSON.
local quote = use "import/quote"
local shown = use "shown"
local text = use "reports/text"
local screen = {}

local size = text.bytes
local shown_classes, shown_warnings, shown_settings = 5, 5, 5

-- ---- the screen ----

-- What became of it, in a few words.
function screen.verdict(r)
  local says = {
    refused = "cannot be imported", wrong = "is no plan that can run",
    fits = r.facts and string.format("fits, %s to spare", size(r.facts.room - r.rank.total)),
    tight = r.beyond and string.format("fits with %s to spare, but with what CUDA and NCCL take besides it is %s too much",
      size(r.facts.room - r.rank.total), size(r.beyond)),
    too_large = r.facts and string.format("does not fit: %s too much", size(r.rank.total - r.facts.room)),
  }
  return says[r.verdict]
end

local function head(r)
  local system = r.made and " (" .. r.made.json.system .. ")" or ""
  return string.format("%s%s: %s", shown(r.file), system, screen.verdict(r))
end

local function classes(rank)
  local parts, rest = {}, 0
  for i, class in ipairs(rank.classes) do
    if i <= shown_classes then
      parts[i] = class.name .. " " .. size(class.bytes)
    else
      rest = rest + class.bytes
    end
  end
  if rest > 0 then parts[#parts + 1] = "others " .. size(rest) end
  return table.concat(parts, ", ")
end

local function add_figures(out, r)
  local f, say = r.facts, function(name, ...) out[#out + 1] = string.format("  %-9s" .. ..., name, select(2, ...)) end
  say("model", "%s, %s parameters", f.model or "a function of the plan", text.count(f.parameters))
  say("mesh", "%s%s", f.world > 1 and string.format("%s, %d ranks", f.mesh, f.world) or f.mesh,
      f.open_world and " (the smallest world; none is stated)" or "")
  say("step", "%s of %s in %s, %s", text.plural(f.global, "sequence"), text.plural(f.seq, "token"),
      text.plural(f.microbatches, "microbatch"), f.schedule)
  say("memory", "%s of %s on the worst rank (pipeline rank %d)", size(r.rank.total), size(f.room), r.rank.pp)
  say("", "%s", classes(r.rank))
  say("GPU", "%s less %.15g GiB%s", f.gpu, f.reserve_gib,
      r.assumed_gpu and "; assumed, --gpu NAME says another" or "")
  say("proof", "no deadlock: %s and %s on %s", text.plural(f.proof.transfers, "transfer"),
      text.plural(f.proof.collectives, "collective"), text.plural(f.proof.communicators, "communicator"))
  say("bubble", "%.1f %% of the pipeline's time, if every action took a unit", r.bubble * 100)
end

local function by_what(list)
  local groups, at = {}, {}
  for _, one in ipairs(list) do
    if not at[one.what] then
      at[one.what] = {}
      groups[#groups + 1] = at[one.what]
    end
    table.insert(at[one.what], one)
  end
  return groups
end

-- Settings that are not in the plan, by what they would change.
local function add_settings(out, r)
  local json = r.made and r.made.json
  if not json then return end
  out[#out + 1] = string.format("  settings %d translated, %d without effect here, %d not expressible, %d assumed",
                                #json.translated, #json.no_effect, #json.not_expressible, #json.assumed)
  for _, one in ipairs(json.assumed) do
    if one.what == "mesh.world" or one.what == "settings" then out[#out + 1] = "           assumed " .. one.text end
  end
  local groups = by_what(json.not_expressible)
  for i, group in ipairs(groups) do
    if i > shown_settings then
      out[#out + 1] = string.format("           and %d more: weft import says all", #groups - shown_settings)
      break
    end
    local one, others = group[1], #group > 1 and string.format(" and %d more", #group - 1) or ""
    out[#out + 1] = string.format("           %s: %s = %s%s: %s", one.place, one.key, one.value, others, one.what)
  end
end

function screen.place(one)
  if one.from then return one.from .. ": " end
  if one.file then
    return one.line and string.format("%s:%d: ", shown(one.file), one.line) or shown(one.file) .. ": "
  end
  return one.place and one.place .. ": " or ""
end

-- As weft check has them.
function screen.path(one)
  if not one.path or one.path == "" then return "" end
  return (string.find(one.path, "^%[") and "plan" or "plan.") .. shown(one.path) .. ": "
end

function screen.suggested(text)
  if not text then return "" end
  local word = string.find(text, "^[%w_.-]+$")
  return string.format(word and " (did you mean \"%s\"?)" or " (%s)", shown(text))
end

function screen.code(one) return one.code and string.format(" [%s]", one.code) or "" end

-- A reason as weft check prints it; `what`: if it has no severity.
function screen.reason(one, what)
  return string.format("%s%s: %s%s%s%s", screen.place(one), one.severity or what, screen.path(one),
                       one.message or one.text, screen.suggested(one.suggestion), screen.code(one))
end

local function add_reasons(out, list, what, most)
  for i, one in ipairs(list) do
    if i > most then
      out[#out + 1] = string.format("and %d more", #list - most)
      break
    end
    out[#out + 1] = screen.reason(one, what)
  end
end

-- "mesh.tp 3 -> 4, mesh.pp 1 -> 2"
function screen.changes(layout)
  local parts = {}
  for i, one in ipairs(layout.changes) do
    parts[i] = string.format("%s %s -> %s", one.path, quote.shown(one.from), quote.shown(one.to))
  end
  return #parts > 0 and table.concat(parts, ", ") or "the same layout"
end

function screen.no_layout(r)
  if r.interrupted then return "the search for layouts that fit was interrupted" end
  return "none of the near layouts fits, of these ranks and of up to 64 times as many"
    .. (r.facts and "; weft best searches all layouts of these ranks" or "")
end

local function add_nearest(out, r)
  if not r.nearest then return end
  local found = r.nearest
  if #found == 0 then
    out[#out + 1] = screen.no_layout(r)
    return
  end
  local same, ranks = found[1].world == r.world, text.plural(r.world, "rank")
  out[#out + 1] = same and string.format("nearest layouts of %s that fit:", ranks)
    or string.format("no near layout of %s fits; of %d these do:", ranks, found[1].world)
  for _, one in ipairs(found) do
    out[#out + 1] = string.format("  %-40s %s, bubble %.1f %%", screen.changes(one), size(one.peak), one.bubble * 100)
  end
end

-- The memory of the GPUs has a line of its own.
function screen.warnings(list)
  local others = {}
  for _, one in ipairs(list) do
    if one.code ~= "memory" then others[#others + 1] = one end
  end
  return others
end

function screen.text(r)
  local out = { head(r) }
  if r.facts then add_figures(out, r) end
  add_settings(out, r)
  if r.errors then add_reasons(out, r.errors, "error", 20) end
  if r.facts then add_reasons(out, screen.warnings(r.facts.warnings), "warning", shown_warnings) end
  add_nearest(out, r)
  return table.concat(out, "\n") .. "\n"
end

-- ---- JSON ----

local function reasons_json(list)
  local out = {}
  for i, one in ipairs(list) do
    out[i] = { code = one.code, message = one.message or one.text, path = one.path or one.key,
               place = one.from or one.place, file = one.file, line = one.line, severity = one.severity,
               suggestion = one.suggestion }
  end
  return out
end

function screen.json(r)
  local f = r.facts
  local out = { file = shown(r.file), verdict = r.verdict, fits = r.verdict == "fits" or r.verdict == "tight",
                errors = reasons_json(r.errors or {}) }
  if r.made then
    local json = r.made.json
    out.settings = { system = json.system, translated = #json.translated, no_effect = #json.no_effect,
                     not_expressible = json.not_expressible, assumed = json.assumed }
  end
  out.nearest, out.interrupted = {}, r.interrupted or nil
  for i, one in ipairs(r.nearest or {}) do
    out.nearest[i] = { changes = one.changes, world = one.world, peak_bytes = one.peak,
                       bubble = one.bubble, step_ms = one.step_ms }
  end
  if not f then return out end
  out.gpu = { name = f.gpu, assumed = r.assumed_gpu ~= nil, room_bytes = f.room }
  out.memory = { worst_bytes = r.rank.total, pipeline_rank = r.rank.pp, free_bytes = f.room - r.rank.total,
                 classes = {} }
  for i, c in ipairs(r.rank.classes) do out.memory.classes[i] = { name = c.name, bytes = c.bytes } end
  out.mesh, out.world, out.parameters = f.mesh, f.world, f.parameters
  out.proof, out.bubble = f.proof, r.bubble
  out.warnings = reasons_json(screen.warnings(f.warnings))
  return out
end

return screen
