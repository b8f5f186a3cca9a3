/* strict.c - see strict.h. */
#include "strict.h"

#include <stdlib.h>
#include <string.h>

bool strict_asked(void) {
  const char *s = getenv("WEFT_STRICT");
  return s && *s && strcmp(s, "0") != 0;
}
