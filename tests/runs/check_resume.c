/* check_resume.c - what resume.def says of the facts of a run: there is a row for each,
 * and evaluations are compared with those of the checkpoint where they measure the same.
 * What a run says when it resumes is in check_ckpt_run.c. */
#include <check.h>

#include "bindings/runs/resume.h"
#include "bindings/schema/schema.h"
#include "tests/harness/compiled_job.h"
#include "tests/harness/scratch.h"

typedef enum { REFUSE, NOTE, FREE } Rule;
typedef enum { ALIKE, OTHER } Evaluations;

static const struct Row {
  const char *what;
  Rule rule;
  Evaluations evaluations;
} rows[] = {
#define RESUME(what, rule, evaluations, why) {what, rule, evaluations},
#include "bindings/runs/resume.def"
};

static const struct Row *row_of(const char *what) {
  for (int i = 0; i < LEN(rows); i++) {
    size_t n = strlen(rows[i].what);
    bool below = rows[i].what[n - 1] == '.' && strncmp(what, rows[i].what, n) == 0;
    if (below || str_eq(what, rows[i].what)) return &rows[i];
  }
  return NULL;
}

/* ---- rows ---- */

/* Every field of the schema is a fact, whatever the plan says of it. */
START_TEST(every_fact_has_a_row) {
  JobFacts f = {.arena = arena};
  const RunFact *fact;
  int n;
  compiled_job(&job, arena, WEFT_SOURCE_DIR "/plans/quickstart.lua", NULL, 0);
  ck_assert_int_eq(job_facts(&job, &f, &job.e), WEFT_OK);
  ck_assert_int_eq(resume_facts(&job, &f, &fact, &n, &job.e), WEFT_OK);
  ck_assert_int_gt(n, 200);
  for (int i = 0; i < n; i++)
    ck_assert_msg(row_of(fact[i].what) != NULL,
                  "%s: resume.def does not say whether a "
                  "run goes on with another one",
                  fact[i].what);
  job_free(&job);
}
END_TEST

/* A table may have one row for all that it has, as long as that does not hide what the
 * loss is made of. */
START_TEST(what_changes_the_graph_is_decided_on) {
  for (const Field *f = schema; f->scope; f++) {
    bool told = f->type != FIELD_ALIAS && f->type != FIELD_NOOP &&
                f->type != FIELD_REFUSED && f->type != FIELD_TABLE;
    if (!told || !(f->influences & FOR_GRAPH)) continue;
    const char *what = arena_printf(arena, "plan.%s", schema_path(arena, f));
    const struct Row *row = row_of(what);
    ck_assert_msg(row != NULL, "%s", what);
    bool safe = row->rule == REFUSE || row->evaluations == OTHER;
    ck_assert_msg(safe || str_eq(row->what, what), "%s: resume.def has no row of it",
                  what);
  }
}
END_TEST

/* The first row that fits counts, so none stands behind one that takes all of it. */
START_TEST(every_row_is_reached) {
  for (int i = 0; i < LEN(rows); i++)
    ck_assert_msg(row_of(rows[i].what) == &rows[i], "%s", rows[i].what);
}
END_TEST

/* ---- evaluations ---- */

static const struct {
  const char *what, *was, *is, *drop;
  bool alike;
} changes[] = {
    {"plan.moe.aux_loss_coef", "0", "0.01", "false", false},
    {"plan.moe.aux_loss_sequences", "0", "1", "false", false},
    {"plan.moe.aux_loss_batch", "micro", "global", "false", false},
    {"plan.moe.capacity_factor", "0", "1.5", "false", false},
    {"plan.moe.drop_policy", "probs", "position", "true", false},
    {"plan.moe.max_tokens_factor", "1.5", "2", "true", false},
    {"plan.moe.max_tokens_factor", "1.5", "2", "false", true},
    {"plan.moe.dispatcher", "allgather", "alltoall", "false", true},
    {"plan.moe.bias_update_rate", "0", "0.001", "false", true},
    {"plan.packed.labels", "all", "within", "false", false},
    {"plan.train.eval_batches", "16", "17", "false", false},
    {"plan.train.eval_every", "16", "17", "false", true},
    {"plan.loss.z_loss", "not given", "0.1", "false", false},
    {"plan.mtp.loss_scaling_factor", "0.1", "0.2", "false", false},
    {"plan.adapter.alpha", "8", "16", "false", false},
    {"plan.adapter.alpha", "0", "8", "false", true}, /* the rank */
    {"plan.adapter.dropout", "0", "0.1", "false", true},
    {"plan.optimizer.clip", "1", "2", "false", true},
    {"plan.precision.param_dtype", "f32", "bf16", "false", true},
    {"plan.mesh.dp", "1", "2", "false", true},
    {"data for validation", "a", "b", "false", false},
    {"data for validation", "1 file (raw u16) (0a)", "1 file (Megatron) (0a)", "false",
     true},
    {"data for validation", "1 file (raw u16) (0a)", "1 file (raw u16) (0b)", "false",
     false},
    {"data", "a", "b", "false", true},
};

START_TEST(what_evaluations_measure) {
  const char *drop = changes[_i].drop;
  RunFact was[] = {{changes[_i].what, changes[_i].was, FACT_SAME, NULL},
                   {"plan.adapter.rank", "8", FACT_SAME, NULL},
                   {"plan.moe.drop", drop, FACT_SAME, NULL}};
  RunFact is[] = {{changes[_i].what, changes[_i].is, FACT_SAME, NULL}, was[1], was[2]};
  Ckpt c = {.m = {.fact = was, .nfact = LEN(was), .best = {.step = 7, .loss = 2}}};
  char note[200];
  BestEval best = resume_best(&c, is, LEN(is), note);
  ck_assert_msg(best.step == (changes[_i].alike ? 7 : 0), "%s", changes[_i].what);
  ck_assert_int_eq(*note == 0, changes[_i].alike);
  best = resume_best(&c, was, LEN(was), note);
  ck_assert_int_eq(best.step, 7);
  ck_assert_str_eq(note, "");
}
END_TEST

Suite *resume_suite(void);
Suite *resume_suite(void) {
  Suite *s = suite_create("resume");
  TCase *t = tcase_create("resume");
  suite_add_tcase(s, t);
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_add_test(t, every_fact_has_a_row);
  tcase_add_test(t, what_changes_the_graph_is_decided_on);
  tcase_add_test(t, every_row_is_reached);
  tcase_add_loop_test(t, what_evaluations_measure, 0, LEN(changes));
  return s;
}
