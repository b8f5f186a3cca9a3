/* runtime.cpp - the CUDA runtime as far as weft uses it, without a GPU.
 *
 * A stream is a queue of closures: kernels, which the emulator runs, copies, records of
 * events and waits for them. Nothing runs when it is enqueued. Whoever waits for a stream
 * runs the heads of queues, one by one, until that stream is empty: any order that events
 * allow may be taken, and one is chosen by chance: streams have ranks that are drawn
 * again now and then, and the first that can go on does. One stream that copies go
 * through, as a compute queue, or all others go on only when no other can; the number of
 * the order says which. So a wait that is missing gives other results in some order.
 * Memory of the device can be touched while something runs only: a host that reads it
 * directly ends with a signal. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel_figures.h"
#include "runtime.h"
#include "emulate.h"

extern "C" const Standin standin_usual = {
    1, 13000, 1, 90, (size_t)8 << 30, 0,     132,   22809, 0, 0, 0,     1, 0, 0, 0,
    0, 1,     0, 0,  13000,           false, false, 0,     0, 0, 91900, 0, 0, 0};

Runtime::Runtime() {
  const char *wait = getenv("CUDA_LAUNCH_BLOCKING");
  blocks = wait && atoi(wait) != 0;
  if (const char *text = getenv("WEFT_STANDIN")) read(text);
  random = is.order * 2 + 1;
}

void Runtime::read(const char *text) {
  const struct {
    const char *key;
    int *to;
  } number[] = {{"driver=", &is.driver},
                {"gpus=", &is.gpus},
                {"capability=", &is.capability},
                {"sms=", &is.sms},
                {"nccl=", &is.nccl},
                {"nccl_init=", &is.nccl_init},
                {"nccl_error=", &is.nccl_error},
                {"nccl_hang=", &is.nccl_hang},
                {"nccl_windows=", &is.nccl_windows},
                {"cudnn=", &is.cudnn},
                {"cudnn_work=", &is.cudnn_work},
                {"cudnn_fails=", &is.cudnn_fails},
                {"cudnn_wrong=", &is.cudnn_wrong},
                {"capture_fails=", &is.capture_fails},
                {"algorithms=", &is.algorithms},
                {"flip=", &is.flip},
                {"connections=", &is.connections},
                {"depth=", &is.depth},
                {"runtime=", &is.runtime},
                {"lt_refuses=", &is.lt_refuses},
                {"lt_slow=", &is.lt_slow},
                {"fp8_bits=", &is.fp8_bits},
                {"wgmma_wrong=", &is.wgmma_wrong},
                {"fault=", &is.fault}};
  for (const auto &n : number)
    if (const char *at = strstr(text, n.key)) *n.to = atoi(at + strlen(n.key));
  if (const char *at = strstr(text, "order=")) is.order = (uint64_t)atoll(at + 6);
  is.no_ptx = strstr(text, "no_ptx") != nullptr;
  if (const char *at = strstr(text, "memory=")) is.memory = (size_t)atoll(at + 7);
  if (const char *at = strstr(text, "held=")) is.held = (size_t)atoll(at + 5);
}

/* Never destroyed: threads of ranks may end after main. */
Runtime &runtime() {
  static Runtime *r = new Runtime;
  return *r;
}

namespace {

size_t pages(size_t n) {
  const size_t page = 4096;
  return (n + page - 1) / page * page;
}

/* ---- running ---- */

/* Pages of memory of the device, as opening and closing it takes the longer the more of
 * them there are. */
const size_t LARGE_PAGE = (size_t)2 << 20;

/* All of it at once: blocks lie side by side in one range. */
void protect(Runtime &r, int how) {
  if (r.top) mprotect(r.base, (r.top + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE, how);
}

bool can_go_on(const CUstream_st *s) {
  if (s->queue.empty() || !connection_lets(runtime(), s)) return false;
  const Op &op = s->queue.front();
  if (op.graph) return graph_next(runtime(), *op.graph) != nullptr;
  if (op.can) return op.can();
  return !op.event || op.run || op.event->reached >= op.version;
}

/* Streams that copies go through: one of each rank in this process. */
uint64_t ranks(const Runtime &r) {
  uint64_t n = 0;
  for (const CUstream_st *x : r.stream) n += x->copies;
  return n;
}

/* Whether a stream comes last in this order: one of those that copies go through, or all
 * others. */
bool starves(const Runtime &r, const CUstream_st *s) {
  uint64_t n = ranks(r), at = 0;
  for (size_t i = 0; i < r.stream.size() && r.stream[i] != s; i++)
    at += r.stream[i]->copies;
  uint64_t which = r.is.order % (n + 1);
  return which == n ? !s->copies : s->copies && at == which;
}

/* The stream that comes first among those that can go on, with or without those that come
 * last; or none. */
CUstream_st *next(Runtime &r, bool with_last) {
  CUstream_st *best = nullptr;
  bool late = false;
  if (r.draw() % 16 == 0)
    for (CUstream_st *s : r.stream) s->rank = r.draw();
  for (CUstream_st *s : r.stream) {
    if (!can_go_on(s)) continue;
    bool last = starves(r, s);
    if (last && !with_last) continue;
    if (best && last > late) continue;
    if (!best || last < late || s->rank > best->rank) best = s, late = last;
  }
  return best;
}

/* Its first step. Memory is open then. */
void step(Runtime &r, CUstream_st *s) {
  connection_begins(r, s, s->queue.front());
  if (std::shared_ptr<Launched> g = s->queue.front().graph) {
    s->queue.front().turn = 0;
    graph_step(r, *g, graph_next(r, *g));
    if (graph_over(*g)) s->queue.pop_front();
    return;
  }
  Op op = std::move(s->queue.front());
  s->queue.pop_front();
  if (op.run && (!r.wrong || op.event)) op.run();
  has_run(r);
}

/* Whether what all wait for is in other processes. */
bool elsewhere(const Runtime &r) {
  for (const CUstream_st *s : r.stream)
    if (!s->queue.empty()) {
      const Op &op = s->queue.front();
      if (op.graph ? graph_elsewhere(*op.graph) : op.can != nullptr) return true;
    }
  return false;
}

/* Runs until `s` holds no more than `most`, or all streams are empty. The caller has the
 * lock once; it is given away while other processes are waited for. */
void drain(Runtime &r, const CUstream_st *s, size_t most = 0) {
  bool open = false;
  for (;;) {
    bool left = s && s->queue.size() > most;
    for (size_t i = 0; !s && i < r.stream.size(); i++)
      left |= !r.stream[i]->queue.empty();
    if (!left) break;
    if (CUstream_st *first = next(r, true)) {
      if (!open) protect(r, PROT_READ | PROT_WRITE), open = true;
      step(r, first);
      continue;
    }
    if (!elsewhere(r)) {
      fprintf(stderr, "standin: streams wait for each other\n");
      abort();
    }
    if (open) protect(r, PROT_NONE), open = false;
    r.lock.unlock();
    usleep(100);
    r.lock.lock();
  }
  if (open) protect(r, PROT_NONE);
}

bool is_pinned(Runtime &r, const void *p) {
  auto b = r.pinned.upper_bound((char *)p);
  if (b == r.pinned.begin()) return false;
  --b;
  return (char *)p < b->first + b->second.bytes;
}

bool is_device(Runtime &r, const void *p) { return device_block(r, p) != nullptr; }

} // namespace

Runtime::Block *device_block(Runtime &r, const void *p) {
  auto b = r.device.upper_bound((char *)p);
  if (b == r.device.begin()) return nullptr;
  --b;
  return (char *)p < b->first + b->second.bytes ? &b->second : nullptr;
}

void drain_all(Runtime &r) { drain(r, nullptr); }

bool run_one(Runtime &r) {
  CUstream_st *first = next(r, true);
  if (!first) return false;
  protect(r, PROT_READ | PROT_WRITE);
  step(r, first);
  protect(r, PROT_NONE);
  return true;
}

void has_run(Runtime &r) {
  if (++r.ran == (uint64_t)r.is.fault) r.wrong = cudaErrorIllegalAddress;
}

cudaError_t launch_says(Runtime &r, CUstream_st *s) {
  if (r.wrong || !r.blocks || !s || s->capture) return r.wrong;
  drain(r, s);
  if (r.ran + 1 == (uint64_t)r.is.fault) r.wrong = cudaErrorIllegalAddress;
  return r.wrong;
}

/* The GPU of this thread; -1: it has chosen none. */
static thread_local int chosen = -1;

void needs_context(Runtime &r) {
  int gpu = chosen < 0 ? 0 : chosen;
  if (chosen < 0 && !r.contexts.empty() && !r.contexts.count(gpu)) {
    fprintf(stderr, "standin: a thread that chose no GPU makes a context on GPU %d\n",
            gpu);
    abort();
  }
  r.contexts.insert(gpu);
}

StandinGpu::StandinGpu(int gpu) : was(chosen) { chosen = gpu; }
StandinGpu::~StandinGpu() { chosen = was; }

/* Kernels, and records of events, are refused on a stream of another GPU. */
static bool of_this_gpu(Runtime &r, const CUstream_st *s) {
  needs_context(r);
  return s->gpu == (chosen < 0 ? 0 : chosen);
}

/* Into the queue, or into what is captured of it. */
static void put(Runtime &r, CUstream_st *s, std::function<void()> run) {
  r.launched++;
  if (s->capture)
    return capture_add(r, s, [=] { return std::vector<StandinTask>{{nullptr, run}}; });
  if (r.is.depth) drain(r, s, (size_t)r.is.depth - 1);
  connection_push(r, s, Op{std::move(run)});
  r.idle = 0;
}

namespace emulate {
/* On no stream it runs at once. */
void enqueue(cudaStream_t s, std::function<void()> run) {
  if (!s) return run();
  Runtime &r = runtime();
  Guard g(r.lock);
  if (!of_this_gpu(r, s)) {
    r.last = cudaErrorInvalidResourceHandle;
    return;
  }
  put(r, s, std::move(run));
}
} // namespace emulate

void standin_queue(CUstream_st *s, StandinMake make) {
  Runtime &r = runtime();
  Guard g(r.lock);
  r.launched++;
  if (s->capture) return capture_add(r, s, std::move(make));
  bool first = true;
  for (StandinTask &t : make()) {
    Op op{std::move(t.run), nullptr, 0, std::move(t.can)};
    if (first)
      connection_push(r, s, std::move(op));
    else
      s->queue.push_back(std::move(op));
    first = false;
  }
}

StandinLock::StandinLock() { runtime().lock.lock(); }
StandinLock::~StandinLock() { runtime().lock.unlock(); }
const Standin *standin_is(void) { return &runtime().is; }

/* ---- the machine ---- */

void standin_set(const Standin *s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  r.is = *s;
  r.random = s->order * 2 + 1;
}

uint64_t standin_ran(void) {
  Runtime &r = runtime();
  Guard g(r.lock);
  return r.ran;
}

uint64_t standin_launched(void) {
  Runtime &r = runtime();
  Guard g(r.lock);
  return r.launched;
}

void standin_hold(void *stream, const bool *until) {
  standin_queue((cudaStream_t)stream, [=] {
    return std::vector<StandinTask>{
        {[=] { return *(volatile const bool *)until; }, [] {}}};
  });
}

bool standin_fails(void *stream) {
  StandinLock lock;
  return launch_says(runtime(), (cudaStream_t)stream) != cudaSuccess;
}

int standin_graphs(void) {
  Runtime &r = runtime();
  Guard g(r.lock);
  int n = 0;
  for (const CUstream_st *s : r.stream)
    for (const Op &op : s->queue) n += op.graph != nullptr;
  return n;
}

cudaError_t cudaDriverGetVersion(int *v) {
  *v = runtime().is.driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
  *v = runtime().is.runtime;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n) {
  *n = runtime().is.gpus;
  return *n ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device) {
  Runtime &r = runtime();
  Guard g(r.lock);
  if (device < 0 || device >= r.is.gpus) return cudaErrorInvalidValue;
  chosen = device;
  r.contexts.insert(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr which, int device) {
  int c = runtime().is.capability;
  if (which == cudaDevAttrMultiProcessorCount)
    *v = runtime().is.sms;
  else if (which == cudaDevAttrMaxSharedMemoryPerBlockOptin)
    *v = (int)shared_most(c);
  else
    *v = which == cudaDevAttrComputeCapabilityMajor ? c / 10 : c % 10;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = chosen < 0 ? 0 : chosen;
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
  Runtime &r = runtime();
  Guard g(r.lock);
  cudaError_t e = r.wrong ? r.wrong : r.last;
  r.last = cudaSuccess;
  return e;
}

const char *cudaGetErrorName(cudaError_t e) {
  switch (e) {
  case cudaSuccess: return "cudaSuccess";
  case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
  case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
  case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
  case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
  case cudaErrorUnsupportedPtxVersion: return "cudaErrorUnsupportedPtxVersion";
  case cudaErrorLaunchOutOfResources: return "cudaErrorLaunchOutOfResources";
  case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
  case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
  case cudaErrorNoDevice: return "cudaErrorNoDevice";
  case cudaErrorNotReady: return "cudaErrorNotReady";
  case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
  case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
  case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
  case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
  case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
  case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
  case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
  case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
  case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
  case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
  }
  return "?";
}
const char *cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }

/* ---- memory ---- */

/* The first gap that is large enough, or nothing. */
static char *place(Runtime &r, size_t n) {
  const size_t range = (size_t)1 << 36;
  if (!r.base) {
    void *m = mmap(nullptr, range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (m == MAP_FAILED) return nullptr;
    r.base = (char *)m + (LARGE_PAGE - (uintptr_t)m % LARGE_PAGE) % LARGE_PAGE;
    madvise(r.base, range - LARGE_PAGE, MADV_HUGEPAGE);
  }
  char *at = r.base;
  for (const auto &b : r.device) {
    if (b.first - at >= (ptrdiff_t)n) return at;
    at = b.first + pages(b.second.bytes);
  }
  if (at + n > r.base + range - LARGE_PAGE) return nullptr;
  if (at + n > r.base + r.top) r.top = (size_t)(at + n - r.base);
  return at;
}

static uint64_t asked_late; /* under the lock */
uint64_t standin_asked_late(void) {
  StandinLock lock;
  return asked_late;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  asked_late += r.used > 0;
  *all = r.is.memory;
  *left = r.is.memory - r.is.held - r.used;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t n) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_forbids(r)) return cudaErrorStreamCaptureUnsupported;
  if (r.wrong) return r.wrong;
  if (r.used + n > r.is.memory - r.is.held) return cudaErrorMemoryAllocation;
  char *m = place(r, pages(n));
  if (!m) return cudaErrorMemoryAllocation;
  r.used += n;
  r.device[m] = Runtime::Block{n};
  *p = m;
  return cudaSuccess;
}

/* A network card reaches registered memory until it is no longer registered: the region
 * must not outlive the memory. */
static void not_registered(const Runtime::Block &b) {
  if (!b.registered) return;
  fprintf(stderr, "standin: memory is freed that is registered with a communicator\n");
  abort();
}

cudaError_t cudaFree(void *p) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_forbids(r)) return cudaErrorStreamCaptureUnsupported;
  auto b = r.device.find((char *)p);
  if (b == r.device.end()) return cudaErrorInvalidValue;
  not_registered(b->second);
  if (b->second.mapped) {
    fprintf(stderr, "standin: memory of ncclMemAlloc is given to cudaFree\n");
    abort();
  }
  drain(r, nullptr);
  r.used -= b->second.bytes;
  madvise(p, pages(b->second.bytes), MADV_DONTNEED);
  r.device.erase(b);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_forbids(r)) return cudaErrorStreamCaptureUnsupported;
  drain(r, nullptr);
  return r.wrong;
}

cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_forbids(r)) return cudaErrorStreamCaptureUnsupported;
  *p = aligned_alloc(4096, pages(n));
  if (!*p) return cudaErrorMemoryAllocation;
  r.pinned[(char *)*p] = Runtime::Block{n};
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_forbids(r)) return cudaErrorStreamCaptureUnsupported;
  if (!r.pinned.erase((char *)p)) return cudaErrorInvalidValue;
  drain(r, nullptr);
  free(p);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  s->copies = true;
  put(r, s, [=] { memset(p, value, n); });
  return r.wrong;
}

/* From memory that is not pinned the source is taken at once; into such memory the copy
 * is there on return; neither can be captured. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n,
                            enum cudaMemcpyKind kind, cudaStream_t s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  bool pinned_from = is_device(r, from) || is_pinned(r, from);
  bool pinned_to = is_device(r, to) || is_pinned(r, to);
  if (!(pinned_from && pinned_to) && capture_break(s))
    return cudaErrorStreamCaptureUnsupported;
  if (pinned_from) {
    put(r, s, [=] { memcpy(to, from, n); });
  } else {
    std::vector<char> taken((const char *)from, (const char *)from + n);
    put(r, s, [=] { memcpy(to, taken.data(), n); });
  }
  if (!pinned_to) drain(r, s);
  /* A bit of the exponent, not the highest: that would make 1.5 a nan. */
  if (!pinned_to && n > 4 && r.is.flip > 0 && --r.is.flip == 0)
    ((char *)to)[n / 8 * 4 + 3] ^= 0x20;
  return r.wrong;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  *s = new CUstream_st;
  (*s)->gpu = chosen < 0 ? 0 : chosen;
  (*s)->rank = r.draw();
  connection_choose(r, *s);
  r.stream.push_back(*s);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest) {
  *lowest = 0, *highest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  drain(r, s);
  for (size_t i = 0; i < r.stream.size(); i++)
    if (r.stream[i] == s) r.stream.erase(r.stream.begin() + (long)i);
  delete s;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_break(s)) return cudaErrorStreamCaptureUnsupported;
  drain(r, s);
  return r.wrong;
}

/* Time passes between two looks: some of what is queued has run. What comes last waits
 * until nothing else came for a while: hosts of other ranks here may be slow, and what
 * they queue shall be able to come before it. */
cudaError_t cudaStreamQuery(cudaStream_t s) {
  const int patience = 10;
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_break(s)) return cudaErrorStreamCaptureUnsupported;
  if (r.wrong || s->queue.empty()) return r.wrong;
  bool with_last = ++r.idle > patience || ranks(r) < 2;
  CUstream_st *first = next(r, with_last);
  if (!first) return cudaErrorNotReady;
  uint64_t n = r.draw() % 64;
  if (n == 0) return cudaErrorNotReady;
  protect(r, PROT_READ | PROT_WRITE);
  for (; n > 0 && first; n--) {
    step(r, first);
    first = s->queue.empty() ? nullptr : next(r, with_last);
    r.idle = 0;
  }
  protect(r, PROT_NONE);
  return r.wrong || s->queue.empty() ? r.wrong : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (e->captured || s->capture) return capture_wait(r, s, e);
  if (e->recorded) connection_push(r, s, Op{nullptr, e, e->recorded});
  return r.wrong;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  *e = new CUevent_st;
  (*e)->timed = !(flags & cudaEventDisableTiming);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  if (!of_this_gpu(r, s)) return cudaErrorInvalidResourceHandle;
  if (s->capture) return capture_record(s, e);
  e->captured = false;
  uint64_t version = ++e->recorded;
  connection_push(
      r, s, Op{[e, version, &r] { e->reached = version, e->at = r.clock; }, e, version});
  return r.wrong;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  for (CUevent_st *e : {begin, end}) {
    if (!e->timed || !e->recorded) return cudaErrorInvalidValue;
    if (e->reached < e->recorded) return cudaErrorNotReady;
  }
  *ms = (float)(end->at - begin->at);
  return cudaSuccess;
}

/* What still waits for it, or records it, comes first. */
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  drain(r, nullptr);
  delete e;
  return cudaSuccess;
}
