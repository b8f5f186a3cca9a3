/* capture.cpp - what streams are told while they are captured becomes a graph, and what
 * CUDA forbids meanwhile is an error here, too, which breaks the capture: it then ends
 * with cudaErrorStreamCaptureInvalidated and gives no graph. */
#include <algorithm>

#include "runtime.h"

static void fuse_projections(const CaptureRef &c, CUstream_st *s) {
  s->capture = c;
  c->joined.push_back(s);
}

static void add_all(std::vector<size_t> &to, const std::vector<size_t> &from) {
  for (size_t n : from)
    if (std::find(to.begin(), to.end(), n) == to.end()) to.push_back(n);
}

void capture_add(Runtime &r, CUstream_st *s, StandinMake make) {
  Capture &c = *s->capture;
  if (r.is.capture_fails && --r.is.capture_fails == 0) c.broken = true;
  c.graph->node.push_back({std::move(make), s->tail, s, s->connection});
  s->tail = {c.graph->node.size() - 1};
}

bool capture_break(CUstream_st *s) {
  if (s->capture) s->capture->broken = true;
  return s->capture != nullptr;
}

bool capture_forbids(Runtime &r) {
  bool forbidden = false;
  for (const CaptureRef &c : r.capture) {
    bool global = c->mode == cudaStreamCaptureModeGlobal;
    bool own = c->thread == std::this_thread::get_id();
    if (!global && (!own || c->mode == cudaStreamCaptureModeRelaxed)) continue;
    c->broken = forbidden = true;
  }
  return forbidden;
}

cudaError_t capture_record(CUstream_st *s, cudaEvent_t e) {
  e->captured = true;
  e->in = s->capture;
  e->after = s->tail;
  return cudaSuccess;
}

cudaError_t capture_wait(Runtime &r, CUstream_st *s, cudaEvent_t e) {
  CaptureRef c = e->in.lock();
  if (!e->captured) {
    if (!e->recorded) return cudaSuccess; /* it was never recorded: nothing to wait for */
    s->capture->broken = true;
    return cudaErrorStreamCaptureIsolation;
  }
  bool lives = c && std::find(r.capture.begin(), r.capture.end(), c) != r.capture.end();
  if (!lives) {
    capture_break(s);
    return s->capture ? cudaErrorStreamCaptureIsolation : cudaErrorCapturedEvent;
  }
  if (s->capture && s->capture != c) {
    s->capture->broken = c->broken = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!s->capture) {
    s->tail.clear();
    fuse_projections(c, s);
  }
  add_all(s->tail, e->after);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
  Runtime &r = runtime();
  Guard g(r.lock);
  if (!s || s->capture) return cudaErrorInvalidValue;
  CaptureRef c = std::make_shared<Capture>();
  c->origin = c->graph->origin = s;
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  s->tail.clear();
  fuse_projections(c, s);
  r.capture.push_back(c);
  return cudaSuccess;
}

/* Whether all that other streams did comes before the end of the first one. */
static bool all_joined(const Capture &c) {
  std::vector<bool> before(c.graph->node.size(), false);
  std::vector<size_t> todo = c.origin->tail;
  while (!todo.empty()) {
    size_t n = todo.back();
    todo.pop_back();
    if (before[n]) continue;
    before[n] = true;
    add_all(todo, c.graph->node[n].after);
  }
  for (const CUstream_st *s : c.joined)
    for (size_t n : s->tail)
      if (!before[n]) return false;
  return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
  Runtime &r = runtime();
  Guard g(r.lock);
  *graph = nullptr;
  CaptureRef c = s->capture;
  if (!c || c->origin != s)
    return capture_break(s) ? cudaErrorStreamCaptureUnmatched : cudaErrorInvalidValue;
  if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  bool joined = all_joined(*c);
  for (CUstream_st *x : c->joined) x->capture = nullptr;
  r.capture.erase(std::find(r.capture.begin(), r.capture.end(), c));
  if (c->broken) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st(*c->graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
  Runtime &r = runtime();
  Guard g(r.lock);
  *status = !s->capture          ? cudaStreamCaptureStatusNone
            : s->capture->broken ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  return r.wrong;
}
