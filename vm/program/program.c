/* program.c - what the numbers of a program mean: sizes of operands, bases of slots,
 * members of communicators. Every reader of programs goes through these functions. */
#include "program.h"

uint64_t operand_count(const Operand *o) {
  uint64_t n = 1;
  for (int i = 0; i < o->ndim; i++) n *= (uint64_t)o->dim[i];
  return n;
}

uint64_t operand_bytes(const Operand *o) {
  return operand_count(o) * (uint64_t)dtype_size(o->dtype);
}

uint64_t slot_base(const Program *p, const Call *call, int slot) {
  if (slot == 0) return 0;
  assert(call);
  uint32_t i = (uint32_t)slot - 1, n = call->nbind;
  return i < n ? p->bind[call->bind + i].off : p->dyn[call->dyn + (i - n)];
}

const Call *call_that_binds(const Program *p, uint32_t bind) {
  for (uint32_t i = 0; i < p->ncall; i++)
    if (p->call[i].nbind && p->call[i].bind == bind) return &p->call[i];
  return NULL;
}

bool comm_spans_pp(const Mesh *m, const CommDesc *d) {
  if (d->npp > 0) return d->npp > 1;
  return (d->axes & AXIS_BIT(AXIS_PP)) && m->size[AXIS_PP] > 1;
}

bool comm_has_pp(const CommDesc *d, int pp) {
  for (int i = 0; i < d->npp; i++)
    if (d->pp[i] == pp) return true;
  return d->npp == 0;
}

int comm_size(const Mesh *m, const CommDesc *d) {
  if (d->npp == 0) return mesh_size(m, d->axes);
  return mesh_size(m, d->axes & ~AXIS_BIT(AXIS_PP)) * d->npp;
}

int comm_group(const Mesh *m, const CommDesc *d, int rank, int *out) {
  if (d->npp == 0) return mesh_group(m, d->axes, rank, out);
  if (!comm_has_pp(d, mesh_coord(m, rank, AXIS_PP))) return 0;
  int all = mesh_group(m, d->axes | AXIS_BIT(AXIS_PP), rank, out), n = 0;
  for (int i = 0; i < all; i++)
    if (comm_has_pp(d, mesh_coord(m, out[i], AXIS_PP))) out[n++] = out[i];
  return n;
}

int rank_on_pp(const Mesh *m, int rank, int pp) {
  return rank + (pp - mesh_coord(m, rank, AXIS_PP)) * m->stride[AXIS_PP];
}
