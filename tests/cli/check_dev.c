/* check_dev.c - ./dev on machines that lack something: what is missing, and who can help.
 * Debian's tools are stand-ins, in the only folder of programs that it sees. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/process.h"

/* `dev` where these scripts stand for programs: no package is installed. */
static Outcome dev_does(const char *what, const char *scripts) {
  return process_run(
      60,
      "sh -ec 'mkdir -p bin; cp " WEFT_SOURCE_DIR "/dev .; cd bin; "
      "for p in bash sh cat dirname env grep head mktemp rm sed sort tail; do "
      "ln -sf $(command -v $p) .; done; "
      "script() { echo \"#!/bin/sh\" >$1; echo \"$2\" >>$1; chmod +x $1; }; "
      "script dpkg-query \"exit 1\"; %s; cd ..; PATH=$PWD/bin bash dev %s'",
      scripts, what);
}
static Outcome dev(const char *scripts) { return dev_does("run plan.lua", scripts); }

static void says(const Outcome *o, const char *what) {
  ck_assert_int_eq(o->code, 2);
  ck_assert_msg(strstr(o->err, what) != NULL, "%s", o->err);
}

START_TEST(who_cannot_install_reads_the_command) {
  Outcome o = dev("script id \"echo 1000\"");
  says(&o, "this user cannot install them. Whoever may do so does it by\n"
           "  apt-get install build-essential cmake ");
  ck_assert_msg(!strstr(o.err, "openmpi") && !strstr(o.err, "installing"), "%s", o.err);
}
END_TEST

START_TEST(a_missing_network_is_told) {
  Outcome o = dev("script id \"echo 0\"; script apt-get \""
                  "echo \\\"E: Unable to locate package cmake\\\"; "
                  "[ \\$1 = install ] && exit 100; "
                  "echo \\\"Err: Temporary failure resolving deb.debian.org\\\"\"");
  says(&o, "installing failed, as Debian's packages cannot be reached: "
           "Err: Temporary failure resolving deb.debian.org\n");
  o = dev("script id \"echo 0\"; script apt-get \"echo the disk is full; exit 100\"");
  says(&o, "the disk is full\ninstalling failed\n");
}
END_TEST

/* A bare machine with a GPU. */
START_TEST(what_was_built_is_tested_on_a_gpu) {
  Outcome o = dev_does("test gpu", "script id \"echo 1000\"");
  says(&o, "tests/gpu/pack.sh FOLDER, where weft is built, puts into a folder what the "
           "tests need here\n");
  o = dev_does(
      "test gpu kernels",
      "script id \"echo 1000\"; mkdir -p ../build ../tests; "
      "script ../build/weft-gpu true; script ../tests/gpu.sh \"echo parts: \\$*\"");
  ck_assert_msg(o.code == 0 && !strcmp(o.out, "parts: kernels\n"), "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.err, "the tests take build/ as it is") != NULL, "%s", o.err);
}
END_TEST

START_TEST(an_old_cmake_is_told) {
  Outcome o = dev("script dpkg-query \"printf installed\"; "
                  "script cmake \"echo cmake version 3.18.4\"");
  says(&o, "cmake 3.18.4 is too old: weft needs 3.21 or newer");
  o = dev("script dpkg-query \"printf installed\"; rm -f cmake");
  says(&o, "there is no cmake: weft needs 3.21 or newer");
}
END_TEST

Suite *dev_suite(void);
Suite *dev_suite(void) {
  Suite *s = suite_create("dev");
  TCase *t = tcase_create("missing");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 100);
  tcase_add_test(t, who_cannot_install_reads_the_command);
  tcase_add_test(t, a_missing_network_is_told);
  tcase_add_test(t, what_was_built_is_tested_on_a_gpu);
  tcase_add_test(t, an_old_cmake_is_told);
  suite_add_tcase(s, t);
  return s;
}
