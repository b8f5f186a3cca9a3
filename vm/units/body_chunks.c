/* body_chunks.c - see body_chunks.h. Rows of (B, T, C) that tp ranks hold T/tp of each:
 * chunk (b, c) is rows c of sequence b of every rank. A gathered chunk is (tp, rows, C),
 * one after the other, so a product reads the rows of each rank where they are and writes
 * them where they belong in its result; into a chunk that is scattered it writes them
 * likewise. Every element is the sum that it was. */
#include "body_chunks.h"

typedef struct Chunked {
  Tid whole;            /* what was gathered, or what will be scattered */
  int64_t batch, local; /* B, T/tp */
  int64_t rows;         /* of a rank in a chunk */
  int ranks, n;         /* chunks in all */
  Tid *temp;
} Chunked;

typedef struct Chunker {
  Arena *a;
  const CodeInstr *at;
  int n;
  const ChunkHooks *h;
  bool *skip; /* instructions that are made otherwise */
  VEC(Chunked) gathered;
  VEC(CodeInstr) out;
} Chunker;

/* ---- what can be cut ---- */

static bool product(const CodeInstr *x) {
  return x->i.code == I_KERNEL && (x->i.op == OP_linear || x->i.op == OP_linear_dx) &&
         x->operand[0].ndim == 3;
}

static bool over_sequence(const CodeInstr *x, CollKind coll, int operand) {
  return x->i.code == I_COLL && x->i.coll == coll && x->attr.dim == 1 &&
         x->operand[operand].ndim == 3;
}

/* The only instruction that reads a temporary, -1 if there are others. */
static int only_reader(const Chunker *c, Tid t) {
  int reader = -1;
  if (!c->h->temporary(c->h->ud, t)) return -1;
  for (int i = 0; i < c->n; i++)
    for (int k = 0; k < c->at[i].i.nin && c->at[i].i.code != I_WAIT; k++) {
      if (c->at[i].t[k] != t) continue;
      if (reader >= 0) return -1;
      reader = i;
    }
  return reader;
}

/* Only products read it, and those as rows. */
static bool for_products(const Chunker *c, Tid t) {
  int readers = 0;
  if (!c->h->temporary(c->h->ud, t)) return false;
  for (int i = 0; i < c->n; i++)
    for (int k = 0; k < c->at[i].i.nin && c->at[i].i.code != I_WAIT; k++) {
      if (c->at[i].t[k] != t) continue;
      if (k > 0 || !product(&c->at[i])) return false;
      readers++;
    }
  return readers > 0;
}

/* False if there would be one chunk. */
static bool cut(const CodeInstr *coll, const Operand *local, Chunked *k) {
  *k = (Chunked){.batch = local->dim[0], .local = local->dim[1], .ranks = coll->attr.n};
  int64_t each = MAX(CHUNKS / k->batch, 1);
  while (k->local % each != 0)
    each--;
  k->rows = k->local / each;
  k->n = (int)(k->batch * each);
  return k->n > 1;
}

/* ---- writing ---- */

static CodeInstr *copy(Chunker *c, const CodeInstr *x) {
  CodeInstr *to = VEC_PUSH(c->a, c->out);
  *to = *x;
  return to;
}

/* Operand k is `rows` rows from row `first` on of tensor t. */
static void rows_of(CodeInstr *x, int k, Tid t, int64_t first, int64_t rows) {
  Operand *o = &x->operand[k];
  int64_t width = o->dim[2];
  x->t[k] = t;
  o->off = (uint64_t)(first * width) * (uint64_t)dtype_size((DType)o->dtype);
  o->dim[0] = 1, o->dim[1] = rows;
}

static void make_temps(Chunker *c, Chunked *k, const Operand *local) {
  k->temp = NEW_N(c->a, Tid, k->n);
  for (int i = 0; i < k->n; i++)
    k->temp[i] = c->h->temp(c->h->ud, local->dtype, k->ranks * k->rows * local->dim[2]);
}

/* The collective of chunk i: operand `side` is the rank's own rows, the other one the
 * chunk. */
static void chunk_collective(Chunker *c, const CodeInstr *x, const Chunked *k, int i,
                             int side) {
  CodeInstr *to = copy(c, x);
  Operand own = x->operand[side];
  Tid t = x->t[side];
  to->operand[0] = to->operand[1] = own;
  rows_of(to, side, t, i * k->rows, k->rows);
  rows_of(to, !side, k->temp[i], 0, k->ranks * k->rows);
}

/* The products for chunk i: of each rank's rows. */
static void chunk_products(Chunker *c, const CodeInstr *x, const Chunked *in,
                           const Chunked *out, int i) {
  const Chunked *k = in ? in : out;
  int y = x->i.nin;
  int64_t total = k->local * k->ranks, per = k->local / k->rows;
  for (int r = 0; r < k->ranks; r++) {
    int64_t row = i / per * total + r * k->local + i % per * k->rows;
    CodeInstr *to = copy(c, x);
    to->flops /= (double)k->n * k->ranks;
    rows_of(to, 0, in ? in->temp[i] : x->t[0], in ? r * k->rows : row, k->rows);
    rows_of(to, y, out ? out->temp[i] : x->t[y], out ? r * k->rows : row, k->rows);
    c->h->scratch(c->h->ud, to);
  }
}

/* ---- the pass ---- */

/* A gather at i, unpacked by the next instruction or in place. */
static bool gather(Chunker *c, int i) {
  const CodeInstr *x = &c->at[i];
  Chunked k;
  if (!over_sequence(x, COLL_ALL_GATHER, 0) || !cut(x, &x->operand[0], &k)) return false;
  int unpack = only_reader(c, x->t[1]);
  bool unpacked =
      unpack >= 0 && c->at[unpack].i.op == OP_unpack && c->at[unpack].i.code == I_KERNEL;
  k.whole = unpacked ? c->at[unpack].t[1] : x->t[1];
  if (!for_products(c, k.whole)) return false;
  if (unpacked) c->skip[unpack] = true;
  make_temps(c, &k, &x->operand[0]);
  for (int n = 0; n < k.n; n++)
    chunk_collective(c, x, &k, n, 0);
  *VEC_PUSH(c->a, c->gathered) = k;
  return true;
}

/* The reduce_scatter that is all that comes of product i, -1 if there is none. */
static int scatter_of(Chunker *c, int i, Chunked *k) {
  int next = only_reader(c, c->at[i].t[c->at[i].i.nin]), pack = -1;
  if (next >= 0 && c->at[next].i.code == I_KERNEL && c->at[next].i.op == OP_pack)
    pack = next, next = only_reader(c, c->at[pack].t[1]);
  if (next < 0 || !over_sequence(&c->at[next], COLL_REDUCE_SCATTER, 1) ||
      !cut(&c->at[next], &c->at[next].operand[1], k))
    return -1;
  if (pack >= 0) c->skip[pack] = true;
  c->skip[next] = true;
  make_temps(c, k, &c->at[next].operand[1]);
  return next;
}

static bool products(Chunker *c, int i) {
  const CodeInstr *x = &c->at[i];
  const Chunked *in = NULL;
  Chunked k;
  if (!product(x)) return false;
  for (int g = 0; g < c->gathered.n; g++)
    if (c->gathered.at[g].whole == x->t[0]) in = &c->gathered.at[g];
  int scatter = scatter_of(c, i, &k);
  const Chunked *out = scatter >= 0 ? &k : NULL;
  if (!in && !out) return false;
  for (int n = 0; n < (in ? in->n : k.n); n++) {
    chunk_products(c, x, in, out, n);
    if (out) chunk_collective(c, &c->at[scatter], out, n, 1);
  }
  return true;
}

int body_chunks(Arena *a, const CodeInstr *at, int n, const ChunkHooks *h,
                CodeInstr **out) {
  Chunker c = {.a = a, .at = at, .n = n, .h = h, .skip = NEW_N(a, bool, n + 1)};
  bool any = false;
  for (int i = 0; i < n; i++) {
    if (at[i].i.code == I_WAIT || c.skip[i]) continue;
    bool chunked = gather(&c, i) || products(&c, i);
    if (!chunked) copy(&c, &at[i]);
    any |= chunked;
  }
  *out = c.out.at;
  return any ? c.out.n : 0;
}
