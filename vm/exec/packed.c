/* packed.c - documents that share a row: where each begins, and which labels count. */
#include "run_int.h"

/* Does a document begin with `next`, which follows `id` with this label? */
static bool begins(const Packed *p, int32_t id, int32_t label, int32_t next) {
  if (p->size) return label == LABEL_DOCUMENT_END;
  return p->on && (p->first ? next : id) == p->separator;
}

void packed_places(const Packed *p, const int32_t *row, const int32_t *labels, int64_t n,
                   bool positions, int32_t *to) {
  int32_t start = 0;
  for (int32_t t = 0; t < n; t++) {
    if (t > 0 && begins(p, row[t - 1], labels[t - 1], row[t])) start = t;
    to[t] = positions ? t - start : start;
  }
}

void packed_labels(const Packed *p, const int32_t *row, int64_t n, int32_t *labels) {
  if (!p->within && !p->size) return;
  for (int64_t t = 0; t < n; t++)
    if (begins(p, row[t], labels[t], labels[t])) labels[t] = LABEL_IGNORED;
}
