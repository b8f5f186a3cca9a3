/* ckpt_plan.c - weft ckpt convert and weft ckpt plan: the subcommands that read or write
 * checkpoints by a plan. */
#include "ckpt_verbs.h"

#include "bindings/runs/resume.h"
#include "bindings/object/format.h"
#include "vm/base/terminal.h"
#include "vm/ckpt/ckpt_convert.h"
#include "vm/rank/saved_pieces.h"
#include "vm/base/plural.h"

static weft_status compile_plan(Job *j, const Cli *cli, Arena *arena, const char *path) {
  TRY(job_start(j, cli, arena, path));
  TRY(job_mesh(j, 0));
  return job_compile(j);
}

/* ---- convert ---- */

typedef struct Conversion {
  Job a, b;
  Ckpt *from;
  JobFacts facts;
  Manifest m;
  char *text; /* text of plan B */
  size_t bytes;
  const char *out;
} Conversion;

/* Whether a fact is about the run and not the plan, and is therefore kept. */
static bool of_run(const char *what) {
  return strncmp(what, "plan.", 5) != 0 && !str_eq(what, "model");
}

/* The facts of the new manifest: those of plan B, and those of A's run. */
static weft_status new_facts(Conversion *c, Arena *arena) {
  const RunFact *now;
  int n;
  c->facts.arena = arena;
  TRY(job_facts(&c->b, &c->facts, &c->b.e));
  TRY(resume_facts(&c->b, &c->facts, &now, &n, &c->b.e));
  RunFact *list = NEW_N(arena, RunFact, n);
  for (int i = 0; i < n; i++) {
    const char *was = manifest_fact(&c->from->m, now[i].what);
    list[i] = now[i];
    if (was && of_run(now[i].what)) list[i].value = was;
  }
  c->m.fact = list;
  c->m.nfact = n;
  Text notes = {0};
  weft_status st = resume_check(c->from, list, n, &notes, &c->b.e);
  text_free(&notes);
  return st;
}

static weft_status convert(Conversion *c, const Cli *cli, Arena *arena,
                           const char *const *at) {
  weft_error *e = &c->b.e;
  const char *path;
  char mesh[96];
  bool none;
  Cli plain = *cli;
  plain.nset = 0; /* --set changes the plan that is converted to */
  weft_status st = compile_plan(&c->a, &plain, arena, at[0]);
  if (st != WEFT_OK) return st;
  TRY(compile_plan(&c->b, cli, arena, at[1]));
  TRY(store_find(arena, at[2], &path, &none, e));
  TRY(ckpt_open(path, &c->from, e));
  TRY(ckpt_fits(c->from, c->a.compiled, CKPT_STATES, e));
  TRY(ckpt_fits(c->from, c->b.compiled, CKPT_STATES, e));
  c->m = c->from->m;
  TRY(new_facts(c, arena));
  TRY(file_read(NULL, at[1], FILE_CODE_MAX, &c->text, &c->bytes, e));
  char hash[CHECKSUM_TEXT];
  c->m.plan = c->text;
  c->m.plan_hash = arena_str(arena, checksum_text(checksum(c->text, c->bytes), hash));
  c->m.name = c->b.plan.name;
  c->m.mesh = arena_str(arena, mesh_text(&c->b.mesh, mesh));
  c->m.world = c->b.mesh.world;
  c->m.weft = weft_version();
  c->out = store_path(arena, at[3], c->m.step, false);
  weft_error latest = NO_ERROR;
  heed_ends(cli);
  TRY(ckpt_convert(c->from, c->b.compiled, &c->m, at[3], cli->stop, &latest, e));
  if (latest.code)
    verb_warns(cli, &c->b, "\"%s\" does not name it: %s: %s", LATEST_NAME, latest.file,
               latest.text);
  return WEFT_OK;
}

static void converted_json(Json *out, void *ud) {
  const Conversion *c = ud;
  json_str(out, "path", c->out);
  json_int(out, "step", c->m.step);
  json_int(out, "world", c->m.world);
}

int ckpt_convert_plan(Cli *cli, Arena *arena, const char *const *at) {
  Conversion c = {0};
  weft_status st = convert(&c, cli, arena, at);
  if (st == WEFT_OK && !cli->json)
    printf("%s: step %lld as %d rank%s write%s it\n", SHOWN(c.out), (long long)c.m.step,
           c.m.world, plural(c.m.world, "s"), c.m.world == 1 ? "s" : "");
  ckpt_close(c.from);
  if (c.text) mem_free(NULL, c.text, c.bytes + 1);
  /* Errors in plan A are reported with its name. */
  bool second = c.b.arena != NULL;
  if (second) job_free(&c.a);
  int code = job_end(second ? &c.b : &c.a, cli, st, converted_json, &c);
  return code_of_signal(cli, st, code);
}

/* ---- plan ---- */

/* Bytes that the ranks of a pp rank write and read. */
typedef struct Traffic {
  uint64_t written; /* by all ranks together */
  uint64_t share;   /* by one rank at most: the size of its host copy */
  uint64_t read;    /* by one rank at most */
} Traffic;

typedef struct Planned {
  Job job, other;
  const char *path; /* the checkpoint, or NULL */
  Ckpt *ckpt;       /* NULL: one as plan `other` would have written it */
  Traffic *of;      /* for each pp rank */
} Planned;

/* Elements of a region that one rank stores for itself. */
static uint64_t owned(const Region *r) {
  return (uint64_t)(r->spread ? r->whole / r->ways : r->count);
}

/* Bytes per element of a state in the checkpoint that is read, of the first parameter
 * that has it: frozen ones and Muon's matrices do not have all. */
static int source_size(const Planned *p, StateKind k) {
  const Compiled *c = p->other.compiled ? p->other.compiled : p->job.compiled;
  Piece piece[2];
  for (int i = 0; p->ckpt && i < p->ckpt->m.nparam; i++) {
    const int *first = &p->ckpt->first[ckpt_kind(k) * p->ckpt->m.nparam + i];
    if (first[0] < first[1]) return dtype_size(p->ckpt->piece[first[0]].dtype);
  }
  for (int i = 0; !p->ckpt && i < c->nparam; i++) {
    int rank = rank_on_pp(&c->mesh, 0, c->param[i].pp[0]);
    if (state_pieces(c, rank, k, i, piece))
      return dtype_size(region_saved(piece[0].region));
  }
  return 0;
}

/* Each region is read once: states, the master value, and the parameters that ops read,
 * as far as they are not a copy of the value. */
static uint64_t read_bytes(const Planned *p, const Regions *s) {
  uint64_t n = 0;
  for (int i = 0; i < s->nregion; i++) {
    const Region *r = &s->region[i];
    if (r->kind >= REGION_STATE1 && r->kind < REGION_STATE1 + OPTIMIZER_STATES)
      n += owned(r) * (uint64_t)source_size(p, state_opt(r->kind - REGION_STATE1));
    if (r->kind == REGION_MASTER || r->kind == REGION_WORK)
      n += owned(r) * (uint64_t)source_size(p, STATE_PARAM);
  }
  return n;
}

static uint64_t written_bytes(const Compiled *c, int pp) {
  const Regions *s = &c->prog[pp].regions;
  uint64_t n = 0;
  for (int i = 0; i < s->nparam; i++) {
    const CompiledParam *of = &c->param[s->param[i].param];
    Piece piece[2];
    for (int k = 0; of->pp[0] == pp && k < kept_kinds(c); k++) {
      if (!state_pieces(c, rank_on_pp(&c->mesh, 0, pp), kept_kind(k), s->param[i].param,
                        piece))
        continue;
      int boxes = mesh_size(&c->mesh, place_cuts(of->place));
      int64_t all = s->param[i].count * boxes;
      if (piece[0].region->factors) all = param_state_count(of);
      n += (uint64_t)all * (uint64_t)dtype_size(region_saved(piece[0].region));
    }
  }
  return n;
}

static weft_status open_source(Planned *p, Cli *cli, Arena *arena, const char *ckpt) {
  bool none;
  if (ckpt && cli->from)
    return err_set(&p->job.e, WEFT_EUSAGE, "give a checkpoint or --from PLAN, not both");
  if (ckpt) {
    TRY(store_find(arena, ckpt, &p->path, &none, &p->job.e));
    TRY(ckpt_open(p->path, &p->ckpt, &p->job.e));
    return ckpt_fits(p->ckpt, p->job.compiled, CKPT_STATES, &p->job.e);
  }
  if (!cli->from) return WEFT_OK;
  p->path = cli->from;
  Cli plain = *cli;
  plain.nset = 0;
  weft_status st = compile_plan(&p->other, &plain, arena, cli->from);
  if (st == WEFT_EPLAN && p->other.d.errors)
    report_first(&p->other.d, &p->job.e);
  else if (st != WEFT_OK)
    p->job.e = p->other.e;
  if (st == WEFT_OK && p->other.compiled->nparam != p->job.compiled->nparam)
    st = err_set(&p->job.e, WEFT_EUSAGE,
                 "%s is of another model: it has %d parameters, not %d", cli->from,
                 p->other.compiled->nparam, p->job.compiled->nparam);
  return st;
}

static weft_status plan(Planned *p, Cli *cli, Arena *arena, const char *const *at) {
  TRY(compile_plan(&p->job, cli, arena, at[0]));
  TRY(open_source(p, cli, arena, cli->narg > 2 ? at[1] : NULL));
  const Compiled *c = p->job.compiled;
  int pp = c->mesh.size[AXIS_PP];
  p->of = NEW_N(arena, Traffic, pp);
  for (int i = 0; i < pp; i++)
    p->of[i] = (Traffic){.written = written_bytes(c, i),
                         .share = saved_most(c, i),
                         .read = read_bytes(p, &c->prog[i].regions)};
  return WEFT_OK;
}

static void print_plan(const Planned *p) {
  const Compiled *c = p->job.compiled;
  char mesh[128], a[32], b[32], d[32];
  uint64_t sum = 0;
  printf("%s: %s; reads %s\n", p->job.plan.name, format_mesh_ranks(&c->mesh, mesh),
         p->path ? p->path : "what it has written");
  printf("pp  ranks     all write   a rank at most    a rank reads at most\n");
  for (int i = 0; i < c->mesh.size[AXIS_PP]; i++) {
    const Traffic *t = &p->of[i];
    sum += t->written;
    printf("%2d  %5d  %12s  %15s  %22s\n", i, c->mesh.world / c->mesh.size[AXIS_PP],
           format_bytes((double)t->written, a), format_bytes((double)t->share, b),
           format_bytes((double)t->read, d));
  }
  printf("a checkpoint has %s; %s are parameters\n", format_bytes((double)sum, a),
         format_count((double)c->params_total, b));
}

static void plan_json(Json *out, void *ud) {
  const Planned *p = ud;
  json_open(out, "pp", '[');
  for (int i = 0; i < p->job.mesh.size[AXIS_PP]; i++) {
    json_open(out, NULL, '{');
    json_int(out, "rank_reads", (int64_t)p->of[i].read);
    json_int(out, "rank_writes", (int64_t)p->of[i].share);
    json_int(out, "written", (int64_t)p->of[i].written);
    json_close(out, '}');
  }
  json_close(out, ']');
  json_int(out, "world", p->job.mesh.world);
}

int ckpt_plan(Cli *cli, Arena *arena, const char *const *at) {
  Planned p = {0};
  weft_status st = plan(&p, cli, arena, at);
  if (st == WEFT_OK && !cli->json) print_plan(&p);
  ckpt_close(p.ckpt);
  if (p.other.arena) job_free(&p.other);
  return job_end(&p.job, cli, st, plan_json, &p);
}
