-- scopes.lua - where what a shell script sets, and what break, return and exit leave, comes to its end: functions, loops,
-- files that are sourced, and ( ), of which nothing comes out. Methods of script.lua.
local commands = use "import/shell/commands"
local value = use "import/shell/value"
local words_of = use "import/shell/words"
local peek = words_of.peek
local scopes = {}

scopes.leaves = { exit = "the script ends here", ["return"] = "the function ends here", ["break"] = "the loop ends here",
                  continue = "this round ends here" }

-- `base` has how unsure it was where the script began, and how undecided where a function and a loop did: nil outside of them.
function scopes:leave(kind, n, holds, line)
  local base = self.base[kind == "continue" and "break" or kind]
  if not base then
    self:note(line, "%s has nothing to leave here", kind)
  elseif (kind == "exit" and self.unsure or self.undecided) > base then
    self:note(line, "whether %s is not in the file: read as if not", scopes.leaves[kind])
  else
    self.leaving = { kind = kind, n = n or 1, holds = holds }
  end
  return holds, true
end

-- Runs `body` with other values of these fields, which come back behind it.
function scopes:with(fields, body)
  local before = {}
  for key in next, fields do before[key] = self[key] or false end
  for key, new in next, fields do self[key] = new end
  local holds, guess = body()
  for key, old in next, before do self[key] = old or nil end
  return holds, guess
end

-- What stands in other tokens: a file that is sourced. `kind`: what ends it.
function scopes:elsewhere(tokens, at, kind)
  local base = { exit = self.base.exit, ["return"] = self.base["return"], ["break"] = self.base["break"] }
  if kind then base[kind] = self.undecided end
  return self:with({ tokens = tokens, at = at, depth = self.depth + 1, base = base }, function()
    local holds, guess = self:block({}, true)
    if kind and self.leaving and self.leaving.kind == kind then
      holds, guess = self.leaving.holds, true
      self.leaving = nil
    end
    return holds, guess
  end)
end

function scopes:call(body, args)
  local env, frame = self.env, {}
  local before, whole = env.args, env.whole
  env.args, env.whole = args, true
  local base = { exit = self.base.exit, ["return"] = self.undecided }
  local fields = { tokens = body.tokens, at = body.at, depth = self.depth + 1, base = base, frame = frame }
  local holds, guess = self:with(fields, function()
    local holds, guess = self:statement(true)
    if self.leaving and self.leaving.kind == "return" then
      holds, guess = self.leaving.holds, true
      self.leaving = nil
    end
    return holds, guess
  end)
  commands.restore(self, frame)
  env.args, env.whole = before, whole
  return holds, guess
end

-- Another shell, as of ( ) and of the sides of a pipe: what it sets stays in it.
function scopes:subshell(body)
  local env, at, n = self.env, {}, 0
  for name, var in next, self.env.at do
    local items, map = var.items and table.move(var.items, 1, #var.items, 1, {}), nil
    for key, text in next, var.map or {} do
      map = map or {}
      map[key] = text
    end
    at[name], n = { text = var.text, items = items, map = map or var.map and {}, line = var.line,
                          maybe = var.maybe, readonly = var.readonly }, n + 1 + #(items or {})
  end
  value.spend(env, n // 8, peek(self) and peek(self).line)
  local functions, exported, before, kept = {}, {}, #self.commands, #self.exports
  for name, one in next, self.functions do functions[name] = one end
  for name, one in next, self.exported do exported[name] = one end
  local vars, args, whole = env.at, env.args, env.whole
  env.at = at
  local base = { exit = self.unsure, ["return"] = self.base["return"], ["break"] = self.base["break"] }
  local holds, guess = self:with({ functions = functions, exported = exported, base = base, frame = self.frame and {} }, body)
  if self.leaving then holds, guess, self.leaving = self.leaving.holds, true, nil end
  env.at, env.args, env.whole = vars, args, whole
  if not commands.starts(self, before) then commands.drop_exports(self, kept) end
  return holds, guess
end

-- Whether the loop ends here, as its body is left.
function scopes:ends()
  local leaving = self.leaving
  if not leaving or leaving.kind == "return" or leaving.kind == "exit" then return leaving ~= nil end
  if leaving.n > 1 and self.loops > 1 then
    leaving.n = leaving.n - 1
    return true
  end
  self.leaving = nil
  return leaving.kind == "break"
end

-- What stands between two tokens may have been run, or not: what it sets is not known.
function scopes:may_set(from, to)
  for i = from, to - 1 do
    local name = words_of.assignment(self.tokens[i])
    local var = name and self.env.at[name]
    if var then var.maybe = true end
  end
end

return scopes
