/* comma.h - a locale in which 1.5 is written 1,5, as a host with a window has that of its
 * user. Made in the scratch folder, for this process and those that it starts. */
#ifndef WEFT_TESTS_COMMA_H
#define WEFT_TESTS_COMMA_H

#include "scratch.h"

/* Makes it and sets it, whole as setlocale(LC_ALL, ...) does; false, and says why, where
 * none can be made. */
bool comma_set(void);
/* Back to the C locale. */
void comma_end(void);

#define COMMA_NAME "comma_XX" /* for setlocale in a process that was started */
#endif
