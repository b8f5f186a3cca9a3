/* sweep_point.c - judges a point. Its plan is checked as `weft check` does it; what the
 * later steps give depends on few things each and is looked up by them (sweep_passes.c).
 * The passes and their order are the compiler's (passes.h). */
#include "sweep_point_int.h"

#include <math.h>

#include <stdio.h>
#include <stdlib.h>

#include "vm/pipeline/schedule.h"

/* Of a step and of an evaluation; NULL: the plan makes none. */
typedef struct Lives {
  RankLives *step, *eval;
} Lives;

static weft_status make_lives(Passes *w, const Transfers *t, bool eval, PassResult *x) {
  if (!eval) x->value = NEW(x->keep, Lives);
  Lives *l = x->value;
  RankLives *made = rank_lives(w->costs, t, &w->in.plan->strategy, w->in.arena, x->keep);
  *(eval ? &l->eval : &l->step) = made;
  return WEFT_OK;
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

/* ---- the cache ---- */

typedef struct PassJob {
  Passes *w;
  Pass which;
} PassJob;

static void fill_entry(void *ud, CacheEntry *x) {
  const PassJob *job = ud;
  Passes *w = job->w;
  PassResult r = {.keep = x->arena, .d = &x->d, .e = &x->e};
  arena_reset(w->in.arena);
  arena_reset(w->in.scratch);
  if (point_pass[job->which].make)
    point_pass[job->which].make(w->ud, w, &r);
  else
    pass_make[job->which](w, &r);
  x->value = r.value;
  x->st = r.st;
}

static weft_status look_up(Passes *w, Pass which) {
  Point *p = w->ud;
  Judge *j = p->j;
  Text *k = &j->key;
  Arena *const temporary[] = {w->in.arena, w->in.scratch};
  PassJob job = {w, which};
  k->n = 0;
  weft_status st = point_pass[which].key(p, w, k);
  if (st == WEFT_EPLAN) point_reason(NULL, &j->e, p->why);
  TRY(st);
  if (which == PASS_STAGES && j->floor && !k->oom) {
    cache_renew(p->of[which] = &j->stages, k->s, k->n, fill_entry, &job, temporary,
                LEN(temporary));
    return WEFT_OK;
  }
  CacheEntry *x = k->oom ? NULL
                         : cache_get(&j->caches->of[which], k->s, k->n, fill_entry, &job,
                                     temporary, LEN(temporary));
  if (!x) return err_set(&j->e, WEFT_ENOMEM, "out of memory in a sweep");
  p->of[which] = x;
  return WEFT_OK;
}

/* An entry without a value says why. */
static weft_status entry_status(Point *p, const CacheEntry *x) {
  if (x->st == WEFT_EPLAN)
    point_reason(&x->d, &x->e, p->why);
  else if (x->st != WEFT_OK)
    p->j->e = x->e;
  return x->st;
}

/* Only the whole batch shows that a tensor is too large to be counted. */
static bool too_wide(const Point *p) {
  const BuiltUnits *f = p->of[PASS_UNITS]->value;
  double batch = (double)plan_of(p)->batch.micro * mesh_size(&p->mesh, AXES_DP);
  return f && f->u && f->u->widest * batch > (double)(1ull << ELEMENTS_LOG2);
}

static weft_status look_up_units(Passes *w) {
  Point *p = w->ud;
  do TRY(look_up(w, PASS_UNITS));
  while (!p->all_dp && (p->all_dp = too_wide(p)));
  return WEFT_OK;
}

/* Units depend on the schedule, but weft check calls the model function first: what is
 * wrong there is told instead. */
static weft_status model_first(Passes *w) {
  Point *p = w->ud;
  w->in.schedule = NULL;
  TRY(look_up_units(w));
  return p->of[PASS_UNITS]->value ? WEFT_OK : entry_status(p, p->of[PASS_UNITS]);
}

static weft_status find_pass(Passes *w, Pass which, const void **value) {
  Point *p = w->ud;
  TRY(which == PASS_UNITS ? look_up_units(w) : look_up(w, which));
  const CacheEntry *x = p->of[which];
  if (which == PASS_SCHEDULE && x->st != WEFT_OK) TRY(model_first(w));
  *value = x->value;
  return entry_status(p, x);
}

/* ---- the point ---- */

static weft_status prepare(Point *p, const int *choice, int n) {
  Judge *j = p->j;
  weft_status st =
      vary_begin(j->lp, j->values, j->shared, choice, n, &p->vary, &p->d, &j->e);
  p->lp = &p->vary.plan;
  if (st == WEFT_OK && !lang_resolve_mesh(p->lp, &p->lp->plan, 0, &p->mesh, &p->d))
    st = WEFT_EPLAN;
  if (st == WEFT_EPLAN) point_reason(&p->d, &j->e, p->why);
  return st;
}

/* What a rank of the plan may hold: max_gib, else what the cluster's GPU has for it. */
static uint64_t limit_of(const Judge *j, const Plan *plan) {
  double room = plan_memory_limit(plan);
  return j->limit == LIMIT_GPU && isfinite(room) ? (uint64_t)room : j->limit;
}

/* The bytes of the worst rank: only these are put together for each point. */
static weft_status judge_memory(Passes *w, PointRow *row) {
  Point *p = w->ud;
  uint64_t limit = limit_of(p->j, plan_of(p));
  const ReadySchedule *s = w->schedule;
  RankMemory size =
      rank_memory_floor(w->costs, &s->when, s->splits, row->microbatches, limit);
  row->floor = p->j->floor;
  row->mean_fixed = size.mean;
  if (!size.over && !row->floor) {
    TRY(passes_ranks(w));
    const Lives *l = w->made;
    arena_reset(p->j->scratch);
    size =
        rank_memory(w->costs, l->step, l->eval, row->microbatches, limit, p->j->scratch);
  }
  row->state = size.over ? POINT_MEMORY : POINT_OK;
  row->bytes = (double)size.bytes;
  row->worst = size.rank;
  return WEFT_OK;
}

/* What ranks do in a step, all its rounds, and when. */
typedef struct WholeStep {
  Schedule s;
  Timeline when;
} WholeStep;

static weft_status step_of(const Passes *w, WholeStep *out) {
  Judge *j = ((Point *)w->ud)->j;
  int64_t rounds = w->in.plan->batch.rounds;
  *out = (WholeStep){w->schedule->s, w->schedule->when};
  if (rounds <= 1) return WEFT_OK;
  out->s = schedule_of_step(&w->schedule->s, (int)rounds, j->arena);
  return timeline_run(&out->s, TIMELINE_UNIT, j->arena, &out->when, &j->e);
}

static void judge_costs(const Passes *w, const WholeStep *step, PointRow *row) {
  const Lives *l = w->made;
  Arena *scratch = ((Point *)w->ud)->j->scratch;
  arena_reset(scratch);
  Estimate e = estimate(w->costs, l ? l->step : NULL, w->in.plan, &w->mesh,
                        row->microbatches, &step->s, &step->when, scratch);
  row->tp = e.tp, row->cp = e.cp, row->ep = e.ep, row->dp_bytes = e.dp, row->pp = e.pp;
  row->ep_even = e.ep_even;
  row->flops = e.flops, row->recomputed = e.recomputed;
  row->seconds = e.seconds;
  row->even = e.even;
}

static weft_status judge(Point *p, const int *choice, int n, PointRow *row) {
  Judge *j = p->j;
  TRY(prepare(p, choice, n));
  const Plan *plan = plan_of(p);
  p->microbatches = plan_microbatches(plan, &p->mesh);
  row->dp = mesh_size(&p->mesh, AXES_DP);
  row->microbatches = p->microbatches * (int)MAX(plan->batch.rounds, 1);
  Passes w = {.in = {.plan = plan, .arena = j->scratch, .scratch = j->unit},
              .mesh = p->mesh,
              .costs_only = true,
              .ranks = make_lives,
              .find = find_pass,
              .ud = p};
  WholeStep step;
  TRY(passes_stages(&w));
  TRY(step_of(&w, &step));
  row->bubble = timeline_bubble(&step.when);
  TRY(judge_memory(&w, row));
  if (row->state == POINT_OK) judge_costs(&w, &step, row);
  return WEFT_OK;
}

/* ---- guarded ---- */

typedef struct Guarded {
  Point p;
  const int *choice;
  int n;
  PointRow *row;
  weft_status st;
} Guarded;

static void run_judge(void *ud) {
  Guarded *g = ud;
  g->st = judge(&g->p, g->choice, g->n, g->row);
}

static void run_scratch(void *ud) {
  Guarded *g = ud;
  if (!arena_try(g->p.j->scratch, run_judge, g))
    g->st = err_set(&g->p.j->e, WEFT_ENOMEM, "out of memory in a sweep");
}

weft_status judge_point(Judge *j, const int *choice, int n, PointRow *row,
                        PointReason *why) {
  Guarded g = {.p = {.j = j, .d = {.arena = j->arena}, .why = why},
               .choice = choice,
               .n = n,
               .row = row};
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

weft_status judge_open(Judge *j, LangPlan *lp, int values, const LangShared *shared,
                       SweepCaches *c, uint64_t limit) {
  *j = (Judge){.lp = lp, .values = values, .shared = shared, .caches = c, .limit = limit};
  j->arena = arena_new(NULL);
  j->scratch = arena_new(NULL);
  j->unit = arena_new(NULL);
  j->stages.arena = arena_new(NULL);
  if (j->arena && j->scratch && j->unit && j->stages.arena) return WEFT_OK;
  return err_set(&j->e, WEFT_ENOMEM, "out of memory for a sweep");
}

void judge_close(Judge *j) {
  lang_free(j->lp);
  arena_free(j->arena);
  arena_free(j->scratch);
  arena_free(j->unit);
  arena_free(j->stages.arena);
  free(j->stages.key);
  text_free(&j->key);
}

void sweep_caches_init(SweepCaches *c) {
  for (int i = 0; i < PASS_N; i++) cache_init(&c->of[i]);
  cache_init(&c->graph);
  cache_init(&c->shape);
}

void sweep_caches_free(SweepCaches *c) {
  for (int i = 0; i < PASS_N; i++) cache_free(&c->of[i]);
  cache_free(&c->graph);
  cache_free(&c->shape);
}
