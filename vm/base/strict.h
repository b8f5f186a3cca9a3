/* strict.h - what finds mistakes of weft itself and costs time: graphs are checked
 * between the passes of a compile, memory of devices begins as junk, and a step that a
 * device replays is looked at each time. On where the environment says WEFT_STRICT=1, as
 * all tests do. */
#ifndef WEFT_STRICT_H
#define WEFT_STRICT_H

#include <stdbool.h>

bool strict_asked(void);

#endif
