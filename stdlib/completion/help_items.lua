-- help_items.lua - reads a text of help.lua: a list of paragraphs { text = }, and of items
-- { head =, text = }, which are indented by two spaces: "--steps N   take N steps". Lines
-- that are indented further go on with an item.
return function(text)
  local list, last = {}, nil
  local function add(head, body)
    last = { head = head, text = body }
    list[#list + 1] = last
  end
  for line in string.gmatch(text .. "\n", "(.-)\n") do
    local item = string.match(line, "^  (%S.*)$")
    local more = string.match(line, "^   +(%S.*)$")
    if item then
      local head, body = string.match(item, "^(.-)  +(.*)$")
      add(head or item, body or "")
    elseif line == "" then
      last = nil
    elseif last and (not last.head or more) then
      last.text = last.text .. (last.text == "" and "" or " ") .. (more or line)
    else
      add(nil, more or line)
    end
  end
  return list
end
