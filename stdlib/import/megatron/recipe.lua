-- recipe.lua - recipes of Megatron-Bridge, which are Python functions with the name of a model.
local model_field = use "import/model_field"
local models = use "import/models"
local quote = use "import/quote"
local refused = use "import/megatron/refused"
local recipe = {}

-- The setting that names one, and the name; nil: the arguments say the model.
function recipe.name(book)
  local key = book:first("recipe")
  if not key or book:leaf "num_layers" then return nil end
  return key, tostring(book:value(key))
end

-- "llama32_1b_pretrain_config" -> "llama-3.2-1b"
local function public_name(recipe)
  local name = string.gsub(recipe, "_config$", "")
  name = string.gsub(name, "_(pretrain)_?.*$", "")
  name = string.gsub(string.gsub(name, "_(sft)_?.*$", ""), "_(peft)_?.*$", "")
  name = string.gsub(string.gsub(name, "_(finetune)_?.*$", ""), "_", "-")
  name = string.gsub(name, "^llama(%d)(%d)%-", "llama-%1.%2-")
  name = string.gsub(name, "^llama(%d)%-(%d)%-", "llama-%1.%2-")
  name = string.gsub(name, "^llama(%d)%-", "llama-%1-")
  name = string.gsub(name, "^qwen(%d)(%d)%-", "qwen%1.%2-")
  return (string.gsub(name, "%-600m$", "-0.6b"))
end

-- Arguments that change a recipe's model: the plan has the model that it is named after.
local function say_changes(book, keys_of_model)
  local why = "the plan has the model that the recipe is named after, without this change"
  for _, one in ipairs(keys_of_model) do book:cannot(one, why) end
  for _, row in ipairs(refused.rows) do book:cannot(row[1], why) end
end

-- Puts plan.model, and returns its config. `keys_of_model` are those that change it.
function recipe.put(book, plan, key, given, keys_of_model)
  local name = public_name(given)
  local config, preset = models.find(name)
  if not config then
    book:refuse(key, preset and string.format("%s is a recipe of %s, which weft does not have; --model NAME "
                  .. "makes the plan with another model", quote.shown(given), preset)
      or string.format("%s is a recipe in Python whose model is not in weft's table of public models: give its "
                       .. "config.json by --model DIR", quote.shown(given)))
    return nil
  end
  book:translated(key, "model")
  book:assume("recipe", "what " .. quote.shown(given) .. " sets itself is Python, which is not read: only "
              .. "the model that it is named after, and what the arguments say")
  model_field.tell_note(book, config)
  model_field.take_aside(config)
  model_field.write(plan, config, preset, book:leaf(key))
  say_changes(book, keys_of_model)
  return config
end

return recipe
