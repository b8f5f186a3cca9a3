#include "import_files.h"

#include <check.h>
#include <string.h>

void import_put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

const char *import_file(const char *file, const char *more) {
  process_run(IMPORT_SECONDS, "rm -f a.lua");
  Outcome o = process_run(IMPORT_SECONDS, "$weft import %s -o a.lua %s", file, more);
  ck_assert_msg(o.code == 0, "%s %s: %d: %s%s", file, more, o.code, o.out, o.err);
  Outcome c = process_run(IMPORT_SECONDS, "$weft check -q a.lua");
  ck_assert_msg(c.code == 0, "%s\n%s", c.err, scratch_get(scratch_path("a.lua")));
  return o.out;
}

void import_has(const char *text, const char *what) {
  ck_assert_msg(strstr(text, what), "no \"%s\" in:\n%s", what, text);
}

void import_lacks(const char *text, const char *what) {
  ck_assert_msg(!strstr(text, what), "\"%s\" in:\n%s", what, text);
}

void import_plan_has(const char *what) {
  import_has(scratch_get(scratch_path("a.lua")), what);
}

void import_plan_lacks(const char *what) {
  import_lacks(scratch_get(scratch_path("a.lua")), what);
}

void import_fails(int code, const char *file, const char *more, const char *says) {
  Outcome o = process_run(IMPORT_SECONDS, "$weft import %s %s", file, more);
  ck_assert_msg(o.code == code, "%s %s: %d: %s%s", file, more, o.code, o.out, o.err);
  import_has(o.err, says);
  import_lacks(o.err, "stdlib"); /* what is wrong is in the file, not there */
  ck_assert_str_eq(o.out, "");
}
