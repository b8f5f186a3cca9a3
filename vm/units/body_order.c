/* body_order.c - see body_order.h. Waits are left out of the list, which then is ordered by
 * hand: in each turn a collective that can start does; else comes the first kernel that
 * needs nothing under way; else the first of all that are left, behind the waits that it
 * needs. Input: a body whose waits stand right before the first use; output: the same
 * instructions with waits where the new order needs them. */
#include "body_order.h"

typedef struct Node {
  const CodeInstr *x;
  struct Touch {
    int64_t key;
    uint64_t lo, hi; /* bytes of it */
  } touch[KERNEL_OPERANDS];
  int ntouch, nin;
  bool done;
} Node;

typedef struct Flight {
  int node, handle;
} Flight;

typedef struct Order {
  Node *node;
  int n, first;          /* the first one that is left */
  Flight flying[ORDER_MOST];
  int nflying;
  CodeInstr *out;
  int nout;
} Order;

/* Whether one must stay behind the other: both touch some bytes and one of them writes.
 */
static bool depends(const Node *a, const Node *b) {
  for (int i = 0; i < a->ntouch; i++)
    for (int k = 0; k < b->ntouch; k++) {
      const struct Touch *x = &a->touch[i], *y = &b->touch[k];
      if ((i >= a->nin || k >= b->nin) && x->key == y->key && x->lo < y->hi &&
          y->lo < x->hi)
        return true;
    }
  return false;
}

static void read_nodes(Order *o, Arena *a, const CodeInstr *at, int n, StorageOf storage,
                       void *ud) {
  o->node = (void *)arena_alloc(a, sizeof *o->node * (size_t)n);
  for (int i = 0; i < n; i++) {
    if (at[i].i.code == I_WAIT) continue;
    Node *x = &o->node[o->n++];
    *x = (Node){.x = &at[i], .nin = at[i].i.nin, .ntouch = instr_operands(&at[i].i)};
    for (int k = 0; k < x->ntouch; k++) {
      const Operand *p = &at[i].operand[k];
      x->touch[k] =
          (struct Touch){storage(ud, &at[i], k), p->off, p->off + operand_bytes(p)};
    }
  }
}

/* What comes before it in the list, and what it depends on, is done. */
static bool ready(const Order *o, int node) {
  for (int i = o->first; i < node; i++)
    if (!o->node[i].done && depends(&o->node[i], &o->node[node])) return false;
  return true;
}

/* The first collective under way that a node must wait for, -1 for none. */
static int under_way(const Order *o, int node) {
  for (int i = 0; i < o->nflying; i++)
    if (depends(&o->node[o->flying[i].node], &o->node[node])) return i;
  return -1;
}

static int free_handle(const Order *o) {
  for (int h = 0;; h++) {
    bool used = false;
    for (int i = 0; i < o->nflying; i++) used |= o->flying[i].handle == h;
    if (!used) return h;
  }
}

/* Its operand is what must live until here. */
static void add_wait(Order *o, int flight, const CodeInstr *user) {
  const Flight f = o->flying[flight];
  CodeInstr *w = &o->out[o->nout++];
  *w = (CodeInstr){.i = {.code = I_WAIT, .comm = -1, .peer = -1, .handle = f.handle,
                         .op = user->i.op, .line = user->i.line, .acc = ACC_NEVER},
                   .name = user->name};
  w->t[0] = o->node[f.node].x->t[0];
  memmove(&o->flying[flight], &o->flying[flight + 1],
          sizeof f * (size_t)(--o->nflying - flight));
}

static void add(Order *o, int node) {
  const CodeInstr *x = o->node[node].x;
  for (int k; (k = under_way(o, node)) >= 0;) add_wait(o, k, x);
  CodeInstr *to = &o->out[o->nout++];
  *to = *x;
  if (x->i.code == I_COLL) {
    to->i.handle = free_handle(o);
    o->flying[o->nflying++] = (Flight){node, to->i.handle};
  }
  o->node[node].done = true;
  while (o->first < o->n && o->node[o->first].done) o->first++;
}

/* The next one: see above. */
static int next(const Order *o, int window) {
  int end = MIN(o->n, o->first + window + 1), kernel = -1;
  for (int i = o->first; i < end; i++) {
    if (o->node[i].done || under_way(o, i) >= 0 || !ready(o, i)) continue;
    if (o->node[i].x->i.code == I_COLL) return i;
    if (kernel < 0) kernel = i;
  }
  return kernel < 0 ? o->first : kernel;
}

int body_order(Arena *a, const CodeInstr *at, int n, int window, StorageOf storage, void *ud,
               CodeInstr *out) {
  Order *o = NEW(a, Order);
  o->out = out;
  read_nodes(o, a, at, n, storage, ud);
  while (o->first < o->n) add(o, next(o, window));
  while (o->nflying > 0) add_wait(o, 0, o->node[o->n - 1].x);
  return o->nout;
}
