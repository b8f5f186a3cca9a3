/* check_offload.c - what lies in the memory of the host: the same bits as on the device,
 * fewer bytes there, and as many on the host as are said. */
#include <check.h>

#include "tests/harness/run_bits.h"

typedef struct Case {
  int stage;
  bool params, defer;
  int tp, pp, dp, replicate;
  DType dtype;
} Case;

static const Case cases[] = {
    {1, 0, 1, 1, 1, 2, 1, DT_F32},  {1, 0, 0, 2, 1, 2, 1, DT_BF16},
    {2, 0, 1, 1, 2, 2, 1, DT_F32},  {2, 0, 0, 1, 1, 3, 1, DT_F32},
    {3, 0, 1, 2, 1, 2, 1, DT_F32},  {3, 1, 1, 1, 1, 2, 1, DT_F32},
    {3, 1, 0, 2, 2, 2, 1, DT_BF16}, {3, 1, 1, 1, 1, 4, 2, DT_BF16},
    {3, 1, 0, 1, 1, 1, 1, DT_F32},  {1, 0, 1, 1, 1, 1, 1, DT_BF16},
};

static ToyOptions toy_of(const Case *c, bool offload) {
  ToyOptions o = meshed(c->tp, c->pp, c->dp);
  o.layers = 2, o.vocab = 51, o.bias = true;
  o.replicate = c->replicate, o.dtype = c->dtype;
  o.strategy = (Strategy){.stage = c->stage,
                          .prefetch = {1, 2},
                          .defer_grad_sync = c->defer,
                          .overlap_param_gather = c->defer,
                          .offload_state = offload,
                          .offload_params = offload && c->params};
  return o;
}

START_TEST(changes_no_bit) {
  ToyOptions here = toy_of(&cases[_i], false), there = toy_of(&cases[_i], true);
  Toy a, b;
  Trace x, y;
  trace(&a, &here, 1, &x);
  trace(&b, &there, 1, &y);
  same_bits(&x, &y);
  toy_free(&a);
  toy_free(&b);
}
END_TEST

static uint64_t regions_bytes(const Program *p, bool host) {
  uint64_t sum = 0;
  for (int i = 0; i < p->regions.nregion; i++) {
    const Region *r = &p->regions.region[i];
    if (on_host(r->off) == host) sum += region_bytes(r);
  }
  return sum;
}

static uint64_t classes(const MemClass *m, int n) {
  uint64_t sum = 0;
  for (int i = 0; i < n; i++) sum += m[i].bytes;
  return sum;
}

START_TEST(moves_bytes_to_the_host) {
  const Case *c = &cases[_i];
  ToyOptions o = toy_of(c, false), far = toy_of(c, true);
  Toy a, b;
  ck_assert_int_eq(toy_compile(&a, &o, NULL), WEFT_OK);
  ck_assert_int_eq(toy_compile(&b, &far, NULL), WEFT_OK);
  for (int pp = 0; pp < c->pp; pp++) {
    const Program *p = &a.compiled->prog[pp], *q = &b.compiled->prog[pp];
    uint64_t gone = regions_bytes(p, false) - regions_bytes(q, false);
    ck_assert_uint_eq(p->host_bytes, 0);
    ck_assert_uint_gt(gone, 0);
    ck_assert_uint_eq(p->arena_bytes - q->arena_bytes, gone);
    ck_assert_uint_ge(regions_bytes(q, true), gone);
    ck_assert_uint_ge(q->host_bytes, regions_bytes(q, true));
    ck_assert_uint_eq(classes(q->mem, q->nmem), q->arena_bytes);
    ck_assert_uint_eq(classes(q->host, q->nhost), q->host_bytes);
  }
  toy_free(&a);
  toy_free(&b);
}
END_TEST

Suite *offload_suite(void);
Suite *offload_suite(void) {
  Suite *s = suite_create("offload");
  TCase *c = tcase_create("offload");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, changes_no_bit, 0, LEN(cases));
  tcase_add_loop_test(c, moves_bytes_to_the_host, 0, LEN(cases));
  suite_add_tcase(s, c);
  return s;
}
