/* op_attrs.h - the attributes of ops by name: for the keys of model functions, for
 * listings, JSON and cost tables. */
#ifndef WEFT_OP_ATTRS_H
#define WEFT_OP_ATTRS_H

#include "graph.h"

/* A field of OpAttr. */
typedef struct AttrField {
  const char *name;
  size_t at;
  enum { ATTR_INT32, ATTR_UINT32, ATTR_UINT64, ATTR_FLOAT, ATTR_DOUBLE } storage;
} AttrField;
/* NULL if there is none of this name. */
const AttrField *attr_find(const char *name);

typedef void AttrFn(void *ud, const char *name, double v);
/* Calls `f` for every attribute that is not zero, sorted by name. */
void attr_each(const OpAttr *a, AttrFn *f, void *ud);

#endif
