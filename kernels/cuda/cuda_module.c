/* cuda_module.c - the CUDA device: weft_cuda.so, through the CUDA runtime.
 *
 * A rank has a compute stream, and some streams beside it if it exchanges with other
 * ranks of this process: each stream takes one of the GPU's connections. Events come from
 * a ring: reusing one before it was waited for makes the wait longer, never shorter.
 * Errors of asynchronous work surface at the next sync, so calls without a status record
 * the first one. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cuda/attention/attention_hopper.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "cuda_device.h"
#include "launch/failed_before.h"

enum { LEAST_CAPABILITY = 80 };

static CudaDevice *of(Device *d) { return d->ctx; }

void cuda_note(Device *d, cudaError_t r) {
  if (r != cudaSuccess && of(d)->first == cudaSuccess) of(d)->first = r;
}

weft_status cuda_failed(const Device *d, cudaError_t r, const char *what, weft_error *e) {
  return err_set(e, WEFT_ERUN, "rank %d: device cuda: %s: %s (%s)", d->rank, what,
                 cudaGetErrorString(r), cudaGetErrorName(r));
}

/* ---- opening ---- */

/* 13000 -> "13.0" */
static const char *version_text(int v, char text[16]) {
  snprintf(text, 16, "%d.%d", v / 1000, v % 1000 / 10);
  return text;
}

static weft_status find_driver(weft_error *e) {
  char has[16], needs[16];
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (!driver)
    return err_set(e, WEFT_EUSAGE,
                   "device cuda: this machine has no NVIDIA driver (libcuda.so.1); run "
                   "without --device cuda, or install the driver");
  if (driver / 1000 < runtime / 1000)
    return err_set(e, WEFT_EUSAGE,
                   "device cuda: the driver supports CUDA %s, but weft_cuda.so was built "
                   "with %s; install a newer driver, or build weft with an older toolkit",
                   version_text(driver, has), version_text(runtime, needs));
  return WEFT_OK;
}

static weft_status cannot_be_used(cudaError_t r, weft_error *e) {
  return err_set(e, WEFT_EUSAGE, "device cuda: the GPU cannot be used: %s",
                 cudaGetErrorString(r));
}

static weft_status count_gpus(int *n, weft_error *e) {
  *n = 0;
  TRY(find_driver(e));
  cudaError_t r = cudaGetDeviceCount(n);
  if (r == cudaErrorNoDevice || (r == cudaSuccess && *n == 0))
    return err_set(e, WEFT_EUSAGE,
                   "device cuda: the driver shows no GPU; look at nvidia-smi and at "
                   "CUDA_VISIBLE_DEVICES");
  return r == cudaSuccess ? WEFT_OK : cannot_be_used(r, e);
}

/* Selects this process's GPU among those that CUDA_VISIBLE_DEVICES leaves; its ranks
 * share it. A single one is this process's own, as launchers assign it, or shared. */
static weft_status find_gpu(int place, int *gpu, int *capability, weft_error *e) {
  int n, major = 0, minor = 0;
  TRY(count_gpus(&n, e));
  if (n == 1) place = 0;
  if (place >= n)
    return err_set(e, WEFT_EUSAGE,
                   "device cuda: at least %d processes were started on this machine, "
                   "which shows %d GPUs: start one for each",
                   place + 1, n);
  cudaError_t r = cudaSetDevice(place);
  if (r == cudaSuccess)
    r = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, place);
  if (r == cudaSuccess)
    r = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, place);
  if (r != cudaSuccess) return cannot_be_used(r, e);
  *gpu = place;
  *capability = major * 10 + minor;
  if (*capability < LEAST_CAPABILITY)
    return err_set(
        e, WEFT_EUSAGE,
        "device cuda: the GPU has compute capability %d.%d; weft needs %d.%d or "
        "newer",
        major, minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
  return WEFT_OK;
}

/* WEFT_GPU holds weft's own kernels to those that GPUs of this compute capability have.
 */
static weft_status held_to(int *capability, weft_error *e) {
  const char *s = getenv("WEFT_GPU");
  int major = 0, minor = 0, n = 0;
  if (!s || !s[0]) return WEFT_OK;
  if (sscanf(s, "%2d.%1d%n", &major, &minor, &n) != 2 || s[n] || major < 1 || minor < 0)
    return err_set(e, WEFT_EUSAGE,
                   "WEFT_GPU = \"%.20s\" is no compute capability: give one as 8.0", s);
  *capability = MIN(*capability, major * 10 + minor);
  return WEFT_OK;
}

/* Of the first GPU, as others are of its kind, and without a context on it. cuDNN's
 * kernels for Hopper and Blackwell are ahead of weft's, of others that is not known. */
static int attention_version(char why[DEVICE_WAY]) {
  int n, major = 0;
  weft_error e = NO_ERROR;
  if (count_gpus(&n, &e) != WEFT_OK) return 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0)) return 0;
  if (major == 9 || major == 10) return cudnn_version(why);
  snprintf(why, DEVICE_WAY, "cuDNN is taken on 9.0 and 10.0, and the GPU is %d.x", major);
  return LIBRARY_NONE;
}

/* What is in use of the GPU before this rank takes any, in GiB: a context takes less than
 * one. */
static double held_by_others(void) {
  enum { CONTEXT_GIB = 1 };
  size_t left = 0, all = 0;
  if (cudaMemGetInfo(&left, &all) != cudaSuccess) return 0;
  double held = (double)(all - left) / (1 << 30);
  return held > CONTEXT_GIB ? held : 0;
}

static cudaError_t make_queues(CudaDevice *c) {
  cudaError_t r = cudaStreamCreateWithFlags(&c->compute, cudaStreamNonBlocking);
  for (int i = 0; r == cudaSuccess && i < EVENTS; i++) {
    r = cudaEventCreateWithFlags(&c->event[i], cudaEventDisableTiming);
    if (r == cudaSuccess) c->nevent++;
  }
  if (r == cudaSuccess) r = cudaEventCreateWithFlags(&c->choices.begin, cudaEventDefault);
  if (r == cudaSuccess) r = cudaEventCreateWithFlags(&c->choices.end, cudaEventDefault);
  c->c.stream = c->compute;
  c->c.choices = &c->choices;
  return r;
}

static void close_cuda(Device *d) {
  CudaDevice *c = d->ctx;
  if (!c) return;
  if (c->compute) (void)cudaStreamSynchronize(c->compute);
  for (int i = 0; i < c->nevent; i++) (void)cudaEventDestroy(c->event[i]);
  if (c->choices.begin) (void)cudaEventDestroy(c->choices.begin);
  if (c->choices.end) (void)cudaEventDestroy(c->choices.end);
  for (int i = 0; i < BESIDE; i++)
    if (c->beside[i]) (void)cudaStreamDestroy(c->beside[i]);
  if (c->compute) (void)cudaStreamDestroy(c->compute);
  cudnn_close(d);
  hopper_close(d);
  cuda_lt_close(c->c.lt);
  cuda_launch_close(c, d->alloc);
  cuda_graph_close(c);
  mem_free(d->alloc, c, sizeof *c);
  d->ctx = NULL;
  d->kernels = d->refused = d->instead = d->fallback = NULL;
}

static weft_status open_cuda(Device *d, int rank, int threads, weft_error *e) {
  int gpu = 0, capability = 0;
  TRY(find_gpu(d->place, &gpu, &capability, e));
  int own = capability;
  TRY(held_to(&own, e));
  CudaDevice *c = mem_new(d->alloc, sizeof *c);
  if (!c) return err_set(e, WEFT_ENOMEM, "out of memory");
  d->ctx = c;
  c->gpu = gpu;
  c->choices.capability = capability, c->c.capability = own;
  c->c.others = held_by_others();
  cuda_graph_open(c);
  const char *why = NULL;
  cudaError_t r = make_queues(c);
  if (r == cudaSuccess) r = cuda_launch_open(c, d->alloc);
  if (r == cudaSuccess) cuda_tell_load(c);
  if (r == cudaSuccess && c->c.refused[0]) {
    err_set(e, WEFT_EUSAGE, "device cuda: the GPU cannot be used: %s", c->c.refused);
    close_cuda(d);
    return WEFT_EUSAGE;
  }
  d->kernels = c->c.came;
  if (r == cudaSuccess && (c->c.lt = cuda_lt_open(&why))) return WEFT_OK;
  close_cuda(d);
  if (r == cudaSuccess)
    return err_set(e, WEFT_EUSAGE, "device cuda: cuBLASLt cannot be used: %s", why);
  return cuda_failed(d, r, "its streams cannot be created", e);
}

/* Polls: first continuously, so that the end of a short step is seen at once, then twenty
 * thousand times a second; and now and then checks what else may end the wait. */
static weft_status until_idle(Device *d, cudaError_t *r, weft_error *e) {
  enum { AT_ONCE = 2000, PAUSE_NS = 50000, LOOK = 32 };
  for (int i = 0; (*r = cudaStreamQuery(of(d)->compute)) == cudaErrorNotReady; i++) {
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (i < AT_ONCE)
      sched_yield();
    else
      nanosleep(&pause, NULL);
    if (i >= AT_ONCE && i % LOOK == 0 && d->look) TRY(d->look(d->look_ud, e));
  }
  return WEFT_OK;
}

/* ---- memory ---- */

static weft_status no_memory(const Device *d, size_t bytes, cudaError_t r,
                             weft_error *e) {
  const double gib = 1 << 30, others = ((const CudaContext *)d->ctx)->others;
  size_t left = 0, all = 0;
  char who[96] = "";
  (void)cudaGetLastError(); /* clears the error */
  if (r != cudaErrorMemoryAllocation)
    return cuda_failed(d, r, "memory cannot be allocated", e);
  (void)cudaMemGetInfo(&left, &all);
  if (others > 0)
    snprintf(who, sizeof who, " (other processes, which nvidia-smi lists, held %.2f)",
             others);
  return err_set(
      e, WEFT_ENOMEM,
      "rank %d: device cuda: the plan needs %.2f GiB, as check predicts; the GPU "
      "has %.2f GiB, of which %.2f GiB are free%s; use a smaller batch.micro or "
      "batch.seq, recompute, or more GPUs",
      d->rank, (double)bytes / gib, (double)all / gib, (double)left / gib, who);
}

static weft_status alloc(Device *d, size_t bytes, void **p, weft_error *e) {
  cudaError_t r = cudaMalloc(p, MAX(bytes, 1));
  if (r != cudaSuccess) return no_memory(d, bytes, r, e);
  return WEFT_OK;
}

/* cudaFree waits for all streams that may still use the memory. */
static void release(Device *d, void *p, size_t bytes) { cuda_note(d, cudaFree(p)); }

static weft_status alloc_host(Device *d, size_t bytes, void **p, weft_error *e) {
  cudaError_t r = cudaHostAlloc(p, MAX(bytes, 1), cudaHostAllocPortable);
  if (r != cudaSuccess)
    return err_set(e, WEFT_ENOMEM,
                   "rank %d: device cuda: cannot allocate %.1f MiB of pinned memory: %s",
                   d->rank, (double)bytes / (1 << 20), cudaGetErrorString(r));
  return WEFT_OK;
}

static void release_host(Device *d, void *p, size_t bytes) {
  cuda_note(d, cudaFreeHost(p));
}

static void upload(Device *d, void *dst, const void *src, size_t n) {
  if (n) cuda_note(d, cudaMemcpyAsync(dst, src, n, cudaMemcpyDefault, of(d)->compute));
}

/* A copy to memory that is not pinned returns when it is done, and looks at nothing else
 * meanwhile. So what is before it is waited for first; if that wait ends early, nothing
 * is copied, and the next sync says why. */
static void download(Device *d, void *dst, const void *src, size_t n) {
  if (!n) return;
  cudaError_t r = cudaSuccess;
  if (until_idle(d, &r, NULL) != WEFT_OK) return;
  if (r == cudaSuccess)
    r = cudaMemcpyAsync(dst, src, n, cudaMemcpyDefault, of(d)->compute);
  if (r == cudaSuccess) r = cudaStreamSynchronize(of(d)->compute);
  cuda_note(d, r);
}

/* ---- compute stream ---- */

static bool has_type(const KTensor *t) { return t->dtype != DT_F16; }

static const Kernel *kernel(Device *d, int op, const KernelArgs *a) {
  const Kernel *k = &cuda_kernels[op];
  for (int i = 0; i < a->nin; i++)
    if (!has_type(&a->in[i])) return NULL;
  for (int i = 0; i < a->nout; i++)
    if (!has_type(&a->out[i])) return NULL;
  return k->run ? k : NULL;
}

static void launch(Device *d, const Kernel *k, const KernelArgs *a) {
  CudaDevice *c = of(d);
  k->run(d, a);
  if (c->c.refused[0]) d->refused = c->c.refused;
}

static DeviceEvent mark(Device *d, cudaStream_t queue) {
  CudaDevice *c = of(d);
  cudaEvent_t ev = c->event[c->at_event];
  c->at_event = (c->at_event + 1) % EVENTS;
  cuda_note(d, cudaEventRecord(ev, queue));
  return (DeviceEvent){(uint64_t)(uintptr_t)ev};
}

static void behind(Device *d, cudaStream_t queue, DeviceEvent ev) {
  cuda_note(d, cudaStreamWaitEvent(queue, (cudaEvent_t)(uintptr_t)ev.id, 0));
}

static DeviceEvent record(Device *d) { return mark(d, of(d)->compute); }

static void wait(Device *d, DeviceEvent ev) { behind(d, of(d)->compute, ev); }

static weft_status sync(Device *d, weft_error *e) {
  CudaDevice *c = of(d);
  cudaError_t r = c->first;
  if (r == cudaSuccess) TRY(until_idle(d, &r, e));
  if (r == cudaSuccess) r = cudaGetLastError(); /* of a launch */
  c->first = cudaSuccess;
  if (c->c.refused[0])
    return err_set(e, WEFT_ERUN, "rank %d: device cuda: %s", d->rank, c->c.refused);
  if (r == cudaSuccess) return WEFT_OK;
  return err_set(
      e, WEFT_ERUN,
      "rank %d: device cuda: a kernel or copy failed: %s (%s); " CUDA_NAME_THE_OP,
      d->rank, cudaGetErrorString(r), cudaGetErrorName(r));
}

/* ---- streams beside it ---- */

static cudaStream_t side(Device *d) { return of(d)->beside[of(d)->at_beside]; }

static void beside(Device *d, const DeviceEvent *after, int n) {
  CudaDevice *c = of(d);
  c->at_beside = (c->at_beside + 1) % BESIDE;
  cudaStream_t *queue = &c->beside[c->at_beside];
  if (!*queue) cuda_note(d, cudaStreamCreateWithFlags(queue, cudaStreamNonBlocking));
  for (int i = 0; i < n; i++)
    if (after[i].id) behind(d, side(d), after[i]);
}

static void merge(Device *d, const DeviceMerge *m) { cuda_merge(side(d), m); }

static DeviceEvent beside_end(Device *d) { return mark(d, side(d)); }

static const DeviceVtable device_cuda = {
    .name = "cuda",
    .version = DEVICE_VERSION,
    .count = count_gpus,
    .open = open_cuda,
    .close = close_cuda,
    .alloc = alloc,
    .free = release,
    .alloc_host = alloc_host,
    .free_host = release_host,
    .kernel = kernel,
    .launch = launch,
    .upload = upload,
    .download = download,
    .record = record,
    .wait = wait,
    .sync = sync,
    .beside = beside,
    .merge = merge,
    .beside_end = beside_end,
    .tell = cuda_tell,
    .attention_version = attention_version,
    .keeper = &cuda_keeper,
    .lazy = true,
};

__attribute__((visibility("default"))) const DeviceVtable *const weft_device =
    &device_cuda;
