-- bash.lua - weft completion bash: verbs, then options and words of the verb; else files.
local begin = [[
# bash completion of weft; written by: weft completion bash
_weft() {
  local cur=${COMP_WORDS[COMP_CWORD]} options='' words=''
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '%s --help --version' -- "$cur")
    return
  fi
  case ${COMP_WORDS[1]} in
]]
local finish = [[
  esac
  case $cur in -*) words=$options ;; esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o bashdefault -o default -F _weft weft
]]

local function names(list)
  local out = {}
  for _, x in ipairs(list) do
    out[#out + 1] = x.name
    out[#out + 1] = x.short
  end
  return table.concat(out, " ")
end

return function(verbs)
  local out = { string.format(begin, names(verbs)) }
  for _, v in ipairs(verbs) do
    out[#out + 1] = string.format("  %s) options='%s' words='%s' ;;\n", v.name,
                                  names(v.options), names(v.words))
  end
  out[#out + 1] = finish
  return table.concat(out)
end
