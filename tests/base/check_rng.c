/* check_rng.c - Philox against published vectors; moments; permutations. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "vm/base/base.h"
#include "vm/base/rng.h"

/* The known-answer vectors of Random123 for ten rounds. */
START_TEST(philox_known_answers) {
  static const struct {
    uint32_t ctr[4], key[2], out[4];
  } kat[] = {
      {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (int i = 0; i < LEN(kat); i++) {
    uint32_t out[4];
    philox4x32(kat[i].ctr, kat[i].key, out);
    ck_assert_mem_eq(out, kat[i].out, sizeof out);
  }
}
END_TEST

START_TEST(streams_differ_by_seed_and_name) {
  Rng r[] = {rng_make(1, "a"), rng_make(2, "b"), rng_make(1, "b"), rng_make(2, "a"),
             rng_make(0, ""),  rng_make(1, ""),  rng_make(1, "aa")};
  for (int i = 0; i < LEN(r); i++)
    for (int j = 0; j < i; j++) ck_assert_mem_ne(r[i].key, r[j].key, sizeof r[i].key);
  Rng again = rng_make(1, "a");
  ck_assert_mem_eq(again.key, r[0].key, sizeof again.key);
}
END_TEST

/* Any order and any subset of indices gives the same values: there is no state. */
START_TEST(values_do_not_depend_on_the_order) {
  enum { N = 4096 };
  static float forward[N];
  static uint32_t bits[N];
  Rng r = rng_make(7, "model.layers.0.self_attn.q_proj.weight");
  for (int i = 0; i < N; i++)
    forward[i] = rng_normal(&r, (uint64_t)i), bits[i] = rng_u32(&r, (uint64_t)i);
  Rng again = rng_make(7, "model.layers.0.self_attn.q_proj.weight");
  for (int i = N - 1; i >= 0; i -= 3) {
    float x = rng_normal(&again, (uint64_t)i);
    ck_assert_mem_eq(&x, &forward[i], sizeof x);
    ck_assert_uint_eq(rng_u32(&again, (uint64_t)i), bits[i]);
  }
  ck_assert_uint_ne(rng_u32(&r, 0), rng_u32(&r, (uint64_t)1 << 34));
}
END_TEST

/* These bits are the format of every model's initial values: they must never change. */
START_TEST(normals_are_pinned) {
  static const struct {
    uint64_t index;
    uint32_t bits;
  } want[] = {
      {0, 0x3f51f557},
      {1, 0xbf2411ee},
      {2, 0x3e85874a},
      {3, 0x3f7a3b93},
      {1000003, 0x3f634fec},
      {(uint64_t)1 << 33, 0x40008185},
      {((uint64_t)1 << 63) + 5, 0x40130513},
  };
  Rng r = rng_make(1, "w");
  for (int i = 0; i < LEN(want); i++) {
    float x = rng_normal(&r, want[i].index);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    ck_assert_uint_eq(bits, want[i].bits);
  }
}
END_TEST

/* The same formula through the C library, whose log and cos are good to an ulp. */
START_TEST(normals_are_accurate) {
  Rng r = rng_make(3, "accuracy");
  for (uint64_t i = 0; i < 20000; i++) {
    uint32_t ctr[4] = {(uint32_t)(i / 2), 0, 1, 0}, w[4];
    philox4x32(ctr, r.key, w);
    double u = ((double)((uint64_t)w[0] << 21 | w[1] >> 11) + 1) / 9007199254740992.0;
    double angle = 6.283185307179586 * (w[2] / 4294967296.0);
    double want = sqrt(-2 * log(u)) * (i % 2 ? sin(angle) : cos(angle));
    double got = rng_normal(&r, i);
    ck_assert_double_le(fabs(got - want), 1e-7 * fabs(want) + 1e-15);
  }
}
END_TEST

START_TEST(normals_in_bulk) {
  Rng r = rng_make(5, "bulk");
  for (uint64_t first = 0; first < 4; first++)
    for (uint64_t n = 0; n < 9; n++) {
      float out[9];
      rng_normals(&r, first, n, 0.5f, out);
      for (uint64_t i = 0; i < n; i++)
        ck_assert(out[i] == rng_normal(&r, first + i) * 0.5f);
    }
}
END_TEST

START_TEST(moments_of_the_normal) {
  enum { N = 400000 };
  Rng r = rng_make(11, "moments");
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, last = 0;
  int beyond2 = 0;
  for (uint64_t i = 0; i < N; i++) {
    double x = rng_normal(&r, i);
    m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
    lag += x * last, last = x;
    beyond2 += fabs(x) > 2;
  }
  /* Five standard errors each. */
  double se = 5 / sqrt(N);
  ck_assert_double_le(fabs(m1 / N), se);
  ck_assert_double_le(fabs(m2 / N - 1), se * sqrt(2));
  ck_assert_double_le(fabs(m3 / N), se * sqrt(15));
  ck_assert_double_le(fabs(m4 / N - 3), se * sqrt(96));
  ck_assert_double_le(fabs(lag / N), se);
  ck_assert_double_le(fabs((double)beyond2 / N - 0.0455003), se * 0.21);
}
END_TEST

START_TEST(moments_of_the_uniform) {
  enum { N = 200000 };
  Rng r = rng_make(5, "uniform");
  double m1 = 0, m2 = 0;
  for (uint64_t i = 0; i < N; i++) {
    double x = rng_uniform(&r, i);
    ck_assert(x >= 0 && x < 1);
    m1 += x, m2 += (x - 0.5) * (x - 0.5);
  }
  ck_assert_double_le(fabs(m1 / N - 0.5), 5 * 0.2887 / sqrt(N));
  ck_assert_double_le(fabs(m2 / N - 1.0 / 12), 5 * 0.0745 / sqrt(N));
}
END_TEST

START_TEST(permutations_are_bijections) {
  static const uint64_t size[] = {1, 2, 3, 5, 63, 64, 65, 100, 1000, 4096, 10007};
  for (int k = 0; k < LEN(size); k++) {
    uint64_t n = size[k];
    Rng r = rng_make(k, "epoch 0");
    char *seen = calloc(n, 1);
    for (uint64_t i = 0; i < n; i++) {
      uint64_t to = rng_permute(&r, i, n);
      ck_assert_uint_lt(to, n);
      ck_assert_int_eq(seen[to]++, 0);
    }
    free(seen);
  }
  Rng r = rng_make(1, "large");
  uint64_t n = ((uint64_t)1 << 63) + 12345;
  ck_assert_uint_lt(rng_permute(&r, n - 1, n), n);
  ck_assert_uint_ne(rng_permute(&r, 0, n), rng_permute(&r, 1, n));
}
END_TEST

/* All six orders of three, about equally often. */
START_TEST(permutations_reach_every_order) {
  int count[27] = {0}, orders = 0;
  for (uint64_t seed = 0; seed < 6000; seed++) {
    Rng r = rng_make(seed, "p");
    int code = 0;
    for (uint64_t i = 0; i < 3; i++) code = code * 3 + (int)rng_permute(&r, i, 3);
    count[code]++;
  }
  for (int i = 0; i < LEN(count); i++) {
    if (!count[i]) continue;
    orders++;
    ck_assert_int_gt(count[i], 850);
    ck_assert_int_lt(count[i], 1150);
  }
  ck_assert_int_eq(orders, 6);
}
END_TEST

/* The mean distance that an element moves is n/3 in a random permutation. */
START_TEST(permutations_mix) {
  enum { N = 5000 };
  Rng r = rng_make(9, "mix");
  double moved = 0;
  int ascents = 0;
  uint64_t last = 0;
  for (uint64_t i = 0; i < N; i++) {
    uint64_t to = rng_permute(&r, i, N);
    moved += fabs((double)to - (double)i);
    ascents += to > last;
    last = to;
  }
  ck_assert_double_le(fabs(moved / N - N / 3.0), 0.03 * N);
  ck_assert_int_lt(abs(ascents - N / 2), 150);
}
END_TEST

Suite *rng_suite(void);
Suite *rng_suite(void) {
  Suite *s = suite_create("rng");
  TCase *t = tcase_create("rng");
  tcase_add_test(t, philox_known_answers);
  tcase_add_test(t, streams_differ_by_seed_and_name);
  tcase_add_test(t, values_do_not_depend_on_the_order);
  tcase_add_test(t, normals_are_pinned);
  tcase_add_test(t, normals_are_accurate);
  tcase_add_test(t, normals_in_bulk);
  tcase_add_test(t, moments_of_the_normal);
  tcase_add_test(t, moments_of_the_uniform);
  tcase_add_test(t, permutations_are_bijections);
  tcase_add_test(t, permutations_reach_every_order);
  tcase_add_test(t, permutations_mix);
  suite_add_tcase(s, t);
  return s;
}
