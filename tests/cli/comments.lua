-- comments.lua - what comments name must be there: files of the tree, or of headers that it
-- includes, and functions, as name(), that code defines or calls. Prints what is not.
--
--   weft lua tests/cli/comments.lua        in the root of the sources
local KINDS = { "c", "h", "def", "lua" }
local PROJECTS = { ["llm.c"] = true } -- of others, named like a file

local function lines_of(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  return list
end

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

-- Everything but line ends becomes blanks, so that lines keep their numbers.
local function blank(text)
  return (text:gsub("[^\n]", " "))
end

-- The comments of a C file, and the rest of it, each with blanks for the other. A string
-- that holds "/*" is no comment.
local function split_c(text)
  local comment, code, at = {}, {}, 1
  local function add(to, other, s)
    to[#to + 1], other[#other + 1] = s, blank(s)
  end
  while at <= #text do
    local i = text:find("[\"'/]", at) or #text + 1
    add(code, comment, text:sub(at, i - 1))
    local stop = i
    local two = text:sub(i, i + 1)
    if two == "/*" then
      stop = select(2, text:find("*/", i + 2, true)) or #text
      add(comment, code, text:sub(i, stop))
    elseif two == "//" then
      stop = (text:find("\n", i, true) or #text + 1) - 1
      add(comment, code, text:sub(i, stop))
    elseif i <= #text then
      local quote = text:sub(i, i)
      while quote ~= "/" do
        stop = text:find("[\\\n" .. quote .. "]", stop + 1) or #text
        if text:sub(stop, stop) ~= "\\" then break end
        stop = stop + 1
      end
      add(code, comment, text:sub(i, stop))
    end
    at = stop + 1
  end
  return table.concat(comment), table.concat(code)
end

local function split_lua(text)
  local comment, code = {}, {}
  for line in text:gmatch "([^\n]*)\n?" do
    local i = line:find("%-%-") or #line + 1
    code[#code + 1], comment[#comment + 1] = line:sub(1, i - 1), line:sub(i)
  end
  return table.concat(comment, "\n"), table.concat(code, "\n")
end

-- ---- what is there ----

local there, called, comments = {}, {}, {}

for _, path in ipairs(lines_of "find . -type f -not -path './build*' -not -path './.git/*'") do
  path = path:sub(3)
  local kind = path:match "%.(%a+)$"
  there[path:match "[^/]+$"] = there[path:match "[^/]+$"] or {}
  table.insert(there[path:match "[^/]+$"], "/" .. path)
  for _, k in ipairs(KINDS) do
    if k == kind then
      local text = read(path)
      local comment, code = (kind == "lua" and split_lua or split_c)(text)
      comments[#comments + 1] = { path = path, text = comment }
      for name in code:gmatch "([%a_][%w_]*)%s*%(" do called[name] = true end
      for name in code:gmatch "#define%s+([%a_][%w_]*)" do called[name] = true end
      for name in code:gmatch "OP%(([%a_][%w_]*)" do called[name] = true end
      for name in text:gmatch "#%s*include%s*<([^>]+)>" do
        local base = name:match "[^/]+$"
        there[base] = there[base] or {}
        table.insert(there[base], "/" .. name)
      end
    end
  end
end

-- Capitals stand for any name: source_NAME.c. "mesh.c", "vm/mesh/mesh.c" and "mesh/mesh.c" name vm/mesh/mesh.c.
local function is_there(name)
  if PROJECTS[name] or name:find "%u%u" then return true end
  for _, path in ipairs(there[name:match "[^/]+$"] or {}) do
    if path:sub(-#name - 1) == "/" .. name then return true end
  end
  return false
end

-- ---- what is named ----

local wrong = 0

local function say(c, at, what)
  local _, line = c.text:sub(1, at):gsub("\n", "")
  print(("%s:%d: %s"):format(c.path, line + 1, what))
  wrong = wrong + 1
end

for _, c in ipairs(comments) do
  for at, name, kind, after in c.text:gmatch "()([%w_%-/]+%.(%a+))([^%w_]?)" do
    for _, k in ipairs(KINDS) do
      local whole = not c.text:sub(at - 1, at - 1):find "[%w_.*<%-]" and after ~= "("
      if k == kind and whole and not is_there(name) then say(c, at, "no file " .. name) end
    end
  end
  for at, name in c.text:gmatch "()([%a_][%w_]*)%(%)" do
    local method = c.text:sub(at - 1, at - 1):find "[:.]"
    if not method and not called[name] then say(c, at, "no function " .. name .. "()") end
  end
end
os.exit(wrong == 0)
