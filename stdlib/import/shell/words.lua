-- words.lua - what tokens of a script are, before anything is known of variables: a plain word, an assignment; and the
-- walk over them.
local words = {}

-- The text of a word that is no more than that: nothing quoted, no variable.
function words.literal(token)
  local part = token and token.kind == "word" and #token.parts == 1 and token.parts[1]
  return part and part[1] == "text" and not part[3] and part[2] or nil
end

-- NAME= or NAME+=: the name, whether it appends, and where the text begins.
function words.assignment(token)
  local part = token.parts and token.parts[1]
  if not part or part[1] ~= "text" or part[3] then return nil end
  local name, plus = string.match(part[2], "^([%a_][%w_]*)(%+?)=")
  return name, plus == "+", name and #name + #plus + 2
end

-- NAME[KEY]=: the name.
function words.entry(token)
  local part = token.kind == "word" and token.parts[1]
  local name = part and part[1] == "text" and not part[3] and string.match(part[2], "^([%a_][%w_]*)%[")
  if not name then return nil end
  for _, other in ipairs(token.parts) do
    if other[1] == "text" and string.find(other[2], "%]%+?=") then return name end
  end
end

local REDIRECT = { [">"] = true, [">>"] = true, ["<"] = true, [">&"] = true, ["<&"] = true, ["&>"] = true,
                   ["&>>"] = true, ["<<<"] = true, [">|"] = true, ["<<"] = true, ["<<-"] = true }
function words.redirects(token) return token and token.kind == "op" and REDIRECT[token.op] or false end

function words.is_op(token, op) return token ~= nil and token.kind == "op" and token.op == op end

-- ---- the walk: self.tokens from self.at on ----

function words.peek(self) return self.tokens[self.at] end
function words.step(self)
  local token = self.tokens[self.at]
  self.at = self.at + 1
  return token
end

function words.skip_newlines(self)
  while self.tokens[self.at] and self.tokens[self.at].kind == "newline" do self.at = self.at + 1 end
end

return words
