-- pytorch.lua - what settings of several systems have of PyTorch's: names of pipeline schedules.
local quote = use "import/quote"
local pytorch = {}

-- PyTorch's names; in settings case does not count.
pytorch.class_of = { ["1f1b"] = "1F1B", gpipe = "GPipe", interleaved_1f1b = "Interleaved1F1B",
  looped_bfs = "LoopedBFS", zero_bubble = "InterleavedZeroBubble", zbv = "ZBVZeroBubble", dualpipe_v = "DualPipeV" }

-- Weft's names by theirs in small letters, and the other way.
local SCHEDULES = {}
pytorch.schedule_of = {}
for here, there in next, pytorch.class_of do
  SCHEDULES[string.lower(there)], pytorch.schedule_of[here] = here, string.lower(there)
end

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
