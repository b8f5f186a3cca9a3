/* check_nf4.c - weights in 4 bits against bitsandbytes: the codes, scales and values that
 * it gives for the same matrix. tests/oracle/adapters.py trains on such weights. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "vm/base/base.h"
#include "vm/base/nf4.h"

enum { N = 32768, BLOCKS = N / NF4_BLOCK, GROUPS = BLOCKS / NF4_GROUP };

/* Numbers that every language has exactly: 24 bits of a generator, and their sizes from
 * one block to the next. */
static void fill(float *w) {
  uint32_t s = 12345;
  for (int i = 0; i < N; i++) {
    s = s * 1664525u + 1013904223u;
    w[i] = ((float)(s >> 8) - 8388608.0f) / 8388608.0f *
           (1.0f + (float)(i / NF4_BLOCK * 37 % 100) / 128.0f);
  }
}

static uint32_t fold(const void *p, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 16777619u;
  return h;
}

/* bitsandbytes 0.50.2: quantize_4bit; scales less their mean to the nearest of its
 * dynamic map in groups of 256, as on its GPUs; dequantize_4bit. */
START_TEST(as_bitsandbytes) {
  static float w[N], y[N], scale[BLOCKS], group[GROUPS];
  static uint8_t code[N / 2], small[BLOCKS];
  double sum = 0;
  fill(w);
  for (int b = 0; b < BLOCKS; b++) {
    nf4_pack(w + b * NF4_BLOCK, code + b * NF4_BYTES);
    sum += scale[b] = nf4_largest(w + b * NF4_BLOCK, NF4_BLOCK);
  }
  float offset = (float)(sum / BLOCKS);
  for (int g = 0; g < GROUPS; g++)
    group[g] =
        nf4_pack_scales(scale + g * NF4_GROUP, NF4_GROUP, offset, small + g * NF4_GROUP);
  for (int i = 0; i < N; i++) {
    int b = i / NF4_BLOCK, two = code[i / 2];
    y[i] = nf4_level[i % 2 ? two & 15 : two >> 4] *
           nf4_unpack_scale(small[b], group[b / NF4_GROUP], offset);
  }
  ck_assert_uint_eq(fold(w, sizeof w), 0xc61f3367);
  ck_assert_uint_eq(fold(code, sizeof code), 0xf5493d7a);
  ck_assert_uint_eq(fold(small, sizeof small), 0x4902d630);
  ck_assert_uint_eq(fold(group, sizeof group), 0x5e81da22);
  ck_assert_uint_eq(fold(y, sizeof y), 0xfdcebd44);
}
END_TEST

/* A code stands for itself, and what lies between two values for one of them. */
START_TEST(nearest_scales) {
  float values[NF4_GROUP];
  uint8_t code[NF4_GROUP];
  for (int i = 0; i < NF4_GROUP; i++) values[i] = nf4_scale((uint8_t)i);
  ck_assert(nf4_pack_scales(values, NF4_GROUP, 0, code) == 1);
  for (int i = 0; i < NF4_GROUP; i++) ck_assert_int_eq(code[i], i);
  for (int i = 1; i < NF4_GROUP; i++) ck_assert(values[i] > values[i - 1]);
}
END_TEST

/* Blocks of zeros, and groups of equal scales, stay finite. */
START_TEST(nothing_stays_nothing) {
  static const float w[NF4_BLOCK] = {0};
  uint8_t code[NF4_BYTES], small[2];
  nf4_pack(w, code);
  for (int i = 0; i < NF4_BYTES; i++) ck_assert_int_eq(code[i], 0x77);
  ck_assert(nf4_pack_scales((float[]){0.5f, 0.5f}, 2, 0.5f, small) == 0);
  ck_assert(nf4_unpack_scale(small[0], 0, 0.5f) == 0.5f);
}
END_TEST

Suite *nf4_suite(void);
Suite *nf4_suite(void) {
  Suite *s = suite_create("nf4");
  TCase *t = tcase_create("nf4");
  tcase_add_test(t, as_bitsandbytes);
  tcase_add_test(t, nearest_scales);
  tcase_add_test(t, nothing_stays_nothing);
  suite_add_tcase(s, t);
  return s;
}
