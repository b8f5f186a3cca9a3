/* body_order.c - list scheduling of a body; see body_order.h.
 *
 * A simulated clock has a compute queue and one queue per communicator. In each turn, in
 * this order: a collective whose inputs are ready starts; the first kernel that needs no
 * waiting runs; the first remaining instruction runs, after the WAITs that it needs.
 * Kernels of W thus fill the time of a transfer whose result I needs next, and only as
 * many as that time takes: the others are left for later transfers. */
#include "body_order.h"

/* The bytes of a storage that an instruction reads or writes. */
typedef struct Touch {
  uint64_t lo, hi;
  int node;
  bool write;
  int before; /* the previous one of the same storage, -1 */
} Touch;

typedef struct Flight {
  int node, handle;
  double end;
} Flight;

struct BodyOrder {
  Arena *a;
  const CodeInstr **x;
  double *seconds;
  int n, words, comms;
  /* [n * words] a bit for each earlier instruction that must come before */
  uint64_t *needs;
  /* State while the order is chosen. */
  uint64_t *left;    /* a bit for each instruction that is not placed yet */
  int first;         /* the first of these */
  double now, *free; /* the clock; when each communicator is free */
  Flight flying[ORDER_MOST];
  int nflying;
  CodeInstr *out;
  int nout;
};

/* ---- dependences ---- */

static uint64_t *needs_of(const BodyOrder *o, int node) {
  return o->needs + (size_t)node * (size_t)o->words;
}

static bool has(const uint64_t *set, int i) { return set[i / 64] >> i % 64 & 1; }

static void flip(uint64_t *set, int i) { set[i / 64] ^= 1ull << i % 64; }

/* The storages met so far, each with its last Touch. */
typedef struct Storages {
  int64_t *key;
  int *last, mask;
  VEC(Touch) touch;
} Storages;

static int *last_touch(Storages *s, int64_t key) {
  uint64_t h = (uint64_t)key * 0x9e3779b97f4a7c15ull >> 32;
  int i = (int)(h & (uint64_t)s->mask);
  while (s->last[i] >= 0 && s->key[i] != key) i = (i + 1) & s->mask;
  s->key[i] = key;
  return &s->last[i];
}

/* Two instructions depend on each other if they touch the same bytes and one of them
 * writes. */
static void touch(BodyOrder *o, Storages *s, int64_t key, Touch t) {
  int *last = last_touch(s, key);
  for (int i = *last; i >= 0; i = s->touch.at[i].before) {
    const Touch *b = &s->touch.at[i];
    if (b->node != t.node && (b->write || t.write) && b->lo < t.hi && t.lo < b->hi)
      needs_of(o, t.node)[b->node / 64] |= 1ull << b->node % 64;
  }
  t.before = *last;
  *last = s->touch.n;
  *VEC_PUSH(o->a, s->touch) = t;
}

static void read_nodes(BodyOrder *o, const OrderHooks *h) {
  int size = 64;
  while (size < 2 * KERNEL_OPERANDS * o->n) size *= 2;
  Storages s = {.key = NEW_N(o->a, int64_t, size),
                .last = NEW_N(o->a, int, size),
                .mask = size - 1};
  memset(s.last, 0xff, sizeof *s.last * (size_t)size);
  for (int i = 0; i < o->n; i++) {
    const CodeInstr *x = o->x[i];
    for (int k = 0; k < instr_operands(&x->i); k++) {
      const Operand *p = &x->operand[k];
      touch(o, &s, h->storage(h->ud, x, k),
            (Touch){p->off, p->off + operand_bytes(p), i, k >= x->i.nin, -1});
    }
    o->seconds[i] = h->seconds(h->ud, x);
    if (x->i.code == I_COLL) o->comms = MAX(o->comms, x->i.comm + 1);
  }
}

BodyOrder *body_order_begin(Arena *a, const CodeInstr *at, int n, const OrderHooks *h) {
  BodyOrder *o = NEW(a, BodyOrder);
  o->a = a;
  o->x = (void *)arena_alloc(a, sizeof *o->x * (size_t)n);
  for (int i = 0; i < n; i++)
    if (at[i].i.code != I_WAIT) o->x[o->n++] = &at[i];
  assert(o->n <= ORDER_MOST);
  o->words = o->n / 64 + 1;
  o->seconds = NEW_N(a, double, n);
  o->needs = NEW_N(a, uint64_t, o->n * o->words);
  o->left = NEW_N(a, uint64_t, o->words);
  read_nodes(o, h);
  o->free = NEW_N(a, double, o->comms);
  return o;
}

/* ---- the order ---- */

/* Whether everything it depends on has been placed. */
static bool ready(const BodyOrder *o, int node) {
  const uint64_t *needs = needs_of(o, node);
  for (int w = 0; w < o->words; w++)
    if (needs[w] & o->left[w]) return false;
  return true;
}

/* Whether it would have to wait for a collective. */
static bool stalls(const BodyOrder *o, int node) {
  const uint64_t *needs = needs_of(o, node);
  for (int i = 0; i < o->nflying; i++)
    if (has(needs, o->flying[i].node) && o->flying[i].end > o->now) return true;
  return false;
}

static int free_handle(const BodyOrder *o) {
  for (int h = 0;; h++) {
    bool used = false;
    for (int i = 0; i < o->nflying; i++) used |= o->flying[i].handle == h;
    if (!used) return h;
  }
}

static void add_wait(BodyOrder *o, int flight, const CodeInstr *user) {
  const Flight f = o->flying[flight];
  CodeInstr *w = &o->out[o->nout++];
  *w = (CodeInstr){.i = {.code = I_WAIT,
                         .comm = -1,
                         .peer = -1,
                         .handle = f.handle,
                         .op = user->i.op,
                         .line = user->i.line,
                         .acc = ACC_NEVER},
                   .name = user->name};
  code_keep(w, o->x[f.node]);
  o->now = MAX(o->now, f.end);
  memmove(&o->flying[flight], &o->flying[flight + 1],
          sizeof f * (size_t)(--o->nflying - flight));
}

static void fly(BodyOrder *o, int node, CodeInstr *to) {
  double *free = &o->free[to->i.comm];
  *free = MAX(*free, o->now) + o->seconds[node];
  to->i.handle = free_handle(o);
  o->flying[o->nflying++] = (Flight){node, to->i.handle, *free};
}

static void add(BodyOrder *o, int node) {
  const CodeInstr *x = o->x[node];
  for (int i = 0; i < o->nflying;) {
    if (has(needs_of(o, node), o->flying[i].node))
      add_wait(o, i, x);
    else
      i++;
  }
  CodeInstr *to = &o->out[o->nout++];
  *to = *x;
  if (x->i.code == I_COLL)
    fly(o, node, to);
  else
    o->now += o->seconds[node];
  flip(o->left, node);
  while (o->first < o->n && !has(o->left, o->first)) o->first++;
}

/* Chooses the next instruction, by the rule at the top of the file. */
static int next(const BodyOrder *o, Reach reach) {
  int end = MIN(o->n, o->first + MAX(reach.kernels, reach.transfers) + 1), kernel = -1;
  for (int i = o->first; i < end; i++) {
    if (!has(o->left, i) || !ready(o, i) || stalls(o, i)) continue;
    bool coll = o->x[i]->i.code == I_COLL;
    if (coll && i <= o->first + reach.transfers) return i;
    if (!coll && kernel < 0 && i <= o->first + reach.kernels) kernel = i;
  }
  return kernel < 0 ? o->first : kernel;
}

int body_order(BodyOrder *o, Reach reach, CodeInstr *out) {
  o->out = out, o->nout = o->first = o->nflying = 0;
  o->now = 0;
  for (int i = 0; i < o->comms; i++) o->free[i] = 0;
  memset(o->left, 0, sizeof *o->left * (size_t)o->words);
  for (int i = 0; i < o->n; i++) flip(o->left, i);
  while (o->first < o->n) add(o, next(o, reach));
  while (o->nflying > 0) add_wait(o, 0, o->x[o->n - 1]);
  return o->nout;
}
