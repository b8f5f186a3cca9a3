/* check_ckpt_store.c - the folder of a run's checkpoints: which one is the newest and
 * which ones stay, whatever the clock, the disk and the file system do. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/ckpt_runs.h"
#include "tests/harness/disk_calls.h"
#include "tests/harness/process.h"
#include "vm/ckpt/ckpt_compare.h"
#include "vm/ckpt/ckpt_convert.h"
#include "vm/ckpt/ckpt_weights.h"

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

/* ---- file systems that exchange no names ---- */

static const int refusals[] = {EINVAL, ENOSYS, EOPNOTSUPP};

START_TEST(a_step_is_saved_again_without_an_exchange) {
  disk_calls.rename = refusals[_i];
  const char *said = save(1, 2, 2);
  ck_assert_msg(!strchr(said, '!'), "%s", said);
  ck_assert_str_eq(listed(), "latest\nstep-00000001\nstep-00000002\n");
  ck_assert_int_eq(newest(), 2);
}
END_TEST

static void ignored(void *ud, const char *name, const weft_error *why) {}

typedef struct Countdown {
  int left;
  bool kills;
} Countdown;

static bool strike(void *ud) {
  Countdown *c = ud;
  if (--c->left) return false;
  if (c->kills) raise(SIGKILL);
  return true;
}

/* Commits the files of step 2 once more; the n-th step to the disk fails, or kills. False
 * if there are fewer. */
static bool commit_again(const Compiled *of, int n, bool kills) {
  Manifest m;
  Dir in, from;
  Countdown c = {n, kills};
  RankFile disk = {strike, &c};
  weft_error e = NO_ERROR;
  Outcome copied = process_run(10, "sh -c 'rm -rf a/step-00000002.tmp; cp -r "
                                   "a/step-00000002* a/step-00000002.tmp'");
  ck_assert_msg(copied.code == 0, "%s", copied.err);
  const char *manifest = scratch_path("a/step-00000002.tmp/" MANIFEST_NAME);
  OK(manifest_read(scratch_arena, manifest, &m, &trace_err));
  m.saved_at = store_time(m.saved_at);
  OK(dir_open(dir, 0, &in, &trace_err));
  OK(dir_below(&in, "step-00000002.tmp", 0, &from, &trace_err));
  pid_t pid = kills ? fork() : -1;
  if (pid <= 0) (void)store_commit(&disk, &in, &from, &m, of, &e);
  if (pid == 0) _exit(0);
  int status = 0;
  if (kills) waitpid(pid, &status, 0);
  dir_close(&from);
  dir_close(&in);
  return kills ? WIFSIGNALED(status) : c.left <= 0;
}

/* Wherever it ends there is one of step 2, which the next commit replaces. */
START_TEST(a_commit_that_ends_leaves_a_checkpoint) {
  ToyOptions o = meshed(1, 1, 1);
  Toy t;
  int n = 1;
  disk_calls.rename = EINVAL;
  o.layers = 1;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  for (; commit_again(t.compiled, n, _i); n++) {
    Ckpt *c;
    OK(store_newest(scratch_arena, dir, ignored, NULL, &c, &trace_err));
    ck_assert(c && c->m.step == 2);
    ckpt_close(c);
    if (!_i) ck_assert_ptr_null(strstr(listed(), STORE_OLD));
  }
  ck_assert_int_gt(n, 4);
  ck_assert_str_eq(listed(), "latest\nstep-00000001\nstep-00000002\n");
  ck_assert_int_eq(newest(), 2);
  toy_free(&t);
}
END_TEST

/* What an end has left is one of those that `keep` counts; the weights beside it are of
 * the one that has its name. */
START_TEST(one_that_made_way_is_pruned) {
  process_run(10, "sh -c 'cp -r a/step-00000001 a/step-00000001.old; mkdir "
                  "a/weights-00000001; mkdir a/step-00000001.old.tmp'");
  save(2, 3, 3);
  ck_assert_str_eq(listed(), "latest\nstep-00000002\nstep-00000003\n");
}
END_TEST

/* ---- folders that come later ---- */

static void has(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

/* One that could not be opened when the run began is taken when it can be, as it would
 * have been then: not if another run has it, or has its checkpoints there. */
START_TEST(a_folder_that_is_there_later) {
  ToyOptions o = meshed(1, 1, 1);
  SavedToy s;
  o.layers = 1;
  const char *before = listed();
  dir = scratch_path("f/late");
  scratch_put("f", "", 0);
  saved_open(&s, &o, dir, NULL);
  has(s.said, "!checkpoints cannot be written: ");
  process_run(10, "sh -c 'rm f; mkdir f; cp -r a f/late'");
  saved_save(&s, 2);
  has(s.said, "!the checkpoint of step 2 was not written: ");
  has(s.said, "f/late: has checkpoints already, the last one of step 2");
  ck_assert_str_eq(listed(), before);
  ck_assert_int_eq(process_run(10, "diff -r a f/late").code, 0);

  process_run(10, "sh -c 'rm -r f/late; mkdir f/late'");
  int other = open(dir, O_RDONLY | O_DIRECTORY);
  ck_assert_int_eq(flock(other, LOCK_EX), 0);
  saved_save(&s, 3);
  has(s.said, "!the checkpoint of step 3 was not written: ");
  has(s.said, "f/late: another run writes its checkpoints there");
  ck_assert_str_eq(listed(), "");
  ck_assert_int_eq(flock(other, LOCK_UN), 0);

  saved_save(&s, 4);
  has(s.said, "\ncheckpoint of step 4 in ");
  ck_assert_int_ne(flock(other, LOCK_EX | LOCK_NB), 0);
  saved_save(&s, 5);
  has(s.said, "\ncheckpoint of step 5 in ");
  ck_assert_str_eq(listed(), "latest\nstep-00000004\nstep-00000005\n");
  close(other);
  saved_close(&s);
}
END_TEST

/* ---- asked to end ---- */

static void no_row(void *ud, const CompareRow *row) {}

/* What reads a checkpoint ends, and of what it was writing nothing stays. */
START_TEST(a_signal_leaves_nothing) {
  static const StopFlag stop = SIGTERM;
  ToyOptions o = meshed(1, 1, 1);
  Toy t;
  weft_error latest = NO_ERROR, *e = &trace_err;
  uint64_t bytes;
  o.layers = 1;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  Ckpt *c = saved_ckpt(dir, 2);
  WeightsOutOptions out = {.dir = scratch_path("out")};
  for (int way = 0; way < 4; way++) {
    weft_status got =
        way == 0   ? ckpt_verify(c, &stop, &bytes, e)
        : way == 1 ? ckpt_compare(c, c, no_row, NULL, &stop, e)
        : way == 2
            ? ckpt_weights(c, t.compiled, &out, NULL, &stop, &bytes, e)
            : ckpt_convert(c, t.compiled, &c->m, scratch_path("b"), &stop, &latest, e);
    ck_assert_msg(got == WEFT_EINTR && str_eq(e->text, "interrupted"), "%d: %d, %s", way,
                  got, e->text);
    err_clear(e);
  }
  ck_assert_str_eq(scratch_list(), "a b ");
  ck_assert_int_eq(rmdir(scratch_path("b")), 0);
  ckpt_close(c);
  toy_free(&t);
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
  tcase_add_loop_test(c, a_step_is_saved_again_without_an_exchange, 0, LEN(refusals));
  tcase_add_loop_test(c, a_commit_that_ends_leaves_a_checkpoint, 0, 2);
  tcase_add_test(c, one_that_made_way_is_pruned);
  tcase_add_test(c, a_folder_that_is_there_later);
  tcase_add_test(c, a_signal_leaves_nothing);
  suite_add_tcase(s, c);
  return s;
}
