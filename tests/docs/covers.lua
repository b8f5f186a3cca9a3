-- covers.lua - what covers which room: the suites in the folder of tests with the name of the
-- room (or, if no room has it, of a folder in one or of the one around several), and those that
-- find faults planted into its files (tests/mutate/mutants.lua). Prints a line for
-- each room of vm, bindings and kernels; fails if nothing covers one, or if a suite that is
-- named is not there.
--
--   weft lua tests/docs/covers.lua     in the root of the sources; ./dev test --rooms

local function lines_of(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  return list
end

local function room_of(path) return path:match "^%w+/[%w_]+" end

-- rooms[room][suite]; named[name], around[name]: rooms of this name, and of a folder in or around
-- them.
local rooms, names, named, around, suites = {}, {}, {}, {}, {}
local function note(map, name, room)
  map[name] = map[name] or {}
  map[name][room] = true
end
for _, path in ipairs(lines_of "find vm bindings kernels -mindepth 1 -type d") do
  local room = room_of(path)
  if not rooms[room] then
    rooms[room] = {}
    names[#names + 1] = room
  end
  note(path == room and named or around, path:match "[^/]*$", room)
  note(around, path:match "^%w+", room)
end
table.sort(names)

for _, path in ipairs(lines_of "find tests -name 'check_*.c'") do
  local folder, suite = path:match "([^/]*)/check_([^/]*)%.c$"
  suites[suite] = true
  for room in pairs(named[folder] or around[folder] or {}) do rooms[room][suite] = true end
end

local wrong = 0
for _, row in ipairs(dofile "tests/mutate/mutants.lua") do
  local room = rooms[room_of(row.file)]
  for suite in row.suites:gmatch "%S+" do
    if not suites[suite] then
      print("mutants.lua names no suite: " .. suite)
      wrong = wrong + 1
    elseif room then
      room[suite] = true
    end
  end
end

for _, room in ipairs(names) do
  local list = {}
  for suite in pairs(rooms[room]) do list[#list + 1] = suite end
  table.sort(list)
  if #list == 0 then wrong = wrong + 1 end
  print(string.format("%-24s %s", room, #list > 0 and table.concat(list, " ") or "nothing covers it"))
end
os.exit(wrong == 0)
