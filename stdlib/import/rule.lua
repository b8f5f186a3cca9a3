-- rule.lua - rows of the tables that say what becomes of settings without a part in the plan; see
-- ledger.apply. The third of a row is what a plan without the setting lacks, as docs/import.md shows it.
local rule = {}

function rule.none(key, why) return { key, "no_effect", why } end
function rule.cannot(key, change) return { key, "cannot", change } end

-- Without effect for one of these values; else `change`.
function rule.unless(key, values, why, change)
  return { key, function(book, leaf)
    for _, value in ipairs(values) do
      if leaf.value == value then return book:no_effect(leaf.key, why) end
    end
    book:cannot(leaf.key, change)
  end, change }
end

function rule.off(key, change)
  return rule.unless(key, { false, 0, "0", "", "none", "auto" }, "it is off, or as without it", change)
end

-- Settings that count only with another one: `switches` are keys that are on, or { key = value } for a
-- key that has this value.
function rule.with(key, switches, change)
  return { key, function(book, leaf)
    local names = {}
    for i, switch in ipairs(switches) do
      local name, wanted = switch, nil
      if type(switch) == "table" then name, wanted = next(switch) end
      local value = book:value(name)
      local on = value ~= nil and value ~= false and value ~= 0 and value ~= "none"
      if on and (wanted == nil or value == wanted) then return book:cannot(leaf.key, change) end
      names[i] = "--" .. string.gsub(name, "_", "-") .. (wanted and " " .. wanted or "")
    end
    book:no_effect(leaf.key, "it counts with " .. table.concat(names, " or ") .. " alone, which is not given")
  end, change }
end

-- All of a group by its switch, which must be exactly true or "auto" to count.
function rule.switched(group, switch, change)
  return { group .. ".*", function(book, leaf)
    if book:value(group .. "." .. switch) then
      book:cannot(leaf.key, change)
    else
      book:no_effect(leaf.key, "it is off")
    end
  end, change }
end

return rule
