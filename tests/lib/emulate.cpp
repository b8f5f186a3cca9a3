/* emulate.cpp - the fibers of emulate.h. */
#include "emulate.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace emulate {

__thread Dim3 thread, block, threads, blocks;

namespace {

enum State { READY, AT_BARRIER, AT_SHUFFLE, ENDED };
enum { STACK = 1 << 16, WARP = 32 };

/* Where a stack goes on. The compiler's own jumps: before each of the library's the
 * address sanitizer looks through whole stacks, and nothing is unwound here. */
typedef void *Jump[5];
#define JUMPS __attribute__((noinline, no_sanitize("address")))

struct Fiber {
  std::unique_ptr<char[]> stack;
  ucontext_t start;
  Jump here;
  bool begun;
  State state;
  Dim3 index;
  uint64_t brings, gets;
  int mask;
};

/* The block that runs in this thread of the test. */
struct Block {
  std::vector<std::unique_ptr<Fiber>> fiber;
  size_t size = 0; /* threads of the block: the first fibers */
  const std::function<void()> *body = nullptr;
  Fiber *now = nullptr;
  Jump back;
  uint64_t random = 1;
};
thread_local Block self;

[[noreturn]] void refuse(const char *why) {
  fprintf(stderr, "emulate: %s (block %u, %u, %u)\n", why, block.x, block.y, block.z);
  abort();
}

unsigned any_below(size_t n) {
  self.random = self.random * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)((self.random >> 33) % n);
}

JUMPS void jump_to_fiber(Fiber *f) {
  __builtin_longjmp(f->here, 1);
}
JUMPS void jump_back() {
  __builtin_longjmp(self.back, 1);
}

JUMPS void leave(State why) {
  Fiber *f = self.now;
  f->state = why;
  if (__builtin_setjmp(f->here) == 0) jump_back();
}

/* A fiber stays for the blocks that follow: making one takes calls of the system. */
void begin() {
  for (;;) {
    (*self.body)();
    leave(ENDED);
  }
}

/* Until the next barrier, shuffle or the end. */
JUMPS void resume(Fiber *f) {
  self.now = f;
  thread = f->index;
  if (__builtin_setjmp(self.back)) return;
  if (f->begun) jump_to_fiber(f);
  f->begun = true;
  setcontext(&f->start);
}

/* Runs all that can, in turns that begin anywhere and go either way. */
void run_ready() {
  std::unique_ptr<Fiber> *fiber = self.fiber.data();
  size_t n = self.size, first = any_below(n), by = any_below(2) ? 1 : n - 1;
  for (size_t i = 0; i < n; i++) {
    Fiber *f = fiber[(first + i * by) % n].get();
    if (f->state == READY) resume(f);
  }
}

/* The shuffle of a warp, if all of its lanes that have not ended are there. */
bool shuffle(size_t from) {
  std::unique_ptr<Fiber> *fiber = self.fiber.data();
  size_t n = self.size, to = from + WARP < n ? from + WARP : n;
  int there = 0, barred = 0, ended = 0;
  for (size_t i = from; i < to; i++) {
    there += fiber[i]->state == AT_SHUFFLE;
    barred += fiber[i]->state == AT_BARRIER;
    ended += fiber[i]->state == ENDED;
  }
  if (there == 0) return false;
  if (barred || ended) refuse("a shuffle that some lanes of the warp do not reach");
  for (size_t i = from; i < to; i++) {
    size_t other = from + ((i - from) ^ (size_t)fiber[i]->mask);
    if (other >= to) refuse("a shuffle with a lane that is not there");
    fiber[i]->gets = fiber[other]->brings;
  }
  for (size_t i = from; i < to; i++)
    fiber[i]->state = READY;
  return true;
}

/* False when all have ended. */
bool go_on() {
  std::unique_ptr<Fiber> *fiber = self.fiber.data();
  bool moved = false;
  size_t barred = 0, ended = 0, n = self.size;
  for (size_t w = 0; w < n; w += WARP)
    if (shuffle(w)) moved = true;
  if (moved) return true;
  for (size_t i = 0; i < n; i++)
    barred += fiber[i]->state == AT_BARRIER, ended += fiber[i]->state == ENDED;
  if (ended == n) return false;
  if (barred < n) refuse("a barrier that some threads never come to");
  for (size_t i = 0; i < n; i++)
    fiber[i]->state = READY;
  return true;
}

[[gnu::noinline]] void add_fiber() {
  self.fiber.push_back(std::make_unique<Fiber>());
  Fiber &f = *self.fiber.back();
  f.stack.reset(new char[STACK]);
  f.begun = false;
  getcontext(&f.start);
  f.start.uc_stack.ss_sp = f.stack.get();
  f.start.uc_stack.ss_size = STACK;
  f.start.uc_link = nullptr;
  makecontext(&f.start, begin, 0);
}

void run_block() {
  for (size_t i = 0; i < self.size; i++)
    self.fiber[i]->state = READY;
  do
    run_ready();
  while (go_on());
}

} // namespace

void barrier() { leave(AT_BARRIER); }

uint64_t exchange(uint64_t x, int mask) {
  Fiber *f = self.now;
  f->brings = x;
  f->mask = mask;
  leave(AT_SHUFFLE);
  return f->gets;
}

void run(Dim3 grid, Dim3 size, const std::function<void()> &body) {
  size_t n = (size_t)size.x * size.y * size.z;
  threads = size;
  blocks = grid;
  self.body = &body;
  while (self.fiber.size() < n) add_fiber();
  self.size = n;
  for (size_t i = 0; i < n; i++)
    self.fiber[i]->index = Dim3((unsigned)(i % size.x), (unsigned)(i / size.x % size.y),
                                (unsigned)(i / ((size_t)size.x * size.y)));
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        block = Dim3(x, y, z);
        run_block();
      }
}

} // namespace emulate
