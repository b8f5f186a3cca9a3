/* nccl_windows.cpp - memory and windows of the stand-in NCCL.
 *
 * Strict where NCCL is not: memory that is freed while something is queued, a window that
 * ends while its kernels run, and a communicator that ends before its windows end the
 * process. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "nccl_comm.h"

namespace {

const size_t PAGE = (size_t)2 << 20;
enum { WINDOWS_SINCE = 22700 };

void end_process(const char *why) {
  fprintf(stderr, "standin: %s\n", why);
  abort();
}

/* The begin of the block of the device's memory that an address is in, or nothing. */
char *block_begin(const void *p) {
  auto b = runtime().device.upper_bound((char *)p);
  return b == runtime().device.begin() || !device_block(runtime(), p) ? nullptr
                                                                      : (--b)->first;
}

bool something_is_queued(const Runtime &r) {
  for (const CUstream_st *s : r.stream)
    if (!s->queue.empty()) return true;
  return false;
}

void newer(const char *call) {
  if (standin_is()->nccl >= WINDOWS_SINCE) return;
  fprintf(stderr, "standin: this NCCL has no %s\n", call);
  abort();
}

} // namespace

namespace standin_nccl {

const Window *window_of(const Comm &c, const void *p) {
  for (const Window *w : c.windows)
    if (w->symmetric && (const char *)p >= w->p && (const char *)p < w->p + w->n)
      return w;
  return nullptr;
}

/* Members map as many bytes of the others as they have themselves. */
ncclResult_t window_opens(Comm &c) {
  size_t turn = c.opened % WINDOWS;
  for (int i = 0; i < c.n; i++)
    if (c.shared->member[i].windows.load() < c.opened) return ncclInProgress;
  Opening open = c.opening;
  c.opening = Opening();
  for (int i = 0; i < c.n; i++)
    if (c.shared->member[i].window_bytes[turn] !=
        c.shared->member[c.me].window_bytes[turn]) {
      fails(c, ncclUnhandledCudaError, "memory of a peer's window is of another size");
      return c.failed;
    }
  Window *w = new Window(open.window);
  c.windows.insert(w);
  c.registered.insert(w->p);
  device_block(runtime(), w->p)->registered++;
  *open.to = (ncclWindow_t)w;
  return ncclSuccess;
}

void no_window_left(const Comm &c) {
  if (!c.windows.empty()) end_process("a communicator ends before its windows");
}

void await_symmetric(const Comm &c) {
  while (c.symmetric > 0) {
    if (run_one(runtime())) continue;
    runtime().lock.unlock();
    usleep(100);
    runtime().lock.lock();
  }
}

} // namespace standin_nccl
using namespace standin_nccl;

ncclResult_t ncclMemAlloc(void **p, size_t n) {
  StandinLock lock;
  bool mapped = standin_is()->nccl_windows != 0;
  size_t bytes = mapped ? (n + PAGE - 1) / PAGE * PAGE : n;
  if (cudaMalloc(p, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  device_block(runtime(), *p)->mapped = mapped;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p) {
  StandinLock lock;
  Runtime::Block *b = device_block(runtime(), p);
  if (!b || b->mapped != (standin_is()->nccl_windows != 0))
    end_process("ncclMemFree is given other memory");
  if (b->mapped && something_is_queued(runtime()))
    end_process("memory is unmapped that the GPU may still use");
  b->mapped = false;
  return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* It goes on behind the call, which says nothing of that, and ends when all have come. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *p, size_t n, ncclWindow_t *win,
                                    int flags) {
  StandinLock lock;
  Comm &c = *ref(comm);
  newer("ncclCommWindowRegister");
  if (c.opening.to || c.looks) return ncclInvalidUsage;
  if (!standin_is()->nccl_windows) return ncclSuccess;
  Runtime::Block *b = device_block(runtime(), p);
  if (!b || !b->mapped) return ncclUnhandledCudaError;
  if (((char *)p - block_begin(p)) % NCCL_WIN_REQUIRED_ALIGNMENT)
    return ncclInvalidArgument;
  Member &me = c.shared->member[c.me];
  c.opening.window = {(char *)p, n, (flags & NCCL_WIN_COLL_SYMMETRIC) != 0};
  c.opening.to = win;
  me.window_bytes[++c.opened % WINDOWS] = b->bytes;
  me.windows = c.opened;
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  StandinLock lock;
  Comm &c = *ref(comm);
  newer("ncclCommWindowDeregister");
  if (!win) return ncclSuccess;
  Window *w = (Window *)win;
  if (!c.windows.erase(w)) return ncclInvalidArgument;
  if (c.symmetric) end_process("a window ends while kernels use it");
  c.registered.erase(c.registered.find(w->p));
  device_block(runtime(), w->p)->registered--;
  delete w;
  return ncclSuccess;
}
