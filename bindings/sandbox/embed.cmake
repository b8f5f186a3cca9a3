# Writes the Lua files of stdlib/ as one C table: stdlib_files[] = { name, text, length }.
# Bytes, not string literals: no quoting and no limit on a literal's length.
set(out "#include <stddef.h>\n#include \"bindings/sandbox/stdlib.h\"\n")
set(table "")
set(i 0)
foreach(f ${FILES})
  file(READ ${ROOT}/${f} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND out "static const char f${i}[] = { ${bytes} 0 };\n")
  string(REGEX REPLACE "\\.lua$" "" name ${f})
  string(APPEND table "  { \"${name}\", f${i}, sizeof f${i} - 1 },\n")
  math(EXPR i "${i} + 1")
endforeach()
file(WRITE ${OUT} "${out}const StdlibFile stdlib_files[] = {\n${table}  { NULL, NULL, 0 }\n};\n")
