/* check_passes.c - single passes of the compiler: stages, offsets, gradients,
 * the account of memory; and that the prover accepts what they make together. */
#include <check.h>
#include <stdio.h>

#include "pair.h"
#include "vm/base/rng.h"
#include "vm/compile/passes.h"

static Arena *arena;
static Diags diags;
static weft_error err;

static void setup(void) {
  arena = arena_new(NULL);
  diags = (Diags){.arena = arena};
  err = (weft_error){.rank = -1};
}
static void teardown(void) { arena_free(arena); }

/* All diagnostics so far, one a line: "path: text; suggestion". */
static const char *told(void) {
  char *all = arena_str(arena, "");
  for (int i = 0; i < diags.list.n; i++) {
    const Diag *d = &diags.list.at[i];
    all = arena_printf(arena, "%s%s: %s%s%s\n", all, d->path, d->summary,
                       d->suggestion ? "; " : "", d->suggestion ? d->suggestion : "");
  }
  return all;
}

/* ---- stage ---- */

/* A model of embed_tokens, `layers` layers, norm and lm_head, without ops. */
typedef struct Cut {
  Plan plan;
  Mesh mesh;
  Schedule schedule;
  CompileInput in;
  Stages st;
} Cut;

static void cut_new(Cut *c, int layers, int pp, int virtual_stages) {
  *c = (Cut){.schedule = {.ranks = pp, .virtual_stages = virtual_stages}};
  MeshSpec spec = {.pp = pp};
  ck_assert(mesh_resolve(&spec, 0, &c->mesh, &diags));
  Graph *g = graph_new(arena, 1, 8);
  graph_open_unit(g, "embed_tokens", -1, &err);
  graph_close_unit(g);
  for (int i = 0; i < layers; i++) {
    graph_open_unit(g, arena_printf(arena, "layers.%d", i), i, &err);
    graph_close_unit(g);
  }
  static const char *const last[] = {"norm", "lm_head"};
  for (int i = 0; i < LEN(last); i++) {
    graph_open_unit(g, last[i], -1, &err);
    graph_close_unit(g);
  }
  c->in = (CompileInput){.plan = &c->plan, .mesh = &c->mesh, .graph = g,
                         .schedule = &c->schedule, .arena = arena};
}

/* "embed_tokens layers.0 | layers.1 norm lm_head" */
static const char *cut_text(const Cut *c) {
  char *s = arena_str(arena, "");
  for (int i = 0; i < c->st.n; i++)
    for (int u = c->st.first[i]; u < c->st.first[i + 1]; u++) {
      ck_assert_int_eq(c->st.of_unit[u], i);
      s = arena_printf(arena, "%s%s%s", s,
                       u == 0 ? "" : u == c->st.first[i] ? " | " : " ",
                       c->in.graph->unit.at[u].name);
    }
  return s;
}

static void layers_per_stage(const Cut *c, const int *want) {
  for (int s = 0; s < c->st.n; s++) {
    int n = 0;
    for (int u = c->st.first[s]; u < c->st.first[s + 1]; u++)
      n += c->in.graph->unit.at[u].layer >= 0;
    ck_assert_msg(n == want[s], "stage %d has %d layers, not %d", s, n, want[s]);
  }
  ck_assert_int_eq(c->st.first[c->st.n], c->in.graph->unit.n);
}

START_TEST(stage_even) {
  static const struct {
    int layers, pp, virtual_stages, want[16];
  } all[] = {
      {126, 16, 1, {7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7}},
      {127, 16, 1, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7}},
      {125, 16, 1, {7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7, 7}},
      {5, 4, 1, {1, 2, 1, 1}},
      {8, 4, 1, {2, 2, 2, 2}},
      {9, 2, 2, {2, 3, 2, 2}},
      {4, 4, 1, {1, 1, 1, 1}},
      {3, 1, 1, {3}},
  };
  for (int i = 0; i < LEN(all); i++) {
    Cut c;
    cut_new(&c, all[i].layers, all[i].pp, all[i].virtual_stages);
    ck_assert(stage(&c.in, &c.st, &diags));
    layers_per_stage(&c, all[i].want);
  }
  ck_assert_int_eq(diags.list.n, 0);
}
END_TEST

START_TEST(stage_layers) {
  Cut c;
  cut_new(&c, 5, 3, 1);
  c.plan.pp.layers = (const int[]){1, 3, 1}, c.plan.pp.nlayers = 3;
  ck_assert(stage(&c.in, &c.st, &diags));
  ck_assert_str_eq(cut_text(&c), "embed_tokens layers.0 | layers.1 layers.2 layers.3 | "
                                 "layers.4 norm lm_head");
  /* The first and the last stage may have no layer: they have other units. */
  c.plan.pp.layers = (const int[]){0, 5, 0};
  ck_assert(stage(&c.in, &c.st, &diags));
  ck_assert_str_eq(cut_text(&c), "embed_tokens | layers.0 layers.1 layers.2 layers.3 "
                                 "layers.4 | norm lm_head");
  ck_assert_int_eq(diags.list.n, 0);
}
END_TEST

#define MODULES(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(stage_modules) {
  Cut c;
  cut_new(&c, 2, 2, 1);
  const char *const *lists[] = {MODULES("embed_tokens", "layers.0", "layers.1", "norm"),
                                MODULES("lm_head")};
  c.plan.pp.modules = lists, c.plan.pp.nmodules = 2;
  ck_assert(stage(&c.in, &c.st, &diags));
  ck_assert_str_eq(cut_text(&c), "embed_tokens layers.0 layers.1 norm | lm_head");
}
END_TEST

static void no_stages(Cut *c, const char *text) {
  diags = (Diags){.arena = arena};
  ck_assert(!stage(&c->in, &c->st, &diags));
  ck_assert_str_eq(told(), text);
}

START_TEST(stage_errors) {
  Cut c;
  cut_new(&c, 3, 4, 1);
  no_stages(&c, "mesh.pp: 3 layers cannot fill 4 stages (pp = 4 x virtual = 1)\n");
  cut_new(&c, 5, 2, 1);
  c.plan.pp.layers = (const int[]){2, 2}, c.plan.pp.nlayers = 2;
  no_stages(&c, "pp_plan.layers: 2 stages with 4 layers in all; the model has 5 layers "
                "and needs 2 stages\n");
  c.plan.pp.layers = (const int[]){1, 2, 2}, c.plan.pp.nlayers = 3;
  no_stages(&c, "pp_plan.layers: 3 stages with 5 layers in all; the model has 5 layers "
                "and needs 2 stages\n");
  cut_new(&c, 5, 3, 1);
  c.plan.pp.layers = (const int[]){2, 0, 3}, c.plan.pp.nlayers = 3;
  no_stages(&c, "pp_plan.layers: stage 1 is empty\n");
  c.plan.pp.layers = (const int[]){3, -1, 3};
  no_stages(&c, "pp_plan.layers: stage 1 has -1 layers\n");
}
END_TEST

START_TEST(stage_module_errors) {
  Cut c;
  cut_new(&c, 2, 2, 1);
  c.plan.pp.nmodules = 2;
#define LISTS(a, b) (c.plan.pp.modules = (const char *const *const[]){a, b})
#define FIRST MODULES("embed_tokens", "layers.0")
  LISTS(FIRST, MODULES("layers.1", "nrom", "lm_head"));
  no_stages(&c, "pp_plan.modules[2][2]: the model has no unit \"nrom\"; did you mean "
                "\"norm\"?\n");
  LISTS(FIRST, MODULES("layers.0", "norm", "lm_head"));
  no_stages(&c, "pp_plan.modules[2][1]: \"layers.0\" is out of order or listed twice: "
                "\"layers.1\" is next\npp_plan.modules[2][2]: \"norm\" is out of order "
                "or listed twice: \"layers.1\" is next\n");
  LISTS(FIRST, MODULES("layers.1", "norm", "lm_head", "lm_head"));
  no_stages(&c, "pp_plan.modules[2][4]: \"lm_head\" is listed twice\n");
  LISTS(FIRST, MODULES("layers.1", "norm"));
  no_stages(&c, "pp_plan.modules: \"lm_head\" is in no stage\n");
  LISTS(MODULES("embed_tokens", "layers.0", "layers.1", "norm", "lm_head"),
        MODULES(NULL));
  no_stages(&c, "pp_plan.modules: stage 1 is empty\n");
  LISTS(FIRST, MODULES("layers.1", "norm", "lm_head"));
  c.plan.pp.nmodules = 1;
  no_stages(&c, "pp_plan.modules: 1 list for 2 stages\n");
}
END_TEST

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
  ck_assert_uint_eq(offsets(arena, v, LEN(v)), 256);
  ck_assert_uint_eq(v[0].off, v[2].off);
  ck_assert_uint_ne(v[0].off, v[1].off);
  ck_assert_uint_eq(offsets(arena, v, 0), 0);
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

static void no_gradient(Model *m, Tid loss, const char *text) {
  graph_close_unit(m->g);
  ck_assert_int_eq(graph_finish(m->g, loss, &err), WEFT_OK);
  ck_assert_int_eq(autodiff(m->g, &err), WEFT_EPLAN);
  ck_assert_str_eq(err.text, text);
}

START_TEST(autodiff_unused_parameter) {
  Model m;
  model_new(&m);
  (void)OP(&m, linear, m.x, matrix(&m, "adapter.weight", 16, 4));
  no_gradient(&m, loss_of(&m, m.x), "parameter adapter.weight does not influence the "
                                    "loss: remove it from the model");
}
END_TEST

START_TEST(autodiff_missing_rule) {
  Model m;
  model_new(&m);
  Tid max = OP(&m, ce_max, OP(&m, linear, m.x, matrix(&m, "head.weight", 16, 4)));
  no_gradient(&m, OP(&m, ce_loss, max, m.labels), "op ce_max () has no gradient");
}
END_TEST

START_TEST(autodiff_half_used) {
  Model m;
  model_new(&m);
  Tid wide = OP(&m, linear, m.x, matrix(&m, "wide.weight", 8, 4));
  Tid half = op(&m, OP_split, &wide, 1, (OpAttr){.n = 2}, 1);
  no_gradient(&m, loss_of(&m, half), "split (): some results are used and some are not");
}
END_TEST

START_TEST(autodiff_too_many_uses) {
  Model m;
  model_new(&m);
  Tid sum = m.x;
  for (int i = 0; i < 8; i++) sum = OP(&m, add, sum, m.x);
  no_gradient(&m, loss_of(&m, sum), "embedding of embed is read by 9 ops of one unit; at "
                                    "most 8 are supported");
}
END_TEST

START_TEST(autodiff_too_many_units) {
  Model m;
  model_new(&m);
  Tid sum = m.x;
  for (int i = 0; i < 9; i++) {
    graph_close_unit(m.g);
    graph_open_unit(m.g, arena_printf(arena, "skip.%d", i), -1, &err);
    sum = OP(&m, add, sum, OP(&m, silu, m.x));
  }
  no_gradient(&m, loss_of(&m, sum), "embedding of embed is read in 9 units; at most 8 "
                                    "are supported");
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
    int f, i, w;           /* in 4 layers */
  } want[] = {
      {"linear", 4 * 7 + 1, 0, 0}, {"linear_dx", 0, 4 * 7 + 1, 0},
      {"linear_dw", 0, 0, 4 * 7 + 1}, {"bias_dw", 0, 0, 4 * 5},
      {"rmsnorm_dx", 0, 9, 0}, {"rmsnorm_dw", 0, 0, 9},
      {"attention_dx", 0, 4, 0}, {"silu_mul_dx", 0, 4, 0},
      {"rope", 8, 8, 0}, {"ce_dx", 0, 1, 0}, {"embedding_dw", 0, 0, 1},
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

static size_t given;       /* bytes that the device was asked for */

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
  for (int i = 0; i < p->nparam; i++) state += align_up((uint64_t)p->param[i].count * 4);
  ck_assert_str_eq(p->mem[0].name, "parameters");
  ck_assert_uint_gt(p->arena_bytes, 4 * state / (c->dtype == DT_F32 ? 1 : 2));
  DeviceVtable vt = device_cpu;
  vt.alloc = metered_alloc;
  Device dev;
  Rank *r;
  given = 0;
  ck_assert_int_eq(device_open(&dev, &vt, NULL, rank, 1, &err), WEFT_OK);
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
  ck_assert_int_eq(p->nbody, 11);    /* 4 units x F, I, W; nothing before the table */
  toy_free(&t);
}
END_TEST

Suite *passes_suite(void) {
  Suite *s = suite_create("passes");
  TCase *c = tcase_create("stage");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, stage_even);
  tcase_add_test(c, stage_layers);
  tcase_add_test(c, stage_modules);
  tcase_add_test(c, stage_errors);
  tcase_add_test(c, stage_module_errors);
  suite_add_tcase(s, c);
  c = tcase_create("offsets");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, offsets_property);
  tcase_add_test(c, offsets_reuse);
  suite_add_tcase(s, c);
  c = tcase_create("autodiff");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, autodiff_unused_parameter);
  tcase_add_test(c, autodiff_missing_rule);
  tcase_add_test(c, autodiff_half_used);
  tcase_add_test(c, autodiff_too_many_uses);
  tcase_add_test(c, autodiff_too_many_units);
  tcase_add_test(c, autodiff_phases);
  suite_add_tcase(s, c);
  c = tcase_create("memory");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, memory_and_proof, 0, 9);
  tcase_add_test(c, memory_of_1f1b);
  tcase_add_test(c, equal_layers_share_bodies);
  suite_add_tcase(s, c);
  return s;
}
