/* check_dir.c - folders that are held open: what a handle points to, which names are
 * removed, and that no link below one is followed. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "vm/weights/weights_folder.h"
#include "vm/io/io.h"

static Dir held;

static void setup(void) {
  scratch_setup();
  ck_assert_int_eq(mkdir(scratch_path("a"), 0700), 0);
  ck_assert_int_eq(mkdir(scratch_path("other"), 0700), 0);
  scratch_put("other/mine", "mine", 4);
  ck_assert_int_eq(dir_open(scratch_path("a"), 0, &held, &scratch_error), WEFT_OK);
}

static void teardown(void) {
  dir_close(&held);
  scratch_teardown();
}

/* The folder moves, and a link to another one takes its name. */
static void swap(const char *name) {
  ck_assert_int_eq(rename(scratch_path(name), scratch_path("moved")), 0);
  ck_assert_int_eq(symlink(scratch_path("other"), scratch_path(name)), 0);
}

static const char *names(const char *folder) {
  return process_run(10, "sh -c 'ls %s | tr \"\\n\" \" \"'", folder).out;
}

/* ---- races ---- */

START_TEST(a_handle_keeps_pointing) {
  const FilePart part = {"x", 1};
  Dir below;
  FileEnd log;
  swap("a");
  ck_assert_int_eq(file_write(&held, "whole", &part, 1, &scratch_error), WEFT_OK);
  ck_assert_int_eq(dir_below(&held, "b/c", 0700, &below, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_write(&below, "deep", &part, 1, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_extend(&held, "log", 0600, false, &log, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_add(&log, "y", 1, &scratch_error), WEFT_OK);
  ck_assert(dir_remove_file(&held, "whole"));
  ck_assert(!dir_remove_file(&held, "mine"));
  ck_assert_int_eq(errno, ENOENT);
  file_end(&log);
  dir_close(&below);
  ck_assert_str_eq(names("other"), "mine ");
  ck_assert_str_eq(names("moved"), "b log ");
  ck_assert_str_eq(names("moved/b/c"), "deep ");
}
END_TEST

/* Swapped while a file, or a folder, is under way. */
START_TEST(what_is_begun_ends_where_it_began) {
  FileOut f;
  FolderOut folder;
  const FilePart part = {"x", 1};
  ck_assert_int_eq(file_create(NULL, scratch_path("a/f"), 3, &f, &scratch_error),
                   WEFT_OK);
  ck_assert_int_eq(
      folder_create(NULL, scratch_path("a/w"), weights_out_owns, &folder, &scratch_error),
      WEFT_OK);
  swap("a");
  ck_assert_int_eq(file_put(&f, 0, "abc", 3, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_finish(&f, &scratch_error), WEFT_OK);
  ck_assert_int_eq(file_write(&folder.dir, "config.json", &part, 1, &scratch_error),
                   WEFT_OK);
  ck_assert_int_eq(folder_finish(&folder, &scratch_error), WEFT_OK);
  ck_assert_str_eq(names("other"), "mine ");
  ck_assert_str_eq(names("moved"), "f w ");
  ck_assert_str_eq(names("moved/w"), "config.json ");
}
END_TEST

START_TEST(what_is_given_up_goes_where_it_began) {
  FileOut f;
  FolderOut folder;
  scratch_put("other/config.json", "mine", 4);
  ck_assert_int_eq(file_create(NULL, scratch_path("a/f"), 3, &f, &scratch_error),
                   WEFT_OK);
  ck_assert_int_eq(
      folder_create(NULL, scratch_path("a/w"), weights_out_owns, &folder, &scratch_error),
      WEFT_OK);
  /* The temporary folder itself becomes a link. */
  const char *temporary = arena_printf(scratch_arena, "a/%s", folder.temporary.s);
  swap(temporary);
  file_drop(&f);
  folder_drop(&folder);
  ck_assert_str_eq(names("other"), "config.json mine ");
  ck_assert_str_eq(names("a"), arena_printf(scratch_arena, "%s ", temporary + 2));
}
END_TEST

START_TEST(a_folder_that_was_removed_is_called_so) {
  const FilePart part = {"x", 1};
  ck_assert_int_eq(rmdir(scratch_path("a")), 0);
  scratch_check_error(file_write(&held, "f", &part, 1, &scratch_error), WEFT_EFILE,
                      scratch_path("a/f"),
                      "cannot be written: its folder has been removed");
}
END_TEST

/* ---- what is removed ---- */

static bool is_data(const char *name) {
  return strncmp(name, "data", 4) == 0 && name[4] && !name[5];
}

START_TEST(a_folder_of_ours_is_removed) {
  process_run(10, "sh -c 'mkdir a/x && touch a/x/data1 a/x/data2 a/x/data3.12-4.tmp'");
  ck_assert_int_eq(dir_remove(&held, "x", is_data, &scratch_error), WEFT_OK);
  ck_assert_int_eq(dir_remove(&held, "x", is_data, &scratch_error), WEFT_OK);
  ck_assert_str_eq(names("a"), "");
}
END_TEST

/* One thing that is not ours, whatever its name, keeps all of it. */
START_TEST(a_folder_with_more_is_not) {
  static const char *const more[] = {"touch 'a/x/ '",          "touch a/x/data",
                                     "touch a/x/data10",       "touch a/x/.data1",
                                     "mkdir a/x/data2",        "mkfifo a/x/data2",
                                     "ln -s data1 a/x/data2",  "ln -s gone a/x/data2",
                                     "ln -s data2 a/x/data2",  "touch a/x/data2.tmp",
                                     "touch a/x/data2.12.tmp", "touch a/x/data2.1-.tmp",
                                     "touch a/x/x.1-1.tmp",    "touch -- a/x/-rf",
                                     "touch 'a/x/a\nb'",       "touch a/x/data1.1-1.tmpx",
                                     "mkdir a/x/data3.1-1.tmp"};
  process_run(10, "sh -c 'mkdir a/x && touch a/x/data1'");
  scratch_put("more.sh", more[_i], strlen(more[_i]));
  ck_assert_int_eq(process_run(10, "sh more.sh").code, 0);
  const char *before = names("a/x");
  ck_assert_int_eq(dir_remove(&held, "x", is_data, &scratch_error), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.file, scratch_path("a/x"));
  ck_assert_msg(strstr(scratch_error.text, "in it, which weft did not put there") != NULL,
                "%s", scratch_error.text);
  ck_assert_str_eq(names("a/x"), before);
}
END_TEST

START_TEST(links_and_files_are_no_folders_to_remove) {
  process_run(10,
              "sh -c 'touch other/data1 && ln -s ../other a/x && touch a/data1 && ln -s "
              "data1 a/data2 && mkdir a/data3'");
  ck_assert_int_eq(dir_remove(&held, "x", is_data, &scratch_error), WEFT_EUSAGE);
  err_clear(&scratch_error);
  ck_assert_int_eq(dir_remove(&held, "data1", is_data, &scratch_error), WEFT_EFILE);
  err_clear(&scratch_error);
  ck_assert(!dir_remove_file(&held, "x"));
  ck_assert(!dir_remove_file(&held, "data2"));
  ck_assert(!dir_remove_file(&held, "data3"));
  ck_assert_str_eq(names("other"), "data1 mine ");
  ck_assert_str_eq(names("a"), "data1 data2 data3 x ");
}
END_TEST

/* ---- ways ---- */

START_TEST(ways_lead_nowhere_else) {
  static const char *const ways[] = {"../other", "b/../../other", "..",   "/tmp",  "link",
                                     "link/b",   "b/up/c",        "loop", "gone/b"};
  Dir d;
  process_run(10,
              "sh -c 'cd a && ln -s ../other link && mkdir b && ln -s .. b/up && ln -s "
              "loop loop && ln -s nothing gone'");
  ck_assert_int_eq(dir_below(&held, ways[_i], 0700, &d, &scratch_error), WEFT_EUSAGE);
  ck_assert_int_eq(d.fd, -1);
  ck_assert_str_eq(names("other"), "mine ");
  ck_assert_str_eq(names("a"), "b gone link loop ");
}
END_TEST

/* What the user names is resolved, and made; an error names the part that is wrong. */
START_TEST(folders_that_the_user_names) {
  const char *name, *way = scratch_path("link/new//folder/");
  Dir d;
  ck_assert_int_eq(symlink("other", scratch_path("link")), 0);
  ck_assert_int_eq(symlink("nothing", scratch_path("gone")), 0);
  ck_assert_int_eq(dir_open(way, 0700, &d, &scratch_error), WEFT_OK);
  ck_assert_str_eq(d.path, scratch_path("link/new/folder"));
  dir_close(&d);
  ck_assert_str_eq(names("other"), "mine new ");
  scratch_check_error(dir_open(scratch_path("link/mine/x"), 0700, &d, &scratch_error),
                      WEFT_EFILE, scratch_path("link/mine"),
                      "cannot be made: Not a directory");
  scratch_check_error(dir_open(scratch_path("gone/x"), 0700, &d, &scratch_error),
                      WEFT_EFILE, scratch_path("gone"),
                      "cannot be made: it is a link that leads to no folder");
  scratch_check_error(dir_open(scratch_path("x"), 0, &d, &scratch_error), WEFT_EFILE,
                      scratch_path("x"), "cannot be opened: No such file or directory");
  scratch_check_error(
      dir_above(scratch_path("x/y"), "cannot be made", &d, &name, &scratch_error),
      WEFT_EFILE, scratch_path("x/y"), "cannot be made: No such file or directory");
  const char *no[] = {"", "a/", "a/.", "a/..", "."};
  for (int i = 0; i < LEN(no); i++) {
    ck_assert_int_eq(dir_above(no[i], "cannot be made", &d, &name, &scratch_error),
                     WEFT_EFILE);
    err_clear(&scratch_error);
  }
}
END_TEST

START_TEST(names_of_temporary_files) {
  Text t = {0};
  dir_temporary(&t, "a.b", 7);
  ck_assert_uint_eq(dir_temporary_of(t.s), 3);
  text_free(&t);
  static const char *const none[] = {"",           ".tmp",     "a.tmp",     "a.1.tmp",
                                     "a.1-.tmp",   "a.-1.tmp", ".1-1.tmp",  "a.1-1.tmpx",
                                     "a.1-1x.tmp", "a1-1.tmp", "a. 1-1.tmp"};
  for (int i = 0; i < LEN(none); i++)
    ck_assert_msg(dir_temporary_of(none[i]) == 0, "%s", none[i]);
}
END_TEST

START_TEST(links_of_the_system) {
  static const char *const system[] = {"/dev", "/dev/fd", "/proc/self/fd"};
  Dir d;
  ck_assert(!dir_is_system(&held));
  for (int i = 0; i < LEN(system); i++) {
    ck_assert_int_eq(dir_open(system[i], 0, &d, &scratch_error), WEFT_OK);
    ck_assert_msg(dir_is_system(&d), "%s", system[i]);
    dir_close(&d);
  }
}
END_TEST

/* ---- reading ---- */

/* A hub's cache is links to its files: what is read may be one. */
START_TEST(linked_weights_are_read) {
  static const float one[] = {1};
  const StWrite t = {"a", DT_F32, 1, {1}, one};
  SafeTensors *s;
  Folders in = {.plan = scratch_dir};
  process_run(10, "sh -c 'mkdir -p hub/blobs hub/snapshots/1'");
  ck_assert_int_eq(st_write(NULL, scratch_path("hub/blobs/0123"), &t, 1, &scratch_error),
                   WEFT_OK);
  process_run(10, "ln -s ../../blobs/0123 hub/snapshots/1/model.safetensors");
  ck_assert_int_eq(
      st_open(NULL, scratch_path("hub/snapshots/1"), &in, &s, &scratch_error), WEFT_OK);
  st_close(s);
}
END_TEST

Suite *dir_suite(void) {
  Suite *s = suite_create("dir");
  TCase *c = tcase_create("folders");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, a_handle_keeps_pointing);
  tcase_add_test(c, what_is_begun_ends_where_it_began);
  tcase_add_test(c, what_is_given_up_goes_where_it_began);
  tcase_add_test(c, a_folder_that_was_removed_is_called_so);
  tcase_add_test(c, a_folder_of_ours_is_removed);
  tcase_add_loop_test(c, a_folder_with_more_is_not, 0, 17);
  tcase_add_test(c, links_and_files_are_no_folders_to_remove);
  tcase_add_loop_test(c, ways_lead_nowhere_else, 0, 9);
  tcase_add_test(c, folders_that_the_user_names);
  tcase_add_test(c, names_of_temporary_files);
  tcase_add_test(c, links_of_the_system);
  tcase_add_test(c, linked_weights_are_read);
  suite_add_tcase(s, c);
  return s;
}
