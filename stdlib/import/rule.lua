-- rule.lua - rows of the tables that say what becomes of settings without a part in the plan; see
-- ledger.apply.
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
  end }
end

function rule.off(key, change)
  return rule.unless(key, { false, 0, "0", "", "none", "auto" }, "it is off, or as without it", change)
end

-- All of a group by its switch, which must be exactly true or "auto" to count.
function rule.switched(group, switch, change)
  return { group .. ".*", function(book, leaf)
    if book:value(group .. "." .. switch) then
      book:cannot(leaf.key, change)
    else
      book:no_effect(leaf.key, "it is off")
    end
  end }
end

return rule
