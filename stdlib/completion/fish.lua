-- fish.lua - weft completion fish: verbs, then options and words of the verb; else files.
local function quoted(s) return "'" .. string.gsub(s, "[\\']", "\\%0") .. "'" end

return function(verbs)
  local out = { "# fish completion of weft; written by: weft completion fish" }
  local function add(...) out[#out + 1] = string.format(...) end
  for _, v in ipairs(verbs) do
    add("complete -c weft -n __fish_use_subcommand -a %s -d %s", v.name, quoted(v.summary))
  end
  for _, v in ipairs(verbs) do
    local on = "complete -c weft -n '__fish_seen_subcommand_from " .. v.name .. "'"
    for _, w in ipairs(v.words) do add("%s -a %s -d %s", on, w.name, quoted(w.about)) end
    for _, o in ipairs(v.options) do
      local long = string.match(o.name, "^%-%-(.*)$")
      local short = string.match(long and o.short or o.name, "^%-(%a)$")
      local value = o.choices and " -x -a " .. quoted(table.concat(o.choices, " ")) or o.value and " -r" or ""
      add("%s%s%s%s -d %s", on, long and " -l " .. long or "", short and " -s " .. short or "",
          value, quoted(o.about))
    end
  end
  return table.concat(out, "\n") .. "\n"
end
