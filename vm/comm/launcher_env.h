/* launcher_env.h - rank and world size of this process, from the environment of its
 * launcher. */
#ifndef WEFT_LAUNCH_H
#define WEFT_LAUNCH_H

#include "vm/base/base.h"

typedef enum {
  LAUNCH_NONE,  /* started by hand: one process */
  LAUNCH_ENV,   /* RANK, WORLD_SIZE: torchrun and the like */
  LAUNCH_OMPI,  /* OMPI_COMM_WORLD_*: mpirun of Open MPI */
  LAUNCH_PMI,   /* PMI_*: mpiexec of MPICH and its relatives */
  LAUNCH_SLURM, /* SLURM_*: srun */
  LAUNCH_N
} LaunchKind;

typedef struct LaunchInfo {
  LaunchKind kind;
  int rank, size;          /* 0 of 1 if there is no launcher */
  int local_rank;          /* on its node; -1 if unknown */
  const char *master_addr; /* LAUNCH_ENV: as the environment holds it, or NULL */
  int master_port;         /* LAUNCH_ENV: 0 if not given */
} LaunchInfo;

/* Looks a variable up; NULL if it is not set. No function: getenv. Others are of tests.
 */
typedef const char *(*LaunchGetenv)(void *ud, const char *name);

/* The innermost launcher wins, in the order of LaunchKind; outer ones are ignored.
 * WEFT_EUSAGE if it gives only one of rank and size, or an invalid number, or if RANK and
 * WORLD_SIZE cannot be of a launcher inside the others. */
weft_status launch_detect(LaunchGetenv get, void *ud, LaunchInfo *out, weft_error *e);
/* Only master_addr and master_port, under any launcher. */
weft_status launch_master(LaunchGetenv get, void *ud, LaunchInfo *out, weft_error *e);
/* "srun": for messages. */
const char *launch_name(LaunchKind k);

#endif
