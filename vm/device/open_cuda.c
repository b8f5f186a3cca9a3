/* open_cuda.c - opens the CUDA device, a shared object. */
#include <stdlib.h>

#include "device_environment.h"
#include "vm/base/module.h"

static const Module module = {
    .file = "weft_cuda.so",
    .symbol = "weft_device",
    .what = "device cuda",
    .built = "the CUDA toolkit (nvcc)",
    .needs = "the libraries of the CUDA toolkit that it was built with",
    .code = WEFT_EUSAGE,
};

/* CUDA reads the variable at its first call. A kernel of NCCL that waits for a peer keeps
 * back what comes behind it on the same connection, which the peer may be waiting for. */
static void set_connections(void) { setenv(CUDA_CONNECTIONS, "32", 0); }

void device_before_others(const DeviceKind *k) {
  if (!k->host) set_connections();
}

int cuda_attention_version(char why[DEVICE_WAY]) {
  weft_error e = NO_ERROR;
  const DeviceVtable *device = device_load_cuda(&e);
  return device ? device->attention_version(why) : 0;
}

const DeviceVtable *device_load_cuda(weft_error *e) {
  set_connections();
  const DeviceVtable *const *device = module_open(&module, e);
  if (!device || (*device)->version == DEVICE_VERSION) return device ? *device : NULL;
  module_other(&module, e);
  return NULL;
}
