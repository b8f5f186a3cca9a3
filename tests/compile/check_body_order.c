/* check_body_order.c - bodies whose collectives start early and are waited for late: on a
 * clock with costs the same plan takes less time, in the same memory, with equal results. */
#include <check.h>
#include <stdlib.h>

#include "tests/lib/pair.h"
#include "vm/units/body_order.h"

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
  if (code == I_COLL) k->i.handle = 0;
}

static void waits(Hand *h) { push(h, I_WAIT, "")->i.handle = 0; }

static int64_t tensor(void *ud, const CodeInstr *x, int operand) { return x->t[operand]; }

/* "A b c wait d": capitals are collectives. */
static const char *ordered(const Hand *h, int window, Arena *a) {
  static CodeInstr out[2 * MOST];
  int n = body_order(a, h->at, h->n, window, tensor, NULL, out);
  const char *s = "";
  for (int i = 0; i < n; i++) {
    const CodeInstr *x = &out[i];
    s = x->i.code == I_WAIT ? arena_printf(a, "%s wait%d", s, x->i.handle)
        : x->i.code == I_COLL ? arena_printf(a, "%s %s%d", s, x->name, x->i.handle)
                              : arena_printf(a, "%s %s", s, x->name);
  }
  return s;
}

/* Two gathers, each with its product: both start first; what needs neither runs meanwhile;
 * one step of looking ahead reaches less. */
START_TEST(starts_up_waits_down) {
  Arena *a = arena_new(NULL);
  if (setjmp(*arena_guard(a))) abort();
  Hand h = {0};
  makes(&h, I_COLL, "A", 1, 2);
  waits(&h);
  makes(&h, I_KERNEL, "a", 2, 3);
  makes(&h, I_COLL, "B", 4, 5);
  waits(&h);
  makes(&h, I_KERNEL, "b", 5, 6);
  makes(&h, I_KERNEL, "c", 7, 8);
  ck_assert_str_eq(ordered(&h, 64, a), " A0 B1 c wait0 a wait1 b");
  ck_assert_str_eq(ordered(&h, 1, a), " A0 B1 wait0 a c wait1 b");
  ck_assert_str_eq(ordered(&h, 0, a), " A0 wait0 a B0 wait0 b c");
  arena_free(a);
}
END_TEST

/* What writes where another one reads or writes stays behind it, and behind a transfer that
 * still uses it. */
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
  return in->op == OP_linear || in->op == OP_linear_dx || in->op == OP_linear_dw ? 100 : 1;
}

static int64_t time_of(const Toy *t) {
  RankTime rank[4];
  weft_error e;
  err_clear(&e);
  weft_status st = run_costs(t->compiled, &(RunCosts){.cost = cost, .in_order = true}, rank, &e);
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
  for (int r = 0; r < o.pp; r++)
    ck_assert_uint_eq(t[0].compiled->prog[r].arena_bytes, t[1].compiled->prog[r].arena_bytes);
  for (int i = 0; i < 2; i++) toy_free(&t[i]);
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
  weft_error e;
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
 * or of several: less time, the same losses and gradients. */
START_TEST(chunks_beside_products) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = true, o.seq = 16, o.micro = 1 + _i;
  Toy t[2];
  for (int i = 0; i < 2; i++) {
    o.async = i > 0;
    ck_assert_msg(toy_compile(&t[i], &o, NULL) == WEFT_OK, "%s", toy_diags(&t[i]));
  }
  ck_assert_int_eq(collectives(&t[0], "layer:F"), 4);
  ck_assert_int_eq(collectives(&t[1], "layer:F"), o.micro == 3 ? 4 * 3 : 4 * 4);
  ck_assert_int_lt(sized_time(&t[1]), sized_time(&t[0]));
  for (int i = 0; i < 2; i++)
    toy_free(&t[i]);
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
  tcase_add_test(c, starts_up_waits_down);
  tcase_add_test(c, what_depends_stays_in_order);
  tcase_add_loop_test(c, gathers_are_hidden, 0, 2);
  tcase_add_loop_test(c, results_are_those_of_one_rank, 0, 4);
  tcase_add_loop_test(c, chunks_beside_products, 0, 4);
  tcase_add_loop_test(c, few_rows, 0, 2);
  suite_add_tcase(s, c);
  return s;
}
