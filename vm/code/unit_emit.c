/* unit_emit.c - writes ops as instructions. A collective gets pack and unpack kernels
 * where the sharded dimension is not the outermost one; its WAIT is right before the
 * first use of the result. */
#include "unit_code_int.h"

#include <math.h>

#include "vm/graph/rules.h"

/* ---- instructions ---- */

static Operand operand_of(const Coder *c, Tid t) {
  const Tensor *x = &c->g->t.at[t];
  Operand o = {.dtype = x->dtype, .ndim = x->ndim};
  for (int d = 0; d < x->ndim; d++) o.dim[d] = x->dim[d].local;
  return o;
}

/* The name of an instruction in listings and messages; a recomputed op is marked as such.
 */
static const char *name_of(const Coder *c, const Op *op) {
  const char *name = unit_relative_name(&c->g->unit.at[c->unit], op->name);
  if (!op->recomputed || op->phase == PH_F) return name;
  return arena_printf(c->scratch, *name ? "%s (recomputed)" : "%s(recomputed)", name);
}

static CodeInstr *push(Coder *c, InstrCode code, const Op *op) {
  CodeInstr *x = VEC_PUSH(c->scratch, c->out);
  *x = (CodeInstr){.i = {.code = (uint8_t)code,
                         .op = op->code,
                         .comm = -1,
                         .peer = -1,
                         .handle = -1,
                         .line = op->line,
                         .acc = ACC_NEVER},
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

void coder_settle(Coder *c, Tid t, const Op *op) {
  for (int i = 0; i < c->npending; i++) {
    if (c->pending[i].result != t) continue;
    CodeInstr *w = push(c, I_WAIT, op);
    const CodeInstr *started = &c->out.at[c->pending[i].at];
    w->i.handle = started->i.handle;
    code_keep(w, started);
    c->pending[i] = c->pending[--c->npending];
    return;
  }
}
/* The shapes of pack and unpack for a tensor that is sharded along dimension `dim`: whole
 * (outer, L0, inner), pieces (n, outer, L, inner). */
typedef struct Cut {
  Dim whole[3], pieces[4];
  int n, parts, mirror;
  bool plain; /* the pieces are contiguous in the whole tensor: no kernel is needed */
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
    for (int i = 0; i < c->npending; i++)
      used |= c->out.at[c->pending[i].at].i.handle == h;
    if (!used) return h;
  }
}

static int comm_index(Coder *c, AxisSet axes) {
  for (int i = 0; i < c->comm.n; i++)
    if (c->comm.at[i] == axes) return i;
  *VEC_PUSH(c->a, c->comm) = axes;
  return c->comm.n - 1;
}

static void start_counted(Coder *c, const Op *op, CollKind coll, const Tid *in, int nin,
                          Tid out) {
  if (c->npending == LEN(c->pending)) coder_settle(c, c->pending[0].result, op);
  CodeInstr *x = push(c, I_COLL, op);
  x->i.coll = (uint8_t)coll;
  x->i.red = (uint8_t)op->attr.red;
  if (coll == COLL_SHIFT) x->i.by = (int16_t)op->attr.step;
  x->i.comm = (int16_t)comm_index(c, ax_set_mesh(op->attr.axes));
  x->i.handle = free_handle(c);
  x->attr = (OpAttr){.dim = op->attr.dim, .n = op->attr.n, .scale = op->attr.scale};
  for (int k = 0; k < nin; k++) add_in(c, x, in[k]);
  add_out(c, x, out);
  c->code->handles = MAX(c->code->handles, x->i.handle + 1);
  c->pending[c->npending++] = (struct Pending){out, c->out.n - 1};
}

static void start_collective(Coder *c, const Op *op, CollKind coll, Tid in, Tid out) {
  start_counted(c, op, coll, &in, 1, out);
}

/* Whether an exchange of expert dispatch moves the rows that there are, or whole buffers:
 * on a device the host has to wait for their numbers. */
static bool moves_rows(const Coder *c, const Op *op) {
  return op->code == OP_all_to_all_v &&
         (c->device->host || moe_sends_rows(c->plan->moe.exchange, op->attr.scale));
}

static void exchange_rows(Coder *c, const Op *op) {
  bool counts = moves_rows(c, op);
  start_counted(c, op, counts ? COLL_ALL_TO_ALL_V : COLL_ALL_TO_ALL, op->in,
                counts ? op->nin : 1, op->out[0]);
}

/* An all-to-all that shards one dimension instead of another: pack along the first,
 * exchange pieces, unpack along the second. */
static void code_exchange(Coder *c, const Op *op, Tid in, Tid out) {
  Tensor tin = c->g->t.at[in], tout = c->g->t.at[out];
  Cut from = cut_of(&tin, &tout, op->attr.dim, &op->attr);
  Cut to = cut_of(&tout, &tin, op->attr.from, &op->attr);
  Cut *heads = tin.dim[op->attr.dim].tag == TAG_SEQ ? &to : &from;
  heads->parts = 1, heads->mirror = 0;
  Tid packed = coder_temp(c, &tin, from.pieces, 4),
      got = coder_temp(c, &tin, to.pieces, 4);
  repack(c, OP_pack, op, &from, in, packed);
  start_collective(c, op, COLL_ALL_TO_ALL, packed, got);
  coder_settle(c, got, op);
  repack(c, OP_unpack, op, &to, got, out);
}

void coder_collective(Coder *c, const Op *op) {
  Tid in = op->in[0], out = op->out[0];
  for (int k = 0; k < op->nin; k++) coder_settle(c, op->in[k], op);
  bool rows = op->code == OP_all_to_all && op->attr.from == op->attr.dim;
  if (rows || op->code == OP_all_to_all_v) {
    exchange_rows(c, op);
    return;
  }
  if (op->code == OP_all_to_all) {
    code_exchange(c, op, in, out);
    return;
  }
  if (op->code == OP_all_reduce || op->code == OP_shift) {
    CollKind coll = op->code == OP_shift ? COLL_SHIFT : COLL_ALL_REDUCE;
    start_collective(c, op, coll, in, out);
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
  Tid pieces = coder_temp(c, &tin, k.pieces, 4);
  if (gather) {
    start_collective(c, op, coll, in, pieces);
    coder_settle(c, pieces, op);
    repack(c, OP_unpack, op, &k, pieces, out);
  } else {
    repack(c, OP_pack, op, &k, in, pieces);
    start_collective(c, op, coll, pieces, out);
  }
}

static double of_all_rows(const Graph *g, const Op *op) {
  return op_info[op->code].cost ? op_info[op->code].cost(g, op) : 0;
}

/* Ops have costs by the rows of their result, gradients of weights by those that they are
 * summed over. What each row costs is a whole number, and so is the number of rows. */
double coder_flops(const Graph *g, const Op *op) {
  double all = of_all_rows(g, op);
  Tid rows = op->code == OP_grouped_linear_dw ? op->in[0] : op->out[0];
  return rows >= 0 && g->t.at[rows].even < 1 ? round(all * g->t.at[rows].even) : all;
}

double coder_room(const Graph *g, const Op *op) {
  return of_all_rows(g, op) - coder_flops(g, op);
}

static double recomputed(const Graph *g, const Op *op) {
  switch (op->code) {
  case OP_linear_ce_back:
  case OP_linear_ce_dx:
  case OP_linear_ce_dw: return op_info[OP_linear].cost(g, op);
  default: return op->recomputed ? coder_flops(g, op) : 0;
  }
}

/* Ops that do most of the arithmetic of a model, and whose inputs are cut where it is. */
static bool is_product(int op) {
  static const int product[] = {
      OP_linear,           OP_linear_dx,      OP_linear_dw,         OP_linear_fp8,
      OP_linear_fp8_dx,    OP_linear_fp8_dw,  OP_linear_ce_stats,   OP_linear_ce_back,
      OP_linear_ce_dx,     OP_linear_ce_dw,   OP_router_logits,     OP_router_logits_dx,
      OP_router_logits_dw, OP_grouped_linear, OP_grouped_linear_dx, OP_grouped_linear_dw,
      OP_attention,        OP_attention_dx,   OP_attention_part,    OP_attention_part_dx,
      OP_ssm_scan,         OP_ssm_scan_dx};
  for (int i = 0; i < LEN(product); i++)
    if (product[i] == op) return true;
  return false;
}

/* All along an axis that cuts no input, of the mesh that the inputs are placed on. */
double coder_copies(const Coder *c, const Op *op) {
  static const ShardAxis over[] = {AX_CP, AX_CP_HEADS, AX_TP, AX_TP_REP, AX_ETP};
  double n = 1;
  AxisSet cuts = 0;
  for (int i = 0; i < op->nin; i++)
    if (op->in[i] >= 0) cuts |= place_cuts(c->g->t.at[op->in[i]].place);
  if (!is_product(op->code)) return 1;
  for (int i = 0; i < LEN(over); i++)
    if (ax_expert(over[i]) == axes_expert(cuts) &&
        !(axes_split(cuts) & axes_split(ax_mesh(over[i]))))
      n *= mesh_size(&c->clock->mesh, ax_mesh(over[i]));
  return n;
}

double coder_repeated(const Coder *c, const Op *op) {
  double again = c->phase == PH_F ? 0 : recomputed(c->g, op);
  return again + (coder_flops(c->g, op) - again) * (1 - 1 / coder_copies(c, op));
}

/* Adds the scratch operand of a kernel: a temporary that lives for this instruction. */
void coder_work(Coder *c, CodeInstr *x) {
  KernelArgs a = {.attr = &x->attr, .nin = x->i.nin, .nout = x->i.nout};
  for (int k = 0; k < a.nin; k++) a.in[k] = operand_shape(&x->operand[k]);
  for (int k = 0; k < a.nout; k++) a.out[k] = operand_shape(&x->operand[a.nin + k]);
  uint64_t bytes = c->device->work(x->i.op, &a);
  if (bytes == 0) return;
  int k = x->i.nin + x->i.nout;
  Dim dim = {.size = (int64_t)((bytes + 3) / 4)};
  x->t[k] = coder_temp(c, &(Tensor){.dtype = DT_F32}, &dim, 1);
  x->operand[k] = (Operand){.dtype = DT_F32, .ndim = 1, .dim = {dim.size}};
  x->i.nwork = 1;
}

/* Makes `n` scalars of the step the last operand and the result. */
static void in_scalars(CodeInstr *x, int n) {
  int nin = x->i.nin;
  for (int k = 0; k < 2; k++) {
    x->t[nin + k] = -1;
    x->operand[nin + k] =
        (Operand){.slot = SLOT_SCALARS, .dtype = DT_F64, .ndim = 1, .dim = {n}};
  }
  x->i.nin = (uint8_t)(nin + 1), x->i.nout = 1;
}

/* Accumulates what tensor t counts in the scalars of the step. */
static void accumulate(Coder *c, const Op *op, int how, Tid t) {
  CodeInstr *x = push(c, I_KERNEL, op);
  x->i.op = (uint16_t)how;
  add_in(c, x, t);
  in_scalars(x, SC_N);
}

/* The same of a cross entropy, for each source of a blend. */
static void accumulate_sources(Coder *c, const Op *op) {
  CodeInstr *x = push(c, I_KERNEL, op);
  x->i.op = OP_acc_sources;
  x->attr.n = op->attr.n;
  for (int k = 0; k < 2; k++) add_in(c, x, op->in[k]);
  add_in(c, x, op->in[ce_loss_sources(op)]);
  in_scalars(x, scalar_count(op->attr.n));
}

/* Counts the tokens of each expert on its rank, and the dropped ones where dropping is
 * decided. */
static void count_rows(Coder *c, const Op *op) {
  bool sorts = op->code == OP_permute;
  if (op->code == OP_expert_ends) accumulate(c, op, OP_acc_rows, op->out[0]);
  if (sorts && c->g->t.at[op->out[1]].place.on[AX_EP] != PL_OWN)
    accumulate(c, op, OP_acc_rows, op->out[1]);
  if (sorts && op->attr.drop != DROP_NONE) accumulate(c, op, OP_acc_dropped, op->out[2]);
}

void coder_kernel(Coder *c, const Op *op) {
  for (int k = 0; k < op->nin; k++) coder_settle(c, op->in[k], op);
  CodeInstr *x = push(c, I_KERNEL, op);
  x->attr = op->attr;
  x->flops = coder_flops(c->g, op), x->room = coder_room(c->g, op);
  for (int k = 0; k < op->nin; k++) add_in(c, x, op->in[k]);
  if (op->code == OP_running_counts) add_in(c, x, op->out[1]);
  for (int k = 0; k < op->nout; k++) add_out(c, x, op->out[k]);
  coder_backend(c, op, x);
  coder_work(c, x);
  if (op->out[0] == c->g->loss && !coder_stays(c, c->g->loss))
    accumulate(c, op, OP_acc_loss, c->g->loss);
  if (op->phase == PH_F) count_rows(c, op);
  if (op->phase == PH_F && op->code == OP_ce_loss && ce_loss_sources(op) >= 0)
    accumulate_sources(c, op);
}
