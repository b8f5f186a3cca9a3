-- data.lua - the data of axolotl's recipes: made up in the plan; the report says what reads those of the recipe.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"
local data = {}

-- Names of axolotl's templates that weft has.
local TEMPLATES = { chatml = "chatml", llama3 = "llama3", gemma = "gemma", gemma3 = "gemma3", qwen_25 = "qwen2.5", qwen3 = "qwen3",
                    deepseek_v3 = "deepseek-v3", mistral_v3_tekken = "mistral" }

local function text_of(value) return type(value) == "string" and value or nil end

-- Where messages have these names, a row is sharegpt's.
local function is_sharegpt(set)
  local map = type(set.message_property_mappings) == "table" and set.message_property_mappings or {}
  local role = text_of(map.role) or text_of(set.message_field_role) or "role"
  return set.field_messages == "conversations" and role == "from"
end

-- The format of weft.chat for a set; nil: it is none, as texts to continue are.
local function format_of(set, loss)
  local kind = text_of(set.type) or ""
  if loss == "dpo" then return "preference" end
  if string.find(kind, "^chat_template") then return is_sharegpt(set) and "sharegpt" or "messages" end
  if string.find(kind, "^sharegpt") then return "sharegpt" end
  if string.find(kind, "^alpaca") then return "alpaca" end
end

local function file_of(set)
  local file = text_of(set.data_files) or type(set.data_files) == "table" and text_of(set.data_files[1]) or text_of(set.path)
  return file and string.find(file, "%.jsonl?$") and string.gsub(file, "^%./", "") or nil
end

local function template_of(book, set)
  local name = text_of(set.chat_template) or text_of(book:value "chat_template")
  return name and TEMPLATES[string.gsub(name, "^tokenizer_default_fallback_", "")]
end

-- What a plan would say of a set of conversations.
local function chat(book, set, format)
  local parts = { quote.text(file_of(set) or "FILE.jsonl") }
  if format ~= "messages" then parts[#parts + 1] = "format = " .. quote.text(format) end
  local template = template_of(book, set)
  if template then parts[#parts + 1] = "template = " .. quote.text(template) end
  if book:value "train_on_inputs" == true then parts[#parts + 1] = 'train_on = "all"' end
  return string.format("data = weft.chat { %s }", table.concat(parts, ", "))
end

local function completes(set) return string.match(text_of(set.type) or "", "^[^:]*") == "completion" end

local STREAM = "data = weft.text or weft.tokens, of what weft tokenize makes of texts, reads them"

local function how_of(book, set, loss)
  local format = format_of(set, loss)
  if completes(set) or set.type == "pretrain" then return STREAM end
  if not format then return "a kind of rows that weft.chat does not know: JSON lines of messages, or a template of the plan's own" end
  local how = chat(book, set, format)
  if format == "alpaca" then how = how .. ", in the words of its template, not axolotl's (\"Below is an instruction ...\")" end
  return how
end

-- A list of sets, or one.
local function sets_of(value)
  if type(value) ~= "table" then return {} end
  if value[1] == nil and next(value) ~= nil then return { value } end
  return value
end

-- Whether sets of the recipe are texts to continue: "all" of them, "some"; nil: none.
function data.completes(book)
  local sets, n = sets_of(book:value "datasets"), 0
  for _, set in ipairs(sets) do
    if type(set) == "table" and completes(set) then n = n + 1 end
  end
  return n > 0 and (n == #sets and "all" or "some") or nil
end

-- Names of a set, of all its kinds and all versions (utils/schemas/datasets.py).
local NAMES = {}
for name in string.gmatch([[path name type split revision data_files ds_type shards shards_idx preprocess_shards trust_remote_code
  conversation chat_template chat_template_jinja chat_template_kwargs input_format input_transform field field_human field_model
  field_system field_messages field_tools field_thinking field_chosen field_rejected template_thinking_key split_thinking
  message_field_role message_field_content message_field_training message_field_training_detail message_property_mappings
  roles roles_to_train train_on_eos train_on_eot train_on_split drop_system_message logprobs_field temperature
  text_column skip step_separator max_completion_length train_on_last_step_only
  length sequence_length min_input_id max_input_id seed]], "%S+") do NAMES[name] = true end

local function check_names(book, key, set)
  for _, name in ipairs(keys(set)) do
    if type(name) == "string" and not NAMES[name] then
      local near = suggest(name, keys(NAMES))
      book:refuse(key, string.format("\"%s\" is no setting of a set of axolotl's, which takes no notice of it%s", quote.shown(name),
                                     near and string.format(" (did you mean \"%s\"?)", near) or ""))
    end
  end
end

local function say(book, key, loss)
  local value = book:value(key)
  if value == nil then return end
  local sets, seen, hows = sets_of(value), {}, {}
  for _, set in ipairs(sets) do
    if type(set) ~= "table" or set == scalar.null then
      return book:refuse(key, key .. ": expected a list of sets, each with a path and a type")
    end
    check_names(book, key, set)
    local how = how_of(book, set, loss)
    if key == "pretraining_dataset" then how = STREAM end
    if not seen[how] then hows[#hows + 1] = how end
    seen[how] = true
  end
  if #sets == 0 then return book:refuse(key, key .. ": expected a list of sets, each with a path and a type") end
  local one = sets[1]
  local file = file_of(one)
  book:cannot(key, (file and "a plan that names files needs them to be there: the plan has weft.synthetic; "
                    or "data sets of the Hub are not downloaded: the plan has weft.synthetic; ") .. quote.shown(table.concat(hows, "; "), 500))
end

function data.put(book, plan, loss)
  say(book, "datasets", loss)
  say(book, "pretraining_dataset", loss)
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  book:assume("data", "weft.synthetic, made-up tokens, all of which are learnt: the data of these settings are not read")
  if book:value "datasets" == nil then
    book:no_effect("train_on_inputs", "all of a text to continue is learnt")
  elseif values.switch(book, "train_on_inputs") then
    book:cannot("train_on_inputs", "made-up tokens have no prompts: data = weft.chat { train_on = \"all\" } learns them")
  end
end

return data
