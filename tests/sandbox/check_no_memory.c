/* check_no_memory.c - an allocator that fails at the N-th request, for every N until
 * everything passes, under the public interface: each failure must be WEFT_ENOMEM and
 * give back all memory. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/base/base.h"

#define PLAN WEFT_SOURCE_DIR "/tests/embed/small.lua"

/* Sanitizers make each try several times slower, so they see every ninth. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 9 };
#else
enum { STRIDE = 1 };
#endif

/* Ranks allocate in threads of their own. */
typedef struct Meter {
  pthread_mutex_t lock;
  int64_t n, held;
  int64_t fail_at; /* from 1 */
  bool once;       /* only that one fails */
} Meter;

static void *metered(void *ud, void *p, size_t old, size_t n) {
  Meter *m = ud;
  void *q = NULL;
  pthread_mutex_lock(&m->lock);
  if (n == 0) {
    m->held -= (int64_t)old;
    free(p);
  } else {
    m->n++;
    bool fails = m->once ? m->n == m->fail_at : m->n >= m->fail_at;
    if (!fails) q = realloc(p, n);
    /* Lua gives a kind of object instead of a size for what is new. */
    if (q) m->held += (int64_t)n - (p ? (int64_t)old : 0);
  }
  pthread_mutex_unlock(&m->lock);
  return q;
}

typedef weft_status (*Use)(weft_plan *plan, weft_error *e);

static weft_status compile_it(weft_plan *plan, weft_error *e) {
  return weft_plan_compile(plan, 0, e);
}

static weft_status run_it(weft_plan *plan, weft_error *e) {
  weft_run_options o = {.size = sizeof o, .threads = 1};
  weft_run *run = NULL;
  weft_step step;
  weft_status st = weft_plan_compile(plan, 0, e);
  if (st == WEFT_OK) st = weft_run_open(plan, &o, &run, e);
  if (st == WEFT_OK) st = weft_run_init(run, e);
  if (st == WEFT_OK) st = weft_run_step(run, 0, &step, e);
  weft_run_close(run);
  return st;
}

/* Loads the plan with `set` and uses it; nothing may be held afterwards. */
static weft_status attempt(Meter *m, const char *const *set, Use use, weft_error *e) {
  weft_alloc alloc = {metered, m};
  weft_plan_options o = {.size = sizeof o, .alloc = &alloc, .set = set};
  weft_plan *plan = NULL;
  pthread_mutex_init(&m->lock, NULL);
  weft_status st = weft_plan_load(&o, PLAN, &plan, e);
  if (st == WEFT_OK) st = use(plan, e);
  if (plan) weft_plan_report(plan);
  weft_plan_free(plan);
  pthread_mutex_destroy(&m->lock);
  ck_assert_msg(m->held == 0, "request %lld: %lld bytes are lost", (long long)m->fail_at,
                (long long)m->held);
  ck_assert_int_eq(st, e->code);
  return st;
}

static int64_t requests(const char *const *set, Use use, weft_status want) {
  Meter m = {.fail_at = INT64_MAX};
  weft_error e = {.rank = -1};
  ck_assert_msg(attempt(&m, set, use, &e) == want, "%s", e.text);
  return m.n;
}

/* Until it passes. Lua does not make quite the same number of requests every time: its
 * strings hash by a seed that is an address. */
static void fail_each(Use use, int64_t from) {
  int64_t n = requests(NULL, use, WEFT_OK), i = from;
  for (;; i += STRIDE) {
    Meter m = {.fail_at = i};
    weft_error e = {.rank = -1};
    weft_status st = attempt(&m, NULL, use, &e);
    if (st == WEFT_OK) break;
    ck_assert_msg(st == WEFT_ENOMEM, "request %lld of %lld: status %d, %s", (long long)i,
                  (long long)n, st, e.text);
  }
  ck_assert_int_gt(i, from);
  ck_assert_int_gt(i, n - n / 20);
}

START_TEST(load_and_compile) { fail_each(compile_it, 1); }
END_TEST

/* Opening, initial values and a step, after all that comes before. */
START_TEST(open_and_step) { fail_each(run_it, requests(NULL, compile_it, WEFT_OK) - 10); }
END_TEST

/* One failure that passes: Lua collects its garbage and goes on, so the result may be
 * right; nothing else but WEFT_ENOMEM is allowed. */
START_TEST(one_failure_only) {
  int64_t n = requests(NULL, compile_it, WEFT_OK), failed = 0;
  for (int64_t i = 1; i <= n; i += 3 * STRIDE) {
    Meter m = {.fail_at = i, .once = true};
    weft_error e = {.rank = -1};
    weft_status st = attempt(&m, NULL, compile_it, &e);
    ck_assert_msg(st == WEFT_OK || st == WEFT_ENOMEM, "request %lld: status %d, %s",
                  (long long)i, st, e.text);
    failed += st == WEFT_ENOMEM;
  }
  ck_assert_int_gt(failed, 0);
}
END_TEST

/* A wrong plan is evaluated once more to find lines. If there is no memory for that the
 * errors are less precise, but they are those of the plan. */
START_TEST(a_wrong_plan) {
  const char *const set[] = {"mesh.tp=3", NULL};
  int64_t n = requests(set, compile_it, WEFT_EPLAN);
  for (int64_t i = 1; i <= n; i += 2 * STRIDE) {
    Meter m = {.fail_at = i};
    weft_error e = {.rank = -1};
    weft_status st = attempt(&m, set, compile_it, &e);
    ck_assert_msg(st == WEFT_ENOMEM || (st == WEFT_EPLAN && strstr(e.text, "mesh.tp")),
                  "request %lld: status %d, %s", (long long)i, st, e.text);
  }
}
END_TEST

/* A view comes whole, or it is an error: each as long as what it was given room for. */
START_TEST(views) {
  static const char *const name[] = {"mesh", "memory", "stages",
                                     "comm", "rank",   "program"};
  Meter m = {.fail_at = INT64_MAX};
  weft_alloc alloc = {metered, &m};
  weft_plan_options o = {.size = sizeof o, .alloc = &alloc};
  weft_plan *plan = NULL;
  weft_error e = {.rank = -1};
  const char *shown;
  pthread_mutex_init(&m.lock, NULL);
  ck_assert_msg(weft_plan_load(&o, PLAN, &plan, &e) == WEFT_OK, "%s", e.text);
  ck_assert_msg(weft_plan_compile(plan, 0, &e) == WEFT_OK, "%s", e.text);
  for (int i = 0; i < LEN(name); i++) {
    m.fail_at = INT64_MAX;
    ck_assert_int_eq(weft_plan_show(plan, name[i], 0, &shown, &e), WEFT_OK);
    size_t whole = strlen(shown);
    weft_status st = WEFT_ENOMEM;
    for (m.n = 0, m.fail_at = 1; st != WEFT_OK; m.n = 0, m.fail_at++) {
      st = weft_plan_show(plan, name[i], 0, &shown, &e);
      ck_assert_msg(st == WEFT_OK ? strlen(shown) == whole : st == WEFT_ENOMEM && !shown,
                    "%s, request %lld: status %d", name[i], (long long)m.fail_at, st);
      ck_assert_int_lt(m.fail_at, 100);
    }
    ck_assert_int_gt(m.fail_at, 2);
  }
  weft_plan_free(plan);
  ck_assert_int_eq(m.held, 0);
  pthread_mutex_destroy(&m.lock);
}
END_TEST

Suite *no_memory_suite(void) {
  Suite *s = suite_create("no_memory");
  TCase *tc = tcase_create("every request");
  tcase_set_timeout(tc, 300);
  tcase_add_test(tc, load_and_compile);
  tcase_add_test(tc, open_and_step);
  tcase_add_test(tc, one_failure_only);
  tcase_add_test(tc, a_wrong_plan);
  tcase_add_test(tc, views);
  suite_add_tcase(s, tc);
  return s;
}
