/* check_st_out.c - safetensors files written piece by piece: their bytes are those of the
 * safetensors library, several writers share a file, and what fails leaves nothing. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/scratch.h"
#include "vm/io/io.h"

#define LIBRARY WEFT_SOURCE_DIR "/tests/oracle/safetensors/"

/* What tests/oracle/safetensors/generate.py writes. */
static const float w[] = {-3, -2, -1, 0, 1, 2}, one[] = {0};
static const uint16_t brain[] = {0xc000, 0xbf80, 0, 0x3f80, 0x4000};
static const uint16_t half[] = {0xbc00, 0, 0x3c00};
static const double wide[] = {-1, 0};
static const int32_t step[] = {7};
static const StWrite mixed[] = {
    {"model.w", DT_F32, 2, {2, 3}, w},
    {"model.b", DT_BF16, 1, {5}, brain},
    {"a.half", DT_F16, 2, {1, 3}, half},
    {"double", DT_F64, 1, {2}, wide},
    {"step", DT_I32, 0, {0}, step},
    {"none", DT_F32, 2, {0, 4}, NULL},
    {"quoted \"name\"\\", DT_F32, 1, {1}, one},
};
static const StMeta format[] = {{"format", "pt"}};
static const StContent library = {mixed, LEN(mixed), format, 1};

static void same_files(const char *a, const char *b) {
  char *x, *y;
  size_t n, m;
  ck_assert_int_eq(file_read(NULL, a, FILE_OWN_MAX, &x, &n, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_read(NULL, b, FILE_OWN_MAX, &y, &m, &scratch_error), WEFT_OK);
  ck_assert_uint_eq(n, m);
  ck_assert_mem_eq(x, y, n);
  mem_free(NULL, x, n + 1);
  mem_free(NULL, y, m + 1);
}

static size_t bytes_of(const StWrite *t) {
  static const size_t size[] = {
      [DT_F32] = 4, [DT_BF16] = 2, [DT_F16] = 2, [DT_F64] = 8, [DT_I32] = 4};
  size_t n = size[t->dtype];
  for (int i = 0; i < t->ndim; i++) n *= (size_t)t->dim[i];
  return n;
}

START_TEST(files_are_those_of_the_library) {
  const char *path = scratch_path("x");
  ck_assert_int_eq(st_write(NULL, path, mixed, LEN(mixed), &scratch_error), WEFT_OK);
  same_files(path, LIBRARY "plain.safetensors");
  ck_assert_int_eq(st_write(NULL, path, NULL, 0, &scratch_error), WEFT_OK);
  same_files(path, LIBRARY "empty.safetensors");
}
END_TEST

/* Every byte by itself, the last ones first. */
START_TEST(pieces_come_in_any_order) {
  const char *path = scratch_path("x");
  StOut *o;
  ck_assert_int_eq(st_create(NULL, NULL, path, &library, &o, &scratch_error), WEFT_OK);
  for (int i = 0; i < LEN(mixed); i++)
    for (size_t k = bytes_of(&mixed[i]); k-- > 0;) {
      const char *data = mixed[i].data;
      ck_assert_int_eq(st_put(o, i, k, data + k, 1, &scratch_error), WEFT_OK);
    }
  struct stat st;
  ck_assert_int_eq(stat(scratch_path(st_name(o)), &st), 0);
  ck_assert_uint_eq((uint64_t)st.st_size, st_size(o));
  ck_assert_int_ne(access(path, F_OK), 0);
  ck_assert_int_eq(st_finish(o, &scratch_error), WEFT_OK);
  same_files(path, LIBRARY "mixed.safetensors");
  ck_assert_str_eq(scratch_list(), "x ");
}
END_TEST

START_TEST(metadata_reads_back) {
  static const StMeta meta[] = {{"a", "1"}, {"shape \"of\" x", "[1,\n2]"}};
  const StContent c = {mixed, 1, meta, LEN(meta)};
  const char *path = scratch_path("x");
  SafeTensors *s;
  StOut *o;
  ck_assert_int_eq(st_create(NULL, NULL, path, &c, &o, &scratch_error), WEFT_OK);
  ck_assert_int_eq(st_finish(o, &scratch_error), WEFT_OK);
  ck_assert_int_eq(st_open(NULL, path, NULL, &s, &scratch_error), WEFT_OK);
  ck_assert_int_eq(st_files(s), 1);
  ck_assert_str_eq(st_file_path(s, 0), path);
  ck_assert_str_eq(st_metadata(s, 0, "a"), "1");
  ck_assert_str_eq(st_metadata(s, 0, "shape \"of\" x"), "[1,\n2]");
  ck_assert_ptr_null(st_metadata(s, 0, "b"));
  st_close(s);
}
END_TEST

/* The child writes every other tensor of the file that the parent has begun. */
START_TEST(processes_share_a_file) {
  const char *path = scratch_path("x");
  StOut *o;
  ck_assert_int_eq(st_create(NULL, NULL, path, &library, &o, &scratch_error), WEFT_OK);
  pid_t child = fork();
  for (int i = child ? 0 : 1; i < LEN(mixed); i += 2) {
    StOut *mine = o;
    weft_status st = WEFT_OK;
    if (!child)
      st = st_join(NULL, NULL, path, st_name(o), &library, &mine, &scratch_error);
    if (st == WEFT_OK)
      st = st_put(mine, i, 0, mixed[i].data, bytes_of(&mixed[i]), &scratch_error);
    if (!child && st == WEFT_OK) st = st_finish(mine, &scratch_error);
    if (!child && st != WEFT_OK) _exit(1);
    ck_assert_int_eq(st, WEFT_OK);
  }
  if (!child) _exit(0);
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  ck_assert_int_eq(st_finish(o, &scratch_error), WEFT_OK);
  same_files(path, LIBRARY "mixed.safetensors");
  ck_assert_str_eq(scratch_list(), "x ");
}
END_TEST

static void is_for_writing_alone(const FileOut *f) {
  ck_assert_int_eq(fcntl(f->fd, F_GETFL) & O_ACCMODE, O_WRONLY);
}

/* A client of NFS that may read the file would send whole pages of it, also what others
 * have written there. It is read by a descriptor of its own, when they have finished. */
START_TEST(processes_share_pages) {
  static const float turned[] = {-3, 0, -2, 1, -1, 2}; /* the transpose of w */
  const char *path = scratch_path("x");
  FileOut f, mine;
  StOut *o, *joined;
  ck_assert_int_eq(file_create(NULL, path, 9, &f, &scratch_error), WEFT_OK);
  is_for_writing_alone(&f);
  ck_assert_int_eq(file_join(NULL, path, f.temporary.s, &mine, &scratch_error), WEFT_OK);
  is_for_writing_alone(&mine);
  ck_assert_int_eq(file_finish(&mine, &scratch_error), WEFT_OK);
  file_drop(&f);

  ck_assert_int_eq(st_create(NULL, NULL, path, &library, &o, &scratch_error), WEFT_OK);
  ck_assert_int_eq(
      st_join(NULL, NULL, path, st_name(o), &library, &joined, &scratch_error), WEFT_OK);
  for (int i = 0; i < LEN(mixed); i++)
    ck_assert_int_eq(st_put(i % 2 ? o : joined, i, 0, i ? mixed[i].data : turned,
                            bytes_of(&mixed[i]), &scratch_error),
                     WEFT_OK);
  ck_assert_int_eq(st_finish(joined, &scratch_error), WEFT_OK);
  ck_assert_int_eq(st_turn(o, 0, 3, sizeof *turned, &scratch_error), WEFT_OK);
  ck_assert_int_eq(st_finish(o, &scratch_error), WEFT_OK);
  same_files(path, LIBRARY "mixed.safetensors");
}
END_TEST

START_TEST(a_file_given_up_leaves_the_target) {
  const char *path = scratch_put("x", "old", 3);
  StOut *o, *joined;
  ck_assert_int_eq(st_create(NULL, NULL, path, &library, &o, &scratch_error), WEFT_OK);
  ck_assert_int_eq(
      st_join(NULL, NULL, path, st_name(o), &library, &joined, &scratch_error), WEFT_OK);
  ck_assert_int_eq(st_put(o, 0, 0, w, sizeof w, &scratch_error), WEFT_OK);
  st_drop(joined);
  ck_assert_int_eq(access(scratch_path(st_name(o)), F_OK), 0);
  st_drop(o);
  st_drop(NULL);
  ck_assert_str_eq(scratch_list(), "x ");
  same_files(path, scratch_put("want", "old", 3));
}
END_TEST

/* A limit on the size of files stands for a full disk: the space is refused, or, in a
 * file that was begun before, the bytes are. */
START_TEST(no_room_is_an_error_that_leaves_nothing) {
  const char *path = scratch_put("x", "old", 3), *begun = scratch_path("begun");
  struct rlimit before, small = {.rlim_cur = 520};
  StOut *o, *late;
  ck_assert_int_eq(st_create(NULL, NULL, begun, &library, &late, &scratch_error),
                   WEFT_OK);
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  weft_status refused = st_create(NULL, NULL, path, &library, &o, &scratch_error);
  weft_error why = scratch_error;
  err_clear(&scratch_error);
  weft_status cut = st_put(late, 2, 0, half, sizeof half, &scratch_error);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  scratch_check_error(cut, WEFT_EFILE, begun, "cannot be written: File too large");
  st_drop(late);
  scratch_error = why;
  scratch_check_error(refused, WEFT_EFILE, path, "cannot be written: File too large");
  ck_assert_ptr_null(o);
  ck_assert_str_eq(scratch_list(), "x ");
  same_files(path, scratch_put("want", "old", 3));
}
END_TEST

START_TEST(what_cannot_be_written_is_said) {
  StOut *o;
  const char *gone = scratch_path("gone/x"), *folder = scratch_path("folder");
  scratch_check_error(st_create(NULL, NULL, gone, &library, &o, &scratch_error),
                      WEFT_EFILE, gone, "cannot be written: No such file or directory");
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  scratch_check_error(st_create(NULL, NULL, folder, &library, &o, &scratch_error),
                      WEFT_EFILE, folder, "cannot be written: Is a directory");
  scratch_check_error(st_create(NULL, NULL, "/dev/null", &library, &o, &scratch_error),
                      WEFT_EFILE, "/dev/null", "cannot be written: it is not a file");
  scratch_check_error(
      st_join(NULL, NULL, folder, "gone", &library, &o, &scratch_error), WEFT_EFILE,
      folder,
      "cannot be written: gone, which another process made for it: No such file or "
      "directory");
  scratch_check_error(
      st_join(NULL, NULL, folder, "../x", &library, &o, &scratch_error), WEFT_EFILE,
      folder,
      "cannot be written: ../x, which another process made for it: Invalid argument");
  ck_assert_int_eq(chmod(folder, 0500), 0);
  const char *sealed = scratch_path("folder/x");
  if (geteuid() == 0)
    puts("skipped: root may write to folders without write permission");
  else
    scratch_check_error(st_create(NULL, NULL, sealed, &library, &o, &scratch_error),
                        WEFT_EFILE, sealed, "cannot be written: Permission denied");
  ck_assert_str_eq(scratch_list(), "folder ");
}
END_TEST

/* Every allocation of writing fails once. */
START_TEST(out_of_memory_leaves_nothing) {
  const char *path = scratch_path("x");
  weft_status st = WEFT_ENOMEM;
  for (int n = 0; st == WEFT_ENOMEM; n++) {
    ScratchMeter m = {.left = n};
    weft_alloc a = {scratch_alloc, &m};
    StOut *o;
    ck_assert_int_lt(n, 200);
    st = st_create(&a, NULL, path, &library, &o, &scratch_error);
    if (st == WEFT_OK)
      st_drop(o);
    else
      err_clear(&scratch_error);
    ck_assert_int_eq(m.held, 0);
    ck_assert_str_eq(scratch_list(), "");
  }
  ck_assert_int_eq(st, WEFT_OK);
}
END_TEST

Suite *st_out_suite(void);
Suite *st_out_suite(void) {
  Suite *s = suite_create("st_out");
  TCase *t = tcase_create("st_out");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, files_are_those_of_the_library);
  tcase_add_test(t, pieces_come_in_any_order);
  tcase_add_test(t, metadata_reads_back);
  tcase_add_test(t, processes_share_a_file);
  tcase_add_test(t, processes_share_pages);
  tcase_add_test(t, a_file_given_up_leaves_the_target);
  tcase_add_test(t, no_room_is_an_error_that_leaves_nothing);
  tcase_add_test(t, what_cannot_be_written_is_said);
  tcase_add_test(t, out_of_memory_leaves_nothing);
  suite_add_tcase(s, t);
  return s;
}
