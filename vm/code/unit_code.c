/* unit_code.c - writes the ops of each unit as the instructions of its bodies F, I and W,
 * and of B, which merges I and W so that products of W overlap with collectives of I.
 * Then body_order.c orders each body. */
#include "unit_code_int.h"

#include "async_tp.h"
#include "body_order.h"

/* ---- bodies ---- */

static bool in_body(const Op *op, Phase ph) {
  return op->phase == ph || (ph == PH_B && op->phase != PH_F);
}

static void code_body(Coder *c, Phase ph, const int *ops, int nops) {
  c->out.at = NULL, c->out.n = c->out.cap = 0;
  c->npending = 0;
  c->phase = ph;
  double flops = 0, again = 0, room = 0;
  for (int k = 0; k < nops; k++) {
    Op op = c->g->op.at[ops[k]];
    if (!in_body(&op, ph)) continue;
    flops += coder_flops(c->g, &op);
    again += coder_repeated(c, &op);
    room += coder_room(c->g, &op);
    if (op.code >= OP_all_reduce && op.code <= OP_shift)
      coder_collective(c, &op);
    else
      coder_kernel(c, &op);
  }
  while (c->npending > 0) {
    Op last = c->g->op.at[ops[nops - 1]];
    coder_settle(c, c->pending[0].result, &last);
  }
  c->most = coder_offsets(c);
  c->code->body[ph] = (UnitBody){
      .at = c->out.at, .n = c->out.n, .flops = flops, .recomputed = again, .room = room};
}

/* A key for the storage of an operand. All tensors that accumulate in a gradient, or in
 * the scalars, have one key. */
static int64_t storage_of(void *ud, const CodeInstr *x, int operand) {
  enum { SCALARS = -1, GRADIENTS = -2 };
  Coder *c = ud;
  if (x->t[operand] < 0) return SCALARS;
  Tid t = coder_root(c, x->t[operand]);
  Storage at = coder_place(c, t);
  return at.kind == ST_GRAD ? GRADIENTS - at.index : t;
}

static int handles_of(const CodeInstr *at, int n) {
  int most = 0;
  for (int i = 0; i < n; i++)
    if (at[i].i.code == I_COLL) most = MAX(most, at[i].i.handle + 1);
  return most;
}

static double seconds_of(void *ud, const CodeInstr *x) {
  const Coder *c = ud;
  return instr_seconds(c->clock, x, c->comm.at);
}

/* Makes the instructions in c->out, whose temporaries have offsets, the body. */
static void take_order(Coder *c, UnitBody *body) {
  body->at = c->out.at, body->n = c->out.n;
  c->code->handles = MAX(c->code->handles, handles_of(body->at, body->n));
}

/* Bytes of the largest operand of a collective in a body. */
static uint64_t largest_transfer(const UnitBody *b) {
  uint64_t most = 0;
  for (int i = 0; i < b->n; i++)
    for (int k = 0; b->at[i].i.code == I_COLL && k < instr_operands(&b->at[i].i); k++)
      most = MAX(most, operand_bytes(&b->at[i].operand[k]));
  return most;
}

/* Orders a body, looking as far ahead as possible with at most `most` bytes of workspace.
 */
static void order_body(Coder *c, Phase ph, uint64_t most) {
  static const Reach reach[] = {{64, 64}, {64, 16}, {64, 8}, {64, 4},
                                {16, 4},  {4, 4},   {1, 1}};
  UnitBody *body = &c->code->body[ph];
  if (body->n > ORDER_MOST || handles_of(body->at, body->n) == 0) return;
  OrderHooks h = {c, storage_of, seconds_of};
  BodyOrder *order = body_order_begin(c->scratch, body->at, body->n, &h);
  CodeInstr *out = arena_alloc(c->scratch, sizeof *out * 2 * (size_t)body->n);
  for (int i = 0; i < LEN(reach); i++) {
    c->out.at = out;
    c->out.n = body_order(order, reach[i], out);
    uint64_t bytes = coder_offsets(c);
    if (bytes > most) continue;
    c->most = bytes;
    return take_order(c, body);
  }
  c->out.at = body->at, c->out.n = body->n;
  c->most = coder_offsets(c);
}

static bool is_temporary(void *ud, Tid t) {
  Coder *c = ud;
  return t >= 0 && coder_place(c, coder_root(c, t)).kind == ST_TEMP;
}

static Tid new_temporary(void *ud, uint8_t dtype, int64_t n) {
  return coder_temp(ud, &(Tensor){.dtype = dtype}, &(Dim){.size = n}, 1);
}

static void own_scratch(void *ud, CodeInstr *x) {
  x->i.nwork = 0;
  coder_work(ud, x);
}

/* Async tensor parallelism: cuts collectives into chunks and adds WAITs. */
static void chunk_body(Coder *c, Phase ph) {
  ChunkHooks h = {c, is_temporary, new_temporary, own_scratch};
  OrderHooks o = {c, storage_of, seconds_of};
  UnitBody *body = &c->code->body[ph];
  CodeInstr *at;
  int n = body_chunks(c->scratch, body->at, body->n, &h, &at);
  if (n == 0 || n > ORDER_MOST) return;
  c->out.at = arena_alloc(c->scratch, sizeof *at * 2 * (size_t)n);
  c->out.n =
      body_order(body_order_begin(c->scratch, at, n, &o), (Reach){0, 0}, c->out.at);
  take_order(c, body);
  c->most = coder_offsets(c);
}

/* Collects the edges of other units that the ops of a body read. */
static void find_reads(Coder *c, Phase ph, const int *ops, int nops) {
  RawUnit *u = c->code;
  for (int k = 0; k < nops; k++) {
    const Op *op = &c->g->op.at[ops[k]];
    for (int i = 0; i < op->nin && op->phase == ph; i++) {
      const Tensor *t = &c->g->t.at[op->in[i]];
      if (t->unit < 0 || t->unit == op->unit) continue;
      int edge = coder_edge(c, op->in[i]);
      bool known = false;
      for (int j = 0; j < u->read[ph].n; j++) known |= u->read[ph].at[j] == edge;
      if (!known) *VEC_PUSH(c->scratch, u->read[ph]) = edge;
    }
  }
}

/* Whether a unit fits the bit masks that calls carry, one bit for each gradient. */
static bool small_enough(const Coder *c, Diags *d) {
  enum { PARAMS = 64, EDGES = 4096 };
  int learn = 0;
  for (int i = 0; i < c->code->param.n; i++)
    learn += !c->logical->param.at[c->code->param.at[i]].frozen;
  if (learn <= PARAMS && c->code->edge.n <= EDGES) return true;
  diag_error(d, "unit-size", "model",
             "unit %s has %d parameters that learn (at most %d) and shares %d tensors "
             "with others (at "
             "most %d): open more units (g:layer, g:unit)",
             c->g->unit.at[c->unit].name, learn, PARAMS, c->code->edge.n, EDGES);
  return false;
}

Coder *coder_new(const CompileInput *in, const Sharded *sh, const BodyClock *clock) {
  Arena *a = in->arena;
  Graph *g = sh->g;
  const Strategy *how = &in->plan->strategy;
  Coder *c = NEW(a, Coder);
  *c = (Coder){.a = a,
               .logical = in->graph,
               .g = g,
               .joined = sh->joined,
               .device = compile_device(in),
               .plan = in->plan,
               .how = how,
               .clock = clock,
               .merges = how->overlap_tp && !compile_splits(in)};
  int units = g->unit.n, *fill = NEW_N(a, int, units);
  c->first = NEW_N(a, int, units + 1);
  c->ops = NEW_N(a, int, g->op.n);
  for (int i = 0; i < g->op.n; i++) c->first[g->op.at[i].unit + 1]++;
  for (int u = 0; u < units; u++) c->first[u + 1] += c->first[u];
  for (int i = 0; i < g->op.n; i++) {
    int u = g->op.at[i].unit;
    c->ops[c->first[u] + fill[u]++] = i;
  }
  coder_uses(c);
  return c;
}

/* Writes a body from its ops, with chunks if the plan wants async TP. */
static void write_body(Coder *c, Phase ph, const int *ops, int nops) {
  code_body(c, ph, ops, nops);
  if (c->how->async_tp) chunk_body(c, ph);
}

/* Whether I and W are merged: one of them has a collective, and both have instructions.
 */
static bool merges(const Coder *c) {
  const UnitBody *i = &c->code->body[PH_I], *w = &c->code->body[PH_W];
  return c->merges && i->n > 0 && w->n > 0 &&
         (handles_of(i->at, i->n) > 0 || handles_of(w->at, w->n) > 0);
}

/* Writes body B. Tensors that waited for W in a frame are temporaries of B, so its limit
 * of workspace is that frame plus the workspace of I or W: what they take when they run
 * one after the other. A sixteenth more leaves room for reordering where little waits. */
static void merge_bodies(Coder *c, const int *ops, int nops) {
  uint64_t apart = c->code->temp + c->code->frame[ST_IW - ST_FI],
           most = apart + apart / 16;
  for (int k = 0; k < nops; k++) {
    const Op *op = &c->g->op.at[ops[k]];
    for (int i = 0; i < op->nout; i++)
      if (c->store.at[op->out[i]].kind == ST_IW)
        c->store.at[op->out[i]] = (Storage){.kind = ST_TEMP};
  }
  write_body(c, PH_B, ops, nops);
  most += largest_transfer(&c->code->body[PH_B]);
  order_body(c, PH_B, most);
  if (c->most > most) {
    c->code->body[PH_B] = (UnitBody){0};
    return;
  }
  c->code->temp = MAX(c->code->temp, c->most);
  coder_slots(c, PH_B);
}

bool code_unit(Coder *c, int u, Arena *scratch, RawUnit *out, Diags *d) {
  const int *ops = c->ops + c->first[u];
  int nops = c->first[u + 1] - c->first[u];
  *out = (RawUnit){0};
  c->scratch = scratch;
  c->unit = u;
  c->code = out;
  for (Phase ph = PH_F; ph <= PH_W; ph++) {
    write_body(c, ph, ops, nops);
    out->temp = MAX(out->temp, c->most);
  }
  uint64_t most = out->temp; /* plus a transfer in flight */
  for (Phase ph = PH_F; ph <= PH_W && c->how->overlap_tp; ph++) {
    order_body(c, ph, most + largest_transfer(&out->body[ph]));
    out->temp = MAX(out->temp, c->most);
  }
  for (Phase ph = PH_F; ph <= PH_W; ph++) find_reads(c, ph, ops, nops);
  if (!small_enough(c, d) || coder_refuses(c, d)) return false;
  out->edge_use = NEW_N(scratch, uint8_t, out->edge.n);
  out->grad_use = NEW_N(scratch, uint8_t, out->param.n);
  out->param_use = NEW_N(scratch, uint8_t, out->param.n);
  out->grad_bit = NEW_N(scratch, int16_t, BODIES * out->param.n);
  for (Phase ph = PH_F; ph <= PH_W; ph++) coder_slots(c, ph);
  if (merges(c)) merge_bodies(c, ops, nops);
  for (Phase ph = PH_F; ph < BODIES; ph++) {
    UnitBody *b = &out->body[ph];
    b->nparam = out->param.n, b->nedge = out->edge.n, b->sums = out->sums > 0;
  }
  return true;
}

uint64_t coder_result(Coder *c) { return coder_place(c, c->g->loss).off; }

int coder_comms(const Coder *c, const AxisSet **axes) {
  *axes = c->comm.at;
  return c->comm.n;
}
