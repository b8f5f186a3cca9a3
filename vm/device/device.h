/* device.h - where kernels run.
 *
 * A Device has one compute queue per rank and lets the host run ahead: launch and copy
 * only enqueue, sync waits for everything. On the CPU each call completes at once; the
 * interpreter must not rely on it. Calls go through the device_* wrappers below.
 *
 * A step is upload, main, download. Between device_main(d, true) and (d, false) are only
 * launches, events and waits: no allocation, no copy to or from the host but row counts
 * (interp.c), no sync; and all addresses are the same in every step. */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include "vm/graph/graph.h"

/* Alignment of alloc, which may take as many bytes more; GPU kernels need it. */
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
  int heads_index; /* coordinate over attr->heads_cut */
  int shard;       /* coordinate over attr->flat */
  uint32_t unit;   /* number in the model of the unit whose body runs; 0 in main */
  void *work;      /* scratch, uninitialized: DeviceKind.work bytes or NULL */
  void *state;     /* DeviceKind.state bytes, filled by prepare, or NULL */
} KernelArgs;

/* The sinks of an attention op whose optional operands begin at `first`, or NULL: behind
 * doc_starts and before token_numbers, which are integers. */
static inline const KTensor *kernel_sinks(const KernelArgs *a, int first) {
  int last = a->nin - 1 - (a->attr->rate > 0);
  return last >= first && a->in[last].dtype != DT_I32 ? &a->in[last] : NULL;
}

typedef struct Device Device;

/* One op on one device. None of these functions allocates: what a kernel keeps is in
 * args->state, its scratch is args->work; `release` frees what a library has allocated.
 * `prepare` (may be NULL) runs at load time with all shapes set, operands without
 * addresses, and the state zeroed. */
typedef struct Kernel {
  weft_status (*prepare)(Device *d, KernelArgs *a, weft_error *e);
  void (*run)(Device *d, const KernelArgs *a);
  void (*release)(Device *d, KernelArgs *a);
} Kernel;

/* 0: no event; a wait for it returns at once. */
typedef struct DeviceEvent {
  uint64_t id;
} DeviceEvent;

/* A step captured by a device (CUDA graph), to be replayed as one launch. It holds what
 * is enqueued from `begin` to `end`, on the compute queue and on queues that wait for it.
 * Data that differs between steps has to come from memory that upload fills. */
typedef struct DeviceCapture {
  weft_status (*begin)(Device *d, weft_error *e);
  weft_status (*goes_on)(Device *d, weft_error *e); /* an error: it cannot be captured */
  /* *kept is NULL after an error. */
  weft_status (*end)(Device *d, void **kept, weft_error *e);
  void (*replay)(Device *d, void *kept);
  void (*forget)(Device *d, void *kept);
  /* Releases all captured steps and captures no more: they hold communicators, which are
   * about to be destroyed. Any thread may call it; waits for a capture in progress. */
  void (*give_up)(Device *d);
  /* A fingerprint of all launches since the last call: kernels, grids and arguments.
   * Other launches have another fingerprint. */
  uint64_t (*print)(Device *d);
} DeviceCapture;

/* The most ranks of one process that a device can connect. */
enum { DEVICE_RANKS = 128 };

/* out[..][i] = in[0][i] (+) in[1][i] ..., in that order and rounded once. All inputs of
 * an element are read before an output is written, so an output may be an input. */
typedef struct DeviceMerge {
  DType dtype;
  bool most; /* the maximum instead of the sum */
  int nin, nout;
  const void *in[DEVICE_RANKS];
  void *out[DEVICE_RANKS];
  uint64_t count; /* elements */
} DeviceMerge;

enum { DEVICE_WAY = 160, DEVICE_VERSION = 4 };

typedef struct DeviceVtable {
  const char *name;
  int version; /* DEVICE_VERSION */
  /* Number of such devices that the process can see; NULL: the machine itself. */
  weft_status (*count)(int *n, weft_error *e);
  weft_status (*open)(Device *d, int rank, int threads, weft_error *e);
  void (*close)(Device *d);
  /* Uninitialized memory. */
  weft_status (*alloc)(Device *d, size_t bytes, void **p, weft_error *e);
  void (*free)(Device *d, void *p, size_t bytes);
  /* Uninitialized host memory that kernels and copies can access (pinned). */
  weft_status (*alloc_host)(Device *d, size_t bytes, void **p, weft_error *e);
  void (*free_host)(Device *d, void *p, size_t bytes);
  const Kernel *(*kernel)(Device *d, int op, const KernelArgs *a); /* NULL: no kernel */
  void (*launch)(Device *d, const Kernel *k, const KernelArgs *a);
  /* upload is ordered on the queue: memory of alloc_host must not change until sync, any
   * other source may. download is complete on return. */
  void (*upload)(Device *d, void *dst, const void *src, size_t n);
  void (*download)(Device *d, void *dst, const void *src, size_t n);
  DeviceEvent (*record)(Device *d);        /* marks the compute queue */
  void (*wait)(Device *d, DeviceEvent ev); /* compute queue waits for ev */
  weft_status (*sync)(Device *d, weft_error *e);
  /* Exchanges between ranks of one process run on queues beside the compute queue, after
   * the events of all members: `beside` selects the queue, `merge` is work on it,
   * `beside_end` marks its end. NULL where device memory is host memory. */
  void (*beside)(Device *d, const DeviceEvent *after, int n);
  void (*merge)(Device *d, const DeviceMerge *m);
  DeviceEvent (*beside_end)(Device *d);
  /* Progress word on a backend's queue: increments *n (device memory) if an operation
   * `begins`, then writes *n to the upper half of *to (host memory) and `name` to its
   * lower half. NULL without such queues. */
  void (*tell)(Device *d, void *queue, uint64_t *n, uint64_t *to, bool begins,
               uint32_t name);
  int (*attention_version)(char why[DEVICE_WAY]); /* as in DeviceKind; or NULL */
  const DeviceCapture *keeper;                    /* NULL: every step is launched anew */
  /* Kernels and products are loaded when they are first launched, which may wait for all
   * that the device runs: programs are gone through with Device.loads first. */
  bool lazy;
} DeviceVtable;

/* Calls that went through the wrappers. */
typedef struct DeviceCounts {
  uint64_t allocs, frees, launches, copies, syncs, replays;
} DeviceCounts;

/* Memory for the arenas of ranks that is not the device's own: that of a library which
 * moves what lies in it in ways of its own. */
typedef struct DeviceArenas {
  /* NULL: it has none. Then the device's own is taken, or says why there is none. */
  void *(*alloc)(void *ud, size_t bytes);
  /* False: this is not its memory. Nothing of the device may use it any more. */
  bool (*free)(void *ud, void *p);
  void *ud;
} DeviceArenas;

struct Device {
  const DeviceVtable *vt;
  const weft_alloc *alloc;
  const DeviceArenas *arenas; /* set after device_open; NULL: arenas are its own memory */
  int rank;
  int place;   /* index of its process among those of this machine */
  int threads; /* the rank's share of the machine's cores */
  /* Called repeatedly while a sync or download waits; an error ends the wait. */
  weft_status (*look)(void *ud, weft_error *e);
  void *look_ud;
  void *ctx;
  DeviceCounts count;
  bool main;   /* see device_main */
  bool times;  /* prepare may time algorithms to choose one */
  bool strict; /* see vm/base/strict.h */
  bool dry;    /* launches are only fingerprinted (DeviceCapture.print), not enqueued */
  /* Tests: the n-th fallible call from now on (n >= 1) fails; 0: none. */
  uint64_t fail_in;
  /* With dry: kernels are loaded, and products of libraries run once, on whatever memory
   * holds. */
  bool loads;
  /* Why a launch failed, set by it; NULL: none has. */
  const char *refused;
  /* That an op that was left to a library is computed by the device's own kernel, and
   * why; NULL: none is. */
  const char *instead;
  /* What is computed by a kernel for all such devices, not by the one for this one, and
   * why; NULL: nothing is. */
  const char *fallback;
  /* How its kernels came to the device so far, in words; NULL: they are functions. */
  const char *kernels;
};

enum { LIBRARY_NONE = -1 };

/* A row of device_table.c. */
typedef struct DeviceKind {
  const char *name; /* "cpu" */
  bool host;        /* its memory is host memory */
  bool f16;         /* computes in f16, too; all compute in f32 and bf16 */
  bool fp8;         /* has linear_fp8 and its gradients */
  bool keeps;       /* has a DeviceCapture */
  /* Scratch bytes of one launch, by op, attr, shapes and types alone, so that a plan is
   * sized exactly on a machine without such a device. */
  uint64_t (*work)(int op, const KernelArgs *a);
  /* Host bytes of a prepared kernel's state, likewise; it is aligned to 64 bytes. */
  uint64_t (*state)(int op, const KernelArgs *a);
  /* NULL if a library can compute an op instead of the device's own kernels, by the same
   * arguments; else the reason why not. The member is NULL without such a library. */
  const char *(*refuses)(int op, const KernelArgs *a);
  /* The version of that library on this machine, or LIBRARY_NONE where it is not there,
   * too old, or not taken on such a GPU, for which `why` has the reason. 0 if the device
   * cannot be opened, which opening it explains. The member is NULL without such a
   * library. */
  int (*attention_version)(char why[DEVICE_WAY]);
  /* True if that version is known to compute an op wrongly. */
  bool (*unsound)(int version, int op, const KernelArgs *a);
  /* What determines the bits of results on this machine beside the program: instruction
   * set and libraries. NULL if that is unknown before the device is opened. */
  weft_status (*way)(char text[DEVICE_WAY], weft_error *e);
  /* The device's functions; opens its shared object if it has one. NULL with an error
   * that names what is missing. */
  const DeviceVtable *(*load)(weft_error *e);
} DeviceKind;

/* name NULL: the first row. NULL with an error that lists the devices. */
const DeviceKind *device_kind(const char *name, weft_error *e);
/* True if ranks of one process can exchange data only through the device. */
static inline bool device_apart(const Device *d) { return d && d->vt && d->vt->merge; }

weft_status device_open(Device *d, const DeviceVtable *vt, const weft_alloc *a, int rank,
                        int place, int threads, weft_error *e);
void device_close(Device *d);
weft_status device_alloc(Device *d, size_t bytes, void **p, weft_error *e);
void device_free(Device *d, void *p, size_t bytes);
/* The arena of a rank: from Device.arenas, else as device_alloc. */
weft_status device_alloc_arena(Device *d, size_t bytes, void **p, weft_error *e);
void device_free_arena(Device *d, void *p, size_t bytes);
weft_status device_alloc_host(Device *d, size_t bytes, void **p, weft_error *e);
void device_free_host(Device *d, void *p, size_t bytes);
const Kernel *device_kernel(Device *d, int op, const KernelArgs *a);
void device_launch(Device *d, const Kernel *k, const KernelArgs *a);
void device_upload(Device *d, void *dst, const void *src, size_t n);
void device_download(Device *d, void *dst, const void *src, size_t n);
void device_main(Device *d, bool begins);
/* Replays a captured step. */
void device_replay(Device *d, void *kept);
DeviceEvent device_record(Device *d);
void device_wait(Device *d, DeviceEvent ev);
weft_status device_sync(Device *d, weft_error *e);

/* cpu.c, and kernels/cpu/cpu_workspace.c. */
extern const DeviceVtable device_cpu;
uint64_t cpu_work(int op, const KernelArgs *a);
uint64_t cpu_state(int op, const KernelArgs *a);
weft_status cpu_way(char text[DEVICE_WAY], weft_error *e);
/* open_cuda.c, and kernels/cuda/cuda_workspace.c. Streams of a GPU share as many
 * connections as this variable of the environment says, 8 without it and 32 at most;
 * loading sets 32 where it is not set. */
#define CUDA_CONNECTIONS "CUDA_DEVICE_MAX_CONNECTIONS"
const DeviceVtable *device_load_cuda(weft_error *e);
int cuda_attention_version(char why[DEVICE_WAY]);
uint64_t cuda_work(int op, const KernelArgs *a);
uint64_t cuda_state(int op, const KernelArgs *a);
/* kernels/cuda/cudnn/cudnn_rule.c: of attention. */
const char *cudnn_refuses(int op, const KernelArgs *a);
bool cudnn_unsound(int version, int op, const KernelArgs *a);

#endif
