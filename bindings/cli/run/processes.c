/* processes.c - what a launcher has started, and how that becomes the ranks of a plan:
 * see processes.h. */
#include "processes.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "vm/comm/launcher_env.h"
#include "vm/base/plural.h"
#include "vm/weights/snapshot.h"

int launched_rank(void) {
  LaunchInfo info;
  return launch_detect(NULL, NULL, &info, NULL) == WEFT_OK ? info.rank : 0;
}

/* One process may be started like one by hand: `srun --pty bash` and platforms leave the
 * variables of a launcher of one. */
bool is_launched(void) { return launched_ranks() > 1; }

weft_status launched_alone(weft_error *e) {
  LaunchInfo info;
  TRY(launch_detect(NULL, NULL, &info, e));
  if (info.size == 1) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE,
                 "--procs starts processes itself, but a launcher has started this one: "
                 "leave one of them out");
}

int launched_ranks(void) {
  LaunchInfo info;
  weft_status st = launch_detect(NULL, NULL, &info, NULL);
  return st == WEFT_OK && info.kind != LAUNCH_NONE ? info.size : 1;
}

/* Checks that the number of started ranks fits the mesh. The error says how to start
 * them, while job_mesh could only say which sizes do not fit. */
static weft_status check_world(const Processes *p, const LaunchInfo *info) {
  Job *j = p->job;
  Mesh m;
  Diags ignored = {.arena = j->arena};
  if (!mesh_resolve(&j->plan.mesh, lang_cluster_ranks(j->lp), &m, &ignored))
    return WEFT_OK; /* job_mesh reports it */
  bool open = job_open_world(j);
  if (open ? info->size % m.world == 0 : info->size == m.world) return WEFT_OK;
  char mesh[96], started[96];
  mesh_text(&m, mesh);
  if (getenv("WEFT_PROCS"))
    return err_set(&j->e, WEFT_EUSAGE,
                   "--procs %d, but the plan's mesh (%s) %s %d rank%s: --procs %d, or "
                   "change the mesh",
                   info->size, mesh, open ? "takes a multiple of" : "has", m.world,
                   plural(m.world, "s"), m.world);
  if (info->kind == LAUNCH_NONE)
    snprintf(started, sizeof started, "this is one process that no launcher has started");
  else
    snprintf(started, sizeof started, "%s has started %d process%s",
             launch_name(info->kind), info->size, plural(info->size, "es"));
  /* What needs no MPI is started without it. */
  if (info->kind == LAUNCH_NONE && !str_eq(p->comm->name, "mpi"))
    return err_set(&j->e, WEFT_EUSAGE,
                   "%s, but the plan's mesh (%s) %s %d rank%s: add --procs %d, or leave "
                   "--comm out",
                   started, mesh, open ? "takes a multiple of" : "has", m.world,
                   plural(m.world, "s"), m.world);
  return err_set(&j->e, WEFT_EUSAGE,
                 "%s, but the plan's mesh (%s) %s %d rank%s: start "
                 "mpirun -n %d weft %s %s%s",
                 started, mesh, open ? "takes a multiple of" : "has", m.world,
                 plural(m.world, "s"), m.world, p->cli->verb->name, p->cli->arg[0],
                 p->cli->comm ? ", or leave --comm out" : ", or change the mesh");
}

/* Chooses the backend; *world: ranks that the launcher has started (0: no launcher). */
static weft_status choose_comm(Processes *p, int64_t *world) {
  weft_error *e = &p->job->e;
  LaunchInfo info;
  TRY(launch_detect(NULL, NULL, &info, e));
  bool launched = info.kind != LAUNCH_NONE && info.size > 1;
  char names[64];
  bool meets = info.kind == LAUNCH_ENV, host = !p->job->device || p->job->device->host;
  p->comm = p->cli->comm ? world_kind(p->cli->comm, NULL)
                         : world_default(launched, meets, host);
  if (!p->comm)
    return err_set(e, WEFT_EUSAGE, "--comm is %s, got \"%s\"", world_names(names),
                   p->cli->comm);
  const DeviceKind *d = p->job->device ? p->job->device : device_kind(NULL, e);
  TRY(world_suits(p->comm, d, e));
  *world = p->comm->processes ? info.size : 0;
  if (launched && *world == 0)
    return err_set(e, WEFT_EUSAGE,
                   "%s has started %d processes, but --comm %s is one "
                   "process; leave --comm out",
                   launch_name(info.kind), info.size, p->comm->name);
  if (*world && check_world(p, &info) != WEFT_OK) {
    p->reported_elsewhere = true; /* all processes find the same */
    if (info.rank) let_rank0_report();
    return e->code;
  }
  /* srun starts ranks of MPI only if it was built for this MPI, so what NCCL needs to
   * begin goes over TCP there, if there is a secret for that. */
  bool secret =
      info.kind == LAUNCH_SLURM && getenv("MASTER_ADDR") && getenv("WEFT_SECRET");
  if (p->comm->over ? !meets && !secret : !p->comm->meets)
    return host_of_env(&p->host, e);
  return rendezvous_of_env(&info, p->cli->stop, &p->meet, e);
}

/* Threads per rank. Somewhat more threads than cores are allowed, because results depend
 * on their number and those of a large machine should be reproducible on a small one. */
static weft_status choose_threads(Processes *p, int64_t world) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int ranks = world ? 1 : p->job->mesh.world;
  int64_t most = MAX(MAX(256, 4 * cores) / ranks, 1);
  p->threads = MAX((int)p->cli->threads, 0);
  if (!p->threads && world &&
      getenv("WEFT_PROCS")) /* they share what the first process had */
    p->threads = run_share_of_cores((int)world, true);
  if (p->threads <= most) return WEFT_OK;
  return err_set(&p->job->e, WEFT_EUSAGE,
                 "--threads %d: %d rank%s of %d threads are too "
                 "many for %ld cores; at most --threads %lld",
                 p->threads, ranks, plural(ranks, "s"), p->threads, cores,
                 (long long)most);
}

bool processes_start(Cli *cli, Arena *arena, int *code) {
  weft_error e = NO_ERROR;
  if (procs_for_gpus(cli, arena, &e) != WEFT_OK) {
    *code = verb_fails(cli, arena, &e);
    return true;
  }
  if (cli->procs <= 0 || getenv("WEFT_PROCS")) return false;
  *code = run_procs(cli, arena);
  return true;
}

weft_status processes(Processes *p) {
  int64_t world = 0;
  TRY(choose_comm(p, &world));
  TRY(job_mesh(p->job, world));
  return choose_threads(p, world);
}

/* What several processes do together because an option asks for it, they do only if all
 * were given it: an export or a trace would wait for ranks that have ended. Checkpoints
 * have no such facts, so they are added here and not to those of the job. */
static void add_options(const Processes *p, RunOptions *o) {
  const Cli *cli = p->cli;
  Arena *a = p->job->arena;
  const char *given[] = {"not given", "given"}, *none = given[0];
  const RunFact option[] = {
      {"--export", given[cli->export != NULL], FACT_SAME, NULL},
      {"--dtype", cli->dtype ? cli->dtype : none, FACT_SAME, NULL},
      {"--shard-size", cli->shard_size ? cli->shard_size : none, FACT_SAME, NULL},
      {"--trace", given[cli->trace != NULL], FACT_SAME, NULL},
      {"--reference", given[cli->reference], FACT_SAME, NULL},
      {"--batches",
       cli->batches > 0 ? arena_printf(a, "%lld", (long long)cli->batches) : none,
       FACT_SAME, NULL},
  };
  RunFact *all = NEW_N(a, RunFact, o->nfact + LEN(option));
  memcpy(all, o->fact, (size_t)o->nfact * sizeof *all);
  memcpy(all + o->nfact, option, sizeof option);
  o->fact = all;
  o->nfact += LEN(option);
}

/* MPI has numbers of its own. A process that takes itself for another rank, by variables
 * that a shell has left, would print and log in its place. */
static weft_status check_rank(const Run *r, weft_error *e) {
  if (run_rank(r) == launched_rank()) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE,
                 "the environment says rank %d, but MPI says rank %d: unset what a shell "
                 "or another launcher has left there (RANK, WORLD_SIZE)",
                 launched_rank(), run_rank(r));
}

/* SIGTERM ends the wait for other processes like Ctrl-C, with a message. */
weft_status processes_open(Processes *p, Session *s, RunOptions *o) {
  Job *j = p->job;
  bool meets = p->meet.addr != NULL;
  o->world = p->comm;
  o->settings.meet = meets ? &p->meet : NULL;
  o->settings.host = p->host;
  o->reported_elsewhere = &p->reported_elsewhere;
  o->threads = p->threads;
  add_options(p, o);
  if (meets) p->cli->heed(SIGTERM);
  weft_status st = session_open(s, &j->plan, j->compiled, o, &j->e);
  if (meets) p->cli->unheed(SIGTERM);
  if (st == WEFT_OK && p->comm->processes)
    st = run_agree(s->run, check_rank(s->run, &j->e), &j->e);
  return st;
}

int processes_end_other(Processes *p, weft_status st) {
  Job *j = p->job;
  weft_error first = NO_ERROR;
  if (st == WEFT_EPLAN && j->d.errors) report_first(&j->d, &first);
  const weft_error *e = first.code ? &first : &j->e;
  if (st != WEFT_OK && st != WEFT_EINTR && !p->reported_elsewhere) {
    let_rank0_report();
    report_error("rank %d: %s%s%s", launched_rank(), e->file, e->file[0] ? ": " : "",
                 e->text);
  }
  job_free(j);
  return weft_exit_code(st);
}
