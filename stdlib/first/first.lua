-- first.lua - weft init: a folder with a plan that runs, and what an editor needs to complete and
-- check its fields.
local shown, stubs = use "shown", use "plan_stubs"

local plan = [[
-- plan.lua - a small Llama on made-up tokens, on two virtual ranks of this machine.
--
--   weft check plan.lua       everything that is wrong with it, with lines
--   weft verify plan.lua      its steps on all ranks and on one, compared
--   weft run plan.lua         trains
--   weft show plan.lua        what every rank does, holds and sends
--   weft run plan.lua -D tp=2 --set train.steps=50
local weft = require "weft"

return weft.plan {
  name      = "first",
  model     = weft.model "llama-tiny",             -- or weft.hf "DIR", a folder of Hugging Face
  mesh      = { tp = weft.var("tp", 1), dp = 2 },   -- and pp, cp, ep
  strategy  = "zero",                               -- or "fsdp2", "ddp"
  batch     = { global = 16, micro = 4, seq = 128 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-3, min = 3e-4, warmup = 10 },
    weight_decay = 0.1, clip = 1.0,
  },
  -- Made-up tokens are drawn at random, so that the loss stays near ln(vocab_size) = 5.55: to
  -- learn something, weft.text "my.txt", weft.tokens or weft.chat.
  data      = weft.synthetic {},
  train     = { steps = 100, log_every = 10 },
}
]]

-- Of lua-language-server, which finds weft.d.lua beside the plan by itself.
local settings = [[
{
  "$schema": "https://raw.githubusercontent.com/LuaLS/vscode-lua/master/setting/schema.json",
  "runtime.version": "Lua 5.4"
}
]]

-- A path as a shell takes it.
local function quoted(path)
  if not string.find(path, "[^%w_./-]") then return path end
  return "'" .. string.gsub(path, "'", "'\\''") .. "'"
end

return function(args)
  local said = string.format("%s: plan.lua, .luarc.json and weft.d.lua; next: weft verify %s\n",
                             shown(args.file), shown(quoted(args.file .. "/plan.lua")))
  return {
    ok = true, text = said, json = { folder = args.file },
    files = {
      { name = "plan.lua", text = plan },
      { name = ".luarc.json", text = settings },
      { name = "weft.d.lua", text = stubs() },
    },
  }
end
