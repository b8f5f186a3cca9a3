-- teacher.lua - distillation of NeMo AutoModel as the field loss: the cross entropy of labels and
-- KL(teacher|student), at one temperature, each for every label token. A teacher is the folder of a
-- model; of a name of the hub the report says which field takes the folder once it is there.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

local PATH = "teacher_model.pretrained_model_name_or_path"
local RECIPE = "KnowledgeDistillationRecipeForNextTokenPrediction"

local SAME_MESH = "the teacher is cut as the model, on its mesh: other memory, the same numbers"

-- Names of folders, not of the hub.
local function is_folder(path) return string.find(path, "^%.?%.?/") ~= nil end

-- KL at another temperature is multiplied by its square there.
local function fits(book)
  local key = "kd_loss_fn.temperature"
  local temperature = values.positive(book, key) or 1
  if temperature == 1 then return true end
  book:cannot(key, "AutoModel multiplies the divergence by the square of the temperature: a loss of the plan's own "
              .. "can, distill does not")
end

local function say_rest(book)
  book:no_effect("kd_loss_fn.temperature", "as it is in weft")
  book:no_effect("kd_loss_fn._target_", "loss says it")
  book:no_effect("kd_loss_fn.ignore_index", "labels that do not count are marked by the data")
  book:no_effect("kd_loss_fn.fp32_upcast", "the loss is computed in f32")
  book:no_effect("kd_loss_fn.chunk_size", "how much of the divergence is computed at a time does not change it")
  book:no_effect("teacher_model._target_", "loss.teacher says it")
  book:no_effect("teacher_model.attn_implementation", "which kernels compute does not change the plan")
  if book:value "separate_meshes" == true then book:cannot("separate_meshes", SAME_MESH) end
  book:no_effect("separate_meshes", "as it is in weft")
  if book:value "offload_teacher_model" == false then book:no_effect("offload_teacher_model", "as it is in weft") end
  for _, leaf in ipairs(book.leaves) do
    if string.find(leaf.key, "^teacher_distributed%.") then
      book:cannot(leaf.key, SAME_MESH)
    end
  end
  for _, name in ipairs { "torch_dtype", "dtype" } do
    book:cannot("teacher_model." .. name, "the teacher has the type of precision.param_dtype")
  end
end

local teacher = {}

-- Whether the plan has a loss of its own.
function teacher.put(book, plan)
  local recipe = scalar.behind_last(tostring(book:value "recipe" or book:value "recipe._target_" or ""), ".")
  local path = book:value(PATH)
  if recipe ~= RECIPE or type(path) ~= "string" or not fits(book) then return false end
  local ratio = values.positive(book, "kd_ratio") or 0.5
  if not is_folder(path) then
    book:cannot(PATH, string.format("a teacher is the folder of a model: loss = { \"distill\", teacher = \"DIR\", "
      .. "alpha = %s } once %s is there", quote.value(ratio), quote.shown(path)))
    return false
  end
  plan:put("loss.#", quote.text "distill", book:leaf "recipe")
  plan:put("loss.teacher", quote.text(path), book:leaf(PATH))
  plan:put("loss.alpha", quote.value(ratio), book:leaf "kd_ratio" or "AutoModel's default")
  for key, field in pairs { recipe = "loss", ["recipe._target_"] = "loss", [PATH] = "loss.teacher", kd_ratio = "loss.alpha" } do
    book:translated(key, field)
  end
  say_rest(book)
  return true
end

return teacher
