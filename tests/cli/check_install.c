/* check_install.c - what cmake --install puts into a folder, with spaces and umlauts in
 * its name: a plan runs from there, and hosts in C find the library through CMake and
 * pkg-config. Skipped, with the reason, where the build was not made by cmake alone or a
 * tool is not there. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/process.h"

#define TREE "Plan-B\xc3\xa4ume here"

static bool ready(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  printf("install: skipped: programs with sanitizers are not installed\n");
  return false;
#endif
  if (system("command -v cmake >/dev/null 2>&1") == 0) return true;
  printf("install: skipped: there is no cmake\n");
  return false;
}

static void install(const char *parts) {
  Outcome o = process_run(60,
                          "sh -ec 'for part in %s; do cmake --install " WEFT_BINARY_DIR
                          " --component $part --prefix \"$PWD/" TREE "\"; done'",
                          parts);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}

/* The program and its modules find each other wherever the folder is. */
START_TEST(an_installed_program_runs) {
  if (!ready()) return;
  install("program library");
  Outcome o = process_run(
      60, "sh -ec 'cd \"" TREE "\"; mkdir moved; mv bin lib share moved; "
          "cp -r moved/share/doc/weft/examples \"Pl\xc3\xa4ne\"; "
          "cd \"Pl\xc3\xa4ne\"; ../moved/bin/weft run quickstart.lua --steps 2; "
          "../moved/bin/weft doctor'");
  ck_assert_msg(o.code == 0, "exit %d\n%s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, " 1/2  loss") && strstr(o.out, "oneDNN"), "%s", o.out);
  o = process_run(10, "sh -ec 'cd \"" TREE "/moved\"; test -s share/man/man1/weft.1; "
                      "test -s share/bash-completion/completions/weft; test -s "
                      "share/zsh/site-functions/_weft; test -s "
                      "share/fish/vendor_completions.d/weft.fish'");
  ck_assert_msg(o.code == 0, "a page or a completion is not installed: %s", o.err);
}
END_TEST

static const char host[] =
    "#include <stdio.h>\n#include <weft.h>\n"
    "int main(void) {\n"
    "  weft_mesh_spec spec = {.size = sizeof spec, .world = 8, .tp = 2};\n"
    "  weft_mesh *mesh;\n"
    "  if (weft_mesh_new(&spec, &mesh, NULL)) return 1;\n"
    "  printf(\"dp %d\\n\", weft_mesh_size(mesh, \"dp\"));\n"
    "  weft_mesh_free(mesh);\n  return 0;\n}\n";
static const char lists[] = "cmake_minimum_required(VERSION 3.20)\nproject(host C)\n"
                            "find_package(weft 0.1 REQUIRED)\n"
                            "add_executable(host host.c)\n"
                            "target_link_libraries(host weft::weftlua)\n"
                            "add_executable(mesh host.c)\n"
                            "target_link_libraries(mesh weft::weft)\n";

START_TEST(hosts_find_the_library) {
  if (!ready()) return;
  install("library dev");
  scratch_put("host.c", host, strlen(host));
  scratch_put("CMakeLists.txt", lists, strlen(lists));
  Outcome o = process_run(
      60, "sh -ec 'cmake -S . -B out \"-DCMAKE_PREFIX_PATH=$PWD/" TREE "\" >log 2>&1 && "
          "cmake --build out >log 2>&1 || cat log; out/host; out/mesh'");
  ck_assert_str_eq(o.err, "");
  ck_assert_str_eq(o.out, "dp 4\ndp 4\n");
  o = process_run(60, "sh -ec 'ln -s \"" TREE "\" tree; "
                      "export PKG_CONFIG_PATH=$PWD/tree/lib/pkgconfig; "
                      "cc host.c $(pkg-config --cflags --libs weft) -o by_pc; "
                      "LD_LIBRARY_PATH=tree/lib ./by_pc; "
                      "objdump -p by_pc | grep NEEDED | grep -o libweftlua.so.*'");
  ck_assert_str_eq(o.err, "");
  ck_assert_str_eq(o.out, "dp 4\nlibweftlua.so.0\n");
}
END_TEST

/* What luarocks deploys: the module finds what it opens beside itself. */
START_TEST(a_rock_is_a_module) {
  static const char script[] =
      "local weft = require 'weft'\n"
      "dofile(arg[1])\n"
      "assert(version == weft.version .. '-1', version)\n"
      "-- make takes no number for all files at once\n"
      "assert(build.build_command:find('--parallel \"$(nproc)\" ', 1, true))\n"
      "for name, path in pairs(build.install.lib) do -- where luarocks puts a module\n"
      "  local file = name:gsub('%.', '/') .. '.so'\n"
      "  assert(path == 'build-rock/rock/' .. file, path)\n"
      "  assert(io.open(arg[2] .. '/' .. file))\n"
      "end\n"
      "local plan = weft.plan { model = weft.model 'llama-tiny', mesh = { tp = 2 },\n"
      "  batch = { global = 2, seq = 16 } }\n"
      "print(plan.mesh.world, plan:verify { steps = 1 }.tensors > 0)\n";
  if (!ready()) return;
  scratch_put("host.lua", script, strlen(script));
  Outcome o = process_run(60, "sh -ec 'cmake --install " WEFT_BINARY_DIR
                              " --component rock --prefix \"$PWD/" TREE "\" >log; "
                              "ls \"" TREE "\" \"" TREE "/weft\"'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "weft.so\n") && strstr(o.out, "weft_gemm_dnnl.so\n") &&
                    !strstr(o.out, "libweft"),
                "%s", o.out);
  if (system("command -v lua5.4 >/dev/null 2>&1") != 0) {
    printf("install: skipped: there is no lua5.4 for the rock\n");
    return;
  }
  o = process_run(60, "sh -ec 'LUA_CPATH=\"" TREE
                      "/?.so\" lua5.4 host.lua " WEFT_SOURCE_DIR "/weft-*.rockspec "
                      "\"" TREE "\"'");
  ck_assert_str_eq(o.err, "");
  ck_assert_str_eq(o.out, "2\ttrue\n");
}
END_TEST

Suite *install_suite(void) {
  Suite *s = suite_create("install");
  TCase *t = tcase_create("install");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 200);
  tcase_add_test(t, an_installed_program_runs);
  tcase_add_test(t, hosts_find_the_library);
  tcase_add_test(t, a_rock_is_a_module);
  suite_add_tcase(s, t);
  return s;
}
