local weft = require "weft"
local x = maths.floor(2.5)
return weft.plan { model = weft.model "llama-tiny", batch = { global = x, seq = 8 } }
--> bad_global.lua:2: error: unknown global 'maths' (did you mean 'math'?)
--> 1 error
