/* check_null.c - every function of weft.h is given NULL for everything that it takes: an
 * error where it has one to give, else what stands for nothing. The table has a row for
 * each function that the header declares. */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/process.h"
#include "vm/io/io.h"
#include "vm/weft.h"

static weft_plan *plan; /* compiled */
static weft_run *run;   /* with parameters */
static weft_mesh *mesh;
static weft_error err;

/* What an error has of the call before, which is no part of what the next one says. */
static weft_error *stale(void) {
  memset(&err, 'x', sizeof err);
  err.code = WEFT_EFILE;
  err.file[sizeof err.file - 1] = err.text[sizeof err.text - 1] = 0;
  return &err;
}

/* The call must be refused, with a reason and without one. */
#define REFUSED(call)                                                                    \
  do {                                                                                   \
    weft_error *e = stale();                                                             \
    ck_assert_msg((call) == WEFT_EUSAGE, #call);                                         \
    ck_assert_msg(err.code == WEFT_EUSAGE && err.text[0] && !strstr(err.text, "xx") &&   \
                      !err.file[0] && err.line == 0 && err.rank == -1,                   \
                  "%s: %s", #call, err.text);                                            \
    e = NULL;                                                                            \
    ck_assert_msg((call) == WEFT_EUSAGE, #call);                                         \
  } while (0)
/* It must succeed, and leave no error. */
#define FINE(call)                                                                       \
  do {                                                                                   \
    weft_error *e = stale();                                                             \
    ck_assert_msg((call) == WEFT_OK, "%s: %s", #call, err.text);                         \
    ck_assert_msg(err.code == WEFT_OK && !err.text[0] && !err.file[0], #call);           \
  } while (0)
#define IS(call, want) ck_assert_msg((call) == (want), #call)

#define FUNCTION(name) static void name##_of_nothing(void)

FUNCTION(weft_exit_code) { IS(weft_exit_code(WEFT_EUSAGE), 2); }
FUNCTION(weft_version) { ck_assert_ptr_nonnull(weft_version()); }

FUNCTION(weft_mesh_new) {
  weft_mesh *m = NULL;
  REFUSED(weft_mesh_new(NULL, NULL, e));
  ck_assert_int_eq(weft_mesh_new(NULL, &m, NULL), WEFT_OK); /* the defaults */
  weft_mesh_free(m);
}
FUNCTION(weft_mesh_free) { weft_mesh_free(NULL); }
FUNCTION(weft_mesh_world) { IS(weft_mesh_world(NULL), 0); }
FUNCTION(weft_mesh_size) {
  IS(weft_mesh_size(NULL, "tp"), 0);
  IS(weft_mesh_size(mesh, NULL), 0);
}
FUNCTION(weft_mesh_coord) {
  IS(weft_mesh_coord(NULL, "tp", 0), -1);
  IS(weft_mesh_coord(mesh, NULL, 0), -1);
}
FUNCTION(weft_mesh_group) {
  int ranks[4];
  IS(weft_mesh_group(NULL, "tp", 0, ranks, 4), 0);
  IS(weft_mesh_group(mesh, NULL, 0, ranks, 4), 0);
  IS(weft_mesh_group(mesh, "tp", 0, NULL, 4), 2);
}

FUNCTION(weft_plan_load) {
  weft_plan *p = NULL;
  REFUSED(weft_plan_load(NULL, "plan.lua", NULL, e));
  REFUSED(weft_plan_load(NULL, NULL, &p, e));
  ck_assert_ptr_null(p);
}
FUNCTION(weft_plan_free) { weft_plan_free(NULL); }
FUNCTION(weft_plan_report) { IS(weft_plan_report(NULL), NULL); }
FUNCTION(weft_plan_report_json) { IS(weft_plan_report_json(NULL), NULL); }
FUNCTION(weft_plan_compile) { REFUSED(weft_plan_compile(NULL, 0, e)); }
FUNCTION(weft_plan_check) { REFUSED(weft_plan_check(NULL, e)); }
FUNCTION(weft_plan_name) { IS(weft_plan_name(NULL), NULL); }
FUNCTION(weft_plan_steps) { IS(weft_plan_steps(NULL), 0); }
FUNCTION(weft_run_steps) {
  int64_t n;
  REFUSED(weft_run_steps(NULL, &n, e));
  REFUSED(weft_run_steps(run, NULL, e));
}
FUNCTION(weft_plan_sequences) { IS(weft_plan_sequences(NULL), 0); }
FUNCTION(weft_plan_tokens) { IS(weft_plan_tokens(NULL), 0); }
FUNCTION(weft_plan_mesh) { IS(weft_plan_mesh(NULL), NULL); }
FUNCTION(weft_plan_microbatches) { IS(weft_plan_microbatches(NULL), 0); }
FUNCTION(weft_plan_parameters) { IS(weft_plan_parameters(NULL), 0); }
FUNCTION(weft_plan_memory) { IS(weft_plan_memory(NULL, 0), 0); }
FUNCTION(weft_plan_param_count) { IS(weft_plan_param_count(NULL), 0); }
FUNCTION(weft_plan_param_at) {
  weft_param p;
  REFUSED(weft_plan_param_at(NULL, 0, &p, e));
  REFUSED(weft_plan_param_at(plan, 0, NULL, e));
}
FUNCTION(weft_plan_param) {
  weft_param p;
  REFUSED(weft_plan_param(NULL, "model.norm.weight", &p, e));
  REFUSED(weft_plan_param(plan, NULL, &p, e));
  REFUSED(weft_plan_param(plan, "model.norm.weight", NULL, e));
}
FUNCTION(weft_plan_proof) {
  weft_proof p;
  REFUSED(weft_plan_proof(NULL, &p, e));
  REFUSED(weft_plan_proof(plan, NULL, e));
}
FUNCTION(weft_plan_program) {
  const char *s;
  REFUSED(weft_plan_program(NULL, 0, &s, e));
  REFUSED(weft_plan_program(plan, 0, NULL, e));
}
FUNCTION(weft_plan_show) {
  const char *out = "";
  REFUSED(weft_plan_show(NULL, "mesh", 0, &out, e));
  ck_assert_ptr_null(out);
  REFUSED(weft_plan_show(plan, NULL, 0, &out, e));
  REFUSED(weft_plan_show(plan, "mesh", 0, NULL, e));
  REFUSED(weft_plan_show(plan, "meshes", 0, &out, e));
  REFUSED(weft_plan_show(plan, "program", -1, &out, e));
  REFUSED(weft_plan_show(plan, "rank", 1 << 20, &out, e));
}

FUNCTION(weft_run_open) {
  weft_run *r = NULL;
  REFUSED(weft_run_open(NULL, NULL, &r, e));
  REFUSED(weft_run_open(plan, NULL, NULL, e));
  ck_assert_ptr_null(r);
}
FUNCTION(weft_run_close) { weft_run_close(NULL); }
FUNCTION(weft_run_rank) { IS(weft_run_rank(NULL), -1); }
FUNCTION(weft_run_init) { REFUSED(weft_run_init(NULL, e)); }
FUNCTION(weft_run_load) {
  REFUSED(weft_run_load(NULL, "weights.safetensors", e));
  REFUSED(weft_run_load(run, NULL, e));
}
FUNCTION(weft_run_step) {
  weft_step s;
  REFUSED(weft_run_step(NULL, 0, &s, e));
  REFUSED(weft_run_step(run, 0, NULL, e));
}
FUNCTION(weft_run_step_tokens) {
  int32_t ids[4 * 8] = {0};
  weft_step s;
  REFUSED(weft_run_step_tokens(NULL, ids, ids, 32, 0, &s, e));
  REFUSED(weft_run_step_tokens(run, NULL, ids, 32, 0, &s, e));
  REFUSED(weft_run_step_tokens(run, ids, NULL, 32, 0, &s, e));
  REFUSED(weft_run_step_tokens(run, ids, ids, 32, 0, NULL, e));
}
FUNCTION(weft_run_get) {
  float f[16];
  REFUSED(weft_run_get(NULL, WEFT_PARAM, "model.norm.weight", f, 16, e));
  REFUSED(weft_run_get(run, WEFT_PARAM, NULL, f, 16, e));
  REFUSED(weft_run_get(run, WEFT_PARAM, "model.norm.weight", NULL, 16, e));
}
FUNCTION(weft_run_count) {
  size_t n;
  REFUSED(weft_run_count(NULL, WEFT_PARAM, "model.norm.weight", &n, e));
  REFUSED(weft_run_count(run, WEFT_PARAM, NULL, &n, e));
  REFUSED(weft_run_count(run, WEFT_PARAM, "model.norm.weight", NULL, e));
}
FUNCTION(weft_run_set) {
  float f[16] = {0};
  REFUSED(weft_run_set(NULL, WEFT_PARAM, "model.norm.weight", f, 16, e));
  REFUSED(weft_run_set(run, WEFT_PARAM, NULL, f, 16, e));
  REFUSED(weft_run_set(run, WEFT_PARAM, "model.norm.weight", NULL, 16, e));
}
FUNCTION(weft_run_resume) {
  int64_t step;
  REFUSED(weft_run_resume(NULL, NULL, &step, e));
  REFUSED(weft_run_resume(run, "ckpt", NULL, e));
  REFUSED(weft_run_resume(run, NULL, &step, e)); /* the plan has no checkpoint.dir */
}
FUNCTION(weft_run_save) {
  REFUSED(weft_run_save(NULL, 1, e));
  REFUSED(weft_run_save(run, 1, e));
}
FUNCTION(weft_run_export) {
  REFUSED(weft_run_export(NULL, "out", e));
  REFUSED(weft_run_export(run, NULL, e));
}
FUNCTION(weft_run_notes) { ck_assert_str_eq(weft_run_notes(NULL), ""); }
FUNCTION(weft_run_evaluate) {
  weft_evaluation v;
  REFUSED(weft_run_evaluate(NULL, 0, &v, e));
  REFUSED(weft_run_evaluate(run, 0, NULL, e));
  REFUSED(weft_run_evaluate(run, 0, &v, e)); /* the plan has none */
}
FUNCTION(weft_verify) {
  weft_verify_result r;
  REFUSED(weft_verify(NULL, NULL, &r, e));
  REFUSED(weft_verify(plan, NULL, NULL, e));
}

#define ROW(name)                                                                        \
  { #name, name##_of_nothing }
static const struct {
  const char *name;
  void (*call)(void);
} rows[] = {
    ROW(weft_exit_code),       ROW(weft_version),      ROW(weft_mesh_new),
    ROW(weft_mesh_free),       ROW(weft_mesh_world),   ROW(weft_mesh_size),
    ROW(weft_mesh_coord),      ROW(weft_mesh_group),   ROW(weft_plan_load),
    ROW(weft_plan_free),       ROW(weft_plan_report),  ROW(weft_plan_report_json),
    ROW(weft_plan_compile),    ROW(weft_plan_check),   ROW(weft_plan_name),
    ROW(weft_plan_steps),      ROW(weft_run_steps),    ROW(weft_plan_sequences),
    ROW(weft_plan_tokens),     ROW(weft_plan_mesh),    ROW(weft_plan_microbatches),
    ROW(weft_plan_parameters), ROW(weft_plan_memory),  ROW(weft_plan_param_count),
    ROW(weft_plan_param_at),   ROW(weft_plan_param),   ROW(weft_plan_proof),
    ROW(weft_plan_program),    ROW(weft_plan_show),    ROW(weft_run_open),
    ROW(weft_run_close),       ROW(weft_run_rank),     ROW(weft_run_init),
    ROW(weft_run_load),        ROW(weft_run_step),     ROW(weft_run_step_tokens),
    ROW(weft_run_get),         ROW(weft_run_set),      ROW(weft_verify),
    ROW(weft_run_resume),      ROW(weft_run_save),     ROW(weft_run_export),
    ROW(weft_run_notes),       ROW(weft_run_evaluate), ROW(weft_run_count),
};

static void setup(void) {
  weft_run_options o = {.size = sizeof o, .threads = 1};
  weft_mesh_spec spec = {.size = sizeof spec, .tp = 2};
  const char *path = WEFT_SOURCE_DIR "/tests/embed/small.lua";
  FINE(weft_plan_load(NULL, path, &plan, e));
  FINE(weft_plan_compile(plan, 0, e));
  FINE(weft_run_open(plan, &o, &run, e));
  FINE(weft_run_init(run, e));
  FINE(weft_mesh_new(&spec, &mesh, e));
}

static void teardown(void) {
  weft_mesh_free(mesh);
  weft_run_close(run);
  weft_plan_free(plan);
}

START_TEST(nothing_is_refused) { rows[_i].call(); }
END_TEST

/* Calls that succeed leave nothing of an error before them. */
START_TEST(success_clears_the_error) {
  int32_t ids[4 * 8] = {0};
  float f[16];
  const char *text;
  weft_param p;
  weft_proof proof;
  weft_step s;
  FINE(weft_plan_compile(plan, 0, e));
  FINE(weft_plan_param_at(plan, 0, &p, e));
  FINE(weft_plan_param(plan, "model.norm.weight", &p, e));
  FINE(weft_plan_proof(plan, &proof, e));
  FINE(weft_plan_program(plan, 0, &text, e));
  FINE(weft_plan_show(plan, "mesh", 0, &text, e));
  FINE(weft_run_step(run, 0, &s, e));
  FINE(weft_run_step_tokens(run, ids, ids, 32, 1, &s, e));
  FINE(weft_run_get(run, WEFT_PARAM, "model.norm.weight", f, 16, e));
  FINE(weft_run_set(run, WEFT_PARAM, "model.norm.weight", f, 16, e));
}
END_TEST

/* A function that the header gains needs a row. */
START_TEST(every_function_has_a_row) {
  char *header;
  size_t size;
  int n = 0;
  ck_assert_int_eq(
      file_read(NULL, WEFT_SOURCE_DIR "/vm/weft.h", FILE_OWN_MAX, &header, &size, NULL),
      WEFT_OK);
  for (char *s = header; (s = strstr(s, "\nWEFT_API ")) != NULL; n++) {
    char *end = s = strchr(s, '(');
    while (isalnum((unsigned char)s[-1]) || s[-1] == '_') s--;
    bool found = false;
    for (int i = 0; i < LEN(rows); i++)
      found |= strlen(rows[i].name) == (size_t)(end - s) &&
               memcmp(rows[i].name, s, (size_t)(end - s)) == 0;
    ck_assert_msg(found, "no row for %.*s", (int)(end - s), s);
    s = end;
  }
  ck_assert_int_eq(n, LEN(rows));
  mem_free(NULL, header, size + 1);
}
END_TEST

Suite *null_suite(void);
Suite *null_suite(void) {
  Suite *s = suite_create("null");
  TCase *t = tcase_create("functions");
  tcase_add_unchecked_fixture(t, setup, teardown);
  tcase_add_loop_test(t, nothing_is_refused, 0, LEN(rows));
  tcase_add_test(t, every_function_has_a_row);
  suite_add_tcase(s, t);
  TCase *steps = tcase_create("steps");
  tcase_add_checked_fixture(steps, setup, teardown); /* threads end at a fork */
  tcase_add_test(steps, success_clears_the_error);
  suite_add_tcase(s, steps);
  return s;
}
