# Writes the Lua files of stdlib/ as one C table: stdlib_files[] = { name, text, length }. A
# literal for each line, as a compiler reads them in a tenth of the time that it takes for
# bytes one by one.
set(out "#include <stddef.h>\n#include \"bindings/sandbox/stdlib.h\"\n")
set(table "")
set(i 0)
foreach(f ${FILES})
  file(READ ${ROOT}/${f} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "?" "\\?" text "${text}") # ??= and others are trigraphs
  string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  string(APPEND out "static const char f${i}[] =\n\"${text}\";\n")
  string(REGEX REPLACE "\\.lua$" "" name ${f})
  string(APPEND table "  { \"${name}\", f${i}, sizeof f${i} - 1 },\n")
  math(EXPR i "${i} + 1")
endforeach()
file(WRITE ${OUT} "${out}const StdlibFile stdlib_files[] = {\n${table}  { NULL, NULL, 0 }\n};\n")
