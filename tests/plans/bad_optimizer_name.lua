-- An optimizer that is not there: the message lists those of the table.
local weft = require "weft"

return weft.plan {
  optimizer = weft.adagrad { lr = 1e-3 },
}
--> bad_optimizer_name.lua:5: error: weft has no 'adagrad' (write one of: weft.adamw weft.adam weft.adamw_8bit weft.sgd weft.lion weft.muon weft.adafactor)
--> 1 error
