/* packed.c - documents that share a row: where each begins, and which labels count. */
#include "run_int.h"

/* Does a document begin with `next`, which follows `id` with this label? */
static bool begins(const Packed *p, int32_t id, int32_t label, int32_t next) {
  if (p->size) return label == LABEL_DOCUMENT_END;
  return p->on && (p->first ? next : id) == p->separator;
}

void packed_places(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, bool positions, int32_t *to) {
  int64_t start = 0, seen = 1; /* positions whose beginning was looked at */
  for (int64_t i = 0; i < piece->run * piece->runs; i++) {
    int64_t at = seq_at(piece, i);
    for (; seen <= at; seen++)
      if (begins(p, row[seen - 1], labels[seen - 1], row[seen])) start = seen;
    to[i] = (int32_t)(positions ? at - start : start);
  }
}

void packed_labels(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, int32_t *to) {
  bool counts = p->within || p->size;
  for (int64_t i = 0; i < piece->run * piece->runs; i++) {
    int64_t at = seq_at(piece, i);
    bool other = counts && begins(p, row[at], labels[at], labels[at]);
    to[i] = other ? LABEL_IGNORED : labels[at];
  }
}
