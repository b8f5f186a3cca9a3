/* job_facts.c - a job as a list of strings, so that the processes of a run can compare
 * what they were started with. Fields are listed by the schema; those that have no place
 * in Plan are compared as they were written in the plan's table. */
#include "bindings/lang/plan_key.h"
#include "bindings/schema/schema.h"
#include "job.h"

#define OTHER_FIELDS "the plan's other fields"

typedef struct Facts {
  const Job *j;
  Arena *arena;
  VEC(RunFact) list;
} Facts;

static void add(Facts *f, const char *what, FactKind kind, const char *value) {
  *VEC_PUSH(f->arena, f->list) = (RunFact){what, value, kind, NULL};
}

static void add_fields(Facts *f) {
  Arena *a = f->arena;
  for (const Field *g = schema; g->scope; g++) {
    Text t = {0};
    if (!schema_tells(g)) continue;
    field_print(g, &f->j->plan, &t);
    const char *value = arena_take(a, &t);
    add(f, arena_printf(a, "plan.%s", schema_path(a, g)), FACT_SAME, value);
  }
}

/* Adds the fields without a place in Plan, as they were written: lists, tables,
 * functions. */
static weft_status add_others(Facts *f, weft_error *e) {
  Text t = {0};
  weft_status st = plan_key_others(f->j->lp, &t, e);
  if (st == WEFT_OK && t.oom) st = err_set(e, WEFT_ENOMEM, "out of memory");
  uint64_t h = hash_bytes(0, t.s, t.n);
  text_free(&t);
  TRY(st);
  add(f, OTHER_FIELDS, FACT_FOLLOWS,
      arena_printf(f->arena, "%016llx", (unsigned long long)h));
  return WEFT_OK;
}

static weft_status add_data(Facts *f, const char *what, const Data *data, weft_error *e) {
  uint64_t h;
  if (!data) {
    add(f, what, FACT_SAME, "none");
    return WEFT_OK;
  }
  TRY(data_look(data, &h, e));
  add(f, what, FACT_SAME,
      arena_printf(f->arena, "%s (%08x)", data_describe(data), (unsigned)(h ^ h >> 32)));
  return WEFT_OK;
}

/* A fact of its own: checkpoints of before, which do not have it, are compared by the
 * others. */
static weft_status add_samples(Facts *f, const char *what, const Data *data,
                               weft_error *e) {
  DataPrint p = {0};
  if (data) TRY(data_look_inside(data, &p, e));
  if (p.samples)
    add(f, what, FACT_SAME,
        arena_printf(f->arena, "%lld of %lld (%016llx)", (long long)p.samples,
                     (long long)data_windows(data), (unsigned long long)p.hash));
  return WEFT_OK;
}

/* Each process reads the pieces of its ranks from its own copy of the files: those of the
 * model, of an adapter and of a teacher. */
static weft_status add_values(Facts *f, const SafeTensors *s, weft_error *e) {
  enum { MOST = 2048 }; /* experts may be a hundred thousand tensors */
  uint64_t h = 0;
  TRY(st_look(s, MOST, &h, e));
  *VEC_PUSH(f->arena, f->list) = (RunFact){
      "values of the weights", arena_printf(f->arena, "%016llx", (unsigned long long)h),
      FACT_SAME,
      "their files have other contents: each process would compute with its own"};
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
  add(f, "weights", FACT_SAME,
      arena_printf(f->arena, "%d tensors, %llu bytes (%08x)", st_count(s),
                   (unsigned long long)st_bytes(s), (unsigned)(h ^ h >> 32)));
}

weft_status job_facts(const Job *j, JobFacts *o, weft_error *e) {
  Facts f = {.j = j, .arena = o->arena};
  add_fields(&f);
  add(&f, "plan.schedule", FACT_SAME, j->plan.schedule);
  if (o->steps && o->steps != j->plan.steps)
    add(&f, "--steps", FACT_SAME, arena_printf(f.arena, "%lld", (long long)o->steps));
  else
    add(&f, "--steps", FACT_SAME, "not given");
  TRY(add_data(&f, "data", o->data, e));
  TRY(add_data(&f, "data for validation", o->val, e));
  TRY(add_samples(&f, "samples of the data", o->data, e));
  TRY(add_samples(&f, "samples for validation", o->val, e));
  if (o->weights) {
    add_weights(&f, o->weights);
    TRY(add_values(&f, o->weights, e));
  } else {
    add(&f, "weights", FACT_SAME, "none");
  }
  if (o->resumed) add(&f, "checkpoint", FACT_SAME, o->resumed);
  TRY(add_others(&f, e));
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
