/* check_determinism.c - the same run twice gives the same bits, initial values do not
 * depend on the mesh, and a step allocates nothing. */
#include <check.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/run_bits.h"
#include "vm/weights/param_gather.h"

/* ---- the same run twice ---- */

/* Large enough for two threads to share a kernel. */
static ToyOptions wide(ToyOptions o) {
  o.layers = 1, o.hidden = 64, o.ffn = 128, o.vocab = 200, o.seq = 128, o.micro = 2;
  o.microbatches = 2;
  return o;
}

START_TEST(twice) {
  ToyOptions o[] = {meshed(1, 1, 1), meshed(2, 2, 2),       meshed(2, 2, 2),
                    meshed(1, 4, 2), wide(meshed(1, 1, 1)), wide(meshed(2, 1, 2))};
  o[2].sp = o[2].overlap = o[2].tied = true;
  o[5].dtype = DT_BF16;
  ck_assert_int_eq(LEN(o), 6);
  Toy a, b;
  Trace x, y;
  for (int threads = 1; threads <= 2; threads++) {
    trace(&a, &o[_i], threads, &x);
    trace(&b, &o[_i], threads, &y);
    same_bits(&x, &y);
    ck_assert_double_ne(x.loss[0], x.loss[STEPS - 1]);
    toy_free(&a);
    toy_free(&b);
  }
}
END_TEST

/* Steps that are run again from the same state give the same bits: nothing is left over
 * in the arena. */
START_TEST(initialised_again) {
  ToyOptions o = meshed(2, 2, 1);
  o.sp = true;
  Toy t;
  Run *r;
  StepResult first[2], again[2];
  open_toy(&t, &o, 1, &r);
  for (int k = 0; k < 2; k++) trace_step(r, &t, k, &first[k]);
  OK(run_init(r, &trace_err));
  for (int k = 0; k < 2; k++) trace_step(r, &t, k, &again[k]);
  for (int k = 0; k < 2; k++) {
    ck_assert_mem_eq(&first[k].loss, &again[k].loss, sizeof(double));
    ck_assert_mem_eq(&first[k].grad_norm, &again[k].grad_norm, sizeof(double));
  }
  run_close(r);
  toy_free(&t);
}
END_TEST

/* ---- the same values on every mesh ---- */

START_TEST(initial_values) {
  static const int mesh[][3] = {{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {1, 4, 1},
                                {1, 1, 4}, {2, 2, 2}, {4, 2, 1}};
  Toy one, many;
  Run *r;
  Trace x, y;
  for (int sp = 0; sp < 2; sp++)
    for (int i = 0; i < LEN(mesh); i++) {
      ToyOptions o = meshed(mesh[i][0], mesh[i][1], mesh[i][2]), alone = meshed(1, 1, 1);
      o.kv_heads = alone.kv_heads = 4, o.sp = sp, o.bias = alone.bias = true;
      o.vocab = alone.vocab = 50; /* 4 does not divide it */
      open_toy(&one, &alone, 1, &r);
      read_state(r, &one, &x);
      run_close(r);
      open_toy(&many, &o, 1, &r);
      read_state(r, &many, &y);
      run_close(r);
      ck_assert_int_eq(x.n, y.n);
      ck_assert(memcmp(x.state[0], y.state[0], sizeof(float) * (size_t)x.n) == 0);
      toy_free(&one);
      toy_free(&many);
    }
}
END_TEST

/* ---- no allocation in a step ---- */

/* Counts what the whole process allocates while `counting`: functions under the names of
 * the C library's, in front of it or of a sanitizer's that only looks for leaks. Others
 * know their own functions alone. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
enum { CAN_COUNT = 0 };
static atomic_int counting, counted;
#else
enum { CAN_COUNT = 1 };
static atomic_int counting, counted;

/* The function of this name that would be called without ours. */
static void *behind(const char *name, _Atomic(void *) *known) {
  if (atomic_load_explicit(&counting, memory_order_relaxed))
    atomic_fetch_add_explicit(&counted, 1, memory_order_relaxed);
  if (!*known) *known = dlsym(RTLD_NEXT, name);
  return *known;
}

void *malloc(size_t n) {
  static _Atomic(void *) f;
  return ((void *(*)(size_t))behind("malloc", &f))(n);
}
void *calloc(size_t n, size_t size) {
  static _Atomic(void *) f;
  return ((void *(*)(size_t, size_t))behind("calloc", &f))(n, size);
}
void *realloc(void *p, size_t n) {
  static _Atomic(void *) f;
  return ((void *(*)(void *, size_t))behind("realloc", &f))(p, n);
}
void *memalign(size_t align, size_t n) {
  static _Atomic(void *) f;
  return ((void *(*)(size_t, size_t))behind("memalign", &f))(align, n);
}
void *aligned_alloc(size_t align, size_t n) {
  static _Atomic(void *) f;
  return ((void *(*)(size_t, size_t))behind("aligned_alloc", &f))(align, n);
}
int posix_memalign(void **p, size_t align, size_t n) {
  static _Atomic(void *) f;
  return ((int (*)(void **, size_t, size_t))behind("posix_memalign", &f))(p, align, n);
}
#endif

static void no_allocation(const ToyOptions *o, int threads) {
  Toy t;
  Run *r;
  StepResult res;
  open_toy(&t, o, threads, &r);
  size_t n = (size_t)(t.plan.batch.global * t.plan.batch.seq);
  int32_t *ids = NEW_N(t.arena, int32_t, 2 * n);
  random_ids(&t, 0, ids, ids + n);
  OK(run_step_tokens(r, ids, ids + n, 0, &res, &trace_err)); /* thread teams start here */
  (void)run_allocations(r);
  atomic_store(&counted, 0);
  atomic_store(&counting, 1);
  weft_status st = WEFT_OK;
  for (int k = 1; k < 4 && st == WEFT_OK; k++)
    st = run_step_tokens(r, ids, ids + n, k, &res, &trace_err);
  atomic_store(&counting, 0);
  ck_assert_msg(st == WEFT_OK, "%s", trace_err.text);
  ck_assert_uint_eq(run_allocations(r), 0);
  ck_assert_int_eq(atomic_load(&counted), 0);
  run_close(r);
  toy_free(&t);
}

START_TEST(a_step_allocates_nothing) {
  ToyOptions o[] = {meshed(1, 1, 1), meshed(2, 2, 2), wide(meshed(2, 1, 1))};
  ck_assert_int_eq(LEN(o), 3);
  o[1].sp = o[1].overlap = o[1].tied = true;
  no_allocation(&o[_i], 1);
  no_allocation(&o[_i], 2);
}
END_TEST

START_TEST(the_counter_counts) {
  if (!CAN_COUNT) {
    printf("skipped: malloc is not counted under a sanitizer\n");
    return;
  }
  atomic_store(&counting, 1);
  void *volatile p = malloc(10);
  p = realloc(p, 20);
  void *volatile q = aligned_alloc(64, 64);
  atomic_store(&counting, 0);
  free(p);
  free(q);
  ck_assert_int_eq(atomic_load(&counted), 3);
}
END_TEST

Suite *determinism_suite(void) {
  Suite *s = suite_create("determinism");
  TCase *c = tcase_create("bits");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, twice, 0, 6);
  tcase_add_test(c, initialised_again);
  tcase_add_test(c, initial_values);
  suite_add_tcase(s, c);
  c = tcase_create("allocations");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, the_counter_counts);
  tcase_add_loop_test(c, a_step_allocates_nothing, 0, 3);
  suite_add_tcase(s, c);
  return s;
}
