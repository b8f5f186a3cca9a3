/* check_dropout_masks.c - what dropout drops: as often as it should, independently of
 * neighbours, layers, sites and steps, and the same bits on both devices and whatever
 * columns a rank has. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/levels.h"
#include "kernels/cuda/cuda.h"
#include "tests/reference/kernel_sets.h"
#include "vm/graph/dropout.h"

/* ---- statistics ---- */

enum { TOKENS = 512, COLUMNS = 512, DRAWS = TOKENS * COLUMNS };

/* Which elements of a place of the model are kept, from token `first` on. */
static void mask(const OpAttr *a, uint32_t unit, uint32_t first, bool *kept) {
  Dropout d = dropout_of(a, unit);
  for (uint32_t t = 0; t < TOKENS; t++)
    for (uint32_t g = 0; g < COLUMNS / DROPOUT_WORDS; g++) {
      uint32_t word[DROPOUT_WORDS];
      dropout_words(&d, first + t, g, 0, word);
      for (int k = 0; k < DROPOUT_WORDS; k++) *kept++ = dropout_factor(&d, word[k]) != 0;
    }
}

/* Of n independent draws that drop with this rate, how far the number of drops is from
 * what is expected, in standard deviations. */
static double deviations(int64_t dropped, int64_t n, double rate) {
  double sigma = sqrt((double)n * rate * (1 - rate));
  return fabs((double)dropped - (double)n * rate) / sigma;
}

static int64_t dropped_in(const bool *kept, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += !kept[i];
  return count;
}

/* Elements that both masks drop, `apart` behind each other. */
static int64_t dropped_by_both(const bool *a, const bool *b, int64_t n, int64_t apart) {
  int64_t count = 0;
  for (int64_t i = 0; i + apart < n; i++) count += !a[i] && !b[i + apart];
  return count;
}

static const double rates[] = {0.05, 0.1, 0.5, 0.9};
enum { SIGMAS = 5 };

START_TEST(the_rate_holds) {
  OpAttr a = {.rate = rates[_i], .seed = 11};
  bool *kept = malloc(DRAWS);
  mask(&a, 2, 1000, kept);
  ck_assert_double_lt(deviations(dropped_in(kept, DRAWS), DRAWS, a.rate), SIGMAS);
  for (int t = 0; t < TOKENS; t++) /* and in every row */
    ck_assert_double_lt(
        deviations(dropped_in(kept + t * COLUMNS, COLUMNS), COLUMNS, a.rate), SIGMAS);
  free(kept);
}
END_TEST

START_TEST(neighbours_are_independent) {
  static const int apart[] = {1, 2, 3, 4, 5, COLUMNS - 1, COLUMNS, COLUMNS + 1};
  OpAttr a = {.rate = rates[_i], .seed = 12};
  bool *kept = malloc(DRAWS);
  mask(&a, 0, 0, kept);
  for (int i = 0; i < LEN(apart); i++)
    ck_assert_double_lt(deviations(dropped_by_both(kept, kept, DRAWS, apart[i]),
                                   DRAWS - apart[i], a.rate * a.rate),
                        SIGMAS);
  free(kept);
}
END_TEST

START_TEST(places_are_independent) {
  double rate = rates[_i];
  const struct {
    OpAttr attr;
    uint32_t unit, first;
  } other[] = {
      {{.rate = rate, .seed = 13}, 5, 7000},            /* another layer */
      {{.rate = rate, .seed = 13, .site = 1}, 4, 7000}, /* site */
      {{.rate = rate, .seed = 13}, 4, 7000 + TOKENS},   /* step */
      {{.rate = rate, .seed = 14}, 4, 7000},            /* seed */
      {{.rate = rate, .seed = 13 + (1ull << 32)}, 4, 7000},
  };
  OpAttr a = {.rate = rate, .seed = 13};
  bool *kept = malloc(2 * DRAWS);
  mask(&a, 4, 7000, kept);
  for (int i = 0; i < LEN(other); i++) {
    mask(&other[i].attr, other[i].unit, other[i].first, kept + DRAWS);
    int64_t both = dropped_by_both(kept, kept + DRAWS, DRAWS, 0);
    ck_assert_double_lt(deviations(both, DRAWS, rate * rate), SIGMAS);
  }
  free(kept);
}
END_TEST

/* ---- bits ---- */

static const DType types[] = {DT_F32, DT_BF16};

#ifdef WEFT_EMULATED_CUDA
START_TEST(devices_have_the_same_bits) {
  int tried = 0;
  for (int i = 0; i < kernel_cases; i++) {
    Problem p;
    if (kernel_case[i].op != OP_dropout) continue;
    problem_make(&p, &kernel_case[i], types[_i], 3);
    KernelArgs a = kernel_run(&kernels_cpu, &p, 1, false),
               b = kernel_run(&kernels_cuda, &p, 1, false);
    ck_assert_mem_eq(a.out[0].p, b.out[0].p, kernel_bytes(&a.out[0]));
    kernel_free(&p, &a), kernel_free(&p, &b);
    problem_free(&p), tried++;
  }
  ck_assert_int_ge(tried, 4);
}
END_TEST
#endif

/* A rank that has some of the columns drops what a rank with all of them drops there. */
START_TEST(columns_may_be_cut) {
  static const int widths[] = {1, 3, 4, 20, 60};
  KernelCase c = {
      OP_dropout, "x 2,3,60 t99 2,3", "x 2,3,60", {.rate = 0.4, .seed = 9}, 0};
  Problem whole, part;
  problem_make(&whole, &c, types[_i], 5);
  KernelArgs a = kernel_run(&kernels_cpu, &whole, 1, false);
  for (int w = 0; w < LEN(widths); w++)
    for (int index = 0; index < 60 / widths[w]; index++) {
      part = whole;
      part.attr.cut = 1, part.index = index;
      part.in[0].dim[2] = part.out[0].dim[2] = widths[w];
      part.in[0].v = calloc((size_t)(6 * widths[w]), sizeof(double));
      for (int i = 0; i < 6 * widths[w]; i++)
        part.in[0].v[i] =
            whole.in[0].v[i / widths[w] * 60 + index * widths[w] + i % widths[w]];
      KernelArgs b = kernel_run(&kernels_cpu, &part, 1, false);
      for (int i = 0; i < 6 * widths[w]; i++) {
        int64_t at = i / widths[w] * 60 + index * widths[w] + i % widths[w];
        ck_assert_double_eq(kernel_element(b.out[0].p, types[_i], i),
                            kernel_element(a.out[0].p, types[_i], at));
      }
      kernel_free(&part, &b);
      free(part.in[0].v);
    }
  kernel_free(&whole, &a);
  problem_free(&whole);
}
END_TEST

Suite *dropout_masks_suite(void) {
  Suite *s = suite_create("dropout_masks");
  TCase *tc = tcase_create("statistics");
  tcase_add_loop_test(tc, the_rate_holds, 0, LEN(rates));
  tcase_add_loop_test(tc, neighbours_are_independent, 0, LEN(rates));
  tcase_add_loop_test(tc, places_are_independent, 0, LEN(rates));
  suite_add_tcase(s, tc);
  tc = tcase_create("bits");
#ifdef WEFT_EMULATED_CUDA
  tcase_add_loop_test(tc, devices_have_the_same_bits, 0, LEN(types));
#endif
  tcase_add_loop_test(tc, columns_may_be_cut, 0, LEN(types));
  suite_add_tcase(s, tc);
  return s;
}
