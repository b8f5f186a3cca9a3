-- texts.lua - texts of a shell script that stand elsewhere than in its words: lines behind <<EOF, files that
-- it sources, and entries of arrays that have names.
local lexer = use "import/shell/lexer"
local value = use "import/shell/value"
local texts = {}

-- What a line of <<EOF says with its variables replaced, as far as it can be read alone.
function texts.expanded(env, line)
  local joined = string.match(line, "^(.*)\\$")
  if joined then return texts.expanded(env, joined) .. "\\" end
  if not string.find(line, "[$`\\]") then return line end
  local ok, tokens = pcall(lexer, '"' .. string.gsub(line, '"', '\\"') .. '"', env.file)
  local word = ok and tokens[1]
  return word and word.kind == "word" and value.plain(value.text(env, word)) or line
end

-- A token of another file has the line of the command that reads it.
function texts.relocate(token, line)
  token.line = line
  for _, item in ipairs(token.items or {}) do texts.relocate(item, line) end
  for _, part in ipairs(token.parts or {}) do
    if part.line then part.line = line end
    if part[1] == "text" then part[2] = string.gsub(part[2], "\1%d+\2", value.mark(line)) end
  end
end

-- Entries "[key]=value" of an array, as declare -A has them; nil: it has none.
function texts.map(items, map)
  for _, item in ipairs(items) do
    local key, text = string.match(value.plain(item), "^%[([^%]]+)%]=(.*)$")
    if key then
      map = map or {}
      map[key] = value.mark(tonumber(string.match(item, "^\1(%d+)\2")) or 0) .. text
    end
  end
  return map
end

return texts
