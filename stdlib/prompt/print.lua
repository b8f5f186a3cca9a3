-- print.lua - values as the prompt shows them. A table is first tried on one line; what
-- does not fit is written again over several. The output is capped in depth, in items of
-- each table and in items over all. __tostring is the only metamethod that is called.
local names = use "prompt/names"
local byte, find, format, gsub, match, rep, sub = string.byte, string.find, string.format,
  string.gsub, string.match, string.rep, string.sub

local items_over_all, text_shown = 1000, 200
local colours =
  { text = "\27[32m", number = "\27[36m", word = "\27[35m", thing = "\27[33m" }
local sorted = { string = true, number = true, boolean = true } -- keys that have an order

-- ---- texts ----

local escapes =
  { ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r", ['"'] = '\\"', ["\\"] = "\\\\" }

local function escape(c)
  return (gsub(c, ".", function(b) return escapes[b] or format("\\%03d", byte(b)) end))
end

-- Controls beyond ASCII, and what changes how a line looks without a look of its own.
local hidden = { "\xc2[\x80-\x9f\xad]", "\xd8\x9c", "\xe2\x80[\x8b-\x8f\xa8-\xae]",
  "\xe2\x81[\xa0-\xaf]", "\xef\xbb\xbf", "\xef\xbf[\xb9-\xbb]",
  "\xf3\xa0[\x80\x81][\x80-\xbf]" }

-- As Lua writes it, in quotes. Bytes that are no UTF-8 are escaped.
local function quote(s)
  s = gsub(s, '[\0-\31\127"\\]', escape)
  local n, bad = utf8.len(s)
  while bad do
    s = sub(s, 1, bad - 1) .. escape(sub(s, bad, bad)) .. sub(s, bad + 1)
    n, bad = utf8.len(s, bad)
  end
  for _, set in ipairs(hidden) do s = gsub(s, set, escape) end
  return '"' .. s .. '"'
end

-- The first bytes of a text, no character cut in two.
local function head(s)
  local n = #s > text_shown and text_shown or #s
  while n < #s and n > 0 and find(s, "^[\x80-\xbf]", n + 1) do n = n - 1 end
  return sub(s, 1, n), #s - n
end

local function columns(s) return #s - select(2, gsub(s, "[\x80-\xbf]", "")) end

-- What __tostring says; nil without one.
local function own_text(v)
  if names.meta(v, "__tostring") == nil then return nil end
  local ok, s = pcall(tostring, v)
  if ok then return s end
  local why = (type(s) == "string" or type(s) == "number") and s or "?"
  return "<its __tostring fails: " .. why .. ">"
end

local function function_text(f)
  local place, known = origin(f)
  if place then return "function (" .. place .. ")" end
  if known then return "function " .. known end
  local i = debug.getinfo(f, "S")
  if i.what == "C" then return "function (built in)" end
  return format("function (%s:%d)", i.short_src, i.linedefined)
end

-- The keys beside 1 to `listed`: sorted, then those that have no order as they come.
local function pair_keys(t, listed)
  local ordered, others = {}, {}
  for k in next, t do
    local item = math.type(k) == "integer" and k >= 1 and k <= listed
    if sorted[type(k)] and not item then ordered[k] = true end
    if not sorted[type(k)] then others[#others + 1] = k end
  end
  local all = keys(ordered)
  return table.move(others, 1, #others, #all + 1, all)
end

-- ---- the printer ----

-- The value as text. o.depth: tables inside tables that are opened; o.items: of one table;
-- o.lines: of an object's own text; o.width: columns of the screen; o.colour.
return function(value, o)
  local out, n, column, left = {}, 0, 0, items_over_all
  local flat, wide = false, false -- flat: on one line; wide: that does not fit
  local above, depth = {}, 0      -- the tables around
  local write

  local function put(s, style)
    n, column = n + 1, column + columns(s)
    out[n] = style and o.colour and colours[style] .. s .. "\27[0m" or s
    wide = wide or column > o.width
  end

  -- Does `attempt` once more, after `change`, if it left the line too wide.
  local function retry(attempt, too_wide, change)
    local before, at, rest = n, column, left
    attempt()
    if not too_wide() then return end
    n, column, left = before, at, rest
    change()
    attempt()
  end

  -- Where one item ends and the next begins. Items of a list fill the lines as words do.
  local function separate(first, own_line, indent)
    if not first then put "," end
    if flat or not (own_line or first) then return put " " end
    put("\n" .. rep(" ", indent))
    column = indent
  end

  -- An item that began in the middle of a line and does not fit moves to the next one.
  local function list_item(v, first, indent)
    local own_line = type(v) == "table"
    retry(function()
      separate(first, own_line, indent)
      write(v, indent)
    end, function()
      return not flat and not own_line and not first and column + 1 > o.width
    end, function() own_line = true end)
  end

  local function pair(t, k, first, indent)
    separate(first, true, indent)
    if names.is_name(k) then
      put(k .. " = ")
    else
      put "["
      -- Opened as a key, a table would read as a value.
      if type(k) == "table" then put("table", "thing") else write(k, indent) end
      put "] = "
    end
    write(rawget(t, k), indent)
  end

  local function items(t, listed, others, indent)
    local all, shown = listed + #others, 0
    put "{"
    while shown < all and shown < o.items and left > 0 do
      local first = shown == 0
      if shown < listed then
        list_item(rawget(t, shown + 1), first, indent + 2)
      else
        pair(t, others[shown - listed + 1], first, indent + 2)
      end
      if flat and wide then return end
      shown, left = shown + 1, left - 1
    end
    if shown < all then
      separate(shown == 0, false, indent + 2)
      put(format("... %d more", all - shown))
    end
    if flat then put " " else put("\n" .. rep(" ", indent)) column = indent end
    put "}"
  end

  local function open_table(t, indent)
    for i = 1, depth do
      if above[i] == t then return put("<the table around>", "thing") end
    end
    if next(t) == nil then return put "{}" end
    if depth >= o.depth then return put "{ ... }" end
    local listed = rawlen(t)
    local others, outside = pair_keys(t, listed), flat
    depth = depth + 1
    above[depth], flat = t, true
    if not outside then wide = false end
    retry(function() items(t, listed, others, indent) end,
      function() return wide and not outside end,
      function() flat, wide = false, false end)
    depth, flat = depth - 1, outside
  end

  -- A text of several lines is whole only where it does not stand among other things; a
  -- long one loses its end: a program has thousands of lines.
  local function thing(s)
    local line = match(s, "^[^\n]*")
    if depth > 0 then
      put(line, "thing")
      if #line < #s then put " ..." end
      return
    end
    local _, lines = gsub(s, "\n", "")
    if lines < o.lines then return put(s) end
    local cut = 0
    for _ = 1, o.lines - 1 do cut = find(s, "\n", cut + 1, true) end
    put(sub(s, 1, cut - 1))
    put(format("\n... %d more lines; print(_) shows all", lines - o.lines + 2))
  end

  function write(v, indent)
    local kind = type(v)
    local own = (kind == "table" or kind == "userdata") and own_text(v)
    if own then return thing(own) end
    if kind == "table" then return open_table(v, indent) end
    if kind == "function" then return put(function_text(v), "thing") end
    if kind == "string" and depth == 0 then return put(v) end
    if kind == "string" then
      local s, rest = head(v)
      put(quote(s), "text")
      return rest > 0 and put(format("... %d more bytes", rest))
    end
    if kind == "number" then return put(v .. "", "number") end
    if kind == "nil" or kind == "boolean" then return put(v and "true" or v == nil and
      "nil" or "false", "word") end
    -- Without its address, which differs from run to run.
    local name = names.meta(v, "__name")
    put(type(name) == "string" and name or kind, "thing")
  end

  write(value, 0)
  return table.concat(out, "", 1, n)
end
