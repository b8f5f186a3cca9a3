-- folder.lua - which file of a folder weft import reads: config.json, as the folder of a model has it.
-- Settings that lie beside it are not read, and are named.
local quote = use "import/quote"
local read_text = use "read_text"

-- Names of settings that weft export writes, and others write, too; and what is in a file of this name
-- if it is of the system.
local SETTINGS = {
  { "ds_config.json", "train_[%w_]*batch_size" }, { "recipe.yaml", "model" }, { "config.toml", "%[model%]" },
  { "train.sh", "%-%-[%w-]*batch%-size" },
}

local function text_of(path)
  local ok, text = pcall(read_text, path)
  return ok and text or nil
end

-- What --model takes for settings that name no model, or one of a table beside them.
local function model_option(folder, name, text, has_config)
  if name == "ds_config.json" then
    if not has_config then return " --model NAME" end
    return " --model " .. (string.find(folder, "^[./]") and "" or "./") .. folder
  end
  if name ~= "config.toml" or not text_of(folder .. "/args.py") then return "" end
  local flavor = string.match(text, "%f[%w]flavor%s*=%s*\"([%w_.-]+)\"") or "FLAVOR"
  return string.format(" --model %s/args.py:%s", folder, flavor)
end

-- The arguments by which the settings in a folder are read.
local function settings_in(folder, has_config)
  local list = {}
  for _, one in ipairs(SETTINGS) do
    local path = folder .. "/" .. one[1]
    local text = text_of(path)
    if text and string.find(text, one[2]) then
      list[#list + 1] = quote.shown(path .. model_option(folder, one[1], text, has_config))
    end
  end
  return list
end

-- The path of config.json, and what is to be said of other settings there, or nil.
return function(folder)
  folder = string.gsub(folder, "(.)/+$", "%1")
  local path = folder .. "/config.json"
  local has_config = text_of(path) ~= nil
  local others = table.concat(settings_in(folder, has_config), ", or ")
  if others == "" then return path end
  if not has_config then
    fail(string.format("%s: has no config.json; other settings are there: give %s", quote.shown(folder), others))
  end
  return path, string.format("config.json alone is read: other settings of the folder are those of %s", others)
end
