/* unit_code.c - turns the ops of each unit into the instructions of its F, I and W body,
 * and of B, where I and W are one so that products of W hide transfers of I.
 *
 * Decides where every tensor lives: an edge if another unit reads it, a frame if a later
 * body of the same unit reads it (F..I, F..W or I..W), else a temporary of the body.
 * Collectives get pack and unpack kernels where the dimension that is cut is not the
 * outermost, and their wait goes right before the first use of the result. Then bodies
 * are put in an order that hides collectives (body_order.c). */
#include "unit_code.h"

#include "body_chunks.h"
#include "body_order.h"

#include "vm/storage/offsets.h"

/* Where a sharded tensor lives while a body runs. */
typedef enum { ST_NONE, ST_PARAM, ST_GRAD, ST_INPUT, ST_SEED, ST_SCALARS, ST_EDGE, ST_FI,
               ST_FW, ST_IW, ST_TEMP } StorageKind;
typedef struct Storage {
  uint8_t kind;          /* StorageKind */
  int32_t index;         /* parameter or edge number within the unit, InputKind */
  uint64_t off;          /* within the frame or the temporaries */
} Storage;

typedef struct Uses {
  int count;
  uint8_t phases;        /* bit per Phase, of readers in the tensor's own unit */
  bool edge;
  Tid alias;             /* shares the storage of this tensor (all_reduce in place) */
} Uses;

struct Coder {
  Arena *a, *scratch;    /* of all units, of the unit at hand */
  const Graph *logical;
  Graph *g;              /* sharded */
  int *ops, *first;      /* ops by unit: ops[first[u] .. first[u + 1] - 1] */
  VEC(AxisSet) comm;
  const DeviceKind *device;
  const Strategy *how; /* whether bodies are ordered, collectives in chunks */
  const BodyClock *clock;
  bool merges;           /* no W runs apart, so that units may have a body B */
  VEC(Uses) use;
  int unit;
  RawUnit *code;
  VEC(Storage) store;    /* of each tensor, for the unit at hand */
  VEC(int) temp;         /* of each tensor: its interval in the body at hand, + 1 */
  VEC(CodeInstr) out;    /* the body at hand, */
  Phase phase;           /* and which it is */
  uint64_t most;         /* its workspace */
  struct Pending {
    Tid result, input;
    int handle;
  } pending[64];
  int npending;
};

/* ---- who reads what ---- */

static void find_uses(Coder *c) {
  const Graph *g = c->g;
  for (int i = 0; i < g->t.n; i++) {
    *VEC_PUSH(c->a, c->use) = (Uses){.alias = -1};
    *VEC_PUSH(c->a, c->store) = (Storage){0};
    *VEC_PUSH(c->a, c->temp) = 0;
  }
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    for (int k = 0; k < op->nin; k++) {
      Uses *u = &c->use.at[op->in[k]];
      const Tensor *t = &g->t.at[op->in[k]];
      u->count++;
      if (t->unit >= 0 && t->unit != op->unit) u->edge = true;
      else u->phases |= (uint8_t)(1u << op->phase);
    }
  }
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    if (op->code != OP_all_reduce) continue;
    const Tensor *t = &g->t.at[op->in[0]];
    const Op *maker = t->producer >= 0 ? &g->op.at[t->producer] : NULL;
    Uses *u = &c->use.at[op->in[0]];
    if (maker && maker->unit == op->unit && maker->phase == op->phase && u->count == 1)
      u->alias = op->out[0];
  }
}

/* ---- storage ---- */

static int param_index(Coder *c, int param) {
  RawUnit *u = c->code;
  for (int i = 0; i < u->param.n; i++)
    if (u->param.at[i] == param) return i;
  *VEC_PUSH(c->scratch, u->param) = param;
  return u->param.n - 1;
}

static int edge_index(Coder *c, Tid t) {
  RawUnit *u = c->code;
  for (int i = 0; i < u->edge.n; i++)
    if (u->edge.at[i] == t) return i;
  *VEC_PUSH(c->scratch, u->edge) = t;
  return u->edge.n - 1;
}

static Storage in_frame(Coder *c, int kind, const Tensor *t) {
  uint64_t *frame = &c->code->frame[kind - ST_FI];
  Storage s = {.kind = (uint8_t)kind, .off = *frame};
  *frame += align_up((uint64_t)tensor_bytes(t));
  return s;
}

/* What outlives the run of a program that takes one token: keys and values of those
 * before, and its logits, which the host reads. */
static bool stays(const Coder *c, Tid t) {
  const Tensor *x = &c->g->t.at[t];
  if (x->producer < 0) return false;
  const Op *op = &c->g->op.at[x->producer];
  bool rows = op->code == OP_attention_step && t != op->out[0];
  return rows || (t == c->g->loss && x->ndim > 1);
}

/* The storage of a tensor as the unit at hand sees it; decided at first sight. */
static Storage place(Coder *c, Tid t) {
  const Tensor *x = &c->g->t.at[t];
  if (x->kind == T_PARAM) return (Storage){ST_PARAM, param_index(c, x->index), 0};
  if (x->kind == T_INPUT && x->index == IN_SEED) return (Storage){.kind = ST_SEED};
  if (x->kind == T_INPUT) {
    c->code->input_mask |= 1u << x->index;
    return (Storage){ST_INPUT, x->index, 0};
  }
  const Uses *use = &c->use.at[t];
  if (use->alias >= 0) return place(c, use->alias);
  if (use->edge) return (Storage){ST_EDGE, edge_index(c, t), 0};
  if (c->store.at[t].kind != ST_NONE) return c->store.at[t];
  const Tensor *of = x->grad_of >= 0 ? &c->logical->t.at[x->grad_of] : NULL;
  Storage s = {.kind = ST_TEMP};
  if (of && of->kind == T_PARAM) {
    s = (Storage){ST_GRAD, param_index(c, of->index), 0};
  } else if (x->producer >= 0) {
    Phase made = c->g->op.at[x->producer].phase;
    bool by_i = use->phases & (1u << PH_I), by_w = use->phases & (1u << PH_W);
    if (stays(c, t)) s = in_frame(c, ST_FI, x);
    else if (made == PH_F && by_w) s = in_frame(c, ST_FW, x);
    else if (made == PH_F && by_i) s = in_frame(c, ST_FI, x);
    else if (made == PH_I && by_w && c->phase != PH_B) s = in_frame(c, ST_IW, x);
  }
  return c->store.at[t] = s;
}

/* ---- instructions ---- */

const char *unit_relative_name(const Unit *u, const char *name) {
  int layer = u->layer;
  if (!name || layer < 0) return name ? name : "";
  char key[16];
  int n = 0, digits[12], k = 0;
  do digits[k++] = layer % 10, layer /= 10;
  while (layer);
  key[n++] = '.';
  while (k) key[n++] = (char)('0' + digits[--k]);
  key[n++] = '.';
  key[n] = 0;
  const char *at = strstr(name, key);
  return at ? at + n : name;
}

static Operand operand_of(const Coder *c, Tid t) {
  const Tensor *x = &c->g->t.at[t];
  Operand o = {.dtype = x->dtype, .ndim = x->ndim};
  for (int d = 0; d < x->ndim; d++) o.dim[d] = x->dim[d].local;
  return o;
}

/* What an instruction is for; one that runs again says so. */
static const char *name_of(const Coder *c, const Op *op) {
  const char *name = unit_relative_name(&c->g->unit.at[c->unit], op->name);
  if (!op->again || op->phase == PH_F) return name;
  return arena_printf(c->scratch, *name ? "%s (again)" : "%s(again)", name);
}

static CodeInstr *push(Coder *c, InstrCode code, const Op *op) {
  CodeInstr *x = VEC_PUSH(c->scratch, c->out);
  *x = (CodeInstr){.i = {.code = (uint8_t)code, .op = op->code, .comm = -1, .peer = -1,
                         .handle = -1, .line = op->line, .acc = ACC_NEVER},
                   .name = name_of(c, op)};
  return x;
}

static void add_in(Coder *c, CodeInstr *x, Tid t) {
  x->t[x->i.nin] = t;
  x->operand[x->i.nin++] = operand_of(c, t);
}

static void add_out(Coder *c, CodeInstr *x, Tid t) {
  int k = x->i.nin + x->i.nout++;
  x->t[k] = t;
  x->operand[k] = operand_of(c, t);
}

/* Waits for the collective that makes `t`, if one is under way. */
static void settle(Coder *c, Tid t, const Op *op) {
  for (int i = 0; i < c->npending; i++) {
    if (c->pending[i].result != t) continue;
    CodeInstr *w = push(c, I_WAIT, op);
    w->i.handle = c->pending[i].handle;
    w->t[0] = c->pending[i].input;     /* lives until here */
    c->pending[i] = c->pending[--c->npending];
    return;
  }
}

static Tid temp_like(Coder *c, const Tensor *t, const Dim *dim, int ndim) {
  Tid id = graph_tensor(c->g, T_VALUE, (DType)t->dtype, dim, ndim);
  *VEC_PUSH(c->a, c->use) = (Uses){.alias = -1};
  *VEC_PUSH(c->a, c->store) = (Storage){.kind = ST_TEMP};
  *VEC_PUSH(c->a, c->temp) = 0;
  return id;
}

/* The shapes of pack and unpack around the cut of dimension `dim`: whole (outer, L0,
 * inner) and pieces (n, outer, L, inner). */
typedef struct Cut {
  Dim whole[3], pieces[4];
  int n, parts, mirror;
  bool plain;            /* the pieces lie one after the other in the whole */
} Cut;

static Cut cut_of(const Tensor *whole, const Tensor *piece, int dim, const OpAttr *attr) {
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < dim; d++) outer *= whole->dim[d].local;
  for (int d = dim + 1; d < whole->ndim; d++) inner *= whole->dim[d].local;
  int64_t l0 = whole->dim[dim].local, l = piece->dim[dim].local;
  Cut k = {.n = attr->n, .parts = attr->parts, .mirror = attr->mirror};
  k.whole[0].size = outer, k.whole[1].size = l0, k.whole[2].size = inner;
  k.pieces[0].size = attr->n, k.pieces[1].size = outer;
  k.pieces[2].size = l, k.pieces[3].size = inner;
  k.plain = outer == 1 && attr->parts <= 1 && l * attr->n == l0;
  return k;
}

static void set_dims(Operand *o, const Dim *dim, int ndim) {
  o->ndim = (uint8_t)ndim;
  for (int d = 0; d < ndim; d++) o->dim[d] = dim[d].size;
}

static void repack(Coder *c, int code, const Op *op, const Cut *k, Tid from, Tid to) {
  CodeInstr *x = push(c, I_KERNEL, op);
  x->i.op = (uint16_t)code;
  x->attr = (OpAttr){.n = k->n, .parts = k->parts, .mirror = k->mirror};
  add_in(c, x, from);
  add_out(c, x, to);
  bool pack = code == OP_pack;
  set_dims(&x->operand[pack ? 0 : 1], k->whole, 3);
  set_dims(&x->operand[pack ? 1 : 0], k->pieces, 4);
}

static int free_handle(const Coder *c) {
  for (int h = 0;; h++) {
    bool used = false;
    for (int i = 0; i < c->npending; i++) used |= c->pending[i].handle == h;
    if (!used) return h;
  }
}

static int comm_index(Coder *c, AxisSet axes) {
  for (int i = 0; i < c->comm.n; i++)
    if (c->comm.at[i] == axes) return i;
  *VEC_PUSH(c->a, c->comm) = axes;
  return c->comm.n - 1;
}

static void start_collective(Coder *c, const Op *op, CollKind coll, Tid in, Tid out) {
  if (c->npending == LEN(c->pending)) settle(c, c->pending[0].result, op);
  CodeInstr *x = push(c, I_COLL, op);
  x->i.coll = (uint8_t)coll;
  x->i.red = (uint8_t)op->attr.red;
  x->i.comm = (int16_t)comm_index(c, ax_set_mesh(op->attr.axes));
  x->i.handle = free_handle(c);
  x->attr = (OpAttr){.dim = op->attr.dim, .n = op->attr.n};
  add_in(c, x, in);
  add_out(c, x, out);
  c->code->handles = MAX(c->code->handles, x->i.handle + 1);
  c->pending[c->npending++] = (struct Pending){out, in, x->i.handle};
}

/* One dimension is packed, the other one unpacked: the pieces on the way are alike. */
static void code_exchange(Coder *c, const Op *op, Tid in, Tid out) {
  Tensor tin = c->g->t.at[in], tout = c->g->t.at[out];
  Cut from = cut_of(&tin, &tout, op->attr.dim, &op->attr);
  Cut to = cut_of(&tout, &tin, op->attr.from, &op->attr);
  Cut *heads = tin.dim[op->attr.dim].tag == TAG_SEQ ? &to : &from;
  heads->parts = 1, heads->mirror = 0;
  Tid packed = temp_like(c, &tin, from.pieces, 4), got = temp_like(c, &tin, to.pieces, 4);
  repack(c, OP_pack, op, &from, in, packed);
  start_collective(c, op, COLL_ALL_TO_ALL, packed, got);
  settle(c, got, op);
  repack(c, OP_unpack, op, &to, got, out);
}

static void code_collective(Coder *c, const Op *op) {
  Tid in = op->in[0], out = op->out[0];
  settle(c, in, op);
  if (op->code == OP_all_to_all) {
    code_exchange(c, op, in, out);
    return;
  }
  if (op->code == OP_all_reduce) {
    start_collective(c, op, COLL_ALL_REDUCE, in, out);
    return;
  }
  bool gather = op->code == OP_all_gather;
  Tensor tin = c->g->t.at[in], tout = c->g->t.at[out];
  Cut k = gather ? cut_of(&tout, &tin, op->attr.dim, &op->attr)
                 : cut_of(&tin, &tout, op->attr.dim, &op->attr);
  CollKind coll = gather ? COLL_ALL_GATHER : COLL_REDUCE_SCATTER;
  if (k.plain) {
    start_collective(c, op, coll, in, out);
    return;
  }
  Tid pieces = temp_like(c, &tin, k.pieces, 4);
  if (gather) {
    start_collective(c, op, coll, in, pieces);
    settle(c, pieces, op);
    repack(c, OP_unpack, op, &k, pieces, out);
  } else {
    repack(c, OP_pack, op, &k, in, pieces);
    start_collective(c, op, coll, pieces, out);
  }
}

static double flops_of(const Graph *g, const Op *op) {
  return op_info[op->code].cost ? op_info[op->code].cost(g, op) : 0;
}

/* Scratch of a kernel: a temporary that lives for one instruction. */
static void add_work(Coder *c, CodeInstr *x) {
  KernelArgs a = {.attr = &x->attr, .nin = x->i.nin, .nout = x->i.nout};
  for (int k = 0; k < a.nin; k++) a.in[k] = operand_shape(&x->operand[k]);
  for (int k = 0; k < a.nout; k++) a.out[k] = operand_shape(&x->operand[a.nin + k]);
  uint64_t bytes = c->device->work(x->i.op, &a);
  if (bytes == 0) return;
  int k = x->i.nin + x->i.nout;
  Dim dim = {.size = (int64_t)((bytes + 3) / 4)};
  x->t[k] = temp_like(c, &(Tensor){.dtype = DT_F32}, &dim, 1);
  x->operand[k] = (Operand){.dtype = DT_F32, .ndim = 1, .dim = {dim.size}};
  x->i.nwork = 1;
}

static void code_kernel(Coder *c, const Op *op) {
  for (int k = 0; k < op->nin; k++) settle(c, op->in[k], op);
  CodeInstr *x = push(c, I_KERNEL, op);
  x->attr = op->attr;
  x->flops = flops_of(c->g, op);
  for (int k = 0; k < op->nin; k++) add_in(c, x, op->in[k]);
  for (int k = 0; k < op->nout; k++) add_out(c, x, op->out[k]);
  add_work(c, x);
  if (op->out[0] == c->g->loss && !stays(c, c->g->loss)) {
    x = push(c, I_KERNEL, op);
    x->i.op = OP_acc_loss;
    add_in(c, x, c->g->loss);
    for (int k = 0; k < 2; k++) {          /* scal, read and written */
      x->t[1 + k] = -1;
      x->operand[1 + k] =
          (Operand){.slot = SLOT_SCALARS, .dtype = DT_F64, .ndim = 1, .dim = {SC_N}};
    }
    x->i.nin = 2, x->i.nout = 1;
  }
}

/* ---- slots and temporaries of a finished body ---- */

static void set_slot(Coder *c, Operand *o, Storage s) {
  int np = c->code->param.n, dyn = 1 + 2 * np;
  switch (s.kind) {
  case ST_PARAM: o->slot = (uint16_t)(1 + s.index); break;
  case ST_GRAD: o->slot = (uint16_t)(1 + np + s.index); break;
  case ST_INPUT: o->slot = (uint16_t)(dyn + DYN_INPUT + s.index); break;
  case ST_SEED: o->slot = SLOT_SEED; break;
  case ST_SCALARS: o->slot = SLOT_SCALARS; break;
  case ST_EDGE: o->slot = (uint16_t)(dyn + DYN_EDGE + s.index); break;
  case ST_FI:
  case ST_FW:
  case ST_IW: o->slot = (uint16_t)(dyn + DYN_FI + s.kind - ST_FI); break;
  default: o->slot = SLOT_TEMP; break;
  }
  o->off += s.off; /* of a part of the tensor */
}

static Tid root(const Coder *c, Tid t) {
  while (c->use.at[t].alias >= 0) t = c->use.at[t].alias;
  return t;
}

/* Gives the temporaries of the body offsets by the instructions that touch them; returns
 * their bytes. */
static uint64_t place_temps(Coder *c) {
  int n = c->out.n, *slot = c->temp.at;
  VEC(Interval) v = {0};
  VEC(Tid) of = {0};
  for (int i = 0; i < n; i++) {
    CodeInstr *x = &c->out.at[i];
    int operands = x->i.code == I_WAIT ? 1 : instr_operands(&x->i);
    for (int k = 0; k < operands; k++) {
      if (x->t[k] < 0) continue;
      Tid t = root(c, x->t[k]);
      if (place(c, t).kind != ST_TEMP) continue;
      if (!slot[t]) {
        uint64_t bytes = (uint64_t)tensor_bytes(&c->g->t.at[t]);
        *VEC_PUSH(c->scratch, v) = (Interval){.start = i, .end = i, .size = bytes};
        *VEC_PUSH(c->scratch, of) = t;
        slot[t] = v.n;
      }
      v.at[slot[t] - 1].end = i;
    }
  }
  uint64_t bytes = offsets(c->scratch, v.at, v.n);
  for (int i = 0; i < of.n; i++) {
    c->store.at[of.at[i]] = (Storage){.kind = ST_TEMP, .off = v.at[i].off};
    slot[of.at[i]] = 0;
  }
  return bytes;
}

/* Gradients: the first result for a parameter in a body overwrites when the call says
 * so, later ones add. */
static void mark_accumulation(Coder *c) {
  bool *seen = NEW_N(c->scratch, bool, c->code->param.n);
  for (int i = 0; i < c->out.n; i++) {
    CodeInstr *x = &c->out.at[i];
    if (x->i.code != I_KERNEL || x->i.nout == 0 || x->t[x->i.nin] < 0) continue;
    Storage s = place(c, x->t[x->i.nin]);
    if (s.kind != ST_GRAD) continue;
    x->i.acc = seen[s.index] ? ACC_ALWAYS : (uint8_t)(ACC_BIT + s.index);
    seen[s.index] = true;
  }
}

static bool in_body(const Op *op, Phase ph) {
  return op->phase == ph || (ph == PH_B && op->phase != PH_F);
}

static void code_body(Coder *c, Phase ph, const int *ops, int nops) {
  c->out.at = NULL, c->out.n = c->out.cap = 0;
  c->npending = 0;
  c->phase = ph;
  double flops = 0, again = 0;
  for (int k = 0; k < nops; k++) {
    Op op = c->g->op.at[ops[k]];
    if (!in_body(&op, ph)) continue;
    flops += flops_of(c->g, &op);
    if (op.again && ph != PH_F) again += flops_of(c->g, &op);
    if (op.code >= OP_all_reduce && op.code <= OP_all_to_all)
      code_collective(c, &op);
    else
      code_kernel(c, &op);
  }
  while (c->npending > 0) {
    Op last = c->g->op.at[ops[nops - 1]];
    settle(c, c->pending[0].result, &last);
  }
  c->most = place_temps(c);
  c->code->body[ph] = (UnitBody){.at = c->out.at, .n = c->out.n, .flops = flops,
                                   .again = again};
}

/* Gradients of a parameter and scalars are one storage, whichever tensor adds to them. */
static int64_t storage_of(void *ud, const CodeInstr *x, int operand) {
  enum { SCALARS = -1, GRADIENTS = -2 };
  Coder *c = ud;
  if (x->t[operand] < 0) return SCALARS;
  Tid t = root(c, x->t[operand]);
  Storage at = place(c, t);
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

/* What was written and placed becomes the body. */
static void take_order(Coder *c, UnitBody *body) {
  body->at = c->out.at, body->n = c->out.n;
  c->code->handles = MAX(c->code->handles, handles_of(body->at, body->n));
}

/* The order that looks farthest ahead without more than `most` bytes of workspace. */
static void order_body(Coder *c, Phase ph, uint64_t most) {
  static const Reach reach[] = {{64, 64}, {64, 16}, {64, 8}, {64, 4}, {16, 4}, {4, 4}, {1, 1}};
  UnitBody *body = &c->code->body[ph];
  if (body->n > ORDER_MOST || handles_of(body->at, body->n) == 0) return;
  OrderHooks h = {c, storage_of, seconds_of};
  BodyOrder *order = body_order_begin(c->scratch, body->at, body->n, &h);
  CodeInstr *out = arena_alloc(c->scratch, sizeof *out * 2 * (size_t)body->n);
  for (int i = 0; i < LEN(reach); i++) {
    c->out.at = out;
    c->out.n = body_order(order, reach[i], out);
    uint64_t bytes = place_temps(c);
    if (bytes > most) continue;
    c->most = bytes;
    return take_order(c, body);
  }
  c->out.at = body->at, c->out.n = body->n;
  place_temps(c);
}

static bool is_temporary(void *ud, Tid t) {
  Coder *c = ud;
  return t >= 0 && place(c, root(c, t)).kind == ST_TEMP;
}

static Tid new_temporary(void *ud, uint8_t dtype, int64_t n) {
  return temp_like(ud, &(Tensor){.dtype = dtype}, &(Dim){.size = n}, 1);
}

static void own_scratch(void *ud, CodeInstr *x) {
  x->i.nwork = 0;
  add_work(ud, x);
}

/* Asynchronous tensor parallelism: chunks, with waits where they are needed. */
static void chunk_body(Coder *c, Phase ph) {
  ChunkHooks h = {c, is_temporary, new_temporary, own_scratch};
  OrderHooks o = {c, storage_of, seconds_of};
  UnitBody *body = &c->code->body[ph];
  CodeInstr *at;
  int n = body_chunks(c->scratch, body->at, body->n, &h, &at);
  if (n == 0 || n > ORDER_MOST) return;
  c->out.at = arena_alloc(c->scratch, sizeof *at * 2 * (size_t)n);
  c->out.n = body_order(body_order_begin(c->scratch, at, n, &o), (Reach){0, 0}, c->out.at);
  take_order(c, body);
  c->most = place_temps(c);
}

/* Slots depend on how many parameters and edges the whole unit has. */
static void set_slots(Coder *c, Phase ph) {
  c->out.at = c->code->body[ph].at, c->out.n = c->code->body[ph].n;
  mark_accumulation(c);
  for (int i = 0; i < c->out.n; i++) {
    CodeInstr *x = &c->out.at[i];
    if (x->i.code == I_WAIT) continue;
    for (int k = 0; k < instr_operands(&x->i); k++)
      if (x->t[k] >= 0) {
        Storage at = place(c, root(c, x->t[k]));
        set_slot(c, &x->operand[k], at);
        if (at.kind == ST_GRAD) c->code->grad_use[at.index] |= (uint8_t)(1u << ph);
        if (at.kind == ST_EDGE) c->code->edge_use[at.index] |= (uint8_t)(1u << ph);
        if (at.kind == ST_PARAM) c->code->param_use[at.index] |= (uint8_t)(1u << ph);
      }
  }
}

/* Edges of other units that the ops of a body read. */
static void find_reads(Coder *c, Phase ph, const int *ops, int nops) {
  RawUnit *u = c->code;
  for (int k = 0; k < nops; k++) {
    const Op *op = &c->g->op.at[ops[k]];
    for (int i = 0; i < op->nin && op->phase == ph; i++) {
      const Tensor *t = &c->g->t.at[op->in[i]];
      if (t->unit < 0 || t->unit == op->unit) continue;
      int edge = edge_index(c, op->in[i]);
      bool known = false;
      for (int j = 0; j < u->read[ph].n; j++)
        known |= u->read[ph].at[j] == edge;
      if (!known) *VEC_PUSH(c->scratch, u->read[ph]) = edge;
    }
  }
}

/* Calls carry a bit for each gradient of their unit. */
static bool small_enough(const Coder *c, Diags *d) {
  enum { PARAMS = 64, EDGES = 4096 };
  if (c->code->param.n <= PARAMS && c->code->edge.n <= EDGES) return true;
  diag_error(d, "unit-size", "model",
             "unit %s has %d parameters (at most %d) and shares %d tensors with others (at "
             "most %d): open more units (g:layer, g:unit)",
             c->g->unit.at[c->unit].name, c->code->param.n, PARAMS, c->code->edge.n, EDGES);
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
               .device = compile_device(in),
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
  find_uses(c);
  return c;
}

/* As the model has it, or in chunks. */
static void write_body(Coder *c, Phase ph, const int *ops, int nops) {
  code_body(c, ph, ops, nops);
  if (c->how->async_tp) chunk_body(c, ph);
}

/* Whether there is a transfer in I or W, and something that it could run beside. */
static bool merges(const Coder *c) {
  const UnitBody *i = &c->code->body[PH_I], *w = &c->code->body[PH_W];
  return c->merges && i->n > 0 && w->n > 0 &&
         (handles_of(i->at, i->n) > 0 || handles_of(w->at, w->n) > 0);
}

/* What waited for W in a frame is a temporary of B: together with the workspace of I or W
 * that is what both apart take at a time. */
static void merge_bodies(Coder *c, const int *ops, int nops) {
  uint64_t most = c->code->temp + c->code->frame[ST_IW - ST_FI];
  for (int k = 0; k < nops; k++) {
    const Op *op = &c->g->op.at[ops[k]];
    for (int i = 0; i < op->nout; i++)
      if (c->store.at[op->out[i]].kind == ST_IW)
        c->store.at[op->out[i]] = (Storage){.kind = ST_TEMP};
  }
  write_body(c, PH_B, ops, nops);
  order_body(c, PH_B, most);
  if (c->most > most) {
    c->code->body[PH_B] = (UnitBody){0};
    return;
  }
  c->code->temp = MAX(c->code->temp, c->most);
  set_slots(c, PH_B);
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
  for (Phase ph = PH_F; ph <= PH_W && c->how->overlap_tp; ph++)
    order_body(c, ph, out->temp);
  for (Phase ph = PH_F; ph <= PH_W; ph++) find_reads(c, ph, ops, nops);
  if (!small_enough(c, d)) return false;
  out->edge_use = NEW_N(scratch, uint8_t, out->edge.n);
  out->grad_use = NEW_N(scratch, uint8_t, out->param.n);
  out->param_use = NEW_N(scratch, uint8_t, out->param.n);
  for (Phase ph = PH_F; ph <= PH_W; ph++)
    set_slots(c, ph);
  if (merges(c)) merge_bodies(c, ops, nops);
  for (Phase ph = PH_F; ph < BODIES; ph++)
    out->body[ph].nparam = out->param.n, out->body[ph].nedge = out->edge.n;
  return true;
}

uint64_t coder_result(Coder *c) {
  return place(c, c->g->loss).off;
}

int coder_comms(const Coder *c, const AxisSet **axes) {
  *axes = c->comm.at;
  return c->comm.n;
}
