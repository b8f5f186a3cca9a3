/* check_shard_rules.c - what is said of a tp_plan: conversions that no rule forced,
 * styles that cannot be, and whose rule counts. */
#include <check.h>

#include "tests/ranks/collective_counts.h"
#include "vm/shard/shard.h"

/* ---- conversions that no rule forced ---- */

START_TEST(unforced_gather_is_told) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, {"layers.*.mlp.gate_proj", STYLE_COLWISE, true, 0},
             {"layers.*.mlp.up_proj", STYLE_COLWISE, true, 0},
             {"layers.*.mlp.down_proj", STYLE_REPLICATE, false, 0});
  Toy t;
  toy_compiles(&t, &o);
  ck_assert_str_eq(toy_diags(&t),
                   "warning unforced tp_plan: down_proj reads the whole of a tensor that "
                   "is sharded along ffn: an all_gather in every microbatch (first in "
                   "model.layers.0.mlp.down_proj)\n");
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

/* A rule for one layer among many that are compiled once. */
START_TEST(one_layer_has_a_rule_of_its_own) {
  ToyOptions o = toy_default();
  o.tp = 2, o.layers = 12;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP,
             {"layers.6.mlp.gate_proj", STYLE_REPLICATE, false, 0},
             {"layers.6.mlp.up_proj", STYLE_REPLICATE, false, 0},
             {"layers.6.mlp.down_proj", STYLE_REPLICATE, false, 0});
  Toy t;
  toy_compiles(&t, &o);
  for (int i = 0; i < t.compiled->nparam; i++) {
    const CompiledParam *p = &t.compiled->param[i];
    if (!strstr(p->name, "mlp.up_proj")) continue;
    ck_assert_int_eq(place_cuts(p->place) == 0, strstr(p->name, "layers.6.") != NULL);
  }
  toy_free(&t);
}
END_TEST

/* ---- the residual stream ---- */

/* How the rule of an op places its result over tp = 2, its operands placed as given. */
static int result_of(bool sp, int code, int first, int second) {
  Arena *a = arena_new(NULL);
  Graph *g = graph_new(a, 1, 8);
  const Dim dim[] = {{.size = 1, .local = 1, .tag = TAG_BATCH, .parts = 1, .unit = 1},
                     {.size = 8, .local = 8, .tag = TAG_SEQ, .parts = 1, .unit = 1},
                     {.size = 16, .local = 16, .tag = TAG_HIDDEN, .parts = 1, .unit = 1}};
  Plan plan = {.strategy = {.sequence_parallel = sp}};
  Place place[3], need[2], yield, *needs = need, *yields = &yield;
  for (int i = 0; i < LEN(place); i++) {
    ck_assert_int_eq(graph_tensor(g, T_VALUE, DT_F32, dim, LEN(dim)), i);
    place[i] = place_whole();
  }
  place[0].on[AX_TP] = (int8_t)first, place[1].on[AX_TP] = (int8_t)second;
  Oid op = graph_add(g, code, op_info[code].nin, 1, -1, PH_F);
  for (int i = 0; i < op_info[code].nin; i++) g->op.at[op].in[i] = i;
  g->op.at[op].out[0] = 2;
  Shard s = {
      .g = g, .plan = &plan, .tp = 2, .place = place, .need = &needs, .yield = &yields};
  for (int i = 0; i < AX_N; i++) s.n[i] = i == AX_TP ? 2 : 1;
  ck_assert(shard_rule[code](&s, op));
  for (int i = 0; i < op_info[code].nin; i++)
    ck_assert_int_eq(need[i].on[AX_TP], yield.on[AX_TP]);
  int on = yield.on[AX_TP];
  arena_free(a);
  return on;
}

/* Under sequence parallelism it is cut along the sequence, also where all that an op
 * reads of it is whole on each rank or cut another way. */
START_TEST(the_residual_stream_is_cut) {
  enum { SEQ = 1, HIDDEN = 2 };
  static const int ops[] = {OP_scale, OP_gelu}, two[] = {OP_add, OP_mul};
  static const int ways[] = {PL_R, SEQ, HIDDEN};
  for (int i = 0; i < LEN(ops); i++)
    for (int k = 0; k < LEN(ways); k++) {
      ck_assert_int_eq(result_of(true, ops[i], ways[k], PL_R), SEQ);
      ck_assert_int_eq(result_of(false, ops[i], ways[k], PL_R), ways[k]);
    }
  for (int i = 0; i < LEN(two); i++)
    for (int k = 0; k < LEN(ways); k++)
      for (int l = 0; l < LEN(ways); l++) {
        ck_assert_int_eq(result_of(true, two[i], ways[k], ways[l]), SEQ);
        ck_assert_int_eq(result_of(false, two[i], ways[k], ways[l]),
                         ways[k] == PL_R ? ways[l] : ways[k]);
      }
  ck_assert_int_eq(result_of(true, OP_add, PL_P, PL_P), PL_P);
  ck_assert_int_eq(result_of(true, OP_add, PL_P, PL_R), SEQ);
  ck_assert_int_eq(result_of(false, OP_add, PL_P, PL_R), PL_R);
}
END_TEST

/* ---- styles that cannot be ---- */

static void refused(const ToyOptions *o, const char *text) {
  Toy t;
  ck_assert_int_eq(toy_compile(&t, o, NULL), WEFT_EPLAN);
  ck_assert_str_eq(toy_diags(&t), text);
  toy_free(&t);
}

START_TEST(sizes_that_do_not_divide) {
  ToyOptions o = toy_default();
  o.tp = 3, o.ffn = 50;
#define NOT(n, size) "error divisibility mesh.tp: " n " does not divide model." size "\n"
  refused(&o, NOT("3", "num_attention_heads = 4") NOT("3", "num_key_value_heads = 2")
                  NOT("3", "intermediate_size = 50"));
  o = toy_default();
  o.tp = 4, o.hidden = 48, o.heads = 12, o.kv_heads = 6;
  refused(&o, NOT("4", "num_key_value_heads = 6"));
  o = toy_default();
  o.tp = 2, o.sp = true, o.seq = 7;
  refused(&o, "error divisibility batch.seq: 2 does not divide batch.seq = 7; "
              "sequence_parallel cuts it over tp; nearest: 6 or 8\n");
}
END_TEST

START_TEST(a_hidden_size_that_does_not_divide) {
  ToyOptions o = toy_default();
  o.tp = 3;
  WITH_RULES(o, {"layers.*.mlp.down_proj", STYLE_COLWISE, false, 0});
  refused(&o, NOT("3", "hidden_size = 32"));
}
END_TEST

/* Three kv heads, whole on both ranks, would have to be sliced for the local query heads;
 * of one they have copies. */
START_TEST(an_activation_that_cannot_be_sliced) {
  ToyOptions o = toy_default();
  o.tp = 2, o.hidden = 48, o.heads = 6, o.kv_heads = 3;
  WITH_RULES(o, {"layers.*.self_attn.q_proj", STYLE_COLWISE, false, 0},
             {"layers.*.self_attn.o_proj", STYLE_ROWWISE, false, 0});
  refused(&o, NOT("2", "num_key_value_heads = 3"));
  o.kv_heads = 1;
  pair_agrees(&o);
}
END_TEST

START_TEST(two_cuts_of_a_tied_parameter) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  WITH_RULES(o, TABLE, {"lm_head", STYLE_ROWWISE, false, 0}, QKVO, MLP);
  refused(&o, "error tp-plan tp_plan[\"lm_head\"]: the styles of its uses shard the tied "
              "parameter model.embed_tokens.weight in two ways\n");
}
END_TEST

/* The rule of the head counts for the head although the parameter has another name. */
START_TEST(a_tied_head_has_its_own_rule) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  WITH_RULES(o, TABLE, {"lm_head", STYLE_COLWISE_GATHER, false, 0}, QKVO, MLP);
  Toy t;
  toy_compiles(&t, &o);
  body_has(&t, "lm_head:F", 0, 1, 0);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

/* The longest pattern wins; a tie is told once, not for each layer. */
START_TEST(two_rules_for_one_parameter) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP,
             {"layers.3.mlp.up_proj", STYLE_REPLICATE, false, 0},
             {"layers.*.mlp.down_proj", STYLE_COLWISE, false, 0});
  refused(&o, "error tp-plan tp_plan[\"layers.*.mlp.down_proj\"]: "
              "\"layers.*.mlp.down_proj\" (rowwise) and \"layers.*.mlp.down_proj\" "
              "(colwise) both match model.layers.0.mlp.down_proj.weight and are equally "
              "specific\n");
}
END_TEST

START_TEST(a_pattern_without_a_parameter) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP,
             {"layers.*.mlp.dwon_proj", STYLE_ROWWISE, false, 0},
             {"transformer.h.*.attn.c_attn", STYLE_PACKED_COLWISE, false, 0},
             {"transformer.h.*.attn.c_proj", STYLE_ROWWISE, true, 0});
  refused(&o, "error tp-plan tp_plan[\"layers.*.mlp.dwon_proj\"]: the pattern matches no "
              "parameter; did you mean \"layers.*.mlp.down_proj\"?\n"
              "error tp-plan tp_plan[\"transformer.h.*.attn.c_attn\"]: the pattern "
              "matches no parameter; parameters look like "
              "model.layers.2.input_layernorm.weight\n");
}
END_TEST

/* A rule that a longer one overrides everywhere did match. */
START_TEST(an_overridden_pattern_is_no_error) {
  ToyOptions o = toy_default();
  o.tp = 2, o.layers = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, {"layers.*.mlp.up_proj", STYLE_REPLICATE, false, 0},
             {"layers.*.mlp.up_proj.weight", STYLE_COLWISE, false, 0},
             {"layers.*.mlp.gate_proj", STYLE_COLWISE, false, 0},
             {"model.layers.*.mlp.down_proj", STYLE_ROWWISE, false, 0});
  Toy t;
  toy_compiles(&t, &o);
  ck_assert_str_eq(toy_diags(&t), "");
  body_has(&t, "layer:F", 2, 0, 0);
  toy_free(&t);
}
END_TEST

START_TEST(styles_that_norms_do_not_have) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP,
             {"layers.*.input_layernorm", STYLE_COLWISE, false, 0},
             {"norm", STYLE_ROWWISE, false, 0});
  refused(&o, "error tp-plan tp_plan[\"layers.*.input_layernorm\"]: style colwise makes "
              "no sense for model.layers.0.input_layernorm.weight\n"
              "error tp-plan tp_plan[\"norm\"]: style rowwise makes no sense for "
              "model.norm.weight\n");
}
END_TEST

START_TEST(packed_styles_want_packed_parts) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO,
             {"layers.*.mlp.up_proj", STYLE_PACKED_COLWISE, false, 0},
             {"layers.*.mlp.down_proj", STYLE_ROWWISE, false, 0});
  refused(&o, "error tp-plan tp_plan[\"layers.*.mlp.up_proj\"]: "
              "model.layers.0.mlp.up_proj.weight is not made of packed parts: use "
              "colwise or rowwise\n");
}
END_TEST

/* A star is the number of a layer and nothing else. */
START_TEST(patterns_name_layers) {
  ck_assert(tp_pattern_matches("layers.*.up", "model.layers.12.up.weight", NULL));
  ck_assert(!tp_pattern_matches("layers.*.up", "model.layers.last.up.weight", NULL));
  ck_assert(!tp_pattern_matches("layers.*.up", "model.layers.12.mlp.up.weight", NULL));
}
END_TEST

Suite *shard_rules_suite(void);
Suite *shard_rules_suite(void) {
  Suite *s = suite_create("shard_rules");
  TCase *c = tcase_create("messages");
  tcase_add_test(c, unforced_gather_is_told);
  tcase_add_test(c, one_layer_has_a_rule_of_its_own);
  tcase_add_test(c, the_residual_stream_is_cut);
  tcase_add_test(c, sizes_that_do_not_divide);
  tcase_add_test(c, a_hidden_size_that_does_not_divide);
  tcase_add_test(c, an_activation_that_cannot_be_sliced);
  tcase_add_test(c, two_cuts_of_a_tied_parameter);
  tcase_add_test(c, two_rules_for_one_parameter);
  tcase_add_test(c, a_pattern_without_a_parameter);
  tcase_add_test(c, patterns_name_layers);
  tcase_add_test(c, a_tied_head_has_its_own_rule);
  tcase_add_test(c, an_overridden_pattern_is_no_error);
  tcase_add_test(c, styles_that_norms_do_not_have);
  tcase_add_test(c, packed_styles_want_packed_parts);
  suite_add_tcase(s, c);
  return s;
}
