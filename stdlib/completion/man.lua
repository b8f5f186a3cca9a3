-- man.lua - weft completion man: the manual page weft.1, with a section for each verb.
local help, items_of, version = use "help", use "completion/help_items", use "version"

-- A text as troff has it: hyphens that can be copied, no line that is a request.
local function plain(s)
  s = string.gsub(string.gsub(s, "\\", "\\e"), "%-", "\\-")
  return (string.gsub(s, "^([.'])", "\\&%1"))
end

return function(verbs)
  local out = {}
  local function add(...) out[#out + 1] = string.format(...) end
  local function add_items(items)
    for _, item in ipairs(items) do
      if item.head then
        add(".TP\n.B %s", plain(item.head))
        add("%s", item.text == "" and "\\&" or plain(item.text))
      else
        add(".PP\n%s", plain(item.text))
      end
    end
  end
  add([[
.TH WEFT 1 "" "weft %s" "User Commands"
.SH NAME
weft \- parallel training plans in Lua
.SH SYNOPSIS
.B weft
.I VERB
[options]
.SH DESCRIPTION
A plan is a Lua file that says which model is trained on which mesh of ranks, by which
schedule. weft checks it, proves that its programs cannot deadlock, says what they hold and
send, and runs them.
.SH VERBS]], version)
  for _, v in ipairs(verbs) do
    add(".SS weft %s %s", v.name, plain(v.args))
    add("%s.", plain(string.gsub(v.summary, "^%l", string.upper)))
    add_items(items_of(help[v.name]))
    if v.plan then add(".PP\nIt takes the options of plans, too.") end
  end
  add ".SH OPTIONS OF PLANS"
  add_items(items_of(help.plan))
  add ".SH EXIT STATUS"
  add_items(items_of((string.gsub(help.codes, "^Exit codes: ", ""))))
  return table.concat(out, "\n") .. "\n"
end
