/* check_file_faults.c - each step of writing a file or a folder fails once: what is said,
 * that the target is as it was, that nothing else lies beside it, and that no descriptor
 * stays open (scratch_teardown looks). */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/disk_calls.h"
#include "tests/harness/scratch.h"
#include "vm/io/file.h"

enum { ROOM = 100, MUCH = 4096 };

/* A limit on the size of files stands for a full disk. */
static struct rlimit before;
static void fill_disk(void) {
  struct rlimit small = {.rlim_cur = ROOM};
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
}
static void empty_disk(void) { ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0); }

/* No more descriptors than there are now. */
static void take_descriptors(void) {
  struct rlimit few;
  int next = open("/dev/null", O_RDONLY);
  ck_assert_int_ge(next, 0);
  close(next);
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = (struct rlimit){(rlim_t)next, before.rlim_max};
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
}
static void give_descriptors(void) {
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void target_is_old(const char *name) {
  char *s;
  size_t n;
  ck_assert_int_eq(
      file_read(NULL, scratch_path(name), FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  ck_assert_str_eq(s, "old");
  mem_free(NULL, s, n + 1);
}

static void is_closed(const FileOut *f) {
  ck_assert_int_eq(f->fd, -1);
  ck_assert_int_eq(f->own.fd, -1);
  ck_assert_ptr_null(f->temporary.s);
}

/* ---- files ---- */

/* Room for all bytes is taken at first, or refused. */
START_TEST(no_room_for_a_file) {
  static const uint64_t sizes[] = {ROOM + 1, INT64_MAX, (uint64_t)INT64_MAX + 1};
  const char *path = scratch_put("x", "old", 3);
  Dir in;
  ck_assert_int_eq(dir_open(scratch_dir, 0, &in, &scratch_error), WEFT_OK);
  for (int i = 0; i < LEN(sizes); i++)
    for (int named = 0; named < 2; named++) {
      FileOut f;
      fill_disk();
      weft_status st = file_create(named ? &in : NULL, named ? "x" : path, sizes[i], &f,
                                   &scratch_error);
      empty_disk();
      scratch_check_error(st, WEFT_EFILE, path, "cannot be written: File too large");
      ck_assert_str_eq(scratch_list(), "x ");
      target_is_old("x");
      is_closed(&f);
    }
  dir_close(&in);
}
END_TEST

/* What just fits is written; of what does not, nothing stays. */
START_TEST(bytes_that_do_not_fit) {
  static const char data[MUCH];
  const char *path = scratch_put("x", "old", 3);
  for (int n = ROOM - 1; n <= ROOM + 2; n++)
    for (int as = 0; as < 2; as++) {
      FilePart part[] = {{data, 1}, {data, (size_t)n - 1}};
      struct stat st;
      unlink(path);
      scratch_put("x", "old", 3);
      fill_disk();
      weft_status got =
          as ? file_write_as(NULL, path, part, 2, 0640, false, &scratch_error)
             : file_write(NULL, path, part, 2, &scratch_error);
      empty_disk();
      ck_assert_str_eq(scratch_list(), "x ");
      if (n > ROOM) {
        scratch_check_error(got, WEFT_EFILE, path, "cannot be written: File too large");
        target_is_old("x");
        continue;
      }
      ck_assert_msg(got == WEFT_OK, "%s", scratch_error.text);
      ck_assert_int_eq(stat(path, &st), 0);
      ck_assert_int_eq(st.st_size, n);
      if (as) ck_assert_int_eq(st.st_mode & 0777, 0640);
    }
}
END_TEST

/* Between the beginning and the end, a folder takes the target's place. */
START_TEST(a_target_that_became_a_folder) {
  FileOut f;
  const char *path = scratch_path("x");
  ck_assert_int_eq(file_create(NULL, path, 3, &f, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_put(&f, 0, "new", 3, &scratch_error), WEFT_OK);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  scratch_check_error(file_finish(&f, &scratch_error), WEFT_EFILE, path,
                      "cannot be written: Is a directory");
  ck_assert_str_eq(scratch_list(), "x ");
  is_closed(&f);
}
END_TEST

/* A descriptor that was lost: the bytes may not be on the disk. */
START_TEST(a_file_that_cannot_be_synced) {
  FileOut f;
  const char *path = scratch_put("x", "old", 3);
  ck_assert_int_eq(file_create(NULL, path, 3, &f, &scratch_error), WEFT_OK);
  close(f.fd);
  scratch_check_error(file_put(&f, 0, "new", 3, &scratch_error), WEFT_EFILE, path,
                      "cannot be written: Bad file descriptor");
  scratch_check_error(file_finish(&f, &scratch_error), WEFT_EFILE, path,
                      "cannot be written: Bad file descriptor");
  ck_assert_str_eq(scratch_list(), "x ");
  target_is_old("x");
  is_closed(&f);
}
END_TEST

START_TEST(a_target_that_may_not_be_replaced) {
  static const FilePart part = {"new", 3};
  const char *path = scratch_put("x", "old", 3), *folder = scratch_path("folder");
  const char *link = scratch_path("link");
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  ck_assert_int_eq(symlink("x", link), 0);
  scratch_check_error(file_write_as(NULL, path, &part, 1, 0600, true, &scratch_error),
                      WEFT_EFILE, path, "cannot be written: File exists");
  target_is_old("x");
  for (int only_new = 0; only_new < 2; only_new++)
    scratch_check_error(
        file_write_as(NULL, folder, &part, 1, 0600, only_new, &scratch_error), WEFT_EFILE,
        folder, "cannot be written: Is a directory");
  scratch_check_error(file_write(NULL, folder, &part, 1, &scratch_error), WEFT_EFILE,
                      folder, "cannot be written: Is a directory");
  scratch_check_error(
      file_write(NULL, link, &part, 1, &scratch_error), WEFT_EUSAGE, link,
      "cannot be written: it is a link, and links are neither followed nor replaced: "
      "remove it, or name what it leads to");
  ck_assert_str_eq(scratch_list(), "folder link x ");
}
END_TEST

/* What renames and links fail with: a file system that has both, links alone, neither. */
static const struct {
  int rename, link;
} systems[] = {{0, 0}, {EINVAL, 0}, {ENOSYS, EPERM}};

/* Something takes the place of a file that replaces nothing while that is written. */
START_TEST(a_place_that_was_free) {
  static const FilePart part = {"new", 3};
  const char *path = scratch_path("x");
  FileOut f;
  disk_calls.rename = systems[_i].rename;
  disk_calls.link = systems[_i].link;
  ck_assert_int_eq(file_create_new(NULL, path, &f, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_put(&f, 0, "new", 3, &scratch_error), WEFT_OK);
  scratch_put("x", "old", 3);
  scratch_check_error(file_finish(&f, &scratch_error), WEFT_EFILE, path,
                      "cannot be written: File exists");
  target_is_old("x");
  is_closed(&f);
  scratch_check_error(file_create_new(NULL, path, &f, &scratch_error), WEFT_EFILE, path,
                      "cannot be written: File exists");
  ck_assert_str_eq(scratch_list(), "x ");
  unlink(path);
  ck_assert_int_eq(file_write_as(NULL, path, &part, 1, 0600, true, &scratch_error),
                   WEFT_OK);
  ck_assert_str_eq(scratch_list(), "x ");
}
END_TEST

/* Calls that a signal has ended are made again. */
START_TEST(signals_while_a_file_is_written) {
  const char *path = scratch_put("x", "old", 3);
  FileOut f;
  disk_calls.signals = 2;
  weft_status st = file_create(NULL, path, MUCH, &f, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_int_eq(disk_calls.signals, 0);
  disk_calls.signals = 2;
  st = file_finish(&f, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_int_eq(disk_calls.signals, 0);
  ck_assert_str_eq(scratch_list(), "x ");
}
END_TEST

START_TEST(a_pipe_that_nobody_reads) {
  static const FilePart part = {"new", 3};
  const char *pipe = scratch_path("pipe");
  ck_assert_int_eq(mkfifo(pipe, 0600), 0);
  scratch_check_error(file_write(NULL, pipe, &part, 1, &scratch_error), WEFT_EFILE, pipe,
                      "cannot be written: it is a pipe that no process reads");
  FileEnd end;
  scratch_check_error(file_extend(NULL, pipe, 0600, false, &end, &scratch_error),
                      WEFT_EFILE, pipe,
                      "cannot be written: it is a pipe that no process reads");
  ck_assert_int_eq(end.fd, -1);
}
END_TEST

START_TEST(no_descriptor_for_a_file) {
  static const FilePart part = {"new", 3};
  const char *path = scratch_put("x", "old", 3);
  FileOut f;
  FileEnd end;
  Dir in;
  ck_assert_int_eq(dir_open(scratch_dir, 0, &in, &scratch_error), WEFT_OK);
  weft_status got[4];
  weft_error why[4] = {{0}};
  take_descriptors();
  got[0] = file_create(&in, "x", 3, &f, &why[0]);
  got[1] = file_write(&in, "x", &part, 1, &why[1]);
  got[2] = file_write_as(&in, "x", &part, 1, 0600, false, &why[2]);
  got[3] = file_extend(&in, "x", 0600, false, &end, &why[3]);
  give_descriptors();
  for (int i = 0; i < LEN(got); i++) {
    scratch_error = why[i];
    scratch_check_error(got[i], WEFT_EFILE, path,
                        "cannot be written: Too many open files");
  }
  ck_assert_str_eq(scratch_list(), "x ");
  target_is_old("x");
  dir_close(&in);
}
END_TEST

/* A hundred temporary files of others, and no name is left. */
START_TEST(no_name_for_a_temporary_file) {
  const char *path = scratch_put("x", "old", 3);
  FileOut f[100], more;
  for (int i = 0; i < LEN(f); i++)
    ck_assert_int_eq(file_create(NULL, path, 0, &f[i], &scratch_error), WEFT_OK);
  scratch_check_error(file_create(NULL, path, 0, &more, &scratch_error), WEFT_EFILE, path,
                      "cannot be written: File exists");
  for (int i = 0; i < LEN(f); i++) file_drop(&f[i]);
  ck_assert_str_eq(scratch_list(), "x ");
  ck_assert_int_eq(file_create(NULL, path, 0, &more, &scratch_error), WEFT_OK);
  file_drop(&more);
}
END_TEST

START_TEST(only_the_other_process_s_file_is_joined) {
  const char *path = scratch_path("x");
  FileOut f;
  ck_assert_int_eq(mkdir(scratch_path("folder"), 0700), 0);
  ck_assert_int_eq(mkfifo(scratch_path("pipe"), 0600), 0);
  ck_assert_int_eq(symlink("y", scratch_path("link")), 0);
  scratch_put("y", "old", 3);
  static const struct {
    const char *name, *why;
  } wrong[] = {{"none", "No such file or directory"},
               {"folder", "Is a directory"},
               {"pipe", "No such device or address"},
               {"link", "Too many levels of symbolic links"},
               {"./y", "Invalid argument"}};
  for (int i = 0; i < LEN(wrong); i++) {
    weft_status st = file_join(NULL, path, wrong[i].name, &f, &scratch_error);
    ck_assert_int_eq(st, WEFT_EFILE);
    const char *want = arena_printf(
        scratch_arena, "cannot be written: %s, which another process made for it",
        wrong[i].name);
    ck_assert_msg(strstr(scratch_error.text, want) == scratch_error.text, "%s: %s", want,
                  scratch_error.text);
    ck_assert_str_eq(scratch_error.file, path);
    is_closed(&f);
    err_clear(&scratch_error);
  }
  ck_assert_str_eq(scratch_list(), "folder link pipe y ");
  target_is_old("y");
}
END_TEST

/* ---- files that grow ---- */

START_TEST(a_log_that_cannot_be_written) {
  const char *path = scratch_put("x", "old", 3), *folder = scratch_path("folder");
  FileEnd end;
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  scratch_check_error(file_extend(NULL, path, 0600, true, &end, &scratch_error),
                      WEFT_EFILE, path, "cannot be written: File exists");
  scratch_check_error(file_extend(NULL, folder, 0600, false, &end, &scratch_error),
                      WEFT_EFILE, folder, "cannot be written: Is a directory");
  ck_assert(end.fd == -1 && !end.path);
  ck_assert_int_eq(file_extend(NULL, path, 0600, false, &end, &scratch_error), WEFT_OK);
  ck_assert(!end.empty && file_last(&end) == 'd');
  static const char much[MUCH];
  fill_disk();
  weft_status first = file_add(&end, much, ROOM - 3, &scratch_error);
  weft_status more = file_add(&end, much, 1, &scratch_error);
  empty_disk();
  ck_assert_int_eq(first, WEFT_OK);
  scratch_check_error(more, WEFT_EFILE, path, "cannot be written: File too large");
  ck_assert_int_eq(file_add(&end, "e", 1, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_last(&end), 'e');
  file_end(&end);
  ck_assert(end.fd == -1 && !end.path);
}
END_TEST

START_TEST(modes_of_a_log_only_shrink) {
  static const struct {
    unsigned was, most;
  } mode[] = {{0666, 0600}, {0600, 0666}, {0644, 0640}, {0640, 0604}};
  const char *path = scratch_put("x", "", 0);
  for (int i = 0; i < LEN(mode); i++) {
    FileEnd end;
    struct stat st;
    ck_assert_int_eq(chmod(path, mode[i].was), 0);
    ck_assert_int_eq(file_extend(NULL, path, 0600, false, &end, &scratch_error), WEFT_OK);
    ck_assert(end.empty && file_last(&end) == 0);
    file_mode(&end, mode[i].most);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_msg((st.st_mode & 0777) == (mode[i].was & mode[i].most), "%o: %o",
                  mode[i].was, st.st_mode);
    file_end(&end);
    chmod(path, 0600);
  }
}
END_TEST

/* ---- folders ---- */

static bool any_file(const char *name) { return *name == 'f'; }

static void no_folder(const char *path, const char *why) {
  FolderOut f;
  scratch_check_error(folder_create(NULL, path, any_file, &f, &scratch_error), WEFT_EFILE,
                      path, why);
  ck_assert(f.in.fd == -1 && f.dir.fd == -1 && !f.name && !f.temporary.s);
}

START_TEST(a_folder_that_may_not_be_replaced) {
  const char *full = scratch_path("full"), *file = scratch_put("file", "old", 3);
  ck_assert_int_eq(mkdir(full, 0700), 0);
  scratch_put("full/a", "", 0);
  no_folder(full, "exists and is not empty; give another name, or remove it first");
  no_folder(file, "exists and is not a folder");
  scratch_check_error(folder_free(full, &scratch_error), WEFT_EFILE, full,
                      "exists and is not empty; give another name, or remove it first");
  ck_assert_int_eq(folder_free(scratch_path("none"), &scratch_error), WEFT_OK);
  ck_assert_int_eq(mkdir(scratch_path("empty"), 0700), 0);
  ck_assert_int_eq(folder_free(scratch_path("empty/"), &scratch_error), WEFT_OK);
  ck_assert_str_eq(scratch_list(), "empty file full ");
}
END_TEST

/* Between the beginning and the end, something takes the target's place. */
START_TEST(a_folder_whose_place_is_taken) {
  FolderOut f;
  const char *path = scratch_path("x");
  ck_assert_int_eq(folder_create(NULL, path, any_file, &f, &scratch_error), WEFT_OK);
  FilePart part = {"new", 3};
  ck_assert_int_eq(file_write(&f.dir, "f1", &part, 1, &scratch_error), WEFT_OK);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  scratch_put("x/a", "old", 3);
  scratch_check_error(folder_finish(&f, &scratch_error), WEFT_EFILE, path,
                      "cannot be made: Directory not empty");
  ck_assert_str_eq(scratch_list(), "x ");
  target_is_old("x/a");
  ck_assert(f.in.fd == -1 && f.dir.fd == -1 && !f.name && !f.temporary.s);
}
END_TEST

/* The second process to give up leaves the folder to the one that made it. */
START_TEST(who_joined_a_folder_does_not_end_it) {
  FolderOut f, joined;
  const char *path = scratch_path("x");
  ck_assert_int_eq(folder_create(NULL, path, any_file, &f, &scratch_error), WEFT_OK);
  const char *name = arena_str(scratch_arena, f.temporary.s);
  ck_assert_int_eq(folder_join(NULL, path, name, &joined, &scratch_error), WEFT_OK);
  folder_drop(&joined);
  ck_assert_str_eq(scratch_list(), arena_printf(scratch_arena, "%s ", name));
  ck_assert_int_eq(folder_finish(&f, &scratch_error), WEFT_OK);
  ck_assert_str_eq(scratch_list(), "x ");
  ck_assert_int_ne(folder_join(NULL, path, name, &joined, &scratch_error), WEFT_OK);
  ck_assert(joined.in.fd == -1 && joined.dir.fd == -1 && !joined.name);
}
END_TEST

Suite *file_faults_suite(void);
Suite *file_faults_suite(void) {
  Suite *s = suite_create("file_faults");
  TCase *t = tcase_create("files");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, no_room_for_a_file);
  tcase_add_test(t, bytes_that_do_not_fit);
  tcase_add_test(t, a_target_that_became_a_folder);
  tcase_add_test(t, a_file_that_cannot_be_synced);
  tcase_add_test(t, a_target_that_may_not_be_replaced);
  tcase_add_loop_test(t, a_place_that_was_free, 0, LEN(systems));
  tcase_add_test(t, signals_while_a_file_is_written);
  tcase_add_test(t, a_pipe_that_nobody_reads);
  tcase_add_test(t, no_descriptor_for_a_file);
  tcase_add_test(t, no_name_for_a_temporary_file);
  tcase_add_test(t, only_the_other_process_s_file_is_joined);
  tcase_add_test(t, a_log_that_cannot_be_written);
  tcase_add_test(t, modes_of_a_log_only_shrink);
  tcase_add_test(t, a_folder_that_may_not_be_replaced);
  tcase_add_test(t, a_folder_whose_place_is_taken);
  tcase_add_test(t, who_joined_a_folder_does_not_end_it);
  suite_add_tcase(s, t);
  return s;
}
