/* check_supervisor.c - who is named when a process is missed by another one before
 * anybody knows what has happened to it. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/ranks/forked_ranks.h"
#include "vm/comm/supervisor/supervisor.h"

enum { RANKS = 3, LIVES = 8000000 };

/* How the one that is missed goes, and after how long. */
typedef struct Way {
  int rank;
  useconds_t after_us;
  const char *says; /* NULL: it says nothing, its process ends */
  const char *want; /* what is said of it, once */
  bool unread;      /* who misses it writes to it, and has not read yet that it is gone */
} Way;

static const Way way[] = {
    {1, 0, NULL, "the process of rank 1 has ended", false},
    {1, 1200000, NULL, "the process of rank 1 has ended", false},
    {0, 1200000, NULL, "the process of rank 0 has ended", false},
    {2, 1200000, NULL, "the process of rank 2 has ended", false},
    {1, 1200000, "rank 1 has run out of luck", "rank 1 has run out of luck", false},
    {2, LIVES, NULL, "rank 2 is missed", false}, /* nothing better comes */
    {0, 500000, NULL, "the process of rank 0 has ended", true},
    {1, 500000, NULL, "the process of rank 1 has ended", true},
};

/* Between reading and writing: the other one ends while this takes its time. */
static void here(void *ud, RankNote *out) {
  atomic_bool *missing = ud;
  memset(out, 0, sizeof *out);
  if (atomic_exchange(missing, false)) usleep(1000000);
}
static double limit(void *ud) {
  (void)ud;
  return 60;
}
static bool stuck(void *ud, const RankSeen *rank, char *why, size_t size) {
  (void)ud, (void)rank, (void)why, (void)size;
  return false;
}
static void others(void *ud, const RankSeen *rank, int culprit, Text *out) {
  (void)ud, (void)rank, (void)culprit, (void)out;
}
static void end(void *ud, int culprit, weft_status code, const char *why, bool speaks) {
  (void)ud, (void)culprit, (void)code;
  if (speaks) fprintf(stderr, "said: %s\n", why);
}

static void go(const Way *w, Supervisor *c) {
  usleep(w->after_us);
  if (!w->says) _exit(1);
  supervisor_fail(c, w->rank, WEFT_ERUN, w->says);
}

static bool watched(const Rendezvous *m, const void *arg) {
  const Way *w = arg;
  Net net;
  Supervisor *c;
  weft_error e = {.rank = -1};
  char why[64];
  atomic_bool missing = false;
  SupervisorHost host = {.ud = &missing,
                         .here = here,
                         .limit = limit,
                         .stuck = stuck,
                         .others = others,
                         .end = end};
  snprintf(why, sizeof why, "rank %d is missed", w->rank);
  if (rendezvous(m, NULL, &net, &e) != WEFT_OK ||
      supervisor_start(&c, NULL, &net, &host, &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    return false;
  }
  missing = w->unread && m->rank != w->rank;
  if (m->rank != w->rank)
    supervisor_fail(c, w->rank, WEFT_ERUN, why);
  else
    go(w, c);
  supervisor_close(c);
  net_close(&net);
  return true;
}

START_TEST(the_missed_one_is_named_with_what_happened) {
  const Way *w = &way[_i];
  Forked f = forked(RANKS, watched, w);
  const char *said = strstr(f.text, "said: ");
  ck_assert_msg(said && strstr(said, w->want), "\"%s\" is not in:\n%s", w->want, f.text);
  ck_assert_msg(!strstr(said + 1, "said: "), "more than one message:\n%s", f.text);
}
END_TEST

Suite *supervisor_suite(void);
Suite *supervisor_suite(void) {
  Suite *s = suite_create("supervisor");
  TCase *t = tcase_create("processes");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, the_missed_one_is_named_with_what_happened, 0,
                      (int)(sizeof way / sizeof *way));
  suite_add_tcase(s, t);
  return s;
}
