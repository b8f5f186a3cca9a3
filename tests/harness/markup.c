/* markup.c - see markup.h. */
#include "markup.h"

#include <check.h>
#include <ctype.h>
#include <string.h>

#include "vm/base/base.h"

static bool is_named(const char *tag, const char *name) {
  size_t n = strlen(name);
  return strncmp(tag, name, n) == 0 && !isalnum((unsigned char)tag[n]);
}

void markup_is_closed(const char *s) {
  const char *open[64];
  int depth = 0, elements = 0;
  for (; (s = strchr(s, '<')); elements++) {
    const char *name = s + 1, *end = strchr(s, '>');
    ck_assert_ptr_nonnull(end);
    if (*name == '/') {
      size_t n = (size_t)(end - name - 1);
      ck_assert_int_gt(depth, 0);
      const char *last = open[--depth];
      ck_assert_msg(strncmp(last, name + 1, n) == 0 && !isalnum((unsigned char)last[n]),
                    "%.20s closes %.20s", name, last);
    } else if (end[-1] != '/' && *name != '!' && !is_named(name, "meta")) {
      int quotes = 0;
      for (const char *p = name; p < end; p++) quotes += *p == '"';
      ck_assert_msg(quotes % 2 == 0, "%.60s", name);
      ck_assert_int_lt(depth, LEN(open));
      open[depth++] = name;
    }
    s = end;
  }
  ck_assert_int_eq(depth, 0);
  ck_assert_int_gt(elements, 5);
}
