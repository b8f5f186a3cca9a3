/* op_attr_print.h - the attributes of a kernel by name, for text and JSON. */
#ifndef WEFT_PRINT_ATTR_H
#define WEFT_PRINT_ATTR_H

#include "program.h"

typedef void AttrFn(void *ud, const char *name, double v);
/* Calls `f` for every attribute that is not zero, sorted by name. */
void attr_each(const OpAttr *a, AttrFn *f, void *ud);

#endif
