/* emulate.cpp - the fibers of emulate.h: each thread that stopped has a stack. */
#include "emulate_wgmma.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace emulate {

__thread Dim3 thread, block, threads, blocks;

namespace {

enum State { FRESH, READY, AT_BARRIER, AT_SHUFFLE, AT_PRODUCT, ENDED };
/* Stacks are no power of two apart: their tops would share a few lines of the cache. */
enum { STACK = (1 << 16) + 13 * 64, WARP = 32, FOUR = 4 * WARP, ROOM_ALIGN = 128 };
/* Where dynamic shared memory begins in its window, and what is written is noted by. */
enum { ROOM_AT = 1024 + ROOM_ALIGN, GRANULE = 4 };

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

/* Who wrote a granule of shared memory last, and when. */
struct Written {
  unsigned by = 0; /* a thread, from 1 on; 0: nobody in this block */
  unsigned at = 0;
};

/* Where a thread runs until it ends, and then others. */
struct Stack {
  Jump here;
  std::unique_ptr<char[]> bytes;
};

struct Thread {
  State state = ENDED;
  unsigned number = 0; /* in its block */
  Dim3 index;
  Stack *stack = nullptr; /* until it ends, unless it is fresh */
  Together *does = nullptr;
  void *brings = nullptr;
  std::vector<Copy> copies;  /* in the order in which they began */
  std::deque<size_t> groups; /* how many copies each group has that is on its way */
  size_t grouped = 0;        /* copies in groups */
  unsigned fenced = 0, visible = 0; /* its last proxy fence; the last before a barrier */
};

/* The block that runs in this thread of the test. Its threads that can go on have turns;
 * one that stops gives the turn on, and the last one goes back. */
struct Block {
  std::vector<Thread> of; /* the first `size` */
  size_t size = 0, ended = 0;
  size_t at = 0, by = 1, left = 0; /* the next turn, the one after it, how many */
  std::vector<int> shuffling;      /* of each warp */
  std::deque<Stack> stacks;        /* all; they stay for other launches */
  std::vector<Stack *> idle;
  const std::function<void()> *body = nullptr;
  unsigned char *room = nullptr; /* shared memory that the launch asked for */
  size_t room_bytes = 0;
  std::vector<Written> written; /* of each granule of the room */
  unsigned clock = 0;           /* of writes and fences */
  Thread *now = nullptr;
  Jump back;
  ucontext_t start;
  uint64_t random = 1;
};
thread_local Block here;
/* The same, without the look whether it has been made. */
__thread Block *self;

unsigned any_below(size_t n) {
  self->random = self->random * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)((self->random >> 33) % n);
}

/* Who has the next turn, or nobody: all have had theirs. */
Thread *next_turn(Block *b) {
  for (; b->left; b->left--) {
    Thread *t = &b->of[b->at];
    if (t->state == READY || t->state == FRESH) return t;
    b->at += b->by;
    if (b->at >= b->size) b->at -= b->size;
  }
  return nullptr;
}

void take_turn(Block *b, Thread *t) {
  b->left--, b->at += b->by;
  if (b->at >= b->size) b->at -= b->size;
  b->now = t;
  thread = t->index;
}

void run_threads();

/* This takes calls of the system. Does not come back, which a sanitizer must not be told:
 * it would look for the stack that it knows; and what it marks in a frame would stay. */
[[noreturn]] JUMPS void new_stack(Block *b) {
  Stack *s = b->now->stack = &b->stacks.emplace_back();
  s->bytes.reset(new char[STACK]);
  getcontext(&b->start);
  b->start.uc_stack.ss_sp = s->bytes.get();
  b->start.uc_stack.ss_size = STACK;
  b->start.uc_link = nullptr;
  makecontext(&b->start, run_threads, 0);
  setcontext(&b->start);
  abort();
}

/* Where it goes on, until a barrier, a shuffle or the end of who has the next turn. */
__attribute__((no_sanitize("address"))) inline void **next_jump(Block *b) {
  Thread *t = next_turn(b);
  if (!t) return b->back;
  take_turn(b, t);
  if (t->state == FRESH) {
    if (b->idle.empty()) new_stack(b);
    t->stack = b->idle.back();
    b->idle.pop_back();
  }
  return t->stack->here;
}

/* The jump is not in a function of its own: processors guess where functions return to by
 * the calls they have seen, and one that never returns would spoil that for all after it.
 */
JUMPS void leave(State why) {
  Block *b = self;
  b->now->state = why;
  if (__builtin_setjmp(b->now->stack->here)) return;
  __builtin_longjmp(next_jump(b), 1);
}

/* Nobody runs on this stack any more. */
JUMPS void wait_idle(Stack *s) {
  Block *b = self;
  b->idle.push_back(s);
  if (__builtin_setjmp(s->here)) return;
  __builtin_longjmp(next_jump(b), 1);
}

/* A thread that is fresh when another one ends runs on its stack, without a jump. */
void run_threads() {
  Block *b = self;
  Stack *s = b->now->stack;
  for (;;) {
    (*b->body)();
    if (!b->now->copies.empty()) refuse("copies that their thread does not wait for");
    products_are_waited_for();
    b->now->groups.clear();
    b->now->state = ENDED;
    b->ended++;
    Thread *t = next_turn(b);
    if (t && t->state == FRESH)
      take_turn(b, t), t->stack = s;
    else
      wait_idle(s);
  }
}

JUMPS void first_turn(Block *b) { __builtin_longjmp(next_jump(b), 1); }

/* Runs all that can, in turns that begin anywhere and go either way. */
JUMPS void run_ready(Block *b) {
  b->at = any_below(b->size), b->by = any_below(2) ? 1 : b->size - 1;
  b->left = b->size;
  if (__builtin_setjmp(b->back)) return;
  first_turn(b);
}

/* What a warp does together, if all of its lanes are there. */
void run_together(Block *b, size_t from) {
  size_t to = from + WARP < b->size ? from + WARP : b->size;
  Thread *of = b->of.data();
  void *lane[WARP] = {};
  if ((size_t)b->shuffling[from / WARP] < to - from)
    refuse("a shuffle that some lanes of the warp do not reach");
  Together *does = of[from].does;
  for (size_t i = from; i < to; i++) {
    if (of[i].does != does) refuse("lanes of a warp that do different things together");
    lane[i - from] = of[i].brings;
    of[i].state = READY;
  }
  b->shuffling[from / WARP] = 0;
  does(lane);
}

/* The same of a warpgroup. */
void run_together_four(Block *b, size_t from) {
  Thread *of = b->of.data();
  void *lane[FOUR];
  for (size_t i = from; i < from + FOUR; i++) {
    if (i >= b->size || of[i].state != AT_PRODUCT)
      refuse("wgmma that some threads of the warpgroup do not come to");
    if (of[i].does != of[from].does)
      refuse("threads of a warpgroup that do different things together");
    lane[i - from] = of[i].brings;
  }
  for (size_t i = from; i < from + FOUR; i++) of[i].state = READY;
  of[from].does(lane);
}

bool any_product(const Block *b, size_t from) {
  for (size_t i = from; i < from + FOUR && i < b->size; i++)
    if (b->of[i].state == AT_PRODUCT) return true;
  return false;
}

/* False when all have ended. */
bool go_on(Block *b) {
  bool moved = false;
  for (size_t w = 0; w < b->shuffling.size(); w++)
    if (b->shuffling[w]) run_together(b, w * WARP), moved = true;
  if (moved) return true;
  for (size_t i = 0; i < b->size; i += FOUR)
    if (any_product(b, i)) run_together_four(b, i), moved = true;
  if (moved) return true;
  if (b->ended == b->size) return false;
  if (b->ended) refuse("a barrier that some threads never come to");
  for (size_t i = 0; i < b->size; i++)
    b->of[i].state = READY, b->of[i].visible = b->of[i].fenced;
  return true;
}

void run_block(Block *b) {
  b->ended = 0;
  b->clock = 0;
  std::fill(b->written.begin(), b->written.end(), Written());
  for (size_t i = 0; i < b->size; i++)
    b->of[i].state = FRESH, b->of[i].fenced = b->of[i].visible = 0;
  do run_ready(b);
  while (go_on(b));
}

} // namespace

void barrier() { leave(AT_BARRIER); }

void refuse(const char *why) {
  fprintf(stderr, "emulate: %s (block %u, %u, %u)\n", why, block.x, block.y, block.z);
  abort();
}

[[gnu::always_inline]] inline void together_here(Together *f, void *mine) {
  Thread *t = self->now;
  t->does = f;
  t->brings = mine;
  self->shuffling[t->number / WARP]++;
  leave(AT_SHUFFLE);
}

void together(Together *f, void *mine) { together_here(f, mine); }

void together_four(Together *f, void *mine) {
  self->now->does = f;
  self->now->brings = mine;
  leave(AT_PRODUCT);
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
  together_here(give<true>, &w);
  return w.gets;
}

uint64_t broadcast(uint64_t x, int from) {
  Word w = {x, from, 0};
  together_here(give<false>, &w);
  return w.gets;
}

unsigned char *room() { return self->room; }

bool in_room(const void *p, size_t bytes) {
  uintptr_t from = (uintptr_t)self->room, at = (uintptr_t)p;
  return at >= from && at + bytes <= from + self->room_bytes;
}

unsigned address_of(const void *p) {
  if (!in_room(p, 1)) refuse("an address that is not in the shared memory of the launch");
  return ROOM_AT + (unsigned)((const unsigned char *)p - self->room);
}

const void *at_address(unsigned address) {
  return (const void *)((uintptr_t)self->room + address - ROOM_AT);
}

unsigned thread_number() { return self->now->number; }

void wrote(const void *to, size_t bytes) {
  Block *b = self;
  if (!in_room(to, bytes)) return;
  no_product_reads(to, bytes);
  size_t from = (size_t)((const unsigned char *)to - b->room);
  b->clock++;
  for (size_t i = from / GRANULE; i <= (from + bytes - 1) / GRANULE; i++)
    b->written[i] = {b->now->number + 1, b->clock};
}

void fence_proxy() { self->now->fenced = ++self->clock; }

bool is_visible(const void *p) {
  const Written &w =
      self->written[(size_t)((const unsigned char *)p - self->room) / GRANULE];
  return !w.by || w.at <= self->of[w.by - 1].visible;
}

void copy_begin(void *to, const void *from, int bytes, bool is) {
  if ((uintptr_t)to % (size_t)bytes != 0 || (uintptr_t)from % (size_t)bytes != 0)
    refuse("a copy that is not aligned");
  no_product_reads(to, (size_t)bytes);
  self->now->copies.push_back(Copy{to, is ? from : nullptr, (size_t)bytes});
}

/* The first n of a thread's copies arrive. */
static void arrive(Thread *t, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const Copy &c = t->copies[i];
    memset(c.to, 0, c.bytes);
    if (c.from) memcpy(c.to, c.from, c.bytes);
    wrote(c.to, c.bytes);
  }
  t->copies.erase(t->copies.begin(), t->copies.begin() + (long)n);
}

void copies_wait() {
  Thread *t = self->now;
  arrive(t, t->copies.size());
  t->groups.clear();
  t->grouped = 0;
}

void copies_commit() {
  Thread *t = self->now;
  t->groups.push_back(t->copies.size() - t->grouped);
  t->grouped = t->copies.size();
}

void copies_wait_but(size_t last) {
  Thread *t = self->now;
  size_t n = 0;
  while (t->groups.size() > last) {
    n += t->groups.front();
    t->groups.pop_front();
  }
  arrive(t, n);
  t->grouped -= n;
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
  Block *b = self = &here;
  b->body = &body;
  /* Exactly as many bytes, each time others, none of which is a number. */
  std::unique_ptr<unsigned char, decltype(&free)> memory(
      (unsigned char *)aligned_alloc(ROOM_ALIGN, round_up(bytes)), free);
  memset(memory.get(), 0xff, round_up(bytes));
  b->room = memory.get();
  b->room_bytes = bytes;
  b->written.resize(round_up(bytes) / GRANULE);
  if (b->of.size() < n) b->of.resize(n);
  b->size = n;
  b->shuffling.assign((n + WARP - 1) / WARP, 0);
  for (size_t i = 0; i < n; i++) {
    b->of[i].number = (unsigned)i;
    b->of[i].index = Dim3((unsigned)(i % size.x), (unsigned)(i / size.x % size.y),
                          (unsigned)(i / ((size_t)size.x * size.y)));
  }
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        block = Dim3(x, y, z);
        run_block(b);
      }
}

} // namespace emulate
