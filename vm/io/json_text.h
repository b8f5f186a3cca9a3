/* json_text.h - JSON from files that nobody vouches for. */
#ifndef WEFT_IO_JSON_TEXT_H
#define WEFT_IO_JSON_TEXT_H

#include <jansson.h>

#include "vm/base/base.h"

/* The document, or NULL with an error about `path`, whose text begins with `what`. What
 * would take much memory or stack is refused before it is built: values and nesting are
 * counted first. */
json_t *json_text(const char *path, const char *what, const char *s, size_t n,
                  weft_error *e);

#endif
