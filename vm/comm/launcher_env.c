/* launcher_env.c - the known launchers (torchrun, MPI, Slurm), innermost first, and the
 * variables that each of them sets. */
#include "launcher_env.h"

#include <errno.h>
#include <stdlib.h>

typedef struct Launcher {
  const char *name, *rank, *size, *local;
  const char *only_if;   /* counts only if this variable is set; or NULL */
  const char *real_size; /* if this one is set it is the size; or NULL */
} Launcher;

/* Under salloc a shell sees SLURM_NTASKS, and an sbatch script also SLURM_PROCID,
 * although no ranks were started there: only a step of srun, which has an id, counts. The
 * shell may itself be such a step, of one task, which keeps SLURM_NTASKS of the
 * allocation (LaunchParameters=use_interactive_step). */
static const Launcher launcher[LAUNCH_N] = {
    [LAUNCH_NONE] = {.name = "no launcher"},
    [LAUNCH_ENV] = {"a launcher that sets RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", NULL,
                    NULL},
    [LAUNCH_OMPI] = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                     "OMPI_COMM_WORLD_LOCAL_RANK", NULL, NULL},
    [LAUNCH_PMI] = {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", NULL, NULL},
    [LAUNCH_SLURM] = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                      "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"},
};

const char *launch_name(LaunchKind k) { return launcher[k].name; }

/* A variable that is empty counts as not set. */
static const char *look(LaunchGetenv get, void *ud, const char *name) {
  const char *s = get ? get(ud, name) : getenv(name);
  return s && *s ? s : NULL;
}

static weft_status number(const char *name, const char *s, int min, int max, int *out,
                          weft_error *e) {
  char *end;
  errno = 0;
  long v = strtol(s, &end, 10);
  if (errno || end == s || *end || v < min || v > max)
    return err_set(e, WEFT_EUSAGE, "%s=%s in the environment: must be a number in %d..%d",
                   name, s, min, max);
  *out = (int)v;
  return WEFT_OK;
}

enum { MAX_SIZE = 1 << 24, MAX_PORT = 65535 };

/* Like `number`, but leaves *out alone if the variable is not set. */
static weft_status optional(LaunchGetenv get, void *ud, const char *name, int min,
                            int max, int *out, weft_error *e) {
  const char *s = look(get, ud, name);
  return s ? number(name, s, min, max, out, e) : WEFT_OK;
}

/* *found is false if this launcher did not start the process. */
static weft_status detect(LaunchKind k, LaunchGetenv get, void *ud, LaunchInfo *out,
                          bool *found, weft_error *e) {
  const Launcher *l = &launcher[k];
  *found = false;
  if (l->only_if && !look(get, ud, l->only_if)) return WEFT_OK;
  const char *rank = look(get, ud, l->rank), *size = look(get, ud, l->size);
  const char *real = l->real_size ? look(get, ud, l->real_size) : NULL;
  if (!rank && !size) return WEFT_OK;
  if (!rank || !size)
    return err_set(e, WEFT_EUSAGE,
                   "%s is set in the environment but %s is not: set both, or unset it",
                   rank ? l->rank : l->size, rank ? l->size : l->rank);
  *found = true;
  out->kind = k;
  TRY(number(real ? l->real_size : l->size, real ? real : size, 1, MAX_SIZE, &out->size,
             e));
  TRY(number(l->rank, rank, 0, out->size - 1, &out->rank, e));
  return optional(get, ud, l->local, 0, out->size - 1, &out->local_rank, e);
}

/* srun sets what mpiexec does, too, where its plugin for MPI is pmi2, although the
 * program may know nothing of it. A mpiexec that srun starts on each machine has another
 * number of ranks. */
static weft_status srun_as_mpiexec(LaunchGetenv get, void *ud, LaunchInfo *out,
                                   weft_error *e) {
  LaunchInfo step = {.local_rank = -1};
  bool found = false;
  TRY(detect(LAUNCH_SLURM, get, ud, &step, &found, e));
  if (found && step.rank == out->rank && step.size == out->size) *out = step;
  return WEFT_OK;
}

/* RANK and WORLD_SIZE are also what a shell has left, or what a platform sets in each of
 * its pods, and they hide the launcher that did start this process: each of its processes
 * would take the plan for its own and run it alone, or itself for rank 0, as ranks of MPI
 * do not meet by these numbers. So a WORLD_SIZE of 1 is looked at, and one that is as
 * large as that launcher's; not that of torchrun, or where WEFT_LAUNCHER says that it is
 * meant. Only these two: mpirun starts its daemons by srun, as many as there are
 * machines, also for fewer ranks. */
static weft_status hide_nobody(const LaunchInfo *env, LaunchGetenv get, void *ud,
                               weft_error *e) {
  const char *meant = look(get, ud, "WEFT_LAUNCHER");
  if (look(get, ud, "TORCHELASTIC_RUN_ID")) return WEFT_OK;
  if (meant && str_eq(meant, "env")) return WEFT_OK;
  for (int k = LAUNCH_ENV + 1; k < LAUNCH_N; k++) {
    LaunchInfo other = {.local_rank = -1};
    bool found = false;
    if (detect((LaunchKind)k, get, ud, &other, &found, NULL) != WEFT_OK || !found)
      continue;
    if (other.size == env->size && other.rank == env->rank) return WEFT_OK;
    if (other.size == env->size)
      return err_set(e, WEFT_EUSAGE,
                     "RANK=%d in the environment, but %s says rank %d: unset RANK and "
                     "WORLD_SIZE, or set WEFT_LAUNCHER=env if they are meant",
                     env->rank, launch_name((LaunchKind)k), other.rank);
    if (other.size > env->size && env->size == 1)
      return err_set(e, WEFT_EUSAGE,
                     "RANK=0 WORLD_SIZE=1 in the environment hide the %d ranks of %s: "
                     "unset them, or set WEFT_LAUNCHER=env if each is a run of its own",
                     other.size, launch_name((LaunchKind)k));
  }
  return WEFT_OK;
}

weft_status launch_master(LaunchGetenv get, void *ud, LaunchInfo *out, weft_error *e) {
  out->master_addr = look(get, ud, "MASTER_ADDR");
  return optional(get, ud, "MASTER_PORT", 1, MAX_PORT, &out->master_port, e);
}

weft_status launch_detect(LaunchGetenv get, void *ud, LaunchInfo *out, weft_error *e) {
  *out = (LaunchInfo){.kind = LAUNCH_NONE, .size = 1, .local_rank = -1};
  bool found = false;
  for (int k = LAUNCH_ENV; k < LAUNCH_N && !found; k++)
    TRY(detect((LaunchKind)k, get, ud, out, &found, e));
  if (out->kind == LAUNCH_ENV) TRY(hide_nobody(out, get, ud, e));
  if (out->kind == LAUNCH_PMI) TRY(srun_as_mpiexec(get, ud, out, e));
  return out->kind == LAUNCH_ENV ? launch_master(get, ud, out, e) : WEFT_OK;
}
