/* run.c - a run: one worker thread, device and communicator per local rank.
 *
 * run_open creates workers and ranks, run_jobs.c has them do jobs, and run_close ends
 * both. In a backend with processes, all calls are made by the one worker of the process.
 */
#include "run_int.h"

#include "vm/device/device_environment.h"
#include "vm/program/program_check.h"
#include "vm/rank/saved_pieces.h"
#include "vm/base/plural.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- counted allocations ---- */

static void *counted(void *ud, void *p, size_t old, size_t n) {
  Run *r = ud;
  if (n) atomic_fetch_add_explicit(&r->allocations, 1, memory_order_relaxed);
  return mem_resize(&r->inner, p, old, n);
}

uint64_t run_allocations(Run *r) { return atomic_exchange(&r->allocations, 0); }

/* ---- opening ---- */

/* Job that initialises the backend on the first worker: libraries such as MPI expect
 * later calls from the thread that initialised them, which holds where each process has
 * one rank. */
static weft_status job_start(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  int size = r->c->mesh.world;
  if (w != r->worker) return WEFT_OK;
  WorldSetting setting[RUN_SETTINGS];
  WorldOptions settings = run_world_options(r, setting);
  TRY(world_start(&r->world, r->kind, &r->alloc, size, &settings, e));
  for (int i = 0; i < r->nworker; i++) r->worker[i].rank = r->world.rank + i;
  if (r->world.size == 1 && size > 1)
    return err_set(e, WEFT_EUSAGE,
                   "the plan's mesh has %d ranks, but MPI says that there is 1 process: "
                   "if a launcher has started %d, weft_mpi.so is of another MPI than it",
                   size, size);
  if (r->world.size != size)
    return err_set(e, WEFT_EUSAGE,
                   "the plan's mesh has %d rank%s, but the launcher started %d process%s",
                   size, plural(size, "s"), r->world.size, plural(r->world.size, "es"));
  return WEFT_OK;
}

int threads_of_rank(int machine, int process, int ranks, bool shared) {
  ranks = MAX(ranks, 1);
  return MAX(shared ? process / ranks : MIN(machine / ranks, process), 1);
}

int run_share_of_cores(int ranks, bool shared) {
  int machine = (int)sysconf(_SC_NPROCESSORS_ONLN), process = machine;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) process = CPU_COUNT(&set);
  return threads_of_rank(machine, process, ranks, shared);
}

/* GEMM libraries compute only part of a product, without an error, if OpenMP gives them
 * fewer threads than they asked for. So never ask for more than OMP_THREAD_LIMIT allows.
 */
static int allowed_threads(int wanted) {
  return MAX(MIN(wanted, omp_get_thread_limit()), 1);
}

/* Linux overcommits memory and kills the process that uses it, so a run that cannot fit
 * is refused here. `local`: ranks on this machine. */
static weft_status check_memory(const Run *r, int local, weft_error *e) {
  double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
  double need = (double)run_memory(r) * local;
  const double gib = 1 << 30;
  if (need <= machine) return WEFT_OK;
  return err_set(
      e, WEFT_ENOMEM,
      "%d rank%s of %.1f GiB need%s more than the %.1f GiB of memory that this "
      "machine has; use a smaller batch.micro or batch.seq, or more machines; weft "
      "verify "
      "runs a small version of the plan here",
      local, plural(local, "s"), need / local / gib, local > 1 ? "" : "s", machine / gib);
}

/* Only host memory is checked here; a device with its own memory reports what does not
 * fit. */
static weft_status open_device(Run *r, weft_error *e) {
  const DeviceKind *k = r->c->device;
  if (k->host) TRY(check_memory(r, r->world.node, e));
  r->device = k->load(e);
  if (r->device) return WEFT_OK;
  return e && e->code ? e->code : WEFT_EUSAGE;
}

static weft_status open_world(Run *r, const RunOptions *o, weft_error *e) {
  r->kind = o->world ? o->world : world_default(false, false, r->c->device->host);
  TRY(world_suits(r->kind, r->c->device, e));
  device_before_others(r->c->device);
  TRY(run_start_workers(r, r->kind->processes ? 1 : r->c->mesh.world, e));
  TRY(run_all(r, job_start, NULL, false, e));
  const World *here = &r->world;
  int share = run_share_of_cores(here->node, here->here == here->node);
  r->threads = allowed_threads(o->threads > 0 ? o->threads : share);
  TRY(consensus_at_start(r, o->fact, o->nfact, e));
  if (r->world.size > r->world.here) TRY(run_all(r, job_supervise, NULL, false, e));
  TRY(open_device(r, e));
  r->patience_s = o->patience_s;
  return WEFT_OK;
}

/* Called while waiting for a device: fails if the run has been stopped or has ended. */
static weft_status check_ended(void *ud, weft_error *e) {
  Run *r = ud;
  if (step_ends(&r->end)) return err_set(e, WEFT_EINTR, "interrupted");
  return world_poll(&r->world, e);
}

static size_t copy_bytes(const Worker *w) {
  const Compiled *c = w->run->c;
  return (size_t)saved_most(c, mesh_coord(&c->mesh, w->rank, AXIS_PP));
}

/* Whether ranks of a tp group may compute the same product, of a matrix that each of them
 * has whole: its gradient is then nobody's sum, and copies that are stepped with other
 * bits drift apart. Ranks that time algorithms may find different ones the fastest. */
static bool has_copied_products(const Compiled *c) {
  bool copied = false;
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam *p = &c->param[i];
    copied |= p->ndim > 1 && !(place_cuts(p->place) & AXIS_BIT(AXIS_TP));
  }
  return copied && c->mesh.size[AXIS_TP] > 1;
}

/* A job of its own: a device looks what others hold of its memory, which is true of other
 * processes as long as no rank of this one has taken any. */
static weft_status job_open(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  TRY(device_open(&w->dev, r->device, &r->alloc, w->rank, r->world.place, r->threads, e));
  w->has_device = true;
  w->dev.look = check_ended, w->dev.look_ud = r;
  w->dev.arenas = world_arenas(&r->world);
  w->dev.times = !r->plan->deterministic && !has_copied_products(r->c);
  return WEFT_OK;
}

static weft_status job_load(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  TRY(rank_new(&r->alloc, r->c, w->rank, &w->dev, &w->r, e));
  if (r->c->eval) TRY(rank_new_over(r->c->eval, w->r, &w->eval, e));
  if (run_captures(r)) rank_capture(w->r);
  if (w->eval && run_captures(r)) rank_capture(w->eval);
  w->block = mem_new(&r->alloc, (size_t)r->block_max * sizeof *w->block);
  w->copy = r->saves ? mem_new(&r->alloc, copy_bytes(w)) : NULL;
  if (!w->block || (r->saves && !w->copy))
    return err_set(e, WEFT_ENOMEM, "out of memory");
  return WEFT_OK;
}

/* Each backend has a time of its own for its connections, while a rank may take as long
 * as it needs to load: they are made when all ranks have. */
static weft_status job_meet(Worker *w, void *arg, weft_error *e) {
  return world_barrier(&w->run->world, e);
}

static weft_status trace_open(Worker *w, weft_error *e) {
  w->tracer.event = mem_new(&w->run->alloc, TRACE_BYTES);
  if (!w->tracer.event) return err_set(e, WEFT_ENOMEM, "no memory for the trace");
  rank_trace(w->r, &w->tracer);
  return WEFT_OK;
}

static weft_status job_join(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  CommNeeds needs = rank_needs(w->r);
  TRY(world_join(&r->world, w->rank, &w->dev, &needs, &w->comm, e));
  w->has_comm = true;
  if (r->traces) TRY(trace_open(w, e));
  rank_connect(w->r, &w->comm);
  if (w->eval) rank_connect(w->eval, &w->comm);
  return WEFT_OK;
}

static weft_status check_compiled(Run *r, weft_error *e) {
  if (run_rows(r) != r->plan->batch.global)
    return err_set(e, WEFT_EINTERNAL, "%lld rows a step, but batch.global = %lld",
                   (long long)run_rows(r), (long long)r->plan->batch.global);
  TRY(program_check(r->c, e));
  if (r->c->eval) TRY(program_check(r->c->eval, e));
  r->block_max = rank_block(r->c);
  return WEFT_OK;
}

static size_t source_bytes(const Run *r) { return (size_t)run_rows(r) * sizeof(int32_t); }
static size_t reference_bytes(const Run *r) {
  return (size_t)run_rows(r) * sizeof(float);
}

static weft_status new_batch(Run *r, weft_error *e) {
  size_t n = (size_t)(run_rows(r) * r->c->seq) * sizeof(int32_t);
  r->tokens = mem_new(&r->alloc, n);
  r->labels = mem_new(&r->alloc, n);
  bool reads = r->plan->loss.second == SECOND_FILE;
  if (r->c->sources) r->source = mem_new(&r->alloc, source_bytes(r));
  if (reads) r->reference = mem_new(&r->alloc, reference_bytes(r));
  if (!r->tokens || !r->labels || (r->c->sources && !r->source) ||
      (reads && !r->reference))
    return err_set(e, WEFT_ENOMEM, "out of memory");
  return WEFT_OK;
}

static void init_locks(Run *r) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->go, NULL);
  pthread_cond_init(&r->done, &attr);
  pthread_condattr_destroy(&attr);
}

static weft_status open_run(Run *r, const RunOptions *o, weft_error *e) {
  TRY(check_compiled(r, e));
  TRY(open_world(r, o, e));
  TRY(new_batch(r, e));
  TRY(run_all(r, job_open, NULL, false, e));
  TRY(run_all(r, job_load, NULL, false, e));
  if (r->kind->processes) TRY(run_all(r, job_meet, NULL, false, e));
  TRY(run_all(r, job_join, NULL, false, e));
  /* From here on a signal may ask for a last checkpoint, whose writing needs the
   * connections: it no longer ends waits on them. */
  if (r->world.net) r->world.net->stop = NULL;
  return WEFT_OK;
}

weft_status run_open(const Plan *p, const Compiled *c, const RunOptions *o, Run **out,
                     weft_error *e) {
  *out = NULL;
  Run *r = mem_new(o->alloc, sizeof *r);
  if (!r) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (o->alloc) r->inner = *o->alloc;
  r->alloc = (weft_alloc){counted, r};
  r->plan = p;
  r->c = c;
  r->stop = r->end.stop = o->stop;
  r->settings = o->settings;
  r->saves = o->saves;
  r->reported_elsewhere = o->reported_elsewhere;
  r->traces = o->trace;
  r->scaler = scaler_make(p);
  r->scaled = 1;
  r->step = r->cut = -1;
  init_locks(r);
  weft_status st = open_run(r, o, e);
  if (st == WEFT_OK) {
    *out = r;
    return WEFT_OK;
  }
  run_fails(r, e);
  r->dead = true;
  run_close(r);
  return st;
}

/* ---- closing ---- */

/* Whether this process exits without closing communicators: after a failure the other
 * ranks may never reach the collective close, and the launcher ends them. */
static bool ends_alone(const Run *r) { return r->world.together && r->dead; }

static weft_status job_close(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  mem_free(&r->alloc, w->block, (size_t)r->block_max * sizeof *w->block);
  mem_free(&r->alloc, w->tracer.event, TRACE_BYTES);
  if (w->copy) mem_free(&r->alloc, w->copy, copy_bytes(w));
  rank_disconnect(w->eval);
  rank_disconnect(w->r);
  if (w->has_comm && !ends_alone(r)) comm_close(&w->comm);
  rank_free(w->eval);
  rank_free(w->r);
  if (w->has_device) device_close(&w->dev);
  return WEFT_OK;
}

static weft_status job_end(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  if (w == r->worker && !ends_alone(r)) world_close(&r->world);
  return WEFT_OK;
}

/* If some threads could not be started, the others have not run any job yet. */
static void stop_workers(Run *r) {
  bool all = r->nworker > 0;
  for (int i = 0; i < r->nworker; i++) all &= r->worker[i].has_thread;
  if (all) run_all(r, job_close, NULL, false, NULL);
  if (all) run_all(r, job_end, NULL, false, NULL);
  pthread_mutex_lock(&r->lock);
  r->quit = true;
  pthread_cond_broadcast(&r->go);
  pthread_mutex_unlock(&r->lock);
  for (int i = 0; i < r->nworker; i++)
    if (r->worker[i].has_thread) pthread_join(r->worker[i].thread, NULL);
}

void run_fails(Run *r, weft_error *e) {
  char told[ERROR_TOLD];
  if (!r || !r->control) return;
  supervisor_fail(r->control, e->rank < 0 ? r->world.rank : e->rank, e->code,
                  error_told(e, told));
  pthread_mutex_lock(&r->lock);
  if (r->over) *e = r->verdict;
  pthread_mutex_unlock(&r->lock);
}

void run_before_end(Run *r, void (*fn)(void *ud), void *ud) {
  r->settle = fn;
  r->settle_ud = ud;
}

/* Between two steps, as far as others can see. */
void run_settle(Run *r) {
  int64_t step = r->step;
  r->step = -1;
  if (r->settle) r->settle(r->settle_ud);
  r->step = step;
}

void run_abandon(Run *r) {
  if (r) r->dead = true;
}

void run_close(Run *r) {
  if (!r) return;
  supervisor_close(r->control);
  stop_workers(r);
  net_close(&r->net);
  size_t n = (size_t)(run_rows(r) * r->c->seq) * sizeof(int32_t);
  mem_free(&r->alloc, r->source, r->source ? source_bytes(r) : 0);
  mem_free(&r->alloc, r->reference, r->reference ? reference_bytes(r) : 0);
  mem_free(&r->alloc, r->labels, n);
  mem_free(&r->alloc, r->tokens, n);
  mem_free(&r->alloc, r->worker, (size_t)r->nworker * sizeof *r->worker);
  pthread_cond_destroy(&r->done);
  pthread_cond_destroy(&r->go);
  pthread_mutex_destroy(&r->lock);
  weft_alloc inner = r->inner;
  mem_free(&inner, r, sizeof *r);
}

/* ---- facts ---- */

bool run_ended(const Run *r) { return r->dead; }

/* A failed step leaves sums of some of its gradients; one that failed in its update, also
 * parameters and states of which some have been stepped. */
weft_status run_holds(const Run *r, StateKind k, weft_error *e) {
  if (r->torn)
    return err_set(
        e, WEFT_ERUN,
        "step %lld failed in the middle of its update, so parameters and states "
        "are of no one step: open another run, and go on from a checkpoint",
        (long long)r->cut);
  if (k == STATE_GRAD && r->cut >= 0)
    return err_set(e, WEFT_ERUN, "step %lld failed, so there are no gradients of it",
                   (long long)r->cut);
  return WEFT_OK;
}

int run_world(const Run *r) { return r->c->mesh.world; }

int run_rank(const Run *r) { return r->world.rank; }

int run_machine_ranks(const Run *r) { return r->world.node; }

uint64_t run_memory(const Run *r) {
  uint64_t most = 0;
  for (int i = 0; i < r->c->mesh.size[AXIS_PP]; i++)
    most = MAX(most, r->c->prog[i].arena_bytes);
  return most;
}
