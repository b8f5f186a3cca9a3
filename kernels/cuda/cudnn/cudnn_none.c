/* cudnn_none.c - replaces cudnn_run.c in builds without cuDNN. */
#include <stdio.h>

#include "cudnn_attention.h"

int cudnn_version(char why[DEVICE_WAY]) {
  snprintf(why, DEVICE_WAY, "weft_cuda.so was built without cuDNN");
  return LIBRARY_NONE;
}

weft_status cudnn_prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  if (a->attr->backend == BACKEND_EITHER) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE,
                 "attention_backend: this weft_cuda.so was built without cuDNN: build it "
                 "where cudnn.h and libcudnn are installed, or leave attention to weft's "
                 "own kernels (attention_backend = \"native\")");
}

void cudnn_release(Device *d, KernelArgs *a) {}

bool cudnn_takes(const KernelArgs *a) { return false; }

bool cudnn_run(Device *d, const KernelArgs *a) { return false; }

void cudnn_close(Device *d) {}
