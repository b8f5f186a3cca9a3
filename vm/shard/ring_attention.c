/* ring_attention.c - ring attention over cp (arXiv:2310.01889). Each rank keeps its
 * queries; keys and values are shifted around the ring, and with each block a rank adds
 * its part to the output and to the log-sum-exp (lse), which are f32 until the last step.
 * In the backward the gradients of keys and values follow one step behind and return to
 * their rank with one more shift, so each step's contribution is computed while they are
 * in flight. Every shift overlaps with a step that does not read what it carries. Steps
 * in which a window lets no query see a key are left out: a shift then goes further. */
#include "shard.h"
#include "vm/graph/sequence.h"

typedef struct Ring {
  Shard *s;
  Oid id;
  const Op *op; /* logical: attention, or attention_dx */
  int n;        /* number of pieces: ranks in the ring */
  int steps;    /* those in which some rank sees a key: */
  int *step;    /* how far keys and values were shifted by then, ascending from 0 */
} Ring;

uint32_t shard_ring_axes(const Shard *s) {
  return 1u << AX_CP | (s->n[AX_CP_HEADS] == 1 ? 1u << AX_CP_HEADS : 0);
}

enum { Q, K, V, O, LSE, DO, FORWARD = O, BACKWARD = DO + 1 }; /* operands */

/* Appends the operands that do not change from step to step: doc_starts of packed
 * documents, sinks, which the backward does not read, and token_numbers where something
 * is dropped. */
static int add_fixed(const Ring *r, const Tid *in, Tid x[KERNEL_OPERANDS], int n) {
  int first = r->op->code == OP_attention ? FORWARD : BACKWARD;
  assert(n + r->op->nin - first <= KERNEL_OPERANDS);
  for (int i = first; i < r->op->nin; i++) x[n++] = in[i];
  return n;
}

/* A tensor like result i of the op, f32 unless it is the final result. */
static Tid tensor_like(Ring *r, int i, bool whole) {
  Tid t = r->op->out[i];
  Tid y = shard_emit_tensor(r->s, t, r->s->place[t]);
  if (!whole) r->s->out->t.at[y].dtype = DT_F32;
  return y;
}

static Tid emit_like(Ring *r, int code, const Tid *in, int nin, Tid like) {
  Shard *s = r->s;
  Tensor x = s->out->t.at[like];
  Tid y = shard_emit_tensor(s, x.logical, x.place);
  Oid id = shard_emit_op(s, code, nin, 1, r->op, r->op->phase);
  s->out->t.at[y].dtype = x.dtype;
  memcpy(s->out->op.at[id].in, in, sizeof *in * (size_t)nin);
  shard_bind(s, id, 0, y);
  return y;
}

static Tid shift(Ring *r, Tid t, int by) {
  Tid y = emit_like(r, OP_shift, &t, 1, t);
  Op *op = &r->s->out->op.at[r->s->out->op.n - 1];
  op->attr = (OpAttr){.axes = shard_ring_axes(r->s), .n = r->n, .step = by};
  return y;
}

/* How much further keys are in the step after number `i`; behind the last one they are at
 * home again. */
static int next_by(const Ring *r, int i) {
  return (i + 1 < r->steps ? r->step[i + 1] : r->n) - r->step[i];
}

/* Finds the steps that are needed. Of a window that is shorter than the sequence they may
 * be few: those of the neighbours. Documents that are cut by themselves may be of any
 * length, so that all ranks have parts of one window. */
static void find_steps(Ring *r) {
  int64_t T = r->s->g->seq, window = r->op->attr.window;
  r->step = NEW_N(r->s->out->arena, int, r->n);
  bool any = window == 0 || shard_cut_documents(r->s);
  for (int step = 0; step < r->n; step++)
    if (any || seq_pairs(T, r->n, step, !r->s->plan->cp.in_order, window) > 0)
      r->step[r->steps++] = step;
}

static Tid add(Ring *r, Tid x, Tid y) {
  return emit_like(r, OP_acc, (Tid[]){x, y}, 2, y);
}

/* Writes the kernel of one step. */
static void part(Ring *r, int code, int step, const Tid *in, int nin, const Tid *out,
                 int nout) {
  Oid id = shard_emit_op(r->s, code, nin, nout, r->op, r->op->phase);
  Op *op = &r->s->out->op.at[id];
  memcpy(op->in, in, sizeof *in * (size_t)nin);
  shard_cut_queries(r->s, op);
  shard_dropout_place(r->s, r->id, op);
  op->attr.step = step;
  for (int i = 0; i < nout; i++) shard_bind(r->s, id, i, out[i]);
}

static void forward(Ring *r, const Tid *in) {
  Tid key[2] = {in[K], in[V]}, sum[2] = {-1, -1};
  for (int i = 0; i < r->steps; i++) {
    bool last = i + 1 == r->steps;
    Tid x[KERNEL_OPERANDS] = {in[Q], key[0], key[1]}, y[2];
    int n = 3;
    for (int k = 0; k < 2; k++) {
      if (!last) key[k] = shift(r, key[k], next_by(r, i));
      if (i > 0) x[n++] = sum[k];
      y[k] = tensor_like(r, k, last);
    }
    n = add_fixed(r, in, x, n);
    part(r, OP_attention_part, r->step[i], x, n, y, 2);
    memcpy(sum, y, sizeof sum);
  }
  for (int i = 0; i < 2; i++) r->s->local[r->op->out[i]] = sum[i];
}

static void backward_steps(Ring *r, const Tid *in) {
  enum { KEY = 1 }; /* results: dq, dk, dv */
  Tid key[2] = {in[K], in[V]}, grad[2] = {-1, -1}, dq = -1;
  for (int i = 0; i < r->steps; i++) {
    bool last = i + 1 == r->steps;
    Tid x[KERNEL_OPERANDS], y[3];
    int n = 6;
    memcpy(x, in, sizeof *x * 6);
    memcpy(x + K, key, sizeof key);
    for (int k = 0; k < 2; k++) {
      if (!last) key[k] = shift(r, key[k], next_by(r, i));
      y[KEY + k] = tensor_like(r, KEY + k, false);
    }
    if (i > 0) x[n++] = dq;
    n = add_fixed(r, in, x, n);
    dq = y[0] = tensor_like(r, 0, last);
    part(r, OP_attention_part_dx, r->step[i], x, n, y, 3);
    for (int k = 0; k < 2; k++) {
      Tid sum = i > 0 ? add(r, grad[k], y[KEY + k]) : y[KEY + k];
      grad[k] = r->steps > 1 ? shift(r, sum, next_by(r, i)) : sum;
    }
  }
  r->s->local[r->op->out[0]] = dq;
  for (int i = 0; i < 2; i++) {
    Tid t = r->op->out[KEY + i];
    bool f32 = r->s->plan->dtype == DT_F32;
    r->s->local[t] =
        f32 ? grad[i] : shard_emit_cast(r->s, t, grad[i], r->s->place[t], 0, r->op);
  }
}

void shard_ring(Shard *s, Oid id, const Tid *in) {
  Ring r = {s, id, &s->g->op.at[id], s->n[AX_CP], 0, NULL};
  find_steps(&r);
  if (r.op->code == OP_attention)
    forward(&r, in);
  else
    backward_steps(&r, in);
}
