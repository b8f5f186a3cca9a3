/* leaks.c - see leaks.h. */
#include "leaks.h"

static int off;

void leak_check_off(void) { off = 1; }

/* Asked by LeakSanitizer before its check. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return off; }
