-- completion.lua - weft completion: the verbs, as provided by the program, with what their
-- help says, as a script of a shell or as the manual page.
local help, verbs, items_of = use "help", use "verbs", use "completion/help_items"
local choices, codes = use "completion/choices", use "codes"
local kinds = { bash = "completion/bash", fish = "completion/fish", man = "completion/man", schema = "json/schema",
                zsh = "completion/zsh" }

-- What an option is for: its first clause, in one line.
local function short_of(text)
  local clause = string.match(text, "^(.-)[;.] ") or text
  return #clause > 70 and string.match(string.sub(clause, 1, 70), "^(.*) ") or clause
end

-- Of every verb: `items`, what its help says; `about`, a clause of it for each option that it
-- names; `words`, what may stand in the place of an argument ("memory" of weft show).
local function explain(verb)
  verb.items = items_of(help[verb.name] .. (verb.plan and help.plan or ""))
  verb.about, verb.words = { ["--help"] = "say more about the verb" }, {}
  for _, item in ipairs(verb.items) do
    local word = item.head and string.match(item.head, "^%l+%f[^%l]")
    if word and not string.find(item.head, "[=.]") then
      verb.words[#verb.words + 1] = { name = word, about = short_of(item.text) }
    end
    for name in string.gmatch(item.head or "", "%-+%a[%w%-]*") do
      verb.about[name] = verb.about[name] or short_of(item.text)
    end
  end
  if verb.name == "explain" then verb.words = codes end
  for _, o in ipairs(verb.options) do
    o.choices = o.choices and choices(o.choices)
    o.about = verb.about[o.name] or verb.about[o.short or ""] or ""
  end
end

return function(args)
  local kind = kinds[args.file]
  if not kind then
    fail(string.format("weft completion has no %s; there are bash, zsh, fish, man and schema",
                       (use "shown")(args.file)))
  end
  for _, verb in ipairs(verbs) do explain(verb) end
  return { ok = true, document = use(kind)(verbs) }
end
