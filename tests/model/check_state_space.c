/* check_state_space.c - models with state-space layers: meshes against one rank, packed
 * documents, and what is refused by name. */
#include <check.h>
#include <string.h>
#include <sys/stat.h>

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

/* A published config, with Python's Infinity: made smaller it has a layer of each kind,
 * and its state-space layers are smaller, too. */
START_TEST(a_published_config_is_made_smaller) {
  static const char config[] =
      "{\"model_type\": \"nemotron_h\", \"num_hidden_layers\": 12, \"hidden_size\": "
      "256,\n"
      " \"hybrid_override_pattern\": \"M-M-M*-MM-ME\", \"vocab_size\": 131072,\n"
      " \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 32,\n"
      " \"intermediate_size\": 512, \"mamba_num_heads\": 16, \"mamba_head_dim\": 32,\n"
      " \"n_groups\": 4, \"ssm_state_size\": 64, \"conv_kernel\": 4, "
      "\"n_routed_experts\": 4,\n"
      " \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64,\n"
      " \"moe_shared_expert_intermediate_size\": 64,\n"
      " \"time_step_limit\": [0.0, Infinity]}\n";
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf 'hub', mesh = { tp = 2, dp = 2 },\n"
      "  tp_plan = weft.tp_plan 'nemotron_h', batch = { global = 4, seq = 64 },\n"
      "  precision = 'f32', optimizer = weft.adamw { lr = 1e-3 } }\n";
  ck_assert_int_eq(mkdir(scratch_path("hub"), 0777), 0);
  scratch_put("hub/config.json", config, sizeof config - 1);
  scratch_put("plan.lua", plan, sizeof plan - 1);
  Outcome o = process_run(SECONDS, "$weft verify plan.lua --steps 1");
  ck_assert_msg(o.code == 0 && strstr(o.out, "the same (tolerance 1e-05)"), "%s%s", o.out,
                o.err);
  ck_assert_msg(strstr(o.out, "num_hidden_layers 12 -> 4") &&
                    strstr(o.out, "n_groups 4 -> 2, mamba_num_heads 16 -> 4"),
                "%s", o.out);
}
END_TEST

/* Of a run that ends well. */
static const char *trained(const char *command) {
  Outcome o = process_run(SECONDS, "$weft run --threads 1 --steps 2 %s", command);
  ck_assert_msg(o.code == 0, "%s: %s%s", command, o.out, o.err);
  const char *loss = strstr(o.out, "\"loss\": ");
  return loss ? arena_printf(scratch_arena, "%.24s", loss) : "";
}

static void put_falcon(const char *name, const char *model) {
  Text t = {0};
  text_printf(&t,
              "local weft = require 'weft'\n"
              "return weft.plan { model = %s,\n"
              "  batch = { global = 2, micro = 1, seq = 8 }, precision = 'f32' }\n",
              model);
  scratch_put(name, t.s, t.n);
  text_free(&t);
}

static void limits_are(const char *folder, const char *text) {
  const char *config =
      scratch_get(scratch_path(arena_printf(scratch_arena, "%s/config.json", folder)));
  const char *at = strstr(config, "\"time_step_limit\": ");
  ck_assert_msg(at && strncmp(strchr(at, '['), text, strlen(text)) == 0, "%s", config);
}

/* A step without a limit is Python's Infinity in the file of a plan, is read as that, and
 * stays in a file of which another key is changed: no number of f32 takes its place. */
START_TEST(infinity_goes_in_and_out) {
  static const char endless[] = "[\n    0.25,\n    Infinity\n  ]";
  static const char keys[] =
      "vocab_size = 32, hidden_size = 16, intermediate_size = 16, num_hidden_layers = 1, "
      "num_attention_heads = 2, num_key_value_heads = 1, mamba_d_ssm = 16, "
      "mamba_n_heads = 2, mamba_d_state = 4";
  put_falcon("plan.lua", arena_printf(scratch_arena,
                                      "weft.model { 'falcon_h1', %s, time_step_limit = "
                                      "{ 0.25, math.huge } }",
                                      keys));
  put_falcon("of_python.lua", "weft.hf 'made'");
  put_falcon("of_object.lua", "weft.hf 'object'");
  put_falcon("changed.lua",
             "weft.hf { 'object', time_step_limit = { 0.25, math.huge } }");
  trained("plan.lua --export made");
  limits_are("made", endless);
  const char *loss = trained("of_python.lua --json --export half --dtype bf16");
  limits_are("half", endless);
  /* As Transformers 5 writes it. */
  process_run(10, "sh -c 'cp -r made object && sed -i "
                  "\"s/Infinity/{\\\"__float__\\\": \\\"Infinity\\\"}/\" "
                  "object/config.json'");
  ck_assert_ptr_nonnull(strstr(scratch_get(scratch_path("object/config.json")),
                               "{\"__float__\": \"Infinity\"}"));
  ck_assert_str_eq(trained("of_object.lua --json"), loss);
  trained("changed.lua --export changed");
  limits_are("changed", endless);
}
END_TEST

Suite *state_space_suite(void) {
  Suite *s = suite_create("state_space");
  TCase *t = tcase_create("models");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 4 * SECONDS);
  tcase_add_loop_test(t, ranks_agree_with_one, 0, sizeof agree / sizeof *agree);
  tcase_add_loop_test(t, refuses_by_name, 0, sizeof refused / sizeof *refused);
  tcase_add_test(t, a_published_config_is_made_smaller);
  tcase_add_test(t, infinity_goes_in_and_out);
  suite_add_tcase(s, t);
  return s;
}
