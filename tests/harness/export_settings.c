/* export_settings.c - see export_settings.h. */
#include "export_settings.h"

#include <check.h>

#include "scratch.h"

enum { SECONDS = 60 };

Outcome export_settings(int code, const char *arguments) {
  Outcome o = process_run(SECONDS, "$weft export %s", arguments);
  ck_assert_msg(o.code == code, "weft export %s: %d: %s%s", arguments, o.code, o.out,
                o.err);
  return o;
}

const char *export_file(const char *path) { return scratch_get(scratch_path(path)); }

void export_same_programs(const char *a, const char *b) {
  for (int rank = 0; rank < 5; rank += 4) {
    Outcome x = process_run(SECONDS, "$weft show program %d %s", rank, a);
    Outcome y = process_run(SECONDS, "$weft show program %d %s", rank, b);
    ck_assert_int_eq(x.code, 0);
    ck_assert_str_eq(x.out, y.out);
  }
}
