/* cuda_graph.c - CUDA graphs: captures a step from the device's streams and replays it.
 *
 * Capture is thread-local: a call that is illegal during capture fails in this thread, so
 * a step that copies or synchronizes is detected, while calls of other threads are
 * allowed: libraries' threads allocate and poll, and NCCL launches kernels. */
#include "cuda_device.h"

static CudaDevice *of(Device *d) { return d->ctx; }

void cuda_graph_open(CudaDevice *c) { pthread_mutex_init(&c->keeping, NULL); }

void cuda_graph_close(CudaDevice *c) {
  for (int i = 0; i < KEPT; i++) assert(!c->kept[i]);
  pthread_mutex_destroy(&c->keeping);
}

uint64_t cuda_hash(uint64_t h, const void *p, size_t n) { return hash_bytes(h, p, n); }

static weft_status cannot(Device *d, cudaError_t r, weft_error *e) {
  of(d)->first = cudaSuccess;
  (void)cudaGetLastError(); /* clears the error */
  return cuda_failed(d, r, "the step cannot be captured", e);
}

static weft_status begin(Device *d, weft_error *e) {
  CudaDevice *c = of(d);
  if (c->first != cudaSuccess) /* which the next sync reports, too */
    return cuda_failed(d, c->first, "a copy failed", e);
  pthread_mutex_lock(&c->keeping);
  cudaError_t r = c->gave_up ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
  if (r == cudaSuccess)
    r = cudaStreamBeginCapture(c->compute, cudaStreamCaptureModeThreadLocal);
  if (r == cudaSuccess) return WEFT_OK;
  pthread_mutex_unlock(&c->keeping);
  return cannot(d, r, e);
}

static weft_status goes_on(Device *d, weft_error *e) {
  enum cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
  cudaError_t r = of(d)->first;
  if (r == cudaSuccess) r = cudaStreamIsCapturing(of(d)->compute, &is);
  if (r == cudaSuccess && is != cudaStreamCaptureStatusActive)
    r = cudaErrorStreamCaptureInvalidated;
  return r == cudaSuccess ? WEFT_OK : cannot(d, r, e);
}

static cudaGraphExec_t *place_of(CudaDevice *c, cudaGraphExec_t kept) {
  for (int i = 0; i < KEPT; i++)
    if (c->kept[i] == kept) return &c->kept[i];
  return NULL;
}

/* Nodes keep the priority of the queue that they were captured on: transfers are before
 * computation. The graph is destroyed at once: the executable graph holds everything. */
static cudaError_t make(CudaDevice *c, cudaGraphExec_t *exec) {
  cudaGraph_t graph = NULL;
  cudaError_t r = cudaStreamEndCapture(c->compute, &graph);
  if (r == cudaSuccess) r = c->first;
  if (r == cudaSuccess)
    r = cudaGraphInstantiate(exec, graph, cudaGraphInstantiateFlagUseNodePriority);
  if (graph) (void)cudaGraphDestroy(graph);
  if (r == cudaSuccess) r = cudaGraphUpload(*exec, c->compute);
  if (r == cudaSuccess || !*exec) return r;
  (void)cudaGraphExecDestroy(*exec);
  *exec = NULL;
  return r;
}

static weft_status end(Device *d, void **kept, weft_error *e) {
  CudaDevice *c = of(d);
  cudaGraphExec_t exec = NULL, *free = place_of(c, NULL);
  assert(free);
  cudaError_t r = make(c, &exec);
  *free = exec;
  *kept = exec;
  pthread_mutex_unlock(&c->keeping);
  return r == cudaSuccess ? WEFT_OK : cannot(d, r, e);
}

/* After an abort nothing is launched; the next sync reports why the run ends. */
static void replay(Device *d, void *kept) {
  CudaDevice *c = of(d);
  pthread_mutex_lock(&c->keeping);
  if (!c->gave_up) cuda_note(d, cudaGraphLaunch(kept, c->compute));
  pthread_mutex_unlock(&c->keeping);
}

/* cudaGraphExecDestroy does not interrupt a running launch. */
static void forget(Device *d, void *kept) {
  CudaDevice *c = of(d);
  pthread_mutex_lock(&c->keeping);
  cudaGraphExec_t *at = kept ? place_of(c, kept) : NULL;
  if (at) (void)cudaGraphExecDestroy(*at), *at = NULL;
  pthread_mutex_unlock(&c->keeping);
}

/* Another thread than the rank's calls it, for which CUDA would make a context on the
 * first GPU: that may be another rank's, and have no room for it, and then the graphs
 * would stay, for which NCCL waits. */
static void give_up(Device *d) {
  CudaDevice *c = of(d);
  (void)cudaSetDevice(c->gpu);
  pthread_mutex_lock(&c->keeping);
  c->gave_up = true;
  for (int i = 0; i < KEPT; i++) {
    if (c->kept[i]) (void)cudaGraphExecDestroy(c->kept[i]);
    c->kept[i] = NULL;
  }
  pthread_mutex_unlock(&c->keeping);
}

static uint64_t print(Device *d) {
  CudaDevice *c = of(d);
  uint64_t all = c->c.print;
  c->c.print = 0;
  return all;
}

const DeviceCapture cuda_keeper = {
    .begin = begin,
    .goes_on = goes_on,
    .end = end,
    .replay = replay,
    .forget = forget,
    .give_up = give_up,
    .print = print,
};
