/* c_locale.h - numbers as in the C locale, whatever the process has set. printf, strtod,
 * Lua and jansson take the decimal point from the locale of the thread that calls them,
 * and a host with a window has that of its user.
 *
 *   IN_C_LOCALE;   among a function's declarations: until it returns. Errors that jump
 *                  must not jump past it. */
#ifndef WEFT_C_LOCALE_H
#define WEFT_C_LOCALE_H

#include <locale.h>

/* Of a thread of our own, for good; gives the locale of before. The C library has this
 * locale at hand, so there is no memory to run out of or to free. */
static inline locale_t c_locale_take(void) {
  return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static inline void c_locale_leave(const locale_t *before) { uselocale(*before); }

#define IN_C_LOCALE                                                                      \
  __attribute__((cleanup(c_locale_leave))) const locale_t c_locale_before_ =             \
      c_locale_take()

#endif
