-- huggingface.lua - a config.json of Hugging Face alone: the model, verbatim. How it is trained is
-- not in there, so the plan has what --world says and one sequence a rank.
local model_field = use "import/model_field"
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

local huggingface = { name = "Hugging Face (config.json)", describe = "a config.json (model_type)",
                      absent = {} }

-- A recipe of axolotl has a model_type, too: the class of its base_model.
function huggingface.is(leaves) return leaves.at.model_type ~= nil and leaves.at.base_model == nil end

local function put_type(book, plan)
  local key = book:first("torch_dtype", "dtype")
  local known = key and values.type_of(book, key)
  plan:put("precision", quote.text(known or "bf16"), key and book:leaf(key)
           or "assumed: the file does not say it")
  if known then return book:translated(key, "precision") end
  book:assume("precision", "bf16, the type of most public weights")
end

function huggingface.translate(book, plan, options)
  local config, why = model_field.of_config(options.node, "config.json")
  if not config then return book:refuse("model_type", why) end
  put_type(book, plan)
  for _, leaf in ipairs(book.leaves) do
    local key = string.match(leaf.key, "^[^.]*")
    if not string.find(leaf.key, "^[%a_][%w_]*$") and not string.find(leaf.key, "^[%a_][%w_]*%.") then
      book:cannot(leaf.key, "it is no name of a key of a model's config")
    elseif leaf.value == scalar.null and config[key] == nil then
      book:no_effect(leaf.key, "null is as if it were not given")
    else
      book:translated(leaf.key, key == "model_type" and "model" or "model." .. key)
    end
  end
  model_field.tell_note(book, config)
  model_field.settle_keys(book, config)
  model_field.write(plan, config, nil, book:leaf "model_type")
  local world = options.world or 1
  plan:put("mesh.world", quote.value(world), options.world and "--world" or "assumed; --world N says another")
  if not options.world then book:assume("mesh.world", "1 rank; --world N says another") end
  plan:put("batch.global", quote.value(world), "assumed: one sequence a rank")
  plan:put("batch.micro", "1", "assumed")
  book:assume("batch", "one sequence a rank and step")
  values.assume_rest(book, plan, config)
end

return huggingface
