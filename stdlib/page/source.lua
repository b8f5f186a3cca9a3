-- source.lua - the text of a plan with the numbers of its lines; lines that something is said
-- of are marked, comments, strings, numbers and keywords are coloured.
local html = use "page/html"
local el = html.el

local words = {}
for word in string.gmatch([[and break do else elseif end false for function goto if in local nil
  not or repeat return then true until while]], "%S+") do words[word] = true end

local function coloured(class, text) return el("span", { class = class }, text) end

-- The end of a quoted string that begins at `i`; an escaped quote does not end it.
local function string_end(line, i)
  local quote, at = string.sub(line, i, i), i + 1
  while at <= #line do
    local c = string.sub(line, at, at)
    if c == quote then return at end
    at = at + (c == "\\" and 2 or 1)
  end
  return #line
end

-- A token of a line from `i` on: its last place and its class, nil for what has none.
local function token(line, i)
  if string.find(line, "^%-%-", i) then return #line, "hc" end
  if string.find(line, "^[\"']", i) then return string_end(line, i), "hs" end
  local _, last = string.find(line, "^[%a_][%w_]*", i)
  if last then return last, words[string.sub(line, i, last)] and "hw" end
  _, last = string.find(line, "^%d[%w.]*", i)
  if last then return last, "hn" end
  _, last = string.find(line, "^[^%w_\"'%-]+", i)
  return last or i
end

-- `closing`: "]]" or "]==]" while a long string or comment goes on, as the line before left
-- it; returns the parts and what this line leaves.
local function parts_of(line, closing, class)
  local out, i, plain = {}, 1, 1
  local function add(last, as)
    if i > plain then out[#out + 1] = string.sub(line, plain, i - 1) end
    if as then out[#out + 1] = coloured(as, string.sub(line, i, last)) end
    plain, i = last + 1, last + 1
  end
  while i <= #line do
    local level = not closing and string.match(line, "^%[(=*)%[", i)
    local comment = not closing and string.match(line, "^%-%-%[(=*)%[", i)
    if level or comment then
      closing, class = "]" .. (level or comment) .. "]", comment and "hc" or "hs"
    end
    if closing then
      local _, last = string.find(line, closing, i, true)
      add(last or #line, class)
      if last then closing = nil end
    else
      local last, as = token(line, i)
      if as then add(last, as) else i = last + 1 end
    end
  end
  add(#line)
  return out, closing, class
end

-- `marks`: by line "error" or "warning".
return function(text, marks)
  local lines, closing, class, n = {}, nil, nil, 0
  text = string.gsub(string.gsub(text, "^\u{feff}", ""), "\r\n", "\n") -- of other editors
  for line in string.gmatch((string.gsub(text, "\n$", "")) .. "\n", "([^\n]*)\n") do
    local parts
    n = n + 1
    line = string.gsub(line, "\t", "        ")
    parts, closing, class = parts_of(line, closing, class)
    if #parts == 0 then parts[1] = " " end
    lines[n] = el("span", { id = "L" .. n, class = marks[n], ["data-n"] = n }, parts)
  end
  return html.scrolling("The plan's text", el("pre", nil, lines)), n
end
