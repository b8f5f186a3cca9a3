/* check_ckpt_store.c - the folder of a run's checkpoints: which one is the newest and
 * which ones stay, whatever the clock, the disk and the file system do. */
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness/ckpt_runs.h"
#include "tests/harness/process.h"

static const char *dir;

/* Two steps of a small run, each with a checkpoint. */
static void setup(void) {
  ToyOptions o = meshed(1, 1, 1);
  scratch_setup();
  o.layers = 1;
  dir = scratch_path("a");
  saved_run(&o, dir, 2);
}

/* Resumes from a checkpoint and saves those of steps first to last. */
static const char *save(int from, int first, int last) {
  ToyOptions o = meshed(1, 1, 1);
  static SavedToy s;
  Ckpt *c = saved_ckpt(dir, from);
  o.layers = 1;
  saved_open(&s, &o, dir, c);
  for (int k = first; k <= last; k++) saved_save(&s, k);
  ckpt_close(c);
  saved_close(&s);
  return s.said;
}

static const char *listed(void) {
  return arena_str(scratch_arena, process_run(10, "ls %s", dir).out);
}

static void skipped(void *ud, const char *name, const weft_error *why) {
  ck_abort_msg("%s is skipped: %s: %s", name, why->file, why->text);
}

static int newest(void) {
  Ckpt *c;
  const char *path;
  bool none;
  OK(store_newest(scratch_arena, dir, skipped, NULL, &c, &trace_err));
  ck_assert_ptr_nonnull(c);
  int step = (int)c->m.step;
  OK(store_find(scratch_arena, dir, &path, &none, &trace_err));
  ck_assert_str_eq(path, c->dir);
  ckpt_close(c);
  return step;
}

/* ---- the clock ---- */

/* Writes a manifest as if the clock had been ahead by so many seconds. */
static void put_ahead(int step, int64_t seconds) {
  Manifest m;
  Text text = {0};
  const char *path = arena_printf(scratch_arena, "%s/" MANIFEST_NAME,
                                  store_path(scratch_arena, dir, step, false));
  OK(manifest_read(scratch_arena, path, &m, &trace_err));
  m.saved_at += seconds * 1000000000;
  manifest_write(&m, &text);
  FILE *f = fopen(path, "w");
  ck_assert(f && fwrite(text.s, 1, text.n, f) == text.n && fclose(f) == 0);
  text_free(&text);
}

/* Those that are saved after it has been set back are the last ones all the same. */
START_TEST(a_clock_that_is_set_back_changes_no_order) {
  for (int step = 1; step <= 2; step++) put_ahead(step, 86400);
  save(2, 3, 4);
  ck_assert_str_eq(listed(), "latest\nstep-00000003\nstep-00000004\n");
  ck_assert_int_eq(newest(), 4);
  save(3, 4, 4);
  ck_assert_str_eq(listed(), "latest\nstep-00000003\nstep-00000004\n");
  save(3, 5, 5);
  ck_assert_str_eq(listed(), "latest\nstep-00000004\nstep-00000005\n");
}
END_TEST

START_TEST(times_only_grow) {
  int64_t now = store_time(0);
  ck_assert_int_gt(now, 0);
  ck_assert_int_ge(store_time(now), now + 1);
  ck_assert_int_eq(store_time(now * 2), now * 2 + 1);
  ck_assert_int_eq(store_time(INT64_MAX), INT64_MAX);
}
END_TEST

/* ---- the file `latest` ---- */

/* A run that is killed before it has replaced the file leaves one of a step before. */
START_TEST(the_newest_is_the_one_that_was_saved_last) {
  scratch_put("a/latest", "step-00000001\n", 14);
  ck_assert_int_eq(newest(), 2);
}
END_TEST

/* The checkpoint is there, so it is no failure, and older ones make room. */
START_TEST(a_latest_that_cannot_be_written_is_a_warning) {
  unlink(scratch_path("a/latest"));
  process_run(10, "mkdir a/latest");
  const char *said = save(2, 3, 3);
  ck_assert_msg(strstr(said, "!the checkpoint of step 3 is there, but \"latest\" does "
                             "not name it: ") &&
                    strstr(said, "a/latest: cannot be written: ") &&
                    strstr(said, "checkpoint of step 3 in ") &&
                    !strstr(said, "was not written"),
                "%s", said);
  ck_assert_str_eq(listed(), "latest\nstep-00000002\nstep-00000003\n");
  ck_assert_int_eq(newest(), 3);
}
END_TEST

Suite *ckpt_store_suite(void);
Suite *ckpt_store_suite(void) {
  Suite *s = suite_create("ckpt_store");
  TCase *c = tcase_create("folder");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, setup, scratch_teardown);
  tcase_add_test(c, a_clock_that_is_set_back_changes_no_order);
  tcase_add_test(c, times_only_grow);
  tcase_add_test(c, the_newest_is_the_one_that_was_saved_last);
  tcase_add_test(c, a_latest_that_cannot_be_written_is_a_warning);
  suite_add_tcase(s, c);
  return s;
}
