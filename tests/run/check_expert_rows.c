/* check_expert_rows.c - what is in the places of rows that experts exchange: only the
 * rows that there are move, and nobody reads what lies behind them. */
#include <check.h>
#include <stdatomic.h>

#include "tests/harness/one_rank_pair.h"
#include "tests/harness/run_bits.h"
#include "vm/comm/world.h"
#include "vm/weights/param_gather.h"

/* ---- a world of virtual ranks that fills places with nan before rows come ---- */

enum { RANKS = 16, HANDLES = 64, POISON = 0xff };

static struct {
  WorldVtable world;
  CommVtable comm[RANKS];
  const CommVtable *real[RANKS];
  CommOp op[RANKS][HANDLES];
  _Atomic uint64_t places, moved; /* bytes */
  atomic_bool touched;            /* what lies behind the rows */
} poison;

static uint64_t place_bytes(const CommOp *op) {
  return op->count * (uint64_t)dtype_size((DType)op->dtype);
}

static weft_status poison_start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                                weft_error *e) {
  ck_assert_int_lt(handle, HANDLES);
  poison.op[c->rank][handle] = *op;
  if (op->coll == COLL_ALL_TO_ALL_V)
    memset(op->out, POISON, place_bytes(op) * (size_t)op->members);
  return poison.real[c->rank]->start(c, op, handle, ready, e);
}

static void look(const CommOp *op) {
  uint64_t size = (uint64_t)dtype_size((DType)op->dtype), place = place_bytes(op);
  for (int k = 0; k < op->members; k++) {
    const unsigned char *at = (const unsigned char *)op->out + (uint64_t)k * place;
    uint64_t rows = comm_rows(op, op->take, k) * size;
    atomic_fetch_add(&poison.places, place);
    atomic_fetch_add(&poison.moved, rows);
    for (uint64_t i = rows; i < place; i++)
      if (at[i] != POISON) atomic_store(&poison.touched, true);
  }
}

static weft_status poison_wait(Comm *c, int handle, weft_error *e) {
  const CommOp *op = &poison.op[c->rank][handle];
  weft_status st = poison.real[c->rank]->wait(c, handle, e);
  if (st == WEFT_OK && op->coll == COLL_ALL_TO_ALL_V) look(op);
  return st;
}

static weft_status poison_join(World *w, int rank, Device *d, const CommNeeds *needs,
                               Comm *c, weft_error *e) {
  TRY(world_local.join(w, rank, d, needs, c, e));
  poison.real[rank] = c->vt;
  poison.comm[rank] = *c->vt;
  poison.comm[rank].start = poison_start, poison.comm[rank].wait = poison_wait;
  c->vt = &poison.comm[rank];
  return WEFT_OK;
}

static const WorldVtable *load_poison(weft_error *e) {
  poison.world = world_local;
  poison.world.join = poison_join;
  atomic_store(&poison.places, 0);
  atomic_store(&poison.moved, 0);
  atomic_store(&poison.touched, false);
  return &poison.world;
}

static WorldKind poisoned(void) {
  WorldKind kind = *world_kind("local", NULL);
  kind.load = load_poison;
  return kind;
}

/* ---- runs ---- */

static ToyOptions toy_of(int tp, int dp, int ep, int etp) {
  ToyOptions o = toy_default();
  o.layers = 2, o.heads = 8, o.kv_heads = 8, o.vocab = 51, o.seq = 16;
  o.tp = tp, o.dp = dp, o.ep = ep, o.etp = etp;
  o.experts = 8, o.topk = 2;
  o.dispatcher = MOE_ALLTOALL;
  return o;
}

static const struct {
  int tp, dp, ep, etp, pp;
  float bound;
  DType dtype;
  bool recomputed;
} ways[] = {{1, 2, 2, 1, 1, 0, DT_F32, false},  {1, 4, 4, 1, 2, 0, DT_F32, true},
            {2, 4, 4, 2, 1, 2, DT_F32, false},  {1, 8, 8, 1, 1, 1.25f, DT_F32, false},
            {2, 2, 2, 1, 1, 0, DT_BF16, false}, {2, 2, 2, 2, 1, 0, DT_F16, false}};

static ToyOptions toy_way(int i) {
  ToyOptions o = toy_of(ways[i].tp, ways[i].dp, ways[i].ep, ways[i].etp);
  o.pp = ways[i].pp, o.bound = ways[i].bound, o.dtype = ways[i].dtype;
  o.drop = o.bound > 0 ? DROP_PROBS : DROP_NONE;
  o.recompute.full = ways[i].recomputed;
  o.strategy.stage = i % 4;
  return o;
}

/* All that three steps leave behind. */
static void run_toy(Toy *t, const ToyOptions *o, const WorldKind *world, Trace *x) {
  Run *r;
  *x = (Trace){0};
  OK(toy_compile(t, o, NULL));
  OK(run_open(&t->plan, t->compiled, &(RunOptions){.world = world, .threads = 1}, &r,
              &trace_err));
  OK(run_init(r, &trace_err));
  for (int k = 0; k < STEPS; k++) {
    StepResult res;
    trace_step(r, t, k, &res);
    x->loss[k] = res.loss, x->norm[k] = res.grad_norm;
  }
  read_state(r, t, x);
  run_close(r);
}

/* Whatever lies behind the rows, all results have the same bits; and rows are all that
 * moves: fewer than there are places for. */
START_TEST(nobody_reads_behind_rows) {
  Toy plain, bad;
  Trace a, b;
  ToyOptions o = toy_way(_i);
  WorldKind world = poisoned();
  run_toy(&plain, &o, NULL, &a);
  run_toy(&bad, &o, &world, &b);
  same_bits(&a, &b);
  ck_assert(!atomic_load(&poison.touched));
  ck_assert_uint_gt(atomic_load(&poison.moved), 0);
  ck_assert_uint_lt(atomic_load(&poison.moved), atomic_load(&poison.places));
  toy_free(&plain);
  toy_free(&bad);
}
END_TEST

/* As many rows move as tokens have choices: to the experts and back, forward and
 * backward. */
START_TEST(moves_the_choices) {
  Toy t;
  Trace x;
  ToyOptions o = toy_of(1, 4, 4, 1);
  WorldKind world = poisoned();
  run_toy(&t, &o, &world, &x);
  uint64_t choices = (uint64_t)(o.dp * o.micro * o.seq * o.topk) *
                     (uint64_t)(o.microbatches * o.layers * STEPS);
  ck_assert_uint_eq(atomic_load(&poison.moved),
                    4 * choices * (uint64_t)o.hidden * sizeof(float));
  toy_free(&t);
}
END_TEST

/* A search for what gave nan looks at rows that have come, not behind them. */
START_TEST(search_looks_at_rows) {
  Toy t;
  Run *r;
  StepResult res;
  ToyOptions o = toy_of(1, 2, 2, 1);
  WorldKind world = poisoned();
  OK(toy_compile(&t, &o, NULL));
  OK(run_open(&t.plan, t.compiled, &(RunOptions){.world = &world, .threads = 1}, &r,
              &trace_err));
  OK(run_init(r, &trace_err));
  int last = -1;
  for (int i = 0; i < t.compiled->nparam; i++)
    if (strcmp(t.compiled->param[i].name, "model.norm.weight") == 0) last = i;
  ck_assert_int_ge(last, 0);
  float bad[64];
  memset(bad, POISON, sizeof bad);
  ck_assert_int_le(o.hidden, LEN(bad));
  OK(run_set(r, STATE_PARAM, last, bad, &trace_err));
  int32_t *ids = NEW_N(t.arena, int32_t, 2 * o.microbatches * o.micro * o.dp * o.seq);
  int32_t *labels = ids + o.microbatches * o.micro * o.dp * o.seq;
  random_ids(&t, 0, ids, labels);
  weft_error e = {.rank = -1};
  ck_assert_int_eq(run_step_tokens(r, ids, labels, 0, &res, &e), WEFT_ERUN);
  ck_assert_msg(strstr(e.text, "in op rmsnorm of model.norm"), "%s", e.text);
  run_close(r);
  toy_free(&t);
}
END_TEST

/* ---- what programs say ---- */

static int exchanges(const Program *p, CollKind kind, int operands) {
  int n = 0;
  for (uint32_t i = 0; i < p->ncode; i++)
    n += p->code[i].code == I_COLL && p->code[i].coll == kind &&
         instr_operands(&p->code[i]) == operands;
  return n;
}

static uint64_t workspace(const ToyOptions *o, int *counted, int *whole) {
  Toy t;
  OK(toy_compile(&t, o, NULL));
  const Program *p = &t.compiled->prog[0];
  *counted = exchanges(p, COLL_ALL_TO_ALL_V, 4);
  *whole = exchanges(p, COLL_ALL_TO_ALL, 2);
  uint64_t bytes = p->arena_bytes;
  toy_free(&t);
  return bytes;
}

/* Of a device whose memory the host does not see whole buffers move, or the rows that are
 * there: as the plan says, else by the room of buffers. All else is the same. */
START_TEST(devices_move_buffers) {
  static const struct {
    MoeExchange exchange;
    int ep;
    bool rows;
  } cases[] = {{EXCHANGE_AUTO, 2, false},    {EXCHANGE_AUTO, 4, true},
               {EXCHANGE_ROWS, 2, true},     {EXCHANGE_ROWS, 4, true},
               {EXCHANGE_BUFFERS, 2, false}, {EXCHANGE_BUFFERS, 4, false}};
  DeviceKind apart = *device_kind("cpu", NULL);
  apart.host = false;
  for (int i = 0; i < LEN(cases); i++) {
    ToyOptions o = toy_of(1, cases[i].ep, cases[i].ep, 1);
    int counted[2], whole[2];
    o.exchange = cases[i].exchange;
    uint64_t here = workspace(&o, &counted[0], &whole[0]);
    o.device = &apart;
    uint64_t there = workspace(&o, &counted[1], &whole[1]);
    ck_assert_int_gt(counted[0], 0);
    ck_assert_int_gt(whole[0], 0); /* counts themselves */
    ck_assert_msg(counted[1] == (cases[i].rows ? counted[0] : 0), "case %d", i);
    ck_assert_int_eq(whole[1] + counted[1], whole[0] + counted[0]);
    ck_assert_uint_le(there, here);
  }
}
END_TEST

Suite *expert_rows_suite(void);
Suite *expert_rows_suite(void) {
  Suite *s = suite_create("expert_rows");
  TCase *t = tcase_create("rows");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, nobody_reads_behind_rows, 0, LEN(ways));
  tcase_add_test(t, moves_the_choices);
  tcase_add_test(t, search_looks_at_rows);
  tcase_add_test(t, devices_move_buffers);
  suite_add_tcase(s, t);
  return s;
}
