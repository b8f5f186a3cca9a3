/* stage_layers.c - layers per stage by the fields of pp_plan that count layers: an
 * explicit list or layout, or layers_per_stage, or an even split, with fewer at the ends.
 * Needs only the number of layers, so a plan is checked before its model is built. */
#include "schedule.h"
#include "vm/base/plural.h"

/* An even split; stages with one layer less are at the ends, the last stage first. */
static void even(int layers, int stages, int *out) {
  int small = stages - layers % stages;
  for (int s = 0; s < stages; s++) out[s] = layers / stages + (layers % stages > 0);
  if (layers % stages == 0) return;
  for (int k = 0; k < small; k++) out[k % 2 == 0 ? stages - 1 - k / 2 : k / 2]--;
}

typedef struct Split {
  const PpPlan *pp;
  int ranks, chunks, stages;
  int layers;
  Diags *d;
} Split;

static const char *counted(const Split *s) {
  return arena_printf(s->d->arena, "%d stage%s (pp = %d x virtual = %d)", s->stages,
                      plural(s->stages, "s"), s->ranks, s->chunks);
}

/* Reports that the plan lists `have` stages although there is another number of them. */
static bool miscounted(const Split *s, const char *path, const char *what, int64_t have) {
  Diag *g = diag_error(s->d, "stages", path, "%s %lld stage%s, but there %s %s", what,
                       (long long)have, plural(have, "s"), s->stages == 1 ? "is" : "are",
                       counted(s));
  if (have > 0 && have % s->ranks == 0)
    g->suggestion = arena_printf(s->d->arena, "pp_plan.virtual = %lld would fit",
                                 (long long)(have / s->ranks));
  else if (have > 0 && s->pp->layers_per_stage && s->pp->round == ROUND_NOT)
    g->suggestion = arena_printf(s->d->arena,
                                 "round_virtual_stages_to_pp_multiple = \"up\" would "
                                 "make %lld",
                                 (long long)(have + s->ranks - have % s->ranks));
  return false;
}

static bool listed(const Split *s, int *out) {
  const PpPlan *pp = s->pp;
  const char *path = pp->layout ? "pp_plan.layout" : "pp_plan.layers";
  int64_t sum = 0;
  for (int i = 0; i < pp->nlayers; i++) {
    sum += pp->layers[i];
    if (pp->layers[i] >= 0) continue;
    diag_error(s->d, "stages", path, "stage %d has %d layers", i, pp->layers[i]);
    return false;
  }
  bool ok =
      pp->nlayers == s->stages ||
      miscounted(s, path, pp->layout ? "the layout has" : "the list has", pp->nlayers);
  if (s->layers >= 0 && sum != s->layers) {
    diag_error(s->d, "stages", path,
               "the stages have %lld layer%s together, the model has %d", (long long)sum,
               plural(sum, "s"), s->layers);
    ok = false;
  }
  for (int i = 0; ok && i < s->stages; i++) out[i] = pp->layers[i];
  return ok;
}

int64_t stage_count_asked(const PpPlan *pp, int64_t layers, int ranks) {
  int64_t all = layers + pp->first_less + pp->last_less;
  int64_t n = (all + pp->layers_per_stage - 1) / pp->layers_per_stage, rest = n % ranks;
  if (rest && pp->round == ROUND_UP) return n + ranks - rest;
  return pp->round == ROUND_DOWN ? n - rest : n;
}

/* Counts the embedding as first_less layers and the head as last_less, and splits evenly;
 * earlier stages take the remainder. */
static bool with_less(const Split *s, int *out) {
  const PpPlan *pp = s->pp;
  int all = s->layers + pp->first_less + pp->last_less;
  for (int i = 0; i < s->stages; i++) {
    out[i] = all / s->stages + (i < all % s->stages);
    if (i == 0) out[i] -= pp->first_less;
    if (i == s->stages - 1) out[i] -= pp->last_less;
    if (out[i] >= 0) continue;
    diag_error(s->d, "stages",
               i == 0 ? "pp_plan.first_stage_less_layers"
                      : "pp_plan.last_stage_less_layers",
               "stage %d would have %d layers: with %d layer%s in %s a stage has %d at "
               "most to give",
               i, out[i], s->layers, plural(s->layers, "s"), counted(s),
               out[i] + (i == 0 ? pp->first_less : pp->last_less));
    return false;
  }
  return true;
}

bool stage_layers(const PpPlan *pp, int ranks, int chunks, int layers, int *out,
                  Diags *d) {
  bool less = pp->first_less > 0 || pp->last_less > 0;
  Split s = {pp, ranks, chunks, ranks * chunks, layers, d};
  if (pp->layers) return listed(&s, out);
  if (pp->layers_per_stage && stage_count_asked(pp, layers, ranks) != s.stages) {
    const char *what = arena_printf(d->arena, "%d layers, at most %d each, make", layers,
                                    pp->layers_per_stage);
    if (less)
      what = arena_printf(d->arena, "%d + %d + %d layers, at most %d each, make",
                          pp->first_less, layers, pp->last_less, pp->layers_per_stage);
    return miscounted(&s, "pp_plan.layers_per_stage", what,
                      stage_count_asked(pp, layers, ranks));
  }
  if (s.stages > 1 && layers < s.stages && !less) {
    diag_error(d, "stages", "mesh.pp", "%s, but the model has %d layer%s", counted(&s),
               layers, plural(layers, "s"));
    return false;
  }
  if (less) return with_less(&s, out);
  even(layers, s.stages, out);
  return true;
}
