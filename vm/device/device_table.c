/* device_table.c - the table of devices. A new one is a module, a row here and its
 * kernels. */
#include "device.h"
#include "vm/graph/op_fp8.h"

/* kernels/cuda/cuda_workspace.c: why cuBLASLt has no such product of operands in fp8. */
const char *cuda_fp8_refuses(int op, const KernelArgs *a);

static const char *refuses(int op, const KernelArgs *a) {
  return is_linear_fp8(op) ? cuda_fp8_refuses(op, a) : cudnn_refuses(op, a);
}

static const DeviceVtable *load_cpu(weft_error *e) { return &device_cpu; }

static const DeviceKind kinds[] = {
    {.name = "cpu",
     .host = true,
     .f16 = true,
     .fp8 = true,
     .work = cpu_work,
     .state = cpu_state,
     .way = cpu_way,
     .load = load_cpu},
    {.name = "cuda",
     .fp8 = true,
     .keeps = true,
     .work = cuda_work,
     .state = cuda_state,
     .refuses = refuses,
     .attention_version = cuda_attention_version,
     .unsound = cudnn_unsound,
     .load = device_load_cuda},
};

const DeviceKind *device_kind(const char *name, weft_error *e) {
  for (int i = 0; i < LEN(kinds); i++)
    if (!name || strcmp(kinds[i].name, name) == 0) return &kinds[i];
  Text names = {0};
  for (int i = 0; i < LEN(kinds); i++)
    text_printf(&names, "%s%s", i ? ", " : "", kinds[i].name);
  err_set(e, WEFT_EUSAGE, "there is no device \"%s\" in this build; there is: %s", name,
          names.oom ? "cpu" : names.s);
  text_free(&names);
  return NULL;
}
