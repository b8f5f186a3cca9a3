-- ledger.lua - what becomes of each setting. Every leaf of the input ends in one of three lists:
-- translated (into which field), no effect here (why), not expressible (what it would change).
-- Beside them is what the plan needs and the settings do not say (assumed).
local quote = use "import/quote"
local scalar = use "import/scalar"
local tree = use "import/tree"
local ledger = {}
ledger.__index = ledger

ledger.lists = {
  { "translated", "translated" }, { "no_effect", "no effect here" },
  { "not_expressible", "not expressible" },
}

-- `absent`: texts that mean the same as a setting that is not given.
function ledger.new(leaves, absent)
  return setmetatable({ leaves = leaves, absent = absent, assumed = {}, refused = {}, asked = {} }, ledger)
end

-- The value of a key; nil: it is not given, or null, or absent, or a variable without one.
function ledger:value(key)
  local leaf = self:leaf(key)
  if leaf and leaf.open then
    leaf.asked = true
    return nil
  end
  if not leaf or leaf.value == scalar.null or self.absent[leaf.value] then return nil end
  return leaf.value
end

-- What was asked for is known, to say what a misspelt key was meant to be.
function ledger:leaf(key)
  self.asked[key] = true
  return self.leaves.at[key]
end

-- The first of these keys that has a value, and the value.
function ledger:first(...)
  for _, key in ipairs { ... } do
    local value = self:value(key)
    if value ~= nil then return key, value end
  end
end

-- Whether a key, or something below it, is given and not null.
function ledger:has(prefix)
  for _, leaf in ipairs(self.leaves) do
    local below = string.sub(leaf.key, 1, #prefix + 1) == prefix .. "."
    if (below or leaf.key == prefix) and leaf.value ~= scalar.null then return true end
  end
  return false
end

local function put(self, key, list, text)
  local leaf = self.leaves.at[key]
  if leaf and not leaf.list then leaf.list, leaf.text = list, text end
  return leaf
end

-- The first word about a setting counts; `cannot` takes the place of the other two.
function ledger:translated(key, field) return put(self, key, "translated", field) end
function ledger:no_effect(key, why) return put(self, key, "no_effect", why) end
function ledger:cannot(key, change)
  local leaf = self.leaves.at[key]
  if leaf and leaf.list ~= "not_expressible" then
    leaf.list, leaf.text = "not_expressible", change
  end
end

-- What the settings do not say.
function ledger:assume(what, text)
  self.assumed[#self.assumed + 1] = { what = what, text = text }
end

-- There is no plan: `key` may be nil.
function ledger:refuse(key, text)
  local leaf = key and self.leaves.at[key]
  self.refused[#self.refused + 1] = { leaf = leaf, key = key, text = text }
  if leaf then self:cannot(key, text) end
end

-- A setting of the command line that nothing reads is an error: it was meant to change something.
local function unread(self, leaf, exact)
  local names = {}
  for _, known in ipairs { self.asked, exact, self.leaves.at } do
    for _, key in ipairs(keys(known)) do
      if key ~= leaf.key then names[#names + 1] = key end
    end
  end
  local near = suggest(leaf.key, names)
  self:refuse(leaf.key, string.format("weft import does not know the setting \"%s\"%s", quote.shown(leaf.key),
                                      near and string.format(" (did you mean \"%s\"?)", quote.shown(near)) or ""))
end

-- Applies rules to all leaves that nothing was said of. `rules` is a list of { pattern, what,
-- text }: a key, or "prefix.*" for all below it and "prefix_*" for all names that begin so; the
-- longest pattern counts. `what` is
-- "no_effect", "cannot" or a function(ledger, leaf) that says one of them.
function ledger:apply(rules)
  local exact, below = {}, {}
  for _, rule in ipairs(rules) do
    local prefix = string.match(rule[1], "^(.*)%.%*$") or string.match(rule[1], "^(.*_)%*$")
    if prefix then below[prefix] = rule else exact[rule[1]] = rule end
  end
  local function find(key)
    if exact[key] then return exact[key] end
    while key do
      if below[key] then return below[key] end
      key = string.match(key, "^(.*_)[^._]+_?$") or string.match(key, "^(.*)%.[^.]*$")
    end
  end
  for _, leaf in ipairs(self.leaves) do
    if not leaf.list then
      local rule = find(leaf.key)
      if not rule and leaf.value == scalar.null then
        self:no_effect(leaf.key, "null is as if it were not given")
      elseif not rule and type(leaf.value) == "table" and next(leaf.value) == nil then
        self:no_effect(leaf.key, "it is empty")
      elseif not rule and leaf.ordered and #self.refused == 0 then
        unread(self, leaf, exact)
      elseif not rule then
        self:cannot(leaf.key, #self.refused == 0 and "weft import does not know this setting"
                              or "not looked at, as an error ended the translation before")
      elseif leaf.value == scalar.null then
        self:no_effect(leaf.key, "null is as if it were not given")
      elseif type(rule[2]) == "function" then
        rule[2](self, leaf, rule[3])
      else
        self[rule[2]](self, leaf.key, rule[3])
      end
    end
  end
end

-- "recipe.yaml:3: distributed.tp_size = 4", shown.
function ledger.said(leaf)
  return string.format("%s: %s = %s", tree.place(leaf), quote.shown(tree.name(leaf)),
                       quote.shown(leaf.value))
end

return ledger
