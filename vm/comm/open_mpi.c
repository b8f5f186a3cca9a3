/* open_mpi.c - opens the MPI backend, a shared object with global symbols, because the
 * plug-ins of an MPI library look them up. */
#include "vm/base/module.h"
#include "world.h"

static const Module module = {
    .file = "weft_mpi.so",
    .symbol = "weft_world",
    .what = "the MPI backend",
    .built = "MPI (Debian: libopenmpi-dev)",
    .needs = "Open MPI (Debian: openmpi-bin)",
    .code = WEFT_EFILE,
    .global = true,
};

const WorldVtable *world_load_mpi(weft_error *e) {
  const WorldVtable *world = module_open(&module, e);
  if (!world || world->version == WORLD_VERSION) return world;
  module_other(&module, e);
  return NULL;
}
