/* check_state_space.c - models with state-space layers: meshes against one rank, packed
 * documents, and what is refused by name. */
#include <check.h>
#include <string.h>

#include "tests/harness/process.h"

#define PLAN    WEFT_SOURCE_DIR "/tests/models/state_space.lua"
#define SECONDS 120

/* Sizes are those of tp, dp, pp, cp and ep. */
static const char *const agree[] = {
    "-D mesh=2,2,1,1,1",
    "-D mesh=1,2,2,1,2 -D packed=true",
    "-D mesh=2,1,2,1,1 -D packed=true --set strategy.sequence_parallel=true",
    "-D family=falcon_h1 -D mesh=4,1,1,1,1 -D packed=true",
    "-D family=falcon_h1 -D mesh=2,2,1,1,1 -D cut=true",
};

START_TEST(ranks_agree_with_one) {
  Outcome o = process_run(SECONDS, "$weft verify " PLAN " %s", agree[_i]);
  ck_assert_msg(o.code == 0 && strstr(o.out, "the same (tolerance 1e-05)"), "%s: %s%s",
                agree[_i], o.out, o.err);
}
END_TEST

static const struct {
  const char *command, *message;
} refused[] = {
    {"check " PLAN " -D mesh=1,1,1,2,1", "mesh.cp: causal_conv is of a state-space "
                                         "layer, whose state goes from token to token"},
    {"check " PLAN " -D mesh=4,1,1,1,1", "mesh.tp: 4 does not divide model.n_groups = 2"},
    {"sample " PLAN " --tokens 1,2,3",
     "causal_conv of backbone.layers.0.mixer.x_conv goes over the tokens of a sequence"},
};

START_TEST(refuses_by_name) {
  Outcome o = process_run(SECONDS, "$weft %s", refused[_i].command);
  ck_assert_int_ne(o.code, 0);
  ck_assert_msg(strstr(o.err, refused[_i].message) || strstr(o.out, refused[_i].message),
                "%s: %s%s", refused[_i].command, o.out, o.err);
}
END_TEST

Suite *state_space_suite(void) {
  Suite *s = suite_create("state_space");
  TCase *t = tcase_create("models");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 4 * SECONDS);
  tcase_add_loop_test(t, ranks_agree_with_one, 0, sizeof agree / sizeof *agree);
  tcase_add_loop_test(t, refuses_by_name, 0, sizeof refused / sizeof *refused);
  suite_add_tcase(s, t);
  return s;
}
