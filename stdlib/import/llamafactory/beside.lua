-- beside.lua - the settings of DeepSpeed that LLaMA-Factory's argument deepspeed names: a JSON file, or a table in
-- its place. They are a ledger of their own, whose lists join those of the arguments. "auto" is what the
-- arguments say, as Transformers (integrations/deepspeed.py) fills it in; what says otherwise is an error there.
local deepspeed = use "import/deepspeed/deepspeed"
local left_out = use "import/deepspeed/left_out"
local ledger = use "import/ledger"
local quote = use "import/quote"
local read_settings = use "read_settings"
local read_text = use "read_text"
local scalar = use "import/scalar"
local tree = use "import/tree"

local beside = {}

-- ---- where it lies ----

local UP = 4 -- folders above that of the arguments: LLaMA-Factory's own files name each other from its root

local function is_there(path) return (pcall(read_text, path)) end

-- The path of a file that the arguments name, or nil.
local function path_of(name, file)
  if string.find(name, "^/") then return is_there(name) and name or nil end
  local folder = string.match(file, "^.*/") or ""
  for i = 0, UP do
    local path = folder .. string.rep("../", i) .. name
    if is_there(path) then return path end
  end
  local path = folder .. scalar.behind_last(name, "/")
  return is_there(path) and path or nil
end

-- ---- what LLaMA-Factory ships (examples/deepspeed) ----

local SCALES = { ["fp16.initial_scale_power"] = 16, ["fp16.hysteresis"] = 2, ["fp16.loss_scale_window"] = 1000 }
local SHIPPED = {
  ds_z0_config = { stage = 0 }, ds_z2_config = { stage = 2 }, ds_z2_offload_config = { stage = 2, offload = true },
  ds_z3_config = { stage = 3 }, ds_z3_offload_config = { stage = 3, offload = true, params = true },
  ds_z2_autotp_config = { stage = 2, tp = 2 },
}

local function shipped(name)
  local base = scalar.behind_last(name, "/")
  local one = SHIPPED[(string.gsub(base, "%.json$", ""))]
  if not one then return nil end
  local leaves, zero = tree.new(), "zero_optimization."
  local function set(key, value) tree.set(leaves, key, value, base) end
  for key, value in next, SCALES do set(key, value) end
  set("bf16.enabled", "auto")
  set("fp16.enabled", "auto")
  set("gradient_clipping", "auto")
  set(zero .. "stage", one.stage)
  set(zero .. "overlap_comm", false)
  set(zero .. "reduce_bucket_size", one.stage < 3 and 500000000 or "auto")
  if one.stage == 3 then set(zero .. "stage3_param_persistence_threshold", "auto") end
  if one.offload then set(zero .. "offload_optimizer.device", "cpu") end
  if one.params then set(zero .. "offload_param.device", "cpu") end
  if one.tp then set("tensor_parallel.autotp_size", one.tp) end
  return leaves
end

-- ---- reading ----

-- Settings below "deepspeed." as leaves of DeepSpeed's names.
local function inline(book)
  local leaves
  for _, leaf in ipairs(book.leaves) do
    local key = string.match(leaf.key, "^deepspeed%.(.+)$")
    if key then
      leaves = leaves or tree.new()
      leaf.given, leaf.key = leaf.given or leaf.key, key
      leaves.at[key], leaves[#leaves + 1] = leaf, leaf
    end
  end
  return leaves
end

local function of_file(book, name, file)
  local key = "deepspeed"
  local path = path_of(name, file)
  if path then
    local node = read_settings(path)
    if node.kind ~= "map" then return book:refuse(key, quote.shown(path) .. ": is no table of settings") end
    book:translated(key, "strategy, of the file that is read")
    return tree.leaves(node, scalar.behind_last(path, "/"), true), true
  end
  local leaves = shipped(name)
  if leaves then
    book:translated(key, "strategy, of the file that LLaMA-Factory ships")
    book:assume("strategy", quote.shown(name) .. " is not there: what LLaMA-Factory ships under this name counts")
    return leaves
  end
  book:cannot(key, "the file is not there, beside these arguments or from a folder above them: the plan has DDP")
end

-- Whether two numbers, lists of them or other values are the same.
local function same(a, b)
  if type(a) == "table" and type(b) == "table" then
    for i = 1, math.max(#a, #b) do
      if a[i] == nil or b[i] == nil or not same(a[i], b[i]) then return false end
    end
    return true
  end
  local n, m = scalar.number(a), scalar.number(b)
  if n and m then return math.abs(n - m) <= 1e-12 * math.abs(m) end
  return a == b
end

-- What the arguments say of settings that are "auto". Those that say another number are an error.
local function fill(ds, known)
  for _, key in ipairs(keys(known)) do
    local leaf, value = ds:leaf(key), known[key]
    if leaf and leaf.value == "auto" then
      leaf.value, leaf.filled = value, true
    elseif leaf and leaf.value ~= scalar.null and value ~= nil then
      if not same(leaf.value, value) then
        ds:refuse(key, string.format("%s is %s here and %s by the arguments, which Transformers refuses: \"auto\" is what "
                                     .. "they say", quote.shown(key), quote.shown(leaf.value), quote.shown(value)))
      end
    end
  end
end

-- A ledger of DeepSpeed's settings, nil if there are none. `known`: what the arguments say, by DeepSpeed's keys.
function beside.read(book, file, known)
  local leaves, read = inline(book), nil
  if not leaves then
    local name = book:value "deepspeed"
    if name == nil then return nil end
    if type(name) ~= "string" then
      return book:refuse("deepspeed", "deepspeed: expected the name of a file, or a table of settings")
    elseif string.find(name, "^%s*{") then
      return book:cannot("deepspeed", "settings as a text of JSON are not read: give them as a table, or in a file")
    elseif not string.find(name, "%.json$") then
      return book:refuse("deepspeed", string.format("deepspeed = %s: expected the name of a JSON file, or a table of settings",
                                                    quote.shown(name)))
    end
    leaves, read = of_file(book, name, file)
    if not leaves then return nil end
  end
  local ds = ledger.new(leaves, deepspeed.absent, deepspeed.fields)
  ds.shown = read
  fill(ds, known)
  return ds
end

-- ---- what becomes of them ----

local SAID = { "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps" }

-- Puts the strategy, precision and sizes of groups.
function beside.put(ds, plan, config)
  deepspeed.put_beside(ds, plan, config)
  for _, key in ipairs(SAID) do ds:translated(key) end
  ds:no_effect("steps_per_print", "logging_steps says how often")
  ds:cannot("scheduler.type", "the rate is that of lr_scheduler_type")
end

-- Ends the lists of these settings, and adds them to those of the arguments.
function beside.finish(ds, book)
  ds:apply(left_out)
  for _, one in ipairs(ds.assumed) do book.assumed[#book.assumed + 1] = one end
  for _, one in ipairs(ds.refused) do book.refused[#book.refused + 1] = one end
  if not ds.shown then return end
  for _, leaf in ipairs(ds.leaves) do
    if leaf.filled and leaf.list == "translated" then leaf.text = leaf.text .. ", \"auto\": as the arguments say" end
    book.leaves[#book.leaves + 1] = leaf
  end
end

return beside
