/* verb_calibrate.c - weft calibrate: measures what the programs of plans need, and keeps
 * it in a file that is complete after each part. */
#include "bindings/cli/cli.h"

#include <stdlib.h>
#include <unistd.h>

#include "bindings/calibration/job_costs.h"
#include "calibrate_world.h"
#include "machine_table.h"
#include "vm/base/plural.h"

typedef struct Calibrate {
  Cli *cli;
  Arena *arena;
  Job *job; /* [cli->narg] */
  const char *path;
  Bench bench;
  CostTable table;
  Wanted wanted;
  const WorldKind *comm;
  int larger; /* transfers of more ranks than there are processes */
  const char *today;
  int done, kernels, moves; /* times; rows that are new, of both kinds */
  int moves_done;           /* of all passes */
  double saved;             /* when the file was written last */
} Calibrate;

/* ---- what there is ---- */

/* `failed`: which of them is wrong, and has the error. */
static weft_status compile_plans(Calibrate *c, int *failed) {
  for (*failed = 0; *failed < c->cli->narg; ++*failed) {
    Job *j = &c->job[*failed];
    weft_status st = job_start(j, c->cli, c->arena, c->cli->arg[*failed]);
    if (st == WEFT_OK) st = job_mesh(j, 0);
    if (st == WEFT_OK) st = job_compile(j);
    if (st != WEFT_OK) return st;
  }
  *failed = 0;
  return WEFT_OK;
}

static int most_ranks(const Calibrate *c) {
  int most = 1;
  for (int i = 0; i < c->cli->narg; i++) most = MAX(most, c->job[i].mesh.world);
  return most;
}

/* Rows that a file has already; it has to be of the same machine. */
static weft_status go_on(Calibrate *c, Diags *d, weft_error *e) {
  CostTable old;
  if (access(c->path, F_OK) != 0) return WEFT_OK;
  TRY(calibration_read(c->path, c->arena, &old, d, e));
  const char *why = calibrations_differ(&old, &c->table, c->arena);
  if (why)
    return err_set(e, WEFT_EUSAGE,
                   "%s was measured elsewhere (%s): name another file, or remove it",
                   c->path, why);
  c->table = old;
  return WEFT_OK;
}

/* ---- measuring ---- */

static weft_status keep(Calibrate *c, weft_error *e) {
  c->saved = now_s();
  if (c->kernels + c->moves) c->table.date = c->today;
  return calibration_write(&c->table, c->path, e);
}

static weft_status row_done(Calibrate *c, const char *what, weft_error *e) {
  enum { EVERY = 10 }; /* seconds between writes */
  int all = (c->wanted.kernel.n + c->wanted.move.n) * CALIBRATE_PASSES;
  c->done++;
  if (!c->cli->quiet && isatty(STDERR_FILENO))
    fprintf(stderr, "\r%d of %d  %-32.32s%s", c->done, all, what,
            c->done == all ? "\n" : "");
  return now_s() - c->saved > EVERY ? keep(c, e) : WEFT_OK;
}

/* `*row` is the mean of the passes before. */
static void add_pass(double *row, int pass, double seconds) {
  *row += (seconds - *row) / (pass + 1);
}

static void add_row(Calibrate *c, const WantedKernel *w) {
  KernelRow row = {
      .op = w->in->op, .shape = w->shape, .work = kernel_work(w->p, w->in, w->even)};
  row.work.dtype = kernel_dtype(w->p, w->in);
  *VEC_PUSH(c->arena, c->table.kernel) = row;
  c->kernels++;
}

/* Kernels `at` and those behind it that are measured with it; `*n` of them. */
static weft_status measure_some(Calibrate *c, int pass, int at, int *n, weft_error *e) {
  const WantedKernel *w = &c->wanted.kernel.at[at];
  *n = kernels_together(&c->bench, w, c->wanted.kernel.n - at);
  double *seconds = NEW_N(c->arena, double, *n);
  TRY(time_kernels(&c->bench, w, *n, seconds, e));
  for (int i = 0; i < *n; i++) {
    if (pass == 0) add_row(c, &w[i]);
    int row = c->table.kernel.n - c->kernels + at + i;
    add_pass(&c->table.kernel.at[row].seconds, pass, seconds[i]);
    TRY(row_done(c, op_info[w[i].in->op].name, e));
  }
  return WEFT_OK;
}

static weft_status measure_kernels(Calibrate *c, weft_error *e) {
  for (int pass = 0; pass < CALIBRATE_PASSES; pass++)
    for (int at = 0, n; at < c->wanted.kernel.n; at += n)
      TRY(measure_some(c, pass, at, &n, e));
  return WEFT_OK;
}

/* Of a list that is gone through for each pass. */
static weft_status move_done(void *ud, const WantedMove *w, double seconds,
                             weft_error *e) {
  Calibrate *c = ud;
  int n = c->wanted.move.n, k = c->moves_done++;
  if (k < n) {
    *VEC_PUSH(c->arena, c->table.move) = (MoveRow){
        .kind = w->kind, .dtype = w->dtype, .ranks = w->ranks, .bytes = (double)w->bytes};
    c->moves++;
  }
  int row = c->table.move.n - c->moves + k % n;
  add_pass(&c->table.move.at[row].seconds, k / n, seconds);
  return row_done(c, coll_info[w->kind].name, e);
}

static weft_status measure_moves(Calibrate *c, weft_error *e) {
  int n = c->wanted.move.n;
  for (int k = 0; k < n * CALIBRATE_PASSES; k++) {
    const WantedMove *w = &c->wanted.move.at[k % n];
    double seconds;
    TRY(time_move(&c->bench, w, &seconds, e));
    TRY(move_done(c, w, seconds, e));
  }
  return WEFT_OK;
}

/* The other processes end when this returns, so that kernels have the machine. */
static weft_status measure_moves_of_processes(Calibrate *c, weft_error *e) {
  World w = {0};
  TRY(calibrate_world(c->cli, c->comm, &w, e));
  int n = 0;
  WantedMove *want = c->wanted.move.at;
  for (int i = 0; i < c->wanted.move.n; i++)
    if (want[i].ranks <= w.size) want[n++] = want[i];
  c->larger = c->wanted.move.n - n;
  c->wanted.move.n = n;
  int all = n * CALIBRATE_PASSES;
  WantedMove *list = NEW_N(c->arena, WantedMove, all);
  for (int i = 0; i < all; i++) list[i] = want[i % n];
  weft_status st = time_moves(&c->bench, &w, list, all, move_done, c, c->arena, e);
  world_close(&w);
  return st == WEFT_OK || !*c->cli->stop ? st : err_set(e, WEFT_EINTR, "interrupted");
}

static weft_status measure_machine(Calibrate *c, weft_error *e) {
  if (c->table.bandwidth > 0) return WEFT_OK;
  c->table.ranks = c->bench.ranks;
  return machine_rates(&c->bench, &c->table, e);
}

/* What was measured before an error or Ctrl-C is kept. */
static weft_status measure(Calibrate *c, weft_error *e) {
  TRY(measure_machine(c, e));
  c->bench.f32 = c->table.f32, c->bench.bf16 = c->table.bf16;
  c->saved = now_s();
  bool processes = c->comm->processes;
  weft_status st = processes ? measure_moves_of_processes(c, e) : WEFT_OK;
  if (st == WEFT_OK) st = measure_kernels(c, e);
  if (st == WEFT_OK && !processes) st = measure_moves(c, e);
  weft_error again = NO_ERROR;
  weft_status kept = keep(c, st == WEFT_OK ? e : &again);
  return st == WEFT_OK ? kept : st;
}

static weft_status calibrate(Calibrate *c, Diags *d, weft_error *e) {
  int ranks = most_ranks(c), processes = launched_ranks();
  int threads = calibrate_threads(c->cli, processes > 1 ? processes : ranks);
  const DeviceKind *kind = device_kind(c->cli->device, e);
  if (!kind) return WEFT_EUSAGE;
  TRY(calibrate_comm(c->cli, kind, &c->comm, e));
  machine_table(kind, threads, c->arena, &c->table);
  c->table.comm = c->comm->name;
  c->today = c->table.date;
  TRY(go_on(c, d, e));
  for (int i = 0; i < c->cli->narg; i++)
    wanted_add(&c->wanted, c->job[i].compiled, &c->table, c->arena);
  TRY(bench_open(&c->bench, kind, threads, ranks, e));
  c->bench.seconds = CALIBRATE_SECONDS;
  c->bench.stop = c->cli->stop;
  return measure(c, e);
}

static void tell(const Calibrate *c) {
  printf("%s: %s, %s\n", c->path, c->table.machine, c->table.way);
  printf("  %d kernel%s and %d transfer%s measured now, %d and %d rows in all\n",
         c->kernels, plural(c->kernels, "s"), c->moves, plural(c->moves, "s"),
         c->table.kernel.n, c->table.move.n);
  if (c->larger)
    printf("  %d transfer%s of more ranks than there are processes %s left out\n",
           c->larger, plural(c->larger, "s"), c->larger == 1 ? "was" : "were");
  if (c->wanted.left_out)
    printf("  %d kernel%s left out, which work%s on memory of the host: data sheets have "
           "them\n",
           c->wanted.left_out, c->wanted.left_out == 1 ? " was" : "s were",
           c->wanted.left_out == 1 ? "s" : "");
}

int verb_calibrate(Cli *cli, Arena *arena) {
  if (cli->procs > 0 && !getenv("WEFT_PROCS")) return run_procs(cli, arena);
  if (launched_rank() != 0) return calibrate_as_other(cli, arena);
  Job *job = NEW_N(arena, Job, cli->narg);
  Calibrate c = {.cli = cli,
                 .arena = arena,
                 .job = job,
                 .path = cli->output ? cli->output : "calibration.lua"};
  for (int i = 0; i < cli->narg; i++)
    job[i] = (Job){.arena = arena, .d = {.arena = arena}};
  int failed;
  weft_status st = compile_plans(&c, &failed);
  if (st == WEFT_OK) st = calibrate(&c, &job->d, &job->e);
  if (st == WEFT_OK) tell(&c);
  for (int i = 0; i < cli->narg; i++)
    if (i != failed) job_free(&job[i]);
  return job_end(&job[failed], cli, st, NULL, NULL);
}
