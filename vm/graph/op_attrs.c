/* op_attrs.c - see op_attrs.h. */
#include "op_attrs.h"

/* ---- all attributes ---- lists in the order of names */

#define FIELD(name, storage)                                                             \
  { #name, offsetof(OpAttr, name), storage }
static const AttrField of_optimizers[] = {
#define NUMBER(name) FIELD(name, ATTR_DOUBLE),
#define SWITCH(name) FIELD(name, ATTR_DOUBLE),
#include "vm/plan/optimizers.def"
};
static const AttrField integer[] = {
#define INT(name)  FIELD(name, ATTR_INT32),
#define BITS(name) FIELD(name, ATTR_UINT32),
#include "attrs.def"
};
static const AttrField wide[] = {
#define WIDE(name)  FIELD(name, ATTR_DOUBLE),
#define COUNT(name) FIELD(name, ATTR_UINT64),
#include "attrs.def"
};

/* An element of a list, as a field. */
#define ITEM(name, i)                                                                    \
  {#name "_" #i, offsetof(OpAttr, name) + (1##i - 100) * sizeof(float), ATTR_FLOAT},
#define TEN(name, t)                                                                     \
  ITEM(name, t##0)                                                                       \
  ITEM(name, t##1)                                                                       \
  ITEM(name, t##2)                                                                       \
  ITEM(name, t##3)                                                                       \
  ITEM(name, t##4)                                                                       \
  ITEM(name, t##5) ITEM(name, t##6) ITEM(name, t##7) ITEM(name, t##8) ITEM(name, t##9)
_Static_assert(ROPE_FACTORS == 64, "an element of a list has no name");
static const AttrField real[] = {
#define REAL(name) FIELD(name, ATTR_FLOAT),
#define LIST(name)                                                                       \
  TEN(name, 0)                                                                           \
  TEN(name, 1)                                                                           \
  TEN(name, 2)                                                                           \
  TEN(name, 3)                                                                           \
  TEN(name, 4)                                                                           \
  TEN(name, 5) ITEM(name, 60) ITEM(name, 61) ITEM(name, 62) ITEM(name, 63)
#include "attrs.def"
};
_Static_assert(
    (LEN(integer) + LEN(real)) * 4 + (LEN(wide) + LEN(of_optimizers)) * 8 ==
        sizeof(OpAttr),
    "attributes are compared as bytes: of those of four bytes there is an even number");

static const struct {
  const AttrField *at;
  int n;
} lists[] = {{integer, LEN(integer)},
             {real, LEN(real)},
             {wide, LEN(wide)},
             {of_optimizers, LEN(of_optimizers)}};

const AttrField *attr_find(const char *name) {
  for (int k = 0; k < LEN(lists); k++)
    for (int i = 0; i < lists[k].n; i++)
      if (str_eq(lists[k].at[i].name, name)) return &lists[k].at[i];
  return NULL;
}

static double value_of(const OpAttr *a, const AttrField *x) {
  const void *p = (const char *)a + x->at;
  switch (x->storage) {
  case ATTR_INT32: return *(const int32_t *)p;
  case ATTR_UINT32: return *(const uint32_t *)p;
  case ATTR_UINT64: return (double)*(const uint64_t *)p;
  case ATTR_FLOAT: return (double)*(const float *)p;
  case ATTR_DOUBLE: return *(const double *)p;
  }
  return 0;
}

/* The first, by name, of what is left of all lists; NULL: nothing is. */
static const AttrField *next_field(int *taken) {
  const AttrField *first = NULL;
  int of = 0;
  for (int k = 0; k < LEN(lists); k++) {
    const AttrField *x = taken[k] < lists[k].n ? &lists[k].at[taken[k]] : NULL;
    if (x && (!first || strcmp(x->name, first->name) < 0)) first = x, of = k;
  }
  taken[of]++;
  return first;
}

void attr_each(const OpAttr *a, AttrFn *f, void *ud) {
  int taken[LEN(lists)] = {0};
  for (const AttrField *x; (x = next_field(taken));) {
    double v = value_of(a, x);
    if (v != 0) f(ud, x->name, v);
  }
}
