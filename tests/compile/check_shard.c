/* check_shard.c - what the placements of a Llama model become: golden numbers of
 * collectives, the messages for styles that cannot be, and runs that agree with one rank
 * for every style. */
#include <check.h>

#include "tests/lib/pair.h"
#include "vm/units/autodiff.h"
#include "vm/units/shard.h"
#include "vm/storage/offsets.h"

/* ---- counting ---- */

typedef struct Counts {
  int n[COLL_N];         /* by CollKind */
  int bodies;            /* that were looked at */
} Counts;

static void count_range(const Program *p, uint32_t first, uint32_t n, const char *comm,
                        Counts *c) {
  for (const Instr *x = p->code + first; x < p->code + first + n; x++)
    if (x->code == I_COLL && (!comm || strcmp(p->comm[x->comm].name, comm) == 0))
      c->n[x->coll]++;
}

/* Of the bodies with this name ("layer:F"); comm NULL: on any communicator. */
static Counts in_bodies(const Program *p, const char *name, const char *comm) {
  Counts c = {0};
  for (int i = 0; i < p->nbody; i++) {
    if (strcmp(p->body[i].name, name) != 0) continue;
    c.bodies++;
    count_range(p, p->body[i].first, p->body[i].n, comm, &c);
  }
  return c;
}

static void expect(const Counts *c, const char *what, int reduce, int gather,
                   int scatter) {
  ck_assert_msg(c->n[COLL_ALL_REDUCE] == reduce && c->n[COLL_ALL_GATHER] == gather &&
                    c->n[COLL_REDUCE_SCATTER] == scatter,
                "%s: %d all_reduce, %d all_gather, %d reduce_scatter; expected %d, %d, "
                "%d", what, c->n[COLL_ALL_REDUCE], c->n[COLL_ALL_GATHER],
                c->n[COLL_REDUCE_SCATTER], reduce, gather, scatter);
}

static void expect_body(const Toy *t, const char *name, int reduce, int gather,
                        int scatter) {
  Counts c = in_bodies(&t->compiled->prog[0], name, NULL);
  ck_assert_msg(c.bodies == 1, "%d bodies %s: equal layers share one", c.bodies, name);
  expect(&c, name, reduce, gather, scatter);
}

static void compile_ok(Toy *t, const ToyOptions *o) {
  weft_status st = toy_compile(t, o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, t->err.text, toy_diags(t));
}

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
        int64_t outer = (size + cp - 1) / cp, local = place_local(p, 1, size, n), seen = 0;
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
  compile_ok(&t, &o);
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
  compile_ok(&t, &o);
  expect_body(&t, "embed_tokens:F", 1, 0, 0);
  expect_body(&t, "layer:F", 2, 0, 0);
  expect_body(&t, "layer:I", 2, 0, 0);
  expect_body(&t, "layer:W", 0, 0, 0);
  expect_body(&t, "norm:F", 0, 0, 0);
  expect_body(&t, "lm_head:F", 2, 0, 0);   /* the maximum and the sum */
  expect_body(&t, "lm_head:I", 1, 0, 0);   /* the gradient of the hidden states */
  expect_body(&t, "lm_head:W", 0, 0, 0);
  expect_body(&t, "embed_tokens:W", 0, 0, 0);
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
  compile_ok(&t, &o);
  if (o.sp) {
    expect_body(&t, "layer:F", 0, 2, 2);
    expect_body(&t, "layer:I", 0, 2, 2);
  } else {
    expect_body(&t, "layer:F", 2, 0, 0);
    expect_body(&t, "layer:I", 2, 0, 0);
    expect_body(&t, "layer:W", 0, 0, 0);
  }
  const Program *p = &t.compiled->prog[0];
  Counts shared = {0}, body = {0};
  count_range(p, 0, p->ncode, "tp_rep", &shared);
  for (int i = 0; i < p->nbody; i++)
    count_range(p, p->body[i].first, p->body[i].n, "tp_rep", &body);
  expect(&shared, "over ranks with one head", o.kv_heads == 2 ? 1 + o.bias : 0, 0, 0);
  expect(&body, "in bodies", 0, 0, 0);
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
  compile_ok(&t, &o);
  expect_body(&t, "layer:B", 2, 0, 0);
  expect_body(&t, "embed_tokens:W", 0, 0, 0);
  toy_free(&t);
  o.sp = true;
  compile_ok(&t, &o);
  expect_body(&t, "layer:B", 0, 4, 2);
  expect_body(&t, "embed_tokens:W", 0, 1, 0);
  toy_free(&t);
}
END_TEST

START_TEST(tp_sp_counts) {
  ToyOptions o = toy_default();
  o.tp = 2, o.sp = o.as_written = true;
  Toy t;
  compile_ok(&t, &o);
  expect_body(&t, "embed_tokens:F", 0, 0, 1);
  expect_body(&t, "layer:F", 0, 2, 2);
  expect_body(&t, "layer:I", 0, 2, 2);
  expect_body(&t, "layer:W", 0, 2, 0);
  expect_body(&t, "norm:F", 0, 0, 0);
  expect_body(&t, "lm_head:F", 2, 1, 0);
  expect_body(&t, "lm_head:I", 0, 0, 1);
  expect_body(&t, "lm_head:W", 0, 1, 0);
  expect_body(&t, "embed_tokens:W", 0, 1, 0);
  ck_assert_int_eq(t.diags.list.n, 0);
  toy_free(&t);
}
END_TEST

/* The bias of a rowwise weight is added to whole sums: no collective more than without. */
START_TEST(biases_cost_no_collective) {
  ToyOptions o = toy_default();
  o.tp = 2, o.bias = o.as_written = true;
  Toy t;
  compile_ok(&t, &o);
  expect_body(&t, "layer:F", 2, 0, 0);
  expect_body(&t, "layer:I", 2, 0, 0);
  expect_body(&t, "layer:W", 0, 0, 0);
  toy_free(&t);
}
END_TEST

START_TEST(no_mesh_no_collectives) {
  ToyOptions o = toy_default();
  o.sp = true;           /* means nothing on one rank */
  Toy t;
  compile_ok(&t, &o);
  Counts c = {0};
  count_range(&t.compiled->prog[0], 0, t.compiled->prog[0].ncode, NULL, &c);
  expect(&c, "one rank", 0, 0, 0);
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
    const CompiledParam *x = &c->param[q->param], *y = first ? &c->param[first->param] : x;
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
  compile_ok(&t, &o);
  const Program *p = &t.compiled->prog[0];
  expect_body(&t, "layer:F", 0, 0, 0);
  expect_body(&t, "layer:I", 0, 0, 0);
  expect_body(&t, "layer:W", 0, 0, 0);
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
  compile_ok(&t, &o);
  uint64_t elements;
  int n = gradient_reductions(&t.compiled->prog[0], "dp", &elements);
  int params = t.compiled->prog[0].regions.nparam;
  ck_assert_int_eq(n, buckets(t.compiled, &t.compiled->prog[0], bytes));
  toy_free(&t);
  return bytes == 1 ? params - n : n;
}

START_TEST(bucket_bytes) {
  ck_assert_int_eq(dp_buckets_of(1), 0);           /* one for each parameter */
  ck_assert_int_eq(dp_buckets_of(64 << 20), 2);    /* with and without weight decay */
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
  compile_ok(&t, &o);
  ck_assert_int_eq(gradient_reductions(&t.compiled->prog[0], "tp", &elements), 1);
  ck_assert_uint_eq(elements, norm_elements(&o));
  toy_free(&t);
  o.sp = false;
  compile_ok(&t, &o);
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
  compile_ok(&t, &o);
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
  compile_ok(&t, &o);
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
  compile_ok(&t, &o);
  ck_assert_str_eq(toy_diags(&t), "");
  expect_body(&t, "lm_head:F", 0, 1 + o.sp, 0);
  expect_body(&t, "lm_head:I", !o.sp, 1, o.sp);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

/* ---- conversions that no rule forced ---- */

#define QKVO                                                                             \
  {"layers.*.self_attn.q_proj", STYLE_COLWISE, true},                                    \
      {"layers.*.self_attn.k_proj", STYLE_COLWISE, true},                                \
      {"layers.*.self_attn.v_proj", STYLE_COLWISE, true},                                \
      {"layers.*.self_attn.o_proj", STYLE_ROWWISE, true}
#define MLP                                                                              \
  {"layers.*.mlp.gate_proj", STYLE_COLWISE, true},                                       \
      {"layers.*.mlp.up_proj", STYLE_COLWISE, true},                                     \
      {"layers.*.mlp.down_proj", STYLE_ROWWISE, true}
#define TABLE {"embed_tokens", STYLE_EMBEDDING_ROWWISE, true}
#define HEAD {"lm_head", STYLE_COLWISE, true}

#define WITH_RULES(o, ...)                                                               \
  const TpRule rules_[] = {__VA_ARGS__};                                                 \
  (o).rules = rules_, (o).nrules = LEN(rules_)

START_TEST(unforced_gather_is_told) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, {"layers.*.mlp.gate_proj", STYLE_COLWISE, true},
             {"layers.*.mlp.up_proj", STYLE_COLWISE, true},
             {"layers.*.mlp.down_proj", STYLE_REPLICATE, false});
  Toy t;
  compile_ok(&t, &o);
  ck_assert_str_eq(toy_diags(&t),
                   "warning unforced tp_plan: down_proj reads a tensor that is cut along "
                   "ffn as a whole: an all_gather in every microbatch (first in "
                   "model.layers.0.mlp.down_proj)\n");
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

/* A rule for one layer among many that are compiled once. */
START_TEST(one_layer_has_a_rule_of_its_own) {
  ToyOptions o = toy_default();
  o.tp = 2, o.layers = 12;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP, {"layers.6.mlp.gate_proj", STYLE_REPLICATE, false},
             {"layers.6.mlp.up_proj", STYLE_REPLICATE, false},
             {"layers.6.mlp.down_proj", STYLE_REPLICATE, false});
  Toy t;
  compile_ok(&t, &o);
  for (int i = 0; i < t.compiled->nparam; i++) {
    const CompiledParam *p = &t.compiled->param[i];
    if (!strstr(p->name, "mlp.up_proj")) continue;
    ck_assert_int_eq(place_cuts(p->place) == 0, strstr(p->name, "layers.6.") != NULL);
  }
  toy_free(&t);
}
END_TEST

/* ---- one parameter, several uses ---- */

/* The rows of the embedding are whole on both ranks, those of the head are cut: the one
 * gradient is the same on both ranks, of the other each has a part. */
START_TEST(uses_with_different_placements) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  o.pp = 1 + _i;
  WITH_RULES(o, {"norm", STYLE_SEQUENCE, false});
  pair_agrees(&o);
}
END_TEST

static void broken(const Toy *t, const Sharded *s, const char *text) {
  weft_error e;
  err_clear(&e);
  ck_assert_int_eq(shard_check(t->graph, s, true, &e), WEFT_EINTERNAL);
  ck_assert_msg(strstr(e.text, text) != NULL, "%s", e.text);
}

/* The checker of debug builds sees each way in which gradients could be added that are
 * not alike. */
START_TEST(checker_sees_planted_faults) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  WITH_RULES(o, {"norm", STYLE_SEQUENCE, false});
  Toy t;
  weft_error e;
  err_clear(&e);
  Sharded s;
  compile_ok(&t, &o);
  CompileInput in = {.plan = &t.plan, .mesh = &t.mesh, .graph = t.graph, .arena = t.arena};
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
  toy_free(&t);
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
              "sequence_parallel cuts it over tp\n");
}
END_TEST

START_TEST(a_hidden_size_that_does_not_divide) {
  ToyOptions o = toy_default();
  o.tp = 3;
  WITH_RULES(o, {"layers.*.mlp.down_proj", STYLE_COLWISE, false});
  refused(&o, NOT("3", "hidden_size = 32"));
}
END_TEST

/* Three kv heads, whole on both ranks, would have to be sliced for the local query heads;
 * of one they have copies. */
START_TEST(an_activation_that_cannot_be_sliced) {
  ToyOptions o = toy_default();
  o.tp = 2, o.hidden = 48, o.heads = 6, o.kv_heads = 3;
  WITH_RULES(o, {"layers.*.self_attn.q_proj", STYLE_COLWISE, false},
             {"layers.*.self_attn.o_proj", STYLE_ROWWISE, false});
  refused(&o, NOT("2", "num_key_value_heads = 3"));
  o.kv_heads = 1;
  pair_agrees(&o);
}
END_TEST

START_TEST(two_cuts_of_a_tied_parameter) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  WITH_RULES(o, TABLE, {"lm_head", STYLE_ROWWISE, false}, QKVO, MLP);
  refused(&o, "error tp-plan tp_plan[\"lm_head\"]: the styles of its uses cut the tied "
              "parameter model.embed_tokens.weight in two ways\n");
}
END_TEST

/* The rule of the head counts for the head although the parameter has another name. */
START_TEST(a_tied_head_has_its_own_rule) {
  ToyOptions o = toy_default();
  o.tp = 2, o.tied = true;
  WITH_RULES(o, TABLE, {"lm_head", STYLE_COLWISE_GATHER, false}, QKVO, MLP);
  Toy t;
  compile_ok(&t, &o);
  expect_body(&t, "lm_head:F", 0, 1, 0);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

/* The longest pattern wins; a tie is told once, not for each layer. */
START_TEST(two_rules_for_one_parameter) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP, {"layers.3.mlp.up_proj", STYLE_REPLICATE, false},
             {"layers.*.mlp.down_proj", STYLE_COLWISE, false});
  refused(&o, "error tp-plan tp_plan[\"layers.*.mlp.down_proj\"]: "
              "\"layers.*.mlp.down_proj\" (rowwise) and \"layers.*.mlp.down_proj\" "
              "(colwise) both match model.layers.0.mlp.down_proj.weight and are equally "
              "specific\n");
}
END_TEST

START_TEST(a_pattern_without_a_parameter) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP, {"layers.*.mlp.dwon_proj", STYLE_ROWWISE, false},
             {"transformer.h.*.attn.c_attn", STYLE_PACKED_COLWISE, false},
             {"transformer.h.*.attn.c_proj", STYLE_ROWWISE, true});
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
  WITH_RULES(o, TABLE, HEAD, QKVO, {"layers.*.mlp.up_proj", STYLE_REPLICATE, false},
             {"layers.*.mlp.up_proj.weight", STYLE_COLWISE, false},
             {"layers.*.mlp.gate_proj", STYLE_COLWISE, false},
             {"model.layers.*.mlp.down_proj", STYLE_ROWWISE, false});
  Toy t;
  compile_ok(&t, &o);
  ck_assert_str_eq(toy_diags(&t), "");
  expect_body(&t, "layer:F", 2, 0, 0);
  toy_free(&t);
}
END_TEST

START_TEST(styles_that_norms_do_not_have) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP,
             {"layers.*.input_layernorm", STYLE_COLWISE, false}, {"norm", STYLE_ROWWISE, false});
  refused(&o, "error tp-plan tp_plan[\"layers.*.input_layernorm\"]: style colwise makes "
              "no sense for model.layers.0.input_layernorm.weight\n"
              "error tp-plan tp_plan[\"norm\"]: style rowwise makes no sense for "
              "model.norm.weight\n");
}
END_TEST

START_TEST(packed_styles_want_packed_parts) {
  ToyOptions o = toy_default();
  o.tp = 2;
  WITH_RULES(o, TABLE, HEAD, QKVO, {"layers.*.mlp.up_proj", STYLE_PACKED_COLWISE, false},
             {"layers.*.mlp.down_proj", STYLE_ROWWISE, false});
  refused(&o, "error tp-plan tp_plan[\"layers.*.mlp.up_proj\"]: "
              "model.layers.0.mlp.up_proj.weight is not made of packed parts: use "
              "colwise or rowwise\n");
}
END_TEST

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
  o.vocab = 5;           /* one rank has no true column at all */
  pair_agrees(&o);
  o.vocab = 50, o.tied = true, o.sp = true;
  pair_agrees(&o);
}
END_TEST

START_TEST(gathered_outputs) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, {"lm_head", STYLE_COLWISE_GATHER, false}, QKVO, MLP);
  for (int sp = 0; sp < 2; sp++) {
    o.sp = sp;
    pair_agrees(&o);
    Toy t;
    compile_ok(&t, &o);
    expect_body(&t, "lm_head:F", 0, 1 + sp, 0);
    ck_assert_str_eq(toy_diags(&t), "");
    toy_free(&t);
  }
}
END_TEST

START_TEST(gathered_projection) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, HEAD, QKVO,
             {"layers.*.mlp.gate_proj", STYLE_COLWISE_GATHER, false},
             {"layers.*.mlp.up_proj", STYLE_COLWISE_GATHER, false});
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
  WITH_RULES(o, TABLE, HEAD, {"layers.*.self_attn.q_proj", STYLE_COLWISE_GATHER, false},
             {"layers.*.self_attn.k_proj", STYLE_COLWISE_GATHER, false},
             {"layers.*.self_attn.v_proj", STYLE_COLWISE_GATHER, false},
             {"layers.*.self_attn.o_proj", STYLE_REPLICATE, false}, MLP);
  Toy t;
  compile_ok(&t, &o);
  expect_body(&t, "layer:F", 1, 3, 0);
  toy_free(&t);
  pair_agrees(&o);
}
END_TEST

START_TEST(colwise_table) {
  ToyOptions o = tp4();
  o.sp = _i % 2, o.tied = _i / 2;
  WITH_RULES(o, {"embed_tokens", STYLE_EMBEDDING_COLWISE, false},
             {"lm_head", o.tied ? STYLE_EMBEDDING_COLWISE : STYLE_COLWISE, false}, QKVO,
             MLP);
  pair_agrees(&o);
}
END_TEST

/* A rowwise head takes a cut input and gives whole logits. */
START_TEST(rowwise_rep) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, {"lm_head", STYLE_ROWWISE_REP, false}, QKVO,
             {"layers.*.mlp.gate_proj", STYLE_ROWWISE_REP, false},
             {"layers.*.mlp.up_proj", STYLE_ROWWISE_REP, false});
  for (int sp = 0; sp < 2; sp++) {
    o.sp = sp;
    pair_agrees(&o);
  }
}
END_TEST

START_TEST(rowwise_table) {
  ToyOptions o = tp4();
  WITH_RULES(o, {"embed_tokens", STYLE_ROWWISE, false}, {"lm_head", STYLE_ROWWISE, false},
             QKVO, MLP);
  pair_agrees(&o);
}
END_TEST

/* Norms on cut sequences although the residual stream is whole. */
START_TEST(sequence_norms_without_sp) {
  ToyOptions o = tp4();
  WITH_RULES(o, TABLE, HEAD, QKVO, MLP,
             {"layers.*.input_layernorm", STYLE_SEQUENCE, false},
             {"layers.*.post_attention_layernorm", STYLE_SEQUENCE, false},
             {"norm", STYLE_SEQUENCE, false});
  pair_agrees(&o);
  o.dp = 2, o.pp = 2;
  pair_agrees(&o);
}
END_TEST

START_TEST(replicate_everything) {
  ToyOptions o = tp4();
  WITH_RULES(o, {"layers.*.mlp.up_proj", STYLE_REPLICATE, false});
  Toy t;
  compile_ok(&t, &o);
  expect_body(&t, "layer:F", 0, 0, 0);
  expect_body(&t, "layer:I", 0, 0, 0);
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
  WITH_RULES(o, {"embed_tokens", STYLE_REPLICATE, false}, HEAD,
             {"layers.*.self_attn.q_proj", STYLE_COLWISE, false},
             {"layers.*.self_attn.k_proj", STYLE_REPLICATE, false},
             {"layers.*.self_attn.v_proj", STYLE_COLWISE, false},
             {"layers.*.self_attn.o_proj", STYLE_ROWWISE, false},
             {"layers.*.mlp.up_proj", STYLE_COLWISE, false},
             {"layers.0.mlp.down_proj", STYLE_ROWWISE, false});
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

/* A star is the number of a layer and nothing else. */
START_TEST(patterns_name_layers) {
  ck_assert(tp_pattern_matches("layers.*.up", "model.layers.12.up.weight", NULL));
  ck_assert(!tp_pattern_matches("layers.*.up", "model.layers.last.up.weight", NULL));
  ck_assert(!tp_pattern_matches("layers.*.up", "model.layers.12.mlp.up.weight", NULL));
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
  c = tcase_create("messages");
  tcase_add_test(c, unforced_gather_is_told);
  tcase_add_test(c, one_layer_has_a_rule_of_its_own);
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
  c = tcase_create("styles");
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
