/* weft.c - the parts of weft.h that belong to no other file. */
#include "weft.h"

#define STR_(x) #x
#define STR(x)  STR_(x)

const char *weft_version(void) {
  return STR(WEFT_VERSION_MAJOR) "." STR(WEFT_VERSION_MINOR) "." STR(WEFT_VERSION_PATCH);
}

int weft_exit_code(weft_status s) {
  switch (s) {
  case WEFT_OK: return 0;
  case WEFT_EPLAN:
  case WEFT_ERUN: return 1;
  case WEFT_EFILE:
  case WEFT_EUSAGE: return 2;
  case WEFT_ELIMIT:
  case WEFT_ENOMEM: return 3;
  case WEFT_EINTERNAL: return 4;
  case WEFT_EINTR: return 130;
  }
  return 4;
}
