/* check_shard_styles.c - every style, alone and mixed, agrees with one rank. */
#include <check.h>

#include "tests/ranks/collective_counts.h"

/* ---- every style against one rank ---- */

static ToyOptions tp4(void) {
  ToyOptions o = toy_default();
  o.tp = 4, o.kv_heads = 4, o.layers = 2;
  return o;
}

START_TEST(odd_vocabulary) {
  ToyOptions o = tp4();
  o.vocab = 50;
  pair_agrees(&o);
  o.vocab = 5; /* one rank has no true column at all */
  pair_agrees(&o);
  o.vocab = 50, o.tied = true, o.sp = true;
  pair_agrees(&o);
}
END_TEST

START_TEST(gathered_outputs) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, {"lm_head", STYLE_COLWISE_GATHER, false, 0}, QKVO, MLP);
  for (int sp = 0; sp < 2; sp++) {
    o.sp = sp;
    pair_agrees(&o);
    Toy t;
    toy_compiles(&t, &o);
    body_has(&t, "lm_head:F", 0, 1 + sp, 0);
    ck_assert_str_eq(toy_diags(&t), "");
    toy_free(&t);
  }
}
END_TEST

START_TEST(gathered_projection) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, HEAD, QKVO,
             {"layers.*.mlp.gate_proj", STYLE_COLWISE_GATHER, false, 0},
             {"layers.*.mlp.up_proj", STYLE_COLWISE_GATHER, false, 0});
  for (int sp = 0; sp < 2; sp++) {
    o.sp = sp;
    pair_agrees(&o);
  }
}
END_TEST

/* The output of a module with a bias is gathered once, behind the bias. */
START_TEST(gathered_behind_the_bias) {
  ToyOptions o = tp4();
  o.bias = true;
  WITH_RULES(o, TABLE, HEAD,
             {"layers.*.self_attn.q_proj", STYLE_COLWISE_GATHER, false, 0},
             {"layers.*.self_attn.k_proj", STYLE_COLWISE_GATHER, false, 0},
             {"layers.*.self_attn.v_proj", STYLE_COLWISE_GATHER, false, 0},
             {"layers.*.self_attn.o_proj", STYLE_REPLICATE, false, 0}, MLP);
  Toy t;
  toy_compiles(&t, &o);
  body_has(&t, "layer:F", 1, 3, 0);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

START_TEST(colwise_table) {
  ToyOptions o = tp4();
  o.sp = _i % 2, o.tied = _i / 2;
  WITH_RULES(o, {"embed_tokens", STYLE_EMBEDDING_COLWISE, false, 0},
             {"lm_head", o.tied ? STYLE_EMBEDDING_COLWISE : STYLE_COLWISE, false, 0},
             QKVO, MLP);
  pair_agrees(&o);
}
END_TEST

/* A rowwise head takes a cut input and gives whole logits. */
START_TEST(rowwise_rep) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, {"lm_head", STYLE_ROWWISE_REP, false, 0}, QKVO,
             {"layers.*.mlp.gate_proj", STYLE_ROWWISE_REP, false, 0},
             {"layers.*.mlp.up_proj", STYLE_ROWWISE_REP, false, 0});
  for (int sp = 0; sp < 2; sp++) {
    o.sp = sp;
    pair_agrees(&o);
  }
}
END_TEST

START_TEST(rowwise_table) {
  ToyOptions o = tp4();
  WITH_RULES(o, {"embed_tokens", STYLE_ROWWISE, false, 0},
             {"lm_head", STYLE_ROWWISE, false, 0}, QKVO, MLP);
  pair_agrees(&o);
}
END_TEST

/* Norms on cut sequences although the residual stream is whole. */
START_TEST(sequence_norms_without_sp) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP,
             {"layers.*.input_layernorm", STYLE_SEQUENCE, false, 0},
             {"layers.*.post_attention_layernorm", STYLE_SEQUENCE, false, 0},
             {"norm", STYLE_SEQUENCE, false, 0});
  pair_agrees(&o);
  o.dp = 2, o.pp = 2;
  pair_agrees(&o);
}
END_TEST

START_TEST(replicate_everything) {
  ToyOptions o = tp4();
  WITH_RULES(o, {"layers.*.mlp.up_proj", STYLE_REPLICATE, false, 0});
  Toy t;
  toy_compiles(&t, &o);
  body_has(&t, "layer:F", 0, 0, 0);
  body_has(&t, "layer:I", 0, 0, 0);
  toy_free(&t);
  for (int sp = 0; sp < 2; sp++) {
    o.sp = sp;
    pair_agrees(&o);
  }
}
END_TEST

/* One projection whole among cut ones, biases included. Under sequence parallelism the
 * whole keys are rotated by a slice of the positions, which others read as a whole. */
START_TEST(mixed_styles) {
  ToyOptions o = tp4();
  o.bias = true;
  WITH_RULES(o, {"embed_tokens", STYLE_REPLICATE, false, 0}, HEAD,
             {"layers.*.self_attn.q_proj", STYLE_COLWISE, false, 0},
             {"layers.*.self_attn.k_proj", STYLE_REPLICATE, false, 0},
             {"layers.*.self_attn.v_proj", STYLE_COLWISE, false, 0},
             {"layers.*.self_attn.o_proj", STYLE_ROWWISE, false, 0},
             {"layers.*.mlp.up_proj", STYLE_COLWISE, false, 0},
             {"layers.0.mlp.down_proj", STYLE_ROWWISE, false, 0});
  for (int sp = 0; sp < 2; sp++) {
    o.sp = sp;
    pair_agrees(&o);
  }
}
END_TEST

/* The usual plan on the meshes that combine everything. */
START_TEST(usual_plan) {
  ToyOptions o = toy_default();
  o.tp = 2, o.pp = 2, o.dp = 2;
  o.sp = _i & 1, o.tied = _i >> 1 & 1, o.bias = o.overlap = _i >> 2;
  o.layers = 3, o.microbatches = 3;
  pair_agrees(&o);
}
END_TEST

Suite *shard_styles_suite(void);
Suite *shard_styles_suite(void) {
  Suite *s = suite_create("shard_styles");
  TCase *c = tcase_create("styles");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, odd_vocabulary);
  tcase_add_test(c, gathered_outputs);
  tcase_add_test(c, gathered_projection);
  tcase_add_test(c, gathered_behind_the_bias);
  tcase_add_loop_test(c, colwise_table, 0, 4);
  tcase_add_test(c, rowwise_rep);
  tcase_add_test(c, rowwise_table);
  tcase_add_test(c, sequence_norms_without_sp);
  tcase_add_test(c, replicate_everything);
  tcase_add_test(c, mixed_styles);
  tcase_add_loop_test(c, usual_plan, 0, 8);
  suite_add_tcase(s, c);
  return s;
}
