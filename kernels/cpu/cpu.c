/* cpu.c - the CPU as a device: every call completes at once, events are empty. */
#include "vm/device/device.h"

#include "kernels/cpu/gemm/gemm.h"
#include "levels.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static weft_status cpu_open(Device *d, int rank, int threads, weft_error *e) {
  CpuLevel level;
  return cpu_level(&level, e);
}

weft_status cpu_way(char text[DEVICE_WAY], weft_error *e) {
  CpuLevel level;
  char library[DEVICE_WAY - 32];
  TRY(cpu_level(&level, e));
  gemm_library(library, sizeof library);
  snprintf(text, DEVICE_WAY, "%s, %s", cpu_level_name(level), library);
  return WEFT_OK;
}

static void cpu_close(Device *d) {}

/* The allocator's own address is stored before a block, in its padding: those align to 16
 * bytes. */
enum { ALIGN = DEVICE_ALIGN, HUGE = 2 << 20 };

/* Advises huge pages before a large block is first touched; it may be ignored. */
static void advise(char *p, size_t bytes) {
  uintptr_t lo = ((uintptr_t)p + HUGE - 1) & ~(uintptr_t)(HUGE - 1);
  uintptr_t hi = ((uintptr_t)p + bytes) & ~(uintptr_t)(HUGE - 1);
  if (hi > lo) (void)madvise((void *)lo, hi - lo, MADV_HUGEPAGE);
}

static weft_status cpu_alloc(Device *d, size_t bytes, void **p, weft_error *e) {
  size_t all = bytes + ALIGN;
  bool own = d->alloc && d->alloc->fn;
  char *raw = all < bytes ? NULL
              : own       ? d->alloc->fn(d->alloc->ud, NULL, 0, all)
                          : malloc(all);
  if (!raw)
    return err_set(e, WEFT_ENOMEM, "rank %d: no memory for %zu bytes (%.1f MiB)", d->rank,
                   bytes, (double)bytes / (1 << 20));
  uintptr_t block = ((uintptr_t)raw + ALIGN) & ~(uintptr_t)(ALIGN - 1);
  assert(block - (uintptr_t)raw >= sizeof(void *));
  advise((char *)block, bytes);
  ((void **)block)[-1] = raw;
  *p = (void *)block;
  return WEFT_OK;
}

static void cpu_free(Device *d, void *p, size_t bytes) {
  mem_free(d->alloc, ((void **)p)[-1], bytes + ALIGN);
}

static const Kernel *cpu_kernel(Device *d, int op, const KernelArgs *a) {
  const Kernel *k = &cpu_set_here()->kernel[op];
  return k->run ? k : NULL;
}

static void cpu_launch(Device *d, const Kernel *k, const KernelArgs *a) { k->run(d, a); }

static void cpu_move(Device *d, void *dst, const void *src, size_t n) {
  if (n) memcpy(dst, src, n);
}

static DeviceEvent cpu_record(Device *d) { return (DeviceEvent){0}; }

static void cpu_wait(Device *d, DeviceEvent ev) {}

static weft_status cpu_sync(Device *d, weft_error *e) { return WEFT_OK; }

const DeviceVtable device_cpu = {
    .name = "cpu",
    .version = DEVICE_VERSION,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc,
    .free_host = cpu_free,
    .kernel = cpu_kernel,
    .launch = cpu_launch,
    .upload = cpu_move,
    .download = cpu_move,
    .record = cpu_record,
    .wait = cpu_wait,
    .sync = cpu_sync,
};
