/* check_stages.c - the pass that cuts the model into stages: every way in which pp_plan
 * can say it, the split by cost against all splits there are, and the layout notation. */
#include <check.h>

#include "tests/harness/one_rank_pair.h"
#include "vm/base/rng.h"
#include "vm/pipeline/stages.h"
#include "vm/compile/graph_passes.h"
#include "vm/compile/compile.h"

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

/* A model of embed_tokens, `layers` layers, norm and lm_head, without code. */
typedef struct Model {
  Plan plan;
  Mesh mesh;
  Schedule schedule;
  Units units;
  Stages st;
} Model;

static const UnitBody no_body;
static const UnitCode no_code = {.body = {&no_body, &no_body, &no_body}};

static void add_unit(Units *u, const char *name, int layer) {
  u->at[u->n++] = (CompiledUnit){.name = name, .layer = layer, .code = &no_code};
}

static void model_new(Model *c, int layers, int pp, int virtual_stages) {
  *c = (Model){.schedule = {.ranks = pp, .virtual_stages = virtual_stages}};
  c->units.at = NEW_N(arena, CompiledUnit, layers + 3);
  add_unit(&c->units, "embed_tokens", -1);
  for (int i = 0; i < layers; i++)
    add_unit(&c->units, arena_printf(arena, "layers.%d", i), i);
  add_unit(&c->units, "norm", -1);
  add_unit(&c->units, "lm_head", -1);
}

static bool cut(Model *c) {
  return stages(&c->units, &c->plan.pp, &c->schedule, arena, &c->st, &diags);
}

/* "embed_tokens layers.0 | layers.1 norm lm_head" */
static const char *cut_text(const Model *c) {
  char *s = arena_str(arena, "");
  for (int i = 0; i < c->st.n; i++)
    for (int u = c->st.first[i]; u < c->st.first[i + 1]; u++) {
      ck_assert_int_eq(c->st.of_unit[u], i);
      s = arena_printf(arena, "%s%s%s", s,
                       u == 0                ? ""
                       : u == c->st.first[i] ? " | "
                                             : " ",
                       c->units.at[u].name);
    }
  return s;
}

static void layers_are(const Model *c, const int *want) {
  for (int s = 0; s < c->st.n; s++) {
    int n = 0;
    for (int u = c->st.first[s]; u < c->st.first[s + 1]; u++)
      n += c->units.at[u].layer >= 0;
    ck_assert_msg(n == want[s], "stage %d has %d layers, not %d", s, n, want[s]);
  }
  ck_assert_int_eq(c->st.first[c->st.n], c->units.n);
}

START_TEST(even) {
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
    Model c;
    model_new(&c, all[i].layers, all[i].pp, all[i].virtual_stages);
    ck_assert(cut(&c));
    layers_are(&c, all[i].want);
  }
  ck_assert_int_eq(diags.list.n, 0);
}
END_TEST

START_TEST(listed_layers) {
  Model c;
  model_new(&c, 5, 3, 1);
  c.plan.pp.layers = (const int[]){1, 3, 1}, c.plan.pp.nlayers = 3;
  ck_assert(cut(&c));
  ck_assert_str_eq(cut_text(&c), "embed_tokens layers.0 | layers.1 layers.2 layers.3 | "
                                 "layers.4 norm lm_head");
  /* The first and the last stage may have no layer: they have other units. */
  c.plan.pp.layers = (const int[]){0, 5, 0};
  ck_assert(cut(&c));
  ck_assert_str_eq(cut_text(&c), "embed_tokens | layers.0 layers.1 layers.2 layers.3 "
                                 "layers.4 | norm lm_head");
  ck_assert_int_eq(diags.list.n, 0);
}
END_TEST

#define MODULES(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(modules) {
  Model c;
  model_new(&c, 2, 2, 1);
  const char *const *lists[] = {MODULES("embed_tokens", "layers.0", "layers.1", "norm"),
                                MODULES("lm_head")};
  c.plan.pp.modules = lists, c.plan.pp.nmodules = 2;
  ck_assert(cut(&c));
  ck_assert_str_eq(cut_text(&c), "embed_tokens layers.0 layers.1 norm | lm_head");
}
END_TEST

static void no_stages(Model *c, const char *text) {
  diags = (Diags){.arena = arena};
  ck_assert(!cut(c));
  ck_assert_str_eq(told(), text);
}

START_TEST(errors) {
  Model c;
  model_new(&c, 3, 4, 1);
  no_stages(&c, "mesh.pp: 4 stages (pp = 4 x virtual = 1), but the model has 3 layers\n");
  model_new(&c, 5, 2, 1);
  c.plan.pp.layers = (const int[]){2, 2}, c.plan.pp.nlayers = 2;
  no_stages(&c, "pp_plan.layers: the stages have 4 layers together, the model has 5\n");
  c.plan.pp.layers = (const int[]){1, 2, 2}, c.plan.pp.nlayers = 3;
  no_stages(&c, "pp_plan.layers: the list has 3 stages, but there are 2 stages (pp = 2 x "
                "virtual = 1)\n");
  c.plan.pp.layers = (const int[]){1, 2, 1, 1}, c.plan.pp.nlayers = 4;
  no_stages(&c, "pp_plan.layers: the list has 4 stages, but there are 2 stages (pp = 2 x "
                "virtual = 1); pp_plan.virtual = 2 would fit\n");
  model_new(&c, 5, 3, 1);
  c.plan.pp.layers = (const int[]){2, 0, 3}, c.plan.pp.nlayers = 3;
  no_stages(&c, "pp_plan.layers: stage 1 is empty\n");
  c.plan.pp.layers = (const int[]){3, -1, 3};
  no_stages(&c, "pp_plan.layers: stage 1 has -1 layers\n");
}
END_TEST

START_TEST(module_errors) {
  Model c;
  model_new(&c, 2, 2, 1);
  c.plan.pp.nmodules = 2;
#define LISTS(a, b) (c.plan.pp.modules = (const char *const *const[]){a, b})
#define FIRST       MODULES("embed_tokens", "layers.0")
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

/* ---- layers that the ends have less ---- */

typedef struct Less {
  int layers, pp, chunks, first, last, want[16];
} Less;

/* The embedding counts as `first` layers, the head as `last`; what is left over goes to
 * the first stages. */
START_TEST(less_layers) {
  static const Less all[] = {
      {126, 16, 1, 1, 1, {7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7}},
      {32, 4, 1, 1, 1, {8, 9, 8, 7}},
      {32, 2, 2, 1, 1, {8, 9, 8, 7}},
      {30, 4, 1, 1, 1, {7, 8, 8, 7}},
      {8, 4, 1, 2, 0, {1, 3, 2, 2}},
      {7, 4, 1, 0, 2, {3, 2, 2, 0}},
      {8, 4, 1, 2, 2, {1, 3, 3, 1}},
      {5, 1, 1, 1, 2, {5}},
  };
  for (int i = 0; i < LEN(all); i++) {
    Model c;
    model_new(&c, all[i].layers, all[i].pp, all[i].chunks);
    c.plan.pp.first_less = all[i].first, c.plan.pp.last_less = all[i].last;
    ck_assert_msg(cut(&c), "%s", told());
    layers_are(&c, all[i].want);
  }
}
END_TEST

START_TEST(less_layers_than_there_are) {
  Model c;
  model_new(&c, 8, 4, 1);
  c.plan.pp.first_less = 6;
  no_stages(&c, "pp_plan.first_stage_less_layers: stage 0 would have -2 layers: with 8 "
                "layers in 4 stages (pp = 4 x virtual = 1) a stage has 4 at most to "
                "give\n");
  c.plan.pp.first_less = 0, c.plan.pp.last_less = 8;
  no_stages(&c, "pp_plan.last_stage_less_layers: stage 3 would have -4 layers: with 8 "
                "layers in 4 stages (pp = 4 x virtual = 1) a stage has 4 at most to "
                "give\n");
}
END_TEST

START_TEST(layers_per_stage) {
  Model c;
  model_new(&c, 10, 2, 2);
  c.plan.pp.layers_per_stage = 3; /* 4 stages, then as without */
  ck_assert_msg(cut(&c), "%s", told());
  layers_are(&c, (const int[]){2, 3, 3, 2});
  c.plan.pp.first_less = c.plan.pp.last_less = 1;
  ck_assert_msg(cut(&c), "%s", told());
  layers_are(&c, (const int[]){2, 3, 3, 2});
  c.plan.pp.layers_per_stage = 2;
  no_stages(&c, "pp_plan.layers_per_stage: 1 + 10 + 1 layers, at most 2 each, make 6 "
                "stages, but there are 4 stages (pp = 2 x virtual = 2); pp_plan.virtual "
                "= 3 would fit\n");
  c.plan.pp.first_less = c.plan.pp.last_less = 0;
  no_stages(&c, "pp_plan.layers_per_stage: 10 layers, at most 2 each, make 5 stages, but "
                "there are 4 stages (pp = 2 x virtual = 2); "
                "round_virtual_stages_to_pp_multiple = \"up\" would make 6\n");
  c.plan.pp.round = ROUND_DOWN;
  ck_assert_msg(cut(&c), "%s", told());
  layers_are(&c, (const int[]){2, 3, 3, 2});
}
END_TEST

/* ---- equal work ---- */

typedef struct Split {
  const double *cost;
  int units, stages;
  double longest, squares; /* of the best split so far */
  int first[16];
} Split;

/* All splits of units [from, units) into the stages from `s` on. */
static void try_all(Split *x, int *first, int s, int from) {
  first[s] = from;
  if (s == x->stages) {
    double longest = 0, squares = 0;
    if (from != x->units) return;
    for (int k = 0; k < s; k++) {
      double sum = 0;
      for (int u = first[k]; u < first[k + 1]; u++) sum += x->cost[u];
      longest = MAX(longest, sum);
      squares += sum * sum;
    }
    if (longest > x->longest || (longest == x->longest && squares > x->squares)) return;
    /* Of equal ones the one whose last stages begin first. */
    bool same = longest == x->longest && squares == x->squares, earlier = false;
    for (int k = x->stages - 1; same && k > 0 && !earlier; k--) {
      if (first[k] > x->first[k]) return;
      earlier = first[k] < x->first[k];
    }
    x->longest = longest, x->squares = squares;
    memcpy(x->first, first, sizeof(int) * (size_t)(s + 1));
    return;
  }
  for (int to = from + 1; to <= x->units; to++) try_all(x, first, s + 1, to);
}

START_TEST(balance_is_the_best_of_all) {
  Rng rng = rng_make(3, "balance");
  uint64_t at = 0;
  for (int round = 0; round < 400; round++) {
    double cost[9];
    int units = 1 + (int)(rng_u32(&rng, at++) % 9), most = round % 2 ? 4 : 1000;
    Split x = {.cost = cost, .units = units, .longest = 1e9};
    x.stages = 1 + (int)(rng_u32(&rng, at++) % (uint32_t)MIN(units, 6));
    for (int u = 0; u < units; u++) cost[u] = rng_u32(&rng, at++) % (uint32_t)most;
    int first[16], got[16];
    try_all(&x, first, 0, 0);
    stage_balance(arena, cost, units, x.stages, got);
    for (int k = 0; k <= x.stages; k++)
      ck_assert_msg(got[k] == x.first[k], "round %d: stage %d begins with %d, not %d",
                    round, k, got[k], x.first[k]);
  }
}
END_TEST

/* Costs of any size are told apart. */
START_TEST(balance_of_large_costs) {
  double cost[] = {3e15, 1e15, 1e15, 1e15, 4e15 + 1e6}, tiny[] = {0, 0, 0, 0};
  int first[5];
  for (int k = 0; k < 3; k++) {
    stage_balance(arena, cost, 5, 3, first);
    ck_assert_int_eq(first[1], 1);
    ck_assert_int_eq(first[2], 4);
    for (int u = 0; u < 5; u++) cost[u] *= 1e4;
  }
  stage_balance(arena, tiny, 4, 4, first);
  for (int k = 0; k <= 4; k++) ck_assert_int_eq(first[k], k);
}
END_TEST

/* The units of a toy with their work on one rank. */
static Units units_of(const Toy *t) {
  Units *u;
  CompileInput in = {.plan = &t->plan,
                     .mesh = &t->mesh,
                     .graph = t->graph,
                     .arena = arena,
                     .scratch = arena_new(NULL)};
  ck_assert_int_eq(compile_units(&in, false, arena, &u, &diags, &err), WEFT_OK);
  arena_free(in.scratch);
  return *u;
}

static double stage_work(const Stages *st, int s) {
  double sum = 0;
  for (int u = st->first[s]; u < st->first[s + 1]; u++) sum += st->u->at[u].code->cost;
  return sum;
}

/* A head that is as dear as some layers gets fewer of them. */
START_TEST(balance_counts_the_head) {
  ToyOptions o = toy_default();
  o.layers = 8, o.pp = 4, o.vocab = 640;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  Units u = units_of(&t);
  Stages even, cost;
  ck_assert(stages(&u, &t.plan.pp, &t.schedule, arena, &even, &diags));
  t.plan.pp.by_cost = true;
  ck_assert(stages(&u, &t.plan.pp, &t.schedule, arena, &cost, &diags));
  double longest = 0, was = 0;
  for (int s = 0; s < 4; s++) {
    longest = MAX(longest, stage_work(&cost, s));
    was = MAX(was, stage_work(&even, s));
  }
  ck_assert_double_lt(longest, was);
  ck_assert_int_gt(cost.first[3], even.first[3]);
  toy_free(&t);
}
END_TEST

START_TEST(balance_needs_units) {
  Model c;
  model_new(&c, 1, 5, 1);
  c.plan.pp.by_cost = true;
  no_stages(&c, "pp_plan.balance: 4 units cannot fill 5 stages\n");
}
END_TEST

/* ---- layouts ---- */

/* "3 2 2": the layers of each stage, or what is wrong. */
static const char *layout_text(const char *text) {
  const char *wrong;
  int n, further;
  const int *layers = pp_layout(text, arena, &n, &further, &wrong);
  if (!layers) return wrong;
  char *s = arena_str(arena, "");
  for (int i = 0; i < n; i++)
    s = arena_printf(arena, "%s%s%d", s, i ? " " : "", layers[i]);
  return s;
}

START_TEST(layout_is_read) {
  static const char *const all[][2] = {
      {"EL", "0"},
      {"Et*3|tt|tL", "3 2 1"},
      {"Et*3|(tt|)*4,t|L", "3 2 2 2 2 1 0"},
      {"E|t|t|L", "0 1 1 0"},
      {"E , t * 2 | t L", "2 1"},
      {"Ett|(t*2|)*2t*3L", "2 2 2 3"},
      {"E(t|(tt|)*2)*2tL", "1 2 2 1 2 2 1"},
      {"E|*3tL", "0 0 0 1"},
  };
  for (int i = 0; i < LEN(all); i++) ck_assert_str_eq(layout_text(all[i][0]), all[i][1]);
  ck_assert_int_eq(strlen(layout_text("Et*3|(tt|)*29,t|L")), 2 * 32 - 1);
}
END_TEST

START_TEST(layout_errors) {
  static const char *const all[][2] = {
      {"", "column 1 of \"\": a layout begins with E, the embedding"},
      {"tt|L", "column 1 of \"tt|L\": a layout begins with E, the embedding"},
      {"|EtL", "column 1 of \"|EtL\": a layout begins with E, the embedding"},
      {"EtE|L", "column 3 of \"EtE|L\": a layout has one E"},
      {"E*2|L", "column 1 of \"E*2|L\": a layout has one E"},
      {"Et|t", "column 5 of \"Et|t\": a layout ends with L, the loss"},
      {"EtL|t", "column 4 of \"EtL|t\": nothing follows L, which closes the last stage"},
      {"Et(L)*2",
       "column 4 of \"Et(L)*2\": nothing follows L, which closes the last stage"},
      {"Et*3|mt|L",
       "column 7 of \"Et*3|mt|L\": m, a layer for a further token, is behind all t"},
      {"Et|x|L",
       "column 4 of \"Et|x|L\": expected E (embedding), t (layer), m (layer for "
       "a further token), L (loss) or | (next stage)"},
      {"Et|(tt|L", "column 4 of \"Et|(tt|L\": this ( is never closed"},
      {"Et|tt)L", "column 6 of \"Et|tt)L\": this ) closes nothing"},
      {"E*", "column 2 of \"E*\": * needs a number from 1 to 1000000"},
      {"Et*0L", "column 3 of \"Et*0L\": * needs a number from 1 to 1000000"},
      {"Et*99999999999L", "column 3 of \"Et*99999999999L\": * needs a number from 1 to "
                          "1000000"},
      {"*2E", "column 1 of \"*2E\": there is nothing before this * to repeat"},
      {"Et*2*3L", "column 5 of \"Et*2*3L\": there is nothing before this * to repeat"},
      {"E(t*1000000)*1000000L", "column 3 of \"E(t*1000000)*1000000L\": the layout has "
                                "more than 1000000 parts"},
      {"E(()*1000000)*1000000L", "column 3 of \"E(()*1000000)*1000000L\": the layout has "
                                 "more than 1000000 parts"},
      {"E((((((((((((((((((t", "column 18 of \"E((((((((((((((((((t\": parentheses are "
                               "nested too deeply"},
  };
  for (int i = 0; i < LEN(all); i++) ck_assert_str_eq(layout_text(all[i][0]), all[i][1]);
}
END_TEST

/* E stands for what is before the first layer, L for what is after the last one. */
START_TEST(layout_places_the_ends) {
  Model c;
  const char *wrong;
  int further;
  model_new(&c, 3, 4, 1);
  c.plan.pp.layout = "E|t|tt|L";
  c.plan.pp.layers =
      pp_layout(c.plan.pp.layout, arena, &c.plan.pp.nlayers, &further, &wrong);
  ck_assert(cut(&c));
  ck_assert_str_eq(cut_text(&c), "embed_tokens | layers.0 | layers.1 layers.2 | norm "
                                 "lm_head");
  c.plan.pp.layout = "Et||tt|L";
  c.plan.pp.layers =
      pp_layout(c.plan.pp.layout, arena, &c.plan.pp.nlayers, &further, &wrong);
  ck_assert(cut(&c));
  layers_are(&c, (const int[]){1, 0, 2, 0});
  ck_assert_int_eq(c.st.first[1], c.st.first[2]);
  c.plan.pp.layout = "Ett|ttL";
  c.plan.pp.layers =
      pp_layout(c.plan.pp.layout, arena, &c.plan.pp.nlayers, &further, &wrong);
  no_stages(&c, "pp_plan.layout: the layout has 2 stages, but there are 4 stages (pp = 4 "
                "x virtual = 1)\npp_plan.layout: the stages have 4 layers together, the "
                "model has 3\n");
}
END_TEST

Suite *stages_suite(void) {
  const TTest *const tests[] = {
      even,
      listed_layers,
      modules,
      errors,
      module_errors,
      less_layers,
      less_layers_than_there_are,
      layers_per_stage,
      balance_is_the_best_of_all,
      balance_of_large_costs,
      balance_counts_the_head,
      balance_needs_units,
      layout_is_read,
      layout_errors,
      layout_places_the_ends,
  };
  Suite *s = suite_create("stages");
  TCase *c = tcase_create("stage");
  tcase_add_checked_fixture(c, setup, teardown);
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
  return s;
}
