/* check_context.c - sequences that are cut over cp: the same training as on one rank,
 * however attention exchanges what it reads, and work that is balanced. */
#include <check.h>

#include "tests/lib/pair.h"
#include "tests/lib/trace.h"
#include "vm/graph/sequence.h"

static ToyOptions toy_of(int cp, CpComm comm) {
  ToyOptions o = meshed(1, 1, 1);
  o.cp = cp;
  o.how.comm = comm;
  o.layers = 2, o.heads = 8, o.kv_heads = 8, o.vocab = 51, o.seq = 16;
  return o;
}

static const CpComm ways[] = {CP_ALLGATHER, CP_A2A, CP_RING};

/* A way, and cp, packed, tp, pp, shards: a bit of the number each. */
START_TEST(agrees_with_one_rank) {
  for (int i = _i / LEN(ways); i < 32; i += 4) {
    ToyOptions o = toy_of(i & 1 ? 4 : 2, ways[_i % LEN(ways)]);
    o.packed = i & 2;
    o.tp = i & 4 ? 2 : 1, o.pp = i & 8 ? 2 : 1, o.dp = i & 16 ? 2 : 1;
    o.strategy.stage = i & 16 ? 3 : 0;
    o.how.in_order = i / 4 % 3 == 2;
    o.sp = o.tp > 1 && i & 1;
    if (o.how.comm != CP_A2A) o.kv_heads = 2;
    pair_agrees(&o);
  }
}
END_TEST

/* What runs again in the backward, W apart from I, copies of heads, and each stage. */
START_TEST(goes_with_the_rest) {
  static const Recompute again[] = {{.full = true}, {.selective = true}, {.cheap = true}};
  ToyOptions o = toy_of(2, ways[_i / 2 % LEN(ways)]);
  o.tp = 2, o.sp = true, o.packed = true, o.dp = 2, o.replicate = 1 + _i / 2 % 2;
  o.recompute = again[_i % 3];
  o.strategy.stage = _i % 4;
  o.strategy.defer_grad_sync = _i % 3;
  o.tied = _i % 2;
  o.async = _i % 3 == 1;
  o.as_written = _i % 4 == 3;
  o.kv_heads = o.how.comm == CP_A2A ? 4 : 1;
  pair_agrees(&o);
}
END_TEST

/* Heads of v and o of another size, over tp, cp and both. */
START_TEST(goes_with_values_of_another_size) {
  for (int i = _i / LEN(ways); i < 8; i += 2) {
    ToyOptions o = toy_of(i & 1 ? 2 : 1, ways[_i % LEN(ways)]);
    o.tp = i & 2 ? 2 : 1, o.sp = i & 2, o.dp = i & 4 ? 2 : 1, o.packed = i & 4;
    o.strategy.stage = i & 4 ? 3 : 0;
    o.value_dim = i & 1 ? 3 : 7;
    if (o.how.comm != CP_A2A) o.kv_heads = i & 4 ? 1 : 2;
    pair_agrees(&o);
  }
}
END_TEST

/* ---- the ring ---- */

/* Shifts that are under way when a step of attention runs: of all steps the fewest, but
 * for the last step of a body, beside which nothing of the forward has to move. */
static int shifts_beside(const Program *p, const Body *b, int steps) {
  int under_way = 0, fewest = 99;
  for (uint32_t i = b->first; i < b->first + b->n; i++) {
    const Instr *x = &p->code[i];
    bool part = x->code == I_KERNEL &&
                (x->op == OP_attention_part || x->op == OP_attention_part_dx);
    if (x->code == I_COLL && x->coll == COLL_SHIFT) under_way++;
    if (x->code == I_WAIT) under_way--;
    if (part && p->attr[x->attr].step + 1 < steps) fewest = MIN(fewest, under_way);
  }
  return fewest;
}

START_TEST(shifts_run_beside_kernels) {
  ToyOptions o = toy_of(4, CP_RING);
  o.as_written = _i;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  const Program *p = &t.compiled->prog[0];
  int rings = 0;
  for (int i = 0; i < p->nbody; i++) {
    int n = shifts_beside(p, &p->body[i], 4);
    rings += n < 99;
    ck_assert_int_ge(n, 1);
  }
  ck_assert_int_ge(rings, 2);
  toy_free(&t);
}
END_TEST

/* ---- the map ---- */

/* Each token is on one rank, in the order of its positions. */
START_TEST(every_token_is_on_one_rank) {
  enum { T = 48 };
  for (int n = 1; n <= 4; n++)
    for (int zigzag = 0; zigzag < 2; zigzag++) {
      int times[T] = {0};
      for (int r = 0; r < n; r++) {
        SeqPiece p = seq_piece(T, n, r, zigzag);
        int64_t last = -1;
        for (int64_t i = 0; i < T / n; i++) {
          ck_assert_int_gt(seq_at(&p, i), last);
          times[last = seq_at(&p, i)]++;
        }
      }
      for (int t = 0; t < T; t++)
        ck_assert_int_eq(times[t], 1);
    }
}
END_TEST

/* A token sees itself and all before it. */
static double work_of(int64_t T, int n, int r, bool zigzag) {
  SeqPiece p = seq_piece(T, n, r, zigzag);
  double sum = 0;
  for (int64_t i = 0; i < T / n; i++)
    sum += (double)seq_at(&p, i) + 1;
  return sum;
}

START_TEST(zigzag_is_balanced) {
  for (int n = 2; n <= 8; n *= 2) {
    double even = work_of(4096, 1, 0, false) / n;
    for (int r = 0; r < n; r++)
      ck_assert_double_eq_tol(work_of(4096, n, r, true) / even, 1, 0.01);
    ck_assert_double_gt(work_of(4096, n, n - 1, false) / even, 1.4);
  }
}
END_TEST

/* ---- what cannot be cut ---- */

START_TEST(says_what_does_not_divide) {
  ToyOptions o = toy_of(4, CP_ALLGATHER);
  Toy t;
  o.seq = 20;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_EPLAN);
  ck_assert_str_eq(
      toy_diags(&t),
      "error divisibility batch.seq: 20 is not a multiple of 2 * cp = 8: each "
      "rank has two runs of the sequence; nearest: 24, or cp = { balance = "
      "\"none\" }\n");
  toy_free(&t);
  o = toy_of(4, CP_A2A);
  o.kv_heads = 4, o.tp = 2;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_EPLAN);
  ck_assert_str_eq(
      toy_diags(&t),
      "error divisibility mesh.cp: cp.comm = \"a2a\" gives each rank whole "
      "heads: 4 * 2 (tp) does not divide the 4 key-value heads; cp = { comm = "
      "\"allgather\" } cuts tokens only\n");
  toy_free(&t);
}
END_TEST

Suite *context_suite(void);
Suite *context_suite(void) {
  Suite *s = suite_create("context");
  TCase *t = tcase_create("context");
  tcase_add_loop_test(t, agrees_with_one_rank, 0, 4 * LEN(ways));
  tcase_add_loop_test(t, goes_with_the_rest, 0, 12);
  tcase_add_loop_test(t, goes_with_values_of_another_size, 0, 2 * LEN(ways));
  tcase_add_loop_test(t, shifts_run_beside_kernels, 0, 2);
  tcase_add_test(t, every_token_is_on_one_rank);
  tcase_add_test(t, zigzag_is_balanced);
  tcase_add_test(t, says_what_does_not_divide);
  suite_add_tcase(s, t);
  return s;
}
