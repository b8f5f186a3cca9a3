/* kernel_operands.c - arguments of a kernel, filled so that it takes as long as in a
 * step: small numbers that are neither denormal nor grow, token ids over the whole
 * vocabulary, one document, scalars with which the optimizer steps. See
 * kernel_operands.h. */
#include "kernel_operands.h"

#include "vm/base/bf16.h"
#include "vm/base/f16.h"

/* ---- what is passed on ---- */

static const DType passed_type[PASSED_TYPES] = {DT_F32, DT_BF16, DT_F16};

static int type_of(DType t) {
  for (int i = 0; i < PASSED_TYPES; i++)
    if (passed_type[i] == t) return i;
  return -1;
}

/* Slots of parameters and gradients of the body that has the instruction; -1: it is of
 * main, where all that there is belongs to the optimizer. */
static int binds_of(const Program *p, const Instr *in) {
  uint32_t at = (uint32_t)(in - p->code);
  for (uint32_t i = 0; i < p->ncall; i++) {
    const Body *b = &p->body[p->call[i].body];
    if (at >= b->first && at < b->first + b->n) return p->call[i].nbind;
  }
  return -1;
}

static uint32_t passed_of(const Program *p, const Instr *in) {
  const Operand *o = &p->operand[in->operand];
  int binds = binds_of(p, in);
  uint32_t bits = 0;
  for (int k = 0; k < in->nin + in->nout && binds >= 0; k++) {
    bool bound = o[k].slot > 0 && o[k].slot <= binds;
    if (!bound && type_of((DType)o[k].dtype) >= 0) bits |= 1u << k;
  }
  return bits;
}

TimedKernel timed_instr(const Compiled *c, const Program *p, const Instr *in,
                        const EvenList *even) {
  const Operand *o = &p->operand[in->operand];
  TimedKernel t = {
      .op = in->op,
      .routed = routed_of(in->op),
      .passed = passed_of(p, in),
      .args = {.attr = &p->attr[in->attr], .nin = in->nin, .nout = in->nout}};
  KernelArgs *a = &t.args;
  for (int k = 0; k < a->nin; k++) a->in[k] = operand_shape(&o[k]);
  for (int k = 0; k < a->nout; k++) a->out[k] = operand_shape(&o[in->nin + k]);
  if (t.routed) t.filled = even_of(even, routed_buffer(&t)->dim[0]);
  int last = c->mesh.world - 1;
  a->accumulate = in->acc != ACC_NEVER;
  a->index = a->attr->cut ? mesh_index(&c->mesh, a->attr->cut, last) : 0;
  a->shard = a->attr->flat ? mesh_index(&c->mesh, a->attr->flat, last) : 0;
  a->heads_index = heads_index(&c->mesh, a->attr->heads_cut, last);
  /* The rank that has the matrix: the others do next to nothing. */
  if (in->op == OP_matrix_take || in->op == OP_matrix_put) a->index = a->attr->from;
  return t;
}

/* ---- places ---- */

static size_t bytes_of(const KTensor *t) {
  size_t n = (size_t)dtype_size(t->dtype);
  for (int i = 0; i < t->ndim; i++) n *= (size_t)t->dim[i];
  return n;
}

static size_t aligned(size_t n) {
  return (n + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
}

/* Ops on scalars have them as an operand and as the result. */
static int input_of(const KernelArgs *a, int out) {
  if (a->out[out].dtype != DT_F64 || a->nin == 0) return -1;
  const KTensor *last = &a->in[a->nin - 1];
  return last->dtype == DT_F64 && bytes_of(last) == bytes_of(&a->out[out]) ? a->nin - 1
                                                                           : -1;
}

static bool is_passed(const TimedKernel *t, int k) { return t->passed >> k & 1; }

size_t operands_bytes(const TimedKernel *t) {
  const KernelArgs *a = &t->args;
  size_t n = 0;
  for (int k = 0; k < a->nin; k++)
    if (!is_passed(t, k)) n += aligned(bytes_of(&a->in[k]));
  for (int k = 0; k < a->nout; k++)
    if (!is_passed(t, a->nin + k) && input_of(a, k) < 0)
      n += aligned(bytes_of(&a->out[k]));
  return MAX(n, DEVICE_ALIGN);
}

static char *take(char **from, const KTensor *t) {
  char *at = *from;
  *from += aligned(bytes_of(t));
  return at;
}

void operands_place(const TimedKernel *t, KernelArgs *a, const Places *to) {
  Places at = *to;
  for (int k = 0; k < a->nin; k++) {
    bool passed = is_passed(t, k);
    a->in[k].p = take(passed ? &at.read[type_of(a->in[k].dtype)] : &at.own, &a->in[k]);
  }
  for (int k = 0; k < a->nout; k++) {
    int same = input_of(a, k);
    char **from = is_passed(t, a->nin + k) ? &at.written : &at.own;
    a->out[k].p = same >= 0 ? a->in[same].p : take(from, &a->out[k]);
  }
}

void passed_bytes(const TimedKernel *t, PassedBytes *most) {
  const KernelArgs *a = &t->args;
  PassedBytes n = {0};
  for (int k = 0; k < a->nin; k++)
    if (is_passed(t, k)) n.read[type_of(a->in[k].dtype)] += aligned(bytes_of(&a->in[k]));
  for (int k = 0; k < a->nout; k++)
    if (is_passed(t, a->nin + k)) n.written += aligned(bytes_of(&a->out[k]));
  for (int i = 0; i < PASSED_TYPES; i++) most->read[i] = MAX(most->read[i], n.read[i]);
  most->written = MAX(most->written, n.written);
}

/* ---- values ---- */

/* From -1/2 to 1/2, the same for each place. */
static float small(size_t i) {
  uint32_t x = (uint32_t)i * 2654435761u;
  return (float)(x >> 8) / (1 << 24) - 0.5f;
}

static void fill_floats(DType t, void *to, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float v = small(i);
    if (t == DT_F32)
      ((float *)to)[i] = v;
    else
      ((uint16_t *)to)[i] = t == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
  }
}

void scalars_fill(double *s, size_t n) {
  for (size_t i = 0; i < n; i++) s[i] = 0;
  if (n < SC_N) return;
  s[SC_LR] = 1e-4;
  s[SC_BC1] = s[SC_BC2] = s[SC_SCALE] = s[SC_STEP] = s[SC_CLIP] = s[SC_TOKENS] = 1;
}

void ids_fill(int32_t *to, size_t n, int64_t rows) {
  for (size_t i = 0; i < n; i++)
    to[i] = rows > 0 ? (int32_t)((uint32_t)i * 2654435761u % (uint32_t)rows) : 0;
}

/* Ids, labels and places of rows; 0 everywhere else: one document that begins there. */
static void fill_integers(const TimedKernel *t, int operand, int32_t *to, size_t n) {
  const KernelArgs *a = &t->args;
  if (t->routed && t->routed->operand == operand) {
    routed_fill(t, to);
    return;
  }
  int64_t rows = t->op == OP_embedding      ? a->in[1].dim[0]
                 : t->op == OP_embedding_dw ? a->out[0].dim[0]
                 : operand > 0              ? a->attr->vocab
                                            : 0;
  ids_fill(to, n, rows);
}

static void fill_tensor(const TimedKernel *t, int operand, const KTensor *x) {
  size_t n = bytes_of(x) / (size_t)dtype_size(x->dtype);
  switch (x->dtype) {
  case DT_I32: fill_integers(t, operand, x->p, n); break;
  case DT_F64: scalars_fill(x->p, n); break;
  case DT_U8: memset(x->p, 0x35, n); break;
  case DT_Q8: /* of averages: what a run begins with */
  case DT_UQ8: memset(x->p, 0, bytes_of(x)); break;
  default: fill_floats(x->dtype, x->p, n);
  }
}

void operands_fill(const TimedKernel *t, char *own) {
  KernelArgs a = t->args;
  operands_place(t, &a, &(Places){.own = own});
  for (int k = 0; k < a.nout; k++)
    if (!is_passed(t, a.nin + k)) fill_tensor(t, -1, &a.out[k]);
  for (int k = 0; k < a.nin; k++)
    if (!is_passed(t, k)) fill_tensor(t, k, &a.in[k]);
}

void numbers_fill(DType t, void *to, size_t bytes) {
  if (type_of(t) < 0)
    memset(to, 0, bytes);
  else
    fill_floats(t, to, bytes / (size_t)dtype_size(t));
}

void passed_fill(int type, char *to, size_t bytes) {
  numbers_fill(passed_type[type], to, bytes);
}
