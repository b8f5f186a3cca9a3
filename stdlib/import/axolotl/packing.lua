-- packing.lua - rows of axolotl's recipes: conversations, packed or each alone, and texts to continue, which axolotl
-- cuts as it reads them (prompt_strategies/completion.py and pretrain.py, utils/data/streaming.py).
local attention = use "import/axolotl/attention"
local data = use "import/axolotl/data"
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"
local packing = {}

-- ---- what is too long ----

local TOO_LONG = { drop = "drop", truncate = "truncate", raise = "error" }

-- Texts to continue, by how the recipe has them: packed.too_long, why, and what differs.
local TEXTS = {
  completion = { "split", "type: completion cuts texts", "all pieces of a text are learnt; axolotl takes its first 64" },
  windows = { "split", "pretraining_dataset: texts are cut", "pieces of a text have nothing in common; axolotl's have %d tokens in common "
    .. "with the one before, and each ends with the token that ends a document" },
  rows = { "truncate", "pretraining_dataset: a text a row", "a row has up to sequence_len tokens of a text, with the one that ends "
    .. "it; axolotl takes up to sequence_len - 2 of them, and adds none" },
}

-- Which of TEXTS a row has; nil: conversations or pairs.
local function kind_of(book, packs, loss)
  if loss then return nil end
  if book:value "pretraining_dataset" ~= nil then return packs and "windows" or "rows" end
  return data.completes(book) == "all" and "completion" or nil
end

-- Pieces overlap by so many tokens there.
local function overlap_of(book)
  local seq = values.whole(book, "sequence_len", 2) or 512
  return math.min(256, (seq - 1) // 2)
end

-- A pair stays whole: neither of its sequences is left out.
local function put_too_long(book, plan, text, loss)
  local key = "excess_length_strategy"
  local value = string.lower(tostring(book:value(key) or "drop"))
  if not TOO_LONG[value] then return book:refuse(key, quote.shown(value) .. ": expected drop, truncate or raise") end
  if text then
    plan:put("packed.too_long", quote.text(text[1]), text[2])
    book:assume("packed.too_long", string.format(text[3], overlap_of(book)))
    return book:no_effect(key, "axolotl cuts texts to continue as it reads them: none is too long")
  end
  if loss == "dpo" and value == "drop" then
    plan:put("packed.too_long", quote.text "truncate", "a pair stays whole")
    if book:value(key) ~= nil then return book:cannot(key, "pairs that are too long are cut, not left out") end
    return book:assume("packed.too_long", "pairs that are too long are cut; axolotl leaves them out")
  end
  plan:put("packed.too_long", quote.text(TOO_LONG[value]), book:value(key) and book:leaf(key) or "axolotl's default")
  book:translated(key, "packed.too_long")
  if not loss and data.completes(book) then
    book:assume("packed.too_long", "of all sets the same; axolotl cuts texts of type: completion into pieces of sequence_len, and loses none")
  end
end

-- ---- what sees what ----

local function say_apart(book)
  local key = "pretrain_multipack_attn"
  if book:value "pretraining_dataset" ~= nil and book:leaf(key) and not values.switch(book, key) then
    return book:cannot(key, "no document attends to others of its row; there they do")
  end
  local name = attention.of(book)
  if not name then
    book:assume("packed", "no document attends to others; axolotl keeps them apart with an attn_implementation alone")
  elseif not attention.isolates(name) then
    book:assume("packed", string.format("no document attends to others; axolotl does not keep them apart with attn_implementation: %s",
                                        quote.shown(name)))
  end
end

local function say_size(book)
  local micro = scalar.integer(book:value "micro_batch_size") or 1
  if micro > 1 and book:value "multipack_real_batches" ~= true then
    book:assume("packed.size", string.format("a row has sequence_len tokens; axolotl packs a microbatch as one row of %d times as many",
                                             micro))
  end
end

-- ---- all ----

local EOT = "0 is the token that ends a document; set the one of the tokenizer"
local TOGETHER = "pretraining_sample_concatenation"

-- Texts one behind the other.
local function put_stream(book)
  book:no_effect("sample_packing", "it is off")
  book:translated(TOGETHER, "packed: there is none, sequences are cut from one stream")
  book:no_effect("excess_length_strategy", "a stream has no end")
  book:assume("batch", "sequences are cut from one stream of the texts, and attend to all that is in them; axolotl cuts each text to "
              .. "sequence_len - 2 tokens, puts as many whole ones into a sequence as there is room for, and fills up the rest")
end

-- A row with one conversation, or one text, is filled up.
function packing.put(book, plan, loss)
  local packs = values.switch(book, "sample_packing")
  if packs and loss then
    return book:refuse("sample_packing", "rows of rl are not packed")
  end
  local kind = kind_of(book, packs, loss)
  if kind == "rows" and values.switch(book, TOGETHER) then return put_stream(book) end
  local one = kind and "text" or "conversation"
  plan:put("packed.eot", "0", "assumed: the id of the tokenizer is not in the settings")
  plan:put("packed.size", plan:source "batch.seq", packs and book:leaf "sample_packing" or string.format("a %s a row", one))
  if not packs then plan:put("packed.alone", "true", string.format("a %s a row", one)) end
  plan:put("packed.labels", quote.text "within", "labels do not cross documents")
  put_too_long(book, plan, TEXTS[kind], loss)
  book:assume("packed.eot", EOT)
  book:translated("sample_packing", packs and "packed.size" or "packed.alone: a row has one " .. one)
  if kind == "rows" then book:translated(TOGETHER, "packed.alone: a row has one text") end
  book:no_effect(TOGETHER, "it counts with pretraining_dataset, and without sample_packing, alone")
  if not packs then return end
  say_apart(book)
  say_size(book)
end

return packing
