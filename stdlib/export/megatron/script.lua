-- script.lua - arguments of a program in named groups, each with the field of the plan that it says,
-- as a shell script: arrays, and the command that starts the program with all of them.
local shown = use "shown"
local script = {}
script.__index = script

function script.new() return setmetatable({ groups = {}, at = {}, env = {}, set = {} }, script) end

-- What is put from here on belongs to the array `name`.
function script:group(name) self.groups[#self.groups + 1] = { name = name } end

-- The argument `flag` with a number, a text or a list of these; true: it has no value. Nil and false:
-- it is not written. The first one counts.
function script:put(flag, value, field)
  if value == nil or value == false or self.at[flag] ~= nil then return end
  self.at[flag] = value
  local group = self.groups[#self.groups]
  group[#group + 1] = { flag = flag, value = value, field = field }
end

-- The environment variable `name`.
function script:export(name, value, field)
  if self.set[name] ~= nil then return end
  self.set[name] = value
  self.env[#self.env + 1] = { name = name, value = value, field = field }
end

-- ---- words ----

local function number(n)
  if math.type(n) == "integer" then return tostring(n) end
  if n == math.floor(n) and math.abs(n) < 1e15 then return string.format("%.1f", n) end
  local short = string.format("%.15g", n)
  return tonumber(short) == n and short or string.format("%.17g", n)
end

-- A word of the shell that stands for this text alone.
local function word(value)
  if type(value) == "number" then return number(value) end
  if string.find(value, "^[%w_./:,=+@%%-]+$") then return value end
  return "'" .. string.gsub(value, "'", "'\\''") .. "'"
end

local function words(value)
  if value == true then return "" end
  if type(value) ~= "table" then return " " .. word(value) end
  local list = {}
  for i, one in ipairs(value) do list[i] = word(one) end
  return " " .. table.concat(list, " ")
end

local function note(field) return field and "  # " .. shown(field) or "" end

-- ---- the script ----

-- `start`: the launcher and its arguments. `head`: lines of the comment above.
function script:text(head, start, program)
  local out = { "#!/bin/bash" }
  for _, line in ipairs(head) do out[#out + 1] = "# " .. shown(line) end
  out[#out + 1] = ""
  for _, set in ipairs(self.env) do
    out[#out + 1] = string.format("export %s=%s%s", set.name, word(set.value), note(set.field))
  end
  if #self.env > 0 then out[#out + 1] = "" end
  table.move(start.lines, 1, #start.lines, #out + 1, out)
  local command = { start.command .. " " .. program }
  for _, group in ipairs(self.groups) do
    if #group > 0 then
      out[#out + 1] = ""
      out[#out + 1] = group.name .. "=("
      for _, one in ipairs(group) do out[#out + 1] = "  " .. one.flag .. words(one.value) .. note(one.field) end
      out[#out + 1] = ")"
      command[#command + 1] = string.format("  \"${%s[@]}\"", group.name)
    end
  end
  out[#out + 1] = ""
  out[#out + 1] = table.concat(command, " \\\n")
  return table.concat(out, "\n") .. "\n"
end

return script
