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

-- Rows by the keys that they are of: exact ones, and those below "prefix.*" and "prefix_*", of which the
-- longest counts. `from` and `to`: where a row has its keys.
local function index(rows, from, to)
  local exact, below = {}, {}
  for _, row in ipairs(rows) do
    for i = from, to or #row do
      local prefix = string.match(row[i], "^(.*)%.%*$") or string.match(row[i], "^(.*_)%*$")
      local at, name = prefix and below or exact, prefix or row[i]
      at[name] = at[name] or {}
      table.insert(at[name], row)
    end
  end
  return { exact = exact, below = below }
end

-- The rows of a key; nil: there are none.
local function rows_of(indexed, key)
  if indexed.exact[key] then return indexed.exact[key] end
  while key do
    if indexed.below[key] then return indexed.below[key] end
    key = string.match(key, "^(.*_)[^._]+_?$") or string.match(key, "^(.*)%.[^.]*$")
  end
end

-- `absent`: texts that mean the same as a setting that is not given. `fields`: rows { field, key, ...,
-- note = }, the settings that take part in the plan; nil: those of a system whose keys are the fields'.
function ledger.new(leaves, absent, fields)
  return setmetatable({ leaves = leaves, absent = absent, fields = fields and index(fields, 2), assumed = {},
                        refused = {}, asked = {} }, ledger)
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

-- How texts begin that say why a translated setting needs no field.
local NAMES_NONE = { f32 = true, no = true, gradients = true, scores = true }

local function put(self, key, list, text)
  local leaf = self.leaves.at[key]
  if leaf and not leaf.list then leaf.list, leaf.text = list, text end
  return leaf
end

-- Whether a row is of the field that a text begins with: the field itself, one above or one below it.
local function is_of(row, field)
  for name in string.gmatch(row[1], "[^, ]+") do
    if name == field or string.sub(name, 1, #field + 1) == field .. "."
      or string.sub(field, 1, #name + 1) == name .. "." then
      return true
    end
  end
  return false
end

-- The row of a setting for what is said of it: one of its rows is of the field that the text begins with,
-- unless the text names no field. What docs/import.md shows is then what happens.
local function row_for(self, key, text)
  local rows = rows_of(self.fields, key)
  if not rows then fail("weft import: fields.lua has no row of " .. quote.shown(key)) end
  local field = text and string.match(text, "^[%a_][%w_.]*")
  for _, row in ipairs(rows) do
    if not text or is_of(row, field) then return row end
  end
  if not NAMES_NONE[field] then
    fail(string.format("weft import: fields.lua does not have %s as %s", quote.shown(key), quote.shown(text)))
  end
  return rows[1]
end

-- The first word about a setting counts; `cannot` takes the place of the other two. `text` says more than
-- the field that the setting's row has.
function ledger:translated(key, text)
  local row = self.fields and row_for(self, key, text)
  return put(self, key, "translated", text or row[1])
end
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

-- A setting that weft import has a row of, and did not ask for: the other settings are such that it is none of
-- theirs, as a scale of the loss without --fp16.
local COUNTS_NOT = "counts only with other settings than these: nothing of it is in the plan"
local function known(self, key) return self.fields and rows_of(self.fields, key) ~= nil end

-- The key that was meant by one, as a whole or, where none is near, by its last name: TPP is tp_size.
local function nearest(key, names)
  local short, whole = {}, {}
  for _, name in ipairs(names) do
    local last = scalar.behind_last(name, ".")
    for _, one in ipairs { last, (string.gsub(last, "_size$", "")), (string.gsub(last, "_degree$", "")) } do
      if not whole[one] then short[#short + 1], whole[one] = one, name end
    end
  end
  local near = suggest(key, names)
  if near then return near end
  return whole[suggest(string.lower(scalar.behind_last(key, ".")), short) or ""]
end

-- A setting of the command line that nothing reads is an error: it was meant to change something.
local function unread(self, leaf, exact)
  local names = {}
  for _, list in ipairs { self.asked, exact, self.fields and self.fields.exact or {}, self.leaves.at } do
    for _, key in ipairs(keys(list)) do
      if key ~= leaf.key then names[#names + 1] = key end
    end
  end
  if known(self, leaf.key) then return self:refuse(leaf.key, string.format('"%s" %s', quote.shown(leaf.key), COUNTS_NOT)) end
  local near = nearest(leaf.key, names)
  self:refuse(leaf.key, string.format("weft import does not know the setting \"%s\"%s", quote.shown(leaf.key),
                                      near and string.format(" (did you mean \"%s\"?)", quote.shown(near)) or ""))
end

-- Whether settings that take part in the plan lie below the prefix of a rule.
local function has_fields_below(self, pattern)
  local prefix = string.match(pattern, "^(.*[._])%*$")
  if not prefix then return false end
  for _, at in ipairs { self.fields.exact, self.fields.below } do
    for key in next, at do
      if string.sub(key, 1, #prefix) == prefix then return true end
    end
  end
  return false
end

-- Of a translation that ended early: whether a rule would say of a setting what only one that went on
-- could know. A rule for all below a prefix is about those that the translation did not take.
local function is_too_early(self, leaf, rule)
  if not self.ended or not self.fields or not rule then return false end
  return known(self, leaf.key) or has_fields_below(self, rule[1])
end

-- Applies rules where an error ended the translation before it had looked at all settings.
function ledger:apply_early(rules)
  self.ended = true
  self:apply(rules)
end

-- Applies rules to all leaves that nothing was said of. `rules` is a list of { pattern, what,
-- text }: a key, or "prefix.*" for all below it and "prefix_*" for all names that begin so; the
-- longest pattern counts. `what` is
-- "no_effect", "cannot" or a function(ledger, leaf) that says one of them.
function ledger:apply(rules)
  local indexed = index(rules, 1, 1)
  for _, leaf in ipairs(self.leaves) do
    if not leaf.list then
      local found = rows_of(indexed, leaf.key)
      local rule = found and found[#found] -- of two rows of a key the last one counts
      if leaf.value == scalar.null then
        self:no_effect(leaf.key, "null is as if it were not given")
      elseif not rule and type(leaf.value) == "table" and next(leaf.value) == nil then
        self:no_effect(leaf.key, "it is empty")
      elseif not rule and leaf.ordered and #self.refused == 0 then
        unread(self, leaf, indexed.exact)
      elseif not rule and #self.refused > 0 or is_too_early(self, leaf, rule) then
        self:cannot(leaf.key, "not looked at, as an error ended the translation before")
      elseif not rule then
        self:cannot(leaf.key, known(self, leaf.key) and "it " .. COUNTS_NOT or "weft import does not know this setting")
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
