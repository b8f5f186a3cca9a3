-- pytorch.lua - what settings of several systems have of PyTorch's: names of pipeline schedules.
local quote = use "import/quote"
local pytorch = {}

-- As settings write them; case does not count.
local SCHEDULES = { ["1f1b"] = "1f1b", gpipe = "gpipe", interleaved1f1b = "interleaved_1f1b",
  loopedbfs = "looped_bfs", interleavedzerobubble = "zero_bubble", zbvzerobubble = "zbv",
  dualpipev = "dualpipe_v" }
-- The other way: weft's names to those of settings.
pytorch.schedule_of = {}
for there, here in next, SCHEDULES do pytorch.schedule_of[here] = there end

-- Schedules with one stage on each rank.
pytorch.one_stage = { ["1f1b"] = true, gpipe = true }

-- Puts plan.schedule, and returns its name.
function pytorch.put_schedule(book, plan, key, default)
  local value = book:value(key) or "1f1b"
  local name = string.gsub(string.lower(tostring(value)), "^schedule", "")
  local known = SCHEDULES[name]
  if not known then
    book:refuse(key, string.format("the schedule %s is none of PyTorch's", quote.shown(value)))
    return "1f1b"
  end
  plan:put("schedule", quote.text(known), book:leaf(key) or default)
  book:translated(key, "schedule")
  return known
end

return pytorch
