/* spawn_per_gpu.c - weft run on a machine with several GPUs and without a launcher: one
 * process per rank and GPU, started as by --procs. */
#include <stdlib.h>

#include "bindings/cli/cli.h"
#include "vm/base/plural.h"

/* Whether the command line leaves open how ranks are started. */
static bool is_free(const Cli *cli) {
  return cli->device && !cli->comm && cli->procs < 0 && !getenv("WEFT_PROCS") &&
         !is_launched();
}

/* Ranks of the plan; if its mesh is open, as many as there are GPUs; 0 if the mesh is
 * wrong, which the run will report. */
static int ranks_of(Job *j, int gpus) {
  Mesh m;
  Diags ignored = {.arena = j->arena};
  if (!mesh_resolve(&j->plan.mesh, lang_cluster_ranks(j->lp), &m, &ignored)) return 0;
  return job_open_world(j) ? MAX(gpus / m.world, 1) * m.world : m.world;
}

weft_status procs_for_gpus(Cli *cli, Arena *arena, weft_error *e) {
  int gpus = 0;
  if (!is_free(cli)) return WEFT_OK;
  const DeviceKind *kind = device_kind(cli->device, NULL);
  const DeviceVtable *device = kind ? kind->load(NULL) : NULL;
  if (!device || !device->count || device->count(&gpus, NULL) != WEFT_OK || gpus < 2)
    return WEFT_OK; /* the run will report what is wrong */
  Job j;
  int ranks = job_start(&j, cli, arena, cli->arg[0]) == WEFT_OK ? ranks_of(&j, gpus) : 0;
  job_free(&j);
  if (ranks > gpus)
    return err_set(
        e, WEFT_EUSAGE,
        "the plan's mesh has %d ranks, but this machine has %d GPU%s: start it on "
        "more machines (weft launch), change the mesh, or let all ranks share "
        "the first GPU (--comm local)",
        ranks, gpus, plural(gpus, "s"));
  if (ranks > 1) cli->procs = ranks;
  return WEFT_OK;
}
