-- Fields that a metatable would give.
local weft = require "weft"
local function loss(g, x, o) return g:cross_entropy(x) end
local defaults = { __index = { steps = 7, seed = 5, lr = 1, tp = 2 } }
return weft.plan {
  mesh      = weft.extend(setmetatable({ pp = 2 }, defaults), { dp = 1 }),
  batch     = { global = 8, seq = 16 },
  optimizer = setmetatable(weft.adamw { lr = 1e-3 }, defaults),
  train     = setmetatable({}, { __pairs = function(t) return next, { steps = 3 } end }),
  -- What a function of the plan is given is its own matter.
  loss      = { loss, per = "tokens", object = setmetatable({}, defaults) },
  model     = weft.model "llama-tiny",
  precision = setmetatable({ param_dtype = "bf16" }, { __name = "nothing behind it" }),
}

--> bad_behind.lua:6: error: plan.mesh: a table of a plan has its fields itself; those that come by __index of a metatable are not read (write weft.extend(DEFAULTS, { ... }), of tables without one)
--> bad_behind.lua:8: error: plan.optimizer: a table of a plan has its fields itself; those that come by __index of a metatable are not read (write weft.extend(DEFAULTS, { ... }), of tables without one)
--> bad_behind.lua:9: error: plan.train: a table of a plan has its fields itself; those that come by __pairs of a metatable are not read (write weft.extend(DEFAULTS, { ... }), of tables without one)
--> 3 errors
