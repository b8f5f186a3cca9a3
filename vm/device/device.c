/* device.c - wrappers around the functions of a device: they check arguments, count, and
 * let a test make the N-th call fail. */
#include "device.h"

#include "vm/base/strict.h"

/* True if this is the call that a test has chosen to fail. */
static bool fails(Device *d) { return d->fail_in > 0 && --d->fail_in == 0; }

weft_status device_open(Device *d, const DeviceVtable *vt, const weft_alloc *a, int rank,
                        int place, int threads, weft_error *e) {
  assert(vt && rank >= 0);
  if (vt->version != DEVICE_VERSION)
    return err_set(e, WEFT_EUSAGE, "device %s has interface version %d, this weft has %d",
                   vt->name, vt->version, DEVICE_VERSION);
  *d = (Device){.vt = vt,
                .alloc = a,
                .rank = rank,
                .place = place,
                .threads = MAX(1, threads),
                .strict = strict_asked()};
  return vt->open(d, rank, d->threads, e);
}

void device_close(Device *d) {
  if (!d->vt) return;
  assert(d->count.allocs == d->count.frees);
  d->vt->close(d);
  d->vt = NULL;
}

/* Fills with bytes that no type's valid numbers have: NaN, or -1. */
static void fill_with_junk(Device *d, char *p, size_t bytes) {
  char junk[1 << 14];
  memset(junk, 0xff, sizeof junk);
  for (size_t at = 0; at < bytes; at += sizeof junk)
    d->vt->upload(d, p + at, junk, MIN(sizeof junk, bytes - at));
}

typedef weft_status AllocFn(Device *d, size_t bytes, void **p, weft_error *e);

static weft_status alloc(Device *d, AllocFn *fn, size_t bytes, void **p, weft_error *e) {
  assert(!d->main);
  *p = NULL;
  if (fails(d))
    return err_set(e, WEFT_ENOMEM, "rank %d: out of memory on device %s (injected)",
                   d->rank, d->vt->name);
  TRY(fn(d, bytes, p, e));
  d->count.allocs++;
  if (d->strict) fill_with_junk(d, *p, bytes);
  return WEFT_OK;
}

weft_status device_alloc(Device *d, size_t bytes, void **p, weft_error *e) {
  return alloc(d, d->vt->alloc, bytes, p, e);
}

static weft_status alloc_arena(Device *d, size_t bytes, void **p, weft_error *e) {
  const DeviceArenas *from = d->arenas;
  *p = from ? from->alloc(from->ud, bytes) : NULL;
  return *p ? WEFT_OK : d->vt->alloc(d, bytes, p, e);
}

weft_status device_alloc_arena(Device *d, size_t bytes, void **p, weft_error *e) {
  return alloc(d, alloc_arena, bytes, p, e);
}

weft_status device_alloc_host(Device *d, size_t bytes, void **p, weft_error *e) {
  return alloc(d, d->vt->alloc_host, bytes, p, e);
}

void device_free(Device *d, void *p, size_t bytes) {
  assert(!d->main);
  if (!p) return;
  d->count.frees++;
  d->vt->free(d, p, bytes);
}

void device_free_arena(Device *d, void *p, size_t bytes) {
  const DeviceArenas *from = d->arenas;
  assert(!d->main);
  if (!p || !from || !from->free(from->ud, p))
    device_free(d, p, bytes);
  else
    d->count.frees++;
}

void device_free_host(Device *d, void *p, size_t bytes) {
  assert(!d->main);
  if (!p) return;
  d->count.frees++;
  d->vt->free_host(d, p, bytes);
}

const Kernel *device_kernel(Device *d, int op, const KernelArgs *a) {
  assert(op >= 0 && op < OP_N);
  return d->vt->kernel(d, op, a);
}

void device_launch(Device *d, const Kernel *k, const KernelArgs *a) {
  assert(k && k->run && a->nin <= KERNEL_MAX_IN && a->nout <= KERNEL_MAX_OUT);
  d->count.launches += !d->dry;
  d->vt->launch(d, k, a);
}

void device_upload(Device *d, void *dst, const void *src, size_t n) {
  assert(!d->main);
  assert((dst && src) || n == 0);
  d->count.copies++;
  d->vt->upload(d, dst, src, n);
}

void device_download(Device *d, void *dst, const void *src, size_t n) {
  assert(!d->main);
  assert((dst && src) || n == 0);
  d->count.copies++;
  d->vt->download(d, dst, src, n);
}

void device_main(Device *d, bool begins) { d->main = begins; }

void device_replay(Device *d, void *kept) {
  assert(kept && !d->main);
  d->count.replays++;
  d->vt->keeper->replay(d, kept);
}

DeviceEvent device_record(Device *d) { return d->vt->record(d); }

void device_wait(Device *d, DeviceEvent ev) {
  if (ev.id) d->vt->wait(d, ev);
}

weft_status device_sync(Device *d, weft_error *e) {
  assert(!d->main);
  d->count.syncs++;
  if (fails(d))
    return err_set(e, WEFT_ERUN, "rank %d: device %s failed (injected)", d->rank,
                   d->vt->name);
  return d->vt->sync(d, e);
}
