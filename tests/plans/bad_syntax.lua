local weft = require "weft"
return weft.plan {
  mesh = { tp = 2,
  batch = { global = 1 }
--> bad_syntax.lua:7: error: '}' expected (to close '{' at line 3) near <eof> (a bracket, a string or a function was opened and not closed)
--> 1 error
