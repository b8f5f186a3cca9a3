/* device.h - where kernels run.
 *
 * A Device has one compute queue per rank and lets the host run ahead: launch and copy
 * only enqueue, sync waits for everything. On the CPU each call completes at once; the
 * interpreter must not rely on it. Calls go through the device_* wrappers below.
 *
 * A step is upload, main, download. Between device_main(d, true) and (d, false) there are
 * launches, events and waits only: no allocation, no copy to or from the host and no
 * sync, and from step to step all addresses are the same. */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include "vm/graph/graph.h"

/* What alloc aligns to, for which it may take as many bytes more: GPU kernels and
 * transfers want no less. */
enum { DEVICE_ALIGN = 256 };

enum { KERNEL_MAX_IN = 10, KERNEL_MAX_OUT = 8 };

typedef struct KTensor {
  void *p;
  DType dtype;
  int ndim;
  int64_t dim[MAX_DIM];
} KTensor;

typedef struct KernelArgs {
  const OpAttr *attr;
  KTensor in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT];
  int nin, nout;
  bool accumulate; /* add to out[0] (and out[1]...) instead of overwriting */
  int index;       /* coordinate over attr->cut */
  void *work;      /* scratch, of any content: DeviceKind.work bytes or NULL */
  void *state;     /* DeviceKind.state bytes that prepare filled, or NULL */
} KernelArgs;

typedef struct Device Device;

/* One op of one device. None of these allocates: what a kernel keeps is args->state, its
 * scratch args->work, and what a library takes for itself `release` gives back. `prepare`
 * (may be NULL) runs at load time with all shapes set, operands without address, and the
 * state zeroed. */
typedef struct Kernel {
  weft_status (*prepare)(Device *d, KernelArgs *a, weft_error *e);
  void (*run)(Device *d, const KernelArgs *a);
  void (*release)(Device *d, KernelArgs *a);
} Kernel;

/* 0: none, which is not waited for. */
typedef struct DeviceEvent {
  uint64_t id;
} DeviceEvent;

/* A step that a device keeps, to enqueue it again as one. What is kept is what is
 * enqueued from `begin` to `end`, on the compute queue and on queues that come to wait
 * for it, and runs when it is replayed; so what differs from step to step is read from
 * memory that upload fills. */
typedef struct DeviceCapture {
  weft_status (*begin)(Device *d, weft_error *e);
  weft_status (*goes_on)(Device *d, weft_error *e); /* an error: it cannot be kept */
  /* *kept is NULL after an error. */
  weft_status (*end)(Device *d, void **kept, weft_error *e);
  void (*replay)(Device *d, void *kept);
  void (*forget)(Device *d, void *kept);
  /* Forgets all and keeps nothing more: what is kept holds communicators, which are about
   * to end. May be called by another thread; waits for the end of what is being kept. */
  void (*give_up)(Device *d);
  /* A number of all that launches were given since the last call, kernels, grids and
   * arguments: another one, another launch. */
  uint64_t (*print)(Device *d);
} DeviceCapture;

/* Ranks of one process that a device joins at most. */
enum { DEVICE_RANKS = 128 };

/* out[..][i] = in[0][i] (+) in[1][i] ..., in that order and rounded once; all of them are
 * read before one is written, so an output may be an input. */
typedef struct DeviceMerge {
  DType dtype;
  bool most; /* the maximum instead of the sum */
  int nin, nout;
  const void *in[DEVICE_RANKS];
  void *out[DEVICE_RANKS];
  uint64_t count; /* elements */
} DeviceMerge;

typedef struct DeviceVtable {
  const char *name;
  int version; /* 1 */
  /* How many of this kind the machine shows to a process; NULL: it is the machine. */
  weft_status (*count)(int *n, weft_error *e);
  weft_status (*open)(Device *d, int rank, int threads, weft_error *e);
  void (*close)(Device *d);
  /* Memory of any content. */
  weft_status (*alloc)(Device *d, size_t bytes, void **p, weft_error *e);
  void (*free)(Device *d, void *p, size_t bytes);
  /* Memory of the host, of any content, that kernels and copies of the device reach. */
  weft_status (*alloc_host)(Device *d, size_t bytes, void **p, weft_error *e);
  void (*free_host)(Device *d, void *p, size_t bytes);
  const Kernel *(*kernel)(Device *d, int op, const KernelArgs *a); /* NULL: no kernel */
  void (*launch)(Device *d, const Kernel *k, const KernelArgs *a);
  /* upload is ordered on the queue: what alloc_host gave must stay as it is until sync,
   * any other source need not. download is complete on return. */
  void (*upload)(Device *d, void *dst, const void *src, size_t n);
  void (*download)(Device *d, void *dst, const void *src, size_t n);
  DeviceEvent (*record)(Device *d);        /* marks the compute queue */
  void (*wait)(Device *d, DeviceEvent ev); /* compute queue waits for ev */
  weft_status (*sync)(Device *d, weft_error *e);
  /* What the ranks of one process exchange runs on queues beside the compute queue,
   * behind the events of all members: `beside` chooses the queue, `merge` is work on it,
   * and `beside_end` marks its end. NULL where the memory is the host's. */
  void (*beside)(Device *d, const DeviceEvent *after, int n);
  void (*merge)(Device *d, const DeviceMerge *m);
  DeviceEvent (*beside_end)(Device *d);
  /* Work on a queue of a backend, which counts what it does there: *n, in memory of the
   * device, grows by one if it `begins` something, and *to, in memory of the host,
   * becomes *n in the upper half and `name` in the lower one. NULL where there are no
   * such queues. */
  void (*tell)(Device *d, void *queue, uint64_t *n, uint64_t *to, bool begins,
               uint32_t name);
  const DeviceCapture *keeper; /* NULL: each step is launched anew */
} DeviceVtable;

/* What went through the wrappers. */
typedef struct DeviceCounts {
  uint64_t allocs, frees, launches, copies, syncs, replays;
} DeviceCounts;

struct Device {
  const DeviceVtable *vt;
  const weft_alloc *alloc;
  int rank;
  int place;   /* of its process among those of this machine */
  int threads; /* the rank's share of the machine */
  /* Asked again and again while a sync or download takes its time; an error ends it. */
  weft_status (*look)(void *ud, weft_error *e);
  void *look_ud;
  void *ctx;
  DeviceCounts count;
  bool main;   /* see device_main */
  bool times;  /* prepare may choose by time how a library computes */
  bool strict; /* see vm/base/strict.h */
  bool dry;    /* launches are looked at (DeviceCapture.print), and nothing is enqueued */
  /* Tests: the n-th call from now on (n >= 1) that can fail does; 0: none. */
  uint64_t fail_in;
};

enum { DEVICE_WAY = 160 };

/* A row of the table of devices (device_table.c). */
typedef struct DeviceKind {
  const char *name; /* "cpu" */
  bool host;        /* its memory is the host's */
  bool f16;         /* computes in f16, as all do in f32 and bf16 */
  bool keeps;       /* has a DeviceCapture */
  /* Bytes of scratch of one launch: by op, attr, shapes and types alone, so that a plan
   * is compiled to the byte on a machine that has no such device. */
  uint64_t (*work)(int op, const KernelArgs *a);
  /* Bytes of the host that a prepared kernel keeps, likewise; it begins at a multiple of
   * 64. */
  uint64_t (*state)(int op, const KernelArgs *a);
  /* Whether a library beside the device's own kernels computes an op, by the same: NULL
   * if so, else why not; the member is NULL where there is no such library. */
  const char *(*refuses)(int op, const KernelArgs *a);
  /* What decides the bits of its results on this machine, beside the program:
   * instructions and libraries. NULL where nothing is known of that before it is opened.
   */
  weft_status (*way)(char text[DEVICE_WAY], weft_error *e);
  /* The device itself; opens its shared object if it has one. NULL with an error that
   * says what is missing. */
  const DeviceVtable *(*load)(weft_error *e);
} DeviceKind;

/* NULL is the first row. NULL with an error that lists what is there. */
const DeviceKind *device_kind(const char *name, weft_error *e);
/* Whether ranks of one process cannot reach each other's memory but through the device.
 */
static inline bool device_apart(const Device *d) { return d && d->vt && d->vt->merge; }

weft_status device_open(Device *d, const DeviceVtable *vt, const weft_alloc *a, int rank,
                        int place, int threads, weft_error *e);
void device_close(Device *d);
weft_status device_alloc(Device *d, size_t bytes, void **p, weft_error *e);
void device_free(Device *d, void *p, size_t bytes);
weft_status device_alloc_host(Device *d, size_t bytes, void **p, weft_error *e);
void device_free_host(Device *d, void *p, size_t bytes);
const Kernel *device_kernel(Device *d, int op, const KernelArgs *a);
void device_launch(Device *d, const Kernel *k, const KernelArgs *a);
void device_upload(Device *d, void *dst, const void *src, size_t n);
void device_download(Device *d, void *dst, const void *src, size_t n);
void device_main(Device *d, bool begins);
/* Of what the device has kept. */
void device_replay(Device *d, void *kept);
DeviceEvent device_record(Device *d);
void device_wait(Device *d, DeviceEvent ev);
weft_status device_sync(Device *d, weft_error *e);

/* cpu.c, and kernels/cpu/cpu_workspace.c. */
extern const DeviceVtable device_cpu;
uint64_t cpu_work(int op, const KernelArgs *a);
uint64_t cpu_state(int op, const KernelArgs *a);
weft_status cpu_way(char text[DEVICE_WAY], weft_error *e);
/* open_cuda.c, and kernels/cuda/cuda_workspace.c. */
const DeviceVtable *device_load_cuda(weft_error *e);
uint64_t cuda_work(int op, const KernelArgs *a);
uint64_t cuda_state(int op, const KernelArgs *a);
/* kernels/cuda/cudnn/cudnn_rule.c: of attention. */
const char *cudnn_refuses(int op, const KernelArgs *a);

#endif
