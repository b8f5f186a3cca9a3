/* calibrate_world.c - see calibrate_world.h. */
#include "calibrate_world.h"

#include "vm/comm/launcher_env.h"
#include "vm/comm/supervisor/rendezvous.h"

weft_status calibrate_comm(const Cli *cli, const DeviceKind *d, const WorldKind **out,
                           weft_error *e) {
  LaunchInfo info;
  TRY(launch_detect(NULL, NULL, &info, e));
  bool several = info.size > 1;
  *out = cli->comm ? world_kind(cli->comm, e)
                   : world_default(several, info.kind == LAUNCH_ENV, d->host);
  if (!*out) return WEFT_EUSAGE;
  TRY(world_suits(*out, d, e));
  if ((*out)->processes == several) return WEFT_OK;
  return several
             ? err_set(e, WEFT_EUSAGE,
                       "%s has started %d processes, but --comm %s is one process; leave "
                       "--comm out",
                       launch_name(info.kind), info.size, (*out)->name)
             : err_set(e, WEFT_EUSAGE,
                       "--comm %s connects processes: add --procs N, or start this with "
                       "mpirun -n N",
                       (*out)->name);
}

int calibrate_threads(const Cli *cli, int ranks) {
  return cli->threads > 0 ? (int)cli->threads : MAX(bench_cores() / MAX(ranks, 1), 1);
}

weft_status calibrate_world(const Cli *cli, const WorldKind *k, World *w, weft_error *e) {
  LaunchInfo info;
  Rendezvous meet = {0};
  TRY(launch_detect(NULL, NULL, &info, e));
  bool env = info.kind == LAUNCH_ENV;
  if (k->over ? env : k->meets) TRY(rendezvous_of_env(&info, cli->stop, &meet, e));
  WorldOptions o = {.meet = meet.addr ? &meet : NULL};
  TRY(world_start(w, k, NULL, info.size, &o, e));
  if (w->node == w->size) return WEFT_OK;
  world_close(w);
  return err_set(
      e, WEFT_EUSAGE,
      "%d of %d processes are on this machine: a calibration is of one machine", w->node,
      w->size);
}

static weft_status measure(const Cli *cli, Arena *a, World *w, weft_error *e) {
  const DeviceKind *d = device_kind(cli->device, e);
  const WorldKind *k;
  if (!d) return WEFT_EUSAGE;
  TRY(calibrate_comm(cli, d, &k, e));
  Bench b = {.seconds = CALIBRATE_SECONDS, .stop = cli->stop};
  TRY(bench_open(&b, d, calibrate_threads(cli, launched_ranks()), 1, e));
  TRY(calibrate_world(cli, k, w, e));
  weft_status st = time_moves(&b, w, NULL, 0, NULL, NULL, a, e);
  world_close(w);
  return st;
}

int calibrate_as_other(const Cli *cli, Arena *a) {
  World w = {0};
  weft_error e = NO_ERROR;
  weft_status st = measure(cli, a, &w, &e);
  if (st != WEFT_OK && st != WEFT_EINTR && !w.quiet)
    report_error("rank %d: %s", launched_rank(), e.text);
  return weft_exit_code(st);
}
