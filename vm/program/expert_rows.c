/* expert_rows.c - rows of experts in buffers; see expert_rows.h. The choices of all
 * tokens are shared by the experts: those that are here get theirs. */
#include "expert_rows.h"

void even_note(const Instr *in, const Operand *o, const OpAttr *attr, double *choices,
               Arena *a, EvenList *out) {
  if (in->code != I_KERNEL) return;
  if (in->op == OP_permute) {
    double here = (double)o[in->nin + 1].dim[0] - 1;
    *choices = (double)operand_count(&o[1]) * here / attr->experts;
  }
  if (in->op != OP_grouped_linear || *choices <= 0) return;
  for (int k = 0; k < out->n; k++)
    if (out->at[k].rows == o[0].dim[0]) return;
  *VEC_PUSH(a, *out) = (EvenRows){o[0].dim[0], MIN(*choices / (double)o[0].dim[0], 1)};
}

void even_rows(const Program *p, Arena *a, EvenList *out) {
  *out = (EvenList){0};
  for (int b = 0; b < p->nbody; b++) {
    double choices = 0;
    for (uint32_t i = p->body[b].first; i < p->body[b].first + p->body[b].n; i++) {
      const Instr *in = &p->code[i];
      even_note(in, &p->operand[in->operand], &p->attr[in->attr], &choices, a, out);
    }
  }
}

double even_of(const EvenList *even, int64_t rows) {
  for (int i = 0; i < even->n; i++)
    if (even->at[i].rows == rows) return even->at[i].even;
  return 1;
}

/* ---- bytes ---- */

static double bytes_of(const Operand *o) { return (double)operand_bytes(o); }

/* The rows of an operand that experts may have; those that are sorted by rank have a
 * place for each rank. */
static int64_t rows_of_experts(const Instr *in, const Operand *o) {
  if (o->ndim == 3 && in->op == OP_regroup) return o->dim[0] * o->dim[1];
  return o->ndim == 2 ? o->dim[0] : -1;
}

double kernel_traffic(const Instr *in, const Operand *o, const EvenList *even) {
  const Operand *out = o + in->nin;
  double bytes = 0;
  switch (in->op) {
  case OP_embedding:
  case OP_matrix_take: /* a matrix, not the block that it is in */
  case OP_slice: return 2 * bytes_of(out);
  case OP_embedding_dw: return 3 * bytes_of(&o[1]);
  case OP_matrix_put: return 2 * bytes_of(o);
  default: break;
  }
  for (int i = 0; i < in->nin + in->nout; i++)
    bytes += bytes_of(&o[i]) * even_of(even, rows_of_experts(in, &o[i]));
  return bytes;
}
