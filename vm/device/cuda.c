/* cuda.c - opens the CUDA device, a shared object of its own: a program that does not ask
 * for it neither needs nor loads a CUDA library. */
#include <dlfcn.h>

#include "device.h"
#include "vm/base/module.h"

#define MODULE "weft_cuda.so"

/* The handle is never closed: the runtime keeps threads and handlers of its own. */
const DeviceVtable *device_load_cuda(weft_error *e) {
  char path[4096];
  if (!module_find(MODULE, path, sizeof path)) {
    err_set(
        e, WEFT_EUSAGE,
        "device cuda is not there: %s is built where the CUDA toolkit (nvcc) is found "
        "when weft is configured; install it and build again",
        MODULE);
    return NULL;
  }
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!so) {
    const char *why = dlerror();
    err_set(e, WEFT_EUSAGE,
            "device cuda cannot be opened: %s; it needs the libraries of "
            "the CUDA toolkit that it was built with",
            why ? why : path);
    return NULL;
  }
  const DeviceVtable *const *device = dlsym(so, "weft_device");
  if (device && (*device)->version == 1) return *device;
  err_set(e, WEFT_EUSAGE,
          "%s is not the device of this version of weft: build and install both together",
          path);
  return NULL;
}
