/* nccl.cpp - NCCL as far as weft uses it, between processes that have no GPU.
 *
 * The members of a communicator share a file. An operation is three things in its queue:
 * the rank comes; when all have come, it gives what it has; when all have given, it
 * takes. So a member blocks its queue until the others come, as a kernel of NCCL does, a
 * communicator runs one operation after the other whatever queues they are in, and what
 * is overwritten too early is sent as it is then. Calls answer that they are in progress
 * now and then, and are queued later only. Members that start different operations fail.
 *
 * Sums and gathers whose operands lie in symmetric windows are what the real kernels are:
 * who reads or writes in another member's window does so at the offset in its own, right
 * or wrong; and they wait for their peers whether the communicator is aborted or not. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nccl_comm.h"
#include "emulate.h"
#include "vm/base/f16.h"

using namespace standin_nccl;

namespace {

std::set<const Comm *> &alive = *new std::set<const Comm *>;

size_t size_of(int type) {
  switch (type) {
  case ncclFloat64: return 8;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclUint8: return 1;
  default: return 4;
  }
}

/* Elements that a member gives. */
size_t gives(const Comm &c, const Shape &s) {
  if (s.kind == RECV) return 0;
  return s.kind == SCATTER ? s.n * (size_t)c.n : s.n;
}

bool all_have(const Comm &c, std::atomic<uint64_t> Member::*what, uint64_t nth) {
  for (int i = 0; i < c.n; i++)
    if ((c.shared->member[i].*what).load() < nth) return false;
  return true;
}

/* ---- an operation ---- */

/* What others read of this member begins where they read it: for each that reads at
 * another offset than those before it there is a copy. Returns the k-th one's number. */
int copy_for(const Comm &c, int k, uint64_t nth) {
  int n = 0;
  for (int i = 0; i < k; i++) {
    bool again = false;
    for (int j = 0; j < i; j++)
      again |= c.shared->member[j].offsets[nth % 2].in ==
               c.shared->member[i].offsets[nth % 2].in;
    if (c.shared->member[i].offsets[nth % 2].in ==
        c.shared->member[k].offsets[nth % 2].in)
      return n;
    n += !again;
  }
  return n;
}

/* Zeros outside of the window, where a GPU would fail. */
void read_window(const Window &w, size_t at, size_t n, char *to) {
  size_t has = at < w.n ? std::min(n, w.n - at) : 0;
  if (has) memcpy(to, w.p + at, has);
  memset(to + has, 0, n - has);
}

/* A gather's operand is read by its member alone. */
void give_symmetric(Comm &c, const Call &call, uint64_t nth) {
  Member &m = c.shared->member[c.me];
  size_t n = gives(c, call.shape) * size_of(call.shape.type);
  const Window *w = window_of(c, call.in);
  m.calls = 1;
  m.shape[0] = call.shape;
  if (n * (size_t)c.n > ROOM)
    return fails(c, ncclInternalError, "too much for the stand-in");
  if (call.shape.kind == GATHER) return (void)memcpy(m.data, call.in, n);
  for (int k = 0; k < c.n; k++)
    read_window(*w, c.shared->member[k].offsets[nth % 2].in, n,
                m.data + (size_t)copy_for(c, k, nth) * n);
}

void give(Comm &c, const std::vector<Call> &calls, uint64_t nth) {
  Member &m = c.shared->member[c.me];
  size_t at = 0;
  if (calls[0].shape.symmetric) return give_symmetric(c, calls[0], nth);
  m.calls = (int)calls.size();
  for (size_t i = 0; i < calls.size(); i++) {
    size_t n = gives(c, calls[i].shape) * size_of(calls[i].shape.type);
    m.shape[i] = calls[i].shape;
    if (at + n > ROOM) return fails(c, ncclInternalError, "too much for the stand-in");
    if (n) memcpy(m.data + at, calls[i].in, n);
    at += n;
  }
}

bool same(const Shape &a, const Shape &b) {
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.n == b.n &&
         a.symmetric == b.symmetric;
}

template <typename T> T load(const char *p) {
  T x;
  memcpy(&x, p, sizeof x);
  return x;
}
template <typename T> void store(char *p, T x) { memcpy(p, &x, sizeof x); }

double get(int type, const char *p) {
  switch (type) {
  case ncclUint8: return load<uint8_t>(p);
  case ncclInt32: return load<int32_t>(p);
  case ncclFloat64: return load<double>(p);
  case ncclBfloat16: return __bfloat162float(load<__nv_bfloat16>(p));
  case ncclFloat16: return f16_to_f32(load<uint16_t>(p));
  }
  return load<float>(p);
}

void put(int type, char *p, double x) {
  switch (type) {
  case ncclUint8: return store(p, (uint8_t)x);
  case ncclInt32: return store(p, (int32_t)x);
  case ncclFloat64: return store(p, x);
  case ncclBfloat16: return store(p, __float2bfloat16_rn((float)x));
  case ncclFloat16: return store(p, f16_from_f32((float)x));
  }
  store(p, (float)x);
}

/* One element over all members, beginning with one of them; `at` bytes into what they
 * give. f32 is rounded by every member, what is smaller once. */
double sum_of(const Comm &c, const Shape &s, int first, size_t at) {
  double sum = 0;
  for (int i = 0; i < c.n; i++) {
    double x = get(s.type, c.shared->member[(first + i) % c.n].data + at);
    if (i && s.op == ncclMax) x = std::isnan(sum) || sum > x ? sum : x;
    if (i && s.op == ncclSum) x = sum + x;
    sum = s.type == ncclFloat32 ? (double)(float)x : x;
  }
  return sum;
}

/* Each block of elements begins with another member, as in a ring. */
int owner(const Comm &c, size_t element) { return (int)(element / 64 % (size_t)c.n); }

void reduce(const Comm &c, const Shape &s, size_t from, char *out) {
  const size_t size = size_of(s.type);
  for (size_t at = 0; at < s.n; at++)
    put(s.type, out + at * size, sum_of(c, s, owner(c, from + at), (from + at) * size));
}

/* Bytes of a result, where its writer has its own; nothing outside of the window. */
void write_window(const Window &w, size_t at, const char *from, size_t n) {
  if (at + n <= w.n) memcpy(w.p + at, from, n);
}

/* A member sums its blocks of an all-reduce at its own offset and writes them to all at
 * that of its own result; a gather's operands are written likewise; a reduce-scatter is
 * summed at the own offset and stays. */
void take_symmetric(Comm &c, const Call &call, uint64_t nth) {
  const Shape &s = call.shape;
  const size_t size = size_of(s.type), whole = gives(c, s) * size;
  const Window *w = window_of(c, call.out);
  for (int k = 0; s.kind == GATHER && k < c.n; k++)
    write_window(*w, c.shared->member[k].offsets[nth % 2].out + (size_t)k * whole,
                 c.shared->member[k].data, whole);
  for (size_t i = 0; s.kind != GATHER && i < s.n; i++) {
    char x[8];
    size_t from = s.kind == SCATTER ? (size_t)c.me * s.n + i : i;
    int who = s.kind == SCATTER ? c.me : owner(c, i);
    put(s.type, x,
        sum_of(c, s, owner(c, from),
               (size_t)copy_for(c, who, nth) * whole + from * size));
    write_window(*w, c.shared->member[who].offsets[nth % 2].out + i * size, x, size);
  }
}

/* What `from` sends to this rank, the k-th time. */
const char *sent(const Comm &c, int from, int k, const Shape &want) {
  const Member &m = c.shared->member[from];
  size_t at = 0;
  for (int i = 0; i < m.calls; i++) {
    const Shape &s = m.shape[i];
    if (s.kind == SEND && s.peer == c.me && k-- == 0)
      return s.n == want.n && s.type == want.type ? m.data + at : nullptr;
    at += gives(c, s) * size_of(s.type);
  }
  return nullptr;
}

void take_one(Comm &c, const Call &call, int k, uint64_t nth) {
  const Shape &s = call.shape;
  size_t bytes = s.n * size_of(s.type);
  if (s.kind == SEND) return;
  if (s.kind == RECV) {
    const char *from = sent(c, s.peer, k, s);
    if (!from) return fails(c, ncclInvalidUsage, "nobody sends what is received");
    memcpy(call.out, from, bytes);
    return;
  }
  for (int i = 0; i < c.n; i++)
    if (c.shared->member[i].calls != 1 || !same(c.shared->member[i].shape[0], s))
      return fails(c, ncclInvalidUsage, "members started different operations");
  if (s.symmetric) return take_symmetric(c, call, nth);
  if (s.kind == REDUCE) reduce(c, s, 0, call.out);
  if (s.kind == SCATTER) reduce(c, s, (size_t)c.me * s.n, call.out);
  for (int i = 0; s.kind == GATHER && i < c.n; i++)
    memcpy(call.out + (size_t)i * bytes, c.shared->member[i].data, bytes);
}

void take(Comm &c, const std::vector<Call> &calls, uint64_t nth) {
  int seen[MEMBERS] = {0};
  for (const Call &x : calls)
    take_one(c, x, x.shape.kind == RECV ? seen[x.shape.peer]++ : 0, nth);
}

/* What a member tells the others when it comes. */
void come(Comm &c, const Call &call, uint64_t nth) {
  Member &me = c.shared->member[c.me];
  if (call.shape.symmetric)
    me.offsets[nth % 2] = {(size_t)(call.in - window_of(c, call.in)->p),
                           (size_t)(call.out - window_of(c, call.out)->p)};
  me.come = nth;
}

/* Its turn among the operations of the communicator is drawn when it is queued; a graph
 * has another one each time that it is launched. */
std::vector<StandinTask> operation(const CommRef &c, const std::vector<Call> &calls) {
  uint64_t nth = ++c->started;
  const Standin *is = standin_is();
  bool hangs = is->nccl_hang && nth >= (uint64_t)is->nccl_hang;
  bool breaks = is->nccl_error && nth >= (uint64_t)is->nccl_error;
  Member *me = &c->shared->member[c->me];
  bool symmetric = calls[0].shape.symmetric;
  auto ends = [=] { return c->aborted && !symmetric; };
  c->symmetric += symmetric;
  return {{[=] { return ends() || (c->done == nth - 1 && !hangs); },
           [=] {
             if (breaks) fails(*c, ncclRemoteError, "the stand-in was told to fail");
             if (!breaks && !ends()) come(*c, calls[0], nth);
           }},
          {[=] { return ends() || all_have(*c, &Member::come, nth); },
           [=] {
             if (!ends()) give(*c, calls, nth);
             if (!ends()) me->given = nth;
           }},
          {[=] { return ends() || all_have(*c, &Member::given, nth); },
           [=] {
             if (!ends()) take(*c, calls, nth);
             c->done = nth;
             me->taken = nth;
             c->symmetric -= symmetric;
           }}};
}

/* What is captured waits by the graph alone. */
void queue(const CommRef &c, std::vector<Call> calls, cudaStream_t s) {
  StandinGpu gpu(c->gpu);
  std::shared_ptr<int> use = c->use;
  enum cudaStreamCaptureStatus is;
  cudaStreamIsCapturing(s, &is);
  bool captured = is != cudaStreamCaptureStatusNone;
  if (!captured) cudaEventRecord(c->end, c->device), cudaStreamWaitEvent(s, c->end, 0);
  standin_queue(s,
                [=] { return use ? operation(c, calls) : std::vector<StandinTask>(); });
  if (!captured) cudaEventRecord(c->end, s), cudaStreamWaitEvent(c->device, c->end, 0);
}

/* An aborted one keeps them: what they wait for may be of others. */
void end_streams(const CommRef &c) {
  StandinGpu gpu(c->gpu);
  cudaStreamDestroy(c->device), cudaStreamDestroy(c->host);
  cudaEventDestroy(c->end);
}

/* NCCL waits at the end of a communicator for all graphs that have operations of it,
 * which is for ever if nobody destroys them: here it is an error. */
void no_graph_has(const Comm &c) {
  if (c.use.use_count() == 1) return;
  fprintf(stderr, "standin: a communicator ends before the graphs that use it\n");
  abort();
}

/* Thread blocks of NCCL wait for peers on the multiprocessors, all of a process at once:
 * as many as its communicators were given, rounded up to a power of two where they send
 * and receive. What does not fit may never begin. */
void blocks_fit(const Comm &c) {
  int sum = 0;
  for (const Comm *x : alive) {
    int blocks = x->ctas;
    for (int n = 1; x->exchanges && n < 2 * x->ctas; n *= 2) blocks = n;
    if (x->gpu == c.gpu && !x->aborted) sum += blocks;
  }
  if (sum <= standin_is()->sms) return;
  fprintf(stderr, "standin: communicators take %d blocks of %d multiprocessors\n", sum,
          standin_is()->sms);
  abort();
}

/* ---- calls ---- */

struct Group {
  int depth = 0;
  std::vector<CommRef> aborted; /* that end with it */
  std::vector<Call> calls;
  CommRef comm;
  cudaStream_t queue = nullptr;
};
thread_local Group group;

ncclResult_t submit(const CommRef &c, std::vector<Call> calls, cudaStream_t s) {
  if (c->failed != ncclSuccess) return c->failed;
  if (c->looks) return ncclInvalidUsage; /* the last one is still in progress */
  if ((c->started + (uint64_t)c->me) % 3) {
    queue(c, std::move(calls), s);
    return ncclSuccess;
  }
  c->pending = std::move(calls);
  c->queue = s;
  c->looks = 3;
  return ncclInProgress;
}

/* As NCCL chooses: any gather, and sums of floats but f64. */
bool is_symmetric(const Comm &c, const Call &x) {
  bool sums = x.shape.op == ncclSum && x.shape.type != ncclFloat64 &&
              x.shape.type != ncclInt32 && x.shape.type != ncclUint8;
  bool has = x.shape.kind == GATHER ||
             ((x.shape.kind == REDUCE || x.shape.kind == SCATTER) && sums);
  return has && window_of(c, x.in) && window_of(c, x.out);
}

ncclResult_t call(Kind kind, const void *in, void *out, size_t n, int type, int op,
                  int peer, ncclComm_t comm, cudaStream_t s) {
  StandinLock lock;
  Call x = {{kind, type, op, peer, false, n}, (const char *)in, (char *)out};
  x.shape.symmetric = is_symmetric(*ref(comm), x);
  if ((kind == SEND || kind == RECV) && !ref(comm)->exchanges) {
    ref(comm)->exchanges = true;
    blocks_fit(*ref(comm));
  }
  if (!group.depth) return submit(ref(comm), {x}, s);
  if (group.comm && group.comm != ref(comm)) return ncclInvalidUsage;
  group.comm = ref(comm);
  group.queue = s;
  group.calls.push_back(x);
  return ncclSuccess;
}

} // namespace

standin_nccl::Comm::Comm() { alive.insert(this); }
/* The end of a communicator lets go of what is registered with it. */
standin_nccl::Comm::~Comm() {
  alive.erase(this);
  for (const void *p : registered) device_block(runtime(), p)->registered--;
  for (Window *w : windows) delete w;
  if (shared) munmap(shared, sizeof(Shared));
}

ncclResult_t ncclGetVersion(int *version) {
  *version = standin_is()->nccl;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  unsigned char random[16];
  memset(id, 0, sizeof *id);
  int fd = open("/dev/urandom", O_RDONLY);
  bool ok = fd >= 0 && read(fd, random, sizeof random) == (ssize_t)sizeof random;
  if (fd >= 0) close(fd);
  for (size_t i = 0; i < sizeof random; i++)
    snprintf(id->internal + 2 * i, 3, "%02x", random[i]);
  return ok ? ncclSuccess : ncclSystemError;
}

/* Whoever comes creates the file; it has no name any more when all have come. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  StandinLock lock;
  if (n > MEMBERS || rank >= n || config->blocking) return ncclInvalidArgument;
  CommRef c = std::make_shared<Comm>();
  c->n = n, c->me = rank, c->ctas = config->maxCTAs;
  c->path = std::string("/tmp/weft-standin-") + id.internal;
  int fd = open(c->path.c_str(), O_CREAT | O_RDWR, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared))) return ncclSystemError;
  void *p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return ncclSystemError;
  c->shared = (Shared *)p;
  cudaGetDevice(&c->gpu);
  blocks_fit(*c);
  cudaStreamCreateWithFlags(&c->device, 0), cudaStreamCreateWithFlags(&c->host, 0);
  cudaEventCreateWithFlags(&c->end, 0);
  c->device->own = c->host->own = false;
  connections_apart(runtime());
  if (standin_is()->nccl_init == 0 && ++c->shared->joined == n) unlink(c->path.c_str());
  *comm = (ncclComm_t) new CommRef(c);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  StandinLock lock;
  const CommRef &c = ref(comm);
  *error = c->failed;
  if (c->shared->joined < c->n) *error = ncclInProgress;
  if (c->opening.to && *error == ncclSuccess) *error = window_opens(*c);
  if (!c->looks || *error != ncclSuccess) return ncclSuccess;
  *error = ncclInProgress;
  if (--c->looks) return ncclSuccess;
  queue(c, std::move(c->pending), c->queue);
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t n, void **handle) {
  StandinLock lock;
  Runtime::Block *b = device_block(runtime(), p);
  if (!b) return ncclInvalidArgument;
  b->registered++;
  ref(comm)->registered.insert(p);
  *handle = p;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  StandinLock lock;
  auto at = ref(comm)->registered.find(handle);
  if (at == ref(comm)->registered.end()) return ncclInvalidArgument;
  ref(comm)->registered.erase(at);
  device_block(runtime(), handle)->registered--;
  return ncclSuccess;
}

/* It ends what the communicator does and waits for the graphs that have operations of it,
 * which may wait for others, unless all are told to end first. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  StandinLock lock;
  ref(comm)->aborted = true;
  no_graph_has(*ref(comm));
  bool others = false;
  for (const Comm *c : alive) others |= c != ref(comm).get() && !c->aborted;
  if (!group.depth && others && standin_graphs()) {
    fprintf(stderr, "standin: a graph runs while one communicator of several ends\n");
    abort();
  }
  unlink(ref(comm)->path.c_str());
  if (group.depth)
    group.aborted.push_back(ref(comm));
  else
    await_symmetric(*ref(comm));
  delete (CommRef *)comm;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  StandinLock lock;
  no_graph_has(*ref(comm));
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  StandinLock lock;
  no_window_left(*ref(comm));
  end_streams(ref(comm));
  delete (CommRef *)comm;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) {
  static const char *const text[] = {
      "no error",       "unhandled cuda error", "unhandled system error",
      "internal error", "invalid argument",     "invalid usage",
      "remote error",   "in progress"};
  return text[r];
}

const char *ncclGetLastError(ncclComm_t comm) {
  return comm ? ref(comm)->why.c_str() : "";
}

ncclResult_t ncclGroupStart(void) {
  group.depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  StandinLock lock;
  if (--group.depth) return ncclSuccess;
  Group g = std::move(group);
  group = Group();
  for (const CommRef &c : g.aborted) await_symmetric(*c);
  if (!g.comm) return ncclSuccess;
  return submit(g.comm, std::move(g.calls), g.queue);
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t s) {
  return call(REDUCE, in, out, n, t, op, 0, comm, s);
}
ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t,
                           ncclComm_t comm, cudaStream_t s) {
  return call(GATHER, in, out, n, t, 0, 0, comm, s);
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t t,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t s) {
  return call(SCATTER, in, out, n, t, op, 0, comm, s);
}
ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int peer,
                      ncclComm_t comm, cudaStream_t s) {
  return call(SEND, in, nullptr, n, t, 0, peer, comm, s);
}
ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int peer, ncclComm_t comm,
                      cudaStream_t s) {
  return call(RECV, nullptr, out, n, t, 0, peer, comm, s);
}
