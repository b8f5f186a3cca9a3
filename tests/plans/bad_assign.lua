local weft = require "weft"

mesh = { tp = 2 }
return weft.plan { mesh = mesh }
--> bad_assign.lua:3: error: assignment to global 'mesh' (use 'local mesh = ...')
--> 1 error
