/* modules_to_save.c - which modules learn as they are beside the plan's adapter, as
 * PEFT's modules_to_save has them. */
#include "adapter_targets_int.h"

#include "vm/graph/second_model.h"

/* The module of a parameter: its name without the last part. */
static const char *module_of(Arena *a, const char *param) {
  const char *dot = strrchr(param, '.');
  return dot ? arena_strn(a, param, (size_t)(dot - param)) : param;
}

/* Whether a pattern names a module that has the parameter. */
static bool names_holder(Arena *a, const char *pattern, const char *param) {
  for (const char *m = param; strrchr(m, '.');)
    if (adapter_names_module(pattern, m = module_of(a, m))) return true;
  return false;
}

/* The module of an op that reads a parameter and is not called as that is; NULL: it is
 * not tied. */
static const char *tied_to(const Graph *g, const Param *p) {
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < g->op.at[i].nin; k++) {
      const Op *op = &g->op.at[i];
      if (op->in[k] == p->tensor && op->name && !op->second &&
          strncmp(p->name, op->name, strlen(op->name)) != 0)
        return op->name;
    }
  return NULL;
}

/* A module that files have as one is several here, and PEFT's folder has no place for a
 * part of it. */
static void is_part(const Finder *f, const char *param, const char *whole,
                    const char *path) {
  diag_error(f->d, "not-built", path,
             "%s is a part of %s in files, and of such modules none is saved", param,
             module_of(f->d->arena, whole))
      ->suggestion = "leave it out, or give it an adapter (targets)";
}

static void check_saved(const Finder *f, const Param *p, const char *path) {
  const char *whole = target_whole(f->g, p->name);
  if (whole) is_part(f, p->name, whole, path);
  const char *tied = tied_to(f->g, p);
  if (tied)
    diag_error(f->d, "adapter", path, "%s is tied: %s reads it, too", p->name, tied)
        ->suggestion = target_untie;
  for (int i = 0; i < f->g->op.n; i++)
    if (f->target[i].rank && f->g->op.at[i].in[1] == p->tensor)
      diag_error(f->d, "adapter", path,
                 "%s has an adapter: it learns in one way or the "
                 "other",
                 target_name(f->g, &f->g->op.at[i]));
}

/* The head that a pattern names and that has no weight of its own; -1: none. */
static Oid tied_head(const Graph *g, const char *pattern) {
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    if (target_is_linear(g, op) && target_is_tied_head(g, op) &&
        adapter_names_module(pattern, target_name(g, op)))
      return i;
  }
  return -1;
}

static void names_nothing(const Finder *f, const char *pattern, const char *path,
                          const PatternList *names) {
  Oid head = tied_head(f->g, pattern);
  if (head < 0) {
    target_suggest(
        diag_error(f->d, "adapter", path, "\"%s\" names no module of the model", pattern),
        f->d->arena, pattern, names, "modules");
    return;
  }
  const Op *op = &f->g->op.at[head];
  diag_error(f->d, "adapter", path, "%s is tied: its weight is %s", op->name,
             f->g->t.at[op->in[1]].name)
      ->suggestion = target_untie;
}

bool *adapter_saved(const Graph *g, const Adapter *a, const AdapterTarget *target,
                    Diags *d) {
  bool *saved = NEW_N(g->arena, bool, g->param.n + 1);
  Finder f = {g, a, target, d};
  for (int p = 0; p < a->saved.n; p++) {
    const char *path = target_path(&f, "modules_to_save", p);
    PatternList names = {0};
    int hits = 0, errors = d->errors;
    for (int i = 0; i < g->param.n; i++) {
      const Param *param = &g->param.at[i];
      if (second_prefix(param->name, strlen(param->name))) continue;
      target_add_name(d->arena, &names, module_of(d->arena, param->name));
      const char *whole = target_whole(g, param->name);
      if (!names_holder(d->arena, a->saved.at[p], param->name) &&
          !(whole && names_holder(d->arena, a->saved.at[p], whole)))
        continue;
      if (!saved[i] && d->errors == errors) check_saved(&f, param, path);
      saved[i] = true, hits++;
    }
    if (!hits) names_nothing(&f, a->saved.at[p], path, &names);
  }
  return saved;
}
