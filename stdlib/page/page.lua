-- page.lua - weft report --html: what fits.lua has found of a plan, as one file that a colleague
-- can open who has nothing installed. It asks for nothing from anywhere: style and pictures
-- are in it, and it has no script.
local html, sections, source = use "page/html", use "page/sections", use "page/source"
local plan_picture, screen, style = use "plan_picture", use "fits/screen", use "page/style"
local text, weft = use "reports/text", use "weft"
local el, format = html.el, string.format

local CSP = "default-src 'none'; style-src 'unsafe-inline'"

-- ---- the head ----

-- A number and its unit stay on one line: "21.4 k collectives".
local function figure(name, value, more)
  more = more and string.gsub(more, "(%d) ([kMBT]) ", "%1\u{a0}%2 ")
  return el("div", nil, el("dt", nil, name), el("dd", nil, value, more and el("small", nil, more)))
end

local function time_figures(sim)
  if not sim then return nil end
  return { figure("step, predicted", sim.seconds >= 1 and format("%.3g s", sim.seconds)
             or format("%.4g ms", 1e3 * sim.seconds), format("%.3g to %.3g s", sim.low, sim.high)),
           figure("tokens/s for each GPU", text.count(sim.tokens_per_s_per_gpu)),
           figure("MFU", format("%.1f %%", 100 * sim.mfu), format("HFU %.1f %%", 100 * sim.hfu)) }
end

local function figures(r, d)
  local f = r.facts
  if not f then return nil end
  return el("dl", { class = "figures" },
    figure("model", text.count(f.parameters), f.model or "a function of the plan"),
    figure("ranks", f.world, f.mesh),
    figure("memory of the worst rank", text.bytes(r.rank.total), "of " .. text.bytes(f.room)),
    figure("GPU", f.gpu, r.assumed_gpu and "assumed: the plan names none" or format("less %.15g GiB", f.reserve_gib)),
    figure("step", format("%s tokens", text.count(f.global * f.seq)),
      format("%s of %d, %s", text.plural(f.global, "sequence"), f.seq, text.plural(f.microbatches, "microbatch"))),
    time_figures(d.sim),
    figure("bubble", format("%.1f %%", 100 * r.bubble), f.schedule .. ", if every action took a unit"),
    figure("deadlock", "none: proven", format("%s transfers, %s collectives", text.count(f.proof.transfers),
      text.count(f.proof.collectives))))
end

local function header(r, d, args)
  local file, changed = r.file, table.concat(args.set, " ")
  for _, word in ipairs(args.words) do changed = changed .. (changed == "" and "" or " ") .. word end
  return el("header", nil,
    el("p", { class = "eyebrow" }, file, r.made and " (" .. r.made.json.system .. ")",
      changed ~= "" and " with " .. changed),
    el("h1", nil, r.facts and r.facts.name or file),
    el("p", { class = "verdict " .. r.verdict }, screen.verdict(r)),
    figures(r, d))
end

-- ---- what is wrong, and what would be right ----

local function reason(one, lines)
  local own = one.line and not one.from and one.line <= lines
  local place = screen.place(one)
  local severity = one.severity == "warning" and "warning" or "error"
  return el("li", { class = severity }, el("strong", nil, severity),
    own and el("a", { href = "#L" .. one.line }, "line " .. one.line) or place ~= "" and el("code", nil, place),
    " ", el("code", nil, (string.gsub(screen.path(one), ": $", ""))), " ", el("span", nil, one.message or one.text, screen.suggested(one.suggestion),
      screen.code(one)))
end

local function reasons(r, lines)
  local list, items = {}, {}
  for _, one in ipairs(r.errors or {}) do list[#list + 1] = one end
  for _, one in ipairs(r.facts and screen.warnings(r.facts.warnings) or {}) do list[#list + 1] = one end
  for i, one in ipairs(list) do items[i] = reason(one, lines) end
  if #items == 0 then return nil end
  return html.section("said", r.errors and "What is wrong" or "Warnings", el("ul", { class = "reasons" }, items))
end

local function nearest(r)
  if not r.nearest then return nil end
  if #r.nearest == 0 then
    return html.section("nearest", "Layouts that fit",
      el("p", nil, (string.gsub(screen.no_layout(r), "^%l", string.upper)), "."))
  end
  local rows = {}
  for i, one in ipairs(r.nearest) do
    rows[i] = { screen.changes(one), one.world, text.bytes(one.peak), format("%.1f %%", 100 * one.bubble) }
  end
  return html.section("nearest", "Layouts that fit",
    html.table("Those that change least", { { "change", "w" }, "ranks", "memory", "bubble" }, rows))
end

local function settings(r)
  local json = r.made and r.made.json
  if not json or not json.translated then return nil end
  local rows = {}
  for i, one in ipairs(json.not_expressible) do
    rows[i] = { one.place, one.key .. " = " .. one.value, one.what }
  end
  return html.section("settings", "Settings of " .. json.system,
    el("p", nil, format("%d translated, %d without effect here, %d not expressible, %d assumed.", #json.translated,
      #json.no_effect, #json.not_expressible, #json.assumed)),
    #rows > 0 and html.table("Not in the plan that is judged", { { "place", "w" }, { "setting", "w" }, { "what it is", "w" } },
      rows))
end

-- ---- the page ----

-- By line of the plan's file, the worst that is said of it.
local function marks_of(r)
  local marks = {}
  for _, list in ipairs { r.facts and r.facts.warnings or {}, r.errors or {} } do
    for _, one in ipairs(list) do
      if one.line and not one.from then
        marks[one.line] = (one.severity == "warning" and marks[one.line] ~= "error") and "warning" or "error"
      end
    end
  end
  return marks
end

local function gather(plan)
  local d = { plan = plan, memory = plan:memory(), schedule = plan:schedule(), comm = plan:comm() }
  local ok, sim = pcall(plan.sim, plan)
  if ok then d.sim = sim else d.no_sim = tostring(sim) end
  d.picture = plan_picture(plan, ok)
  d.by_clock = ok
  return d
end

local function navigation(main)
  local items = {}
  for _, s in ipairs(main) do
    if s then items[#items + 1] = el("li", nil, el("a", { href = "#" .. s.attributes.id }, s[1][1])) end
  end
  return el("nav", { ["aria-label"] = "Sections" }, el("ul", nil, items))
end

-- `r`: as fits.lua makes it; `document`: the text of the plan, nil: there is none.
return function(r, args, document)
  local d = r.facts and gather(r.plan) or {}
  d.facts = r.facts
  local listing, lines = nil, 0
  if document then listing, lines = source(document, marks_of(r)) end
  local main = {}
  local function add(s) if s then main[#main + 1] = s end end
  add(reasons(r, lines))
  add(nearest(r))
  for _, name in ipairs(r.facts and { "memory", "time", "schedule", "communication", "mesh" } or {}) do
    add(sections[name](d))
  end
  add(settings(r))
  if listing then
    add(html.section("plan", r.made and "The plan that was made of it" or "The plan",
      el("div", { class = "source" }, listing)))
  end
  return "<!DOCTYPE html>\n" .. html.text(el("html", { lang = "en" },
    el("head", nil, el("meta", { charset = "utf-8" }),
      el("meta", { ["http-equiv"] = "Content-Security-Policy", content = CSP }),
      el("meta", { name = "viewport", content = "width=device-width, initial-scale=1" }),
      el("title", nil, (r.facts and r.facts.name or r.file) .. ": " .. screen.verdict(r)),
      el("style", nil, html.markup(style))),
    html.newline, el("body", nil, el("a", { class = "skip", href = "#main" }, "To the report"),
      header(r, d, args), navigation(main), el("main", { id = "main" }, main),
      el("footer", nil, el("p", nil, "weft " .. weft.version .. ": weft report --html. Bytes, schedule and "
        .. "communication are those of the compiled programs; time is by the data sheet of the GPU."))), html.newline))
end
