/* kernel_work.c - classes, sizes and bytes of kernels from the operands of a program; see
 * kernel_work.h. */
#include "kernel_work.h"

#include <math.h>

#include "vm/graph/rules.h"

const char *const work_name[WORK_N] = {
#define WORK(ID, name, doc) name,
#include "work_class.def"
};

static double columns(const Operand *o) { return (double)o->dim[o->ndim - 1]; }
static double rows(const Operand *o) {
  double n = (double)operand_count(o);
  return n > 0 ? n / columns(o) : 0;
}

static double bytes_of(const Operand *o, int n) {
  double bytes = 0;
  for (int i = 0; i < n; i++) bytes += (double)operand_bytes(&o[i]);
  return bytes;
}

/* Whoever writes `at` reads an operand and gives a result of a product. */
static void product(KernelWork *w, double m, double n, double k) {
  w->m = m, w->n = n, w->k = k;
  w->flops = 2 * m * n * k;
}

double move_bytes(const Instr *in, const Operand *o, const EvenList *even) {
  double room = (double)coll_bytes(in, o);
  if (!(coll_info[in->coll].is & COLL_COUNTED) || o->ndim != 3) return room;
  return round(room * even_of(even, o->dim[0] * o->dim[1]));
}

/* ---- classes ---- */

static void attention(KernelWork *w, const Program *p, const Instr *in, const Operand *o,
                      bool back) {
  const OpAttr *a = &p->attr[in->attr];
  double d = a->head_dim, dv = attr_value_dim(a);
  w->kind = back ? WORK_ATTENTION_DX : WORK_ATTENTION;
  w->m = (double)o[0].dim[1], w->n = (double)o[1].dim[1], w->k = d;
  w->heads = (double)operand_count(&o[0]) / d / w->m;
  double seen = attention_keys_seen(in->op, a, o[1].dim[1]);
  w->flops = w->heads * w->m * 2 * seen * (back ? 3 * d + 2 * dv : d + dv);
}

/* Where the weight of a product is read or written it is `w`: (O, I) or (I, O). */
static double other_size(const Operand *w, double one) {
  return (double)operand_count(w) / one;
}

static void dense(KernelWork *w, const Instr *in, const Operand *o) {
  w->kind = WORK_PRODUCT;
  if (in->op == OP_linear_dw || in->op == OP_linear_fp8_dw ||
      in->op == OP_router_logits_dw)
    product(w, columns(&o[0]), columns(&o[1]), rows(&o[0]));
  else
    product(w, rows(&o[0]), other_size(&o[1], columns(&o[0])), columns(&o[0]));
}

/* Both operands are read and written in 8 bits, each by a kernel, before the product. */
static void in_fp8(KernelWork *w, const Instr *in, const Operand *o) {
  dense(w, in, o);
  w->fp8 = true;
  w->launches = 2;
  for (int i = 0; i < 2; i++)
    w->between += (double)operand_count(&o[i]) * (dtype_size((DType)o[i].dtype) + 1);
}

/* A head in pieces: as fast as products of the rows of a piece; cross entropy reads, and
 * its gradient writes, the logits between them. */
static void head(KernelWork *w, const Program *p, const Instr *in, const Operand *o,
                 int products, int passes) {
  double all = rows(&o[0]), v = other_size(&o[1], columns(&o[0]));
  double n = p->attr[in->attr].n;
  w->kind = WORK_PRODUCT;
  product(w, all / n, v, columns(&o[0]));
  w->flops = products * 2 * all * v * columns(&o[0]);
  w->between = passes * all * v * dtype_size(w->dtype);
  w->launches = n * (products + 1) - 1;
}

static void experts(KernelWork *w, const Instr *in, const Operand *o,
                    const EvenList *even) {
  double share = even_of(even, o[0].dim[0]), r = rows(&o[0]) * share;
  bool dw = in->op == OP_grouped_linear_dw;
  const Operand *weight = dw ? &o[in->nin] : &o[1];
  double each = (double)operand_count(weight) / (double)weight->dim[0];
  w->kind = WORK_GROUPED;
  w->heads = (double)weight->dim[0];
  if (dw)
    product(w, columns(&o[0]), columns(&o[1]), r);
  else
    product(w, r, each / columns(&o[0]), columns(&o[0]));
  w->bytes = (double)operand_bytes(weight);
  for (int i = 0; i < in->nin + in->nout; i++)
    if (&o[i] != weight && o[i].ndim == 2) w->bytes += share * bytes_of(&o[i], 1);
}

/* Products of squares of a chunk in f32; states pass through memory between kernels. */
static void scan(KernelWork *w, const Program *p, const Instr *in, const Operand *o) {
  double n = p->attr[in->attr].head_dim, heads = columns(&o[1]), of = columns(&o[0]);
  bool back = in->op == OP_ssm_scan_dx;
  double states = rows(&o[0]) / SSM_CHUNK * of * n * dtype_size(DT_F32);
  w->kind = WORK_PRODUCT;
  product(w, rows(&o[0]), of, SSM_CHUNK);
  w->flops = ssm_scan_flops(rows(&o[0]), heads, of / heads, columns(&o[3]) / n, n, back);
  w->dtype = DT_F32;
  w->between = (back ? 11 : 4) * states;
  w->launches = back ? 6 : 3;
}

/* Results in the place of an input are read and written. */
KernelWork kernel_work(const Program *p, const Instr *in, const EvenList *even) {
  const Operand *o = &p->operand[in->operand];
  KernelWork w = {.kind = WORK_MOVE,
                  .dtype = (DType)o[0].dtype,
                  .bytes = kernel_traffic(in, o, even)};
  if (in->acc != ACC_NEVER) w.added = bytes_of(o + in->nin, in->nout);
  if (in->nout)
    w.cell = dtype_size((DType)o[in->nin].dtype) * (in->acc != ACC_NEVER ? 2 : 1);
  switch (in->op) {
  case OP_linear:
  case OP_linear_dx:
  case OP_linear_dw:
  case OP_router_logits:
  case OP_router_logits_dx:
  case OP_router_logits_dw: dense(&w, in, o); break;
  case OP_linear_fp8:
  case OP_linear_fp8_dx:
  case OP_linear_fp8_dw: in_fp8(&w, in, o); break;
  case OP_linear_ce_stats: head(&w, p, in, o, 1, 1); break;
  case OP_linear_ce_back: head(&w, p, in, o, 3, 2); break;
  case OP_linear_ce_dx:
  case OP_linear_ce_dw: head(&w, p, in, o, 2, 2); break;
  case OP_grouped_linear:
  case OP_grouped_linear_dx:
  case OP_grouped_linear_dw: experts(&w, in, o, even); break;
  case OP_ssm_scan:
  case OP_ssm_scan_dx: scan(&w, p, in, o); break;
  case OP_attention:
  case OP_attention_part:
  case OP_attention_step: attention(&w, p, in, o, false); break;
  case OP_attention_dx:
  case OP_attention_part_dx: attention(&w, p, in, o, true); break;
  default:
    if (in < p->code + p->nmain) w.kind = WORK_STEP;
    w.flops = (double)operand_count(&o[in->nin]);
  }
  return w;
}
