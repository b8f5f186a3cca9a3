/* sweep_point.c - judges a point. Its plan is checked as `weft check` does it; what the
 * later steps give depends on few things each and is looked up by them: the fields that
 * influence it, by their rows in schema.def (vary_key), and what sizes come to:
 *
 *   units      and the mesh without pp, whether the schedule splits I and W
 *   schedule   and pp, virtual stages, microbatches: actions and bubble
 *   shares     and units, stages: what ranks hold and do
 *   lifetimes  shape of the units, stages, schedule: slots of buffers
 *
 * Only the bytes of the worst rank are put together for each point. */
#include "sweep_point.h"
#include "bindings/model/model.h"
#include "bindings/schedule/schedule_facts.h"
#include "bindings/lang/plan_load.h"

#include <math.h>

#include <stdio.h>

#include "vm/lower/arena_layout.h"
#include "vm/lower/rank_cost.h"
#include "vm/compile/build_units.h"
#include "vm/compile/compile.h"

/* ---- what is looked up ---- */

typedef struct Scheduled {
  Schedule s;
  Timeline when;
  bool splits;
} Scheduled;

typedef struct UnitsEntry {
  Units *u;
  BufferSizes sizes;
  int shape; /* equal for units of equal shape */
} UnitsEntry;

typedef struct Point {
  Judge *j;
  LangPlan *lp;
  Vary vary;
  Diags d;
  Mesh mesh;
  int rounds;
  bool all_dp; /* the units are made for the real number of data-parallel ranks */
  CacheEntry *units, *schedule, *shares, *lifetimes;
} Point;

static const Plan *plan_of(const Point *p) { return &p->lp->plan; }

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

/* ---- units ---- */

/* That of the point, if it is right. */
static const Scheduled *scheduled(const Point *p) {
  bool ok = p->schedule && p->schedule->st == WEFT_OK;
  return ok ? p->schedule->value : NULL;
}

static weft_status units_key(Point *p, Text *k) {
  Mesh m = units_mesh(p);
  k->n = 0;
  text_addn(k, (const char *)m.size, sizeof m.size);
  text_addn(k, (const char *)m.order, sizeof m.order);
  text_add(k, scheduled(p) && scheduled(p)->splits ? "IW" : "B");
  return vary_key(p->lp, FOR_UNITS, k, &p->j->e);
}

/* Only the whole batch shows that a tensor is too large to be counted. */
static bool too_wide(const Point *p) {
  const UnitsEntry *f = p->units->value;
  double batch = (double)plan_of(p)->batch.micro * mesh_size(&p->mesh, AXES_DP);
  return f && f->u && f->u->widest * batch > (double)(1ull << ELEMENTS_LOG2);
}

/* A shape is nothing but its number. */
static void make_shape(void *ud, CacheEntry *x) {}

typedef struct UnitsJob {
  Point *p;
  CacheEntry *x;
} UnitsJob;

static weft_status find_shape(Point *p, UnitsEntry *f, weft_error *e) {
  Text shape = {0};
  buffer_shape(f->u, &f->sizes, &shape);
  CacheEntry *same = shape.oom ? NULL
                               : cache_get(&p->j->caches->shape, shape.s, shape.n,
                                           make_shape, NULL, NULL);
  text_free(&shape);
  if (!same) return err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
  f->shape = same->id;
  return WEFT_OK;
}

static void run_units(void *ud) {
  const UnitsJob *job = ud;
  Point *p = job->p;
  CacheEntry *x = job->x;
  Mesh m = units_mesh(p);
  int64_t B = plan_of(p)->batch.micro * mesh_size(&m, AXES_DP);
  Graph *g = graph_new(p->j->scratch, B, plan_of(p)->batch.seq);
  x->st = lang_build_graph(p->lp, &plan_of(p)->moe, B, plan_of(p)->batch.seq, g, &x->d,
                           &x->e);
  if (x->st != WEFT_OK) return;
  CompileInput in = {.plan = plan_of(p),
                     .mesh = &m,
                     .graph = g,
                     .schedule = scheduled(p) ? &scheduled(p)->s : NULL,
                     .arena = p->j->scratch,
                     .scratch = p->j->unit};
  UnitsEntry *f = NEW(x->arena, UnitsEntry);
  x->value = f;
  x->st = compile_units(&in, false, x->arena, &f->u, &x->d, &x->e);
  if (x->st != WEFT_OK) return;
  buffer_sizes(f->u, x->arena, &f->sizes);
  x->st = find_shape(p, f, &x->e);
}

static void make_units(void *ud, CacheEntry *x) {
  UnitsJob job = {ud, x};
  arena_reset(job.p->j->scratch);
  arena_reset(job.p->j->unit);
  if (!arena_try(job.p->j->unit, run_units, &job))
    x->st = err_set(&x->e, WEFT_ENOMEM, "out of memory in a sweep");
}

/* ---- schedule ---- */

static weft_status schedule_key(Point *p, Text *k, int microbatches) {
  k->n = 0;
  text_printf(k, "%d %d %d|", p->mesh.size[AXIS_PP], plan_virtual(plan_of(p)),
              microbatches);
  return vary_key(p->lp, FOR_SCHEDULE, k, &p->j->e);
}

typedef struct ScheduleJob {
  Point *p;
  int microbatches;
} ScheduleJob;

static void make_schedule(void *ud, CacheEntry *x) {
  ScheduleJob *j = ud;
  Point *p = j->p;
  Scheduled *s = NEW(x->arena, Scheduled);
  x->value = s;
  x->st = lang_schedule(p->lp, &p->mesh, j->microbatches, &s->s, &x->d, &x->e);
  if (x->st != WEFT_OK) return;
  /* That of a file lies in the arena of the point. */
  s->s = schedule_copy(&s->s, x->arena);
  s->splits = schedule_splits(&s->s);
  if (!schedule_ready(&s->s, &x->d, x->arena, &s->when)) x->st = WEFT_EPLAN;
}

/* ---- stages ---- */

static weft_status shares_key(Point *p, const Schedule *s, Text *k) {
  k->n = 0;
  text_printf(k, "%d %d %d %d %d %d|", p->units->id, s->ranks, s->virtual_stages,
              s->v_placement, mesh_size(&p->mesh, flat_axes(plan_of(p), &p->mesh)),
              p->mesh.size[AXIS_EP_SHARD]);
  return vary_key(p->lp, FOR_SHARES, k, &p->j->e);
}

static void make_shares(void *ud, CacheEntry *x) {
  Point *p = ud;
  const UnitsEntry *f = p->units->value;
  const Scheduled *s = p->schedule->value;
  RankCosts *c = NEW(x->arena, RankCosts);
  arena_reset(p->j->scratch);
  x->value = c;
  if (stages(f->u, &plan_of(p)->pp, &s->s, x->arena, &c->st, &x->d))
    rank_costs(plan_of(p), &p->mesh, &f->sizes, p->j->scratch, x->arena, c);
  else
    x->st = WEFT_EPLAN;
}

/* Whatever the sizes of activations are they live equally long; of what else lives for a
 * while, the shares tell. */
static void lifetimes_key(Point *p, Text *k) {
  const UnitsEntry *f = p->units->value;
  const RankCosts *c = p->shares->value;
  bool held = false;
  for (int r = 0; r < c->st.ranks; r++) held |= c->rank[r].held.n > 0;
  k->n = 0;
  text_printf(k, "%d %d %d %d %d|", f->shape, p->schedule->id, p->rounds,
              held ? p->shares->id : -1, plan_of(p)->eval_every > 0);
  for (int s = 0; s <= c->st.n; s++) text_printf(k, "%d,", c->st.first[s]);
}

typedef Lifetimes RankLives[AREA_N];

/* Of all ranks under a schedule that can run. */
static RankLives *lives_under(Point *p, const Schedule *s, const Timeline *when,
                              Arena *a) {
  const RankCosts *c = p->shares->value;
  RankLives *l = (void *)arena_alloc(a, sizeof *l * (size_t)c->st.ranks);
  Transfers t;
  transfers(&c->st, s, when, s->microbatches * p->rounds, p->j->scratch, &t);
  for (int r = 0; r < c->st.ranks; r++)
    lifetimes(&t, &plan_of(p)->strategy, &c->rank[r].held, c->rank[r].sizes, r,
              p->j->scratch, a, l[r]);
  return l;
}

/* Of a step and of an evaluation; NULL: the plan makes none. */
typedef struct Lives {
  RankLives *step, *eval;
} Lives;

static void make_lifetimes(void *ud, CacheEntry *x) {
  Point *p = ud;
  const Scheduled *s = p->schedule->value;
  Lives *l = NEW(x->arena, Lives);
  arena_reset(p->j->scratch);
  x->value = l;
  l->step = lives_under(p, &s->s, &s->when, x->arena);
  if (!plan_of(p)->eval_every) return;
  Timeline when;
  Schedule forward = schedule_forward(&s->s, p->j->scratch);
  x->st = timeline_run(&forward, TIMELINE_UNIT, p->j->scratch, &when, &x->e);
  if (x->st == WEFT_OK) l->eval = lives_under(p, &forward, &when, x->arena);
}

/* ---- the steps ---- */

void point_reason(const Diags *d, const weft_error *e, PointReason *why) {
  *why = (PointReason){.code = "plan"};
  for (int i = 0; d && i < d->list.n; i++) {
    const Diag *g = &d->list.at[i];
    if (g->severity != DIAG_ERROR) continue;
    snprintf(why->code, sizeof why->code, "%s", g->code);
    snprintf(why->path, sizeof why->path, "%s", g->path);
    const char *near = strcmp(g->code, "unknown-field") == 0 ? g->suggestion : NULL;
    snprintf(why->text, sizeof why->text, near ? "%s (did you mean \"%s\"?)" : "%s",
             g->summary, near);
    return;
  }
  snprintf(why->text, sizeof why->text, "%s", e->text);
}

static weft_status look_up(Point *p, Cache *c, CacheEntry **out,
                           void (*make)(void *ud, CacheEntry *x), void *ud) {
  Text *k = &p->j->key;
  CacheEntry *x = k->oom ? NULL : cache_get(c, k->s, k->n, make, ud, p->j->scratch);
  if (!x) return err_set(&p->j->e, WEFT_ENOMEM, "out of memory in a sweep");
  *out = x;
  return WEFT_OK;
}

/* An entry without a value says why. */
static weft_status entry_status(Point *p, const CacheEntry *x, PointReason *why) {
  if (x->st == WEFT_EPLAN)
    point_reason(&x->d, &x->e, why);
  else if (x->st != WEFT_OK)
    p->j->e = x->e;
  return x->st;
}

static weft_status prepare(Point *p, const int *choice, int n, PointReason *why) {
  Judge *j = p->j;
  weft_status st = vary_begin(j->lp, j->values, choice, n, &p->vary, &p->d, &j->e);
  p->lp = &p->vary.plan;
  if (st == WEFT_OK &&
      !mesh_resolve(&p->lp->plan.mesh, lang_cluster_ranks(p->lp), &p->mesh, &p->d))
    st = WEFT_EPLAN;
  if (st == WEFT_EPLAN) point_reason(&p->d, &j->e, why);
  return st;
}

/* Why there is no key. */
static weft_status no_key(const Point *p, weft_status st, PointReason *why) {
  if (st == WEFT_EPLAN) point_reason(NULL, &p->j->e, why);
  return st;
}

static weft_status find_units(Point *p, PointReason *why) {
  Judge *j = p->j;
  do {
    TRY(no_key(p, units_key(p, &j->key), why));
    TRY(look_up(p, &j->caches->units, &p->units, make_units, p));
  } while (!p->all_dp && (p->all_dp = too_wide(p)));
  return WEFT_OK;
}

/* Units depend on the schedule. What is wrong is told in the order in which weft check
 * would find it: the model function, the schedule, the passes. */
static weft_status find_parts(Point *p, int microbatches, PointReason *why) {
  Judge *j = p->j;
  ScheduleJob job = {p, microbatches};
  TRY(no_key(p, schedule_key(p, &j->key, microbatches), why));
  TRY(look_up(p, &j->caches->schedule, &p->schedule, make_schedule, &job));
  TRY(find_units(p, why));
  if (!p->units->value) TRY(entry_status(p, p->units, why));
  TRY(entry_status(p, p->schedule, why));
  TRY(entry_status(p, p->units, why));
  mesh_split_tp(&p->mesh, ((const UnitsEntry *)p->units->value)->u->tp_copies);
  mesh_split_cp(&p->mesh, plan_cp_heads(plan_of(p), &p->mesh));
  mesh_split_dp(&p->mesh, plan_reshard_group(plan_of(p), &p->mesh));
  const Scheduled *s = p->schedule->value;
  TRY(no_key(p, shares_key(p, &s->s, &j->key), why));
  TRY(look_up(p, &j->caches->shares, &p->shares, make_shares, p));
  return entry_status(p, p->shares, why);
}

/* What a rank of the plan may hold: max_gib, else what the cluster's GPU has for it. */
static uint64_t limit_of(const Judge *j, const Plan *plan) {
  double room = plan_memory_limit(plan);
  return j->limit == LIMIT_GPU && isfinite(room) ? (uint64_t)room : j->limit;
}

static weft_status judge(Point *p, const int *choice, int n, PointRow *row,
                         PointReason *why) {
  Judge *j = p->j;
  TRY(prepare(p, choice, n, why));
  const Plan *a = plan_of(p);
  int microbatches = plan_microbatches(a, &p->mesh);
  p->rounds = (int)MAX(a->batch.rounds, 1);
  row->dp = mesh_size(&p->mesh, AXES_DP);
  row->microbatches = microbatches * p->rounds;
  TRY(find_parts(p, microbatches, why));
  const RankCosts *c = p->shares->value;
  const Scheduled *s = p->schedule->value;
  row->bubble = timeline_bubble(&s->when);
  uint64_t limit = limit_of(j, a);
  const Lives *lives = NULL;
  RankMemory size = rank_memory_floor(c, row->microbatches, limit);
  if (!size.over) {
    lifetimes_key(p, &j->key);
    TRY(look_up(p, &j->caches->lifetimes, &p->lifetimes, make_lifetimes, p));
    TRY(entry_status(p, p->lifetimes, why));
    arena_reset(j->scratch);
    lives = p->lifetimes->value;
    size = rank_memory(c, (const RankLives *)lives->step, (const RankLives *)lives->eval,
                       row->microbatches, limit, j->scratch);
  }
  row->state = size.over ? POINT_MEMORY : POINT_OK;
  row->bytes = (double)size.bytes;
  row->worst = size.rank;
  if (size.over) return WEFT_OK;
  Estimate e = estimate(c, (const RankLives *)lives->step, a, &p->mesh, row->microbatches,
                        row->bubble);
  row->tp = e.tp, row->cp = e.cp, row->ep = e.ep, row->dp_bytes = e.dp, row->pp = e.pp;
  row->ep_even = e.ep_even;
  row->flops = e.flops, row->recomputed = e.recomputed;
  row->seconds = e.seconds;
  return WEFT_OK;
}

/* ---- guarded ---- */

typedef struct Guarded {
  Point p;
  const int *choice;
  int n;
  PointRow *row;
  PointReason *why;
  weft_status st;
} Guarded;

static void run_judge(void *ud) {
  Guarded *g = ud;
  g->st = judge(&g->p, g->choice, g->n, g->row, g->why);
}

static void run_scratch(void *ud) {
  Guarded *g = ud;
  if (!arena_try(g->p.j->scratch, run_judge, g))
    g->st = err_set(&g->p.j->e, WEFT_ENOMEM, "out of memory in a sweep");
}

weft_status judge_point(Judge *j, const int *choice, int n, PointRow *row,
                        PointReason *why) {
  Guarded g = {.p = {.j = j, .d = {.arena = j->arena}},
               .choice = choice,
               .n = n,
               .row = row,
               .why = why};
  *row = (PointRow){0};
  err_clear(&j->e);
  if (!arena_try(j->arena, run_scratch, &g))
    g.st = err_set(&j->e, WEFT_ENOMEM, "out of memory in a sweep");
  if (g.p.vary.of) vary_end(&g.p.vary);
  arena_reset(j->arena);
  if (g.st != WEFT_EPLAN) return g.st;
  row->state = POINT_ILLEGAL;
  return WEFT_OK;
}

weft_status judge_open(Judge *j, LangPlan *lp, int values, SweepCaches *c,
                       uint64_t limit) {
  *j = (Judge){.lp = lp, .values = values, .caches = c, .limit = limit};
  j->arena = arena_new(NULL);
  j->scratch = arena_new(NULL);
  j->unit = arena_new(NULL);
  if (j->arena && j->scratch && j->unit) return WEFT_OK;
  return err_set(&j->e, WEFT_ENOMEM, "out of memory for a sweep");
}

void judge_close(Judge *j) {
  lang_free(j->lp);
  arena_free(j->arena);
  arena_free(j->scratch);
  arena_free(j->unit);
  text_free(&j->key);
}

void sweep_caches_init(SweepCaches *c) {
  Cache *all[] = {&c->units, &c->shape, &c->schedule, &c->shares, &c->lifetimes};
  for (int i = 0; i < LEN(all); i++) cache_init(all[i]);
}

void sweep_caches_free(SweepCaches *c) {
  Cache *all[] = {&c->lifetimes, &c->shares, &c->schedule, &c->shape, &c->units};
  for (int i = 0; i < LEN(all); i++) cache_free(all[i]);
}
