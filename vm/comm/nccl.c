/* nccl.c - opens the NCCL engine, a shared object of its own: a program that does not ask
 * for it neither needs nor loads NCCL. */
#include <dlfcn.h>

#include "vm/base/module.h"
#include "world.h"

#define MODULE "weft_nccl.so"

/* The handle is never closed: NCCL has threads of its own. */
const WorldVtable *world_load_nccl(weft_error *e) {
  char path[4096];
  if (!module_find(MODULE, path, sizeof path)) {
    err_set(e, WEFT_EUSAGE,
            "--comm nccl is not there: %s is built where the CUDA toolkit and NCCL "
            "(nccl.h, libnccl) are found when weft is configured; install them and build "
            "again",
            MODULE);
    return NULL;
  }
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!so) {
    const char *why = dlerror();
    err_set(e, WEFT_EUSAGE,
            "--comm nccl cannot be opened: %s; it needs the NCCL library that it was "
            "built with (libnccl.so.2)",
            why ? why : path);
    return NULL;
  }
  const WorldVtable *world = dlsym(so, "weft_nccl_world");
  if (world && world->version == 1) return world;
  err_set(e, WEFT_EUSAGE,
          "%s is not the NCCL engine of this version of weft: build and install both "
          "together",
          path);
  return NULL;
}
