/* print_attr.c - see print_attr.h. A field that OpAttr gains needs a row here to be
 * seen; the fields are int32_t, uint32_t or float. */
#include "print_attr.h"

#define INT(name)                                                                        \
  { #name, offsetof(OpAttr, name), false }
#define REAL(name)                                                                       \
  { #name, offsetof(OpAttr, name), true }

static const struct {
  const char *name;
  size_t at;
  bool real;
} field[] = {
    REAL(aux), INT(axes), INT(backend), REAL(beta1), REAL(beta2), REAL(bound),
    REAL(capacity), REAL(clip), INT(cut), INT(dim), INT(drop), REAL(eps), INT(experts), INT(from), INT(groups),
    INT(head_dim), INT(head_part), INT(interleaved), INT(inverse), INT(kind),
    INT(layout), INT(mirror), INT(n), INT(norm_topk), INT(parts), INT(red),
    REAL(rope_factor), REAL(rope_high), REAL(rope_low), INT(rope_original),
    REAL(rope_scale), INT(rotary_dim), INT(rotary_from), REAL(scale), INT(score),
    INT(step), REAL(theta), INT(topk), INT(topk_group), INT(value_dim), INT(vocab),
    REAL(weight_decay), INT(yarn), REAL(z),
};
_Static_assert(sizeof field / sizeof *field * 4 == sizeof(OpAttr), "a field has no row");

void attr_each(const OpAttr *a, AttrFn *f, void *ud) {
  for (int i = 0; i < LEN(field); i++) {
    int32_t whole;
    float real;
    memcpy(&whole, (const char *)a + field[i].at, sizeof whole);
    memcpy(&real, &whole, sizeof real);
    double v = field[i].real ? (double)real : (double)whole;
    if (v != 0) f(ud, field[i].name, v);
  }
}
