/* api_plan.c - plan handles of weft.h: load, reports, compile, queries. */
#include "api.h"

#include "vm/base/c_locale.h"
#include "vm/base/json.h"

_Static_assert(sizeof(StopFlag) == sizeof(int), "a stop flag is an int in memory");

const StopFlag *api_stop(const volatile int *stop) { return (const StopFlag *)stop; }

weft_status api_end(const Job *j, weft_status st, weft_error *err) {
  if (st == WEFT_OK || !err) return st;
  if (st == WEFT_EPLAN && j->d.errors) return report_first(&j->d, err);
  *err = j->e;
  return st;
}

/* ---- calls that use the arena ---- */

typedef struct PlanCall {
  weft_plan *plan;
  const weft_plan_options *options;
  const char *path;
  const LangValue *value; /* NULL: the plan is a file */
  const char *text;       /* contents of that file; NULL: it is read */
  bool draft;
  int world;
  weft_status (*fn)(struct PlanCall *c);
  weft_status st;
} PlanCall;

static bool stopped(const PlanCall *c) {
  const LangOptions *o = &c->plan->opt;
  return o->stop && *o->stop;
}

static void call_job(void *ud) {
  PlanCall *c = ud;
  Job *j = &c->plan->job;
  c->st = c->fn(c);
  /* A job that ended without polling the stop flag was interrupted all the same. */
  if (c->st == WEFT_OK && stopped(c)) c->st = err_set(&j->e, WEFT_EINTR, "interrupted");
  /* Errors other than those of a wrong plan are added to the report. */
  if (c->st != WEFT_OK && !(c->st == WEFT_EPLAN && j->d.errors)) job_note(j, c->st);
}

static weft_status call(PlanCall *c, weft_error *err) {
  weft_plan *p = c->plan;
  err_clear(&p->job.e);
  if (!arena_try(p->arena, call_job, c))
    c->st = err_set(&p->job.e, WEFT_ENOMEM, "out of memory");
  if (c->st == WEFT_ENOMEM) p->spent = true;
  return api_end(&p->job, c->st, err);
}

/* ---- loading ---- */

static const char *const *copy_list(Arena *a, const char *const *list, int *n) {
  *n = 0;
  while (list && list[*n]) (*n)++;
  const char **copy = NEW_N(a, const char *, *n + 1);
  for (int i = 0; i < *n; i++) copy[i] = arena_str(a, list[i]);
  return copy;
}

static void copy_diags(Arena *a, const Diags *from, Diags *to) {
  *to = *from;
  to->list.at = NEW_N(a, Diag, from->list.n + 1);
  to->list.cap = from->list.n + 1;
  if (from->list.n)
    memcpy(to->list.at, from->list.at, sizeof *to->list.at * (size_t)from->list.n);
}

static weft_status load(PlanCall *c) {
  weft_plan *p = c->plan;
  const weft_plan_options *o = c->options;
  p->opt = (LangOptions){.alloc = &p->alloc,
                         .memory_limit = (size_t)o->memory_limit,
                         .instruction_limit = o->instruction_limit,
                         .cpu_limit = o->cpu_limit,
                         .stop = api_stop(o->stop),
                         .print = o->print,
                         .ud = o->ud};
  if (c->text) p->opt.text = arena_str(p->arena, c->text);
  p->opt.draft = c->draft;
  p->opt.set = copy_list(p->arena, o->set, &p->opt.nset);
  p->opt.define = copy_list(p->arena, o->define, &p->opt.ndefine);
  p->opt.data = copy_list(p->arena, o->data, &p->opt.ndata);
  p->path = arena_str(p->arena, c->path);
  p->from_value = c->value != NULL;
  TRY(c->value ? job_load_value(&p->job, p->arena, &p->opt, c->value)
               : job_load(&p->job, p->arena, &p->opt, p->path));
  copy_diags(p->arena, &p->job.d, &p->after_load);
  return WEFT_OK;
}

static weft_status new_plan(const weft_plan_options *options, PlanCall c, weft_plan **out,
                            weft_error *err) {
  IN_C_LOCALE;
  weft_plan_options o;
  err_clear(err);
  TRY(need(out, "the output argument for the plan", err));
  *out = NULL;
  TRY(struct_read(&o, sizeof o, options, "weft_plan_options", err));
  if (!c.path && !c.value)
    return err_set(err, WEFT_EUSAGE, "the path of the plan is missing");
  if (o.instruction_limit < 0 || !(o.cpu_limit >= 0))
    return err_set(
        err, WEFT_EUSAGE,
        "limits of %lld instructions and %g seconds are not possible: give more "
        "than 0, or 0 for those of weft",
        (long long)o.instruction_limit, o.cpu_limit);
  weft_plan *p = mem_new(o.alloc, sizeof *p);
  if (p) budget_init(&p->budget, o.alloc, o.compile_limit);
  weft_alloc counted = p ? budget_alloc(&p->budget) : (weft_alloc){0};
  if (!p || !(p->arena = arena_new(&counted))) {
    mem_free(o.alloc, p, sizeof *p);
    return err_set(err, WEFT_ENOMEM, "out of memory");
  }
  if (o.alloc) p->alloc = *o.alloc;
  p->text.alloc = &p->alloc;
  p->job = (Job){.arena = p->arena, .d = {.arena = p->arena}};
  *out = p;
  c.plan = p, c.options = &o, c.fn = load;
  weft_status st = call(&c, err);
  p->loaded = st == WEFT_OK;
  return st;
}

weft_status weft_plan_load(const weft_plan_options *options, const char *path,
                           weft_plan **out, weft_error *err) {
  return new_plan(options, (PlanCall){.path = path}, out, err);
}

weft_status api_plan_take(const weft_plan_options *options, const LangValue *value,
                          bool draft, weft_plan **out, weft_error *err) {
  return new_plan(options, (PlanCall){.value = value, .draft = draft}, out, err);
}

weft_status api_plan_text(const weft_plan_options *options, const char *path,
                          const char *text, weft_plan **out, weft_error *err) {
  return new_plan(options, (PlanCall){.path = path, .text = text}, out, err);
}

weft_status api_plan_draft(const weft_plan_options *options, const char *path,
                           const char *text, weft_plan **out, weft_error *err) {
  return new_plan(options, (PlanCall){.path = path, .text = text, .draft = true}, out,
                  err);
}

void weft_plan_free(weft_plan *p) {
  if (!p) return;
  job_free(&p->job);
  text_free(&p->text);
  arena_free(p->arena);
  weft_alloc alloc = p->alloc;
  mem_free(&alloc, p, sizeof *p);
}

/* ---- reports ---- */

static const char *text_of(weft_plan *p) {
  if (p->text.oom) return NULL;
  return p->text.s ? p->text.s : "";
}

const char *weft_plan_report(weft_plan *p) {
  IN_C_LOCALE;
  if (!p) return NULL;
  text_free(&p->text);
  report_text(&p->job.d, false, &p->text);
  return text_of(p);
}

const char *weft_plan_report_json(weft_plan *p) {
  IN_C_LOCALE;
  if (!p) return NULL;
  Json out = {.out = &p->text, .pretty = true};
  text_free(&p->text);
  report_json_begin(&p->job.d, "check", &out);
  json_none(&out, "result");
  report_json_end(&p->job.d, &out);
  text_add(&p->text, "\n");
  return text_of(p);
}

/* ---- compiling ---- */

static const Compiled *compiled(const weft_plan *p) { return p ? p->job.compiled : NULL; }

static weft_status need_compiled(const weft_plan *p, weft_error *err) {
  err_clear(err);
  TRY(need(p, "the plan", err));
  if (compiled(p)) return WEFT_OK;
  return err_set(err, WEFT_EUSAGE, "the plan is not compiled: call weft_plan_compile");
}

static weft_status compile_plan(PlanCall *c) {
  weft_plan *p = c->plan;
  Job *j = &p->job;
  j->compiled = NULL;
  p->warnings = NULL;
  copy_diags(p->arena, &p->after_load, &j->d);
  TRY(job_mesh(j, c->world));
  p->mesh.mesh = j->mesh;
  TRY(job_compile(j));
  TRY(job_expect(j, NULL));
  copy_diags(p->arena, &j->d, &p->after_compile);
  return WEFT_OK;
}

weft_status weft_plan_compile(weft_plan *p, int world, weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(p, "the plan", err));
  if (p->spent)
    return err_set(err, WEFT_ENOMEM, "the plan ran out of memory in an earlier call");
  if (!p->loaded)
    return err_set(err, WEFT_EUSAGE, "the plan was not loaded; its report says why");
  if (world < 0)
    return err_set(
        err, WEFT_EUSAGE,
        "a world of %d ranks is not possible: give at least 1, or 0 for the plan's own",
        world);
  weft_status st = call(&(PlanCall){.plan = p, .world = world, .fn = compile_plan}, err);
  if (st != WEFT_OK) p->job.compiled = NULL;
  return st;
}

/* Rules of sizing compile the plan again with other settings, so only where asked. */
static weft_status warn(PlanCall *c) {
  weft_plan *p = c->plan;
  Job j = p->job;
  copy_diags(p->arena, &p->job.d, &j.d);
  job_sizing(&j);
  lang_locate(j.lp, &j.d);
  p->warnings = NEW(p->arena, Diags);
  *p->warnings = j.d;
  return WEFT_OK;
}

weft_status api_plan_warnings(weft_plan *p, const Diags **out, weft_error *err) {
  IN_C_LOCALE;
  weft_status st = WEFT_OK;
  if (!p->warnings) st = call(&(PlanCall){.plan = p, .fn = warn}, err);
  *out = p->warnings;
  return st;
}

static weft_status check_plan(PlanCall *c) {
  weft_plan *p = c->plan;
  copy_diags(p->arena, &p->after_compile, &p->job.d);
  job_sizing(&p->job);
  lang_locate(p->job.lp, &p->job.d);
  return job_check_files(&p->job);
}

weft_status weft_plan_check(weft_plan *p, weft_error *err) {
  IN_C_LOCALE;
  TRY(need_compiled(p, err));
  if (p->spent)
    return err_set(err, WEFT_ENOMEM, "the plan ran out of memory in an earlier call");
  return call(&(PlanCall){.plan = p, .fn = check_plan}, err);
}

/* ---- queries ---- */

const char *weft_plan_name(const weft_plan *p) {
  return p && p->loaded ? p->job.plan.name : NULL;
}

int64_t weft_plan_steps(const weft_plan *p) {
  const Plan *of = p && p->loaded ? &p->job.plan : NULL;
  return of && !(of->epochs > 0) ? of->steps : 0;
}

int64_t weft_plan_sequences(const weft_plan *p) {
  return p && p->loaded ? p->job.plan.batch.global : 0;
}

int64_t weft_plan_tokens(const weft_plan *p) {
  return p && p->loaded ? p->job.plan.batch.seq : 0;
}

const weft_mesh *weft_plan_mesh(const weft_plan *p) {
  return compiled(p) ? &p->mesh : NULL;
}

int weft_plan_microbatches(const weft_plan *p) {
  return compiled(p) ? compiled(p)->microbatches : 0;
}

uint64_t weft_plan_parameters(const weft_plan *p) {
  return compiled(p) ? params_of_model(compiled(p)) : 0;
}

uint64_t weft_plan_memory(const weft_plan *p, int rank) {
  const Compiled *c = compiled(p);
  if (!c || rank < 0 || rank >= c->mesh.world) return 0;
  return c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)].arena_bytes;
}

int weft_plan_param_count(const weft_plan *p) {
  return compiled(p) ? compiled(p)->nparam : 0;
}

weft_status weft_plan_param_at(const weft_plan *p, int index, weft_param *out,
                               weft_error *err) {
  TRY(need_compiled(p, err));
  TRY(need(out, "the output argument for the parameter", err));
  const Compiled *c = compiled(p);
  if (index < 0 || index >= c->nparam)
    return err_set(err, WEFT_EUSAGE, "there is no parameter %d, the model has %d", index,
                   c->nparam);
  const CompiledParam *from = &c->param[index];
  *out = (weft_param){.name = from->name, .ndim = from->ndim, .count = param_count(from)};
  for (int i = 0; i < from->ndim; i++) out->dim[i] = from->dim[i];
  return WEFT_OK;
}

int api_find_param(const Compiled *c, const char *name) {
  int i = 0;
  while (i < c->nparam && strcmp(c->param[i].name, name) != 0) i++;
  return i < c->nparam ? i : -1;
}

weft_status weft_plan_param(const weft_plan *p, const char *name, weft_param *out,
                            weft_error *err) {
  TRY(need_compiled(p, err));
  int i = name ? api_find_param(compiled(p), name) : -1;
  if (i >= 0) return weft_plan_param_at(p, i, out, err);
  return err_set(err, WEFT_EUSAGE, "there is no parameter \"%s\"", name ? name : "");
}

weft_status weft_plan_proof(const weft_plan *p, weft_proof *out, weft_error *err) {
  TRY(need_compiled(p, err));
  TRY(need(out, "the output argument for the proof", err));
  const Proof *from = &compiled(p)->proof;
  *out = (weft_proof){.transfers = from->transfers,
                      .collectives = from->collectives,
                      .instructions = from->instructions,
                      .communicators = from->communicators};
  return WEFT_OK;
}

weft_status weft_plan_program(weft_plan *p, int rank, const char **out, weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(out, "the output argument for the program", err));
  *out = NULL;
  TRY(need_compiled(p, err));
  const Compiled *c = compiled(p);
  TRY(mesh_check_rank(&c->mesh, rank, err));
  text_free(&p->text);
  program_print(c, rank, true, &p->text);
  *out = text_of(p);
  return *out ? WEFT_OK : err_set(err, WEFT_ENOMEM, "out of memory");
}
