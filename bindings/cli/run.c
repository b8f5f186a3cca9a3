/* run.c - weft run: trains, on virtual ranks or as one process of many, and reports. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vm/comm/launch.h"
#include "vm/exec/session.h"

typedef struct Training {
  Job job;
  const Cli *cli;
  Session session;
  const WorldKind *comm;
  bool first;    /* this process prints */
  bool progress; /* a line that is written over, on a terminal */
  int log;       /* file descriptor, -1: none */
  double last_progress;
  StepResult last;
  int64_t tokens;
  int64_t end;   /* the step that is not taken any more; the learning rate keeps its plan */
  int64_t skipped; /* steps, see scaler.h */
  double ms;
} Training;

static const char *get_env(void *ud, const char *name) {
  return getenv(name);
}

int launched_rank(void) {
  LaunchInfo info;
  return launch_detect(get_env, NULL, &info, NULL) == WEFT_OK ? info.rank : 0;
}

bool is_launched(void) {
  LaunchInfo info;
  return launch_detect(get_env, NULL, &info, NULL) == WEFT_OK && info.kind != LAUNCH_NONE;
}

/* ---- starting ---- */

/* The ranks that were started are those that the mesh can have. This says how to start
 * them; job_mesh could only say which sizes do not fit. */
static weft_status check_world(Training *t, const LaunchInfo *info) {
  Job *j = &t->job;
  Mesh m;
  Diags ignored = {.arena = j->arena};
  if (!mesh_resolve(&j->plan.mesh, lang_cluster_ranks(j->lp), &m, &ignored))
    return WEFT_OK; /* job_mesh reports it */
  bool open = job_open_world(j);
  if (open ? info->size % m.world == 0 : info->size == m.world) return WEFT_OK;
  char mesh[96], started[96];
  format_mesh(&m, mesh);
  if (info->kind == LAUNCH_NONE)
    snprintf(started, sizeof started, "this is one process that no launcher has started");
  else
    snprintf(started, sizeof started, "%s has started %d process%s",
             launch_name(info->kind), info->size, info->size > 1 ? "es" : "");
  return err_set(&j->e, WEFT_EUSAGE,
                 "%s, but the plan's mesh (%s) %s %d ranks: start "
                 "mpirun -n %d weft run %s%s",
                 started, mesh, open ? "takes a multiple of" : "has", m.world, m.world,
                 t->cli->arg[0],
                 t->cli->comm ? ", or leave --comm out" : ", or change the mesh");
}

/* Which engine, and how many ranks the launcher has started (0: there is none). */
static weft_status choose_comm(Training *t, int64_t *world) {
  weft_error *e = &t->job.e;
  LaunchInfo info;
  TRY(launch_detect(get_env, NULL, &info, e));
  bool launched = info.kind != LAUNCH_NONE && info.size > 1;
  char names[64];
  t->comm = t->cli->comm ? world_kind(t->cli->comm, NULL) : world_default(launched);
  if (!t->comm)
    return err_set(e, WEFT_EUSAGE, "--comm is %s, got \"%s\"", world_names(names),
                   t->cli->comm);
  *world = t->comm->processes ? info.size : 0;
  if (launched && *world == 0)
    return err_set(e, WEFT_EUSAGE,
                   "%s has started %d processes, but --comm %s is one "
                   "process; leave --comm out",
                   launch_name(info.kind), info.size, t->comm->name);
  if (*world && info.kind == LAUNCH_ENV)
    return err_set(e, WEFT_EUSAGE,
                   "RANK and WORLD_SIZE are set, but processes without MPI "
                   "cannot talk to each other yet; start weft with mpirun or srun");
  return *world ? check_world(t, &info) : WEFT_OK;
}

/* Threads of each rank. More than the machine has cores is fine in moderation: results
 * depend on the number, and a large machine's can be had again on a small one. */
static weft_status choose_threads(Training *t, int64_t world, int *threads) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int ranks = world ? 1 : t->job.mesh.world;
  int64_t most = MAX(MAX(256, 4 * cores) / ranks, 1);
  *threads = MAX((int)t->cli->threads, 0);
  if (*threads <= most) return WEFT_OK;
  return err_set(&t->job.e, WEFT_EUSAGE,
                 "--threads %d: %d rank%s of %d threads are too "
                 "many for %ld cores; at most --threads %lld",
                 *threads, ranks, ranks > 1 ? "s" : "", *threads, cores, (long long)most);
}

/* One file is the log of one run, unless the user says otherwise. */
static weft_status open_log(Training *t) {
  struct stat st;
  t->log = -1;
  if (t->cli->append && !t->cli->log)
    return err_set(&t->job.e, WEFT_EUSAGE, "--append belongs to --log FILE");
  if (!t->cli->log || !t->first) return WEFT_OK;
  bool full = stat(t->cli->log, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
  if (full && !t->cli->append)
    return err_file(&t->job.e, WEFT_EUSAGE, t->cli->log, 0,
                    "exists and is not empty; give --log another name, or --append to "
                    "add this run to it");
  t->log = open(t->cli->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (t->log >= 0) return WEFT_OK;
  return err_file(&t->job.e, WEFT_EFILE, t->cli->log, 0, "cannot be written: %s",
                  strerror(errno));
}

static weft_status start(Training *t) {
  Job *j = &t->job;
  int64_t world = 0;
  int threads;
  TRY(choose_comm(t, &world));
  TRY(job_mesh(j, world));
  TRY(choose_threads(t, world, &threads));
  TRY(job_compile(j));
  TRY(job_expect(j, NULL));
  TRY(open_log(t));
  TRY(job_data(j, NULL, &t->session.data));
  Folders in = lang_folders(j->lp);
  const char *weights = lang_weights(j->lp);
  if (weights) TRY(st_open(NULL, weights, &in, &t->session.weights, &j->e));
  JobFacts f = {
      .arena = j->arena, .data = t->session.data, .weights = t->session.weights, .steps = t->end};
  TRY(job_facts(j, &f, &j->e));
  RunOptions o = {.world = t->comm->name,
                  .threads = threads,
                  .stop = t->cli->stop,
                  .fact = f.fact,
                  .nfact = f.n};
  return session_open(&t->session, &j->plan, j->compiled, &o, &j->e);
}

/* ---- reporting ---- */

/* One write for a whole line: lines of several writers do not mix, and a reader never
 * sees half of one for long. Frees the text. */
static weft_status log_line(Training *t, Text *text) {
  text_add(text, "\n");
  ssize_t n = text->oom ? -1 : write(t->log, text->s, text->n);
  bool ok = n == (ssize_t)text->n;
  text_free(text);
  if (ok) return WEFT_OK;
  return err_file(&t->job.e, WEFT_EFILE, t->cli->log, 0, "cannot be written: %s",
                  n < 0 ? strerror(errno) : "the disk is full");
}

/* What the lines after it are about. */
static weft_status log_start(Training *t) {
  const Job *j = &t->job;
  char host[256] = "", time_text[32], mesh[96], id[20];
  struct timespec now;
  struct tm utc;
  if (t->log < 0) return WEFT_OK;
  gethostname(host, sizeof host - 1);
  clock_gettime(CLOCK_REALTIME, &now);
  strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now.tv_sec, &utc));
  uint64_t h = hash_bytes(hash_bytes((uint64_t)getpid(), &now, sizeof now), host,
                          strlen(host));
  snprintf(id, sizeof id, "%016llx", (unsigned long long)h);
  Text text = {0};
  Json out = {.out = &text};
  json_open(&out, NULL, '{');
  json_str(&out, "comm", t->comm->name);
  json_str(&out, "data", data_describe(t->session.data));
  json_str(&out, "event", "start");
  json_str(&out, "host", host);
  json_str(&out, "mesh", format_mesh(&j->mesh, mesh));
  json_str(&out, "name", j->plan.name);
  json_str(&out, "plan", t->cli->arg[0]);
  json_str(&out, "run", id);
  json_int(&out, "steps", t->end);
  json_str(&out, "time", time_text);
  json_str(&out, "version", weft_version());
  json_int(&out, "world", j->mesh.world);
  json_close(&out, '}');
  return log_line(t, &text);
}

static weft_status log_step(Training *t, const StepResult *r) {
  if (t->log < 0) return WEFT_OK;
  Text text = {0};
  Json out = {.out = &text};
  json_open(&out, NULL, '{');
  json_num(&out, "grad_norm", r->grad_norm);
  json_num(&out, "loss", r->loss);
  if (r->loss_scale > 0) json_num(&out, "loss_scale", r->loss_scale);
  json_num(&out, "lr", r->lr);
  json_int(&out, "memory_bytes", (int64_t)run_memory(t->session.run));
  if (r->loss_scale > 0) json_bool(&out, "skipped", r->skipped);
  json_int(&out, "step", r->step);
  json_num(&out, "step_ms", r->ms);
  json_int(&out, "tokens", r->tokens);
  json_num(&out, "tokens_per_s", r->ms > 0 ? 1e3 * (double)r->tokens / r->ms : 0);
  json_close(&out, '}');
  return log_line(t, &text);
}

static void clear_progress(Training *t) {
  if (t->progress && t->last_progress > 0) fputs("\r\033[K", stderr);
}

static void print_step(Training *t, const StepResult *r) {
  char rate[32];
  clear_progress(t);
  format_count(r->ms > 0 ? 1e3 * (double)r->tokens / r->ms : 0, rate);
  printf("step %6lld  loss %8.4f  grad %8.4f  lr %.3e  %s tokens/s  %.1f ms\n",
         (long long)r->step, r->loss, r->grad_norm, r->lr, rate, r->ms);
  fflush(stdout);
}

/* Said of every such step: a few at the begin are normal, many are not. */
static void print_skipped(Training *t, const StepResult *r) {
  clear_progress(t);
  printf("step %6lld  skipped: gradients overflowed at loss scale %g\n",
         (long long)r->step, r->loss_scale);
  fflush(stdout);
}

/* At most ten times a second. */
static void show_progress(Training *t, const StepResult *r) {
  double time = now_s();
  if (!t->progress || time - t->last_progress < 0.1) return;
  t->last_progress = time;
  fprintf(stderr, "\r\033[K%lld/%lld  loss %.4f  %.0f ms", (long long)r->step + 1,
          (long long)t->end, r->loss, r->ms);
}

static weft_status report(void *ud, const StepResult *r, weft_error *e) {
  Training *t = ud;
  const Cli *cli = t->cli;
  const Plan *p = &t->job.plan;
  t->last = *r;
  t->tokens += r->tokens;
  t->ms += r->ms;
  if (!t->first) return WEFT_OK;
  TRY(log_step(t, r));
  bool due = r->step % p->log_every == 0 || r->step + 1 == t->end;
  bool prints = !cli->quiet && !cli->json;
  if (r->skipped && prints) print_skipped(t, r);
  t->skipped += r->skipped;
  if (due && prints && !r->skipped) print_step(t, r);
  show_progress(t, r);
  return WEFT_OK;
}

/* ---- the run ---- */

static void print_start(Training *t) {
  char mesh[96], memory[32];
  fprintf(stderr, "%s: %s, %d rank%s (%s), %s each; %s\n", t->job.plan.name,
          format_mesh(&t->job.mesh, mesh), t->job.mesh.world,
          t->job.mesh.world > 1 ? "s" : "", t->comm->name,
          format_bytes((double)run_memory(t->session.run), memory), data_describe(t->session.data));
}

static void json_result(Json *out, void *ud) {
  const Training *t = ud;
  json_num(out, "grad_norm", t->last.grad_norm);
  json_num(out, "loss", t->last.loss);
  json_num(out, "lr", t->last.lr);
  json_int(out, "memory_bytes", (int64_t)run_memory(t->session.run));
  if (t->last.loss_scale > 0) json_int(out, "skipped", t->skipped);
  json_int(out, "steps", t->session.step);
  json_int(out, "tokens", t->tokens);
  json_num(out, "tokens_per_s", t->ms > 0 ? 1e3 * (double)t->tokens / t->ms : 0);
  json_int(out, "world", run_world(t->session.run));
}

static weft_status run_plan(Training *t, const Cli *cli, Arena *arena) {
  TRY(job_start(&t->job, cli, arena, cli->arg[0]));
  t->end = cli->steps >= 0 ? cli->steps : t->job.plan.steps;
  TRY(start(t));
  TRY(log_start(t));
  if (t->first && !cli->quiet) print_start(t);
  t->progress = t->first && !cli->quiet && isatty(STDERR_FILENO) && colour_wanted(stderr);
  weft_status st =
      session_train(&t->session, t->end, cli->stop, report, t, &t->job.e);
  clear_progress(t);
  return st;
}

/* The end on a rank that does not print. If rank 0 has the same trouble, it says so, and
 * the launcher ends this process meanwhile; else it happened here alone and is told. */
static int end_other(Training *t, weft_status st) {
  Job *j = &t->job;
  weft_error first;
  err_clear(&first);
  if (st == WEFT_EPLAN && j->d.errors) report_first(&j->d, &first);
  const weft_error *e = first.code ? &first : &j->e;
  if (st != WEFT_OK && st != WEFT_EINTR) {
    sleep(2);
    complain("rank %d: %s%s%s", launched_rank(), e->file, e->file[0] ? ": " : "",
             e->text);
  }
  job_free(j);
  return weft_exit_code(st);
}

int verb_run(Cli *cli, Arena *arena) {
  Training t = {.cli = cli, .log = -1, .first = speaks(cli)};
  weft_status st = run_plan(&t, cli, arena);
  int code = t.first ? job_end(&t.job, cli, st, json_result, &t) : end_other(&t, st);
  session_close(&t.session, st != WEFT_OK);
  if (t.log >= 0) close(t.log);
  return code;
}
