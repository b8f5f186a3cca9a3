-- calls.lua - who touches files. What writes, renames or removes is called in the two files
-- that hold folders open, and every file that writes by them is named in the table of
-- writers (check_writers.c), whose attacks it has to stand. Prints what is not so.
--
--   weft lua tests/io/calls.lua WRITER ...     in the root of the sources
local HANDLES = { ["vm/io/dir.c"] = true, ["vm/io/file_write.c"] = true,
                  ["vm/io/folder_write.c"] = true }

-- Calls and flags that change what is on a disk, or could.
local CHANGES = {}
for word in ([[
  creat unlink unlinkat remove rename renameat renameat2 mkdir mkdirat rmdir nftw ftw
  truncate ftruncate fallocate posix_fallocate symlink symlinkat link linkat mkfifo mkfifoat
  mknod mknodat mkstemp mkostemp mkdtemp tmpfile tmpnam tempnam chmod fchmod fchmodat chown
  fchown lchown utime utimes utimensat futimens setxattr openat open_by_handle_at freopen
  copy_file_range mount]]):gmatch "%S+" do CHANGES[word] = true end
local FLAGS = { O_WRONLY = true, O_RDWR = true, O_CREAT = true, O_TRUNC = true,
                O_APPEND = true, O_TMPFILE = true }
-- Calls by which the rest of weft writes.
local ENTRIES = {}
for word in ([[
  dir_below dir_make dir_remove dir_remove_file dir_rename dir_rename_new dir_exchange
  file_create file_create_new file_undo file_stream file_join file_write file_write_text file_write_as
  file_extend folder_create folder_join folder_free st_create st_join st_write]]):gmatch "%S+" do ENTRIES[word] = true end
-- Reading by handles, and /dev/null in the place of a closed stream.
local HARMLESS = { ["vm/io/file.c"] = { openat = true }, ["bindings/cli/main.c"] = { O_RDWR = true } }
local LUA = { "io%.open", "io%.output", "io%.popen", "os%.remove", "os%.rename",
              "os%.tmpname", "os%.execute" }

local function lines_of(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  return list
end

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

local function blank(text) return (text:gsub("[^\n]", " ")) end

-- Code without comments and without what strings say; lines keep their numbers.
local function code_of(text)
  local out, at = {}, 1
  while at <= #text do
    local i = text:find("[\"'/]", at) or #text + 1
    out[#out + 1] = text:sub(at, i - 1)
    local stop, c, two = i, text:sub(i, i), text:sub(i, i + 1)
    if two == "/*" then
      stop = select(2, text:find("*/", i + 2, true)) or #text
    elseif two == "//" then
      stop = (text:find("\n", i, true) or #text + 1) - 1
    elseif c == '"' or c == "'" then
      repeat
        stop = text:find("[\\\n" .. c .. "]", stop + 1) or #text
        local escaped = text:sub(stop, stop) == "\\"
        if escaped then stop = stop + 1 end
      until not escaped
      out[#out + 1] = blank(text:sub(i, stop))
    end
    if two == "/*" or two == "//" then
      out[#out + 1] = blank(text:sub(i, stop))
    elseif c == "/" then
      out[#out + 1] = c
    end
    at = stop + 1
  end
  return table.concat(out)
end

local function line_at(text, at)
  return select(2, text:sub(1, at):gsub("\n", "")) + 1
end

local listed, seen, wrong, files = {}, {}, 0, 0
for _, name in ipairs(arg) do listed[name] = true end

local function report(path, line, what)
  wrong = wrong + 1
  print(("%s:%d: %s"):format(path, line, what))
end

local function check_c(path, text)
  local code = code_of(text)
  for at, before, word, after in code:gmatch "()([^%w_]?)%f[%w_]([%a_][%w_]*)%f[^%w_](%s*%(?)" do
    local call = after:find("(", 1, true) and before ~= "." and before ~= ">"
    local harmless = HARMLESS[path] and HARMLESS[path][word]
    if (call and CHANGES[word] or FLAGS[word]) and not harmless then
      report(path, line_at(code, at), word .. " outside of vm/io/dir.c and file_write.c")
    elseif call and word == "fopen" then
      -- The mode is a text, which is read where it stands.
      local args = text:match("^%b()", text:find("(", at, true))
      if args and not args:find('"rb?"%)$') then
        report(path, line_at(code, at), "fopen for something else than reading")
      end
    elseif call and ENTRIES[word] then
      seen[path] = true
    end
  end
end

for _, path in ipairs(lines_of "find vm bindings kernels stdlib -type f | sort") do
  local kind = path:match "%.(%w+)$"
  if HANDLES[path] or path == "vm/io/dir.h" or path == "vm/io/file.h" or path == "vm/io/io.h" then
    files = files + 1
  elseif kind == "lua" then
    local text = read(path)
    files = files + 1
    for _, call in ipairs(LUA) do
      local at = text:find("%f[%w]" .. call .. "%f[^%w]")
      if at then report(path, line_at(text, at), "files are written from C") end
    end
  elseif ("c h cpp cu cuh def"):find(kind or "-", 1, true) then
    files = files + 1
    check_c(path, read(path))
  end
end

for path in pairs(seen) do
  if not listed[path] then
    report(path, 1, "writes files and is not in the table of writers")
  end
end
for path in pairs(listed) do
  if not seen[path] then report(path, 1, "is in the table of writers and writes no file") end
end
if files < 300 then report(".", 0, "only " .. files .. " sources were read") end
os.exit(wrong == 0)
