/* open_world.c - opens the backends that are shared objects. That of MPI has global
 * symbols, because the plug-ins of an MPI library look them up. */
#include "vm/base/module.h"
#include "world.h"

static const Module mpi = {
    .file = "weft_mpi.so",
    .symbol = "weft_world",
    .what = "the MPI backend",
    .built = "MPI (Debian: libopenmpi-dev)",
    .needs = "Open MPI (Debian: openmpi-bin)",
    .code = WEFT_EFILE,
    .global = true,
};

static const Module nccl = {
    .file = "weft_nccl.so",
    .symbol = "weft_nccl_world",
    .what = "--comm nccl",
    .built = "the CUDA toolkit with NCCL (nccl.h, libnccl)",
    .needs = "the NCCL library that it was built with (libnccl.so.2)",
    .code = WEFT_EUSAGE,
};

static const WorldVtable *load(const Module *module, weft_error *e) {
  const WorldVtable *world = module_open(module, e);
  if (!world || world->version == WORLD_VERSION) return world;
  module_other(module, e);
  return NULL;
}

const WorldVtable *world_load_mpi(weft_error *e) { return load(&mpi, e); }

const WorldVtable *world_load_nccl(weft_error *e) { return load(&nccl, e); }
