-- end_to_end.lua - which recipes of NeMo AutoModel weft could run from their data to their weights:
--
--   weft lua tests/import/end_to_end.lua "WEFT" OUTDIR RECIPES.jsonl
--
-- A line of RECIPES.jsonl is an object with the recipe's name, "from", and its "settings". Each is
-- imported; what the import cannot express and is not in HARMLESS is missing. The made-up tokens of
-- the plan then give way to data of the recipe's kind, small files that are written here, and `weft
-- check` must take the plan. A teacher of the hub gives way to a folder with a small model of the same
-- vocabulary. Prints a line for each recipe, what is missing by kind and by family,
-- and the shares of recipes that have nothing missing.
--
-- Recipes of images, sound and video are left out. A family counts as weft's where it imports the
-- model, whatever else is missing.
local json = dofile(arg[0]:gsub("[^/]*$", "json.lua"))
local weft, out, recipes = arg[1], arg[2], arg[3]

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function run(format, ...)
  local pipe <close> = assert(io.popen(string.format(format, ...) .. "; echo \" $?\""))
  local text = pipe:read "a"
  return tonumber(text:match "(%d+)%s*$"), (text:gsub("%s*%d+%s*$", ""))
end

local function put(name, text)
  local file <close> = assert(io.open(out .. "/" .. name, "w"))
  assert(file:write(text))
end

local function get(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

local function first_error(text) return text:match "error: ([^\n]*)" or text:match "[^\n]+" or "" end

-- ---- the recipe ----

local function class_of(t)
  local name = type(t) == "table" and t._target_ or t
  return type(name) == "string" and name or ""
end

-- What of a recipe is no text; nil: it trains a text model on text.
local function other_than_text(s)
  local class, recipe = class_of(s.dataset), class_of(s.recipe)
  if class:find ".vlm." or class:find ".audio." then return "images or sound in its data" end
  if recipe:find "VLM" or recipe:find "Multimodal" or recipe:find "Vispec" then return "images" end
  if class_of(s.model):find "ImageText" or class_of(s.model):find "Multimodal" then return "images" end
  if s.flow_matching or s.vae or s.inference then return "images or video" end
  if not s.model and not s.recipe_args then return "no model" end
end

-- ---- data ----

-- Kinds of data, and what `data` of a plan says of them. Rows with a question and an answer, not all in
-- columns of these names, are made JSON lines, as the Hub's files are.
local KINDS = {
  ["made-up tokens"] = "weft.synthetic {}",
  ["conversations"] = 'weft.chat { "talks.jsonl", template = "chatml", tokenizer = "tokenizer" }',
  ["questions and answers"] = 'weft.chat { "rows.jsonl", template = "chatml", tokenizer = "tokenizer",'
    .. ' format = { prompt = "prompt", response = "response" } }',
  ["token files"] = 'weft.tokens { "tokens.bin", format = "megatron" }',
}
local CLASSES = {
  MockIterableDataset = "made-up tokens", build_mock_rollout_dataset = "made-up tokens",
  make_agent_chat_dataset = "conversations", ChatDataset = "conversations", HellaSwag = "questions and answers",
  make_squad_dataset = "questions and answers", make_xlam_dataset = "conversations",
  ColumnMappedTextInstructionDataset = "questions and answers", MegatronPretraining = "token files",
  NanogptDataset = "token files",
}

local LONGEST = 8000 -- rows, of some 18 tokens: more than one sample of any recipe has

local function write_data()
  os.execute("mkdir -p " .. quoted(out .. "/tokenizer"))
  put("tokenizer/tokenizer.json", get(arg[0]:gsub("[^/]*/[^/]*$", "chat/nfc.json")))
  local talks, rows = {}, {}
  for i = 1, LONGEST do
    talks[i] = '{"messages": [{"role": "user", "content": "and after ' .. i .. '"},'
      .. ' {"role": "assistant", "content": "it is all one and the same"}]}\n'
    rows[i] = '{"prompt": "and after ' .. i .. '", "response": "it is all one and the same"}\n'
  end
  put("talks.jsonl", table.concat(talks))
  put("rows.jsonl", table.concat(rows))
  local code, text = run("%s tokenize --chat %s --template chatml --tokenizer %s -o %s 2>&1", quoted(weft),
                         quoted(out .. "/talks.jsonl"), quoted(out .. "/tokenizer"), quoted(out .. "/tokens.bin"))
  assert(code == 0, text)
end

-- ---- teachers ----

local TEACHER = [[
local weft = require "weft"
return weft.plan {
  model = weft.model { "llama", vocab_size = 128256, hidden_size = 16, intermediate_size = 16,
                       num_hidden_layers = 1, num_attention_heads = 2 },
  batch = { global = 1, micro = 1, seq = 2 }, data = weft.synthetic {}, train = { steps = 1 },
}
]]

local function write_teacher()
  put("teacher.lua", TEACHER)
  os.execute("rm -rf " .. quoted(out .. "/teacher"))
  local code, text = run("cd %s && %s run -q teacher.lua --export teacher 2>&1", quoted(out), quoted(weft))
  assert(code == 0, text)
end

-- The recipe as it is with that folder.
local function with_teacher(raw)
  return (raw:gsub('("teacher_model":%s*{[^{}]-"pretrained_model_name_or_path":%s*)"[^"]*"', '%1"./teacher"'))
end

-- ---- what is missing ----

-- Settings that a plan cannot express and that training does without: the import says of each what is
-- other. Those of data are looked at above.
local HARMLESS = {
  "^dataset%.", "^validation_dataset", "^step_scheduler%.val_every_steps$", -- data.val has them
  "^step_scheduler%.num_epochs$", -- train.epochs, of data in files
  "^model%.backend%.dispatcher$", -- the same sums by other kernels
  "^model%.backend%.fake_balanced_gate$", -- measurements of speed choose experts in turn
  "^fp8%.enable_fsdp_float8_all_gather$", -- the same weights in fp8, gathered in more bytes
  "^model%.load_base_model$", "^model%._target_$", -- weights are in a folder, which weft.hf reads
  "^model%.torch_dtype$", "^model%.dtype$", -- master weights are f32, not in the files' type
  "^optimizer%.master_weight_bits$", -- 32 in the place of 24
  "^loss_fn%._target_$", -- the same loss, in other pieces
  "^teacher_distributed%.", "^separate_meshes$", -- the same numbers, on other ranks
  "^teacher_model%.torch_dtype$", "^teacher_model%.dtype$", -- it computes in the student's type
  "^autopipeline%.", -- not read by AutoModel either
  "^ci%.",
}

local FP8 = "products in fp8"
-- Kinds of what is missing, by settings, then by what the import says.
local MISSING = {
  { "^optimizer", "the optimizer" }, { "^peft", "the adapter's modules" }, { "^quantization", "the base's type" },
  { "^fp8", FP8 }, { "^model%.backend%.te_fp8", FP8 }, { "^dllm", "masked diffusion" },
  { "^teacher", "distillation" }, { "^kd_", "distillation" }, { "^separate_meshes$", "distillation" },
  { "^qat", "products of integers" },
  { "^model%.[%w_]*mtp", "multi-token prediction" }, { "^model%.num_nextn", "multi-token prediction" },
}
local REFUSED = {
  { "hybrid of Mamba", "the model: Mamba" }, { "a Falcon", "the model: Mamba" },
  { "hybrid of linear", "the model: linear attention" }, { "draft model", "a draft model" },
  { "masked diffusion", "masked diffusion" }, { "with images", "the model: images" },
  { "of images", "the model: images" }, { "is not in weft", "the model: another" },
  { "; weft has ", "the model: another" }, { "architecture that weft does not have", "the model: another" },
  { "another kind of model", "another kind of model" },
}

local function row_of(rows, text)
  for _, row in ipairs(rows) do if text:find(row[1]) then return row[2] end end
end

local function harmless(key)
  for _, pattern in ipairs(HARMLESS) do if key:find(pattern) then return true end end
end

-- The first setting that the plan lacks and needs: its kind, and what is said of it. One that only
-- makes products less exact counts where nothing else is missing.
local function lacking(report)
  local kind, why
  for _, one in ipairs(report.not_expressible) do
    local this = not harmless(one.key) and (row_of(MISSING, one.key) or "another setting")
    if this and (not kind or kind == FP8) then
      kind, why = this, string.format("%s = %s: %s", one.key, one.value, one.what)
    end
  end
  return kind, why
end

-- Kind and words of what is missing, or nothing; and the family, if weft has it.
local function judge(s, raw)
  put("recipe.json", with_teacher(raw))
  os.remove(out .. "/plan.lua")
  local code, text = run("%s import --json %s 2>&1", quoted(weft), quoted(out .. "/recipe.json"))
  if code ~= 0 and code ~= 1 then return "weft import fails", text:sub(1, 200) end
  local report = json.decode(text)
  if not report.ok then
    local why = report.errors[1].text
    return row_of(REFUSED, why) or "weft import refuses it", why
  end
  local family = report.plan:match 'model = weft.model {?%s*"([^"]*)"'
  local kind, why = lacking(report)
  if kind then return kind, why, family end
  local class = class_of(s.dataset)
  local data = CLASSES[class:match "[^.]*$"]
  if not data then return "the data", class == "" and "no data set" or class, family end
  local plan, n = report.plan:gsub("data = weft%.synthetic {}", "data = " .. KINDS[data])
  assert(n == 1, "the plan has no data of its own")
  put("plan.lua", plan)
  code, text = run("cd %s && %s check -q plan.lua 2>&1", quoted(out), quoted(weft))
  if code ~= 0 then return "weft check", first_error(text), family end
  return nil, data, family
end

-- ---- the counts ----

if not weft:find "^/" then weft = select(2, run "pwd") .. "/" .. weft end
os.execute("mkdir -p " .. quoted(out))
write_data()
write_teacher()
local all, known, kinds, left_out = { n = 0, ok = 0 }, { n = 0, ok = 0 }, {}, {}
local families = {}

local function add(t, key, by) t[key] = (t[key] or 0) + by end

for line in io.lines(recipes) do
  local recipe = json.decode(line)
  local other = other_than_text(recipe.settings)
  if other then
    add(left_out, other, 1)
  else
    local kind, why, family = judge(recipe.settings, line:match '"settings":%s*(.*)}%s*$')
    print(kind or "runs", family or "-", recipe.from, why)
    local ok = kind and 0 or 1
    add(all, "n", 1)
    add(all, "ok", ok)
    if family then
      add(known, "n", 1)
      add(known, "ok", ok)
      families[family] = families[family] or { n = 0, ok = 0 }
      add(families[family], "n", 1)
      add(families[family], "ok", ok)
    end
    if kind then add(kinds, kind, 1) end
  end
end

local function print_sorted(t, show)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do print(show(name, t[name])) end
end

print "left out:"
print_sorted(left_out, function(name, n) return string.format("%5d  %s", n, name) end)
print "missing:"
print_sorted(kinds, function(name, n) return string.format("%5d  %s", n, name) end)
print "families, recipes that run and all:"
print_sorted(families, function(name, f) return string.format("%5d of %d  %s", f.ok, f.n, name) end)
for _, row in ipairs { { "of text", all }, { "of these with a model of weft", known } } do
  print(string.format("%d recipes %s: %d run, %.1f %%", row[2].n, row[1], row[2].ok, 100 * row[2].ok / math.max(row[2].n, 1)))
end
print(string.format("%d more would but for %s", kinds[FP8] or 0, FP8))
