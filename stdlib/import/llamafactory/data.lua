-- data.lua - the data of LLaMA-Factory's arguments: made up in the plan; the report says what reads those that they
-- name, which their dataset_info.json describes.
local quote = use "import/quote"

local data = {}

-- Templates of LLaMA-Factory (data/template.py) and those of weft.chat that write the same models' texts.
local TEMPLATES = {
  llama3 = '"llama3.1"', qwen = '"qwen2.5"', qwen3 = '"qwen3"', qwen3_nothink = '"qwen3", options = { reasoning = false }',
  gemma = '"gemma"', gemma2 = '"gemma"', gemma3 = '"gemma3"', mistral = '"mistral"', deepseek3 = '"deepseek-v3"',
  deepseekr1 = '"deepseek"', gpt_oss = '"gpt-oss"', smollm2 = '"smollm2"', chatml = '"chatml"',
}

local function template_of(book)
  local name = book:value "template"
  if name == nil then return nil end
  return TEMPLATES[name] or "a function, as weft has no template " .. quote.shown(name)
end

local function how(book, m)
  if m.stage == "pt" then return "weft tokenize makes token files of its texts, which data = weft.tokens { \"FILE.bin\" } reads" end
  local format = m.stage == "dpo" and "preference" or "alpaca"
  local template = template_of(book)
  local learnt = book:value "train_on_prompt" == true and ', train_on = "all"'
    or book:value "mask_history" == true and ', train_on = "last"' or ""
  return string.format('data = weft.chat { "FILE.json", format = "%s"%s%s } reads its rows, %s', format,
                       template and ", template = " .. template or "", learnt,
                       m.stage == "dpo" and "as prompt, chosen and rejected" or "or format = \"sharegpt\"")
end

function data.put(book, plan, m)
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  if not book:leaf "dataset" then
    return book:assume("data", "weft.synthetic, made-up tokens: the arguments name no data")
  end
  local what = m.v1 and "a list of data sets" or "names of dataset_info.json"
  book:cannot("dataset", what .. ", which is not read: the plan has weft.synthetic; " .. how(book, m))
  for _, key in ipairs { "template", "train_on_prompt", "mask_history" } do
    if book:value(key) == false then book:no_effect(key, "answers alone are learnt, as weft.chat has it") end
    if book:value(key) ~= nil then book:cannot(key, "see dataset: weft.chat has it") end
  end
end

return data
