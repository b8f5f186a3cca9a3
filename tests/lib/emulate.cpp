/* emulate.cpp - the fibers of emulate.h. */
#include "emulate_warp.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace emulate {

__thread Dim3 thread, block, threads, blocks;

namespace {

enum State { READY, AT_BARRIER, AT_SHUFFLE, ENDED };
enum { STACK = 1 << 16, WARP = 32, ROOM_ALIGN = 128 };

/* Where a stack goes on. The compiler's own jumps: before each of the library's the
 * address sanitizer looks through whole stacks, and nothing is unwound here. */
typedef void *Jump[5];
#define JUMPS __attribute__((noinline, no_sanitize("address")))

/* On its way to shared memory. */
struct Copy {
  void *to;
  const void *from; /* or NULL: zeros */
  size_t bytes;
};

struct Fiber {
  std::unique_ptr<char[]> stack;
  ucontext_t start;
  Jump here;
  bool begun;
  State state;
  Dim3 index;
  Together *does;
  void *brings;
  std::vector<Copy> copies;
};

/* The block that runs in this thread of the test. */
struct Block {
  std::vector<std::unique_ptr<Fiber>> fiber;
  size_t size = 0; /* threads of the block: the first fibers */
  const std::function<void()> *body = nullptr;
  unsigned char *room = nullptr; /* shared memory that the launch asked for */
  size_t room_bytes = 0;
  Fiber *now = nullptr;
  Jump back;
  uint64_t random = 1;
};
thread_local Block self;

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
    if (!self.now->copies.empty()) refuse("copies that their thread does not wait for");
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

/* What a warp does together, if all of its lanes that have not ended are there. */
bool run_together(size_t from) {
  std::unique_ptr<Fiber> *fiber = self.fiber.data();
  size_t n = self.size, to = from + WARP < n ? from + WARP : n;
  void *lane[WARP] = {};
  int there = 0;
  for (size_t i = from; i < to; i++)
    there += fiber[i]->state == AT_SHUFFLE;
  if (there == 0) return false;
  if ((size_t)there < to - from)
    refuse("a shuffle that some lanes of the warp do not reach");
  for (size_t i = from; i < to; i++) {
    if (fiber[i]->does != fiber[from]->does)
      refuse("lanes of a warp that do different things together");
    lane[i - from] = fiber[i]->brings;
    fiber[i]->state = READY;
  }
  fiber[from]->does(lane);
  return true;
}

/* False when all have ended. */
bool go_on() {
  std::unique_ptr<Fiber> *fiber = self.fiber.data();
  bool moved = false;
  size_t barred = 0, ended = 0, n = self.size;
  for (size_t w = 0; w < n; w += WARP)
    if (run_together(w)) moved = true;
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

void barrier() {
  leave(AT_BARRIER);
}

void refuse(const char *why) {
  fprintf(stderr, "emulate: %s (block %u, %u, %u)\n", why, block.x, block.y, block.z);
  abort();
}

void together(Together *f, void *mine) {
  Fiber *fiber = self.now;
  fiber->does = f;
  fiber->brings = mine;
  leave(AT_SHUFFLE);
}

namespace {
struct Word {
  uint64_t x;
  int arg; /* a mask, or the number of a lane */
  uint64_t gets;
};
template <bool MASK> void give(void *const *lane) {
  for (int i = 0; i < WARP && lane[i]; i++) {
    Word *mine = (Word *)lane[i];
    int from = MASK ? i ^ mine->arg : mine->arg;
    if (from < 0 || from >= WARP || !lane[from])
      refuse("a shuffle with a lane that is not there");
    mine->gets = ((const Word *)lane[from])->x;
  }
}
} // namespace

uint64_t exchange(uint64_t x, int mask) {
  Word w = {x, mask, 0};
  together(give<true>, &w);
  return w.gets;
}

uint64_t broadcast(uint64_t x, int from) {
  Word w = {x, from, 0};
  together(give<false>, &w);
  return w.gets;
}

unsigned char *room() {
  return self.room;
}

bool in_room(const void *p, size_t bytes) {
  uintptr_t from = (uintptr_t)self.room, at = (uintptr_t)p;
  return at >= from && at + bytes <= from + self.room_bytes;
}

void copy_begin(void *to, const void *from, int bytes, bool is) {
  if ((uintptr_t)to % (size_t)bytes != 0 || (uintptr_t)from % (size_t)bytes != 0)
    refuse("a copy that is not aligned");
  self.now->copies.push_back(Copy{to, is ? from : nullptr, (size_t)bytes});
}

void copies_wait() {
  for (const Copy &c : self.now->copies) {
    memset(c.to, 0, c.bytes);
    if (c.from) memcpy(c.to, c.from, c.bytes);
  }
  self.now->copies.clear();
}

namespace {
size_t round_up(size_t bytes) {
  return (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}
} // namespace

void run(Dim3 grid, Dim3 size, size_t bytes, const std::function<void()> &body) {
  size_t n = (size_t)size.x * size.y * size.z;
  threads = size;
  blocks = grid;
  self.body = &body;
  /* Exactly as many bytes, each time others, none of which is a number. */
  std::unique_ptr<unsigned char, decltype(&free)> memory(
      (unsigned char *)aligned_alloc(ROOM_ALIGN, round_up(bytes)), free);
  memset(memory.get(), 0xff, round_up(bytes));
  self.room = memory.get();
  self.room_bytes = bytes;
  while (self.fiber.size() < n)
    add_fiber();
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
