-- zsh.lua - weft completion zsh: verbs, then options and words of the verb; else files.
local begin = [[
#compdef weft
# zsh completion of weft; written by: weft completion zsh
_weft() {
  local -a verbs topics
  if (( CURRENT == 2 )); then
    verbs=(
]]
local middle = [[
    )
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
]]
local finish = [[
  esac
}
_weft "$@"
]]

-- For a word of zsh in quotes; \ before what _describe and _arguments read.
local function escaped(s, special)
  return (string.gsub(string.gsub(s, special, "\\%0"), "'", "'\\''"))
end

local function pair(x, about) return string.format("'%s:%s'", x, escaped(about, "[\\:]")) end

local function option(name, o)
  local value = o.choices and ":value:(" .. table.concat(o.choices, " ") .. ")" or ":value:_files"
  return string.format("'*%s[%s]%s'", name, escaped(o.about, "[\\%[%]:]"), o.value and value or "")
end

return function(verbs)
  local out = { begin }
  local function add(...) out[#out + 1] = string.format(...) end
  for _, v in ipairs(verbs) do add("      %s\n", pair(v.name, v.summary)) end
  out[#out + 1] = middle
  for _, v in ipairs(verbs) do
    local words, specs = {}, {}
    for _, w in ipairs(v.words) do words[#words + 1] = pair(w.name, w.about) end
    for _, o in ipairs(v.options) do
      specs[#specs + 1] = option(o.name, o)
      if o.short then specs[#specs + 1] = option(o.short, o) end
    end
    add("  %s)\n    topics=(%s)\n", v.name, table.concat(words, " "))
    add("    (( $#topics )) && [[ $words[CURRENT] != -* ]] && _describe topic topics\n")
    add("    _arguments -S \\\n      %s \\\n      '*:file:_files' ;;\n",
        table.concat(specs, " \\\n      "))
  end
  out[#out + 1] = finish
  return table.concat(out)
end
