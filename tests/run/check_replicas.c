/* check_replicas.c - copies of parameters and states over the ranks: they stay equal in
 * runs of many shapes, and a session ends at the first check after one has changed. */
#include <check.h>
#include <stdio.h>

#include "tests/generate/small_llama.h"
#include "vm/run/run_int.h"
#include "vm/session/session.h"

static Toy toy;
static Session session;
static weft_error err;

static void setup(void) {
  toy = (Toy){0};
  session = (Session){0};
  err = (weft_error){.rank = -1};
}

static void teardown(void) {
  session_close(&session, false);
  toy_free(&toy);
}

/* Four ranks unless `t` says otherwise, on made-up tokens. */
static void begin(const ToyOptions *t, int64_t check_every) {
  ck_assert_msg(toy_compile(&toy, t, NULL) == WEFT_OK, "%s", toy.err.text);
  toy.plan.check_replicas_every = check_every;
  toy.plan.data = (DataSpec){.kind = DATA_SYNTHETIC, .vocab = t->vocab};
  RunOptions o = {.threads = 1};
  weft_status st =
      data_open(NULL, &toy.plan.data, t->seq, t->vocab, 1, &session.data, &err);
  if (st == WEFT_OK) st = session_open(&session, &toy.plan, toy.compiled, &o, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
}

/* ---- a change ---- */

/* A bit of the last element of what `rank` holds of its first piece with this state that
 * is a vector, which tp does not cut. */
static const char *flip(int rank, StateKind k) {
  Worker *w = &session.run->worker[rank];
  const Compiled *c = session.run->c;
  float value[64];
  Piece p[2];
  int i = 0;
  while (c->param[i].ndim != 1 || !state_pieces(c, rank, k, i, p)) i++;
  ck_assert_int_le(p->count, LEN(value));
  rank_read(w->r, p, value);
  ((uint32_t *)value)[p->count - 1] ^= 1u << 20;
  rank_write(w->r, p, value);
  return c->param[i].name;
}

typedef struct Fault {
  int64_t after; /* steps */
  int rank;
  StateKind kind;
  const char *name; /* of the parameter whose bit it was */
  int64_t steps;    /* that have ended */
} Fault;

static weft_status strike(void *ud, const StepResult *r, weft_error *e) {
  Fault *f = ud;
  f->steps = r->step + 1;
  if (f->steps == f->after) f->name = flip(f->rank, f->kind);
  return WEFT_OK;
}

/* Checks are after steps 2, 4 and 6. */
START_TEST(the_first_check_after_a_change_ends_the_run) {
  static const Fault faults[] = {{.after = 1, .rank = 1, .kind = STATE_PARAM},
                                 {.after = 2, .rank = 3, .kind = STATE_PARAM},
                                 {.after = 3, .rank = 1, .kind = STATE_OPT1},
                                 {.after = 3, .rank = 2, .kind = STATE_OPT2},
                                 {.after = 6, .rank = 1, .kind = STATE_PARAM}};
  Fault f = faults[_i];
  ToyOptions t = toy_default();
  t.tp = 2, t.pp = 2, t.layers = 2;
  begin(&t, 2);
  weft_status st = session_train(&session, 6, NULL, strike, &f, &err);
  if (f.after == 6) { /* no check follows */
    ck_assert_msg(st == WEFT_OK, "%s", err.text);
    return;
  }
  ck_assert_int_eq(st, WEFT_ERUN);
  ck_assert_int_eq(f.steps, (f.after / 2 + 1) * 2 - 1);
  char want[96];
  snprintf(want, sizeof want,
           "rank %d holds other bits than rank %d, of which it is a copy: ", f.rank | 1,
           f.rank & ~1);
  ck_assert_msg(strstr(err.text, want) == err.text, "\"%s\": %s", want, err.text);
  ck_assert_msg(strstr(err.text, f.name) != NULL, "%s: %s", f.name, err.text);
}
END_TEST

/* ---- no false alarm ---- */

static weft_status next(void *ud, const StepResult *r, weft_error *e) { return WEFT_OK; }

static void shape(int number, ToyOptions *t) {
  switch (number) {
  case 0: t->tp = 2, t->dp = 2, t->sp = true; break;
  case 1: t->pp = 2, t->dp = 2, t->tied = true, t->microbatches = 2; break;
  case 2: t->dp = 4, t->strategy = (Strategy){.kind = STRATEGY_ZERO, .stage = 1}; break;
  case 3: t->dp = 4, t->strategy = (Strategy){.kind = STRATEGY_ZERO, .stage = 3}; break;
  case 4:
    t->dp = 4, t->replicate = 2, t->strategy = (Strategy){.kind = STRATEGY_FSDP2};
    break;
  case 5: t->tp = 2, t->cp = 2; break;
  case 6: t->dp = 4, t->ep = 2, t->experts = 4, t->topk = 2; break;
  case 7: t->dp = 2, t->tp = 2, t->dtype = t->reduce = t->grad = DT_BF16; break;
  default: t->pp = 4, t->tied = true, t->microbatches = 4, t->optimizer = OPTIMIZER_LION;
  }
}

START_TEST(copies_stay_equal) {
  ToyOptions t = toy_default();
  shape(_i, &t);
  begin(&t, 1);
  weft_status st = session_train(&session, 3, NULL, next, NULL, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
}
END_TEST

Suite *replicas_suite(void);
Suite *replicas_suite(void) {
  Suite *s = suite_create("replicas");
  TCase *t = tcase_create("replicas");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_loop_test(t, the_first_check_after_a_change_ends_the_run, 0, 5);
  tcase_add_loop_test(t, copies_stay_equal, 0, 9);
  suite_add_tcase(s, t);
  return s;
}
