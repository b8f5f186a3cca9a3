/* check_context.c - sequences that are cut over cp: the same training as on one rank,
 * however attention exchanges what it reads, and work that is balanced. */
#include <check.h>

#include "tests/harness/one_rank_pair.h"
#include "tests/harness/run_bits.h"
#include "vm/graph/sequence.h"

static ToyOptions toy_of(int cp, CpComm comm) {
  ToyOptions o = meshed(1, 1, 1);
  o.cp = cp;
  o.how.comm = comm;
  o.how.heads = comm == CP_A2A_RING ? 2 : 0;
  o.layers = 2, o.heads = 8, o.kv_heads = 8, o.vocab = 51, o.seq = 16;
  return o;
}

static const CpComm ways[] = {CP_ALLGATHER, CP_A2A, CP_RING, CP_A2A_RING};

static bool of_heads(const ToyOptions *o) {
  return o->how.comm == CP_A2A || o->how.comm == CP_A2A_RING;
}

/* A way, and cp, packed, tp, pp, shards: a bit of the number each. */
START_TEST(agrees_with_one_rank) {
  for (int i = _i / LEN(ways); i < 32; i += 8) {
    ToyOptions o = toy_of(i & 1 ? 4 : 2, ways[_i % LEN(ways)]);
    o.packed = i & 2;
    o.tp = i & 4 ? 2 : 1, o.pp = i & 8 ? 2 : 1, o.dp = i & 16 ? 2 : 1;
    o.strategy.stage = i & 16 ? 3 : 0;
    o.how.in_order = i / 4 % 3 == 2;
    o.sp = o.tp > 1 && i & 1;
    if (!of_heads(&o)) o.kv_heads = 2;
    pair_agrees(&o);
  }
}
END_TEST

/* Queries of one layer see a window, those of the other all: from one token to all but
 * one, in documents and not. */
START_TEST(windows_agree_with_one_rank) {
  static const int windows[] = {1, 2, 3, 5, 9, 15};
  for (int i = 0; i < LEN(windows); i++) {
    ToyOptions o = toy_of(i % 2 ? 4 : 8, ways[_i % LEN(ways)]);
    o.window = windows[i];
    o.how.in_order = _i / LEN(ways);
    o.packed = i % 3 == 2;
    o.pp = 1 + i % 2, o.dp = 1 + i / 3, o.strategy.stage = i / 3 ? 3 : 0;
    if (!of_heads(&o)) o.kv_heads = 2;
    pair_agrees(&o);
  }
}
END_TEST

/* What runs again in the backward, W apart from I, copies of heads, and each stage. */
START_TEST(goes_with_the_rest) {
  static const Recompute again[] = {{.full = true}, {.selective = true}, {.cheap = true}};
  CpComm comm = ways[_i / 2 % LEN(ways)];
  ToyOptions o = toy_of(comm == CP_A2A_RING ? 4 : 2, comm);
  o.tp = 2, o.sp = true, o.packed = true, o.dp = 2, o.replicate = 1 + _i / 2 % 2;
  o.recompute = again[_i % 3];
  o.strategy.stage = _i % 4;
  o.strategy.defer_grad_sync = _i % 3;
  o.tied = _i % 2;
  o.async = _i % 3 == 1;
  o.as_written = _i % 4 == 3;
  o.kv_heads = of_heads(&o) ? 4 : 1;
  pair_agrees(&o);
}
END_TEST

/* Shards over cp alone, or over cp beside copies: no rank of dp has other data. */
START_TEST(cp_alone_cuts) {
  static const int replicate[] = {1, 1, 2, 1};
  CpComm comm = ways[_i % LEN(ways)];
  for (int stage = 2; stage <= 3; stage++) {
    ToyOptions o = toy_of(comm == CP_A2A_RING || _i / 4 ? 4 : 2, comm);
    o.dp = o.replicate = replicate[_i % LEN(replicate)];
    o.pp = 1 + _i / 4 * (stage - 2), o.tied = stage == 3;
    o.strategy = (Strategy){.stage = stage,
                            .reshard = _i % 2 ? RESHARD_YES : RESHARD_BY_PP,
                            .prefetch = {_i % 3, 1},
                            .defer_grad_sync = _i % 3 == 1};
    o.overlap = _i % 3, o.reduce = _i == 6 ? DT_BF16 : DT_F32;
    Pair p;
    pair_compile(&p, &o);
    const Regions *s = &p.many.compiled->prog[0].regions;
    for (int i = 0; i < s->nregion; i++)
      if (s->region[i].kind == REGION_GRAD)
        ck_assert_int_eq(s->region[i].count * o.cp, s->region[i].whole);
    pair_verify(&p, 2, o.reduce == DT_BF16 ? 1e-2 : 1e-5);
    ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
    pair_free(&p);
  }
}
END_TEST

/* What a group keeps of parameters, where shards are cut over cp, too: groups of cp, and
 * of two such. */
START_TEST(groups_share_parameters) {
  ToyOptions o = toy_of(2, CP_RING);
  o.dp = 4, o.replicate = 1 + _i / 2, o.tied = _i;
  o.strategy = (Strategy){.stage = 3,
                          .reshard = RESHARD_YES,
                          .reshard_to = _i % 2 ? 4 : 2,
                          .prefetch = {_i, 1}};
  if (_i == 3) o.strategy.reshard_to = 2;
  Pair p;
  pair_compile(&p, &o);
  const Program *prog = &p.many.compiled->prog[0];
  int groups = 0;
  for (int i = 0; i < prog->ncomm; i++)
    if (comm_size(&p.many.compiled->mesh, &prog->comm[i]) == o.strategy.reshard_to)
      groups += flow_of(p.many.compiled, 0, i, COLL_ALL_GATHER)->count > 0;
  ck_assert_int_eq(groups, 1);
  pair_verify(&p, 2, 1e-5);
  ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  pair_free(&p);
}
END_TEST

/* Heads of v and o of another size, over tp, cp and both. */
START_TEST(goes_with_values_of_another_size) {
  for (int i = _i / LEN(ways); i < 8; i += 2) {
    ToyOptions o = toy_of(i & 1 ? 2 : 1, ways[_i % LEN(ways)]);
    o.tp = i & 2 ? 2 : 1, o.sp = i & 2, o.dp = i & 4 ? 2 : 1, o.packed = i & 4;
    o.strategy.stage = i & 4 ? 3 : 0;
    o.value_dim = i & 1 ? 3 : 7;
    if (!of_heads(&o)) o.kv_heads = i & 4 ? 1 : 2;
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

/* Bytes that shifts of a rank move in a step, and steps of attention in its bodies. */
typedef struct Moved {
  uint64_t bytes;
  int parts;
} Moved;

static Moved moved(const ToyOptions *o) {
  Toy t;
  Moved m = {0};
  ck_assert_int_eq(toy_compile(&t, o, NULL), WEFT_OK);
  const Program *p = &t.compiled->prog[0];
  for (int i = 0; i < p->ncomm; i++)
    m.bytes += flow_of(t.compiled, 0, i, COLL_SHIFT)->bytes;
  for (uint32_t i = 0; i < p->ncode; i++)
    m.parts += p->code[i].code == I_KERNEL && (p->code[i].op == OP_attention_part ||
                                               p->code[i].op == OP_attention_part_dx);
  toy_free(&t);
  return m;
}

/* Of 16 ranks with 4 tokens each, or two runs of 2, what the window of one of two layers
 * needs in forward and backward: steps; and shifts of keys and values, of which there is
 * one less than steps, and of their gradients, one for each step but where one step is
 * all. All of them move as much in f32. Equal layers have one body, others one each. */
START_TEST(rings_skip_what_no_window_sees) {
  static const struct {
    int window, steps[2]; /* in order, zigzag */
  } want[] = {{1, {1, 1}}, {2, {2, 3}}, {5, {2, 5}}, {6, {3, 7}}, {63, {16, 16}}};
  ToyOptions o = toy_of(16, CP_RING);
  o.seq = 64, o.kv_heads = 2, o.layers = 2;
  Moved all = moved(&o);
  uint64_t each = all.bytes / (2 * (2 * 15 + 16));
  for (int i = 0; i < LEN(want); i++)
    for (int zigzag = 0; zigzag < 2; zigzag++) {
      int n = want[i].steps[zigzag], shifts = 2 * (n - 1) + (n > 1 ? n : 0);
      o.window = want[i].window, o.how.in_order = !zigzag;
      Moved m = moved(&o);
      ck_assert_int_eq(m.parts, all.parts + 2 * n);
      ck_assert_uint_eq(m.bytes, all.bytes / 2 + each * (uint64_t)shifts);
    }
}
END_TEST

/* Steps and pairs that a window sees, counted one by one. */
START_TEST(pairs_of_windows_are_counted) {
  enum { T = 48 };
  for (int n = 1; n <= 4; n++)
    for (int64_t window = 1; window <= T; window += 1 + window / 5)
      for (int zigzag = 0; zigzag < 2; zigzag++)
        for (int step = 0; step < n; step++) {
          int64_t pairs = 0;
          for (int r = 0; r < n; r++) {
            SeqPiece q = seq_piece(T, n, r, zigzag),
                     k = seq_piece(T, n, (r - step + n) % n, zigzag);
            for (int64_t i = 0; i < T / n * (T / n); i++) {
              int64_t back = seq_at(&q, i % (T / n)) - seq_at(&k, i / (T / n));
              pairs += back >= 0 && back < window;
            }
          }
          ck_assert_int_eq(seq_pairs(T, n, step, zigzag, window), pairs);
        }
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
      for (int t = 0; t < T; t++) ck_assert_int_eq(times[t], 1);
    }
}
END_TEST

/* Documents of a row of T by their ends, and what rank r has of them: positions in the
 * row, of run k from to[k * T / 2n] on. */
static void chunks_of(const int *end, int T, int n, int r, int *to) {
  SeqPiece p = seq_piece(T, n, r, true);
  for (int k = 0; k < 2; k++) {
    int c = (int)(p.first[k] / p.run);
    for (int a = 0, d = 0; a < T; a = end[d++])
      for (int64_t i = seq_place(a, 2 * n, c); i < seq_place(end[d], 2 * n, c); i++)
        to[k * p.run + i] = (int)seq_in_document(a, end[d], 2 * n, c, i);
  }
}

enum { ROW = 960 };
static const int ends[][6] = {
    {ROW}, {1, 2, 3, 500, ROW}, {240, 480, 481, 957, ROW}, {7, 77, 177, 400, 959, ROW}};

/* Wherever documents end each token is on one rank, a rank has it where kernels look for
 * it, and one document is cut as a sequence is. */
START_TEST(documents_are_cut_by_themselves) {
  const int *end = ends[_i];
  for (int n = 2; n <= 4; n++) {
    int times[ROW] = {0}, start[ROW];
    int32_t starts[ROW];
    for (int a = 0, d = 0; a < ROW; a = end[d++])
      for (int x = a; x < end[d]; x++) start[x] = a;
    for (int y = 0; y < ROW; y++) {
      int each = ROW / 2 / n;
      starts[y] = start[2 * n * (y % each + 1) - 1 - y / each];
    }
    for (int r = 0; r < n; r++) {
      int at[ROW];
      SeqPiece p = seq_piece(ROW, n, r, true);
      chunks_of(end, ROW, n, r, at);
      for (int i = 0; i < ROW / n; i++) {
        SeqToken t = seq_token(starts, ROW, 2 * n, seq_at(&p, i));
        ck_assert_int_eq(t.at, at[i]);
        ck_assert_int_eq(t.start, start[at[i]]);
        times[at[i]]++;
        if (_i == 0) ck_assert_int_eq(at[i], seq_at(&p, i));
      }
    }
    for (int x = 0; x < ROW; x++) ck_assert_int_eq(times[x], 1);
  }
}
END_TEST

/* What a rank's tokens see of their documents is the same on all ranks. */
START_TEST(documents_are_balanced) {
  static const int long_ends[] = {6000, 12345, 13000, 20480};
  enum { T = 20480 };
  static int at[T];
  for (int n = 2; n <= 8; n *= 2) {
    double even = 0;
    for (int a = 0, d = 0; a < T; a = long_ends[d++])
      even += (double)(long_ends[d] - a) * (long_ends[d] - a + 1) / 2 / n;
    for (int r = 0; r < n; r++) {
      double sum = 0;
      chunks_of(long_ends, T, n, r, at);
      for (int i = 0; i < T / n; i++) {
        int a = 0;
        for (int d = 0; long_ends[d] <= at[i]; d++) a = long_ends[d];
        sum += at[i] - a + 1;
      }
      ck_assert_double_eq_tol(sum / even, 1, 0.01);
    }
  }
}
END_TEST

/* A token sees itself and all before it. */
static double work_of(int64_t T, int n, int r, bool zigzag) {
  SeqPiece p = seq_piece(T, n, r, zigzag);
  double sum = 0;
  for (int64_t i = 0; i < T / n; i++) sum += (double)seq_at(&p, i) + 1;
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

/* Of the ring each step is the same work on all ranks: pairs that count, of queries and
 * of the keys that came by. */
static double pairs_of(int64_t T, int n, int r, int step) {
  SeqPiece q = seq_piece(T, n, r, true), k = seq_piece(T, n, (r - step + n) % n, true);
  double sum = 0;
  for (int64_t i = 0; i < T / n; i++)
    for (int run = 0; run < k.runs; run++)
      sum += (double)MIN(MAX(seq_at(&q, i) + 1 - k.first[run], 0), k.run);
  return sum;
}

START_TEST(steps_of_the_ring_are_balanced) {
  enum { T = 4096 };
  for (int n = 2; n <= 8; n *= 2)
    for (int step = 0; step < n; step++)
      for (int r = 0; r < n; r++)
        ck_assert_double_eq_tol(pairs_of(T, n, r, step) / ((double)T * T / 2 / n / n), 1,
                                0.01);
}
END_TEST

/* ---- long sequences ---- */

static uint64_t bytes_of(const Program *p, const char *name) {
  for (int i = 0; i < p->nmem; i++)
    if (strcmp(p->mem[i].name, name) == 0) return p->mem[i].bytes;
  return 0;
}

/* Activations of 131,072 tokens are an eighth on eight ranks. Where transfers make I and
 * W one body, there are fewer: what waits between the two is workspace then. */
START_TEST(a_long_sequence_is_an_eighth) {
  ToyOptions o = toy_of(8, ways[_i % 3]);
  o.seq = 131072, o.microbatches = 1, o.as_written = true;
  o.dtype = _i / 3 ? DT_BF16 : DT_F32;
  Pair p;
  pair_compile(&p, &o);
  const Program *many = p.many.compiled->prog, *one = p.one.compiled->prog;
  double part = (double)bytes_of(many, "activations");
  ck_assert_double_gt(part, 1e6);
  ck_assert_double_eq_tol(8 * part / (double)bytes_of(one, "activations"), 1, 0.05);
  pair_free(&p);
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
      "rank has two runs of the sequence; nearest: 16 or 24, or cp = { balance = "
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
  tcase_set_timeout(t, 300);
  tcase_add_loop_test(t, agrees_with_one_rank, 0, 8 * LEN(ways));
  tcase_add_loop_test(t, cp_alone_cuts, 0, 8);
  tcase_add_loop_test(t, goes_with_the_rest, 0, 2 * LEN(ways));
  tcase_add_loop_test(t, goes_with_values_of_another_size, 0, 2 * LEN(ways));
  tcase_add_loop_test(t, shifts_run_beside_kernels, 0, 2);
  tcase_add_test(t, every_token_is_on_one_rank);
  tcase_add_loop_test(t, documents_are_cut_by_themselves, 0, LEN(ends));
  tcase_add_test(t, documents_are_balanced);
  tcase_add_test(t, zigzag_is_balanced);
  tcase_add_loop_test(t, groups_share_parameters, 0, 4);
  tcase_add_test(t, steps_of_the_ring_are_balanced);
  tcase_add_loop_test(t, a_long_sequence_is_an_eighth, 0, 6);
  tcase_add_test(t, says_what_does_not_divide);
  suite_add_tcase(s, t);
  t = tcase_create("windows");
  tcase_set_timeout(t, 300);
  tcase_add_loop_test(t, windows_agree_with_one_rank, 0, 2 * LEN(ways));
  tcase_add_test(t, rings_skip_what_no_window_sees);
  tcase_add_test(t, pairs_of_windows_are_counted);
  suite_add_tcase(s, t);
  return s;
}
