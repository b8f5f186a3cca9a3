/* trainable.c - `freeze` and `groups` of a plan: which parameters learn, and which are
 * stepped with a learning rate or a weight decay of their own.
 *
 * A pattern names a parameter, or a module with all parameters in it. A tied weight also
 * has the name of each module that reads it; it is one parameter, so what one of its
 * names says holds for all. */
#include "rewrite_passes.h"

typedef struct Marker {
  Graph *g;
  const Plan *plan;
  Diags *d;
} Marker;

/* For each parameter whether the pattern names it; returns how many it names. */
static int find(const Marker *m, const char *pattern, bool *named) {
  const Graph *g = m->g;
  int n = 0;
  for (int i = 0; i < g->param.n; i++)
    named[i] = tp_pattern_holds(pattern, g->param.at[i].name);
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    for (int k = 0; op->name && k < op->nin; k++) {
      const Tensor *t = &g->t.at[op->in[k]];
      if (t->kind == T_PARAM && tp_pattern_holds(pattern, op->name))
        named[t->index] = true;
    }
  }
  for (int i = 0; i < g->param.n; i++) n += named[i];
  return n;
}

static void matches_nothing(const Marker *m, const char *pattern, const char *path) {
  const Graph *g = m->g;
  Arena *a = m->d->arena;
  PatternList names = {0};
  for (int i = 0; i < g->param.n; i++) {
    const char *name = g->param.at[i].name;
    tp_module_patterns(a, name, &names);
    const char *dot = strrchr(name, '.');
    if (dot) *VEC_PUSH(a, names) = arena_printf(a, "%s%s", tp_as_pattern(a, name), dot);
  }
  const char *near = str_nearest(pattern, names.at, names.n);
  Diag *x = diag_error(m->d, "pattern", path,
                       "\"%s\" names no parameter or module of the model", pattern);
  x->suggestion = near ? arena_printf(a, "did you mean \"%s\"?", near)
                       : arena_printf(a, "parameters are called %s",
                                      g->param.at[g->param.n / 2].name);
}

/* Calls `mark` for each parameter that a pattern of the list names. */
typedef void MarkFn(const Marker *m, Param *p, int group);
static void mark_all(const Marker *m, const Patterns *of, const char *path, MarkFn *mark,
                     int group) {
  Arena *a = m->d->arena;
  bool *named = NEW_N(a, bool, m->g->param.n);
  for (int i = 0; i < of->n; i++) {
    const char *item = arena_printf(a, "%s[%d]", path, i + 1);
    int learn = 0, n = find(m, of->at[i], named);
    if (!n) matches_nothing(m, of->at[i], item);
    for (int k = 0; k < m->g->param.n; k++) {
      if (!named[k]) continue;
      learn += !m->g->param.at[k].frozen;
      mark(m, &m->g->param.at[k], group);
    }
    if (n && !learn && !group && m->plan->adapter.rank)
      diag_warn(m->d, "no-effect", item,
                "has no effect: all that \"%s\" names is frozen by the adapter",
                of->at[i]);
    if (n && !learn && group)
      diag_error(
          m->d, "pattern", item,
          "all that \"%s\" names is frozen: it is not stepped, so no group can say "
          "how",
          of->at[i]);
  }
}

static void mark_frozen(const Marker *m, Param *p, int group) { p->frozen = true; }

/* What is frozen in a module is in no group. */
static void mark_group(const Marker *m, Param *p, int group) {
  if (p->frozen) return;
  if (p->group && p->group != group)
    diag_error(m->d, "pattern", arena_printf(m->d->arena, "groups[%d]", group),
               "%s is in group %d already: a parameter is in one group", p->name,
               p->group);
  p->group = group;
}

bool trainable(Graph *g, const Plan *plan, Diags *d) {
  Marker m = {g, plan, d};
  int errors = d->errors, learn = 0;
  mark_all(&m, &plan->freeze, "freeze", mark_frozen, 0);
  for (int i = 0; i < plan->ngroup; i++)
    mark_all(&m, &plan->group[i].of, arena_printf(d->arena, "groups[%d]", i + 1),
             mark_group, i + 1);
  for (int i = 0; i < g->param.n; i++) learn += !g->param.at[i].frozen;
  if (!learn && d->errors == errors)
    diag_error(d, "pattern", "freeze", "all %d parameters are frozen: nothing learns",
               g->param.n)
        ->suggestion = "leave something out of the list, such as \"lm_head\"";
  return d->errors == errors;
}
