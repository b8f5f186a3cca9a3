/* mpi.c - opens the MPI engine, a shared object of its own: a program that does not ask
 * for it neither needs nor loads an MPI library. */
#include <dlfcn.h>

#include "vm/base/module.h"
#include "world.h"

#define MODULE "weft_mpi.so"

/* The handle is never closed: MPI cannot be unloaded. RTLD_GLOBAL, because the plug-ins
 * that an MPI library opens look for its symbols. */
const WorldVtable *world_load_mpi(weft_error *e) {
  char path[4096];
  bool here = module_find(MODULE, path, sizeof path);
  void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!so) {
    const char *why = dlerror();
    err_set(
        e, WEFT_EFILE,
        "the MPI engine cannot be opened: %s; %s%s needs Open MPI (Debian: openmpi-bin "
        "to run, libopenmpi-dev to build)",
        why ? why : MODULE, path, here ? "" : ", expected beside the program,");
    return NULL;
  }
  const WorldVtable *world = dlsym(so, "weft_world");
  if (world && world->version == 1) return world;
  err_set(e, WEFT_EFILE,
          "%s is not the MPI engine of this version of weft: build and install both "
          "together",
          path);
  return NULL;
}
