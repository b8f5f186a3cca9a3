-- model_field.lua - the field `model` of an imported plan: from --model, the name in the
-- settings, and the keys of a config that they change.
local elsewhere = use("models/config").elsewhere
local flavors = use "import/torchtitan/flavors"
local models = use "import/models"
local plan_draft = use "plan_draft"
local plan_text = use "import/plan_text"
local quote = use "import/quote"
local read_settings = use "read_settings"
local scalar = use "import/scalar"
local shown = use "shown"
local tree = use "import/tree"
local model_field = {}

local HAS = "weft has " .. table.concat(keys(models.architectures), ", ")

-- A value as weft.model takes it: null is false where the class of the architecture has another
-- default, such as Mistral's window, and as if it were not given elsewhere.
local function given(architecture, key, value)
  if value ~= scalar.null then return value end
  local model = use("models/" .. architecture)
  if model.defaults[model.aliases[key] or key] then return false end
end

-- Puts a value into tables within tables, as "rope_parameters.full_attention.factor" names it; null is as if it
-- were not there.
function model_field.set(config, path, value)
  local steps = {}
  for step in string.gmatch(path, "[^.]+") do steps[#steps + 1] = step end
  local at = config
  for i = 1, #steps - 1 do
    if type(at[steps[i]]) ~= "table" then at[steps[i]] = {} end
    at = at[steps[i]]
  end
  if value ~= scalar.null then at[steps[#steps]] = value end
end

-- The keys of a config.json as weft.model takes them. Nil and why not.
function model_field.of_config(node, place)
  local arch = node.kind == "map" and node.at.model_type
  if not arch or arch.kind ~= "scalar" then
    return nil, place .. " has no model_type: it is no config.json of a model"
  end
  if not models.architectures[arch.text] then
    return nil, string.format("%s: the architecture \"%s\" is not in weft: %s", place,
                              quote.shown(arch.text), HAS)
  end
  local config = { arch.text }
  for _, leaf in ipairs(tree.leaves(node, place, true)) do
    if string.find(leaf.key, ".", 1, true) then
      model_field.set(config, leaf.key, leaf.value)
    elseif leaf.key ~= "model_type" then
      config[leaf.key] = given(config[1], leaf.key, leaf.value)
    end
  end
  return config
end

local function of_folder(path)
  local file = path
  if not string.find(path, "%.json$") then file = path .. "/config.json" end
  return model_field.of_config(read_settings(file), quote.shown(file))
end

-- A flavor of a table in a Python file of torchtitan's: "8B": TransformerModelArgs(dim=4096, ...).
local function of_table(path, flavor)
  local node = (use "import/formats/python")(path)
  for _, key in ipairs(node.keys) do
    local entry = node.at[key].at and node.at[key].at[flavor]
    local class = entry and entry.kind == "map" and entry.at.class
    if class then
      local config, why, note = flavors.of_class(scalar.behind_last(class.value, "."), tree.value(entry))
      if config then config.note = note end
      return config, why
    end
  end
  return nil, string.format("%s: has no \"%s\" with arguments of a model", quote.shown(path),
                            quote.shown(flavor))
end

-- What --model says: a folder or file, a flavor of a file, or a name.
local function of_option(name)
  local path, flavor = string.match(name, "^(.*%.py):([^:/]+)$")
  if path then return of_table(path, flavor) end
  if string.find(name, "^[./]") or string.find(name, "%.json$") then return of_folder(name) end
  local config, preset = models.find(name)
  if config then return config, preset end
  return nil, preset and string.format("--model %s: it is %s; %s", quote.shown(name), preset, HAS)
    or string.format("--model %s: is no preset and no public name that weft knows; "
                     .. "a folder is written ./DIR", quote.shown(name))
end

-- A key of a config is a name; anything else is none that a model has.
local function is_name(key) return string.find(key, "^[%a_][%w_]*$") ~= nil end

-- What a config says of training, which is no key of a model: it is returned beside the config.
local function take_aside(config)
  local aside = { bias_update_rate = config.bias_update_rate,
                  router_aux_loss_coef = tonumber(config.router_aux_loss_coef),
                  dtype = config.torch_dtype or config.dtype }
  config.bias_update_rate = nil
  return aside
end

-- Puts plan.model. `given` is { leaf = of the name or nil, name =, changes = see
-- model_field.change, length = of sequences, where the settings are torchtitan's }.
-- Returns the config, nil if there is none, as the ledger says, and what it says of training.
function model_field.put(plan, ledger, given, option)
  local config, preset, from
  if option then
    config, preset = of_option(option)
    if not config then return ledger:refuse(nil, preset) end
    from = "--model " .. option
    local why = "--model says which model the plan has"
    if given.leaf then ledger:no_effect(given.leaf.key, why) end
    for _, key in ipairs(keys(given.changes)) do
      for _, leaf in ipairs(given.changes[key].leaves) do ledger:no_effect(leaf.key, why) end
    end
    flavors.settle(ledger, config, given.length)
    given = { changes = {} }
  elseif not given.name then
    return ledger:refuse(nil, "the settings name no model: give one by --model DIR (with a "
                              .. "config.json) or --model NAME")
  else
    config, preset = models.find(given.name)
    if not config and preset then
      return ledger:refuse(given.leaf.key, string.format(
        "%s is %s; %s. --model NAME makes the plan with another model",
        quote.shown(given.name), preset, HAS))
    elseif not config then
      return ledger:refuse(given.leaf.key, string.format(
        "the sizes of %s are not in weft's table of public models: give its config.json by "
        .. "--model DIR", quote.shown(given.name)))
    end
    from = given.leaf
    ledger:translated(given.leaf.key, "model")
  end
  config, preset = model_field.change(ledger, config, preset, given.changes)
  model_field.tell_note(ledger, config)
  local aside = take_aside(config)
  if not preset then model_field.settle_keys(ledger, config) end
  model_field.write(plan, config, preset, from)
  return config, aside
end

-- Keys of the config that the settings set themselves: { key = { value =, leaves = } }.
function model_field.change(ledger, config, preset, changes)
  for _, key in ipairs(keys(changes)) do
    local change = changes[key]
    for _, leaf in ipairs(change.leaves) do
      if not is_name(key) then
        ledger:refuse(leaf.key, "it is no name of a key of a model's config")
      else
        ledger:translated(leaf.key, "model." .. key)
      end
    end
    local value = given(config[1], key, change.value)
    if value ~= nil then config[key], preset = value, nil end
  end
  return config, preset
end

-- The leaves that say a key of the model's config.
local function leaves_of(ledger, key)
  local found = {}
  for _, leaf in ipairs(ledger.leaves) do
    local name = string.gsub(leaf.key, "^model%.config%.", "")
    if name == key or string.sub(name, 1, #key + 1) == key .. "." then found[#found + 1] = leaf end
  end
  return found
end

-- What weft says of a config alone: reasons with their path, which begins with "model".
local function reasons_about(config)
  local plan = plan_text.new()
  model_field.write(plan, config, nil)
  local made, why = plan_draft("config.json", string.format(
    'local weft = require "weft"\nreturn weft.plan {\n%s\n  batch = { global = 1, seq = 1 },\n'
    .. "  data = weft.synthetic {},\n}\n", table.concat(plan:lines(), "\n")))
  return made and {} or why
end

-- Takes keys that the architecture does not have out of a config, and refuses values that it cannot
-- have: weft check of the plan would say the same.
function model_field.settle_keys(ledger, config)
  local unread = {}
  for _, reasons in ipairs { elsewhere, use("models/" .. config[1]).ignored } do
    for key, why in pairs(reasons) do unread[key] = type(why) == "string" and why or unread[key] end
  end
  for _, key in ipairs(keys(unread)) do
    for _, leaf in ipairs(config[key] ~= nil and leaves_of(ledger, key) or {}) do
      leaf.list, leaf.text = "no_effect", unread[key]
    end
    config[key] = nil
  end
  for _, one in ipairs(reasons_about(config)) do
    local key = string.match(one.path or "", '^model[.%["]+([%w_]+)')
    local leaves = key and leaves_of(ledger, key) or {}
    local hint = one.suggestion and string.format(" (%s)", shown(one.suggestion)) or ""
    if one.severity == "warning" or not key then -- said by weft check, too
    elseif one.code == "unknown-field" and config[key] ~= nil then
      local what = string.format("weft's %s has no such key%s: the plan's model is without it", config[1], hint)
      for _, leaf in ipairs(leaves) do ledger:cannot(leaf.key, what) end
      if #leaves == 0 then ledger:assume("model." .. key, what) end
      config[key] = nil
    else
      ledger:refuse(leaves[1] and leaves[1].key, string.format("model.%s: %s%s", key, shown(one.message), hint))
    end
  end
end

-- Tells what there is to know about the sizes of a public model.
function model_field.tell_note(ledger, config)
  if config.note then ledger:assume("model", config.note) end
  config.note = nil
end

function model_field.write(plan, config, preset, from)
  if preset then return plan:put("model", "weft.model " .. quote.text(preset), from) end
  plan:head("model", "weft.model")
  plan:put("model.#", quote.text(config[1]), from)
  for _, key in ipairs(keys(config)) do
    if type(key) == "string" and is_name(key) and config[key] ~= scalar.null then
      plan:put("model." .. key, quote.value(config[key]))
    end
  end
end

model_field.take_aside = take_aside

return model_field
