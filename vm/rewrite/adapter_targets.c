/* adapter_targets.c - patterns of the plan's adapter: which linears and which weights of
 * experts have one, of which rank.
 *
 * A pattern is a module, or the end of its name, as PEFT's target_modules has them. */
#include "adapter_targets_int.h"

#include "vm/graph/packed_modules.h"

bool adapter_names_module(const char *pattern, const char *module) {
  if (tp_pattern_fits(pattern, module, strlen(module))) return true;
  for (const char *s = module; (s = strchr(s, '.'));)
    if (s++, tp_pattern_fits(pattern, s, strlen(s))) return true;
  return false;
}

static bool reads_param(const Graph *g, const Op *op) {
  return !op->second && op->name && g->t.at[op->in[1]].kind == T_PARAM;
}

bool target_is_linear(const Graph *g, const Op *op) {
  return op->code == OP_linear && reads_param(g, op);
}

static bool is_experts(const Graph *g, const Op *op) {
  return op->code == OP_grouped_linear && reads_param(g, op);
}

const char *target_name(const Graph *g, const Op *op) {
  return op->code == OP_grouped_linear ? g->t.at[op->in[1]].name : op->name;
}

const char *target_whole(const Graph *g, const char *name) {
  PackedName part;
  char whole[PACKED_NAME];
  if (!g->packed || !packed_find(name, g->packed, &part)) return NULL;
  packed_rename(name, &part, part.of->whole, whole);
  return arena_str(g->arena, whole);
}

static const char *whole_name(const Graph *g, const Op *op) {
  return op->code == OP_linear ? target_whole(g, op->name) : NULL;
}

/* What a list of patterns is of. */
typedef bool KindFn(const Graph *g, const Op *op);
typedef struct Kind {
  const char *field, *one, *all;
  KindFn *is;
} Kind;
static const Kind linears = {"targets", "linear", "linears", target_is_linear};
static const Kind experts = {"target_parameters", "weight of experts",
                             "weights of experts", is_experts};

const char *target_path(const Finder *f, const char *field, int item) {
  return arena_printf(f->d->arena, "adapter.%s[%d]", field, item + 1);
}

/* A reader of the weight of op `id` that is not of the same kind and orientation, or -1:
 * a lookup is none, since the head that reads the table of embeddings, too, may have an
 * adapter that these do not see. */
static Oid other_reader(const Graph *g, Oid id) {
  const Op *op = &g->op.at[id];
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < g->op.at[i].nin; k++) {
      const Op *q = &g->op.at[i];
      bool same = k == 1 && q->code == op->code && q->attr.layout == op->attr.layout;
      same |= q->code == OP_embedding;
      if (q->in[k] == op->in[1] && !same) return i;
    }
  return -1;
}

/* ---- what is wrong ---- */

void target_suggest(Diag *x, Arena *a, const char *pattern, const PatternList *names,
                    const char *what) {
  const char *near = str_nearest(pattern, names->at, names->n);
  if (near)
    x->suggestion = arena_printf(a, "did you mean \"%s\"?", near);
  else if (names->n)
    x->suggestion = arena_printf(a, "%s are called %s", what, names->at[names->n / 2]);
}

void target_add_name(Arena *a, PatternList *names, const char *module) {
  const char *name = tp_as_pattern(a, arena_printf(a, "%s.", module));
  const char *last = strrchr(name, '.');
  *VEC_PUSH(a, *names) = name;
  if (last) *VEC_PUSH(a, *names) = last + 1;
}

static void matches_nothing(const Finder *f, const Kind *k, const char *pattern,
                            int item) {
  const Graph *g = f->g;
  Arena *a = f->d->arena;
  PatternList names = {0};
  for (int i = 0; i < g->op.n; i++)
    if (k->is(g, &g->op.at[i])) target_add_name(a, &names, target_name(g, &g->op.at[i]));
  Diag *x = diag_error(f->d, "adapter", target_path(f, k->field, item),
                       "\"%s\" matches no %s of the model", pattern, k->one);
  target_suggest(x, a, pattern, &names, k->all);
  for (int i = 0; i < g->op.n && k != &experts; i++)
    if (is_experts(g, &g->op.at[i]) &&
        adapter_names_module(pattern, target_name(g, &g->op.at[i])))
      x->suggestion = arena_printf(a, "weights of experts are target_parameters");
  if (!names.n) x->suggestion = arena_printf(a, "the model has no %s", k->all);
}

const char target_untie[] =
    "leave it out, or tie_word_embeddings = false where the files "
    "have a weight of the head, or none are read";

/* Who reads a weight in another way would not see its adapter. */
static void cannot_adapt(const Finder *f, const Kind *k, Oid id, Oid other, int item) {
  const Op *op = &f->g->op.at[id], *q = &f->g->op.at[other];
  diag_error(f->d, "adapter", target_path(f, k->field, item),
             "%s is tied: %s of %s reads %s, too, without the adapter",
             target_name(f->g, op), op_info[q->code].name,
             q->name ? q->name : "the model", f->g->t.at[op->in[1]].name)
      ->suggestion = target_untie;
}

/* A head that reads the table of embeddings has no weight of its own whose norms its
 * magnitudes could begin as. */
bool target_is_tied_head(const Graph *g, const Op *op) {
  return op->code == OP_linear &&
         strncmp(g->t.at[op->in[1]].name, op->name, strlen(op->name)) != 0;
}

static void no_magnitudes(const Finder *f, Oid id, int item) {
  diag_error(f->d, "not-built", target_path(f, "targets", item),
             "%s is tied: its adapter has no magnitudes (dora)",
             target_name(f->g, &f->g->op.at[id]))
      ->suggestion = "leave out dora, or it";
}

/* ---- what PEFT refuses ---- */

/* What a mixer of Mamba gives goes through a linear that its kernels read as a weight,
 * beside the module: PEFT refuses an adapter of that. */
static bool peft_refuses(const Graph *g, const Op *op) {
  const char *last = op->name ? strrchr(op->name, '.') : NULL;
  if (!last || !str_eq(last, ".out_proj")) return false;
  for (int i = 0; i < g->op.n; i++)
    if (g->op.at[i].code == OP_ssm_scan) return true;
  return false;
}

/* A linear of a name that PEFT takes for that of experts; NULL: the adapter has none. */
static const char *taken_for_experts(const Finder *f) {
  const Patterns *names = &f->adapter->modules.experts;
  for (int i = 0; i < f->g->op.n; i++)
    for (int k = 0; k < names->n; k++) {
      const Op *op = &f->g->op.at[i];
      if (f->target[i].rank && target_is_linear(f->g, op) &&
          adapter_names_module(names->at[k], target_name(f->g, op)))
        return target_name(f->g, op);
    }
  return NULL;
}

static void warn_taken(const Finder *f) {
  const char *name = taken_for_experts(f);
  if (!name) return;
  diag_warn(f->d, "adapter", "adapter.targets",
            "PEFT 0.21 takes %s for a weight of experts, and loads no adapter of it",
            name)
      ->suggestion = "name other linears, or merge it: weft ckpt merge";
}

static void warn_peft(const Finder *f, const char *pattern, int item) {
  diag_warn(f->d, "adapter", target_path(f, "targets", item),
            "\"%s\" names out_proj of Mamba mixers: PEFT loads no adapter that has it",
            pattern)
      ->suggestion = "leave it out, as \"all-linear\" does, or merge it: weft ckpt merge";
}

/* ---- targets ---- */

static void find(const Finder *f, const Kind *k, Patterns of, AdapterTarget *to) {
  const Graph *g = f->g;
  for (int p = 0; p < of.n; p++) {
    int hits = 0;
    bool refused = false;
    for (int i = 0; i < g->op.n; i++) {
      const Op *op = &g->op.at[i];
      if (!k->is(g, op)) continue;
      bool own = adapter_names_module(of.at[p], target_name(g, op));
      const char *whole = own ? NULL : whole_name(g, op);
      if (!own && !(whole && adapter_names_module(of.at[p], whole))) continue;
      Oid other = other_reader(g, i);
      if (other >= 0 && !hits) cannot_adapt(f, k, i, other, p);
      if (f->adapter->dora && target_is_tied_head(g, op)) no_magnitudes(f, i, p);
      to[i].rank = f->adapter->rank, hits++;
      to[i].packed |= whole != NULL;
      refused |= k == &linears && peft_refuses(g, op);
    }
    if (refused) warn_peft(f, of.at[p], p);
    if (!hits) matches_nothing(f, k, of.at[p], p);
  }
}

static void find_all(const Finder *f, AdapterTarget *to) {
  const Graph *g = f->g;
  int errors = f->d->errors, n = 0;
  for (int i = 0; i < g->op.n && f->adapter->all; i++) {
    const Op *op = &g->op.at[i];
    bool layer = g->unit.at[op->unit].layer >= 0;
    if (!layer || !target_is_linear(g, op) || other_reader(g, i) >= 0) continue;
    if (peft_refuses(g, op)) continue;
    to[i].rank = f->adapter->rank;
    to[i].packed = whole_name(g, op) != NULL;
  }
  for (int i = 0; i < g->op.n; i++) n += f->target[i].rank > 0;
  if (n == 0 && f->d->errors == errors)
    diag_error(f->d, "adapter", "adapter.targets", "the model has no linear in a layer")
        ->suggestion = "name those that it has: targets = { patterns }";
}

/* ---- ranks of their own ---- */

static void no_target(const Finder *f, const char *path, const char *pattern) {
  Arena *a = f->d->arena;
  PatternList names = {0};
  for (int i = 0; i < f->g->op.n; i++)
    if (f->target[i].rank) target_add_name(a, &names, target_name(f->g, &f->g->op.at[i]));
  Diag *x = diag_error(f->d, "adapter", path,
                       "\"%s\" names no module that has an adapter", pattern);
  target_suggest(x, a, pattern, &names, "those that have one");
}

/* The number that a pattern of the list says of a module, or `otherwise`. */
static double number_of(PatternNumbers of, const char *module, double otherwise) {
  for (int i = 0; i < of.n; i++)
    if (adapter_names_module(of.at[i].pattern, module)) otherwise = of.at[i].number;
  return otherwise;
}

AdapterTarget adapter_target_of(const Adapter *a, const char *module) {
  double alpha = a->alpha > 0 ? a->alpha : (double)a->rank;
  return (AdapterTarget){.rank = (int64_t)number_of(a->ranks, module, (double)a->rank),
                         .alpha = number_of(a->alphas, module, alpha)};
}

/* What patterns call a target: a part of a module as the module. */
static const char *called(const Finder *f, Oid id) {
  const Op *op = &f->g->op.at[id];
  return f->target[id].packed ? whole_name(f->g, op) : target_name(f->g, op);
}

/* Two patterns that say different numbers of a module are an error, since a table has no
 * order. */
static void check_one(const Finder *f, const char *field, PatternNumbers of,
                      const char *module) {
  int found = -1;
  for (int i = 0; i < of.n; i++) {
    if (!adapter_names_module(of.at[i].pattern, module)) continue;
    if (found >= 0 && of.at[i].number != of.at[found].number)
      diag_error(f->d, "adapter", arena_printf(f->d->arena, "adapter.%s", field),
                 "\"%s\" and \"%s\" both name %s and say %g and %g", of.at[found].pattern,
                 of.at[i].pattern, module, of.at[found].number, of.at[i].number);
    found = i;
  }
}

/* Reports patterns that name no target. */
static void all_used(const Finder *f, const char *field, PatternNumbers of) {
  for (int p = 0; p < of.n; p++) {
    int hits = 0;
    for (int i = 0; i < f->g->op.n; i++)
      hits += f->target[i].rank && adapter_names_module(of.at[p].pattern, called(f, i));
    const char *path =
        arena_printf(f->d->arena, "adapter.%s[\"%s\"]", field, of.at[p].pattern);
    if (!hits) no_target(f, path, of.at[p].pattern);
  }
}

AdapterTarget *adapter_targets(const Graph *g, const Adapter *a, Diags *d) {
  AdapterTarget *target =
      (void *)arena_alloc(g->arena, sizeof *target * (size_t)(g->op.n + 1));
  Finder f = {g, a, target, d};
  int errors = d->errors;
  memset(target, 0, sizeof *target * (size_t)(g->op.n + 1));
  find(&f, &linears, a->targets, target);
  find(&f, &experts, a->experts, target);
  if (d->errors == errors) find_all(&f, target);
  if (d->errors > errors) return target;
  warn_taken(&f);
  all_used(&f, "rank_pattern", a->ranks);
  all_used(&f, "alpha_pattern", a->alphas);
  for (int i = 0; i < g->op.n && d->errors == errors; i++) {
    if (!target[i].rank) continue;
    const char *name = called(&f, i);
    bool packed = target[i].packed;
    check_one(&f, "rank_pattern", a->ranks, name);
    check_one(&f, "alpha_pattern", a->alphas, name);
    target[i] = adapter_target_of(a, name);
    target[i].packed = packed;
  }
  return target;
}
