/* build_id.h - the identity of this build, which processes of a run compare. */
#ifndef WEFT_BUILD_ID_H
#define WEFT_BUILD_ID_H

#include "base.h"

/* The linker's build id of the program or library with this code, in hexadecimal;
 * "unknown" if it has none. It differs between builds of a version. */
void build_id(char *out, size_t n);

#endif
