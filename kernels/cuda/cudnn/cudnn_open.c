/* cudnn_open.c - opens libcudnn.so.9 from the loader's path or its place at build
 * time. */
#include <dlfcn.h>

#include "cudnn_lib.h"

enum { LEAST_VERSION = 90600 }; /* since this version it zeroes the sums of dq itself */

static void *symbol_of(void *so, const char *name, const char **missing) {
  void *p = dlsym(so, name);
  if (!p && !*missing) *missing = name;
  return p;
}

weft_status cudnn_lib_open(CudnnLib *lib, weft_error *e) {
  const char *missing = NULL;
  void *so = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!so)
    return err_set(
        e, WEFT_EUSAGE,
        "attention_backend: cuDNN 9 cannot be opened (%s): install it, or leave "
        "attention to weft's own kernels (attention_backend = \"native\")",
        dlerror());
#define CUDNN_FIND(type, name, params)                                                   \
  lib->name = (type(*) params)symbol_of(so, "cudnn" #name, &missing);
  CUDNN_FUNCTIONS(CUDNN_FIND)
#undef CUDNN_FIND
  if (missing)
    return err_set(
        e, WEFT_EUSAGE,
        "attention_backend: libcudnn.so.9 has no %s: it is not a complete cuDNN 9",
        missing);
  size_t v = lib->GetVersion();
  if (v < LEAST_VERSION)
    return err_set(
        e, WEFT_EUSAGE,
        "attention_backend: this is cuDNN %d.%d.%d, and 9.6 or newer is needed: "
        "install it, or leave attention to weft's own kernels "
        "(attention_backend = \"native\")",
        (int)(v / 10000), (int)(v / 100 % 100), (int)(v % 100));
  return WEFT_OK;
}
