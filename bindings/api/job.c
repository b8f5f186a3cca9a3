/* job.c - from a plan file to proven programs, one step per function; see job.h. */
#include "job.h"
#include "bindings/chat/chat_plan.h"
#include "bindings/chat/plan_tokenizer.h"

#include <math.h>

#include "bindings/schema/schema.h"
#include "bindings/model/model.h"
#include "bindings/schedule/schedule_facts.h"

#include "vm/base/budget.h"
#include "vm/session/gpu_memory.h"

#include "vm/weights/weights_match.h"
#include "vm/weights/weights_open.h"
#include "vm/compile/compile.h"
#include "vm/pipeline/schedule.h"
#include "vm/base/plural.h"

weft_status job_load(Job *j, Arena *arena, const LangOptions *o, const char *path) {
  *j = (Job){.arena = arena, .d = {.arena = arena}};
  err_clear(&j->e);
  TRY(lang_load(o, path, &j->lp, &j->d, &j->e));
  j->plan = *lang_plan(j->lp);
  return WEFT_OK;
}

weft_status job_load_value(Job *j, Arena *arena, const LangOptions *o,
                           const LangValue *v) {
  *j = (Job){.arena = arena, .d = {.arena = arena}};
  err_clear(&j->e);
  TRY(lang_load_value(o, v, &j->lp, &j->d, &j->e));
  j->plan = *lang_plan(j->lp);
  return WEFT_OK;
}

void job_free(Job *j) {
  text_free(&j->dumped);
  lang_free(j->lp);
  j->lp = NULL;
}

bool job_open_world(const Job *j) {
  const MeshSpec *m = &j->plan.mesh;
  return !m->world && !m->dp && !lang_cluster_ranks(j->lp);
}

weft_status job_mesh(Job *j, int64_t world) {
  weft_status st = WEFT_EPLAN;
  if (lang_resolve_mesh(j->lp, &j->plan, world, &j->mesh, &j->d))
    st = lang_check_mesh(j->lp, &j->plan, &j->mesh, &j->d, &j->e);
  if (st != WEFT_OK) {
    lang_locate(j->lp, &j->d);
    return st;
  }
  j->microbatches = plan_microbatches(&j->plan, &j->mesh);
  j->schedule = (Schedule){0};
  return WEFT_OK;
}

weft_status job_graph(Job *j) {
  int64_t B = j->plan.batch.micro * mesh_size(&j->mesh, AXES_DP);
  j->graph = graph_new(j->arena, B, j->plan.batch.seq);
  j->graph->sources = plan_sources(&j->plan.data);
  if (j->tells_rows) j->graph->sources = (int)j->plan.batch.global;
  if (j->tells_entropy && !j->graph->sources) j->graph->sources = 1;
  return lang_build_graph(j->lp, &j->plan, B, j->plan.batch.seq, j->graph, &j->d, &j->e);
}

weft_status job_schedule(Job *j) {
  return lang_schedule(j->lp, &j->mesh, j->microbatches, &j->schedule, &j->d, &j->e);
}

/* The memory classes of a rank in GiB, largest first: "parameters 1.5, optimizer state
 * 6.0". */
static const char *classes_text(const Job *j, const Program *p) {
  const char *text = "";
  bool *listed = NEW_N(j->arena, bool, p->nmem);
  for (int n = 0; n < p->nmem; n++) {
    int best = -1;
    for (int i = 0; i < p->nmem; i++)
      if (!listed[i] && (best < 0 || p->mem[i].bytes > p->mem[best].bytes)) best = i;
    listed[best] = true;
    double gib = (double)p->mem[best].bytes / (1 << 30);
    if (gib >= 0.05)
      text = arena_printf(j->arena, "%s%s%s %.1f", text, *text ? ", " : "",
                          p->mem[best].name, gib);
  }
  return text;
}

/* Where the arena fits beside the reserve, but what CUDA and NCCL take is more than that.
 */
static void warn_reserve(Job *j) {
  const Cluster *c = &j->plan.cluster;
  int pp;
  if (!c->gpu || !c->memory_gib) return;
  double all = (double)gpu_memory_worst(j->arena, &j->plan, j->compiled, &pp) / (1 << 30);
  if (all <= c->memory_gib) return;
  GpuMemory m = gpu_memory(j->arena, &j->plan, j->compiled, pp);
  double more = (double)gpu_memory_sum(&m) / (1 << 30), gib = all - more;
  const char *cudnn = m.scratch ? ", cuDNN's scratch, which attention_backend = "
                                  "\"native\" does without"
                                : "";
  diag_warn(
      &j->d, "gpu-reserve", "cluster.reserve_gib",
      "pipeline rank %d needs %.1f GiB, and CUDA and NCCL take about %.1f GiB of a GPU "
      "besides (%d communicator%s of %d CTAs%s), together more than the %.1f GiB of %s: "
      "reserve_gib = %.1f counts it, nccl.group_ctas makes it less",
      pp, gib, more, m.ngroup, plural(m.ngroup, "s"), m.group_ctas, cudnn, c->memory_gib,
      c->gpu, ceil(more * 10) / 10);
}

/* Only a warning: a plan that its GPUs cannot hold may be meant for `weft verify`. */
static void warn_memory(Job *j) {
  const Cluster *c = &j->plan.cluster;
  int pp;
  uint64_t worst = job_worst_memory(j, &pp);
  double room = plan_memory_limit(&j->plan);
  if ((double)worst <= room) {
    warn_reserve(j);
    return;
  }
  double gib = (double)worst / (1 << 30);
  diag_warn(&j->d, "memory", "cluster",
            "pipeline rank %d needs %.1f GiB, %.1f GiB more than the %.1f GiB of %s less "
            "cluster.reserve_gib = %.15g (in GiB: %s)",
            pp, gib, gib - (room / (1 << 30)), c->memory_gib, c->gpu, c->reserve_gib,
            classes_text(j, &j->compiled->prog[pp]));
  job_gradient_sync(j, room);
}

/* The device must support the compute type. */
static weft_status check_device(Job *j) {
  if (j->device && !j->device->fp8 && j->plan.fp8.recipe)
    return err_set(
        &j->e, WEFT_EUSAGE,
        "device %s has no products in fp8, which the plan's precision asks for: "
        "use bf16",
        j->device->name);
  if (!j->device || j->device->f16 || j->plan.dtype != DT_F16) return WEFT_OK;
  return err_set(
      &j->e, WEFT_EUSAGE,
      "device %s computes in f32 and bf16; the plan's precision is f16: use bf16",
      j->device->name);
}

void job_library(Job *j) {
  j->no_library[0] = 0;
  if (!j->device || !j->device->attention_version ||
      j->plan.attention == ATTENTION_NATIVE)
    return;
  int version = j->device->attention_version(j->no_library);
  if (version > 0 || j->plan.attention == ATTENTION_AUTO)
    j->plan.attention_library = version;
}

const char *job_attention(const Job *j) {
  char text[ATTENTION_WAY];
  int version = j->plan.attention_library;
  if (j->plan.attention == ATTENTION_NATIVE || !attention_way(j->compiled, text))
    return NULL;
  if (version > 0 && strstr(text, "cuDNN"))
    return arena_printf(j->arena,
                        str_eq(text, "cuDNN") ? "%s %d.%d.%d" : "%s (cuDNN %d.%d.%d)",
                        text, version / 10000, version / 100 % 100, version % 100);
  /* Of what it would not compute anyway it is not the reason. */
  if (!j->no_library[0] || j->plan.dtype == DT_F32 || !str_eq(text, "weft's own kernels"))
    return arena_str(j->arena, text);
  return arena_printf(j->arena, "%s (%s)", text, j->no_library);
}

static weft_status compile_steps(Job *j) {
  TRY(check_device(j));
  budget_part(j->arena, "the graph");
  TRY(job_graph(j));
  budget_part(j->arena, "the schedule");
  if (!j->schedule.list) TRY(job_schedule(j));
  CompileInput in = {.plan = &j->plan,
                     .mesh = &j->mesh,
                     .graph = j->graph,
                     .schedule = &j->schedule,
                     .evaluates = j->evaluates,
                     .device = j->device,
                     .arena = j->arena,
                     .dump = j->dump,
                     .dump_out = &j->dumped};
  weft_status st = compile(&in, &j->compiled, &j->d, &j->e);
  if (st == WEFT_OK) {
    j->mesh = j->compiled->mesh; /* with tp split as the model's heads need it */
    warn_memory(j), job_advise(j);
    st = job_no_effect(j);
  }
  if (j->d.list.n) lang_locate(j->lp, &j->d);
  return st;
}

typedef struct CompileJob {
  Job *j;
  weft_status st;
} CompileJob;

static void run_compile(void *ud) {
  CompileJob *c = ud;
  c->st = compile_steps(c->j);
}

/* Running out of the memory limit fails in many ways; here it becomes one error. */
weft_status job_compile(Job *j) {
  enum { ROOM = 1 << 20 }; /* bytes kept free for the message */
  CompileJob c = {.j = j};
  Diags before = j->d;
  if (!arena_try(j->arena, run_compile, &c))
    c.st = err_set(&j->e, WEFT_ENOMEM, "out of memory while compiling");
  Budget *b = budget_of(j->arena);
  if (c.st == WEFT_OK || !b || !b->over) return c.st;
  j->d = before;
  err_clear(&j->e);
  budget_error(b, &j->e);
  b->limit += ROOM;
  return WEFT_ELIMIT;
}

weft_status job_sources(Job *j) {
  int before = j->d.list.n;
  weft_status st = chat_plan_data(j->lp, &j->plan.data, j->compiled->vocab, &j->d, &j->e);
  if (j->d.list.n > before) lang_locate(j->lp, &j->d);
  return job_of_field(j, st, "data", &j->e);
}

void job_epochs(Plan *p, const Data *d) {
  if (!(p->epochs > 0)) return;
  double samples = p->epochs * (double)data_windows(d);
  p->steps = (int64_t)ceil(samples / (double)p->batch.global - 1e-9);
  p->steps = MAX(p->steps, (int64_t)1);
}

/* What is learnt, or measured, without anybody having meant it. */
static weft_status warn_of_data(Job *j, const Data *data) {
  const char *rows = data_text_of_rows(data);
  int before = j->d.list.n;
  if (rows && j->plan.data.format != TEXT_BYTES)
    diag_warn(&j->d, "data", "data",
              "%s is taken as text, with the braces and names of its JSON: weft tokenize "
              "takes the \"text\" of each row, weft.chat conversations; format = "
              "\"bytes\" says that all of it is meant",
              rows);
  TRY(job_no_data(j));
  if (j->d.list.n > before) lang_locate(j->lp, &j->d);
  return WEFT_OK;
}

weft_status job_data(Job *j, const weft_alloc *a, Data **out) {
  TRY(job_sources(j));
  TRY(job_reference(j, &j->e));
  weft_status st = data_open(a, &j->plan.data, j->plan.batch.seq, j->compiled->vocab,
                             j->plan.seed, out, &j->e);
  if (st != WEFT_OK) return job_of_field(j, st, "data", &j->e);
  job_epochs(&j->plan, *out);
  if ((st = warn_of_data(j, *out)) == WEFT_OK) return WEFT_OK;
  data_close(*out);
  *out = NULL;
  return st;
}

weft_status job_tokenizer(Job *j) {
  int before = j->d.list.n;
  weft_status st = plan_tokenizer_check(j->lp, j->compiled->vocab, &j->d, &j->e);
  if (j->d.list.n > before) lang_locate(j->lp, &j->d);
  return st;
}

weft_status job_look(Job *j, const Data *d) {
  uint64_t ends;
  DataPrint samples;
  weft_status st = data_look(d, &ends, &j->e);
  if (st == WEFT_OK) st = data_look_inside(d, &samples, &j->e);
  return job_of_field(j, st, "data", &j->e);
}

/* What does not fit is an error of the folder as the plan names it. */
static weft_status check_fit(const Job *j, const SafeTensors *weights, weft_error *e) {
  weft_status st = weights_fit(j->compiled, weights, NULL, e);
  if (st == WEFT_EFILE && !*e->file)
    snprintf(e->file, sizeof e->file, "%s", lang_weights(j->lp));
  return st;
}

weft_status job_weights(Job *j, const weft_alloc *a, SafeTensors **out, weft_error *e) {
  Folders in = lang_folders(j->lp);
  weft_status st = weights_open(a, lang_weights(j->lp), &in, &j->plan, &in, out, e);
  if (st == WEFT_OK && *out && j->compiled) st = check_fit(j, *out, e);
  if (st != WEFT_OK) {
    st_close(*out);
    *out = NULL;
  }
  return job_of_field(j, st, "model", e);
}

/* A token of padding is a document by itself, so that all of them choose the same
 * experts; those have more to do, less room, and a load that a loss or a bias works
 * against. */
static void warn_of_padding(Job *j, const Data *data) {
  const MoePlan *m = &j->plan.moe;
  bool experts = false, matters = m->aux > 0 || m->z > 0 || m->bias_rate > 0 ||
                                  m->capacity > 0 || m->most > 0;
  double padding = data_padding(data);
  for (int i = 0; i < j->graph->forward_ops; i++)
    experts |= j->graph->op.at[i].code == OP_permute;
  if (!experts || !matters || padding < 0.1) return;
  diag_warn(&j->d, "data", "data",
            "%.0f %% of the tokens in rows are padding, which routers see, too: they all "
            "choose the same experts, count in what balances these and take their room",
            100 * padding);
}

weft_status job_check_files(Job *j) {
  SafeTensors *weights = NULL;
  Data *data;
  TRY(job_tokenizer(j)); /* what the data may be at all */
  TRY(job_check_val(j));
  TRY(job_data(j, NULL, &data));
  weft_status st = job_look(j, data);
  int64_t has = data_windows(data), step = j->plan.batch.global;
  if (has && has < step)
    diag_warn(&j->d, "data", "data",
              "%s: that is %lld sample%s of batch.seq tokens, so that a step of %lld "
              "sequences sees some of them more than once",
              data_describe(data), (long long)has, plural(has, "s"), (long long)step);
  warn_of_padding(j, data);
  data_close(data);
  if (st == WEFT_OK) st = job_weights(j, NULL, &weights, &j->e);
  st_close(weights);
  if (j->d.list.n) lang_locate(j->lp, &j->d);
  return st;
}

weft_status job_open(Job *j, Arena *arena, const LangOptions *o, const char *path) {
  TRY(job_load(j, arena, o, path));
  TRY(job_mesh(j, 0));
  return job_compile(j);
}

int job_node_ranks(const Job *j) {
  int64_t gpus = j->plan.cluster.gpus;
  return gpus ? (int)gpus : GPUS_OF_A_NODE;
}

void job_note(Job *j, weft_status st) {
  static const char *const codes[] = {
      [WEFT_EPLAN] = "plan",         [WEFT_ERUN] = "run",
      [WEFT_EFILE] = "file",         [WEFT_EUSAGE] = "usage",
      [WEFT_ELIMIT] = "limit",       [WEFT_ENOMEM] = "out-of-memory",
      [WEFT_EINTERNAL] = "internal", [WEFT_EINTR] = "interrupted"};
  Diag *g = diag_error(&j->d, codes[st], "", "%s", j->e.text);
  if (j->e.file[0]) g->file = arena_str(j->arena, j->e.file);
  g->line = j->e.line;
}

Schedule job_step_schedule(const Job *j, Arena *a) {
  return schedule_of_step(&j->schedule, (int)MAX(j->plan.batch.rounds, 1), a);
}

uint64_t job_worst_memory(const Job *j, int *pp) {
  uint64_t worst = 0;
  *pp = 0;
  for (int r = 0; r < j->mesh.size[AXIS_PP]; r++)
    if (j->compiled->prog[r].arena_bytes > worst)
      worst = j->compiled->prog[r].arena_bytes, *pp = r;
  return worst;
}
