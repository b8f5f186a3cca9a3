-- fp8.lua - linears in fp8 of NeMo AutoModel recipes: torchao's, whose settings are below `fp8`, and Transformer
-- Engine's, below `model.backend.te_fp8`. Recipes that weft does not have are said by left_out.lua.
local quote = use "import/quote"

local RECIPES = { tensorwise = true, rowwise = true }

-- A name of the list leaves out all modules whose names have it anywhere, as of a part of a name; weft's
-- patterns are whole parts. Without names the head is in fp8, too.
local function put_exclude(book, plan)
  local key, texts = "fp8.filter_fqns", {}
  local names = book:value(key)
  for i, name in ipairs(type(names) == "table" and names or {}) do texts[i] = quote.text(tostring(name)) end
  plan:put("precision.exclude", #texts == 0 and "{}" or "{ " .. table.concat(texts, ", ") .. " }",
           book:leaf(key) or "AutoModel's default: no linear is left out")
  book:translated(key, "precision.exclude")
end

local SAME = "weights are gathered in bf16 and then rounded, with the scale of the whole weight: the same numbers "
  .. "in twice the bytes"
local TWICE = "weights are gathered in bf16 and then rounded, with the scale of the whole weight: twice the bytes, "
  .. "and f32 weights are rounded to bf16 before they are to fp8"

-- What fsdp2 gathers: with tensorwise scales of the whole weight each shard may be rounded before.
local function say_gathers(book, strategy, recipe, weights)
  local on = book:value "fp8.enable_fsdp_float8_all_gather" == true
  for _, key in ipairs { "fp8.enable_fsdp_float8_all_gather", "fp8.precompute_float8_dynamic_scale_for_fsdp" } do
    if book:value(key) ~= true then
      book:no_effect(key, "weights are gathered in bf16, and then rounded")
    elseif recipe ~= "tensorwise" then
      book:no_effect(key, "it counts with tensorwise scales alone")
    elseif strategy ~= "fsdp2" then
      book:no_effect(key, "it counts with fsdp2 alone")
    elseif key == "fp8.precompute_float8_dynamic_scale_for_fsdp" then
      book:no_effect(key, on and "all scales in one all-reduce are the same scales"
                     or "it counts with enable_fsdp_float8_all_gather alone")
    else
      book:cannot(key, weights == "bf16" and SAME or TWICE)
    end
  end
end

-- Transformer Engine's: all linears of the model, with the head, where they are its own.
local OF_TE = { current = "tensorwise", mxfp8 = "mxfp8" }
local function put_te(book, plan, experts)
  local key, backend = "model.backend.te_fp8.recipe", "model.backend."
  if not book:has "model.backend.te_fp8" then return end
  local recipe = OF_TE[book:value(key) or "current"]
  if not recipe or book:value(backend .. "linear") ~= "te" then return end
  plan:put("precision.#", quote.text "fp8", book:leaf(key) or book:leaf "model.backend.te_fp8._target_")
  plan:put("precision.recipe", quote.text(recipe), book:leaf(key) or "AutoModel's default")
  plan:put("precision.exclude", "{}", "AutoModel's: the head, too")
  if experts and book:value(backend .. "experts") == "te" then
    book:cannot(key, "products of experts stay in the type of precision: linears alone are in fp8")
  else
    book:translated(key, "precision.recipe")
  end
  book:no_effect("model.backend.te_fp8._target_", "the recipe says it")
end

-- `weights`: the type of the recipe's weights, nil if it does not say it; `experts`: whether the model has some.
local function put(book, plan, strategy, weights, experts)
  put_te(book, plan, experts)
  local recipe = book:value "fp8.recipe_name" or "tensorwise"
  if book:value "fp8.enabled" ~= true or not RECIPES[recipe] then return end
  plan:put("precision.#", quote.text "fp8", book:leaf "fp8.enabled")
  plan:put("precision.recipe", quote.text(recipe), book:leaf "fp8.recipe_name" or "AutoModel's default")
  book:translated("fp8.enabled", "precision")
  book:translated("fp8.recipe_name", "precision.recipe")
  put_exclude(book, plan)
  say_gathers(book, strategy, recipe, weights)
  book:no_effect("fp8.force_recompute_fp8_weight_in_bwd", "torchao does not read it any more: weights are rounded anew "
                 .. "for each product, there as here")
  book:no_effect("fp8.emulate", "it says where products are computed, not what of")
end

return { put = put }
