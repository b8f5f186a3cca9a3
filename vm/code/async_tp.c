/* async_tp.c - async tensor parallelism: cuts gathers and reduce-scatters over the
 * sequence into chunks; see async_tp.h.
 *
 * Each tp rank has T/tp rows of a tensor (B, T, C). Chunk (b, c) is rows c of sequence b
 * of every rank; once gathered it has shape (tp, rows, C). A product is computed in
 * parts, one for each rank's rows of a chunk, which it reads in the chunk and writes to
 * their place in its result; for a reduce-scatter it writes its parts into the chunk in
 * the same way. If something else reads the gathered tensor, such as the weight gradient,
 * which sums over rows, the chunks are also copied together, beside the products. If a
 * sum of products is scattered, the products of a chunk are computed right before its
 * sum. No sum is split, so results have the same bits as without chunks. */
#include "async_tp.h"

typedef struct Chunked {
  Tid whole;            /* the gathered tensor, or the one to be scattered */
  int64_t batch, local; /* B, T/tp */
  int64_t rows;         /* rows of one rank in a chunk */
  int ranks, n;         /* n: number of chunks */
  Tid *temp;
  const CodeInstr *unite; /* the collective, if the whole tensor is needed and must be
                             copied together from chunks */
} Chunked;

typedef struct Chunker {
  Arena *a;
  const CodeInstr *at;
  int n;
  const ChunkHooks *h;
  bool *skip; /* instructions that chunks replace */
  bool *late; /* products that are computed with the sum that reads them */
  VEC(Chunked) gathered;
  VEC(CodeInstr) out;
} Chunker;

/* ---- collectives and products that can be cut ---- */

static bool product(const CodeInstr *x) {
  return x->i.code == I_KERNEL && (x->i.op == OP_linear || x->i.op == OP_linear_dx) &&
         x->operand[0].ndim == 3;
}

static bool over_sequence(const CodeInstr *x, CollKind coll, int operand) {
  return x->i.code == I_COLL && x->i.coll == coll && x->attr.dim == 1 &&
         x->operand[operand].ndim == 3;
}

/* The only instruction that reads a temporary; -1 if there are several readers. */
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

/* Whether all readers up to the next body are products that can read it in parts, row by
 * row. *whole: something else reads the whole tensor later. */
static bool for_products(const Chunker *c, Tid t, bool *whole) {
  int readers = 0;
  *whole = !c->h->temporary(c->h->ud, t);
  for (int i = 0; i < c->n; i++)
    for (int k = 0; k < c->at[i].i.nin && c->at[i].i.code != I_WAIT; k++) {
      if (c->at[i].t[k] != t) continue;
      bool rows = k == 0 && product(&c->at[i]);
      if (rows ? c->late[i] : readers == 0) return false;
      if (rows)
        readers++;
      else
        *whole = true;
    }
  return readers > 0;
}

/* Chooses the chunks of a collective; false if the sizes give only one. */
static bool cut(const CodeInstr *coll, const Operand *local, Chunked *k) {
  *k = (Chunked){.batch = local->dim[0], .local = local->dim[1], .ranks = coll->attr.n};
  int64_t each = MAX(CHUNKS / k->batch, 1);
  while (k->local % each != 0) each--;
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

/* Makes operand k `rows` rows from row `first` on of tensor t. */
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

/* The collective of chunk i: operand `side` is the rank's own rows, the other one is the
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

/* The row of the whole tensor at which rank r's rows of chunk i begin. */
static int64_t row_of(const Chunked *k, int i, int r) {
  int64_t total = k->local * k->ranks, per = k->local / k->rows;
  return i / per * total + r * k->local + i % per * k->rows;
}

/* The products of chunk i, one for the rows of each rank. */
static void chunk_products(Chunker *c, const CodeInstr *x, const Chunked *in,
                           const Chunked *out, int i) {
  const Chunked *k = in ? in : out;
  int y = x->i.nin;
  for (int r = 0; r < k->ranks; r++) {
    int64_t row = row_of(k, i, r);
    CodeInstr *to = copy(c, x);
    to->flops /= (double)k->n * k->ranks;
    to->pieces = k->n * k->ranks;
    rows_of(to, 0, in ? in->temp[i] : x->t[0], in ? r * k->rows : row, k->rows);
    rows_of(to, y, out ? out->temp[i] : x->t[y], out ? r * k->rows : row, k->rows);
    c->h->scratch(c->h->ud, to);
  }
}

/* Copies chunk i to its place in the whole tensor. */
static void unite(Chunker *c, const Chunked *k, int i) {
  const CodeInstr *x = k->unite;
  for (int r = 0; r < k->ranks; r++) {
    CodeInstr *to = copy(c, x);
    to->i.code = I_KERNEL, to->i.op = OP_copy;
    to->i.comm = -1, to->i.handle = -1;
    to->attr = (OpAttr){0};
    to->operand[0] = to->operand[1] = x->operand[0];
    rows_of(to, 0, k->temp[i], r * k->rows, k->rows);
    rows_of(to, 1, k->whole, row_of(k, i, r), k->rows);
  }
}

/* ---- the pass ---- */

/* Cuts the all-gather at i, which is unpacked by the next instruction or needs no
 * unpacking. */
static bool gather(Chunker *c, int i) {
  const CodeInstr *x = &c->at[i];
  Chunked k;
  if (!over_sequence(x, COLL_ALL_GATHER, 0) || !cut(x, &x->operand[0], &k)) return false;
  int unpack = only_reader(c, x->t[1]);
  bool unpacked =
      unpack >= 0 && c->at[unpack].i.op == OP_unpack && c->at[unpack].i.code == I_KERNEL;
  k.whole = unpacked ? c->at[unpack].t[1] : x->t[1];
  bool whole;
  if (!for_products(c, k.whole, &whole)) return false;
  if (whole) k.unite = x;
  if (unpacked) c->skip[unpack] = true;
  make_temps(c, &k, &x->operand[0]);
  for (int n = 0; n < k.n; n++) chunk_collective(c, x, &k, n, 0);
  *VEC_PUSH(c->a, c->gathered) = k;
  return true;
}

/* The reduce-scatter that is the only reader of instruction i, -1 if there is none;
 * `pack`: the instruction between them, or -1. */
static int scatter_of(const Chunker *c, int i, int *pack, Chunked *k) {
  int next = only_reader(c, c->at[i].t[c->at[i].i.nin]);
  *pack = -1;
  if (next >= 0 && c->at[next].i.code == I_KERNEL && c->at[next].i.op == OP_pack)
    *pack = next, next = only_reader(c, c->at[next].t[1]);
  if (next < 0 || !over_sequence(&c->at[next], COLL_REDUCE_SCATTER, 1) ||
      !cut(&c->at[next], &c->at[next].operand[1], k))
    return -1;
  return next;
}

static void take_scatter(Chunker *c, int scatter, int pack, Chunked *k) {
  if (pack >= 0) c->skip[pack] = true;
  c->skip[scatter] = true;
  make_temps(c, k, &c->at[scatter].operand[1]);
}

static Chunked *gathered_as(Chunker *c, Tid t) {
  for (int g = 0; g < c->gathered.n; g++)
    if (c->gathered.at[g].whole == t) return &c->gathered.at[g];
  return NULL;
}

static bool products(Chunker *c, int i) {
  const CodeInstr *x = &c->at[i];
  Chunked k;
  int pack;
  if (!product(x)) return false;
  Chunked *in = gathered_as(c, x->t[0]);
  int scatter = scatter_of(c, i, &pack, &k);
  const Chunked *out = scatter >= 0 ? &k : NULL;
  if (!in && !out) return false;
  if (out) take_scatter(c, scatter, pack, &k);
  for (int n = 0; n < (in ? in->n : k.n); n++) {
    chunk_products(c, x, in, out, n);
    if (in && in->unite) unite(c, in, n);
    if (out) chunk_collective(c, &c->at[scatter], out, n, 1);
  }
  if (in) in->unite = NULL;
  return true;
}

/* The product that makes operand k of a sum and has no other reader; -1 if there is none.
 */
static int addend(const Chunker *c, int sum, int k) {
  Tid t = c->at[sum].t[k];
  for (int i = 0; i < sum; i++) {
    const CodeInstr *x = &c->at[i];
    if (product(x) && x->t[x->i.nin] == t) return only_reader(c, t) == sum ? i : -1;
  }
  return -1;
}

/* Whether instruction i is a sum of products that is scattered. */
static bool is_sum(const Chunker *c, int i) {
  const CodeInstr *x = &c->at[i];
  Chunked k;
  int pack;
  if (x->i.code != I_KERNEL || x->i.op != OP_acc || x->operand[0].ndim != 3) return false;
  for (int n = 0; n < x->i.nin; n++)
    if (addend(c, i, n) < 0) return false;
  return scatter_of(c, i, &pack, &k) >= 0;
}

static void find_sums(Chunker *c) {
  for (int i = 0; i < c->n; i++)
    for (int n = 0; is_sum(c, i) && n < c->at[i].i.nin; n++)
      c->late[addend(c, i, n)] = true;
}

static bool sum(Chunker *c, int i) {
  const CodeInstr *x = &c->at[i];
  Chunked part[KERNEL_OPERANDS], k;
  int pack;
  if (!is_sum(c, i)) return false;
  int scatter = scatter_of(c, i, &pack, &k);
  take_scatter(c, scatter, pack, &k);
  for (int m = 0; m < x->i.nin; m++) {
    part[m] = k;
    make_temps(c, &part[m], &c->at[scatter].operand[1]);
  }
  for (int n = 0; n < k.n; n++) {
    for (int m = 0; m < x->i.nin; m++) {
      const CodeInstr *y = &c->at[addend(c, i, m)];
      chunk_products(c, y, NULL, &part[m], n);
    }
    CodeInstr *to = copy(c, x);
    to->flops /= k.n;
    for (int m = 0; m < x->i.nin; m++)
      rows_of(to, m, part[m].temp[n], 0, k.ranks * k.rows);
    rows_of(to, x->i.nin, k.temp[n], 0, k.ranks * k.rows);
    chunk_collective(c, &c->at[scatter], &k, n, 1);
  }
  return true;
}

int body_chunks(Arena *a, const CodeInstr *at, int n, const ChunkHooks *h,
                CodeInstr **out) {
  Chunker c = {.a = a,
               .at = at,
               .n = n,
               .h = h,
               .skip = NEW_N(a, bool, n + 1),
               .late = NEW_N(a, bool, n + 1)};
  bool any = false;
  find_sums(&c);
  for (int i = 0; i < n; i++) {
    if (at[i].i.code == I_WAIT || c.skip[i] || c.late[i]) continue;
    bool chunked = gather(&c, i) || sum(&c, i) || products(&c, i);
    if (!chunked) copy(&c, &at[i]);
    any |= chunked;
  }
  *out = c.out.at;
  return any ? c.out.n : 0;
}
