/* runtime.h - what the files of the stand-in CUDA runtime share: streams, events and what
 * was captured of them. All of it is touched under Runtime.lock. */
#ifndef WEFT_STANDIN_RUNTIME_H
#define WEFT_STANDIN_RUNTIME_H

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cuda_runtime_api.h"
#include "standin.h"

/* Something that was captured, and after which others. */
struct GraphNode {
  StandinMake make;
  std::vector<size_t> after;
  CUstream_st *lane; /* the stream: neighbours there run in turns, as they would in one */
  int connection;    /* of the stream */
};

struct CUgraph_st {
  std::vector<GraphNode> node;
  CUstream_st *origin = nullptr;
};

struct CUgraphExec_st {
  std::shared_ptr<CUgraph_st> graph;
};

/* From begin to end. */
struct Capture {
  std::shared_ptr<CUgraph_st> graph = std::make_shared<CUgraph_st>();
  CUstream_st *origin = nullptr;
  std::vector<CUstream_st *> joined; /* streams that are in it, the first one, too */
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool broken = false;
};
typedef std::shared_ptr<Capture> CaptureRef;

struct CUevent_st {
  uint64_t recorded = 0, reached = 0; /* how often it was enqueued, and run */
  bool timed = false;
  double at = 0; /* on Runtime.clock, when it was reached */
  /* The last record was captured: after what it comes. The capture may have ended. */
  std::weak_ptr<Capture> in;
  bool captured = false;
  std::vector<size_t> after;
};

/* A graph that was launched: what is left of it. */
struct Launched {
  struct Node {
    std::deque<StandinTask> task;
    std::vector<size_t> after;
    CUstream_st *lane;
    int connection;
    bool begun = false;
  };
  std::vector<Node> node;
  /* Of each connection the nodes that have not begun, in the order of the capture. */
  std::map<int, std::deque<Node *>> waiting;
  std::map<CUstream_st *, uint64_t> rank;
  CUstream_st *origin = nullptr;
  size_t left = 0; /* nodes with tasks */
};

struct Op {
  std::function<void()> run; /* or a wait: */
  CUevent_st *event = nullptr;
  uint64_t version = 0;
  std::function<bool()> can = nullptr; /* what it waits for is in other processes */
  std::shared_ptr<Launched> graph = nullptr;
  uint64_t turn = 0; /* among all of its connection; 0: it needs none */
};

struct CUstream_st {
  std::deque<Op> queue;
  int gpu = 0;
  int connection = 0;
  uint64_t rank = 0;
  bool copies = false;
  bool own = true; /* not a library's */
  CaptureRef capture;
  std::vector<size_t> tail; /* then: what comes next is after these */
};

struct Runtime {
  struct Block {
    size_t bytes;
    int registered = 0;  /* with communicators that are not over */
    bool mapped = false; /* by ncclMemAlloc: others can map it, too */
  };
  std::recursive_mutex lock;
  Standin is = standin_usual;
  std::vector<CUstream_st *> stream;
  std::map<char *, Block> device, pinned;
  std::set<int> contexts;                         /* GPUs that this process has one on */
  std::vector<CaptureRef> capture;                /* that have not ended */
  std::map<int, std::deque<uint64_t>> connection; /* turns of what has not begun */
  uint64_t turns = 0;
  std::set<const void *> loaded;    /* kernels, and algorithms of libraries */
  std::map<const void *, int> room; /* dynamic shared memory that kernels may have */
  cudaError_t last = cudaSuccess;   /* of launches: cudaGetLastError */
  cudaError_t wrong = cudaSuccess;  /* of something that ran: of all calls from then on */
  bool blocks = false;              /* launches end when what they launch has ended */
  /* Addresses of the device, of which `top` bytes were ever given. */
  char *base = nullptr;
  size_t used = 0, top = 0;
  uint64_t random = 1, ran = 0, launched = 0, loads = 0;
  double clock = 0; /* ms, as far as something says how long it takes */
  int idle = 0;     /* polls since something was queued or ran */

  Runtime();
  void read(const char *text);
  uint64_t draw() {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return random >> 33;
  }
};

Runtime &runtime();
typedef std::lock_guard<std::recursive_mutex> Guard;

/* ---- runtime.cpp ---- */
/* What nearly every call of the runtime does: a thread that has chosen no GPU gets a
 * context on the first one. Where the process computes on others that takes memory of a
 * GPU that is somebody else's, or fails where there is none left: here it is an error. */
void needs_context(Runtime &r);
/* Runs all that is queued. The caller has the lock once. */
void drain_all(Runtime &r);
/* One thing that can go on does; false: nothing can. */
bool run_one(Runtime &r);
/* Something has run, and may have failed. */
void has_run(Runtime &r);
/* What a launch says besides its own errors: that something failed before, or, with
 * CUDA_LAUNCH_BLOCKING, what it launches. */
cudaError_t launch_says(Runtime &r, CUstream_st *s);
/* The block of the device's memory that an address is in, or nothing. */
Runtime::Block *device_block(Runtime &r, const void *p);

/* ---- connections.cpp ---- */
void connection_choose(Runtime &r, CUstream_st *s);
/* Queues it behind what else is on the connection; only the first task of several has a
 * turn there. */
void connection_push(Runtime &r, CUstream_st *s, Op op);
/* Ends the process if streams of its own share a connection although there are as many
 * connections as such streams. */
void connections_apart(const Runtime &r);
/* Whether the head of the stream is the head of its connection, too. */
bool connection_lets(const Runtime &r, const CUstream_st *s);
/* It has begun. */
void connection_begins(Runtime &r, const CUstream_st *s, const Op &op);
/* A kernel or an algorithm is used: the first time the call waits for all streams. */
void standin_first_use(const void *code);
/* It was asked for what it needs, which loads it. */
void standin_loaded(const void *code);

/* ---- capture.cpp ---- */
/* Adds to the capture that the stream is in. */
void capture_add(Runtime &r, CUstream_st *s, StandinMake make);
cudaError_t capture_record(CUstream_st *s, cudaEvent_t e);
/* Either of them is in a capture. */
cudaError_t capture_wait(Runtime &r, CUstream_st *s, cudaEvent_t e);
/* Breaks the capture of a stream, if it is in one; true if so. */
bool capture_break(CUstream_st *s);
/* Whether this thread may not call now what could wait or change the memory of streams:
 * a capture forbids it, and is broken. */
bool capture_forbids(Runtime &r);

/* ---- graph.cpp ---- */
/* A step of a launched graph that can be done now, or nothing. */
Launched::Node *graph_next(Runtime &r, Launched &g);
/* Its first task; the graph is over when none has one. */
void graph_step(Runtime &r, Launched &g, Launched::Node *n);
bool graph_over(const Launched &g);
/* Whether what it waits for is in other processes. */
bool graph_elsewhere(const Launched &g);

#endif
