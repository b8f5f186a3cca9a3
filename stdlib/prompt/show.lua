-- show.lua - what the prompt says after a line: its values, or what went wrong.
local host, print, say = use "prompt/host", use "prompt/print", use "prompt/say"
local find, format, gsub = string.find, string.format, string.gsub

local show, warned = {}, false -- warned: that locals end with their chunk

local function options()
  return { depth = 4, items = 30, lines = 100, width = host.width(), colour = host.colour }
end

-- Values beside each other if that fits, else one below the other.
local function write(...)
  local o, parts = options(), {}
  for i = 1, select("#", ...) do parts[i] = print((select(i, ...)), o) end
  local row = table.concat(parts, "\t")
  local fits = #parts == 1 or (not find(row, "\n", 1, true) and #row < o.width)
  say.line(fits and row or table.concat(parts, "\n"))
end

-- After a chunk that went well: its values, the first of which is kept as `_`.
function show.values(chunk, ...)
  if select("#", ...) > 0 then
    rawset(host.globals, "_", (...))
    if not find(chunk, ";%s*$") then write(...) end
  end
  if not warned and find(chunk, "^%s*local%s") then
    warned = true
    say.note "a local ends with its line; without the word it stays"
  end
end

-- A hint for a name that is not there: the nearest global. Names of three letters are near
-- to too many others.
local function with_hint(text)
  return gsub(text, "(a nil value %(global '([^'\n]+)'%))", function(all, name)
    local globals = {}
    for k in next, host.globals do
      if type(k) == "string" then globals[#globals + 1] = k end
    end
    table.sort(globals)
    local near = #name > 3 and suggest(name, globals)
    return near and format("%s (did you mean '%s'?)", all, near) or all
  end, 1)
end

-- What was raised. The reasons of weft have their own form; places in a chunk of one line
-- say nothing.
function show.failure(why, one_line)
  local own = type(why) ~= "string" and (use "prompt/names").meta(why, "__tostring") ~= nil
  local text = type(why) == "string" and with_hint(why) or print(why, options())
  if one_line then text = gsub(text, "^stdin:1: ", "") end
  if own then say.reasons(text) else say.error((gsub(text, "\n$", ""))) end
end

return show
