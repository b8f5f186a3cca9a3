/* check_packed.c - documents that share a row, against a naive reference: it splits the
 * row into documents first and looks at them afterwards. */
#include <check.h>

#include "vm/base/rng.h"
#include "vm/run/run_int.h"

enum { T = 24, ROWS = 3000, SEP = 3 };

/* The number of each token's document; `next` is the token after the row. */
static void split(const Packed *p, const int32_t *row, int32_t next,
                  int document[T + 1]) {
  int now = 0;
  for (int t = 0; t <= T; t++) {
    int32_t id = t < T ? row[t] : next;
    bool new_by_first = p->first && id == SEP && t > 0;
    bool new_by_last = !p->first && t > 0 && row[t - 1] == SEP;
    if (new_by_first || new_by_last) now++;
    document[t] = now;
  }
}

static void check_row(const Packed *p, const int32_t *row, int32_t next) {
  int document[T + 1];
  int32_t raw[T], labels[T], places[T], positions[T];
  SeqPiece all = seq_whole(T);
  split(p, row, next, document);
  for (int t = 0; t < T; t++) raw[t] = t + 1 < T ? row[t + 1] : next;
  packed_places(p, row, raw, &all, false, places);
  packed_places(p, row, raw, &all, true, positions);
  packed_labels(p, row, raw, &all, labels);
  for (int t = 0; t < T; t++) {
    int start = t;
    while (start > 0 && document[start - 1] == document[t]) start--;
    ck_assert_int_eq(places[t], start);
    ck_assert_int_eq(positions[t], t - start);
    bool same = document[t] == document[t + 1];
    int32_t want = t + 1 < T ? row[t + 1] : next;
    ck_assert_int_eq(labels[t], same || !p->within ? want : LABEL_IGNORED);
  }
}

/* What ranks of cp get is what one rank gets, at their positions. */
static void check_pieces(const Packed *p, const int32_t *row, const int32_t *raw, int n,
                         bool zigzag) {
  int32_t want[3][T], got[3][T], tokens[T];
  SeqPiece all = seq_whole(T);
  bool seen[T] = {0};
  packed_places(p, row, raw, &all, false, want[0]);
  packed_places(p, row, raw, &all, true, want[1]);
  packed_labels(p, row, raw, &all, want[2]);
  for (int r = 0; r < n; r++) {
    SeqPiece at = seq_piece(T, n, r, zigzag);
    packed_places(p, row, raw, &at, false, got[0]);
    packed_places(p, row, raw, &at, true, got[1]);
    packed_labels(p, row, raw, &at, got[2]);
    seq_take(&at, row, tokens);
    for (int i = 0; i < T / n; i++) {
      int64_t t = seq_at(&at, i);
      ck_assert(!seen[t]);
      seen[t] = true;
      ck_assert_int_eq(tokens[i], row[t]);
      for (int k = 0; k < 3; k++) ck_assert_int_eq(got[k][i], want[k][t]);
    }
  }
}

/* What stands `ahead` places further on in the same document, and its label, unless that
 * is of another document. */
static void check_further(const Packed *p, const int32_t *row, int32_t next, int n,
                          bool zigzag) {
  int document[T + 1];
  int32_t raw[T], got[T];
  split(p, row, next, document);
  for (int t = 0; t < T; t++) raw[t] = t + 1 < T ? row[t + 1] : next;
  for (int k = 1; k <= NEXT_MOST; k++)
    for (int r = 0; r < n; r++)
      for (int of = IN_TOKENS; of <= IN_LABELS; of++) {
        SeqPiece at = seq_piece(T, n, r, zigzag);
        packed_further(p, row, raw, T, &at, input_ahead((InputKind)of, k), got);
        for (int i = 0; i < T / n; i++) {
          int64_t t = seq_at(&at, i), to = t + k;
          bool there = to < T && document[t] == document[to];
          bool learnt = there && document[to] == document[to + 1];
          int32_t want = of == IN_TOKENS ? (there ? row[to] : 0)
                                         : (learnt ? raw[to] : LABEL_IGNORED);
          ck_assert_int_eq(got[i], want);
        }
      }
}

START_TEST(rows_are_split_as_one_would_by_hand) {
  Packed p = {.on = true, .separator = SEP, .first = _i & 1, .within = _i & 2};
  Rng rng = rng_make(7, "packed");
  uint64_t at = 0;
  for (int i = 0; i < ROWS; i++) {
    int32_t row[T];
    for (int t = 0; t < T; t++) row[t] = (int32_t)(rng_u32(&rng, at++) % (4 + i % 9));
    int32_t next = (int32_t)(rng_u32(&rng, at++) % 5);
    check_row(&p, row, next);
    check_further(&p, row, next, 1 + i % 4, i % 2);
    int32_t raw[T];
    for (int t = 0; t < T; t++) raw[t] = (int32_t)(rng_u32(&rng, at++) % 5);
    check_pieces(&p, row, raw, 1 + i % 4, i % 2);
  }
}
END_TEST

/* By hand, once. */
START_TEST(both_conventions) {
  const int32_t eot[6] = {7, 8, SEP, 9, SEP, SEP}, bos[6] = {SEP, 7, 8, SEP, 9, SEP};
  int32_t at[6], labels[6] = {8, SEP, 9, SEP, SEP, 5}, others[6] = {7, 8, SEP, 9, SEP, 5};
  Packed p = {.on = true, .separator = SEP, .within = true};
  SeqPiece all = seq_whole(6);
  packed_places(&p, eot, labels, &all, false, at);
  ck_assert_mem_eq(at, ((int32_t[]){0, 0, 0, 3, 3, 5}), sizeof at);
  packed_labels(&p, eot, labels, &all, at);
  ck_assert_mem_eq(at, ((int32_t[]){8, SEP, -100, SEP, -100, -100}), sizeof at);
  p.first = true;
  packed_places(&p, bos, others, &all, false, at);
  ck_assert_mem_eq(at, ((int32_t[]){0, 0, 0, 3, 3, 5}), sizeof at);
  packed_labels(&p, bos, others, &all, at);
  ck_assert_mem_eq(at, ((int32_t[]){7, 8, -100, 9, -100, 5}), sizeof at);
}
END_TEST

/* Documents that are cut over cp by themselves: in the order of slots, with labels that
 * were masked, and with ends that the data say. */
START_TEST(further_tokens_of_documents_that_are_cut) {
  enum { CP = 2, SLOTS = 2 * CP, RUN = T / SLOTS };
  Packed p = {.on = true, .size = T};
  Rng rng = rng_make(11, "further");
  uint64_t at = 0;
  for (int i = 0; i < ROWS; i++) {
    int32_t row[T], raw[T], places[T], got[T], from[T];
    SeqPiece all = seq_whole(T);
    for (int t = 0; t < T; t++) row[t] = (int32_t)(rng_u32(&rng, at++) % 50) + 1;
    for (int t = 0; t < T; t++) {
      bool end = rng_u32(&rng, at++) % 6 == 0, masked = rng_u32(&rng, at++) % 5 == 0;
      raw[t] = end ? LABEL_DOCUMENT_END : masked ? LABEL_IGNORED : row[(t + 1) % T];
    }
    packed_places(&p, row, raw, &all, false, places);
    for (int r = 0; r < CP; r++)
      for (int k = 1; k <= NEXT_MOST; k++)
        for (int of = IN_TOKENS; of <= IN_LABELS; of++) {
          SeqPiece piece = seq_piece(T, CP, r, true);
          packed_chunks(&p, row, raw, T, 0, &piece, input_ahead((InputKind)of, k), got);
          packed_chunks(&p, row, raw, T, 0, &piece, IN_TOKEN_NUMBERS, from);
          for (int y = 0; y < T / CP; y++) {
            int t = from[y], to = t + k;
            bool there = to < T && places[to] == places[t];
            int32_t label = there ? raw[to] : LABEL_IGNORED;
            if (label == LABEL_DOCUMENT_END) label = LABEL_IGNORED;
            ck_assert_int_eq(got[y], of == IN_TOKENS ? (there ? row[to] : 0) : label);
          }
        }
  }
}
END_TEST

START_TEST(unpacked_rows_are_whole) {
  const int32_t row[3] = {0, 0, 0};
  int32_t at[3], labels[3] = {0, 0, 0};
  Packed p = {0};
  SeqPiece all = seq_whole(3);
  packed_places(&p, row, labels, &all, true, at);
  ck_assert_mem_eq(at, ((int32_t[]){0, 1, 2}), sizeof at);
  packed_labels(&p, row, labels, &all, at);
  ck_assert_mem_eq(at, row, sizeof at);
}
END_TEST

Suite *packed_suite(void);
Suite *packed_suite(void) {
  Suite *s = suite_create("packed");
  TCase *t = tcase_create("packed");
  tcase_add_loop_test(t, rows_are_split_as_one_would_by_hand, 0, 4);
  tcase_add_test(t, both_conventions);
  tcase_add_test(t, further_tokens_of_documents_that_are_cut);
  tcase_add_test(t, unpacked_rows_are_whole);
  suite_add_tcase(s, t);
  return s;
}
