/* sweep_passes.c - what the passes of a point are looked up by: the fields that influence
 * them, by their rows in schema.def (plan_key), and what sizes come to:
 *
 *   graph      and the sequences of a microbatch, all dp ranks
 *   units      and the mesh without pp, whether the schedule splits I and W
 *   schedule   and pp, virtual stages, microbatches: actions and bubble
 *   stages     and units: what ranks hold and do
 *   ranks      shape of the units, stages, schedule: lifetimes of buffers */
#include "sweep_point_int.h"
#include "bindings/schedule/schedule_facts.h"
#include "vm/lower/flat_params.h"

/* Whether experts are cut over other ranks than those of tp. */
static bool own_experts(const Mesh *m) {
  return m->size[AXIS_EP] > 1 || m->size[AXIS_ETP] != m->size[AXIS_TP];
}

/* A model of the library knows the batch only as a size of tensors, so that any number of
 * data-parallel ranks above one gives a rank the same work; but where these ranks share
 * experts, their number says with how many. */
static Mesh units_mesh(const Point *p) {
  Mesh m = p->mesh;
  m.size[AXIS_PP] = 1;
  if (!p->lp->arch || p->all_dp || own_experts(&m)) return m;
  for (int a = 0; a < AXIS_N; a++)
    if (AXES_DP & AXIS_BIT(a)) m.size[a] = MIN(m.size[a], 2);
  m.size[AXIS_EP_SHARD] = mesh_size(&m, AXES_DP) * m.size[AXIS_CP];
  mesh_split_dp(&m, 1);
  return m;
}

/* ---- the schedule ---- */

static weft_status schedule_key(Point *p, const Passes *w, Text *k) {
  text_printf(k, "%d %d %d|", p->mesh.size[AXIS_PP], plan_virtual(plan_of(p)),
              p->microbatches);
  return plan_key(p->lp, FOR_SCHEDULE, k, &p->j->e);
}

static void make_schedule(Point *p, Passes *w, PassResult *x) {
  Schedule s;
  x->st = lang_schedule(p->lp, &p->mesh, p->microbatches, &s, x->d, x->e);
  if (x->st != WEFT_OK) return;
  s = schedule_copy(&s, x->keep); /* that of a file lies in the arena of the point */
  w->in.schedule = &s;
  pass_make[PASS_SCHEDULE](w, x);
}

/* ---- units ---- */

static weft_status units_key(Point *p, const Passes *w, Text *k) {
  Mesh m = units_mesh(p);
  text_addn(k, (const char *)m.size, sizeof m.size);
  text_addn(k, (const char *)m.order, sizeof m.order);
  text_add(k, w->schedule && w->schedule->splits ? "IW" : "B");
  return plan_key(p->lp, FOR_UNITS, k, &p->j->e);
}

/* A shape is nothing but its number. */
static void make_shape(void *ud, CacheEntry *x) {}

static weft_status find_shape(Point *p, BuiltUnits *f, weft_error *e) {
  Text shape = {0};
  buffer_shape(f->u, &f->sizes, &shape);
  CacheEntry *same = shape.oom ? NULL
                               : cache_get(&p->j->caches->shape, shape.s, shape.n,
                                           make_shape, NULL, NULL, 0);
  text_free(&shape);
  if (!same) return err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
  f->shape = same->id;
  return WEFT_OK;
}

/* Of the model, for so many sequences of a microbatch. */
typedef struct GraphJob {
  Point *p;
  int64_t B;
} GraphJob;

static void make_graph(void *ud, CacheEntry *x) {
  const GraphJob *job = ud;
  const Plan *plan = plan_of(job->p);
  Graph *g = graph_new(x->arena, job->B, plan->batch.seq);
  g->sources = plan_sources(&plan->data);
  x->st = lang_build_graph(job->p->lp, plan, job->B, plan->batch.seq, g, &x->d, &x->e);
  x->value = g;
}

/* Units of other meshes, strategies and cuts begin with the same graph. */
static weft_status find_graph(Point *p, const Mesh *m, const CacheEntry **g,
                              weft_error *e) {
  GraphJob job = {p, plan_of(p)->batch.micro * mesh_size(m, AXES_DP)};
  Text key = {0};
  text_addn(&key, (const char *)&job.B, sizeof job.B);
  weft_status st = plan_key(p->lp, FOR_GRAPH, &key, e);
  *g = st != WEFT_OK || key.oom
           ? NULL
           : cache_get(&p->j->caches->graph, key.s, key.n, make_graph, &job, NULL, 0);
  text_free(&key);
  if (st == WEFT_OK && !*g) st = err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
  return st;
}

static void make_units(Point *p, Passes *w, PassResult *x) {
  Mesh m = units_mesh(p);
  const CacheEntry *g;
  if ((x->st = find_graph(p, &m, &g, x->e)) != WEFT_OK) return;
  if ((x->st = g->st) != WEFT_OK) {
    *x->d = g->d, *x->e = g->e;
    return;
  }
  w->in.graph = graph_fork(g->value, w->in.arena);
  w->in.mesh = &m;
  pass_make[PASS_UNITS](w, x);
  if (x->st == WEFT_OK) x->st = find_shape(p, x->value, x->e);
}

/* ---- stages ---- */

static weft_status stages_key(Point *p, const Passes *w, Text *k) {
  const Schedule *s = &w->schedule->s;
  text_printf(k, "%d %d %d %d %d %d|", p->of[PASS_UNITS]->id, s->ranks, s->virtual_stages,
              s->v_placement, mesh_size(&w->mesh, flat_axes(plan_of(p), &w->mesh)),
              w->mesh.size[AXIS_EP_SHARD]);
  return plan_key(p->lp, FOR_SHARES, k, &p->j->e);
}

/* ---- lifetimes ---- */

/* Whatever the sizes of activations are they live equally long; of what else lives for a
 * while, the shares tell. */
static weft_status lives_key(Point *p, const Passes *w, Text *k) {
  const RankCosts *c = w->costs;
  bool held = false;
  for (int r = 0; r < c->st.ranks; r++) held |= c->rank[r].unsharded.n > 0;
  text_printf(k, "%d %d %d %d %d|", w->units->shape, p->of[PASS_SCHEDULE]->id,
              w->microbatches, held ? p->of[PASS_STAGES]->id : -1,
              plan_of(p)->eval_every > 0);
  for (int s = 0; s <= c->st.n; s++) text_printf(k, "%d,", c->st.first[s]);
  return WEFT_OK;
}

const PointPass point_pass[PASS_N] = {[PASS_SCHEDULE] = {schedule_key, make_schedule},
                                      [PASS_UNITS] = {units_key, make_units},
                                      [PASS_STAGES] = {stages_key, NULL},
                                      [PASS_RANKS] = {lives_key, NULL}};
