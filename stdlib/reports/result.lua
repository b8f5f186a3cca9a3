-- result.lua - what was made together with its text.
return function(v) return rawget(v, "text") or "" end
