-- say.lua - lines of the prompt: what was asked for, and what is wrong.
local host, say = use "prompt/host", {}

local function with_word(colour, word, text)
  if host.colour then word = "\27[" .. colour .. "m" .. word .. "\27[0m" end
  host.write(word .. text .. "\n", "error")
end

function say.line(text) host.write(text .. "\n") end
function say.error(text) with_word(31, "error: ", text) end
function say.note(text) with_word(33, "note: ", text) end

-- Reasons of weft have their own form.
function say.reasons(text) host.write((string.gsub(text, "\n?$", "\n", 1)), "error") end

return say
