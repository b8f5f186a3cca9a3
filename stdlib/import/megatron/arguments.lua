-- arguments.lua - the command line of a Megatron script, or a list of arguments alone, as leaves
-- of settings (tree.lua): "--num-layers" with its value and its line.
local quote = use "import/quote"
local scalar = use "import/scalar"
local script = use "import/shell/script"
local value = use "import/shell/value"
local arguments = {}

local function is_flag(text) return string.find(text, "^%-%-[%a_]") ~= nil end
local function is_program(text) return string.find(text, "%.py$") ~= nil end

-- What a word of a command line means: Python's int() and float(), and the booleans of key=value.
function arguments.value(text, config)
  if string.find(text, "^[-+]?%d[%d_]*$") and not string.find(text, "__") and string.find(text, "%d$")
    and #text < 19 then
    return math.tointeger(tonumber((string.gsub(text, "_", ""))))
  end
  if string.find(text, "^[-+]?%d*%.?%d*[eE]?[-+]?%d*$") and string.find(text, "%d") and tonumber(text) then
    return tonumber(text)
  end
  if config then
    local words = { ["true"] = true, ["True"] = true, ["false"] = false, ["False"] = false,
                    null = scalar.null, ["None"] = scalar.null }
    if words[text] ~= nil then return words[text] end
  end
  return text
end

-- ---- which command trains ----

local function flags_of(words, from)
  local n = 0
  for i = from, #words do
    local text = words[i].text
    if is_flag(text) or string.find(text, "^%+*[%a_][%w_]*%.[%w_.]+=") or string.find(text, "^%${[%w_]+}$") then
      n = n + 1
    end
  end
  return n
end

-- The place of the program in a command: a .py file; 0 if the command is arguments alone.
local function program_of(words)
  for i, word in ipairs(words) do
    if is_program(word.text) then return i end
  end
  if words[1] and is_flag(words[1].text) then return 0 end
end

-- The program and its arguments as one text.
local function joined(words, from)
  local parts = {}
  for i = from, #words do parts[#parts + 1] = words[i].text end
  return table.concat(parts, "\0")
end

-- A word that a shell reads once more: without its quotes and backslashes.
local function reread(text)
  if string.find(text, "^'.*'$") then return string.sub(text, 2, -2) end
  return (string.gsub(string.match(text, '^"(.*)"$') or text, "\\(.)", "%1"))
end

-- Words that a shell reads once more: those of the first of its commands that starts a program, up to
-- what ends it.
local function as_command(words)
  local out = {}
  for _, word in ipairs(words) do
    if not string.find(word.text, "^%d?[<>|;&]") then
      out[#out + 1] = { line = word.line, text = reread(word.text) }
    elseif program_of(out) then
      break
    elseif string.find(word.text, "^[|;&]") then
      out = {}
    end
  end
  return out
end

-- A command inside of a word, as behind "bash -c", as words.
local function opened(words)
  if words[1].text == "eval" then words = as_command { table.unpack(words, 2) } end
  local out = {}
  for _, word in ipairs(words) do
    if string.find(word.text, "%.py%s") and string.find(word.text, "%s") then
      local inner = as_command(value.split(word.marked or word.text, word.line))
      if out[1] and string.find(out[#out].text, "^%-l?c$") then out[#out] = nil end
      table.move(inner, 1, #inner, #out + 1, out)
    else
      out[#out + 1] = word
    end
  end
  return out
end

-- Commands that print their words: what another one runs, where it can be followed.
local PRINTS = { echo = true, printf = true, cat = true, ls = true }

-- Commands whose first word is a flag belong together: a list of arguments, a line each. A command
-- that is there again, word for word, counts once.
local function candidates(commands, printed)
  local list, alone, there = {}, nil, {}
  for _, words in ipairs(commands) do
    local prints = PRINTS[words[1].text]
    words = opened(words)
    local at = (printed or not prints) and words[1] and program_of(words)
    local text = at and at > 0 and joined(words, at)
    if text and there[text] then
      at = nil
    elseif text then
      there[text] = true
    end
    if at == 0 then
      if not alone then
        alone = { words = {}, program = 0 }
        list[#list + 1] = alone
      end
      table.move(words, 1, #words, #alone.words + 1, alone.words)
    elseif at and flags_of(words, at + 1) > 0 then
      list[#list + 1] = { words = words, program = at }
    end
  end
  return list
end

local TRAINS = { "--micro-batch-size", "--global-batch-size", "--tensor-model-parallel-size", "--num-layers",
                 "--recipe", "--yaml-cfg" }

local function trains(candidate)
  for i = candidate.program + 1, #candidate.words do
    local text = candidate.words[i].text
    for _, flag in ipairs(TRAINS) do
      if text == flag or string.sub(text, 1, #flag + 1) == flag .. "=" then return true end
    end
    if string.find(text, "^%+*train%.[%w_]+=") or string.find(text, "^%+*model%.[%w_]+=") then return true end
  end
  return false
end

-- Texts and arrays of arguments that no command and no other variable reads: a file that is
-- sourced by another.
local function from_variables(read)
  local words = {}
  for _, name in ipairs(read.names) do
    local var = read.vars.at[name]
    if var and not read.vars.used[name] then
      local found = {}
      for _, text in ipairs(var.items or { var.text }) do
        local more = value.split(text, var.line)
        table.move(more, 1, #more, #found + 1, found)
      end
      if found[1] and is_flag(found[1].text) then table.move(found, 1, #found, #words + 1, words) end
    end
  end
  return #words > 0 and { words = words, program = 0 } or nil
end

local function chosen(read, file)
  local list = candidates(read.commands)
  if #list == 0 then list = candidates(read.commands, true) end
  local those = {}
  for _, one in ipairs(list) do
    if trains(one) then those[#those + 1] = one end
  end
  if #those > 1 then
    local lines = {}
    for i, one in ipairs(those) do lines[i] = one.words[math.max(one.program, 1)].line end
    fail(string.format("%s:%d: a second command that trains begins (the first one is in line %d); "
                       .. "give a file with one of them", quote.shown(file), lines[2], lines[1]))
  end
  if those[1] then return those[1] end
  local loose = from_variables(read)
  if loose and (#list == 0 or trains(loose)) then return loose end
  if #list == 0 then
    fail(string.format("%s: has no command with arguments of Megatron (--flag value), and no list "
                       .. "of them", quote.shown(file)))
  end
  return list[#list]
end

-- ---- leaves ----

local function add(leaves, name, v, line) leaves[#leaves + 1] = { name = name, value = v, line = line } end

-- A variable, or all of an array, that nobody set: "${ARGS}", "${ARGS[@]}".
local function is_unset(text)
  return string.find(text, "^%${?[%a_@*][%w_]*}?$") ~= nil or string.find(text, "^%${[%a_][%w_]*%[[@*]%]}$") ~= nil
end

-- Arguments from `from` on: flags with what stands behind them, key=value, and the rest.
local function read_words(leaves, words, from, to, prefix)
  local i = from
  while i <= to do
    local word = words[i]
    local flag, given = string.match(word.text, "^(%-%-?[%a_][%w_.-]*)=(.*)$")
    local key, text = string.match(word.text, "^%+*([%a_][%w_.]*)=(.*)$")
    if flag then
      add(leaves, prefix .. flag, arguments.value(given), word.line)
    elseif string.find(word.text, "^%-%-?[%a_]") then
      local values = {}
      while i < to and not string.find(words[i + 1].text, "^%-%-?[%a_]")
        and not string.find(words[i + 1].text, "^%+*[%a_][%w_]*%.[%w_.]+=")
        and not is_unset(words[i + 1].text)
        and not (#values > 0 and string.find(words[i + 1].text, "^%$%b()$")) do
        i = i + 1
        values[#values + 1] = words[i].text
      end
      -- A variable that nobody set may be the flag's value, or more flags.
      if #values == 0 and i < to and string.find(words[i + 1].text, "^%${?[%a_][%w_]*}?$")
        and not string.find(words[i + 1].text, "ARGS") then
        i = i + 1
        values[1] = words[i].text
      end
      local v = true
      if #values == 1 then v = arguments.value(values[1]) end
      if #values > 1 then v = table.concat(values, " ") end
      add(leaves, prefix .. word.text, v, word.line)
    elseif key then
      add(leaves, prefix .. key, arguments.value(text, true), word.line)
    else
      add(leaves, prefix .. word.text, scalar.null, word.line)
      leaves[#leaves].stray = true
    end
    i = i + 1
  end
end

-- What stands in comments for Slurm.
local function read_slurm(leaves, text)
  local line = 1
  for row in string.gmatch(text, "([^\n]*)\n?") do
    local options = string.match(row, "^#SBATCH(%s.*)$")
    options = options and string.gsub(options, "%s%-N%s*(%d+)", " --nodes=%1")
    for key, v in string.gmatch(options or "", "%s%-%-([%w-]+)[= ]([^%s#]+)") do
      add(leaves, "#SBATCH --" .. key, arguments.value(v), line)
    end
    line = line + 1
    if line > 2000 then break end
  end
end

-- What Slurm sets in the environment of a script that asks for machines in its comments.
local function slurm_variables(leaves)
  local asked = {}
  for _, leaf in ipairs(leaves) do
    local key = string.match(leaf.name, "^#SBATCH %-%-(.*)$")
    if key then asked[key] = tostring(leaf.value) end
  end
  local nodes, tasks = asked.nodes, asked["ntasks-per-node"]
  local gpus = string.match(asked["gpus-per-node"] or asked.gres or "", "%f[%d]%d+$")
  local all = asked.ntasks or tonumber(nodes) and tonumber(tasks) and tostring(nodes * tasks) or nil
  return { SLURM_NNODES = nodes, SLURM_JOB_NUM_NODES = nodes, SLURM_NTASKS_PER_NODE = tasks, SLURM_NTASKS = all,
           SLURM_NPROCS = all, SLURM_GPUS_PER_NODE = gpus, SLURM_GPUS_ON_NODE = gpus }
end

local function any_trains(read)
  for _, one in ipairs(candidates(read.commands)) do
    if trains(one) then return true end
  end
  return false
end

-- A script that writes another one, or hands it to sbatch, as text behind <<EOF: that one, if it trains.
local function with_heres(read, file, given, load)
  if any_trains(read) then return read end
  for _, here in ipairs(read.heres) do
    local ok, other = pcall(script, here.text, file, given, load)
    if ok and any_trains(other) then return other end
  end
  return read
end

-- Leaves { name =, value =, line = } of a script, in its order, the program that it starts, and
-- notes about what could not be read. `given`: variables from the command line.
-- `load(name)` gives the text of a file that the script sources, or nil.
function arguments.read(text, file, given, load)
  local leaves = {}
  read_slurm(leaves, text)
  for name, value in next, slurm_variables(leaves) do given[name] = given[name] or value end
  local read = with_heres(script(text, file, given, load), file, given, load)
  local one = chosen(read, file)
  for _, set in ipairs(read.env) do
    add(leaves, "export " .. set.name, arguments.value(set.text), set.line)
  end
  local starts = 1
  while starts < one.program and not string.find(one.words[starts].text, "^%-%-?%a") do starts = starts + 1 end
  read_words(leaves, one.words, starts, one.program - 1, "launcher ")
  if one.program > 0 then
    add(leaves, "program", one.words[one.program].text, one.words[one.program].line)
  end
  read_words(leaves, one.words, one.program + 1, #one.words, "")
  return leaves, read.notes
end

return arguments
