/* strict.h - expensive checks of weft itself: graphs are checked between the passes of a
 * compile, device memory begins as junk, and every replayed step is compared with what
 * would have been launched. Enabled by WEFT_STRICT=1 in the environment, as in all
 * tests. */
#ifndef WEFT_STRICT_H
#define WEFT_STRICT_H

#include <stdbool.h>

bool strict_asked(void);

#endif
