-- trainer.lua - what axolotl's recipes and LLaMA-Factory's arguments have of Transformers' Trainer.
local quote = use "import/quote"
local values = use "import/values"
local trainer = {}

-- Transformers' own Adafactor, as its Trainer makes it; see docs/memory.md.
function trainer.put_adafactor(_, plan)
  plan:put("optimizer.scale_parameter", "false", "Transformers' Trainer")
  plan:put("optimizer.relative_step", "false", "Transformers' Trainer")
  plan:put("optimizer.beta2_decay", "-0.8", "Transformers' default")
  plan:put("optimizer.eps", "{ 1e-15, 0.001 }", "Transformers' default, of which the first is 1e-30 of squares")
  plan:put("optimizer.d", "1", "Transformers' default")
end

-- Of PyTorch's DDP.
function trainer.put_buckets(book, plan)
  local key = "ddp_bucket_cap_mb"
  local mb = values.positive(book, key)
  if not mb or mb <= 0 then return end
  plan:put("strategy.bucket_bytes", quote.value(math.max(1, math.floor(mb * 1048576))), book:leaf(key))
  book:translated(key, "strategy.bucket_bytes")
end

function trainer.put_timeout(book, plan)
  local key = "ddp_timeout"
  local seconds = values.positive(book, key)
  if not seconds or seconds <= 0 then return end
  plan:put("comm.timeout", quote.value(math.max(0.1, math.min(seconds, 1000000))), book:leaf(key))
  book:translated(key, "comm.timeout")
end

-- Checkpoints lie below the plan's folder: in output_dir, or in `usual`, which is of `whose`.
function trainer.put_folder(book, plan, usual, whose)
  local key, dir = "output_dir", book:value "output_dir"
  local own = type(dir) == "string" and string.gsub(dir, "^%./+", "")
  if own and values.folder(own) then
    plan:put("checkpoint.dir", quote.text(own), book:leaf(key))
    return book:translated(key, "checkpoint.dir")
  end
  plan:put("checkpoint.dir", quote.text(usual), dir ~= nil and "a folder below the plan's" or whose)
  if dir ~= nil then book:cannot(key, "a plan writes below its own folder: --set checkpoint.dir=DIR says another") end
end

return trainer
