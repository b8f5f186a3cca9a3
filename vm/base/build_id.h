/* build_id.h - the identity of this build, so that processes of a run can compare theirs.
 */
#ifndef WEFT_BUILD_ID_H
#define WEFT_BUILD_ID_H

#include "base.h"

/* The linker's id of the program or library that this was linked into, in hexadecimal;
 * "unknown" if it has none. Another build of the same version has another id. */
void build_id(char *out, size_t n);

#endif
