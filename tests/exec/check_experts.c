/* check_experts.c - experts that ranks share: the same training as on one rank, whichever
 * ranks have which experts, and however tokens reach them. */
#include <check.h>
#include <stdlib.h>

#include "tests/lib/pair.h"

/* tp x dp ranks; so many of them share the experts. */
static ToyOptions toy_of(int tp, int dp, int ep, int etp) {
  ToyOptions o = toy_default();
  o.layers = 2, o.heads = 8, o.kv_heads = 8, o.vocab = 51, o.seq = 16;
  o.tp = tp, o.dp = dp, o.ep = ep, o.etp = etp;
  o.experts = 8, o.topk = 2;
  if (!getenv("NOAUX")) o.aux = 0.02f, o.z = 0.001f;
  return o;
}

/* Meshes in which the ranks that share experts are those of dp, of tp, or some of both. */
static const struct {
  int tp, dp, ep, etp;
} meshes[] = {{1, 2, 1, 1}, {2, 2, 1, 2}, {1, 2, 2, 1}, {1, 4, 2, 1}, {1, 4, 4, 1}, {2, 2, 2, 1}, {2, 2, 2, 2},
              {2, 4, 4, 2}, {2, 4, 8, 1}, {2, 2, 1, 1}, {1, 4, 2, 2}, {4, 1, 2, 2},
              {2, 1, 2, 1}, {4, 2, 4, 1}, {1, 8, 8, 1}, {2, 4, 2, 2}};

START_TEST(agrees_with_one_rank) {
  ToyOptions o = toy_of(meshes[_i].tp, meshes[_i].dp, meshes[_i].ep, meshes[_i].etp);
  for (int i = 0; i < 4; i++) {
    o.strategy.stage = (_i + i) % 4;
    o.pp = i % 2 + 1;
    o.sp = o.tp > 1 && i / 2;
    o.fused = (_i + i / 2) % 2;
    o.dispatcher = i % 3 ? MOE_ALLTOALL : MOE_ALLGATHER;
    pair_agrees(&o);
  }
}
END_TEST

Suite *experts_suite(void);
Suite *experts_suite(void) {
  Suite *s = suite_create("experts");
  TCase *t = tcase_create("experts");
  tcase_add_loop_test(t, agrees_with_one_rank, 0, LEN(meshes));
  suite_add_tcase(s, t);
  return s;
}
