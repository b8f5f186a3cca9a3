/* check_shard.c - what the placements of a Llama model become: golden numbers of
 * collectives, and gradients of several uses. */
#include <check.h>

#include "tests/ranks/collective_counts.h"
#include "vm/rewrite/rewrite_passes.h"
#include "vm/shard/shard.h"
#include "vm/storage/memory_plan.h"
#include "vm/compile/compile.h"

/* ---- golden numbers ---- */

/* A dimension cut by cp and then by tp: every element is on one rank, the pieces of tp
 * lie inside those of cp, and no rank holds fewer elements than it needs. */
START_TEST(a_dimension_cut_by_two_axes) {
  Place p = place_whole();
  p.on[AX_CP] = p.on[AX_CP_HEADS] = p.on[AX_TP] = p.on[AX_TP_REP] = 1;
  ck_assert(place_cuts_dim(p, 1) && !place_cuts_dim(p, 0));
  ck_assert_uint_eq(place_cuts(p), AXIS_BIT(AXIS_CP) | AXIS_BIT(AXIS_TP));
  for (int64_t size = 1; size < 40; size++)
    for (int cp = 1; cp < 5; cp++)
      for (int tp = 1; tp < 5; tp++) {
        const int n[AX_N] = {3, cp, 1, tp, 1, 1, 1, 1};
        int64_t outer = (size + cp - 1) / cp, local = place_local(p, 1, size, n),
                seen = 0;
        ck_assert_int_eq(place_local(p, 0, size, n), size);
        for (int64_t c = 0; c < cp; c++)
          for (int64_t t = 0; t < tp; t++)
            for (int64_t i = 0; i < local; i++) {
              int64_t within = t * local + i, at = c * outer + within;
              seen += within < outer && at < size;
            }
        ck_assert_int_eq(seen, size);
        ck_assert_int_ge(local * tp, outer);
        ck_assert_int_lt((local - 1) * tp, outer);
      }
}
END_TEST

/* What the table of axes allows. */
START_TEST(axes_cut_what_they_may) {
  ck_assert(ax_may_cut(AX_DP, TAG_BATCH) && !ax_may_cut(AX_DP, TAG_HIDDEN));
  ck_assert(ax_may_cut(AX_CP, TAG_SEQ) && !ax_may_cut(AX_CP, TAG_VOCAB));
  ck_assert(ax_may_cut(AX_TP, TAG_VOCAB) && !ax_may_cut(AX_TP, TAG_BATCH));
  Toy t;
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = true;
  toy_compiles(&t, &o);
  Graph *g = t.graph;
  Tensor *x = &g->t.at[g->input[IN_TOKENS]];
  ck_assert_int_eq(graph_check(g, NULL), WEFT_OK);
  x->place.on[AX_TP] = 0;
  weft_error e = {0};
  ck_assert_int_eq(graph_check(g, &e), WEFT_EINTERNAL);
  ck_assert_msg(strstr(e.text, "tp may not cut dimension 0 (batch)"), "%s", e.text);
  toy_free(&t);
}
END_TEST

START_TEST(tp_counts) {
  ToyOptions o = toy_default();
  o.tp = 2, o.as_written = true;
  Toy t;
  toy_compiles(&t, &o);
  body_has(&t, "embed_tokens:F", 1, 0, 0);
  body_has(&t, "layer:F", 2, 0, 0);
  body_has(&t, "layer:I", 2, 0, 0);
  body_has(&t, "layer:W", 0, 0, 0);
  body_has(&t, "norm:F", 0, 0, 0);
  body_has(&t, "lm_head:F", 2, 0, 0); /* the maximum and the sum */
  body_has(&t, "lm_head:I", 1, 0, 0); /* the gradient of the hidden states */
  body_has(&t, "lm_head:W", 0, 0, 0);
  body_has(&t, "embed_tokens:W", 0, 0, 0);
  ck_assert_int_eq(t.diags.list.n, 0);
  toy_free(&t);
}
END_TEST

/* More ranks than key-value heads: no more collectives than without copies; the sums of
 * their gradients over the ranks that share a head come once a step, outside of bodies.
 */
START_TEST(copies_of_heads) {
  ToyOptions o = toy_default();
  o.tp = 4, o.kv_heads = 1 + _i % 2, o.sp = _i / 2 % 2, o.bias = _i / 4;
  o.as_written = true;
  Toy t;
  toy_compiles(&t, &o);
  if (o.sp) {
    body_has(&t, "layer:F", 0, 2, 2);
    body_has(&t, "layer:I", 0, 2, 2);
  } else {
    body_has(&t, "layer:F", 2, 0, 0);
    body_has(&t, "layer:I", 2, 0, 0);
    body_has(&t, "layer:W", 0, 0, 0);
  }
  const Program *p = &t.compiled->prog[0];
  CollCounts shared = {0}, body = {0};
  collectives_count(p, 0, p->ncode, "tp_rep", &shared);
  for (int i = 0; i < p->nbody; i++)
    collectives_count(p, p->body[i].first, p->body[i].n, "tp_rep", &body);
  collectives_are(&shared, "over ranks with one head", o.kv_heads == 2 ? 1 + o.bias : 0,
                  0, 0);
  collectives_are(&body, "in bodies", 0, 0, 0);
  toy_free(&t);
  o.as_written = false;
  pair_agrees(&o);
}
END_TEST

/* Where I and W are one body it has what both have. */
START_TEST(counts_of_both) {
  ToyOptions o = toy_default();
  o.tp = 2;
  Toy t;
  toy_compiles(&t, &o);
  body_has(&t, "layer:B", 2, 0, 0);
  body_has(&t, "embed_tokens:W", 0, 0, 0);
  toy_free(&t);
  o.sp = true;
  toy_compiles(&t, &o);
  body_has(&t, "layer:B", 0, 4, 2);
  body_has(&t, "embed_tokens:W", 0, 1, 0);
  toy_free(&t);
}
END_TEST

START_TEST(tp_sp_counts) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = o.as_written = true;
  Toy t;
  toy_compiles(&t, &o);
  body_has(&t, "embed_tokens:F", 0, 0, 1);
  body_has(&t, "layer:F", 0, 2, 2);
  body_has(&t, "layer:I", 0, 2, 2);
  body_has(&t, "layer:W", 0, 2, 0);
  body_has(&t, "norm:F", 0, 0, 0);
  body_has(&t, "lm_head:F", 2, 1, 0);
  body_has(&t, "lm_head:I", 0, 0, 1);
  body_has(&t, "lm_head:W", 0, 1, 0);
  body_has(&t, "embed_tokens:W", 0, 1, 0);
  ck_assert_int_eq(t.diags.list.n, 0);
  toy_free(&t);
}
END_TEST

/* The bias of a rowwise weight is added to whole sums: no collective more than without.
 */
START_TEST(biases_cost_no_collective) {
  ToyOptions o = toy_default();
  o.tp = 2, o.bias = o.as_written = true;
  Toy t;
  toy_compiles(&t, &o);
  body_has(&t, "layer:F", 2, 0, 0);
  body_has(&t, "layer:I", 2, 0, 0);
  body_has(&t, "layer:W", 0, 0, 0);
  toy_free(&t);
}
END_TEST

START_TEST(no_mesh_no_collectives) {
  ToyOptions o = toy_default();
  o.sp = true; /* means nothing on one rank */
  Toy t;
  toy_compiles(&t, &o);
  CollCounts c = {0};
  collectives_count(&t.compiled->prog[0], 0, t.compiled->prog[0].ncode, NULL, &c);
  collectives_are(&c, "one rank", 0, 0, 0);
  toy_free(&t);
}
END_TEST

/* How many buckets the parameters of a program fill: stretches of the row, one class of
 * weight decay and cut after the other, of at most so many bytes. */
static int buckets(const Compiled *c, const Program *p, int64_t bytes) {
  int n = 0;
  const Stored *first = NULL;
  for (int i = 0; i < p->regions.nparam; i++) {
    const Stored *q = &p->regions.param[i];
    const CompiledParam *x = &c->param[q->param],
                        *y = first ? &c->param[first->param] : x;
    bool same = x->decay == y->decay && place_cuts(x->place) == place_cuts(y->place);
    if (!first || !same || (q->at + q->count - first->at) * 4 > bytes) n++, first = q;
  }
  return n;
}

/* Elements of all parameters of a program, and of the paddings in its row. */
static uint64_t elements_of(const Program *p, uint64_t *padding) {
  uint64_t n = 0;
  for (int i = 0; i < p->regions.nparam; i++) n += (uint64_t)p->regions.param[i].count;
  *padding = (uint64_t)p->regions.region[0].whole - n;
  return n;
}

/* All of f32: the gradients; the token count and the loss are f64. */
static int gradient_reductions(const Program *p, const char *comm, uint64_t *elements) {
  int n = 0;
  *elements = 0;
  for (const Instr *x = p->code; x < p->code + p->nmain; x++) {
    const Operand *o = &p->operand[x->operand];
    if (x->code != I_COLL || strcmp(p->comm[x->comm].name, comm) != 0) continue;
    if (o->dtype != DT_F32) continue;
    ck_assert_int_eq(x->coll, COLL_ALL_REDUCE);
    ck_assert_int_eq(x->red, RED_SUM);
    *elements += operand_count(o);
    n++;
  }
  return n;
}

/* `_i` is 1 with overlap, 0 without. */
START_TEST(dp_counts) {
  ToyOptions o = toy_default();
  o.dp = 2, o.overlap = _i;
  Toy t;
  toy_compiles(&t, &o);
  const Program *p = &t.compiled->prog[0];
  body_has(&t, "layer:F", 0, 0, 0);
  body_has(&t, "layer:I", 0, 0, 0);
  body_has(&t, "layer:W", 0, 0, 0);
  uint64_t elements, padding, all = elements_of(p, &padding);
  int n = gradient_reductions(p, "dp", &elements);
  ck_assert_int_eq(n, buckets(t.compiled, p, 16 << 10));
  ck_assert_int_gt(n, 4);
  ck_assert_uint_ge(elements, all);
  ck_assert_uint_le(elements, all + padding);
  toy_free(&t);
}
END_TEST

static int dp_buckets_of(int64_t bytes) {
  ToyOptions o = toy_default();
  o.dp = 2, o.bucket_bytes = bytes;
  Toy t;
  toy_compiles(&t, &o);
  uint64_t elements;
  int n = gradient_reductions(&t.compiled->prog[0], "dp", &elements);
  int params = t.compiled->prog[0].regions.nparam;
  ck_assert_int_eq(n, buckets(t.compiled, &t.compiled->prog[0], bytes));
  toy_free(&t);
  return bytes == 1 ? params - n : n;
}

START_TEST(bucket_bytes) {
  ck_assert_int_eq(dp_buckets_of(1), 0);        /* one for each parameter */
  ck_assert_int_eq(dp_buckets_of(64 << 20), 2); /* with and without weight decay */
  ck_assert_int_gt(dp_buckets_of(8 << 10), dp_buckets_of(32 << 10));
}
END_TEST

/* All weights of norms in a row, each at an aligned place. */
static uint64_t norm_elements(const ToyOptions *o) {
  uint64_t norms = 2 * (uint64_t)o->layers + 1, hidden = (uint64_t)o->hidden;
  return (norms - 1) * align_up(hidden * 4) / 4 + hidden;
}

/* Norms under sequence parallelism: partial over tp, and with dp over both at once. */
START_TEST(norm_gradients) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = true;
  Toy t;
  uint64_t elements;
  toy_compiles(&t, &o);
  ck_assert_int_eq(gradient_reductions(&t.compiled->prog[0], "tp", &elements), 1);
  ck_assert_uint_eq(elements, norm_elements(&o));
  toy_free(&t);
  o.sp = false;
  toy_compiles(&t, &o);
  ck_assert_int_eq(gradient_reductions(&t.compiled->prog[0], "tp", &elements), 0);
  toy_free(&t);
}
END_TEST

/* Every reduction once over the axes that it needs: cut weights over dp, norms over dp
 * and then over tp. */
START_TEST(gradients_over_two_axes) {
  ToyOptions o = toy_default();
  o.tp = o.dp = 2, o.sp = true;
  Toy t;
  toy_compiles(&t, &o);
  const Program *p = &t.compiled->prog[0];
  uint64_t dp, tp, padding, all = elements_of(p, &padding);
  ck_assert_int_gt(gradient_reductions(p, "dp", &dp), 1);
  ck_assert_int_eq(gradient_reductions(p, "tp", &tp), 1);
  ck_assert_uint_ge(dp, all);
  ck_assert_uint_le(dp, all + padding);
  ck_assert_uint_eq(tp, norm_elements(&o));
  toy_free(&t);
}
END_TEST

/* The loss with a cut vocabulary: rows only, never logits. */
START_TEST(loss_parallel_head) {
  ToyOptions o = toy_default();
  o.tp = 4, o.kv_heads = 4, o.vocab = 211, o.micro = 2;
  Toy t;
  toy_compiles(&t, &o);
  const Program *p = &t.compiled->prog[0];
  int max = 0, sum = 0, rows = o.micro * o.seq;
  for (const Instr *x = p->code; x < p->code + p->ncode; x++) {
    if (x->code != I_COLL) continue;
    const Operand *in = &p->operand[x->operand];
    uint64_t n = operand_count(in);
    for (int k = 0; k < x->nin + x->nout; k++)
      for (int d = 0; d < in[k].ndim; d++)
        ck_assert_msg(x < p->code + p->nmain || in[k].dim[d] < 53,
                      "a collective of %s has a dimension as large as a vocabulary",
                      p->what[x->what]);
    max += x->red == RED_MAX && n == (uint64_t)rows;
    sum += x->red == RED_SUM && x->coll == COLL_ALL_REDUCE && n == (uint64_t)rows * 2;
  }
  ck_assert_int_eq(max, 1);
  ck_assert_int_eq(sum, 1);
  toy_free(&t);
}
END_TEST

/* Without it the logits are gathered, once forward and once backward, as was asked. */
START_TEST(whole_logits) {
  ToyOptions o = toy_default();
  o.tp = 2, o.vocab = 51, o.sp = _i, o.whole_logits = o.as_written = true;
  Toy t;
  toy_compiles(&t, &o);
  ck_assert_str_eq(toy_diags(&t), "");
  body_has(&t, "lm_head:F", 0, 1 + o.sp, 0);
  body_has(&t, "lm_head:I", !o.sp, 1, o.sp);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

/* ---- one parameter, several uses ---- */

/* The rows of the embedding are whole on both ranks, those of the head are cut: the one
 * gradient is the same on both ranks, of the other each has a part. */
START_TEST(uses_with_different_placements) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  o.pp = 1 + _i;
  WITH_RULES(o, {"norm", STYLE_SEQUENCE, false, 0});
  pair_agrees(&o);
}
END_TEST

static void broken(const Toy *t, const Sharded *s, const char *text) {
  weft_error e;
  err_clear(&e);
  ck_assert_int_eq(shard_check(t->graph, s, true, &e), WEFT_EINTERNAL);
  ck_assert_msg(strstr(e.text, text) != NULL, "%s", e.text);
}

/* The checker sees each way in which gradients could be added that are
 * not alike. */
START_TEST(checker_sees_planted_faults) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  WITH_RULES(o, {"norm", STYLE_SEQUENCE, false, 0});
  Toy t;
  weft_error e;
  err_clear(&e);
  Sharded s;
  toy_compiles(&t, &o);
  CompileInput in = {
      .plan = &t.plan, .mesh = &t.mesh, .graph = t.graph, .arena = t.arena};
  ck_assert_int_eq(autodiff(t.graph, &t.diags), WEFT_OK);
  ck_assert_int_eq(shard(&in, &s, &t.diags, &e), WEFT_OK);
  ck_assert_msg(shard_check(t.graph, &s, true, &e) == WEFT_OK, "%s", e.text);
  Op *cast = NULL, *reduce = NULL;
  for (int i = 0; i < s.g->op.n; i++) {
    if (s.g->op.at[i].code == OP_cast) cast = &s.g->op.at[i];
    if (s.g->op.at[i].code == OP_all_gather) reduce = &s.g->op.at[i];
  }
  ck_assert_ptr_nonnull(cast);
  ck_assert_ptr_nonnull(reduce);
  Tensor *whole = &s.g->t.at[cast->in[0]], *sum = &s.g->t.at[cast->out[0]];
  cast->attr.cut = 0;
  broken(&t, &s, "cast of ");
  cast->attr.cut = AXIS_BIT(AXIS_TP);
  whole->grad_of = sum->grad_of;
  broken(&t, &s, "adds [dp:R cp:R tp:R] to the gradient of model.embed_tokens.weight");
  whole->grad_of = -1;
  reduce->attr.axes = 1u << AX_DP;
  broken(&t, &s, "all_gather of ");
  reduce->attr.axes = 1u << AX_TP;
  int product = 0;
  while (s.g->op.at[product].code != OP_linear) product++;
  Place *both = &s.g->t.at[s.g->op.at[product].out[0]].place;
  both->on[AX_TP] = 2, both->on[AX_EP] = 0;
  broken(&t, &s, "is over the dense mesh, and over the expert mesh [ep_shard:R ep:S(0)");
  toy_free(&t);
}
END_TEST

Suite *shard_suite(void) {
  Suite *s = suite_create("shard");
  TCase *c = tcase_create("counts");
  tcase_add_test(c, a_dimension_cut_by_two_axes);
  tcase_add_test(c, axes_cut_what_they_may);
  tcase_add_test(c, tp_counts);
  tcase_add_test(c, tp_sp_counts);
  tcase_add_test(c, counts_of_both);
  tcase_add_test(c, biases_cost_no_collective);
  tcase_add_loop_test(c, copies_of_heads, 0, 8);
  tcase_add_test(c, no_mesh_no_collectives);
  tcase_add_loop_test(c, dp_counts, 0, 2);
  tcase_add_test(c, bucket_bytes);
  tcase_add_test(c, norm_gradients);
  tcase_add_test(c, gradients_over_two_axes);
  tcase_add_test(c, loss_parallel_head);
  tcase_add_loop_test(c, whole_logits, 0, 2);
  suite_add_tcase(s, c);
  c = tcase_create("several uses");
  tcase_add_loop_test(c, uses_with_different_placements, 0, 2);
  tcase_add_test(c, checker_sees_planted_faults);
  suite_add_tcase(s, c);
  return s;
}
