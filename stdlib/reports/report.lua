-- report.lua - gives tables the printed forms of stdlib/reports/KIND.lua.
local text, metas = use "reports/text", {}

-- report(kind, table [, shown]); `shown`: for a kind that prints some fields only, their
-- names.
return function(kind, t, shown)
  local key = shown and kind .. " " .. table.concat(shown, " ") or kind
  metas[key] = metas[key] or {
    __name = "weft.report." .. kind,
    __tostring = function(v)
      expected(v, "table", "tostring")
      return use("reports/" .. kind)(v, text, shown)
    end,
  }
  return setmetatable(t, metas[key])
end
