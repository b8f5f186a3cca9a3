/* wanted.c - the distinct kernels and transfers of programs that a table lacks; see
 * calibrate.h. */
#include "calibrate.h"
#include "vm/sim/step_cost.h"

/* ---- kernels ---- */

static bool wants(const Wanted *w, int op, const char *shape) {
  for (int i = 0; i < w->kernel.n; i++)
    if (w->kernel.at[i].in->op == op && strcmp(w->kernel.at[i].shape, shape) == 0)
      return true;
  return false;
}

static void want_kernel(Wanted *w, const Compiled *c, const Program *p, const Instr *in,
                        const EvenList *even, const CostTable *have, Arena *a) {
  char shape[KERNEL_SHAPE];
  kernel_shape(p, in, shape);
  if (table_kernel(have, in->op, shape) || wants(w, in->op, shape)) return;
  if (instr_uses_host(p, in)) {
    w->left_out++;
    return;
  }
  *VEC_PUSH(a, w->kernel) = (WantedKernel){c, p, in, arena_str(a, shape), even};
}

/* ---- transfers ---- */

static void want_bytes(Wanted *w, WantedMove m, const CostTable *have, Arena *a) {
  if (table_move(have, m.kind, m.dtype, m.ranks, (double)m.bytes)) return;
  for (int i = 0; i < w->move.n; i++) {
    const WantedMove *x = &w->move.at[i];
    if (x->kind == m.kind && x->dtype == m.dtype && x->ranks == m.ranks &&
        x->bytes == m.bytes)
      return;
  }
  *VEC_PUSH(a, w->move) = m;
}

/* Beside the size itself a small and a large one, between which all others lie. */
static void want_move(Wanted *w, const Compiled *c, const Program *p, const Instr *in,
                      const EvenList *even, const CostTable *have, Arena *a) {
  enum { SMALL = 4096, LARGE = 4 };
  const Operand *o = &p->operand[in->operand];
  bool two = instr_is[in->code] & INSTR_PAIR;
  WantedMove m = {.kind = two ? COLL_SEND : (CollKind)in->coll,
                  .dtype = (DType)o->dtype,
                  .red = (RedOp)in->red,
                  .by = in->by,
                  .ranks = two ? 2 : comm_size(&c->mesh, &p->comm[in->comm]),
                  .bytes = two ? operand_bytes(o) : (uint64_t)move_bytes(in, o, even)};
  if (m.ranks < 2) return;
  want_bytes(w, m, have, a);
  uint64_t own = m.bytes;
  m.bytes = SMALL;
  want_bytes(w, m, have, a);
  m.bytes = own > SMALL ? LARGE * own : LARGE * SMALL;
  for (int i = 0; i < have->move.n; i++) {
    const MoveRow *r = &have->move.at[i];
    if (r->kind == m.kind && r->dtype == m.dtype && r->ranks == m.ranks &&
        r->bytes > (double)own)
      return;
  }
  want_bytes(w, m, have, a);
}

void wanted_add(Wanted *w, const Compiled *c, const CostTable *have, Arena *a) {
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &c->prog[pp];
    EvenList *even = NEW(a, EvenList);
    even_rows(p, a, even);
    for (uint32_t i = 0; i < p->ncode; i++) {
      const Instr *in = &p->code[i];
      if (in->code == I_KERNEL) want_kernel(w, c, p, in, even, have, a);
      if (instr_is[in->code] & INSTR_STARTS && in->code != I_RECV)
        want_move(w, c, p, in, even, have, a);
    }
  }
}
