/* device_table.c - the table of devices. A new one is a module, a row here and its
 * kernels. */
#include "device.h"

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
     .keeps = true,
     .work = cuda_work,
     .state = cuda_state,
     .refuses = cudnn_refuses,
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
