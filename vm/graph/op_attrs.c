/* op_attrs.c - see op_attrs.h. A field that OpAttr gains needs a row here to be seen; the
 * fields are int32_t, uint32_t, uint64_t (at most 2^53), float or double. */
#include "op_attrs.h"

/* INT stands for both kinds of integers, REAL for both of reals. */
#define INT(name)                                                                        \
  {                                                                                      \
#name, offsetof(OpAttr, name),                                                       \
        _Generic(((OpAttr *)0)->name, int32_t                                            \
                 : ATTR_INT32, uint32_t                                                  \
                 : ATTR_UINT32, uint64_t                                                 \
                 : ATTR_UINT64)                                                          \
  }
#define REAL(name)                                                                       \
  {                                                                                      \
#name, offsetof(OpAttr, name),                                                       \
        _Generic(((OpAttr *)0)->name, float                                              \
                 : ATTR_FLOAT, double                                                    \
                 : ATTR_DOUBLE)                                                          \
  }

/* An element of a list, as a field. */
#define ITEM(name, i)                                                                    \
  { #name "_" #i, offsetof(OpAttr, name) + (1##i - 100) * sizeof(float), ATTR_FLOAT }
#define TEN(name, t)                                                                     \
  ITEM(name, t##0), ITEM(name, t##1), ITEM(name, t##2), ITEM(name, t##3),                \
      ITEM(name, t##4), ITEM(name, t##5), ITEM(name, t##6), ITEM(name, t##7),            \
      ITEM(name, t##8), ITEM(name, t##9)

/* Both lists are in the order of names. */
static const AttrField of_optimizers[] = {
#define NUMBER(name) REAL(name),
#define SWITCH(name) REAL(name),
#include "vm/plan/optimizers.def"
};
static const AttrField of_ops[] = {
    REAL(aux),
    INT(axes),
    INT(backend),
    REAL(beta),
    REAL(bound),
    REAL(capacity),
    REAL(clip),
    INT(cols),
    INT(cut),
    INT(dim),
    INT(drop),
    REAL(eps),
    INT(experts),
    INT(first),
    INT(flat),
    INT(fp8),
    INT(fp8_how),
    INT(from),
    INT(groups),
    INT(head_dim),
    INT(head_part),
    INT(heads_cut),
    INT(interleaved),
    INT(inverse),
    INT(kind),
    INT(layout),
    INT(length),
    REAL(length_scale),
    REAL(limit),
    REAL(lr),
    INT(mirror),
    INT(n),
    INT(norm_topk),
    INT(parts),
    INT(pieces),
    REAL(rate),
    INT(red),
    REAL(rope_factor),
    TEN(rope_factors, 0),
    TEN(rope_factors, 1),
    TEN(rope_factors, 2),
    TEN(rope_factors, 3),
    TEN(rope_factors, 4),
    TEN(rope_factors, 5),
    ITEM(rope_factors, 60),
    ITEM(rope_factors, 61),
    ITEM(rope_factors, 62),
    ITEM(rope_factors, 63),
    REAL(rope_high),
    REAL(rope_low),
    INT(rope_original),
    REAL(rope_scale),
    INT(rotary_dim),
    INT(rotary_from),
    INT(rows),
    REAL(scale),
    INT(score),
    INT(seed),
    INT(site),
    REAL(soft_cap),
    INT(step),
    REAL(theta),
    INT(topk),
    INT(topk_group),
    INT(value_dim),
    INT(vocab),
    REAL(weight_decay),
    INT(window),
    INT(yarn),
    REAL(z),
    INT(zero_centered),
};
/* Nine of them, and those of optimizers, have eight bytes. */
_Static_assert((sizeof of_ops + 2 * sizeof of_optimizers) / sizeof(AttrField) * 4 +
                       9 * 4 ==
                   sizeof(OpAttr),
               "a field has no row");

const AttrField *attr_find(const char *name) {
  for (int i = 0; i < LEN(of_ops); i++)
    if (str_eq(of_ops[i].name, name)) return &of_ops[i];
  for (int i = 0; i < LEN(of_optimizers); i++)
    if (str_eq(of_optimizers[i].name, name)) return &of_optimizers[i];
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

void attr_each(const OpAttr *a, AttrFn *f, void *ud) {
  for (int i = 0, k = 0; i + k < LEN(of_ops) + LEN(of_optimizers);) {
    bool op = k == LEN(of_optimizers) ||
              (i < LEN(of_ops) && strcmp(of_ops[i].name, of_optimizers[k].name) < 0);
    const AttrField *x = op ? &of_ops[i++] : &of_optimizers[k++];
    double v = value_of(a, x);
    if (v != 0) f(ud, x->name, v);
  }
}
