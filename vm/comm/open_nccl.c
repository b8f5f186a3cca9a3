/* open_nccl.c - opens the NCCL backend, a shared object. */
#include "vm/base/module.h"
#include "world.h"

static const Module module = {
    .file = "weft_nccl.so",
    .symbol = "weft_nccl_world",
    .what = "--comm nccl",
    .built = "the CUDA toolkit with NCCL (nccl.h, libnccl)",
    .needs = "the NCCL library that it was built with (libnccl.so.2)",
    .code = WEFT_EUSAGE,
};

const WorldVtable *world_load_nccl(weft_error *e) {
  const WorldVtable *world = module_open(&module, e);
  if (!world || world->version == WORLD_VERSION) return world;
  module_other(&module, e);
  return NULL;
}
