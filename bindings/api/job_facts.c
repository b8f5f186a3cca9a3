/* job_facts.c - a job as a list of texts, so that the processes of a run can compare what
 * they were started with. Fields come from the schema; what has no number there is told
 * apart by the plan's table as it was written. */
#include "bindings/lang/lang.h"
#include "bindings/lang/schema.h"
#include "job.h"

#define OTHER_FIELDS "the plan's other fields"

typedef struct Facts {
  const Job *j;
  Arena *arena;
  VEC(RunFact) list;
} Facts;

static void add(Facts *f, const char *what, bool follows, const char *value) {
  *VEC_PUSH(f->arena, f->list) = (RunFact){what, value, follows};
}

static const char *value_text(Arena *a, const Field *f, const Plan *p) {
  const char *at = (const char *)p + f->at;
  switch (f->type) {
  case FIELD_BOOL:
    return *(const bool *)at ? "true" : "false";
  case FIELD_NUM:
    return arena_printf(a, "%.17g", *(const double *)at);
  case FIELD_INT:
    return arena_printf(a, "%lld",
                        f->size == sizeof(int64_t) ? (long long)*(const int64_t *)at
                                                   : (long long)*(const int *)at);
  default:
    return NULL;
  }
}

/* Several scopes may fill one place of the plan: those of the builders of lr, for one. */
static bool is_first(const Field *f) {
  for (const Field *g = schema; g < f; g++)
    if (g->size && g->at == f->at) return false;
  return true;
}

static void add_fields(Facts *f) {
  Arena *a = f->arena;
  for (const Field *g = schema; g->scope; g++) {
    const char *value = g->size && is_first(g) ? value_text(a, g, &f->j->plan) : NULL;
    if (value) add(f, arena_printf(a, "plan.%s", schema_path(a, g)), false, value);
  }
}

/* All fields as they were written, those without a number, too: names, lists, options. */
static void add_plan(Facts *f) {
  Arena *a = f->arena;
  weft_error ignored;
  Text t = {0};
  err_clear(&ignored);
  bool ok = vary_text(f->j->lp, &t, &ignored) == WEFT_OK && !t.oom;
  uint64_t h = ok ? hash_bytes(0, t.s, t.n) : 0;
  text_free(&t);
  add(f, OTHER_FIELDS, true, arena_printf(a, "%016llx", (unsigned long long)h));
}

static weft_status add_data(Facts *f, const char *what, const Data *data, weft_error *e) {
  uint64_t h;
  if (!data) {
    add(f, what, false, "none");
    return WEFT_OK;
  }
  TRY(data_look(data, &h, e));
  add(f, what, false,
      arena_printf(f->arena, "%s (%08x)", data_describe(data), (unsigned)(h ^ h >> 32)));
  return WEFT_OK;
}

static void add_weights(Facts *f, const SafeTensors *s) {
  uint64_t h = 0;
  for (int i = 0; i < st_count(s); i++) {
    const SafeTensor *t = st_at(s, i);
    h = hash_bytes(h, t->name, strlen(t->name));
    h = hash_bytes(h, t->dim, sizeof t->dim);
    h = hash_bytes(h, t->type, strlen(t->type));
  }
  add(f, "weights", false,
      arena_printf(f->arena, "%d tensors, %llu bytes (%08x)", st_count(s),
                   (unsigned long long)st_bytes(s), (unsigned)(h ^ h >> 32)));
}

weft_status job_facts(const Job *j, JobFacts *o, weft_error *e) {
  Facts f = {.j = j, .arena = o->arena};
  add_fields(&f);
  add(&f, "plan.schedule", false, j->plan.schedule);
  if (o->steps && o->steps != j->plan.steps)
    add(&f, "--steps", false, arena_printf(f.arena, "%lld", (long long)o->steps));
  else
    add(&f, "--steps", false, "not given");
  TRY(add_data(&f, "data", o->data, e));
  TRY(add_data(&f, "data for validation", o->val, e));
  if (o->weights)
    add_weights(&f, o->weights);
  else
    add(&f, "weights", false, "none");
  if (o->resumed) add(&f, "checkpoint", false, o->resumed);
  add_plan(&f);
  o->fact = f.list.at;
  o->n = f.list.n;
  return WEFT_OK;
}

uint64_t job_hash(const JobFacts *f) {
  uint64_t h = 0;
  for (int i = 0; i < f->n; i++) {
    const RunFact *x = &f->fact[i];
    if (strncmp(x->what, "plan.", 5) != 0 && strcmp(x->what, OTHER_FIELDS) != 0) continue;
    h = hash_bytes(h, x->what, strlen(x->what) + 1);
    h = hash_bytes(h, x->value, strlen(x->value) + 1);
  }
  return h;
}
