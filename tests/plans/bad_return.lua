local weft = require "weft"
weft.plan { model = weft.model "llama-tiny" }
--> bad_return.lua:1: error: the file returns nothing, expected weft.plan { ... } (write return weft.plan { ... })
--> 1 error
