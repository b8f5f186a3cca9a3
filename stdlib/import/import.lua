-- import.lua - weft import: settings of another system, given as { file =, words =, set =,
-- model =, world = }, become the text of a plan and three lists of what became of each setting.
-- Each system has a table of its own beside this file.
local absent = use "absent"
local arguments = use "import/megatron/arguments"
local config_in = use "import/folder"
local ledger = use "import/ledger"
local model_field = use "import/model_field"
local outside = use "import/outside"
local plan_text = use "import/plan_text"
local quote = use "import/quote"
local read_settings = use "read_settings"
local read_text = use "read_text"
local tree = use "import/tree"

local megatron = use "import/megatron/megatron"
local registry = use "import/torchtitan/registry"
local scalar = use "import/scalar"
local torchtitan = use "import/torchtitan/torchtitan"
local systems = { use "import/parallel_plans", torchtitan, use "import/nanotron/nanotron",
                  use "import/automodel/automodel", use "import/axolotl/axolotl", use "import/llamafactory/llamafactory",
                  use "import/deepspeed/deepspeed", use "import/accelerate/accelerate", megatron, use "import/huggingface" }

-- Readers by the ending of a file's name.
local READERS = { json = read_settings, conf = read_settings, yaml = read_settings, yml = read_settings,
                  toml = use "import/formats/toml", py = use "import/formats/python" }
local SCRIPTS = { sh = true, bash = true, sbatch = true, slurm = true, sub = true, txt = true, args = true }

local function base_of(file) return scalar.behind_last(string.gsub(file, "/+$", ""), "/") end

-- "" of a name without one.
local function ending(file) return string.match(base_of(file), "%.(%w*)$") or "" end

-- NAME=value behind the file gives a variable its value, in files that are not scripts one of
-- `names`; 1=value is a script's first argument, $name=value also a variable in small letters; the
-- other words are settings.
local function variables_of(args, names)
  local given = {}
  for _, list in ipairs { args.set, args.words } do
    for i = #list, 1, -1 do
      local name, text = string.match(list[i], "^%$?(%u[%u%d_]*)=(.*)$")
      if not name then name, text = string.match(list[i], "^%$?([1-9]%d?)=(.*)$") end
      if not name then name, text = string.match(list[i], "^%$([%a_][%w_]*)=(.*)$") end
      if name and (not names or names[name]) then
        given[name] = text
        table.remove(list, i)
      end
    end
  end
  return given
end

local SCRIPT_BYTES = 256 << 10

-- The settings of the file that --yaml-cfg names, if it lies at this place from the script's folder, or beside
-- the script: Megatron takes them in the place of all arguments of the program.
local function follow_yaml(leaves, file)
  local at
  for _, leaf in ipairs(leaves) do
    if leaf.key == "--yaml-cfg" and type(leaf.value) == "string" then at = leaf end
  end
  if not at then return end
  local folder = string.match(file, "^.*/") or ""
  for _, name in ipairs { at.value, base_of(at.value) } do
    local path = string.find(name, "^/") and name or folder .. name
    if pcall(read_text, path) then
      local node = read_settings(path)
      if node.kind ~= "map" then fail(quote.shown(path) .. ": is no table of settings") end
      for _, leaf in ipairs(leaves) do
        local own = string.find(leaf.key, "^%-%-") and leaf ~= at
        if own then leaf.replaced = string.format("%s, of --yaml-cfg, takes the place of all arguments", quote.shown(name)) end
      end
      at.replaced = "its settings are read in the place of the arguments"
      for _, leaf in ipairs(tree.leaves(node, base_of(path), false)) do leaves[#leaves + 1] = leaf end
      return
    end
  end
end

-- Reads files that a script sources: where they lie from its folder, or beside it. Adds their texts.
local function sourced(file, texts)
  local folder = string.match(file, "^.*/") or ""
  return function(name)
    for _, one in ipairs { name, base_of(name) } do
      local path = string.find(one, "^/") and one or folder .. one
      local ok, text = pcall(read_text, path)
      if ok and #text <= SCRIPT_BYTES then
        texts[#texts + 1] = text
        return text
      end
    end
  end
end

-- A variable of the command line that stands nowhere in the script was meant to be another one.
local function check_variables(names, texts, file)
  local text = table.concat(texts, "\n")
  for _, name in ipairs(names) do
    if not string.find(text, "%f[%w_]" .. name .. "%f[^%w_]") and not string.find(name, "^%d") then
      local others = {}
      for other in string.gmatch(text, "%$%{?([%a_][%w_]*)") do others[#others + 1] = other end
      local near = suggest(name, others)
      fail(string.format("%s: has no variable %s%s", quote.shown(file), name,
                         near and string.format(" (did you mean %s?)", near) or ""))
    end
  end
end

-- Leaves of a script or a list of arguments.
local function read_arguments(file, args)
  local leaves, text = tree.new(), read_text(file)
  if #text > SCRIPT_BYTES then
    fail(string.format("%s: has %d bytes; a script has at most %d", quote.shown(file), #text, SCRIPT_BYTES))
  end
  local given, texts = variables_of(args), { text }
  local names = keys(given)
  local list, notes = arguments.read(text, base_of(file), given, sourced(file, texts))
  check_variables(names, texts, file)
  for i, one in ipairs(list) do
    leaves[i] = { key = one.name, value = one.value, file = base_of(file), line = one.line, stray = one.stray }
    leaves.at[one.name] = leaves[i]
  end
  follow_yaml(leaves, file)
  for _, note in ipairs(notes) do note.file = base_of(file) end
  leaves.arguments, leaves.notes = true, notes
  return leaves
end

-- The leaves of a file, and its tree if it has one. A folder is that of a model.
local function settings_of(args)
  local file, beside = args.file, nil
  local instead = not args.folder and absent(file)
  if instead then fail(string.format("%s: is nothing to import: %s", quote.shown(file), instead)) end
  if args.folder then file, beside = config_in(file) end
  local kind = ending(file)
  if kind == "" or SCRIPTS[kind] then return read_arguments(file, args) end
  local read = READERS[kind]
  if not read then
    local names = {}
    for i, name in ipairs(keys(READERS)) do names[i] = "." .. name end
    fail(string.format("%s: weft import reads %s files, scripts (.sh, .bash, .sbatch, .slurm), lists of "
                       .. "arguments (.txt, .args), and folders with a config.json",
                       quote.shown(file), table.concat(names, ", ")))
  end
  local node = read(file)
  if node.kind ~= "map" then fail(quote.shown(args.file) .. ": is no table of settings") end
  return tree.leaves(node, base_of(file), kind == "json" or kind == "conf"), node, beside
end

local function system_of(leaves, file)
  if leaves.arguments then return megatron end
  local found, names = {}, {}
  for i, system in ipairs(systems) do
    if system.is(leaves) then found[#found + 1] = system end
    names[i] = system.describe
  end
  if #found == 1 then return found[1] end
  if #found > 1 then
    fail(string.format("%s: has settings of %s and of %s: a file is read as those of one system",
                       quote.shown(file), found[1].name, found[2].name))
  end
  fail(string.format("%s: is none of the settings that weft import knows: %s",
                     quote.shown(file), table.concat(names, "; ")))
end

-- "recipe.yaml" -> "recipe": a name for a plan.
local function name_of(file)
  local name = base_of(file)
  if READERS[ending(name)] or SCRIPTS[ending(name)] then name = string.gsub(name, "%.[^.]*$", "") end
  name = string.gsub(name, "[^%w_.-]", "_")
  return name ~= "" and string.sub(name, 1, 60) or "imported"
end

local function list_of(book, list)
  local found = {}
  for _, leaf in ipairs(book.leaves) do
    if leaf.list == list then found[#found + 1] = leaf end
  end
  return found
end

-- Settings by what is said of them, in the order of the file.
local function by_text(leaves)
  local groups, at = {}, {}
  for _, leaf in ipairs(leaves) do
    if not at[leaf.text] then
      at[leaf.text] = { text = leaf.text }
      groups[#groups + 1] = at[leaf.text]
    end
    table.insert(at[leaf.text], leaf)
  end
  return groups
end

local function add_group(lines, prefix, group, arrow)
  if arrow or #group == 1 then
    for _, leaf in ipairs(group) do
      lines[#lines + 1] = prefix .. ledger.said(leaf) .. (arrow or ": ") .. group.text
    end
    return
  end
  lines[#lines + 1] = prefix .. group.text .. ":"
  for _, leaf in ipairs(group) do lines[#lines + 1] = prefix .. "  " .. ledger.said(leaf) end
end

-- Lists as lines, for reports and, with a prefix, for comments.
local function add_lists(lines, book, prefix, skip)
  for _, list in ipairs(ledger.lists) do
    local found = list_of(book, list[1])
    if #found > 0 and list[1] ~= skip then
      lines[#lines + 1] = string.format("%s%s (%d):", prefix, list[2], #found)
      for _, group in ipairs(by_text(found)) do
        add_group(lines, prefix .. "  ", group, list[1] == "translated" and " -> ")
      end
    end
  end
  if #book.assumed > 0 then
    lines[#lines + 1] = string.format("%sassumed (%d), as the settings do not say it:", prefix,
                                      #book.assumed)
    for _, one in ipairs(book.assumed) do
      lines[#lines + 1] = string.format("%s  %s: %s", prefix, one.what, one.text)
    end
  end
end

local function plan_of(book, plan, system, file)
  local lines = {
    string.format("-- Made of %s, settings of %s, by weft import.", quote.shown(base_of(file)),
                  system.name),
    "-- What became of each setting stands at the end.",
    'local weft = require "weft"', "",
  }
  if plan.before then
    for _, line in ipairs(plan.before) do lines[#lines + 1] = line end
    lines[#lines + 1] = ""
  end
  lines[#lines + 1] = "return weft.plan {"
  for _, line in ipairs(plan:lines()) do lines[#lines + 1] = line end
  lines[#lines + 1] = "}"
  lines[#lines + 1] = ""
  add_lists(lines, book, "-- ", "translated")
  return table.concat(lines, "\n") .. "\n"
end

local function report_of(book, system, file)
  local lines = { string.format("%s: settings of %s", quote.shown(file), system.name) }
  add_lists(lines, book, "")
  for _, one in ipairs(book.refused) do
    lines[#lines + 1] = string.format("%s: error: %s",
      one.leaf and tree.place(one.leaf) or quote.shown(file), one.text)
  end
  return table.concat(lines, "\n") .. "\n"
end

-- For a terminal that shows the plan, too, whose comments say the rest.
local function brief_of(book, system, file)
  local counts = {}
  for _, list in ipairs(ledger.lists) do
    local n = #list_of(book, list[1])
    if n > 0 then counts[#counts + 1] = string.format("%d %s", n, list[2]) end
  end
  if #book.assumed > 0 then counts[#counts + 1] = #book.assumed .. " assumed" end
  return string.format("%s: settings of %s: %s; the comments of the plan say which (-o FILE writes it)\n",
                       quote.shown(file), system.name, table.concat(counts, ", "))
end

local function json_of(book, system, file, text)
  local out = { file = quote.shown(file), system = system.name, ok = #book.refused == 0, plan = text }
  for _, list in ipairs(ledger.lists) do
    out[list[1]] = {}
    for i, leaf in ipairs(list_of(book, list[1])) do
      out[list[1]][i] = { key = quote.shown(tree.name(leaf)), value = quote.shown(leaf.value),
                          place = tree.place(leaf), what = leaf.text }
    end
  end
  out.assumed, out.errors = {}, {}
  for i, one in ipairs(book.assumed) do out.assumed[i] = { what = one.what, text = one.text } end
  for i, one in ipairs(book.refused) do
    out.errors[i] = { place = one.leaf and tree.place(one.leaf),
                      key = one.key and quote.shown(one.key), text = one.text }
  end
  return out
end

return function(args)
  local leaves, node, beside = settings_of(args)
  local words, configuration = args.words, nil
  if registry.is(leaves) then
    leaves, words, configuration = registry.choose(leaves, words, args.file)
  end
  local given = leaves.arguments and {} or variables_of(args, outside.names(leaves))
  for _, word in ipairs(args.set) do tree.override(leaves, word) end
  for _, word in ipairs(words) do tree.override(leaves, word) end
  local system = configuration and torchtitan or system_of(leaves, args.file)
  local book, plan = ledger.new(leaves, system.absent, system.fields), plan_text.new()
  if beside then book:assume("settings", beside) end
  plan:put("name", quote.text(configuration and name_of(configuration) or name_of(args.file)))
  if args.gpu then plan:put("cluster", quote.text(args.gpu), args.gpu_from or "--gpu") end
  if system ~= megatron then outside.settle(book, given) end
  system.translate(book, plan, { world = args.world, model = args.model, node = node,
                                 file = args.file, configuration = configuration })
  if system ~= megatron then outside.finish(book) end
  local text = #book.refused == 0 and plan_of(book, plan, system, args.file) or nil
  return { ok = text ~= nil, document = text, text = report_of(book, system, args.file),
           brief = brief_of(book, system, args.file), aside = args.output == nil,
           json = json_of(book, system, args.file, text) }
end
