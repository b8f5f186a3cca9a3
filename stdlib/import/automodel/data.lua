-- data.lua - the data of NeMo AutoModel recipes: made up in the plan; the report says what reads those of
-- the recipe.
local quote = use "import/quote"
local scalar = use "import/scalar"

local SYNTHETIC = "MockIterableDataset$"
local TOKEN_FILES = { NanogptDataset = "automodel", MegatronPretraining = "megatron" }

local function files_of(book)
  for _, key in ipairs { "dataset.file_pattern", "dataset.paths" } do
    local value = book:value(key)
    if type(value) == "string" then return key, { value } end
    if type(value) == "table" and type(value[1]) == "string" then return key, value end
  end
end

-- What a plan would say of conversations, and of rows with a question and an answer; nil: it cannot.
local COLUMNS = "dataset.column_mapping."
-- Classes that make a question and an answer of each row of a set of their own.
local MADE = {
  HellaSwag = "JSON lines of its beginnings and their right endings",
  make_squad_dataset = "JSON lines of its questions, below their contexts, and the first answers",
}
local function rows_of(book, class)
  if class == "ChatDataset" then return "" end
  if MADE[class] then return ', format = { prompt = "prompt", response = "response" }' end
  local answer = book:first(COLUMNS .. "answer")
  local prompt = book:first(COLUMNS .. "question", COLUMNS .. "context")
  if class ~= "ColumnMappedTextInstructionDataset" or not answer or not prompt then return nil end
  local both = book:value(COLUMNS .. "question") ~= nil and book:value(COLUMNS .. "context") ~= nil
  return string.format(", format = { prompt = %s, response = %s }", quote.text(tostring(book:value(prompt))),
                       quote.text(tostring(book:value(answer)))), both
end

local function say_chat(book, class)
  local key, path = book:first("dataset.path_or_dataset_id", "dataset.path_or_dataset", "dataset.dataset_name")
  local format, both = rows_of(book, class)
  if not format or type(path) ~= "string" then return end
  local file = string.find(path, "%.jsonl?$") and string.gsub(path, "^%./", "")
  local how = string.format("data = weft.chat { %s%s } reads %s, with the tokenizer of weft.hf or of its folder",
                            quote.text(file or "FILE.jsonl"), format,
                            file and "it" or MADE[class] or "its rows as JSON lines")
  if both then how = how .. ", where one column has all of the prompt" end
  book:cannot(key, (file and "a plan that names files needs them to be there: the plan has weft.synthetic; "
                    or "a data set of the Hub, which is not downloaded: the plan has weft.synthetic; ")
              .. quote.shown(how, 400))
  for _, name in ipairs { "question", "answer", "context" } do
    book:cannot(COLUMNS .. name, "see dataset." .. scalar.behind_last(key, "."))
  end
end

local function put_data(book, plan)
  say_chat(book, scalar.behind_last(tostring(book:value "dataset._target_" or ""), "."))
  local class = tostring(book:value "dataset._target_" or "")
  local kind = TOKEN_FILES[scalar.behind_last(class, ".")]
  local key, files = files_of(book)
  if string.find(class, SYNTHETIC) then
    book:translated("dataset._target_", "data = weft.synthetic")
    for _, name in ipairs { "vocab_size", "num_samples", "batch_size" } do
      book:no_effect("dataset." .. name, "made-up tokens come as long as steps are taken, of the "
                     .. "model's vocabulary")
    end
  elseif kind and key then
    book:cannot(key, string.format("a plan that names files needs them to be there: the plan has "
      .. "weft.synthetic; data = weft.tokens { %s, format = \"%s\" } reads them",
      quote.shown(quote.value(files)), kind))
  elseif book:has "dataset" then
    book:assume("data", "weft.synthetic, made-up tokens: the data of these settings cannot be read")
  end
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  book:no_effect("dataset.tokenizer.pretrained_model_name_or_path", "made-up tokens have no tokenizer")
end

return { put = put_data }
