/* nccl_comm.h - what the files of the stand-in NCCL share: a communicator, of which the
 * members are processes that share a file. */
#ifndef WEFT_STANDIN_NCCL_COMM_H
#define WEFT_STANDIN_NCCL_COMM_H

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "nccl.h"
#include "runtime.h"

namespace standin_nccl {

enum { MEMBERS = 16, CALLS = 2 * MEMBERS, WINDOWS = 8 };
const size_t ROOM = (size_t)16 << 20; /* bytes that a member gives in one operation */

enum Kind { REDUCE, GATHER, SCATTER, SEND, RECV };

/* As members compare it. */
struct Shape {
  int kind, type, op, peer;
  bool symmetric; /* by a kernel that takes its own offsets for those of all */
  size_t n;
};

/* Where operands lie in the member's window, see Shape.symmetric. */
struct Offsets {
  size_t in, out;
};

struct Member {
  std::atomic<uint64_t> come, given, taken, windows;
  int calls;
  Shape shape[CALLS];
  Offsets offsets[2];           /* of this operation and the one before, in turns */
  size_t window_bytes[WINDOWS]; /* of the memory that it is in */
  char data[ROOM];
};

struct Shared {
  std::atomic<int> joined;
  Member member[MEMBERS];
};

struct Call {
  Shape shape;
  const char *in;
  char *out;
};

struct Window {
  char *p;
  size_t n;
  bool symmetric;
};

/* A call of ncclCommWindowRegister that waits for the other members. */
struct Opening {
  Window window = {};
  ncclWindow_t *to = nullptr;
};

struct Comm {
  Shared *shared = nullptr;
  int n = 0, me = 0, ctas = 0;
  bool aborted = false, exchanges = false;
  uint64_t started = 0, done = 0;
  ncclResult_t failed = ncclSuccess;
  std::string path, why;
  /* A call that is in progress: so many looks until it is queued. */
  std::vector<Call> pending;
  cudaStream_t queue = nullptr;
  int looks = 0;
  std::shared_ptr<int> use = std::make_shared<int>(0); /* by graphs */
  /* NCCL's own, which are streams as others: one waits for the end of each operation, as
   * the next one waits for it. */
  cudaStream_t device = nullptr, host = nullptr;
  cudaEvent_t end = nullptr;
  int gpu = 0;
  std::multiset<const void *> registered;
  std::set<Window *> windows;
  uint64_t opened = 0; /* windows so far */
  Opening opening;     /* `to` is nothing: none is being opened */
  int symmetric = 0;   /* such kernels that are queued and have not ended */

  Comm();
  ~Comm();
};
typedef std::shared_ptr<Comm> CommRef;

inline CommRef &ref(ncclComm_t c) { return *(CommRef *)c; }
inline void fails(Comm &c, ncclResult_t r, const std::string &why) {
  if (c.failed == ncclSuccess) c.failed = r, c.why = why;
}

/* ---- nccl_windows.cpp ---- */
/* The symmetric window that an address is in, or nothing. */
const Window *window_of(const Comm &c, const void *p);
/* A look at what ncclCommWindowRegister has begun: in progress until all members came. */
ncclResult_t window_opens(Comm &c);
/* The process ends if windows are left. */
void no_window_left(const Comm &c);
/* Returns when none of its symmetric kernels is queued: they look at no abort. The caller
 * has the lock once. */
void await_symmetric(const Comm &c);

} // namespace standin_nccl

#endif
