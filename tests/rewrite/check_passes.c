/* check_passes.c - single passes of the compiler: offsets, gradients, the account of
 * memory; and that the prover accepts what they make together. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/one_rank_pair.h"
#include "vm/base/rng.h"
#include "vm/rewrite/fold_layers.h"
#include "vm/rewrite/rewrite_passes.h"
#include "vm/lower/lower.h"
#include "vm/storage/holes.h"

static Arena *arena;
static Diags diags;
static weft_error err;

static void setup(void) {
  arena = arena_new(NULL);
  diags = (Diags){.arena = arena};
  err = (weft_error){.rank = -1};
}
static void teardown(void) { arena_free(arena); }

/* ---- offsets ---- */

static uint64_t live_peak(const Interval *v, int n, int end) {
  uint64_t peak = 0;
  for (int t = 0; t <= end; t++) {
    uint64_t now = 0;
    for (int i = 0; i < n; i++)
      if (v[i].start <= t && t <= v[i].end) now += align_up(v[i].size);
    peak = MAX(peak, now);
  }
  return peak;
}

/* One assertion for all pairs: Check notes each one that it passes. */
static void no_overlap(const Interval *v, int n, uint64_t top) {
  for (int i = 0; i < n; i++) {
    bool ok = v[i].off % ALIGN == 0 && (v[i].size == 0 || v[i].off + v[i].size <= top);
    for (int k = 0; k < i; k++) {
      bool time = v[i].start <= v[k].end && v[k].start <= v[i].end;
      bool space = v[i].off < v[k].off + v[k].size && v[k].off < v[i].off + v[i].size;
      ok &= !(time && space);
    }
    ck_assert_msg(ok, "interval %d overlaps another or lies outside", i);
  }
}

/* Random lifetimes; sizes of a few kinds, as buffers have, or of any kind. */
static int random_intervals(Interval *v, int max, uint64_t seed, int end) {
  Rng r = rng_make(seed, "intervals");
  uint64_t at = 0;
  int n = 1 + (int)(rng_u32(&r, at++) % (uint32_t)max);
  bool kinds = seed % 2, sorted = seed / 2 % 2;
  for (int i = 0; i < n; i++) {
    int start = sorted ? i * end / n : (int)(rng_u32(&r, at++) % (uint32_t)end);
    int length = (int)(rng_u32(&r, at++) % (uint32_t)(seed % 3 ? end / 8 + 1 : end));
    uint64_t size = kinds ? 256ull << rng_u32(&r, at++) % 4 : rng_u32(&r, at++) % 5000;
    v[i] = (Interval){.start = start, .end = MIN(start + length, end), .size = size};
  }
  return n;
}

START_TEST(offsets_property) {
  enum { MOST = 200, END = 100 };
  Interval v[MOST], again[MOST];
  for (uint64_t seed = 0; seed < 300; seed++) {
    int n = random_intervals(v, MOST, seed, END);
    memcpy(again, v, sizeof *v * (size_t)n);
    uint64_t top = offsets(arena, v, n), peak = live_peak(v, n, END);
    no_overlap(v, n, top);
    ck_assert_uint_ge(top, peak);
    ck_assert_msg(top <= peak + peak / 2, "seed %d: %d bytes for a peak of %d", (int)seed,
                  (int)top, (int)peak);
    ck_assert_uint_eq(offsets(arena, again, n), top);
    ck_assert_mem_eq(v, again, sizeof *v * (size_t)n);
  }
}
END_TEST

/* The last position is inclusive; what does not meet shares its place. */
START_TEST(offsets_reuse) {
  Interval v[] = {{.start = 0, .end = 1, .size = 100},
                  {.start = 1, .end = 2, .size = 100},
                  {.start = 2, .end = 3, .size = 100},
                  {.start = 3, .end = 4, .size = 0}};
  ck_assert_uint_eq(offsets(arena, v, LEN(v)), 2 * ALIGN);
  ck_assert_uint_eq(v[0].off, v[2].off);
  ck_assert_uint_ne(v[0].off, v[1].off);
  ck_assert_uint_eq(offsets(arena, v, 0), 0);
}
END_TEST

/* The smallest hole that is large enough, so that large ones stay. */
START_TEST(holes_fit_best) {
  Holes h = {.arena = arena};
  uint64_t at[4], size[] = {4 * ALIGN, ALIGN, 2 * ALIGN, ALIGN};
  for (int i = 0; i < LEN(at); i++) at[i] = holes_take(&h, size[i]);
  holes_give(&h, at[0], size[0]);
  holes_give(&h, at[2], size[2]);
  ck_assert_uint_eq(holes_take(&h, ALIGN), at[2]);
  ck_assert_uint_eq(holes_take(&h, 4 * ALIGN), at[0]);
  ck_assert_uint_eq(h.top, 8 * ALIGN);
}
END_TEST

/* ---- autodiff ---- */

typedef struct Model {
  Graph *g;
  Tid ids, labels, x;
} Model;

static Tid op(Model *m, int code, const Tid *in, int nin, OpAttr attr, int which) {
  Tid out[8];
  weft_status st = graph_op(m->g, code, in, nin, &attr, NULL, 0, out, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  return out[which];
}
#define OP(m, code, ...)                                                                 \
  op(m, OP_##code, (Tid[]){__VA_ARGS__}, LEN(((Tid[]){__VA_ARGS__})), (OpAttr){0}, 0)

static Tid matrix(Model *m, const char *name, int rows, int columns) {
  Dim d[2] = {{.size = rows, .tag = TAG_VOCAB}, {.size = columns, .tag = TAG_HIDDEN}};
  Tid t;
  ck_assert_int_eq(graph_param(m->g, name, d, 2, INIT_NORMAL, 0.1f, &t, &err), WEFT_OK);
  return t;
}

/* An embedding of 4 features in a unit of its own. */
static void model_new(Model *m) {
  *m = (Model){.g = graph_new(arena, 2, 4)};
  m->ids = graph_input(m->g, IN_TOKENS), m->labels = graph_input(m->g, IN_LABELS);
  graph_open_unit(m->g, "embed", -1, &err);
  m->x = OP(m, embedding, m->ids, matrix(m, "embed.weight", 16, 4));
  graph_close_unit(m->g);
  graph_open_unit(m->g, "head", -1, &err);
}

static Tid loss_of(Model *m, Tid x) {
  Tid logits = OP(m, linear, x, matrix(m, "head.weight", 16, 4));
  Tid max = OP(m, ce_max, logits);
  return OP(m, ce_loss, OP(m, ce_sum, logits, m->labels, max), m->labels);
}

static weft_status differentiate(Model *m, Tid loss, Diags *d) {
  graph_close_unit(m->g);
  ck_assert_int_eq(graph_finish(m->g, loss, &err), WEFT_OK);
  *d = (Diags){.arena = arena};
  return autodiff(m->g, d);
}

static void no_gradient(Model *m, Tid loss, const char *text) {
  Diags d;
  ck_assert_int_eq(differentiate(m, loss, &d), WEFT_EPLAN);
  ck_assert_int_eq(d.list.n, 1);
  ck_assert_str_eq(d.list.at[0].summary, text);
}

START_TEST(autodiff_unused_parameter) {
  Model m;
  model_new(&m);
  (void)OP(&m, linear, m.x, matrix(&m, "adapter.weight", 16, 4));
  no_gradient(&m, loss_of(&m, m.x),
              "parameter adapter.weight does not influence the "
              "loss: remove it from the model");
}
END_TEST

START_TEST(autodiff_missing_rule) {
  Model m;
  model_new(&m);
  Oid id = graph_add(m.g, OP_ce_max, 1, 1, m.g->open_unit, PH_F);
  Tid loss = graph_tensor(m.g, T_VALUE, DT_F32, &(Dim){.size = 1}, 1);
  m.g->op.at[id].in[0] = m.x;
  m.g->op.at[id].out[0] = loss;
  m.g->t.at[loss].producer = id;
  no_gradient(&m, loss, "ce_max has no gradient");
}
END_TEST

START_TEST(autodiff_half_used) {
  Model m;
  model_new(&m);
  Tid wide = OP(&m, linear, m.x, matrix(&m, "wide.weight", 8, 4));
  Tid half = op(&m, OP_split, &wide, 1, (OpAttr){.n = 2}, 1);
  no_gradient(&m, loss_of(&m, half), "split: some results are used and some are not");
}
END_TEST

static int count_ops(const Graph *g, int code) {
  int n = 0;
  for (int i = 0; i < g->op.n; i++) n += g->op.at[i].code == code;
  return n;
}

/* No kernel adds more than eight: more uses are a chain of sums. */
START_TEST(autodiff_many_uses) {
  Model m;
  Diags d;
  model_new(&m);
  Tid sum = m.x;
  for (int i = 0; i < 80; i++) sum = OP(&m, add, sum, m.x);
  ck_assert_int_eq(differentiate(&m, loss_of(&m, sum), &d), WEFT_OK);
  ck_assert_int_eq(count_ops(m.g, OP_acc), 12); /* 81 contributions, 7 fewer by each */
}
END_TEST

/* Each contribution, and each partial sum, is added once. */
START_TEST(autodiff_adds_each_use_once) {
  Model m;
  Diags d;
  model_new(&m);
  Tid sum = m.x;
  for (int i = 0; i < 20; i++) sum = OP(&m, add, sum, OP(&m, silu, m.x));
  ck_assert_int_eq(differentiate(&m, loss_of(&m, sum), &d), WEFT_OK);
  int *added = NEW_N(arena, int, m.g->t.n), n = 0;
  for (int i = 0; i < m.g->op.n; i++) {
    const Op *x = &m.g->op.at[i];
    for (int k = 0; k < x->nin && x->code == OP_acc; k++, n++)
      ck_assert_int_eq(++added[x->in[k]], 1);
  }
  ck_assert_int_eq(n, 21 + 2); /* by three sums, the later ones of the earlier, too */
}
END_TEST

START_TEST(autodiff_many_units) {
  Model m;
  Diags d;
  model_new(&m);
  Tid sum = m.x;
  for (int i = 0; i < 9; i++) {
    graph_close_unit(m.g);
    graph_open_unit(m.g, arena_printf(arena, "skip.%d", i), -1, &err);
    sum = OP(&m, add, sum, OP(&m, silu, m.x));
  }
  ck_assert_int_eq(differentiate(&m, loss_of(&m, sum), &d), WEFT_OK);
  ck_assert_int_ge(count_ops(m.g, OP_acc), 2);
}
END_TEST

/* The loss does not depend on it: it is not computed. */
START_TEST(autodiff_drops_unused_ops) {
  Model m;
  Diags d;
  model_new(&m);
  (void)OP(&m, silu, OP(&m, linear, m.x, matrix(&m, "head.weight", 16, 4)));
  ck_assert_int_eq(differentiate(&m, loss_of(&m, m.x), &d), WEFT_OK);
  ck_assert_int_eq(count_ops(m.g, OP_silu), 0);
  ck_assert_int_eq(count_ops(m.g, OP_linear), 1);
  ck_assert_int_eq(graph_check(m.g, &err), WEFT_OK);
}
END_TEST

/* Everything at once. */
START_TEST(autodiff_all_problems) {
  Model m;
  Diags d;
  model_new(&m);
  (void)OP(&m, linear, m.x, matrix(&m, "a.weight", 16, 4));
  (void)OP(&m, linear, m.x, matrix(&m, "b.weight", 16, 4));
  ck_assert_int_eq(differentiate(&m, loss_of(&m, m.x), &d), WEFT_EPLAN);
  ck_assert_int_eq(d.errors, 2);
}
END_TEST

/* The phase that the dump of the joint graph gives an op: "12 I layers.0 ..." */
static void phases_of(const char *dump, const char *op_name, int count[4]) {
  char key[64];
  snprintf(key, sizeof key, "= %s ", op_name);
  memset(count, 0, sizeof(int) * 4);
  for (const char *line = dump; line && *line;) {
    const char *end = strchr(line, '\n'), *at_op = strstr(line, key);
    if (at_op && at_op < end) {
      static const char letters[] = "FIWU";
      const char *p = line + strspn(line, " 0123456789");
      ck_assert(strchr(letters, *p));
      count[strchr(letters, *p) - letters]++;
    }
    line = end ? end + 1 : NULL;
  }
}

START_TEST(autodiff_phases) {
  ToyOptions o = toy_default();
  o.bias = true;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, "a"), WEFT_OK);
  static const struct {
    const char *op;
    int f, i, w; /* in 4 layers */
  } want[] = {
      {"linear", 4 * 7 + 1, 0, 0},
      {"linear_dx", 0, 4 * 7 + 1, 0},
      {"linear_dw", 0, 0, 4 * 7 + 1},
      {"bias_dw", 0, 0, 4 * 5},
      {"rmsnorm_dx", 0, 9, 0},
      {"rmsnorm_dw", 0, 0, 9},
      {"attention_dx", 0, 4, 0},
      {"silu_mul_dx", 0, 4, 0},
      {"rope", 8, 8, 0},
      {"ce_dx", 0, 1, 0},
      {"embedding_dw", 0, 0, 1},
      {"acc", 0, 4 * 4, 0},
  };
  for (int k = 0; k < LEN(want); k++) {
    int n[4];
    phases_of(t.dump.s, want[k].op, n);
    ck_assert_msg(n[PH_F] == want[k].f && n[PH_I] == want[k].i && n[PH_W] == want[k].w,
                  "%s: %d F, %d I, %d W", want[k].op, n[PH_F], n[PH_I], n[PH_W]);
  }
  toy_free(&t);
}
END_TEST

/* ---- memory ---- */

static size_t given; /* bytes that the device was asked for */

static weft_status metered_alloc(Device *d, size_t bytes, void **p, weft_error *e) {
  given += bytes;
  return device_cpu.alloc(d, bytes, p, e);
}

/* The account of a program is what a rank that runs it allocates. */
static void check_memory(const Compiled *c, int rank) {
  const Program *p = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)];
  uint64_t sum = 0, state = 0;
  for (int i = 0; i < p->nmem; i++) sum += p->mem[i].bytes;
  ck_assert_uint_eq(sum, p->arena_bytes);
  for (int i = 0; i < p->regions.nregion; i++)
    if (p->regions.region[i].kind == REGION_GRAD)
      state += align_up(region_bytes(&p->regions.region[i]));
  ck_assert_str_eq(p->mem[0].name, "parameters");
  ck_assert_uint_gt(p->arena_bytes, 4 * state / (c->dtype == DT_F32 ? 1 : 2));
  DeviceVtable vt = device_cpu;
  vt.alloc = metered_alloc;
  Device dev;
  Rank *r;
  given = 0;
  ck_assert_int_eq(device_open(&dev, &vt, NULL, rank, 0, 1, &err), WEFT_OK);
  weft_status st = rank_new(NULL, c, rank, &dev, &r, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  ck_assert_uint_eq(given, p->arena_bytes);
  rank_free(r);
  device_close(&dev);
}

/* Every mesh that divides a toy, with and without what changes buffers. */
START_TEST(memory_and_proof) {
  static const int mesh[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1},
                                {2, 1, 2}, {1, 4, 2}, {2, 2, 2}, {2, 4, 1}};
  ToyOptions o = toy_default();
  o.microbatches = 4;
  o.tp = mesh[_i][0], o.pp = mesh[_i][1], o.dp = mesh[_i][2];
  for (int k = 0; k < 16; k++) {
    o.sp = k & 1, o.tied = k >> 1 & 1, o.overlap = k >> 2 & 1;
    o.dtype = k >> 3 & 1 ? DT_BF16 : DT_F32;
    Toy t;
    weft_status st = toy_compile(&t, &o, NULL);
    ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, t.err.text, toy_diags(&t));
    Proof proof;
    st = prove(t.compiled, &proof, &err);
    ck_assert_msg(st == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(proof.transfers, 2 * (o.pp - 1) * o.microbatches);
    for (int r = 0; r < t.compiled->mesh.world; r++) check_memory(t.compiled, r);
    toy_free(&t);
  }
}
END_TEST

/* 1F1B keeps at most pp microbatches alive: more of them cost no activations. */
START_TEST(memory_of_1f1b) {
  uint64_t activations[2];
  for (int k = 0; k < 2; k++) {
    ToyOptions o = toy_default();
    o.pp = 2, o.microbatches = k ? 16 : 4;
    Toy t;
    ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
    const Program *p = &t.compiled->prog[0];
    activations[k] = 0;
    for (int i = 0; i < p->nmem; i++)
      if (strcmp(p->mem[i].name, "activations") == 0) activations[k] = p->mem[i].bytes;
    toy_free(&t);
  }
  ck_assert_uint_gt(activations[0], 0);
  ck_assert_uint_eq(activations[0], activations[1]);
}
END_TEST

/* Equal layers share their bodies, whatever their names and numbers. */
START_TEST(equal_layers_share_bodies) {
  ToyOptions o = toy_default();
  o.layers = 12, o.bias = true;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  const Program *p = &t.compiled->prog[0];
  ck_assert_int_eq(p->nbody, 11); /* 4 units x F, I, W; nothing before the table */
  toy_free(&t);
}
END_TEST

/* Units that repeat are compiled once; a dump shows all, so that nothing is left out. The
 * programs are the same, whatever comes before and after the run. */
START_TEST(folded_is_whole) {
  static const int mesh[][3] = {{1, 1, 1}, {2, 1, 1}, {2, 3, 1}, {2, 2, 2}, {1, 4, 2}};
  for (int k = 0; k < 8; k++) {
    ToyOptions o = toy_default();
    o.layers = 6 + 3 * (k & 3), o.microbatches = 4, o.bias = k & 1;
    o.tp = mesh[_i][0], o.pp = mesh[_i][1], o.dp = mesh[_i][2];
    o.sp = k & 1, o.tied = k >> 1 & 1, o.dtype = k >> 2 & 1 ? DT_BF16 : DT_F32;
    Toy all, few;
    ck_assert_int_eq(toy_compile(&all, &o, ""), WEFT_OK);
    ck_assert_int_eq(toy_compile(&few, &o, NULL), WEFT_OK);
    ck_assert(!fold_layers(few.graph, &few.plan, arena) == (o.layers < 7));
    for (int r = 0; r < all.mesh.world; r++) {
      Text want = {0}, got = {0};
      program_json(all.compiled, r, &want);
      program_json(few.compiled, r, &got);
      ck_assert_str_eq(want.s, got.s);
      text_free(&want), text_free(&got);
    }
    toy_free(&all), toy_free(&few);
  }
}
END_TEST

/* A layer that a rule names is not like the others, nor is one whose parameter another
 * unit uses. */
START_TEST(fold_keeps_what_differs) {
  ToyOptions o = toy_default();
  static const TpRule rules[] = {{"layers.*.mlp.gate_proj", STYLE_COLWISE, true, 0},
                                 {"layers.5.mlp.gate_proj", STYLE_REPLICATE, true, 0}};
  o.layers = 20, o.tp = 1;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  Fold *f = fold_layers(t.graph, &t.plan, arena);
  ck_assert_int_eq(f->run.n, 1);
  ck_assert_int_eq(f->g->unit.n,
                   t.graph->unit.n - (f->run.at[0].back - f->run.at[0].left));
  t.plan.tp = rules, t.plan.ntp = LEN(rules);
  f = fold_layers(t.graph, &t.plan, arena);
  for (int i = 0; i < f->run.n; i++)
    ck_assert(f->run.at[i].first > 6 || f->run.at[i].last < 6);
  toy_free(&t);
}
END_TEST

Suite *passes_suite(void) {
  Suite *s = suite_create("passes");
  TCase *c = tcase_create("offsets");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, offsets_property);
  tcase_add_test(c, offsets_reuse);
  tcase_add_test(c, holes_fit_best);
  suite_add_tcase(s, c);
  c = tcase_create("autodiff");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, autodiff_unused_parameter);
  tcase_add_test(c, autodiff_missing_rule);
  tcase_add_test(c, autodiff_half_used);
  tcase_add_test(c, autodiff_many_uses);
  tcase_add_test(c, autodiff_adds_each_use_once);
  tcase_add_test(c, autodiff_many_units);
  tcase_add_test(c, autodiff_drops_unused_ops);
  tcase_add_test(c, autodiff_all_problems);
  tcase_add_test(c, autodiff_phases);
  suite_add_tcase(s, c);
  c = tcase_create("memory");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, memory_and_proof, 0, 9);
  tcase_add_test(c, memory_of_1f1b);
  tcase_add_test(c, equal_layers_share_bodies);
  tcase_add_loop_test(c, folded_is_whole, 0, 5);
  tcase_add_test(c, fold_keeps_what_differs);
  suite_add_tcase(s, c);
  return s;
}
