/* packed_inputs.c - inputs for sequences packed with several documents: the start of each
 * token's document, positions within it, labels masked at document ends, and what stands
 * further on in the same document. */
#include "run_int.h"

/* Whether token `next`, which follows `id` with this label, begins a document. */
static bool begins(const Packed *p, int32_t id, int32_t label, int32_t next) {
  if (p->size) return label == LABEL_DOCUMENT_END;
  return p->on && (p->first ? next : id) == p->separator;
}

void packed_places(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, bool positions, int32_t *to) {
  int64_t start = 0, seen = 1; /* positions checked so far for a document start */
  for (int64_t i = 0; i < piece->run * piece->runs; i++) {
    int64_t at = seq_at(piece, i);
    for (; seen <= at; seen++)
      if (begins(p, row[seen - 1], labels[seen - 1], row[seen])) start = seen;
    to[i] = (int32_t)(positions ? at - start : start);
  }
}

static int32_t label_at(const Packed *p, const int32_t *row, const int32_t *labels,
                        int64_t at) {
  bool counts = p->within || p->size;
  bool other = counts && begins(p, row[at], labels[at], labels[at]);
  return other ? LABEL_IGNORED : labels[at];
}

void packed_labels(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, int32_t *to) {
  for (int64_t i = 0; i < piece->run * piece->runs; i++)
    to[i] = label_at(p, row, labels, seq_at(piece, i));
}

/* The token, or label, `ahead` places behind position `at`, of the same document and
 * before position `end`. A label of another document counts nowhere. */
static int32_t further_at(const Packed *p, const int32_t *row, const int32_t *labels,
                          int64_t end, int64_t at, InputKind kind) {
  int64_t to = at + input_places(kind);
  bool token = kind < IN_NEXT_LABELS;
  bool there = to < end;
  for (int64_t i = at; there && i < to; i++)
    there = !begins(p, row[i], labels[i], row[i + 1]);
  if (!there) return token ? 0 : LABEL_IGNORED;
  if (token) return row[to];
  return begins(p, row[to], labels[to], labels[to]) ? LABEL_IGNORED : labels[to];
}

void packed_further(const Packed *p, const int32_t *row, const int32_t *labels, int64_t T,
                    const SeqPiece *piece, InputKind kind, int32_t *to) {
  for (int64_t i = 0; i < piece->run * piece->runs; i++)
    to[i] = further_at(p, row, labels, T, seq_at(piece, i), kind);
}

void token_numbers(const SeqPiece *piece, uint32_t first, int32_t *to) {
  for (int64_t i = 0; i < piece->run * piece->runs; i++)
    to[i] = (int32_t)(first + (uint32_t)seq_at(piece, i));
}

/* Writes the tokens of document [a, b) that run `k` of this rank's piece has. */
static void take_chunk(const Packed *p, const int32_t *row, const int32_t *labels,
                       uint32_t number, const SeqPiece *piece, int slots, int k,
                       int64_t a, int64_t b, InputKind kind, int32_t *to) {
  int c = (int)(piece->first[k] / piece->run);
  int64_t first = seq_place(a, slots, c), end = seq_place(b, slots, c);
  int64_t at = seq_in_document(a, b, slots, c, first);
  to += k * piece->run;
  for (int64_t i = first; i < end; i++, at++)
    to[i] = input_places(kind)         ? further_at(p, row, labels, b, at, kind)
            : kind == IN_TOKENS        ? row[at]
            : kind == IN_LABELS        ? label_at(p, row, labels, at)
            : kind == IN_POSITIONS     ? (int32_t)(at - a)
            : kind == IN_TOKEN_NUMBERS ? (int32_t)(number + (uint32_t)at)
                                       : (int32_t)a;
}

void packed_chunks(const Packed *p, const int32_t *row, const int32_t *labels, int64_t T,
                   uint32_t number, const SeqPiece *piece, InputKind kind, int32_t *to) {
  int slots = (int)(T / piece->run);
  for (int64_t a = 0, b; a < T; a = b) {
    for (b = a + 1; b < T && !begins(p, row[b - 1], labels[b - 1], row[b]);) b++;
    for (int k = 0; k < piece->runs; k++)
      take_chunk(p, row, labels, number, piece, slots, k, a, b, kind, to);
  }
}
