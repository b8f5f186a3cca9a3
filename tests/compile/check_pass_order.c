/* check_pass_order.c - the passes without programs count the bytes of the programs, and a
 * hook sees each pass once, in order, with what it gave for those before. */
#include <check.h>

#include "tests/generate/small_llama.h"
#include "vm/compile/passes.h"

typedef struct Costs {
  Toy toy;
  Arena *temporary, *scratch;
  Passes p;
  RankLives *lives[2]; /* of a step, of an evaluation */
  Pass seen[8];
  int n;
  PassResult kept[PASS_N]; /* of the hook */
} Costs;

static Costs c;

/* What a sweep makes of the order of sends. */
static weft_status lives(Passes *p, const Transfers *t, bool eval, PassResult *x) {
  Costs *to = p->ud;
  ck_assert(x->keep && t->st == &p->costs->st);
  to->lives[eval] = rank_lives(p->costs, t, &p->in.plan->strategy, p->in.arena, x->keep);
  x->value = to->lives;
  return WEFT_OK;
}

/* Keeps what each pass made, as a sweep does. */
static weft_status find(Passes *p, Pass which, const void **value) {
  Costs *of = p->ud;
  PassResult *x = &of->kept[which];
  of->seen[of->n++] = which;
  if (!x->value) {
    *x = (PassResult){.keep = of->toy.arena, .d = &of->toy.diags, .e = &of->toy.err};
    pass_make[which](p, x);
  }
  *value = x->value;
  return x->st;
}

static void begin(const ToyOptions *o) {
  ck_assert_msg(toy_compile(&c.toy, o, NULL) == WEFT_OK, "%s", c.toy.err.text);
  c.temporary = arena_new(NULL);
  c.scratch = arena_new(NULL);
}

static void teardown(void) {
  arena_free(c.scratch);
  arena_free(c.temporary);
  toy_free(&c.toy);
  memset(&c, 0, sizeof c);
}

static void run_passes(bool hook) {
  const Toy *t = &c.toy;
  c.p = (Passes){.in = {.plan = &t->plan,
                        .mesh = &t->mesh,
                        .graph = t->graph,
                        .schedule = &t->schedule,
                        .arena = c.temporary,
                        .scratch = c.scratch},
                 .mesh = t->mesh,
                 .costs_only = true,
                 .ranks = lives,
                 .find = hook ? find : NULL,
                 .ud = &c,
                 .d = &c.toy.diags,
                 .e = &c.toy.err};
  ck_assert_msg(passes_stages(&c.p) == WEFT_OK, "%s", t->err.text);
  ck_assert_msg(passes_ranks(&c.p) == WEFT_OK, "%s", t->err.text);
}

static uint64_t bytes_of_programs(void) {
  uint64_t bytes = 0;
  for (int r = 0; r < c.toy.mesh.size[AXIS_PP]; r++)
    bytes = MAX(bytes, c.toy.compiled->prog[r].arena_bytes);
  return bytes;
}

static uint64_t bytes_of_costs(void) {
  return rank_memory(c.p.costs, (const RankLives *)c.lives[0],
                     (const RankLives *)c.lives[1], c.p.microbatches, UINT64_MAX,
                     c.scratch)
      .bytes;
}

static ToyOptions options(int i) {
  ToyOptions o = toy_default();
  o.pp = 1 + i % 3, o.tp = 1 + i % 2, o.dp = 1 + i / 3 % 2;
  o.layers = 6, o.microbatches = 4, o.rounds = 1 + i / 4 % 2;
  o.eval_every = i % 2;
  o.strategy.stage = o.dp > 1 ? i % 4 : 0;
  return o;
}

START_TEST(costs_are_those_of_the_programs) {
  ToyOptions o = options(_i);
  begin(&o);
  run_passes(false);
  ck_assert_uint_eq(bytes_of_costs(), bytes_of_programs());
  ck_assert_int_eq(c.p.microbatches, c.toy.compiled->microbatches);
  ck_assert((c.lives[1] != NULL) == (o.eval_every > 0));
}
END_TEST

START_TEST(a_hook_sees_each_pass_once) {
  ToyOptions o = options(3);
  begin(&o);
  run_passes(true);
  ck_assert_int_eq(c.n, PASS_N);
  for (int i = 0; i < PASS_N; i++) ck_assert_int_eq(c.seen[i], i);
  uint64_t bytes = bytes_of_costs();
  const void *units = c.p.units, *costs = c.p.costs;
  /* A second time nothing is made, whatever became of what was temporary. */
  arena_reset(c.temporary);
  arena_reset(c.scratch);
  run_passes(true);
  ck_assert(c.p.units == units && c.p.costs == costs);
  ck_assert_uint_eq(bytes_of_costs(), bytes);
}
END_TEST

/* A schedule that cannot run ends the passes before anything is made of the graph. */
START_TEST(a_pass_that_fails_is_the_last) {
  ToyOptions o = options(2);
  begin(&o);
  c.toy.schedule.n[0]--;
  c.p = (Passes){.in = {.plan = &c.toy.plan,
                        .mesh = &c.toy.mesh,
                        .graph = c.toy.graph,
                        .schedule = &c.toy.schedule,
                        .arena = c.temporary,
                        .scratch = c.scratch},
                 .mesh = c.toy.mesh,
                 .costs_only = true,
                 .ranks = lives,
                 .find = find,
                 .ud = &c};
  ck_assert_int_eq(passes_stages(&c.p), WEFT_EPLAN);
  ck_assert_int_eq(c.n, 1);
  ck_assert_int_gt(c.toy.diags.list.n, 0);
}
END_TEST

Suite *pass_order_suite(void) {
  Suite *s = suite_create("pass_order");
  TCase *t = tcase_create("passes");
  tcase_add_checked_fixture(t, NULL, teardown);
  tcase_add_loop_test(t, costs_are_those_of_the_programs, 0, 12);
  tcase_add_test(t, a_hook_sees_each_pass_once);
  tcase_add_test(t, a_pass_that_fails_is_the_last);
  suite_add_tcase(s, t);
  return s;
}
