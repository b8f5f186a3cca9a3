/* check_nf4.c - weights in 4 bits against bitsandbytes: the codes, scales and values that
 * it gives for the same matrix. tests/oracle/adapters.py trains on such weights. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/levels.h"
#include "tests/reference/kernel_sets.h"
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

typedef struct Packed {
  uint8_t code[N / 2], small[BLOCKS];
  float group[GROUPS + 1]; /* the last is the offset */
} Packed;

static void pack(const float *w, Packed *to) {
  static float scale[BLOCKS];
  double sum = 0;
  for (int b = 0; b < BLOCKS; b++) {
    nf4_pack(w + b * NF4_BLOCK, to->code + b * NF4_BYTES);
    sum += scale[b] = nf4_largest(w + b * NF4_BLOCK, NF4_BLOCK);
  }
  float offset = to->group[GROUPS] = (float)(sum / BLOCKS);
  for (int g = 0; g < GROUPS; g++)
    to->group[g] = nf4_pack_scales(scale + g * NF4_GROUP, NF4_GROUP, offset,
                                   to->small + g * NF4_GROUP);
}

/* bitsandbytes 0.50.2: quantize_4bit; scales less their mean to the nearest of its
 * dynamic map in groups of 256, as on its GPUs; dequantize_4bit. */
enum { UNPACKED = 0xfdcebd44 };
START_TEST(as_bitsandbytes) {
  static float w[N], y[N];
  static Packed p;
  fill(w);
  pack(w, &p);
  for (int i = 0; i < N; i++) {
    int b = i / NF4_BLOCK, two = p.code[i / 2];
    y[i] = nf4_level[i % 2 ? two & 15 : two >> 4] *
           nf4_unpack_scale(p.small[b], p.group[b / NF4_GROUP], p.group[GROUPS]);
  }
  ck_assert_uint_eq(fold(w, sizeof w), 0xc61f3367);
  ck_assert_uint_eq(fold(p.code, sizeof p.code), 0xf5493d7a);
  ck_assert_uint_eq(fold(p.small, sizeof p.small), 0x4902d630);
  ck_assert_uint_eq(fold(p.group, sizeof *p.group * GROUPS), 0x5e81da22);
  ck_assert_uint_eq(fold(y, sizeof y), UNPACKED);
}
END_TEST

static void unpacks(const Kernel *kernel, Device dev, const char *name) {
  enum { ROWS = 64, ROW = N / ROWS };
  static float w[N], y[N];
  static Packed p;
  OpAttr attr = {0};
  fill(w);
  pack(w, &p);
  KernelArgs a = {
      .attr = &attr,
      .nin = 3,
      .nout = 1,
      .in = {{.p = p.code, .dtype = DT_U8, .ndim = 2, .dim = {ROWS, ROW / 2}},
             {.p = p.small, .dtype = DT_U8, .ndim = 2, .dim = {ROWS, ROW / NF4_BLOCK}},
             {.p = p.group, .dtype = DT_F32, .ndim = 1, .dim = {GROUPS + 1}}},
      .out = {{.p = y, .dtype = DT_F32, .ndim = 2, .dim = {ROWS, ROW}}}};
  dev.threads = 1;
  kernel->run(&dev, &a);
  ck_assert_msg(fold(y, sizeof y) == UNPACKED, "%s: other bits than bitsandbytes", name);
}

/* The kernels of each set of instructions, which may fuse a product with a sum, and of
 * each device. */
START_TEST(kernels_have_the_same_bits) {
  for (int l = 0; l <= (int)cpu_best(); l++)
    if (cpu_set_of((CpuLevel)l))
      unpacks(&cpu_set_of((CpuLevel)l)->kernel[OP_nf4], kernels_cpu.device,
              cpu_level_name((CpuLevel)l));
  for (int s = 0; s < KERNEL_SETS; s++)
    unpacks(kernel_sets[s]->kernel(OP_nf4), kernel_sets[s]->device, kernel_sets[s]->name);
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
  tcase_add_test(t, kernels_have_the_same_bits);
  tcase_add_test(t, nearest_scales);
  tcase_add_test(t, nothing_stays_nothing);
  suite_add_tcase(s, t);
  return s;
}
