/* name_table.c - a hash table from names to numbers, in an arena. */
#include "base.h"

struct NameSlot {
  const char *name; /* NULL: free */
  int number;
};

/* Where the name is, or the free slot where it belongs. */
static struct NameSlot *slot_of(const Names *t, const char *name) {
  uint64_t at = hash_bytes(0, name, strlen(name));
  for (;; at++) {
    struct NameSlot *s = &t->slot[at & (uint64_t)(t->cap - 1)];
    if (!s->name || strcmp(s->name, name) == 0) return s;
  }
}

int names_find(const Names *t, const char *name) {
  if (!t->n) return -1;
  const struct NameSlot *s = slot_of(t, name);
  return s->name ? s->number : -1;
}

void names_add(Arena *a, Names *t, const char *name, int number) {
  if (2 * (t->n + 1) > t->cap) {
    Names old = *t;
    t->cap = old.cap ? 2 * old.cap : 64;
    t->slot = NEW_N(a, struct NameSlot, t->cap);
    for (int i = 0; i < old.cap; i++)
      if (old.slot[i].name) *slot_of(t, old.slot[i].name) = old.slot[i];
  }
  *slot_of(t, name) = (struct NameSlot){name, number};
  t->n++;
}

Names names_copy(Arena *a, const Names *t) {
  Names copy = *t;
  copy.slot = arena_copy(a, t->slot, sizeof *t->slot * (size_t)t->cap);
  return copy;
}
