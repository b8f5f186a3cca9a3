/* fold_layers.c - finds runs of equal units and makes a graph without most of them. A
 * unit repeats the one before it if its ops have the same kinds, attributes, shapes and
 * tp_plan rules, and read results in the same positions of that unit and the one before.
 *
 * The first three and the last two units of a run stay: gradients and placements at its
 * ends may differ from those inside. unfold_layers() checks that the ones inside have
 * become equal. */
#include "fold_layers.h"
#include "recompute.h"

enum { FRONT = 3, BACK = 2 };

typedef struct Scan {
  const Graph *g;
  const Plan *plan;
  Fold *f;
  bool *far;        /* of each unit: a unit beyond the next one reads a result of it */
  int *hits[2];     /* counters for tp_match */
  bool numbered;    /* some rule names a layer by its number, not by `*` */
  bool *recomputed; /* of each op: marked by recompute */
} Scan;

/* ---- users of tensors and parameters ---- */

static bool find_ops(Scan *s) {
  const Graph *g = s->g;
  for (int i = 0; i < g->op.n; i++) {
    if (i > 0 && g->op.at[i].unit < g->op.at[i - 1].unit) return false;
    s->f->first_op[g->op.at[i].unit + 1]++;
  }
  for (int u = 0; u < g->unit.n; u++) s->f->first_op[u + 1] += s->f->first_op[u];
  return true;
}

static void find_uses(Scan *s) {
  const Graph *g = s->g;
  for (int i = 0; i < g->param.n; i++) s->f->use[i] = (ParamUse){.unit = -1};
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    for (int k = 0; k < op->nin; k++) {
      const Tensor *t = &g->t.at[op->in[k]];
      if (t->unit >= 0 && op->unit > t->unit + 1) s->far[t->unit] = true;
      if (t->kind != T_PARAM) continue;
      ParamUse *use = &s->f->use[t->index];
      if (use->unit == -1)
        *use = (ParamUse){op->unit, i - s->f->first_op[op->unit], k};
      else if (use->unit != op->unit)
        use->unit = -2;
    }
  }
  s->far[g->t.at[g->loss].unit] = true;
}

/* ---- equal units ---- */

static bool same_shape(const Tensor *a, const Tensor *b) {
  if (a->kind != b->kind || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++) {
    const Dim *x = &a->dim[d], *y = &b->dim[d];
    if (x->size != y->size || x->tag != y->tag || x->parts != y->parts ||
        x->unit != y->unit)
      return false;
  }
  return true;
}

/* Length of a segment of a name if it is a number, else 0. */
static size_t number(const char *s) {
  size_t n = 0;
  while (s[n] >= '0' && s[n] <= '9') n++;
  return s[n] == '.' || !s[n] ? n : 0;
}

static bool has_number(const char *s) {
  for (bool starts = true; *s; starts = *s++ == '.')
    if (starts && number(s)) return true;
  return false;
}

/* Whether two names differ in numbers only, which `*` matches. */
static bool same_but_numbers(const char *a, const char *b) {
  if (!a || !b) return a == b;
  for (bool starts = true;; starts = *a++ == '.', b++) {
    size_t n = starts ? number(a) : 0, m = starts ? number(b) : 0;
    if ((n > 0) != (m > 0)) return false;
    a += n, b += m;
    if (*a != *b) return false;
    if (!*a) return true;
  }
}

/* Whether two ops have, as operand k, parameters used by one unit only, at the same
 * position of their units and under the same rule. */
static bool same_param(Scan *s, const Op *p, const Op *q, int k) {
  const Graph *g = s->g;
  const Tensor *x = &g->t.at[p->in[k]], *y = &g->t.at[q->in[k]];
  const Param *a = &g->param.at[x->index], *b = &g->param.at[y->index];
  const ParamUse *u = &s->f->use[x->index], *v = &s->f->use[y->index];
  if (u->unit != p->unit || v->unit != q->unit || u->op != v->op ||
      u->operand != v->operand || a->init != b->init || a->std != b->std ||
      a->decay != b->decay || a->share != b->share || a->frozen != b->frozen ||
      a->group != b->group || a->adapter != b->adapter || a->quant != b->quant)
    return false;
  if (!s->numbered && same_but_numbers(a->name, b->name) &&
      same_but_numbers(p->name, q->name))
    return true;
  size_t n = sizeof(int) * (size_t)s->plan->ntp;
  int tie[2];
  memset(s->hits[0], 0, n), memset(s->hits[1], 0, n);
  return tp_match(s->plan, a->name, p->name, s->hits[0], &tie[0]) ==
             tp_match(s->plan, b->name, q->name, s->hits[1], &tie[1]) &&
         tie[0] == tie[1] && memcmp(s->hits[0], s->hits[1], n) == 0;
}

static int result_index(const Op *op, Tid t) {
  int k = 0;
  while (op->out[k] != t) k++;
  return k;
}

/* Whether two tensors were made at the same position of the reader's own unit or the one
 * before. */
static bool same_value(const Scan *s, const Op *p, const Op *q, Tid a, Tid b) {
  const Graph *g = s->g;
  const Tensor *x = &g->t.at[a], *y = &g->t.at[b];
  const int *first = s->f->first_op;
  return p->unit - x->unit == q->unit - y->unit && p->unit - x->unit <= 1 &&
         x->producer - first[x->unit] == y->producer - first[y->unit] &&
         result_index(&g->op.at[x->producer], a) ==
             result_index(&g->op.at[y->producer], b);
}

static bool same_operand(Scan *s, const Op *p, const Op *q, int k) {
  const Tensor *x = &s->g->t.at[p->in[k]], *y = &s->g->t.at[q->in[k]];
  if (!same_shape(x, y)) return false;
  if (x->kind == T_PARAM) return same_param(s, p, q, k);
  return x->kind == T_INPUT ? x == y : same_value(s, p, q, p->in[k], q->in[k]);
}

static bool same_op(Scan *s, const Op *p, const Op *q) {
  const Graph *g = s->g;
  if (p->code != q->code || p->nin != q->nin || p->nout != q->nout ||
      s->recomputed[p - g->op.at] != s->recomputed[q - g->op.at] || p->line != q->line ||
      memcmp(&p->attr, &q->attr, sizeof p->attr) != 0 ||
      strcmp(unit_relative_name(&g->unit.at[p->unit], p->name),
             unit_relative_name(&g->unit.at[q->unit], q->name)) != 0)
    return false;
  for (int k = 0; k < p->nout; k++)
    if (!same_shape(&g->t.at[p->out[k]], &g->t.at[q->out[k]])) return false;
  for (int k = 0; k < p->nin; k++)
    if (!same_operand(s, p, q, k)) return false;
  return true;
}

/* Whether unit u + 1 repeats unit u. */
static bool repeats(Scan *s, int u) {
  const int *first = s->f->first_op;
  int n = first[u + 1] - first[u];
  if (n == 0 || first[u + 2] - first[u + 1] != n || s->far[u] || s->far[u + 1] ||
      (s->g->unit.at[u].layer < 0) != (s->g->unit.at[u + 1].layer < 0))
    return false;
  for (int i = 0; i < n; i++)
    if (!same_op(s, &s->g->op.at[first[u] + i], &s->g->op.at[first[u + 1] + i]))
      return false;
  return true;
}

static void find_runs(Scan *s, Arena *a) {
  for (int u = 0; u < s->g->unit.n; u++) {
    int first = u;
    while (u + 1 < s->g->unit.n && repeats(s, u)) u++;
    if (u - first + 1 > FRONT + BACK + 1)
      *VEC_PUSH(a, s->f->run) = (FoldRun){first, u, first + FRONT, u - BACK + 1};
  }
}

/* ---- the smaller graph ---- */

typedef struct Copy {
  Fold *f;
  Tid *to;   /* tensor of the whole graph -> of the smaller one, -1 */
  int *unit; /* unit of the whole graph -> of the smaller one, -1 */
} Copy;

static void copy_units(Copy *c) {
  Fold *f = c->f;
  const Graph *g = f->whole;
  for (int u = 0, r = 0; u < g->unit.n; u++) {
    while (r < f->run.n && u >= f->run.at[r].back) r++;
    bool left = r < f->run.n && u >= f->run.at[r].left;
    c->unit[u] = left ? -1 : f->g->unit.n;
    f->like[u] = left ? f->like[u - 1] : f->g->unit.n;
    if (left) continue;
    f->unit[f->g->unit.n] = u;
    *VEC_PUSH(f->g->arena, f->g->unit) = g->unit.at[u];
  }
}

static bool stays(const Copy *c, const Tensor *t) {
  if (t->kind == T_INPUT) return true;
  if (t->kind == T_VALUE) return t->unit < 0 || c->unit[t->unit] >= 0;
  int unit = c->f->use[t->index].unit;
  return unit < 0 || c->unit[unit] >= 0;
}

static void copy_tensors(Copy *c) {
  Fold *f = c->f;
  const Graph *g = f->whole;
  for (int t = 0; t < g->t.n; t++) {
    const Tensor *x = &g->t.at[t];
    c->to[t] = -1;
    if (!stays(c, x)) continue;
    c->to[t] = f->g->t.n;
    Tensor *y = VEC_PUSH(f->g->arena, f->g->t);
    *y = *x;
    y->logical = c->to[t];
    if (x->unit >= 0) y->unit = c->unit[x->unit];
    if (x->kind != T_PARAM) continue;
    y->index = f->g->param.n;
    f->param[y->index] = x->index;
    Param *p = VEC_PUSH(f->g->arena, f->g->param);
    *p = g->param.at[x->index];
    p->tensor = c->to[t];
  }
}

/* A tensor of a unit that is left out, as the one in the same position of the unit that
 * stands for it. */
static Tid moved(const Copy *c, Tid t) {
  const Fold *f = c->f;
  const Graph *g = f->whole;
  if (c->to[t] >= 0) return c->to[t];
  const Tensor *x = &g->t.at[t];
  int k = result_index(&g->op.at[x->producer], t);
  int u = f->unit[f->like[x->unit]];
  int op = f->first_op[u] + x->producer - f->first_op[x->unit];
  return c->to[g->op.at[op].out[k]];
}

static void copy_ops(Copy *c) {
  Fold *f = c->f;
  for (int i = 0; i < f->whole->op.n; i++) {
    const Op *from = &f->whole->op.at[i];
    if (c->unit[from->unit] < 0) continue;
    Op *op = VEC_PUSH(f->g->arena, f->g->op);
    *op = *from;
    op->unit = c->unit[from->unit];
    op->in = NEW_N(f->g->arena, Tid, op->nin);
    op->out = NEW_N(f->g->arena, Tid, op->nout);
    for (int k = 0; k < op->nin; k++) op->in[k] = moved(c, from->in[k]);
    for (int k = 0; k < op->nout; k++) {
      op->out[k] = c->to[from->out[k]];
      f->g->t.at[op->out[k]].producer = f->g->op.n - 1;
    }
  }
}

static void copy_graph(Fold *f, Arena *a) {
  const Graph *g = f->whole;
  Copy c = {.f = f, .to = NEW_N(a, Tid, g->t.n), .unit = NEW_N(a, int, g->unit.n)};
  f->g = graph_new(a, g->batch, g->seq);
  f->g->file = g->file;
  copy_units(&c);
  copy_tensors(&c);
  copy_ops(&c);
  for (int i = 0; i < IN_N; i++)
    f->g->input[i] = g->input[i] < 0 ? -1 : c.to[g->input[i]];
  f->g->loss = c.to[g->loss];
  f->g->told = g->told < 0 ? -1 : c.to[g->told];
  f->g->forward_ops = f->g->op.n;
}

Fold *fold_layers(const Graph *g, const Plan *plan, Arena *a) {
  Fold *f = NEW(a, Fold);
  Scan s = {.g = g, .plan = plan, .f = f};
  *f = (Fold){.whole = g,
              .first_op = NEW_N(a, int, g->unit.n + 1),
              .use = NEW_N(a, ParamUse, g->param.n),
              .like = NEW_N(a, int, g->unit.n),
              .unit = NEW_N(a, int, g->unit.n),
              .param = NEW_N(a, int, g->param.n)};
  s.far = NEW_N(a, bool, g->unit.n);
  for (int i = 0; i < 2; i++) s.hits[i] = NEW_N(a, int, plan->ntp + 1);
  s.recomputed = NEW_N(a, bool, g->op.n);
  for (int i = 0; i < plan->ntp; i++) s.numbered |= has_number(plan->tp[i].pattern);
  if (!find_ops(&s)) return NULL;
  recompute_marks(g, plan, a, s.recomputed, NULL);
  find_uses(&s);
  find_runs(&s, a);
  if (f->run.n == 0) return NULL;
  copy_graph(f, a);
  return f;
}
