/* check_adamw_8bit.c - steps of AdamW with averages of 8 bits: those of bitsandbytes to
 * the bit on each device, the same however elements are dealt to ranks, and blocks that
 * are packed again after a checkpoint. The numbers of value_of are those of
 * tests/oracle/adamw_8bit.py. */
#include <check.h>
#include <math.h>

#include "tests/reference/kernel_sets.h"
#include "vm/base/dynamic8.h"
#include "vm/io/io.h"
#include "vm/program/program.h"

enum { STEPS = 12, MANY = 5000, FEW = 300, BLOCKS = (MANY + 255) / 256 };

static float value_of(int64_t i, int step) {
  uint32_t h = (uint32_t)(i + 1) * 2654435761u + (uint32_t)step * 40503u;
  h = (h ^ h >> 15) * 2246822519u;
  if (step > 0 && h / 16 % 16 == 0) return 0;
  double x = ((double)(h >> 8) - 0x1p23) * 0x1p-24;
  return (float)ldexp(x, -(int)(h % 16));
}

/* A parameter and its states; `from` is its first element's number. */
typedef struct Stepped {
  float p[MANY], g[MANY];
  float few[2][FEW];
  Dynamic8 many[2][BLOCKS];
  int64_t from, n;
} Stepped;

static void begin(Stepped *s, int64_t from, int64_t n) {
  memset(s, 0, sizeof *s);
  s->from = from, s->n = n;
  for (int64_t i = 0; i < n; i++) s->p[i] = value_of(from + i, 0);
}

static void take_step(const KernelSet *set, Stepped *s, int step, int threads) {
  bool in_bits = s->n > FEW;
  double lr = 1e-2 / step;
  double scal[SC_N] = {[SC_LR] = lr, [SC_CLIP] = 0.37, [SC_STEP] = step};
  scal[SC_BC1] = 1 - pow(0.9, step), scal[SC_BC2] = 1 - pow(0.999, step);
  OpAttr attr = {.beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1, .epsilon = 1e-8};
  KTensor p = {.p = s->p, .dtype = DT_F32, .ndim = 1, .dim = {s->n}}, g = p;
  KTensor state[2], scalars = {.p = scal, .dtype = DT_F64, .ndim = 1, .dim = {SC_N}};
  g.p = s->g;
  for (int64_t i = 0; i < s->n; i++) s->g[i] = value_of(s->from + i, step);
  for (int k = 0; k < 2; k++) {
    state[k] = p;
    state[k].p = in_bits ? (void *)s->many[k] : (void *)s->few[k];
    if (!in_bits) continue;
    state[k].dtype = k ? DT_UQ8 : DT_Q8;
    state[k].dim[0] = (s->n + 255) / 256;
  }
  KernelArgs a = {.attr = &attr,
                  .nin = 5,
                  .nout = 4,
                  .in = {p, g, state[0], state[1], scalars},
                  .out = {p, state[0], state[1], p}};
  Device dev = set->device;
  dev.threads = threads;
  set->kernel(OP_adamw_8bit)->run(&dev, &a);
}

/* ---- bitsandbytes ---- */

static void must_be(const SafeTensors *all, const char *name, const float *got, int64_t n,
                    const char *set) {
  const SafeTensor *t = st_find(all, name);
  weft_error e;
  float want[MANY];
  ck_assert_msg(t != NULL, "%s", name);
  ck_assert_int_eq(st_read_part(t, 0, n, want, &e), WEFT_OK);
  for (int64_t i = 0; i < n; i++)
    ck_assert_msg(got[i] == want[i], "%s: %s[%ld] is %a, bitsandbytes gives %a", set,
                  name, (long)i, (double)got[i], (double)want[i]);
}

START_TEST(steps_are_those_of_bitsandbytes) {
  static Stepped many, few;
  static float code[MANY], largest[BLOCKS];
  static const char *const name[][2] = {{"m.code", "m.largest"}, {"v.code", "v.largest"}};
  const KernelSet *set = kernel_sets[_i];
  SafeTensors *want;
  weft_error e;
  weft_status st =
      st_open(NULL, WEFT_SOURCE_DIR "/tests/oracle/adamw_8bit/expected.safetensors", NULL,
              &want, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  begin(&many, 0, MANY);
  begin(&few, 0, FEW);
  for (int step = 1; step <= STEPS; step++) {
    take_step(set, &many, step, 1);
    take_step(set, &few, step, 1);
  }
  must_be(want, "p", many.p, MANY, set->name);
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < MANY; i++) code[i] = many.many[k][i / 256].code[i % 256];
    for (int b = 0; b < BLOCKS; b++) largest[b] = many.many[k][b].largest;
    must_be(want, name[k][0], code, MANY, set->name);
    must_be(want, name[k][1], largest, BLOCKS, set->name);
  }
  must_be(want, "few.p", few.p, FEW, set->name);
  must_be(want, "few.m", few.few[0], FEW, set->name);
  must_be(want, "few.v", few.few[1], FEW, set->name);
  st_close(want);
}
END_TEST

/* ---- parts ---- */

/* Shards that begin at blocks, and threads, change no bit. */
START_TEST(parts_are_those_of_the_whole) {
  static Stepped whole, part;
  const KernelSet *set = kernel_sets[_i];
  const int64_t cut[] = {0, 512, 2560, 4608, MANY};
  begin(&whole, 0, MANY);
  for (int step = 1; step <= 4; step++) take_step(set, &whole, step, set->threads);
  for (int c = 0; c + 1 < LEN(cut); c++) {
    begin(&part, cut[c], cut[c + 1] - cut[c]);
    for (int step = 1; step <= 4; step++) take_step(set, &part, step, 1);
    for (int64_t i = 0; i < part.n; i++) ck_assert(part.p[i] == whole.p[cut[c] + i]);
    for (int k = 0; k < 2; k++)
      ck_assert(memcmp(part.many[k], whole.many[k] + cut[c] / 256,
                       (size_t)((part.n + 255) / 256) * sizeof(Dynamic8)) == 0);
  }
}
END_TEST

/* ---- checkpoints ---- */

/* What a checkpoint has of a block becomes the block again, also where the largest number
 * is negative, and where it is next to nothing. */
START_TEST(blocks_survive_checkpoints) {
  Dynamic8Map map;
  dynamic8_map(_i == 0, &map);
  int negative = 0;
  for (int round = 0; round < 400; round++) {
    float x[256], y[256], z[256];
    Dynamic8 a, b;
    for (int i = 0; i < 256; i++) {
      x[i] = ldexpf(value_of(i + 256 * round, 1), -round / 3);
      if (_i) x[i] = fabsf(x[i]);
    }
    int n = round % 5 ? 256 : 1 + round % 256;
    dynamic8_pack(&map, x, n, &a);
    dynamic8_unpack(&map, &a, 0, n, y);
    dynamic8_pack_again(&map, y, n, &b);
    dynamic8_unpack(&map, &b, 0, n, z);
    for (int i = 0; i < n; i++)
      ck_assert_msg(y[i] == z[i], "round %d: %a became %a", round, (double)y[i],
                    (double)z[i]);
    float most = 0;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(y[i]));
    negative += most < a.largest;
  }
  ck_assert_int_eq(negative > 50, _i == 0);
}
END_TEST

Suite *adamw_8bit_suite(void);
Suite *adamw_8bit_suite(void) {
  Suite *s = suite_create("adamw_8bit");
  TCase *t = tcase_create("adamw_8bit");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, steps_are_those_of_bitsandbytes, 0, KERNEL_SETS);
  tcase_add_loop_test(t, parts_are_those_of_the_whole, 0, KERNEL_SETS);
  tcase_add_loop_test(t, blocks_survive_checkpoints, 0, 2);
  suite_add_tcase(s, t);
  return s;
}
