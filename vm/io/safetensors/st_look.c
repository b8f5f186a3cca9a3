/* st_look.c - what tells tensors apart, so that processes and files that belong to a
 * model notice other weights: names, shapes, types, and values at three places of each
 * tensor. Weights that were trained on differ in all of them. */
#include "st_type.h"

static weft_status look_at(const SafeTensor *t, uint64_t *print, weft_error *e) {
  enum { SOME = 32 };
  unsigned char bytes[SOME * sizeof(double)];
  int64_t size = st_type(t->type)->size, all = (int64_t)t->bytes / size,
          n = MIN(all, SOME);
  *print = hash_bytes(*print, t->name, strlen(t->name));
  *print = hash_bytes(*print, t->dim, sizeof t->dim);
  *print = hash_bytes(*print, t->type, strlen(t->type));
  for (int k = 0; k < 3 && n; k++) {
    TRY(st_read_raw(t, (all - n) / 2 * k, n, bytes, e));
    *print = hash_bytes(*print, bytes, (size_t)(n * size));
  }
  return WEFT_OK;
}

/* Names choose: at equal distances all of them could be of one kind, such as a projection
 * of every layer. */
static bool is_chosen(const SafeTensor *t, int every) {
  return every < 2 || hash_bytes(0, t->name, strlen(t->name)) % (unsigned)every == 0;
}

weft_status st_look(const SafeTensors *s, int most, uint64_t *print, weft_error *e) {
  int n = st_count(s), every = most ? (n + most - 1) / most : 1;
  for (int i = 0; i < n; i++)
    if (is_chosen(st_at(s, i), every)) TRY(look_at(st_at(s, i), print, e));
  return WEFT_OK;
}
