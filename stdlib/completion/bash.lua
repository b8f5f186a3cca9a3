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
-- %s: what follows an option that takes one of some names.
local finish = [[
  esac
  case $cur in -*) words=$options ;; esac
  case " $options " in *" ${COMP_WORDS[COMP_CWORD-1]} "*)
    case ${COMP_WORDS[COMP_CWORD-1]} in
%s    esac ;;
  esac
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

-- A line for each option that takes one of some names; those are the same in all verbs.
local function choices_of(verbs)
  local lines, seen = {}, {}
  for _, v in ipairs(verbs) do
    for _, o in ipairs(v.options) do
      if o.choices and not seen[o.name] then
        seen[o.name] = true
        lines[#lines + 1] = string.format("    %s) words='%s' ;;\n", o.name, table.concat(o.choices, " "))
      end
    end
  end
  return table.concat(lines)
end

return function(verbs)
  local out = { string.format(begin, names(verbs)) }
  for _, v in ipairs(verbs) do
    out[#out + 1] = string.format("  %s) options='%s' words='%s' ;;\n", v.name,
                                  names(v.options), names(v.words))
  end
  out[#out + 1] = string.format(finish, choices_of(verbs))
  return table.concat(out)
end
