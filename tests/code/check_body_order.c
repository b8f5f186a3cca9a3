/* check_body_order.c - bodies whose collectives start early and are waited for late: on a
 * clock with costs the same plan takes less time, in the same memory, with equal results.
 */
#include <check.h>
#include <stdlib.h>

#include "tests/harness/one_rank_pair.h"
#include "vm/code/body_order.h"

/* ---- a body by hand ---- */

enum { MOST = 32 };

typedef struct Hand {
  CodeInstr at[MOST];
  int n;
} Hand;

static CodeInstr *push(Hand *h, InstrCode code, const char *name) {
  CodeInstr *x = &h->at[h->n++];
  *x = (CodeInstr){.i = {.code = (uint8_t)code, .handle = -1}, .name = name};
  return x;
}

/* `y` = name(x). */
static void makes(Hand *h, InstrCode code, const char *name, Tid x, Tid y) {
  CodeInstr *k = push(h, code, name);
  k->i.nin = k->i.nout = 1;
  k->t[0] = x, k->t[1] = y;
  if (code == I_COLL) k->i.handle = k->i.comm = 0;
}

static void waits(Hand *h) { push(h, I_WAIT, "")->i.handle = 0; }

static int64_t tensor(void *ud, const CodeInstr *x, int operand) { return x->t[operand]; }

/* A collective takes as long as two kernels. */
static double seconds(void *ud, const CodeInstr *x) {
  return x->i.code == I_COLL ? 2 : 1;
}

/* "A b c wait d": capitals are collectives. */
static const char *ordered(const Hand *h, int window, Arena *a) {
  static CodeInstr out[2 * MOST];
  OrderHooks hooks = {.storage = tensor, .seconds = seconds};
  int n =
      body_order(body_order_begin(a, h->at, h->n, &hooks), (Reach){window, window}, out);
  const char *s = "";
  for (int i = 0; i < n; i++) {
    const CodeInstr *x = &out[i];
    s = x->i.code == I_WAIT   ? arena_printf(a, "%s wait%d", s, x->i.handle)
        : x->i.code == I_COLL ? arena_printf(a, "%s %s%d", s, x->name, x->i.handle)
                              : arena_printf(a, "%s %s", s, x->name);
  }
  return s;
}

/* A gather, and the product that reads what it gives. */
static void gathered_product(Hand *h, const char *gather, const char *product, Tid from) {
  makes(h, I_COLL, gather, from, from + 1);
  waits(h);
  makes(h, I_KERNEL, product, from + 1, from + 2);
}

/* Of rows that are counted places and both counts live until the wait, of others what
 * goes in; and of all what arrives, which may be read by nothing. */
START_TEST(waits_keep_operands) {
  static CodeInstr out[2 * MOST];
  Arena *a = arena_new(NULL);
  if (setjmp(*arena_guard(a))) abort();
  Hand h = {0};
  CodeInstr *rows = push(&h, I_COLL, "A");
  rows->i.coll = COLL_ALL_TO_ALL_V;
  rows->i.nin = 3, rows->i.nout = 1, rows->i.handle = rows->i.comm = 0;
  for (int k = 0; k < 4; k++) rows->t[k] = 5 + k;
  waits(&h);
  gathered_product(&h, "B", "b", 8);
  OrderHooks hooks = {.storage = tensor, .seconds = seconds};
  int n = body_order(body_order_begin(a, h.at, h.n, &hooks), (Reach){0, 0}, out);
  ck_assert_int_eq(n, 5); /* A wait B wait b */
  static const Tid kept[][4] = {{5, 6, 7, 8}, {8, 9, -1, -1}};
  for (int w = 0; w < 2; w++) ck_assert_mem_eq(out[1 + 2 * w].t, kept[w], sizeof kept[w]);
  arena_free(a);
}
END_TEST

/* Two gathers, each with its product: both start first; what needs neither runs
 * meanwhile; one step of looking ahead reaches less. */
START_TEST(starts_up_waits_down) {
  Arena *a = arena_new(NULL);
  if (setjmp(*arena_guard(a))) abort();
  Hand h = {0};
  gathered_product(&h, "A", "a", 1);
  gathered_product(&h, "B", "b", 4);
  makes(&h, I_KERNEL, "c", 7, 8);
  ck_assert_str_eq(ordered(&h, 64, a), " A0 B1 c wait0 a wait1 b");
  ck_assert_str_eq(ordered(&h, 1, a), " A0 B1 wait0 a c wait1 b");
  ck_assert_str_eq(ordered(&h, 0, a), " A0 wait0 a B0 wait0 b c");
  arena_free(a);
}
END_TEST

/* Products that need no transfer fill the time of each one, no more of them than that. */
START_TEST(fills_the_time_of_transfers) {
  Arena *a = arena_new(NULL);
  if (setjmp(*arena_guard(a))) abort();
  Hand h = {0};
  gathered_product(&h, "A", "a", 1);
  gathered_product(&h, "B", "b", 3);
  for (int i = 0; i < 5; i++)
    makes(&h, I_KERNEL, (const char *[]){"p", "q", "r", "s", "t"}[i], 20 + i, 30 + i);
  ck_assert_str_eq(ordered(&h, 64, a), " A0 p q wait0 a B0 r s wait0 b t");
  arena_free(a);
}
END_TEST

/* What writes where another one reads or writes stays behind it, and behind a transfer
 * that still uses it. */
START_TEST(what_depends_stays_in_order) {
  Arena *a = arena_new(NULL);
  if (setjmp(*arena_guard(a))) abort();
  Hand h = {0};
  makes(&h, I_KERNEL, "a", 1, 2);
  makes(&h, I_COLL, "A", 2, 3);
  waits(&h);
  makes(&h, I_KERNEL, "b", 3, 4);
  makes(&h, I_KERNEL, "c", 1, 5);
  makes(&h, I_KERNEL, "d", 6, 5); /* adds to what c wrote */
  makes(&h, I_KERNEL, "e", 5, 2); /* over what is being sent */
  makes(&h, I_COLL, "B", 9, 10);  /* of which nobody reads the result */
  waits(&h);
  ck_assert_str_eq(ordered(&h, 64, a), " B0 a A1 c d wait1 b e wait0");
  arena_free(a);
}
END_TEST

/* ---- whole plans ---- */

static int64_t cost(void *ud, int pp, const Instr *in) {
  if (in->code == I_COLL) return 100;
  return in->op == OP_linear || in->op == OP_linear_dx || in->op == OP_linear_dw ? 100
                                                                                 : 1;
}

/* The same, of what belongs to layers. */
static int64_t layers_only(void *ud, int pp, const Instr *in) {
  const Program *p = ud;
  int64_t at = in - p->code;
  for (int b = 0; b < p->nbody; b++)
    if (strncmp(p->body[b].name, "layer:", 6) == 0 && at >= p->body[b].first &&
        at < p->body[b].first + p->body[b].n)
      return cost(NULL, pp, in);
  return 0;
}

static int64_t time_of(const Toy *t) {
  RankTime rank[4];
  weft_error e = {.rank = -1};
  err_clear(&e);
  weft_status st =
      run_costs(t->compiled, &(RunCosts){.cost = cost, .in_order = true}, rank, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  return rank[0].end;
}

static void both(Toy *t, ToyOptions o) {
  for (int i = 0; i < 2; i++) {
    o.as_written = i == 0;
    ck_assert_msg(toy_compile(&t[i], &o, NULL) == WEFT_OK, "%s", toy_diags(&t[i]));
  }
}

/* Under sequence parallelism W gathers two tensors again: beside its products. */
START_TEST(gathers_are_hidden) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = true, o.pp = 1 + _i, o.microbatches = 4;
  Toy t[2];
  both(t, o);
  int64_t written = time_of(&t[0]), ordered = time_of(&t[1]);
  ck_assert_int_lt(ordered, written);
  /* of four layers on so many ranks, in each microbatch one gather at least */
  ck_assert_int_ge(written - ordered, 100 * 4 * o.microbatches / o.pp);
  /* What waits for W in a frame, of one layer 5 KiB, is workspace of each B then; not all
   * of it is there when most activations are. */
  for (int r = 0; r < o.pp; r++)
    ck_assert_uint_le(t[1].compiled->prog[r].arena_bytes,
                      t[0].compiled->prog[r].arena_bytes + 2048);
  for (int i = 0; i < 2; i++) toy_free(&t[i]);
}
END_TEST

/* Calls of layers on a rank, in order: the phase of each, and s for a send. */
static const char *layer_calls(const Toy *t, int rank, Arena *a) {
  const Program *p = &t->compiled->prog[rank];
  const char *s = "";
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *x = &p->code[i];
    const Body *b = x->code == I_CALL ? &p->body[p->call[x->call].body] : NULL;
    if (x->code == I_SEND) s = arena_printf(a, "%ss", s);
    if (b && strncmp(b->name, "layer:", 6) == 0)
      s = arena_printf(a, "%s%s", s, prog_phase_name[b->phase]);
  }
  return s;
}

/* I and W are one body where there is a transfer to hide and no other rank waits for what
 * I makes. */
START_TEST(where_both_are_one) {
  static const struct {
    int tp;
    const char *first, *last;
  } rows[] = {{2, "FFsFFsBBBB", "FFBBsFFBBs"}, {1, "FFsFFsIWIWIWIW", "FFIWIsWFFIWIsW"}};
  Arena *a = arena_new(NULL);
  if (setjmp(*arena_guard(a))) abort();
  for (int i = 0; i < LEN(rows); i++) {
    ToyOptions o = toy_default();
    Toy t;
    o.tp = rows[i].tp, o.sp = o.tp > 1, o.pp = 2, o.microbatches = 2;
    ck_assert_msg(toy_compile(&t, &o, NULL) == WEFT_OK, "%s", toy_diags(&t));
    ck_assert_str_eq(layer_calls(&t, 0, a), rows[i].first);
    ck_assert_str_eq(layer_calls(&t, 1, a), rows[i].last);
    toy_free(&t);
  }
  arena_free(a);
}
END_TEST

/* All transfers of a layer's backward but the first have products beside them. */
START_TEST(weight_gradients_hide_transfers) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = true, o.microbatches = 1;
  Toy t[2];
  int64_t waited[2];
  both(t, o);
  for (int i = 0; i < 2; i++) {
    RankTime rank[1];
    weft_error e = {.rank = -1};
    RunCosts costs = {
        .ud = &t[i].compiled->prog[0], .cost = layers_only, .in_order = true};
    ck_assert_int_eq(run_costs(t[i].compiled, &costs, rank, &e), WEFT_OK);
    waited[i] = rank[0].waited;
    toy_free(&t[i]);
  }
  ck_assert_int_eq(waited[0], 100 * o.layers * (4 + 6));
  ck_assert_int_eq(waited[1], 100 * o.layers * (4 + 1));
}
END_TEST

START_TEST(results_are_those_of_one_rank) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = _i % 2, o.as_written = _i / 2;
  pair_agrees(&o);
}
END_TEST

/* ---- chunks ---- */

static int64_t by_size(void *ud, int pp, const Instr *in) {
  const Program *p = ud;
  const Operand *o = &p->operand[in->operand];
  if (in->code == I_COLL) return (int64_t)MAX(operand_bytes(&o[0]), operand_bytes(&o[1]));
  if (in->op != OP_linear && in->op != OP_linear_dx && in->op != OP_linear_dw) return 1;
  return (int64_t)operand_bytes(&o[0]) * 2;
}

static int64_t sized_time(const Toy *t) {
  RankTime rank[1];
  weft_error e = {.rank = -1};
  err_clear(&e);
  RunCosts costs = {.ud = &t->compiled->prog[0], .cost = by_size, .in_order = true};
  weft_status st = run_costs(t->compiled, &costs, rank, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  return rank[0].end;
}

static int collectives(const Toy *t, const char *body) {
  const Program *p = &t->compiled->prog[0];
  int n = 0;
  for (int i = 0; i < p->nbody; i++)
    for (uint32_t k = p->body[i].first; k < p->body[i].first + p->body[i].n; k++)
      n += strcmp(p->body[i].name, body) == 0 && p->code[k].code == I_COLL;
  return n;
}

/* Two gathers and two scatters of a layer, each in four chunks of rows, of one sequence
 * or of several, or one of each sequence where there are more, forward and backward; what
 * W alone gathers is whole. Less time, the same losses and gradients. */
START_TEST(chunks_beside_products) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = true, o.seq = 16, o.micro = 1 + _i;
  int chunks = o.micro == 3 || o.micro > 4 ? o.micro : 4;
  Toy t[2];
  for (int i = 0; i < 2; i++) {
    o.async = i > 0;
    ck_assert_msg(toy_compile(&t[i], &o, NULL) == WEFT_OK, "%s", toy_diags(&t[i]));
  }
  ck_assert_int_eq(collectives(&t[0], "layer:F"), 4);
  ck_assert_int_eq(collectives(&t[1], "layer:F"), 4 * chunks);
  ck_assert_int_eq(collectives(&t[0], "layer:B"), 6);
  ck_assert_int_eq(collectives(&t[1], "layer:B"), 4 * chunks + 2);
  ck_assert_int_lt(sized_time(&t[1]), sized_time(&t[0]));
  for (int i = 0; i < 2; i++) toy_free(&t[i]);
  pair_agrees(&o);
}
END_TEST

/* I apart from W has chunks of its own, and what W reads of the gathered gradients, too.
 */
START_TEST(chunks_of_i) {
  ToyOptions o = toy_default();
  Toy t;
  o.tp = 2, o.seq = 16, o.sp = o.async = o.as_written = true;
  ck_assert_msg(toy_compile(&t, &o, NULL) == WEFT_OK, "%s", toy_diags(&t));
  ck_assert_int_eq(collectives(&t, "layer:I"), 4 * 4);
  ck_assert_int_eq(collectives(&t, "layer:W"), 2);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

/* Rows that are not to be cut: one chunk is none; waits come without overlap_tp, too. */
START_TEST(few_rows) {
  ToyOptions o = toy_default();
  o.tp = 4, o.kv_heads = 1, o.sp = o.async = o.as_written = true;
  o.seq = _i ? 8 : 4;
  Toy t;
  ck_assert_msg(toy_compile(&t, &o, NULL) == WEFT_OK, "%s", toy_diags(&t));
  ck_assert_int_eq(collectives(&t, "layer:F"), _i ? 8 : 4);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

Suite *body_order_suite(void) {
  Suite *s = suite_create("body_order");
  TCase *c = tcase_create("body_order");
  tcase_add_test(c, waits_keep_operands);
  tcase_add_test(c, starts_up_waits_down);
  tcase_add_test(c, fills_the_time_of_transfers);
  tcase_add_test(c, what_depends_stays_in_order);
  tcase_add_loop_test(c, gathers_are_hidden, 0, 2);
  tcase_add_test(c, where_both_are_one);
  tcase_add_test(c, weight_gradients_hide_transfers);
  tcase_add_loop_test(c, results_are_those_of_one_rank, 0, 4);
  tcase_add_loop_test(c, chunks_beside_products, 0, 5);
  tcase_add_test(c, chunks_of_i);
  tcase_add_loop_test(c, few_rows, 0, 2);
  suite_add_tcase(s, c);
  return s;
}
